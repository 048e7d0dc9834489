package quotafile_test

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/quotafile"
	"github.com/headway-go/headway/quota"
)

// everything sets every field, each to something that is not its default.
const everything = `
global: {calls_per_minute: 600, burst: 60, refill_per_second: 9.5, tokens_per_minute: 1000000, token_burst: 500000,
  input_tokens_per_minute: 800000, output_tokens_per_minute: 200000, soft_token_budget: 700000, soft_token_window: 1m30s,
  soft_policy: advise, max_daily_tokens: 90000000, max_daily_calls: 50000, day_zone: Europe/Berlin}
models:
  small: {calls_per_minute: 60, charge: house}
  gpt-4.1:
    calls_per_minute: 30
    charge: openai
  bare:
tenants:
  42:
    weight: 3
    max_daily_tokens: 100
    models:
      gpt-4.1: {calls_per_minute: 5}
    agents:
      planner: {calls_per_minute: 2, models: {small: {calls_per_minute: 1}}}
    agent_default: {calls_per_minute: 1, models: {small: {max_daily_calls: 7}}}
tenant_default: {max_daily_calls: 9}
charges:
  house: {max_tokens: floor, cached_discount: 90, output_free: true}
day_zone: America/Los_Angeles
permit_ttl: 10s
keep_expired: true
adaptive_scaling: false
scale_min: 0.25
scale_max: 8
scale_step: 250ms
forecast: false
forecast_window: 2m
event_buffer: 100
max_tenants: 20
max_agents: 30
max_waiting: 40
log_level: debug
`

func TestEveryFieldCanBeSet(t *testing.T) {
	got, err := quotafile.Read("quota.yaml", []byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	want := quota.Config{
		Global: quota.Limits{
			CallsPerMinute: 600, Burst: 60, RefillPerSecond: 9.5, TokensPerMinute: 1_000_000, TokenBurst: 500_000,
			InputTokensPerMinute: 800_000, OutputTokensPerMinute: 200_000, SoftTokenBudget: 700_000, SoftTokenWindowMS: 90_000,
			SoftPolicy: quota.Advise, MaxDailyTokens: 90_000_000, MaxDailyCalls: 50_000, DayZone: "Europe/Berlin",
		},
		Models: map[string]quota.Model{
			"small":   {Limits: quota.Limits{CallsPerMinute: 60}, Charge: "house"},
			"gpt-4.1": {Limits: quota.Limits{CallsPerMinute: 30}, Charge: "openai"},
			"bare":    {},
		},
		Tenants: map[string]quota.Tenant{"42": {
			Limits: quota.Limits{MaxDailyTokens: 100}, Weight: 3,
			Models: map[string]quota.Limits{"gpt-4.1": {CallsPerMinute: 5}},
			Agents: map[string]quota.Agent{"planner": {
				Limits: quota.Limits{CallsPerMinute: 2}, Models: map[string]quota.Limits{"small": {CallsPerMinute: 1}},
			}},
			AgentDefault: quota.Agent{Limits: quota.Limits{CallsPerMinute: 1}, Models: map[string]quota.Limits{"small": {MaxDailyCalls: 7}}},
		}},
		TenantDefault: quota.Tenant{Limits: quota.Limits{MaxDailyCalls: 9}},
		Charges:       map[string]quota.Charge{"house": {MaxTokens: quota.FloorMax, CachedDiscount: 90, OutputFree: true}},
		DayZone:       "America/Los_Angeles", PermitTTLMS: 10_000, KeepExpired: true, AdaptiveScalingOff: true,
		ScaleMin: 0.25, ScaleMax: 8, ScaleStepMS: 250, ForecastOff: true, ForecastWindowMS: 120_000,
		EventBuffer: 100, MaxTenants: 20, MaxAgents: 30, MaxWaiting: 40,
	}
	for name := range reflect.TypeFor[quota.Config]().Fields() {
		if name.Name != "LoadZone" && reflect.ValueOf(want).FieldByIndex(name.Index).IsZero() {
			t.Errorf("this test says nothing of %s", name.Name)
		}
	}
	loads := got.Quota.LoadZone
	got.Quota.LoadZone = nil
	if diff := cmp.Diff(want, got.Quota); diff != "" {
		t.Error(diff)
	}
	if loads == nil || got.LogLevel != slog.LevelDebug {
		t.Errorf("zones can be loaded: %v, level %v", loads != nil, got.LogLevel)
	}
}

func TestWhatIsLeftOutTakesTheDefaults(t *testing.T) {
	got, err := quotafile.Read("quota.yaml", []byte("models: {m: }"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := quota.Config{Models: map[string]quota.Model{"m": {}}}.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := got.Quota.Digest(); digest != want || err != nil {
		t.Errorf("digest %s, %v, want %s", digest, err, want)
	}
	if got.LogLevel != slog.LevelInfo || got.Quota.EventBuffer != 250 {
		t.Errorf("level %v, buffer %d", got.LogLevel, got.Quota.EventBuffer)
	}
}

func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"empty":                {"", `q.yaml: is empty: it needs keys such as global and models`},
		"only a comment":       {"# nothing\n", `is empty`},
		"not YAML":             {"models: {\n", `q.yaml:1:9: is not valid YAML here`},
		"a list":               {"- a\n", `q.yaml:1:1: is a list; want a mapping`},
		"two documents":        {"models: {m: }\n---\nmodels: {n: }\n", `q.yaml:3:1: holds a second document`},
		"unknown key":          {"global:\n  brust: 5\n", `q.yaml:2:3: global.brust: is not a field here: did you mean burst?`},
		"unknown key on top":   {"modles: {}\n", `q.yaml:1:1: modles: is not a field here: did you mean models?`},
		"given twice":          {"event_buffer: 5\nevent_buffer: 6\n", `q.yaml:2:1: event_buffer: is set twice`},
		"model given twice":    {"models:\n  m:\n  m:\n", `q.yaml:3:3: models.m: is set twice`},
		"text for a number":    {"global:\n  calls_per_minute: many\n", `q.yaml:2:21: global.calls_per_minute: is "many"; want a whole number`},
		"fraction":             {"event_buffer: 2.5\n", `q.yaml:1:15: event_buffer: is 2.5; want a whole number`},
		"octal or not":         {"event_buffer: 010\n", `event_buffer: is 010; want a whole number`},
		"larger than a number": {"event_buffer: 99999999999999999999\n", `event_buffer: is "99999999999999999999"; want a whole number`},
		"out of bound":         {"models:\n  m:\n    burst: -3\n    calls_per_minute: 1\n", `q.yaml:3:12: models.m.burst: is -3; want from 0 to 1000000000`},
		"name with dots":       {"models:\n  gpt-4.1:\n    calls_per_minute: 2000000000\n", `q.yaml:3:23: models.gpt-4.1.calls_per_minute: is 2000000000; want from 0`},
		"zero is no limit":     {"global:\n  calls_per_minute: 0\n", `global.calls_per_minute: is 0; want above 0, or left out`},
		"zero length":          {"permit_ttl: 0s\n", `permit_ttl: is "0s"; want above 0, or left out`},
		"length without unit":  {"permit_ttl: 60\n", `permit_ttl: is 60; want a duration with a unit, such as`},
		"length too fine":      {"permit_ttl: 10us\n", `permit_ttl: is "10us"; want whole milliseconds`},
		"length out of bound":  {"forecast_window: 500ms\n", `q.yaml:1:18: forecast_window: is "500ms"; want from 1s to 24h`},
		"ratio out of bound":   {"scale_max: 0.5\n", `scale_max: is 0.5; want from 2 to 100`},
		"text for a ratio":     {"scale_max: much\n", `scale_max: is "much"; want a number`},
		"tenant and agent":     {"tenants:\n  a_b:\n    agents:\n      c_d:\n        burst: -3\n        calls_per_minute: 1\n", `q.yaml:5:16: tenants.a_b.agents.c_d.burst: is -3; want from 0`},
		"charge of one's own":  {"charges:\n  a_b:\n    cached_discount: 101\n", `q.yaml:3:22: charges.a_b.cached_discount: is 101; want from 0 to 100`},
		"named as a list":      {"models:\n  models:\n    models_m: 1\n", `q.yaml:3:5: models.models.models_m: is not a field here`},
		"ratio not finite":     {"scale_max: .inf\n", `scale_max: is a YAML value that no field takes`},
		"missing companion":    {"models:\n  m:\n    soft_token_budget: 5\n", `q.yaml:2:3: models.m.soft_token_window: is 0; want set exactly when soft_token_budget is`},
		"burst without rate":   {"global: {burst: 5}\n", `q.yaml:1:9: global.calls_per_minute: is 0; want at least 1 where burst is set`},
		"spread of nothing":    {"global: {spread: false, max_daily_calls: 5}\n", `q.yaml:1:18: global.spread: is set; want it left out where no limit by the minute is without a burst`},
		"spread and burst":     {"models: {m: {calls_per_minute: 60, burst: 3, spread: true}}\n", `models.m.spread: is set; want it left out where`},
		"unknown charge":       {"models:\n  m:\n    charge: free\n", `q.yaml:3:13: models.m.charge: is "free"; want the name of a charge rule`},
		"unknown rule":         {"charges:\n  c:\n    max_tokens: all\n", `charges.c.max_tokens: is "all"; want one of ignore, floor, reserve`},
		"unknown policy":       {"global:\n  soft_policy: wait\n", `q.yaml:2:16: global.soft_policy: is "wait"; want "defer"`},
		"unknown zone":         {"day_zone: Mars/Olympus\n", `q.yaml:1:11: day_zone: is "Mars/Olympus"; want a time zone that is known`},
		"unknown level":        {"log_level: loud\n", `log_level: is "loud"; want one of debug, info, warn, error`},
		"model of a tenant":    {"tenants:\n  a:\n    models:\n      m: {calls_per_minute: 1}\n", `q.yaml:4:7: tenants.a.models.m: is not a model of this configuration`},
		"reserved name":        {"tenants:\n  \"*\":\n    weight: 1\n", `q.yaml:2:3: tenants.*: is "*"; want another name`},
		"not true or false":    {"forecast: maybe\n", `forecast: is "maybe"; want true or false`},
		"section is no table":  {"global: 5\n", `q.yaml:1:9: global: is a number; want a mapping`},
		"anchor":               {"global: &a {burst: 1}\n", `global: is an anchor or alias, which quota files do not have`},
		"nested too deep":      {strings.Repeat("[", 33) + strings.Repeat("]", 33), `q.yaml:1:33: is nested more than 32 levels deep`},
		"too large":            {strings.Repeat("#\n", quotafile.MaxSize), `q.yaml: has more than 1048576 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := quotafile.Parse("q.yaml", []byte(c.file))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v\nwant %s", err, c.want)
			}
			if diff := cmp.Diff(quota.Config{}, got); diff != "" {
				t.Errorf("a configuration in spite of an error: %s", diff)
			}
			if _, ok := errors.AsType[*configfile.Error](err); !ok {
				t.Errorf("got %T", err)
			}
		})
	}
}

// TestAMistypedKeyIsRefusedInEverySection: at any depth, and where a name stands for a
// section.
func TestAMistypedKeyIsRefusedInEverySection(t *testing.T) {
	for _, section := range []string{
		"", "global", "models.m", "tenants.t", "tenants.t.models.m", "tenants.t.agents.a", "tenants.t.agents.a.models.m",
		"tenants.t.agent_default", "tenants.t.agent_default.models.m", "tenant_default", "charges.c",
	} {
		file := "models: {m: {}}\n"
		at := strings.Split(section, ".")
		if section == "" {
			at = nil
		}
		if section == "models.m" {
			file = ""
		}
		file += strings.Join(append(at, "mistyped: 5"), ": {") + strings.Repeat("}", len(at)) + "\n"
		want := strings.TrimPrefix(section+".mistyped: is not a field here", ".")
		if _, err := quotafile.Parse("q.yaml", []byte(file)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s%v, want %s", file, err, want)
		}
	}
}

func TestAllMistakesAreNamedInTheOrderOfTheFile(t *testing.T) {
	_, err := quotafile.Parse("q.yaml", []byte("scale_max: 900\nevent_buffer: 200000\nmodels:\n  m: {burst: 1}\n"))
	want := []string{"q.yaml:1:12: scale_max", "q.yaml:2:15: event_buffer", "q.yaml:4:3: models.m.calls_per_minute"}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("got\n%v", err)
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %d is %q, want %q", i, line, want[i])
		}
	}
	_, err = quotafile.Parse("q.yaml", []byte(strings.Repeat("- ", 3)+"\n"+strings.Repeat("x: 1\n", 3)))
	if err == nil {
		t.Error("no mapping was accepted")
	}
	var many strings.Builder
	many.WriteString("models:\n")
	for i := range 80 {
		fmt.Fprintf(&many, "  m%d: {burst: x}\n", i)
	}
	_, err = quotafile.Parse("q.yaml", []byte(many.String()))
	if n := strings.Count(err.Error(), "\n"); n != 50 || !strings.Contains(err.Error(), "more problems are not shown") {
		t.Errorf("%d lines about a file that repeats itself", n+1)
	}
}

func env(keys map[string]string) func(string) string {
	return func(key string) string { return keys[key] }
}

func TestEnvironmentOverridesTheFile(t *testing.T) {
	s, err := quotafile.Read("q.yaml", []byte("global: {refill_per_second: 3, calls_per_minute: 10, burst: 7}\nscale_max: 2\nlog_level: error\nmodels: {m: }"))
	if err != nil {
		t.Fatal(err)
	}
	same, err := s.WithEnv(env(nil))
	if err != nil || same.LogLevel != slog.LevelError || same.Quota.Global != s.Quota.Global {
		t.Errorf("an empty environment made %+v, %v", same, err)
	}
	got, err := s.WithEnv(env(map[string]string{
		"LLM_GLOBAL_MAX_CALLS_PER_MINUTE": "120", "LLM_GLOBAL_BURST": "30", "LLM_RATE_AWARE_AGENT_ADAPT": "false",
		"RATE_GOVERNOR_EVENT_BUFFER": "17", "RATE_GOVERNOR_LOG_LEVEL": "warn",
		"RATE_GOVERNOR_ADAPTIVE_SCALE_MIN": "0.75", "RATE_GOVERNOR_ADAPTIVE_SCALE_MAX": "6",
	}))
	if err != nil {
		t.Fatal(err)
	}
	q := got.Quota
	if want := (quota.Limits{CallsPerMinute: 120, Burst: 30}); q.Global != want {
		t.Errorf("global %+v, want %+v: a rate a second would overrule the rate a minute", q.Global, want)
	}
	if !q.AdaptiveScalingOff || q.EventBuffer != 17 || q.ScaleMin != 0.75 || q.ScaleMax != 6 || got.LogLevel != slog.LevelWarn || len(q.Models) != 1 {
		t.Errorf("got %+v", got)
	}
	on, err := quotafile.FromEnv(q, env(map[string]string{"LLM_RATE_AWARE_AGENT_ADAPT": "1"}))
	if err != nil || on.AdaptiveScalingOff {
		t.Errorf("adaptive scaling was not turned on: %v", err)
	}
}

func TestEnvironmentDefaults(t *testing.T) {
	got, err := quotafile.FromEnv(quota.Config{DayZone: "Europe/Berlin"}, env(nil))
	if err != nil || got.EventBuffer != 250 || got.ScaleMin != 0.5 || got.ScaleMax != 4 || got.AdaptiveScalingOff {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestEachKeyOfTheEnvironmentIsChecked(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"LLM_GLOBAL_MAX_CALLS_PER_MINUTE", "many", `is "many"; want a whole number above 0, or unset`},
		{"LLM_GLOBAL_MAX_CALLS_PER_MINUTE", "0", `is "0"; want a whole number above 0`},
		{"LLM_GLOBAL_MAX_CALLS_PER_MINUTE", "2000000000", "is 2000000000; want from 0 to 1000000000"},
		{"LLM_GLOBAL_MAX_CALLS_PER_MINUTE", "5000000000000000000", "is 5000000000000000000; want from 0 to 1000000000"},
		{"LLM_GLOBAL_MAX_CALLS_PER_MINUTE", "99999999999999999999", `is "99999999999999999999"; want a whole number above 0`},
		{"LLM_GLOBAL_BURST", "-1", `is "-1"; want a whole number above 0`},
		{"LLM_GLOBAL_BURST", " 5", `is " 5"; want a whole number`},
		{"LLM_RATE_AWARE_AGENT_ADAPT", "yes", `is "yes"; want true, false, 1 or 0`},
		{"RATE_GOVERNOR_EVENT_BUFFER", "100001", "is 100001; want from 1 to 100000"},
		{"RATE_GOVERNOR_EVENT_BUFFER", "2.5", `is "2.5"; want a whole number`},
		{"RATE_GOVERNOR_LOG_LEVEL", "LOUD", `is "LOUD"; want one of debug, info, warn, error`},
		{"RATE_GOVERNOR_ADAPTIVE_SCALE_MIN", "1.5", "is 1.5; want from 0.01 to 1"},
		{"RATE_GOVERNOR_ADAPTIVE_SCALE_MIN", "NaN", `is "NaN"; want a number above 0`},
		{"RATE_GOVERNOR_ADAPTIVE_SCALE_MAX", "0.5", "is 0.5; want from 2 to 100"},
		{"RATE_GOVERNOR_ADAPTIVE_SCALE_MAX", "x\ny", `is "x\ny"; want a number above 0`},
	} {
		base := quota.Config{Global: quota.Limits{CallsPerMinute: 60}}
		got, err := quotafile.FromEnv(base, env(map[string]string{c.key: c.value}))
		if want := "environment: " + c.key + ": " + c.want; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s=%q: error %v, want %s", c.key, c.value, err, want)
		}
		if got.Global != base.Global || got.EventBuffer != 0 {
			t.Errorf("%s=%q changed something in spite of the error", c.key, c.value)
		}
	}
	if _, err := quotafile.FromEnv(quota.Config{}, env(map[string]string{quotafile.EnvBurst: "5"})); err == nil ||
		!strings.Contains(err.Error(), "LLM_GLOBAL_MAX_CALLS_PER_MINUTE (with LLM_GLOBAL_BURST): is 0") {
		t.Errorf("a burst without a rate: %v", err)
	}
	if _, err := quotafile.FromEnv(quota.Config{Global: quota.Limits{Burst: 5}}, env(nil)); err == nil ||
		!strings.Contains(err.Error(), "global.calls_per_minute: is 0") {
		t.Errorf("a base that is wrong itself: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(everything))
	f.Add([]byte("global: {burst: &a [*a]}\n"))
	f.Add([]byte("models:\n  ? [a]\n  : {<<: {}}\n"))
	f.Add([]byte("tenants: {a: {models: {m: {soft_token_window: 1h}}}}\n"))
	f.Add([]byte("day_zone: \"a\\nb\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := quotafile.Parse("q.yaml", data)
		if err != nil {
			p, ok := errors.AsType[configfile.Problem](err)
			if !ok {
				t.Fatalf("%v names no place", err)
			}
			if lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 1; p.Line < 0 || p.Line > lines {
				t.Fatalf("line %d of %d: %v", p.Line, lines, err)
			}
			if n := strings.Count(p.Error(), "\n"); n > 0 {
				t.Fatalf("one problem on %d lines: %q", n+1, p.Error())
			}
			return
		}
		if _, err := quota.New(c, time.Unix(1_800_000_000, 0)); err != nil {
			t.Fatalf("accepted, but no governor takes it: %v", err)
		}
	})
}

func TestASectionOfALargerFile(t *testing.T) {
	src := "a:\n  global:\n    calls_per_minute: 5\nb:\n  models:\n    m: {burst: -1, calls_per_minute: 1}\n"
	root, file := configfile.Parse("big.yaml", []byte(src), configfile.Options{})
	if s := quotafile.Section(root.Get("a")); file.Err() != nil || s.Quota.Global.CallsPerMinute != 5 || s.Quota.EventBuffer != 250 {
		t.Errorf("%+v, %v", s, file.Err())
	}
	s := quotafile.Section(root.Get("b"))
	if err := file.Err(); err == nil || err.Error() != "big.yaml:6:16: b.models.m.burst: is -1; want from 0 to 1000000000" || s.Quota.Models != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

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

func TestHowABudgetIsShared(t *testing.T) {
	for text, want := range map[string]string{
		"fleet: wait\nfleet_ahead: 0s":    "wait 0s",
		"fleet: none":                     "none 300ms",
		"global: {calls_per_minute: 1}":   " 300ms",
		"fleet: maybe":                    "1:8: fleet: is \"maybe\"; want one of share, wait, none",
		"fleet_ahead: 2s":                 "1:14: fleet_ahead: is \"2s\"; want from 0s to 1s",
		"fleet: none\nfleet_ahead: 100ms": "fleet_ahead: is set beside fleet: none; want one of both",
	} {
		s, err := quotafile.Read("quota.yaml", []byte(text))
		got := fmt.Sprint(s.Fleet, " ", s.Ahead)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
