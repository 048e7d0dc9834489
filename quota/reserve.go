package quota

import (
	"slices"
	"time"
)

// Reservation is a request that waits in the caller's queue, such as that of a
// headway.Governor. It holds nothing until Reserve succeeds. Its owner ends it by
// settling the permit or calling Leave.
type Reservation interface {
	// Tenant returns the tenant whose share the request counts against, Weight its
	// weight.
	Tenant() string
	Weight() int
	// The following are the methods of headway.Budget, which documents them. An error
	// from Reserve, Confirm or Refuse ends the reservation.
	Keys() []uint32
	Cost() time.Duration
	Whole() time.Duration
	Load(key uint32) int64
	Serves(key uint32, load int64) time.Duration
	Reserve() (retryIn time.Duration, blocked uint32, err error)
	Back()
	Confirm() error
	Refuse(wait time.Duration) error
	// Decision returns the decision that Confirm approved.
	Decision() Decision
	// Leave ends the reservation, unless Confirm has handed out its permit. It may be
	// called more than once.
	Leave()
}

// Waker is woken when budgets may have capacity again; a wake-up may be spurious.
type Waker interface{ Wake() }

// Place is a request that waits in the caller's queue: this governor does not order it,
// but [Governor.Take] reports when there is capacity. See [Reservation].
type Place struct{ w *waiter }

// Join makes a Place for a request. It returns nil and the refusal if the request is
// invalid, no wait helps, or too many requests wait.
func (g *Governor) Join(now time.Duration, r Request) (*Place, Decision) {
	now = g.tick(now)
	var (
		c claim
		d Decision
	)
	if !g.claim(now, &r, &c, &d) {
		g.deny(now, nil, &d)
		return nil, d
	}
	g.forgetShares(now)
	for _, n := range c.route.nodes {
		n.sync(now)
		d.Final = d.Final || n.examine(now, &c).final
	}
	switch {
	case d.Final:
		d = g.refuse(now, &c)
		d.Final = true
	case int64(len(g.waiting)) >= g.config.MaxWaiting:
		d = Decision{Reason: Throttled, Code: CodeGlobalLimit, RetryIn: max(1, g.retry-now), Final: true}
	default:
		p := &Place{&waiter{claim: c, priority: r.Priority, deadline: Never}}
		g.rejoin(p)
		return p, Decision{}
	}
	g.deny(now, &c, &d)
	return nil, d
}

// Back gives back what [Governor.Take] took for a place, which then waits again.
func (g *Governor) Back(now time.Duration, p *Place, id Permit) {
	now = g.tick(now)
	_, _ = g.Cancel(now, id) // cannot fail: the permit was not handed out
	g.rejoin(p)
}

func (g *Governor) rejoin(p *Place) {
	g.waiters++
	p.w.id = Waiter(g.waiters)
	g.waiting = append(g.waiting, p.w)
	p.w.account().open++
}

// Take takes what the place's request needs. The decision is an approval, a final refusal
// (Final), or says when to ask again; in the last case bit i of blocked is set if
// Keys()[i] of the place had no capacity. In the other cases the place is gone. Requests
// in the governor's own queue go before a request of no greater priority.
func (g *Governor) Take(now time.Duration, p *Place) (d Decision, blocked uint32) {
	now = g.tick(now)
	w := p.w
	if w.claim.route.model.retired {
		d = w.claim.route.model.unconfigured()
		d.Final = true
		g.leave(w)
		g.deny(now, &w.claim, &d)
		return d, 0
	}
	w.lacking = 0 // the caller orders its places
	if g.queue.Len() > 0 && g.queue.Blocks(w.claim.route.budgets, w.priority) {
		return Decision{Reason: Throttled, Code: bucketCode(w.claim.route.model), Scope: w.claim.route.model.scope, RetryIn: max(1, g.retry-now)}, g.lacks(now, w)
	}
	if g.admit(now, &w.claim, &d) {
		if g.queue.Flows() > 0 {
			g.queue.Direct(now, w.claim.request())
		}
		g.leave(w)
		return d, 0
	}
	if d = g.refuse(now, &w.claim); d.Final {
		g.leave(w)
		g.deny(now, &w.claim, &d)
		return d, 0
	}
	d.RetryIn = max(1, d.RetryIn)
	return d, g.lacks(now, w)
}

// lacks returns the budgets that have no capacity for a waiter now.
func (g *Governor) lacks(now time.Duration, w *waiter) uint32 {
	for i, n := range w.claim.route.limited {
		if g.short(now, n, &w.claim) {
			w.lacking |= 1 << i
		}
	}
	return w.lacking
}

// Leave removes a place; it does nothing if the place is already gone.
func (g *Governor) Leave(now time.Duration, p *Place) {
	now = g.tick(now)
	if w := g.waiter(p.w.id); w != nil {
		g.leave(w)
		g.retry = now
	}
}

// Refuse removes a place whose request could be served after a wait, but not in time, and
// returns what holds it up.
func (g *Governor) Refuse(now time.Duration, p *Place, wait time.Duration) Decision {
	now = g.tick(now)
	d := g.last(now, p.w)
	d.putOff(wait)
	d.Final = true
	g.Leave(now, p)
	g.deny(now, &p.w.claim, &d)
	return d
}

// Tenant returns the tenant whose share the request counts against, and its weight.
func (p *Place) Tenant() (name string, weight int64) {
	t := p.w.account().tenant()
	return t.name, t.weight
}

// Keys returns the numbers of the budgets that the request needs. The slice must not be
// changed.
func (p *Place) Keys() []uint32 { return p.w.claim.route.budgets }

// Cost returns how long the scarcest budget shared by tenants takes to refill what the
// request takes.
func (p *Place) Cost() time.Duration { return refillTime(p.w.claim.cost()) }

// Whole returns how long the slowest budget shared by tenants takes to fill.
func (g *Governor) Whole() time.Duration { return refillTime(g.queue.Burst) }

func refillTime(parts int64) time.Duration { return time.Duration(parts/costParts) * time.Microsecond }

// Load returns what the request takes of the numbered budget; 0 if it does not need it.
func (p *Place) Load(key uint32) int64 {
	if n := p.budget(key); n != nil {
		return max(1, p.w.claim.costAt(n))
	}
	return 0
}

// Serves returns how long from now one of the request's budgets takes to serve a load.
func (g *Governor) Serves(now time.Duration, p *Place, key uint32, load int64) time.Duration {
	n := p.budget(key)
	if n == nil {
		return 0
	}
	now = g.tick(now)
	n.sync(now)
	return g.served(now, n, &p.w.claim, load)
}

func (p *Place) budget(key uint32) *node {
	r := p.w.claim.route
	if i := slices.Index(r.budgets, key); i >= 0 {
		return r.limited[i]
	}
	return nil
}

// served returns how long a scope takes for the given work, which includes the claim.
func (g *Governor) served(now time.Duration, n *node, c *claim, work int64) time.Duration {
	own := max(1, c.costAt(n))
	need := amount{}
	for k := range need {
		need[k] = share(c.taken[k]*nano, work, own)
	}
	return n.serves(now, need, share(c.windowed, work, own))
}
