package pacing

import (
	"slices"
	"time"

	"github.com/headway-go/headway/control"
)

// pools are the limits that parts of an account have of their own, and the evidence that
// distinguishes them from a limit of the whole account.
//
// A refusal is first attributed to the attempt's pool. It is attributed to the account if
// the response says so, or if attempts of another pool are also refused while a block
// stands and nothing comes through, unless both pools knew of limits that were used up.
// From then on, refusals in pools that have shown no limit are attributed to the account.
// A refused pool also waits by its own law, so that attempts of other pools can go before
// it does; it forgets the refusal once an attempt comes through.
//
// Two pools can be refused by limits of their own at the same time. If instead the
// account's limit refuses, every attempt has the same chance of being refused. So the
// account's limit is given up if one pool keeps being refused while others come through.
//
// A limit has one end. So refusals that ask for very different waits are not attributed to
// one limit.
type pools struct {
	of    map[string]*Pool
	known map[string]kept // states of pools that were evicted or restored

	epoch    uint32        // counts the blocks of pools
	admitted time.Duration // when the last attempt that came through was sent
	shared   shared
}

// blocked is a pool's block, which lasts from a refusal until an attempt sent after it
// comes through.
type blocked struct {
	on     bool
	shared bool          // it is attributed to the account
	known  bool          // the pool was close to a known limit of its own
	began  time.Duration // when the refused attempt was sent
	asked  asked         // the wait that its last refusal asked for
	before control.State // the law's state before the refusal
}

// asked is a wait that a provider asked for; zero if it asked for none.
type asked struct{ wait, until time.Duration }

// The waits of two refusals by one limit differ by no more than a factor and a constant:
// waits are rounded, and may grow with each refusal.
const (
	growth   = 4
	rounding = 5 * time.Second
)

// agrees reports whether a refusal that asks for a wait may be due to the same limit. A wait
// that is over counts in full, as the provider may ask for the same one again.
func (a asked) agrees(now, wait time.Duration) bool {
	left := a.until - now
	if left <= 0 {
		left = a.wait
	}
	return left == 0 || wait == 0 || max(left, wait) <= growth*min(left, wait)+rounding
}

// use counts the attempts of a pool.
type use struct {
	last    time.Duration
	flying  int32
	epoch   uint32 // the epoch of the counts below
	sent    uint32 // attempts since the last block of any pool
	refused uint32 // those of them that were refused
	own     own
}

// own is the evidence that a pool has a limit of its own while refusals are attributed to
// the account: how much likelier its refusals are that way.
type own struct {
	epoch   uint32  // shared.epoch when the counts below began
	odds    float64 // 1 and more
	all     uint64  // attempts of all pools that had come through at the last refusal
	through uint64  // attempts of the pool that came through since
}

// place is the position of an attempt among those of its pool since a block began.
type place struct{ epoch, order uint32 }

// shared is the evidence for a limit of the whole account.
type shared struct {
	shown   bool
	before  control.State // the account's law before
	epoch   uint32        // how often the limit was shown
	pairs   int           // refusals of one pool while another was blocked
	needs   int           // pairs needed to show the limit again after it was given up
	refused time.Duration // when the last refusal was received
	asked   asked         // the wait that the account's last refusal asked for
	through uint64        // attempts that came through, sent after the refusal before

	// The last refusal counts as evidence for a limit of the pool once the next attempt
	// of another pool comes through.
	by   *Pool
	sent time.Duration
	part float64 // the pool's share of the attempts since its last refusal
}

// In returns the named pool, making it when it is first used, with the state that it
// learned earlier if there is one. If there are too many pools, the least recently used
// one is evicted, and its state is kept.
func (c *Core) In(now time.Duration, name string) *Pool {
	l := c.of[name]
	if l == nil {
		if c.of == nil {
			c.of = make(map[string]*Pool)
		}
		if len(c.of) >= c.set.maxPools {
			c.giveUp()
		}
		made := newPool(c.set, name)
		l = &made
		c.of[name] = l
		if s, ok := c.known[name]; ok { // a pool whose state cannot be read starts cold
			if s.live {
				_ = l.Resume(s.State)
			} else {
				_ = l.Restore(s.State)
			}
		}
	}
	l.use.last = now
	return l
}

// Pools calls yield for each pool in use, in no particular order.
func (c *Core) Pools(yield func(*Pool) bool) {
	for _, l := range c.of {
		if !yield(l) {
			return
		}
	}
}

// keptPools is how many states are kept for each pool that may be in use.
const keptPools = 16

// giveUp evicts the least recently used pool and keeps its state. A pool with attempts in
// flight or waiting stays.
func (c *Core) giveUp() {
	var oldest *Pool
	for _, l := range c.of {
		if l.use.flying == 0 && l.turns.waiting == 0 && l.ahead.idle() && (oldest == nil || l.use.last < oldest.use.last || l.use.last == oldest.use.last && l.name < oldest.name) {
			oldest = l
		}
	}
	if oldest == nil {
		return
	}
	delete(c.of, oldest.name)
	if oldest.Known() {
		c.keep(oldest.name, kept{oldest.Learned(), true})
	}
}

// sent counts an attempt in its pool.
func (c *Core) sent(t *Ticket) {
	if t.pool != nil {
		c.enter(t)
	}
}

// enter counts an attempt in its pool.
func (c *Core) enter(t *Ticket) {
	u := &t.pool.use
	u.flying++
	if u.epoch != c.epoch {
		u.epoch, u.sent, u.refused = c.epoch, 0, 0
	}
	u.sent++
	t.place = place{u.epoch, u.sent}
}

// move moves an attempt to the pool that its response names.
func (c *Core) move(now time.Duration, t *Ticket, name string) {
	if was := t.pool; was != nil {
		was.use.flying--
		was.settle(now, t, &Outcome{}, nil, false)
	}
	t.pool = c.In(now, name)
	t.pool.law.Sent(now, t.cost)
	c.enter(t)
}

// named returns the named pool; the account for "".
func (c *Core) named(now time.Duration, name string) *Pool {
	if name == "" {
		return &c.Pool
	}
	return c.In(now, name)
}

// Advertise records limits of a pool, or of the account, that the provider reported
// outside of any attempt. If the law cannot use them, they are remembered for display.
func (c *Core) Advertise(now time.Duration, name string, facts []control.Fact) {
	l := c.named(now, name)
	c.member.advertise(name, facts)
	c.reserves = c.reserves || slices.ContainsFunc(facts, perCost)
	l.hear(facts)
	l.objected = l.objected || len(l.heard) > 0
	if law, ok := l.law.(interface {
		Advertise(now time.Duration, facts []control.Fact)
	}); ok {
		law.Advertise(now, facts)
	}
}

// Assume starts a pool, or the account, from published limits, if it has learned nothing
// and was not used yet.
func (c *Core) Assume(now time.Duration, name string, limits []control.Limit) error {
	l := c.named(now, name)
	c.member.publish(name, limits, c.set.maxPools)
	if l.objected || l.answered || l.use.flying > 0 || len(limits) == 0 {
		return nil
	}
	law, ok := l.law.(interface {
		Assume(limits []control.Limit) error
	})
	if !ok {
		return nil
	}
	l.objected = true
	return law.Assume(limits)
}

// settle lets the account and the attempt's pool learn from the outcome.
func (c *Core) settle(now time.Duration, t *Ticket, o *Outcome) Effects {
	p := t.pool
	c.reserves = c.reserves || slices.ContainsFunc(o.Facts, perCost)
	if o.Class.Success() {
		c.admitted = max(c.admitted, t.sent)
		c.blocked.settled(t)
		if c.shared.shown {
			c.cameThrough(t)
		}
	}
	if p == nil {
		return effects(&c.Pool, c.Pool.settle(now, t, o, o.Facts, false))
	}
	p.use.flying--
	if !o.Class.Throttle() {
		if p.blocked.on {
			if b := p.blocked; p.blocked.settled(t) && b.shared {
				p.forget(b.before)
			}
		}
		account := c.Pool.settle(now, t, o, nil, false) // the facts are of the pool
		return c.either(p, account, p.settle(now, t, o, o.Facts, false))
	}
	if t.place.epoch == c.epoch && p.use.epoch == c.epoch {
		p.use.refused++
	}
	wide := c.wide(now, t, o)
	if c.shared.shown {
		c.weigh(now, t)
	}
	began := !o.Account && !p.blocked.on
	if began {
		p.blocked = blocked{on: true, began: t.sent, before: p.law.State()}
		c.epoch++
	}
	pool := p.settle(now, t, o, o.Facts, o.Account)
	if began {
		p.blocked.known = p.foretold()
	}
	if o.RetryAfter > 0 && p.blocked.on {
		p.blocked.asked = asked{o.RetryAfter, now + o.RetryAfter}
	}
	if !wide && c.blockedToo(now, t, o.RetryAfter) {
		c.shared.pairs++
		wide = c.shared.shown || c.shared.pairs >= c.shared.needs
	}
	if wide {
		c.whole(now, t, o.RetryAfter)
	}
	return c.either(p, c.Pool.settle(now, t, o, nil, !wide), pool)
}

func perCost(f control.Fact) bool { return f.PerCost }

// settled ends a block when an attempt comes through.
func (b *blocked) settled(t *Ticket) (ended bool) {
	if ended = b.on && t.sent > b.began; ended {
		*b = blocked{}
	}
	return ended
}

// either combines the effects on account and pool; a report of the account that is not
// made now is made with the next one.
func (c *Core) either(p *Pool, account, pool effect) Effects {
	if account.tell && !pool.tell {
		return effects(&c.Pool, account)
	}
	c.report.owed = c.report.owed || account.tell
	return effects(p, pool)
}

func effects(l *Pool, e effect) Effects { return Effects{Rate: e.tell, Pool: l, Change: e.change} }

// wide reports whether a refusal concerns the whole account.
func (c *Core) wide(now time.Duration, t *Ticket, o *Outcome) bool {
	switch {
	case o.Account:
		return true
	case !c.shared.asked.agrees(now, o.RetryAfter):
		return false
	case c.shared.shown && t.pool.blocked.on && c.others(t.pool) > 0:
		return false // other attempts came through since the pool was refused
	}
	return c.blocked.on || c.shared.shown && t.pool.law.Belief().Kind == control.Unknown
}

// blockedToo reports whether another pool is blocked, so that this refusal is evidence
// for a limit of the account: nothing came through since that block began, nor of this
// pool before it. Two pools that were both expected to reach limits of their own are no
// evidence, nor are refusals that ask for very different waits.
func (c *Core) blockedToo(now time.Duration, t *Ticket, wait time.Duration) bool {
	p := t.pool
	if t.place.epoch == c.epoch && t.place.order != p.use.refused {
		return false // earlier attempts are in flight and may come through
	}
	for _, l := range c.of {
		if l != p && c.supports(now, l, wait) && (!l.blocked.known || !p.blocked.known) {
			return true
		}
	}
	return false
}

// supports reports whether the block of a pool may be due to the same limit as a refusal that
// asks for a wait: nothing came through since it began.
func (c *Core) supports(now time.Duration, l *Pool, wait time.Duration) bool {
	return l.blocked.on && c.admitted < l.blocked.began && l.blocked.asked.agrees(now, wait)
}

// foretold reports whether the law knew, when the pool was refused, of a limit that was
// nearly used up.
func (l *Pool) foretold() bool {
	law, ok := l.law.(interface{ Foretold() bool })
	return ok && law.Foretold()
}

// whole attributes a refusal to the account. The refused pools also wait by their own
// laws, and forget it once an attempt comes through.
func (c *Core) whole(now time.Duration, t *Ticket, wait time.Duration) {
	s := &c.shared
	if !s.shown {
		*s = shared{shown: true, before: c.law.State(), epoch: s.epoch + 1, needs: s.needs}
	}
	if wait > 0 {
		s.asked = asked{wait, now + wait}
	}
	t.pool.blocked.shared = true
	began := t.sent
	for _, l := range c.of {
		if c.supports(now, l, wait) {
			began = min(began, l.blocked.began)
			c.rest(l.cooldown, l.cooldownWhy)
			l.blocked.shared = true
		}
	}
	if !c.blocked.on {
		c.blocked = blocked{on: true, began: began}
	}
}

const (
	// surely is how much likelier a limit of a pool must be than one of the account.
	surely = 20
	// again multiplies the pairs of refusals needed after each coincidence.
	again = 4
)

// evidence returns the evidence for a limit of the pool since the account last showed
// one.
func (c *Core) evidence(l *Pool) *own {
	if e := &l.use.own; e.epoch != c.shared.epoch {
		*e = own{epoch: c.shared.epoch, odds: 1, all: c.shared.through}
	}
	return &l.use.own
}

// others counts the attempts of other pools that came through since a pool was refused.
func (c *Core) others(l *Pool) uint64 {
	e := c.evidence(l)
	return c.shared.through - e.all - e.through
}

// weigh counts a refusal while refusals are attributed to the account.
func (c *Core) weigh(now time.Duration, t *Ticket) {
	s := &c.shared
	for _, l := range c.of {
		if e := c.evidence(l); l != t.pool {
			e.odds = max(1, e.odds/2)
		}
	}
	e := c.evidence(t.pool)
	s.by, s.sent, s.part = t.pool, t.sent, float64(1+e.through)/float64(1+e.through+c.others(t.pool))
	s.refused = now
	e.all, e.through = s.through, 0
}

// cameThrough counts an attempt that came through while refusals are attributed to the
// account. That is given up if the refusals of one pool occurred among too many attempts
// of others that came through, before and after each.
func (c *Core) cameThrough(t *Ticket) {
	s := &c.shared
	if t.pool != s.by && s.by != nil && t.sent > s.sent {
		e := c.evidence(s.by)
		e.odds *= (1 + 1/s.part) / 2
		if e.odds >= surely {
			c.forget(s.before)
			*s = shared{epoch: s.epoch, needs: max(1, s.needs) * again}
			for _, l := range c.of {
				l.blocked.shared = false
			}
			return
		}
		s.by = nil
	}
	if t.sent > s.refused {
		s.through++
		if t.pool != nil {
			c.evidence(t.pool).through++
		}
	}
}

// forget resets the law to an earlier state.
func (l *Pool) forget(before control.State) {
	law, err := control.New(l.set.law, &l.set.params)
	if err != nil {
		panic(err) // Resolve has checked this
	}
	_ = law.Restore(before) // the law's own state is valid
	l.law, l.blocked, l.objected = law, blocked{}, len(l.heard) > 0
}
