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
