package sqlite

import "time"

// instantLayout has a fixed width, so that texts sort like the instants.
const instantLayout = "2006-01-02T15:04:05.000000000Z"

// latest is the greatest instant that the layout can hold.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)

// instant is t as stored; zero is the empty text.
func instant(t time.Time) string {
	t = t.UTC()
	switch {
	case t.IsZero() || t.Year() < 0:
		return ""
	case t.After(latest):
		t = latest
	}
	return t.Format(instantLayout)
}

// parseInstant reads a stored instant. Text that cannot be read is zero: a
// spoiled instant must not block a run.
func parseInstant(s string) time.Time {
	t, err := time.Parse(instantLayout, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
