package headway

import (
	"cmp"
	"fmt"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// Config is what a connection is governed by. Zero fields take the defaults.
type Config struct {
	// Name is the connection's name in refusals and events. Never a credential.
	Name string

	// Ceiling is the shortest interval between two attempts that is ever
	// allowed, at most 24 h. Default 250 ms. Nothing goes faster: no law, header
	// or stored state.
	Ceiling time.Duration
	// Initial is the interval before the first response, at least the ceiling.
	// Default 1 s.
	Initial time.Duration
	// Law is the control law by name. Default control.DefaultLaw.
	Law string
	// Step is what a success takes off the interval under law "aimd". Default 100 ms.
	Step time.Duration
	// Factor is what a throttle multiplies the rate by under law "aimd", between
	// 0 and 1. Default 0.5.
	Factor float64
	// Tolerance is the burst tolerance: how much idle time is credited. Default
	// twice the initial interval; negative means none.
	Tolerance time.Duration

	// JitterMin and JitterMax bound the noise that is put under each wait so
	// that clients do not run in step. It is a lower bound of a single wait,
	// never of the interval, and an attempt that waits behind others does not pay
	// it. JitterMax defaults to 150 ms, or to the ceiling when that is shorter;
	// negative means none. JitterMin must not exceed the ceiling.
	JitterMin, JitterMax time.Duration

	// Passive holds nothing back until the provider first refuses an attempt or advertises
	// a limit; then the law takes over. Without a Ceiling nothing bounds the rate until
	// then. Default: the start is conservative, at the initial interval.
	Passive bool
	// MaxPools bounds the pools of the connection that are in use (see [Request].Pool).
	// Beyond it, the one that was used least recently is given up; what it learned is
	// kept. Default 256.
	MaxPools int

	// MaxInFlight bounds the attempts under way at once. Default 0: no bound but
	// the rate.
	MaxInFlight int
	// MaxRetryAfter bounds how long a Retry-After can hold up all attempts: a provider
	// that asks for ten years is asked again after this long. Default 24 h.
	MaxRetryAfter time.Duration
	// MaxWait is the longest wait in place; a longer one is a refusal that says
	// when to come back. Default 5 min.
	MaxWait time.Duration
	// PermitTimeout is when a permit that was never settled is given up, with
	// nothing learned from it. Default 15 min.
	PermitTimeout time.Duration

	// Fleet shares the pace with other processes on the same credential; package fleet
	// has them. MaxInFlight, the queue and the circuit stay this governor's own, and a
	// TryAcquire then seldom has a permit. Such a governor must be closed. Default: none.
	Fleet Fleet

	// Breaker is the circuit breaker's shape; NoBreaker leaves it out.
	Breaker   Breaker
	NoBreaker bool

	// OnEvent is called for rate changes and circuit moves, after the fact and
	// outside every lock. Calls may come from several goroutines at once. The function
	// that event.Log returns fits.
	OnEvent func(Event)

	// Seed varies the jitter; the same seed and calls give the same waits.
	Seed uint64
}

// Defaults of [Config] that are not in another package.
const (
	DefaultJitterMax     = pacing.DefaultJitterMax     // 150 ms
	DefaultMaxRetryAfter = pacing.DefaultMaxRetryAfter // 24 h
	DefaultMaxPools      = pacing.DefaultMaxPools      // 256
	DefaultMaxWait       = 5 * time.Minute
	DefaultPermitTimeout = 15 * time.Minute
)

// settings is a Config that was checked; shared by all connections that were made
// from it.
type settings struct {
	rules         *pacing.Rules
	origin        time.Time // instants are durations since this, on its monotonic clock
	maxWait       time.Duration
	permitTimeout time.Duration
	unbounded     bool // there is no ceiling
	onEvent       func(Event)
}

// resolve checks a Config. The instant 0 is now.
func resolve(c Config) (*settings, error) {
	s := &settings{origin: time.Now(), maxWait: c.MaxWait, permitTimeout: c.PermitTimeout, onEvent: c.OnEvent, unbounded: c.Passive && c.Ceiling == 0}
	of := pacingOf(c)
	of.Phase = max(0, time.Duration(s.origin.UnixNano()))
	var err error
	if s.rules, err = of.Resolve(); err != nil {
		return nil, fmt.Errorf("headway: %w", err)
	}
	s.maxWait = cmp.Or(s.maxWait, DefaultMaxWait)
	s.permitTimeout = cmp.Or(s.permitTimeout, DefaultPermitTimeout)
	switch {
	case s.maxWait < 0:
		return nil, fmt.Errorf("headway: max wait is %v, must not be negative", s.maxWait)
	case s.permitTimeout < 0:
		return nil, fmt.Errorf("headway: permit timeout is %v, must not be negative", s.permitTimeout)
	}
	return s, nil
}

// pacingOf is what of a Config paces.
func pacingOf(c Config) pacing.Config {
	return pacing.Config{
		Law: c.Law, Ceiling: c.Ceiling, Initial: c.Initial, Step: c.Step, Factor: c.Factor, Tolerance: c.Tolerance,
		JitterMin: c.JitterMin, JitterMax: c.JitterMax, MaxInFlight: c.MaxInFlight, MaxRetryAfter: c.MaxRetryAfter,
		Breaker: c.Breaker, NoBreaker: c.NoBreaker, Passive: c.Passive, MaxPools: c.MaxPools,
	}
}

// Names for what a program hands in and gets back, so that it needs only this
// package to settle permits, to look at refusals and events, and for a warm start.
type (
	// Class is how an attempt ended, as in [Outcome].
	Class = reason.Class
	// Reason is why something waits or was refused.
	Reason = reason.Reason
	// Refusal is the error of an attempt that may not be sent: why, and when to come
	// back. Match it with errors.As as *Refusal.
	Refusal = reason.Refusal
	// State is what [Governor.Learned] gives and [Governor.Restore] takes.
	State = control.State
	// Event is what [Config].OnEvent gets.
	Event = event.Event
	// Breaker is the circuit breaker's shape. The zero value takes the defaults.
	Breaker = breaker.Config
)

// The classes.
const (
	Unknown    = reason.Unknown    // Nothing was learned: the caller canceled, the permit expired.
	OK         = reason.OK         // The provider served the request.
	Throttled  = reason.Throttled  // Refused for rate: 429 and the like.
	Overloaded = reason.Overloaded // Refused for load: 503, 529.
	Failed     = reason.Failed     // Another 5xx or 408, which says nothing of the rate.
	Rejected   = reason.Rejected   // Another 4xx: the request was at fault.
	Lost       = reason.Lost       // No response at all.
)

// Fresh reports whether a state that was recorded at one instant may be used at
// another, and if not, why: it may be six hours old. Both are of the wall clock.
func Fresh(recorded, now time.Time) error { return control.Fresh(recorded, now, control.StaleAfter) }
