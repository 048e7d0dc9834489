package dispatch

import (
	"cmp"
	"fmt"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/retry"
)

// Params are the parameters of a load. Zero fields mean the defaults.
type Params struct {
	// Law is the parallelism of each identity.
	Law control.ParallelismParams
	// Breaker stops an identity if failures, or throttles over several epochs, accumulate
	// among its last outcomes.
	Breaker breaker.Config
	// Backoff spreads the retries of one batch, and the waits after a throttle without a
	// Retry-After. Budget bounds the retries of the whole run. Throttled batches do not
	// count as retries: they wait for the gate.
	Backoff retry.Backoff
	Budget  retry.Limits
	// Hinted means that the server recommends a parallelism with each response. Until the
	// first response an identity has one batch in flight. Otherwise it starts as the law
	// does.
	Hinted bool
	// BatchRows and BatchBytes bound a batch. Default 1000 rows and 4 MiB. A larger row is
	// sent alone.
	BatchRows, BatchBytes int
	// FirstRows is the number of rows in the first batches. Default 100, at most BatchRows.
	FirstRows int
	// TargetTime is the duration that a batch should take. Default 10 s. If negative, the
	// size does not change.
	TargetTime time.Duration
	// WindowRows and WindowBytes bound the rows that are held: waiting, in flight, and to
	// be sent again. Default 100,000 rows and 16 MiB.
	WindowRows, WindowBytes int
	// Linger is how long rows wait until a batch is full. Default 1 s.
	Linger time.Duration
	// StallTimeout is the longest time without a settled row, including waits that the
	// provider asked for. After it the load stops and the rest is owed. Default 15 min.
	StallTimeout time.Duration
	// Resend says which rows may be sent again if they may have been written. Others become
	// uncertain.
	Resend Resend
	// MaxRejects stops the load if more rows are rejected. 0 means no bound.
	MaxRejects int64
	// Seed is the seed of the random numbers.
	Seed uint64
}

// Defaults of [Params].
const (
	DefaultBatchRows    = 1000
	DefaultBatchBytes   = 4 << 20
	DefaultFirstRows    = 100
	DefaultTargetTime   = 10 * time.Second
	DefaultWindowRows   = 100_000
	DefaultWindowBytes  = 16 << 20
	DefaultLinger       = time.Second
	DefaultStallTimeout = 15 * time.Minute
)

// Resolve fills in defaults and checks the rest. The error names field, value and bound.
func (p Params) Resolve() (Params, error) {
	var err error
	if p.Law, err = p.Law.Resolve(); err != nil {
		return p, err
	}
	if p.Breaker, err = p.Breaker.Resolve(); err != nil {
		return p, err
	}
	if p.Backoff, err = p.Backoff.Resolve(); err != nil {
		return p, err
	}
	if p.Budget, err = p.Budget.Resolve(); err != nil {
		return p, err
	}
	p.BatchRows = cmp.Or(p.BatchRows, DefaultBatchRows)
	p.BatchBytes = cmp.Or(p.BatchBytes, DefaultBatchBytes)
	p.FirstRows = min(cmp.Or(p.FirstRows, DefaultFirstRows), p.BatchRows)
	p.TargetTime = cmp.Or(p.TargetTime, DefaultTargetTime)
	p.WindowRows = cmp.Or(p.WindowRows, DefaultWindowRows)
	p.WindowBytes = cmp.Or(p.WindowBytes, DefaultWindowBytes)
	p.Linger = cmp.Or(p.Linger, DefaultLinger)
	p.StallTimeout = cmp.Or(p.StallTimeout, DefaultStallTimeout)
	for _, f := range []struct {
		name  string
		value int
		most  int
	}{
		{"batch rows", p.BatchRows, 1 << 20}, {"batch bytes", p.BatchBytes, 1 << 30},
		{"first rows", p.FirstRows, p.BatchRows},
		{"window rows", p.WindowRows, 1 << 30}, {"window bytes", p.WindowBytes, 1 << 40},
	} {
		if f.value < 1 || f.value > f.most {
			return p, fmt.Errorf("dispatch: %s is %d, must be from 1 to %d", f.name, f.value, f.most)
		}
	}
	switch {
	case p.TargetTime > 24*time.Hour:
		return p, fmt.Errorf("dispatch: target time is %v, must be at most 24h", p.TargetTime)
	case p.Linger < 0 || p.Linger > 24*time.Hour:
		return p, fmt.Errorf("dispatch: linger is %v, must be from 1ns to 24h", p.Linger)
	case p.StallTimeout < 0 || p.StallTimeout > 366*24*time.Hour:
		return p, fmt.Errorf("dispatch: stall timeout is %v, must be from 1ns to 366 days", p.StallTimeout)
	case p.Resend > ResendAny:
		return p, fmt.Errorf("dispatch: resend is %d, must be one of 0 to %d", p.Resend, ResendAny)
	case p.MaxRejects < 0:
		return p, fmt.Errorf("dispatch: max rejects is %d, must not be negative", p.MaxRejects)
	}
	return p, nil
}

// Resend says what may be sent again although it may have been written.
type Resend uint8

// The kinds of operation.
const (
	// ResendNothing: sending twice writes two rows, as for a plain create.
	ResendNothing Resend = iota
	// ResendWhole: the same rows in the same batch, as with an idempotency key for each batch.
	ResendWhole
	// ResendAny: any row, as for an upsert.
	ResendAny
)
