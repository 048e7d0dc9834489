package learn

import (
	"math"
	"time"
)

// window allows a number of units in any period of one length. The length lies between low
// and high: while the bracket is wide, the length is assumed shorter and shorter, until a
// refusal shows more.
type window struct {
	unit      unit
	size      amounts // the allowed amount of each unit
	proven    amounts // the size before a test raised it; zero once the raise has lasted
	off       amounts // how badly each unit predicted the last refusals
	low, high time.Duration
	from      time.Duration // since when the assumed length shrinks
	fold      time.Duration // in which it shrinks by the factor e
	margin    float64       // part of the size that is not used
	raise     float64       // factor of the size: above 1 during a test, else 1
	testAfter float64       // factor of the attempts before a test; grows with each that fails
	untested  float64       // attempts admitted since a refusal was blamed on it
	hits      int           // refusals that were blamed on it
	longer    int           // consecutive blocks that refused after its end
	doubts    int           // consecutive blocks that contradict it; if counted, consecutive early refusals
	since     time.Duration // Law.since before its first block
	released  time.Duration // the last release of a block that it explains
	lone      bool          // no block but the first supports it, so it is a guess
	published bool          // by the provider, and not refused since: it is not tested
	floor     time.Duration // the shortest assumed length of a lone window
	pace      float64       // attempts a second before the first refusal
	first     float64       // attempts before the first block
	before    time.Duration // its length before refusals after its end showed that it is longer
	clock     time.Duration // its length if it begins with the clock, else 0
	slack     time.Duration // extra time for which sent attempts count
	counted   bool          // in periods by the provider, so that units return evenly
	fixed     bool          // it seems not to slide: the last block that shows it fits a fixed one
	due       time.Duration // when the next attempt of a window is due that is counted in periods
}

// newWindow returns a window that one block supports. It was filled at a pace, and its length is
// between low and high, if it exists; while it is lone it may be taken for as short as floor.
func newWindow(from time.Duration, size amounts, floor, low, high, silence time.Duration, pace float64) *window {
	w := &window{size: size, floor: floor, low: low, high: high, from: from, raise: 1, testAfter: 1, lone: true, pace: pace, first: size[attempts]}
	w.fold = min(max(silence/4, minFold), maxFold)
	w.off = doubtUnit
	return w
}

// refuted reports whether a lone window was exceeded without a refusal since its block: across the end
// of a fixed window twice as many may go.
func (w *window) refuted(v *view) bool {
	if !w.lone || w.length(v.now) > w.low*9/10 {
		return false
	}
	for u := range w.size {
		if v.h.between(unit(u), max(v.now-w.low, w.released), v.now) < 1.15*w.size[u]+v.mean[u] {
			return false
		}
	}
	return true
}

// sure reports whether many refusals support the window, and its length is known.
func (w *window) sure() bool {
	return w.hits >= sureHits && w.settled()
}

func (w *window) settled() bool {
	return float64(w.high-w.low) <= settledLength*float64(w.high)
}

// length returns the assumed length of the window.
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

// leaves returns when attempts sent at t have been in the window for a part of its length,
// which may shrink until then.
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

// usable returns the amount that may be in use.
func (w *window) usable() float64 {
	size := w.size[w.unit]
	if w.raise > 1 {
		return size * w.raise
	}
	if w.unit == attempts { // whole attempts, so that a small margin does not take one of few
		return max(1, math.Floor(size+0.01)-math.Round(size*w.margin))
	}
	return size * (1 - w.margin)
}

func (w *window) free(v *view, c float64) time.Duration {
	n := v.amounts(c)[w.unit]
	length := w.length(v.now)
	room := max(w.usable(), n)
	at := v.now
	if w.clock > 0 {
		if w.used(v, w.unit, v.now, length)+n > room {
			return begins(v.now, w.clock, v.phase) + w.clock + v.guard
		}
	} else if used := v.h.total[w.unit] + n - w.late(); used > room {
		if t := v.h.sentBy(w.unit, used-room, false); t != never {
			at = w.leaves(v.now, t, 1) + v.guard + w.slack
		}
	}
	if w.counted {
		return max(v.now, at, w.due)
	}
	at = max(at, w.leaves(v.now, v.last, n/max(1e-9, room)/w.spread()))
	return max(v.now, at)
}

// between returns the bracket for the end of a block that is blamed on this window.
func (w *window) between(v *view, b *block) (low, high time.Duration) {
	began := w.oldest(v, b, w.unit, 1)
	return max(began+w.low, b.lastRefused), began + w.high
}

// oldest returns when the last units were used that had to leave before a block could end, if
// the window holds a part of its size. For an attempt that costs more than others more had to.
func (w *window) oldest(v *view, b *block, u unit, part float64) time.Duration {
	n := part * w.size[u]
	if u == cost {
		n -= min(max(0, b.cost-v.mean[cost]), n/2)
	}
	return v.h.newest(u, b.began, n)
}

// filled returns when the last units were used, up to t, that fill a part of the window.
func (w *window) filled(v *view, t time.Duration, part float64) time.Duration {
	return v.h.newest(w.unit, t, part*w.size[w.unit])
}

func (w *window) takeBack(float64) {}

// answered starts or continues a test.
func (w *window) answered(v *view) {
	w.untested++
	n := max(1, w.size[w.unit]/max(1e-9, v.mean[w.unit]))
	if w.untested > lasting*n {
		w.proven = amounts{}
	}
	switch {
	case w.lone, w.published:
	case w.raise > 1:
		if w.busy(v) {
			w.raise *= 1 + windowRaise/max(10, n)
		}
	case w.untested > min(w.maxUntested(v), w.testAfter*min(firstTest, 20+3*n)) && w.calm(v) && w.busy(v):
		w.raise = 1 + 0.5/n
	}
	if w.raise > 1.3 { // it was raised
		for u := range w.size {
			w.size[u] *= 1.25
		}
		w.raise = 1.25 / 1.2
		w.proven = amounts{}
	}
}

// calm reports whether the last block was long enough ago for a test. A failed test costs a
// block, so the time grows with each failure.
func (w *window) calm(v *view) bool {
	blocks := testAfterBlocks
	if !v.punished {
		blocks = min(blocks, firstTestAfterBlocks*w.testAfter)
	}
	return v.calm() > blocks
}

// maxUntested returns the number of attempts after which a test starts at the latest.
func (w *window) maxUntested(v *view) float64 {
	return min(maxTest, max(minTest, testWithin.Seconds()*1e9/w.interval(v)))
}

// used returns how much of the window was in use at an instant.
func (w *window) used(v *view, u unit, t, length time.Duration) float64 {
	if w.clock > 0 {
		return v.h.between(u, begins(t, w.clock, v.phase), t)
	}
	return v.h.used(u, t, length)
}

// busy reports whether this window is what delays attempts.
func (w *window) busy(v *view) bool {
	return w.used(v, w.unit, v.now, w.length(v.now)) > nearlyFull*w.usable()-v.mean[w.unit]
}

// fullness returns the part of the window in use at a refusal. If no unit is known to be
// right, it uses the unit with the highest fullness.
func (w *window) fullness(v *view, f refusal) float64 {
	full := 0.0
	if w.again(f) {
		full = nearlyFull
	}
	for u := range w.size {
		if w.size[u] > 0 && (unit(u) == w.unit || w.hits < 3) {
			used := w.used(v, unit(u), f.sent, max(w.low, w.length(f.sent)))
			full = max(full, (used+v.amounts(f.cost)[u])/(w.size[u]*(1-w.margin)))
		}
	}
	return full
}

// blame learns the size from a refusal.
func (w *window) blame(v *view, f refusal) {
	length := max(w.low, w.length(f.sent))
	tested := w.raise > 1
	w.raise, w.untested, w.published = 1, 0, false
	if !tested && w.spread() > 1 && f.sent-f.opened <= w.high { // if used evenly, one that slides refuses after as many, too
		w.fixed = w.again(f)
	}
	w.hits++
	if w.counted {
		w.tooFull(v, tested)
		return
	}
	if !tested && w.again(f) { // attempts from before the release do not count
		for u := range w.size {
			w.size[u] = v.h.between(unit(u), f.opened, f.sent)
		}
		w.proven = amounts{}
		return
	}
	if !tested && w.arrivedLate(v, f, length) {
		return
	}
	held := w.size
	if tested && w.proven[w.unit] == 0 {
		w.proven = w.size
	}
	for u := range w.size {
		used := w.used(v, unit(u), f.sent, length)
		if unit(u) == cost {
			used += f.cost / 2 // including the refused attempt
		}
		if w.size[u] == 0 { // it predicts no better than the known unit
			w.off[u] = max(w.off[u], w.off[w.unit])
		} else {
			wrong := math.Abs(used - w.size[u])
			if unit(u) == attempts {
				wrong = max(0, wrong-1) // one may have arrived late, or been a test
			}
			w.off[u] += 0.4 * (min(1, wrong/w.size[u]) - w.off[u])
		}
		sure := min(used, w.used(v, unit(u), f.sent, w.low))
		if sure > w.size[u] && (tested || sure > 2*w.size[u]) { // fewer may be those of two fixed windows
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
			w.size = w.proven // more had fitted at a boundary
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
		w.testAfter *= testGrowth
	case !w.settled() && length < w.high-w.high/50: // the assumed length was too short
	default:
		w.margin = min(maxMargin, 1.5*w.margin+0.003)
	}
}

// again reports whether as many attempts went since the last release as before the first block.
// That is a fixed window: of a sliding one the attempts before the release count, too.
func (w *window) again(f refusal) bool {
	return w.first >= 2 && math.Abs(f.cycle/w.first-1) < sameAgain && f.sent-f.opened <= w.high
}

// few reports whether a window allows so few attempts that a smaller size, by one, would cost more than
// a longer time.
func (w *window) few() bool { return w.unit == attempts && w.size[attempts] < fewAttempts }

// arrivedLate reports whether a refusal comes from the way of an attempt to the provider: one
// attempt less than the size was in use, and the next older one was sent just before. Of few
// attempts none is taken away: each counts for longer instead.
func (w *window) arrivedLate(v *view, f refusal, length time.Duration) bool {
	if w.clock > 0 || !w.settled() || !w.few() {
		return false
	}
	short := w.size[attempts] - w.used(v, attempts, f.sent, length)
	ago := f.sent - length - v.h.newest(attempts, f.sent, math.Round(w.size[attempts])-0.5)
	if short < 0.5 || short > 1.5 || ago > length/maxSlack+v.guard {
		return false
	}
	w.slack = max(w.slack, min(ago, length/maxSlack))
	return true
}

// ended narrows the length by a block that is blamed on this window: it ended between
// the last refused canary and the admitted one. It reports whether that agrees with earlier
// blocks.
func (w *window) ended(v *view, b *block) bool {
	if w.counted {
		w.due = v.now + w.gap()
		return w.doubts <= maxEarly
	}
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
	if b.tested && w.settled() { // the size is not known exactly, and so the bounds are not
		w.doubts = 0
		return true
	}
	w.lone, w.doubts = false, 0
	if high >= w.low && high < w.high {
		w.high = high
	}
	if low <= w.high {
		w.longer = 0
	}
	switch bracket := w.high - w.low; {
	case low > w.high && w.unit == attempts && !b.tested:
		if w.otherUnit(v, b) {
			break
		}
		if w.longer++; !w.few() && w.longer < 2 {
			break
		}
		if w.before > 0 && float64(low) > (1+longerThan)*float64(w.before) { // longer with each refusal: it is no window
			w.doubts = 2
			return false
		}
		if w.few() {
			low, high = w.high, min(high, low+low/100)
		}
		if w.before == 0 {
			w.before = max(low, w.high)
		}
		w.low, w.high, w.margin, w.longer = low, high, 0, 0
	case low > w.high, low <= w.low: // nothing new
	case low < w.low+bracket/20: // it was refused once more when the length was assumed to be shortest
		w.low += bracket / narrowed
	default:
		w.low = low
	}
	w.preferUsual(v)
	w.from = v.now
	return true
}

// otherUnit counts the window in another unit, if in that one its length explains a block, and reports
// whether it does. A block that ends somewhere in a long time would show little.
func (w *window) otherUnit(v *view, b *block) bool {
	if b.release-b.freedFrom() > time.Duration(settledLength*float64(w.high)) {
		return false
	}
	for _, u := range [...]unit{cost, busy} {
		if w.size[u] <= 0 || w.off[u] > w.off[w.unit]+doubtedUnit {
			continue
		}
		if began := w.oldest(v, b, u, 1); b.freedFrom()-began <= w.high && b.release-began >= w.low {
			w.unit = u
			return true
		}
	}
	return false
}

// preferUsual settles a length that is known roughly if it may be a usual one.
func (w *window) preferUsual(v *view) {
	if w.unit != attempts || w.settled() || w.high-w.low > w.high/6 {
		return
	}
	for _, u := range v.likely.lengths() {
		if w.low < u && u < w.high {
			w.low, w.high = max(w.low, u-u/50), min(w.high, u+u/50)
			return
		}
	}
}

// bracket returns the bounds that a block implies for the length, and whether they agree
// with earlier ones. If the unit is unknown, another may agree.
func (w *window) bracket(v *view, b *block) (low, high time.Duration, agrees bool) {
	slack := w.high/20 + time.Second
	try := func(u unit, part float64) bool {
		began := w.oldest(v, b, u, part)
		low, high = b.freedFrom()-began, b.release-began
		if high < w.low-slack || low > w.high+slack {
			return false
		}
		if after := w.oldest(v, b, u, part*sizeError); float64(after-began) > settledLength*float64(w.high) {
			low = b.freedFrom() - after // nothing was sent for long before, so one attempt more or less decides
		}
		return true
	}
	for _, u := range [...]unit{w.unit, attempts, cost, busy} {
		if u != w.unit && (w.hits >= sureHits || w.size[u] <= 0) {
			continue
		}
		for _, part := range [...]float64{1, 0.96, 0.9, 0.99} { // the size is not known exactly, and one that was counted may have been refused
			if try(u, part) {
				w.unit = u
				return low, high, true
			}
		}
	}
	try(w.unit, 0.9)
	return low, high, false
}

// shorter assumes a shorter length for a lone window, because a canary was admitted early.
func (w *window) shorter(v *view, b *block, low, high time.Duration) {
	w.low, w.high, w.floor, w.from = min(low, high), high, low/3, v.now
	for u := range w.size {
		w.size[u] = v.h.used(unit(u), b.began, high)
	}
}

func (w *window) interval(v *view) float64 {
	return float64(w.length(v.now)) / max(1, w.size[w.unit]) * max(1e-9, v.mean[w.unit])
}

func (w *window) room(v *view) float64 {
	return (w.usable() - w.used(v, w.unit, v.now, w.length(v.now))) / max(1e-9, v.mean[w.unit])
}
