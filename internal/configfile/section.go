package configfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/figure"
)

// Section is one mapping of the file. Each method reads one key, and leaves its
// destination unchanged if the key is absent or invalid; [Section.Done] reports the keys
// that were not read. A nil Section has no keys.
type Section struct {
	node  *Node
	known []string
}

// Section reads a mapping. If the node is not one, it returns nil and reports a problem.
// For a nil node it returns nil.
func (n *Node) Section() *Section {
	switch {
	case n == nil:
		return nil
	case n.Kind == Table:
		return &Section{node: n}
	case n.Path == "":
		n.Fail("%s; want a mapping with %s", n.shape(), n.file.options.Want)
	default:
		n.Fail("%s; want a mapping", n.shape()) // a text may be a secret at the wrong place
	}
	return nil
}

// Node returns the mapping.
func (s *Section) Node() *Node { return s.node }

// File returns the file that collects the section's problems.
func (s *Section) File() *File { return s.node.file }

// Fields returns the entries, for keys that the owner chose.
func (s *Section) Fields() []Field {
	if s == nil {
		return nil
	}
	return s.node.Fields
}

// Take returns the value of a key; nil if it is absent.
func (s *Section) Take(key string) *Node {
	if s == nil {
		return nil
	}
	if !slices.Contains(s.known, key) {
		s.known = append(s.known, key)
	}
	return s.node.Get(key)
}

// Has reports whether a key is present, whatever its value.
func (s *Section) Has(key string) bool { return s != nil && s.node.Get(key) != nil }

// Fail reports a problem with a key's value, or with the mapping if the key is absent.
func (s *Section) Fail(key, format string, args ...any) {
	if s == nil {
		return
	}
	at := s.node.At
	if n := s.node.Get(key); n != nil {
		at = n.At
	}
	s.node.file.Fail(at, s.node.Below(key), format, args...)
}

// Want reports that a key is missing, or that its value is not what is required.
func (s *Section) Want(key, bound string) {
	if s == nil {
		return
	}
	if n := s.node.Get(key); n != nil {
		n.Want(bound)
		return
	}
	s.Fail(key, "is missing; want %s", bound)
}

// Require reports that a key is missing.
func (s *Section) Require(key, bound string) {
	if s != nil && !s.Has(key) {
		s.Want(key, bound)
	}
}

// Done reports the keys that were not read.
func (s *Section) Done() {
	if s == nil {
		return
	}
	for _, f := range s.node.Fields {
		if !slices.Contains(s.known, f.Name) {
			s.node.file.Fail(f.At, s.node.Below(f.Name), "is not a field here: %s", Suggest(f.Name, s.known))
		}
	}
}

// Only reports all other keys.
func (s *Section) Only(keys ...string) {
	if s != nil {
		s.known = append(s.known, keys...)
		s.Done()
	}
}

// Below returns the section of a key; nil if there is none.
func (s *Section) Below(key string) *Section { return s.Take(key).Section() }

// List returns the elements of a list; nil if the key is absent.
func (s *Section) List(key string) []*Node {
	n := s.Take(key)
	if n != nil && n.Kind != List {
		n.Want("a list")
		return nil
	}
	if n == nil {
		return nil
	}
	return n.Items
}

// Texts reads a list of texts.
func (s *Section) Texts(key string) (all []string) {
	for _, n := range s.List(key) {
		var v string
		if n.plain(&v) {
			all = append(all, v)
		}
	}
	return all
}

// Words reads a mapping of texts.
func (s *Section) Words(key string) map[string]string {
	m := s.Below(key)
	if m == nil {
		return nil
	}
	words := make(map[string]string, len(m.node.Fields))
	for _, f := range m.node.Fields {
		var v string
		m.Text(f.Name, &v)
		words[f.Name] = v
	}
	return words
}

// Text reads a text that is not empty.
func (s *Section) Text(key string, into *string) {
	if n := s.Take(key); n != nil {
		n.plain(into)
	}
}

// plain reads a non-empty text. Unless the file allows references everywhere, a reference
// in it is a problem, because its author expects it to be replaced.
func (n *Node) plain(into *string) bool {
	switch {
	case n.Kind != Text || n.Value == "":
		n.Want("a text")
		return false
	case n.refs > 0 && !n.file.options.Fill:
		for at, name := range references(n.Written) {
			if plainName(name) || strings.HasPrefix(name, fromFile) {
				n.Fail("refers to ${%s}, which is replaced in secrets only; want the value written out", n.Written[at+2:at+2+len(name)])
				return false
			}
		}
	}
	*into = n.Value
	return true
}

// OneOf reads one of a few words that are themselves the values.
func OneOf[T ~string](s *Section, key string, into *T, words ...T) {
	values, order := make(map[string]T, len(words)), make([]string, len(words))
	for i, w := range words {
		values[string(w)], order[i] = w, string(w)
	}
	Choice(s, key, into, values, order...)
}

// Choice reads one of a few words, which problems list in order, as the value that it
// stands for.
func Choice[T any](s *Section, key string, into *T, words map[string]T, order ...string) {
	n := s.Take(key)
	if n == nil {
		return
	}
	if v, ok := words[n.Value]; ok && n.Kind == Text {
		*into = v
		return
	}
	n.Want("one of " + strings.Join(order, ", "))
}

// Bool reads true or false.
func (s *Section) Bool(key string, into *bool) {
	n := s.Take(key)
	switch {
	case n == nil:
	case n.Kind != Boolean:
		n.Want("true or false")
	default:
		*into = n.Value == "true"
	}
}

// Int reads a whole number from lo to hi.
func Int[T ~int | ~int64](s *Section, key string, into *T, lo, hi T) {
	n := s.Take(key)
	if n == nil {
		return
	}
	if v, ok := n.Int(); ok && v >= int64(lo) && v <= int64(hi) {
		*into = T(v)
		return
	}
	n.Want(fmt.Sprintf("a whole number from %d to %d", lo, hi))
}

// Number reads a number from lo to hi.
func (s *Section) Number(key string, into *float64, lo, hi float64) {
	n := s.Take(key)
	if n == nil {
		return
	}
	if v, ok := n.Float(); ok && v >= lo && v <= hi {
		*into = v
		return
	}
	n.Want(fmt.Sprintf("a number from %g to %g", lo, hi))
}

// Duration reads a duration from lo to hi.
func (s *Section) Duration(key string, into *time.Duration, lo, hi time.Duration) {
	n := s.Take(key)
	if n == nil {
		return
	}
	d, ok := n.Duration()
	switch {
	case !ok:
	case d < lo || d > hi:
		n.Want(fmt.Sprintf("from %s to %s", figure.Duration(lo), figure.Duration(hi)))
	default:
		*into = d
	}
}

var units = []struct {
	name string
	size int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// Size reads a number of bytes with its unit, from lo to hi.
func (s *Section) Size(key string, into *int64, lo, hi int64) {
	n := s.Take(key)
	if n == nil {
		return
	}
	if n.Kind == Text {
		for _, u := range units {
			number, ok := strings.CutSuffix(n.Value, u.name)
			if !ok {
				continue
			}
			v, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			if err == nil && v >= 0 && v <= hi/u.size && v*u.size >= lo {
				*into = v * u.size
				return
			}
			break
		}
	}
	n.Want(fmt.Sprintf("a size from %s to %s, with its unit", Size(lo), Size(hi)))
}

// Size returns a number of bytes in the form that files use, such as 32MiB.
func Size(n int64) string {
	for _, u := range []int{2, 1, 0} {
		if n >= units[u].size && n%units[u].size == 0 {
			return strconv.FormatInt(n/units[u].size, 10) + units[u].name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

const wantSecret = "a reference such as ${NAME} or ${file:PATH}: a secret does not stand in the file"

// Secret reads a reference to a credential: ${NAME} or ${file:PATH}, possibly with text
// around it, or {env: NAME} or {file: PATH}. Problems never contain the credential.
func (s *Section) Secret(key string) Secret { return s.Take(key).Secret() }

// Secret is [Section.Secret] for a node; for nil it returns the zero Secret.
func (n *Node) Secret() Secret {
	switch {
	case n == nil:
		return Secret{}
	case n.Kind == Table:
		return n.referenceByKey()
	case n.Kind == Text && n.refs > 0:
		return n.secret()
	case n.Kind == List || n.Kind == Null || n.Written == "":
		n.Want(wantSecret)
	default:
		n.Fail("is written out; want %s", wantSecret)
	}
	return Secret{}
}

// Value reads a text that may be or contain a secret: its references are replaced.
func (s *Section) Value(key string) Secret { return s.Take(key).value() }

func (n *Node) value() Secret {
	switch {
	case n == nil:
		return Secret{}
	case n.Kind == Table:
		return n.referenceByKey()
	case n.Kind == List || n.Kind == Null || n.Written == "":
		n.Fail("%s; want a text, or a reference such as ${NAME}", n.shape())
		return Secret{}
	}
	return n.secret()
}

// secret returns the text with its references replaced.
func (n *Node) secret() Secret {
	value, ok := n.resolve()
	if !ok {
		return Secret{}
	}
	return n.usable(n.Written, value)
}

// usable returns the secret, unless it is one that no program can use.
func (n *Node) usable(written, value string) Secret {
	switch {
	case value == "":
		n.Fail("is %s, which is set but empty", Quote(written))
		return Secret{}
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		n.Fail("is %s, whose value has a line break or another control character", Quote(written))
		return Secret{}
	}
	return NewSecret(written, value)
}

// referenceByKey reads the form {env: NAME} or {file: PATH}.
func (n *Node) referenceByKey() Secret {
	s := n.Section()
	env, file := s.Take("env"), s.Take("file")
	s.Done()
	given := env
	if file != nil {
		given = file
	}
	switch {
	case env != nil && file != nil:
		n.Fail("has env and file; want one of them")
	case given == nil && len(n.Fields) > 0: // already reported
	case given == nil:
		n.Fail("has neither env nor file; want %s", wantSecret)
	case given.Kind != Text || given.Written == "":
		given.Fail("%s; want a name", given.shape())
	case file != nil:
		if value, ok := n.secretFile(given.Value); ok {
			return n.usable("{file: "+given.Written+"}", value)
		}
	default:
		if value, ok := n.variable(given.Value); ok {
			return n.usable("{env: "+given.Written+"}", value)
		}
		n.Fail("needs the environment variable %s, which is not set", shorten(given.Written, 60))
	}
	return Secret{}
}
