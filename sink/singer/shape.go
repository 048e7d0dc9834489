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

// The limits of a stream's shape. Beyond the first three an object or array may have any
// content, and is written unchanged.
const (
	// maxDepth is the maximum number of levels of objects and arrays below a column.
	maxDepth = 8
	// maxMembers is the maximum number of properties of an object within a column. An
	// object with more is probably a map whose keys are data.
	maxMembers = 256
	// maxSize is the maximum size of all names in bytes, plus [nameCost] for each.
	maxSize = 64 << 10
	// maxColumns is the maximum number of properties of a record.
	maxColumns = 1000
)

// nameCost is the size of a property in addition to its name, in bytes.
const nameCost = 32

// shape is the type of values, as learned from them. It is immutable, so that comparing
// pointers shows whether something new was learned.
type shape struct {
	kind kind
	// members of an object; nil if it may have any content.
	members map[string]*shape
	// items of an array; nil if there were none yet.
	items *shape
}

var (
	// nothing is the shape before the first value; whatever is one that any value fits.
	nothing  = &shape{}
	whatever = &shape{kind: anything}
)

// with returns the shape widened to fit v, or s itself if v fits already.
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
	case s.kind == object && known == nil: // any content
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

// columns is the depth of a record.
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

// learn returns the shape widened to fit these records, within the limits.
func (s *shape) learn(records [][]member) (*shape, error) {
	learned := s
	for _, members := range records {
		learned = learned.withMembers(members, columns)
	}
	if learned == s {
		return s, nil
	}
	if n := len(learned.members); n > maxColumns {
		return nil, fmt.Errorf("has %d fields, but at most %d are supported", n, maxColumns)
	}
	for depth := maxDepth; depth >= 0 && learned.size() > maxSize; depth-- {
		learned = learned.cut(depth)
	}
	if n := learned.size(); n > maxSize {
		return nil, fmt.Errorf("has names of fields that take %d bytes, but at most %d are supported", n, maxSize)
	}
	return learned, nil
}

// size returns the size of all names, in bytes.
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

// cut returns the shape with any content below depth levels.
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

// fit converts v to a value of the shape, which has learned v: a value whose shape is text
// but which is not a string becomes the text of its JSON.
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

// schema is a JSON Schema of draft 4, which targets read.
type schema struct {
	Type       any                `json:"type,omitempty"`
	Properties *map[string]schema `json:"properties,omitempty"`
	Items      *schema            `json:"items,omitempty"`
	Required   []string           `json:"required,omitempty"`
}

// schema returns the schema of the shape. A property that was always null is left out,
// since its type is unknown.
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

// table returns the schema of records, whose keys are never null.
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

// shaped converts a schema back to the shape of a value at that depth.
func (s schema) shaped(depth int) (*shape, error) {
	types, ok := s.Type.([]any)
	if !ok || len(types) != 2 || types[0] != "null" || s.Required != nil {
		return nil, errors.New(`a schema's type is not a pair of "null" and another type`)
	}
	name, _ := types[1].(string)
	k := kind(max(0, slices.Index(kindNames[:anything], name)))
	switch {
	case k == unknown:
		return nil, errors.New("a schema has an unknown type")
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

// kind is the kind of a value, as a target's columns distinguish them.
type kind uint8

const (
	unknown kind = iota // always null so far
	boolean
	integer // fits in 64 bits
	number
	text
	array
	object
	anything // only for items of an array
)

// kindNames are the names of kinds in JSON Schema.
var kindNames = [...]string{unknown: "null", boolean: "boolean", integer: "integer", number: "number", text: "string", array: "array", object: "object", anything: ""}

// value is one JSON value, parsed to the depth of shapes.
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

// read parses a valid JSON value; levels below depth stay raw.
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

// numeric returns the kind of a number by its notation. An integer beyond 64 bits or a
// number beyond a double is text, since a target would round it.
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

// join returns the narrowest kind that fits values of both kinds.
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
