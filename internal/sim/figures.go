package sim

import (
	"math"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// percentile is by nearest rank, of instants in order; p is from 1 to 100.
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// jain is the fairness index of R. Jain, D. Chiu and W. Hawe (1984): 1 when all
// get the same, 1/n when one gets everything. Something must have been got.
func jain(shares []int64) float64 {
	sum, squares := 0.0, 0.0
	for _, n := range shares {
		x := float64(n)
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// trailing is the window over which rates are compared: long enough for the
// longest window of the limits, and for 20 of the oracle's admissions.
func trailing(s *scenario.Scenario, best int) time.Duration {
	return min(s.Horizon, max(10*time.Second, maxWindow(s), time.Duration(20*float64(s.Horizon)/float64(best))))
}

func maxWindow(s *scenario.Scenario) (window time.Duration) {
	for _, l := range s.Provider.Limits {
		window = max(window, l.Window)
	}
	return window
}

// caughtUp is the first whole second at which the client was admitted at least
// 90 % of what the oracle was, which was something, over the trailing window.
func caughtUp(client, oracle []time.Duration, window, horizon time.Duration) (at time.Duration, ok bool) {
	var c, o span
	for at = time.Second; at <= horizon; at += time.Second {
		got, best := c.count(client, at-window, at), o.count(oracle, at-window, at)
		if best > 0 && 10*got >= 9*best {
			return at, true
		}
	}
	return 0, false
}

// span counts the instants of a stretch that only moves forward.
type span struct{ from, to int }

// count is how many of the instants are in [from, to).
func (s *span) count(instants []time.Duration, from, to time.Duration) int {
	for s.to < len(instants) && instants[s.to] < to {
		s.to++
	}
	for s.from < s.to && instants[s.from] < from {
		s.from++
	}
	return s.to - s.from
}

// round keeps some decimals, so that results can be read.
func round(x float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Round(x*scale) / scale
}

func seconds(d time.Duration) float64 { return round(d.Seconds(), 3) }

func millis(d time.Duration) float64 { return round(float64(d)/float64(time.Millisecond), 3) }
