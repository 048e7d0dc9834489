// Package retry decides whether a failed attempt may be retried and how long to wait
// first: full-jitter exponential backoff, and a retry budget for a whole run, so that
// retries do not multiply the load on a failing provider.
//
// It does not decide which failures are worth a retry (reason.Class.Retryable does) and
// does not wait. Randomness is passed in. A [Budget] is a plain value, not safe for
// concurrent use: its owner holds a lock. All methods take constant time and do not
// allocate.
//
// Sources: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015; the
// retry token bucket of the AWS SDKs' standard mode.
//
// Stability: stable.
package retry

import (
	"cmp"
	"fmt"
	"math/bits"
	"time"
)

// Backoff configures the waits between the attempts of one request. Zero fields take the
// defaults.
type Backoff struct {
	// Base is the bound of the first wait. Default 200 ms.
	Base time.Duration
	// Cap bounds every wait. Default 20 s.
	Cap time.Duration
	// Attempts is how often one request may be sent, including the first time. Default 5.
	Attempts int
}

// Resolve fills in defaults and checks the rest; the error names field, value and bound.
func (b Backoff) Resolve() (Backoff, error) {
	b.Base = cmp.Or(b.Base, 200*time.Millisecond)
	b.Cap = cmp.Or(b.Cap, max(20*time.Second, b.Base))
	b.Attempts = cmp.Or(b.Attempts, 5)
	switch {
	case b.Base < 0:
		return b, fmt.Errorf("retry: base is %v, must not be negative", b.Base)
	case b.Cap < b.Base:
		return b, fmt.Errorf("retry: cap is %v, must be at least the base of %v", b.Cap, b.Base)
	case b.Attempts < 1:
		return b, fmt.Errorf("retry: attempts is %d, must be at least 1", b.Attempts)
	}
	return b, nil
}

// Wait returns the wait before retry number n (0 is the first retry): uniform in [0,
// min(Cap, Base * 2^n)], computed from 64 random bits.
func (b Backoff) Wait(n int, random uint64) time.Duration {
	bound := b.Cap
	if n < 62 && b.Base <= b.Cap>>n {
		bound = b.Base << n
	}
	// Multiply-shift maps the bits onto [0, bound] without a modulo's bias.
	hi, _ := bits.Mul64(random, uint64(bound)+1)
	return time.Duration(hi)
}

// Limits configures a [Budget].
type Limits struct {
	// Capacity is the most tokens that the budget can hold. Default 100, or, if
	// MaxRequests is set, a fifth of it, rounded up.
	Capacity int
	// Start is the initial number of tokens, at most Capacity. Default 8.
	Start int
	// PerSuccess is what a success earns, in thousandths of a token. Default 200.
	PerSuccess int
	// MaxRequests is the run's request cap, from which Capacity is derived; 0 means none.
	MaxRequests int64
}

// Resolve fills in defaults and checks the rest; the error names field, value and bound.
func (l Limits) Resolve() (Limits, error) {
	if l.Capacity == 0 {
		l.Capacity = 100
		if l.MaxRequests > 0 {
			l.Capacity = int(min((l.MaxRequests+4)/5, 1<<30))
		}
	}
	l.Start = cmp.Or(l.Start, 8)
	l.PerSuccess = cmp.Or(l.PerSuccess, 200)
	switch {
	case l.MaxRequests < 0:
		return l, fmt.Errorf("retry: max requests is %d, must not be negative", l.MaxRequests)
	case l.Capacity < 0:
		return l, fmt.Errorf("retry: capacity is %d, must not be negative", l.Capacity)
	case l.Start < 0:
		return l, fmt.Errorf("retry: start is %d, must not be negative", l.Start)
	case l.PerSuccess < 0:
		return l, fmt.Errorf("retry: per success is %d thousandths, must not be negative", l.PerSuccess)
	}
	l.Start = min(l.Start, l.Capacity)
	return l, nil
}

// Budget is a token bucket for the retries of a whole run. It is independent of the bound
// on retries of one request.
type Budget struct {
	milli, capacity, gain int64
}

// NewBudget returns a budget; the limits must have been resolved.
func NewBudget(l Limits) Budget {
	return Budget{milli: int64(l.Start) * 1000, capacity: int64(l.Capacity) * 1000, gain: int64(l.PerSuccess)}
}

// Take takes one token for one retry. If there is less than one, ok is false and nothing
// is taken.
func (b *Budget) Take() (ok bool) {
	if b.milli < 1000 {
		return false
	}
	b.milli -= 1000
	return true
}

// Return gives back a token taken for a retry that was not sent.
func (b *Budget) Return() { b.milli = min(b.milli+1000, b.capacity) }

// Success adds what one success earns.
func (b *Budget) Success() { b.milli = min(b.milli+b.gain, b.capacity) }

// Left returns the number of whole retries left.
func (b *Budget) Left() int { return int(b.milli / 1000) }
