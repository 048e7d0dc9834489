package rest

import "github.com/headway-go/headway/internal/configfile"

// naming is where a file names a stream.
type naming struct {
	at      configfile.Place
	path    string // of the field
	written string
	stream  string
}

// CheckNames reports each stream whose name wrong does not suit, where the file
// names it; wrong says what is the matter, or gives the empty text. The error is a
// [*ConfigError].
func (c *Config) CheckNames(wrong func(stream string) string) error {
	f := configfile.NewFile(c.file, configfile.Options{})
	for _, n := range c.names {
		if text := wrong(n.stream); text != "" {
			f.Fail(n.at, n.path, "is %s, which cannot be a stream of this sink: %s; rename the stream", configfile.Quote(n.written), text)
		}
	}
	return f.Err()
}
