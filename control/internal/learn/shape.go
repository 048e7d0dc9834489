package learn

import (
	"math"
	"time"
)

// shape is how the units of an advertised limit come back. Its name says little: some
// name a window like a bucket, or the other way about.
type shape uint8

// The shapes.
const (
	sliding shape = iota // each a window's length after it was used
	fixed                // all at an instant
	bucket               // one by one
)

// shapes is how many there are.
const shapes = 3

// said is what a response said of a limit.
type said struct {
	sent  time.Duration // the attempt
	took  time.Duration // from then until the answer
	used  float64
	reset time.Duration // as it is named; 0 when nothing was said
}

// shaper tells the shapes apart: what each foretells of the next reset from the last
// one is compared with what is said.
type shaper struct {
	shape  shape
	errors [shapes]float64 // how wrongly each foretold, beyond the best
	wrong  float64         // how wrongly the best did, lately
	from   said            // what is compared with
}

// newShaper starts with the shape that the name speaks for.
func newShaper(s shape) shaper {
	r := shaper{shape: s}
	for i := range r.errors {
		r.errors[i] = 0.5
	}
	r.errors[s] = 0
	return r
}

// learn takes in what is said next. Resets are exact to a tolerance; from tells how long
// after the attempt was sent they are, for both answers by what is known now.
func (r *shaper) learn(next said, from func(said) time.Duration, tolerance time.Duration) {
	a, b := r.from, next
	a.reset, b.reset = from(a), from(b)
	passed := b.sent - a.sent
	if r.from.reset <= 0 || passed >= a.reset-tolerance {
		r.from = next // another window
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
		return // not far enough from each other
	}
	r.from = next
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

// turn takes the shape that foretells best.
func (r *shaper) turn() {
	for s := range r.errors {
		if r.errors[s] < r.errors[r.shape] {
			r.shape = shape(s)
		}
	}
}

// sure says that every other shape foretold clearly worse.
func (r *shaper) sure() bool {
	for s := range r.errors {
		if shape(s) != r.shape && r.errors[s] < surely {
			return false
		}
	}
	return true
}

// apart is by how much two resets of a bucket are not those of one rate. What is in
// use is rounded up.
func apart(a, b said, tolerance time.Duration) time.Duration {
	longest := func(s said) float64 { // to get one unit back
		if s.used <= 1 {
			return math.Inf(1)
		}
		return float64(s.reset+tolerance) / (s.used - 1)
	}
	shortest := func(s said) float64 { return float64(max(0, s.reset-2*tolerance)) / max(1, s.used) }
	gap := max(shortest(a)-longest(b), shortest(b)-longest(a))
	return time.Duration(max(0, gap) * max(1, min(a.used, b.used)))
}

// trusted says that the limit moves as some shape foretells.
func (r *shaper) trusted() bool { return r.wrong < maxWrong }
