package quota_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

var (
	global = quota.Scope{}
	ofM    = quota.Scope{Model: "m"}
)

// everyBudget is limits of each kind, none of which is scarce.
var everyBudget = quota.Limits{
	CallsPerMinute: 60, Burst: 10, TokensPerMinute: 1000, InputTokensPerMinute: 1000, OutputTokensPerMinute: 1000,
	SoftTokenBudget: 2000, SoftTokenWindowMS: 60_000, MaxDailyTokens: 10_000, MaxDailyCalls: 100,
}

func TestWhatACallChargesFromItsApprovalToItsEnd(t *testing.T) {
	r := quota.Request{Model: "m", InputTokens: 100, OutputTokens: 50, CachedTokens: 10}
	large := quota.Request{Model: "m", InputTokens: 2500, OutputTokens: 50}
	soft := oneModel(quota.Limits{TokensPerMinute: 1000, SoftTokenBudget: 1000, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Advise})
	soft.ForecastOff = true
	kept := oneModel(everyBudget)
	kept.KeepExpired, kept.PermitTTLMS = true, 1000
	short := kept
	short.KeepExpired = false
	owed := oneModel(quota.Limits{TokensPerMinute: 1000})
	owed.KeepExpired, owed.PermitTTLMS = true, 1000
	const full = "calls 10, tokens 1000, inputTokens 1000, outputTokens 1000, softTokens 2000, dailyTokens 10000, dailyCalls 100"
	for name, tt := range map[string]struct {
		c    quota.Config
		rows []row
	}{
		"a refund": {oneModel(everyBudget), []row{
			{0, left(ofM), full},
			{0, asks(r), "approved 75/1000"},
			{0, left(ofM), "calls 9, tokens 850, inputTokens 900, outputTokens 950, softTokens 1850, dailyTokens 9850, dailyCalls 99"},
			{0, ledger(ofM), "granted 150, used 0, refunded 0, held 150, cached 0, reasoning 0, approved 1, denied 0, lately 1 calls, 150 tokens"},
			{0, settles(0, quota.Usage{Input: 90, Cached: 8, Output: 30, Reasoning: 7}), "ends"},
			{0, left(ofM), "calls 9, tokens 880, inputTokens 910, outputTokens 970, softTokens 1880, dailyTokens 9880, dailyCalls 99"},
			{0, ledger(ofM), "granted 150, used 120, refunded 30, held 0, cached 8, reasoning 7, approved 1, denied 0, lately 1 calls, 120 tokens"},
			{0, settles(0, quota.Usage{Input: 90, Cached: 8, Output: 30, Reasoning: 7}), "had ended"},
			{0, settles(0, quota.Usage{Input: 90, Cached: 8, Output: 30, Reasoning: 6}), "RATE_APPROVAL_CONFLICT"},
			{0, ledger(global), "granted 150, used 120, refunded 30, held 0, cached 8, reasoning 7, approved 1, denied 0, lately 1 calls, 120 tokens"},
		}},
		"a further charge": {oneModel(everyBudget), []row{
			{0, asks(r), "approved 75/1000"},
			{0, settles(0, quota.Usage{Input: 110, Output: 1050}), "ends"},
			{0, left(ofM), "calls 9, tokens -160, inputTokens 890, outputTokens -50, softTokens 840, dailyTokens 8840, dailyCalls 99"},
			{0, ledger(ofM), "granted 1160, used 1160, refunded 0, held 0, cached 0, reasoning 0, approved 1, denied 0, lately 1 calls, 1160 tokens"},
		}},
		"nothing was sent": {oneModel(everyBudget), []row{
			{0, asks(r), "approved 75/1000"},
			{0, cancels(0), "ends"},
			{0, left(ofM), full},
			{0, ledger(ofM), "granted 150, used 0, refunded 150, held 0, cached 0, reasoning 0, approved 1, denied 0, lately 0 calls, 0 tokens"},
			{0, cancels(0), "had ended"},
			{0, settles(0, quota.Usage{}), "RATE_APPROVAL_CONFLICT"},
			{0, drains(0, 1), "RATE_APPROVAL_CONFLICT"},
		}},
		"a call that was refused": {oneModel(everyBudget), []row{
			{0, asks(r), "approved 75/1000"},
			{0, settles(0, quota.Usage{}), "ends"},
			{0, left(ofM), "calls 9, tokens 1000, inputTokens 1000, outputTokens 1000, softTokens 2000, dailyTokens 10000, dailyCalls 99"},
		}},
		"a stream": {oneModel(everyBudget), []row{
			{0, asks(r), "approved 75/1000"},
			{0, drains(0, 0), "flows"},
			{0, drains(0, 50), "flows"},
			{0, left(ofM), "calls 9, tokens 850, inputTokens 900, outputTokens 950, softTokens 1850, dailyTokens 9850, dailyCalls 99"},
			{0, drains(0, 1), "flows"},
			{0, left(ofM), "calls 9, tokens 849, inputTokens 900, outputTokens 949, softTokens 1849, dailyTokens 9849, dailyCalls 99"},
			{0, drains(0, 49), "flows"},
			{0, left(ofM), "calls 9, tokens 800, inputTokens 900, outputTokens 900, softTokens 1800, dailyTokens 9800, dailyCalls 99"},
			{0, ledger(ofM), "granted 200, used 0, refunded 0, held 200, cached 0, reasoning 0, approved 1, denied 0, lately 1 calls, 200 tokens"},
			{0, drains(0, -1), "quota: drained tokens is -1, must be from 0 to 999999900 (RATE_INVALID_CONFIG)"},
			{0, drains(0, quota.MaxTokens-99), "quota: drained tokens is 999999901, must be from 0 to 999999900 (RATE_INVALID_CONFIG)"},
			{0, settles(0, quota.Usage{Input: 100, Output: 60}), "ends"},
			{0, left(ofM), "calls 9, tokens 840, inputTokens 900, outputTokens 940, softTokens 1840, dailyTokens 9840, dailyCalls 99"},
			{0, ledger(ofM), "granted 200, used 160, refunded 40, held 0, cached 0, reasoning 0, approved 1, denied 0, lately 1 calls, 160 tokens"},
		}},
		"a stream of as much as there may be": {oneModel(quota.Limits{MaxDailyTokens: 1e15}), []row{
			{0, asks(r), "approved"},
			{0, drains(0, 100), "flows"},
			{0, drains(0, quota.MaxTokens-100), "flows"},
			{0, left(ofM), "dailyTokens 999998999999900"},
		}},
		"as much as there may be": {oneModel(quota.Limits{MaxDailyTokens: 1e15}), []row{
			{0, asks(r), "approved"},
			{0, settles(0, quota.Usage{Input: quota.MaxTokens, Output: quota.MaxTokens + 1}), "quota: usage.output is 1000000001, must be from 0 to 1000000000 (RATE_INVALID_CONFIG)"},
			{0, settles(0, quota.Usage{Input: quota.MaxTokens, Cached: quota.MaxTokens, Output: quota.MaxTokens, Reasoning: quota.MaxTokens}), "ends"},
			{0, left(ofM), "dailyTokens 999998000000000"},
		}},
		"a stream that is forgotten": {short, []row{
			{0, asks(r), "approved 75/1000"},
			{0, drains(0, 1), "flows"},
			{sec - 1, ledger(ofM), "granted 150, used 0, refunded 0, held 150, cached 0, reasoning 0, approved 1, denied 0, lately 1 calls, 150 tokens"},
			{sec, ledger(ofM), "granted 150, used 101, refunded 49, held 0, cached 0, reasoning 0, approved 1, denied 0, lately 1 calls, 101 tokens"},
			{sec, settles(0, quota.Usage{}), "RATE_APPROVAL_CONFLICT"},
			{sec, cancels(0), "had ended"},
		}},
		"a call that is forgotten": {short, []row{
			{0, asks(r), "approved 75/1000"},
			{sec, left(ofM), "calls 10, tokens 1000, inputTokens 1000, outputTokens 1000, softTokens 2000, dailyTokens 10000, dailyCalls 99"},
		}},
		"a forgotten call that is kept": {kept, []row{
			{0, asks(r), "approved 75/1000"},
			{sec, left(ofM), "calls 10, tokens 866, inputTokens 916, outputTokens 966, softTokens 1850, dailyTokens 9850, dailyCalls 99"},
			{sec, ledger(ofM), "granted 150, used 150, refunded 0, held 0, cached 0, reasoning 0, approved 1, denied 0, lately 1 calls, 150 tokens"},
		}},
		"a forgotten call that was cut to the bucket": {owed, []row{
			{0, asks(ask(1600)), "approved clamped"},
			{0, left(ofM), "tokens 0"},
			{sec, left(ofM), "tokens -584"}, // 600 beyond, less a second's refill
		}},
		"a larger one than the window and the bucket hold": {soft, []row{
			{0, asks(large), "approved 1000/1000 soft_pressure clamped; model m normal>soft soft_reached; model m softPressure 1 of 60000ms"},
			{0, left(ofM), "tokens 0, softTokens 0"},
			{0, settles(0, quota.Usage{Input: 2500, Output: 50}), "ends; model m x2.55"},
			{0, left(ofM), "tokens -1550, softTokens -1550"},
		}},
		"and used less": {soft, []row{
			{0, asks(large), "approved 1000/1000 soft_pressure clamped; model m normal>soft soft_reached; model m softPressure 1 of 60000ms"},
			{0, settles(0, quota.Usage{Input: 1100}), "ends; model m x1.1"},
			{0, left(ofM), "tokens -100, softTokens -100"},
		}},
		"and less than the clamp": {soft, []row{
			{0, asks(large), "approved 1000/1000 soft_pressure clamped; model m normal>soft soft_reached; model m softPressure 1 of 60000ms"},
			{0, settles(0, quota.Usage{Input: 900}), "ends; model m x0.9"},
			{0, left(ofM), "tokens 100, softTokens 100"},
		}},
		"and flows": {soft, []row{ // what is cut is owed when it flows, and once
			{0, asks(large), "approved 1000/1000 soft_pressure clamped; model m normal>soft soft_reached; model m softPressure 1 of 60000ms"},
			{0, drains(0, 1), "flows; model m x2.55"},
			{0, left(ofM), "tokens -1501, softTokens -1550"},
			{0, settles(0, quota.Usage{Input: 2500, Output: 50}), "ends"},
			{0, left(ofM), "tokens -1550, softTokens -1550"},
		}},
	} {
		t.Run(name, func(t *testing.T) { runs(t, tt.c, tt.rows) })
	}
}

// TestWhoseLimitsAnAccountHas: those of its name, else the default ones, and in each
// place those of the model.
func TestWhoseLimitsAnAccountHas(t *testing.T) {
	calls := func(n int64) quota.Limits { return quota.Limits{MaxDailyCalls: n} }
	m := func(n int64) map[string]quota.Limits { return map[string]quota.Limits{"m": calls(n)} }
	c := quota.Config{
		Global: calls(1000), Models: map[string]quota.Model{"m": {Limits: calls(900)}, "n": {}},
		Tenants: map[string]quota.Tenant{
			"t": {Limits: calls(800), Models: m(700), Agents: map[string]quota.Agent{"a": {Limits: calls(600), Models: m(500)}},
				AgentDefault: quota.Agent{Limits: calls(400), Models: m(300)}},
		},
		TenantDefault: quota.Tenant{Limits: calls(80), Models: m(70), Agents: map[string]quota.Agent{"a": {Limits: calls(60), Models: m(50)}},
			AgentDefault: quota.Agent{Limits: calls(40), Models: m(30)}},
	}
	g := governor(t, c)
	for _, r := range []quota.Request{
		{Model: "m"}, {Model: "m", Tenant: "t", Agent: "a"}, {Model: "m", Tenant: "t", Agent: "b"}, {Model: "m", Tenant: "u", Agent: "a"},
		{Model: "m", Tenant: "u", Agent: "b"}, {Model: "m", Agent: "b"}, {Model: "n", Tenant: "t", Agent: "a"}, {Model: "n", Tenant: "t"},
	} {
		settle(t, g, 0, approve(t, g, 0, r).Permit, 0)
	}
	for s, want := range map[quota.Scope]string{
		{}:                                    "992 after 8",
		{Model: "m"}:                          "894 after 6",
		{Model: "n"}:                          "no cap after 2",
		{Tenant: "t"}:                         "796 after 4",
		{Tenant: "t", Model: "m"}:             "698 after 2",
		{Tenant: "t", Model: "n"}:             "unknown",
		{Tenant: "t", Agent: "a"}:             "598 after 2",
		{Tenant: "t", Agent: "a", Model: "m"}: "499 after 1",
		{Tenant: "t", Agent: "a", Model: "n"}: "unknown",
		{Tenant: "t", Agent: "b"}:             "399 after 1",
		{Tenant: "t", Agent: "b", Model: "m"}: "299 after 1",
		{Tenant: "u"}:                         "78 after 2",
		{Tenant: "u", Model: "m"}:             "68 after 2",
		{Tenant: "u", Agent: "a"}:             "59 after 1",
		{Tenant: "u", Agent: "a", Model: "m"}: "49 after 1",
		{Tenant: "u", Agent: "b"}:             "39 after 1",
		{Tenant: "u", Agent: "b", Model: "m"}: "29 after 1",
		{Agent: "b"}:                          "39 after 1",
		{Agent: "b", Model: "m"}:              "29 after 1",
		{Tenant: "v"}:                         "unknown",
		{Tenant: "t", Agent: "c"}:             "unknown",
		{Tenant: "v", Agent: "a", Model: "m"}: "unknown",
		{Model: "o"}:                          "unknown",
	} {
		got := "unknown"
		if n, ok := g.Inspect(0, s); ok {
			got = "no cap"
			if n.DailyCallsRemaining != nil {
				got = fmt.Sprint(*n.DailyCallsRemaining)
			}
			got += fmt.Sprint(" after ", n.Ledger.Approved)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", s, got, want)
		}
	}
}

// TestAnEstimateIsCutToTheSmallestOnItsPath: each kind to the smallest budget of its kind,
// wherever that is.
func TestAnEstimateIsCutToTheSmallestOnItsPath(t *testing.T) {
	wide := quota.Limits{TokensPerMinute: 1000, InputTokensPerMinute: 900, OutputTokensPerMinute: 800, SoftTokenBudget: 700, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Advise}
	tight := quota.Limits{TokensPerMinute: 500, InputTokensPerMinute: 400, OutputTokensPerMinute: 300, SoftTokenBudget: 200, SoftTokenWindowMS: 60_000, SoftPolicy: quota.Advise}
	for name, c := range map[string]quota.Config{
		"global": {Global: tight, Models: map[string]quota.Model{"m": {Limits: wide}}, TenantDefault: quota.Tenant{Limits: wide}},
		"model":  {Global: wide, Models: map[string]quota.Model{"m": {Limits: tight}}, TenantDefault: quota.Tenant{Limits: wide}},
		"tenant": {Global: wide, Models: map[string]quota.Model{"m": {Limits: wide}}, TenantDefault: quota.Tenant{Limits: tight}},
	} {
		for _, tt := range []struct {
			in, out int64
			clamped bool
			want    string // of the wide one
		}{
			{100, 100, false, "tokens 800, inputTokens 800, outputTokens 700, softTokens 500"},
			{101, 100, true, "tokens 799, inputTokens 799, outputTokens 700, softTokens 500"}, // by the window
			{5000, 5000, true, "tokens 500, inputTokens 500, outputTokens 500, softTokens 500"},
		} {
			g := governor(t, c)
			d := approve(t, g, 0, quota.Request{Model: "m", Tenant: "t", InputTokens: tt.in, OutputTokens: tt.out})
			if (d.Advisory&quota.AdviseClamped != 0) != tt.clamped {
				t.Errorf("%s, %d and %d: advised %v", name, tt.in, tt.out, d.Advisory.Names())
			}
			scope := quota.Scope{}
			if name == "global" {
				scope.Model = "m"
			}
			if got := left(scope)(&play{g: g}, 0); got != tt.want {
				t.Errorf("%s, %d and %d: %s, want %s", name, tt.in, tt.out, got, tt.want)
			}
		}
	}
}

// TestWhoIsIdleMakesRoom: one of two tenants may be known. The first goes when nothing is
// lost with it, which takes as long as the row says.
func TestWhoIsIdleMakesRoom(t *testing.T) {
	of := func(tenant, agent string, tokens int64) quota.Request {
		return quota.Request{Model: "m", Tenant: tenant, Agent: agent, InputTokens: tokens}
	}
	for name, tt := range map[string]struct {
		limits quota.Tenant
		used   int64
		idle   time.Duration // 0: at once
	}{
		"no limits":          {quota.Tenant{}, 10, 0},
		"calls":              {quota.Tenant{Limits: quota.Limits{CallsPerMinute: 60}}, 0, sec},
		"tokens":             {quota.Tenant{Limits: quota.Limits{TokensPerMinute: 60}}, 2, 2 * sec},
		"input":              {quota.Tenant{Limits: quota.Limits{InputTokensPerMinute: 60}}, 2, 2 * sec},
		"output, unused":     {quota.Tenant{Limits: quota.Limits{OutputTokensPerMinute: 60}}, 2, 0},
		"a window":           {quota.Tenant{Limits: quota.Limits{SoftTokenBudget: 100, SoftTokenWindowMS: 60_000}}, 10, 61 * sec},
		"a day's tokens":     {quota.Tenant{Limits: quota.Limits{MaxDailyTokens: 100}}, 10, 12 * time.Hour},
		"a day's calls":      {quota.Tenant{Limits: quota.Limits{MaxDailyCalls: 100}}, 0, 12 * time.Hour},
		"of a model":         {quota.Tenant{Models: map[string]quota.Limits{"m": {CallsPerMinute: 60}}}, 0, sec},
		"of an agent":        {quota.Tenant{AgentDefault: quota.Agent{Limits: quota.Limits{CallsPerMinute: 60}}}, 0, sec},
		"of an agent, model": {quota.Tenant{AgentDefault: quota.Agent{Models: map[string]quota.Limits{"m": {CallsPerMinute: 60}}}}, 0, sec},
	} {
		for _, early := range []bool{false, true} {
			if early && tt.idle == 0 {
				continue
			}
			c := oneModel(quota.Limits{})
			c.MaxTenants, c.TenantDefault = 1, tt.limits
			g := governor(t, c)
			settle(t, g, 0, approve(t, g, 0, of("a", "x", tt.used)).Permit, tt.used)
			at := tt.idle
			if early {
				at--
			}
			if d := approve(t, g, at, of("b", "", 0)); (d.Advisory&quota.AdviseShared != 0) != early {
				t.Errorf("%s: at %v: %v", name, at, d.Advisory.Names())
			}
		}
	}
}
