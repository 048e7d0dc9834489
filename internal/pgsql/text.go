package pgsql

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Escape makes any bytes a text that PostgreSQL takes, which is UTF-8 without NUL. What is
// not is written otherwise: byte 0 as \x01\x01, byte 1 as \x01\x02, and a byte that is not UTF-8 as
// \x01\x03 and two hexadecimal digits. All other text stands as it is, and valid UTF-8
// keeps its order.
func Escape(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 && strings.IndexByte(s, 1) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "\x01\x03%02x", s[i])
		case r == 0:
			b.WriteString("\x01\x01")
		case r == 1:
			b.WriteString("\x01\x02")
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// Unescape gives what Escape was given.
func Unescape(s string) string {
	if strings.IndexByte(s, 1) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != 1 || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 1:
			b.WriteByte(0)
		case 2:
			b.WriteByte(1)
		case 3:
			var c byte
			if i+2 < len(s) {
				_, _ = fmt.Sscanf(s[i+1:i+3], "%02x", &c)
			}
			b.WriteByte(c)
			i += 2
		}
	}
	return b.String()
}
