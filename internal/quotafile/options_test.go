package quotafile_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
)

// try is a governor made of a file, at midday.
type try struct {
	t   *testing.T
	g   *quota.Governor
	now time.Duration
}

func tried(t *testing.T, file string) *try {
	t.Helper()
	s, err := quotafile.Read("q.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	g, err := quota.New(s.Quota, time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return &try{t: t, g: g}
}

// passes counts how many calls in a row are approved, at most 100; all are settled
// as estimated.
func (x *try) passes(r quota.Request) (n int) {
	for ; n < 100; n++ {
		d := x.g.Approve(x.now, r)
		if !d.Approved {
			return n
		}
		if _, err := x.g.RecordUsage(x.now, d.Permit, quota.Usage{Input: r.InputTokens, Output: r.OutputTokens}); err != nil {
			x.t.Fatal(err)
		}
	}
	return n
}

func (x *try) after(d time.Duration) *try { x.now += d; return x }

func call(in, out int64) quota.Request {
	return quota.Request{Model: "m", InputTokens: in, OutputTokens: out}
}

func by(tenant, agent string) quota.Request {
	return quota.Request{Model: "m", Tenant: tenant, Agent: agent, InputTokens: 1}
}

// TestEveryOptionBinds sets each option of a quota section and sees its effect: an
// option that changes nothing is refused, or fails here.
func TestEveryOptionBinds(t *testing.T) {
	one := func(x *try) any { return x.passes(call(1, 1)) }
	m := func(limits string) string { return "models: {m: {" + limits + "}}\n" }
	type effect struct {
		file string
		do   func(x *try) any
		want any
	}
	limits := map[string]effect{
		"calls_per_minute":         {m("calls_per_minute: 7"), one, 7},
		"burst":                    {m("calls_per_minute: 7, burst: 3"), one, 3},
		"refill_per_second":        {m("refill_per_second: 0.5, burst: 9"), func(x *try) any { x.passes(call(1, 1)); return x.after(8 * time.Second).passes(call(1, 1)) }, 4},
		"spread":                   {m("calls_per_minute: 60, spread: true"), one, 5},
		"tokens_per_minute":        {m("tokens_per_minute: 20"), one, 10},
		"token_burst":              {m("tokens_per_minute: 20, token_burst: 6"), one, 3},
		"input_tokens_per_minute":  {m("input_tokens_per_minute: 20"), func(x *try) any { return x.passes(call(4, 100)) }, 5},
		"input_token_burst":        {m("input_tokens_per_minute: 20, input_token_burst: 8"), func(x *try) any { return x.passes(call(4, 100)) }, 2},
		"output_tokens_per_minute": {m("output_tokens_per_minute: 20, charge: gemini"), func(x *try) any { return x.passes(call(100, 4)) }, 5},
		"output_token_burst":       {m("output_tokens_per_minute: 20, output_token_burst: 8"), func(x *try) any { return x.passes(call(100, 4)) }, 2},
		"soft_token_budget":        {m("soft_token_budget: 20, soft_token_window: 1m"), one, 10},
		"soft_token_window":        {m("soft_token_budget: 20, soft_token_window: 10s"), func(x *try) any { x.passes(call(1, 1)); return x.after(11 * time.Second).passes(call(1, 1)) }, 10},
		"soft_policy":              {m("soft_token_budget: 20, soft_token_window: 1m, soft_policy: advise"), one, 100},
		"max_daily_tokens":         {m("max_daily_tokens: 20"), one, 10},
		"max_daily_calls":          {m("max_daily_calls: 6"), one, 6},
		"day_zone": {m("max_daily_calls: 6, day_zone: Pacific/Kiritimati"), func(x *try) any {
			x.passes(call(1, 1))
			return x.g.Approve(0, call(1, 1)).RetryIn
		}, 22 * time.Hour},
	}
	scopes := map[string]effect{
		"global":                       {"global: {calls_per_minute: 7}\nmodels: {m: {}}\n", one, 7},
		"models":                       {m("calls_per_minute: 7"), one, 7},
		"models.charge":                {m("tokens_per_minute: 20, charge: gemini"), func(x *try) any { return x.passes(call(4, 100)) }, 5},
		"tenants":                      {m("") + "tenants: {t: {calls_per_minute: 3}}\n", func(x *try) any { return []int{x.passes(by("t", "")), x.passes(by("u", ""))} }, []int{3, 100}},
		"tenants.models":               {m("") + "tenants: {t: {models: {m: {calls_per_minute: 3}}}}\n", func(x *try) any { return x.passes(by("t", "")) }, 3},
		"tenants.agents":               {m("") + "tenants: {t: {agents: {a: {calls_per_minute: 3}}}}\n", func(x *try) any { return []int{x.passes(by("t", "a")), x.passes(by("t", "b"))} }, []int{3, 100}},
		"tenants.agents.models":        {m("") + "tenants: {t: {agents: {a: {models: {m: {calls_per_minute: 3}}}}}}\n", func(x *try) any { return x.passes(by("t", "a")) }, 3},
		"tenants.agent_default":        {m("") + "tenants: {t: {agent_default: {calls_per_minute: 3}}}\n", func(x *try) any { return x.passes(by("t", "b")) }, 3},
		"tenants.agent_default.models": {m("") + "tenants: {t: {agent_default: {models: {m: {calls_per_minute: 3}}}}}\n", func(x *try) any { return x.passes(by("t", "b")) }, 3},
		"tenant_default":               {m("") + "tenant_default: {calls_per_minute: 3}\n", func(x *try) any { return x.passes(by("u", "")) }, 3},
		"tenants.weight": {m("calls_per_minute: 60, burst: 1") + "tenants: {t: {weight: 3}, u: {}}\n", func(x *try) any {
			x.passes(call(1, 1))
			for range 20 {
				x.g.Enqueue(0, by("t", ""), time.Hour)
				x.g.Enqueue(0, by("u", ""), time.Hour)
			}
			heavy := 0
			for n := range 20 {
				for _, grant := range x.g.Grants(time.Duration(n+1)*time.Second, nil) {
					heavy += int(grant.Waiter % 2)
				}
			}
			return heavy
		}, 14}, // three of four, but for one of the first
		"charges.max_tokens": {"charges: {mine: {max_tokens: floor}}\n" + m("tokens_per_minute: 100, charge: mine"), func(x *try) any {
			r := call(1, 1)
			r.MaxTokens = 25
			n := 0
			for ; x.g.Approve(0, r).Approved; n++ {
			}
			return n
		}, 4},
		"charges.cached_discount": {"charges: {mine: {cached_discount: 50}}\n" + m("tokens_per_minute: 100, charge: mine"), func(x *try) any {
			r := call(20, 0)
			r.CachedTokens = 20
			n := 0
			for ; x.g.Approve(0, r).Approved; n++ {
			}
			return n
		}, 10},
		"charges.output_free": {"charges: {mine: {output_free: true}}\n" + m("tokens_per_minute: 100, charge: mine"), func(x *try) any { return x.passes(call(10, 90)) }, 10},
		"day_zone": {"day_zone: Pacific/Kiritimati\n" + m("max_daily_calls: 6"), func(x *try) any {
			x.passes(call(1, 1))
			return x.g.Approve(0, call(1, 1)).RetryIn
		}, 22 * time.Hour},
		"permit_ttl": {"permit_ttl: 5s\n" + m("max_daily_tokens: 10"), func(x *try) any {
			x.g.Approve(0, call(5, 5))
			return []bool{x.g.Approve(4*time.Second, call(5, 5)).Approved, x.g.Approve(5*time.Second, call(5, 5)).Approved}
		}, []bool{false, true}},
		"keep_expired": {"permit_ttl: 5s\nkeep_expired: true\n" + m("max_daily_tokens: 10"), func(x *try) any {
			x.g.Approve(0, call(5, 5))
			return x.g.Approve(5*time.Second, call(5, 5)).Approved
		}, false},
		"adaptive_scaling": {"adaptive_scaling: false\n" + m("calls_per_minute: 1"), func(x *try) any { x.passes(call(1, 1)); return x.g.Factor(0, call(1, 1)) }, 1.0},
		"scale_min":        {"scale_min: 0.95\n" + m("soft_token_budget: 100, soft_token_window: 1m"), func(x *try) any { x.passes(call(85, 0)); return x.g.Factor(0, call(1, 1)) }, 0.95},
		"scale_max": {"scale_max: 2.5\n" + m("soft_token_budget: 10, soft_token_window: 1m, soft_policy: advise"), func(x *try) any {
			x.passes(call(1, 0))
			return x.g.Factor(0, call(1, 1))
		}, 2.5},
		"scale_step": {"scale_step: 1s\n" + m("calls_per_minute: 60, burst: 1"), func(x *try) any {
			x.passes(call(1, 1))
			x.g.Advance(3 * time.Second) // resumed after one
			return x.g.Factor(3*time.Second, call(1, 1))
		}, 1.5},
		"forecast": {"forecast: false\n" + m("soft_token_budget: 100, soft_token_window: 1m"), heading, "normal"},
		"scale_step in odd milliseconds": {"scale_step: 1001ms\n" + m("calls_per_minute: 60, burst: 1"), func(x *try) any {
			return x.g.Config().ScaleStepMS
		}, int64(1001)},
		"forecast_window": {"forecast_window: 10s\n" + m(""), func(x *try) any {
			x.passes(call(1, 1))
			x.g.Advance(21 * time.Second)
			s, _ := x.g.Inspect(21*time.Second, quota.Scope{Model: "m"})
			return fmt.Sprint(s.Window)
		}, "{10000 0 0}"},
		"event_buffer": {"event_buffer: 3\n" + m("calls_per_minute: 1"), func(x *try) any {
			for range 10 {
				x.passes(call(1, 1))
				x.after(time.Hour)
			}
			return len(x.g.Snapshot(x.now).RecentEvents)
		}, 3},
		"max_tenants": {"max_tenants: 1\n" + m("") + "tenant_default: {max_daily_calls: 2}\n", func(x *try) any {
			return []int{x.passes(by("a", "")), x.passes(by("b", "")), x.passes(by("c", ""))}
		}, []int{2, 2, 0}},
		"max_agents": {"max_agents: 1\n" + m("") + "tenant_default: {agent_default: {max_daily_calls: 2}}\n", func(x *try) any {
			return []int{x.passes(by("t", "a")), x.passes(by("t", "b")), x.passes(by("t", "c"))}
		}, []int{2, 2, 0}},
		"max_waiting": {"max_waiting: 2\n" + m("calls_per_minute: 1"), func(x *try) any {
			x.passes(call(1, 1))
			n := 0
			for range 5 {
				if id, _ := x.g.Enqueue(0, call(1, 1), time.Hour); id != 0 {
					n++
				}
			}
			return n
		}, 2},
	}
	for _, group := range []map[string]effect{limits, scopes} {
		for name, e := range group {
			t.Run(name, func(t *testing.T) {
				if got := e.do(tried(t, e.file)); !reflect.DeepEqual(got, e.want) {
					t.Errorf("%s: %v, want %v", e.file, got, e.want)
				}
			})
		}
	}
	t.Run("forecast is on by default", func(t *testing.T) {
		if got := heading(tried(t, m("soft_token_budget: 100, soft_token_window: 1m"))); got != "soft" {
			t.Errorf("state %v", got)
		}
	})
	// Nothing is left out.
	for what, group := range map[reflect.Type]map[string]effect{reflect.TypeFor[quota.Limits](): limits, reflect.TypeFor[quota.Config](): scopes} {
		for option := range what.Fields() {
			name, _, _ := strings.Cut(option.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			name = strings.TrimSuffix(snake(name), "_ms")
			name = strings.TrimSuffix(name, "_off")
			seen := false
			for tried := range group {
				seen = seen || tried == name || strings.HasPrefix(tried, name+".")
			}
			if !seen {
				t.Errorf("%s.%s: no test sees %q bind", what, option.Name, name)
			}
		}
	}
}

// heading uses a window at a rate that it does not hold.
func heading(x *try) any {
	for range 6 {
		x.passes1(call(10, 0))
		x.after(time.Second)
	}
	s, _ := x.g.Inspect(x.now, quota.Scope{Model: "m"})
	return s.State.String()
}

// passes1 makes one call.
func (x *try) passes1(r quota.Request) {
	d := x.g.Approve(x.now, r)
	if _, err := x.g.RecordUsage(x.now, d.Permit, quota.Usage{Input: r.InputTokens}); err != nil {
		x.t.Fatal(err)
	}
}

// snake writes camelCase with underscores.
func snake(name string) string {
	var b strings.Builder
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			b.WriteByte('_')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// TestOptionsThatCannotBindAreRefused says why.
func TestOptionsThatCannotBindAreRefused(t *testing.T) {
	for file, want := range map[string]string{
		"global: {input_token_burst: 5}\n":  "input_tokens_per_minute",
		"global: {output_token_burst: 5}\n": "output_tokens_per_minute",
		"global: {soft_policy: deny}\n":     "soft_policy",
		"scale_max: 1.5\n":                  "from 2 to 100",
		"global: {token_burst: 5}\n":        "tokens_per_minute",
		"global: {burst: 5}\n":              "calls_per_minute",
	} {
		if _, err := quotafile.Read("q.yaml", []byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want one that names %q", file, err, want)
		}
	}
}

// TestZeroIsNoLimit: a person who writes 0 may mean "nothing", so it is refused.
func TestZeroIsNoLimit(t *testing.T) {
	limits := []string{
		"calls_per_minute", "burst", "refill_per_second", "tokens_per_minute", "token_burst", "input_tokens_per_minute",
		"input_token_burst", "output_tokens_per_minute", "output_token_burst", "soft_token_budget", "max_daily_tokens", "max_daily_calls",
	}
	files := []string{"tenants: {t: {weight: 0}}\n"}
	for _, name := range limits {
		files = append(files, "global: {"+name+": 0}\n")
	}
	for _, name := range []string{"event_buffer", "max_tenants", "max_agents", "max_waiting", "scale_min", "scale_max"} {
		files = append(files, name+": 0\n")
	}
	for _, name := range []string{"permit_ttl", "scale_step", "forecast_window"} {
		files = append(files, name+": 0s\n")
	}
	for _, file := range files {
		if _, err := quotafile.Read("q.yaml", []byte(file)); err == nil {
			t.Errorf("%q: %v, want a refusal of 0", file, err)
		}
	}
	// A discount of nothing is one.
	if _, err := quotafile.Read("q.yaml", []byte("charges: {mine: {cached_discount: 0}}\n")); err != nil {
		t.Error(err)
	}
}

// TestSpreadNeedsALimitByTheMinuteWithoutABurst: any one of them.
func TestSpreadNeedsALimitByTheMinuteWithoutABurst(t *testing.T) {
	for limits, binds := range map[string]bool{
		"calls_per_minute: 1":                                   true,
		"calls_per_minute: 60, burst: 1":                        false,
		"refill_per_second: 1, burst: 1":                        false,
		"tokens_per_minute: 1":                                  true,
		"tokens_per_minute: 60, token_burst: 1":                 false,
		"input_tokens_per_minute: 1":                            true,
		"input_tokens_per_minute: 60, input_token_burst: 1":     false,
		"output_tokens_per_minute: 1":                           true,
		"output_tokens_per_minute: 60, output_token_burst: 1":   false,
		"calls_per_minute: 60, burst: 1, tokens_per_minute: 60": true,
		"max_daily_calls: 60":                                   false,
		"soft_token_budget: 60, soft_token_window: 1m":          false,
	} {
		_, err := quotafile.Read("q.yaml", []byte("global: {"+limits+", spread: true}\n"))
		if got := err == nil; got != binds {
			t.Errorf("%s: %v, want it to bind: %v", limits, err, binds)
		}
	}
}

// TestWhoSaysSpread: also one who says no.
func TestWhoSaysSpread(t *testing.T) {
	s, err := quotafile.Read("q.yaml", []byte("global: {calls_per_minute: 60, spread: false}\nmodels: {a: {calls_per_minute: 60, spread: true}, b: {calls_per_minute: 60}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]bool{"": true, "a": true, "b": false, "c": false} {
		if got := s.SaysSpread(model); got != want {
			t.Errorf("%q says spread: %v, want %v", model, got, want)
		}
	}
}
