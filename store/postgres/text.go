package postgres

import (
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/headway-go/headway/internal/pgsql"
)

// verbatim is text that is stored byte for byte, see [pgsql.Escape].
type verbatim string

// Value returns the escaped text.
func (v verbatim) Value() (driver.Value, error) { return pgsql.Escape(string(v)), nil }

// Scan reads a text that Value has escaped. NULL becomes "".
func (v *verbatim) Scan(from any) error {
	switch from := from.(type) {
	case nil:
		*v = ""
	case string:
		*v = verbatim(pgsql.Unescape(from))
	case []byte:
		*v = verbatim(pgsql.Unescape(string(from)))
	default:
		return fmt.Errorf("%T is not a text", from)
	}
	return nil
}

// escaped escapes the texts of an array.
func escaped(texts []string) []string {
	list := make([]string, len(texts))
	for i, s := range texts {
		list[i] = pgsql.Escape(s)
	}
	return list
}

// moment is an instant, in microseconds as PostgreSQL stores it. The zero time is NULL.
type moment time.Time

// latest is the latest instant that can be stored. Later ones become it.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)

// Value returns the instant, or NULL.
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

// Scan reads an instant. NULL becomes the zero time.
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
