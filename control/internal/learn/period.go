package learn

import (
	"math"
	"time"
)

// span is a block: when the refusal happened, and the two instants between which the
// provider began to admit again.
type span struct {
	refused, low, high time.Duration
	refusals           float64 // all refusals, with those of attempts that were in flight
}

// spans are the newest blocks. They reveal a window that begins with the clock, since all
// of them end when one begins.
type spans struct {
	ring [5]span // the newest first
	n    int
}

func (s *spans) add(b *block, lost float64) {
	copy(s.ring[1:], s.ring[:])
	s.ring[0] = span{b.began, b.freedFrom(), b.release, lost}
	s.n = min(s.n+1, len(s.ring))
}

// clockWindow is a window that begins with the clock: a number of attempts in each period of it.
type clockWindow struct {
	length time.Duration
	size   float64
	slides bool // a sliding window would explain the ends of the blocks too
}

// clockWindow returns the first one of a usual length that explains all the blocks, if there is one.
func (s *spans) clockWindow(v *view) (clockWindow, bool) {
	for _, length := range v.likely.lengths() {
		if p, ok := s.match(v, length); ok {
			return p, true
		}
	}
	return clockWindow{}, false
}

// match reports whether windows of a length that begin by the wall clock explain the known
// blocks: each block ended when one began, with the same number of attempts since the one
// before, and so many blocks hardly end so by chance.
func (s *spans) match(v *view, length time.Duration) (clockWindow, bool) {
	if s.n < 2 {
		return clockWindow{}, false
	}
	chance, least, most, kept := 1.0, math.Inf(1), 0.0, 0
	near := min(length/50, time.Second)
	for i := range s.n {
		x := &s.ring[i]
		if x.low-x.refused >= length || begins(x.high+near, length, v.phase) <= x.low-near {
			return clockWindow{}, false
		}
		used := v.h.between(attempts, begins(x.refused, length, v.phase), x.refused)
		least, most = min(least, used), max(most, used)
		chance *= min(1, float64(x.high-x.low+near)/float64(length))
		if x.low-x.refused > length/20 {
			kept++ // a rate has room again soon
		}
	}
	if v.likely.has(length) {
		chance, kept = 0, kept+1 // the owner vouches for it
	}
	if chance > clockOdds || kept < 2 || most < 2 || most-least > max(1, most/30) {
		return clockWindow{}, false
	}
	end := begins(v.now, length, v.phase)
	for range 20 { // a bound that is never reached
		if v.h.between(attempts, end-length, end-1) > 1.03*most+1 {
			return clockWindow{}, false
		}
		end -= length
	}
	p := clockWindow{length, most, true}
	for i := range s.n {
		x := &s.ring[i]
		at := v.h.newest(attempts, x.refused, most) + length
		p.slides = p.slides && at > x.low-length/20 && at < x.high+length/20 && v.h.used(attempts, x.refused, length) < most+2
	}
	return p, true
}

// counter returns what is in use at t of a window that the provider counts in periods from
// an instant on: attempts of the period before leave evenly, in no order. A refused attempt
// counts with that weight.
func (s *spans) counter(v *view, t, from, length time.Duration, weight float64) float64 {
	start := from + (t-from)/length*length
	in := func(low, high time.Duration) float64 {
		n := v.h.between(attempts, low, high)
		for i := range s.n {
			if x := &s.ring[i]; x.refused >= low && x.refused <= high && x.refused < t {
				n += weight * x.refusals
			}
		}
		return n
	}
	return float64(start+length-t)/float64(length)*in(start-length, start-1) + in(start, t)
}

// counted returns the length and the size of a window that the provider counts in periods,
// if one of a usual length from low to high explains the newest blocks and the refusal of
// an attempt that was sent at an instant. The periods begin with the clock, with the first
// attempt, or with the first one after a pause.
func (s *spans) counted(v *view, blocks int, began, sent, low, high time.Duration) (length time.Duration, size float64, ok bool) {
	if s.n < blocks {
		return 0, 0, false
	}
	before := began
	if blocks < s.n {
		before = s.ring[blocks].high
	}
	for _, u := range v.likely.lengths() {
		if u < low || u > high {
			continue
		}
		for _, from := range [...]time.Duration{began, before, begins(began, u, v.phase)} {
			for _, weight := range [...]float64{1, 0} { // refused attempts may count
				if size, ok := s.alike(v, blocks, sent, from, u, weight); ok {
					return u, size, true
				}
			}
		}
	}
	return 0, 0, false
}

// alike returns the size of a window that is counted in such periods, if as much was in use
// at each refusal, and less at each release.
func (s *spans) alike(v *view, blocks int, sent, from, length time.Duration, weight float64) (size float64, ok bool) {
	least, most, next := math.Inf(1), 0.0, sent
	for i := range blocks {
		x := &s.ring[i]
		if next-x.refused > 2*length || next-x.refused < length/10 {
			return 0, false
		}
		used := s.counter(v, x.refused, from, length, weight)
		least, most, next = min(least, used), max(most, used), x.refused
	}
	size = math.Floor(least)
	used := s.counter(v, sent, from, length, weight) + 1 - size
	if chance := countedTries * math.Pow(2*countedError/size, float64(blocks)); size < minCounted || chance > countedOdds || used <= 0 || max(most-size, used) > countedError {
		return 0, false
	}
	for i := range blocks {
		x := &s.ring[i]
		if s.counter(v, x.high, from, length, weight) >= size+1 || s.counter(v, x.low, from, length, weight) <= size-1 {
			return 0, false
		}
	}
	return size, true
}
