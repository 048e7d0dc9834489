package pacing

import (
	"maps"
	"time"

	"github.com/headway-go/headway/control"
)

// pools are the limits that parts of an account have for themselves, and what tells
// them from a limit of the whole account.
//
// A refusal is first taken for one of the attempt's pool. It is the account's when the
// response says so, and when attempts of another pool are refused as well while a block
// stands and nothing comes through, unless both knew limits that were used up. From
// then on refusals in pools that have shown no limit are the account's. A pool that is
// refused waits by its own law, too, so that attempts of others can go before it does,
// and forgets the refusal when it comes through.
//
// Two pools can be refused by limits of their own at the same time. If the account's limit
// refuses, all that goes has the same chance to be refused. So the account's limit is given
// up when the refusals keep coming in one pool, among attempts of others that come through.
type pools struct {
	of    map[string]*Pool
	known map[string]control.State // of pools that were given up, or restored

	epoch    uint32        // counts the blocks of pools
	admitted time.Duration // when the newest attempt was sent that came through
	shared   shared
}

// blocked is a pool's block: from a refusal until an attempt comes through that was
// sent after it.
type blocked struct {
	on     bool
	shared bool          // it is taken for the account's
	known  bool          // the pool was near a limit of its own that was known
	began  time.Duration // when the refused attempt was sent
	before control.State // what the law had learned until then
}

// use is how much a pool is used.
type use struct {
	last    time.Duration
	flying  int32
	epoch   uint32 // of what follows
	sent    uint32 // attempts since the newest block of any pool
	refused uint32 // of those
	own     own
}

// own is what speaks for a limit of the pool's own while the account's is taken for the
// one that refuses: how much likelier than by the account's its refusals are.
type own struct {
	epoch   uint32  // of what follows: how often the account has shown a limit
	odds    float64 // 1 and more
	all     uint64  // what had come through in all at the pool's last refusal
	through uint64  // of the pool, since
}

// place is where an attempt stands among those of its pool since a block began.
type place struct{ epoch, order uint32 }

// shared is what speaks for a limit that the whole account has.
type shared struct {
	shown   bool
	before  control.State // of the account's law
	epoch   uint32        // how often it was shown
	pairs   int           // refusals of one pool while another was blocked
	needs   int           // of those before it is shown again, after it was given up
	refused time.Duration // when the last refusal was heard of
	through uint64        // attempts that came through, sent after the refusal before

	// The last refusal counts for a limit of the pool's own when the next attempt of
	// another pool comes through.
	by   *Pool
	sent time.Duration
	part float64 // that the pool had in what went since its last refusal
}

// In is the pool of that name, which is made when it is asked for first:
// with what it had learned before, if that is known. Beyond the bound of pools, the one
// that was used least recently is given up, but what it learned is kept.
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
		if s, ok := c.known[name]; ok {
			_ = l.Restore(s) // one that cannot be read begins again
		}
	}
	l.use.last = now
	return l
}

// Pools calls yield for each pool that is in use, in no order.
func (c *Core) Pools(yield func(*Pool) bool) {
	for _, l := range c.of {
		if !yield(l) {
			return
		}
	}
}

// keptPools is how many times as many states are kept as there may be pools.
const keptPools = 16

// giveUp keeps what the pool has learned that was used least recently, and drops it.
// One with attempts under way, or for which somebody waits, stays.
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
		c.keep(oldest.name, oldest.Learned())
	}
}

// keep remembers what a pool has learned.
func (c *Core) keep(name string, s control.State) {
	if c.known == nil {
		c.known = make(map[string]control.State)
	}
	if _, ok := c.known[name]; !ok && len(c.known) >= keptPools*c.set.maxPools {
		for other := range c.known { // any
			delete(c.known, other)
			break
		}
	}
	c.known[name] = s
}

// LearnedPools is what a warm start of the pools needs, by their names.
func (c *Core) LearnedPools() map[string]control.State {
	if len(c.of)+len(c.known) == 0 {
		return nil
	}
	all := make(map[string]control.State, len(c.of)+len(c.known))
	maps.Copy(all, c.known)
	for name, l := range c.of {
		if l.Known() {
			all[name] = l.Learned()
		}
	}
	return all
}

// RestorePools takes what pools had learned. Each begins with it when it is used first.
func (c *Core) RestorePools(all map[string]control.State) {
	for name, s := range all {
		c.keep(name, s)
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

// move makes an attempt one of another pool, as its response says that it was.
func (c *Core) move(now time.Duration, t *Ticket, name string) {
	if was := t.pool; was != nil {
		was.use.flying--
		was.settle(now, t, &Outcome{}, nil, false)
	}
	t.pool = c.In(now, name)
	t.pool.law.Sent(now, t.cost)
	c.enter(t)
}

// named is the pool of that name, the account for "".
func (c *Core) named(now time.Duration, name string) *Pool {
	if name == "" {
		return &c.Pool
	}
	return c.In(now, name)
}

// Advertise takes in limits of a pool, or of the account, that the provider named apart
// from any attempt. A law that cannot take them remembers them for being shown.
func (c *Core) Advertise(now time.Duration, name string, facts []control.Fact) {
	l := c.named(now, name)
	c.member.advertise(name, facts)
	l.hear(facts)
	l.objected = l.objected || len(l.heard) > 0
	if law, ok := l.law.(interface {
		Advertise(now time.Duration, facts []control.Fact)
	}); ok {
		law.Advertise(now, facts)
	}
}

// Assume begins a pool, or the account, with limits that the provider publishes: one that
// has learned nothing and was not used yet.
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

// settle has the account and the attempt's pool learn how it ended.
func (c *Core) settle(now time.Duration, t *Ticket, o *Outcome) Effects {
	p := t.pool
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
		if b := p.blocked; p.blocked.settled(t) && b.shared {
			p.forget(b.before)
		}
		account := c.Pool.settle(now, t, o, nil, false) // the facts are of the pool
		return c.either(p, account, p.settle(now, t, o, o.Facts, false))
	}
	if t.place.epoch == c.epoch && p.use.epoch == c.epoch {
		p.use.refused++
	}
	wide := c.wide(t, o)
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
	if !wide && c.blockedToo(t) {
		c.shared.pairs++
		wide = c.shared.shown || c.shared.pairs >= c.shared.needs
	}
	if wide {
		c.whole(t)
	}
	return c.either(p, c.Pool.settle(now, t, o, nil, !wide), pool)
}

// settled ends a block when an attempt comes through.
func (b *blocked) settled(t *Ticket) (ended bool) {
	if ended = b.on && t.sent > b.began; ended {
		*b = blocked{}
	}
	return ended
}

// either is what both pools changed; a report of the account that is not made now is
// made with the next.
func (c *Core) either(p *Pool, account, pool effect) Effects {
	if account.tell && !pool.tell {
		return effects(&c.Pool, account)
	}
	c.report.owed = c.report.owed || account.tell
	return effects(p, pool)
}

func effects(l *Pool, e effect) Effects { return Effects{Rate: e.tell, Pool: l, Change: e.change} }

// wide says that a refusal is about the whole account.
func (c *Core) wide(t *Ticket, o *Outcome) bool {
	switch {
	case o.Account:
		return true
	case c.shared.shown && t.pool.blocked.on && c.others(t.pool) > 0:
		return false // others came through since it was refused
	}
	return c.blocked.on || c.shared.shown && t.pool.law.Belief().Kind == control.Unknown
}

// blockedToo says that another pool is blocked, so that this refusal speaks for a limit
// of the account: nothing came through since that block began, nor of this pool before.
// Two pools that are refused where limits of their own were foretold speak for none.
func (c *Core) blockedToo(t *Ticket) bool {
	p := t.pool
	if t.place.epoch == c.epoch && t.place.order != p.use.refused {
		return false // earlier ones are under way, and may come through
	}
	for _, l := range c.of {
		if l != p && l.blocked.on && c.admitted < l.blocked.began && (!l.blocked.known || !p.blocked.known) {
			return true
		}
	}
	return false
}

// foretold says that the law knew of a limit that was nearly used up when the pool was
// refused.
func (l *Pool) foretold() bool {
	law, ok := l.law.(interface{ Foretold() bool })
	return ok && law.Foretold()
}

// whole takes a refusal for the account's. The pools that were refused wait by their own
// laws, too, and forget it when they come through.
func (c *Core) whole(t *Ticket) {
	if s := &c.shared; !s.shown {
		*s = shared{shown: true, before: c.law.State(), epoch: s.epoch + 1, needs: s.needs}
	}
	t.pool.blocked.shared = true
	began := t.sent
	for _, l := range c.of {
		if l.blocked.on && c.admitted < l.blocked.began {
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
	// surely is how much likelier than the account's a limit of a pool's own must be.
	surely = 20
	// again is how many times as many pairs of refusals it takes after each time that
	// they turned out to be a coincidence.
	again = 4
)

// evidence is what speaks for a limit of the pool's own, since the account has shown one.
func (c *Core) evidence(l *Pool) *own {
	if e := &l.use.own; e.epoch != c.shared.epoch {
		*e = own{epoch: c.shared.epoch, odds: 1, all: c.shared.through}
	}
	return &l.use.own
}

// others counts what came through of other pools since a pool was refused.
func (c *Core) others(l *Pool) uint64 {
	e := c.evidence(l)
	return c.shared.through - e.all - e.through
}

// weigh counts a refusal while the account's limit is taken for the one that refuses.
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

// cameThrough counts an attempt that came through while the account's limit is taken
// for the one that refuses. It is given up when the refusals of one pool were among too
// many attempts of others that came through, before and after each.
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

// Part takes what the account has learned since before, and its cooldown, for the
// belief of one pool: it was that pool's attempts that were refused.
func (c *Core) Part(now time.Duration, name string, before control.State) {
	l := c.In(now, name)
	_ = l.Restore(c.law.State()) // it is its own
	l.answered = c.answered
	l.rest(c.cooldown, c.cooldownWhy)
	c.cooldown = 0
	c.forget(before)
}

// forget puts the law back to what it had learned before.
func (l *Pool) forget(before control.State) {
	law, err := control.New(l.set.law, &l.set.params)
	if err != nil {
		panic(err) // Resolve has made one already
	}
	_ = law.Restore(before) // it is its own
	l.law, l.blocked, l.objected = law, blocked{}, len(l.heard) > 0
}

// turns are how often those who wait for a pool are served.
type turns struct {
	waiting int
	granted time.Duration // when somebody who waited was served last
	gap     time.Duration // about the time between two such instants
}

const (
	// gapShare is the part that the newest gap has in the mean.
	gapShare = 16
	// maxGap is how many times the mean a gap counts at most.
	maxGap = 4
)

// Wait counts one who comes to wait, Leave one who waits no longer.
func (l *Pool) Wait(now time.Duration) {
	if l.turns.waiting == 0 {
		l.turns.granted = now
	}
	l.turns.waiting++
}

// Leave is the other half of Wait.
func (l *Pool) Leave() { l.turns.waiting-- }

// Serve counts the gap between two who waited.
func (l *Pool) Serve(now time.Duration) {
	t := &l.turns
	gap := now - t.granted
	t.granted = now
	if t.gap == 0 {
		t.gap = gap
		return
	}
	// The end of a window, or of a Retry-After, is not what it takes from one to the next.
	t.gap += (min(gap, maxGap*t.gap) - t.gap) / gapShare
}

// After is about how long after the first of those who wait the one goes that has n
// before it.
func (l *Pool) After(n int64) time.Duration {
	took := float64(n) * float64(l.law.Interval())
	if b, ok := l.law.(bursts); ok {
		took = float64(b.After(float64(n)))
	}
	return time.Duration(min(max(took, float64(n)*float64(l.turns.gap)), float64(maxAfter)))
}

// maxAfter bounds a wait that is foretold.
const maxAfter = 365 * 24 * time.Hour

// bursts is a law that knows how many attempts could go at once now.
type bursts interface {
	After(n float64) time.Duration
}
