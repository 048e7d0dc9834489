package postgres

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// verbatim is text that is kept byte for byte. A text of PostgreSQL is UTF-8 without
// NUL; what is not is escaped: byte 0 as \x01\x01, byte 1 as \x01\x02, and a byte that is not
// UTF-8 as \x01\x03 and two hexadecimal digits. All other text stands as it is, and
// valid UTF-8 keeps its order.
type verbatim string

// Value escapes the text.
func (v verbatim) Value() (driver.Value, error) { return escape(string(v)), nil }

// Scan reads what Value gave; NULL is empty.
func (v *verbatim) Scan(from any) error {
	switch from := from.(type) {
	case nil:
		*v = ""
	case string:
		*v = verbatim(unescape(from))
	case []byte:
		*v = verbatim(unescape(string(from)))
	default:
		return fmt.Errorf("%T is not a text", from)
	}
	return nil
}

func escape(s string) string {
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

func unescape(s string) string {
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

// escaped are the texts of an array.
func escaped(texts []string) []string {
	list := make([]string, len(texts))
	for i, s := range texts {
		list[i] = escape(s)
	}
	return list
}

// moment is an instant; zero is NULL. PostgreSQL keeps microseconds.
type moment time.Time

// latest is the last instant that is kept; later ones become it.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)

// Value gives the instant, or NULL.
func (m moment) Value() (driver.Value, error) {
	t := time.Time(m).UTC()
	switch {
	case t.IsZero() || t.Year() < 0:
		return nil, nil
	case t.After(latest):
		return latest, nil
	}
	return t, nil
}

// Scan reads an instant; NULL is zero.
func (m *moment) Scan(from any) error {
	switch from := from.(type) {
	case nil:
		*m = moment{}
	case time.Time:
		*m = moment(from.UTC())
	default:
		return fmt.Errorf("%T is not an instant", from)
	}
	return nil
}
