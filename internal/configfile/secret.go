package configfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Env looks up an environment variable, like os.LookupEnv. A nil Env has no variables.
type Env func(name string) (value string, ok bool)

// Secret is a text of the file that may be or contain a secret. It prints, logs and
// marshals as written in the file ("${CHAT_TOKEN}"); only [Secret.Reveal] returns the
// value. The zero value is an absent text.
type Secret struct {
	written string
	// held is behind a pointer, so that printing a struct that keeps a Secret in
	// an unexported field, where no method is called, shows an address.
	held *string
}

// NewSecret returns a value that prints as written.
func NewSecret(written, value string) Secret { return Secret{written: written, held: &value} }

// Reveal returns the value to send.
func (s Secret) Reveal() string {
	if s.held == nil {
		return ""
	}
	return *s.held
}

// Given reports whether there is a value.
func (s Secret) Given() bool { return s.held != nil }

// String returns the text as written in the file.
func (s Secret) String() string { return s.written }

// Format writes the text as written in the file, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.written) }

// MarshalText returns the text as written in the file.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.written), nil }

// references iterates over the ${…} of a text: where each begins, and the text between
// its braces.
func references(s string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for from := 0; ; {
			i := strings.Index(s[from:], "${")
			if i < 0 {
				return
			}
			at := from + i
			if at > 0 && s[at-1] == '$' {
				from = at + 2
				continue
			}
			name, _, closed := strings.Cut(s[at+2:], "}")
			if !closed {
				name = "" // nothing is called that
			}
			if !yield(at, name) {
				return
			}
			from = at + 2 + len(name)
		}
	}
}

// fromFile is the prefix of a reference to a file.
const fromFile = "file:"

// resolve returns the text with its references replaced and each $${ as ${. If a
// reference is invalid, it is reported and ok is false.
func (n *Node) resolve() (out string, ok bool) {
	if !strings.Contains(n.Written, "${") {
		return n.Written, true
	}
	var (
		b       strings.Builder
		missing []string
		done    int
	)
	unescape := func(s string) { b.WriteString(strings.ReplaceAll(s, "$${", "${")) }
	ok = true
	for at, name := range references(n.Written) {
		unescape(n.Written[done:at])
		done = at + len("${}") + len(name)
		path, isFile := strings.CutPrefix(name, fromFile)
		switch {
		case isFile && path != "":
			value, read := n.secretFile(path)
			ok = ok && read
			b.WriteString(value)
		case !plainName(name):
			n.Fail("has a ${…} that is not a reference: write ${NAME} with letters, digits and underscores, ${file:PATH}, or $${ for a literal ${")
			return "", false
		default:
			value, set := n.variable(name)
			if !set && !slices.Contains(missing, name) {
				missing = append(missing, name)
			}
			b.WriteString(value)
		}
	}
	unescape(n.Written[done:])
	switch len(missing) {
	case 0:
		return b.String(), ok
	case 1:
		n.Fail("needs the environment variable %s, which is not set", missing[0])
	default:
		n.Fail("needs the environment variables %s, which are not set", strings.Join(missing, ", "))
	}
	return "", false
}

// secretFile reads the file of a secret.
func (n *Node) secretFile(path string) (value string, ok bool) {
	value, mode, err := readSecret(path)
	if err != nil {
		n.Fail("is file %s, which cannot be used: %v; want a file that holds the secret and nothing else", Quote(path), err)
		return "", false
	}
	if mode.Perm()&0o004 != 0 {
		n.file.Warn(n.At, "%s: every user of this machine can read file %s; chmod 600 it", n.Path, Quote(path))
	}
	return value, true
}

// fill replaces the references in every text below the node.
func (n *Node) fill() {
	for _, v := range n.Items {
		v.fill()
	}
	for _, f := range n.Fields {
		f.Node.fill()
	}
	if n.Kind == Text {
		if value, ok := n.resolve(); ok {
			n.Value = value
		}
	}
}

// variable looks up an environment variable.
func (n *Node) variable(name string) (value string, ok bool) {
	if n.file.options.Env == nil {
		return "", false
	}
	return n.file.options.Env(name)
}

// plainName reports whether s can be an environment variable's name.
func plainName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// maxSecret bounds the file of a secret, in bytes: no credential is longer.
const maxSecret = 64 << 10

// readSecret reads the file of a secret without the line breaks at its end, and returns
// the file's mode. Only regular files are read, because a device or a pipe may never end.
// The error contains neither the path nor any of the content.
func readSecret(path string) (secret string, mode fs.FileMode, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", 0, cause(err)
	case !info.Mode().IsRegular():
		return "", 0, errors.New("it is not a regular file")
	case info.Size() > maxSecret:
		return "", 0, fmt.Errorf("it has %d bytes, at most %d are read", info.Size(), maxSecret)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", 0, cause(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1)) // it may have grown meanwhile
	switch text := strings.TrimRight(string(b), "\r\n"); {
	case err != nil:
		return "", 0, cause(err)
	case len(b) > maxSecret:
		return "", 0, fmt.Errorf("it is longer than %d bytes", maxSecret)
	case text == "":
		return "", 0, errors.New("it is empty")
	default:
		return text, info.Mode(), nil
	}
}

// fleetBound describes valid addresses of a fleet.
const fleetBound = "unix:///PATH/headway.sock, valkey://USER@HOST:6379 or valkeys:// for TLS, with ?away=wait to send nothing while the server is away"

// Fleet reads the address of a fleet's server, or the word none. A nil node gives the zero
// Secret. A password must be in a reference.
func (n *Node) Fleet() Secret {
	at := n.value()
	text := at.Reveal()
	if text == "" || text == "none" {
		return at
	}
	u, err := url.Parse(text)
	password := false
	if err == nil && u.User != nil {
		_, password = u.User.Password()
	}
	switch {
	case err != nil || !fleetAddress(u):
		n.Fail("is not the address of a fleet's server; want %s, or none", fleetBound)
	case password && at.String() == text:
		n.Fail("has a password in it; want the whole address as a reference, ${NAME} or ${file:PATH}")
	}
	return at
}

// fleetAddress reports whether a fleet supports this kind of address.
func fleetAddress(u *url.URL) bool {
	for name, values := range u.Query() {
		if name != "away" || len(values) != 1 || values[0] != "wait" && values[0] != "share" {
			return false
		}
	}
	switch u.Scheme {
	case "unix":
		return u.Host+u.Path != ""
	case "valkey", "valkeys", "redis", "rediss":
		if path := strings.Trim(u.Path, "/"); path != "" {
			if _, err := strconv.ParseUint(path, 10, 16); err != nil {
				return false
			}
		}
		return u.Hostname() != "" && u.Opaque == "" && u.Fragment == ""
	}
	return false
}
