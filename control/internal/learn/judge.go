package learn

import (
	"math"
	"slices"
	"time"
)

// released ends the block, since the canary that was sent at an instant was admitted.
func (l *Law) released(sent time.Duration) {
	l.block.release = sent
	if l.block.doubted {
		l.named.unit = millisPerSecond
	}
	if l.block.exact {
		l.named.short = 0
	}
	if l.knowsNothing() {
		l.transition(fresh)
	} else {
		l.transition(admitted)
	}
	l.ended(l.look())
}

// knowsNothing reports whether no attempt was admitted that was sent before the refused one or with it, so that
// the block shows nothing of the provider's limits, and none is known.
func (l *Law) knowsNothing() bool {
	b := &l.block
	return len(l.limits) == 0 && !b.explained && l.h.until(attempts, b.began+sameBurst) < 0.5
}

// ended learns from a block that has ended.
func (l *Law) ended(v *view) {
	b := &l.block
	l.count(v.now)
	if b.exact {
		l.outlasted(b.release)
	}
	explained := false // by a window that is held
	switch {
	case b.outage, l.state == ramping: // it shows nothing of limits
		l.void(v.now)
	case b.explained:
		l.penalty.endedExplained(b)
		l.void(v.now)
	case l.holdClockWindow(v): // the last blocks together show a window
		explained = true
	default:
		byRate := b.overloaded && hasLearned(b.blamed) && b.refusals == 1 && !b.long() && !b.exact
		l.judge(v)
		l.rateEnded(v)
		l.seekStrays(v, byRate)
		explained = isKnown(b.blamed)
	}
	if b.long() && !b.outage {
		l.freed = b.release
		if !explained {
			l.since = b.release
		}
	}
}

// count notes how long the block was, and of what kind.
func (l *Law) count(now time.Duration) {
	b := &l.block
	took := b.release - b.noticed
	switch atOnce := b.refusals == 1 && !b.long(); {
	case !b.outage:
	case atOnce, b.began-l.lastRelease <= soonAgain*max(l.lastBlock, took):
		l.unlikely++
	default:
		l.unlikely = 0
	}
	l.beyond = 0
	if b.explained {
		l.beyond = max(0, took-2*b.expected-longBlock)
		if l.sought /= 2; b.refusals > 2 {
			l.sought = max(l.sought, b.wait/2)
		}
	}
	l.lastRelease, l.lastBlock = now, took
	if b.refusals > 1 {
		l.brief = 0
	} else {
		l.brief++
	}
	if b.long() {
		l.longs++
		l.meanLong += (l.lastBlock - l.meanLong) / 2
		if b.refusals > 1 || l.silence == 0 {
			l.silence = b.release - b.lastRefused
		}
	}
}

// void drops the cycle of the rate, since something else blocked.
func (l *Law) void(now time.Duration) {
	if r := l.rate(); r != nil {
		r.void(now)
	}
}

// judge decides what the block says about the limit that was blamed, or which limit to hold.
func (l *Law) judge(v *view) {
	b := &l.block
	switch held := b.blamed.(type) {
	case *window:
		l.judgeWindow(v, held)
	case *flight:
		switch {
		case l.outlastsFlight(b) && (b.refusals > 1 || held.brief): // else a penalty may follow each of its refusals
			b.acquit()
			l.judgeOther(v)
		case held.wrong():
			l.dropFlight(v, held)
		}
	default: // a rate, or no limit
		l.judgeOther(v)
	}
}

// judgeOther decides what a block says that neither a window nor a limit in flight explains.
func (l *Law) judgeOther(v *view) {
	b := &l.block
	if l.suggestsFlight(b) {
		l.holdFlight(b)
		return
	}
	punished := b.long() && l.penalty.on()
	if punished || !b.long() {
		l.penalty.ended(l.lastBlock, b.release-b.lastRefused, b.tooShort, b.refusals)
	}
	switch {
	case !b.long():
		l.holdRate(v, b)
	case punished, b.hadRoom, l.refuted > 0:
		l.penalize(v, 0)
	default:
		l.holdWindow(v, b)
	}
}

// judgeWindow decides what the block says about the window that was blamed.
func (l *Law) judgeWindow(v *view, w *window) {
	b, r := &l.block, l.rate()
	lone := w.lone
	switch {
	case (w.lone || !w.settled()) && l.suggestsFlight(b) && !l.endedWith(v, w, b):
		l.holdFlight(b)
	case w.lone && b.refusals == 1 && !b.exact && r != nil && r.cycles > 2: // the rate explains it
		if v.h.used(w.unit, b.release, w.low) > w.size[w.unit] { // there was room while it was full
			l.drop(w)
		}
	case w.ended(v, b):
		if w.released = b.release; lone && !w.lone {
			l.since = w.since
		}
	case w.counted:
		l.drop(w)
		l.holdRate(v, b)
	case !w.lone && w.settled() && b.exact && b.release-b.noticed > w.high: // all of it is back: a penalty follows
		w.doubts, w.margin = 0, min(maxMargin, w.margin+punishedMargin)
		l.penalty.follows(b)
	case w.doubts >= 2 || w.lone:
		l.drop(w)
		l.refuted++
		l.penalize(v, wasWindow*w.size[attempts]/w.high.Seconds())
	}
}

// rateEnded takes the cycle into the rate, or drops it.
func (l *Law) rateEnded(v *view) {
	b, r := &l.block, l.rate()
	if r == nil {
		return
	}
	another := isFlight(b.blamed) || isKnown(b.blamed) // its refusal says nothing about the rate
	above := r.since > r.stretch                       // attempts were admitted faster than the bracket allows
	if another && above || b.long() && !l.penalty.on() {
		r.void(v.now)
		return
	}
	keep, pace := max(l.penalty.keep(), r.agreed()), min(b.pace, r.sure(b.began))
	if r.since < tooEarly*r.stretch && (r.price > fullPrice || r.climbed < hardlyAny && r.earlyInRow > 1) {
		keep = penaltyLow
		if r.climbed < 2*carrier {
			keep = penaltyEarly
		}
	}
	top := max(pace, r.top)
	punished := l.penalty.on() && b.blamed == limit(r)
	mean := 0.0
	if punished {
		mean = l.penalty.earn(r, b.release)
	}
	r.ended(v, b.release)
	if r.alike() { // all refusals came at this pace, whatever the mean of the climbs to it was
		pace = top
	}
	if punished {
		low := max(pace*keep, mean)
		r.punish(v.now, low, max(low, top), l.meanLong)
	}
}

// blameCounted blames a refusal on a window that the provider counts in periods, if that
// explains it and the last block, or as many blocks as it takes to rule out chance. If the
// window would have been full anyway, it has to explain two at least.
func (l *Law) blameCounted(v *view, f refusal) {
	for _, x := range l.limits {
		w, ok := x.(*window)
		if !ok || w.counted || w.unit != attempts {
			continue
		}
		low, high := w.low/2, 2*w.high
		if w.sure() {
			low, high = w.low-w.low/10, w.high+w.high/10
		}
		blocks := 1
		if w.fullness(v, f) > fullExplains {
			blocks = 2
		}
		for ; blocks <= maxCounted && !w.counted; blocks++ {
			if length, size, ok := l.spans.counted(v, blocks, l.began, f.sent, low, high); ok {
				w.low, w.high, w.lone, w.counted, w.clock = length, length, false, true, 0
				w.size, w.testAfter = amounts{size, 0, 0}, testGrowth
				l.block.blamed = w
			}
		}
	}
}

// holdClockWindow looks for a window that begins with the clock and explains the last blocks, and holds
// it instead of the limit that was blamed.
func (l *Law) holdClockWindow(v *view) bool {
	b := &l.block
	l.spans.add(b, l.lost())
	if isFlight(b.blamed) {
		return false
	}
	p, ok := l.spans.clockWindow(v)
	if !ok {
		return false
	}
	if w, ok := b.blamed.(*window); ok {
		if w.unit == attempts && w.settled() && math.Abs(float64(w.high-p.length)) < 0.03*float64(p.length) && math.Abs(w.size[attempts]-p.size) <= max(1, 0.03*p.size) {
			if !p.slides && w.clock == 0 && w.sure() {
				w.clock, w.low, w.high, w.size = p.length, p.length, p.length, amounts{p.size, 0, 0}
				return true
			}
			return false // already known
		}
		if _, _, agrees := w.bracket(v, b); agrees && w.sure() {
			return false // it explains this block too
		}
		l.drop(w)
	}
	l.remove(func(x limit) bool {
		w, ok := x.(*window)
		return isRate(x) || ok && w.lone
	})
	l.penalty = penalty{}
	w := newWindow(v.now, amounts{p.size, 0, 0}, p.length, p.length, p.length, p.length, b.pace)
	w.lone, w.fixed, w.hits = false, true, foundHits
	w.since, w.released = l.since, b.release
	if !p.slides {
		w.clock = p.length
	}
	l.hold(w)
	return true
}

// suggestsFlight reports whether the refusals are evidence enough for a limit on attempts in flight.
func (l *Law) suggestsFlight(b *block) bool {
	others := l.out.others(b.began)
	if others < 1 || l.outlastsFlight(b) && (b.paced || slices.ContainsFunc(l.limits, isKnown)) {
		return false
	}
	if b.doubtsFlight(others) && (l.misled || b.refusals > 1 && l.out.hasFewer(b.lastRefused, others)) {
		return false
	}
	certain := l.crowd.certain() && (b.refusals == 1 || !b.long()) // it does not refuse a canary for long
	if x := l.flight(); x != nil {
		return certain && others < x.size // it was lowered
	}
	return l.weighed > 1 && (certain || l.crowd.evidence > heldEvidence)
}

// holdFlight holds a limit on attempts in flight, and drops the limits that were blamed
// before.
func (l *Law) holdFlight(b *block) {
	size := l.out.others(b.began)
	x := &flight{size: size, proven: size, testAfter: firstTest, was: l.rate(), brief: !b.long()}
	if x.doubtful = b.doubtsFlight(size); x.doubtful {
		x.testAfter = min(firstTest, max(doubtfulTest, doubtfulSizes*size))
	}
	l.remove(isRate)
	l.remove(isFlight)
	l.remove(func(x limit) bool { w, ok := x.(*window); return ok && w.hits < sureHits })
	l.hold(x)
	l.crowd.evidence = 0
	if b.long() {
		l.penalty.length = b.release - b.noticed
	}
}

// dropFlight drops a limit on attempts in flight, and holds again what was held before; if it was doubtful,
// a rate from the mean of the newest attempts to their pace.
func (l *Law) dropFlight(v *view, x *flight) {
	l.drop(x)
	l.crowd.evidence = 0
	if x.doubtful {
		l.misled = true
		if l.rate() == nil {
			low := v.h.mean(l.block.began, doubtfulMean*x.size)
			l.hold(newRate(v.now, low, max(low, l.block.pace)))
		}
		return
	}
	if x.was == nil || l.rate() != nil {
		l.holdRate(v, &l.block)
		return
	}
	l.hold(x.was)
	x.was.void(v.now)
	x.was.plan(v.now)
}

// holdRate holds a rate, which a short block indicates.
func (l *Law) holdRate(v *view, b *block) {
	if l.rate() != nil {
		return
	}
	if b.ramping && l.ramp.was > 0 && v.h.until(attempts, b.began)-v.h.until(attempts, l.ramp.grew) < 1.5 && l.out.others(b.began) < 1 {
		r := newRate(v.now, 1e9/l.ramp.was, 1e9/l.ramp.every) // the last step was too large
		r.guessed = true
		l.hold(r)
		return
	}
	bracket := pacedBracket
	if b.ramping {
		bracket = firstBracket
	}
	l.hold(newRate(v.now, b.pace/bracket, b.pace))
}

// holdWindow holds a window for a block that is too long for a rate.
func (l *Law) holdWindow(v *view, b *block) {
	var size amounts
	for u := range size {
		size[u] = v.h.between(unit(u), b.from, b.began)
	}
	if size[attempts] < 1 {
		l.penalize(v, 0)
		return
	}
	high, from := b.release-b.from, v.now
	silence := b.release - b.lastRefused
	oldest := v.h.newest(attempts, b.began, max(1, size[attempts]-l.lost()+1)) // refused attempts may count, and keep out others
	low := max(b.lastRefused-max(b.from, oldest), time.Second)
	if b.exact && !b.doubted {
		low = max(low, high-waitError(high))
		from += min(high/2, maxFold)
		silence = b.release - b.noticed // all of it was advertised
	}
	l.remove(func(x limit) bool { // the same limit again
		w, ok := x.(*window)
		return ok && w.lone && w.low < high && w.high > low
	})
	w := newWindow(from, size, min(b.noticed-b.from, low)/3, low, high, silence, b.pace)
	w.since, w.released = l.since, b.release
	l.configured(v, b, w)
	l.hold(w)
}

// configured takes a new window for one that the owner configured a limit for, if the block
// ended when such a window does, or may have.
func (l *Law) configured(v *view, b *block, w *window) {
	for _, length := range l.likely.configured() {
		ends := b.windowEnds(length, b.from, l.phase)
		switch ended := func(end time.Duration) bool { return end > b.lastRefused && end <= b.release }; {
		case ended(ends.released):
		case ended(ends.clock):
			for u := range w.size {
				w.size[u] = v.h.between(unit(u), max(b.from, ends.clock-length), b.began)
			}
		default:
			continue
		}
		w.low, w.high, w.from = min(max(w.low, length-length/50), length), length, v.now+min(length, maxFold)
		return
	}
}

// penalize takes the block for a penalty on a rate of at least that many attempts a second.
func (l *Law) penalize(v *view, atLeast float64) {
	b := &l.block
	if !l.penalty.on() {
		l.penalty.begin(b)
	}
	open := (b.began - l.freed).Seconds()
	n := v.h.between(attempts, l.freed, b.began)
	pace := b.pace
	if n >= 5 {
		pace = min(pace, n/open)
	}
	pace = max(pace, atLeast)
	r := l.rate()
	if r == nil {
		r = newRate(v.now, pace, pace)
		l.hold(r)
	}
	if b.blamed == nil {
		high := pace
		if b.ramping {
			high = max(pace, b.pace) // it grew all the time, so the mean is no evidence
		}
		r.punish(v.now, pace*l.penalty.keep(), high, l.meanLong)
	}
}

// windowToRate replaces a window that only one block supported, and that was exceeded since
// without a refusal, by a rate: the block had another cause.
func (l *Law) windowToRate(v *view, w *window) {
	l.drop(w)
	l.refuted++
	if l.rate() == nil {
		now := w.size[attempts] / w.length(v.now).Seconds()
		r := newRate(v.now, now, max(min(w.pace, 1.2*w.size[attempts]/(3*w.floor).Seconds()), 1.5*now))
		r.costs(l.silence)
		r.plan(v.now)
		l.hold(r)
	}
}

func (l *Law) rate() *rate     { return first[*rate](l) }
func (l *Law) flight() *flight { return first[*flight](l) }

// first returns the first limit of a kind, or nil.
func first[T limit](l *Law) (found T) {
	for _, x := range l.limits {
		if t, ok := x.(T); ok {
			return t
		}
	}
	return found
}

func isFlight(x limit) bool { _, ok := x.(*flight); return ok }
func isRate(x limit) bool   { _, ok := x.(*rate); return ok }

// hasLearned reports whether a limit is a rate that has learned from a cycle at least.
func hasLearned(x limit) bool { r, ok := x.(*rate); return ok && r.cycles > 0 }

// remove drops the limits for which is returns true. After that the block is blamed on no limit.
func (l *Law) remove(is func(limit) bool) {
	l.limits = slices.DeleteFunc(l.limits, is)
	l.block.blamed = nil
}

// hold adds a limit, and drops the oldest window if there are too many.
func (l *Law) hold(x limit) {
	if len(l.limits) == maxLimits {
		if w := first[*window](l); w != nil {
			l.drop(w)
		}
	}
	l.limits = append(l.limits, x)
}

func (l *Law) drop(x limit) {
	l.remove(func(y limit) bool { return y == x })
}
