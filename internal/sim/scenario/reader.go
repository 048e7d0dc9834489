package scenario

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// reader walks a syntax tree and collects everything that is wrong with it, so
// that one run of a command shows all errors of a file.
type reader struct {
	file     string
	problems Problems
}

// maxProblems bounds how much an error says about a file that is not a scenario.
const maxProblems = 100

func (r *reader) fail(at *token.Token, field, format string, args ...any) {
	if len(r.problems) == maxProblems {
		return
	}
	p := Problem{File: r.file, Line: 1, Column: 1, Field: field, Message: fmt.Sprintf(format, args...)}
	if at != nil && at.Position != nil {
		p.Line, p.Column = max(1, at.Position.Line), max(1, at.Position.Column)
	}
	r.problems = append(r.problems, p)
}

// mapping is one YAML mapping whose keys have been checked against a list.
type mapping struct {
	r      *reader
	path   string
	at     *token.Token
	values map[string]ast.Node
}

// mapping reads node as a mapping with only the named fields. ok is false, and
// the problem is reported, when it is not a mapping at all.
func (r *reader) mapping(path string, node ast.Node, fields ...string) (m mapping, ok bool) {
	var pairs []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		r.fail(tokenOf(node), path, "must be a mapping, got %s", kindOf(node))
		return m, false
	}
	m = mapping{r: r, path: path, at: tokenOf(node), values: make(map[string]ast.Node, len(pairs))}
	for i, pair := range pairs {
		at := tokenOf(pair.Key)
		if i == 0 && at != nil {
			m.at = at
		}
		key, plain := pair.Key.(*ast.StringNode)
		switch {
		case !plain:
			r.fail(at, path, "keys must be plain field names, got %s", kindOf(pair.Key))
		case !slices.Contains(fields, key.Value):
			r.fail(at, join(path, clip(key.Value)), "unknown field, want one of %s", strings.Join(fields, ", "))
		case m.has(key.Value):
			r.fail(at, join(path, key.Value), "given twice")
		default:
			m.values[key.Value] = pair.Value
		}
	}
	return m, true
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

func (m mapping) has(field string) bool { _, ok := m.values[field]; return ok }

// fail reports a problem with a field's value, or with the mapping when the
// field is absent.
func (m mapping) fail(field, format string, args ...any) {
	at := m.at
	if n, ok := m.values[field]; ok {
		at = tokenOf(n)
	}
	m.r.fail(at, join(m.path, field), format, args...)
}

// require reports each field that is missing.
func (m mapping) require(fields ...string) {
	for _, f := range fields {
		if !m.has(f) {
			m.fail(f, "is required")
		}
	}
}

// together reports two fields of which only one is given.
func (m mapping) together(a, b string) {
	if m.has(a) != m.has(b) {
		m.fail(a, "and %s go together", b)
	}
}

// section reads a field as a mapping; ok is false when it is absent or not one.
func (m mapping) section(field string, fields ...string) (mapping, bool) {
	n, ok := m.values[field]
	if !ok {
		return mapping{}, false
	}
	return m.r.mapping(join(m.path, field), n, fields...)
}

// entry is one element of a list.
type entry struct {
	path string
	node ast.Node
}

// list reads a field as a list of at most MaxListed elements.
func (m mapping) list(field string) []entry {
	n, ok := m.values[field]
	if !ok {
		return nil
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		m.fail(field, "must be a list, got %s", kindOf(n))
		return nil
	}
	if len(seq.Values) > MaxListed {
		m.fail(field, "has %d entries, at most %d are allowed", len(seq.Values), MaxListed)
		return nil
	}
	entries := make([]entry, len(seq.Values))
	for i, v := range seq.Values {
		entries[i] = entry{path: fmt.Sprintf("%s[%d]", join(m.path, field), i), node: v}
	}
	return entries
}

func (m mapping) text(field string, limit int) string {
	n, ok := m.values[field]
	if !ok {
		return ""
	}
	var s string
	switch n := n.(type) {
	case *ast.StringNode:
		s = n.Value
	case *ast.LiteralNode:
		s = n.Value.Value
	default:
		m.fail(field, "must be text, got %s", kindOf(n))
		return ""
	}
	if s == "" {
		m.fail(field, "must not be empty")
	}
	if utf8.RuneCountInString(s) > limit {
		m.fail(field, "is longer than %d characters", limit)
		return ""
	}
	return s
}

func (m mapping) boolean(field string) bool {
	n, ok := m.values[field]
	if !ok {
		return false
	}
	b, ok := n.(*ast.BoolNode)
	if !ok {
		m.fail(field, "must be true or false, got %s", kindOf(n))
		return false
	}
	return b.Value
}

// word reads one of a fixed set of words.
func word[T ~string](m mapping, field string, otherwise T, allowed ...T) T {
	n, ok := m.values[field]
	if !ok {
		return otherwise
	}
	s, ok := n.(*ast.StringNode)
	if ok && slices.Contains(allowed, T(s.Value)) {
		return T(s.Value)
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	want := strings.Join(names, ", ")
	if ok {
		m.fail(field, "%q must be one of %s", clip(s.Value), want)
	} else {
		m.fail(field, "must be one of %s, got %s", want, kindOf(n))
	}
	return otherwise
}

func (m mapping) integer(field string, otherwise, low, high int) int {
	n, ok := m.values[field]
	if !ok {
		return otherwise
	}
	if _, ok := n.(*ast.IntegerNode); !ok {
		m.fail(field, "must be a whole number, got %s", kindOf(n))
		return otherwise
	}
	text := tokenOf(n).Value
	v, err := strconv.Atoi(text)
	if err != nil || v < low || v > high {
		m.fail(field, "%s must be a whole number from %d to %d", clip(text), low, high)
		return otherwise
	}
	return v
}

// number reads a finite number; low is a bound that is itself allowed unless
// open is set.
func (m mapping) number(field string, otherwise, low, high float64, open bool) float64 {
	n, ok := m.values[field]
	if !ok {
		return otherwise
	}
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
	default:
		m.fail(field, "must be a number, got %s", kindOf(n))
		return otherwise
	}
	text := tokenOf(n).Value
	v, err := strconv.ParseFloat(text, 64)
	bound := "at least"
	if open {
		bound = "above"
	}
	if err != nil || math.IsNaN(v) || v < low || v > high || open && v == low {
		m.fail(field, "%s must be %s %g and at most %g", clip(text), bound, low, high)
		return otherwise
	}
	return v
}

// duration reads a length of time from low to high, both allowed.
func (m mapping) duration(field string, otherwise, low, high time.Duration) time.Duration {
	text, ok := m.scalar(field, "a duration such as 250ms, 15m or 1d")
	if !ok {
		return otherwise
	}
	d, err := ParseDuration(text)
	if err != nil {
		m.fail(field, "%q: %v", clip(text), err)
		return otherwise
	}
	if d < low || d > high {
		m.fail(field, "%s must be from %s to %s", clip(text), short(low), short(high))
		return otherwise
	}
	return d
}

func (m mapping) rate(field string) Rate {
	text, ok := m.scalar(field, "a rate such as 10/s or 600/min")
	if !ok {
		return Rate{}
	}
	r, err := ParseRate(text)
	if err != nil {
		m.fail(field, "%q: %v", clip(text), err)
	}
	return r
}

// scalar is the text of a word or number; absent or reported when not ok.
func (m mapping) scalar(field, want string) (text string, ok bool) {
	switch n := m.values[field].(type) {
	case nil:
		return "", false
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode:
		return tokenOf(n).Value, true
	default:
		m.fail(field, "must be %s, got %s", want, kindOf(n))
		return "", false
	}
}

func tokenOf(n ast.Node) *token.Token {
	if n == nil {
		return nil
	}
	return n.GetToken()
}

// kindOf names a node for a person.
func kindOf(n ast.Node) string {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AliasNode, *ast.AnchorNode, *ast.MergeKeyNode, *ast.TagNode:
		return "an anchor, alias, merge key or tag, which scenarios do not have"
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return fmt.Sprintf("%q", clip(n.GetToken().Value))
	default:
		return "a value of another type"
	}
}
