// Package pacing is the state machine of one connection: [Core] composes pacing,
// control law and breaker. It has no clock, lock or goroutine, so that the root
// package runs it in real time and the simulator in virtual time.
package pacing

import (
	"fmt"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
)

// Config is what a connection is paced by. Its fields are those of the root
// package's Config, where their meanings, defaults and bounds are; zero fields take
// the defaults.
type Config struct {
	Law                  string
	Ceiling, Initial     time.Duration
	Step                 time.Duration
	Factor               float64
	Tolerance            time.Duration
	JitterMin, JitterMax time.Duration
	MaxInFlight          int
	MaxRetryAfter        time.Duration
	Breaker              breaker.Config
	NoBreaker            bool
	Passive              bool
	MaxPools             int
	Seed                 uint64

	// Phase is the wall clock at instant 0, as the time since the Unix epoch.
	Phase time.Duration
}

// Defaults of [Config] that are not in another package.
const (
	DefaultJitterMax     = 150 * time.Millisecond
	DefaultMaxRetryAfter = 24 * time.Hour
	DefaultMaxPools      = 256
)

// noCeiling is the ceiling of a passive start for which the owner set none: nothing is
// held back for it.
const noCeiling = time.Nanosecond

// Rules are a [Config] that was checked, with the derived values. They do not
// change, and can be shared by any number of cores.
type Rules struct {
	law                  string
	params               control.Params
	tolerance            time.Duration
	jitterMin, jitterMax time.Duration
	maxInFlight          int
	maxRetryAfter        time.Duration
	breaker              breaker.Config
	noBreaker            bool
	passive              bool
	maxPools             int
}

// Resolve checks the configuration and fills in the defaults. The error names the
// field, its value and its bound.
func (c Config) Resolve() (*Rules, error) {
	if c.Passive && c.Ceiling == 0 {
		c.Ceiling = noCeiling
	}
	params, err := control.Params{
		Ceiling: c.Ceiling, Initial: c.Initial, Step: c.Step, Factor: c.Factor, Phase: c.Phase,
	}.Resolve()
	if err != nil {
		return nil, err
	}
	r := &Rules{
		law: c.Law, params: params, tolerance: max(c.Tolerance, 0), jitterMin: c.JitterMin, jitterMax: max(c.JitterMax, 0),
		maxInFlight: c.MaxInFlight, maxRetryAfter: c.MaxRetryAfter, noBreaker: c.NoBreaker,
		passive: c.Passive, maxPools: c.MaxPools,
	}
	if r.breaker, err = c.Breaker.Resolve(); err != nil {
		return nil, err
	}
	if c.Tolerance == 0 {
		r.tolerance = 2 * params.Initial
	}
	if c.JitterMax == 0 {
		// Noise longer than the interval would be the interval.
		r.jitterMax = max(min(DefaultJitterMax, params.Ceiling), c.JitterMin)
	}
	if c.MaxPools == 0 {
		r.maxPools = DefaultMaxPools
	}
	if c.MaxRetryAfter == 0 {
		r.maxRetryAfter = DefaultMaxRetryAfter
	}
	switch {
	case c.JitterMin < 0 || c.JitterMin > params.Ceiling:
		return nil, fmt.Errorf("jitter minimum is %v, must be from 0 to the ceiling's interval of %v", c.JitterMin, params.Ceiling)
	case r.jitterMax < c.JitterMin:
		return nil, fmt.Errorf("jitter maximum is %v, must be at least the minimum of %v", r.jitterMax, c.JitterMin)
	case c.MaxInFlight < 0:
		return nil, fmt.Errorf("max in flight is %d, must not be negative", c.MaxInFlight)
	case c.MaxPools < 0:
		return nil, fmt.Errorf("max pools is %d, must not be negative", c.MaxPools)
	case c.MaxRetryAfter < 0:
		return nil, fmt.Errorf("max Retry-After is %v, must not be negative", c.MaxRetryAfter)
	}
	if _, err := control.New(c.Law, &r.params); err != nil {
		return nil, err
	}
	return r, nil
}
