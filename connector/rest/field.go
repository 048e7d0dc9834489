package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/headway-go/headway/internal/rawjson"
)

// Plain field paths (".", ".items", ".data.items") are walked over the
// provider's own bytes: numbers keep their digits, objects their order, and a
// page is not decoded to find its records. The results are those of jq; the
// bytes must be valid JSON.

var plainPath = regexp.MustCompile(`^(\.|(\.[A-Za-z_][A-Za-z0-9_]*)+)$`)

// fieldPath splits a plain field path; ok is false for any other expression.
func fieldPath(expr string) (names []string, ok bool) {
	if !plainPath.MatchString(expr) {
		return nil, false
	}
	if expr == "." {
		return nil, true
	}
	return strings.Split(expr[1:], "."), true
}

// kind is the type of a value in JSON.
type kind string

const (
	kindNull    kind = "null"
	kindBoolean kind = "boolean"
	kindInteger kind = "integer"
	kindNumber  kind = "number"
	kindText    kind = "string"
	kindList    kind = "array"
	kindTable   kind = "object"
)

var jsonNull = []byte("null")

// walk follows names into a value. A missing field and a field of null are null,
// as in jq; a field of anything else is an error.
func walk(in *datum, names []string) ([]byte, error) {
	raw := bytes.TrimSpace(in.bytes())
	for i, name := range names {
		switch kindOf(raw) {
		case kindNull:
			return jsonNull, nil
		case kindTable:
			value := member
			if i == 0 {
				value = in.member
			}
			if raw = value(raw, name); raw == nil {
				return jsonNull, nil
			}
		default:
			return nil, fmt.Errorf("expected an object but got: %s", kindOf(raw))
		}
	}
	return raw, nil
}

// kindOf tells a value's type by its first byte. All numbers are one type.
func kindOf(raw []byte) kind {
	switch raw[0] {
	case '{':
		return kindTable
	case '[':
		return kindList
	case '"':
		return kindText
	case 't', 'f':
		return kindBoolean
	case 'n':
		return kindNull
	default:
		return kindNumber
	}
}

// member is the value of an object's field, the last one when a field comes
// twice (as decoders have it), nil when there is none.
func member(object []byte, name string) (found []byte) {
	members(object, func(key, value []byte) {
		if keyIs(key, name) {
			found = value
		}
	})
	return found
}

// topField is a field of a response's body: its key, quoted, and its value.
type topField struct{ key, value []byte }

// maxTop is how many fields of a body are kept at most.
const maxTop = 64

// member is that of the datum itself, whose bytes object is. To find a field all
// are read: a body keeps them, so that this is done once.
func (d *datum) member(object []byte, name string) []byte {
	if d.body && d.top == nil {
		d.top = []topField{}
		members(object, func(key, value []byte) {
			if len(d.top) <= maxTop {
				d.top = append(d.top, topField{key, value})
			}
		})
		d.body = len(d.top) <= maxTop
	}
	if !d.body {
		return member(object, name)
	}
	for _, f := range slices.Backward(d.top) {
		if keyIs(f.key, name) {
			return f.value
		}
	}
	return nil
}

// members calls f with each key, quoted, and value.
func members(object []byte, f func(key, value []byte)) {
	i := space(object, 1)
	for object[i] != '}' {
		end := value(object, i)
		key := object[i:end]
		i = space(object, space(object, end)+1) // over the colon
		end = value(object, i)
		f(key, object[i:end])
		i = space(object, end)
		if object[i] == ',' {
			i = space(object, i+1)
		}
	}
}

// elements calls f with each element of an array, and with whether it has no white
// space between its tokens.
func elements(array []byte, f func(element []byte, compact bool)) {
	i := space(array, 1)
	for array[i] != ']' {
		end, compact := rawjson.Extent(array, i)
		f(array[i:end], compact)
		i = space(array, end)
		if array[i] == ',' {
			i = space(array, i+1)
		}
	}
}

// keyIs compares a quoted key with a name.
func keyIs(quoted []byte, name string) bool {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	var s string
	return json.Unmarshal(quoted, &s) == nil && s == name
}

// space is the first index from i on that is not white space.
func space(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r' {
		i++
	}
	return i
}

// value is the index after the value that starts at i.
func value(raw []byte, i int) int {
	end, _ := rawjson.Extent(raw, i)
	return end
}
