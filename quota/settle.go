package quota

import (
	"fmt"
	"math/bits"
	"time"
)

// RecordUsage settles a permit with what the call used: the unused part of the
// reservation is given back, and use beyond it is charged, below zero if necessary. first
// is false if the permit had already ended; then nothing changes. The error is a
// [*FieldError] for usage out of its bound, or a [*Denial] with [CodeApprovalConflict] if
// the permit was never issued, was canceled, had expired, or was settled with a different
// usage.
func (g *Governor) RecordUsage(now time.Duration, id Permit, actual Usage) (first bool, err error) {
	now = g.tick(now)
	if !actual.valid() {
		return false, actual.Validate()
	}
	h := g.permits.find(id)
	if h == nil || h.end != open {
		if h == nil && g.permits.issued(id) || h != nil && h.end == settled && h.actual == actual {
			return false, nil
		}
		return false, g.conflict()
	}
	h.actual = actual
	charged, rated := h.route.rule.final(actual, h.max, &h.rated)
	for _, n := range h.route.nodes {
		n.ledger.cached += actual.Cached
		n.ledger.reasoning += actual.Reasoning
	}
	g.end(now, id, h, &charged, &rated, settled)
	return true, nil
}

// Cancel gives back a permit, with its call, if nothing was sent. first is false if the
// permit had already ended; then nothing changes, so that Cancel is safe to defer. The
// error is a [*Denial] with [CodeApprovalConflict] if the permit was never issued.
func (g *Governor) Cancel(now time.Duration, id Permit) (first bool, err error) {
	now = g.tick(now)
	h := g.permits.find(id)
	switch {
	case h == nil && !g.permits.issued(id):
		return false, g.conflict()
	case h == nil || h.end != open:
		return false, nil
	}
	g.end(now, id, h, &amount{}, &amount{}, canceled)
	return true, nil
}

// Drain reports that n more output tokens of the call were received. Output beyond the
// reservation is charged at once and not only at the end. The error is that of
// [Governor.RecordUsage]; a permit that has ended is a conflict.
func (g *Governor) Drain(now time.Duration, id Permit, n int64) error {
	now = g.tick(now)
	h := g.permits.find(id)
	if h == nil || h.end != open {
		return g.conflict()
	}
	if n < 0 || n > MaxTokens-h.flowed {
		return &FieldError{"drained tokens", fmt.Sprint(n), fmt.Sprintf("from 0 to %d", MaxTokens-h.flowed)}
	}
	h.flowed += n
	flowed, rated := h.flow()
	charged, taken := h.charged, h.taken
	for k := range flowed {
		charged[k], taken[k] = max(charged[k], flowed[k]), max(taken[k], rated[k])
	}
	if taken != h.taken { // the charge never rises unless taken does
		g.adjust(now, h, &charged, &taken, false)
		h.charged, h.taken, h.windowed = charged, taken, max(h.windowed, charged[tokens])
	}
	return nil
}

// flow returns the usage known so far.
func (h *hold) flow() (charged, rated amount) {
	u := h.input
	u.Output = h.flowed
	return u.real(), h.route.rule.rated(u, h.max)
}

// conflict counts the use of an invalid permit and returns the error.
func (g *Governor) conflict() error {
	g.counts.conflicts++
	return &Denial{Reason: HardLimit, Code: CodeApprovalConflict, RetryIn: Never}
}

// expire releases a permit that was never settled. Output that was drained stays charged,
// and so does the call, which was most likely made.
func (g *Governor) expire(now time.Duration, id Permit, h *hold) {
	g.permits.expired++
	charged := amount{calls: 1}
	rated := charged
	switch {
	case g.config.KeepExpired:
		charged = h.charged
		for k := range rated {
			rated[k] = max(h.rated[k], h.taken[k])
		}
	case h.flowed > 0:
		charged, rated = h.flow()
	}
	g.end(now, id, h, &charged, &rated, expired)
}

// end brings a permit to its final amounts and closes it.
func (g *Governor) end(now time.Duration, id Permit, h *hold, charged, rated *amount, how ending) {
	g.adjust(now, h, charged, rated, true)
	h.route.account.open--
	g.permits.close(id, h, how)
}

// adjust sets what a permit charges and takes in all its scopes; last says that the
// permit is over, so that what was held counts as used.
func (g *Governor) adjust(now time.Duration, h *hold, charged, taken *amount, last bool) {
	cost := charged[tokens] - h.charged[tokens]
	for _, n := range h.route.nodes {
		n.ledger.granted += max(cost, 0)
		if last {
			n.ledger.refunded += max(-cost, 0)
			n.ledger.held -= h.charged[tokens]
			n.ledger.used += charged[tokens]
		} else {
			n.ledger.held += cost
		}
		g.shift(now, n, h, charged, taken, last)
	}
	g.retry = now // waiters may now pass, or be refused for the day
}

// shift sets what a permit charges and takes in one scope.
func (g *Governor) shift(now time.Duration, n *node, h *hold, charged, taken *amount, last bool) {
	n.sync(now)
	l, eased := n.limits, false
	cost, call := charged[tokens]-h.charged[tokens], charged[calls]-h.charged[calls]
	for m := l.mask; m != 0; m &= m - 1 {
		k := bits.TrailingZeros8(m) % kinds
		more := taken[k] - h.taken[k]
		if more < 0 && h.at <= n.since[k] {
			continue
		}
		n.bucket[k].take(&l.refill[k], more*nano)
		eased = eased || more < 0
	}
	if n.window != nil {
		switch flow := charged[tokens] - h.windowed; {
		case flow > 0:
			n.window.add(flow)
		case flow < 0:
			n.window.giveBack(-flow, h.at)
		}
	}
	// What was reserved yesterday does not count as today's use.
	today := h.at >= l.calendar.start
	if g.fleet != nil {
		g.fleet.spend(now, n, n.corrections(h, charged, taken, today))
	}
	if cost > 0 || today {
		n.dayTokens = max(0, n.dayTokens+cost)
	}
	if today {
		n.dayCalls = max(0, n.dayCalls+call)
	}
	if today && last {
		n.dayHeld = max(0, n.dayHeld-h.held)
	}
	eased = eased || cost < 0 || call < 0
	n.recent.roll(now, g.span)
	n.recent.tokens = max(0, n.recent.tokens+cost)
	n.recent.calls = max(0, n.recent.calls+call)
	g.mark(n)
	if eased && n.state != Normal {
		g.reconsider(n, now)
	} else if l.watched || n.state != Normal {
		g.observe(n, now)
	}
}

// corrections returns what a settlement takes besides what its permit took.
func (n *node) corrections(h *hold, charged, taken *amount, today bool) *[budgets]int64 {
	var a [budgets]int64
	for k := range kinds {
		if more := taken[k] - h.taken[k]; n.limits.mask&(1<<k) != 0 && (more > 0 || h.at > n.since[k]) {
			a[k] = more
		}
	}
	if cost := charged[tokens] - h.charged[tokens]; n.has(dayTokens) && (cost > 0 || today) {
		a[dayTokens] = cost
	}
	if n.has(dayCalls) && today {
		a[dayCalls] = charged[calls] - h.charged[calls]
	}
	return &a
}

// Overrun reports that the provider refused an open permit's call for its rate although
// it was within the limits, so that the provider does not accept a minute's worth in one
// burst. From now on the global limits and the model's are spread (see Limits.Spread),
// even if they have a burst, until the configuration is replaced. Use carries over. It
// reports whether that changed anything.
func (g *Governor) Overrun(now time.Duration, id Permit) (changed bool) {
	now = g.tick(now)
	h := g.permits.find(id)
	if h == nil || h.end != open {
		return false
	}
	for _, n := range h.route.nodes {
		if n.common() && !n.retired && g.spreadOut(n, now) {
			changed = true
		}
	}
	if changed {
		g.root.forgetRoutes()
		for _, w := range g.waiting {
			g.reroute(w)
		}
		g.setBurst()
		g.retry = now
	}
	return changed
}

// spreadOut spreads the limits of one scope.
func (g *Governor) spreadOut(n *node, now time.Duration) bool {
	l := g.config.Global
	if n.scope.Model != "" {
		l = g.config.Models[n.scope.Model].Limits
	}
	l.Burst, l.TokenBurst, l.InputTokenBurst, l.OutputTokenBurst, l.Spread = 0, 0, 0, 0, true
	p := compile(&l, n.limits.calendar)
	if p.mask == 0 || p.refill == n.limits.refill {
		return false
	}
	n.configure(p, now)
	g.reconsider(n, now)
	return true
}

// forgetRoutes clears the cached paths through a.
func (a *account) forgetRoutes() {
	a.routes = nil
	for _, c := range a.children {
		c.forgetRoutes()
	}
}

// MaxTokens is the largest number of tokens accepted for one call: a bound against
// nonsense, far above any model's context.
const MaxTokens = 1_000_000_000

// MaxTokensRule says how a request's max_tokens affects its charge.
type MaxTokensRule string

// The rules.
const (
	// IgnoreMax: max_tokens is not charged; output counts first as expected, then as
	// generated.
	IgnoreMax MaxTokensRule = ""
	// FloorMax: the larger of max_tokens and the input counts, whatever is generated.
	FloorMax MaxTokensRule = "floor"
	// ReserveMax: input and max_tokens count, even if less is generated.
	ReserveMax MaxTokensRule = "reserve"
)

// Charge says which tokens of a call a provider counts against tokens_per_minute and
// input_tokens_per_minute. The zero value counts all input and all output. Everything
// else (daily caps, soft windows, budgets of output tokens, ledgers and reports) counts
// the input and output actually used, under any rule.
type Charge struct {
	// MaxTokens says how max_tokens counts. Default [IgnoreMax].
	MaxTokens MaxTokensRule `json:"maxTokens,omitempty"`
	// CachedDiscount is the discount on cached input tokens in percent: 0 (default)
	// counts them in full, 100 not at all.
	CachedDiscount int64 `json:"cachedDiscount,omitempty"`
	// OutputFree: output does not count at all.
	OutputFree bool `json:"outputFree,omitempty"`
}

// StandardCharges returns the built-in rules, under the names of the APIs that document
// them. A configuration may use these names, and add or replace rules.
func StandardCharges() map[string]Charge {
	return map[string]Charge{
		"total":     {},
		"openai":    {MaxTokens: FloorMax},
		"azure":     {MaxTokens: ReserveMax},
		"anthropic": {CachedDiscount: 100},
		"gemini":    {OutputFree: true},
	}
}

// Usage is what a call used, in tokens, each from 0 to [MaxTokens].
type Usage struct {
	// Input is all input, cached or not.
	Input int64 `json:"input"`
	// Cached is the part of Input that was read from the provider's cache.
	Cached int64 `json:"cached,omitempty"`
	// Output is the generated tokens, including reasoning.
	Output int64 `json:"output"`
	// Reasoning is the part of Output that is reasoning and not part of the answer.
	Reasoning int64 `json:"reasoning,omitempty"`
}

// Validate returns an error that names the number that is negative or too large.
func (u Usage) Validate() error {
	for _, f := range [...]struct {
		name     string
		n, bound int64
	}{{"input", u.Input, MaxTokens}, {"output", u.Output, MaxTokens}, {"cached", u.Cached, u.Input}, {"reasoning", u.Reasoning, u.Output}} {
		if f.n < 0 || f.n > f.bound {
			return &FieldError{"usage." + f.name, fmt.Sprint(f.n), fmt.Sprintf("from 0 to %d", f.bound)}
		}
	}
	return nil
}

// valid is Validate for the hot path.
func (u Usage) valid() bool {
	return uint64(u.Input) <= MaxTokens && uint64(u.Output) <= MaxTokens &&
		uint64(u.Cached) <= uint64(u.Input) && uint64(u.Reasoning) <= uint64(u.Output)
}

// amount is what a call takes, by kind of budget.
type amount [kinds]int64

// real returns the usage itself, whatever a provider counts.
func (u Usage) real() amount { return amount{1, u.Input + u.Output, u.Input, u.Output} }

// rated returns what the usage counts against budgets per minute.
func (c *Charge) rated(u Usage, maxTokens int64) amount {
	in, out := u.Input, u.Output
	if c.CachedDiscount != 0 {
		in -= u.Cached * c.CachedDiscount / 100
	}
	if c.OutputFree {
		out = 0
	}
	all := in + out
	switch c.MaxTokens {
	case FloorMax:
		all = max(in, maxTokens)
	case ReserveMax:
		all = in + max(out, maxTokens)
	case IgnoreMax:
	}
	return amount{1, all, in, u.Output}
}

// final returns what a call with this usage counts in the end, given its per-minute
// reservation. A call that used nothing was refused: it counts as a call without tokens,
// whatever it asked for.
func (c *Charge) final(u Usage, maxTokens int64, reserved *amount) (charged, rated amount) {
	if u == (Usage{}) {
		return amount{calls: 1}, amount{calls: 1}
	}
	charged, rated = u.real(), c.rated(u, maxTokens)
	if c.MaxTokens == ReserveMax {
		rated[tokens] = max(rated[tokens], reserved[tokens])
	}
	return charged, rated
}

// Rated returns how many tokens of a usage, expected or actual, the provider counts
// against a budget per minute. maxTokens is the request's own bound on its output; 0
// means none.
func (c Charge) Rated(u Usage, maxTokens int64) int64 { return c.rated(u, maxTokens)[tokens] }
