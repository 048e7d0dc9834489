package quota

import (
	"math"
	"math/bits"
	"time"
)

// strained reports whether a normal scope should be soft: above 0.8 of its soft budget,
// or with a budget that is forecast to run out.
func (g *Governor) strained(n *node, at time.Duration) bool {
	if w := n.window; w != nil && w.sum > n.limits.softBudget-n.limits.softBudget/5 {
		return true
	}
	if hold := g.foresees(n, at); hold > 0 {
		n.foreseen = later(at, hold)
		return true
	}
	return false
}

// relieved reports whether a soft scope should be normal again.
func (g *Governor) relieved(n *node, at time.Duration) bool {
	if n.foreseen > 0 {
		if at < n.foreseen {
			return false
		}
		if hold := g.foresees(n, at); hold > 0 {
			n.foreseen = later(at, hold)
			return false
		}
		n.foreseen = 0
	}
	return n.window == nil || n.window.sum <= n.relief()
}

// relief returns the most that the window may hold when pressure ends: 0.7 of the budget,
// and with capacity for the largest amount that was refused.
func (n *node) relief() int64 {
	budget := n.limits.softBudget
	return min(share(budget, 7, 10), budget-n.softWanted)
}

// foresees returns for how long to expect that a budget at least half used will run out
// before its window ends; 0 if none is.
func (g *Governor) foresees(n *node, at time.Duration) time.Duration {
	if g.config.ForecastOff {
		return 0
	}
	l := n.limits
	if w := n.window; w != nil && w.sum >= l.softBudget/2 && w.heads(l.softBudget) {
		return lately * w.width
	}
	if !l.capped || n.dayTokens < l.dailyTokens/2 && n.dayCalls < l.dailyCalls/2 {
		return 0
	}
	n.recent.roll(at, g.span)
	if n.recent.oldCalls == 0 { // a single burst is not a rate
		return 0
	}
	used, made := n.recent.rates(at, g.span)
	left := l.calendar.end - at
	if l.outruns(l.dailyTokens, n.dayTokens, used, g.span, left) || l.outruns(l.dailyCalls, n.dayCalls, made, g.span, left) {
		return g.span
	}
	return 0
}

// outruns reports whether a cap at least half used would run out within left at the rate
// of n per span.
func (l *limits) outruns(bound, used, n int64, span, left time.Duration) bool {
	if used < bound/2 || n <= 0 {
		return false
	}
	aHi, aLo := bits.Mul64(uint64(max(0, bound-used)), uint64(span))
	bHi, bLo := bits.Mul64(uint64(n), uint64(left))
	return aHi < bHi || aHi == bHi && aLo < bLo
}

// pressure returns the budget to report for the scope: its window, or the day if only a
// forecast for the day made it soft.
func (n *node) pressure() (used, budget int64, span time.Duration) {
	l := n.limits
	byDay := n.foreseen > 0 && l.capped && (n.window == nil || !n.window.heading)
	switch {
	case byDay && share(n.dayTokens, 1000, l.dailyTokens) >= share(n.dayCalls, 1000, l.dailyCalls):
		return n.dayTokens, l.dailyTokens, l.calendar.end - l.calendar.start
	case byDay:
		return n.dayCalls, l.dailyCalls, l.calendar.end - l.calendar.start
	case n.window != nil:
		return n.window.sum, l.softBudget, l.softSpan
	}
	return 0, 1, 0
}

// The scale factor is in thousandths.
const (
	one   = 1000
	steps = 4
	// stir is the smallest change that pressure makes to a factor it has already set, so
	// that not every call emits an event.
	stir = 50
)

// rescale sets the scale factor of a scope under pressure: by the utilization of its soft
// budget, and at least 2 in throttle.
func (g *Governor) rescale(n *node, at time.Duration, least int64) {
	factor := n.factor
	used, budget, _ := n.pressure()
	low, high := int64(g.config.ScaleMin*one), int64(g.config.ScaleMax*one)
	switch {
	case g.config.AdaptiveScalingOff:
		factor, least, n.stepAt = one, 1, 0
	case n.state == Soft:
		factor = min(max(share(used, one, budget), low), high)
	case n.state == Throttle || n.state == Exhausted:
		factor = min(max(share(used, one, budget), 2*one), high)
	}
	if factor >= n.factor+least || factor <= n.factor-least {
		g.setFactor(n, factor, at)
	}
}

// setFactor changes the factor and emits the event.
func (g *Governor) setFactor(n *node, factor int64, at time.Duration) {
	n.factor = factor
	g.counts.scaled++
	g.emit(at, Event{Type: EventAdaptiveScale, Scope: n.scope, Factor: float64(factor) / one})
}

// restore begins the return of the factor to 1.
func (g *Governor) restore(n *node, at time.Duration) {
	if n.factor == one {
		return
	}
	n.step = (one - n.factor) / steps
	if n.step == 0 {
		n.step = one - n.factor
	}
	n.stepAt = later(at, g.stepEvery())
}

func (g *Governor) stepEvery() time.Duration {
	return time.Duration(g.config.ScaleStepMS) * time.Millisecond
}

// stepScale makes one step of the return.
func (g *Governor) stepScale(n *node, at time.Duration) {
	n.stepAt = later(at, g.stepEvery())
	factor := n.factor + n.step
	if (one-factor)/n.step <= 0 { // there, or less than a step away
		factor, n.stepAt = one, 0
	}
	g.setFactor(n, factor, at)
}

// Factor returns the scale factor for an agent's decision interval on this path: the
// greatest factor of its scopes if one is above 1, else the smallest. Only Model, Tenant
// and Agent of the request are read. It changes nothing.
func (g *Governor) Factor(now time.Duration, r Request) float64 {
	g.tick(now)
	least, most := int64(one), int64(one)
	for n := range g.known(r) {
		least, most = min(least, n.factor), max(most, n.factor)
	}
	if most > one {
		return float64(most) / one
	}
	return float64(least) / one
}

// known iterates over the existing scopes on the path of a request.
func (g *Governor) known(r Request) func(yield func(*node) bool) {
	return func(yield func(*node) bool) {
		path := []*account{g.root}
		if t := g.root.children[r.Tenant]; t != nil {
			path = append(path, t)
			if a := t.children[r.Agent]; a != nil {
				path = append(path, a)
			}
		}
		for _, a := range path {
			if !yield(a.node) {
				return
			}
			if n := a.byModel[r.Model]; n != nil && !yield(n) {
				return
			}
		}
	}
}

// Forecast says when one budget of a scope runs out if use continues as in the last
// forecast window.
type Forecast struct {
	Scope Scope `json:"scope,omitzero"`
	// Budget is calls, tokens, inputTokens or outputTokens (buckets), softTokens,
	// dailyTokens or dailyCalls.
	Budget string `json:"budget"`
	// Size is all that the budget can hold. Remaining may be negative. PerMinute is the
	// recent use.
	Size      int64 `json:"size"`
	Remaining int64 `json:"remaining"`
	PerMinute int64 `json:"perMinute"`
	// RunsOutIn is how long the budget lasts, including refill or the sliding of the
	// window; [Never] if it does not run out.
	RunsOutIn time.Duration `json:"runsOutIn"`
	// EndsIn is when the window ends: when an unused bucket would be full, after the soft
	// window's span, or at the end of the day.
	EndsIn time.Duration `json:"endsIn"`
	// RoomIn is how long it takes until the budget has room for one call or token; 0 if it
	// has now, [Never] if that depends on calls under way.
	RoomIn time.Duration `json:"roomIn"`
}

// Early reports whether the budget runs out before its window ends.
func (f Forecast) Early() bool { return f.RunsOutIn < f.EndsIn }

// Forecast returns a forecast for each budget of a scope; nil if the scope is unknown.
// Buckets of input and output tokens are assumed to be used at the rate of all tokens, so
// their forecasts are conservative.
func (g *Governor) Forecast(now time.Duration, s Scope) []Forecast {
	now = g.tick(now)
	n := g.find(s)
	if n == nil {
		return nil
	}
	n.sync(now)
	n.recent.roll(now, g.span)
	used, made := n.recent.rates(now, g.span)
	l := n.limits
	var all []Forecast
	for k := range n.bucket {
		if l.mask&(1<<k) == 0 {
			continue
		}
		b, r, rate := &n.bucket[k], &l.refill[k], used
		if k == calls {
			rate = made
		}
		f := g.forecast(n, kindNames[k], r.capacity/nano, whole(b.level), rate, b.wait(r, r.capacity))
		// Refill over a span makes the budget last longer.
		in := share(int64(g.span), int64(r.num), int64(r.den)*nano)
		f.RunsOutIn = lasts(f.Remaining, rate-in, g.span)
		f.RoomIn = b.wait(r, nano)
		all = append(all, f)
	}
	if w := n.window; w != nil {
		f := g.forecast(n, "softTokens", l.softBudget, l.softBudget-w.sum, used, l.softSpan)
		f.RoomIn = w.falls(l.softBudget-1, now) - now
		if !w.heads(l.softBudget) {
			f.RunsOutIn = Never
		}
		all = append(all, f)
	}
	if l.dailyTokens != noCap {
		all = append(all, g.forecastDay(now, n, DailyTokens, l.dailyTokens, n.dayTokens, n.dayUsed(), used))
	}
	if l.dailyCalls != noCap {
		all = append(all, g.forecastDay(now, n, DailyCalls, l.dailyCalls, n.dayCalls, n.dayCalls-n.callsPending, made))
	}
	return all
}

// forecastDay returns the forecast of a daily cap; spent is the part of taken that will not be
// given back.
func (g *Governor) forecastDay(now time.Duration, n *node, budget string, size, taken, spent, rate int64) Forecast {
	f := g.forecast(n, budget, size, size-taken, rate, n.limits.calendar.end-now)
	switch {
	case taken < size:
	case spent < size:
		f.RoomIn = Never
	default:
		f.RoomIn = f.EndsIn
	}
	return f
}

func (g *Governor) forecast(n *node, budget string, size, remaining, rate int64, ends time.Duration) Forecast {
	return Forecast{
		Scope: n.scope, Budget: budget, Size: size, Remaining: remaining,
		PerMinute: share(rate, int64(time.Minute), int64(g.span)),
		RunsOutIn: lasts(remaining, rate, g.span), EndsIn: ends,
	}
}

// lasts returns how long the remainder lasts at a rate of n per span.
func lasts(remaining, n int64, span time.Duration) time.Duration {
	switch {
	case remaining <= 0:
		return 0
	case n <= 0:
		return Never
	}
	hi, lo := bits.Mul64(uint64(remaining), uint64(span))
	if hi >= uint64(n) {
		return Never
	}
	t, _ := bits.Div64(hi, lo, uint64(n))
	return time.Duration(min(t, math.MaxInt64))
}
