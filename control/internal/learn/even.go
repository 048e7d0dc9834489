package learn

import "time"

// How fast a window is used: in bursts while little is known of it and if it seems fixed, evenly if it slides.
// One whose units return evenly, since the provider counts in periods, has instants at which attempts are due.

// spread returns how many times as fast as they return units may be used. A window that slides is
// used evenly once refusals have confirmed it: bursts would come back with each length, and a provider
// that counts in periods assumes that the attempts of one came evenly. A fixed window gives back all its
// units at once, and a published one may be fixed.
func (w *window) spread() float64 {
	if w.unit != attempts || w.lone || w.fixed || w.clock > 0 || w.published || w.hits < evenHits {
		return windowSpread
	}
	return 1
}

// sent sets when the next attempt of a window counted in periods is due. An attempt that was late delays
// none after it, since the provider counts no more because of it.
func (w *window) sent(now time.Duration, _ float64) {
	if w.counted {
		w.due = max(w.due, now-w.high/countedLate) + w.gap()
	}
}

// gap returns the time between two attempts of a window counted in periods.
func (w *window) gap() time.Duration { return time.Duration(float64(w.high) / w.usable()) }

// late returns how many attempts of a window counted in periods may be late, and so go sooner than a
// length after those that it holds.
func (w *window) late() float64 {
	if !w.counted {
		return 0
	}
	return 1 + w.usable()/countedLate
}

// tooFull learns from a refusal of a window whose units return evenly. How many attempts were
// in its length is no measure of what the provider counts.
func (w *window) tooFull(v *view, tested bool) {
	if tested {
		w.testAfter *= testGrowth
		return
	}
	w.margin = min(maxMargin, 1.5*w.margin+0.003)
	if w.doubts++; v.open > w.high {
		w.doubts = 0
	}
}
