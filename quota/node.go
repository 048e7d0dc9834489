package quota

import (
	"cmp"
	"math"
	"math/bits"
	"time"
)

// noCap is the value of a daily cap that is not set.
const noCap = math.MaxInt64

// limits are a scope's budgets, ready for use.
type limits struct {
	mask         uint8 // set of kinds that have a bucket
	refill       [kinds]refill
	softBudget   int64
	softSpan     time.Duration
	policy       Policy
	dailyTokens  int64 // noCap without a cap
	dailyCalls   int64
	calendar     *calendar
	perMinute    int64
	tokensClamp  int64 // the smallest capacity that a token estimate has to fit
	inputClamp   int64
	outputClamp  int64
	capped, soft bool
	spread       bool
	watched      bool // a charge may change its state
}

func compile(l *Limits, c *calendar) *limits {
	p := &limits{
		softBudget: l.SoftTokenBudget, softSpan: time.Duration(l.SoftTokenWindowMS) * time.Millisecond,
		policy: l.SoftPolicy, dailyTokens: l.MaxDailyTokens, dailyCalls: l.MaxDailyCalls, calendar: c,
		perMinute:   l.CallsPerMinute,
		tokensClamp: math.MaxInt64, inputClamp: math.MaxInt64, outputClamp: math.MaxInt64,
		capped: l.MaxDailyTokens > 0 || l.MaxDailyCalls > 0, soft: l.SoftTokenBudget > 0,
		spread: l.Spread,
	}
	p.dailyTokens = cmp.Or(p.dailyTokens, noCap)
	p.dailyCalls = cmp.Or(p.dailyCalls, noCap)
	set := func(kind int, r refill) {
		p.mask |= 1 << kind
		p.refill[kind] = r
	}
	minute := func(kind int, n, burst int64) (capacity int64) {
		r := perMinute(n, burst)
		if burst == 0 {
			r = perMinute(n, n)
			if l.Spread {
				r = spread(n)
			}
		}
		set(kind, r)
		return r.capacity / nano
	}
	switch {
	case l.RefillPerSecond > 0:
		switch {
		case l.Burst > 0:
			set(calls, perSecond(l.RefillPerSecond, l.Burst))
		case l.Spread:
			set(calls, perSecond(max(l.RefillPerSecond*98/100, 1.0/nano), max(1, int64(math.Ceil(l.RefillPerSecond*5)))))
		default:
			set(calls, perSecond(l.RefillPerSecond, l.CallsPerMinute))
		}
	case l.CallsPerMinute > 0:
		minute(calls, l.CallsPerMinute, l.Burst)
	}
	if n := l.TokensPerMinute; n > 0 {
		p.tokensClamp = minute(tokens, n, l.TokenBurst)
	}
	if n := l.InputTokensPerMinute; n > 0 {
		p.inputClamp = minute(inputTokens, n, l.InputTokenBurst)
	}
	if n := l.OutputTokensPerMinute; n > 0 {
		p.outputClamp = minute(outputTokens, n, l.OutputTokenBurst)
	}
	p.watched = p.capped || p.soft
	return p
}

// ledger counts tokens over the lifetime of the scope: granted always equals used +
// refunded + held. cached and reasoning are parts of used.
type ledger struct{ granted, used, refunded, held, cached, reasoning int64 }

// node is the state of one scope.
type node struct {
	scope    Scope
	limits   *limits
	bucket   [kinds]bucket
	refilled time.Duration
	window   *window // nil without a soft budget

	day       int64 // the calendar day that the daily use belongs to
	dayTokens int64
	dayHeld   int64 // the part of dayTokens that open permits only reserve
	dayCalls  int64
	// In a fleet: the parts of dayTokens and dayCalls that other members may give back.
	tokensPending, callsPending int64
	pool                        *pool // its shared budgets; nil without a fleet
	dirty                       bool  // its daily use changed since it was last stored

	ledger   ledger
	recent   recent
	approved int64
	denied   int64

	since   [kinds]time.Duration // when the bucket was added; earlier claims took nothing from it
	retired bool                 // its model is no longer configured, or its account was evicted

	state      State
	lacking    uint8         // kinds whose empty buckets began or prolonged the episode
	wanted     [kinds]int64  // the largest amount refused in it, in nano-units
	softWanted int64         // the largest amount that the window refused
	foreseen   time.Duration // soft because of a forecast, at least until then; zero if not
	heldBack   time.Duration // in throttle at least until then; zero if only because of buckets
	spentOn    int64         // the day on which it was exhausted
	factor     int64         // scale factor in thousandths
	step       int64         // size of a step back to 1
	stepAt     time.Duration // when it changes next; zero if it does not

	due  time.Duration // when it has to be looked at next
	heap int           // index in the schedule, -1 if not in it
	id   uint64        // order of creation: breaks ties
}

// sync brings buckets, window and day up to now.
func (n *node) sync(now time.Duration) {
	l := n.limits
	if elapsed := now - n.refilled; elapsed > 0 {
		n.refilled = now
		for m := l.mask; m != 0; m &= m - 1 {
			k := bits.TrailingZeros8(m) % kinds
			n.bucket[k].fill(&l.refill[k], elapsed)
		}
	}
	if n.window != nil {
		n.window.advance(now)
	}
	if n.day != l.calendar.day {
		n.day, n.dayTokens, n.dayHeld, n.dayCalls = l.calendar.day, 0, 0, 0
		n.tokensPending, n.callsPending = 0, 0
	}
}

// full returns which daily cap has no capacity for a call of so many tokens; "" if both
// have. held reports whether there would be capacity if all open permits gave back what
// they reserve.
func (n *node) full(charged int64) (capType string, held bool) {
	switch {
	case n.dayCalls >= n.limits.dailyCalls:
		return DailyCalls, n.dayCalls-n.callsPending < n.limits.dailyCalls
	case n.dayTokens > n.limits.dailyTokens-charged:
		return DailyTokens, n.dayUsed() <= n.limits.dailyTokens-charged
	}
	return "", false
}

// dayUsed returns the tokens used today, without those that are held.
func (n *node) dayUsed() int64 { return n.dayTokens - n.dayHeld - n.tokensPending }

// passes reports whether every budget has capacity for the claim.
func (n *node) passes(c *claim) bool {
	l := n.limits
	if n.dayTokens > l.dailyTokens-c.charged[tokens] || n.dayCalls > l.dailyCalls-1 {
		return false
	}
	for m := l.mask; m != 0; m &= m - 1 {
		if k := bits.TrailingZeros8(m) % kinds; n.bucket[k].level < c.taken[k]*nano {
			return false
		}
	}
	return n.window == nil || n.window.sum <= l.softBudget-c.windowed || l.policy == Advise
}

// spent reports whether a daily cap is used up.
func (n *node) spent() bool {
	return n.dayUsed() >= n.limits.dailyTokens || n.dayCalls-n.callsPending >= n.limits.dailyCalls
}

// nearlySpent reports whether at most a hundredth of a daily cap is left. If a request
// does not fit into that, the cap counts as used up.
func (n *node) nearlySpent() bool {
	return n.dayUsed() >= n.limits.dailyTokens-n.limits.dailyTokens/100 || n.dayCalls-n.callsPending >= n.limits.dailyCalls
}

// configure replaces the limits; use carries over.
func (n *node) configure(l *limits, now time.Duration) {
	n.sync(now)
	old := n.limits
	for k := range n.bucket {
		b, r := &n.bucket[k], &l.refill[k]
		switch bit := uint8(1) << k; {
		case l.mask&bit == 0:
			*b = bucket{}
			n.lacking &^= bit
		case old.mask&bit == 0:
			*b = bucket{level: r.capacity}
			n.since[k] = now
		case old.refill[k] != *r:
			b.level = max(r.capacity-(old.refill[k].capacity-b.level), floor)
			b.rem = 0
		}
		n.wanted[k] = min(n.wanted[k], r.capacity)
	}
	switch {
	case !l.soft:
		n.window = nil
	case n.window == nil:
		n.window = newWindow(l.softSpan, now)
	case l.softSpan != old.softSpan:
		n.window = n.window.widened(l.softSpan, now)
	}
	n.softWanted = min(n.softWanted, l.softBudget)
	if l.calendar != old.calendar {
		n.day = l.calendar.day // today's use counts as today's in the new zone
		n.spentOn = n.day
	}
	n.limits = l
}

// idle reports whether the scope can be dropped without losing anything that matters.
func (n *node) idle(now time.Duration) bool {
	n.sync(now)
	for k := range n.bucket {
		if n.limits.mask&(1<<k) != 0 && n.bucket[k].level < n.limits.refill[k].capacity {
			return false
		}
	}
	return n.state == Normal && n.heap < 0 && n.ledger.held == 0 && (n.pool == nil || !n.pool.live) &&
		(n.window == nil || n.window.sum == 0) &&
		(!n.limits.capped || n.dayTokens == 0 && n.dayCalls == 0)
}

// recent estimates the rate of use over the last span: the charges in the current span,
// plus the fraction of the previous one that still overlaps.
type recent struct {
	turn      time.Duration // when the current span ends
	tokens    int64
	calls     int64
	oldTokens int64
	oldCalls  int64
}

func (r *recent) roll(now, span time.Duration) {
	if now < r.turn {
		return
	}
	if now < r.turn+span {
		r.oldTokens, r.oldCalls = r.tokens, r.calls
	} else {
		r.oldTokens, r.oldCalls = 0, 0
	}
	r.tokens, r.calls = 0, 0
	r.turn = (now/span + 1) * span
}

// rates returns the tokens and calls of the last span. Call roll first.
func (r *recent) rates(now, span time.Duration) (tokens, calls int64) {
	whole := int64(span / time.Millisecond)
	left := int64((r.turn - now) / time.Millisecond)
	return r.tokens + share(r.oldTokens, left, whole), r.calls + share(r.oldCalls, left, whole)
}

// share returns n x part / whole, rounded down, for non-negative numbers; math.MaxInt64
// if the result does not fit.
func share(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	if hi >= uint64(whole) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(min(q, math.MaxInt64))
}

// shares reports whether the scope has a budget that is shared.
func (n *node) shares() bool { return n.limits.mask != 0 || n.limits.capped }

// amounts returns what a claim takes from the budgets that a scope has.
func (n *node) amounts(c *claim) (a [budgets]int64) {
	l := n.limits
	for k := range kinds {
		if l.mask&(1<<k) != 0 {
			a[k] = c.taken[k]
		}
	}
	if l.dailyTokens != noCap {
		a[dayTokens] = c.charged[tokens]
	}
	if l.dailyCalls != noCap {
		a[dayCalls] = 1
	}
	return a
}

// cap returns a budget in whole calls or tokens.
func (n *node) cap(b int) int64 {
	switch b {
	case dayTokens:
		return n.limits.dailyTokens
	case dayCalls:
		return n.limits.dailyCalls
	}
	return n.limits.refill[b].capacity / nano
}

// left returns how much of a budget is left, as far as known.
func (n *node) left(b int) int64 {
	switch b {
	case dayTokens:
		return max(0, n.limits.dailyTokens-n.dayTokens)
	case dayCalls:
		return max(0, n.limits.dailyCalls-n.dayCalls)
	}
	return max(0, n.bucket[b].level/nano)
}

// has reports whether the scope has a budget.
func (n *node) has(b int) bool {
	switch b {
	case dayTokens:
		return n.limits.dailyTokens != noCap
	case dayCalls:
		return n.limits.dailyCalls != noCap
	}
	return n.limits.mask&(1<<b) != 0
}

// pool is what one scope has of its shared budgets.
type pool struct {
	part    [budgets]part
	touched time.Duration // by a call
	fresh   time.Duration // when it was last in an exchange
	refused time.Duration // when the server refused a claim of it
	live    bool          // it is in the exchanges
	day     int64
}

// part is what one scope has of one shared budget, in whole calls or tokens.
type part struct {
	room    int64         // taken and not used; below zero it was used beyond what was taken
	used    int64         // by calls since the last exchange
	spent   int64         // by calls of this member, today
	granted time.Duration // when a claim was granted
	reserve int64         // kept by the server for this member
	owed    int64         // changes of the use since the last answer: what was used, less what was given back
	counted int64         // all such changes before
	grown   int64         // the share taken since the last answer
	shares  int64         // all such shares before
	had     int64         // the reserve at the last answer
	kept    int64         // the reserves of all members then
	rate    float64
	at      time.Duration // when rate was computed
	accrued time.Duration // until when room has grown while the server is away
	rest    float64       // of that growth, less than one
	born    string
}

// measure computes the recent rate of use.
func (p *part) measure(now time.Duration) {
	const over = 200 * time.Millisecond
	past := now - p.at
	if past < over/10 {
		return
	}
	weight := min(1, float64(past)/float64(over))
	p.rate += (float64(p.used)/past.Seconds() - p.rate) * weight
	p.at, p.used = now, 0
}

// sweepFleet leaves out scopes that nobody used lately, but not those of the configuration.
func (g *Governor) sweepFleet(now time.Duration) {
	f := g.fleet
	kept := f.live[:0]
	for _, n := range f.live {
		p := n.pool
		idle := now-p.touched > liveFor && (n.scope.Tenant != "" || n.scope.Agent != "")
		for b := range p.part {
			idle = idle && p.part[b].room == 0 && p.part[b].owed == 0
		}
		if p.live = !n.retired && !idle; p.live {
			kept = append(kept, n)
		}
	}
	clear(f.live[len(kept):])
	f.live = kept
}
