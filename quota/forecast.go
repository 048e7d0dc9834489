package quota

import (
	"math"
	"math/bits"
	"time"
)

// Forecast says when one budget of a scope runs out if use goes on as in the
// last forecast window.
type Forecast struct {
	Scope Scope `json:"scope,omitzero"`
	// Budget is calls, tokens, inputTokens or outputTokens (buckets), softTokens,
	// dailyTokens or dailyCalls.
	Budget string `json:"budget"`
	// Remaining may be negative. PerMinute is the recent use.
	Remaining int64 `json:"remaining"`
	PerMinute int64 `json:"perMinute"`
	// RunsOutIn is how long the budget lasts, refill or sliding included; [Never]
	// when it lasts.
	RunsOutIn time.Duration `json:"runsOutIn"`
	// EndsIn is when the window ends: a bucket full again when left alone, the
	// soft window's span, the day's end.
	EndsIn time.Duration `json:"endsIn"`
}

// Early reports whether the budget runs out before its window ends.
func (f Forecast) Early() bool { return f.RunsOutIn < f.EndsIn }

// Forecast looks ahead for each budget of a scope; none when the scope is not
// known. Buckets of input and output tokens are taken to share the rate of all
// tokens, so their forecast is on the safe side.
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
		f := g.forecast(n, kindNames[k], whole(b.level), rate, b.wait(r, r.capacity))
		// What flows in over a span lets the budget last longer.
		in := share(int64(g.span), int64(r.num), int64(r.den)*nano)
		f.RunsOutIn = lasts(f.Remaining, rate-in, g.span)
		all = append(all, f)
	}
	if w := n.window; w != nil {
		f := g.forecast(n, "softTokens", l.softBudget-w.sum, used, l.softSpan)
		if !w.heads(l.softBudget) {
			f.RunsOutIn = Never
		}
		all = append(all, f)
	}
	if l.dailyTokens != noCap {
		all = append(all, g.forecast(n, DailyTokens, l.dailyTokens-n.dayTokens, used, l.calendar.end-now))
	}
	if l.dailyCalls != noCap {
		all = append(all, g.forecast(n, DailyCalls, l.dailyCalls-n.dayCalls, made, l.calendar.end-now))
	}
	return all
}

func (g *Governor) forecast(n *node, budget string, remaining, rate int64, ends time.Duration) Forecast {
	return Forecast{
		Scope: n.scope, Budget: budget, Remaining: remaining,
		PerMinute: share(rate, int64(time.Minute), int64(g.span)),
		RunsOutIn: lasts(remaining, rate, g.span), EndsIn: ends,
	}
}

// lasts is how long what remains lasts at a rate of n a span.
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
