package control

import (
	"cmp"
	"fmt"
	"time"
)

// ParallelismParams are the numbers that a [Parallelism] is made with. Zero
// fields take the defaults.
type ParallelismParams struct {
	// Disabled keeps the level at the server's recommendation, whatever happens.
	Disabled bool
	// Max is what the server is assumed to recommend until it says so. Default 52.
	Max int
	// Ceiling is the owner's bound, above which no recommendation counts. Default
	// 256, at least Max.
	Ceiling int
	// Min is the least level, from 1 to Max. Default 1. A server that recommends
	// less is obeyed all the same.
	Min int
	// InitialFactor is the part of the maximum to start with, in (0, 1]. Default 0.5.
	InitialFactor float64
	// Increase is what one step adds. Default 2.
	Increase int
	// DecreaseFactor is what a throttle multiplies the level by, in (0, 1). Default 0.5.
	DecreaseFactor float64
	// StabilizationBatches is how many successes a step needs. Default 3.
	StabilizationBatches int
	// MinIncreaseInterval is the time that a step needs. Default 5 s.
	MinIncreaseInterval time.Duration
	// RecoveryMultiplier is how many steps are taken at once below the last level
	// known to be good. Default 2.
	RecoveryMultiplier int
	// LastKnownGoodTTL is how long that level is believed. Default 5 min.
	LastKnownGoodTTL time.Duration
	// IdleReset is the time without work after which to start afresh. Default 5 min.
	IdleReset time.Duration
	// BusyBudget is how much execution time the server allows in each BusyWindow,
	// over all requests (Dataverse: 1,200 s in 300 s). 0: unknown, until
	// [Parallelism.Budget] sets it.
	BusyBudget, BusyWindow time.Duration
}

// Defaults of [ParallelismParams].
const (
	DefaultMaxParallelism     = 52
	DefaultParallelismCeiling = 256
	DefaultInitialFactor      = 0.5
	DefaultParallelismStep    = 2
	DefaultDecreaseFactor     = 0.5
	DefaultStabilization      = 3
	DefaultMinIncrease        = 5 * time.Second
	DefaultRecoveryMultiplier = 2
	DefaultLastKnownGoodTTL   = 5 * time.Minute
	DefaultIdleReset          = 5 * time.Minute
)

// maxParallelism bounds every level, so that no arithmetic on one overflows.
const maxParallelism = 1 << 16

// Resolve fills in defaults and checks the rest; the error names field, value and bound.
func (p ParallelismParams) Resolve() (ParallelismParams, error) {
	p.Max = cmp.Or(p.Max, DefaultMaxParallelism)
	p.Ceiling = cmp.Or(p.Ceiling, max(DefaultParallelismCeiling, p.Max))
	p.Min = cmp.Or(p.Min, 1)
	p.InitialFactor = cmp.Or(p.InitialFactor, DefaultInitialFactor)
	p.Increase = cmp.Or(p.Increase, DefaultParallelismStep)
	p.DecreaseFactor = cmp.Or(p.DecreaseFactor, DefaultDecreaseFactor)
	p.StabilizationBatches = cmp.Or(p.StabilizationBatches, DefaultStabilization)
	p.MinIncreaseInterval = cmp.Or(p.MinIncreaseInterval, DefaultMinIncrease)
	p.RecoveryMultiplier = cmp.Or(p.RecoveryMultiplier, DefaultRecoveryMultiplier)
	p.LastKnownGoodTTL = cmp.Or(p.LastKnownGoodTTL, DefaultLastKnownGoodTTL)
	p.IdleReset = cmp.Or(p.IdleReset, DefaultIdleReset)
	switch {
	case p.Max < 1 || p.Max > maxParallelism:
		return p, fmt.Errorf("control: max parallelism is %d, must be from 1 to %d", p.Max, maxParallelism)
	case p.Ceiling < p.Max || p.Ceiling > maxParallelism:
		return p, fmt.Errorf("control: parallelism ceiling is %d, must be from the max of %d to %d", p.Ceiling, p.Max, maxParallelism)
	case p.Min < 1 || p.Min > p.Max:
		return p, fmt.Errorf("control: min parallelism is %d, must be from 1 to the max of %d", p.Min, p.Max)
	case !(p.InitialFactor > 0 && p.InitialFactor <= 1):
		return p, fmt.Errorf("control: initial factor is %v, must be above 0 and at most 1", p.InitialFactor)
	case p.Increase < 0 || p.Increase > maxParallelism:
		return p, fmt.Errorf("control: increase is %d, must be from 1 to %d", p.Increase, maxParallelism)
	case !(p.DecreaseFactor > 0 && p.DecreaseFactor < 1):
		return p, fmt.Errorf("control: decrease factor is %v, must be between 0 and 1", p.DecreaseFactor)
	case p.StabilizationBatches < 0:
		return p, fmt.Errorf("control: stabilization batches is %d, must be at least 1", p.StabilizationBatches)
	case p.RecoveryMultiplier < 0 || p.RecoveryMultiplier > maxParallelism:
		return p, fmt.Errorf("control: recovery multiplier is %d, must be from 1 to %d", p.RecoveryMultiplier, maxParallelism)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"min increase interval", p.MinIncreaseInterval}, {"last known good TTL", p.LastKnownGoodTTL},
		{"idle reset", p.IdleReset}, {"busy budget", p.BusyBudget}, {"busy window", p.BusyWindow},
	} {
		if d.value < 0 || d.value > 24*time.Hour {
			return p, fmt.Errorf("control: %s is %v, must be from 1ns to 24h", d.name, d.value)
		}
	}
	if (p.BusyBudget == 0) != (p.BusyWindow == 0) {
		return p, fmt.Errorf("control: busy budget is %v in a busy window of %v, must both be set or neither", p.BusyBudget, p.BusyWindow)
	}
	return p, nil
}
