package scenario

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Load reads a scenario file. Errors in its content are [Problems].
func Load(path string) (*Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	src, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	return Parse(path, src)
}

// Parse reads a scenario. The name stands for the file in errors, which are
// all of type [Problems]. Bytes that are not a scenario are an error, never a
// panic.
func Parse(name string, src []byte) (*Scenario, error) {
	r := &reader{file: name}
	s := r.parse(src)
	if len(r.problems) > 0 {
		return nil, r.problems.sorted()
	}
	return s, nil
}

func (r *reader) parse(src []byte) *Scenario {
	if len(src) > MaxSize {
		r.fail(nil, "", "the file is larger than %d bytes", MaxSize)
		return nil
	}
	if !r.shallow(src) {
		return nil
	}
	root := r.tree(src)
	if root == nil {
		return nil
	}
	m, ok := r.mapping("", root, "name", "description", "horizon", "clients", "fleet", "owner", "workload", "provider")
	if !ok {
		return nil
	}
	m.require("name")
	s := &Scenario{
		Name:        m.text("name", 64),
		Description: m.text("description", 4096),
		Horizon:     m.duration("horizon", DefaultHorizon, time.Second, MaxHorizon),
		Clients:     m.integer("clients", DefaultClients, 1, MaxClients),
		Fleet:       m.boolean("fleet"),
		Owner:       owner(m),
		Workload:    workload(m),
	}
	if strings.Trim(s.Name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		m.fail("name", "%q must be of lower-case letters, digits, '-', '_' and '.'", clip(s.Name))
	}
	s.Provider = provider(m, s.Horizon, s.Workload.Kind)
	if s.Workload.Kind == Bulk {
		for _, field := range []string{"clients", "fleet", "owner"} {
			if m.has(field) {
				m.fail(field, "does not belong to workload kind %s, whose users are workload.users and which no interval paces", Bulk)
			}
		}
		if s.Provider.Batch == nil && !m.has("provider") {
			m.fail("provider", "is required for workload kind %s, with a batch", Bulk)
		}
	}
	return s
}

// shallow reports nesting that no scenario has, before the parser, which
// recurses, sees it: brackets, and what can nest within one line. Brackets in
// text count too, which costs nobody anything.
func (r *reader) shallow(src []byte) bool {
	const maxDepth, maxLine = 20, 1000
	depth, line, column := 0, 1, 0
	for _, c := range src {
		column++
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		case '\n':
			line, column = line+1, 0
		}
		if depth > maxDepth || column > maxLine {
			r.problems = append(r.problems, Problem{File: r.file, Line: line, Column: column, Message: fmt.Sprintf(
				"brackets may nest %d deep and lines may be %d bytes long", maxDepth, maxLine)})
			return false
		}
	}
	return true
}

// tree parses YAML into one document's root, or reports why not.
func (r *reader) tree(src []byte) ast.Node {
	// Duplicate keys are let through here and reported with everything else.
	file, err := parser.ParseBytes(src, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		p := Problem{File: r.file, Line: 1, Column: 1, Message: "is not YAML"}
		if at, ok := errors.AsType[yaml.Error](err); ok {
			p.Message = "is not YAML: " + at.GetMessage()
			if t := at.GetToken(); t != nil && t.Position != nil {
				p.Line, p.Column = t.Position.Line, t.Position.Column
			}
		}
		r.problems = append(r.problems, p)
		return nil
	}
	var root ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			r.fail(tokenOf(doc.Body), "", "a second document: a file holds one scenario")
			return nil
		}
		root = doc.Body
	}
	if root == nil {
		r.fail(nil, "", "is empty: a scenario needs at least a name")
	}
	return root
}

func owner(root mapping) Owner {
	o := Owner{Ceiling: DefaultCeiling, Initial: DefaultInitial}
	if m, ok := root.section("owner", "ceiling", "initial"); ok {
		o.Ceiling = m.duration("ceiling", o.Ceiling, time.Microsecond, 24*time.Hour)
		o.Initial = m.duration("initial", o.Initial, time.Microsecond, 24*time.Hour)
	}
	o.Initial = max(o.Initial, o.Ceiling)
	return o
}

func workload(root mapping) Workload {
	w := Workload{Kind: Backlog, MaxInFlight: DefaultMaxInFlight, Cost: Cost{Mean: DefaultCostMean}}
	m, ok := root.section("workload", "kind", "rate", "burst", "active", "pause", "max_in_flight", "cost", "rows", "users")
	if !ok {
		return w
	}
	w.Kind = word(m, "kind", Backlog, Backlog, Open, Bulk)
	w.Rate = m.rate("rate")
	switch {
	case w.Kind == Open:
		m.require("rate")
	case w.Kind == Bulk && m.has("rate"):
		m.fail("rate", "belongs to workload kind open, not to %s", w.Kind)
	}
	if w.Kind != Open && m.has("burst") {
		m.fail("burst", "belongs to workload kind %s, not to %s", Open, w.Kind)
	}
	if w.Kind == Bulk {
		return bulk(m, w)
	}
	w.Burst = m.integer("burst", 0, 1, MaxCount)
	m.together("active", "pause")
	w.Active = m.duration("active", 0, time.Second, MaxHorizon)
	w.Pause = m.duration("pause", 0, time.Second, MaxHorizon)
	for _, field := range []string{"rows", "users"} {
		if m.has(field) {
			m.fail(field, "belongs to workload kind %s, not to %s", Bulk, w.Kind)
		}
	}
	w.MaxInFlight = m.integer("max_in_flight", w.MaxInFlight, 1, MaxCount)
	if c, ok := m.section("cost", "mean", "spread"); ok {
		w.Cost.Mean = c.number("mean", w.Cost.Mean, 0, 1e9, true)
		w.Cost.Spread = c.number("spread", 0, 0, 3, false)
	}
	return w
}

// bulk reads what a bulk workload has.
func bulk(m mapping, w Workload) Workload {
	m.require("rows")
	w.Rows = m.integer("rows", 0, 1, MaxRows)
	w.Users = m.integer("users", DefaultUsers, 1, MaxClients)
	w.MaxInFlight = m.integer("max_in_flight", w.MaxInFlight, 1, MaxPlaces)
	for _, field := range []string{"active", "pause"} {
		if m.has(field) {
			m.fail(field, "does not belong to workload kind %s", Bulk)
		}
	}
	if m.has("cost") {
		m.fail("cost", "does not belong to workload kind %s, where a batch costs one for each row", Bulk)
	}
	return w
}
