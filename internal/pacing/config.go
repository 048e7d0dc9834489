// Package pacing is the state machine of one connection: [Core] combines pacing, control
// law and circuit breaker. It has no clock, lock or goroutine, so that the root package
// can run it in real time and the simulator in virtual time.
package pacing

import (
	"fmt"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
)

// Config configures the pacing of a connection. The root package's Config has the same
// fields and documents their meanings, defaults and bounds. Zero fields take the
// defaults.
type Config struct {
	Law                  string
	Ceiling, Initial     time.Duration
	Step                 time.Duration
	Factor               float64
	Windows              []time.Duration
	Tolerance            time.Duration
	JitterMin, JitterMax time.Duration
	MaxInFlight          int
	MaxRetryAfter        time.Duration
	Breaker              breaker.Config
	NoBreaker            bool
	Passive              bool
	MaxPools             int
	Seed                 uint64

	// Phase is the wall-clock time at instant 0, since the Unix epoch.
	Phase time.Duration
}

// Defaults of [Config] that are not defined in another package.
const (
	DefaultJitterMax     = 150 * time.Millisecond
	DefaultMaxRetryAfter = control.DefaultMaxRetryAfter
	DefaultMaxPools      = 256
)

// noCeiling stands for the ceiling of a passive start without one: it holds nothing back.
const noCeiling = time.Nanosecond

// Rules are a checked [Config] with the values derived from it. They are immutable and
// can be shared by any number of cores.
type Rules struct {
	law                  string
	params               control.Params
	tolerance            time.Duration
	jitterMin, jitterMax time.Duration
	maxInFlight          int
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
		Ceiling: c.Ceiling, Initial: c.Initial, Step: c.Step, Factor: c.Factor, Windows: c.Windows, Phase: c.Phase,
		MaxRetryAfter: c.MaxRetryAfter,
	}.Resolve()
	if err != nil {
		return nil, err
	}
	r := &Rules{
		law: c.Law, params: params, tolerance: max(c.Tolerance, 0), jitterMin: c.JitterMin, jitterMax: max(c.JitterMax, 0),
		maxInFlight: c.MaxInFlight, noBreaker: c.NoBreaker,
		passive: c.Passive, maxPools: c.MaxPools,
	}
	if r.breaker, err = c.Breaker.Resolve(); err != nil {
		return nil, err
	}
	if c.Tolerance == 0 {
		r.tolerance = 2 * params.Initial
	}
	if c.JitterMax == 0 {
		// Jitter longer than the interval would determine the interval.
		r.jitterMax = max(min(DefaultJitterMax, params.Ceiling), c.JitterMin)
	}
	if c.MaxPools == 0 {
		r.maxPools = DefaultMaxPools
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
	}
	if _, err := control.New(c.Law, &r.params); err != nil {
		return nil, err
	}
	return r, nil
}
