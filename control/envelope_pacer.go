package control

import (
	"math"
	"time"
)

// pacer holds a rate limit whose rate is known to lie between low and high: it
// starts at low, is at high after a stretch of attempts, and then climbs. What
// was admitted between two throttles says the rate again.
type pacer struct {
	low, high float64       // attempts a second
	size      float64       // what a bucket holds, as far as is known
	burst     float64       // what may be sent at once after idling
	sync      time.Duration // the newest throttle
	idle      time.Duration // time since that was spent blocked
	since     float64       // sent since and not refused
	stretch   float64       // attempts from low to high
	tat       time.Duration // when the next is due
	early     int           // throttles in a row that came too soon
	margin    float64       // part of the rate that is left to others
}

// slowestRate is one attempt a day, and maxWait the wait of that: margins
// and rests make none longer.
const (
	slowestRate = 1.0 / (24 * 60 * 60)
	maxWait     = 24 * time.Hour
)

// A stretch is short while the rate is hardly known.
const firstStretch, lastStretch = 30, 2000

// rate is what is sent a second now.
func (p *pacer) rate() float64 {
	x := p.since / p.stretch
	if x < 1 {
		return (p.low + (p.high-p.low)*x) * (1 - p.margin)
	}
	y := (p.since - p.stretch) / 100
	return p.high * (1 - p.margin) * math.Exp(min(5, 0.1*y*y))
}

// credit is how much idle time may be made up for: less than half a burst.
func (p *pacer) credit() time.Duration {
	return seconds(0.4 * (p.burst - 1) / p.low)
}

// next is when the next attempt is due.
func (p *pacer) next() time.Duration { return p.tat - p.credit() }

func (p *pacer) sent(now time.Duration) {
	p.since++
	p.tat = max(p.tat, now) + min(maxWait, seconds(1/p.rate()))
}

func (p *pacer) gaveBack() { p.since = max(0, p.since-1) }

// refused: n were sent after the one that was refused. The burst that was used
// up depends on the rate that one thinks of.
func (p *pacer) refused(now time.Duration, n float64, burst func(rate float64) float64) {
	a, t, pace := max(0, p.since-n), (now - p.sync - p.idle).Seconds(), p.rate()
	p.idle, p.sync, p.since = 0, now, n
	p.learn(a, t, pace, burst)
	rest := 1.0
	if p.margin > 0 {
		rest = 4 // where others take from it too, let it fill a little
	}
	p.tat = now + p.credit() + min(maxWait, seconds(rest/p.low))
}

// learn draws the rate from a attempts that were admitted in t seconds, the last
// at a pace.
func (p *pacer) learn(a, t, pace float64, burst func(rate float64) float64) {
	if a < p.stretch/3 || a < 5 || t <= 0 {
		// Too soon: once may be chance, then it is slower than it was.
		p.early++
		if p.stretch > 4*firstStretch {
			p.margin = min(0.2, 1.5*p.margin+0.01)
		}
		p.stretch = max(firstStretch, p.stretch/2)
		switch {
		case p.early == 1 && p.stretch > firstStretch:
		case a < 10:
			p.low, p.high = 0.7*min(p.low, pace), min(p.high, pace)
		default:
			p.low, p.high = 0.93*min(p.low, pace), min(p.high, pace)
		}
		p.low = max(p.low, slowestRate)
		p.high = max(p.low, p.high)
		p.burst = 1
		return
	}
	p.early = 0
	if used := burst(p.high); used > 1.3*p.size+3 {
		// More than any burst: it is faster than it was.
		p.low, p.high, p.stretch = p.high, max(p.high, pace), firstStretch
		p.size = max(p.size, burst(pace))
		return
	}
	p.margin *= 0.8
	low := (a - 1) / t
	if low < p.low && low > 0.97*p.low {
		low = (low + p.low) / 2
	}
	above := pace >= p.high*(1-p.margin)
	if above {
		low = max(low, p.low) // it was refused beyond what was held, not below it
	}
	p.low = min(low, pace)
	used := burst(p.low)
	high := (a + used) / t
	if above {
		high = max(high, p.high)
	}
	p.low = max(p.low, slowestRate)
	p.high = max(p.low, min(pace, high))
	p.size = max(p.size, min(used, 1.3*p.size+3))
	p.burst = min(p.size, burst(p.high))
	p.stretch = min(p.stretch*2.5, lastStretch)
}
