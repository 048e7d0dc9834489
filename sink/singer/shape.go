package singer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/headway-go/headway/sink/internal/pipe"
)

// The bounds of what is learned of a stream. Beyond the first three an object
// or array is of anything, and passes as it is.
const (
	// maxDepth is how many levels of objects and arrays are distinguished below a
	// column.
	maxDepth = 8
	// maxMembers is how many properties an object within a column may have
	// before it is taken for a table whose keys are data.
	maxMembers = 256
	// maxSize of all names, in bytes, with [nameCost] for each.
	maxSize = 64 << 10
	// maxColumns is how many properties a stream's records may have.
	maxColumns = 1000
)

// nameCost is what a property weighs beside its name.
const nameCost = 32

// shape is what was learned of values. It is not changed once it is made, so
// that a pointer to it tells whether something new was learned.
type shape struct {
	kind kind
	// members of an object; nil when it may hold anything.
	members map[string]*shape
	// items of an array; nil when there were none yet.
	items *shape
}

var (
	// nothing is the shape before the first value, whatever one that any fits.
	nothing  = &shape{}
	whatever = &shape{kind: anything}
)

// with gives the shape that v fits too: s itself when v fits already.
func (s *shape) with(v value, depth int) *shape {
	k := s.kind.join(v.kind)
	switch {
	case v.kind == unknown || k == s.kind && k != object && k != array:
		return s
	case k == object:
		return s.withMembers(v.members, depth)
	case k == array:
		return s.withItems(v.items, depth)
	}
	return &shape{kind: k}
}

func (s *shape) withMembers(members []member, depth int) *shape {
	known := s.members
	switch {
	case s.kind == object && known == nil: // of anything
		return s
	case depth == 0:
		return &shape{kind: object}
	}
	changed := s.kind != object
	if known == nil {
		known = map[string]*shape{}
	}
	copied := false
	for _, m := range members {
		old, ok := known[m.name]
		if !ok {
			old = nothing
		}
		joined := old.with(m.value, depth-1)
		if joined == old {
			continue
		}
		if !copied {
			known, copied, changed = maps.Clone(known), true, true
		}
		known[m.name] = joined
	}
	if !changed {
		return s
	}
	if depth < columns && len(known) > maxMembers {
		return &shape{kind: object}
	}
	return &shape{kind: object, members: known}
}

// columns is the depth of a record itself.
const columns = maxDepth + 1

func (s *shape) withItems(items []value, depth int) *shape {
	known := s.items
	if depth == 0 {
		known = whatever
	}
	for _, item := range items {
		if joined := cmp.Or(known, nothing).with(item, depth-1); joined.kind != unknown {
			known = joined
		}
	}
	if s.kind == array && known == s.items {
		return s
	}
	return &shape{kind: array, items: known}
}

// learn gives the shape of a stream's records that these fit too, within the
// bounds.
func (s *shape) learn(records [][]member) (*shape, error) {
	learned := s
	for _, members := range records {
		learned = learned.withMembers(members, columns)
	}
	if learned == s {
		return s, nil
	}
	if n := len(learned.members); n > maxColumns {
		return nil, fmt.Errorf("has %d fields, and a target gets at most %d", n, maxColumns)
	}
	for depth := maxDepth; depth >= 0 && learned.size() > maxSize; depth-- {
		learned = learned.cut(depth)
	}
	if n := learned.size(); n > maxSize {
		return nil, fmt.Errorf("has names of fields that take %d bytes, and a target gets at most %d", n, maxSize)
	}
	return learned, nil
}

// size is what the names weigh, in bytes.
func (s *shape) size() int {
	if s == nil {
		return 0
	}
	n := s.items.size()
	for name, m := range s.members {
		n += len(name) + nameCost + m.size()
	}
	return n
}

// cut makes what is deeper than depth levels be of anything.
func (s *shape) cut(depth int) *shape {
	switch {
	case s.kind == array && depth < 0:
		return &shape{kind: array, items: whatever}
	case s.members == nil && s.items == nil:
		return s
	case depth < 0:
		return &shape{kind: s.kind}
	}
	c := &shape{kind: s.kind}
	if s.items != nil {
		c.items = s.items.cut(depth - 1)
	}
	if s.members != nil {
		c.members = make(map[string]*shape, len(s.members))
		for name, m := range s.members {
			c.members[name] = m.cut(depth - 1)
		}
	}
	return c
}

// fit writes v as a value of the shape, which v was learned by: what is text in
// other records is text here too, a copy of the JSON.
func (s *shape) fit(v value) json.RawMessage {
	switch {
	case v.kind == unknown:
		return v.raw
	case s.kind == text && v.raw[0] != '"':
		return pipe.Quote(string(v.raw))
	case s.kind == object && s.members != nil:
		return s.fitMembers(v)
	case s.kind == array && s.items != nil:
		return s.fitItems(v)
	}
	return v.raw
}

func (s *shape) fitMembers(v value) json.RawMessage {
	fitted := make([]pipe.Member, len(v.members))
	same := true
	for i, m := range v.members {
		fitted[i] = pipe.Member{Name: m.name, Value: cmp.Or(s.members[m.name], nothing).fit(m.value)}
		same = same && &fitted[i].Value[0] == &m.raw[0]
	}
	if same && v.raw != nil {
		return v.raw
	}
	return pipe.AppendObject(nil, fitted)
}

func (s *shape) fitItems(v value) json.RawMessage {
	b := []byte{'['}
	same := true
	for i, item := range v.items {
		if i > 0 {
			b = append(b, ',')
		}
		fitted := s.items.fit(item)
		same = same && &fitted[0] == &item.raw[0]
		b = append(b, fitted...)
	}
	if same {
		return v.raw
	}
	return append(b, ']')
}

// schema is a JSON Schema of the draft 4 that targets read.
type schema struct {
	Type       any                `json:"type,omitempty"`
	Properties *map[string]schema `json:"properties,omitempty"`
	Items      *schema            `json:"items,omitempty"`
	Required   []string           `json:"required,omitempty"`
}

// schema describes the shape. A property of which nothing but null was seen is
// left out: no type that it could be given would be sure to hold later.
func (s *shape) schema() schema {
	if s.kind == anything {
		return schema{}
	}
	out := schema{Type: []string{"null", kindNames[s.kind]}}
	if s.members != nil {
		properties := make(map[string]schema, len(s.members))
		for name, m := range s.members {
			properties[name] = m.schema()
		}
		out.Properties = &properties
	}
	if s.items != nil {
		items := s.items.schema()
		out.Items = &items
	}
	return out
}

// table describes records: keys are never null.
func (s *shape) table(keys []string) schema {
	out := s.schema()
	out.Type, out.Required = kindNames[object], keys
	for _, key := range keys {
		if m, ok := s.members[key]; ok {
			(*out.Properties)[key] = schema{Type: kindNames[m.kind]}
		}
	}
	return out
}

// shaped reads what schema wrote of a value so deep.
func (s schema) shaped(depth int) (*shape, error) {
	types, ok := s.Type.([]any)
	if !ok || len(types) != 2 || types[0] != "null" || s.Required != nil {
		return nil, errors.New("a schema has a type that is not null and another one")
	}
	name, _ := types[1].(string)
	k := kind(max(0, slices.Index(kindNames[:anything], name)))
	switch {
	case k == unknown:
		return nil, errors.New("a schema has a type that is not known")
	case s.Properties != nil && (k != object || depth == 0), s.Items != nil && k != array:
		return nil, errors.New("a schema has properties or items where there can be none")
	case depth == columns && s.Properties == nil:
		return nil, errors.New("a schema has no properties")
	}
	out := &shape{kind: k}
	var err error
	if s.Properties != nil {
		out.members = make(map[string]*shape, len(*s.Properties))
		for name, p := range *s.Properties {
			if out.members[name], err = p.shaped(depth - 1); err != nil {
				return nil, err
			}
		}
	}
	if s.Items == nil {
		return out, nil
	}
	if out.items = whatever; s.Items.Type != nil {
		out.items, err = s.Items.shaped(depth - 1)
	}
	return out, err
}

// kind is what a value is, as far as a target's columns can tell.
type kind uint8

const (
	unknown kind = iota // nothing but null was seen
	boolean
	integer // fits in 64 bits
	number
	text
	array
	object
	anything // only of an array's items
)

// kindNames are those of JSON Schema.
var kindNames = [...]string{unknown: "null", boolean: "boolean", integer: "integer", number: "number", text: "string", array: "array", object: "object", anything: ""}

// value is one JSON value, read as deep as shapes go.
type value struct {
	raw     json.RawMessage
	kind    kind
	members []member // of an object
	items   []value  // of an array
}

type member struct {
	name string
	value
}

// read reads a valid JSON value; what lies deeper than depth levels stays raw.
func read(raw json.RawMessage, depth int) value {
	v := value{raw: raw}
	switch raw[0] {
	case 'n':
	case 't', 'f':
		v.kind = boolean
	case '"':
		v.kind = text
	case '{':
		v.kind = object
		if depth > 0 {
			all, _ := pipe.Members(raw)
			v.members = readMembers(all, depth-1)
		}
	case '[':
		v.kind = array
		if depth > 0 {
			v.items = readItems(raw, depth-1)
		}
	default:
		v.kind = numeric(raw)
	}
	return v
}

func readMembers(all []pipe.Member, depth int) []member {
	members := make([]member, len(all))
	for i, m := range all {
		members[i] = member{m.Name, read(m.Value, depth)}
	}
	return members
}

func readItems(raw json.RawMessage, depth int) []value {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil
	}
	var items []value
	for d.More() {
		var item json.RawMessage
		if d.Decode(&item) != nil {
			return nil
		}
		items = append(items, read(item, depth))
	}
	return items
}

// numeric tells numbers apart by how they are written. One that a target could
// only round, an integer beyond 64 bits or a number beyond a double, is text.
func numeric(raw json.RawMessage) kind {
	if bytes.ContainsAny(raw, ".eE") {
		if _, err := strconv.ParseFloat(string(raw), 64); err != nil {
			return text
		}
		return number
	}
	if _, err := strconv.ParseInt(string(raw), 10, 64); err != nil {
		return text
	}
	return integer
}

// join is the narrowest kind that values of both can be written as.
func (k kind) join(other kind) kind {
	switch {
	case k == other || other == unknown || k == anything:
		return k
	case k == unknown:
		return other
	case k == integer && other == number, k == number && other == integer:
		return number
	default:
		return text
	}
}
