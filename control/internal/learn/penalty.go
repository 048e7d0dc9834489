package learn

import (
	"math"
	"time"
)

// penalty describes blocks that last longer than any limit explains.
type penalty struct {
	length     time.Duration // 0 means none
	low        time.Duration // a length that was not enough
	blocks     int
	shortInRow int   // consecutive blocks that were shorter
	earned     cycle // of the newest cycles of a rate with it, decayed
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
	took := b.release - b.noticed
	if !b.hadRoom && !b.exact || took < b.expected+b.expected/2+longBlock {
		p.ended(took, took, 0, 1)
		return
	}
	p.follows(b)
}

// follows learns from a block that lasted longer than the limit that refused explains.
func (p *penalty) follows(b *block) {
	if !p.on() {
		p.blocks++
		p.begin(b)
		return
	}
	p.ended(b.release-b.noticed, b.release-b.lastRefused, b.tooShort, b.refusals)
}

// begin takes a block for the first of a penalty.
func (p *penalty) begin(b *block) {
	p.length = b.release - b.lastRefused
	if b.refusals > 1 {
		p.low = min(b.tooShort, p.length)
	}
}

// earn takes a cycle that a refusal of the rate ended, with its block, into the mean of the newest ones. It returns
// that mean in attempts a second, 0 before the first. A slower pace would gain nothing where other users cause the
// refusals, since those come as often at any pace.
func (p *penalty) earn(r *rate, released time.Duration) float64 {
	if r.empty {
		p.earned.n = earnedFade*p.earned.n + max(0, r.count-1) // without the canary
		p.earned.whole = earnedFade*p.earned.whole + (released - r.released).Seconds()
	}
	return p.earned.n / max(p.earned.whole, 1e-3)
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
	return min(time.Duration(max(canaryHurry*w, math.Sqrt(w*float64(l.silence)))), penaltyLongest)
}
