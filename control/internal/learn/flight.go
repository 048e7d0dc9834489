package learn

import (
	"math"
	"math/bits"
	"time"
)

// flight is a limit on the number of attempts in flight.
type flight struct {
	size      float64
	extra     float64 // how many more are allowed during a test, else 0
	testAfter float64 // attempts before a test
	untested  float64 // attempts admitted since a refusal was blamed on it, or less after a test that succeeded
	over      float64 // answers while more than size were in flight, in this test
	soonInRow int     // consecutive refusals soon after one another
	brief     bool    // it was found by a short block, so that no penalty followed
	doubtful  bool    // it was found while most of what had gone was in flight
	was       *rate   // the rate that was held before
	proven    float64 // the size that it was first held with, or a larger one that a test confirmed
}

func (x *flight) free(v *view, _ float64) time.Duration {
	most := x.size + x.extra
	if float64(v.open) < refillTime*v.latency { // those on their way counted too, and now all of them arrive first
		most -= math.Floor(x.size * float64(v.guard) / v.latency)
	}
	if v.flying > 0 && float64(v.flying)+1 > most {
		return never
	}
	return v.now
}

func (*flight) sent(time.Duration, float64) {}
func (*flight) takeBack(float64)            {}

func (x *flight) answered(v *view) {
	x.untested++
	if float64(v.flying)+1 > x.size {
		x.over++
	}
	if x.untested > x.testAfter && v.calm() > testAfterBlocks && x.over >= x.extra {
		again := x.testAfter / 2
		if x.doubtful && x.extra > 0 {
			again = min(again, doubtfulAgain*x.size)
		}
		x.confirm()
		x.extra = max(1, x.size/20)
		x.untested, x.over = x.testAfter-again, 0
	}
}

// confirm holds the size that was tested.
func (x *flight) confirm() {
	x.size += x.extra
	x.proven = max(x.proven, x.size)
}

func (x *flight) fullness(_ *view, f refusal) float64 {
	if f.others < 0 {
		return 0
	}
	if x.extra > 0 {
		return (f.others + 1) / x.size // it was being tested
	}
	return (f.others + 0.5) / x.size
}

func (x *flight) blame(v *view, f refusal) {
	// What a block costs, in attempts, is gained again by one more in flight after so many.
	worth := x.size * x.size * float64(max(time.Second, v.lastBlock)) / v.latency
	switch soon := x.untested < soonRefused*x.size; {
	case x.extra > 0 && x.over > worth:
		x.confirm()
	case x.extra > 0:
		x.testAfter = min(maxTest, 2*x.testAfter)
	case soon:
		x.soonInRow++
		x.size = min(x.size, f.others) - math.Floor(x.size*soonCut)
	case x.untested > worth: // fewer cost more than such a block
		x.soonInRow = 0
	default:
		x.soonInRow = 0
		x.size = min(x.size, f.others)
	}
	x.size = max(1, x.size)
	x.extra, x.untested, x.over = 0, 0, 0
}

// wrong reports whether refusals contradict the limit: they come soon after one another, or with
// ever fewer attempts in flight.
func (x *flight) wrong() bool {
	fall := maxFall
	if x.doubtful {
		fall = doubtfulFall
	}
	return x.soonInRow >= maxSoon || x.size < x.proven*(1-fall)-1
}

func (x *flight) room(v *view) float64 { return x.size + x.extra - float64(v.flying) }

func (x *flight) interval(v *view) float64 { return v.latency / max(1, x.size) }

// crowd records how many attempts were in flight when each recent attempt was sent, and the
// evidence for a limit on that number.
type crowd struct {
	seen     [flightCounts]float32 // by flightStep
	total    float32
	evidence float64
	last     float64 // the fewest others that were in flight at the last refusals
	times    int     // consecutive refusals with about as many others
	carried  int     // attempts admitted with at least as many others, since the last of them
	between  int     // the same between the last two
}

func (c *crowd) sent(others int) {
	if float64(others) >= c.last {
		c.carried++
	}
	c.seen[flightStep(others)]++
	if c.total++; c.total > flightFade {
		c.total = 0
		for i := range c.seen {
			c.seen[i] /= 2
			c.total += c.seen[i]
		}
	}
}

// refused weighs a refusal with that many other attempts in flight: the rarer that number
// is, the stronger the evidence for a limit on it.
func (c *crowd) refused(others, most float64) {
	if c.times++; math.Abs(others-c.last) > c.last*likeCrowd {
		c.last, c.times = others, 1
	}
	c.last = min(c.last, others)
	c.between, c.carried = c.carried, 0
	if others < 1 || c.total < 1 {
		return
	}
	c.evidence = max(-2, c.evidence+min(most, -math.Log(min(1, c.share(others)))-1))
}

// takeBack undoes sent for an attempt that was refused.
func (c *crowd) takeBack(others float64) {
	if others >= c.last {
		c.carried = max(0, c.carried-1)
	}
}

// certain reports whether the last two attempts with about as many others were refused, and
// hardly any between them was admitted, nor many of those with more before.
func (c *crowd) certain() bool {
	return c.times >= 2 && c.between <= fewBetween && c.with(c.last*(1+likeCrowd)+1) <= usualCrowd*c.total
}

// share returns the share of attempts that were sent with at least that many others in
// flight.
func (c *crowd) share(others float64) float64 {
	return float64(c.with(others)+0.5) / float64(c.total+1)
}

// with returns how many attempts were sent with at least that many others in flight.
func (c *crowd) with(others float64) (n float32) {
	for _, x := range c.seen[flightStep(int(others)):] {
		n += x
	}
	return n
}

// flightStep returns where a number of others in flight is counted.
func flightStep(others int) int {
	if others < exactFlights {
		return max(0, others)
	}
	span := bits.Len(uint(others)) - bits.Len(exactFlights) // doublings of exactFlights
	if span >= flightSpans {
		return flightCounts - 1
	}
	return exactFlights + flightSteps*span + (others>>span-exactFlights)/(exactFlights/flightSteps)
}

// departures records how many other attempts were in flight when each of the newest was sent.
type departures struct {
	sent   [departuresKept]time.Duration
	flying [departuresKept]uint16
	n      int
}

func (d *departures) add(at time.Duration, others int) {
	i := d.n % departuresKept
	d.sent[i], d.flying[i] = at, uint16(min(others, math.MaxUint16))
	d.n++
}

// hasFewer reports whether clearly fewer than so many others were in flight when an attempt was sent.
func (d *departures) hasFewer(sent time.Duration, others float64) bool {
	n := d.others(sent)
	return n >= 0 && n < (1-likeCrowd)*others-1
}

// others returns how many other attempts were in flight when one was sent; -1 if that was
// forgotten.
func (d *departures) others(sent time.Duration) float64 {
	for back := 1; back <= min(d.n, departuresKept); back++ {
		if i := (d.n - back) % departuresKept; d.sent[i] <= sent {
			return float64(d.flying[i])
		}
	}
	return -1
}
