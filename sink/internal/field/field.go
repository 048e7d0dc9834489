// Package field splits a JSON record into its top-level fields, and converts each value
// to one that a typed column can hold, for sinks with columns.
//
// It is pure. A [Splitter] is for one goroutine at a time; everything else is safe for
// concurrent use.
package field

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headway-go/headway/internal/rawjson"
)

// Kind is the kind of a value, as columns distinguish them.
type Kind uint8

const (
	// Null is null.
	Null Kind = iota
	// Boolean is true or false.
	Boolean
	// Integer is a number that fits in 64 signed bits.
	Integer
	// Real is a number with fraction or exponent.
	Real
	// Text is a string.
	Text
	// JSON is an array or an object.
	JSON
)

// Value is a JSON value as a column would hold it.
type Value struct {
	Kind Kind
	// Int is the value of an Integer, and 0 or 1 for a Boolean.
	Int int64
	// Real is the value of a Real.
	Real float64
	// Text is the value of a Text, and the JSON of an array or object.
	Text string
	// Exact reports that the JSON value can be restored from the fields above. It is
	// false for a number that is a Text since it is too large or too precise for an
	// Integer or Real, for a string with half a surrogate pair, and for a negative zero.
	Exact bool
}

// Read converts one valid JSON value without white space around it. The Value does not
// refer to raw.
func Read(raw []byte) Value {
	switch raw[0] {
	case 'n':
		return Value{Kind: Null, Exact: true}
	case 't':
		return Value{Kind: Boolean, Int: 1, Exact: true}
	case 'f':
		return Value{Kind: Boolean, Exact: true}
	case '"':
		text, exact := unquote(raw)
		return Value{Kind: Text, Text: text, Exact: exact}
	case '[', '{':
		return Value{Kind: JSON, Text: string(raw), Exact: true}
	default:
		return number(string(raw))
	}
}

func number(s string) Value {
	if !strings.ContainsAny(s, ".eE") {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return Value{Kind: Integer, Int: n, Exact: s != "-0"}
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && !math.IsInf(f, 0) && decimalOf(s) == decimalOf(strconv.FormatFloat(f, 'e', -1, 64)) {
		// Databases drop the sign of zero.
		return Value{Kind: Real, Real: f, Exact: f != 0 || !math.Signbit(f)}
	}
	return Value{Kind: Text, Text: s}
}

// decimal is a decimal number in normal form: 0.digits times ten to the power of exponent.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

func decimalOf(s string) (d decimal) {
	s, d.negative = strings.CutPrefix(s, "-")
	mantissa := s
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa = s[:i]
		// An exponent out of range belongs to a number that no Real holds, or to zero.
		d.exponent, _ = strconv.ParseInt(s[i+1:], 10, 32)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	d.exponent += int64(len(whole))
	digits := strings.TrimLeft(whole+fraction, "0")
	d.exponent -= int64(len(whole) + len(fraction) - len(digits))
	d.digits = strings.TrimRight(digits, "0")
	if d.digits == "" {
		d.exponent = 0
	}
	return d
}

// unquote returns the text of a JSON string. exact is false if half a surrogate pair had
// to be replaced.
func unquote(raw []byte) (text string, exact bool) {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	// Never fails for a valid JSON string.
	_ = json.Unmarshal(raw, &text)
	if !strings.ContainsRune(text, utf8.RuneError) {
		return text, true
	}
	// The string may contain the replacement character itself: then nothing in it looks
	// like half a pair. A wrong false only costs space.
	return text, !bytes.Contains(inner, []byte(`\ud`)) && !bytes.Contains(inner, []byte(`\uD`))
}

// Field is one field of a record.
type Field struct {
	// Name is the field's name. Exact is false if Name differs from Quoted because of a
	// replaced character.
	Name  string
	Exact bool
	// Quoted and Raw are the name and the value as in the record.
	Quoted, Raw []byte
}

// Splitter splits records into fields. The zero value is ready to use.
type Splitter struct {
	fields []Field
	seen   map[string]int
}

// Split returns the fields of a record of valid, compact JSON in order; object is false if
// the record is not an object. If a name occurs twice, the field has its first position
// and its last value. The result is valid until the next call.
func (s *Splitter) Split(record []byte) (fields []Field, object bool) {
	if record[0] != '{' {
		return nil, false
	}
	s.fields = s.fields[:0]
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	clear(s.seen)
	for rest := record[1:]; rest[0] != '}'; {
		var f Field
		if rest[0] == ',' {
			rest = rest[1:]
		}
		f.Quoted, rest = next(rest)
		f.Raw, rest = next(rest[1:]) // after the colon
		f.Name, f.Exact = unquote(f.Quoted)
		at, twice := s.seen[f.Name]
		switch {
		case !f.Exact:
			s.fields = append(s.fields, f)
		case twice:
			s.fields[at] = f
		default:
			s.seen[f.Name] = len(s.fields)
			s.fields = append(s.fields, f)
		}
	}
	return s.fields, true
}

// Elements returns the elements of an array of valid, compact JSON.
func Elements(array []byte) (elements [][]byte) {
	for rest := array[1:]; rest[0] != ']'; {
		if rest[0] == ',' {
			rest = rest[1:]
		}
		var e []byte
		e, rest = next(rest)
		elements = append(elements, e)
	}
	return elements
}

// next splits off the first value of valid, compact JSON.
func next(b []byte) (value, rest []byte) {
	end, _ := rawjson.Extent(b, 0)
	return b[:end], b[end:]
}

// Rest collects fields into one JSON object, for the column _rest. The zero value is
// empty.
type Rest struct{ b []byte }

// Add adds a field.
func (r *Rest) Add(f Field) {
	if len(r.b) == 0 {
		r.b = append(r.b, '{')
	} else {
		r.b = append(r.b, ',')
	}
	r.b = append(r.b, f.Quoted...)
	r.b = append(r.b, ':')
	r.b = append(r.b, f.Raw...)
}

// Take returns the object and empties r; ok is false if there is no field.
func (r *Rest) Take() (object string, ok bool) {
	if len(r.b) == 0 {
		return "", false
	}
	object = string(append(r.b, '}'))
	r.b = r.b[:0]
	return object, true
}

// MaxName is the maximum length of a field's name that can be a column's, in bytes.
const MaxName = 100

// Nameable reports whether a field's name can be a column's in any database.
func Nameable(f Field) bool {
	return f.Exact && f.Name != "" && len(f.Name) <= MaxName &&
		strings.IndexFunc(f.Name, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}

// Record appends a record to b as compact JSON. It returns false, and appends nothing, if
// the record is not one valid JSON value in UTF-8.
func Record(b *bytes.Buffer, data []byte) bool {
	if !utf8.Valid(data) {
		return false
	}
	n := b.Len()
	if err := json.Compact(b, data); err != nil || b.Len() == n {
		b.Truncate(n)
		return false
	}
	return true
}
