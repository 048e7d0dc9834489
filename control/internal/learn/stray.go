package learn

import "math"

// strays recognizes refusals that no pace avoids. An overloaded provider refuses one attempt in a
// hundred, however few are sent, and a client that slows down after each of them ends far below its
// limit.
//
// It shows when the pace has fallen and refusals come as often as before. Then the law goes back to
// the pace from before the fall, and as long as refusals come no more often than that, it takes no
// notice of them. A limit refuses more often, so its refusals are still noticed.
type strays struct {
	last   [strayRefusals]isolated // the last refusals
	n      int                     // how many of them in a row may be strays
	gap    float64                 // attempts admitted since the newest refusal
	before float64                 // the same when that came
	mean   float64                 // attempts admitted between two strays; 0 while no refusals are known to be strays
	first  float64                 // the first such mean
	above  float64                 // how much more often attempts were refused lately
	failed int                     // how often there were none after all

	// Since the mean was last found:
	admitted float64
	refused  float64 // strays
	limits   float64 // refusals that came too often
}

// isolated is the refusal of one attempt, after which the next one was admitted.
type isolated struct {
	pace float64 // attempts a second before it
	gap  float64 // attempts admitted since the refusal before
}

// admit counts an attempt that was admitted.
func (s *strays) admit() {
	s.gap++
	s.admitted++
	if s.mean > 0 && s.admitted > strayReview*s.mean {
		s.review()
	}
}

// refuse counts a refusal, and reports whether it is a stray: if many come soon after one another, the
// last of them is not.
func (s *strays) refuse() bool {
	s.before, s.gap = s.gap, 0
	if s.mean == 0 {
		return false
	}
	if s.above = max(0, s.above-strayDrift*s.before/s.mean) + 1; s.above < strayMost {
		s.refused++
		return true
	}
	s.above = 0
	s.limits++
	return false
}

// review takes the mean anew. There are no strays any more if refusals are rare, or so frequent that a
// limit explains them.
func (s *strays) review() {
	strays := s.refused - (strayMost-1)*s.limits // without those that preceded a refusal by a limit
	mean := s.admitted / max(1, strays)
	if mean > strayRare*s.mean || mean < max(strayLeast, s.first/strayMore) {
		if s.mean == s.first {
			s.failed++
		}
		s.mean, s.n = 0, 0
		return
	}
	s.mean, s.admitted, s.refused, s.limits = mean, 0, 0, 0
}

// add notes an isolated refusal. It returns the pace from before the fall if the pace has fallen
// and refusals come as often as before.
func (s *strays) add(x isolated) (pace float64, found bool) {
	if s.mean > 0 {
		return 0, false
	}
	s.last[s.n%strayRefusals] = x
	if s.n++; s.n < strayRefusals {
		return 0, false
	}
	var older, newer float64 // attempts admitted before the refusals of either half
	for i := range s.last {
		l := &s.last[(s.n+i)%strayRefusals]
		pace = max(pace, l.pace)
		if i < strayRefusals/2 {
			older += l.gap
		} else {
			newer += l.gap
		}
	}
	mean := (older + newer) / strayRefusals
	if pace < x.pace*math.Pow(strayFall, float64(1+s.failed)) || newer > strayHelped*older || mean < strayLeast {
		return 0, false
	}
	*s = strays{gap: s.gap, before: s.before, mean: mean, first: mean, failed: s.failed}
	return pace, true
}

// RefusedForLoad returns the part of attempts that is refused for load whatever the pace, so that the law does not
// slow down for it; 0 while it knows of no such refusals.
func (l *Law) RefusedForLoad() float64 {
	if l.strays.mean == 0 {
		return 0
	}
	return 1 / (1 + l.strays.mean)
}

// isStray reports whether a refusal is a stray. One for rate, one with a wait, and one that a window or
// a limit in flight explains never are, and do not count.
func (l *Law) isStray(f refusal) bool {
	if f.limited || f.wait > 0 || l.penalty.on() {
		return false
	}
	if x := fullest(l.limits, l.look(), l.sinceRelease(f)); x != nil && !isRate(x) {
		return false
	}
	return l.strays.refuse()
}

// seekStrays looks for strays after a block that was put down to a rate that has learned from a cycle, and goes back to
// the pace of before if there are some.
func (l *Law) seekStrays(v *view, isolatedByRate bool) {
	r := l.rate()
	if !isolatedByRate || r == nil || l.penalty.on() {
		l.strays.n = 0
		return
	}
	if pace, found := l.strays.add(isolated{l.block.pace, l.strays.before}); found {
		*r = *newRate(v.now, pace, strayClimb*pace)
	}
}
