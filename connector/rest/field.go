package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
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

var jsonNull = []byte("null")

// walk follows names into raw. A missing field and a field of null are null,
// as in jq; a field of anything else is an error.
func walk(raw []byte, names []string) ([]byte, error) {
	raw = bytes.TrimSpace(raw)
	for _, name := range names {
		switch kindOf(raw) {
		case kindNull:
			return jsonNull, nil
		case kindTable:
			raw = member(raw, name)
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
// twice (as decoders have it), null when there is none.
func member(object []byte, name string) []byte {
	found := jsonNull
	members(object, func(key, value []byte) {
		if keyIs(key, name) {
			found = value
		}
	})
	return found
}

// has reports whether an object has a field, of whatever value.
func has(object []byte, name string) (found bool) {
	members(object, func(key, _ []byte) { found = found || keyIs(key, name) })
	return found
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

// elements calls f with each element of an array.
func elements(array []byte, f func(element []byte)) {
	i := space(array, 1)
	for array[i] != ']' {
		end := value(array, i)
		f(array[i:end])
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

// space is the first index from i on that is no white space.
func space(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r' {
		i++
	}
	return i
}

// value is the index after the value that starts at i.
func value(raw []byte, i int) int { return rawjson.End(raw, i) }
