package quota

import (
	"math"
	"slices"
	"time"
)

// FleetOptions say how a governor shares its budgets; see [Governor.Share].
type FleetOptions struct {
	// Ahead is for how long budgets are taken ahead of calls, by their recent rate, 0 to 1 s.
	// With 0 each call asks the server.
	Ahead time.Duration
	// Wait approves nothing while the server is away. Otherwise calls go on at this member's
	// share: of the budgets that refill by 1/n of their rate for n members, of daily caps by
	// what the server keeps in reserve for it. Both end a minute after the last answer.
	Wait bool
}

const (
	// FleetLease is how long the server keeps the reserve of a member that sends nothing.
	FleetLease = 65 * time.Second
	// FleetSilence is the time without a message after which the server counts a member as
	// silent: the budgets that refill do so more slowly by its share, until the lease ends.
	FleetSilence = 2 * time.Second
	// FleetBeat is how often a member exchanges messages at least.
	FleetBeat = 500 * time.Millisecond

	aloneAfter = FleetSilence + FleetBeat // without an answer, before the share is used
	aloneUntil = FleetLease - 5*time.Second
	liveFor    = 10 * time.Second // how long a scope stays in the exchanges after its last call
	maxBudgets = 256              // of one exchange
	maxClaims  = 256
	// A member takes at most 1/aheadShare of a budget ahead, and reserves at most
	// 1/reserveShare of what is left, both divided by the members. What a killed member had
	// in reserve is lost for the day, so it is no more than 1/reserveShare of its own use.
	aheadShare   = 100
	reserveShare = 4
)

// The budgets of a pool: first the kinds of bucket, then the daily caps.
const (
	dayTokens = kinds + iota
	dayCalls
	budgets
)

var budgetNames = [budgets]string{calls: "calls", tokens: "tokens", inputTokens: "inputTokens", outputTokens: "outputTokens", dayTokens: DailyTokens, dayCalls: DailyCalls}

// membership is a governor's part in a fleet.
type membership struct {
	FleetOptions
	members, silent int
	answered        time.Duration // when the last exchange began that was answered, and not in vain
	heard           time.Duration // when the last exchange began that was answered
	at              time.Time     // the server's clock then; zero before the first answer
	away            bool
	settled         bool          // a record has outlasted two exchanges: the members are known
	losing, lostAt  time.Duration // when the server began to lose records, and lost the last one
	lost            int64
	evicts          bool
	live            []*node
	next            int // where the next exchange begins in live
	claims          []claim
	asked           []claim // those of the exchange under way
	sent            []*node // its scopes
	sentAt          time.Duration
	low             bool // something taken ahead is nearly used up
	urgent          bool // a claim should not wait for the next beat
}

// Share shares the budgets with the other members of a fleet. Soft windows stay this
// governor's own. From now on a call is approved if the budgets allow it as far as they are
// known here, and what it takes was granted by the server. The owner calls
// [Governor.Exchange] when [Governor.Lacks] says so and every [FleetBeat], and brings each
// answer to [Governor.Exchanged]. Call Share once, before the first request.
func (g *Governor) Share(now time.Duration, o FleetOptions) {
	now = g.tick(now)
	g.fleet = &membership{FleetOptions: o, members: 1, answered: now}
	for n := range g.eachNode {
		g.fleet.watch(n, now)
	}
}

// watch includes a scope in the next exchanges.
func (f *membership) watch(n *node, now time.Duration) {
	if n.pool == nil {
		n.pool = &pool{day: n.day, fresh: math.MinInt64 / 2, refused: math.MinInt64 / 2}
		for b := range n.pool.part {
			n.pool.part[b].granted = math.MinInt64 / 2
		}
	}
	n.pool.touched = now
	if !n.pool.live && n.shares() {
		n.pool.live = true
		f.live = append(f.live, n)
	}
}

// of returns the pool of a scope for today.
func (f *membership) of(n *node, now time.Duration) *pool {
	if n.pool == nil || !n.pool.live {
		f.watch(n, now)
	}
	p := n.pool
	if p.day != n.day {
		p.day, p.part[dayTokens], p.part[dayCalls] = n.day, part{granted: now}, part{granted: now}
		n.tokensPending, n.callsPending = 0, 0
	}
	return p
}

// covers reports whether a scope has what a claim takes.
func (f *membership) covers(now time.Duration, n *node, c *claim) bool {
	p := f.of(n, now)
	p.touched = now
	need := n.amounts(c)
	for b := range need {
		if need[b] == 0 {
			continue
		}
		f.grow(now, n, b)
		if p.part[b].room < need[b] {
			return false
		}
	}
	return true
}

// alone reports whether this member may use its share, and if it waits.
func (f *membership) alone(now time.Duration) bool {
	return f.away && !f.Wait && f.settled && now < f.answered+aloneUntil
}

// grow gives a scope its share of a budget while the server is away, and takes what it had
// when that may not be used any more.
func (f *membership) grow(now time.Duration, n *node, b int) {
	p := &n.pool.part[b]
	switch {
	case !f.away:
	case !f.alone(now):
		p.owed -= max(p.room, 0)
		p.room = min(p.room, 0)
	case b >= kinds:
		p.room, p.owed, p.reserve = p.room+p.reserve, p.owed+p.reserve, 0
	default:
		p.accrued = max(p.accrued, f.answered+aloneAfter)
		if now <= p.accrued {
			return
		}
		r, share := &n.limits.refill[b], 1/float64(max(1, f.members))
		grown := p.rest + float64(now-p.accrued)/float64(time.Second)*float64(r.num)/float64(r.den)*share
		most := max(1, int64(float64(r.capacity/nano)*share))
		whole := max(0, min(int64(grown), most-p.room))
		p.accrued, p.rest = now, min(grown-math.Floor(grown), 1)
		p.room, p.grown = p.room+whole, p.grown+whole
	}
}

// covered reports whether all scopes have what a claim takes. If not, and the server is
// there, the next exchange asks for it.
func (f *membership) covered(now time.Duration, c *claim) bool {
	for _, n := range c.route.limited {
		if n.shares() && !f.covers(now, n, c) {
			if !slices.Contains(f.claims, *c) { // a request that waits asks again whenever it is its turn
				f.ask(now, c)
			}
			return false
		}
	}
	return true
}

// ask has the next exchange ask for what a claim takes.
func (f *membership) ask(now time.Duration, c *claim) {
	if f.away || len(f.claims) == maxClaims {
		return
	}
	f.claims = append(f.claims, *c)
	for _, n := range c.route.limited {
		if n.pool != nil && now < n.pool.refused+FleetBeat {
			return
		}
	}
	f.urgent = true
}

// stale reports whether what is known of a scope on the path is older than it is kept. From
// now on it is kept for a while.
func (f *membership) stale(now time.Duration, on *route) (old bool) {
	for _, n := range on.limited {
		if n.shares() {
			p := f.of(n, now)
			p.touched = now
			old = old || now > p.fresh+2*FleetBeat
		}
	}
	return old
}

// spend takes amounts from what a scope has; negative amounts are given back.
func (f *membership) spend(now time.Duration, n *node, a *[budgets]int64) {
	if !n.shares() {
		return
	}
	p := f.of(n, now)
	p.touched = now
	for b := range a {
		if a[b] == 0 {
			continue
		}
		t := &p.part[b]
		t.room -= a[b]
		t.used += max(a[b], 0)
		t.spent += a[b]
		if f.Ahead > 0 && t.room < t.target(f, n, b)/2 {
			f.low = true
		}
	}
}

// Lacks reports whether an exchange is due now: a call lacks a budget, or what was taken
// ahead is nearly used up.
func (g *Governor) Lacks() bool {
	return g.fleet != nil && !g.fleet.away && (g.fleet.urgent || g.fleet.low)
}

// Needs reports whether a request needs an exchange before [Governor.Approve] decides on it:
// the budgets allow it as far as known, or too little is known.
func (g *Governor) Needs(now time.Duration, r Request) bool {
	now = g.tick(now)
	var c claim
	var d Decision
	if g.fleet == nil || g.fleet.away || !g.claim(now, &r, &c, &d) {
		return false
	}
	for _, n := range c.route.nodes {
		n.sync(now)
	}
	if g.fleet.stale(now, c.route) {
		g.fleet.ask(now, &c)
		return true
	}
	for _, n := range c.route.nodes {
		if !n.passes(&c) {
			return false
		}
	}
	for _, n := range c.route.limited {
		if n.shares() && !g.fleet.covers(now, n, &c) {
			g.fleet.ask(now, &c)
			return true
		}
	}
	return false
}

// Exchange returns the next message to the server. The answer, or its loss, must be reported
// before the next one.
func (g *Governor) Exchange(now time.Duration, leave bool) *Exchange {
	now = g.tick(now)
	f, x := g.fleet, &Exchange{Lease: FleetLease, Silence: FleetSilence, Leave: leave, Away: g.fleet.away}
	if !f.at.IsZero() {
		x.Expect, x.Members = f.at.Add(now-f.heard), f.members
	}
	at := map[*node]*[budgets]int{}
	f.sent, f.sentAt, f.low, f.urgent = f.sent[:0], now, false, false
	f.asked, f.claims = f.claims, nil
	add := func(n *node) {
		if at[n] == nil && !n.retired && n.shares() {
			n.sync(now)
			at[n] = f.tell(now, n, x)
			f.sent = append(f.sent, n)
		}
	}
	if leave {
		f.asked = nil
	}
	for i := range f.asked {
		c := &f.asked[i]
		claim := SharedClaim{}
		for _, n := range c.route.limited {
			if n.retired || !n.shares() {
				continue
			}
			add(n)
			for b, amount := range n.amounts(c) {
				if amount > 0 {
					claim.Budgets, claim.Amounts = append(claim.Budgets, at[n][b]), append(claim.Amounts, amount)
				}
			}
		}
		x.Claims = append(x.Claims, claim)
	}
	for range len(f.live) {
		if len(x.Budgets) >= maxBudgets && !leave {
			break
		}
		f.next = (f.next + 1) % len(f.live)
		add(f.live[f.next])
	}
	return x
}

// tell adds the budgets of a scope to a message and returns their indices.
func (f *membership) tell(now time.Duration, n *node, x *Exchange) *[budgets]int {
	p, at := f.of(n, now), &[budgets]int{}
	for b := range budgets {
		at[b] = -1
		if !n.has(b) {
			continue
		}
		t := &p.part[b]
		t.measure(now)
		m := SharedBudget{Scope: n.scope, Name: budgetNames[b], Cap: n.cap(b), Born: t.born}
		goal := int64(0)
		if !x.Leave {
			goal = t.target(f, n, b)
		}
		keep := max(0, min(t.room, goal))
		if now < t.granted+FleetBeat && !x.Leave { // for a request that is about to take it
			keep = max(0, t.room)
		}
		// Debt is counted, and what is idle is given back. While the server is away it is kept: it
		// may be this member's share, and an exchange that is not answered would lose it.
		if t.room < 0 || t.room > 2*goal && (x.Leave || !f.away) {
			t.owed -= t.room - keep
			t.room = keep
		}
		m.Pending = t.room
		if !f.away {
			m.Ahead = max(0, goal-t.room)
		}
		m.Delta, m.Total = t.owed, t.counted+t.owed
		m.Grown, m.GrownTotal = t.grown, t.shares+t.grown
		switch b {
		case dayTokens:
			m.Known, m.Pending = float64(n.dayTokens+t.room), t.room+n.dayHeld
		case dayCalls:
			m.Known = float64(n.dayCalls + t.room)
		default:
			r := &n.limits.refill[b]
			m.Rate = float64(r.num) / float64(r.den)
			m.Known = float64(r.capacity-n.bucket[b].level)/nano + float64(t.room)
		}
		m.Known -= float64(m.Delta + m.Grown)
		if b >= kinds {
			m.Day = n.limits.calendar.name + " " + dayName(n.day)
			switch {
			case f.Wait || x.Leave:
			case f.away:
				m.Reserve = t.reserve // what is left of it
			default:
				m.Reserve = max(0, min(n.left(b)/int64(f.members), t.spent)/reserveShare)
			}
			t.reserve = min(t.reserve, m.Reserve) // more is not kept, if the answer is lost
			if !f.away {
				t.had = t.reserve
			}
			m.Kept, m.Had = t.kept, t.had
		} else if m.Known <= 0 && now > p.fresh+FleetLease {
			m.Born = "" // an idle bucket's record has expired
		}
		at[b] = len(x.Budgets)
		x.Budgets = append(x.Budgets, m)
	}
	return at
}

// Exchanged takes the server's answer to the last exchange. Requests that wait may pass now.
func (g *Governor) Exchanged(now time.Duration, x *Exchange, a *Exchanged) {
	now = g.tick(now)
	f := g.fleet
	f.heard, f.at, f.evicts = f.sentAt, a.At, a.Evicts
	was := f.away
	f.note(now, x, a)
	g.tellAway(now, was)
	if !f.away {
		f.members, f.silent = max(1, a.Members), a.Silent
	}
	claimed := make([]int64, len(x.Budgets))
	for i, ok := range a.Granted {
		if !ok {
			for _, n := range f.asked[i].route.limited {
				if n.pool != nil {
					n.pool.refused = now
				}
			}
			continue
		}
		for j, at := range x.Claims[i].Budgets {
			claimed[at] += x.Claims[i].Amounts[j]
		}
	}
	i := 0
	for _, n := range f.sent {
		n.sync(now)
		for b := range budgets {
			if i == len(x.Budgets) || x.Budgets[i].Scope != n.scope || x.Budgets[i].Name != budgetNames[b] {
				continue // the limits have changed since
			}
			if claimed[i] > 0 {
				n.pool.part[b].granted = now
			}
			if f.away { // what this record has is not learned: the next one gets all of it again
				n.pool.part[b].born = a.Budgets[i].Born
			} else {
				g.learn(n, b, &x.Budgets[i], &a.Budgets[i], claimed[i]+a.Budgets[i].Ahead)
			}
			i++
		}
		n.pool.fresh = f.sentAt
		g.reconsider(n, now)
	}
	g.sweepFleet(now)
	g.retry = now
}

// note takes from an answer whether the server kept its records. One that goes on losing them
// counts as away: it grants nothing.
func (f *membership) note(now time.Duration, x *Exchange, a *Exchanged) {
	kept, lost := false, int64(0)
	for i := range x.Budgets {
		if x.Budgets[i].Born == a.Budgets[i].Born {
			kept = true
		} else if x.Budgets[i].Born != "" {
			lost++
		}
	}
	f.settled = f.settled || kept
	if lost > 0 {
		if f.lost == 0 || now > f.lostAt+FleetSilence {
			f.losing = now
		}
		f.lostAt = now
		f.lost += lost
	}
	f.away = f.lost > 0 && f.lostAt-f.losing > aloneAfter && now < f.lostAt+FleetSilence
	if !f.away {
		f.answered = f.sentAt
	}
}

// learn updates a scope with the server's record of one budget.
func (g *Governor) learn(n *node, b int, m *SharedBudget, u *SharedUse, more int64) {
	if b >= kinds && m.Day != n.limits.calendar.name+" "+dayName(n.day) || !n.has(b) {
		return
	}
	t := &n.pool.part[b]
	t.owed, t.counted = t.owed-m.Delta, t.counted+m.Delta
	t.grown, t.shares = t.grown-m.Grown, t.shares+m.Grown
	t.room += more
	t.reserve, t.had, t.kept, t.born = u.Reserve, u.Reserve, u.Kept, u.Born
	t.rest = 0
	switch used := u.Use - float64(t.room); b {
	case dayTokens:
		n.dayTokens, n.tokensPending = max(0, int64(used)), u.Pending
		g.mark(n)
	case dayCalls:
		n.dayCalls, n.callsPending = max(0, int64(used)), u.Pending
		g.mark(n)
	default:
		r := &n.limits.refill[b]
		n.bucket[b].level = max(min(r.capacity, r.capacity-int64(used*nano)), floor)
		n.bucket[b].rem = 0
	}
}

// Unanswered reports that the last exchange was not answered: the server is away. What it
// would have granted counts as used; what it would have counted is sent again.
func (g *Governor) Unanswered(now time.Duration) {
	now = g.tick(now)
	f := g.fleet
	was := f.away
	f.away, f.asked, f.claims = true, nil, nil
	g.tellAway(now, was)
	g.retry = now
}

// tellAway reports a change of whether the server is away.
func (g *Governor) tellAway(now time.Duration, was bool) {
	if note := "back"; was != g.fleet.away {
		if !was {
			note = "away"
		}
		g.emit(now, Event{Type: EventFleet, Note: note})
	}
}
