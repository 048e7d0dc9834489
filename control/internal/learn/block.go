package learn

import "time"

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
	from        time.Duration // when a window may have begun that ends with the block
	blamed      limit         // nil for none
	window      window        // the blamed limit as it was before it was blamed, if it is a window
	flight      flight        // the same, if it is a limit in flight
	outage      bool          // it may be an outage
	explained   bool          // by an advertised limit
	hadRoom     bool          // refused although the provider reported room
	expected    time.Duration // expected duration by the advertised limit that explains it
	lastWait    time.Duration // the last advertised wait
	exact       bool          // the next canary goes, or the last one went, at an advertised instant
	doubted     bool          // a canary tests an advertised wait before its end
	cost        float64       // of the refused attempt
	count       float64       // attempts sent since the last release of a long block
	before      float64       // all refusals until then
	pace        float64       // attempts a second before it
	ramping     bool          // no limit was held
	tested      bool          // a test of the window that was blamed went too far
	first       bool          // no block before it was long
	aimed       bool          // the next canary goes when a window of a common length ends
	overloaded  bool          // refused for load, with 503 or 529
	paced       bool          // a rate has learned from more than two cycles, so it may explain this one
}

// blame blames a limit for a refusal.
func (b *block) blame(v *view, x limit, f refusal) {
	b.blamed = x
	switch x := x.(type) {
	case *window:
		b.window, b.tested = *x, x.raise > 1
	case *flight:
		b.flight = *x
	}
	x.blame(v, f)
}

// acquit blames no limit, and undoes what the blamed one has learned.
func (b *block) acquit() {
	switch x := b.blamed.(type) {
	case *window:
		*x = b.window
	case *flight:
		*x = b.flight
	}
	b.blamed = nil
}

// long reports whether the block is too long for a rate.
func (b *block) long() bool {
	took := b.release - b.noticed
	if b.paced && b.refusals > 1 {
		took = b.lastRefused - b.noticed // the canary may have been refused by chance
	}
	return took > longBlock+b.least && took.Seconds() > longIntervals/b.pace
}

// lost returns how many attempts were refused in the block, with those that were in flight.
func (l *Law) lost() float64 { return float64(l.allRefused) - l.block.before }

// doubtsFlight reports whether a limit in flight is doubtful that the block shows, with so many others in flight:
// if most of what had gone was, any limit refuses when the most are.
func (b *block) doubtsFlight(others float64) bool { return b.count < stillFlying*others }

// soonest returns the minimum wait before the first canary of a block. It is shorter if
// blocks of the blamed limit ended at the first canary.
func (l *Law) soonest() time.Duration {
	switch x := l.block.blamed.(type) {
	case nil, *window:
		return firstCanary
	case *rate:
		if !x.alike() {
			return firstCanary // units of a burst return meanwhile
		}
	}
	return max(firstCanary>>min(l.brief, maxBrief), seconds(2/l.block.pace))
}

// passes returns when the canary counts as admitted though it is not answered yet, since its refusal
// would have been: where answers take long, waiting for one costs more than the block. Never under a
// penalty, in an outage, or if the canary tests an advertised wait.
func (l *Law) passes() time.Duration {
	b := &l.block
	switch {
	case l.penalty.on() || b.outage || b.doubted:
		return never
	case isFlight(b.blamed), b.explained, isRate(b.blamed) && b.paced: // how long the block was shows nothing more
		return b.canaryAt + time.Duration(refusedWithin*l.trip)
	}
	return b.canaryAt + max(firstCanary, time.Duration(surelyWithin*l.trip)) // a block that seems short hides a window
}

// freedFrom returns the earliest time at which there may have been room again.
func (b *block) freedFrom() time.Duration {
	if b.exact {
		return max(b.lastRefused, b.release-waitError(b.release-b.began))
	}
	return b.lastRefused
}
