package learn

import (
	"math"
	"time"
)

// block is the silence from a refusal to the release. Nothing goes but a canary.
type block struct {
	began       time.Duration // when the refused attempt was sent
	noticed     time.Duration // when the refusal was back
	lastRefused time.Duration // when the newest refused canary was sent
	release     time.Duration // when the admitted canary was sent
	resume      time.Duration // when the next canary goes
	wait        time.Duration // the last wait
	first       time.Duration // the first wait
	soonest     time.Duration // the shortest one that makes sense
	least       time.Duration // the first one, if only the round trip counts
	canaryAt    time.Duration
	refusals    int
	blamed      int           // the limit, -1 for none
	outage      bool          // it looks like one
	explained   bool          // by a limit that the provider advertises
	punished    bool          // refused though the provider says that there is room
	expected    time.Duration // how long the limit that explains it would last
	lastWait    time.Duration // the last wait that the provider advertised
	exact       bool          // it ended at an instant that the provider had advertised
	doubted     bool          // the canary goes before a wait is over, to see whether it is one
	cost        float64       // of the refused attempt
	carried     float64       // attempts since the last release
	pace        float64
	ramping     bool // nothing was held
	paced       bool // a rate has explained some blocks
}

// long reports whether the block is too long to be a rate's.
func (b *block) long() bool {
	took := b.release - b.noticed
	if b.paced && b.refusals > 1 {
		took = b.lastRefused - b.noticed // the canary may have been refused by chance
	}
	return took > longBlock+b.least && took.Seconds() > longIntervals/b.pace
}

// freedFrom is when there may have been room again at the earliest.
func (b *block) freedFrom() time.Duration {
	if b.exact {
		return max(b.lastRefused, b.release-(b.release-b.began)/50-time.Second)
	}
	return b.lastRefused
}

// usual are lengths of time that windows often have.
var usual = [...]time.Duration{
	10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	15 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// newly says that a refusal advertises another wait than the one before it did, so that it
// may be a true one whatever became of that. One that just goes on naming what is left by a
// wrong measure comes closer and closer.
func (b *block) newly(wait time.Duration) bool {
	return wait > 0 && (b.refusals <= 2 || wait > 2*b.lastWait || wait < b.lastWait/2)
}

// waits says what the waits that refusals name are worth. Some providers name milliseconds
// where seconds belong.
type waits struct {
	unit float64 // what they are divided by; 0 while that is not known
	sane int     // blocks whose wait is one that can be believed
}

// heard takes in the one that the first refusal of a block names. After some that can be
// believed a long one is believed, too: calls may lengthen a ban, and so would a canary.
func (w *waits) heard(wait time.Duration) {
	if wait >= time.Second && !w.doubts(wait) {
		w.sane++
	}
	if w.sane >= saneWaits && w.unit == 0 {
		w.unit = 1
	}
}

// believed returns how much of a wait is waited for. Of the first one that is in doubt that
// is the length of a long penalty; then a canary finds out whether it is of another unit.
func (w *waits) believed(wait time.Duration) time.Duration {
	switch {
	case w.doubts(wait):
		return penaltyLongest
	case w.unit > 0:
		return time.Duration(float64(wait) / w.unit)
	}
	return wait
}

// doubts reports whether a wait is so long that it may be of another unit.
func (w *waits) doubts(wait time.Duration) bool { return w.unit == 0 && wait > unbelievable }

// rarely is how much later the next canary goes in a block of that age, which no
// canary lengthens. Where much was carried before, a canary costs little beside that.
func (b *block) rarely(age time.Duration) time.Duration {
	return time.Duration(float64(age) * min(0.5, math.Sqrt(canaryFew/max(1, b.carried))))
}

// next is how long to wait for a canary at now. The limits foretell an instant;
// from is when a window may have begun, phase the wall clock at instant 0.
func (b *block) next(now, trip, foretold, from, phase, penalty time.Duration) time.Duration {
	if b.outage {
		return min(max(2*b.wait, outageFirst), max(outageLongest, (now-b.noticed)/4))
	}
	if b.refusals == 1 {
		least := max(b.soonest, trip*12/10, penalty)
		if b.explained { // when there is room is known
			least = max(trip*12/10, penalty)
		}
		return max(least, foretold-now)
	}
	growth := canaryHurry
	if b.wait > hurryUntil/3 && !b.punished && b.carried > slowWindow*(now-b.began).Seconds() {
		growth = canaryGrowth
	}
	low := time.Duration(growth * float64(b.wait))
	switch {
	case b.wait >= penaltyLongest && !b.punished:
		low = max(farAway, b.rarely(now-b.began)) // no penalty is that long
	default:
		low = min(low, penaltyLongest)
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
	for _, u := range usual {
		if b.punished {
			break
		}
		late := trip + u/500 // the first attempts of a window are few
		try(from + u + late)
		try(b.began + u + late)
		try(b.began + u - (b.began+phase)%u + late)
	}
	if foretold > now {
		try(foretold)
	}
	if best == later {
		best = low
	}
	return min(best, maxSilence)
}

// within is the instant for a canary of a block that ends between two: a usual one,
// else the middle, which halves what is open.
func (b *block) within(now, low, high, trip, from, phase time.Duration) time.Duration {
	low = max(low, now)
	if high <= low {
		return now
	}
	for i := len(usual) - 1; i >= 0; i-- {
		u := usual[i]
		for _, at := range [...]time.Duration{from + u, b.began + u, now - (now+phase)%u + u} {
			if at += trip + u/500; at > low && at < high {
				return at
			}
		}
	}
	return low + (high-low)/2
}

// apart is how much later a canary goes where the one before was refused: clients that
// do not know of each other, and were refused together, would go on to be refused
// together. It is as good as random from one nanosecond to the next.
func (b *block) apart(now time.Duration) time.Duration {
	x := uint64(now) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	return time.Duration(float64(b.wait) * canaryApart * float64(x&0xffff) / 0x10000)
}

// penalty is that blocks last longer than any limit explains.
type penalty struct {
	length time.Duration // 0 means none
	low    time.Duration // what was not enough
	blocks int
	short  int // blocks in a row that were shorter
}

func (p *penalty) on() bool { return p.length > 0 }

// wait is how long the first canary of a block waits. While little is known it tries a
// length between one that was too short and one that was long enough.
func (p *penalty) wait() time.Duration {
	if p.low > 0 && p.length > penaltyApart*p.low {
		return time.Duration(math.Sqrt(float64(p.low) * float64(p.length)))
	}
	return time.Duration(min(float64(p.length)*penaltySlack, float64(maxSilence)))
}

// ended takes the length of a block in. Two short ones end the penalty.
func (p *penalty) ended(took, silence, first time.Duration, refusals int) {
	if !p.on() {
		return
	}
	if took < min(p.length/2, p.wait()) {
		if p.short++; p.short >= 2 {
			*p = penalty{}
		}
		return
	}
	p.short = 0
	p.blocks++
	switch {
	case refusals > 1 && first < p.length:
		p.low = first
	case refusals > 1:
		p.low, p.length = first, max(p.length, min(silence, time.Duration(canaryHurry*float64(p.length))))
	case took < p.length:
		p.length = took
	}
}

// explained learns from a block whose cause is known: what it lasts beyond what the
// cause foretold is a penalty.
func (p *penalty) explained(b *block) {
	took, silence := b.release-b.noticed, b.release-b.lastRefused
	if !b.punished && !b.exact || took < b.expected+b.expected/2+longBlock {
		p.ended(took, took, 0, 1)
	} else if p.on() {
		p.ended(took, silence, b.first, b.refusals)
	} else {
		p.blocks++
		p.length = silence
	}
}

// keep is the part of the refused pace that is safe enough.
func (p *penalty) keep() float64 {
	return min(penaltyHigh, penaltyLow+0.04*float64(p.blocks))
}

// penaltyWait is how long a canary waits for the sake of a penalty. Of one that is
// only suspected the first comes early: it costs one refusal to be wrong.
func (l *Law) penaltyWait() time.Duration {
	switch {
	case l.block.refusals == 1 && l.penalty.on():
		return l.penalty.wait()
	case l.misses == 0 && !l.penalty.on():
		return 0
	case l.block.refusals == 1:
		return min(l.silence, suspectedPenalty)
	}
	w := float64(l.block.wait)
	return time.Duration(max(canaryHurry*w, math.Sqrt(w*float64(l.silence))))
}
