package learn

import (
	"math"
	"time"
)

// plan sets the instant of the next canary. docs/law.md gives the reasons, and the functions
// below stand in the order in which it does.
func (l *Law) plan(f refusal) {
	b := &l.block
	b.aimed = false
	p := l.canaryPlan()
	if b.refusals == 1 {
		b.least = p.roundTrip()
		if b.explained {
			b.expected = l.advertised(l.clock, 1) - l.clock
		}
	}
	asked := f.wait + p.trip
	wait := asked
	if b.exact = b.newly(f.wait) && !f.cut && !l.tooShort(); !b.exact {
		wait = p.awaits(min(p.next(), l.latest()))
	}
	if f.wait > 0 {
		b.lastWait = f.wait
	}
	if l.unsure(f) {
		wait = min(wait, max(maxUnsure, (l.clock-b.noticed)/2))
	}
	far := maxSilence // what the delay that separates clients may depend on
	if l.starved(f) {
		wait, far = b.starvedWait(wait), starvedApart // several leave a long silence if they go together
	} else {
		wait = l.refill(wait)
	}
	wait = max(wait, asked)
	if b.refusals > 1 && !b.outage {
		wait += b.apart(l.clock, min(wait, far))
	}
	b.wait = max(min(wait, maxSilence), asked)
	b.resume = l.clock + b.wait
}

// canaryPlan is what decides when the next canary of a block goes.
type canaryPlan struct {
	*block                // its wait is the one before the last canary
	now     time.Duration // when the newest refusal arrived
	trip    time.Duration // of a refusal; before the first canary the time until some of the others in flight return, if that is longer
	room    time.Duration // when the blamed limit predicts room; now if it predicts nothing
	known   bool          // the blamed limit is a window that more than one block supports
	from    time.Duration // when a window may have begun: at the last release of a long block
	phase   time.Duration // the wall clock at instant 0
	penalty time.Duration // the least wait because of a penalty
	likely  *candidates
	lost    float64 // attempts refused in this block, with those that were in flight
}

func (l *Law) canaryPlan() canaryPlan {
	p := canaryPlan{
		block: &l.block, now: l.clock, trip: time.Duration(l.trip), from: l.block.from, phase: l.phase, penalty: l.penaltyWait(), likely: l.likely,
		lost: l.lost(),
	}
	p.room, p.known = l.predicted(&p) // by the round trip of a refusal
	if p.refusals == 1 && l.flying > 1 {
		p.trip = max(p.trip, time.Duration(l.latency*min(1, someReturned/float64(l.flying))))
	}
	return p
}

// roundTrip returns how long a round trip takes at most.
func (p *canaryPlan) roundTrip() time.Duration { return p.trip * 12 / 10 }

// newly reports whether a refusal advertises a new wait, and not just the rest of the one
// before. A new wait may be right even if the former was wrong.
func (b *block) newly(wait time.Duration) bool {
	return wait > 0 && (b.refusals <= 2 || wait > 2*b.lastWait || wait < b.lastWait/2)
}

// tooShort reports whether advertised waits are too short to send a canary at their end: the last ones that
// went then were refused, and under a penalty, or if one is suspected, the next one may lengthen it.
func (l *Law) tooShort() bool {
	return l.named.short >= shortWaits && (l.penalty.on() || l.refuted > 0) && l.block.wait <= penaltyLongest
}

// predicted returns when the blamed limit predicts room, or now, and whether that limit is a
// window that more than one block supports.
func (l *Law) predicted(p *canaryPlan) (room time.Duration, known bool) {
	room = p.now
	if p.blamed == nil {
		return room, false
	}
	v := l.look()
	if at := p.blamed.free(v, 1); at != never {
		room = max(room, at)
	}
	w, ok := p.blamed.(*window)
	switch {
	case !ok:
		return room, false
	case p.tested: // the size that was tested does not fit
		before := p.window
		before.raise = 1
		room = max(room, before.free(v, 1))
	case w.lone && p.refusals == 1 && p.paced: // a rate explains the refusal too: the canary finds out
		room = p.now
	case w.lone && p.refusals == 1: // half of the wait: it may be shorter
		at := w.filled(v, p.lastRefused, 1) + w.low
		room = max(room, p.now+(at-p.now)/2)
	case w.counted: // the refused attempt may count, and part of a unit be missing
		room = max(room, p.now+time.Duration(countedWait*w.interval(v)))
	case !w.lone && !w.settled():
		room = p.within(w.between(v, p.block))
	}
	return room, !w.lone
}

// next returns the wait before a canary if none was advertised.
func (p *canaryPlan) next() time.Duration {
	switch {
	case p.outage:
		return p.inOutage()
	case p.refusals == 1:
		return p.afterRefusal()
	}
	return p.afterCanary()
}

// afterRefusal returns the wait before the first canary.
func (p *canaryPlan) afterRefusal() time.Duration {
	least := max(p.roundTrip(), p.penalty)
	if !p.explained { // else it is known when there is room
		least = max(least, p.soonest)
	}
	return max(least, p.room-p.now)
}

// afterCanary returns the wait before a canary after one that was refused: longer than the last
// one, or until an instant near that at which there may be room.
func (p *canaryPlan) afterCanary() time.Duration {
	low := max(firstCanary, p.penalty, p.longer())
	most := 2 * low
	if low == penaltyLongest { // enough for any penalty
		most = low + low/5
	}
	sooner := low * 3 / 5
	if low > farAway {
		sooner = max(sooner, min(p.wait*11/10, low))
	}
	best := most
	try := func(at time.Duration) {
		if w := at - p.now; w >= max(sooner, p.penalty) && w < best {
			best, p.aimed = w, false
		}
	}
	if !p.hadRoom {
		lengths := p.likely.lengths()
		if w := p.commonEnd(low); w < best { // rather than when another one ends
			best, p.aimed, lengths = w, true, p.likely.configured()
		}
		for _, u := range lengths {
			try(p.passed(u))
			if !p.first { // the first attempt begins most windows
				ends := p.windowEnds(u, p.from, p.phase)
				try(ends.clock + late(u, p.trip))
				try(ends.refused + late(u, p.trip))
			}
		}
	}
	try(p.room)
	if best == most {
		best = low
	}
	return min(best, maxSilence)
}

// late returns how long after the end of a window a canary goes: few attempts go at the start
// of a window.
func late(length, trip time.Duration) time.Duration { return trip + length/500 }

// commonEnd returns the wait until the next window of a common length ends that began with the first
// attempt, if no block was long yet and that is not too soon after a wait of low; else never.
func (p *canaryPlan) commonEnd(low time.Duration) time.Duration {
	if !p.first || p.count < minAimed {
		return never
	}
	for _, u := range common {
		if w := p.passed(u) - p.now; w >= max(firstCanary, p.penalty, low/aimedSooner) {
			return w
		}
	}
	return never
}

// passed returns when a canary goes for the end of a window that began at the last release.
func (p *canaryPlan) passed(length time.Duration) time.Duration {
	return p.from + length + late(length, p.trip) + p.countedLate(length)
}

// countedLate returns how much later than the end of a window a canary goes, since the window may
// be counted in periods: attempts of the period before leave it evenly, and refused ones count.
func (p *canaryPlan) countedLate(length time.Duration) time.Duration {
	return time.Duration(float64(length) * min(maxCountedLate, (p.lost+refusedMore)/(p.count+1)))
}

// awaits returns the wait before the next canary once the first one was refused, which rules
// out most limits that have room again soon: until a window ends that the owner configured a
// limit for, if that is not much longer than the wait otherwise.
func (p *canaryPlan) awaits(wait time.Duration) time.Duration {
	if p.refusals == 1 || p.hadRoom || p.outage || p.explained || p.known {
		return wait
	}
	best, most := never, time.Duration(configuredWait*float64(wait))
	for _, u := range p.likely.configured() {
		for _, end := range p.windowEnds(u, p.from, p.phase).all() {
			if w := end + late(u, p.trip) - p.now; w >= firstCanary && w <= min(best, most) {
				best = w
			}
		}
	}
	if best == never {
		return wait
	}
	return best
}

// latest returns how long it takes at most, after a refused canary, until the blamed window has
// room, if the window is lone and this block is the second that speaks for it; else never. In later
// blocks the canary goes within the bracket of its length.
func (l *Law) latest() time.Duration {
	b := &l.block
	w, ok := b.blamed.(*window)
	if !ok || !w.lone || w.hits < 1 || b.refusals < 2 {
		return never
	}
	v := l.look()
	from := w.filled(v, b.began, 1)
	if b.from > from && b.from <= w.filled(v, b.began, 1-1.0/latestSlack) {
		from = b.from // all of them went since the last release, but for the rounding of the history
	}
	at := from + w.high + w.high/latestSlack + time.Duration(l.trip)
	if w.unit == attempts && b.count >= minAimed {
		for _, u := range l.likely.lengths() {
			if end := from + u + late(u, time.Duration(l.trip)); u > w.low && u < w.high && end >= l.clock+firstCanary {
				at = min(at, end)
				break
			}
		}
	}
	if at < l.clock+firstCanary { // it lasts longer
		return never
	}
	return at - l.clock
}

// within returns the instant of the canary for a block that ends between two instants: one at
// which a configured window ends, or else a usual one, the longest first, or else the middle,
// which halves the range.
func (p *canaryPlan) within(low, high time.Duration) time.Duration {
	low = max(low, p.now)
	if high <= low {
		return p.now
	}
	found := low + (high-low)/2
	for i, u := range p.likely.lengths() {
		for _, at := range [...]time.Duration{p.from + u, p.began + u, begins(p.now, u, p.phase) + u} {
			if at += late(u, p.trip); at > low && at < high {
				if found = at; i < len(p.likely.configured()) {
					return found
				}
				break
			}
		}
	}
	return found
}

// longer returns the next wait by the last one alone. It grows faster where few attempts went
// before the block: a ban is likelier then than so long a window, and each canary may lengthen it.
func (p *canaryPlan) longer() time.Duration {
	if p.wait >= penaltyLongest && !p.hadRoom { // no penalty is that long
		return max(farAway, p.rarely())
	}
	growth := canaryHurry
	if p.wait > hurryUntil/3 && !p.hadRoom && p.count > slowWindow*(p.now-p.began).Seconds() {
		growth = canaryGrowth
	}
	wait := min(time.Duration(growth*float64(p.wait)), penaltyLongest)
	if p.explained && p.hadRoom { // there is room, but not for us
		wait = max(wait, suspectedPenalty)
	}
	return wait
}

// rarely returns the wait in a block that no canary lengthens, by the age of the block. If many
// attempts went before it, a canary costs little in comparison.
func (p *canaryPlan) rarely() time.Duration {
	age := float64(p.now - p.began)
	return time.Duration(age * min(0.5, math.Sqrt(canaryFew/max(1, p.count))))
}

// inOutage returns the wait while the provider is in trouble.
func (p *canaryPlan) inOutage() time.Duration {
	return min(max(2*p.wait, outageFirst), max(outageLongest, (p.now-p.noticed)/4))
}

// unsure reports whether a block that no limit was named for may be an outage: long blocks
// have not shown yet how the provider refuses, and no window was refuted, which suggests a penalty.
func (l *Law) unsure(f refusal) bool {
	return !f.limited && f.wait == 0 && l.refuted == 0 && !l.penalty.on() && l.longs < usualStyle && l.block.began-l.began > maxUnsure
}

// refill changes the wait after a canary was refused although the advertised limit that explains
// the block should have had room.
func (l *Law) refill(wait time.Duration) time.Duration {
	b := &l.block
	if !b.explained || b.refusals == 1 {
		return wait
	}
	wait = max(wait, l.allBack()-l.clock) // less is left than expected: refusals may count
	if !b.hadRoom {                       // others came first
		wait = min(max(wait, l.sought), max(b.contended(l.sought), 2*(l.advertised(l.clock, 1)-l.clock)))
	}
	return wait
}

// starved reports whether a limit refuses a client that was refused more often than admitted, in
// all: others used it up, or a ban began before. A block of which no advertised limit is the
// cause is likelier to end with a window while it is shorter than a minute or a configured length.
func (l *Law) starved(f refusal) bool {
	b := &l.block
	if age := l.clock - b.noticed; !b.explained {
		for _, length := range append(l.likely.configured(), time.Minute) {
			if age < length {
				return false
			}
		}
	}
	return l.allAdmitted < float64(l.allRefused) && !b.outage && (f.limited || f.wait > 0 || b.explained) // else it may be an outage
}

// starvedWait returns the wait of such a client. What it sent is no clue, and each of its canaries may
// lengthen the ban, also for others: no ban is longer than penaltyLongest, but several clients may
// never leave so long a silence. An advertised limit that explains the block has room again sooner.
func (b *block) starvedWait(wait time.Duration) time.Duration {
	if b.refusals == 1 {
		return max(wait, firstCanary)
	}
	most := starvedLongest
	if b.explained {
		most = max(penaltyLongest, min(2*b.wait, starvedLongest))
	}
	return max(wait, min(starvedGrowth*b.wait, most))
}

// contended returns the longest wait after a canary that found an advertised limit used up
// by others, from a least one on. It doubles after every second refusal: each is due to chance, and
// asking rarely finds room as likely as asking often.
func (b *block) contended(least time.Duration) time.Duration {
	least = max(minContended, least)
	return min(least<<min(b.refusals/2-1, 8), max(maxContended, least))
}

// apart returns a delay after a refused canary, to separate clients that were refused
// together and do not know of each other. It is effectively random.
func (b *block) apart(now, wait time.Duration) time.Duration {
	x := uint64(now) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	most := float64(wait) * canaryApart
	if b.aimed {
		most = min(most, float64(aimedApart))
	}
	return time.Duration(most * float64(x&0xffff) / 0x10000)
}
