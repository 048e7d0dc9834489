package fit

import (
	"math"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// point is an attempt as a limiter sees it.
type point struct {
	at, end time.Duration // when it arrived, and when the work on it was over
	pool    string
	refused bool
}

// rule is a limit whose size is still open: what it has in use when an attempt arrives.
type rule struct {
	kind    scenario.Kind
	align   scenario.Align
	window  time.Duration
	rate    float64 // a bucket's, tokens a second
	burst   float64 // a bucket's
	counted bool    // refused attempts use it up too
}

// usage appends what is in use as each point arrives. What was let through is booked,
// and what was refused is not, whatever the rule would have said: one mistake leads to no
// other.
func (r *rule) usage(points []point, to []float64) []float64 {
	switch r.kind {
	case scenario.TokenBucket:
		return r.bucket(points, to)
	case scenario.FixedWindow:
		return r.fixed(points, to)
	case scenario.SlidingWindow:
		return r.sliding(points, to)
	default:
		return underWay(points, to)
	}
}

// bucket says how many tokens are missing. Each attempt says how many must have been:
// less than a whole bucket when it was let through, at least all but one when it was
// refused. So a rate that is somewhat wrong is so for a few attempts, and not for ever.
func (r *rule) bucket(points []point, to []float64) []float64 {
	missing, last := 0.0, time.Duration(0)
	for i := range points {
		p := &points[i]
		missing = max(0, missing-r.rate*(p.at-last).Seconds())
		last = p.at
		to = append(to, missing)
		if p.refused {
			missing = max(missing, r.burst-1)
		} else {
			missing = min(missing, r.burst-1) + 1
		}
	}
	return to
}

func (r *rule) fixed(points []point, to []float64) []float64 {
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
		to = append(to, float64(used))
		if !p.refused || r.counted && used > 0 {
			used++
		}
	}
	return to
}

func (r *rule) sliding(points []point, to []float64) []float64 {
	used, from := 0, 0
	counts := func(p *point) bool { return !p.refused || r.counted }
	for i := range points {
		for ; points[from].at <= points[i].at-r.window; from++ {
			if counts(&points[from]) {
				used--
			}
		}
		to = append(to, float64(used))
		if counts(&points[i]) {
			used++
		}
	}
	return to
}

func underWay(points []point, to []float64) []float64 {
	var ends []time.Duration // in order
	for i := range points {
		p := &points[i]
		over, _ := slices.BinarySearch(ends, p.at+1)
		ends = slices.Delete(ends, 0, over)
		to = append(to, float64(len(ends)))
		if !p.refused {
			j, _ := slices.BinarySearch(ends, p.end)
			ends = slices.Insert(ends, j, p.end)
		}
	}
	return to
}

// tally counts points on one side of a limit, and the refused of them.
type tally struct{ all, refused float64 }

// surprise is how much is left open when all that is known of points is their tally, in
// nats: nothing where all of them had the same fate.
func (t tally) surprise() float64 {
	s := 0.0
	for _, n := range [2]float64{t.refused, t.all - t.refused} {
		if n > 0 {
			s += n * math.Log(t.all/n)
		}
	}
	return s
}

// cut is a size for a rule: more in use than above, and an attempt is refused. Any
// other from low to high says the same of the trace.
type cut struct {
	above, low, high float64
	open             float64 // the surprise that is left
}

// bins is how finely sizes differ.
const bins = 4096

// bestCut is the size that leaves least open. Points of which mine is false are not the
// rule's; those that are refused by other limits already are full.
func bestCut(points []point, mine, full []bool, usage []float64) cut {
	var held, room tally // full by others; and the rest
	low, high := math.Inf(1), math.Inf(-1)
	k := 0
	for i := range points {
		t := &room
		if full[i] {
			t = &held
		}
		t.add(points[i].refused)
		if mine[i] {
			if !full[i] {
				low, high = min(low, usage[k]), max(high, usage[k])
			}
			k++
		}
	}
	best := cut{above: math.Inf(1), low: math.Inf(1), high: math.Inf(1), open: held.surprise() + room.surprise()}
	if high <= low {
		return best
	}
	width := (high - low) / (bins - 1)
	if high-low < bins && whole(low, high) {
		width = 1
	}
	var sides [bins]tally
	k = 0
	for i := range points {
		if !mine[i] {
			continue
		}
		if !full[i] {
			sides[int((usage[k]-low)/width)].add(points[i].refused)
		}
		k++
	}
	for b := bins - 1; b > 0; b-- {
		s := sides[b]
		if s.all == 0 {
			continue
		}
		held.all, held.refused = held.all+s.all, held.refused+s.refused
		room.all, room.refused = room.all-s.all, room.refused-s.refused
		if held.refused*room.all <= room.refused*held.all {
			continue // it would refuse what was rather let through
		}
		if open := held.surprise() + room.surprise(); open < best.open {
			below := b - 1 // the next value that was seen
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

// cutAt is the best of some sizes.
func cutAt(points []point, mine, full []bool, usage []float64, sizes ...float64) cut {
	best := cut{open: math.Inf(1)}
	for _, above := range sizes {
		var held, room tally
		k := 0
		for i := range points {
			over := full[i]
			if mine[i] {
				over = over || usage[k] > above
				k++
			}
			if over {
				held.add(points[i].refused)
			} else {
				room.add(points[i].refused)
			}
		}
		if held.refused*room.all <= room.refused*held.all {
			continue // it would refuse what was rather let through
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
