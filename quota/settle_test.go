package quota_test

import (
	"errors"
	"testing"

	"github.com/headway-go/headway/quota"
)

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
