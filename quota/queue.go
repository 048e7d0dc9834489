package quota

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/fairqueue"
)

// Waiter identifies a waiting request. The zero Waiter is none.
type Waiter uint64

// Grant is the result of a wait: an approval, or a refusal.
type Grant struct {
	Waiter Waiter
	Decision
}

// waiter is a waiting request.
type waiter struct {
	id       Waiter
	claim    claim
	priority int
	deadline time.Duration
	item     *fairqueue.Item[*waiter] // its item in the queue; nil for a [Place]
	lacking  uint32                   // for a Place: the budgets that had no capacity for it
}

// Enqueue queues a request until deadline. The greatest priority goes first; then the
// tenant that was granted least for its weight (weighted max-min fairness over the
// scarcest shared budget), counting a burst from before the queue formed; then first
// come, first served. No request overtakes another one that waits for a budget that both
// need.
//
// A request is refused at once, with a zero Waiter and the decision, if it is invalid, no
// wait helps, the queue is full, or it is not expected to be served in time. Otherwise
// the decision is empty except for RetryIn, the shortest wait to expect. Call
// [Governor.Grants] after Enqueue and whenever [Governor.NextTransition] says.
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
		// The refusal begins the same episodes as one by Approve, and prefers a hard
		// limit too.
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

// request returns the waiter's request to the queue. Flows are tenants.
func (w *waiter) request() fairqueue.Request {
	r := w.claim.request()
	r.Priority = w.priority
	return r
}

func (c *claim) request() fairqueue.Request {
	t := c.route.account.tenant()
	return fairqueue.Request{Flow: t.name, Weight: int(t.weight), Cost: c.cost(), Budgets: c.route.budgets}
}

// codeOf returns the code for a kind of refusal by a scope.
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

// tenant returns the account's tenant; the root if it has none.
func (a *account) tenant() *account {
	for a.parent != nil && a.parent.parent != nil {
		a = a.parent
	}
	return a
}

// soon reports whether waiting helps against a refusal and how long is known.
func (d *Decision) soon() bool {
	return (d.Reason == Throttled || d.Reason == SoftLimit) && d.RetryIn != Never
}

// putOff raises a refusal's RetryIn to when the caller would be served if it came back,
// if waiting helps.
func (d *Decision) putOff(wait time.Duration) {
	if d.soon() {
		d.RetryIn = max(d.RetryIn, wait)
	}
}

// Waiting returns the number of waiting requests.
func (g *Governor) Waiting() int { return len(g.waiting) }

// Withdraw takes a waiter out of the queue. It returns false if the waiter is not in the
// queue, because it was granted or refused. Call [Governor.Grants] after it.
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

// Expire ends a wait before its deadline and refuses the request as [Governor.Grants]
// does at the deadline. It returns false if the waiter is not in the queue. Call Grants
// after it.
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

// overdue removes a waiter whose time is over and returns the refusal.
func (g *Governor) overdue(now time.Duration, w *waiter) Decision {
	return g.dismiss(now, w, g.last(now, w))
}

// last returns the refusal of a waiter whose time is over.
func (g *Governor) last(now time.Duration, w *waiter) Decision {
	d := g.refuse(now, &w.claim)
	switch model := w.claim.route.model; {
	case model.retired:
		d = model.unconfigured()
	case d.Reason == "": // others went first until the end
		d = Decision{Reason: Throttled, Code: bucketCode(model), Scope: model.scope, RetryIn: 1}
	}
	return d
}

// unconfigured returns the refusal of a waiter whose model was removed meanwhile.
func (n *node) unconfigured() Decision {
	return Decision{Reason: HardLimit, Code: CodeModelNotConfigured, Scope: n.scope, RetryIn: Never}
}

// waiter returns the waiter with that number; nil if there is none.
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

// reroute finds the path again after the configuration was replaced. A waiter for a
// removed model keeps its old path until it is refused.
func (g *Governor) reroute(w *waiter) {
	model := w.claim.route.model.scope.Model
	on := g.routeTo(w.account(), model)
	if on == nil {
		return
	}
	w.claim.route, w.lacking = on, 0
	w.claim.clamp()
	if w.item != nil { // else it waits in the caller's queue
		g.queue.Update(w.item, w.request())
	}
}

// Grants appends the waits that are over: approvals, in their order, and refusals because
// the deadline has come, a cap is used up or the model was removed.
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
			if g.short(now, n, &w.claim) {
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

// claimed returns a scope on the path that a waiter of at least this priority waits for;
// nil if there is none.
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
