// Package rawjson checks and compacts JSON at about the speed of reading it. A collector
// does not decode what it passes on, so encoding/json's scanner, with a function call for
// each byte, would be most of the work.
package rawjson

import (
	"encoding/binary"
	"slices"
)

// maxDepth is the deepest nesting that Valid accepts, as in encoding/json.
const maxDepth = 10000

// Valid reports whether b is one JSON value, with optional white space around it. It
// agrees with json.Valid on every input, including invalid UTF-8, which it does not
// check.
func Valid(b []byte) bool {
	i := value(b, Space(b, 0), 0)
	return i >= 0 && Space(b, i) == len(b)
}

// value returns the index after the value that starts at i; negative if there is none.
func value(b []byte, i, depth int) int {
	if i >= len(b) {
		return -1
	}
	switch c := b[i]; c {
	case '"':
		return text(b, i)
	case '{':
		return object(b, i, depth+1)
	case '[':
		return array(b, i, depth+1)
	case 't':
		return literal(b, i, "true")
	case 'f':
		return literal(b, i, "false")
	case 'n':
		return literal(b, i, "null")
	default:
		return number(b, i)
	}
}

func object(b []byte, i, depth int) int {
	if depth > maxDepth {
		return -1
	}
	if i = Space(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return -1
		}
		if i = text(b, i); i < 0 {
			return -1
		}
		if i = Space(b, i); i >= len(b) || b[i] != ':' {
			return -1
		}
		if i = value(b, Space(b, i+1), depth); i < 0 {
			return -1
		}
		if i = Space(b, i); i >= len(b) {
			return -1
		}
		switch b[i] {
		case '}':
			return i + 1
		case ',':
			i = Space(b, i+1)
		default:
			return -1
		}
	}
}

func array(b []byte, i, depth int) int {
	if depth > maxDepth {
		return -1
	}
	if i = Space(b, i+1); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = value(b, i, depth); i < 0 {
			return -1
		}
		if i = Space(b, i); i >= len(b) {
			return -1
		}
		switch b[i] {
		case ']':
			return i + 1
		case ',':
			i = Space(b, i+1)
		default:
			return -1
		}
	}
}

func literal(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func number(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && '1' <= b[i] && b[i] <= '9':
		i = digits(b, i)
	default:
		return -1
	}
	if i < len(b) && b[i] == '.' {
		from := i + 1
		if i = digits(b, from); i == from {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		from := i
		if i = digits(b, from); i == from {
			return -1
		}
	}
	return i
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

// Space returns the first index from i on that is not white space.
func Space(b []byte, i int) int {
	for i < len(b) && white(b[i]) {
		i++
	}
	return i
}

func white(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// text returns the index after the string that starts at i; negative if it is invalid.
func text(b []byte, i int) int {
	for i = plain(b, i+1); i < len(b); i = plain(b, i) {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c != '\\' || i+1 >= len(b):
			return -1
		}
		switch b[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if len(b)-i < 6 || !hex(b[i+2]) || !hex(b[i+3]) || !hex(b[i+4]) || !hex(b[i+5]) {
				return -1
			}
			i += 6
		default:
			return -1
		}
	}
	return -1
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// plain returns the first index from i on of a quote, a backslash or a control character.
// It checks eight bytes at a time: subtraction borrows into the highest bit of each byte
// that is smaller than the subtrahend.
func plain(b []byte, i int) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, escape := x^('"'*ones), x^('\\'*ones)
		if ((x-0x20*ones)&^x|(quote-ones)&^quote|(escape-ones)&^escape)&high != 0 {
			break
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= 0x20 {
		i++
	}
	return i
}

// Extent returns the index after the value that starts at i, and whether there is no
// white space between the value's tokens. b must hold valid JSON: nothing is checked.
func Extent(b []byte, i int) (end int, compact bool) {
	switch b[i] {
	case '"':
		return quoted(b, i), true
	case '{', '[':
		compact = true
		for depth := 0; ; {
			switch b[i] {
			case '"':
				i = quoted(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			case ' ', '\n', '\r', '\t':
				compact = false
			}
			i++
			if depth == 0 {
				return i, compact
			}
		}
	default:
		for i < len(b) && !white(b[i]) && b[i] != ',' && b[i] != ']' && b[i] != '}' {
			i++
		}
		return i, true
	}
}

// quoted returns the index after the valid string that starts at i.
func quoted(b []byte, i int) int {
	for i = plain(b, i+1); b[i] != '"'; i = plain(b, i) {
		i += 2 // an escape
	}
	return i + 1
}

// Compact returns a valid value without the white space between its tokens: b itself if
// there is none, otherwise a copy. Only white space is removed.
func Compact(b []byte) []byte {
	var out []byte
	from := 0
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			i = quoted(b, i)
		case white(c):
			if out == nil {
				out = make([]byte, 0, len(b))
			}
			out = append(out, b[from:i]...)
			i = Space(b, i)
			from = i
		default:
			i++
		}
	}
	if out == nil {
		return slices.Clip(b)
	}
	return append(out, b[from:]...)
}
