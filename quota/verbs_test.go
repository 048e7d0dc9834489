package quota_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/headway-go/headway/quota"
)

// TestEveryVerbLetsHappenWhatIsDue: a permit expires by whatever call the time is first given.
func TestEveryVerbLetsHappenWhatIsDue(t *testing.T) {
	const late = 31 * sec
	c := oneModel(quota.Limits{TokensPerMinute: 1000})
	c.PermitTTLMS = 30_000
	for name, verb := range map[string]func(g *quota.Governor, p quota.Permit){
		"Advance":        func(g *quota.Governor, _ quota.Permit) { g.Advance(late) },
		"Approve":        func(g *quota.Governor, _ quota.Permit) { g.Approve(late, ask(1)) },
		"Enqueue":        func(g *quota.Governor, _ quota.Permit) { g.Enqueue(late, ask(1), minute) },
		"Grants":         func(g *quota.Governor, _ quota.Permit) { g.Grants(late, nil) },
		"Withdraw":       func(g *quota.Governor, _ quota.Permit) { g.Withdraw(late, 1) },
		"Expire":         func(g *quota.Governor, _ quota.Permit) { g.Expire(late, 1) },
		"RecordUsage":    func(g *quota.Governor, p quota.Permit) { _, _ = g.RecordUsage(late, p, quota.Usage{}) },
		"Cancel":         func(g *quota.Governor, p quota.Permit) { _, _ = g.Cancel(late, p) },
		"Drain":          func(g *quota.Governor, p quota.Permit) { _ = g.Drain(late, p, 1) },
		"Overrun":        func(g *quota.Governor, p quota.Permit) { g.Overrun(late, p) },
		"Factor":         func(g *quota.Governor, _ quota.Permit) { g.Factor(late, ask(1)) },
		"Forecast":       func(g *quota.Governor, _ quota.Permit) { g.Forecast(late, quota.Scope{}) },
		"Inspect":        func(g *quota.Governor, _ quota.Permit) { g.Inspect(late, quota.Scope{}) },
		"Snapshot":       func(g *quota.Governor, _ quota.Permit) { g.Snapshot(late) },
		"Use":            func(g *quota.Governor, _ quota.Permit) { g.Use(late, nil) },
		"TakeChangedUse": func(g *quota.Governor, _ quota.Permit) { g.TakeChangedUse(late, nil) },
		"NextTransition": func(g *quota.Governor, _ quota.Permit) { g.NextTransition(late) },
		"Restore":        func(g *quota.Governor, _ quota.Permit) { _ = g.Restore(late, nil) },
		"Replace":        func(g *quota.Governor, _ quota.Permit) { _ = g.Replace(late, c) },
		"Backoff":        func(g *quota.Governor, _ quota.Permit) { g.Backoff(late, quota.Scope{}, quota.Decision{}) },
	} {
		g := governor(t, c)
		p := approve(t, g, 0, ask(10)).Permit
		verb(g, p)
		if s := g.Statistics(); s.Expired != 1 || s.Open > 1 {
			t.Errorf("%s at %v: %d permits expired, want the one of 30s", name, late, s.Expired)
		}
	}
}

func TestAWrongRequestIsNamed(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, tt := range []struct {
		r    quota.Request
		want string
	}{
		{quota.Request{Model: long[1:], Tenant: long[1:], Agent: long[1:], InputTokens: quota.MaxTokens, OutputTokens: quota.MaxTokens, CachedTokens: quota.MaxTokens, MaxTokens: quota.MaxTokens}, ""},
		{quota.Request{}, ""},
		{quota.Request{InputTokens: -1}, "expected_input_tokens"},
		{quota.Request{InputTokens: quota.MaxTokens + 1}, "expected_input_tokens"},
		{quota.Request{OutputTokens: -1}, "expected_output_tokens"},
		{quota.Request{OutputTokens: quota.MaxTokens + 1}, "expected_output_tokens"},
		{quota.Request{CachedTokens: -1}, "cached_tokens"},
		{quota.Request{InputTokens: 1, CachedTokens: 2}, "cached_tokens"},
		{quota.Request{MaxTokens: quota.MaxTokens + 1}, "max_tokens"},
		{quota.Request{MaxTokens: -1}, "max_tokens"},
		{quota.Request{Model: long}, "model"},
		{quota.Request{Tenant: long}, "tenant"},
		{quota.Request{Agent: long}, "agent"},
	} {
		err := tt.r.Validate()
		field, _ := errors.AsType[*quota.FieldError](err)
		if (err == nil) != (tt.want == "") || err != nil && (field == nil || field.Field != tt.want || strings.Contains(err.Error(), "xxx")) {
			t.Errorf("%.60v: %v, want one of %q", tt.r, err, tt.want)
		}
	}
}

// TestWhichScopeRefusesAWaiter: what is final before what is not, then what takes
// longest, whichever scope on the path it is.
func TestWhichScopeRefusesAWaiter(t *testing.T) {
	slow := quota.Limits{CallsPerMinute: 1}  // a minute for a call
	quick := quota.Limits{CallsPerMinute: 6} // ten seconds
	soft := quota.Limits{SoftTokenBudget: 10, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Deny}
	for _, tt := range []struct {
		global, model quota.Limits
		fill          int // calls at 0 that empty both
		deadline      time.Duration
		want          string
	}{
		{slow, quick, 1, 5 * sec, "RATE_GLOBAL_LIMIT_EXCEEDED global 1m0s"},
		{quick, slow, 1, 5 * sec, "RATE_THROTTLED model m 1m0s"},
		{soft, slow, 1, 2 * minute, "RATE_SOFT_LIMIT global 1m1s"},
		{slow, soft, 1, 2 * minute, "RATE_SOFT_LIMIT model m 1m1s"},
		{soft, quota.Limits{CallsPerMinute: 1, RefillPerSecond: 0.005}, 1, 5 * minute, "RATE_SOFT_LIMIT global 1m1s"}, // the model takes 200 s, in time
	} {
		tt.global.Burst, tt.model.Burst = min(tt.global.CallsPerMinute, 1), min(tt.model.CallsPerMinute, 1)
		c := oneModel(tt.model)
		c.Global = tt.global
		g := governor(t, c)
		for range tt.fill {
			approve(t, g, 0, ask(10))
		}
		w, d := g.Enqueue(0, ask(10), tt.deadline)
		if got := fmt.Sprintf("%s %v %v", d.Code, d.Scope, d.RetryIn); w != 0 || !d.Final || got != tt.want {
			t.Errorf("global %+v, model %+v: %s, final %v, want %s", tt.global, tt.model, got, d.Final, tt.want)
		}
	}
}

// TestEveryPlaceOfLimitsMayHaveItsZone: the day's end is that of the zone.
func TestEveryPlaceOfLimitsMayHaveItsZone(t *testing.T) {
	pacific := quota.Limits{MaxDailyCalls: 1, DayZone: "America/Los_Angeles"}
	m := map[string]quota.Model{"m": {}}
	byModel := map[string]quota.Limits{"m": pacific}
	for place, c := range map[string]quota.Config{
		"global":                    {Models: m, Global: pacific},
		"model":                     oneModel(pacific),
		"tenant":                    {Models: m, Tenants: map[string]quota.Tenant{"t": {Limits: pacific}}},
		"tenant, model":             {Models: m, Tenants: map[string]quota.Tenant{"t": {Models: byModel}}},
		"agent":                     {Models: m, Tenants: map[string]quota.Tenant{"t": {Agents: map[string]quota.Agent{"a": {Limits: pacific}}}}},
		"agent, model":              {Models: m, Tenants: map[string]quota.Tenant{"t": {Agents: map[string]quota.Agent{"a": {Models: byModel}}}}},
		"tenant's agents":           {Models: m, Tenants: map[string]quota.Tenant{"t": {AgentDefault: quota.Agent{Limits: pacific}}}},
		"tenants":                   {Models: m, TenantDefault: quota.Tenant{Limits: pacific}},
		"tenants, model":            {Models: m, TenantDefault: quota.Tenant{Models: byModel}},
		"agents of tenants":         {Models: m, TenantDefault: quota.Tenant{AgentDefault: quota.Agent{Limits: pacific}}},
		"agents of tenants by name": {Models: m, TenantDefault: quota.Tenant{Agents: map[string]quota.Agent{"a": {Models: byModel}}}},
	} {
		g := governor(t, c)
		r := quota.Request{Model: "m", Tenant: "t", Agent: "a"}
		approve(t, g, 0, r)
		if d := refused(t, g, 0, r, quota.CodeHardLimit); d.RetryIn != 20*time.Hour { // midday UTC is four in the morning there
			t.Errorf("%s: the day ends in %v, want 20h", place, d.RetryIn)
		}
	}
}

// TestWhatAlmostUsesADayUp: of a cap of 1000 the last ten are no room for anybody
// who found none, but for a request that no day has room for.
func TestWhatAlmostUsesADayUp(t *testing.T) {
	for _, tt := range []struct {
		used, asked int64
		moves       []string
	}{
		{989, 12, []string{}},
		{990, 11, []string{"0s model m: normal>exhausted cap_reached"}},
		{990, 1000, []string{"0s model m: normal>exhausted cap_reached"}},
		{990, 1001, []string{}},
		{990, 10, []string{"0s model m: normal>exhausted cap_reached"}}, // it is approved, and settled as it was asked
	} {
		g := governor(t, oneModel(quota.Limits{MaxDailyTokens: 1000}))
		settle(t, g, 0, approve(t, g, 0, ask(tt.used)).Permit, tt.used)
		if d := g.Approve(0, ask(tt.asked)); d.Approved {
			settle(t, g, 0, d.Permit, tt.asked)
		}
		same(t, fmt.Sprintf("%d of 1000 used, %d asked for", tt.used, tt.asked), moved(g), tt.moves)
	}
}

// TestPressureIsOfTheCapThatIsNearer: of the two daily caps.
func TestPressureIsOfTheCapThatIsNearer(t *testing.T) {
	for _, tt := range []struct {
		tokens, calls int64
		want          float64 // of the cap that is heading for its end
	}{
		{12_000, 0, 0.5},
		{12_000, 1000, 0.5},
		{0, 120, 0.5},
		{100_000, 120, 0.5},
		{13_000, 120, 0.5}, // both are heading: calls are nearer
		{12_000, 130, 0.5}, // tokens are
	} {
		g := governor(t, oneModel(quota.Limits{MaxDailyTokens: tt.tokens, MaxDailyCalls: tt.calls}))
		got := -1.0
		for i := range 80 {
			at := time.Duration(i) * 12 * sec
			settle(t, g, at, approve(t, g, at, ask(100)).Permit, 100)
		}
		events, _ := g.TakeEvents(nil)
		for _, e := range events {
			if e.Type == quota.EventSoftPressure && got < 0 {
				got = e.Utilization
			}
		}
		if got != tt.want {
			t.Errorf("caps of %d tokens and %d calls: pressure of %v, want %v", tt.tokens, tt.calls, got, tt.want)
		}
	}
}

// TestALookForRoomSeesSixteen: the next look goes on from there.
func TestALookForRoomSeesSixteen(t *testing.T) {
	c := oneModel(quota.Limits{})
	c.MaxTenants = 17
	g := governor(t, c)
	of := func(name string) quota.Request { return quota.Request{Model: "m", Tenant: name} }
	for i := range 17 {
		d := approve(t, g, 0, of(fmt.Sprint("t", i)))
		if i == 16 {
			settle(t, g, 0, d.Permit, 0)
		}
	}
	if d := approve(t, g, 0, of("new")); d.Advisory&quota.AdviseShared == 0 {
		t.Error("it saw the seventeenth")
	}
	if d := approve(t, g, 0, of("new")); d.Advisory&quota.AdviseShared != 0 {
		t.Error("it did not go on where it stopped")
	}
}

func TestAWrongUsageIsNamed(t *testing.T) {
	for _, tt := range []struct {
		u    quota.Usage
		want string
	}{
		{quota.Usage{Input: quota.MaxTokens, Cached: quota.MaxTokens, Output: quota.MaxTokens, Reasoning: quota.MaxTokens}, ""},
		{quota.Usage{}, ""},
		{quota.Usage{Input: -1}, "usage.input"},
		{quota.Usage{Input: quota.MaxTokens + 1}, "usage.input"},
		{quota.Usage{Output: -1}, "usage.output"},
		{quota.Usage{Input: 5, Cached: 6}, "usage.cached"},
		{quota.Usage{Cached: -1}, "usage.cached"},
		{quota.Usage{Output: 5, Reasoning: 6}, "usage.reasoning"},
	} {
		err := tt.u.Validate()
		field, _ := errors.AsType[*quota.FieldError](err)
		if (err == nil) != (tt.want == "") || err != nil && (field == nil || field.Field != tt.want) {
			t.Errorf("%+v: %v, want one of %q", tt.u, err, tt.want)
		}
	}
}

func TestWhatAProviderIsThoughtToCount(t *testing.T) {
	u := quota.Usage{Input: 100, Cached: 40, Output: 30}
	for rule, want := range map[string]int64{"total": 130, "openai": 400, "azure": 500, "anthropic": 90, "gemini": 100} {
		if got := quota.StandardCharges()[rule].Rated(u, 400); got != want {
			t.Errorf("%s counts %d, want %d", rule, got, want)
		}
	}
	if got := quota.StandardCharges()["anthropic"].Rated(quota.Usage{Input: 100, Cached: 100}, 0); got != 0 {
		t.Errorf("what is wholly cached counts %d", got)
	}
}

// TestWhatFitsExactlyIsNotOverTheCap: it waits for a call and not for midnight.
func TestWhatFitsExactlyIsNotOverTheCap(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{MaxDailyTokens: 100, CallsPerMinute: 60, Burst: 1}))
	settle(t, g, 0, approve(t, g, 0, ask(40)).Permit, 40)
	if d := refused(t, g, 0, ask(60), quota.CodeThrottled); d.RetryIn != sec || d.Final {
		t.Errorf("%+v, want a second's wait", d)
	}
	refused(t, g, 0, ask(61), quota.CodeHardLimit)
	approve(t, g, sec, ask(60))
}

// TestASmallerSoftBudgetEndsPressureToo: what was refused before was larger than all
// that there is now.
func TestASmallerSoftBudgetEndsPressureToo(t *testing.T) {
	limits := quota.Limits{SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000}
	g := governor(t, oneModel(limits))
	approve(t, g, 0, ask(850))
	refused(t, g, 0, ask(900), quota.CodeSoftLimit)
	limits.SoftTokenBudget = 100
	if err := g.Replace(sec, oneModel(limits)); err != nil {
		t.Fatal(err)
	}
	if s := model(t, g, 10*minute); s.State != quota.Normal {
		t.Errorf("state %v ten minutes later", s.State)
	}
}

// TestAWindowThatHoldsSomethingIsNotForgotten: a new name is no new window.
func TestAWindowThatHoldsSomethingIsNotForgotten(t *testing.T) {
	c := oneModel(quota.Limits{})
	c.MaxTenants = 1
	c.TenantDefault.Limits = quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}
	g := governor(t, c)
	of := func(name string) quota.Request { return quota.Request{Model: "m", Tenant: name, InputTokens: 10} }
	settle(t, g, 0, approve(t, g, 0, of("a")).Permit, 10)
	if d := approve(t, g, 59*sec, of("b")); d.Advisory&quota.AdviseShared == 0 {
		t.Error("the window of the first was forgotten")
	}
	if d := approve(t, g, 62*sec, of("c")); d.Advisory&quota.AdviseShared != 0 {
		t.Error("the first is kept although its window is empty")
	}
}

// ample limits never refuse in a benchmark, but everything is checked.
func ample() quota.Limits {
	return quota.Limits{CallsPerMinute: 1e9, TokensPerMinute: 1e9}
}

func BenchmarkApproveSettle(b *testing.B) {
	full := ample()
	full.InputTokensPerMinute, full.OutputTokensPerMinute = 1e9, 1e9
	full.SoftTokenBudget, full.SoftTokenWindowMS = 1e15, 60_000
	full.MaxDailyTokens = 1e15
	for _, bench := range []struct {
		name   string
		limits quota.Limits
		for_   quota.Request
	}{
		{"calls over global and model", quota.Limits{CallsPerMinute: 1e9}, quota.Request{}},
		{"calls and tokens over global and model", ample(), quota.Request{}},
		{"every budget over global and model", full, quota.Request{}},
		{"calls and tokens over global, model, tenant, agent", ample(), quota.Request{Tenant: "t", Agent: "a"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			g := governor(b, quota.Config{
				Global: bench.limits, Models: map[string]quota.Model{"m": {Limits: bench.limits}},
				TenantDefault: quota.Tenant{Limits: bench.limits, AgentDefault: quota.Agent{Limits: bench.limits}},
			})
			r := bench.for_
			r.Model, r.InputTokens, r.OutputTokens = "m", 10, 10
			now := time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				now += time.Microsecond
				d := g.Approve(now, r)
				if !d.Approved {
					b.Fatal(d)
				}
				if _, err := g.RecordUsage(now, d.Permit, quota.Usage{Input: 10, Output: 5}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	// Two limiters, for global and for the model: the calls of the first line
	// above, without tokens, states, permits or giving back.
	b.Run("x-time-rate, two limiters", func(b *testing.B) {
		global, model := rate.NewLimiter(1e9/60, 1e9), rate.NewLimiter(1e9/60, 1e9)
		now := time.Now()
		b.ReportAllocs()
		for b.Loop() {
			now = now.Add(time.Microsecond)
			if !global.AllowN(now, 1) || !model.AllowN(now, 1) {
				b.Fatal("refused")
			}
		}
	})
	// Calls and tokens of both scopes need four, and ReserveN to give back.
	b.Run("x-time-rate, two limiters for calls and two for tokens, with giving back", func(b *testing.B) {
		calls := [2]*rate.Limiter{rate.NewLimiter(1e9/60, 1e9), rate.NewLimiter(1e9/60, 1e9)}
		tokens := [2]*rate.Limiter{rate.NewLimiter(1e9/60, 1e9), rate.NewLimiter(1e9/60, 1e9)}
		now := time.Now()
		b.ReportAllocs()
		for b.Loop() {
			now = now.Add(time.Microsecond)
			for i := range calls {
				if !calls[i].AllowN(now, 1) {
					b.Fatal("refused")
				}
				r := tokens[i].ReserveN(now, 20)
				if !r.OK() || r.DelayFrom(now) > 0 {
					b.Fatal("refused")
				}
				r.CancelAt(now)
				tokens[i].AllowN(now, 15)
			}
		}
	})
}

func BenchmarkRefusal(b *testing.B) {
	g := governor(b, quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 1}}}})
	g.Approve(0, quota.Request{Model: "m"})
	b.ReportAllocs()
	for b.Loop() {
		if g.Approve(1, quota.Request{Model: "m"}).Approved {
			b.Fatal("approved")
		}
	}
}

// A thousand tenants use three models, each with limits of its own.
func BenchmarkThousandTenants(b *testing.B) {
	g := governor(b, quota.Config{
		Global: ample(), Models: map[string]quota.Model{"a": {Limits: ample()}, "b": {Limits: ample()}, "c": {Limits: ample()}},
		TenantDefault: quota.Tenant{Limits: ample(), Models: map[string]quota.Limits{"a": ample(), "b": ample(), "c": ample()}},
	})
	requests := make([]quota.Request, 3000)
	for i := range requests {
		requests[i] = quota.Request{Model: string(rune('a' + i%3)), Tenant: fmt.Sprintf("tenant-%d", i/3), InputTokens: 10}
	}
	now, i := time.Duration(0), 0
	for range requests {
		d := g.Approve(now, requests[i])
		if _, err := g.RecordUsage(now, d.Permit, quota.Usage{Input: 10}); err != nil {
			b.Fatal(err)
		}
		i = (i + 1) % len(requests)
	}
	b.ReportAllocs()
	for b.Loop() {
		now += time.Microsecond
		d := g.Approve(now, requests[i])
		if !d.Approved {
			b.Fatal(d)
		}
		if _, err := g.RecordUsage(now, d.Permit, quota.Usage{Input: 10}); err != nil {
			b.Fatal(err)
		}
		i = (i + 1) % len(requests)
	}
}

// As a shell uses it: one lock for many callers.
func BenchmarkUnderALock(b *testing.B) {
	g := governor(b, quota.Config{Global: ample(), Models: map[string]quota.Model{"m": {Limits: ample()}}})
	var mu sync.Mutex
	var now time.Duration
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			now += time.Microsecond
			d := g.Approve(now, quota.Request{Model: "m", InputTokens: 10})
			mu.Unlock()
			mu.Lock()
			_, err := g.RecordUsage(now, d.Permit, quota.Usage{Input: 10})
			mu.Unlock()
			if err != nil {
				b.Error(err)
			}
		}
	})
}
