package egress

import (
	"maps"
	"slices"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/quota"
)

// budgets are the limits that a quota sets for all calls of a provider, and for its
// models. Those of tenants and agents are the quota's own to show.
func budgets(c *quota.Config) (all []event.Limit) {
	all = limitsOf(c.Global, "", nil)
	for _, model := range slices.Sorted(maps.Keys(c.Models)) {
		all = limitsOf(c.Models[model].Limits, model, all)
	}
	return all
}

// limitsOf appends limits of a quota's pool.
func limitsOf(l quota.Limits, pool string, to []event.Limit) []event.Limit {
	add := func(kind control.Kind, size, windowS float64, unit string) {
		if size > 0 && windowS > 0 {
			to = append(to, event.Limit{
				Kind: kind.String(), Size: size, WindowS: windowS, Unit: unit, Pool: pool, Provenance: event.Owner, Confidence: 1,
			})
		}
	}
	const minute, day = 60, 86_400
	calls := float64(l.CallsPerMinute)
	if l.RefillPerSecond > 0 {
		calls = l.RefillPerSecond * minute
	}
	add(control.TokenBucket, calls, minute, event.UnitRequests)
	add(control.TokenBucket, float64(l.TokensPerMinute), minute, event.UnitTokens)
	add(control.TokenBucket, float64(l.InputTokensPerMinute), minute, event.UnitInputTokens)
	add(control.TokenBucket, float64(l.OutputTokensPerMinute), minute, event.UnitOutputTokens)
	add(control.SlidingWindow, float64(l.SoftTokenBudget), float64(l.SoftTokenWindowMS)/1000, event.UnitTokens)
	add(control.FixedWindow, float64(l.MaxDailyCalls), day, event.UnitRequests)
	add(control.FixedWindow, float64(l.MaxDailyTokens), day, event.UnitTokens)
	return to
}
