// Package agent slows the decision loops of agents that share a quota: it says when an
// agent should decide next and whether it should use smaller requests.
//
// A [Pacer] takes quota events from any source: from a governor in the process, from a
// stream of events, from the headers of a response ([Pacer.Backoff]) or from a snapshot
// ([Pacer.Restate]). An agent's interval is its base times a factor. The factor rises at
// once and returns in steps, so that agents slowed together do not all come back at once.
// While throttled, an agent runs at most half as often.
//
// The interval is never shorter than the base. A quota's scale factor can be below 1 (at
// 85% of a soft budget it is 0.85), but the base is how often the owner wants decisions,
// and pressure is not a reason to make more of them.
//
// It does not decide whether a call may be made; package quota does. Do not use it to
// pace requests to a provider; use the root package.
//
// A Pacer has no clock or lock; its instants are durations since an origin that the
// caller chooses. A [Loop] is a Pacer with a lock and the real clock, safe for concurrent
// use; it starts no goroutine.
//
// Stability: settling.
package agent

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headway-go/headway/quota"
)

// Config configures an agent's loop.
type Config struct {
	// Base is the interval between decisions without pressure: 1 ms to 24 h. Required.
	Base time.Duration
	// Scope says which quota events concern the agent: those of the global scope and of
	// every scope whose tenant, agent and model, as far as set, equal these. Set the
	// model that the agent calls.
	Scope quota.Scope
	// MaxFactor bounds the factor, 2 to 100. Default 4.
	MaxFactor float64
	// The factor returns to 1 in Steps steps, 1 to 100, one every StepEvery, 1 ms to 1 h.
	// Defaults 4 and 5 s, as in quota.
	Steps     int
	StepEvery time.Duration
	// Fixed keeps the interval at Base, for owners who turned adaptation off
	// (LLM_RATE_AWARE_AGENT_ADAPT). Hints and backoffs still work.
	Fixed bool
}

func (c Config) resolve() (Config, error) {
	c.MaxFactor = cmp.Or(c.MaxFactor, 4)
	c.Steps = cmp.Or(c.Steps, 4)
	c.StepEvery = cmp.Or(c.StepEvery, 5*time.Second)
	switch {
	case c.Base < time.Millisecond || c.Base > 24*time.Hour:
		return c, fmt.Errorf("agent: Base is %v, must be from 1ms to 24h", c.Base)
	case !(c.MaxFactor >= 2 && c.MaxFactor <= 100): // NaN too
		return c, fmt.Errorf("agent: MaxFactor is %v, must be from 2 to 100", c.MaxFactor)
	case c.Steps < 1 || c.Steps > 100:
		return c, fmt.Errorf("agent: Steps is %d, must be from 1 to 100", c.Steps)
	case c.StepEvery < time.Millisecond || c.StepEvery > time.Hour:
		return c, fmt.Errorf("agent: StepEvery is %v, must be from 1ms to 1h", c.StepEvery)
	}
	return c, nil
}

// one is a factor of 1: factors are in thousandths.
const one = 1000

// softSpan is how long soft pressure lasts if an event does not report its window.
const softSpan = time.Minute

// Pacer computes the rhythm of one agent. Make one with [New]. Not safe for concurrent
// use; a [Loop] is. Instants must not decrease. All methods take constant time.
type Pacer struct {
	config Config
	max    int64
	scopes map[quota.Scope]pressure // at most eight: the agent's path

	// The factor falls from peak by step every StepEvery since from, to target.
	peak, step, target int64
	from               time.Duration

	begun     bool
	start     time.Duration // of the last cycle
	notBefore time.Duration // after a backoff
}

// pressure is the known state of one scope.
type pressure struct {
	throttled bool
	factor    int64
	soft      bool
	softUntil time.Duration
}

// New returns a pacer without pressure. The error names the field, its value and its
// bound.
func New(c Config) (*Pacer, error) {
	c, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return &Pacer{
		config: c, max: int64(c.MaxFactor * one), scopes: map[quota.Scope]pressure{}, peak: one, step: 1, target: one,
	}, nil
}

// Observe takes a quota event and reports whether it concerns the agent and affects its
// rhythm. Event times are ignored: now is when the agent received it.
//
// No event reports the end of soft pressure. It ends with a scale factor of 1, or after a
// whole window without another event.
func (p *Pacer) Observe(now time.Duration, e quota.Event) bool {
	if !p.concerns(e.Scope) {
		return false
	}
	s := p.scope(e.Scope)
	switch e.Type {
	case quota.EventThrottle, quota.EventExhausted:
		s.throttled = true
	case quota.EventResume:
		s.throttled, s.soft = false, false
	case quota.EventSoftPressure:
		s.soft, s.softUntil = true, now+span(e.WindowMS)
	case quota.EventAdaptiveScale:
		s.factor = p.thousandths(e.Factor)
		s.soft = s.soft && e.Factor != 1
		if s.soft {
			s.softUntil = max(s.softUntil, now+softSpan)
		}
	case quota.EventBackoff:
		p.Backoff(now, time.Duration(min(e.RetryInMS, math.MaxInt64/int64(time.Millisecond)))*time.Millisecond)
		return true
	default:
		return false
	}
	p.set(now, e.Scope, s)
	return true
}

// Restate takes a scope's state and scale factor from a snapshot. Use it if events were
// lost or are not available. It reports whether the scope concerns the agent.
func (p *Pacer) Restate(now time.Duration, scope quota.Scope, state quota.State, factor float64) bool {
	if !p.concerns(scope) {
		return false
	}
	p.set(now, scope, pressure{
		throttled: state == quota.Throttle || state == quota.Exhausted,
		factor:    p.thousandths(factor),
		soft:      state == quota.Soft,
		softUntil: now + softSpan,
	})
	return true
}

// ObserveHeader takes what a response of "headway serve" reports about the agent's quota:
// the scale factor, the pressure and, for a refusal, when to come back. Pass the
// response's Header.Get. It reports whether the response had such headers; only responses
// through Headway do.
func (p *Pacer) ObserveHeader(now time.Duration, get func(name string) string) bool {
	scale, pressure := get("X-Headway-Scale"), get("X-Headway-Pressure")
	if scale == "" && pressure == "" && get("X-Headway-Wait-Ms") == "" {
		return false
	}
	factor, err := strconv.ParseFloat(scale, 64)
	if err != nil {
		factor = 1
	}
	p.Restate(now, p.config.Scope, pressures[pressure], factor)
	if pressure != "" {
		p.Backoff(now, retryAfter(get))
	}
	return true
}

// pressures are the values of X-Headway-Pressure; without the header the state is normal.
var pressures = map[string]quota.State{"soft": quota.Soft, "throttle": quota.Throttle, "exhausted": quota.Exhausted}

// retryAfter returns how long a refusal asks to wait; 0 if it does not say.
func retryAfter(get func(name string) string) time.Duration {
	const maxMS = int64(365 * 24 * time.Hour / time.Millisecond)
	ms, err := strconv.ParseInt(get("Retry-After-Ms"), 10, 64)
	if err != nil {
		seconds, err := strconv.ParseInt(get("Retry-After"), 10, 64)
		if err != nil {
			return 0
		}
		ms = min(seconds, maxMS/1000) * 1000
	}
	return time.Duration(min(max(ms, 0), maxMS)) * time.Millisecond
}

// Backoff delays the next cycle by at least d, which is a refusal's retry_in or a
// response's Retry-After, but by no more than the longest interval: an agent whose budget
// returns tomorrow still runs today.
func (p *Pacer) Backoff(now, d time.Duration) {
	p.notBefore = max(p.notBefore, now+min(max(d, 0), p.scaled(p.max)))
}

// Factor returns the factor on the base interval, 1 to MaxFactor.
func (p *Pacer) Factor(now time.Duration) float64 { return float64(p.factor(now)) / one }

// Interval returns the current interval between two cycles: base times factor.
func (p *Pacer) Interval(now time.Duration) time.Duration { return p.scaled(p.factor(now)) }

// Hint returns the ways in which the agent should use less.
func (p *Pacer) Hint(now time.Duration) (h Hint) {
	for _, s := range p.scopes {
		if s.throttled {
			h |= ShrinkPlanningDepth
		}
		if s.soft && now < s.softUntil {
			h |= ShrinkPlanningDepth | CompressContext
		}
	}
	return h
}

// Due returns how long until the next cycle, taking the coming steps into account; 0 if
// it is due, as before the first cycle.
func (p *Pacer) Due(now time.Duration) time.Duration {
	at := p.notBefore
	if p.begun {
		at = max(at, p.due())
	}
	return max(0, at-now)
}

// due returns the first instant that is an interval after the start, by the factor at
// that instant.
func (p *Pacer) due() time.Duration {
	for n := range p.config.Steps {
		until := p.from + time.Duration(n+1)*p.config.StepEvery
		at := p.start + p.Interval(until-1)
		if n > 0 {
			at = max(at, until-p.config.StepEvery) // not before the step
		}
		if at < until {
			return at
		}
	}
	last := p.from + time.Duration(p.config.Steps)*p.config.StepEvery
	return max(p.start+p.Interval(last), last)
}

// Begin records that a cycle begins.
func (p *Pacer) Begin(now time.Duration) { p.begun, p.start = true, now }

func (p *Pacer) scaled(factor int64) time.Duration {
	// 24 h in nanoseconds times 100,000 thousandths fits.
	return time.Duration(int64(p.config.Base) * factor / one)
}

func (p *Pacer) concerns(s quota.Scope) bool {
	mine := p.config.Scope
	return (s.Tenant == "" || s.Tenant == mine.Tenant) && (s.Agent == "" || s.Agent == mine.Agent) && (s.Model == "" || s.Model == mine.Model)
}

// thousandths returns a factor clamped to 1 and the bound; NaN counts as 1.
func (p *Pacer) thousandths(f float64) int64 {
	if !(f > 1) {
		return one
	}
	return int64(math.Round(min(f*one, float64(p.max))))
}

func (p *Pacer) scope(s quota.Scope) pressure {
	if known, ok := p.scopes[s]; ok {
		return known
	}
	return pressure{factor: one}
}

// set stores the state of a scope and sets the target of the factor.
func (p *Pacer) set(now time.Duration, scope quota.Scope, s pressure) {
	released := p.scopes[scope].throttled && !s.throttled
	p.scopes[scope] = s
	aim := int64(one)
	for _, s := range p.scopes {
		aim = max(aim, s.factor)
		if s.throttled {
			aim = max(aim, 2*one)
		}
	}
	if p.config.Fixed {
		aim = one
	}
	current := p.factor(now)
	switch {
	case aim > current, aim == current && aim > one:
		p.peak, p.from = aim, now
		p.step = (aim - one + int64(p.config.Steps) - 1) / int64(p.config.Steps)
	case released:
		p.peak, p.from = current, now
	case p.planned(now) < current:
		// The factor has stayed here: the next step is due at once, but only one.
		p.peak, p.from = current, now-p.config.StepEvery
	}
	p.target = aim
}

// planned returns the factor that the steps alone would have led to.
func (p *Pacer) planned(at time.Duration) int64 {
	n := max(0, int64((at-p.from)/p.config.StepEvery))
	return max(one, p.peak-n*p.step) // years of steps of 1 ms fit
}

func (p *Pacer) factor(at time.Duration) int64 { return max(p.target, p.planned(at)) }

// span returns the length of an event's window.
func span(ms int64) time.Duration {
	const maxWait = 31 * 24 * time.Hour
	if ms <= 0 {
		return softSpan
	}
	return time.Duration(min(ms, int64(maxWait/time.Millisecond))) * time.Millisecond
}

// Hint is a set of ways to use less.
type Hint uint8

const (
	// ShrinkPlanningDepth: plan fewer steps ahead, so that a decision takes
	// fewer calls. Under soft pressure, and while throttled.
	ShrinkPlanningDepth Hint = 1 << iota
	// CompressContext: send less context, so that a call takes fewer tokens.
	// Under soft pressure.
	CompressContext
)

// Names returns the stable names of the hints in the set: shrink_planning_depth,
// compress_context. It is nil for the empty set.
func (h Hint) Names() []string {
	var names []string
	if h&ShrinkPlanningDepth != 0 {
		names = append(names, "shrink_planning_depth")
	}
	if h&CompressContext != 0 {
		names = append(names, "compress_context")
	}
	return names
}
