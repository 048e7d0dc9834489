package learn

import (
	"math"
	"time"
)

// window holds so many units in any stretch of one length. The length lies between
// low and high: while that is a wide bracket the length is taken as shorter and
// shorter, until a refusal says more.
type window struct {
	unit      unit
	size      amounts // what fits, in each unit
	proven    amounts // before a test raised it; none once the raise has lasted
	off       amounts // by how much each foretold the last refusals wrongly
	low, high time.Duration
	from      time.Duration // since when the length shrinks
	fold      time.Duration
	margin    float64
	climb     float64 // above 1: a test
	testAfter float64
	untested  float64
	hits      int
	doubts    int
	lone      bool          // nothing but the first block speaks for it
	published bool          // by the provider, and not refused since: it is not tested
	floor     time.Duration // how short a lone one is taken for in the end
	pace      float64       // attempts a second before the first refusal
	clock     time.Duration // its length when it begins with the clock, else 0
	slack     time.Duration // by how much longer what was sent counts
}

// newWindow is a window that one block speaks for. It was filled in the time fill,
// at the end at a pace, and its length is between low and high, if it is one.
func newWindow(from time.Duration, size amounts, fill, low, high, silence time.Duration, pace float64) *window {
	w := &window{size: size, floor: fill, low: low, high: high, from: from, climb: 1, testAfter: 1, lone: true, pace: pace}
	w.fold = min(max(silence/4, minFold), maxFold)
	w.off = doubtUnit
	return w
}

// refuted says that a lone window was passed without a refusal.
func (w *window) refuted(v view) bool {
	if !w.lone || w.length(v.now) > w.low*9/10 {
		return false
	}
	for u := range w.size {
		if v.h.used(unit(u), v.now, w.low) < 1.15*w.size[u]+v.mean[u] {
			return false
		}
	}
	return true
}

func (w *window) settled() bool {
	return float64(w.high-w.low) <= settledLength*float64(w.high)
}

// length is what the window's length is taken for.
func (w *window) length(now time.Duration) time.Duration {
	low := w.low
	if w.lone {
		low = min(low, w.floor)
	} else if w.settled() {
		return w.high
	}
	if now <= w.from {
		return w.high
	}
	part := math.Exp(-float64(now-w.from) / float64(w.fold))
	return low + time.Duration(part*float64(w.high-low))
}

// leaves is when what was sent at t has been in the window for that part of its length,
// which may have shrunk until then.
func (w *window) leaves(now, t time.Duration, part float64) time.Duration {
	after := func(at time.Duration) time.Duration { return t + time.Duration(part*float64(w.length(at))) }
	low, high := now, after(now)
	if high <= now || w.length(high) == w.length(now) {
		return high
	}
	for high-low > high/1000+time.Millisecond {
		mid := low + (high-low)/2
		if after(mid) > mid {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// usable is what may be in use.
func (w *window) usable() float64 {
	size := w.size[w.unit]
	if w.climb > 1 {
		return size * w.climb
	}
	if w.unit == attempts { // whole ones: of few a small margin takes none
		return max(1, math.Floor(size+0.01)-math.Round(size*w.margin))
	}
	return size * (1 - w.margin)
}

func (w *window) free(v view, c float64) time.Duration {
	n := v.amounts(c)[w.unit]
	length := w.length(v.now)
	room := max(w.usable(), n)
	at := v.now
	if w.clock > 0 {
		if w.used(v, w.unit, v.now, length)+n > room {
			return begins(v.now, w.clock, v.phase) + w.clock + v.guard
		}
	} else if used := v.h.total[w.unit] + n; used > room {
		if t := v.h.sentBy(w.unit, used-room, false); t != never {
			at = w.leaves(v.now, t, 1) + v.guard + w.slack
		}
	}
	at = max(at, w.leaves(v.now, v.last, min(1, n/max(1e-9, room)/windowSpread)))
	return max(v.now, at)
}

// between is the bracket of the instant at which a block that this window is to blame
// for ends.
func (w *window) between(v view, b *block) (low, high time.Duration) {
	began := v.h.newest(w.unit, b.began, w.size[w.unit])
	return max(began+w.low, b.lastRefused), began + w.high
}

func (w *window) sent(time.Duration) {}
func (w *window) takeBack()          {}

// answered lets a test begin or go on.
func (w *window) answered(v view) {
	w.untested++
	n := max(1, w.size[w.unit]/max(1e-9, v.mean[w.unit]))
	if w.untested > lasting*n {
		w.proven = amounts{}
	}
	switch {
	case w.lone, w.published:
	case w.climb > 1:
		if w.busy(v) {
			w.climb *= 1 + windowClimb/max(10, n)
		}
	case w.untested > min(w.maxUntested(v), w.testAfter*min(firstTest, 20+3*n)) && w.calm(v) && w.busy(v):
		w.climb = 1 + 0.5/n
	}
	if w.climb > 1.3 { // it was raised
		for u := range w.size {
			w.size[u] *= 1.25
		}
		w.climb = 1.25 / 1.2
	}
}

// calm says that the last block is long enough ago for another one: a test costs one when
// it fails, and so it is longer each time that one did.
func (w *window) calm(v view) bool {
	blocks := testAfterBlocks
	if !v.punished {
		blocks = min(blocks, firstTestAfterBlocks*w.testAfter)
	}
	return v.calm > blocks
}

// maxUntested is after how many attempts a test begins at the latest.
func (w *window) maxUntested(v view) float64 {
	return min(maxTest, max(minTest, testWithin.Seconds()*1e9/w.interval(v)))
}

// used is how much of the window was in use at an instant.
func (w *window) used(v view, u unit, t, length time.Duration) float64 {
	if w.clock > 0 {
		return v.h.until(u, t) - v.h.until(u, begins(t, w.clock, v.phase)-1)
	}
	return v.h.used(u, t, length)
}

// busy says that it is this window that holds back.
func (w *window) busy(v view) bool {
	return w.used(v, w.unit, v.now, w.length(v.now)) > 0.85*w.usable()-v.mean[w.unit]
}

// fullness is how much of it was in use at a refusal, in the unit that speaks most
// for it where none is known to be right.
func (w *window) fullness(v view, f refusal) float64 {
	full := 0.0
	for u := range w.size {
		if w.size[u] > 0 && (unit(u) == w.unit || w.hits < 3) {
			used := w.used(v, unit(u), f.sent, max(w.low, w.length(f.sent)))
			full = max(full, (used+v.amounts(f.cost)[u])/(w.size[u]*(1-w.margin)))
		}
	}
	return full
}

// blame learns the size from a refusal.
func (w *window) blame(v view, f refusal) {
	length := max(w.low, w.length(f.sent))
	tested := w.climb > 1
	w.climb, w.untested, w.published = 1, 0, false
	w.hits++
	held := w.size
	if tested && w.proven[w.unit] == 0 {
		w.proven = w.size
	}
	for u := range w.size {
		used := w.used(v, unit(u), f.sent, length)
		if unit(u) == cost {
			used += f.cost / 2 // what did not fit
		}
		if w.size[u] == 0 { // it foretells no better than the unit that is known
			w.off[u] = max(w.off[u], w.off[w.unit])
		} else {
			w.off[u] += 0.4 * (min(1, math.Abs(used/w.size[u]-1)) - w.off[u])
		}
		if sure := min(used, w.used(v, unit(u), f.sent, w.low)); sure > w.size[u] {
			w.size[u] += 0.5 * (sure - w.size[u])
			if sure > 1.03*w.size[u] {
				w.size[u] = sure
			}
		} else if used > 0 && w.settled() {
			w.size[u] += 0.3 * (used - w.size[u])
		}
	}
	if back := w.proven[w.unit]; !tested && back > 0 && w.size[w.unit] < held[w.unit] {
		if back < w.size[w.unit] {
			w.size = w.proven // more had fitted at an edge
		}
		w.proven = amounts{}
	}
	for u := range w.size {
		if w.hits > 1 && w.size[u] > 0 && w.off[u]+betterUnit < w.off[w.unit] {
			w.unit = unit(u)
		}
	}
	switch {
	case tested:
		w.margin *= 0.5
		w.testAfter = min(maxTest, w.testAfter*testGrowth)
	case !w.settled() && length < w.high-w.high/50: // it was taken for too short
	default:
		w.margin = min(0.15, 1.5*w.margin+0.003)
	}
}

// ended narrows the length by a block that this window is to blame for: its end
// lies between the last canary that was refused and the one that was admitted. It
// reports whether that agrees with what was known.
func (w *window) ended(v view, b *block) bool {
	if w.clock > 0 {
		if begins(b.release, w.clock, v.phase) > b.freedFrom() {
			w.doubts = 0
			return true
		}
		w.clock = 0
	}
	low, high, agrees := w.bracket(v, b)
	if !agrees {
		w.doubts++
		if w.lone && high < w.low && w.doubts < 3 {
			w.shorter(v, b, max(low, time.Second), high)
			return true
		}
		return false
	}
	w.lone, w.doubts = false, 0
	if high >= w.low && high < w.high {
		w.high = high
	}
	if low > w.low && low <= w.high {
		w.low = low
	}
	w.low = min(w.low, w.high)
	w.from = v.now
	return true
}

// bracket is what a block says of the length, and whether that agrees with what was
// known. When the unit is not known another may agree.
func (w *window) bracket(v view, b *block) (low, high time.Duration, agrees bool) {
	slack := w.high/20 + time.Second
	try := func(u unit, part float64) bool {
		began := v.h.newest(u, b.began, part*w.size[u])
		low, high = b.freedFrom()-began, b.release-began
		return high >= w.low-slack && low <= w.high+slack
	}
	for _, u := range [...]unit{w.unit, attempts, cost} {
		if u != w.unit && (w.hits >= sureHits || w.size[u] <= 0) {
			continue
		}
		for _, part := range [...]float64{1, 0.96, 0.9} { // the size is not known to the last unit
			if try(u, part) {
				w.unit = u
				return low, high, true
			}
		}
	}
	try(w.unit, 0.9)
	return low, high, false
}

// shorter takes a lone window for a shorter one: a canary came through early.
func (w *window) shorter(v view, b *block, low, high time.Duration) {
	w.low, w.high, w.floor, w.from = min(low, high), high, low/3, v.now
	for u := range w.size {
		w.size[u] = v.h.used(unit(u), b.began, high)
	}
}

func (w *window) interval(v view) float64 {
	return float64(w.length(v.now)) / max(1, w.size[w.unit]) * max(1e-9, v.mean[w.unit])
}

func (w *window) room(v view) float64 {
	return (w.usable() - w.used(v, w.unit, v.now, w.length(v.now))) / max(1e-9, v.mean[w.unit])
}
