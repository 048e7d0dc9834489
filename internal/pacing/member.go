package pacing

import (
	"slices"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pace"
	"github.com/headway-go/headway/reason"
)

// MaxAsked is the maximum number of permits that a member requests for the waiting attempts
// of one pool, MaxWanted for those of all pools.
const (
	MaxAsked  = 16
	MaxWanted = 4 * MaxAsked
)

// MaxSilence is how long a member that receives no messages keeps sending, and how long
// the server reserves its share.
const MaxSilence = time.Minute

// stand says what permits a member to send.
type stand uint8

const (
	entering  stand = iota // no news received yet: sends nothing
	following              // sends with the server's permits
	sharing                // sends at its share of the last known rate: the server is away or does not grant yet
	alone                  // paces by itself: it has not joined yet
)

// member is the part of a core that belongs to a fleet.
type member struct {
	id     string
	closed bool // send nothing while the server is away
	stand  stand
	away   bool // the event that the server is away was published
	missed bool // the same, of a member that has no share yet

	linked bool // connected to the server
	silent bool // connected, but no messages come
	since  time.Duration
	offset time.Duration // from the server's clock to this one, by the fastest message
	timed  bool          // offset is known
	resume time.Duration // when to request permits again

	// From the most recent news.
	lease          time.Duration
	members, index int
	fresh          bool // the member has no share yet
	interval       time.Duration
	paid           time.Duration // when the sustained rate has caught up with what the fleet sent
	flight         int
	why            reason.Reason
	bound          reason.Bound
	holds          []hold
	rests          []rest // waits that were reported and are not in the news yet

	next   time.Duration // when its share allows the next attempt
	asked  []permit
	held   []permit
	serial uint64
	out    ToServer

	published map[string][]control.Limit // that pools begin with, by name

	ahead  int           // permits that may be held ahead
	pools  []*Pool       // pools that are in use or have permits
	served time.Duration // when the oldest outcome came that is not reported yet
}

// permit is a permit that was requested or is held.
type permit struct {
	id    uint64
	pool  *Pool // nil for the account
	cost  float64
	until time.Duration
	meant bool // an attempt waits for it
}

// hold is a wait that the server has announced.
type hold struct {
	pool  string
	until time.Duration
	why   reason.Reason
	bound reason.Bound
}

// rest is a wait that the provider asked for, as this member takes it.
type rest struct {
	pool  *Pool
	at    time.Duration // when it was reported
	until time.Duration
	why   reason.Pressure
}

// maxRests bounds the waits that are kept until the news have them.
const maxRests = 16

// ask decides on an attempt as far as the fleet is concerned. If final, the core's own
// pacing is not consulted.
func (m *member) ask(c *Core, now time.Duration, a *Attempt) (d Decision, account pace.Params, final bool) {
	m.turn(now)
	switch m.stand {
	case entering:
		return Decision{At: Forever, Reason: reason.ConservativeStart, Bound: reason.BoundLearning}, account, true
	case following:
		account = pace.Params{Interval: c.set.params.Ceiling, Ceiling: c.set.params.Ceiling, Tolerance: c.set.tolerance}
		return m.permitted(c, now, a, account), account, true
	case alone:
		return d, account, false
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
	if h := m.hold(now, c.poolOf(a.Pool)); h.until > d.At {
		return Decision{At: h.until, Reason: h.why, Bound: h.bound, Pool: a.Pool}, account, true
	}
	return d, account, now < m.next
}

// permitted reports whether a permit is held for the attempt, or else what it waits for.
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
	// Only this pool waits: attempts of other pools may have a permit.
	d := Decision{At: Forever, Reason: m.why, Bound: m.bound, Pool: a.Pool}
	if d.Reason == reason.None {
		d.Reason = reason.Pacing
	}
	if h := m.hold(now, l); now < h.until {
		d.At, d.Reason, d.Bound = h.until, h.why, h.bound
	}
	return d
}

// hold returns the longest wait of a pool that the server has announced; its until is 0 if there is
// none left.
func (m *member) hold(now time.Duration, l *Pool) (longest hold) {
	for _, h := range m.holds {
		if now < h.until && (h.pool == "" || h.pool == l.name) && h.until > longest.until {
			longest = h
		}
	}
	return longest
}

// take uses a permit for an attempt; ahead reports whether it was granted ahead of need.
// If the permit was requested for an attempt of a different cost, the server is informed.
func (m *member) take(c *Core, now time.Duration, a *Attempt) (id uint64, ahead bool) {
	pool := a.Pool
	l := c.poolOf(pool)
	if l.ahead.use.count(now); !slices.Contains(m.pools, l) {
		m.pools = append(m.pools, l)
	}
	i := slices.IndexFunc(m.held, func(p permit) bool { return p.pool == pool && p.cost == a.cost() && now < p.until })
	if i < 0 {
		i = slices.IndexFunc(m.held, func(p permit) bool { return p.pool == pool && now < p.until })
	}
	if i < 0 {
		return l.ahead.take(now), true
	}
	if id = m.held[i].id; m.held[i].cost != a.cost() {
		m.out.Costs = append(m.out.Costs, Cost{id, a.cost()})
	}
	m.held = slices.Delete(m.held, i, i+1)
	return id, false
}

// turn returns to permits once a restarted server grants them.
func (m *member) turn(now time.Duration) {
	if m.linked && m.stand != following && now >= m.resume {
		m.stand = following
	}
}

// sent counts an attempt against the member's share.
func (m *member) sent(c *Core, now time.Duration) {
	if m.stand == sharing {
		each := max(m.interval, c.law.Interval(), c.set.params.Ceiling)
		m.next = now + time.Duration(max(m.members, 1))*each
	}
}

// Demand takes the waiting attempts in the order in which they will go. It requests
// permits for them and returns permits that no attempt waits for; [Core.Outbox] has the
// message.
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
	waiting = waiting[:min(len(waiting), MaxWanted)]
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
		m.asked = append(m.asked, permit{id: m.serial, pool: a.Pool, cost: a.cost(), meant: true})
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

// mean finds a permit for one more waiting attempt.
func mean(all []permit, pool *Pool) bool {
	for i := range all {
		if p := &all[i]; p.pool == pool && !p.meant {
			p.meant = true
			return true
		}
	}
	return false
}

// back returns a permit unused.
func (m *member) back(p permit) bool {
	m.out.Done = append(m.out.Done, Done{ID: p.id})
	return true
}

// Outbox returns the message to send to the server and empties the outbox; ok is false if
// there is nothing to send. Reports that may be delayed are batched for a while.
func (c *Core) Outbox(now time.Duration) (out ToServer, ok bool) {
	m := c.member
	switch served := len(m.out.Served); {
	case len(m.out.Wants)+len(m.out.Drops)+len(m.out.Done)+len(m.out.Unused)+len(m.out.Costs)+len(m.out.Published)+len(m.out.Advertised)+len(m.out.Parts) > 0:
	case served >= maxServed, served > 0 && now-m.served >= servedFor:
	default:
		return out, false
	}
	out, m.out = m.out, ToServer{}
	return out, true
}

// submit reports the outcome of a permitted attempt to the server, which learns from it.
// A wait that the provider asked for begins here at once, without a round trip.
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
		m.rest(now, rest{l, now, now + l.believed(o.Class, o.RetryAfter), why})
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
		c.Heard(now, done) // no server can learn from it
	}
}

// rest begins a wait that the provider asked for. The server knows more of such waits: once it
// has the report, the news have the wait as it takes it.
func (m *member) rest(now time.Duration, r rest) {
	if soon := now + m.lease; m.linked && r.until > soon && len(m.rests) < maxRests {
		m.rests = append(m.rests, r)
		r.until = soon
	}
	r.pool.rest(r.until, r.why)
}

// Heard learns from the outcome of an attempt that this core did not admit.
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

// Hear handles a message from the server, or the loss of the server. Turned reports
// whether the server has just gone away or come back.
func (c *Core) Hear(now time.Duration, in *ToMember) (fx Effects, turned bool) {
	m := c.member
	if in.Lost != Nowhere {
		before := m.stand
		m.lose(now, in.Lost)
		if turned = !m.away && (m.stand == sharing || m.stand != before); turned {
			m.away = true
		} else if turned = !m.away && !m.missed && m.stand == entering; turned {
			m.missed = true
		}
		return fx, turned
	}
	if !m.linked && in.News == nil {
		return fx, false // from an earlier connection: a new one begins with news
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
		p.pool, p.cost = m.asked[i].pool, m.asked[i].cost
		m.asked = slices.Delete(m.asked, i, i+1)
		m.held = append(m.held, p)
	}
	if in.News != nil {
		fx = c.news(now, posted, in.News)
	}
	m.turn(now)
	if m.stand == following && (m.away || m.missed) {
		m.away, m.missed, turned = false, false, true
	}
	return fx, turned
}

// posted returns when a message was sent: now, less its delay beyond the fastest message.
func (m *member) posted(now time.Duration, in *ToMember) time.Duration {
	if off := now - in.At; !m.timed || off < m.offset {
		m.offset, m.timed = off, true
	}
	return in.At + m.offset
}

// lose switches from permits to the share when the server is lost.
func (m *member) lose(now time.Duration, how Loss) {
	if m.linked {
		m.since = now
	}
	m.linked, m.silent = false, how == Silent
	m.timed = m.timed && how == Silent
	m.out = ToServer{}
	if m.silent { // the connection may still deliver this
		for _, p := range m.asked {
			m.out.Drops = append(m.out.Drops, p.id)
		}
		for _, p := range m.held {
			m.back(p)
		}
		m.drop()
	}
	m.forget()
	for _, r := range m.rests {
		r.pool.rest(r.until, r.why)
	}
	m.asked, m.held, m.rests = nil, nil, nil
	switch {
	case m.stand == alone:
	case m.members == 0, m.fresh:
		m.stand = entering
	case m.stand == following:
		m.stand = sharing
		m.next = max(now, m.paid+time.Duration(m.index)*m.interval)
	}
}

// news takes over what the server has learned and the member's share.
func (c *Core) news(now, posted time.Duration, n *News) (fx Effects) {
	m := c.member
	m.lease, m.ahead = n.Lease, n.Ahead
	if !m.away || n.Listens <= 0 { // while a new server only listens, all members keep their former shares
		m.members, m.index, m.fresh = max(n.Members, 1), n.Index, n.New
		m.interval, m.flight, m.paid = n.Interval, n.Flight, posted+n.Debt
	}
	m.why, m.bound = n.Reason, n.Bound
	m.rests = slices.DeleteFunc(m.rests, func(r rest) bool { return posted-r.at > m.lease })
	keep := m.away && n.Listens > 0 // the holds of a server that only listens are no limit's
	if !keep {
		m.holds = m.holds[:0]
	}
	for _, pool := range n.Parts {
		c.moveCooldown(c.In(now, pool))
	}
	for _, h := range n.Holds {
		l, why := c.named(now, h.Pool), reason.UpstreamPressure
		if p, ok := reason.AsPressure(h.Why); ok {
			l.pushed, why = p, p
		}
		if h.Reason == reason.Cooldown {
			l.rest(posted+h.In, why)
		}
		if !keep {
			m.holds = append(m.holds, hold{pool: h.Pool, until: posted + h.In, why: h.Reason, bound: h.Bound})
		}
	}
	if n.Listens > 0 {
		if m.resume = posted + n.Listens; m.away {
			m.stand = sharing
		}
	} else {
		m.resume = min(m.resume, now)
	}
	for name, s := range n.States {
		l := c.named(now, name)
		before := l.law.Interval()
		law, err := control.New(l.set.law, &l.set.params)
		if err != nil || resume(law, s) != nil {
			continue // a state of a different law
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
