package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/headway-go/headway/internal/configfile"
)

// A shape is a field of a kind of file, or the file itself: what fields.txtar says of it, and
// what the reader said when it was asked.
type shape struct {
	path    string // such as providers.NAME.keys[].key; empty for the file
	name    string // the last part; NAME for a name that the owner chooses, [] for an item of a list
	comment string
	below   []*shape // the fields of a mapping, or the one item or named value
	seen    []occurrence
	kinds   []configfile.Kind // of the values that were seen

	Meaning, Unit, Default string
	wants                  []string // what the reader wants instead of wrong values, the type first
	one                    bool     // the reader takes one item in place of the list
	required               bool
	general                []string // meanings that say only what kind of value it is
	refers                 string   // the kind of file whose fields it has
}

// An occurrence is a value of fields.txtar.
type occurrence struct {
	doc  *document
	node *configfile.Node
	up   *configfile.Node // the mapping or list that holds it; nil for the file
}

// A document is one of the files that fields.txtar is made of.
type document struct {
	root     *configfile.Node
	comments []string // above each line, from 1
}

// parse reads fields.txtar into one shape. No two documents need to be compatible.
func parse(name string, src []byte) (*shape, error) {
	root := &shape{}
	for part := range strings.SplitSeq(string(src), "\n---\n") {
		node, file := configfile.Parse(name, []byte(part), configfile.Options{What: "example", Want: "fields"})
		if err := file.Err(); err != nil {
			return nil, err
		}
		d := &document{root: node, comments: comments(part)}
		root.add(d, node, nil)
	}
	named := root.named()
	root.each(func(s *shape) {
		s.inherit(named)
		s.explain()
	})
	return root, nil
}

// named lists the fields that have a comment of their own.
func (s *shape) named() (all []*shape) {
	s.each(func(s *shape) {
		if s.comment != "" {
			all = append(all, s)
		}
	})
	return all
}

// comments gives the comment right above each line, from 1. The first of a file is about
// the file, unless a key follows it.
func comments(src string) []string {
	all, text := []string{""}, ""
	for line := range strings.SplitSeq(src, "\n") {
		all = append(all, text)
		if said, ok := strings.CutPrefix(strings.TrimSpace(line), "#"); ok {
			text = strings.TrimSpace(text + " " + strings.TrimSpace(said))
		} else {
			text = ""
		}
	}
	return all
}

func (s *shape) add(d *document, n, up *configfile.Node) {
	s.seen = append(s.seen, occurrence{d, n, up})
	if !slices.Contains(s.kinds, n.Kind) {
		s.kinds = append(s.kinds, n.Kind)
	}
	for _, f := range n.Fields { // of a mapping
		s.child(f.Name, d.comments[f.At.Line]).add(d, f.Node, n)
	}
	for _, v := range n.Items { // of a list
		s.child("[]", "").add(d, v, n)
	}
}

func (s *shape) child(name, comment string) *shape {
	for _, c := range s.below {
		if c.name == name {
			if c.comment == "" {
				c.comment = comment
			}
			return c
		}
	}
	path := s.path + "." + name
	if name == "[]" {
		path = s.path + name
	}
	c := &shape{path: strings.TrimPrefix(path, "."), name: name, comment: comment}
	s.below = append(s.below, c)
	return c
}

// each calls f for the shape and all below it, the outer first.
func (s *shape) each(f func(*shape)) {
	f(s)
	for _, c := range s.below {
		c.each(f)
	}
}

// inherit takes the comment of the field that is most alike, unless there is one.
func (s *shape) inherit(named []*shape) {
	if model := s.model(named); s.comment == "" && model != nil {
		s.comment = model.comment
	}
}

// model is the field of that name whose path ends alike the longest; nil without one.
func (s *shape) model(named []*shape) (model *shape) {
	best := -1
	for _, n := range named {
		if like := alike(s.path, n.path); n.name == s.name && s.name != "[]" && like > best {
			model, best = n, like
		}
	}
	return model
}

// alike counts the bytes that two paths have in common at the end.
func alike(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

var (
	lastSentence = regexp.MustCompile(`^(.*?) ?(Unit|Default): ([^:]*|".*")\.$`)
	refersTo     = regexp.MustCompile(` ?Fields as in the \[(\w+)\]\(\w+\.md\) file\.`)
)

// explain splits the comment into meaning, unit and default.
func (s *shape) explain() {
	s.Meaning = s.comment
	for {
		m := lastSentence.FindStringSubmatch(s.Meaning)
		if m == nil {
			break
		}
		if s.Meaning = m[1]; m[2] == "Unit" {
			s.Unit = m[3]
		} else {
			s.Default = m[3]
		}
	}
	if m := refersTo.FindStringSubmatch(s.Meaning); m != nil {
		s.refers, s.Meaning = m[1], strings.TrimSpace(refersTo.ReplaceAllString(s.Meaning, ""))
		s.below = nil
	}
}

// A reader is a kind of file's own: it gives what the program uses.
type reader func(src []byte) (any, error)

// names makes the keys of mappings whose keys the owner chooses one shape, NAME.
func (s *shape) names(read reader, named []*shape) error {
	if err := s.open(read, named); err != nil {
		return err
	}
	for _, c := range s.below {
		if err := c.names(read, named); err != nil {
			return err
		}
	}
	return nil
}

// unknown is a key that no file has.
const unknown = "zzzzzzzz"

// open finds out whether any key is allowed, and else compares the keys that the reader
// knows with those of fields.txtar.
func (s *shape) open(read reader, named []*shape) error {
	var all, have []string // what the reader knows, with some value or other of another field
	mappings := false
	for _, o := range s.seen {
		if o.node.Kind != configfile.Table || s.refers != "" {
			continue
		}
		var value any = "x"
		if len(o.node.Fields) > 0 {
			value = plain(o.node.Fields[0].Node, nil)
		}
		said := problems(read, o.doc, change{at: o.node, add: pairs{{unknown, value}}})
		known, closed := fieldsOf(said[join(o.node.Path, unknown)])
		if !closed {
			s.merge()
			return nil
		}
		all, mappings = append(all, known...), true
	}
	for _, c := range s.below {
		if c.name != "[]" {
			have = append(have, c.name)
		}
	}
	for _, name := range all {
		if slices.Contains(have, name) {
			continue
		}
		if err := s.complete(read, name, all, named); err != nil {
			return err
		}
		have = append(have, name)
	}
	for _, name := range have {
		if mappings && !slices.Contains(all, name) {
			return fmt.Errorf("fields.txtar has %s, which the reader does not know", join(s.path, name))
		}
	}
	return nil
}

// complete adds a field that fields.txtar has elsewhere, where the reader takes it too,
// alone or with one more of its neighbours.
func (s *shape) complete(read reader, name string, known []string, named []*shape) error {
	value := func(name string) any {
		if model := (&shape{path: join(s.path, name), name: name}).model(named); model != nil {
			return plain(model.seen[0].node, nil)
		}
		return nil
	}
	if value(name) == nil {
		return fmt.Errorf("the reader takes %s, of which fields.txtar has no value", join(s.path, name))
	}
	var err error
	for _, o := range slices.Backward(s.seen) { // the last has fields that were added, which others may need
		for _, more := range append([]string{""}, known...) {
			c := change{at: o.node, add: pairs{{name, value(name)}}}
			if more != "" && (more == name || o.node.Get(more) != nil || value(more) == nil) {
				continue
			} else if more != "" {
				c.add = append(c.add, pair{more, value(more)})
			}
			src := source(o.doc, &c)
			if _, err = read(src); err != nil {
				continue
			}
			root, _ := configfile.Parse("example", src, configfile.Options{})
			up := at(root, o.node.Path)
			s.seen = append(s.seen, occurrence{&document{root: root}, up, o.up})
			field := s.child(name, "")
			field.add(&document{root: root, comments: make([]string, 3)}, up.Get(name), up)
			field.each(func(s *shape) {
				s.inherit(named)
				s.explain()
			})
			return nil
		}
	}
	if err != nil && strings.Contains(err.Error(), "does not belong to limit kind") {
		return nil // a pool has no limit of the kind that has it
	}
	return fmt.Errorf("fields.txtar has no value for %s, and that of another field of that name does not do: %w", join(s.path, name), err)
}

// at finds the node of a path.
func at(n *configfile.Node, path string) (found *configfile.Node) {
	if n.Path == path {
		return n
	}
	for _, f := range n.Fields {
		if found = at(f.Node, path); found != nil {
			return found
		}
	}
	for _, v := range n.Items {
		if found = at(v, path); found != nil {
			return found
		}
	}
	return nil
}

// merge makes one shape, NAME, of all fields.
func (s *shape) merge() {
	var one *shape
	for _, c := range s.below {
		if one == nil {
			one = c
			continue
		}
		one.absorb(c)
	}
	if one == nil {
		return
	}
	s.below = []*shape{one}
	one.rename(s.path, "NAME")
}

func (s *shape) absorb(other *shape) {
	s.seen = append(s.seen, other.seen...)
	for _, k := range other.kinds {
		if !slices.Contains(s.kinds, k) {
			s.kinds = append(s.kinds, k)
		}
	}
	for _, c := range other.below {
		if i := slices.IndexFunc(s.below, func(o *shape) bool { return o.name == c.name }); i >= 0 {
			s.below[i].absorb(c)
		} else {
			s.below = append(s.below, c)
		}
	}
}

func (s *shape) rename(up, name string) {
	s.name, s.path = name, join(up, name)
	for _, c := range s.below {
		c.rename(s.path, c.name)
	}
}

func join(path, name string) string {
	if name == "[]" {
		return path + name
	}
	return strings.TrimPrefix(path+"."+name, ".")
}

var listed = regexp.MustCompile(`^is not a field here: want (?:one of )?(.*)$`)

// fieldsOf reads the fields that a reader knows out of its complaint about an unknown one.
func fieldsOf(problem string) (known []string, ok bool) {
	if problem == "is not a field here: nothing can be set here, remove it" {
		return nil, true
	}
	m := listed.FindStringSubmatch(problem)
	if m == nil {
		return nil, false
	}
	return strings.Split(m[1], ", "), true
}

// lacks lists the fields of which a reader of the reference would have to guess something: what
// they mean, the unit or the bounds of a number, or what they are by default.
func (s *shape) lacks() error {
	var all []string
	s.each(func(up *shape) {
		for _, s := range up.below {
			if s.name == "[]" || s.name == "NAME" {
				continue
			}
			v := s.value()
			number := strings.HasSuffix(v.name, "number")
			leaf := len(s.below) == 0 && s.refers == "" && !slices.Contains(s.kinds, configfile.Table)
			for what, missing := range map[string]bool{
				"its meaning": s.Meaning == "" || slices.Contains(s.general, s.Meaning),
				"its unit":    number && s.Unit == "",
				"its bounds":  number && v.bound == "",
				"its default": leaf && !s.required && s.Default == "" && !saysDefault.MatchString(s.Meaning) && !alternatives.MatchString(up.Meaning+s.Meaning),
			} {
				if missing {
					all = append(all, s.path+" lacks "+what)
				}
			}
		}
	})
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return fmt.Errorf("fields without a text:\n%s", strings.Join(slices.Compact(all), "\n"))
}

var (
	saysDefault  = regexp.MustCompile(`\b(By default|by default|Default|Without it|Left out|needs? it)\b`)
	alternatives = regexp.MustCompile(`\b([Ee]xactly one|one) kind\b|Either `)
)
