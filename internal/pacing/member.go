package pacing

import (
	"slices"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pace"
	"github.com/headway-go/headway/reason"
)

// MaxAsked is how many permits a member asks for ahead at most.
const MaxAsked = 16

// MaxSilence is for how long a member that hears nothing goes on, and for how long the
// server keeps its share for it.
const MaxSilence = time.Minute

// stand is how a member goes on.
type stand uint8

const (
	entering  stand = iota // nothing was heard yet: nothing goes
	following              // by permits
	sharing                // the server is away, or listens: by the share that is known
)

// member is what a core keeps as one of a fleet.
type member struct {
	id     string
	closed bool // nothing goes while the server is away
	stand  stand
	away   bool // it was said that the server is away

	linked bool // the server is there
	silent bool // it is, but says nothing
	since  time.Duration
	offset time.Duration // from the server's clock to this one, by the fastest message
	timed  bool          // it is known
	resume time.Duration // permits are asked for from here on

	// Of the newest news.
	lease          time.Duration
	members, index int
	fresh          bool // it has no share yet
	interval       time.Duration
	paid           time.Duration // when the fleet has paid for what it sent
	flight         int
	why            reason.Reason
	bound          reason.Bound
	holds          []hold

	next   time.Duration // of the share
	asked  []permit
	held   []permit
	serial uint64
	out    ToServer

	ahead  int           // permits that may be held ahead
	pools  []*Pool       // that are in use, or have some
	served time.Duration // when the oldest outcome came that waits to be said
}

// permit is one that was asked for, or that is held.
type permit struct {
	id    uint64
	pool  *Pool // nil for the account
	until time.Duration
	meant bool // somebody waits for it
}

// hold is until when nothing goes.
type hold struct {
	pool  string
	until time.Duration
	why   reason.Reason
	bound reason.Bound
}

// Join makes the core one of a fleet: it sends what a server permits, or its share while
// that is away; with closed nothing then. The id is random, and the member's own.
func (c *Core) Join(id string, closed bool) { c.member = &member{id: id, closed: closed} }

// Hello is what the member says of itself when it has found a server.
func (c *Core) Hello(now time.Duration, config Config) Hello {
	m := c.member
	return Hello{
		Member: m.id, Config: config, Away: m.members, States: c.States(),
		Debt: max(0, m.next-now, m.paid-now), Hold: max(0, c.cooldown-now),
	}
}

// States are what was learned here or before, by pool, the account's as "".
func (c *Core) States() map[string]control.State {
	all := c.LearnedPools()
	if c.objected {
		if all == nil {
			all = make(map[string]control.State)
		}
		all[""] = c.Learned()
	}
	return all
}

// Rest lets nothing go before an instant, as a refusal asked that this core has not seen.
func (c *Core) Rest(until time.Duration) { c.rest(until, reason.UpstreamPressure) }

// Members is how many share the pace, as far as is known, and whether the server is
// there; 0 for who is in no fleet.
func (c *Core) Members() (n int, there bool) {
	if c.member == nil {
		return 0, false
	}
	return c.member.members, c.member.linked
}

// ask is what the fleet says of an attempt; final says that nothing else has a say.
func (m *member) ask(c *Core, now time.Duration, a *Attempt) (d Decision, account pace.Params, final bool) {
	m.turn(now)
	switch m.stand {
	case entering:
		return Decision{At: Forever, Reason: reason.ConservativeStart, Bound: reason.BoundLearning}, account, true
	case following:
		account = pace.Params{Interval: c.set.params.Ceiling, Ceiling: c.set.params.Ceiling, Tolerance: c.set.tolerance}
		return m.permitted(c, now, a, account), account, true
	case sharing:
	}
	d = Decision{At: m.next, Reason: reason.Pacing, Bound: reason.BoundLimit}
	switch {
	case m.closed, m.silent && now-m.since > MaxSilence-m.lease:
		d.At = Forever
		return d, account, true
	case m.flight > 0 && int(c.inFlight) >= max(1, m.flight/m.members):
		d.At, d.Reason = Forever, reason.Concurrency
		return d, account, true
	}
	return d, account, now < m.next
}

// permitted says whether a permit is there for the attempt, or what it waits for.
func (m *member) permitted(c *Core, now time.Duration, a *Attempt, ceiling pace.Params) Decision {
	l := c.poolOf(a.Pool)
	for _, one := range [...]*Pool{&c.Pool, l} {
		if now < one.cooldown {
			d := Decision{At: one.cooldown, Reason: reason.Cooldown, Bound: reason.BoundCooldown}
			if one != &c.Pool {
				d.Pool = a.Pool
			}
			return d
		}
	}
	if slices.ContainsFunc(m.held, func(p permit) bool { return p.pool == a.Pool && now < p.until }) || l.ahead.ready(now) && a.cost() == 1 {
		if ceiling.Interval > noCeiling {
			if at := c.gcra.Next(ceiling); now < at {
				return Decision{At: at, Reason: reason.Pacing, Bound: reason.BoundCeiling}
			}
		}
		return Decision{OK: true, At: now}
	}
	// Those of other pools may have a permit.
	d := Decision{At: Forever, Reason: m.why, Bound: m.bound, Pool: a.Pool}
	if d.Reason == reason.None {
		d.Reason = reason.Pacing
	}
	for _, h := range m.holds {
		if now < h.until && (h.pool == "" || h.pool == l.name) && (d.At == Forever || h.until > d.At) {
			d.At, d.Reason, d.Bound = h.until, h.why, h.bound
		}
	}
	return d
}

// take uses a permit for an attempt; ahead says that it was got ahead of need.
func (m *member) take(c *Core, now time.Duration, pool *Pool) (id uint64, ahead bool) {
	l := c.poolOf(pool)
	if l.ahead.use.count(now); !slices.Contains(m.pools, l) {
		m.pools = append(m.pools, l)
	}
	i := slices.IndexFunc(m.held, func(p permit) bool { return p.pool == pool && now < p.until })
	if i < 0 {
		return l.ahead.take(now), true
	}
	id = m.held[i].id
	m.held = slices.Delete(m.held, i, i+1)
	return id, false
}

// turn goes on by permits once it is time.
func (m *member) turn(now time.Duration) {
	if m.linked && m.stand != following && now >= m.resume {
		m.stand = following
	}
}

// sent counts an attempt in the share.
func (m *member) sent(c *Core, now time.Duration) {
	if m.stand == sharing {
		each := max(m.interval, c.law.Interval(), c.set.params.Ceiling)
		m.next = now + time.Duration(max(m.members, 1))*each
	}
}

// Demand says who waits, in the order in which they will go. The permits for them are
// asked for, and those that nobody waits for are given back: see [Core.Outbox].
func (c *Core) Demand(now time.Duration, waiting []Attempt) {
	m := c.member
	m.turn(now)
	if m.stand != following {
		return
	}
	for _, all := range [...][]permit{m.asked, m.held} {
		for i := range all {
			all[i].meant = false
		}
	}
	waiting = waiting[:min(len(waiting), MaxAsked)]
	if c.set.maxInFlight > 0 {
		waiting = waiting[:max(0, min(len(waiting), c.set.maxInFlight-int(c.inFlight)))]
	}
	m.held = slices.DeleteFunc(m.held, func(p permit) bool { return now >= p.until && m.back(p) })
	for i := range waiting {
		a := &waiting[i]
		if mean(m.held, a.Pool) || mean(m.asked, a.Pool) {
			continue
		}
		m.serial++
		m.asked = append(m.asked, permit{id: m.serial, pool: a.Pool, meant: true})
		m.out.Wants = append(m.out.Wants, Want{
			ID: m.serial, Pool: c.poolOf(a.Pool).name, Cost: a.cost(), In: max(0, a.Ready-now, m.next-now),
		})
	}
	m.held = slices.DeleteFunc(m.held, func(p permit) bool { return !p.meant && m.back(p) })
	m.asked = slices.DeleteFunc(m.asked, func(p permit) bool {
		if !p.meant {
			m.out.Drops = append(m.out.Drops, p.id)
		}
		return !p.meant
	})
	m.stock(c, now)
}

// mean finds a permit for one more who waits.
func mean(all []permit, pool *Pool) bool {
	for i := range all {
		if p := &all[i]; p.pool == pool && !p.meant {
			p.meant = true
			return true
		}
	}
	return false
}

// back gives a permit back.
func (m *member) back(p permit) bool {
	m.out.Done = append(m.out.Done, Done{ID: p.id})
	return true
}

// Outbox is what the server has to be sent; ok is false for nothing. It is empty then.
// What can wait for more of its kind does so for a while.
func (c *Core) Outbox(now time.Duration) (out ToServer, ok bool) {
	m := c.member
	switch served := len(m.out.Served); {
	case len(m.out.Wants)+len(m.out.Drops)+len(m.out.Done)+len(m.out.Unused) > 0:
	case served >= maxServed, served > 0 && now-m.served >= servedFor:
	default:
		return out, false
	}
	out, m.out = m.out, ToServer{}
	return out, true
}

// submit tells the server how an attempt ended that it permitted. What concerns this
// member alone is learned here: it holds back at once what the provider asked to wait for.
func (c *Core) submit(now time.Duration, t *Ticket, o *Outcome) {
	m, l := c.member, c.poolOf(t.pool)
	if t.pool != nil {
		t.pool.use.flying--
	}
	if o.Class != reason.Unknown && o.Class != reason.Lost {
		c.answered, l.answered = true, true
	}
	l.hear(o.Facts)
	if o.RetryAfter > 0 && !o.Class.Success() {
		why := reason.UpstreamPressure
		if p, ok := o.Class.Pressure(); ok {
			why = p
		}
		l.rest(now+o.RetryAfter, why)
	}
	if p, ok := o.Class.Pressure(); ok && o.Class.Throttle() {
		l.objected, l.pushed = true, p
		l.backoff = Backoff{Reason: p.Reason(), Interval: l.law.Interval(), At: now}
	}
	if o.Class.Throttle() {
		m.drop()
	}
	if m.linked && plain(t, o) {
		if len(m.out.Served) == 0 {
			m.served = now
		}
		m.out.Served = append(m.out.Served, Served{t.permit, uint64(now - t.sent)})
		return
	}
	done := Done{ID: t.permit, Pool: l.name, Age: now - t.sent, Outcome: *o}
	done.Outcome.Facts = slices.Clone(o.Facts)
	if m.linked {
		m.out.Done = append(m.out.Done, done)
	} else if o.Class.Throttle() {
		c.Heard(now, done) // nobody else will
	}
}

// Heard learns how an attempt ended that this core has not admitted.
func (c *Core) Heard(now time.Duration, d Done) Effects {
	cost := d.Outcome.Cost
	if !(cost > 0) {
		cost = 1
	}
	t := Ticket{sent: now, cost: cost}
	c.law.Sent(now, cost)
	if d.Pool != "" {
		t.pool = c.In(now, d.Pool)
		t.pool.law.Sent(now, cost)
	}
	c.sent(&t)
	c.inFlight++
	return c.Settle(now, t, d.Outcome)
}

// Hear takes in what the server said, or that it is away. Turned says that the server is
// away now, or is there again.
func (c *Core) Hear(now time.Duration, in *ToMember) (fx Effects, turned bool) {
	m := c.member
	if in.Lost != Nowhere {
		m.lose(now, in.Lost)
		if turned = !m.away && m.stand == sharing; turned {
			m.away = true
		}
		return fx, turned
	}
	if !m.linked && in.News == nil {
		return fx, false // left over; what counts begins with news
	}
	m.linked, m.silent = true, false
	posted := now
	if in.News != nil || len(in.Grants)+len(in.Ahead) > 0 {
		posted = m.posted(now, in)
	}
	for _, r := range in.Ahead {
		m.got(now, posted, r)
	}
	for _, id := range in.Grants {
		p := permit{id: id, until: posted + m.lease}
		i := slices.IndexFunc(m.asked, func(p permit) bool { return p.id == id })
		if i < 0 {
			m.back(p)
			continue
		}
		p.pool = m.asked[i].pool
		m.asked = slices.Delete(m.asked, i, i+1)
		m.held = append(m.held, p)
	}
	if in.News != nil {
		fx = c.news(now, posted, in.News)
	}
	m.turn(now)
	if m.stand == following && m.away {
		m.away, turned = false, true
	}
	return fx, turned
}

// posted is when a message was posted: now, but for what it took longer than the fastest.
func (m *member) posted(now time.Duration, in *ToMember) time.Duration {
	if off := now - in.At; !m.timed || off < m.offset {
		m.offset, m.timed = off, true
	}
	return in.At + m.offset
}

// lose goes on without the server.
func (m *member) lose(now time.Duration, how Loss) {
	if m.linked {
		m.since = now
	}
	m.linked, m.silent = false, how == Silent
	m.timed = m.timed && how == Silent
	m.out = ToServer{}
	if m.silent { // it may hear that yet
		for _, p := range m.asked {
			m.out.Drops = append(m.out.Drops, p.id)
		}
		for _, p := range m.held {
			m.back(p)
		}
		m.drop()
	}
	m.forget()
	m.asked, m.held, m.holds = nil, nil, nil
	switch {
	case m.members == 0, m.fresh:
		m.stand = entering
	case m.stand == following:
		m.stand = sharing
		m.next = max(now, m.paid+time.Duration(m.index)*m.interval)
	}
}

// news takes over what the server has learned.
func (c *Core) news(now, posted time.Duration, n *News) (fx Effects) {
	m := c.member
	m.lease, m.ahead = n.Lease, n.Ahead
	if !m.away || n.Listens <= 0 { // else the share is that which all had before
		m.members, m.index, m.fresh = max(n.Members, 1), n.Index, n.New
		m.interval, m.flight, m.paid = n.Interval, n.Flight, posted+n.Debt
	}
	m.why, m.bound = n.Reason, n.Bound
	m.holds = m.holds[:0]
	for _, h := range n.Holds {
		l, why := c.named(now, h.Pool), reason.UpstreamPressure
		if p, ok := reason.AsPressure(h.Why); ok {
			l.pushed, why = p, p
		}
		if h.Reason == reason.Cooldown {
			l.rest(posted+h.In, why)
		}
		m.holds = append(m.holds, hold{pool: h.Pool, until: posted + h.In, why: h.Reason, bound: h.Bound})
	}
	if n.Listens > 0 {
		if m.resume = posted + n.Listens; m.away {
			m.stand = sharing // as before
		}
	} else {
		m.resume = min(m.resume, now)
	}
	for name, s := range n.States {
		l := c.named(now, name)
		before := l.law.Interval()
		law, err := control.New(l.set.law, &l.set.params)
		if err != nil || law.Restore(s) != nil {
			continue // of another law
		}
		l.law, l.objected = law, true
		change := control.Held
		switch after := law.Interval(); {
		case after < before:
			change = control.SpeedUp
		case after > before:
			change = control.BackOff
		}
		if l.report.due(now, change, law.Interval(), l.set.params.Ceiling) {
			fx = Effects{Rate: true, Pool: l, Change: change}
		}
	}
	return fx
}
