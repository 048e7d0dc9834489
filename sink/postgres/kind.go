package postgres

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/headway-go/headway/sink/internal/field"
)

// kind is the type of a column, or of the column that a value asks for.
type kind uint8

const (
	nothing kind = iota // a null, or a value that no column holds
	boolean
	bigint
	numeric
	text
	jsonb
)

// types are PostgreSQL's names of the kinds.
var types = [...]string{nothing: "", boolean: "boolean", bigint: "bigint", numeric: "numeric", text: "text", jsonb: "jsonb"}

// maxDigits bounds a number in a column: digits, and the power of ten.
const maxDigits = 1000

// kindOfValue is the column that a value of valid JSON asks for.
func kindOfValue(raw []byte) kind {
	switch raw[0] {
	case 'n':
		return nothing
	case 't', 'f':
		return boolean
	case '"':
		return text
	case '[', '{':
		if !storable(raw) {
			return nothing
		}
		return jsonb
	}
	if bytes.IndexAny(raw, ".eE") < 0 {
		if len(raw) < 19 {
			return bigint
		}
		if _, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return bigint
		}
	}
	if !moderate(raw) {
		return nothing
	}
	return numeric
}

// join is the kind that takes the values of both.
func join(have, come kind) kind {
	switch {
	case come == nothing || have == come || have == text || have == jsonb:
		return have
	case come == jsonb:
		return jsonb
	case have >= bigint && have <= numeric && come >= bigint && come <= numeric:
		return numeric
	}
	return text
}

// read gives a value as a column of the kind has it; set is false for NULL. Whole says that
// the value can be had back from the column.
func (k kind) read(raw []byte) (value string, set, whole bool) {
	come := kindOfValue(raw)
	switch {
	case raw[0] == 'n':
		return "", false, false
	case k == jsonb:
		ok := come == jsonb || come != nothing && storable(raw)
		return string(raw), ok, ok
	case k == text && come == text:
		v := field.Read(raw)
		if strings.IndexByte(v.Text, 0) >= 0 {
			return strings.ReplaceAll(v.Text, "\x00", "\uFFFD"), true, false
		}
		return v.Text, true, v.Exact
	case k == text:
		return string(raw), true, false
	case k == come, k == numeric && come == bigint:
		return string(raw), true, raw[0] != '-' || bytes.ContainsAny(mantissa(raw), "123456789")
	}
	return "", false, false
}

// mantissa is a number without its power of ten.
func mantissa(raw []byte) []byte {
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		return raw[:i]
	}
	return raw
}

// moderate reports whether a number is one that numeric and jsonb take as it stands.
func moderate(raw []byte) bool {
	m := mantissa(raw)
	if len(m) > maxDigits {
		return false
	}
	if len(m) == len(raw) {
		return true
	}
	n, err := strconv.Atoi(strings.TrimPrefix(string(raw[len(m)+1:]), "+"))
	return err == nil && n <= maxDigits && n >= -maxDigits
}

// storable reports whether jsonb takes valid, compact JSON and gives it back: it holds no
// NUL and no half of a surrogate pair, no number beyond bounds, no negative zero, and is
// not nested too deep.
func storable(raw []byte) bool {
	const maxDepth = 500
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			start := i
			escaped := false
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					escaped = escaped || raw[i+1] == 'u'
					i++
				}
			}
			if escaped {
				v := field.Read(raw[start : i+1])
				if !v.Exact || strings.IndexByte(v.Text, 0) >= 0 {
					return false
				}
			}
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return false
			}
		case c == ']' || c == '}':
			depth--
		case c == '-' || c >= '0' && c <= '9':
			end := i
			for end < len(raw) && strings.IndexByte("+-.eE0123456789", raw[end]) >= 0 {
				end++
			}
			number := raw[i:end]
			if !moderate(number) || c == '-' && !bytes.ContainsAny(mantissa(number), "123456789") {
				return false
			}
			i = end - 1
		}
	}
	return true
}

// jsonString writes a JSON string.
func jsonString(s string) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(s)
	return strings.TrimSuffix(b.String(), "\n"), err
}
