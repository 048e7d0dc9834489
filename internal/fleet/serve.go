package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/fairqueue"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

const (
	// stateGap is the shortest time between two updates of what was learned.
	stateGap = time.Second
	// longHold is the shortest wait that members are sent.
	longHold = 250 * time.Millisecond
	// ahead is how far the instant that members get runs ahead of paid, beside two intervals.
	ahead = 100 * time.Millisecond
)

// noCeiling is the ceiling of a member whose owner has not set one.
const noCeiling = time.Nanosecond

// back ends a member's silence, and queues its requests again.
func (d *desk) back(now time.Duration, m *seat) {
	if m.silent && !m.cut {
		d.withdraw(m)
		slices.SortFunc(m.parked, func(a, b *want) int { return cmp.Compare(a.id, b.id) })
		for _, w := range m.parked {
			m.wants[w.id] = d.push(now, w)
		}
		m.silent, m.news, m.parked = false, true, nil
	}
}

// serve grants the permits that the core allows now, and posts news and grants.
func (d *desk) serve(now time.Duration) {
	d.due = pacing.Forever
	before := d.holds
	d.holds = nil
	d.seen = now
	d.queue.Begin()
	for ok := d.ghosts(now); ok; {
		var w *want
		if w, ok = d.queue.Next(func(it *fairqueue.Item[*want]) fairqueue.Verdict { return d.try(now, it.Value) }); ok {
			d.grant(now, w)
		}
	}
	if !slices.EqualFunc(before, d.holds, sameHold) {
		for _, m := range d.seats {
			m.news = true
		}
	}
	d.fill(now)
	d.post(now)
}

func sameHold(a, b hold) bool {
	return a.pool == b.pool && a.d.Reason == b.d.Reason && (a.until-b.until).Abs() < longHold/4
}

// try is the queue's question whether a request may go; if so it keeps the ticket.
func (d *desk) try(now time.Duration, w *want) fairqueue.Verdict {
	t, v := d.admit(now, w)
	if v.OK {
		d.tickets[permit{w.seat.number, w.id}] = t
	}
	return v
}

// admit asks the core to admit a request, after what binds the whole fleet.
func (d *desk) admit(now time.Duration, w *want) (t pacing.Ticket, v fairqueue.Verdict) {
	t, decision := d.ask(now, w)
	if !decision.OK {
		return t, d.wait(now, w, decision)
	}
	return t, fairqueue.Verdict{OK: true}
}

// ask admits a want, or says what it would wait for.
func (d *desk) ask(now time.Duration, w *want) (pacing.Ticket, pacing.Decision) {
	switch at, carefully := d.granted+d.ceiling, now < d.smooth; {
	case now < d.server.listens:
		return pacing.Ticket{}, pacing.Decision{At: d.server.listens, Reason: reason.ConservativeStart, Bound: reason.BoundLearning}
	case d.any && d.ceiling > noCeiling && now < at:
		return pacing.Ticket{}, pacing.Decision{At: at, Reason: reason.Pacing, Bound: reason.BoundCeiling}
	case carefully && now < d.paid:
		return pacing.Ticket{}, pacing.Decision{At: d.paid, Reason: reason.Pacing, Bound: reason.BoundLimit}
	}
	a := pacing.Attempt{Ready: w.ready, Cost: w.cost}
	if w.pool != "" {
		a.Pool = d.core.In(now, w.pool)
	}
	t, decision, _ := d.core.Admit(now, a)
	return t, decision
}

// wait records what a request waits for, and says whether it stops the queue.
func (d *desk) wait(now time.Duration, w *want, why pacing.Decision) (v fairqueue.Verdict) {
	d.due = min(d.due, why.At)
	if why.Reason == reason.Jitter {
		return v // jitter delays this request alone
	}
	if d.why = why; why.At-now >= longHold && why.At != pacing.Forever || why.Reason == reason.Cooldown {
		h := hold{until: why.At, d: why}
		if why.Pool != nil {
			h.pool = w.pool
		}
		d.holds = append(d.holds, h)
	}
	if why.Pool != nil {
		return fairqueue.Verdict{Blocked: 1}
	}
	return fairqueue.Verdict{Stop: true}
}

// ghosts counts the attempts that silent members may make without the server. They come
// before the queue, since they may already be sent; ok is false if one cannot be admitted
// yet, and the queue has to wait for it.
func (d *desk) ghosts(now time.Duration) (ok bool) {
	for _, m := range d.inOrder() {
		if !m.silent || now < m.ghost {
			continue
		}
		w := want{seat: m}
		t, v := d.admit(now, &w)
		if !v.OK {
			return false
		}
		d.core.Settle(now, t, pacing.Outcome{}) // its outcome is never reported
		d.count(now)
		each := d.interval()
		m.ghost = max(max(m.ghost, now-each)+max(m.fastest, each), now+1)
	}
	return true
}

// grant grants a permit.
func (d *desk) grant(now time.Duration, w *want) {
	d.count(now)
	w.seat.use.count(now)
	delete(w.seat.wants, w.id)
	w.seat.grants = append(w.seat.grants, w.id)
}

// count adds an attempt to what the sustained rate has to catch up with.
func (d *desk) count(now time.Duration) {
	each := d.interval()
	d.granted, d.any = now, true
	_, whole := d.core.Burst()
	d.paid = min(max(d.paid, now)+each, now+max(each, min(whole, maxWhole)))
	if d.paid > d.said {
		d.said = d.paid + 2*each + ahead
		for _, other := range d.seats {
			other.news = true
		}
	}
}

// interval is the interval of the sustained rate.
func (d *desk) interval() time.Duration { return max(d.core.Interval(), d.ceiling) }

// post queues news for members, then their grants: a member that loses the server right
// after a grant must know what it is to wait for.
func (d *desk) post(now time.Duration) {
	if n := d.allowance(now); n < d.spare || n > 2*d.spare {
		d.spare = n
		for _, m := range d.seats {
			m.news = true
		}
	}
	if d.dirty && (d.soon || now-d.sent >= stateGap) {
		d.states, d.sent, d.dirty, d.soon = d.learn(), now, false, false
		d.version++
		for _, m := range d.seats {
			m.news = true
		}
	}
	all := d.inOrder()
	for i, m := range all {
		if m.news && !m.cut {
			m.news, m.posted = false, now
			n := d.report(now, len(all), i)
			n.New = slices.ContainsFunc(all[:i], func(other *seat) bool { return other.heard < m.joined+Beat })
			if m.version != d.version {
				m.version, n.States = d.version, d.states
			}
			m.share = time.Duration(n.Members) * n.Interval
			if m.fastest == 0 || m.share < m.fastest {
				m.fastest = m.share
			}
			d.server.posts = append(d.server.posts, Post{m.number, pacing.ToMember{At: now, News: n}})
		}
	}
	for _, m := range all {
		if len(m.grants)+len(m.runs) > 0 {
			d.server.posts = append(d.server.posts, Post{m.number, pacing.ToMember{At: now, Grants: m.grants, Ahead: m.runs}})
			m.grants, m.runs = nil, nil
		}
	}
}

// report returns the news for the member at an index.
func (d *desk) report(now time.Duration, members, index int) *pacing.News {
	n := &pacing.News{
		Lease: Lease, Members: members, Index: index, Interval: d.interval(),
		Debt: max(0, d.said-now), Ahead: d.spare, Listens: max(0, d.server.listens-now), Reason: d.why.Reason, Bound: d.why.Bound,
	}
	if b := d.core.Belief(); b.Kind == control.Concurrency {
		n.Flight = max(1, int(b.Limit))
	}
	for _, h := range d.holds {
		if h.until > now {
			n.Holds = append(n.Holds, pacing.Hold{Pool: h.pool, In: h.until - now, Reason: h.d.Reason, Bound: h.d.Bound, Why: d.core.Pressure(h.d)})
		}
	}
	return n
}
