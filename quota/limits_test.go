package quota_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

func TestAFullBucketGivesAtLeastBurstApprovalsInARow(t *testing.T) {
	for _, burst := range []int64{1, 2, 10, 1000} {
		g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: burst}))
		for range burst {
			approve(t, g, 0, ask(1))
		}
		d := refused(t, g, 0, ask(1), quota.CodeThrottled)
		if d.RetryIn != sec || d.Reason != quota.Throttled {
			t.Errorf("burst %d: %+v, want THROTTLED for a second", burst, d)
		}
	}
}

func TestRetryInIsTheEarliestInstant(t *testing.T) {
	for _, l := range []quota.Limits{
		{CallsPerMinute: 7, Burst: 1},
		{CallsPerMinute: 1000, Burst: 1},
		{RefillPerSecond: 0.3, Burst: 1},
		{RefillPerSecond: 1e-9, Burst: 1},
		{RefillPerSecond: 123.456789, Burst: 1},
	} {
		g := governor(t, oneModel(l))
		approve(t, g, 0, ask(1))
		in := refused(t, g, 0, ask(1), quota.CodeThrottled).RetryIn
		refused(t, g, in-1, ask(1), quota.CodeThrottled)
		approve(t, g, in, ask(1))
	}
}

func TestRefillIsPreciseTo1e9(t *testing.T) {
	// 7 a minute is no whole number of nano-calls a nanosecond. However often
	// one looks, 7 calls and no more are there after a minute.
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 7, Burst: 1000}))
	for range 1000 {
		approve(t, g, 0, ask(0))
	}
	for at := time.Duration(0); at < minute-1; at += 999_983 * 13 {
		g.Snapshot(at)
	}
	refusedBefore := 0
	for i := range 8 {
		if d := g.Approve(minute-1, ask(0)); !d.Approved {
			refusedBefore = i
			break
		}
	}
	if refusedBefore != 6 {
		t.Errorf("%d calls a nanosecond before the minute, want 6", refusedBefore)
	}
	approve(t, g, minute, ask(0))
	refused(t, g, minute, ask(0), quota.CodeThrottled)
}

func TestAJumpOfAYearClamps(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 1e9, Burst: 3, TokensPerMinute: 1e9, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}))
	for range 3 {
		approve(t, g, 0, ask(1))
	}
	year := 365 * 24 * time.Hour
	for range 3 {
		approve(t, g, year, ask(1))
	}
	refused(t, g, year, ask(1), quota.CodeThrottled)
}

func TestTimeRunningBackwardsAdmitsNothingMore(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 2, MaxDailyTokens: 100}))
	approve(t, g, minute, ask(1))
	approve(t, g, 0, ask(1))
	refused(t, g, -time.Hour, ask(1), quota.CodeThrottled)
	refused(t, g, minute, ask(1), quota.CodeThrottled)
	approve(t, g, minute+sec, ask(1))
}

func TestUnknownModelAndNegativeTokens(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 1}))
	d := refused(t, g, 0, quota.Request{Model: "other"}, quota.CodeModelNotConfigured)
	if d.RetryIn != quota.Never || !d.Final {
		t.Errorf("%+v: waiting helps?", d)
	}
	for _, r := range []quota.Request{
		{Model: "m", InputTokens: -1}, {Model: "m", OutputTokens: -1}, {Model: "m", MaxTokens: -1},
		{Model: "m", CachedTokens: -1}, {Model: "m", InputTokens: quota.MaxTokens + 1}, {Model: "m", InputTokens: 1, CachedTokens: 2},
	} {
		refused(t, g, 0, r, quota.CodeInvalidConfig)
		if r.Validate() == nil {
			t.Errorf("%+v is said to be valid", r)
		}
	}
	if s := g.Snapshot(0); s.Models["m"].Ledger.Approved != 0 || s.Statistics.Denied != 7 {
		t.Errorf("%+v", s.Statistics)
	}
	approve(t, g, 0, ask(1))
}

func TestEveryCodeIsReached(t *testing.T) {
	reached := map[quota.Code]bool{}
	note := func(d quota.Decision) { reached[d.Code] = true }
	g := governor(t, quota.Config{
		Global: quota.Limits{CallsPerMinute: 60, Burst: 3},
		Models: map[string]quota.Model{
			"m":    {Limits: quota.Limits{CallsPerMinute: 60, Burst: 1}},
			"day":  {Limits: quota.Limits{MaxDailyTokens: 10}},
			"soft": {Limits: quota.Limits{SoftTokenBudget: 10, SoftTokenWindowMS: 1000}},
		},
	})
	first := approve(t, g, 0, ask(1))
	note(g.Approve(0, ask(1)))
	note(g.Approve(0, quota.Request{Model: "none"}))
	note(g.Approve(0, ask(-1)))
	approve(t, g, 0, quota.Request{Model: "soft", InputTokens: 10})
	note(g.Approve(0, quota.Request{Model: "soft", InputTokens: 1}))
	settle(t, g, 0, approve(t, g, 0, quota.Request{Model: "day", InputTokens: 10}).Permit, 10)
	note(g.Approve(0, quota.Request{Model: "day", InputTokens: 0}))
	note(g.Approve(sec, quota.Request{Model: "day", InputTokens: 1}))
	settle(t, g, sec, first.Permit, 1)
	if _, err := g.RecordUsage(sec, first.Permit, quota.Usage{Input: 2}); err != nil {
		if denial, ok := asDenial(err); ok {
			reached[denial.Code] = true
		}
	}
	for _, code := range []quota.Code{
		quota.CodeHardLimit, quota.CodeThrottled, quota.CodeSoftLimit, quota.CodeModelNotConfigured,
		quota.CodeGlobalLimit, quota.CodeInvalidConfig, quota.CodeApprovalConflict,
	} {
		if !reached[code] {
			t.Errorf("%s was not reached", code)
		}
	}
}

func TestALimitOfAThousandUnder64GoroutinesAdmitsExactlyAThousand(t *testing.T) {
	g := governor(t, quota.Config{
		Global: quota.Limits{CallsPerMinute: 5000}, Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 1000}}},
	})
	var (
		lock     sync.Mutex
		wg       sync.WaitGroup
		admitted atomic.Int64
	)
	for range 64 {
		wg.Go(func() {
			for range 200_000 / 64 {
				lock.Lock()
				d := g.Approve(0, ask(1))
				lock.Unlock()
				if d.Approved {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 1000 {
		t.Errorf("%d admitted", admitted.Load())
	}
	if left := *g.Snapshot(0).Global.CallsRemaining; left != 4000 {
		t.Errorf("%d calls left of the global 5000: a refusal took some", left)
	}
}

func TestFiveConcurrentCallsOn100TokensAMinuteNeverUse663(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{TokensPerMinute: 100}))
	// Each is estimated at what it uses; checking first and charging later
	// would let all five pass.
	used := int64(0)
	var open []quota.Permit
	for _, n := range []int64{90, 120, 133, 150, 170} {
		if d := g.Approve(0, ask(n)); d.Approved {
			open = append(open, d.Permit)
			used += n
		}
	}
	for _, p := range open {
		settle(t, g, sec, p, 90)
	}
	if used != 90 || len(open) != 1 {
		t.Errorf("%d tokens by %d calls", used, len(open))
	}
}

func TestAFirstCallLargerThanTheBucketPassesOnAFullBucket(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{TokensPerMinute: 100}))
	d := approve(t, g, 0, ask(663))
	if d.Advisory&quota.AdviseClamped == 0 {
		t.Error("no advisory says that it was cut")
	}
	refused(t, g, 0, ask(1), quota.CodeThrottled)
	settle(t, g, 0, d.Permit, 663)
	if left := *model(t, g, 0).TokensRemaining; left != -563 {
		t.Errorf("%d tokens left: the overshoot was forgiven", left)
	}
	// It takes 5.63 minutes to come back to zero, and then one token's time.
	in := refused(t, g, 0, ask(1), quota.CodeThrottled).RetryIn
	if want := 564 * minute / 100; in != want {
		t.Errorf("retry in %v, want %v", in, want)
	}
	refused(t, g, in-1, ask(1), quota.CodeThrottled)
	approve(t, g, in, ask(1))
}

func TestInputAndOutputHaveBucketsOfTheirOwn(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{InputTokensPerMinute: 100, OutputTokensPerMinute: 10}))
	approve(t, g, 0, quota.Request{Model: "m", InputTokens: 50, OutputTokens: 9})
	d := refused(t, g, 0, quota.Request{Model: "m", InputTokens: 1, OutputTokens: 2}, quota.CodeThrottled)
	if d.RetryIn != 6*sec {
		t.Errorf("retry in %v, want the 6 s of one output token", d.RetryIn)
	}
	approve(t, g, 0, quota.Request{Model: "m", InputTokens: 50, OutputTokens: 1})
}

// An approval passes all its scopes or takes from none.
func TestARefusalTakesFromNoScope(t *testing.T) {
	l := quota.Limits{CallsPerMinute: 60, Burst: 10, TokensPerMinute: 1000, SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000, MaxDailyTokens: 1000}
	tight := l
	tight.Burst = 1
	g := governor(t, quota.Config{
		Global: l, Models: map[string]quota.Model{"m": {Limits: l}},
		Tenants: map[string]quota.Tenant{"t": {Limits: l, Models: map[string]quota.Limits{"m": l},
			Agents: map[string]quota.Agent{"a": {Limits: l, Models: map[string]quota.Limits{"m": tight}}}}},
	})
	r := quota.Request{Model: "m", Tenant: "t", Agent: "a", InputTokens: 5}
	d := approve(t, g, 0, r)
	scopes := []quota.Scope{{}, {Model: "m"}, {Tenant: "t"}, {Tenant: "t", Model: "m"}, {Tenant: "t", Agent: "a"}, {Tenant: "t", Agent: "a", Model: "m"}}
	for range 5 {
		d := refused(t, g, 0, r, quota.CodeThrottled)
		if d.Scope != scopes[5] {
			t.Errorf("refused by %v", d.Scope)
		}
	}
	for i, scope := range scopes {
		s, ok := g.Inspect(0, scope)
		if !ok {
			t.Fatalf("%v is not known", scope)
		}
		calls := int64(9)
		if i == 5 {
			calls = 0
		}
		if *s.CallsRemaining != calls || *s.TokensRemaining != 995 || *s.SoftTokensRemaining != 995 || *s.DailyTokensRemaining != 995 {
			t.Errorf("%v: %d calls, %d, %d, %d tokens left", scope, *s.CallsRemaining, *s.TokensRemaining, *s.SoftTokensRemaining, *s.DailyTokensRemaining)
		}
	}
	// And all of them get back what is canceled.
	if first, err := g.Cancel(0, d.Permit); !first || err != nil {
		t.Fatal(first, err)
	}
	for _, scope := range scopes {
		if s, _ := g.Inspect(0, scope); *s.TokensRemaining != 1000 || *s.SoftTokensRemaining != 1000 || *s.DailyTokensRemaining != 1000 || s.Ledger.Held != 0 {
			t.Errorf("%v: %+v after the cancel", scope, s)
		}
	}
}

func TestThePolicyOfASoftBudget(t *testing.T) {
	for _, tt := range []struct {
		policy   quota.Policy
		approved bool
		final    bool
	}{{"", false, false}, {quota.Defer, false, false}, {quota.Deny, false, true}, {quota.Advise, true, false}} {
		g := governor(t, oneModel(quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, SoftPolicy: tt.policy}))
		if d := approve(t, g, 0, ask(80)); d.Advisory != 0 || d.Utilization != 800 {
			t.Errorf("%q: at 0.8: %+v", tt.policy, d)
		}
		if d := approve(t, g, 0, ask(5)); d.Advisory != quota.AdviseSoft {
			t.Errorf("%q: above 0.8: %+v", tt.policy, d)
		}
		d := g.Approve(10*sec, ask(20))
		if d.Approved != tt.approved || d.Final != tt.final {
			t.Errorf("%q: beyond: %+v", tt.policy, d)
		}
		if tt.approved {
			if d.Advisory&quota.AdviseOverSoft == 0 {
				t.Errorf("%q: no advisory: %+v", tt.policy, d)
			}
			continue
		}
		if d.Reason != quota.SoftLimit || d.Code != quota.CodeSoftLimit {
			t.Errorf("%q: %+v", tt.policy, d)
		}
		// What was charged in the first part of the window leaves one part late.
		if d.RetryIn != 51*sec {
			t.Errorf("%q: retry in %v", tt.policy, d.RetryIn)
		}
		refused(t, g, 61*sec-1, ask(20), quota.CodeSoftLimit)
		approve(t, g, 61*sec, ask(20))
	}
}

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
