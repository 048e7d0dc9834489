package headway

import (
	"fmt"
	"time"

	"github.com/headway-go/headway/control"
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
	// never of the interval. JitterMax defaults to 150 ms, or to the ceiling when
	// that is shorter; negative means none. JitterMin must not exceed the ceiling.
	JitterMin, JitterMax time.Duration

	// MaxInFlight bounds the attempts under way at once. Default 0: no bound but
	// the rate.
	MaxInFlight int
	// MaxWait is the longest wait in place; a longer one is a refusal that says
	// when to come back. Default 5 min.
	MaxWait time.Duration
	// PermitTimeout is when a permit that was never settled is given up, with
	// nothing learned from it. Default 15 min.
	PermitTimeout time.Duration

	// Breaker is the circuit breaker's shape; NoBreaker leaves it out.
	Breaker   Breaker
	NoBreaker bool

	// OnEvent is told of rate changes and circuit moves, after the fact and
	// outside every lock. Calls may come from several goroutines at once. The Add
	// of an event.Recorder fits.
	OnEvent func(Event)

	// Seed varies the jitter; the same seed and calls give the same waits.
	Seed uint64
}

// Defaults of [Config] that are not in another package.
const (
	DefaultJitterMax     = 150 * time.Millisecond
	DefaultMaxWait       = 5 * time.Minute
	DefaultPermitTimeout = 15 * time.Minute

	// maxCooldown bounds what a Retry-After can hold up: a provider that says
	// "ten years" is asked again after a day.
	maxCooldown = 24 * time.Hour
)

// settings is a Config that was checked, with the derived values; shared by
// all connections that were made from it.
type settings struct {
	Config

	params    control.Params
	tolerance time.Duration
	origin    time.Time // instants are durations since this, on its monotonic clock
}

func resolve(c Config) (*settings, error) {
	params, err := control.Params{
		Ceiling: c.Ceiling, Initial: c.Initial, Step: c.Step, Factor: c.Factor,
	}.Resolve()
	if err != nil {
		return nil, fmt.Errorf("headway: %w", err)
	}
	c.Ceiling, c.Initial = params.Ceiling, params.Initial
	if c.Breaker, err = c.Breaker.Resolve(); err != nil {
		return nil, fmt.Errorf("headway: %w", err)
	}
	s := &settings{Config: c, params: params}
	switch {
	case c.Tolerance == 0:
		s.tolerance = 2 * params.Initial
	case c.Tolerance > 0:
		s.tolerance = c.Tolerance
	}
	switch {
	case c.JitterMax == 0:
		// Noise longer than the interval would be the interval.
		s.JitterMax = max(min(DefaultJitterMax, params.Ceiling), c.JitterMin)
	case c.JitterMax < 0:
		s.JitterMax = 0
	}
	if c.MaxWait == 0 {
		s.MaxWait = DefaultMaxWait
	}
	if c.PermitTimeout == 0 {
		s.PermitTimeout = DefaultPermitTimeout
	}
	switch {
	case c.JitterMin < 0 || c.JitterMin > params.Ceiling:
		return nil, fmt.Errorf("headway: jitter minimum is %v, must be from 0 to the ceiling's interval of %v", c.JitterMin, params.Ceiling)
	case s.JitterMax < c.JitterMin:
		return nil, fmt.Errorf("headway: jitter maximum is %v, must be at least the minimum of %v", s.JitterMax, c.JitterMin)
	case c.MaxInFlight < 0:
		return nil, fmt.Errorf("headway: max in flight is %d, must not be negative", c.MaxInFlight)
	case s.MaxWait < 0:
		return nil, fmt.Errorf("headway: max wait is %v, must not be negative", c.MaxWait)
	case s.PermitTimeout < 0:
		return nil, fmt.Errorf("headway: permit timeout is %v, must not be negative", c.PermitTimeout)
	}
	if _, err := control.New(c.Law, &s.params); err != nil {
		return nil, fmt.Errorf("headway: %w", err)
	}
	return s, nil
}

// begin fixes the instant 0.
func (s *settings) begin(now time.Time) {
	s.origin = now
	s.params.Phase = max(0, time.Duration(now.UnixNano()))
}
