package quota

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Waiter stands for one who waits. The zero Waiter is nobody.
type Waiter uint64

// Grant is the end of a wait: approved, or refused after all.
type Grant struct {
	Waiter Waiter
	Decision
}

// waiter is a request that waits.
type waiter struct {
	id       Waiter
	claim    claim
	cost     int64 // of the claim, by weight
	tenant   *account
	priority int
	deadline time.Duration
}

// Enqueue lets a request wait until deadline. Who goes first: the greater
// priority; then the tenant that has been granted least for its weight while
// others waited (weighted max-min over the scarcest shared budget); then who
// came first. Nobody overtakes on a budget for which somebody before is waiting.
//
// It is refused at once, with a decision, when it is invalid, no wait helps, the
// queue is full, or those certain to go before leave no room in time; then
// waiter is zero. Otherwise the decision is empty but for RetryIn, the shortest
// wait to expect. Call [Governor.Grants] after it, and whenever
// [Governor.NextTransition] says.
func (g *Governor) Enqueue(now time.Duration, r Request, deadline time.Duration) (Waiter, Decision) {
	now = g.tick(now)
	var (
		c claim
		d Decision
	)
	if !g.claim(now, &r, &c, &d) {
		g.deny(now, nil, &d)
		return 0, d
	}
	w := &waiter{claim: c, tenant: c.route.account.tenant(), priority: r.Priority, deadline: deadline}
	w.weigh()
	for _, n := range c.route.nodes {
		n.sync(now)
		v := n.examine(now, &c)
		if wait := g.prospect(now, n, w); wait > v.wait {
			v.wait = wait
			if v.reason == "" {
				v.reason = Throttled
			}
		}
		v.final = v.final || v.wait > 0 && later(now, v.wait) > deadline
		if v.final && !d.Final || v.final == d.Final && v.wait > d.RetryIn {
			d = Decision{Reason: v.reason, Code: codeOf(v.reason, n), Scope: n.scope, RetryIn: v.wait, Final: v.final}
		}
	}
	if !d.Final && int64(len(g.waiting)) >= g.config.MaxWaiting {
		d = Decision{Reason: Throttled, Code: CodeGlobalLimit, RetryIn: max(1, d.RetryIn, g.retry-now), Final: true}
	}
	if d.Final {
		// The refusal begins the same episodes as one of Approve, and says a hard limit
		// before all else too.
		if hard := g.refuse(now, &c); hard.Reason == HardLimit {
			d = hard
		}
		g.expect(now, w, &d)
		g.deny(now, &c, &d)
		return 0, d
	}
	g.waiters++
	w.id = Waiter(g.waiters)
	g.waiting = append(g.waiting, w)
	t := w.tenant
	if len(t.waiters) == 0 {
		g.flows = append(g.flows, t)
		t.virtual = max(t.virtual, g.virtual)
	}
	at, _ := slices.BinarySearchFunc(t.waiters, w, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.id, b.id))
	})
	t.waiters = slices.Insert(t.waiters, at, w)
	c.route.account.open++
	g.retry = now
	return w.id, Decision{RetryIn: d.RetryIn}
}

// codeOf is the code for a kind of refusal by a scope.
func codeOf(r Reason, n *node) Code {
	switch r {
	case HardLimit:
		return CodeHardLimit
	case SoftLimit:
		return CodeSoftLimit
	case Throttled:
		return bucketCode(n)
	}
	return ""
}

// tenant is the account on the level of tenants; the root for those without.
func (a *account) tenant() *account {
	for a.parent != nil && a.parent.parent != nil {
		a = a.parent
	}
	return a
}

// prospect is how long the scope's buckets take to serve all those who are
// certain to go before w, and w.
func (g *Governor) prospect(now time.Duration, n *node, w *waiter) time.Duration {
	if len(g.waiting) == 0 || n.limits.mask == 0 {
		return 0
	}
	need := w.claim.taken
	for _, other := range g.waiting {
		ahead := other.priority > w.priority || other.priority == w.priority && other.tenant == w.tenant
		if ahead && other.claim.route != nil && other.deadline > now && slices.Contains(other.claim.route.nodes, n) {
			for k := range need {
				need[k] = min(need[k]+other.claim.taken[k], 4*nano)
			}
		}
	}
	wait := time.Duration(0)
	for k := range n.bucket {
		if n.limits.mask&(1<<k) != 0 {
			wait = max(wait, n.bucket[k].wait(&n.limits.refill[k], need[k]*nano))
		}
	}
	return wait
}

// weigh works out what the waiter costs its tenant when it is granted.
func (w *waiter) weigh() { w.cost = w.claim.cost() * 1000 / w.tenant.weight }

// expect puts off a refusal's RetryIn, where a wait helps, until w would be served
// if it came back: after those who go before it by their priority and share.
func (g *Governor) expect(now time.Duration, w *waiter, d *Decision) {
	if len(g.waiting) == 0 || d.Reason != Throttled && d.Reason != SoftLimit || d.RetryIn == Never {
		return
	}
	ahead := g.ahead(w)
	for _, n := range w.claim.route.nodes {
		d.RetryIn = max(d.RetryIn, g.serves(now, n, append(ahead, w)))
	}
}

// ahead lists those who would be granted before w if it came now, as far as that
// is known: the greater priority; its own tenant's; of other tenants those whose
// turn comes before, by what each was granted.
func (g *Governor) ahead(w *waiter) (all []*waiter) {
	mine := w.tenant.virtual
	if len(w.tenant.waiters) == 0 {
		mine = max(mine, g.virtual)
	}
	for _, other := range w.tenant.waiters {
		if other != w && other.priority >= w.priority {
			all = append(all, other)
			mine += other.cost
		}
	}
	for _, t := range g.flows {
		if t == w.tenant {
			continue
		}
		theirs := t.virtual
		for _, other := range t.waiters {
			if other.priority > w.priority || other.priority == w.priority && theirs <= mine {
				all = append(all, other)
			}
			theirs += other.cost
		}
	}
	return all
}

// serves is how long the scope's buckets and window take to serve all of those who
// need it.
func (g *Governor) serves(now time.Duration, n *node, all []*waiter) (wait time.Duration) {
	var need amount
	var windowed int64
	for _, w := range all {
		if slices.Contains(w.claim.route.nodes, n) {
			for k := range need {
				need[k] = min(need[k]+w.claim.taken[k], 4*nano)
			}
			windowed = min(windowed+w.claim.windowed, maxDaily)
		}
	}
	n.sync(now)
	l := n.limits
	for k := range n.bucket {
		if l.mask&(1<<k) != 0 {
			wait = max(wait, n.bucket[k].wait(&l.refill[k], need[k]*nano))
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

// Waiting is how many wait.
func (g *Governor) Waiting() int { return len(g.waiting) }

// Withdraw takes a waiter out of the queue; false when it is not in it: it was
// granted or refused before. Call [Governor.Grants] after it.
func (g *Governor) Withdraw(now time.Duration, id Waiter) bool {
	now = g.tick(now)
	at, ok := slices.BinarySearchFunc(g.waiting, id, func(w *waiter, id Waiter) int { return cmp.Compare(w.id, id) })
	if !ok {
		return false
	}
	g.leave(g.waiting[at])
	g.retry = now
	return true
}

// leave removes a waiter.
func (g *Governor) leave(w *waiter) {
	same := func(other *waiter) bool { return other == w }
	g.waiting = slices.DeleteFunc(g.waiting, same)
	t := w.tenant
	t.waiters = slices.DeleteFunc(t.waiters, same)
	if len(t.waiters) == 0 {
		g.flows = slices.DeleteFunc(g.flows, func(a *account) bool { return a == t })
	}
	w.account().open--
}

func (w *waiter) account() *account { return w.claim.route.account }

// reroute finds the path again after the configuration was swapped. A waiter
// for a model that is gone keeps its old path until it is refused.
func (g *Governor) reroute(w *waiter) {
	model := w.claim.route.model.scope.Model
	on := g.routeTo(w.account(), model)
	if on == nil {
		return
	}
	w.claim.route = on
	w.claim.clamp()
	w.weigh()
}

// Grants appends those whose wait is over: approved, in their order, or refused
// because their deadline has come, a cap is used up or their model is gone.
func (g *Governor) Grants(now time.Duration, dst []Grant) []Grant {
	now = g.tick(now)
	for _, w := range slices.Clone(g.waiting) {
		gone := w.claim.route.model.retired
		if w.deadline > now && !gone {
			continue
		}
		d := g.refuse(now, &w.claim)
		switch {
		case gone:
			d = Decision{Reason: HardLimit, Code: CodeModelNotConfigured, Scope: w.claim.route.model.scope, RetryIn: Never}
		case d.Reason == "": // others went before until the end
			d = Decision{Reason: Throttled, Code: bucketCode(w.claim.route.model), Scope: w.claim.route.model.scope, RetryIn: 1}
		}
		g.expect(now, w, &d)
		dst = g.dismiss(now, w, d, dst)
	}
	g.pass++
	g.retry = math.MaxInt64
	for _, t := range g.flows {
		t.cursor = 0
	}
	for w := g.first(); w != nil; w = g.first() {
		var d Decision
		if g.admit(now, &w.claim, &d) {
			t := w.tenant
			g.virtual = max(g.virtual, t.virtual)
			t.virtual += w.cost
			g.leave(w)
			dst = append(dst, Grant{w.id, d})
			continue
		}
		d = g.refuse(now, &w.claim)
		if d.Final {
			dst = g.dismiss(now, w, d, dst)
			continue
		}
		for _, n := range w.claim.route.nodes {
			if v := n.examine(now, &w.claim); v.reason != "" && n.blocked != g.pass {
				n.blocked, n.blockedPriority = g.pass, w.priority
			}
		}
		g.retry = min(g.retry, later(now, d.RetryIn))
	}
	return dst
}

// dismiss ends a wait with a refusal.
func (g *Governor) dismiss(now time.Duration, w *waiter, d Decision, dst []Grant) []Grant {
	d.Final = true
	g.deny(now, &w.claim, &d)
	g.leave(w)
	return append(dst, Grant{w.id, d})
}

// first is who goes next of those that no waiter before them blocks; nil when
// all are blocked.
func (g *Governor) first() *waiter {
	var best *waiter
	for _, t := range g.flows {
		for t.cursor < len(t.waiters) && g.blocked(t.waiters[t.cursor].claim.route) {
			t.cursor++
		}
		if t.cursor == len(t.waiters) {
			continue
		}
		if w := t.waiters[t.cursor]; best == nil || w.before(best) {
			best = w
		}
	}
	return best
}

func (w *waiter) before(other *waiter) bool {
	return cmp.Or(cmp.Compare(other.priority, w.priority),
		cmp.Compare(w.tenant.virtual, other.tenant.virtual), cmp.Compare(w.id, other.id)) < 0
}

func (g *Governor) blocked(on *route) bool {
	return slices.ContainsFunc(on.nodes, func(n *node) bool { return n.blocked == g.pass })
}

// claimed is a scope on the path that a waiter of at least this priority is
// waiting for; nil when there is none.
func (g *Governor) claimed(on *route, priority int) *node {
	for _, n := range on.nodes {
		if n.blocked == g.pass && priority <= n.blockedPriority {
			return n
		}
	}
	return nil
}

// cost is the claim's dominant share of what tenants have in common, the global
// budgets and the model's: the longest time that one of them takes to refill
// it, in microseconds.
func (c *claim) cost() int64 {
	longest := time.Duration(0)
	for _, n := range c.route.nodes {
		if n.scope.Tenant != "" || n.scope.Agent != "" {
			continue
		}
		l := n.limits
		for k := range n.bucket {
			if l.mask&(1<<k) != 0 {
				var empty bucket
				longest = max(longest, empty.wait(&l.refill[k], c.taken[k]*nano))
			}
		}
		if l.soft {
			longest = max(longest, time.Duration(share(int64(l.softSpan), c.windowed, l.softBudget)))
		}
	}
	return max(1, min(int64(longest/time.Microsecond), 1<<40))
}
