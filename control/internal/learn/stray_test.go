package learn

import (
	"testing"
	"time"
)

// play sends all that the law lets go until an instant, 10 ms apart at least, to a
// provider that answers within 20 ms, and counts what was admitted.
func play(l *Law, from, until time.Duration, refuses func(now time.Duration) bool) (admitted int) {
	for now := from; ; {
		now = max(now+ms, l.Hold(now, 1))
		if !l.Answered() && now < from+sec {
			now += sec
		}
		if now >= until {
			return admitted
		}
		l.Sent(now, 1)
		o := Outcome{Sent: now, Now: now + 20*ms, Class: Admitted, Estimate: 1, Cost: 1}
		if refuses(now) {
			o.Class = Refused
		} else {
			admitted++
		}
		l.Observe(o)
		now += 9 * ms // the ceiling
	}
}

func TestWhatOneRefusalCosts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limit   float64       // a second, with a burst of as much; 0 means none
		refused time.Duration // how long everything is refused, once the pace has settled
		within  time.Duration // it costs at most this beyond that, at the pace before
	}{
		{"a stray one among thousands", 0, ms, 5 * sec},
		{"half a minute", 0, 30 * sec, time.Minute},
		{"four minutes", 0, 4 * time.Minute, 6 * time.Minute},
		{"a stray one under a limit", 20, ms, 5 * sec},
		{"four minutes under a limit", 20, 4 * time.Minute, 10 * time.Minute},
	} {
		l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour})
		from := 30 * time.Minute
		tokens, filled := tt.limit, time.Duration(0)
		limited := func(now time.Duration) bool {
			tokens, filled = min(tt.limit, tokens+tt.limit*(now-filled).Seconds()), now
			if tt.limit > 0 && tokens < 1 {
				return true
			}
			tokens--
			return false
		}
		play(l, 0, from, limited)
		due := float64(play(l, from, from+10*time.Minute, limited)) / 600
		from += 10 * time.Minute
		first := true
		admitted := play(l, from, from+time.Hour, func(now time.Duration) bool {
			refuse := first || now < from+tt.refused
			first = false
			return refuse || limited(now)
		})
		lost := seconds(3600 - tt.refused.Seconds() - float64(admitted)/due)
		if lost > tt.within {
			t.Errorf("%s: costs %v, want at most %v", tt.name, lost, tt.within)
		}
	}
}
