package quota

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Policy says what happens beyond a soft budget.
type Policy string

// The policies.
const (
	// Defer refuses with SOFT_LIMIT until the window has capacity again. The default.
	Defer Policy = "defer"
	// Advise approves, with an advisory.
	Advise Policy = "advise"
	// Deny refuses with SOFT_LIMIT and marks the refusal final: the caller should not
	// wait.
	Deny Policy = "deny"
)

// Limits are the budgets of one scope. Zero fields set no limit.
type Limits struct {
	// CallsPerMinute is the refill rate of calls, 0 to 1e9.
	CallsPerMinute int64 `json:"callsPerMinute,omitempty"`
	// Burst is the capacity of the call bucket: how many calls a full bucket allows in a
	// row. Default CallsPerMinute.
	Burst int64 `json:"burst,omitempty"`
	// RefillPerSecond replaces CallsPerMinute/60 as the refill rate of calls, to nine
	// decimal places, at most 1e7.
	RefillPerSecond float64 `json:"refillPerSecond,omitempty"`

	// Spread is for limits that another party enforces, such as a provider. Per-minute
	// budgets without a burst of their own then allow five seconds' worth in a row and
	// refill 2% slower, so that no minute holds much more than a minute's worth. A call
	// larger than five seconds' worth is not clamped but leaves the bucket in debt.
	Spread bool `json:"spread,omitempty"`

	// TokensPerMinute is a hard limit on all charged tokens. TokenBurst is the bucket's
	// capacity, by default TokensPerMinute.
	TokensPerMinute int64 `json:"tokensPerMinute,omitempty"`
	TokenBurst      int64 `json:"tokenBurst,omitempty"`
	// InputTokensPerMinute and OutputTokensPerMinute are hard limits on one side.
	// InputTokenBurst and OutputTokenBurst are the capacities, by default a minute's
	// worth.
	InputTokensPerMinute  int64 `json:"inputTokensPerMinute,omitempty"`
	InputTokenBurst       int64 `json:"inputTokenBurst,omitempty"`
	OutputTokensPerMinute int64 `json:"outputTokensPerMinute,omitempty"`
	OutputTokenBurst      int64 `json:"outputTokenBurst,omitempty"`

	// SoftTokenBudget is the most tokens that a rolling window of SoftTokenWindowMS
	// milliseconds should hold. Set both or neither.
	SoftTokenBudget   int64 `json:"softTokenBudget,omitempty"`
	SoftTokenWindowMS int64 `json:"softTokenWindowMs,omitempty"`
	// SoftPolicy says what happens beyond the soft budget. Default [Defer].
	SoftPolicy Policy `json:"softPolicy,omitempty"`

	// MaxDailyTokens and MaxDailyCalls are hard caps per day in DayZone.
	MaxDailyTokens int64 `json:"maxDailyTokens,omitempty"`
	MaxDailyCalls  int64 `json:"maxDailyCalls,omitempty"`
	// DayZone is the time zone that determines when a day begins. Default: the
	// configuration's.
	DayZone string `json:"dayZone,omitempty"`
}

// Model configures one model.
type Model struct {
	Limits
	// Charge is the name of the charge rule for its calls. Default "total".
	Charge string `json:"charge,omitempty"`
}

// Tenant configures one tenant.
type Tenant struct {
	Limits
	// Weight is the tenant's weight among those that queue, 1 to 1000. Default 1.
	Weight int64 `json:"weight,omitempty"`
	// Models are further limits on the tenant's use of single models.
	Models map[string]Limits `json:"models,omitempty"`
	// Agents are the limits of its agents by name; AgentDefault applies to the others.
	Agents       map[string]Agent `json:"agents,omitempty"`
	AgentDefault Agent            `json:"agentDefault,omitzero"`
}

// Agent configures one agent.
type Agent struct {
	Limits
	// Models are further limits on the agent's use of single models.
	Models map[string]Limits `json:"models,omitempty"`
}

// Config configures a [Governor]. Zero fields take the defaults.
type Config struct {
	// Global limits all calls together.
	Global Limits `json:"global,omitzero"`
	// Models are the models that may be used, by name; calls for others are refused.
	Models map[string]Model `json:"models,omitempty"`
	// Tenants are the limits of tenants by name; TenantDefault applies to the others.
	Tenants       map[string]Tenant `json:"tenants,omitempty"`
	TenantDefault Tenant            `json:"tenantDefault,omitzero"`
	// Charges are charge rules by name, in addition to [StandardCharges].
	Charges map[string]Charge `json:"charges,omitempty"`

	// DayZone is the time zone that determines when days begin. Default "UTC".
	DayZone string `json:"dayZone,omitempty"`
	// LoadZone returns a time zone by name; pass time.LoadLocation. By default only "UTC"
	// is known.
	LoadZone func(name string) (*time.Location, error) `json:"-"`

	// PermitTTLMS is the time in milliseconds after which an unsettled permit expires.
	// Default 600,000.
	PermitTTLMS int64 `json:"permitTtlMs,omitempty"`
	// KeepExpired charges the estimate of an expired permit instead of giving it back.
	KeepExpired bool `json:"keepExpired,omitempty"`

	// AdaptiveScalingOff leaves every scale factor at 1.
	AdaptiveScalingOff bool `json:"adaptiveScalingOff,omitempty"`
	// ScaleMin and ScaleMax bound the scale factor. ScaleMin is 0.01 to 1, default 0.5.
	// ScaleMax is 2 to 100, default 4; a throttle sets the factor to at least 2.
	ScaleMin float64 `json:"scaleMin,omitempty"`
	ScaleMax float64 `json:"scaleMax,omitempty"`
	// ScaleStepMS is the time in milliseconds between the four steps in which the factor
	// returns to 1. Default 5,000.
	ScaleStepMS int64 `json:"scaleStepMs,omitempty"`

	// ForecastOff disables raising soft pressure early.
	ForecastOff bool `json:"forecastOff,omitempty"`
	// ForecastWindowMS is the time in milliseconds over which the recent rate is
	// measured. Default 60,000.
	ForecastWindowMS int64 `json:"forecastWindowMs,omitempty"`

	// EventBuffer is how many events are kept, 1 to 100,000. Default 250.
	EventBuffer int64 `json:"eventBuffer,omitempty"`
	// MaxTenants and MaxAgents bound the known tenants, and the known agents of each.
	// Defaults 10,000 and 100.
	MaxTenants int64 `json:"maxTenants,omitempty"`
	MaxAgents  int64 `json:"maxAgents,omitempty"`
	// MaxWaiting bounds the waiting requests. Default 1,000.
	MaxWaiting int64 `json:"maxWaiting,omitempty"`
}

// shared is the name of the scope shared by tenants or agents beyond the bound.
const shared = "*"

// Resolve fills in the defaults and checks the rest. The error is a [*FieldError] that
// names field, value and bound, or several of them joined.
func (c Config) Resolve() (Config, error) {
	c.PermitTTLMS = cmp.Or(c.PermitTTLMS, 600_000)
	c.ScaleStepMS = cmp.Or(c.ScaleStepMS, 5_000)
	c.ForecastWindowMS = cmp.Or(c.ForecastWindowMS, 60_000)
	c.EventBuffer = cmp.Or(c.EventBuffer, 250)
	c.MaxTenants = cmp.Or(c.MaxTenants, 10_000)
	c.MaxAgents = cmp.Or(c.MaxAgents, 100)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 1_000)
	c.ScaleMin = cmp.Or(c.ScaleMin, 0.5)
	c.ScaleMax = cmp.Or(c.ScaleMax, 4)
	c.DayZone = cmp.Or(c.DayZone, "UTC")
	return c, c.validate()
}

// charge returns the named rule.
func (c *Config) charge(name string) (Charge, bool) {
	name = cmp.Or(name, "total")
	if rule, ok := c.Charges[name]; ok {
		return rule, true
	}
	rule, ok := StandardCharges()[name]
	return rule, ok
}

// zone returns the named time zone.
func (c *Config) zone(name string) (*time.Location, error) {
	if name == "UTC" || c.LoadZone == nil {
		if name != "UTC" {
			return nil, errNoZones
		}
		return time.UTC, nil
	}
	return c.LoadZone(name)
}

// dayZone returns the name of the zone of these limits.
func (c *Config) dayZone(l *Limits) string {
	if l.DayZone != "" {
		return l.DayZone
	}
	return c.DayZone
}

// MaxPatch is the maximum size of a patch in bytes.
const MaxPatch = 1 << 20

// Canonical returns the configuration as canonical JSON: keys sorted, no white space.
// Resolve the configuration first; otherwise the same limits can have several forms.
func (c Config) Canonical() ([]byte, error) {
	c, err := c.Resolve()
	if err != nil {
		return nil, err
	}
	// Going through a generic value sorts the keys of every object, whatever the order of
	// fields here.
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := decode(raw, &tree); err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}

// Digest returns the SHA-256 of the canonical JSON, in hexadecimal.
func (c Config) Digest() (string, error) {
	b, err := c.Canonical()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hexadecimal(sum[:]), nil
}

func hexadecimal(b []byte) string { return hex.EncodeToString(b) }

// Patched returns the configuration with a JSON merge patch (RFC 7396) applied and
// validated: null removes, objects merge, everything else replaces. An unknown field is
// an error. The receiver is not changed.
func (c Config) Patched(patch []byte) (Config, error) {
	if len(patch) > MaxPatch {
		return c, &FieldError{"patch", fmt.Sprintf("%d bytes", len(patch)), fmt.Sprintf("at most %d", MaxPatch)}
	}
	var change any
	if err := decode(patch, &change); err != nil {
		return c, fmt.Errorf("quota: patch: %w", &FieldError{"patch", "not JSON (" + err.Error() + ")", "one JSON object"})
	}
	fields, ok := change.(map[string]any)
	if !ok {
		return c, &FieldError{"patch", fmt.Sprintf("a JSON %T", change), "one JSON object"}
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return c, fmt.Errorf("quota: %w", err)
	}
	var tree map[string]any
	if err := decode(raw, &tree); err != nil {
		return c, fmt.Errorf("quota: %w", err)
	}
	raw, err = json.Marshal(merged(tree, fields))
	if err != nil {
		return c, fmt.Errorf("quota: patch: %w", err)
	}
	next := Config{LoadZone: c.LoadZone}
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&next); err != nil {
		return c, fmt.Errorf("quota: patch: %w", &FieldError{"patch", err.Error(), "known fields with values of their types"})
	}
	next, err = next.Resolve()
	if err != nil {
		return c, err
	}
	return next, nil
}

// decode reads exactly one JSON value and keeps numbers as written.
func decode(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.InputOffset() != int64(len(bytes.TrimRight(b, " \t\r\n"))) {
		return fmt.Errorf("more than one value")
	}
	return nil
}

func merged(tree, change map[string]any) map[string]any {
	if tree == nil {
		tree = map[string]any{}
	}
	for name, value := range change {
		switch value := value.(type) {
		case nil:
			delete(tree, name)
		case map[string]any:
			below, _ := tree[name].(map[string]any)
			tree[name] = merged(below, value)
		default:
			tree[name] = value
		}
	}
	return tree
}

var errNoZones = errors.New("no time zones but UTC are known here")

// Bounds of the configuration.
const (
	maxRate  = 1_000_000_000
	maxDaily = 1_000_000_000_000_000
	dayMS    = 24 * 60 * 60 * 1000
	maxSpan  = 31 * dayMS
	maxName  = 256
)

// checks collects errors.
type checks struct {
	config *Config
	faults []error
}

func (v *checks) fault(field, value, bound string) {
	v.faults = append(v.faults, &FieldError{field, value, bound})
}

func (v *checks) within(field string, n, lo, hi int64) {
	if n < lo || n > hi {
		v.fault(field, strconv.FormatInt(n, 10), fmt.Sprintf("from %d to %d", lo, hi))
	}
}

func (v *checks) ratio(field string, f, lo, hi float64) {
	if !(f >= lo && f <= hi) { // NaN too
		v.fault(field, strconv.FormatFloat(f, 'g', -1, 64), fmt.Sprintf("from %v to %v", lo, hi))
	}
}

func (v *checks) name(field, name string) {
	if name == "" || len(name) > maxName {
		v.fault(field, fmt.Sprintf("a name of %d bytes", len(name)), fmt.Sprintf("from 1 to %d bytes", maxName))
	}
	if name == shared {
		v.fault(field, strconv.Quote(name), "another name: that one is for those without a scope of their own")
	}
}

func (v *checks) zone(field, name string) {
	if len(name) > maxName || name == "Local" {
		v.fault(field, fmt.Sprintf("%.40q", name), "a time zone by its name, such as America/Los_Angeles")
		return
	}
	if _, err := v.config.zone(name); err != nil {
		v.fault(field, fmt.Sprintf("%q", name), fmt.Sprintf("a time zone that is known (%v)", err))
	}
}

// validate checks a configuration that has its defaults.
func (c *Config) validate() error {
	v := checks{config: c}
	v.limits("global", &c.Global)
	v.zone("dayZone", c.DayZone)
	for _, name := range slices.Sorted(maps.Keys(c.Charges)) {
		field, rule := "charges."+name, c.Charges[name]
		v.name(field, name)
		v.within(field+".cachedDiscount", rule.CachedDiscount, 0, 100)
		switch rule.MaxTokens {
		case IgnoreMax, FloorMax, ReserveMax:
		default:
			v.fault(field+".maxTokens", strconv.Quote(string(rule.MaxTokens)), `"", "floor" or "reserve"`)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Models)) {
		field, m := "models."+name, c.Models[name]
		v.name(field, name)
		v.limits(field, &m.Limits)
		if _, ok := c.charge(m.Charge); !ok {
			v.fault(field+".charge", strconv.Quote(m.Charge), "the name of a charge rule")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t := c.Tenants[name]
		v.name("tenants."+name, name)
		v.tenant("tenants."+name, &t)
	}
	v.tenant("tenantDefault", &c.TenantDefault)
	v.within("permitTtlMs", c.PermitTTLMS, 1, maxSpan)
	v.ratio("scaleMin", c.ScaleMin, 0.01, 1)
	v.ratio("scaleMax", c.ScaleMax, 2, 100)
	v.within("scaleStepMs", c.ScaleStepMS, 1, dayMS)
	v.within("forecastWindowMs", c.ForecastWindowMS, 1000, dayMS)
	v.within("eventBuffer", c.EventBuffer, 1, 100_000)
	v.within("maxTenants", c.MaxTenants, 1, 1_000_000)
	v.within("maxAgents", c.MaxAgents, 1, 100_000)
	v.within("maxWaiting", c.MaxWaiting, 1, 100_000)
	v.within("tenants", int64(len(c.Tenants)), 0, c.MaxTenants)
	return errors.Join(v.faults...)
}

func (v *checks) tenant(field string, t *Tenant) {
	v.limits(field, &t.Limits)
	v.within(field+".weight", t.Weight, 0, 1000)
	v.byModel(field, t.Models)
	for _, name := range slices.Sorted(maps.Keys(t.Agents)) {
		a := t.Agents[name]
		v.name(field+".agents."+name, name)
		v.limits(field+".agents."+name, &a.Limits)
		v.byModel(field+".agents."+name, a.Models)
	}
	v.limits(field+".agentDefault", &t.AgentDefault.Limits)
	v.byModel(field+".agentDefault", t.AgentDefault.Models)
	v.within(field+".agents", int64(len(t.Agents)), 0, v.config.MaxAgents)
}

func (v *checks) byModel(field string, models map[string]Limits) {
	for _, name := range slices.Sorted(maps.Keys(models)) {
		l := models[name]
		if _, ok := v.config.Models[name]; !ok {
			v.fault(field+".models."+name, "not a model of this configuration", "one of models")
		}
		v.limits(field+".models."+name, &l)
	}
}

func (v *checks) limits(field string, l *Limits) {
	v.within(field+".callsPerMinute", l.CallsPerMinute, 0, maxRate)
	v.within(field+".burst", l.Burst, 0, maxRate)
	v.ratio(field+".refillPerSecond", l.RefillPerSecond, 0, 1e7)
	if l.RefillPerSecond > 0 && l.RefillPerSecond < 1e-9 {
		v.fault(field+".refillPerSecond", strconv.FormatFloat(l.RefillPerSecond, 'g', -1, 64), "0 or at least 1e-9")
	}
	if l.RefillPerSecond > 0 && l.CallsPerMinute == 0 && l.Burst == 0 {
		v.fault(field+".burst", "0", "at least 1 where only refillPerSecond is set")
	}
	if l.Burst > 0 && l.CallsPerMinute == 0 && l.RefillPerSecond == 0 {
		v.fault(field+".callsPerMinute", "0", "at least 1 where burst is set")
	}
	v.within(field+".tokensPerMinute", l.TokensPerMinute, 0, maxRate)
	v.within(field+".tokenBurst", l.TokenBurst, 0, maxRate)
	if l.TokenBurst > 0 && l.TokensPerMinute == 0 {
		v.fault(field+".tokensPerMinute", "0", "at least 1 where tokenBurst is set")
	}
	v.within(field+".inputTokensPerMinute", l.InputTokensPerMinute, 0, maxRate)
	v.within(field+".inputTokenBurst", l.InputTokenBurst, 0, maxRate)
	if l.InputTokenBurst > 0 && l.InputTokensPerMinute == 0 {
		v.fault(field+".inputTokensPerMinute", "0", "at least 1 where inputTokenBurst is set")
	}
	v.within(field+".outputTokensPerMinute", l.OutputTokensPerMinute, 0, maxRate)
	v.within(field+".outputTokenBurst", l.OutputTokenBurst, 0, maxRate)
	if l.OutputTokenBurst > 0 && l.OutputTokensPerMinute == 0 {
		v.fault(field+".outputTokensPerMinute", "0", "at least 1 where outputTokenBurst is set")
	}
	v.within(field+".softTokenBudget", l.SoftTokenBudget, 0, maxDaily)
	v.within(field+".softTokenWindowMs", l.SoftTokenWindowMS, 0, maxSpan)
	if (l.SoftTokenBudget > 0) != (l.SoftTokenWindowMS > 0) {
		v.fault(field+".softTokenWindowMs", strconv.FormatInt(l.SoftTokenWindowMS, 10), "set exactly when softTokenBudget is")
	}
	switch l.SoftPolicy {
	case "", Defer, Advise, Deny:
	default:
		v.fault(field+".softPolicy", strconv.Quote(string(l.SoftPolicy)), `"defer", "advise" or "deny"`)
	}
	if l.SoftPolicy != "" && l.SoftTokenBudget == 0 {
		v.fault(field+".softPolicy", strconv.Quote(string(l.SoftPolicy)), "left out where no softTokenBudget is set")
	}
	v.within(field+".maxDailyTokens", l.MaxDailyTokens, 0, maxDaily)
	v.within(field+".maxDailyCalls", l.MaxDailyCalls, 0, maxDaily)
	if l.DayZone != "" {
		v.zone(field+".dayZone", l.DayZone)
	}
}
