package learn

import (
	"math"
	"time"
)

// flight is a limit on the number of attempts in flight.
type flight struct {
	size      float64
	climb     float64
	testAfter float64
	untested  float64
	over      float64 // answers while more than size were in flight, in this test
	soonInRow int     // consecutive refusals soon after one another
	was       *rate   // the rate that was held before
}

func (l *flight) free(v view, _ float64) time.Duration {
	if v.flying > 0 && float64(v.flying)+1 > l.size+l.climb {
		return never
	}
	return v.now
}

func (*flight) sent(time.Duration) {}
func (*flight) takeBack()          {}

func (l *flight) answered(v view) {
	l.untested++
	if float64(v.flying)+1 > l.size {
		l.over++
	}
	if l.untested > l.testAfter && v.calm > testAfterBlocks && l.over >= l.climb {
		l.size += l.climb // the tested size is confirmed
		l.climb = max(1, l.size/20)
		l.untested, l.over = l.testAfter/2, 0
	}
}

func (l *flight) fullness(_ view, f refusal) float64 {
	if f.others < 0 {
		return 0
	}
	if l.climb > 0 {
		return (f.others + 1) / l.size // it was being tested
	}
	return (f.others + 0.5) / l.size
}

func (l *flight) blame(v view, f refusal) {
	switch soon := l.untested < soonRefused*l.size; {
	case l.climb > 0:
		l.testAfter = min(maxTest, 2*l.testAfter)
	case soon:
		l.soonInRow++
		l.size = min(l.size, f.others) - math.Floor(l.size*soonCut)
	default:
		l.soonInRow = 0
		l.size = min(l.size, f.others)
	}
	l.size = max(1, l.size)
	l.climb, l.untested, l.over = 0, 0, 0
}

func (l *flight) room(v view) float64 { return l.size + l.climb - float64(v.flying) }

func (l *flight) interval(v view) float64 { return v.latency / max(1, l.size) }

// crowd records how many attempts were in flight when each recent attempt was sent, and the
// evidence for a limit on that number.
type crowd struct {
	seen     [maxFlights]float32
	total    float32
	evidence float64
	wrong    float64 // how often such a limit was held and dropped
	last     float64 // how many others were in flight at the last refusal
	times    int     // consecutive refusals with as many others
}

func (c *crowd) sent(others int) {
	c.seen[min(others, maxFlights-1)]++
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
	if c.times++; others != c.last {
		c.last, c.times = others, 1
	}
	if others < 1 || c.total < 1 {
		return
	}
	c.evidence = max(-2, c.evidence+min(most, -math.Log(min(1, c.share(others)))-1))
}

// share returns the share of attempts that were sent with at least that many others in
// flight.
func (c *crowd) share(others float64) float64 {
	more := float32(0)
	for i := max(0, min(int(others), maxFlights-1)); i < maxFlights; i++ {
		more += c.seen[i]
	}
	return float64(more+0.5) / float64(c.total+1)
}

// departures records how many other attempts were in flight when each was sent.
type departures struct {
	ring [48]struct {
		at     time.Duration
		others int32
	}
	n int
}

func (d *departures) add(at time.Duration, others int) {
	x := &d.ring[d.n%len(d.ring)]
	x.at, x.others = at, int32(others)
	d.n++
}

// others returns how many other attempts were in flight when one was sent; -1 if that was
// forgotten.
func (d *departures) others(sent time.Duration) float64 {
	for i := 1; i <= min(d.n, len(d.ring)); i++ {
		if x := &d.ring[(d.n-i)%len(d.ring)]; x.at <= sent {
			return float64(x.others)
		}
	}
	return -1
}
