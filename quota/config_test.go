package quota_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/quota"
)

func TestABadValueIsNamedWithFieldValueAndBound(t *testing.T) {
	for want, c := range map[string]quota.Config{
		"quota: global.callsPerMinute is -1, must be from 0 to 1000000000 (RATE_INVALID_CONFIG)": {Global: quota.Limits{CallsPerMinute: -1}},
		"models.m.burst is 1000000001, must be":                                                  oneModel(quota.Limits{CallsPerMinute: 1, Burst: 1e9 + 1}),
		"models.m.callsPerMinute is 0, must be at least 1 where burst":                           oneModel(quota.Limits{Burst: 1}),
		"models.m.burst is 0, must be at least 1 where only refill":                              oneModel(quota.Limits{RefillPerSecond: 1}),
		"models.m.refillPerSecond is -1, must be from 0":                                         oneModel(quota.Limits{RefillPerSecond: -1}),
		"models.m.refillPerSecond is 1e-10, must be 0 or at least 1e-9":                          oneModel(quota.Limits{RefillPerSecond: 1e-10, Burst: 1}),
		"models.m.tokensPerMinute is 0, must be at least 1 where":                                oneModel(quota.Limits{TokenBurst: 1}),
		"models.m.softTokenWindowMs is 0, must be set exactly when":                              oneModel(quota.Limits{SoftTokenBudget: 1}),
		`models.m.softPolicy is "maybe", must be "defer", "advise" or`:                           oneModel(quota.Limits{SoftPolicy: "maybe"}),
		"models.m.maxDailyTokens is -5, must be from 0":                                          oneModel(quota.Limits{MaxDailyTokens: -5}),
		`models.m.dayZone is "Mars/Olympus", must be a time zone that`:                           oneModel(quota.Limits{DayZone: "Mars/Olympus"}),
		`models.m.dayZone is "Local", must be a time zone by its name`:                           oneModel(quota.Limits{DayZone: "Local"}),
		`models.m.charge is "free", must be the name of a charge rule`:                           {Models: map[string]quota.Model{"m": {Charge: "free"}}},
		"models. is a name of 0 bytes, must be from 1 to 256 bytes":                              {Models: map[string]quota.Model{"": {}}},
		`tenants.* is "*", must be another name`:                                                 {Tenants: map[string]quota.Tenant{"*": {}}},
		"tenants.t.weight is 1001, must be from 0 to 1000":                                       {Tenants: map[string]quota.Tenant{"t": {Weight: 1001}}},
		"tenants.t.models.m is not a model of this configuration":                                {Tenants: map[string]quota.Tenant{"t": {Models: map[string]quota.Limits{"m": {}}}}},
		"tenants.t.agents.a.maxDailyCalls is -1":                                                 {Tenants: map[string]quota.Tenant{"t": {Agents: map[string]quota.Agent{"a": {Limits: quota.Limits{MaxDailyCalls: -1}}}}}},
		"tenantDefault.agentDefault.burst is -1":                                                 {TenantDefault: quota.Tenant{AgentDefault: quota.Agent{Limits: quota.Limits{Burst: -1}}}},
		`charges.c.maxTokens is "some", must be`:                                                 {Charges: map[string]quota.Charge{"c": {MaxTokens: "some"}}},
		"charges.c.cachedDiscount is 101, must be from 0 to 100":                                 {Charges: map[string]quota.Charge{"c": {CachedDiscount: 101}}},
		"permitTtlMs is -1, must be from 1":                                                      {PermitTTLMS: -1},
		"scaleMin is 2, must be from 0.01 to 1":                                                  {ScaleMin: 2},
		"scaleMax is 0.5, must be from 2 to 100":                                                 {ScaleMax: 0.5},
		"scaleStepMs is -1":                                                                      {ScaleStepMS: -1},
		"forecastWindowMs is 1, must be from 1000":                                               {ForecastWindowMS: 1},
		"eventBuffer is 100001, must be from 1 to 100000":                                        {EventBuffer: 100_001},
		"maxTenants is -1": {MaxTenants: -1},
		"maxAgents is -1":  {MaxAgents: -1},
		"maxWaiting is -1": {MaxWaiting: -1},
	} {
		c.LoadZone = time.LoadLocation
		_, err := quota.New(c, origin)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
			continue
		}
		if field, ok := errors.AsType[*quota.FieldError](err); !ok || field.Code() != quota.CodeInvalidConfig {
			t.Errorf("%v has no code", err)
		}
	}
	if _, err := quota.New(quota.Config{}, time.Time{}); err == nil {
		t.Error("an origin without a date was accepted")
	}
	if _, err := quota.New(quota.Config{DayZone: "Europe/Berlin"}, origin); err == nil {
		t.Error("a zone that nobody can load was accepted")
	}
}

func TestABadPatchChangesNothing(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{CallsPerMinute: 60, Burst: 2}))
	approve(t, g, 0, ask(1))
	before, err := json.Marshal(g.Snapshot(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, patch := range []string{
		``, `{`, `[]`, `null`, `1`, `{}{}`, `{"models":{"m":{"burst":-1}}}`, `{"models":{"m":{"burst":"many"}}}`,
		`{"modles":{}}`, `{"models":{"m":{"burts":1}}}`, `{"models":[]}`, `{"dayZone":"Nowhere"}`,
		`{"global":{"callsPerMinute":5},"models":{"x":{"charge":"free"}}}`, `{"loadZone":null,"LoadZone":1}`,
		`{"models":{"m":{"burst":1.5}}}`, strings.Repeat(" ", quota.MaxPatch) + `{}`,
	} {
		if err := g.UpdateConfig(0, []byte(patch)); err == nil {
			t.Errorf("%.60s was accepted", patch)
		} else if _, ok := errors.AsType[*quota.FieldError](err); !ok {
			t.Errorf("%.60s: %v has no code", patch, err)
		}
	}
	after, err := json.Marshal(g.Snapshot(0))
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Errorf("before %s\nafter %s", before, after)
	}
}

func TestAPatchIsSwappedWholeAndWhatIsUsedStaysUsed(t *testing.T) {
	c := oneModel(quota.Limits{CallsPerMinute: 10, TokensPerMinute: 100, SoftTokenBudget: 100, SoftTokenWindowMS: 60_000, MaxDailyTokens: 100})
	g := governor(t, c)
	digest := g.Digest()
	held := approve(t, g, 0, ask(40)).Permit
	approve(t, g, 0, ask(10))
	err := g.UpdateConfig(0, []byte(`{"models":{"m":{"callsPerMinute":20,"tokensPerMinute":60,"softTokenBudget":200,"softTokenWindowMs":30000,"maxDailyTokens":55,"maxDailyCalls":3},
		"n":{"callsPerMinute":1}},"eventBuffer":2}`))
	if err != nil {
		t.Fatal(err)
	}
	s := model(t, g, 0)
	if *s.CallsRemaining != 18 || *s.TokensRemaining != 10 || *s.SoftTokensRemaining != 150 || *s.DailyTokensRemaining != 5 || *s.DailyCallsRemaining != 1 {
		t.Errorf("calls %d, tokens %d, soft %d, daily %d and %d left", *s.CallsRemaining, *s.TokensRemaining, *s.SoftTokensRemaining, *s.DailyTokensRemaining, *s.DailyCallsRemaining)
	}
	approve(t, g, 0, quota.Request{Model: "n"})
	settle(t, g, 0, held, 20) // 20 come back, to the new budgets
	if s := model(t, g, 0); *s.TokensRemaining != 30 || *s.SoftTokensRemaining != 170 || *s.DailyTokensRemaining != 25 {
		t.Errorf("%+v", s)
	}
	events, _ := g.TakeEvents(nil)
	if len(events) == 0 || events[0].Type != quota.EventConfig || events[0].Digest != g.Digest() || g.Digest() == digest {
		t.Errorf("%+v, digest %s before, %s now", events, digest, g.Digest())
	}
	// null removes; an open permit of a model that is gone still settles.
	held = approve(t, g, 0, ask(5)).Permit
	if err := g.UpdateConfig(0, []byte(`{"models":{"m":null}}`)); err != nil {
		t.Fatal(err)
	}
	refused(t, g, 0, ask(1), quota.CodeModelNotConfigured)
	settle(t, g, 0, held, 500)
	if s := g.Snapshot(time.Hour); len(s.Models) != 1 || s.Global.Ledger.Used != 520 {
		t.Errorf("%+v", s.Global.Ledger)
	}
}

func TestABudgetThatIsAddedGainsNothingFromWhatWasHeldBefore(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{}))
	held := approve(t, g, 0, ask(100)).Permit
	if err := g.UpdateConfig(sec, []byte(`{"models":{"m":{"tokensPerMinute":60}}}`)); err != nil {
		t.Fatal(err)
	}
	approve(t, g, sec, ask(60))
	settle(t, g, sec, held, 0)
	refused(t, g, sec, ask(1), quota.CodeThrottled)
}

func TestRaisingTheCapEndsExhaustion(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{MaxDailyTokens: 100}))
	settle(t, g, 0, approve(t, g, 0, ask(100)).Permit, 100)
	refused(t, g, 0, ask(1), quota.CodeHardLimit)
	if err := g.UpdateConfig(sec, []byte(`{"models":{"m":{"maxDailyTokens":200}}}`)); err != nil {
		t.Fatal(err)
	}
	same(t, "moves", moved(g), []string{"0s model m: normal>exhausted cap_reached", "1s model m: exhausted>normal cap_raised"})
	settle(t, g, sec, approve(t, g, sec, ask(99)).Permit, 99)
	if err := g.UpdateConfig(sec, []byte(`{"models":{"m":{"maxDailyTokens":150}}}`)); err != nil {
		t.Fatal(err)
	}
	same(t, "moves", moved(g), []string{"1s model m: normal>exhausted cap_reached"})
}

func TestTheDigestIsStable(t *testing.T) {
	c := quota.Config{
		Global: quota.Limits{CallsPerMinute: 60},
		Models: map[string]quota.Model{"b": {Charge: "openai"}, "a": {Limits: quota.Limits{RefillPerSecond: 0.25, Burst: 4}}},
	}
	const want = `{"dayZone":"UTC","eventBuffer":250,"forecastWindowMs":60000,"global":{"callsPerMinute":60},"maxAgents":100,"maxTenants":10000,"maxWaiting":1000,` +
		`"models":{"a":{"burst":4,"refillPerSecond":0.25},"b":{"charge":"openai"}},"permitTtlMs":600000,"scaleMax":4,"scaleMin":0.5,"scaleStepMs":5000}`
	if got, err := c.Canonical(); err != nil || string(got) != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
	got, err := c.Digest()
	if err != nil || len(got) != 64 {
		t.Fatal(got, err)
	}
	c.EventBuffer = 250 // the default, said aloud
	if again, _ := c.Digest(); again != got {
		t.Errorf("%s for a default that is spelt out, %s for one that is not", again, got)
	}
	c.EventBuffer = 251
	if again, _ := c.Digest(); again == got {
		t.Error("another configuration has the same digest")
	}
	if g := governor(t, quota.Config{}); len(g.Snapshot(0).ConfigDigest) != 64 || g.Digest() != g.Snapshot(0).ConfigDigest {
		t.Errorf("%q", g.Snapshot(0).ConfigDigest)
	}
}

func TestConfigurationsSurviveTheirJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.LoadZone = time.LoadLocation
		c, err := c.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		again, err := quota.Config{LoadZone: time.LoadLocation}.Patched(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		before, _ := c.Digest()
		if after, _ := again.Digest(); before != after {
			t.Fatalf("%s\nbecame %+v", raw, again)
		}
	})
}

// Whatever the patch, it is an error that changes nothing, or a configuration
// that is valid and says what it means.
func FuzzPatch(f *testing.F) {
	golden.Seeds(f)
	for _, seed := range []string{
		`{}`, `{"models":{"m":null}}`, `{"models":{"m":{"burst":5}},"global":{"refillPerSecond":0.5,"burst":1}}`,
		`{"tenants":{"t":{"weight":3,"agents":{"a":{"models":{"m":{"maxDailyTokens":5}}}}}}}`, `{"global":{"softTokenBudget":1e3,"softTokenWindowMs":5}}`,
		`{"dayZone":"America/Los_Angeles"}`, `{"scaleMin":1e-400}`, `{"MODELS":{"m":{}}}`, `[`, `{"a":`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, patch []byte) {
		c := oneModel(quota.Limits{CallsPerMinute: 60})
		c.LoadZone = time.LoadLocation
		g := governor(t, c)
		digest := g.Digest()
		approve(t, g, 0, ask(1))
		if err := g.UpdateConfig(0, patch); err != nil {
			if g.Digest() != digest {
				t.Fatalf("%q: %v, and yet another configuration", patch, err)
			}
			return
		}
		next := g.Config()
		if got, err := next.Digest(); err != nil || got != g.Digest() {
			t.Fatalf("%q: digest %s, %v, want %s", patch, got, err, g.Digest())
		}
		g.Approve(0, ask(1))
		g.Advance(time.Hour)
		if _, err := json.Marshal(g.Snapshot(time.Hour)); err != nil {
			t.Fatalf("%q: %v", patch, err)
		}
	})
}

func TestAnotherZoneDoesNotEndExhaustion(t *testing.T) {
	g := governor(t, oneModel(quota.Limits{MaxDailyTokens: 100}))
	settle(t, g, 0, approve(t, g, 0, ask(100)).Permit, 100)
	moved(g)
	// It is tomorrow there already; what was used today counts there all the same.
	if err := g.UpdateConfig(sec, []byte(`{"dayZone":"Pacific/Kiritimati"}`)); err != nil {
		t.Fatal(err)
	}
	same(t, "moves", moved(g), []string{})
	if d := refused(t, g, sec, ask(1), quota.CodeHardLimit); d.RetryIn != 22*time.Hour-sec {
		t.Errorf("retry in %v", d.RetryIn)
	}
	approve(t, g, 22*time.Hour, ask(100))
}

// faults lists the fields that a configuration has wrong.
func faults(t testing.TB, c quota.Config) []string {
	t.Helper()
	c.LoadZone = time.LoadLocation
	_, err := c.Resolve()
	fields := []string{}
	if err == nil {
		return fields
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T", err)
	}
	for _, one := range joined.Unwrap() {
		field, ok := errors.AsType[*quota.FieldError](one)
		if !ok {
			t.Fatalf("%v", one)
		}
		fields = append(fields, field.Field)
	}
	return fields
}

// TestTheBoundsOfNumbers: what is at a bound is accepted, what is beyond it is not. A 0
// takes the default.
func TestTheBoundsOfNumbers(t *testing.T) {
	const month = 31 * 24 * 60 * 60 * 1000
	limit := func(set func(l *quota.Limits, n int64)) func(n int64) quota.Config {
		return func(n int64) quota.Config {
			l := quota.Limits{}
			set(&l, n)
			return oneModel(l)
		}
	}
	for field, tt := range map[string]struct {
		with   func(n int64) quota.Config
		lo, hi int64
	}{
		"permitTtlMs":      {func(n int64) quota.Config { return quota.Config{PermitTTLMS: n} }, 0, month},
		"scaleStepMs":      {func(n int64) quota.Config { return quota.Config{ScaleStepMS: n} }, 0, 86_400_000},
		"forecastWindowMs": {func(n int64) quota.Config { return quota.Config{ForecastWindowMS: n} }, 1000, 86_400_000},
		"eventBuffer":      {func(n int64) quota.Config { return quota.Config{EventBuffer: n} }, 0, 100_000},
		"maxTenants":       {func(n int64) quota.Config { return quota.Config{MaxTenants: n} }, 0, 1_000_000},
		"maxAgents":        {func(n int64) quota.Config { return quota.Config{MaxAgents: n} }, 0, 100_000},
		"maxWaiting":       {func(n int64) quota.Config { return quota.Config{MaxWaiting: n} }, 0, 100_000},
		"tenants.t.weight": {func(n int64) quota.Config {
			return quota.Config{Tenants: map[string]quota.Tenant{"t": {Weight: n}}}
		}, 0, 1000},
		"tenantDefault.weight": {func(n int64) quota.Config { return quota.Config{TenantDefault: quota.Tenant{Weight: n}} }, 0, 1000},
		"charges.c.cachedDiscount": {func(n int64) quota.Config {
			return quota.Config{Charges: map[string]quota.Charge{"c": {CachedDiscount: n}}}
		}, 0, 100},
		"models.m.callsPerMinute":       {limit(func(l *quota.Limits, n int64) { l.CallsPerMinute = n }), 0, 1e9},
		"models.m.burst":                {limit(func(l *quota.Limits, n int64) { l.CallsPerMinute, l.Burst = 1, n }), 0, 1e9},
		"models.m.tokensPerMinute":      {limit(func(l *quota.Limits, n int64) { l.TokensPerMinute = n }), 0, 1e9},
		"models.m.tokenBurst":           {limit(func(l *quota.Limits, n int64) { l.TokensPerMinute, l.TokenBurst = 1, n }), 0, 1e9},
		"models.m.inputTokensPerMinute": {limit(func(l *quota.Limits, n int64) { l.InputTokensPerMinute = n }), 0, 1e9},
		"models.m.inputTokenBurst": {limit(func(l *quota.Limits, n int64) {
			l.InputTokensPerMinute, l.InputTokenBurst = 1, n
		}), 0, 1e9},
		"models.m.outputTokensPerMinute": {limit(func(l *quota.Limits, n int64) { l.OutputTokensPerMinute = n }), 0, 1e9},
		"models.m.outputTokenBurst": {limit(func(l *quota.Limits, n int64) {
			l.OutputTokensPerMinute, l.OutputTokenBurst = 1, n
		}), 0, 1e9},
		"models.m.maxDailyTokens": {limit(func(l *quota.Limits, n int64) { l.MaxDailyTokens = n }), 0, 1e15},
		"models.m.maxDailyCalls":  {limit(func(l *quota.Limits, n int64) { l.MaxDailyCalls = n }), 0, 1e15},
		"models.m.softTokenBudget": {limit(func(l *quota.Limits, n int64) {
			if l.SoftTokenBudget = n; n > 0 {
				l.SoftTokenWindowMS = 1
			}
		}), 0, 1e15},
		"models.m.softTokenWindowMs": {limit(func(l *quota.Limits, n int64) {
			if l.SoftTokenWindowMS = n; n > 0 {
				l.SoftTokenBudget = 1
			}
		}), 0, month},
	} {
		for n, good := range map[int64]bool{tt.lo - 1: false, tt.lo: true, tt.lo + 1: true, tt.hi - 1: true, tt.hi: true, tt.hi + 1: false} {
			got := faults(t, tt.with(n))
			if good && len(got) > 0 || !good && !slices.Contains(got, field) {
				t.Errorf("%s of %d: faults %q", field, n, got)
			}
		}
	}
}

func TestTheBoundsOfRatios(t *testing.T) {
	for _, tt := range []struct {
		field string
		with  func(f float64) quota.Config
		good  []float64
		bad   []float64
	}{
		{"scaleMin", func(f float64) quota.Config { return quota.Config{ScaleMin: f} }, []float64{0.01, 0.5, 1}, []float64{0.0099, 1.01, -1}},
		{"scaleMax", func(f float64) quota.Config { return quota.Config{ScaleMax: f} }, []float64{2, 4, 100}, []float64{1.99, 100.1, -1}},
		{"models.m.refillPerSecond", func(f float64) quota.Config {
			return oneModel(quota.Limits{RefillPerSecond: f, Burst: 1, CallsPerMinute: 1})
		}, []float64{0, 1e-9, 1, 1e7}, []float64{0.9e-9, -1e-9, 1.1e7}},
	} {
		for _, f := range tt.good {
			same(t, fmt.Sprint(tt.field, " of ", f), faults(t, tt.with(f)), []string{})
		}
		for _, f := range tt.bad {
			got := faults(t, tt.with(f))
			if len(got) == 0 || got[0] != tt.field {
				t.Errorf("%s of %v: %q", tt.field, f, got)
			}
		}
	}
}

// TestWhatBelongsTogether: a field that means nothing without another one.
func TestWhatBelongsTogether(t *testing.T) {
	for _, tt := range []struct {
		limits quota.Limits
		want   []string
	}{
		{quota.Limits{RefillPerSecond: 1}, []string{"models.m.burst"}},
		{quota.Limits{RefillPerSecond: 1, Burst: 1}, nil},
		{quota.Limits{RefillPerSecond: 1, CallsPerMinute: 1}, nil},
		{quota.Limits{Burst: 1}, []string{"models.m.callsPerMinute"}},
		{quota.Limits{Burst: 1, CallsPerMinute: 1}, nil},
		{quota.Limits{TokenBurst: 1}, []string{"models.m.tokensPerMinute"}},
		{quota.Limits{TokenBurst: 1, TokensPerMinute: 1}, nil},
		{quota.Limits{InputTokenBurst: 1}, []string{"models.m.inputTokensPerMinute"}},
		{quota.Limits{InputTokenBurst: 1, InputTokensPerMinute: 1}, nil},
		{quota.Limits{OutputTokenBurst: 1}, []string{"models.m.outputTokensPerMinute"}},
		{quota.Limits{OutputTokenBurst: 1, OutputTokensPerMinute: 1}, nil},
		{quota.Limits{SoftTokenBudget: 1}, []string{"models.m.softTokenWindowMs"}},
		{quota.Limits{SoftTokenWindowMS: 1}, []string{"models.m.softTokenWindowMs"}},
		{quota.Limits{SoftPolicy: quota.Deny}, []string{"models.m.softPolicy"}},
		{quota.Limits{SoftPolicy: quota.Deny, SoftTokenBudget: 1, SoftTokenWindowMS: 1}, nil},
		{quota.Limits{SoftPolicy: "maybe", SoftTokenBudget: 1, SoftTokenWindowMS: 1}, []string{"models.m.softPolicy"}},
	} {
		if tt.want == nil {
			tt.want = []string{}
		}
		same(t, fmt.Sprintf("%+v", tt.limits), faults(t, oneModel(tt.limits)), tt.want)
	}
}

// TestEveryPlaceIsChecked: limits, names and models, wherever they stand.
func TestEveryPlaceIsChecked(t *testing.T) {
	bad := quota.Limits{CallsPerMinute: -1}
	unknown := map[string]quota.Limits{"other": {}}
	long, fits := strings.Repeat("x", 257), strings.Repeat("x", 256)
	m := map[string]quota.Model{"m": {}}
	badM := map[string]quota.Limits{"m": bad}
	of := func(t quota.Tenant) quota.Config {
		return quota.Config{Models: m, Tenants: map[string]quota.Tenant{"t": t}}
	}
	for want, c := range map[string]quota.Config{
		"global.callsPerMinute":                          {Global: bad},
		"models.m.callsPerMinute":                        oneModel(bad),
		"tenants.t.callsPerMinute":                       of(quota.Tenant{Limits: bad}),
		"tenants.t.models.m.callsPerMinute":              of(quota.Tenant{Models: badM}),
		"tenants.t.models.other":                         of(quota.Tenant{Models: unknown}),
		"tenants.t.agents.a.callsPerMinute":              of(quota.Tenant{Agents: map[string]quota.Agent{"a": {Limits: bad}}}),
		"tenants.t.agents.a.models.m.callsPerMinute":     of(quota.Tenant{Agents: map[string]quota.Agent{"a": {Models: badM}}}),
		"tenants.t.agents.a.models.other":                of(quota.Tenant{Agents: map[string]quota.Agent{"a": {Models: unknown}}}),
		"tenants.t.agentDefault.callsPerMinute":          of(quota.Tenant{AgentDefault: quota.Agent{Limits: bad}}),
		"tenants.t.agentDefault.models.m.callsPerMinute": of(quota.Tenant{AgentDefault: quota.Agent{Models: badM}}),
		"tenantDefault.callsPerMinute":                   {TenantDefault: quota.Tenant{Limits: bad}},
		"tenantDefault.agentDefault.callsPerMinute":      {TenantDefault: quota.Tenant{AgentDefault: quota.Agent{Limits: bad}}},
		"models." + long:                                 {Models: map[string]quota.Model{long: {}}},
		"tenants." + long:                                {Tenants: map[string]quota.Tenant{long: {}}},
		"charges." + long:                                {Charges: map[string]quota.Charge{long: {}}},
		"tenants.t.agents." + long:                       of(quota.Tenant{Agents: map[string]quota.Agent{long: {}}}),
		"tenants.t.agents.":                              of(quota.Tenant{Agents: map[string]quota.Agent{"": {}}}),
		"tenants.t.agents.*":                             of(quota.Tenant{Agents: map[string]quota.Agent{"*": {}}}),
		"tenants.":                                       {Tenants: map[string]quota.Tenant{"": {}}},
		"models.*":                                       {Models: map[string]quota.Model{"*": {}}},
		"charges.":                                       {Charges: map[string]quota.Charge{"": {}}},
		"charges.c.maxTokens":                            {Charges: map[string]quota.Charge{"c": {MaxTokens: "x"}}},
		"models.m.charge":                                {Models: map[string]quota.Model{"m": {Charge: "x"}}},
		"dayZone":                                        {DayZone: "Local"},
		"tenants.t.dayZone":                              of(quota.Tenant{Limits: quota.Limits{DayZone: strings.Repeat("x", 257)}}),
		"tenants":                                        {MaxTenants: 1, Tenants: map[string]quota.Tenant{"t": {}, "u": {}}},
		"tenants.t.agents":                               {MaxAgents: 1, Models: m, Tenants: map[string]quota.Tenant{"t": {Agents: map[string]quota.Agent{"a": {}, "b": {}}}}},
		"tenants.t.models.m.refillPerSecond":             of(quota.Tenant{Models: map[string]quota.Limits{"m": {RefillPerSecond: 1e8, Burst: 1}}}),
	} {
		same(t, want[:min(len(want), 60)], faults(t, c), []string{want})
	}
	same(t, "what is at its bound", faults(t, quota.Config{
		Models:     map[string]quota.Model{fits: {Charge: "mine"}},
		Charges:    map[string]quota.Charge{"mine": {MaxTokens: quota.ReserveMax}, fits: {MaxTokens: quota.FloorMax}},
		Tenants:    map[string]quota.Tenant{fits: {Agents: map[string]quota.Agent{fits: {}}}},
		MaxTenants: 1, MaxAgents: 1,
	}), []string{})
	// A name of 256 bytes is looked for, and not found; one of 257 is not looked for.
	asked := 0
	c := quota.Config{DayZone: fits, LoadZone: func(string) (*time.Location, error) { asked++; return nil, errors.New("none") }}
	if _, err := c.Resolve(); err == nil || asked != 1 {
		t.Errorf("%d times asked, %v", asked, err)
	}
	if c.DayZone = long; true {
		if _, err := c.Resolve(); err == nil || asked != 1 {
			t.Errorf("%d times asked, %v", asked, err)
		}
	}
	if _, err := quota.New(quota.Config{}, time.Unix(0, 999_999_999)); err == nil {
		t.Error("an origin in the first second of 1970 was accepted")
	}
	if _, err := quota.New(quota.Config{}, time.Unix(1, 0)); err != nil {
		t.Error(err)
	}
}

func TestAnErrorShowsTheValue(t *testing.T) {
	for want, c := range map[string]quota.Config{
		"quota: models.m.refillPerSecond is 1.25e-10, must be 0 or at least 1e-9 (RATE_INVALID_CONFIG)": oneModel(quota.Limits{RefillPerSecond: 1.25e-10, Burst: 1}),
		"quota: scaleMax is 1.125, must be from 2 to 100 (RATE_INVALID_CONFIG)":                         {ScaleMax: 1.125},
		"quota: maxWaiting is -12, must be from 1 to 100000 (RATE_INVALID_CONFIG)":                      {MaxWaiting: -12},
	} {
		if _, err := c.Resolve(); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
