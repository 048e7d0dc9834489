package provider

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The reader of JSON here finds members in place. It is tolerant: it checks that
// strings end and that brackets balance, and leaves the finer points to the
// upstream. Positions are offsets into one body; -1 says that the body ends
// before the value does, or holds none.

// space is the position of the next byte that is not white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// at is the byte at a position, 0 beyond the end.
func at(b []byte, i int) byte {
	if uint(i) < uint(len(b)) {
		return b[i]
	}
	return 0
}

// quoted is the position after the string that begins at i.
func quoted(b []byte, i int) int {
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

// skip is the position after the value that begins at i.
func skip(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch c := b[i]; c {
		case '"':
			if i = quoted(b, i); i < 0 {
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
				return -1 // no value at all
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

// bare is the position after a number or a word such as true; i when there is none.
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

// each calls member for each of an object's members, or item for each of an
// array's, with the position of its value, and goes on at the position that comes
// back. It returns the position after the closing bracket, or the first negative
// one that came back.
func each(b []byte, i int, member func(key []byte, i int) int) int {
	object, end := b[i] == '{', b[i]+2 // '{'+2 is '}', '['+2 is ']'
	i = space(b, i+1)
	if at(b, i) == end {
		return i + 1
	}
	for {
		var key []byte
		if object {
			if at(b, i) != '"' {
				return -1
			}
			from := i
			if i = quoted(b, i); i < 0 {
				return -1
			}
			key = plain(b[from+1 : i-1])
			if i = space(b, i); at(b, i) != ':' {
				return -1
			}
			i = space(b, i+1)
		}
		if i >= len(b) {
			return -1
		}
		if i = member(key, i); i < 0 {
			return i
		}
		switch i = space(b, i); at(b, i) {
		case ',':
			i = space(b, i+1)
		case end:
			return i + 1
		default:
			return -1
		}
	}
}

// plain is what a string's inside stands for; the same bytes where nothing is
// escaped.
func plain(s []byte) []byte {
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

// unit reads u and four digits, and says how many bytes that was.
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

// maxDigits is longer than any number that means something.
const maxDigits = 32

// number reads a count of tokens: whole, not negative, and bounded; 0 for
// anything else.
func number(b []byte, limit int64) int64 {
	if len(b) > maxDigits {
		return 0
	}
	if v, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		return min(max(v, 0), limit)
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(v > 0) {
		return 0
	}
	return int64(min(v, float64(limit)))
}
