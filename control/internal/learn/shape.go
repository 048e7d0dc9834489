package learn

import (
	"math"
	"time"
)

// shape is how the units of an advertised limit return. The limit's name is weak evidence:
// some providers name a window like a bucket, or the other way round.
type shape uint8

// The shapes.
const (
	sliding shape = iota // each unit returns one window length after its use
	fixed                // all units return at one instant
	bucket               // units return one by one
)

// shapes is the number of shapes.
const shapes = 3

// report is the part of a response about a limit.
type report struct {
	sent  time.Duration // when the attempt was sent
	took  time.Duration // time from then to the response
	used  float64
	reset time.Duration // as reported; 0 if it was not
}

// shaper distinguishes the shapes: it compares each shape's prediction of the next reset
// with the reported one.
type shaper struct {
	shape  shape
	errors [shapes]float64 // prediction error of each shape, beyond the best one
	wrong  float64         // recent prediction error of the best shape
	prior  report          // the report to compare with
}

// newShaper starts with the shape that the limit's name suggests.
func newShaper(s shape) shaper {
	r := shaper{shape: s}
	for i := range r.errors {
		r.errors[i] = 0.5
	}
	r.errors[s] = 0
	return r
}

// learn compares the next report. Resets are exact to a tolerance. from returns the time
// from sending an attempt to its reset, for both reports by what is known now.
func (r *shaper) learn(next report, from func(report) time.Duration, tolerance time.Duration) {
	a, b := r.prior, next
	a.reset, b.reset = from(a), from(b)
	passed := b.sent - a.sent
	if r.prior.reset <= 0 || passed >= a.reset-tolerance {
		r.prior = next // another window
		return
	}
	var off [shapes]time.Duration
	for s := range off {
		switch shape(s) {
		case fixed:
			off[s] = (b.reset - (a.reset - passed)).Abs()
		case sliding:
			off[s] = (b.reset - a.reset).Abs()
		case bucket:
			off[s] = apart(a, b, tolerance)
		}
	}
	least, rival := off[r.shape], time.Duration(math.MaxInt64)
	for s := range off {
		least = min(least, off[s])
		if shape(s) != r.shape {
			rival = min(rival, off[s])
		}
	}
	if (off[r.shape] - rival).Abs() < 3*tolerance {
		return // too close to each other
	}
	r.prior = next
	best := math.Inf(1)
	for s := range off {
		r.errors[s] += min(1, max(0, float64(off[s]-tolerance)/float64(2*tolerance)))
		best = min(best, r.errors[s])
	}
	r.wrong = 0.9*r.wrong + min(1, max(0, float64(least-tolerance)/float64(2*tolerance)))
	for s := range r.errors {
		r.errors[s] = min(maxShapeError, r.errors[s]-best)
	}
	r.turn()
}

// turn switches to the shape with the best predictions.
func (r *shaper) turn() {
	for s := range r.errors {
		if r.errors[s] < r.errors[r.shape] {
			r.shape = shape(s)
		}
	}
}

// sure reports whether every other shape predicted clearly worse.
func (r *shaper) sure() bool {
	for s := range r.errors {
		if shape(s) != r.shape && r.errors[s] < surely {
			return false
		}
	}
	return true
}

// apart returns by how much two resets of a bucket disagree about its rate. Used units are
// rounded up.
func apart(a, b report, tolerance time.Duration) time.Duration {
	longest := func(s report) float64 { // the time for one unit to return
		if s.used <= 1 {
			return math.Inf(1)
		}
		return float64(s.reset+tolerance) / (s.used - 1)
	}
	shortest := func(s report) float64 { return float64(max(0, s.reset-2*tolerance)) / max(1, s.used) }
	gap := max(shortest(a)-longest(b), shortest(b)-longest(a))
	return time.Duration(max(0, gap) * max(1, min(a.used, b.used)))
}

// trusted reports whether some shape predicts the limit.
func (r *shaper) trusted() bool { return r.wrong < maxWrong }

// compare notes whether the reset is counted from the response. If the provider reports an
// instant, the time until then was computed when the response arrived; if it reports a
// duration, that counts from when the response was sent. The variant that varies less from
// one response to the next is right. The reset of a fixed window draws nearer meanwhile, those
// of others do not.
func (t *advertised) compare(b report) {
	a, most := t.last, t.length()/4 // a larger change is another window
	t.last = b
	for i, passed := range [...]time.Duration{0, b.sent - a.sent} {
		early := b.reset - a.reset + passed
		late := early + b.took - a.took
		if max(early.Abs(), late.Abs()) < most {
			o := &t.origins[i]
			o.sent = resetFade*o.sent + early.Seconds()*early.Seconds()
			o.answered = resetFade*o.answered + late.Seconds()*late.Seconds()
		}
	}
}

// fromAnswer reports whether resets are counted from when the response arrived.
func (t *advertised) fromAnswer() bool {
	o := t.origins[0]
	if t.shape == fixed {
		o = t.origins[1]
	}
	return o.answered < o.sent && !t.precise
}

// fromSending returns the time from sending an attempt to the reset that its response
// reports.
func (t *advertised) fromSending(b report) time.Duration {
	if t.fromAnswer() {
		return b.reset + b.took
	}
	return b.reset
}

// resetRange are the longest and the shortest reset seen.
type resetRange struct{ longest, least time.Duration }

// resetRanges are those counted from sending and from the response.
type resetRanges struct{ sent, answered resetRange }

func (r *resetRange) add(reset time.Duration) {
	r.longest = max(r.longest, reset)
	if r.least == 0 || reset < r.least {
		r.least = reset
	}
}

// known returns the resets seen, as fromSending counts them.
func (t *advertised) known() resetRange {
	if t.fromAnswer() {
		return t.resets.answered
	}
	return t.resets.sent
}

// rounding returns the units to which the known rest is rounded down. If a report says no more
// than that something is left, or nothing, the rest is what we count ourselves.
func (t *advertised) rounding() float64 {
	if t.quota <= t.grain {
		return 1
	}
	return t.grain
}

// refill learns how fast a bucket refills. Used units are rounded up, and so is the reset.
func (t *advertised) refill(used float64, reset, rounded time.Duration) {
	high := math.Inf(1)
	if reset > rounded {
		high = used / (reset - rounded).Seconds()
	}
	if t.quota > 1 {
		used = max(0, used-t.rounding()) // all but a fraction of a unit
	}
	low := used / max(reset, time.Millisecond).Seconds()
	if t.slow, t.fast = max(t.slow, low), min(t.fast, high); t.slow > t.fast {
		if t.shape == bucket && t.quota > 2 && t.slow > doubtedRefill*t.fast { // or it is no bucket
			t.errors[bucket]++
			t.turn()
		}
		t.slow, t.fast = low, high // the rate has changed
	}
}
