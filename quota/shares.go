package quota

import (
	"slices"
	"time"
)

// prospect estimates how long w would wait if it came now, behind those that go first by
// priority and share, and returns the scope on its path that takes longest; zero if none
// waits. Requests of other tenants count only in scopes that all tenants share.
func (g *Governor) prospect(now time.Duration, w *waiter) (longest time.Duration, slowest *node) {
	if len(g.waiting) == 0 {
		return 0, nil
	}
	for _, n := range w.claim.route.nodes {
		if n.limits.mask == 0 && !n.limits.soft {
			continue
		}
		n.sync(now)
		wait := time.Duration(0)
		if n.common() {
			wait = g.queue.Wait(now, w.request(), w, func(other *waiter) int64 {
				if other != w && (!slices.Contains(other.claim.route.nodes, n) || g.heldElsewhere(now, other, w)) {
					return 0
				}
				return max(1, other.claim.costAt(n))
			}, func(work int64) time.Duration { return g.served(now, n, &w.claim, work) })
		} else {
			need, windowed := w.claim.taken, w.claim.windowed
			for _, other := range g.waiting {
				if other != w && other.priority >= w.priority && slices.Contains(other.claim.route.nodes, n) && !g.heldElsewhere(now, other, w) {
					for k := range need {
						need[k] = min(need[k]+other.claim.taken[k], 4*nano)
					}
					windowed += other.claim.windowed
				}
			}
			for k := range need {
				need[k] *= nano
			}
			wait = n.serves(now, need, windowed)
		}
		if wait > longest {
			longest, slowest = wait, n
		}
	}
	return longest, slowest
}

// heldElsewhere reports whether a scope that is not on w's path holds other up now. Until
// that ends, w may use what both need, so that the queue for one slow model refuses no
// request for another one.
func (g *Governor) heldElsewhere(now time.Duration, other, w *waiter) bool {
	for _, n := range other.claim.route.nodes {
		if slices.Contains(w.claim.route.nodes, n) {
			continue
		}
		n.sync(now)
		if n.examine(now, &other.claim).reason != "" {
			return true
		}
	}
	return false
}

// serves returns how long the scope's buckets and window take for the given nano-units
// and tokens.
func (n *node) serves(now time.Duration, need amount, windowed int64) (wait time.Duration) {
	l := n.limits
	for k := range n.bucket {
		if l.mask&(1<<k) != 0 {
			wait = max(wait, n.bucket[k].wait(&l.refill[k], min(need[k], 4*nano*nano)))
		}
	}
	if n.window == nil || l.policy == Advise {
		return wait
	}
	if windowed > l.softBudget { // more than one window is needed
		return max(wait, time.Duration(share(int64(l.softSpan), windowed, l.softBudget)))
	}
	return max(wait, n.window.falls(l.softBudget-windowed, now)-now)
}

// forgetShares makes the queue forget what was served once it is empty and all budgets
// that tenants share are full again.
func (g *Governor) forgetShares(now time.Duration) {
	if g.queue.Len() > 0 || g.queue.Flows() == 0 || now < g.full {
		return
	}
	g.full = now
	for n := range g.eachCommon {
		n.sync(now)
		for k := range n.bucket {
			if n.limits.mask&(1<<k) != 0 {
				g.full = max(g.full, later(now, n.bucket[k].wait(&n.limits.refill[k], n.limits.refill[k].capacity)))
			}
		}
		if n.window != nil {
			g.full = max(g.full, n.window.falls(0, now))
		}
	}
	if g.full <= now {
		g.queue.Full(now)
	}
}

// eachCommon iterates over the scopes that all tenants share.
func (g *Governor) eachCommon(yield func(*node) bool) {
	if !yield(g.root.node) {
		return
	}
	for _, n := range g.root.byModel {
		if !yield(n) {
			return
		}
	}
}

// setBurst sets the queue's Burst to the capacity of the slowest common budget.
func (g *Governor) setBurst() {
	g.queue.Burst, g.full = 0, 0
	for n := range g.eachCommon {
		g.queue.Burst = max(g.queue.Burst, n.refillTime())
	}
}

// common reports whether all tenants share the scope.
func (n *node) common() bool { return n.scope.Tenant == "" && n.scope.Agent == "" }

// costParts is the number of parts of a microsecond that costs are counted in, so that
// division by a weight loses little.
const costParts = 1 << 10

// cost returns the claim's dominant share of what tenants share, the global budgets and
// the model's: the longest time that one of them takes to refill it.
func (c *claim) cost() int64 {
	longest := int64(1)
	for _, n := range c.route.nodes {
		if n.common() {
			longest = max(longest, c.costAt(n))
		}
	}
	return longest
}

// costAt returns how long the slowest budget of a scope takes to refill the claim.
func (c *claim) costAt(n *node) int64 { return n.refills(&c.taken, c.windowed) }

// refillTime returns how long the slowest budget of the scope takes to fill.
func (n *node) refillTime() int64 {
	var full amount
	for k := range full {
		full[k] = n.limits.refill[k].capacity / nano
	}
	return n.refills(&full, n.limits.softBudget)
}

// refills returns how long the slowest budget of the scope takes to refill the amounts,
// in [costParts] of a microsecond, at most 1<<50.
func (n *node) refills(taken *amount, windowed int64) int64 {
	longest := time.Duration(0)
	l := n.limits
	for k := range n.bucket {
		if l.mask&(1<<k) != 0 {
			var empty bucket
			longest = max(longest, empty.wait(&l.refill[k], taken[k]*nano))
		}
	}
	if l.soft {
		longest = max(longest, time.Duration(share(int64(l.softSpan), windowed, l.softBudget)))
	}
	return min(int64(longest/time.Microsecond), 1<<40) * costParts
}
