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

// Config configures the governor of a connection. Zero fields take the defaults.
type Config struct {
	// Name is the connection's name in refusals and events. It must not be a credential.
	Name string

	// Ceiling is the shortest interval between two attempts, at most 24 h. Default 250
	// ms. No law, header or stored state can make attempts go faster.
	Ceiling time.Duration
	// Initial is the interval before the first response, at least the ceiling.
	// Default 1 s.
	Initial time.Duration
	// Law is the name of the control law. Default control.DefaultLaw.
	Law string
	// Step is how much a success shortens the interval under law "aimd". Default 100 ms.
	Step time.Duration
	// Factor is what the rate is multiplied by after a throttle under law "aimd", between
	// 0 and 1. Default 0.5.
	Factor float64
	// Windows are the lengths of windows that you know of limits of, such as a minute for a
	// limit of 60 a minute; at most 24 h. When the provider refuses, the law takes the
	// limit first for one of such a length. Default: none; the law finds out.
	Windows []time.Duration
	// Tolerance is the burst tolerance: how much idle time is credited. Default
	// twice the initial interval; negative means none.
	Tolerance time.Duration

	// JitterMin and JitterMax bound a random minimum for each wait, which keeps clients
	// from running in step. The jitter never lengthens the interval, and an attempt that
	// waits behind others does not pay it. JitterMax defaults to 150 ms, or to the
	// ceiling if that is shorter; negative means no jitter. JitterMin must not exceed the
	// ceiling.
	JitterMin, JitterMax time.Duration

	// Passive holds nothing back until the provider first refuses an attempt or
	// advertises a limit; then the law takes over. Without a Ceiling nothing bounds the
	// rate until then. Default false: start at the initial interval.
	Passive bool
	// MaxPools bounds the pools of the connection that are in use (see [Request].Pool).
	// Beyond it, the least recently used pool is evicted; what it learned is kept.
	// Default 256.
	MaxPools int

	// MaxInFlight bounds the attempts in flight. Default 0: only the rate bounds them.
	MaxInFlight int
	// MaxRetryAfter bounds how long a Retry-After can hold up all attempts: a provider
	// that asks for ten years is tried again after this long, or sooner: law "cycle" finds out
	// whether a wait of days is in milliseconds. Default 24 h.
	MaxRetryAfter time.Duration
	// MaxWait is the longest time that Acquire waits; an attempt that would wait longer
	// is refused with the time to come back. Default 5 min.
	MaxWait time.Duration
	// PermitTimeout is when a permit that was never settled expires. Nothing is learned
	// from it. Default 15 min.
	PermitTimeout time.Duration

	// Fleet shares the pace with other processes that use the same credential; package
	// fleet has implementations. MaxInFlight, the queue and the circuit breaker stay
	// local to this governor. TryAcquire seldom succeeds, because permits come from the
	// fleet. The governor must be closed. Default nil: no fleet.
	Fleet Fleet

	// Breaker configures the circuit breaker; NoBreaker switches it off.
	Breaker   Breaker
	NoBreaker bool

	// OnEvent is called after rate changes and circuit transitions, without any lock
	// held, possibly from several goroutines at once. The function that event.Log returns
	// can be used here.
	OnEvent func(Event)

	// Seed seeds the jitter: the same seed and the same calls give the same waits.
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

// settings is a checked Config, shared by all connections that were made from it.
type settings struct {
	rules         *pacing.Rules
	origin        time.Time // instants are durations since this, on its monotonic clock
	maxWait       time.Duration
	permitTimeout time.Duration
	unbounded     bool // there is no ceiling
	onEvent       func(Event)
}

// resolve checks a Config. The instant 0 is the time of the call.
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

// pacingOf returns the part of a Config that concerns pacing.
func pacingOf(c Config) pacing.Config {
	return pacing.Config{
		Law: c.Law, Ceiling: c.Ceiling, Initial: c.Initial, Step: c.Step, Factor: c.Factor, Windows: c.Windows, Tolerance: c.Tolerance,
		JitterMin: c.JitterMin, JitterMax: c.JitterMax, MaxInFlight: c.MaxInFlight, MaxRetryAfter: c.MaxRetryAfter,
		Breaker: c.Breaker, NoBreaker: c.NoBreaker, Passive: c.Passive, MaxPools: c.MaxPools,
	}
}

// Aliases of the types that a program needs to settle permits, to inspect refusals and
// events, and to start warm, so that it can do so with this package alone.
type (
	// Class says how an attempt ended, as in [Outcome].
	Class = reason.Class
	// Reason says why an attempt waits or was refused.
	Reason = reason.Reason
	// Refusal is the error for an attempt that may not be sent: it says why, and when to
	// come back. Match it with errors.As as *Refusal.
	Refusal = reason.Refusal
	// State is what [Governor.Learned] returns and [Governor.Restore] accepts.
	State = control.State
	// Event is what [Config].OnEvent receives.
	Event = event.Event
	// Breaker configures the circuit breaker. The zero value takes the defaults.
	Breaker = breaker.Config
)

// The classes.
const (
	Unknown    = reason.Unknown    // Nothing was learned: the caller canceled, the permit expired.
	OK         = reason.OK         // The provider served the request.
	Throttled  = reason.Throttled  // Refused for rate: 429 and the like.
	Overloaded = reason.Overloaded // Refused for load: 503, 529.
	Failed     = reason.Failed     // Any other 5xx, or 408: says nothing about the rate.
	Rejected   = reason.Rejected   // Any other 4xx: the request was at fault.
	Lost       = reason.Lost       // No response at all.
)

// Fresh reports whether a state recorded at one instant may be used at another: it may be
// up to six hours old. The error says why not. Both are wall-clock times.
func Fresh(recorded, now time.Time) error { return control.Fresh(recorded, now, control.StaleAfter) }
