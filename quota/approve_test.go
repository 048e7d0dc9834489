package quota_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

// TestWhoRefusesAndForHowLong: of two scopes that refuse, a hard limit is said first, then
// the one that takes longest, the outer one where both take as long.
func TestWhoRefusesAndForHowLong(t *testing.T) {
	const midnight = 12 * time.Hour
	slow := quota.Limits{CallsPerMinute: 60, Burst: 1}
	slower := quota.Limits{CallsPerMinute: 30, Burst: 1}
	window := quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}
	denied := quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Deny}
	day := quota.Limits{MaxDailyCalls: 1}
	tokens := quota.Limits{MaxDailyTokens: 150}
	half := quota.Limits{RefillPerSecond: 0.0005, Burst: 1} // 33 minutes and 20 seconds
	days := quota.Limits{RefillPerSecond: 1e-6, Burst: 1}
	for name, tt := range map[string]struct {
		global, model quota.Limits
		at            time.Duration
		settled       bool // what went before, which is 100 tokens
		asked         int64
		want          string
	}{
		"the same":                                          {slow, slow, 0, true, 1, "THROTTLED GLOBAL_LIMIT_EXCEEDED by global, 1s"},
		"the longer below":                                  {slow, slower, 0, true, 1, "THROTTLED THROTTLED by model m, 2s"},
		"the longer above":                                  {slower, slow, 0, true, 1, "THROTTLED GLOBAL_LIMIT_EXCEEDED by global, 2s"},
		"only the inner":                                    {quota.Limits{}, slow, 0, true, 1, "THROTTLED THROTTLED by model m, 1s"},
		"a window, longer":                                  {slow, window, 0, true, 1, "SOFT_LIMIT SOFT_LIMIT by model m, 1m1s"},
		"a bucket, longer":                                  {half, window, 0, true, 1, "THROTTLED GLOBAL_LIMIT_EXCEEDED by global, 33m20s"},
		"a policy, shorter":                                 {half, denied, 0, true, 1, "SOFT_LIMIT SOFT_LIMIT by model m, 33m20s, final"},
		"a policy above":                                    {denied, half, 0, true, 1, "THROTTLED THROTTLED by model m, 33m20s, final"},
		"a day, shorter":                                    {days, day, midnight - sec, true, 1, "HARD_LIMIT HARD_LIMIT by model m, 1s, final"},
		"a day above, shorter":                              {day, days, midnight - sec, true, 1, "HARD_LIMIT HARD_LIMIT by global, 1s, final"},
		"two days":                                          {day, day, 0, true, 1, "HARD_LIMIT HARD_LIMIT by global, 12h0m0s, final"},
		"a day and one without room":                        {day, tokens, 0, true, 151, "HARD_LIMIT HARD_LIMIT by model m, never, final"},
		"a bucket and window in one":                        {quota.Limits{}, quota.Limits{CallsPerMinute: 60, Burst: 1, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}, 0, true, 1, "SOFT_LIMIT SOFT_LIMIT by model m, 1m1s"},
		"a window and longer bucket":                        {quota.Limits{}, quota.Limits{TokensPerMinute: 10, TokenBurst: 100, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}, 0, true, 11, "THROTTLED THROTTLED by model m, 1m6s"},
		"a denial and longer bucket":                        {quota.Limits{}, quota.Limits{TokensPerMinute: 10, TokenBurst: 100, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Deny}, 0, true, 11, "SOFT_LIMIT SOFT_LIMIT by model m, 1m6s, final"},
		"held tokens":                                       {quota.Limits{}, tokens, 0, false, 51, "THROTTLED THROTTLED by model m, 1s, held"},
		"held tokens of the last second":                    {quota.Limits{}, tokens, midnight - sec/2, false, 51, "THROTTLED THROTTLED by model m, 500ms, held"},
		"held tokens, a longer bucket":                      {slower, tokens, 0, false, 51, "THROTTLED GLOBAL_LIMIT_EXCEEDED by global, 2s, held"},
		"held tokens, a shorter bucket":                     {quota.Limits{CallsPerMinute: 120, Burst: 1}, tokens, 0, false, 51, "THROTTLED THROTTLED by model m, 1s, held"},
		"held tokens and a window":                          {quota.Limits{}, quota.Limits{MaxDailyTokens: 150, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}, 0, false, 51, "SOFT_LIMIT SOFT_LIMIT by model m, 1m1s, held"},
		"held tokens that do not help":                      {quota.Limits{}, tokens, 0, true, 51, "HARD_LIMIT HARD_LIMIT by model m, 12h0m0s, final"},
		"as many as are left":                               {quota.Limits{}, tokens, 0, true, 50, "approved"},
		"as many as the window has":                         {quota.Limits{}, quota.Limits{SoftTokenBudget: 150, SoftTokenWindowMS: 60_000}, 0, true, 50, "approved 1000/1000 soft_pressure"},
		"one more than the window has":                      {quota.Limits{}, quota.Limits{SoftTokenBudget: 150, SoftTokenWindowMS: 60_000}, 0, true, 51, "SOFT_LIMIT SOFT_LIMIT by model m, 1m1s"},
		"as many as the bucket has":                         {quota.Limits{}, quota.Limits{TokensPerMinute: 150}, 0, true, 50, "approved"},
		"one more than the bucket has":                      {quota.Limits{}, quota.Limits{TokensPerMinute: 150}, 0, true, 51, "THROTTLED THROTTLED by model m, 400ms"},
		"a window that has just enough and an empty bucket": {slow, quota.Limits{SoftTokenBudget: 150, SoftTokenWindowMS: 60_000}, 0, true, 50, "THROTTLED GLOBAL_LIMIT_EXCEEDED by global, 1s"},
	} {
		c := oneModel(tt.model)
		c.Global, c.PermitTTLMS = tt.global, 24*60*60*1000
		g := governor(t, c)
		at := tt.at
		p := approve(t, g, at, ask(100)).Permit
		if tt.settled {
			settle(t, g, at, p, 100)
		}
		if got := answer(g.Approve(at, ask(tt.asked))); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// TestWhatARequestMayBe: the same bounds as Validate has, and what is wrong makes no scope.
func TestWhatARequestMayBe(t *testing.T) {
	fits := strings.Repeat("x", 256)
	long := fits + "x"
	most := int64(quota.MaxTokens)
	c := oneModel(quota.Limits{})
	c.Models[fits] = quota.Model{}
	for _, tt := range []struct {
		r    quota.Request
		code quota.Code
	}{
		{quota.Request{Model: "m", InputTokens: most, OutputTokens: most, CachedTokens: most, MaxTokens: most}, ""},
		{quota.Request{Model: fits, Tenant: fits, Agent: fits}, ""},
		{quota.Request{Model: "m", InputTokens: most + 1}, quota.CodeInvalidConfig},
		{quota.Request{Model: "m", OutputTokens: most + 1}, quota.CodeInvalidConfig},
		{quota.Request{Model: "m", MaxTokens: most + 1}, quota.CodeInvalidConfig},
		{quota.Request{Model: "m", InputTokens: 1, CachedTokens: 2}, quota.CodeInvalidConfig},
		{quota.Request{Model: "m", InputTokens: 2, CachedTokens: 2}, ""},
		{quota.Request{Model: long}, quota.CodeInvalidConfig},
		{quota.Request{Model: "m", Tenant: long}, quota.CodeInvalidConfig},
		{quota.Request{Model: "m", Agent: long}, quota.CodeInvalidConfig},
		{quota.Request{Model: fits[1:]}, quota.CodeModelNotConfigured},
		{quota.Request{Model: fits[1:], Tenant: "t"}, quota.CodeModelNotConfigured},
	} {
		g := governor(t, c)
		d := g.Approve(0, tt.r)
		if d.Code != tt.code || d.Approved != (tt.code == "") {
			t.Errorf("%.80v: %+v, want %q", tt.r, d, tt.code)
		}
		want := tt.r.Model
		if len(want) > 256 || d.Approved {
			want = ""
		}
		if d.Scope.Model != want {
			t.Errorf("%.80v: said of %.20q", tt.r, d.Scope.Model)
		}
		if !d.Approved && g.Statistics().Tenants != 0 {
			t.Errorf("%.80v made a scope", tt.r)
		}
	}
	err := (&quota.Request{Tenant: long}).Validate()
	if err == nil || err.Error() != "quota: tenant is a name of 257 bytes, must be at most 256 bytes (RATE_INVALID_CONFIG)" {
		t.Error(err)
	}
}

// TestTheLargestCallPassesOnTheLargestBucket: two thousand million tokens, cut to one.
func TestTheLargestCallPassesOnTheLargestBucket(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{TokensPerMinute: 1e9, InputTokensPerMinute: 1e9, OutputTokensPerMinute: 1e9}))
	approve(t, g, 0, quota.Request{Model: "m", InputTokens: quota.MaxTokens, OutputTokens: quota.MaxTokens})
	if got := left(ofM)(&play{g: g}, 0); got != "tokens 0, inputTokens 0, outputTokens 0" {
		t.Error(got)
	}
}

// TestALimitOfOne: of each kind there is one.
func TestALimitOfOne(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{
		CallsPerMinute: 1, TokensPerMinute: 1, InputTokensPerMinute: 1, OutputTokensPerMinute: 1, SoftTokenBudget: 1, SoftTokenWindowMS: 1, MaxDailyTokens: 1, MaxDailyCalls: 1,
	}))
	if got := left(ofM)(&play{g: g}, 0); got != "calls 1, tokens 1, inputTokens 1, outputTokens 1, softTokens 1, dailyTokens 1, dailyCalls 1" {
		t.Error(got)
	}
}

// TestAnOverrunSpreadsEachKind: of which five seconds' worth is left, less what is used.
func TestAnOverrunSpreadsEachKind(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{
		CallsPerMinute: 600, Burst: 600, TokensPerMinute: 6000, TokenBurst: 9000, InputTokensPerMinute: 6000, InputTokenBurst: 9000, OutputTokensPerMinute: 6000, OutputTokenBurst: 9000,
	}))
	d := approve(t, g, 0, quota.Request{Model: "m", InputTokens: 100, OutputTokens: 30})
	if !g.Overrun(0, d.Permit) {
		t.Error("nothing changed")
	}
	if got := left(ofM)(&play{g: g}, 0); got != "calls 49, tokens 370, inputTokens 400, outputTokens 470" {
		t.Error(got)
	}
}

// TestASpreadScopeAnywhereOnThePathOwesTheWhole: whatever the other scopes are.
func TestASpreadScopeAnywhereOnThePathOwesTheWhole(t *testing.T) {
	plain, spread := quota.Limits{TokensPerMinute: 6000}, quota.Limits{TokensPerMinute: 6000, Spread: true}
	for name, c := range map[string]quota.Config{
		"global": {Global: spread, Models: map[string]quota.Model{"m": {Limits: plain}}},
		"model":  {Global: plain, Models: map[string]quota.Model{"m": {Limits: spread}}},
	} {
		g := governor(t, c)
		if d := approve(t, g, 0, ask(2000)); d.Advisory != 0 {
			t.Errorf("%s: %v", name, d.Advisory.Names())
		}
		got := []string{left(global)(&play{g: g}, 0), left(ofM)(&play{g: g}, 0)}
		want := []string{"tokens -1500", "tokens 4000"}
		if name == "model" {
			want[0], want[1] = want[1], want[0]
		}
		same(t, name, got, want)
	}
}

// TestRefusalsAreReportedByKind: equal ones in a row are one event, which has the last wait.
func TestRefusalsAreReportedByKind(t *testing.T) {
	c := oneModel(quota.Limits{CallsPerMinute: 60, Burst: 1, MaxDailyTokens: 1000})
	c.Models["n"] = quota.Model{Limits: quota.Limits{CallsPerMinute: 60, Burst: 1}}
	g := governor(t, c)
	approve(t, g, 0, ask(1))
	approve(t, g, 0, quota.Request{Model: "n"})
	n, by := quota.Request{Model: "n"}, ask(1)
	by.Tenant = "t"
	g.Approve(0, ask(1))
	g.TakeEvents(nil)
	for _, tt := range []struct {
		at time.Duration
		r  quota.Request
	}{{0, ask(1)}, {100 * ms, ask(1)}, {200*ms + 1, ask(1)}, {300 * ms, ask(1001)}, {300 * ms, ask(1)}, {300 * ms, by}, {400 * ms, by}, {400 * ms, n}, {400 * ms, quota.Request{Model: "o"}}, {500 * ms, quota.Request{Model: "o"}}} {
		g.Approve(tt.at, tt.r)
	}
	events, _ := g.TakeEvents(nil)
	got := []string{}
	for _, e := range events {
		if e.Type == quota.EventDenied {
			got = append(got, fmt.Sprintf("%v %v %s %d %d", e.Instant, e.Scope, e.Code, e.RetryInMS, e.Count))
		}
	}
	same(t, "reported", got, []string{
		"0s model m RATE_THROTTLED 800 3", // 799.999999 ms, rounded up
		"300ms model m RATE_HARD_LIMIT 0 0",
		"300ms model m RATE_THROTTLED 700 0",
		"300ms tenant t, model m RATE_THROTTLED 600 2",
		"400ms model n RATE_THROTTLED 600 0",
		"400ms model o RATE_MODEL_NOT_CONFIGURED 0 2",
	})
}
