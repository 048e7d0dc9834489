package rest

// naming is where a file names a stream.
type naming struct {
	at      place
	path    string // of the field
	written string
	stream  string
}

// CheckNames reports each stream whose name wrong does not suit, where the file
// names it; wrong says what is the matter, or gives the empty text. The error is a
// [*ConfigError].
func (c *Config) CheckNames(wrong func(stream string) string) error {
	r := newReport(c.file)
	for _, n := range c.names {
		if text := wrong(n.stream); text != "" {
			r.add(n.at, n.path, "is %s, which cannot be a stream of this sink: %s; rename the stream", quote(n.written), text)
		}
	}
	return r.err()
}
