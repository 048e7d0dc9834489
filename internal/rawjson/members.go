package rawjson

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The functions below find members in a text that may be no JSON. They check that strings end
// and brackets balance, and nothing else. Positions are offsets into the text; -1 means that
// the text ends before the value does, or has no value.

// At returns the byte at a position, 0 after the end.
func At(b []byte, i int) byte {
	if uint(i) < uint(len(b)) {
		return b[i]
	}
	return 0
}

// String returns the position after the string that begins at i, which may be cut short.
func String(b []byte, i int) int {
	for j := i + 1; ; {
		n := bytes.IndexByte(b[j:], '"')
		if n < 0 {
			return -1
		}
		j += n + 1
		slashes := 0
		for k := j - 2; k > i && b[k] == '\\'; k-- {
			slashes++
		}
		if slashes%2 == 0 {
			return j
		}
	}
}

// Skip returns the position after the value that begins at i.
func Skip(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch c := b[i]; c {
		case '"':
			if i = String(b, i); i < 0 {
				return -1
			}
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return -1
			}
			i++
		case ' ', '\n', '\t', '\r', ',', ':':
			if depth == 0 {
				return -1 // no value
			}
			i++
			continue
		default:
			n := bare(b, i)
			if n == i {
				return -1
			}
			i = n
		}
		if depth == 0 {
			return i
		}
	}
	return -1
}

// bare returns the position after a number or a word such as true; i if there is none.
func bare(b []byte, i int) int {
	for i < len(b) {
		switch c := b[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c == '-', c == '+', c == '.', c == 'E':
			i++
		default:
			return i
		}
	}
	return i
}

// Each calls member for each member of an object, or item for each element of an array,
// with the position of its value. It continues at the position that they return. It returns
// the position after the closing bracket, or the first negative position that they return.
func Each(b []byte, i int, member func(key []byte, i int) int) int {
	object, end := b[i] == '{', b[i]+2 // '{'+2 is '}', '['+2 is ']'
	i = Space(b, i+1)
	if At(b, i) == end {
		return i + 1
	}
	for {
		var key []byte
		if object {
			if At(b, i) != '"' {
				return -1
			}
			from := i
			if i = String(b, i); i < 0 {
				return -1
			}
			key = Unquote(b[from+1 : i-1])
			if i = Space(b, i); At(b, i) != ':' {
				return -1
			}
			i = Space(b, i+1)
		}
		if i >= len(b) {
			return -1
		}
		if i = member(key, i); i < 0 {
			return i
		}
		switch i = Space(b, i); At(b, i) {
		case ',':
			i = Space(b, i+1)
		case end:
			return i + 1
		default:
			return -1
		}
	}
}

// Unquote returns the text of a string without its quotes. It returns the same bytes if
// nothing is escaped.
func Unquote(s []byte) []byte {
	i := bytes.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for {
		out = append(out, s[:i]...)
		s = s[i+1:]
		if len(s) == 0 {
			return out
		}
		switch c := s[0]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'u':
			r, n := unit(s)
			if utf16.IsSurrogate(r) && len(s) > n+1 && s[n] == '\\' && s[n+1] == 'u' {
				low, m := unit(s[n+1:])
				if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
					r, n = both, n+1+m
				}
			}
			out, s = utf8.AppendRune(out, r), s[n-1:]
		default:
			out = append(out, c)
		}
		s = s[1:]
		if i = bytes.IndexByte(s, '\\'); i < 0 {
			return append(out, s...)
		}
	}
}

// unit reads u and four digits, and returns the number of bytes read.
func unit(s []byte) (r rune, n int) {
	if len(s) < 5 {
		return utf8.RuneError, 1
	}
	v, err := strconv.ParseUint(string(s[1:5]), 16, 16)
	if err != nil {
		return utf8.RuneError, 1
	}
	return rune(v), 5
}
