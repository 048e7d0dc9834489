package target

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/headway-go/headway/internal/secretfile"
)

// Secret is a text that may hold a credential. It prints as it was written in
// the file ("${CRM_TOKEN}"); only [Secret.Reveal] gives what it stands for.
type Secret struct {
	written string
	// held is behind a pointer, so that printing a struct around it shows an address.
	held *string
}

// Reveal is the text to send.
func (s Secret) Reveal() string {
	if s.held == nil {
		return ""
	}
	return *s.held
}

// String is the text as it was written in the file.
func (s Secret) String() string { return s.written }

// Format writes the text as it was written, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.written) }

// MarshalText gives the text as it was written.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.written), nil }

// rawSecret is a reference as the file has it: "${NAME}", or {file: path}.
type rawSecret struct{ text, file string }

// UnmarshalYAML reads either form.
func (s *rawSecret) UnmarshalYAML(decode func(any) error) error {
	if decode(&s.text) == nil {
		return nil
	}
	var f struct {
		File string `yaml:"file"`
	}
	if err := decode(&f); err != nil {
		return err
	}
	s.file = f.File
	return nil
}

func (s *rawSecret) given() bool { return s != nil && (s.text != "" || s.file != "") }

var reference = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// secret resolves a reference. With must, it has to be there.
func (r *report) secret(s *rawSecret, field string, must bool) Secret {
	switch {
	case !s.given():
		if must {
			r.add(field, "is missing")
		}
		return Secret{}
	case s.file != "":
		text, _, err := secretfile.Read(s.file)
		if err != nil {
			r.add(field, "is file %q, which cannot be used: %v", s.file, err)
		}
		return r.checked(Secret{"file " + s.file, &text}, field)
	case !reference.MatchString(s.text):
		r.add(field, "is written out, and a secret; want a reference such as ${CRM_TOKEN}, or {file: path}")
		return Secret{}
	}
	return r.checked(r.filled(s.text, field), field)
}

// filled replaces the references of a text.
func (r *report) filled(text, field string) Secret {
	out := reference.ReplaceAllStringFunc(text, func(ref string) string {
		name := ref[2 : len(ref)-1]
		value, ok := "", false
		if r.env != nil {
			value, ok = r.env(name)
		}
		if !ok || value == "" {
			r.add(field, "refers to ${%s}, which is not set: set this environment variable", name)
		}
		return value
	})
	return Secret{text, &out}
}

// checked reports a secret that no header can hold.
func (r *report) checked(s Secret, field string) Secret {
	if strings.IndexFunc(s.Reveal(), func(c rune) bool { return c < ' ' || c == 0x7f }) >= 0 {
		r.add(field, "is %s, whose value has a line break or another control character", s)
	}
	return s
}
