// Package pace answers one question: may an attempt be sent at this instant,
// and if not, when? It is the generic cell rate algorithm (GCRA) in its
// virtual-scheduling form, with a floor under the distance between any two
// attempts.
//
// It does not decide how fast to go (package control does), does not wait, and
// knows nothing of responses. Use golang.org/x/time/rate when the rate is known
// and never changes.
//
// A [GCRA] is a plain value of a few words; it is not safe for concurrent use:
// its owner holds a lock around it. Both verbs take constant time and do not
// allocate. Instants are durations since an origin that the caller fixes;
// arithmetic is in integer nanoseconds.
//
// Source: ITU-T Recommendation I.371, annex A (GCRA, virtual scheduling).
package pace

import (
	"time"
)

// Params is what governs one admission. It is passed with each call, so that a
// law can move the interval at any time.
type Params struct {
	// Interval is the emission interval I: the sustained distance between attempts.
	Interval time.Duration
	// Tolerance is the burst tolerance L: how much idle time may be credited.
	// The effective capacity is Interval + Tolerance.
	Tolerance time.Duration
	// Ceiling is the smallest distance ever allowed between two attempts,
	// whatever credit there is. Interval is never taken as less.
	Ceiling time.Duration
}

// GCRA is the state of one paced sequence of attempts. The zero value has sent
// nothing: its first attempt conforms at any instant.
type GCRA struct {
	tat  time.Duration // theoretical arrival time of the next attempt; zero means no attempt yet
	last time.Duration // the newest admission
	seen time.Duration // the latest instant ever passed in
}

// Next is the earliest instant at which an attempt conforms under p. It
// changes nothing. Before the first admission it is the smallest instant there is.
func (g *GCRA) Next(p Params) time.Duration {
	if g.tat == 0 {
		return -1 << 63
	}
	// Credit brings the next attempt forward, but never closer to the last one
	// than the ceiling's interval: one attempt on idle credit may be immediate,
	// the one after it may not.
	return max(g.tat-p.Tolerance, g.last+p.Ceiling)
}

// Admit commits an attempt at now when it conforms. Otherwise it changes
// nothing that admits and says when one would conform.
//
// An instant before the latest one seen counts as that one: a clock that steps
// back never admits more than a clock that stands still.
func (g *GCRA) Admit(now time.Duration, p Params) (next time.Duration, ok bool) {
	if g.tat == 0 {
		g.seen, g.tat = now, now
	} else {
		g.seen = max(g.seen, now)
		now = g.seen
		if next = max(g.tat-p.Tolerance, g.last+p.Ceiling); now < next {
			return next, false
		}
	}
	g.last = now
	if g.tat = max(g.tat, now) + max(p.Interval, p.Ceiling); g.tat == 0 {
		g.tat = 1 // zero stands for no attempt yet
	}
	return now, true
}
