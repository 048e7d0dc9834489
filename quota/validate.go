package quota

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

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
