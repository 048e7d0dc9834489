package learn

import (
	"math"
	"time"
)

// cycle is what was admitted from one release to the next: so many attempts in the
// time until the refusal, and in that with the block after it.
type cycle struct{ n, open, whole float64 }

// rate paces attempts at a rate that is known to lie between low and high: it
// starts at low and is at high after a stretch of attempts.
type rate struct {
	low, high float64 // attempts a second
	stretch   float64
	since     float64 // admitted since the last refusal of this limit
	due       time.Duration
	price     float64 // what a refusal costs, in attempts
	bursty    bool    // a pace that carried some attempts was a burst's

	released time.Duration // when this cycle began
	count    float64       // sent since and not refused
	refused  time.Duration // when the attempt was sent that ended it
	sum      cycle         // of the newest cycles, faded
	last     [3]cycle
	cycles   int

	carried float64 // the fastest pace that carried a whole memory of attempts
	early   int     // refusals in a row at a slower one
}

func newRate(now time.Duration, low, high float64) *rate {
	r := &rate{low: max(low, slowest), high: max(high, low, slowest), released: now, price: firstPrice}
	r.plan(now)
	return r
}

// plan starts to climb from low again.
func (r *rate) plan(now time.Duration) {
	r.stretch = min(max(2*r.price/math.Log(max(1.001, r.high/r.low)), minStretch), max(maxStretch, 30*r.price))
	r.since = 0
	r.due = now + seconds(1/r.pace())
}

// pace is what is sent a second now.
func (r *rate) pace() float64 { return r.paceAt(r.since) }

// paceAt is the pace after so many attempts since the last refusal.
func (r *rate) paceAt(since float64) float64 {
	x := since / r.stretch
	if x < 1 {
		return r.low + (r.high-r.low)*x
	}
	y := (since - r.stretch) / max(min(max(r.sum.n/3, minBeyond), 100), 2*r.price)
	return r.high * math.Exp(min(maxBeyond, beyond*y*y))
}

func (r *rate) free(v view, _ float64) time.Duration { return max(v.now, r.due) }

func (r *rate) sent(v view, _ float64) {
	r.count++
	gap := seconds(1 / r.pace())
	if v.now < r.due+gap { // otherwise something else holds back, and the rate is not tested
		r.since++
	}
	r.due = max(r.due, v.now-gap/8) + gap
}

func (r *rate) takeBack() {
	r.since, r.count = max(0, r.since-1), max(0, r.count-1)
}

// fullness is how fast it was for the rate.
func (r *rate) fullness(v view, _ refusal) float64 {
	return max(nearlyFull, min(1, r.pace()/r.high)) // a rate explains every short block
}

func (r *rate) blame(v view, f refusal) {
	r.refused = f.sent
	if r.since < r.stretch/2 {
		r.early++
	} else {
		r.early = 0
	}
	if r.since > 2*carrier && !r.bursty {
		r.carried = max(r.carried, r.paceAt(r.since-carrier))
	}
}

// ended takes a whole cycle in: the block is over.
func (r *rate) ended(v view, released time.Duration) {
	open, whole := (r.refused - r.released).Seconds(), (released - r.released).Seconds()
	n := r.count
	if r.refused == 0 || n < 1 || open <= 0 || whole <= 0 {
		r.void(v.now)
		r.plan(v.now)
		return
	}
	r.refused = 0
	if n < minCycle {
		r.low, r.high = max(shortCut*r.low, min(r.low, n/whole), slowest), max(shortCut*r.high, min(r.high, n/open), slowest*1.01)
		r.high = max(r.high, r.low*1.002)
		r.plan(v.now)
		return
	}
	r.released, r.count = released, 1
	c := cycle{n, open, whole}
	r.last[r.cycles%len(r.last)] = c
	r.cycles++
	if fade := rateMemory / max(rateMemory, r.sum.n+c.n); fade < 1 {
		r.sum = cycle{r.sum.n * fade, r.sum.open * fade, r.sum.whole * fade}
	}
	r.sum = cycle{r.sum.n + c.n, r.sum.open + c.open, r.sum.whole + c.whole}
	if r.cycles >= len(r.last) {
		var three cycle
		for _, l := range r.last {
			three = cycle{three.n + l.n, three.open + l.open, three.whole + l.whole}
		}
		if q := three.n / three.whole / (r.sum.n / r.sum.whole); q < changedDown || q > changedUp {
			r.sum = three
		}
	}
	doubt := 1 + endDoubt/r.sum.n
	r.low, r.high = r.sum.n/r.sum.whole/doubt, r.sum.n/r.sum.open*doubt
	if r.early >= 2 {
		r.bursty = r.bursty || r.carried > 0
		r.carried, r.early = 0, 0
	}
	if r.carried > 0 {
		r.low, r.high = max(r.low, 0.97*r.carried), max(r.high, r.carried)
	}
	if r.cycles > 2 {
		r.price = fullPrice
	}
	r.low = max(r.low, slowest)
	r.high = max(r.high, r.low*1.002)
	r.plan(v.now)
}

// punished starts again under a penalty: refusals are dear, and what was not let
// through was not the limit's doing.
func (r *rate) punished(now time.Duration, pace, keep float64, length time.Duration) {
	r.low, r.high, r.carried = max(slowest, pace*keep), max(slowest, pace), 0
	r.price = max(fullPrice, length.Seconds()*pace)
	r.released, r.count, r.refused = now, 1, 0
	r.plan(now)
}

// void forgets the present cycle: something else blocked.
func (r *rate) void(now time.Duration) {
	r.released, r.count, r.refused = now, 1, 0
	r.due = max(r.due, now+seconds(1/r.pace()))
}

func (r *rate) interval(view) float64 { return 1e9 / r.pace() }

// slowest is the slowest rate that is believed, one attempt a day.
const slowest = 1.0 / (24 * 60 * 60)

func seconds(s float64) time.Duration { return time.Duration(min(max(s, 0), 1e8) * 1e9) }

// ramp is the pace until the first refusal: the initial interval, then shorter.
type ramp struct {
	every   float64 // nanoseconds between attempts
	answers int
	at      time.Duration // the last step
	carried float64       // what had been admitted then
}

// answered makes attempts denser, if they are what limits the rate, and reports
// whether it did.
func (r *ramp) answered(v view, sent time.Duration, fastest float64) bool {
	r.answers++
	if r.answers < rampAnswers || v.now-r.at < max(rampPause, 2*time.Duration(v.latency)) || sent <= r.at {
		return false
	}
	if v.now-v.last < 2*time.Duration(r.every)+2*time.Duration(v.latency) {
		was := r.every
		r.every = max(r.every/r.step(v), fastest)
		r.answers, r.at = 0, v.now
		return r.every < was
	}
	r.answers, r.at = 0, v.now
	return false
}

// step is smaller the more attempts are under way.
func (*ramp) step(v view) float64 {
	return max(minRampStep, min(rampStep, 1+rampFlying/float64(v.flying+1)))
}
