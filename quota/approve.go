package quota

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Approve requests one call. If it is approved, its estimate is taken from every scope on
// its path, and the permit must be settled with [Governor.RecordUsage] or given back with
// [Governor.Cancel]. If it is refused, nothing is taken. Waiting requests (see
// [Governor.Enqueue]) go before a request of no greater priority.
func (g *Governor) Approve(now time.Duration, r Request) (d Decision) {
	now = g.tick(now)
	var c claim
	switch {
	case !g.claim(now, &r, &c, &d):
		g.deny(now, nil, &d)
	case len(g.waiting) > 0 && g.behind(now, &c, r.Priority, &d), !g.admit(now, &c, &d):
		if d.Reason == "" {
			d = g.refuse(now, &c)
		}
		if d.soon() {
			wait, _ := g.prospect(now, &waiter{claim: c, priority: r.Priority})
			d.putOff(wait)
		}
		g.deny(now, &c, &d)
	case g.queue.Flows() > 0:
		g.forgetShares(now)
		g.queue.Direct(now, c.request())
	}
	return d
}

// claim finds the request's path and what it would take. It returns false if the request
// itself is refused.
func (g *Governor) claim(now time.Duration, r *Request, c *claim, d *Decision) bool {
	code := CodeInvalidConfig
	if r.valid() {
		if on := g.route(r, now); on != nil {
			r.claim(on, c)
			return true
		}
		code = CodeModelNotConfigured
	}
	*d = Decision{Reason: HardLimit, Code: code, RetryIn: Never, Final: true}
	if len(r.Model) <= maxName {
		d.Scope.Model = r.Model
	}
	return false
}

// behind reports whether a request of at least this priority waits for a scope on the
// path.
func (g *Governor) behind(now time.Duration, c *claim, priority int, d *Decision) bool {
	n := g.claimed(c.route, priority)
	if n == nil {
		return false
	}
	*d = Decision{Reason: Throttled, Code: bucketCode(n), Scope: n.scope, RetryIn: max(1, g.retry-now)}
	return true
}

// admit takes the claim from all its scopes, or from none.
func (g *Governor) admit(now time.Duration, c *claim, d *Decision) bool {
	for _, n := range c.route.nodes {
		n.sync(now)
		if !n.passes(c) {
			return false
		}
	}
	if g.fleet != nil && !g.fleet.covered(now, c) {
		return false
	}
	d.Approved = true
	switch {
	case c.route.spread:
		c.taken, c.windowed = c.rated, c.charged[tokens]
	case c.clamped():
		d.Advisory |= AdviseClamped
	}
	if c.route.shared {
		d.Advisory |= AdviseShared
	}
	for _, n := range c.route.nodes {
		g.charge(now, n, c)
		if n.state != Normal || n.window != nil {
			d.remark(n)
		}
	}
	var h *hold
	d.Permit, h = g.permits.put()
	h.claim, h.at, h.flowed, h.held = *c, now, 0, c.charged[tokens]
	c.route.account.open++
	g.counts.approved++
	g.due = min(g.due, now+g.ttl)
	return true
}

// charge takes the claim from one scope and updates the scope's state.
func (g *Governor) charge(now time.Duration, n *node, c *claim) {
	l, cost := n.limits, c.charged[tokens]
	for m := l.mask; m != 0; m &= m - 1 {
		k := bits.TrailingZeros8(m) % kinds
		n.bucket[k].take(&l.refill[k], c.taken[k]*nano)
	}
	if n.window != nil {
		n.window.add(c.windowed)
	}
	n.dayTokens += cost
	n.dayHeld += cost
	n.dayCalls++
	if g.fleet != nil {
		need := n.amounts(c)
		g.fleet.spend(now, n, &need)
	}
	n.ledger.granted += cost
	n.ledger.held += cost
	n.approved++
	n.recent.roll(now, g.span)
	n.recent.tokens += cost
	n.recent.calls++
	g.mark(n)
	if l.watched || n.state != Normal {
		g.observe(n, now)
	}
}

// mark records that the node's daily use must be stored.
func (g *Governor) mark(n *node) {
	if n.dirty {
		return
	}
	if len(g.changed) >= g.sweep {
		// The list was not taken for a long time: remove retired nodes.
		g.changed = slices.DeleteFunc(g.changed, func(n *node) bool { return n.retired })
		g.sweep = 1024 + 2*len(g.changed)
	}
	n.dirty = true
	g.changed = append(g.changed, n)
}

// remark adds the advisories of a scope on the path.
func (d *Decision) remark(n *node) {
	switch n.state {
	case Soft:
		d.Advisory |= AdviseSoft
	case Throttle:
		d.Advisory |= AdviseThrottled
	case Normal, Exhausted, states:
	}
	if w := n.window; w != nil {
		d.Utilization = max(d.Utilization, share(w.sum, 1000, n.limits.softBudget))
		if w.sum > n.limits.softBudget {
			d.Advisory |= AdviseOverSoft
		}
	}
}

// verdict is the result of one scope for a claim that does not pass all of them.
type verdict struct {
	reason  Reason
	capType string
	wait    time.Duration
	final   bool
	lacking uint8 // kinds whose bucket is too low
	over    bool  // the window is full
	held    bool  // only what open permits reserve of the day, or what a fleet has not granted, is in the way
}

// examine returns why a claim does not pass, and when it could. Reason is empty if it
// passes.
func (n *node) examine(now time.Duration, c *claim) (v verdict) {
	l := n.limits
	for k := range n.bucket {
		if l.mask&(1<<k) == 0 {
			continue
		}
		if wait := n.bucket[k].wait(&l.refill[k], c.taken[k]*nano); wait > 0 {
			v.reason, v.wait = Throttled, max(v.wait, wait)
			v.lacking |= 1 << k
		}
	}
	if w := n.window; w != nil && l.policy != Advise && w.sum > l.softBudget-c.windowed {
		v.over, v.final = true, l.policy == Deny
		if wait := w.falls(l.softBudget-c.windowed, now) - now; wait > v.wait || v.reason == "" || v.final {
			v.reason, v.wait = SoftLimit, max(wait, v.wait)
		}
	}
	capType, held := n.full(c.charged[tokens])
	switch {
	case capType == "":
	case held:
		v.held = true
		if v.reason == "" {
			v.reason = Throttled
		}
	default:
		v.capType, v.reason, v.wait, v.final = capType, HardLimit, l.calendar.end-now, true
		if c.charged[tokens] > l.dailyTokens {
			v.wait = Never
		}
	}
	return v
}

// short reports whether a scope lacks what a claim takes.
func (g *Governor) short(now time.Duration, n *node, c *claim) bool {
	return n.examine(now, c).reason != "" || g.fleet != nil && n.shares() && !g.fleet.covers(now, n, c)
}

// target returns how much of a budget to take ahead.
func (p *part) target(f *membership, n *node, b int) int64 {
	want := p.rate * f.Ahead.Seconds()
	if want < 2 {
		return 0
	}
	limit, left := n.cap(b), n.left(b)
	return max(0, min(int64(want), limit/aheadShare/int64(f.members), left/reserveShare/int64(f.members)))
}

// heldRetry is when to look again for tokens that open permits hold: nothing says when
// they end, or with how many tokens.
const heldRetry = time.Second

// refuse returns the refusal: of a hard limit if there is one, otherwise of what takes
// longest. It begins the episodes that the refusal indicates.
func (g *Governor) refuse(now time.Duration, c *claim) Decision {
	d := Decision{RetryIn: -1}
	for _, n := range c.route.nodes {
		n.sync(now)
		v := n.examine(now, c)
		if v.reason == "" && g.short(now, n, c) {
			v.reason, v.held = Throttled, true
		}
		if v.reason == "" {
			continue
		}
		g.press(n, &v, c, now)
		if v.held {
			d.Held, v.wait = true, max(v.wait, min(heldRetry, n.limits.calendar.end-now))
		}
		harder := v.reason == HardLimit && d.Reason != HardLimit
		if !harder && (d.Reason == HardLimit) != (v.reason == HardLimit) {
			continue
		}
		if harder || v.wait > d.RetryIn || v.final && !d.Final {
			d.Reason, d.RetryIn, d.Scope = v.reason, max(v.wait, d.RetryIn), n.scope
			if harder {
				d.RetryIn = v.wait
			}
			d.Final = d.Final || v.final
			d.Code = codeOf(v.reason, n)
		}
	}
	return d
}

// bucketCode returns the code of an empty bucket.
func bucketCode(n *node) Code {
	if n.scope.Global() {
		return CodeGlobalLimit
	}
	return CodeThrottled
}

// deny counts a refusal and emits its event.
func (g *Governor) deny(now time.Duration, c *claim, d *Decision) {
	g.counts.denied++
	e := Event{Type: EventDenied, Scope: d.Scope, Reason: d.Reason, Code: d.Code}
	if c != nil {
		for _, n := range c.route.nodes {
			n.denied++
		}
		e.Scope = c.route.account.scope()
		e.Model = c.route.model.scope.Model
	}
	if d.RetryIn != Never {
		e.RetryInMS = milliseconds(d.RetryIn)
	}
	if last := g.events.newest(); last != nil && last.Type == EventDenied && last.Scope == e.Scope && last.Code == e.Code {
		last.Count = max(1, last.Count) + 1
		last.RetryInMS = e.RetryInMS
		return
	}
	g.emit(now, e)
}

// milliseconds rounds up to whole milliseconds.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// emit puts an event into the ring.
func (g *Governor) emit(now time.Duration, e Event) {
	e.Seq = g.events.total + 1
	e.Instant, e.At = now, g.origin.Add(now).UTC()
	e.Global = e.Scope.Global()
	g.events.add(e)
}

// Request describes one call.
type Request struct {
	// Model is a key of the configuration's models.
	Model string `json:"model"`
	// InputTokens and OutputTokens are what the call is expected to use. CachedTokens is
	// the part of the input expected from the provider's cache. MaxTokens is the
	// request's own bound on its output. Each is from 0 to [MaxTokens].
	InputTokens  int64 `json:"expected_input_tokens"`
	OutputTokens int64 `json:"expected_output_tokens,omitempty"`
	CachedTokens int64 `json:"cached_tokens,omitempty"`
	MaxTokens    int64 `json:"max_tokens,omitempty"`
	// Tenant and Agent name the scopes that the call counts in, at most 256 bytes each.
	// Without them only the limits of the whole and of the model apply.
	Tenant string `json:"tenant,omitempty"`
	Agent  string `json:"agent,omitempty"`
	// Priority orders waiting requests: the greatest goes first.
	Priority int `json:"priority,omitempty"`
	// Reason is a note of the caller's. It has no effect.
	Reason string `json:"reason,omitempty"`
}

// Validate returns an error that names the number that is out of its bound.
func (r *Request) Validate() error {
	for _, f := range [...]struct {
		name     string
		n, bound int64
	}{
		{"expected_input_tokens", r.InputTokens, MaxTokens},
		{"expected_output_tokens", r.OutputTokens, MaxTokens},
		{"cached_tokens", r.CachedTokens, r.InputTokens},
		{"max_tokens", r.MaxTokens, MaxTokens},
	} {
		if f.n < 0 || f.n > f.bound {
			return &FieldError{f.name, fmt.Sprint(f.n), fmt.Sprintf("from 0 to %d", f.bound)}
		}
	}
	for _, f := range [...]struct{ field, name string }{{"model", r.Model}, {"tenant", r.Tenant}, {"agent", r.Agent}} {
		if len(f.name) > maxName {
			return &FieldError{f.field, fmt.Sprintf("a name of %d bytes", len(f.name)), fmt.Sprintf("at most %d bytes", maxName)}
		}
	}
	return nil
}

// valid is Validate for the hot path.
func (r *Request) valid() bool {
	return uint64(r.InputTokens) <= MaxTokens && uint64(r.OutputTokens) <= MaxTokens &&
		uint64(r.MaxTokens) <= MaxTokens && uint64(r.CachedTokens) <= uint64(r.InputTokens) &&
		len(r.Model) <= maxName && len(r.Tenant) <= maxName && len(r.Agent) <= maxName
}

// expected returns the estimate as a usage.
func (r *Request) expected() Usage {
	return Usage{Input: r.InputTokens, Cached: r.CachedTokens, Output: r.OutputTokens}
}

// claim is a request with its path: what it would take from each scope.
type claim struct {
	route    *route
	charged  amount // actual tokens: from daily caps, windows and ledgers
	rated    amount // tokens as the provider counts them: for budgets per minute
	taken    amount // from buckets: rated, but at most a full bucket
	windowed int64  // from soft windows: charged, but at most an empty window
	max      int64  // max_tokens of the request
	input    Usage  // expected input, with its cached part
}

func (r *Request) claim(on *route, c *claim) {
	u := r.expected()
	c.route, c.charged, c.max = on, u.real(), r.MaxTokens
	c.rated = on.rule.rated(u, r.MaxTokens)
	c.input = Usage{Input: u.Input, Cached: u.Cached}
	c.clamp()
}

// clamp reduces the claim to what the budgets on its path can hold.
func (c *claim) clamp() {
	for k := range c.taken {
		c.taken[k] = min(c.rated[k], c.route.clamp[k])
	}
	c.windowed = min(c.charged[tokens], c.route.window)
}

func (c *claim) clamped() bool { return c.taken != c.rated || c.windowed != c.charged[tokens] }
