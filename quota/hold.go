package quota

import "time"

// HoldBack tells that something beside the budgets refused a request, such as the
// pace of its provider, and for how long requests are held back. It is counted and
// told of like a refusal of [Governor.Approve]: the global scope is in an episode of
// throttle until then. The budgets approve as before.
func (g *Governor) HoldBack(now time.Duration, r Request, wait time.Duration) {
	now = g.tick(now)
	var c claim
	d := Decision{Reason: Throttled, Code: CodeThrottled, RetryIn: max(wait, 0)}
	if !g.claim(now, &r, &c, &d) {
		return // which is no request that could be held back
	}
	n := g.root.node
	n.sync(now)
	if n.state != Exhausted {
		n.heldBack = max(n.heldBack, later(now, d.RetryIn))
		if n.state != Throttle {
			g.transition(n, HeldBack, now)
		}
		g.reschedule(n, now)
	}
	g.deny(now, &c, &d)
}
