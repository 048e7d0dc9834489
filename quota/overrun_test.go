package quota_test

import (
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

// TestARefusalByTheProviderSpreadsTheBurst: what went at once is owed, and the rest
// comes one by one.
func TestARefusalByTheProviderSpreadsTheBurst(t *testing.T) {
	limits := quota.Limits{CallsPerMinute: 120, Burst: 120, TokensPerMinute: 120_000, TokenBurst: 120_000}
	c := oneModel(limits)
	c.Models["n"] = quota.Model{Limits: limits}
	c.TenantDefault.Limits = quota.Limits{CallsPerMinute: 1000}
	g := governor(t, c)
	r := ask(100)
	r.Tenant = "t"
	var open []quota.Permit
	for range 40 {
		open = append(open, approve(t, g, 0, r).Permit)
	}
	waiting := enqueue(t, g, 0, r, time.Hour) // was not asked to wait yet
	if !g.Overrun(0, open[0]) || g.Overrun(0, open[1]) {
		t.Error("the first refusal spreads the limits, and the second finds them so")
	}
	if s := model(t, g, 0); *s.CallsRemaining != -30 || *s.CallsCapacity != 10 {
		t.Errorf("%d calls remain of %d, want the 30 owed that a spread limit had not let through", *s.CallsRemaining, *s.CallsCapacity)
	}
	if _, at := drive(t, g, 0, time.Minute); at[waiting] < 15*sec || at[waiting] > 17*sec {
		t.Errorf("who waits goes at %v", at[waiting])
	}
	if s, _ := g.Inspect(0, quota.Scope{Model: "n"}); *s.CallsCapacity != 120 {
		t.Error("the other model's burst is gone too")
	}
	if s, _ := g.Inspect(0, quota.Scope{Tenant: "t"}); *s.CallsCapacity != 1000 {
		t.Error("the tenant's burst is gone too")
	}
	settle(t, g, minute, open[0], 100)
	if g.Overrun(minute, open[0]) || g.Overrun(minute, quota.Permit{}) {
		t.Error("a permit that has ended spreads limits")
	}
	if err := g.Replace(2*minute, c); err != nil {
		t.Fatal(err)
	}
	if s := model(t, g, 2*minute); *s.CallsCapacity != 120 {
		t.Errorf("capacity %d after the configuration was replaced", *s.CallsCapacity)
	}
	// One refill a second, given as such, is spread as well; a scope without buckets
	// is left alone.
	g = governor(t, oneModel(quota.Limits{RefillPerSecond: 2, Burst: 60}))
	if !g.Overrun(0, approve(t, g, 0, ask(1)).Permit) {
		t.Error("nothing changed")
	}
	if s := model(t, g, 0); *s.CallsCapacity != 10 {
		t.Errorf("capacity %d, want 5 s' worth", *s.CallsCapacity)
	}
	g = governor(t, oneModel(quota.Limits{MaxDailyCalls: 5}))
	if g.Overrun(0, approve(t, g, 0, ask(1)).Permit) {
		t.Error("a day's cap was spread")
	}
}
