package quota_test

import (
	"errors"
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

func asDenial(err error) (*quota.Denial, bool) { return errors.AsType[*quota.Denial](err) }

func conflict(t *testing.T, what string, err error) {
	t.Helper()
	if d, ok := asDenial(err); !ok || d.Code != quota.CodeApprovalConflict {
		t.Errorf("%s: %v, want a conflict", what, err)
	}
}

func TestSettleAndCancelAreIdempotentPerPermit(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{TokensPerMinute: 100}))
	p := approve(t, g, 0, ask(50)).Permit
	settle(t, g, 0, p, 20)
	for range 3 {
		if first, err := g.RecordUsage(0, p, quota.Usage{Input: 20}); first || err != nil {
			t.Errorf("the same again: %v, %v", first, err)
		}
		if first, err := g.Cancel(0, p); first || err != nil {
			t.Errorf("a deferred cancel: %v, %v", first, err)
		}
	}
	_, err := g.RecordUsage(0, p, quota.Usage{Input: 21})
	conflict(t, "another usage", err)
	if left := *model(t, g, 0).TokensRemaining; left != 80 {
		t.Errorf("%d left, want 80", left)
	}

	p = approve(t, g, 0, ask(50)).Permit
	if first, err := g.Cancel(0, p); !first || err != nil {
		t.Errorf("cancel: %v, %v", first, err)
	}
	_, err = g.RecordUsage(0, p, quota.Usage{Input: 20})
	conflict(t, "usage of a canceled permit", err)
	if left := *model(t, g, 0).TokensRemaining; left != 80 {
		t.Errorf("%d left after the cancel, want 80", left)
	}
}

func TestAStalePermitFindsNothing(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{TokensPerMinute: 100}))
	stale := approve(t, g, 0, ask(10)).Permit
	settle(t, g, 0, stale, 10)
	approve(t, g, 0, ask(30)) // in the same slot
	if first, err := g.RecordUsage(0, stale, quota.Usage{}); first || err != nil {
		t.Errorf("a permit that ended long ago: %v, %v", first, err)
	}
	if first, err := g.Cancel(0, stale); first || err != nil {
		t.Errorf("canceling it: %v, %v", first, err)
	}
	if left := *model(t, g, 0).TokensRemaining; left != 60 {
		t.Errorf("%d left, want 60: somebody else's permit was ended", left)
	}
	_, err := g.RecordUsage(0, quota.Permit{}, quota.Usage{})
	conflict(t, "the zero permit", err)
	_, err = g.Cancel(0, quota.Permit{})
	conflict(t, "canceling the zero permit", err)
	conflict(t, "draining a stale permit", g.Drain(0, stale, 1))
	if s := g.Statistics(); s.Conflicts != 3 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
}

func TestUsageOutOfItsBoundChangesNothing(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{TokensPerMinute: 100}))
	p := approve(t, g, 0, ask(10)).Permit
	for _, u := range []quota.Usage{{Input: -1}, {Output: -1}, {Input: 1, Cached: 2}, {Output: quota.MaxTokens + 1}, {Output: 1, Reasoning: 2}, {Reasoning: -1}} {
		first, err := g.RecordUsage(0, p, u)
		field, ok := errors.AsType[*quota.FieldError](err)
		if first || !ok || field.Code() != quota.CodeInvalidConfig {
			t.Errorf("%+v: %v, %v", u, first, err)
		}
	}
	settle(t, g, 0, p, 10)
}

func TestAPermitNeverSettledIsReleasedAndCounted(t *testing.T) {
	c := oneModel(quota.Limits{TokensPerMinute: 60, MaxDailyTokens: 100})
	c.PermitTTLMS = 30_000
	g := governor(t, c)
	p := approve(t, g, 0, ask(60)).Permit
	if d := refused(t, g, 0, ask(41), quota.CodeThrottled); !d.Held {
		t.Errorf("%+v, want one that waits for what is held", d)
	}
	if at, ok := g.NextTransition(0); !ok || at > 30*sec {
		t.Errorf("the next transition is at %v, %v: the expiry is late", at, ok)
	}
	if s := model(t, g, 30*sec-1); s.Ledger.Held != 60 || *s.DailyTokensRemaining != 40 {
		t.Errorf("before: %+v", s)
	}
	s := model(t, g, 30*sec)
	if s.Ledger.Held != 0 || s.Ledger.Refunded != 60 || *s.DailyTokensRemaining != 100 || *s.TokensRemaining != 60 {
		t.Errorf("after: %+v", s)
	}
	if n := g.Statistics().Expired; n != 1 {
		t.Errorf("%d expired", n)
	}
	_, err := g.RecordUsage(31*sec, p, quota.Usage{Input: 60})
	conflict(t, "usage after the expiry", err)
}

func TestKeepExpiredChargesTheEstimate(t *testing.T) {
	c := oneModel(quota.Limits{MaxDailyTokens: 100})
	c.PermitTTLMS, c.KeepExpired = 30_000, true
	g := governor(t, c)
	approve(t, g, 0, ask(60))
	if s := model(t, g, minute); s.Ledger.Used != 60 || s.Ledger.Held != 0 || *s.DailyTokensRemaining != 40 {
		t.Errorf("%+v", s)
	}
}

func TestStreamsDrainAsTheyFlow(t *testing.T) {
	c := oneModel(quota.Limits{TokensPerMinute: 100})
	c.PermitTTLMS = 60_000
	g := governor(t, c)
	left := func() int64 { return *model(t, g, 0).TokensRemaining }
	p := approve(t, g, 0, quota.Request{Model: "m", InputTokens: 10, OutputTokens: 20}).Permit
	for i, want := range []int64{70, 70, 60, 50} { // the first 20 are reserved
		if err := g.Drain(0, p, 10); err != nil {
			t.Fatal(err)
		}
		if left() != want {
			t.Errorf("%d left after %d tokens, want %d", left(), 10*(i+1), want)
		}
	}
	if _, err := g.RecordUsage(0, p, quota.Usage{Input: 10, Output: 45}); err != nil {
		t.Fatal(err)
	}
	if left() != 45 {
		t.Errorf("%d left, want 45", left())
	}
	if s := model(t, g, 0); s.Ledger != (quota.Ledger{Granted: 55, Used: 55, Approved: 1}) {
		t.Errorf("%+v", s.Ledger)
	}
	// A stream whose client went away is charged what flowed.
	p = approve(t, g, 0, quota.Request{Model: "m", InputTokens: 10, OutputTokens: 20}).Permit
	if err := g.Drain(0, p, 3); err != nil {
		t.Fatal(err)
	}
	if s := model(t, g, minute); s.Ledger.Used != 55+13 || s.Ledger.Held != 0 {
		t.Errorf("%+v after the expiry", s.Ledger)
	}
	p = approve(t, g, minute, ask(1)).Permit
	if err := g.Drain(minute, p, -1); err == nil {
		t.Error("a negative number was drained")
	}
}

func TestChargeRules(t *testing.T) {
	for _, tt := range []struct {
		rule               string
		request            quota.Request
		reserved, byDay    int64 // by the minute, and by the day
		usage              quota.Usage
		charged, used      int64 // by the minute, and by the day
		inputLeft, outLeft int64
	}{
		{"", quota.Request{InputTokens: 100, CachedTokens: 40, OutputTokens: 50, MaxTokens: 400}, 150, 150, quota.Usage{Input: 100, Cached: 40, Output: 30}, 130, 130, 900, 970},
		{"openai", quota.Request{InputTokens: 100, OutputTokens: 50, MaxTokens: 400}, 400, 150, quota.Usage{Input: 100, Output: 30}, 400, 130, 900, 970},
		{"openai", quota.Request{InputTokens: 300, OutputTokens: 50, MaxTokens: 10}, 300, 350, quota.Usage{Input: 300, Output: 10}, 300, 310, 700, 990},
		{"openai", quota.Request{InputTokens: 300, OutputTokens: 50}, 300, 350, quota.Usage{Input: 310, Output: 60}, 310, 370, 690, 940},
		{"openai", quota.Request{InputTokens: 100, OutputTokens: 50, MaxTokens: 400}, 400, 150, quota.Usage{}, 0, 0, 1000, 1000},
		{"azure", quota.Request{InputTokens: 100, OutputTokens: 50, MaxTokens: 400}, 500, 150, quota.Usage{Input: 100, Output: 30}, 500, 130, 900, 970},
		{"azure", quota.Request{InputTokens: 100, OutputTokens: 50, MaxTokens: 400}, 500, 150, quota.Usage{Input: 200, Output: 30}, 600, 230, 800, 970},
		{"azure", quota.Request{InputTokens: 100, OutputTokens: 50}, 150, 150, quota.Usage{Input: 100, Output: 30}, 150, 130, 900, 970},
		{"azure", quota.Request{InputTokens: 100, OutputTokens: 50, MaxTokens: 400}, 500, 150, quota.Usage{}, 0, 0, 1000, 1000},
		{"anthropic", quota.Request{InputTokens: 100, CachedTokens: 40, OutputTokens: 50, MaxTokens: 400}, 110, 150, quota.Usage{Input: 100, Cached: 60, Output: 30}, 70, 130, 960, 970},
		{"gemini", quota.Request{InputTokens: 100, OutputTokens: 50}, 100, 150, quota.Usage{Input: 90, Output: 30}, 90, 120, 910, 970},
		{"mine", quota.Request{InputTokens: 100, CachedTokens: 100}, 25, 100, quota.Usage{Input: 100, Cached: 100}, 25, 100, 975, 1000},
	} {
		l := quota.Limits{TokensPerMinute: 1000, InputTokensPerMinute: 1000, OutputTokensPerMinute: 1000, MaxDailyTokens: 1000}
		g := governor(t, quota.Config{
			Models:  map[string]quota.Model{"m": {Limits: l, Charge: tt.rule}},
			Charges: map[string]quota.Charge{"mine": {CachedDiscount: 75}},
		})
		tt.request.Model = "m"
		p := approve(t, g, 0, tt.request).Permit
		if s := model(t, g, 0); *s.TokensRemaining != 1000-tt.reserved || *s.DailyTokensRemaining != 1000-tt.byDay {
			t.Errorf("%q reserves %d, by the day %d, want %d and %d", tt.rule, 1000-*s.TokensRemaining, 1000-*s.DailyTokensRemaining, tt.reserved, tt.byDay)
		}
		if _, err := g.RecordUsage(0, p, tt.usage); err != nil {
			t.Fatal(err)
		}
		if s := model(t, g, 0); *s.TokensRemaining != 1000-tt.charged || *s.DailyTokensRemaining != 1000-tt.used || s.Ledger.Used != tt.used {
			t.Errorf("%q charges %d, by the day %d, want %d and %d", tt.rule, 1000-*s.TokensRemaining, 1000-*s.DailyTokensRemaining, tt.charged, tt.used)
		}
		in := g.Forecast(0, quota.Scope{Model: "m"})
		if in[1].Remaining != tt.inputLeft || in[2].Remaining != tt.outLeft {
			t.Errorf("%q leaves %d and %d of input and output, want %d and %d", tt.rule, in[1].Remaining, in[2].Remaining, tt.inputLeft, tt.outLeft)
		}
	}
}
