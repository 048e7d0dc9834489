package retry

import (
	"cmp"
	"fmt"
)

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
