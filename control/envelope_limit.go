package control

import (
	"math"
	"time"
)

// limit is one that the law holds: a window (in one of its shapes), a number of
// attempts under way, or a rate.
type limit struct {
	kind     Kind // SlidingWindow for every window, Concurrency, TokenBucket
	unit     int  // 0 attempts, 1 cost
	span     int  // of spans
	shape    shape
	size     float64 // units a window, or attempts under way
	sizes    [shapes]float64
	off      [shapes]float64 // by how much each shape foretold wrongly, lately
	margin   float64         // part of the size that is left free
	climb    float64         // above 1: a test, the size times this is allowed
	hits     int             // refusals that it explained
	hasty    int             // canaries that went before the window's end
	sureness float64         // of the inquiry that found it
	pacer    pacer
	fine     *ring // of a window: what counts against it, in parts
}

const (
	maxMargin = 0.15
	// A window is spread: its use leaves this many times as fast as it comes back.
	spread = 1.25
	// A test lets a window grow by so much in one length of it.
	windowClimb, flightClimb = 0.15, 0.01
)

// free is when the limit lets the next attempt go.
func (l *limit) free(e *Envelope, now time.Duration, cost float64) time.Duration {
	if l.kind == TokenBucket {
		return max(now, l.pacer.next())
	}
	if l.kind == Concurrency {
		if e.flying > 0 && float64(e.flying)+1 > l.size*max(1, l.climb) {
			return Never
		}
		return now
	}
	units := unitsOf(l.unit, cost)
	margin := l.margin
	if e.block.pain > painful {
		margin = max(margin, 0.02) // to be wrong by little costs much
	}
	room := l.size * (1 - margin)
	if l.unit == 0 {
		room = math.Round(room) // part of an attempt does not count
	}
	room -= units
	if l.climb > 1 {
		room = l.size * l.climb
	}
	// What was sent may have arrived late, and what is sent now may not.
	guard := time.Duration(e.refusal)
	at := now
	if l.shape == sliding {
		l.fine.advance(now-guard, l.part())
		at = l.fine.free(now-guard, l.part(), room)
	} else {
		at = e.units[l.unit].windows[l.span].free(l.shape, room, now-guard, e.params.Phase)
	}
	return max(now, at+guard, l.spread(e))
}

// part is what a window that is held is counted in.
func (l *limit) part() time.Duration { return spans[l.span] / parts }

// spread keeps a window from being used up in one burst: the more evenly it is
// used, the less the instants matter at which it comes back.
func (l *limit) spread(e *Envelope) time.Duration {
	if l.unit == 1 {
		return 0
	}
	apart := float64(spans[l.span]) / (max(1, l.size) * max(1, l.climb)) / spread
	return e.last + time.Duration(apart)
}

// used is what counts against a window in a shape.
func (l *limit) used(e *Envelope, s shape, now time.Duration) float64 {
	if s == sliding {
		l.fine.advance(now, l.part())
		return l.fine.sum
	}
	return e.units[l.unit].windows[l.span].used(s)
}

func (l *limit) sent(now time.Duration, cost float64) {
	switch {
	case l.kind == TokenBucket:
		l.pacer.sent(now)
	case l.fine != nil:
		l.fine.advance(now, l.part())
		l.fine.take(unitsOf(l.unit, cost))
	}
}

func (l *limit) gaveBack(o Observation) {
	switch {
	case l.kind == TokenBucket:
		l.pacer.gaveBack()
	case l.fine != nil:
		l.fine.giveBack(o.Sent, l.part(), unitsOf(l.unit, o.Estimate))
	}
}

func (l *limit) settleCost(now, sent time.Duration, more float64) {
	if l.fine == nil || l.unit == 0 {
		return
	}
	if more < 0 {
		l.fine.giveBack(sent, l.part(), -more)
		return
	}
	l.fine.advance(now, l.part())
	l.fine.take(more)
}

// answered lets a test go on, or begin when it is time. A rate tests itself.
func (l *limit) answered(e *Envelope, now time.Duration, o Observation) {
	if o.Steady || l.kind == TokenBucket {
		return
	}
	attempts := l.size / e.unit(l.unit)
	switch {
	case l.climb > 1 && l.fine != nil:
		l.climb *= 1 + windowClimb/max(10, attempts)
	case l.climb > 1:
		l.climb *= 1 + flightClimb
	case now-e.block.at > 40*e.block.pain:
		patience := e.patience
		if l.hits == 0 { // it has explained nothing since it was found
			patience = min(patience, 50+4*attempts)
		}
		if e.untested > patience {
			l.climb = 1 + flightClimb
		}
	}
}

// unit is what an attempt takes on average.
func (e *Envelope) unit(u int) float64 {
	if u == 1 && e.meanCost > 0 {
		return e.meanCost
	}
	return 1
}

// reopened: a block has ended, that long after the throttle.
func (l *limit) reopened(after time.Duration) {
	if l.kind == TokenBucket {
		// What did not fit the bucket is lost.
		l.pacer.idle += max(0, after-seconds(l.pacer.size/l.pacer.low))
	}
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 1e9) * 1e9) }

// explains says whether the limit was about to refuse, and learns from it. After
// the refused attempt n were sent that took cost.
func (l *limit) explains(e *Envelope, now time.Duration, o Observation, n, cost float64) bool {
	switch l.kind {
	case TokenBucket:
		// A rate that was passed by a little blocks for a little.
		if o.RetryAfter > max(2*time.Second, seconds(5/l.pacer.low), e.block.pain*3/2) {
			return false
		}
		over := now - l.pacer.sync
		l.pacer.refused(now, n, func(r float64) float64 { return e.burst(r, over, n) })
		l.hits++
		return true
	case Concurrency:
		others := e.sent.others(o.Sent)
		if others < l.size-0.5 {
			return false
		}
		l.size = max(1, min(l.size, others))
	default:
		unit, after := 1.0, n
		if l.unit == 1 {
			unit, after = o.Estimate, cost
		}
		near := 0.8 - l.margin
		if e.untested < 3*l.size/e.unit(l.unit) {
			near = min(near, 0.7) // it was just changed
		}
		if l.used(e, l.shape, now)-after <= l.size*near-unit {
			return false
		}
		l.resize(e, now, after)
	}
	if l.climb > 1 {
		l.margin *= 0.5
		e.patience = min(e.patience*patienceGrowth, maxPatience)
	} else {
		l.margin = min(maxMargin, 2*l.margin+0.002)
	}
	l.climb = 1
	l.hits++
	e.untested = 0
	return true
}

// resize takes the use at a refusal for the size, and the shape that foretold it
// best.
func (l *limit) resize(e *Envelope, now time.Duration, after float64) {
	for s := range shapes {
		used := max(0, l.used(e, s, now)-after)
		if l.sizes[s] > 0 {
			l.off[s] += 0.5 * (min(1, math.Abs(used/l.sizes[s]-1)) - l.off[s])
		}
		switch more := used - l.sizes[s]; {
		case more < 0:
			l.sizes[s] += 0.3 * more
		case more < 0.03*l.sizes[s]:
			l.sizes[s] += 0.5 * more
		default:
			l.sizes[s] = used
		}
	}
	l.shape = sliding
	for s := range shapes {
		if l.off[s]+0.02 < l.off[l.shape] {
			l.shape = s
		}
	}
	l.size = max(1, l.sizes[l.shape])
}

// interval is the sustained one, in nanoseconds; 0 when it depends on the cost.
func (l *limit) interval(e *Envelope) float64 {
	if l.kind == TokenBucket {
		return 1e9 / l.pacer.rate()
	}
	if l.kind == Concurrency {
		return e.latency / l.size
	}
	return float64(spans[l.span]) / l.size * e.unit(l.unit)
}

// belief tells the limit in the field's words. Confidence grows with what it
// explained.
func (l *limit) belief() Belief {
	b := Belief{Kind: l.kind, Limit: l.size, Confidence: 1 - (1-l.sureness)/float64(1+l.hits)}
	switch {
	case l.kind == TokenBucket:
		b.Limit, b.Window = l.pacer.low, time.Second
		b.Confidence = 1 - min(1, (l.pacer.high-l.pacer.low)/l.pacer.high+l.pacer.margin)
	case l.fine != nil:
		b.Window = spans[l.span]
		if l.shape != sliding {
			b.Kind = FixedWindow
		}
		if l.unit == 1 {
			b.Kind = CostWindow
		}
	}
	return b
}
