package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/headway-go/headway/internal/configfile"
)

// A change replaces a value, removes it (value nil), or adds keys to a mapping.
type change struct {
	at    *configfile.Node
	value any
	add   pairs
}

// plain is a node for an encoder, with the change made. Objects keep the order of the file.
func plain(n *configfile.Node, c *change) any {
	if c != nil && c.at == n && c.add == nil {
		return c.value
	}
	switch n.Kind {
	case configfile.List:
		all := []any{}
		for _, v := range n.Items {
			if p := plain(v, c); p != nil {
				all = append(all, p)
			}
		}
		return all
	case configfile.Table:
		var all pairs
		for _, f := range n.Fields {
			if p := plain(f.Node, c); p != nil {
				all = append(all, pair{f.Name, p})
			}
		}
		if c != nil && c.at == n {
			all = append(all, c.add...)
		}
		return all
	case configfile.Text:
		return n.Written
	default:
		return json.RawMessage(n.Written)
	}
}

type (
	pair struct {
		key   string
		value any
	}
	pairs []pair
)

// MarshalJSON writes an object in its order.
func (all pairs) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, p := range all {
		value, err := json.Marshal(p.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q: %s", p.key, value)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// source writes a document as JSON, which is YAML too.
func source(d *document, c *change) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(plain(d.root, c)); err != nil {
		panic(err) // texts and numbers of a file that was read
	}
	return []byte(b.String())
}

// problems reads a document with a change, and gives what is wrong by field.
func problems(read reader, d *document, c change) map[string]string {
	_, err := read(source(d, &c))
	all := map[string]string{}
	if e, ok := errors.AsType[*configfile.Error](err); ok {
		for _, p := range e.Problems {
			all[p.Field] = p.Message
		}
	}
	return all
}

// wrong are values that say, by what a reader answers, what a field takes.
var wrong = []json.RawMessage{
	json.RawMessage(`[]`), json.RawMessage(`{}`), json.RawMessage(`true`), json.RawMessage(`1.5`),
	json.RawMessage(`"? not a word ?"`), json.RawMessage(`"1ns"`), json.RawMessage(`"-1ns"`), json.RawMessage(`"2000000h"`), json.RawMessage(`"0B"`), json.RawMessage(`"900000GiB"`),
	json.RawMessage(`999999999`), json.RawMessage(`-1e300`), json.RawMessage(`1e300`), json.RawMessage(`-8000000000000000000`), json.RawMessage(`8000000000000000000`),
}

// ask asks the reader about every field: what it wants, and whether it has to be there.
func (s *shape) ask(read reader) {
	s.each(func(s *shape) {
		if s.path == "" {
			return
		}
		for _, value := range wrong {
			if len(s.below) > 0 || s.refers != "" {
				break
			}
			o := s.seen[0]
			if want := wanted(problems(read, o.doc, change{at: o.node, value: value})[o.node.Path]); want != "" && !slices.Contains(s.wants, want) {
				s.wants = append(s.wants, want)
			}
		}
		for _, o := range s.seen {
			if o.node.Kind == configfile.List && len(o.node.Items) > 0 && o.node.Items[0].Kind == configfile.Text {
				_, err := read(source(o.doc, &change{at: o.node, value: o.node.Items[0].Written}))
				s.one = s.one || err == nil
			}
		}
	})
	s.each(func(s *shape) {
		for _, c := range s.below {
			c.required = c.name != "[]" && c.name != "NAME" && len(s.seen) > 0 && !slices.ContainsFunc(s.seen, func(up occurrence) bool {
				n := up.node.Get(c.name)
				if n == nil {
					return up.node.Kind == configfile.Table
				}
				said := problems(read, up.doc, change{at: n})
				return !strings.Contains(said[n.Path], "is missing") && !strings.Contains(said[up.node.Path], c.name+" is missing")
			})
		}
	})
}

// wanted is the last part of a problem: what is allowed.
func wanted(problem string) string {
	if _, want, ok := strings.Cut(problem, "; want "); ok {
		return want
	}
	return ""
}

// A value is what a field takes.
type value struct {
	name      string // duration, whole number, …
	bound     string // in words; empty where any value of that name will do
	low, high string // of a number
	words     []string
}

// String is the value in a cell of a table.
func (v value) String(unit string) string {
	text := v.name
	if text == "text" && article.MatchString(v.bound) {
		return article.ReplaceAllString(v.bound, "")
	}
	if unit != "" && unit != "none" {
		text += " (" + unit + ")"
	}
	if v.bound != "" {
		text += ", " + v.bound
	}
	return text
}

var (
	numbers = regexp.MustCompile(`^(?:a (?:whole )?number )?from (-?[0-9.e+]+) to ([0-9.e+]+)(?:, such as .*)?$`)
	lowest  = regexp.MustCompile(`^a whole number of at least ([0-9]+)$`)
	highest = regexp.MustCompile(`^a whole number of at most ([0-9]+)$`)
	choice  = regexp.MustCompile(`^([a-z_]+, )*[a-z_]+ or [a-z_]+$`)
	spans   = regexp.MustCompile(`^from ((?:[0-9.]+[a-zµ]+)+|0s?) to (?:[0-9.]+[a-zµ]+)+$`)
	sizes   = regexp.MustCompile(`^a size (from .*?)(?:, with its unit|, such as .*)$`)
	article = regexp.MustCompile(`^(an?|the) `)
	aside   = regexp.MustCompile(` \([^)]*\)`)
)

// value says what the reader answered.
func (s *shape) value() value {
	switch has := func(k configfile.Kind) bool { return slices.Contains(s.kinds, k) }; {
	case has(configfile.Table) && has(configfile.Text):
		return value{name: "mapping, or " + s.written(configfile.Text)}
	case has(configfile.Table):
		return value{name: "mapping"}
	case has(configfile.List) && (s.one || has(configfile.Text)):
		return value{name: "list, or one"}
	case has(configfile.List):
		return value{name: "list"}
	}
	v := value{name: "text"}
	if first := s.seen[0].node.Kind; first == configfile.Boolean {
		return value{name: "true or false"}
	} else if first == configfile.Integer || first == configfile.Number {
		v.name = "number"
	}
	for _, want := range s.wants {
		switch {
		case strings.HasPrefix(want, "a whole number"):
			v.name = "whole number"
		case strings.HasPrefix(want, "a duration"):
			v.name = "duration"
		case strings.HasPrefix(want, "a size"):
			v.name = "size with its unit"
		case strings.HasPrefix(want, "a reference such as"):
			v.name = "reference to a secret"
		case strings.HasPrefix(want, "a text, or a reference"):
			v.name = "text or reference to a secret"
		}
		if m := sizes.FindStringSubmatch(want); m != nil {
			v.bound = m[1]
		}
		if m := numbers.FindStringSubmatch(want); m != nil && v.name != "duration" {
			v.low, v.high, v.bound = number(m[1]), number(m[2]), "from "+m[1]+" to "+m[2]
		}
		if m := lowest.FindStringSubmatch(want); m != nil {
			v.low, v.bound = m[1], "at least "+m[1]
		}
		if m := highest.FindStringSubmatch(want); m != nil {
			v.high, v.bound = m[1], "from "+cmp.Or(v.low, "0")+" to "+m[1]
		}
		if spans.MatchString(want) {
			v.name, v.bound = "duration", want
		}
		if words, ok := strings.CutPrefix(want, "one of "); ok && v.name == "text" && !strings.Contains(want, "${") {
			v.name, v.bound = "word", strings.TrimPrefix(aside.ReplaceAllString(words, ""), "the laws ")
			v.words = strings.Split(v.bound, ", ")
		}
		if choice.MatchString(want) && v.name == "text" {
			v.name, v.bound = "word", want
			v.words = strings.Split(strings.Replace(want, " or ", ", ", 1), ", ")
		}
	}
	if v.name == "text" || v.name == "number" && v.bound == "" {
		for _, want := range s.wants {
			if want != "a text" && want != "a number" {
				v.bound = strings.TrimPrefix(strings.TrimPrefix(want, "a text that is "), "a number ")
				break
			}
		}
	}
	return v
}

// number is a bound as JSON has it; those beyond what a float holds are left to the reader.
func number(text string) string {
	if len(strings.TrimLeft(text, "-")) > 15 {
		return ""
	}
	return strings.Replace(text, "e+", "e", 1)
}

// written lists the values of one kind that were seen.
func (s *shape) written(k configfile.Kind) string {
	var all []string
	for _, o := range s.seen {
		if o.node.Kind == k && !slices.Contains(all, o.node.Written) {
			all = append(all, o.node.Written)
		}
	}
	if len(all) == 1 && all[0] == "off" {
		return all[0]
	}
	return "a text"
}
