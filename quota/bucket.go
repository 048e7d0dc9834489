package quota

import (
	"math"
	"math/bits"
	"time"
)

// nano is the number of parts of a call or token.
const nano = 1_000_000_000

// floor bounds debt, so that arithmetic cannot overflow: eight thousand million tokens.
const floor = -8 * nano * nano

// The budgets that refill by the nanosecond.
const (
	calls = iota
	tokens
	inputTokens
	outputTokens
	kinds
)

var kindNames = [kinds]string{"calls", "tokens", "inputTokens", "outputTokens"}

// refill says how fast a bucket fills: num/den whole units a second, which equals num/den
// nano-units a nanosecond, up to capacity in nano-units.
type refill struct {
	num, den uint64
	capacity int64
}

// perMinute returns the rate of n units a minute as a reduced fraction, without rounding.
func perMinute(n, capacity int64) refill { return reduced(uint64(n), 60, capacity) }

// spread returns the rate of nearly n units a minute with a small burst.
func spread(n int64) refill { return reduced(98*uint64(n), 100*60, max(1, (n+11)/12)) }

// perSecond returns a rate given in units a second, to nine decimal places.
func perSecond(r float64, capacity int64) refill {
	return reduced(uint64(math.Round(r*nano)), nano, capacity)
}

func reduced(num, den uint64, capacity int64) refill {
	a, b := num, den
	for b != 0 {
		a, b = b, a%b
	}
	return refill{num / a, den / a, capacity * nano}
}

// bucket is a token bucket. Its level is in nano-units and may be negative, so that
// overshoot is remembered. rem is the inflow short of one nano-unit, in parts of 1/den,
// so that frequent updates lose nothing.
type bucket struct {
	level int64
	rem   uint64
}

func (b *bucket) fill(r *refill, elapsed time.Duration) {
	missing := r.capacity - b.level
	if missing <= 0 {
		b.level, b.rem = r.capacity, 0
		return
	}
	hi, lo := bits.Mul64(uint64(elapsed), r.num)
	lo, carry := bits.Add64(lo, b.rem, 0)
	hi += carry
	var in, rem uint64
	switch {
	case hi == 0 && r.den == 1:
		in = lo
	case hi == 0:
		in, rem = lo/r.den, lo%r.den
	case hi < r.den:
		in, rem = bits.Div64(hi, lo, r.den)
	default:
		in = math.MaxUint64
	}
	if in >= uint64(missing) {
		b.level, b.rem = r.capacity, 0
		return
	}
	b.level += int64(in)
	b.rem = rem
}

// take removes nano-units; a negative number gives back, up to the capacity.
func (b *bucket) take(r *refill, n int64) {
	b.level = min(max(b.level-n, floor), r.capacity)
	if b.level == r.capacity {
		b.rem = 0
	}
}

// wait returns the shortest time after which the level is at least need.
func (b *bucket) wait(r *refill, need int64) time.Duration {
	if b.level >= need {
		return 0
	}
	hi, lo := bits.Mul64(uint64(need-b.level), r.den)
	lo, borrow := bits.Sub64(lo, b.rem, 0)
	hi -= borrow
	lo, carry := bits.Add64(lo, r.num-1, 0) // round up
	hi += carry
	if hi >= r.num {
		return Never
	}
	t, _ := bits.Div64(hi, lo, r.num)
	return time.Duration(min(t, math.MaxInt64))
}
