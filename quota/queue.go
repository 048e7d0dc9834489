package quota

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/fairqueue"
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
	priority int
	deadline time.Duration
	item     *fairqueue.Item[*waiter] // its place in the queue; nil of a [Place]
	lacking  uint32                   // of a Place: the budgets that had no room for it
}

// Enqueue lets a request wait until deadline. Who goes first: the greater
// priority; then the tenant that has been granted least for its weight (weighted
// max-min over the scarcest shared budget), also of a burst that went before
// anybody had to wait; then who came first. Nobody overtakes on a budget for which
// somebody before is waiting.
//
// It is refused at once, with a decision, when it is invalid, no wait helps, the
// queue is full, or those who are expected to go before leave no room in time; then
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
	g.forgetShares(now)
	w := &waiter{claim: c, priority: r.Priority, deadline: deadline}
	for _, n := range c.route.nodes {
		n.sync(now)
		v := n.examine(now, &c)
		v.final = v.final || v.wait > 0 && later(now, v.wait) > deadline
		if v.final && !d.Final || v.final == d.Final && v.wait > d.RetryIn {
			d = Decision{Reason: v.reason, Code: codeOf(v.reason, n), Scope: n.scope, RetryIn: v.wait, Final: v.final}
		}
	}
	wait, slowest := g.prospect(now, w)
	if !d.Final && wait > d.RetryIn {
		d = Decision{Reason: Throttled, Code: bucketCode(slowest), Scope: slowest.scope, RetryIn: wait, Final: later(now, wait) > deadline}
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
		d.putOff(wait)
		if d.soon() {
			g.queue.Refused(now, w.request(), d.RetryIn)
		}
		g.deny(now, &c, &d)
		return 0, d
	}
	g.waiters++
	w.id = Waiter(g.waiters)
	g.waiting = append(g.waiting, w)
	w.item = g.queue.Push(now, w.request(), w)
	c.route.account.open++
	g.retry = now
	return w.id, Decision{RetryIn: d.RetryIn}
}

// request is what the waiter asks the queue for. Shares are those of tenants.
func (w *waiter) request() fairqueue.Request {
	r := w.claim.request()
	r.Priority = w.priority
	return r
}

func (c *claim) request() fairqueue.Request {
	t := c.route.account.tenant()
	return fairqueue.Request{Flow: t.name, Weight: int(t.weight), Cost: c.cost(), Budgets: c.route.budgets}
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

// soon reports whether a wait helps against a refusal, and is known.
func (d *Decision) soon() bool {
	return (d.Reason == Throttled || d.Reason == SoftLimit) && d.RetryIn != Never
}

// putOff has a refusal's RetryIn be no earlier than the caller would be served if it
// came back, where a wait helps.
func (d *Decision) putOff(wait time.Duration) {
	if d.soon() {
		d.RetryIn = max(d.RetryIn, wait)
	}
}

// Waiting is how many wait.
func (g *Governor) Waiting() int { return len(g.waiting) }

// Withdraw takes a waiter out of the queue; false when it is not in it: it was
// granted or refused before. Call [Governor.Grants] after it.
func (g *Governor) Withdraw(now time.Duration, id Waiter) bool {
	now = g.tick(now)
	w := g.waiter(id)
	if w == nil {
		return false
	}
	g.leave(w)
	g.retry = now
	return true
}

// Expire ends a wait whose time is over before its deadline has come, and refuses it as
// [Governor.Grants] does then; false when it is not in the queue. Call Grants after it.
func (g *Governor) Expire(now time.Duration, id Waiter) (Decision, bool) {
	now = g.tick(now)
	w := g.waiter(id)
	if w == nil || w.item == nil {
		return Decision{}, false
	}
	d := g.overdue(now, w)
	g.retry = now
	return d, true
}

// overdue ends a wait whose time is over, with the refusal.
func (g *Governor) overdue(now time.Duration, w *waiter) Decision {
	return g.dismiss(now, w, g.last(now, w))
}

// last is the refusal of a waiter whose wait is over.
func (g *Governor) last(now time.Duration, w *waiter) Decision {
	d := g.refuse(now, &w.claim)
	switch model := w.claim.route.model; {
	case model.retired:
		d = model.unconfigured()
	case d.Reason == "": // others went before until the end
		d = Decision{Reason: Throttled, Code: bucketCode(model), Scope: model.scope, RetryIn: 1}
	}
	return d
}

// unconfigured is the refusal of who waits for a model that was taken out meanwhile.
func (n *node) unconfigured() Decision {
	return Decision{Reason: HardLimit, Code: CodeModelNotConfigured, Scope: n.scope, RetryIn: Never}
}

// waiter finds one who waits; nil when there is none of that number.
func (g *Governor) waiter(id Waiter) *waiter {
	at, ok := slices.BinarySearchFunc(g.waiting, id, func(w *waiter, id Waiter) int { return cmp.Compare(w.id, id) })
	if !ok {
		return nil
	}
	return g.waiting[at]
}

// leave removes a waiter.
func (g *Governor) leave(w *waiter) {
	same := func(other *waiter) bool { return other == w }
	g.waiting = slices.DeleteFunc(g.waiting, same)
	if w.item != nil {
		g.queue.Remove(w.item)
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
	w.claim.route, w.lacking = on, 0
	w.claim.clamp()
	if w.item != nil { // else it waits elsewhere
		g.queue.Update(w.item, w.request())
	}
}

// Grants appends those whose wait is over: approved, in their order, or refused
// because their deadline has come, a cap is used up or their model is gone.
func (g *Governor) Grants(now time.Duration, dst []Grant) []Grant {
	now = g.tick(now)
	if g.queue.Len() == 0 {
		g.retry = math.MaxInt64
		return dst
	}
	for _, w := range slices.Clone(g.waiting) {
		if w.item != nil && (w.deadline <= now || w.claim.route.model.retired) {
			dst = append(dst, Grant{w.id, g.overdue(now, w)})
		}
	}
	g.retry = math.MaxInt64
	var (
		d       Decision
		refused []Grant
	)
	try := func(it *fairqueue.Item[*waiter]) (v fairqueue.Verdict) {
		w := it.Value
		d = Decision{}
		if g.admit(now, &w.claim, &d) {
			return fairqueue.Verdict{OK: true}
		}
		if d = g.refuse(now, &w.claim); d.Final {
			refused = append(refused, Grant{w.id, d})
			return fairqueue.Verdict{}
		}
		for i, n := range w.claim.route.limited {
			if n.examine(now, &w.claim).reason != "" {
				v.Blocked |= 1 << i
			}
		}
		g.retry = min(g.retry, later(now, d.RetryIn))
		return v
	}
	g.queue.Begin()
	for ok := true; ok; {
		var w *waiter
		w, ok = g.queue.Next(try)
		for _, r := range refused {
			dst = append(dst, Grant{r.Waiter, g.dismiss(now, g.waiter(r.Waiter), r.Decision)})
		}
		refused = refused[:0]
		if ok {
			w.item = nil
			g.leave(w)
			dst = append(dst, Grant{w.id, d})
		}
	}
	return dst
}

// dismiss ends a wait with a refusal.
func (g *Governor) dismiss(now time.Duration, w *waiter, d Decision) Decision {
	r := w.request()
	g.leave(w)
	if d.soon() {
		wait, _ := g.prospect(now, w)
		d.putOff(wait)
		g.queue.Refused(now, r, d.RetryIn)
	}
	d.Final = true
	g.deny(now, &w.claim, &d)
	return d
}

// claimed is a scope on the path that a waiter of at least this priority is
// waiting for; nil when there is none.
func (g *Governor) claimed(on *route, priority int) *node {
	for i, n := range on.limited {
		if g.queue.Len() > 0 && g.queue.Blocks(on.budgets[i:i+1], priority) {
			return n
		}
	}
	for _, w := range g.waiting {
		for i, n := range w.claim.route.limited {
			if w.lacking&(1<<i) != 0 && w.priority >= priority && slices.Contains(on.limited, n) {
				return n
			}
		}
	}
	return nil
}
