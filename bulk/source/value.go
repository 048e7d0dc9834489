package source

import (
	"encoding/json"
	"errors"
	"unicode/utf8"
)

var (
	errNotUTF8    = errors.New("is not UTF-8")
	errNotNumber  = errors.New("is not a number")
	errNotBoolean = errors.New("is neither true nor false")
	errNotJSON    = errors.New("is not JSON")
)

// appendField appends a CSV field as a JSON value.
func appendField(to []byte, f field, kind Type) ([]byte, error) {
	if len(f.text) == 0 && !f.quoted {
		return append(to, "null"...), nil
	}
	switch kind {
	case Number:
		if !json.Valid(f.text) || f.text[0] != '-' && (f.text[0] < '0' || f.text[0] > '9') {
			return to, errNotNumber
		}
		return appendOneLine(to, f.text), nil // JSON allows white space after it
	case Boolean:
		switch string(f.text) {
		case "true", "True", "TRUE", "1":
			return append(to, "true"...), nil
		case "false", "False", "FALSE", "0":
			return append(to, "false"...), nil
		}
		return to, errNotBoolean
	case JSON:
		if !utf8.Valid(f.text) || !json.Valid(f.text) {
			return to, errNotJSON
		}
		return appendOneLine(to, f.text), nil
	default:
		if !utf8.Valid(f.text) {
			return to, errNotUTF8
		}
		return appendString(to, f.text), nil
	}
}

// appendOneLine appends valid JSON without its line breaks, which can stand only
// between values.
func appendOneLine(to, raw []byte) []byte {
	for _, b := range raw {
		if b != '\n' && b != '\r' {
			to = append(to, b)
		}
	}
	return to
}

const hexDigits = "0123456789abcdef"

// appendString appends UTF-8 text as a JSON string.
func appendString(to, text []byte) []byte {
	to = append(to, '"')
	from := 0
	for i, b := range text {
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		to = append(to, text[from:i]...)
		from = i + 1
		switch b {
		case '"', '\\':
			to = append(to, '\\', b)
		case '\n':
			to = append(to, '\\', 'n')
		case '\r':
			to = append(to, '\\', 'r')
		case '\t':
			to = append(to, '\\', 't')
		default:
			to = append(to, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
	}
	return append(append(to, text[from:]...), '"')
}
