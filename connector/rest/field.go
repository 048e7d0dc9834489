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

// Plain field paths (".", ".items", ".data.items") are evaluated on the provider's bytes:
// numbers keep their digits and objects their order, and a page is not decoded to find its
// records. The results are those of jq. The bytes must be valid JSON.

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

// kind is a JSON type.
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

// walk follows names into a value. A missing field, and a field of null, is null, as in jq;
// a field of anything else is an error.
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

// kindOf returns a value's type from its first byte.
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

// member returns the value of an object's field, nil if it is absent. If a field is
// repeated, the last one counts, as in encoding/json.
func member(object []byte, name string) (found []byte) {
	members(object, func(key, value []byte) {
		if keyIs(key, name) {
			found = value
		}
	})
	return found
}

// topField is a top-level field of a body: its quoted key and its value.
type topField struct{ key, value []byte }

// maxTop is the maximum number of cached fields.
const maxTop = 64

// member is like the function member for the datum's bytes. A body caches its fields, so
// that they are read once.
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

// members calls f for each field with its quoted key and value.
func members(object []byte, f func(key, value []byte)) {
	i := space(object, 1)
	for object[i] != '}' {
		end := value(object, i)
		key := object[i:end]
		i = space(object, space(object, end)+1) // after the colon
		end = value(object, i)
		f(key, object[i:end])
		i = space(object, end)
		if object[i] == ',' {
			i = space(object, i+1)
		}
	}
}

// elements calls f for each element of an array. compact reports that the element has no
// white space between its tokens.
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

// keyIs reports whether a quoted key equals a name.
func keyIs(quoted []byte, name string) bool {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	var s string
	return json.Unmarshal(quoted, &s) == nil && s == name
}

// space returns the first index from i on that is not white space.
func space(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r' {
		i++
	}
	return i
}

// value returns the index after the value that starts at i.
func value(raw []byte, i int) int {
	end, _ := rawjson.Extent(raw, i)
	return end
}
