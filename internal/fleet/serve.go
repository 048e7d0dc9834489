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
	// stateGap is the minimum time between two updates of the states, and soonGap after a
	// refusal, for up to gapFor members. soonGap and ahead grow with their number, since all
	// members get each update: a storm of refusals does not become one of messages.
	stateGap = time.Second
	soonGap  = 50 * time.Millisecond
	gapFor   = 32
	// longHold is the minimum wait that members are informed of.
	longHold = 250 * time.Millisecond
	// ahead, plus two intervals, is the margin by which the announced instant exceeds paid.
	ahead = 100 * time.Millisecond
)

// noCeiling is the ceiling of a member whose owner has set no ceiling.
const noCeiling = time.Nanosecond

// back ends a member's silence, and queues its requests again.
func (g *group) back(now time.Duration, m *member) {
	if m.silent && !m.cut {
		g.withdraw(m)
		slices.SortFunc(m.parked, func(a, b *want) int { return cmp.Compare(a.id, b.id) })
		for _, w := range m.parked {
			m.wants[w.id] = g.push(now, w)
		}
		m.silent, m.news, m.parked = false, true, nil
	}
}

// serve grants the permits that the core allows now, and posts news and grants.
func (g *group) serve(now time.Duration) {
	g.due = pacing.Forever
	before := g.holds
	g.holds = nil
	g.seen = now
	g.queue.Begin()
	for ok := g.assume(now); ok; {
		var w *want
		if w, ok = g.queue.Next(func(it *fairqueue.Item[*want]) fairqueue.Verdict { return g.try(now, it.Value) }); ok {
			g.grant(now, w)
		}
	}
	if !slices.EqualFunc(before, g.holds, sameHold) {
		for _, m := range g.members {
			m.news = true
		}
	}
	g.fill(now)
	g.post(now)
}

func sameHold(a, b hold) bool {
	return a.pool == b.pool && a.decision.Reason == b.decision.Reason && (a.until-b.until).Abs() < longHold/4
}

// try admits a request for the queue, and stores its ticket.
func (g *group) try(now time.Duration, w *want) fairqueue.Verdict {
	t, v := g.admit(now, w)
	if v.OK {
		g.tickets[permit{w.member.number, w.id}] = t
	}
	return v
}

// admit admits a request, or records what it waits for.
func (g *group) admit(now time.Duration, w *want) (t pacing.Ticket, v fairqueue.Verdict) {
	t, decision := g.ask(now, w)
	if !decision.OK {
		return t, g.wait(now, w, decision)
	}
	return t, fairqueue.Verdict{OK: true}
}

// ask admits a request, or returns the decision that delays it. The bounds of the whole
// group come before those of the core.
func (g *group) ask(now time.Duration, w *want) (pacing.Ticket, pacing.Decision) {
	if now < g.server.listens {
		return pacing.Ticket{}, pacing.Decision{At: g.server.listens, Reason: reason.ConservativeStart, Bound: reason.BoundLearning}
	}
	a := pacing.Attempt{Ready: w.ready, Cost: w.cost}
	if w.pool != "" {
		a.Pool = g.core.In(now, w.pool)
	}
	switch at, carefully := g.granted+g.ceiling, now < g.smooth; {
	case g.any && g.ceiling > noCeiling && now < at:
		if d := g.core.Ask(now, a); !d.OK && d.At > at {
			return pacing.Ticket{}, d // the limit's wait is longer
		}
		return pacing.Ticket{}, pacing.Decision{At: at, Reason: reason.Pacing, Bound: reason.BoundCeiling}
	case carefully && now < g.paid:
		return pacing.Ticket{}, pacing.Decision{At: g.paid, Reason: reason.Pacing, Bound: reason.BoundLimit}
	}
	t, decision, _ := g.core.Admit(now, a)
	return t, decision
}

// wait records what a request waits for, and returns whether that also delays others.
func (g *group) wait(now time.Duration, w *want, why pacing.Decision) (v fairqueue.Verdict) {
	g.due = min(g.due, why.At)
	if why.Reason == reason.Jitter {
		return v // jitter delays this request alone
	}
	if g.why = why; why.At-now >= longHold && why.At != pacing.Forever || why.Reason == reason.Cooldown {
		h := hold{until: why.At, decision: why}
		if why.Pool != nil {
			h.pool = w.pool
		}
		g.holds = append(g.holds, h)
	}
	if why.Pool != nil {
		return fairqueue.Verdict{Blocked: 1}
	}
	return fairqueue.Verdict{Stop: true}
}

// assume counts the attempts that silent members may make without the server. They come
// before the queue, since they may already be under way. It returns false if one cannot be
// admitted yet: then the queue waits for it. After a refusal the next attempt is of a member that
// reports its outcome.
func (g *group) assume(now time.Duration) (ok bool) {
	if g.core.Waiting() {
		return true
	}
	for _, m := range g.inOrder() {
		if !m.silent || now < m.assumed {
			continue
		}
		w := want{member: m}
		t, v := g.admit(now, &w)
		if !v.OK {
			return false
		}
		g.core.Settle(now, t, pacing.Outcome{}) // its outcome is never reported
		g.count(now)
		each := g.interval()
		m.assumed = max(max(m.assumed, now-each)+max(m.fastest, each), now+1)
	}
	return true
}

// grant grants a permit.
func (g *group) grant(now time.Duration, w *want) {
	g.count(now)
	w.member.use.count(now)
	delete(w.member.wants, w.id)
	w.member.grants = append(w.member.grants, w.id)
}

// count adds an attempt to paid.
func (g *group) count(now time.Duration) {
	each := g.interval()
	g.granted, g.any = now, true
	_, whole := g.core.Burst()
	g.paid = min(max(g.paid, now)+each, now+max(each, min(whole, maxWhole)))
	if g.paid > g.announced {
		g.announced = g.paid + 2*each + g.each(ahead)
		for _, other := range g.members {
			other.news = true
		}
	}
}

// each returns a gap between messages to all members.
func (g *group) each(gap time.Duration) time.Duration {
	return gap * time.Duration(max(1, len(g.members)/gapFor))
}

// interval returns the interval of the sustained rate.
func (g *group) interval() time.Duration { return max(g.core.Interval(), g.ceiling) }

// post queues news for members, then their grants: a member that loses the server right
// after a grant must already know how long to wait.
func (g *group) post(now time.Duration) {
	if n := g.allowance(now); n < g.spare || n > 2*g.spare {
		g.spare = n
		for _, m := range g.members {
			m.news = true
		}
	}
	if past := now - g.sent; g.dirty && (past >= stateGap || g.soon && (g.version == 0 || past >= min(stateGap, g.each(soonGap)))) {
		g.states, g.sent, g.dirty, g.soon = g.learn(), now, false, false
		g.version++
		for _, m := range g.members {
			m.news = true
		}
	}
	all := g.inOrder()
	var rests []hold
	if slices.ContainsFunc(all, func(m *member) bool { return m.news && !m.cut }) {
		rests = g.rests(now)
	}
	for i, m := range all {
		if m.news && !m.cut {
			m.news, m.posted = false, now
			n := g.report(now, len(all), i, rests)
			n.New = slices.ContainsFunc(all[:i], func(other *member) bool { return other.received < m.joined+Beat })
			n.Parts, m.parts = m.parts, nil
			if m.version != g.version {
				m.version, n.States = g.version, g.states
			}
			m.share = time.Duration(n.Members) * n.Interval
			if m.fastest == 0 || m.share < m.fastest {
				m.fastest = m.share
			}
			g.server.posts = append(g.server.posts, Post{m.number, pacing.ToMember{At: now, News: n}})
		}
	}
	for _, m := range all {
		if len(m.grants)+len(m.runs) > 0 {
			g.server.posts = append(g.server.posts, Post{m.number, pacing.ToMember{At: now, Grants: m.grants, Ahead: m.runs}})
			m.grants, m.runs = nil, nil
		}
	}
}

// rests returns the waits that the provider asked for, of the account and of pools, for which no
// request waits: the others are among the holds.
func (g *group) rests(now time.Duration) (all []hold) {
	add := func(l, pool *pacing.Pool) {
		known := func(h hold) bool { return h.pool == l.Name() && h.decision.Reason == reason.Cooldown }
		if at := l.ResumesAt(); at > now && !slices.ContainsFunc(g.holds, known) {
			all = append(all, hold{l.Name(), at, pacing.Decision{Reason: reason.Cooldown, Bound: reason.BoundCooldown, Pool: pool}})
		}
	}
	add(&g.core.Pool, nil)
	for l := range g.core.Pools {
		add(l, l)
	}
	slices.SortFunc(all, func(a, b hold) int { return cmp.Compare(a.pool, b.pool) })
	return all
}

// report returns the news for the member at an index, with waits of the provider.
func (g *group) report(now time.Duration, members, index int, rests []hold) *pacing.News {
	n := &pacing.News{
		Lease: Lease, Members: members, Index: index, Interval: g.interval(),
		Debt: max(0, g.announced-now), Ahead: g.spare, Listens: max(0, g.server.listens-now), Reason: g.why.Reason, Bound: g.why.Bound,
	}
	if b := g.core.Belief(); b.Kind == control.Concurrency {
		n.Flight = max(1, int(b.Limit))
	}
	for _, h := range slices.Concat(g.holds, rests) {
		if h.until > now {
			n.Holds = append(n.Holds, pacing.Hold{Pool: h.pool, In: h.until - now, Reason: h.decision.Reason, Bound: h.decision.Bound, Why: g.core.Pressure(h.decision)})
		}
	}
	return n
}
