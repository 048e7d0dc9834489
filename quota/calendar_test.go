package quota

import (
	"testing"
	"time"
)

func TestDaysAreNumbered(t *testing.T) {
	for name, want := range map[string]int64{"1970-01-01": 0, "1970-01-02": 1, "2026-03-04": 20516, "2250-01-01": 102268, "2400-01-01": 157054} {
		got, err := dayNumber(name)
		if err != nil || got != want || dayName(want) != name {
			t.Errorf("%s is %d, %v, want %d; that is %s", name, got, err, want, dayName(want))
		}
		day, _ := time.Parse(time.DateOnly, name)
		for _, at := range []time.Duration{0, 12 * time.Hour, 24*time.Hour - 1} {
			if got := civilDay(day.Add(at), time.UTC); got != want {
				t.Errorf("%s and %v is of day %d, want %d", name, at, got, want)
			}
		}
		if got := turnOf(want, time.UTC); !got.Equal(day) {
			t.Errorf("%s begins at %v", name, got)
		}
	}
	for _, bad := range []string{"", "2026-3-4", "2026-03-32", "2026-03-04T00:00"} {
		if _, err := dayNumber(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// A calendar anchored again, for a clock that was set and for an instant at which it
// turns.
func TestACalendarOnlyGoesForward(t *testing.T) {
	midday := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	day, hour := 24*time.Hour, time.Hour
	c := calendar{zone: time.UTC}
	for _, tt := range []struct {
		what       string
		origin     time.Time
		now        time.Duration
		day        string
		start, end time.Duration
	}{
		{"at first", midday, 0, "2026-03-04", -12 * hour, 12 * hour},
		{"just before midnight", midday, 12*hour - 1, "2026-03-04", -12 * hour, 12 * hour},
		{"at midnight", midday, 12 * hour, "2026-03-05", 12 * hour, 36 * hour},
		{"set back by an hour", midday.Add(-hour), 12*hour + 1, "2026-03-05", 13 * hour, 37 * hour},
		{"set back by two days", midday.Add(-2 * day), 13 * hour, "2026-03-05", 60 * hour, 84 * hour},
		{"set right again", midday, 14 * hour, "2026-03-05", 12 * hour, 36 * hour},
		{"set forward by a week", midday.Add(7 * day), 14 * hour, "2026-03-12", 12 * hour, 36 * hour},
	} {
		c.anchor(tt.origin, tt.now)
		if dayName(c.day) != tt.day || c.start != tt.start || c.end != tt.end {
			t.Errorf("%s: %s from %v to %v, want %s from %v to %v", tt.what, dayName(c.day), c.start, c.end, tt.day, tt.start, tt.end)
		}
	}
}
