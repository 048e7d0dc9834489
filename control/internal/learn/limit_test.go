package learn

import (
	"testing"
	"time"
)

// Whichever is held first, a window that is nearly full goes before a rate, and a fuller limit before another.
func TestTheFullestLimitIsBlamed(t *testing.T) {
	now := 100 * sec
	v := &view{now: now, h: sentEvenly(now, sec, 60), mean: amounts{1, 1, 0}}
	of := func(size, first float64) *window {
		return &window{size: amounts{size, size, 0}, low: time.Minute, high: time.Minute, raise: 1, hits: 9, first: first}
	}
	f := refusal{sent: now, cost: 1, opened: 41 * sec, cycle: 60}
	r, again, fuller, empty := newRate(0, 1, 2), of(300, 60), of(62, 0), of(300, 0)
	for _, tt := range []struct {
		name string
		a, b limit
		want limit
	}{
		{"a window that is just full enough", r, again, again},
		{"a rate if the window is not", r, empty, r},
		{"the fuller one", again, fuller, fuller},
		{"neither", empty, of(400, 0), nil},
	} {
		for _, limits := range [][]limit{{tt.a, tt.b}, {tt.b, tt.a}} {
			if got := fullest(limits, v, f); got != tt.want {
				t.Errorf("%s: %T %+v", tt.name, got, got)
			}
		}
	}
}
