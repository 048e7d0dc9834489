package target

import "github.com/headway-go/headway/internal/configfile"

// Names for what reads a target file.
type (
	// Env looks up an environment variable; os.LookupEnv is one.
	Env = configfile.Env
	// Secret is a text that may hold a credential. It prints as it was written in the
	// file ("${CRM_TOKEN}"); only its Reveal gives what it stands for.
	Secret = configfile.Secret
	// Problem is one thing that is wrong with a target file.
	Problem = configfile.Problem
	// FileError is everything that is wrong with a target file, in its order.
	FileError = configfile.Error
)

// options are how a target file is read.
var options = configfile.Options{What: "target", Want: "target, and http or dataverse"}

// Load reads a target file. Its error is a [*FileError] with every problem that
// the file has, or says why it cannot be read.
func Load(path string, env Env) (*Config, error) {
	src, err := configfile.Load(path, options)
	if err != nil {
		return nil, err
	}
	return Parse(path, src, env)
}

// Parse is [Load] for a file that was read already; name stands in errors. The
// files that secrets are in are read all the same.
func Parse(name string, src []byte, env Env) (*Config, error) {
	o := options
	o.Env = env
	root, file := configfile.Parse(name, src, o)
	c := &Config{}
	if s := (section{root.Section()}); s.Section != nil {
		s.config(c)
		s.Done()
	}
	if err := file.Err(); err != nil {
		return nil, err
	}
	return c, nil
}
