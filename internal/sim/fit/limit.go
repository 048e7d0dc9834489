package fit

import (
	"math"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// point is an attempt as the limiter sees it.
type point struct {
	at, end time.Duration // its arrival, and the end of its work
	pool    string
	refused bool
}

// rule is a limit without a size: it computes how much is in use when an attempt arrives.
type rule struct {
	kind    scenario.Kind
	align   scenario.Align
	window  time.Duration
	rate    float64 // of a bucket, in tokens a second
	burst   float64 // of a bucket
	counted bool    // refused attempts count too
}

// usage returns how much is in use as each point arrives; it reuses to if that is large
// enough. Admitted attempts are booked and refused ones are not, whatever the rule would
// have decided, so that one mistake does not lead to others.
func (r *rule) usage(points []point, to []float64) []float64 {
	to = slices.Grow(to[:0], len(points))[:len(points)]
	switch r.kind {
	case scenario.TokenBucket:
		r.bucket(points, to)
	case scenario.FixedWindow:
		r.fixed(points, to)
	case scenario.SlidingWindow:
		r.sliding(points, to)
	default:
		underWay(points, to)
	}
	return to
}

// bucket computes how many tokens are missing at each point. Every attempt corrects the
// count: less than a whole bucket was missing if it was admitted, at least all tokens
// but one if it was refused. So the error of a slightly wrong rate lasts for a few
// attempts and does not add up.
func (r *rule) bucket(points []point, to []float64) {
	missing, last := 0.0, time.Duration(0)
	for i := range points {
		p := &points[i]
		missing = max(0, missing-r.rate*(p.at-last).Seconds())
		last = p.at
		to[i] = missing
		if p.refused {
			missing = max(missing, r.burst-1)
		} else {
			missing = min(missing, r.burst-1) + 1
		}
	}
}

func (r *rule) fixed(points []point, to []float64) {
	used, end := 0, time.Duration(math.MinInt64)
	for i := range points {
		p := &points[i]
		if p.at >= end {
			used = 0
			switch {
			case r.align == scenario.AlignEpoch:
				end = p.at - p.at%r.window + r.window
			case !p.refused:
				end = p.at + r.window
			}
		}
		to[i] = float64(used)
		if !p.refused || r.counted && used > 0 {
			used++
		}
	}
}

func (r *rule) sliding(points []point, to []float64) {
	used, from := 0, 0
	counts := func(p *point) bool { return !p.refused || r.counted }
	for i := range points {
		for ; points[from].at <= points[i].at-r.window; from++ {
			if counts(&points[from]) {
				used--
			}
		}
		to[i] = float64(used)
		if counts(&points[i]) {
			used++
		}
	}
}

func underWay(points []point, to []float64) {
	var ends []time.Duration // in order
	for i := range points {
		p := &points[i]
		over, _ := slices.BinarySearch(ends, p.at+1)
		ends = slices.Delete(ends, 0, over)
		to[i] = float64(len(ends))
		if !p.refused {
			j, _ := slices.BinarySearch(ends, p.end)
			ends = slices.Insert(ends, j, p.end)
		}
	}
}

// tally counts the points on one side of a limit, and how many of them were refused.
type tally struct{ all, refused float64 }

// surprise is the entropy of the points' fates, in nats, if only their tally is known: 0
// if all had the same fate.
func (t tally) surprise() float64 {
	s := 0.0
	for _, n := range [2]float64{t.refused, t.all - t.refused} {
		if n > 0 {
			s += n * math.Log(t.all/n)
		}
	}
	return s
}

// cut is a size for a rule: an attempt that finds more than above in use is refused.
// Every size from low to high explains the trace equally well.
type cut struct {
	above, low, high float64
	open             float64 // the surprise that is left
}

// bins is how many sizes are distinguished.
const bins = 4096

// bestCut finds the size that explains the trace best, given what is in use at each
// point.
func (s *scope) bestCut() cut {
	held, room := s.held, s.room
	low, high := math.Inf(1), math.Inf(-1)
	for i, f := range s.fates {
		if f != Unclear {
			used := s.used[i]
			low, high = min(low, used), max(high, used)
		}
	}
	best := cut{above: math.Inf(1), low: math.Inf(1), high: math.Inf(1), open: s.none()}
	if high <= low {
		return best
	}
	width := (high - low) / (bins - 1)
	if high-low < bins && whole(low, high) {
		width = 1
	}
	last := int((high - low) / width)
	if s.sides == nil {
		s.sides = make([]tally, bins)
	}
	sides := s.sides[:last+1]
	clear(sides)
	for i, f := range s.fates {
		if f != Unclear {
			sides[int((s.used[i]-low)/width)].add(f == Refused)
		}
	}
	for b := last; b > 0; b-- {
		side := sides[b]
		if side.all == 0 {
			continue
		}
		held.all, held.refused = held.all+side.all, held.refused+side.refused
		room.all, room.refused = room.all-side.all, room.refused-side.refused
		if held.refused*room.all <= room.refused*held.all {
			continue // it would refuse mostly admitted attempts
		}
		if open := held.surprise() + room.surprise(); open < best.open {
			below := b - 1 // the next value that occurs
			for below > 0 && sides[below].all == 0 {
				below--
			}
			best = cut{low: low + width*float64(below), high: low + width*float64(b), open: open}
			if width != 1 {
				best.low += width // the end of a bin
			}
			best.above = (best.low + best.high) / 2
		}
	}
	return best
}

// cutAt returns the best of some sizes.
func (s *scope) cutAt(sizes [3]float64) cut {
	var over [3]struct{ all, refused int }
	for i, f := range s.fates {
		if f == Unclear {
			continue
		}
		used := s.used[i]
		for j, above := range sizes {
			if used > above {
				over[j].all++
				if f == Refused {
					over[j].refused++
				}
			}
		}
	}
	best := cut{open: math.Inf(1)}
	for j, above := range sizes {
		all, refused := float64(over[j].all), float64(over[j].refused)
		held := tally{s.held.all + all, s.held.refused + refused}
		room := tally{s.room.all - all, s.room.refused - refused}
		if held.refused*room.all <= room.refused*held.all {
			continue // it would refuse mostly admitted attempts
		}
		if open := held.surprise() + room.surprise(); open < best.open {
			best = cut{above: above, low: above, high: above, open: open}
		}
	}
	return best
}

func whole(a, b float64) bool { return a == math.Trunc(a) && b == math.Trunc(b) }

func (t *tally) add(refused bool) {
	t.all++
	if refused {
		t.refused++
	}
}
