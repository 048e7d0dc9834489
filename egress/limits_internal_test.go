package egress

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/quota"
)

func TestBudgetsAreLimitsOfTheOwner(t *testing.T) {
	c := quota.Config{
		Global: quota.Limits{CallsPerMinute: 60, MaxDailyTokens: 1000},
		Models: map[string]quota.Model{
			"b": {Limits: quota.Limits{RefillPerSecond: 2, TokensPerMinute: 500, SoftTokenBudget: 90, SoftTokenWindowMS: 1500}},
			"a": {Limits: quota.Limits{InputTokensPerMinute: 10, OutputTokensPerMinute: 20, MaxDailyCalls: 7}},
		},
	}
	if got := limitsOf(quota.Limits{SoftTokenBudget: 90}, "", nil); got != nil {
		t.Errorf("a budget without a window is %v", got)
	}
	limit := func(kind string, size, windowS float64, unit, pool string) event.Limit {
		return event.Limit{Kind: kind, Size: size, WindowS: windowS, Unit: unit, Pool: pool, Provenance: event.Owner, Confidence: 1}
	}
	want := []event.Limit{
		limit("token_bucket", 60, 60, event.UnitRequests, ""),
		limit("fixed_window", 1000, 86_400, event.UnitTokens, ""),
		limit("token_bucket", 10, 60, event.UnitInputTokens, "a"),
		limit("token_bucket", 20, 60, event.UnitOutputTokens, "a"),
		limit("fixed_window", 7, 86_400, event.UnitRequests, "a"),
		limit("token_bucket", 120, 60, event.UnitRequests, "b"),
		limit("token_bucket", 500, 60, event.UnitTokens, "b"),
		limit("sliding_window", 90, 1.5, event.UnitTokens, "b"),
	}
	if diff := cmp.Diff(want, budgets(&c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
