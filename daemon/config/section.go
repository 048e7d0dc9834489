package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/headway-go/headway/internal/yamlnode"
)

// section is one mapping of the file. Each verb asks for one key; done reports
// the keys that nobody asked for.
type section struct {
	r     *reader
	path  string
	node  ast.Node
	pairs []pair
	known []string
}

type pair struct {
	name       string
	key, value ast.Node
	taken      bool
}

// maxKeys bounds one mapping.
const maxKeys = 5000

// section reads a mapping; nil, with a problem, when the node is not one.
func (r *reader) section(n ast.Node, path string) *section {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		if path == "" {
			path = "file"
		}
		r.fail(n, path, yamlnode.Kind(n), "a mapping")
		return nil
	}
	m := &section{r: r, path: path, node: n}
	if len(values) > maxKeys {
		if path == "" {
			path = "file"
		}
		r.fail(n, path, fmt.Sprintf("a mapping of %d keys", len(values)), fmt.Sprintf("at most %d", maxKeys))
		return nil
	}
	for _, v := range values {
		name, ok := yamlnode.Key(v.Key)
		switch {
		case !ok:
			r.fail(v.Key, m.at("?"), yamlnode.Kind(v.Key)+" as a key", "a plain key")
		case slices.ContainsFunc(m.pairs, func(p pair) bool { return p.name == name }):
			r.fail(v.Key, m.at(yamlnode.Clip(name)), "given twice", "given once")
		default:
			m.pairs = append(m.pairs, pair{name: name, key: v.Key, value: v.Value})
		}
	}
	return m
}

// at is the path of a key.
func (m *section) at(key string) string {
	key = yamlnode.Clip(key)
	if m.path == "" {
		return key
	}
	return m.path + "." + key
}

// take is the value of a key, nil when it is not there.
func (m *section) take(key string) ast.Node {
	if !slices.Contains(m.known, key) {
		m.known = append(m.known, key)
	}
	for i := range m.pairs {
		if m.pairs[i].name == key {
			m.pairs[i].taken = true
			return m.pairs[i].value
		}
	}
	return nil
}

// has reports whether a key is there, whatever its value.
func (m *section) has(key string) bool {
	return slices.ContainsFunc(m.pairs, func(p pair) bool { return p.name == key })
}

// done reports the keys that no verb has asked for.
func (m *section) done() {
	for _, p := range m.pairs {
		if p.taken {
			continue
		}
		bound := "one of " + strings.Join(m.known, ", ")
		if near := nearest(p.name, m.known); near != "" {
			bound = near + "? The fields here are " + strings.Join(m.known, ", ")
		}
		m.r.fail(p.key, m.at(yamlnode.Clip(p.name)), "an unknown field", bound)
	}
}

func (m *section) fail(n ast.Node, key, bound string) {
	m.r.fail(n, m.at(key), yamlnode.Kind(n), bound)
}

// below is the section of a key, nil when there is none.
func (m *section) below(key string) *section {
	n := m.take(key)
	if n == nil {
		return nil
	}
	return m.r.section(n, m.at(key))
}

// list is the elements of a list, none when there is no such key.
func (m *section) list(key string) []ast.Node {
	switch n := m.take(key).(type) {
	case nil:
		return nil
	case *ast.SequenceNode:
		return n.Values
	default:
		m.fail(n, key, "a list")
		return nil
	}
}

func (m *section) texts(key string) (all []string) {
	for i, n := range m.list(key) {
		s, ok := n.(*ast.StringNode)
		if !ok || s.Value == "" {
			m.r.fail(n, fmt.Sprintf("%s[%d]", m.at(key), i), yamlnode.Kind(n), "a text")
			continue
		}
		all = append(all, s.Value)
	}
	return all
}

// words reads a mapping of texts.
func (m *section) words(key string) map[string]string {
	s := m.below(key)
	if s == nil {
		return nil
	}
	words := make(map[string]string, len(s.pairs))
	for _, p := range s.pairs {
		var v string
		s.text(p.name, &v)
		words[p.name] = v
	}
	return words
}

func (m *section) text(key string, into *string) {
	switch n := m.take(key).(type) {
	case nil:
	case *ast.StringNode:
		if n.Value == "" {
			m.fail(n, key, "a text, or left out")
			return
		}
		*into = n.Value
	default:
		m.fail(n, key, "a text")
	}
}

// choice reads one of a few words.
func choice[T any](m *section, key string, into *T, words map[string]T, order ...string) {
	n := m.take(key)
	if n == nil {
		return
	}
	if s, ok := n.(*ast.StringNode); ok {
		if v, ok := words[s.Value]; ok {
			*into = v
			return
		}
	}
	m.fail(n, key, "one of "+strings.Join(order, ", "))
}

func (m *section) boolean(key string, into *bool) {
	switch n := m.take(key).(type) {
	case nil:
	case *ast.BoolNode:
		*into = n.Value
	default:
		m.fail(n, key, "true or false")
	}
}

func (m *section) integer(key string, into *int, lo, hi int) {
	n := m.take(key)
	if n == nil {
		return
	}
	v, err := 0, error(strconv.ErrSyntax)
	if _, ok := n.(*ast.IntegerNode); ok {
		v, err = strconv.Atoi(n.GetToken().Value)
	}
	if err != nil || v < lo || v > hi {
		m.fail(n, key, fmt.Sprintf("a whole number from %d to %d", lo, hi))
		return
	}
	*into = v
}

// share reads a number from 0 to 1.
func (m *section) share(key string, into *float64) {
	n := m.take(key)
	v, err := 0.0, error(nil)
	switch n.(type) {
	case nil:
		return
	case *ast.IntegerNode, *ast.FloatNode:
		v, err = strconv.ParseFloat(n.GetToken().Value, 64)
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || !(v >= 0 && v <= 1) {
		m.fail(n, key, "a number from 0 to 1")
		return
	}
	*into = v
}

func (m *section) duration(key string, into *time.Duration, lo, hi time.Duration) {
	n := m.take(key)
	if n == nil {
		return
	}
	d, err := time.Duration(0), error(strconv.ErrSyntax)
	if s, ok := n.(*ast.StringNode); ok {
		d, err = time.ParseDuration(s.Value)
	}
	if err != nil || d < lo || d > hi {
		m.fail(n, key, fmt.Sprintf("a length of time from %v to %v, such as 250ms, 15s or 1m", lo, hi))
		return
	}
	*into = d
}

var units = []struct {
	name string
	size int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// size reads a number of bytes with its unit.
func (m *section) size(key string, into *int64, lo, hi int64) {
	n := m.take(key)
	if n == nil {
		return
	}
	if s, ok := n.(*ast.StringNode); ok {
		for _, u := range units {
			number, ok := strings.CutSuffix(s.Value, u.name)
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
	m.fail(n, key, fmt.Sprintf("a size from %s to %s, with its unit", Size(lo), Size(hi)))
}

// Size is a number of bytes as files have it, such as 32MiB.
func Size(n int64) string {
	for _, u := range []int{2, 1, 0} {
		if n >= units[u].size && n%units[u].size == 0 {
			return strconv.FormatInt(n/units[u].size, 10) + units[u].name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// nearest is the word that a mistyped one probably stands for; "" when none is
// near enough.
func nearest(typed string, words []string) string {
	best, at := "", 3
	if len(typed) > 40 {
		return ""
	}
	for _, w := range words {
		if d := distance(typed, w); d < at && d < len(w) {
			best, at = w, d
		}
	}
	return best
}

// distance counts the letters to add, drop or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			step := left
			if a[i] != b[j] {
				step++
			}
			left = row[j+1]
			row[j+1] = min(step, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
