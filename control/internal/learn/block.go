package learn

import (
	"math"
	"slices"
	"time"
)

// block is the time from a refusal to the release. Only canaries are sent.
type block struct {
	began       time.Duration // when the refused attempt was sent
	noticed     time.Duration // when the refusal arrived
	lastRefused time.Duration // when the newest refused canary was sent
	release     time.Duration // when the admitted canary was sent
	resume      time.Duration // when the next canary is sent
	wait        time.Duration // the last wait
	tooShort    time.Duration // the longest wait that was not enough, halved for each canary refused before: each may double a penalty
	soonest     time.Duration // the shortest useful wait
	least       time.Duration // the first wait by the round trip alone
	canaryAt    time.Duration // when the newest canary was sent
	refusals    int
	blamed      int           // index of the limit; -1 for none
	outage      bool          // it may be an outage
	explained   bool          // by an advertised limit
	punished    bool          // refused although the provider reported room
	expected    time.Duration // expected duration by the advertised limit that explains it
	lastWait    time.Duration // the last advertised wait
	exact       bool          // the next canary goes, or the last one went, at an advertised instant
	doubted     bool          // a canary tests an advertised wait before its end
	cost        float64       // of the refused attempt
	count       float64       // attempts sent since the last release of a long block
	before      float64       // all refusals until then
	pace        float64       // attempts a second before it
	ramping     bool          // no limit was held
	first       bool          // no block before it was long
	aimed       bool          // the next canary goes a minute after the first attempt
	paced       bool          // a rate has learned from more than two cycles, so it may explain this one
}

// long reports whether the block is too long for a rate.
func (b *block) long() bool {
	took := b.release - b.noticed
	if b.paced && b.refusals > 1 {
		took = b.lastRefused - b.noticed // the canary may have been refused by chance
	}
	return took > longBlock+b.least && took.Seconds() > longIntervals/b.pace
}

// soonest returns the minimum wait before the first canary of a block. It is shorter if
// blocks of the blamed limit ended at the first canary.
func (l *Law) soonest() time.Duration {
	i := l.block.blamed
	if i < 0 || isWindow(l.limits[i]) {
		return firstCanary
	}
	if r, ok := l.limits[i].(*rate); ok && !r.alike() {
		return firstCanary // units of a burst return meanwhile
	}
	return max(firstCanary>>min(l.brief, maxBrief), seconds(2/l.block.pace))
}

// passes returns when the canary counts as admitted though it is not answered yet, since its refusal
// would have been: never unless a limit on attempts in flight is blamed.
func (l *Law) passes() time.Duration {
	if i := l.block.blamed; i < 0 || !isFlight(l.limits[i]) || l.penalty.on() {
		return never
	}
	return l.block.canaryAt + time.Duration(refusedWithin*l.trip)
}

// freedFrom returns the earliest time at which there may have been room again.
func (b *block) freedFrom() time.Duration {
	if b.exact {
		return max(b.lastRefused, b.release-(b.release-b.began)/50-time.Second)
	}
	return b.lastRefused
}

// usual are common lengths of windows.
var usual = [...]time.Duration{
	10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	15 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// candidates are lengths that windows may well have.
type candidates struct {
	all   []time.Duration
	first int // how many of them the owner configured, or the provider publishes
}

// expect adds lengths of windows that the owner configured or the provider publishes.
func (l *Law) expect(lengths ...time.Duration) {
	first := slices.Clone(l.likely.configured())
	for _, u := range lengths {
		if u > 0 && !slices.Contains(first, u) {
			first = append(first, u)
		}
	}
	if len(first) > 0 {
		l.likely = &candidates{append(first, usual[:]...), len(first)}
	}
}

// configured returns the lengths that the owner configured or the provider publishes.
func (c *candidates) configured() []time.Duration {
	if c == nil {
		return nil
	}
	return c.all[:c.first:c.first]
}

// has reports whether a length is configured.
func (c *candidates) has(length time.Duration) bool {
	return slices.Contains(c.configured(), length)
}

// lengths returns all lengths, the configured ones first.
func (c *candidates) lengths() []time.Duration {
	if c == nil {
		return usual[:]
	}
	return c.all
}

// newly reports whether a refusal advertises a new wait, and not just the rest of the one
// before. A new wait may be right even if the former was wrong.
func (b *block) newly(wait time.Duration) bool {
	return wait > 0 && (b.refusals <= 2 || wait > 2*b.lastWait || wait < b.lastWait/2)
}

// waits records whether advertised waits are right. Some providers send milliseconds
// instead of seconds.
type waits struct {
	unit float64 // divisor of waits; 0 if unknown
	sane int     // blocks with a plausible wait
	// lengthened says that attempts of a burst were refused with longer and longer waits, the
	// newest of which is longer than any penalty and ends at no usual instant.
	lengthened bool
	odd        bool          // the newest wait ends at no usual instant
	shortest   time.Duration // in the refusals of this burst
}

// heard records the wait in the first refusal of a block. After some plausible waits a long
// one is trusted too: calls may lengthen a ban, and so would a canary.
func (w *waits) heard(wait time.Duration) {
	if wait >= time.Second && !w.doubts(wait) {
		w.sane++
	}
	if w.sane >= saneWaits && w.unit == 0 {
		w.unit = 1
	}
}

// believed returns how much of a wait to observe. For the first doubtful wait that is what
// it would be in the other unit, or the length of a long penalty if it may have been cut or
// a burst has lengthened it; then a canary finds out.
func (w *waits) believed(wait time.Duration) time.Duration {
	switch {
	case w.lengthened, w.doubts(wait) && wait >= unbelievable:
		return penaltyLongest
	case w.doubts(wait):
		return max(firstCanary, wait/millisPerSecond+wait/millisPerSecond/10)
	case w.unit > 0:
		return time.Duration(float64(wait) / w.unit)
	}
	return wait
}

// doubts reports whether a wait may have another unit: it is so long that it may have been
// cut, or too long for a penalty and ends when no usual window does.
func (w *waits) doubts(wait time.Duration) bool {
	return w.unit == 0 && (wait >= unbelievable || w.odd && wait > penaltyLongest)
}

// ends reports whether a wait from now is one that providers mean: a whole number of
// minutes, a round number of seconds such as 5000, or until a usual window ends that began with the clock,
// with the first attempt or at the last release.
func (l *Law) ends(now, wait time.Duration) bool {
	near := func(d, length time.Duration) bool { return (d - length).Abs() <= usualEnd }
	for _, round := range [...]time.Duration{time.Minute, 10_000 * time.Second, 1000 * time.Second} {
		if (wait+time.Second)%round <= 2*time.Second { // dates have whole seconds
			return true
		}
		if round > time.Minute && wait > round {
			break
		}
	}
	for _, u := range l.likely.lengths() {
		if u < penaltyLongest {
			continue
		}
		end := now + wait
		if since := (end + l.cfg.Phase + usualEnd) % u; since <= 2*usualEnd || near(wait, u) || near(end-l.began, u) || near(end-l.freed, u) {
			return true
		}
	}
	return false
}

// rarely returns the wait before the next canary in a block of that age, if no canary
// lengthens it. If many attempts were sent before, a canary costs little in comparison.
func (b *block) rarely(age time.Duration) time.Duration {
	return time.Duration(float64(age) * min(0.5, math.Sqrt(canaryFew/max(1, b.count))))
}

// next returns the wait before a canary at now. expected is the instant at which the limits
// expect room, from is when a window may have begun, and phase is the wall clock at instant
// 0.
func (b *block) next(now, trip, expected, from, phase, penalty time.Duration, likely *candidates) time.Duration {
	if b.outage {
		return min(max(2*b.wait, outageFirst), max(outageLongest, (now-b.noticed)/4))
	}
	if b.refusals == 1 {
		least := max(b.soonest, trip*12/10, penalty)
		if b.explained { // it is known when there is room
			least = max(trip*12/10, penalty)
		}
		return max(least, expected-now)
	}
	growth := canaryHurry
	if b.wait > hurryUntil/3 && !b.punished && b.count > slowWindow*(now-b.began).Seconds() {
		growth = canaryGrowth
	}
	low := time.Duration(growth * float64(b.wait))
	switch {
	case b.wait >= penaltyLongest && !b.punished:
		low = max(farAway, b.rarely(now-b.began)) // no penalty is that long
	default:
		low = min(low, penaltyLongest)
	}
	if b.explained && b.punished { // there is room, but not for us
		low = max(low, suspectedPenalty)
	}
	low = max(firstCanary, low, penalty)
	later := 2 * low
	if low == penaltyLongest { // enough for any penalty
		later = low + low/5
	}
	best, sooner := later, low*3/5
	if low > farAway {
		sooner = max(low*3/5, min(b.wait*11/10, low))
	}
	try := func(at time.Duration) {
		if w := at - now; w >= sooner && w >= penalty && w < best {
			best = w
		}
	}
	minute := never
	if !b.punished {
		lengths := likely.lengths()
		if b.first && b.count >= minAimed {
			w := from + time.Minute + late(time.Minute, trip) + b.countedLate(time.Minute) - now
			if w >= max(firstCanary, penalty, low/minuteSooner) && w < best {
				best, minute, lengths = w, w, likely.configured() // rather than when a shorter one ends
			}
		}
		for _, u := range lengths {
			for _, end := range b.windowEnds(u, from, phase).all() {
				try(end + late(u, trip))
			}
		}
	}
	try(expected)
	b.aimed = best == minute
	if best == later {
		best = low
	}
	return min(best, maxSilence)
}

// windowEnds is when a window of one length ends that was used up when a block began: one that
// began at the last release, one that begins with the clock, and one that the refused attempt
// began.
type windowEnds struct{ released, clock, refused time.Duration }

func (b *block) windowEnds(length, from, phase time.Duration) windowEnds {
	return windowEnds{from + length, begins(b.began, length, phase) + length, b.began + length}
}

func (e windowEnds) all() [3]time.Duration {
	return [...]time.Duration{e.released, e.refused, e.clock}
}

// countedLate returns how much later than the end of a window a canary goes, since the window may
// be counted in periods: attempts of the period before leave it evenly, and refused ones count.
func (b *block) countedLate(length time.Duration) time.Duration {
	return time.Duration(float64(length) * min(maxCountedLate, (float64(b.refusals)+refusedMore)/(b.count+1)))
}

// late returns how long after the end of a window a canary goes: few attempts go at the start
// of a window.
func late(length, trip time.Duration) time.Duration { return trip + length/500 }

// awaits returns the wait before the next canary once the first one was refused, which rules
// out most limits that have room again soon: until a window ends that the owner configured a
// limit for, if that is not much longer than it would wait otherwise.
func (b *block) awaits(now, trip, from, phase time.Duration, likely *candidates) time.Duration {
	if b.refusals == 1 || b.punished || b.outage || b.explained {
		return b.wait
	}
	best, most := never, time.Duration(configuredWait*float64(b.wait))
	for _, u := range likely.configured() {
		for _, end := range b.windowEnds(u, from, phase).all() {
			if w := end + late(u, trip) - now; w >= firstCanary && w <= min(best, most) {
				best = w
			}
		}
	}
	if best == never {
		return b.wait
	}
	return best
}

// within returns the instant of the canary for a block that ends between two instants: one at
// which a configured window ends, or else a usual one, the longest first, or else the middle,
// which halves the range.
func (b *block) within(now, low, high, trip, from, phase time.Duration, likely *candidates) time.Duration {
	low = max(low, now)
	if high <= low {
		return now
	}
	found := low + (high-low)/2
	for i, u := range likely.lengths() {
		for _, at := range [...]time.Duration{from + u, b.began + u, now - (now+phase)%u + u} {
			if at += late(u, trip); at > low && at < high {
				if found = at; i < len(likely.configured()) {
					return found
				}
				break
			}
		}
	}
	return found
}

// contended returns the longest wait after a canary that found an advertised limit used up
// by others. It doubles after every second refusal: each is due to chance, and asking rarely
// finds room as likely as asking often.
func (b *block) contended() time.Duration {
	return min(minContended<<min(b.refusals/2-1, 8), maxContended)
}

// allBack returns when the advertised sliding windows that are nearly used up will be
// completely free.
func (l *Law) allBack() time.Duration {
	at := l.clock
	for i := range l.headers {
		if t := &l.headers[i]; t.trusted() && t.shape == sliding && t.left-t.spent < max(2, t.quota/50) {
			at = max(at, t.whole)
		}
	}
	return at
}

// latest returns how long it takes at most, after a refused canary, until the blamed window has
// room, if the window is lone and this block is the second that speaks for it; else never. In later
// blocks plan aims within the bracket of its length.
func (l *Law) latest() time.Duration {
	b := &l.block
	if b.blamed < 0 || b.refusals < 2 {
		return never
	}
	w, ok := l.limits[b.blamed].(*window)
	if !ok || !w.lone || w.hits < 1 {
		return never
	}
	from := l.h.newest(w.unit, b.began, w.size[w.unit])
	if l.freed > from && l.freed <= l.h.newest(w.unit, b.began, w.size[w.unit]*(1-1.0/latestSlack)) {
		from = l.freed // all of them went since the last release, but for the rounding of the history
	}
	at := from + w.high + w.high/latestSlack + time.Duration(l.trip)
	if at < l.clock+firstCanary { // it lasts longer
		return never
	}
	return at - l.clock
}

// apart returns a delay after a refused canary, to separate clients that were refused
// together and do not know of each other. It is effectively random.
func (b *block) apart(now time.Duration) time.Duration {
	x := uint64(now) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	most := float64(b.wait) * canaryApart
	if b.aimed {
		most = min(most, float64(aimedApart))
	}
	return time.Duration(most * float64(x&0xffff) / 0x10000)
}

// penalty describes blocks that last longer than any limit explains.
type penalty struct {
	length     time.Duration // 0 means none
	low        time.Duration // a length that was not enough
	blocks     int
	shortInRow int // consecutive blocks that were shorter
}

func (p *penalty) on() bool { return p.length > 0 }

// wait returns the wait before the first canary of a block. While little is known, it tries
// a length between one that was too short and one that was long enough.
func (p *penalty) wait() time.Duration {
	if p.low > 0 && p.length > penaltyApart*p.low {
		return time.Duration(math.Sqrt(float64(p.low) * float64(p.length)))
	}
	return time.Duration(min(float64(p.length)*penaltySlack, float64(maxSilence)))
}

// ended learns from the length of a block. Two short ones end the penalty.
func (p *penalty) ended(took, silence, short time.Duration, refusals int) {
	if !p.on() {
		return
	}
	if took < min(p.length/2, p.wait()) {
		if p.shortInRow++; p.shortInRow >= 2 {
			*p = penalty{}
		}
		return
	}
	p.shortInRow = 0
	p.blocks++
	switch {
	case refusals > 1 && short < p.length:
		p.low = short
	case refusals > 1:
		p.low, p.length = short, max(p.length, min(silence, time.Duration(canaryHurry*float64(p.length))))
	case took < p.length:
		p.length = took
	}
}

// endedExplained learns from a block with a known cause: the time beyond what the cause predicts
// is a penalty.
func (p *penalty) endedExplained(b *block) {
	took, silence := b.release-b.noticed, b.release-b.lastRefused
	if !b.punished && !b.exact || took < b.expected+b.expected/2+longBlock {
		p.ended(took, took, 0, 1)
	} else if p.on() {
		p.ended(took, silence, b.tooShort, b.refusals)
	} else {
		p.blocks++
		p.length = silence
		if b.refusals > 1 {
			p.low = min(b.tooShort, silence)
		}
	}
}

// keep returns the part of the refused pace that is safe.
func (p *penalty) keep() float64 {
	return min(penaltyHigh, penaltyLow+0.04*float64(p.blocks))
}

// penaltyWait returns the wait before a canary because of a penalty. If a penalty is only
// suspected, the first canary goes early: being wrong costs one refusal.
func (l *Law) penaltyWait() time.Duration {
	switch {
	case l.block.refusals == 1 && l.penalty.on():
		return l.penalty.wait()
	case l.refuted == 0 && !l.penalty.on():
		return 0
	case l.block.refusals == 1:
		return min(l.silence, suspectedPenalty)
	}
	w := float64(l.block.wait)
	return time.Duration(max(canaryHurry*w, math.Sqrt(w*float64(l.silence))))
}
