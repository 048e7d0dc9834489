package learn

import (
	"math"
	"time"
)

// never is an instant that only an outcome can bring nearer.
const never = time.Duration(math.MaxInt64)

// limit is one that the law holds.
type limit interface {
	// free is when the limit lets an attempt of that cost go.
	free(v view, cost float64) time.Duration
	sent(now time.Duration)
	// takeBack undoes sent: the attempt was refused.
	takeBack()
	// fullness is how much of the limit was in use at a refusal, as a part of it.
	fullness(v view, f refusal) float64
	// blame learns from a refusal that is put down to this limit.
	blame(v view, f refusal)
	// interval is the sustained one, in nanoseconds.
	interval(v view) float64
	// room is about how many attempts could go at once now.
	room(v view) float64
}

// view is what a limit sees of the law.
type view struct {
	now, last time.Duration // last is when the newest attempt went
	phase     time.Duration // the wall clock at instant 0
	guard     time.Duration // how much later than another an attempt may arrive
	latency   float64       // nanoseconds
	jitter    float64       // by which it differs from one attempt to the next
	flying    int
	mean      amounts // what an attempt takes
	dear      float64 // seconds that a refusal costs
	punished  bool    // a penalty follows each refusal
	calm      float64 // how many times its length the last block is ago
	h         *history
}

// amounts are what an attempt of that cost takes.
func (v view) amounts(c float64) amounts { return amounts{1, c, v.mean[busy]} }

// refusal is the first one of a block.
type refusal struct {
	sent, now time.Duration
	others    float64 // under way when it was sent; -1 when that is forgotten
	cost      float64 // of the attempt
	wait      time.Duration
	limited   bool // it says that it is about a limit
}

// blamed is the limit that was fullest, -1 when none was nearly full. Windows and
// flights are sharper claims than a rate, which explains every refusal a little.
func fullest(limits []limit, v view, f refusal) int {
	best, full := -1, nearlyFull
	for i, l := range limits {
		x := l.fullness(v, f)
		if _, ok := l.(*rate); ok {
			x = min(x, nearlyFull)
		}
		if x >= full && (best < 0 || x > full) {
			best, full = i, x
		}
	}
	return best
}
