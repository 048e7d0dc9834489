// Package quotafile reads the configuration of a quota governor from a YAML file and from
// the environment. Errors name file, line, field, value and bound.
//
//	day_zone: America/Los_Angeles
//	global: {calls_per_minute: 600, burst: 60}
//	models:
//	  small:
//	    calls_per_minute: 60
//	    tokens_per_minute: 90000
//	    soft_token_window: 1m
//	    soft_token_budget: 60000
//	    max_daily_tokens: 2000000
//	    charge: openai
//	tenants:
//	  research: {weight: 3, agents: {planner: {calls_per_minute: 10}}}
//	tenant_default: {max_daily_tokens: 100000}
//	permit_ttl: 10m
//	fleet: share         # with the processes of a fleet; wait, none
//	fleet_ahead: 300ms
//
// The keys are those of [quota.Config] in lower case with underscores, durations are
// written as 250ms, 1m or 24h, and two switches are positive: adaptive_scaling and
// forecast, both true by default. An absent limit means no limit. A limit of 0 is
// rejected, because it may be meant as "nothing allowed".
//
// To change a running governor, use a patch ([quota.Governor.UpdateConfig]) instead. The
// package keeps no state and reads no file, clock or environment: the caller passes bytes
// and a getenv. All functions are safe for concurrent use. Time zones are those of
// time.LoadLocation.
package quotafile

import (
	"log/slog"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/configfile"
	"github.com/headway-go/headway/quota"
)

// MaxSize is the maximum size of a file, in bytes.
const MaxSize = configfile.DefaultMaxBytes

// DefaultAhead is how much of a shared budget is taken ahead of calls by default.
const DefaultAhead = 300 * time.Millisecond

// Settings are the content of a file.
type Settings struct {
	// Quota is the checked configuration of the governor, with its defaults.
	Quota quota.Config
	// LogLevel is the minimum level that the governor logs. Default [slog.LevelInfo].
	LogLevel slog.Level
	// Fleet is share or wait for budgets that the processes of a fleet share, none for budgets
	// of this process alone; "" if the file does not say. Ahead is how much is taken ahead of
	// calls, as a time at the recent rate: 0 to 1 s. Default [DefaultAhead].
	Fleet string
	Ahead time.Duration

	spread map[string]bool // the scopes that say whether they are spread
}

// SaysSpread reports whether the file sets spread, to true or false, for a model, or for
// the global limits if the model is "". If it does, the caller must not choose.
func (s Settings) SaysSpread(model string) bool {
	if model == "" {
		return s.spread["global"]
	}
	return s.spread["models."+model]
}

// Parse reads the governor's configuration from a YAML file; see [Read], which
// also gives the log level. The name stands for the file in errors.
func Parse(name string, data []byte) (quota.Config, error) {
	s, err := Read(name, data)
	return s.Quota, err
}

// Read reads a YAML file. The name stands for the file in errors, which are a
// [*configfile.Error]. After an error the settings are zero. Bytes that are not a
// configuration are an error, never a panic.
func Read(name string, data []byte) (Settings, error) {
	root, file := configfile.Parse(name, data, configfile.Options{What: "quota", Want: "keys such as global and models"})
	s := Section(root)
	if err := file.Err(); err != nil {
		return Settings{}, err
	}
	return s, nil
}

// Section reads the configuration from one mapping of a larger file and checks it. If
// there are problems, they are in the node's file and the settings are zero.
func Section(n *configfile.Node) Settings {
	m := n.Section()
	if m == nil {
		return Settings{}
	}
	before, s := m.File().Failed(), Settings{spread: map[string]bool{}}
	configfile.Choice(m, "log_level", &s.LogLevel, levels, levelNames...)
	configfile.OneOf(m, "fleet", &s.Fleet, "share", "wait", "none")
	s.Ahead = DefaultAhead
	m.Duration("fleet_ahead", &s.Ahead, 0, time.Second)
	if m.Has("fleet_ahead") && s.Fleet == "none" {
		m.Fail("fleet_ahead", "is set beside fleet: none; want one of both")
	}
	config(m, &s.Quota)
	m.Done()
	if m.File().Failed() > before {
		return Settings{} // what follows would only repeat them
	}
	p := places{"": {n.At, n}}
	p.walk(n, "", false)
	for field := range p {
		if scope, ok := strings.CutSuffix(field, ".spread"); ok {
			s.spread[scope] = true
		}
	}
	s.Quota.LoadZone = time.LoadLocation
	resolved, err := s.Quota.Resolve()
	for _, f := range faults(err) {
		p.report(f)
	}
	if err != nil {
		return Settings{}
	}
	s.Quota = resolved
	return s
}

func config(m *configfile.Section, c *quota.Config) {
	if s := m.Below("global"); s != nil {
		limits(s, &c.Global)
		s.Done()
	}
	c.Models = named(m, "models", func(s *configfile.Section, v *quota.Model) {
		limits(s, &v.Limits)
		s.Text("charge", &v.Charge)
	})
	c.Tenants = named(m, "tenants", tenant)
	if s := m.Below("tenant_default"); s != nil {
		tenant(s, &c.TenantDefault)
		s.Done()
	}
	c.Charges = named(m, "charges", func(s *configfile.Section, v *quota.Charge) {
		configfile.Choice(s, "max_tokens", &v.MaxTokens, map[string]quota.MaxTokensRule{
			"ignore": quota.IgnoreMax, "floor": quota.FloorMax, "reserve": quota.ReserveMax,
		}, "ignore", "floor", "reserve")
		integer(s, "cached_discount", &v.CachedDiscount, true)
		s.Bool("output_free", &v.OutputFree)
	})
	m.Text("day_zone", &c.DayZone)
	duration(m, "permit_ttl", &c.PermitTTLMS)
	m.Bool("keep_expired", &c.KeepExpired)
	toggle(m, "adaptive_scaling", &c.AdaptiveScalingOff)
	number(m, "scale_min", &c.ScaleMin)
	number(m, "scale_max", &c.ScaleMax)
	duration(m, "scale_step", &c.ScaleStepMS)
	toggle(m, "forecast", &c.ForecastOff)
	duration(m, "forecast_window", &c.ForecastWindowMS)
	integer(m, "event_buffer", &c.EventBuffer, false)
	integer(m, "max_tenants", &c.MaxTenants, false)
	integer(m, "max_agents", &c.MaxAgents, false)
	integer(m, "max_waiting", &c.MaxWaiting, false)
}

func tenant(m *configfile.Section, t *quota.Tenant) {
	limits(m, &t.Limits)
	integer(m, "weight", &t.Weight, false)
	t.Models = named(m, "models", limits)
	t.Agents = named(m, "agents", agent)
	if s := m.Below("agent_default"); s != nil {
		agent(s, &t.AgentDefault)
		s.Done()
	}
}

func agent(m *configfile.Section, a *quota.Agent) {
	limits(m, &a.Limits)
	a.Models = named(m, "models", limits)
}

func limits(m *configfile.Section, l *quota.Limits) {
	integer(m, "calls_per_minute", &l.CallsPerMinute, false)
	integer(m, "burst", &l.Burst, false)
	number(m, "refill_per_second", &l.RefillPerSecond)
	m.Bool("spread", &l.Spread)
	integer(m, "tokens_per_minute", &l.TokensPerMinute, false)
	integer(m, "token_burst", &l.TokenBurst, false)
	integer(m, "input_tokens_per_minute", &l.InputTokensPerMinute, false)
	integer(m, "input_token_burst", &l.InputTokenBurst, false)
	integer(m, "output_tokens_per_minute", &l.OutputTokensPerMinute, false)
	integer(m, "output_token_burst", &l.OutputTokenBurst, false)
	integer(m, "soft_token_budget", &l.SoftTokenBudget, false)
	duration(m, "soft_token_window", &l.SoftTokenWindowMS)
	m.Text("soft_policy", (*string)(&l.SoftPolicy))
	integer(m, "max_daily_tokens", &l.MaxDailyTokens, false)
	integer(m, "max_daily_calls", &l.MaxDailyCalls, false)
	m.Text("day_zone", &l.DayZone)
	if m.Has("spread") && !spreads(l) {
		m.Fail("spread", "is set; want it left out where no limit by the minute is without a burst")
	}
}

// spreads reports whether there is a limit that is spread or not.
func spreads(l *quota.Limits) bool {
	return (l.CallsPerMinute > 0 || l.RefillPerSecond > 0) && l.Burst == 0 ||
		l.TokensPerMinute > 0 && l.TokenBurst == 0 ||
		l.InputTokensPerMinute > 0 && l.InputTokenBurst == 0 ||
		l.OutputTokensPerMinute > 0 && l.OutputTokenBurst == 0
}
