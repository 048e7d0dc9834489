package rest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Env looks up an environment variable; os.LookupEnv is one. A nil Env has
// no variables.
type Env func(name string) (value string, ok bool)

// Value is a text of the file that may be or hold a secret. It prints, logs
// and marshals as it was written in the file ("${CHAT_TOKEN}"); only [Value.Reveal]
// gives what it stands for. The zero value is an absent text.
type Value struct {
	written string
	// held is behind a pointer, so that printing a struct that keeps a Value in
	// an unexported field, where no method is called, shows an address.
	held *string
}

func newValue(written, value string) Value { return Value{written: written, held: &value} }

// Reveal is the text to send.
func (v Value) Reveal() string {
	if v.held == nil {
		return ""
	}
	return *v.held
}

// String is the text as it was written in the file.
func (v Value) String() string { return v.written }

// Format writes the text as it was written, whatever the verb.
func (v Value) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, v.written) }

// MarshalText gives the text as it was written.
func (v Value) MarshalText() ([]byte, error) { return []byte(v.written), nil }

// cause drops the path from an error of the file system: the message has it already.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// reference is one ${NAME} in a text.
type reference struct {
	name string
	// bad is set when what stands between the braces is not a variable's name.
	bad bool
}

// substitute replaces each ${NAME} by the variable's value and each $${ by ${.
// References that look up fails for are left as they are and listed.
func substitute(s string, env Env) (out string, refs, missing []reference) {
	if !strings.Contains(s, "${") {
		return s, nil, nil
	}
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), refs, missing
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		name, rest, closed := strings.Cut(s[i+2:], "}")
		ref := reference{name: name, bad: !closed || !variable(name)}
		refs = append(refs, ref)
		value, ok := "", false
		if !ref.bad && env != nil {
			value, ok = env(name)
		}
		if !ok {
			missing = append(missing, ref)
			value = s[i : len(s)-len(rest)]
		}
		b.WriteString(value)
		s = rest
	}
}

// variable reports whether s can be an environment variable's name.
func variable(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
