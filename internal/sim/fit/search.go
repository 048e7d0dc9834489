package fit

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// found is a rule with its size, and how well it explains a trace.
type found struct {
	rule
	cut
	cost float64 // what it leaves unexplained, plus the cost of its parameters
	// The trace allows any bucket rate from slowest to quickest.
	slowest, quickest float64
}

// The parameters of the search, in nats unless stated otherwise.
const (
	rateStep, windowStep, countedStep = 0.06, 0.04, 0.08 // relative steps
	burstStep                         = 1.3

	minWindow  = 20 * time.Millisecond
	fastest    = 100   // maximum rate of a bucket, as a multiple of the mean admitted rate
	refined    = 6     // number of candidates that are refined
	odd        = 2     // cost of an unusual window
	countsCost = 2     // cost of counting refused attempts
	sameAgain  = 0.5   // a smaller difference is none
	rounded    = 0.005 // the part of the explanation that a round number may cost
)

// scope is the set of points that a limit applies to, and what other limits explain.
type scope struct {
	all    int     // all points
	only   []point // points that the limit applies to
	fates  []Fate  // of these points; Unclear if another limit would have refused the point
	held   tally   // points that other limits would have refused
	room   tally   // all other points
	jitter time.Duration
	used   []float64 // scratch space
	sides  []tally
}

// newScope returns the scope of a limit that applies to the points for which mine is true.
// full are the points that another limit would have refused.
func newScope(points []point, mine, full []bool, jitter time.Duration) *scope {
	s := &scope{all: len(points), jitter: jitter}
	for i := range points {
		p := &points[i]
		if full[i] {
			s.held.add(p.refused)
		} else {
			s.room.add(p.refused)
		}
		if !mine[i] {
			continue
		}
		s.only = append(s.only, *p)
		switch {
		case full[i]:
			s.fates = append(s.fates, Unclear)
		case p.refused:
			s.fates = append(s.fates, Refused)
		default:
			s.fates = append(s.fates, Admitted)
		}
	}
	return s
}

func (s *scope) try(r rule) found {
	s.used = r.usage(s.only, s.used[:0])
	f := found{rule: r}
	if r.kind == scenario.TokenBucket {
		// Its size is given, up to the jitter of instants.
		off := min(0.5, max(1e-6, r.rate*s.jitter.Seconds()))
		if f.cut = s.cutAt([3]float64{r.burst - 1, r.burst - 1 + off, r.burst - 1 - off}); math.IsInf(f.open, 1) {
			f.above, f.open = math.Inf(1), s.none()
		}
	} else {
		f.cut = s.bestCut()
	}
	numbers := 2.0
	if r.kind == scenario.Concurrency {
		numbers = 1
	}
	f.cost = f.open + numbers/2*math.Log(float64(s.all))
	if r.kind == scenario.TokenBucket {
		f.cost += math.Log(r.burst)
	}
	if r.window > 0 && !usual(r.window) {
		f.cost += odd
	}
	if r.counted {
		f.cost += countsCost
	}
	return f
}

// kinds returns the best rule of each kind, the best first.
func (s *scope) kinds() []found {
	span := s.only[len(s.only)-1].at - s.only[0].at
	all := []found{s.try(rule{kind: scenario.Concurrency})}
	admitted := 0
	for i := range s.only {
		if !s.only[i].refused {
			admitted++
		}
	}
	if mean := float64(admitted) / span.Seconds(); mean > 0 && span > 0 {
		var rates []rule
		for burst := 1.0; burst < float64(admitted); burst = math.Ceil(burst * burstStep) {
			for r := mean / 2; r < mean*fastest; r *= 1 + rateStep {
				rates = append(rates, rule{kind: scenario.TokenBucket, rate: r, burst: burst})
			}
		}
		if len(rates) > 0 {
			all = append(all, s.best(rates))
		}
	}
	for _, align := range []scenario.Align{"", scenario.AlignFirst, scenario.AlignEpoch} {
		kind := scenario.FixedWindow
		if align == "" {
			kind = scenario.SlidingWindow
		}
		var tried []rule
		for _, counted := range []bool{false, true} {
			step := windowStep
			if counted {
				step = countedStep
			}
			for w := minWindow; align != scenario.AlignEpoch && w < span; w += time.Duration(step * float64(w)) {
				tried = append(tried, rule{kind: kind, align: align, window: w, counted: counted})
			}
			for _, w := range windows() {
				if w < span {
					tried = append(tried, rule{kind: kind, align: align, window: w, counted: counted})
				}
			}
		}
		if len(tried) > 0 {
			all = append(all, s.best(tried))
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(a.cost, b.cost) })
	return all
}

// best returns the best of some rules of one kind, or of rules near them.
func (s *scope) best(tried []rule) found {
	all := make([]found, len(tried))
	for i, r := range tried {
		all[i] = s.try(r)
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(a.cost, b.cost) })
	best := all[0]
	for _, f := range all[:min(refined, len(all))] {
		if f = s.refine(f); f.cost < best.cost {
			best = f
		}
	}
	if best.kind == scenario.TokenBucket {
		best = s.configured(best)
	}
	return s.usual(best)
}

// configured tries round rates near the bucket's own, and returns one that explains more.
// If a client stayed just within a limit for hours, only the exact rate explains the trace,
// and a search in small steps may miss it.
func (s *scope) configured(f found) found {
	best := f
	for _, rate := range roundRates(f.rate) {
		r := f.rule
		r.rate = rate
		if n := s.try(r); n.open < best.open {
			best = n
		}
	}
	if best.rate != f.rate {
		best = s.refine(best)
	}
	return best
}

// refine changes a rule as long as it explains more.
func (s *scope) refine(f found) found {
	if f.align == scenario.AlignEpoch {
		return f // its phase is the clock's: similar lengths behave differently
	}
	for _, step := range []float64{0.012, 0.006, 0.003, 0.0015, 0.0007, 0.0003} {
		for _, by := range []float64{1 + step, 1 - step} {
			for {
				next := s.try(f.times(by))
				if next.open >= f.open {
					break
				}
				f = next
			}
		}
		if f.burst > 0 {
			f = s.refineBurst(f)
		}
	}
	return f
}

// refineBurst does the same for a bucket's burst.
func (s *scope) refineBurst(f found) found {
	for step := math.Ceil(f.burst * (burstStep - 1)); step >= 1; step = math.Floor(step / 2) {
		for _, by := range []float64{step, -step} {
			for f.burst+by >= 1 {
				r := f.rule
				r.burst += by
				next := s.try(r)
				if next.cost >= f.cost {
					break
				}
				f = next
			}
		}
	}
	return f
}

// none returns what is unexplained without the rule.
func (s *scope) none() float64 { return s.held.surprise() + s.room.surprise() }

// times returns the rule with a multiple of its rate or window.
func (r rule) times(by float64) rule {
	r.rate *= by
	r.window = time.Duration(float64(r.window) * by)
	return r
}

// usual replaces the rule's parameter by a number that a person would have written, if that
// explains the trace equally well, and otherwise by the middle of the range that does.
func (s *scope) usual(f found) found {
	if f.align == scenario.AlignEpoch {
		return f
	}
	low, high := 1.0, 1.0
	for _, side := range []struct {
		end  *float64
		sign float64
	}{{&low, -1}, {&high, 1}} {
		steps := []float64{0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9}
		if f.rate == 0 {
			steps = steps[:7] // windows much longer or shorter behave differently
		}
		for _, by := range steps {
			if s.try(f.times(1+side.sign*by)).open > f.open+sameAgain {
				break
			}
			*side.end = 1 + side.sign*by
		}
	}
	f.slowest, f.quickest = f.rate*low, f.rate*high
	// The steps are coarse: slightly larger values may do as well.
	const beyond = 0.004
	near := f.times((low + high) / 2)
	if f.rate > 0 {
		near.rate = roundRate(f.rate*(low-beyond), f.rate*(high+beyond))
	} else {
		near.window = roundWindow(f.times(low-beyond).window, f.times(high+beyond).window)
	}
	for _, n := range []struct {
		rule
		worse float64
	}{{near, max(2*sameAgain, rounded*(s.none()-f.open))}, {f.times((low + high) / 2), sameAgain}} {
		if n, most := s.try(n.rule), f.open+n.worse; n.open <= most {
			n.slowest, n.quickest = f.slowest, f.quickest
			return n
		}
	}
	return f
}

// windows returns windows that a person would configure.
func windows() []time.Duration {
	var all []time.Duration
	for _, unit := range []time.Duration{time.Second, time.Minute} {
		for n := range time.Duration(59) {
			all = append(all, (n+1)*unit)
		}
	}
	for n := range time.Duration(24) {
		all = append(all, (n+1)*time.Hour)
	}
	return all
}

// usual reports whether a person would configure the window.
func usual(w time.Duration) bool {
	for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second} {
		if w%unit == 0 {
			n := w / unit
			return n <= 6 || n%5 == 0 || n == 8 || n == 12 || n == 24
		}
	}
	return false
}

// roundWindow returns the roundest window in a range.
func roundWindow(low, high time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		if w := high / unit * unit; w >= low && w > 0 {
			mid := ((low+high)/2 + unit/2) / unit * unit
			if mid >= low && mid <= high {
				return mid
			}
			return w
		}
	}
	return (low + high) / 2
}

// roundRates returns the rates with two digits, per second, minute or hour, within a tenth
// of a rate.
func roundRates(around float64) []float64 {
	var all []float64
	for _, per := range []float64{1, 60, 3600} {
		x := around * per
		unit := math.Pow(10, math.Floor(math.Log10(x))-1)
		for n := math.Ceil(0.9 * x / unit); n <= 1.1*x/unit; n++ {
			all = append(all, n*unit/per)
		}
	}
	return all
}

// roundRate returns the rate in a range that has the fewest digits, per second, minute or
// hour.
func roundRate(low, high float64) float64 {
	best, digits := (low+high)/2, math.MaxInt
	for _, per := range []float64{1, 60, 3600} {
		if x, n := shortest(low*per, high*per); n < digits {
			best, digits = x/per, n
		}
	}
	return best
}

// shortest returns the number in a range that has the fewest digits, and their number.
func shortest(low, high float64) (x float64, digits int) {
	mid := (low + high) / 2
	for unit := math.Pow(10, math.Floor(math.Log10(high))); digits < 12; unit /= 10 {
		digits++
		if x = math.Round(mid/unit) * unit; x >= low && x <= high {
			return x, digits
		}
		if x = math.Floor(high/unit) * unit; x >= low && x > 0 {
			return x, digits
		}
	}
	return mid, digits
}
