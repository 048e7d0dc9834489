package quota

import (
	"slices"
	"time"
)

// prospect is how long w would wait if it came now, for those who go before it by their
// priority and share, and the scope on its path that takes longest; zero when nobody
// waits. Those of another tenant count only for scopes that all have in common.
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

// heldElsewhere reports whether a scope that is not on w's path keeps other waiting now.
// What both have in common is left to w meanwhile, so that the queue for one slow model
// refuses nobody who asks for another one.
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

// serves is how long the scope's buckets and window take for so many nano-units and so
// many tokens.
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
	if windowed > l.softBudget { // it takes more than one window
		return max(wait, time.Duration(share(int64(l.softSpan), windowed, l.softBudget)))
	}
	return max(wait, n.window.falls(l.softBudget-windowed, now)-now)
}

// forgetShares has the queue forget what was served when nobody waits and all that
// tenants have in common is full again.
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

// eachCommon visits the scopes that all tenants have in common.
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

// setBurst tells the queue what the slowest of the common budgets holds when it is full.
func (g *Governor) setBurst() {
	g.queue.Burst, g.full = 0, 0
	for n := range g.eachCommon {
		g.queue.Burst = max(g.queue.Burst, n.refillTime())
	}
}

// common reports whether all tenants have the scope in common.
func (n *node) common() bool { return n.scope.Tenant == "" && n.scope.Agent == "" }

// costs are in parts of a microsecond, so that little is lost where they are divided by
// a weight.
const costParts = 1 << 10

// cost is the claim's dominant share of what tenants have in common, the global
// budgets and the model's: the longest time that one of them takes to refill it.
func (c *claim) cost() int64 {
	longest := int64(1)
	for _, n := range c.route.nodes {
		if n.common() {
			longest = max(longest, c.costAt(n))
		}
	}
	return longest
}

// costAt is how long the slowest budget of a scope takes to refill the claim.
func (c *claim) costAt(n *node) int64 { return n.refills(&c.taken, c.windowed) }

// refillTime is how long the slowest budget of the scope takes to fill.
func (n *node) refillTime() int64 {
	var full amount
	for k := range full {
		full[k] = n.limits.refill[k].capacity / nano
	}
	return n.refills(&full, n.limits.softBudget)
}

// refills is how long the slowest budget of the scope takes to refill so much, in
// [costParts] of a microsecond, at most 1<<50.
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
