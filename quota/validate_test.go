package quota_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/quota"
)

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
