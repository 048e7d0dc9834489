package quota

import (
	"slices"
	"time"
)

// Reservation is a request that waits in a queue of its caller's, such as that of a
// headway.Governor. It holds nothing until Reserve succeeds. Its maker ends it: by the
// permit, or by Leave.
type Reservation interface {
	// Tenant is whose share the request counts against, and Weight its weight.
	Tenant() string
	Weight() int
	// The following are those of headway.Budget, which explains them. An error of
	// Reserve, Confirm or Refuse ends the reservation.
	Keys() []uint32
	Cost() time.Duration
	Whole() time.Duration
	Load(key uint32) int64
	Serves(key uint32, load int64) time.Duration
	Reserve() (retryIn time.Duration, blocked uint32, err error)
	Back()
	Confirm() error
	Refuse(wait time.Duration) error
	// Decision is what Confirm approved.
	Decision() Decision
	// Leave ends the reservation, unless Confirm has handed out its permit. It is safe to
	// call again.
	Leave()
}

// Waker is woken when budgets may have room again, also when nothing has changed for it.
type Waker interface{ Wake() }

// Place is a request that waits elsewhere: this governor does not order it, but
// [Governor.Take] says when there is room. See [Reservation].
type Place struct{ w *waiter }

// Join makes a place for a request. It is refused, and then nil, when the request is
// invalid, no wait helps, or too many wait.
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

// Back gives back what [Governor.Take] took for a place, which waits again.
func (g *Governor) Back(now time.Duration, p *Place, id Permit) {
	now = g.tick(now)
	_, _ = g.Cancel(now, id) // it cannot fail: nobody else has it
	g.rejoin(p)
}

func (g *Governor) rejoin(p *Place) {
	g.waiters++
	p.w.id = Waiter(g.waiters)
	g.waiting = append(g.waiting, p.w)
	p.w.account().open++
}

// Take takes what the place's request needs: the decision is an approval, a refusal
// that no wait helps (Final), or says when to ask again. Then bit i of blocked says that
// Keys()[i] of the place had no room. Unless it is to ask again, the place is gone. Those
// who wait in the governor's own queue go before a request of no greater priority.
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
	w.lacking = 0 // the caller says who of those who have places goes first
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

// lacks are the budgets of a waiter that have no room for it now.
func (g *Governor) lacks(now time.Duration, w *waiter) uint32 {
	for i, n := range w.claim.route.limited {
		if n.examine(now, &w.claim).reason != "" {
			w.lacking |= 1 << i
		}
	}
	return w.lacking
}

// Leave takes a place away; it does nothing when that is gone.
func (g *Governor) Leave(now time.Duration, p *Place) {
	now = g.tick(now)
	if w := g.waiter(p.w.id); w != nil {
		g.leave(w)
		g.retry = now
	}
}

// Refuse takes a place away whose request cannot be served in time, but could be after
// a wait, and says what stands in its way.
func (g *Governor) Refuse(now time.Duration, p *Place, wait time.Duration) Decision {
	now = g.tick(now)
	d := g.last(now, p.w)
	d.putOff(wait)
	d.Final = true
	g.Leave(now, p)
	g.deny(now, &p.w.claim, &d)
	return d
}

// Tenant is whose share the request counts against, and its weight.
func (p *Place) Tenant() (name string, weight int64) {
	t := p.w.account().tenant()
	return t.name, t.weight
}

// Keys are the numbers of the budgets that the request needs. The slice must not be
// changed.
func (p *Place) Keys() []uint32 { return p.w.claim.route.budgets }

// Cost is how long the scarcest budget that tenants have in common takes to refill what
// the request takes.
func (p *Place) Cost() time.Duration { return refillTime(p.w.claim.cost()) }

// Whole is how long the slowest budget that tenants have in common takes to fill.
func (g *Governor) Whole() time.Duration { return refillTime(g.queue.Burst) }

func refillTime(parts int64) time.Duration { return time.Duration(parts/costParts) * time.Microsecond }

// Load is what the request takes of the budget of that number; 0 when it does not need
// it.
func (p *Place) Load(key uint32) int64 {
	if n := p.budget(key); n != nil {
		return max(1, p.w.claim.costAt(n))
	}
	return 0
}

// Serves is how long, from now, one of the request's budgets takes to serve so much.
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

// served is how long a scope takes for so much work, of which the claim has a part.
func (g *Governor) served(now time.Duration, n *node, c *claim, work int64) time.Duration {
	own := max(1, c.costAt(n))
	need := amount{}
	for k := range need {
		need[k] = share(c.taken[k]*nano, work, own)
	}
	return n.serves(now, need, share(c.windowed, work, own))
}
