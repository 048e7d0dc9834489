package quotafile

import (
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/headway-go/headway/internal/yamlnode"
	"github.com/headway-go/headway/quota"
)

// reader collects everything that is wrong with a file, so that one run shows
// it all.
type reader struct {
	file     string
	want     string // what the file as a whole should be
	problems []*Problem
	// places are where fields stand, by their path in JSON: what package quota
	// calls them.
	places map[string]place
}

// place is where a field stands, and what it is called and was given there.
type place struct {
	node   ast.Node
	path   string
	length string // as written, for a length of time
}

func (r *reader) fail(at ast.Node, field, value, bound string) {
	p := &Problem{File: r.file, FieldError: quota.FieldError{Field: field, Value: value, Bound: bound}}
	p.Line, p.Column = yamlnode.Position(at)
	r.problems = append(r.problems, p)
}

// located is a fault that package quota found, with its place in the file: that
// of the field, or of what should hold it.
func (r *reader) located(f *quota.FieldError) *Problem {
	inside, missing := f.Field, ""
	at, ok := r.places[inside]
	for !ok {
		dot := strings.LastIndexByte(inside, '.')
		if dot < 0 {
			at = r.places[""]
			missing = "." + f.Field
			break
		}
		inside = inside[:dot]
		at, ok = r.places[inside]
		missing = f.Field[dot:]
	}
	p := &Problem{File: r.file, FieldError: quota.FieldError{
		Field: strings.TrimPrefix(at.path+yamlnode.Clip(written(missing)), "."), Value: f.Value, Bound: oneLine(written(f.Bound)),
	}}
	if at.length != "" && missing == "" {
		p.FieldError.Value = at.length
		if strings.HasPrefix(f.Bound, "from ") {
			p.FieldError.Bound += " milliseconds"
		}
	}
	p.Line, p.Column = yamlnode.Position(at.node)
	return p
}

// section is one mapping of the file. Each verb asks for one key; done reports
// the keys that nobody asked for.
type section struct {
	r          *reader
	path, json string // of the section, as in the file and as package quota has it
	node       ast.Node
	pairs      []pair
	known      []string
}

type pair struct {
	name       string
	key, value ast.Node
	taken      bool
}

// section reads a mapping; nil, with a problem, when the node is not one.
func (r *reader) section(n ast.Node, path, json string) *section {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		r.fail(n, word(path), yamlnode.Kind(n), "a mapping")
		return nil
	}
	m := &section{r: r, path: path, json: json, node: n}
	r.places[json] = place{node: n, path: path}
	at := make(map[string]bool, len(values))
	for _, v := range values {
		name, ok := yamlnode.Key(v.Key)
		switch {
		case !ok:
			r.fail(v.Key, word(path), yamlnode.Kind(v.Key)+" as a key", "a mapping of plain keys")
		case at[name]:
			r.fail(v.Key, join(path, yamlnode.Clip(name)), "given twice", "given once")
		default:
			at[name] = true
			m.pairs = append(m.pairs, pair{name: name, key: v.Key, value: v.Value})
		}
	}
	return m
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// word is the path for a message.
func word(path string) string {
	if path == "" {
		return "file"
	}
	return path
}

// take is the value of a key, nil when it is not there. json is the name that
// package quota has for it.
func (m *section) take(key, json string) ast.Node {
	m.known = append(m.known, key)
	i := slices.IndexFunc(m.pairs, func(p pair) bool { return p.name == key })
	if i < 0 {
		return nil
	}
	m.pairs[i].taken = true
	m.r.places[join(m.json, json)] = place{node: m.pairs[i].value, path: join(m.path, key)}
	return m.pairs[i].value
}

// done reports the keys that no verb has asked for.
func (m *section) done() {
	for _, p := range m.pairs {
		if !p.taken {
			m.r.fail(p.key, join(m.path, yamlnode.Clip(p.name)), "an unknown field", "one of "+strings.Join(m.known, ", "))
		}
	}
}

// below is the section of a key, nil when there is none.
func (m *section) below(key string) *section {
	n := m.take(key, inJSON(key))
	if n == nil {
		return nil
	}
	return m.r.section(n, join(m.path, key), join(m.json, inJSON(key)))
}

// named reads a mapping of names that the owner chose.
func named[T any](m *section, key string, read func(*section, *T)) map[string]T {
	all := m.below(key)
	if all == nil {
		return nil
	}
	values := make(map[string]T, len(all.pairs))
	for _, p := range all.pairs {
		var v T
		path, json := join(all.path, yamlnode.Clip(p.name)), join(all.json, p.name)
		if _, empty := p.value.(*ast.NullNode); empty {
			// A name alone is one without limits of its own.
			m.r.places[json] = place{node: p.key, path: path}
			values[p.name] = v
			continue
		}
		if s := m.r.section(p.value, path, json); s != nil {
			m.r.places[json] = place{node: p.key, path: path}
			read(s, &v)
			s.done()
			values[p.name] = v
		}
	}
	return values
}

func (m *section) fail(n ast.Node, key, bound string) {
	m.r.fail(n, join(m.path, key), yamlnode.Kind(n), bound)
}

func (m *section) text(key string, into *string) {
	switch n := m.take(key, inJSON(key)).(type) {
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

func (m *section) maxTokens(key string, into *quota.MaxTokensRule) {
	rules := map[string]quota.MaxTokensRule{"ignore": quota.IgnoreMax, "floor": quota.FloorMax, "reserve": quota.ReserveMax}
	n := m.take(key, inJSON(key))
	if n == nil {
		return
	}
	if s, ok := n.(*ast.StringNode); ok {
		if rule, ok := rules[s.Value]; ok {
			*into = rule
			return
		}
	}
	m.fail(n, key, "ignore, floor or reserve")
}

func (m *section) level(key string) (level slog.Level) {
	n := m.take(key, inJSON(key))
	if n == nil {
		return slog.LevelInfo
	}
	s, ok := n.(*ast.StringNode)
	if ok {
		level, ok = levels[s.Value]
	}
	if !ok {
		m.fail(n, key, levelNames)
	}
	return level
}

// boolean reads true or false, and gives its place, nil where it is not said.
func (m *section) boolean(key string, into *bool) ast.Node {
	n := m.take(key, inJSON(key))
	switch n := n.(type) {
	case nil:
	case *ast.BoolNode:
		*into = n.Value
	default:
		m.fail(n, key, "true or false")
	}
	return n
}

// toggle reads what is on by default into a field that says it is off.
func (m *section) toggle(key string, off *bool) {
	on := !*off
	m.boolean(key, &on)
	*off = !on
}

const notZero = "above 0, or left out"

// integer reads a whole number; package quota knows its bounds.
func (m *section) integer(key string, into *int64, zero bool) {
	n := m.take(key, inJSON(key))
	if n == nil {
		return
	}
	_, ok := n.(*ast.IntegerNode)
	v, err := int64(0), error(nil)
	if ok {
		text := n.GetToken().Value
		v, err = strconv.ParseInt(text, 10, 64)
		ok = text == "0" || !strings.HasPrefix(text, "0") // 010: ten or eight?
	}
	switch {
	case !ok || err != nil:
		m.fail(n, key, "a whole number")
	case v == 0 && !zero:
		m.fail(n, key, notZero)
	default:
		*into = v
	}
}

func (m *section) number(key string, into *float64) {
	n := m.take(key, inJSON(key))
	v, err := 0.0, error(nil)
	switch n.(type) {
	case nil:
		return
	case *ast.IntegerNode, *ast.FloatNode:
		v, err = strconv.ParseFloat(n.GetToken().Value, 64)
	default:
		err = strconv.ErrSyntax
	}
	switch {
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		m.fail(n, key, "a number")
	case v == 0:
		m.fail(n, key, notZero)
	default:
		*into = v
	}
}

// duration reads a length of time into milliseconds.
func (m *section) duration(key string, into *int64) {
	json := inJSON(key) + "Ms"
	n := m.take(key, json)
	if n == nil {
		return
	}
	s, ok := n.(*ast.StringNode)
	d, err := time.Duration(0), error(nil)
	if ok {
		d, err = time.ParseDuration(s.Value)
	}
	switch {
	case !ok || err != nil || d%time.Millisecond != 0:
		m.fail(n, key, "a length of time in whole milliseconds, such as 250ms, 1m or 24h")
	case d == 0:
		m.fail(n, key, notZero)
	default:
		*into = d.Milliseconds()
		m.r.places[join(m.json, json)] = place{node: n, path: join(m.path, key), length: yamlnode.Clip(s.Value)}
	}
}
