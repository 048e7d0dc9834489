package singer

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/headway-go/headway/sink/internal/pipe"
)

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
