package population

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// dice draws what a member is made of.
type dice struct{ rng rand.PCG }

// uniform is in [0, 1).
func (d *dice) uniform() float64 { return float64(d.rng.Uint64()>>11) / (1 << 53) }

func (d *dice) between(low, high float64) float64 { return low + (high-low)*d.uniform() }

// log is log-uniform.
func (d *dice) log(low, high float64) float64 {
	return low * math.Pow(math.Max(1, high/low), d.uniform())
}

// whole is a whole number from low to high, both included.
func (d *dice) whole(low, high int) int { return low + int(d.uniform()*float64(high-low+1)) }

func (d *dice) chance(p float64) bool { return d.uniform() < p }

// shuffled is a permutation of all.
func shuffled[T any](d *dice, all []T) []T {
	for i := len(all) - 1; i > 0; i-- {
		j := d.whole(0, i)
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// odds is a value with its weight.
type odds[T any] struct {
	weight float64
	value  T
}

func pick[T any](d *dice, from ...odds[T]) T {
	sum := 0.0
	for _, o := range from {
		sum += o.weight
	}
	at := d.uniform() * sum
	for _, o := range from {
		if at -= o.weight; at < 0 {
			return o.value
		}
	}
	return from[len(from)-1].value
}

// span is a duration of that many seconds with three digits that mean something,
// at least a microsecond.
func span(seconds float64) time.Duration {
	return max(time.Microsecond, time.Duration(math.Round(digits(seconds*1e9, 3))))
}

// digits rounds to so many significant digits, exactly as they would be written.
func digits(x float64, n int) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', n-1, 64), 64)
	if err != nil {
		panic(err) // it was written by FormatFloat
	}
	return rounded
}

// rate is a rate of that many a second, as a file has it, with three digits.
func rate(perSecond float64) scenario.Rate {
	unit, factor := "/s", 1.0
	if perSecond < 1 {
		unit, factor = "/min", 60
	}
	r, err := scenario.ParseRate(strconv.FormatFloat(digits(perSecond*factor, 3), 'f', -1, 64) + unit)
	if err != nil {
		panic(err) // rates are drawn from 1 an hour or so to some thousands a second
	}
	return r
}
