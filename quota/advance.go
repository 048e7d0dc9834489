package quota

import (
	"math"
	"time"
)

// Advance does what is due up to now: it ends episodes, turns days, expires permits and
// restores scale factors. Every other method does the same first. Each move carries the
// instant at which it was due, however late Advance is called.
func (g *Governor) Advance(now time.Duration) { g.tick(now) }

// NextTransition returns the earliest instant at which something may change by itself:
// set a timer for it, then call [Governor.Advance], and [Governor.Grants] if requests
// wait. ok is false if nothing will ever be due. The instant may be early but is never
// late.
func (g *Governor) NextTransition(now time.Duration) (at time.Duration, ok bool) {
	now = g.tick(now)
	at = g.earliest()
	if g.queue.Len() > 0 {
		at = min(at, max(now, g.retry))
		for _, w := range g.waiting {
			at = min(at, w.deadline)
		}
	}
	return at, at != math.MaxInt64
}

// tick brings the governor up to now. An instant before the latest one seen counts as
// that one.
func (g *Governor) tick(now time.Duration) time.Duration {
	if now < g.seen {
		return g.seen
	}
	if now >= g.due {
		g.catchUp(now)
	}
	g.seen = now
	return now
}

// earliest returns the first instant at which something may happen.
func (g *Governor) earliest() time.Duration {
	at := time.Duration(math.MaxInt64)
	for _, c := range g.calendars {
		at = min(at, c.end)
	}
	if len(g.schedule) > 0 {
		at = min(at, g.schedule[0].due)
	}
	if p := &g.permits; p.oldest != 0 {
		at = min(at, p.slots[p.oldest-1].at+g.ttl)
	}
	return at
}

// catchUp does what is due up to now in order: days turn, then permits expire, then
// scopes move.
func (g *Governor) catchUp(now time.Duration) {
	for {
		due := g.earliest()
		if due > now {
			g.due = due
			return
		}
		at := max(due, g.seen)
		g.seen = at
		turned := false
		for _, c := range g.calendars {
			if c.end <= at {
				c.anchor(g.origin, at)
				turned = true
			}
		}
		if turned {
			continue
		}
		if p := &g.permits; p.oldest != 0 && p.slots[p.oldest-1].at+g.ttl <= due {
			h := &p.slots[p.oldest-1]
			g.expire(at, Permit{p.oldest, h.serial}, h)
			continue
		}
		n := g.schedule[0]
		n.sync(at)
		g.reconsider(n, at)
	}
}

// reconsider moves a scope to the state that its numbers call for, and sets when to look
// again. The node must be synced to at.
func (g *Governor) reconsider(n *node, at time.Duration) {
	if n.retired {
		return
	}
	switch {
	case n.state == Exhausted && n.day > n.spentOn:
		g.transition(n, DayTurned, at)
	case n.state == Exhausted && !n.nearlySpent():
		g.transition(n, RoomMade, at)
	case n.state == Throttle && n.ready(true) <= at:
		g.transition(n, Resume, at)
	}
	if n.state != Exhausted && n.spent() {
		g.transition(n, CapReached, at)
	}
	switch n.state {
	case Normal:
		if g.strained(n, at) {
			g.transition(n, SoftReached, at)
		}
	case Soft:
		if g.relieved(n, at) {
			g.transition(n, SoftRelieved, at)
		}
	case Throttle, Exhausted, states:
	}
	if n.stepAt > 0 && n.stepAt <= at {
		g.stepScale(n, at)
	}
	g.rescale(n, at, stir)
	g.reschedule(n, at)
}

// observe is reconsider for a scope that was only charged: cheap if it is normal and
// stays so.
func (g *Governor) observe(n *node, at time.Duration) {
	if n.retired {
		return
	}
	if n.state == Normal {
		if g.strained(n, at) || n.spent() {
			g.reconsider(n, at)
		}
		return
	}
	if n.state != Exhausted && n.spent() {
		g.reconsider(n, at)
		return
	}
	g.rescale(n, at, stir)
}

// press begins the episode that a refusal indicates.
func (g *Governor) press(n *node, v *verdict, c *claim, at time.Duration) {
	if n.retired {
		return
	}
	for k := range n.bucket {
		if v.lacking&(1<<k) != 0 {
			n.wanted[k] = max(n.wanted[k], c.taken[k]*nano)
		}
	}
	n.lacking |= v.lacking
	if v.over {
		n.softWanted = max(n.softWanted, c.windowed)
	}
	switch {
	case v.capType != "" && v.wait != Never && n.state != Exhausted && n.nearlySpent():
		g.transition(n, CapReached, at)
	case v.lacking != 0 && (n.state == Normal || n.state == Soft):
		g.transition(n, BucketEmpty, at)
	case v.over && n.state == Normal:
		g.transition(n, SoftReached, at)
	case n.state == Normal:
		n.lacking, n.wanted = 0, [kinds]int64{}
	}
	g.reschedule(n, at)
}

// ready returns the instant at which nothing is held back any more and every bucket that
// was short holds what was wanted. With spare it must hold some more: the margin keeps an
// episode from ending at each token.
func (n *node) ready(spare bool) time.Duration {
	at := max(n.refilled, n.heldBack)
	for k := range n.bucket {
		if n.lacking&(1<<k) == 0 {
			continue
		}
		r, need := &n.limits.refill[k], n.wanted[k]
		if spare && k == calls {
			need = min(need+nano, r.capacity)
		} else if spare {
			need = min(need+r.capacity/10, r.capacity)
		}
		at = max(at, later(n.refilled, n.bucket[k].wait(r, need)))
	}
	return at
}

// later returns at + d, or the end of time.
func later(at, d time.Duration) time.Duration {
	if d > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + d
}

// look returns when the scope has to be looked at next.
func (n *node) look(at time.Duration) time.Duration {
	due := time.Duration(math.MaxInt64)
	switch n.state {
	case Throttle:
		due = n.ready(true)
	case Exhausted:
		due = n.limits.calendar.end
	case Soft:
		due = max(n.foreseen, at)
		if n.window != nil {
			due = max(due, n.window.falls(n.relief(), at))
		}
	case Normal, states:
	}
	if n.stepAt > 0 {
		due = min(due, n.stepAt)
	}
	return due
}
