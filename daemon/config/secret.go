package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/headway-go/headway/internal/secretfile"
	"github.com/headway-go/headway/internal/yamlnode"
)

// Secret is a credential. It prints as it was written in the file, such as
// {env: OPENAI_API_KEY}; only [Secret.Reveal] gives what it stands for. The zero
// value means none.
type Secret struct {
	written string
	// held is behind a pointer, so that printing a struct around it shows an address.
	held *string
}

// Reveal is the credential itself; "" when there is none.
func (s Secret) Reveal() string {
	if s.held == nil {
		return ""
	}
	return *s.held
}

// Given reports whether there is one.
func (s Secret) Given() bool { return s.held != nil }

// String is the reference as it was written.
func (s Secret) String() string { return s.written }

// Format writes the reference, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.written) }

// MarshalText gives the reference.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.written), nil }

const wantSecret = "{env: NAME} or {file: PATH}; a secret does not stand in this file"

// secret reads a reference to a credential. Whatever is wrong, the credential
// is not in the problem.
func (m *section) secret(key string) Secret {
	n, s := m.reference(key)
	return m.sendable(n, key, s, false)
}

// headerValue reads a reference to the value of a header, which may have spaces:
// Bearer and a token. In the form that OTEL_EXPORTER_OTLP_HEADERS has they are
// percent-encoded.
func (m *section) headerValue(key string) Secret {
	n, s := m.reference(key)
	if v := s.Reveal(); !strings.Contains(v, " ") && strings.Contains(v, "%20") {
		if v, err := url.PathUnescape(v); err == nil {
			s.held = &v
		}
	}
	return m.sendable(n, key, s, true)
}

// reference reads what a reference stands for, whatever its characters.
func (m *section) reference(key string) (n ast.Node, s Secret) {
	n = m.take(key)
	if n == nil {
		return n, s
	}
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	default:
		m.r.fail(n, m.at(key), shape(n), wantSecret)
		return n, s
	}
	from := m.r.section(n, m.at(key))
	env, file := from.source("env"), from.source("file")
	for _, p := range from.pairs {
		if !p.taken {
			m.r.fail(p.key, from.path, "neither env nor file", wantSecret)
			return n, s
		}
	}
	switch {
	case env != "" && file != "":
		m.r.fail(n, m.at(key), "both env and file", "one of them")
	case env != "":
		s = m.fromEnv(n, key, env)
	case file != "":
		s = m.fromFile(n, key, file)
	case len(from.pairs) == 0:
		m.r.fail(n, m.at(key), "empty", wantSecret)
	}
	return n, s
}

// source is the name of a variable or file.
func (m *section) source(key string) string {
	n := m.take(key)
	if n == nil {
		return ""
	}
	if s, ok := n.(*ast.StringNode); ok && s.Value != "" {
		return s.Value
	}
	m.r.fail(n, m.at(key), shape(n), "a name")
	return ""
}

func (m *section) fromEnv(n ast.Node, key, name string) Secret {
	written := "{env: " + yamlnode.Clip(name) + "}"
	value := m.r.getenv(name)
	if value == "" {
		m.r.fail(n, m.at(key), written+", which is not set", "a variable of the environment that is set")
		return Secret{}
	}
	return Secret{written, &value}
}

func (m *section) fromFile(n ast.Node, key, path string) Secret {
	written := "{file: " + yamlnode.Clip(path) + "}"
	value, mode, err := secretfile.Read(path)
	if err != nil {
		m.r.fail(n, m.at(key), fmt.Sprintf("%s, which cannot be used: %v", written, err), "a file that holds the secret and nothing else")
		return Secret{}
	}
	if mode.Perm()&0o004 != 0 {
		m.r.warn(n, "%s is %s, which every user of this machine can read; chmod 600 it", m.at(key), written)
	}
	return Secret{written, &value}
}

// sendable refuses a secret that no header can hold. Spaces are allowed between
// other characters only, if at all.
func (m *section) sendable(n ast.Node, key string, s Secret, spaces bool) Secret {
	v := s.Reveal()
	bad := strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' || c == ' ' && !spaces })
	if bad || v != strings.TrimSpace(v) {
		m.r.fail(n, m.at(key), s.written+" with a space, a line break or another character that no header takes", "printable ASCII")
		return Secret{}
	}
	return s
}

// cause is an error of the file system without the path, which stands beside it.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
