package learn

import (
	"math"
	"time"
)

// cycle is what was admitted from one release to the next: attempts, the time until the
// refusal, and that time including the block.
type cycle struct{ n, open, whole float64 }

// cycleRates are two measures of a cycle: the pace at its refusal, and its mean rate.
type cycleRates struct{ top, mean float64 }

// rate paces attempts at a rate that is known to lie between low and high: it starts at low
// and reaches high after a number of attempts.
type rate struct {
	low, high float64 // attempts a second
	stretch   float64 // attempts of the climb from low to high
	since     float64 // admitted since the last refusal of this limit
	now       float64 // the pace at since, in attempts a second
	due       time.Duration
	price     float64 // cost of a refusal, in attempts; worth bounds it from below
	bursty    bool    // a pace that carried many attempts was a burst's
	guessed   bool    // the bracket lies between two steps of the ramp; no refusal has narrowed it
	apart     float64 // nanoseconds between recent attempts of mean cost
	counts    bool    // attempts are limited, not what they cost
	dear      float64 // how much more than others those before refusals cost, as refusal.dear

	released time.Duration // when this cycle began
	count    float64       // sent since, without refused ones
	refused  time.Duration // when the attempt that ended it was sent
	sum      cycle         // of the newest cycles, decayed
	last     [3]cycle
	cycles   int

	provenPace float64 // the fastest pace that carried a hundred attempts
	earlyInRow int     // consecutive refusals in the first half of a climb

	spaced  bool       // the time between two attempts is limited, not their mean rate
	top     float64    // the pace at the last refusal
	climbed float64    // attempts of the climb before it
	step    float64    // logarithm of the step down for the next climb
	was     cycleRates // of the cycle before
	off     cycleRates // how badly they predict those of the next
	empty   bool       // punish began this cycle: a refusal came before it, so that no burst is in it
}

func newRate(now time.Duration, low, high float64) *rate {
	low = believable(low)
	r := &rate{low: low, high: max(low, believable(high)), released: now, price: firstPrice, spaced: true}
	r.step, r.top = max(minStep, math.Log(r.high/r.low)), r.high
	r.plan(now)
	return r
}

// plan starts a new climb from low.
func (r *rate) plan(now time.Duration) {
	span := math.Log(max(1.001, r.high/r.low))
	price := r.worth()
	if r.spaced && r.price <= fullPrice { // a penalty sets the whole bracket
		span = max(span, r.step)
	}
	if r.price > fullPrice && r.cycles > 1 {
		price *= punishedSlower
	}
	most := min(maxStretch, max(minTest, testWithin.Seconds()*r.low))
	r.stretch = min(max(2*price/span, minStretch), max(most, 30*price))
	r.climb(0)
	r.apart = 0
	r.due = now + seconds(1/r.pace())
}

// worth returns the cost of a refusal in attempts. In seconds it is the same for a fast
// client and a slow one: clients that share a limit climb equally fast, and the faster one
// is refused more often.
func (r *rate) worth() float64 {
	if r.price <= firstPrice {
		return r.price
	}
	return max(r.price, refusalTime.Seconds()*r.low)
}

// climb sets how many attempts were admitted since the last refusal, and the pace.
func (r *rate) climb(since float64) { r.since, r.now = since, r.paceAt(since) }

// pace returns the current pace, in attempts a second.
func (r *rate) pace() float64 { return r.now }

// paceAt returns the pace after that many attempts since the last refusal.
func (r *rate) paceAt(since float64) float64 {
	x := since / r.stretch
	if x < 1 {
		return r.low + (r.high-r.low)*x
	}
	y := (since - r.stretch) / max(min(max(r.sum.n/3, minBeyond), 100), 2*r.worth())
	steep := beyond
	if r.cycles == 0 { // the bracket is a guess
		steep = firstBeyond
	}
	return r.high * math.Exp(min(maxBeyond, steep*y*y))
}

func (r *rate) free(v *view, c float64) time.Duration { return max(v.now, r.dueFor(v.h.share(c))) }

// weight returns as how many attempts one counts that costs as much as that many.
func (r *rate) weight(share float64) float64 {
	if r.counts {
		return 1
	}
	return share
}

// dueFor returns when an attempt is due that costs as much as that many: it waits for half of what
// it costs more than the mean, and the next one for the other half.
func (r *rate) dueFor(share float64) time.Duration {
	return r.due + time.Duration((r.weight(share)-1)/2*float64(seconds(1/r.pace())))
}

// room returns 0: attempts go one by one.
func (*rate) room(*view) float64 { return 0 }

// sent counts an attempt by what it costs, if it is costs that are limited.
func (r *rate) sent(now time.Duration, share float64) {
	due := r.dueFor(share)
	share = r.weight(share)
	r.count += share
	gap := seconds(1 / r.pace())
	smooth(&r.apart, float64(min(gap+now-due, time.Duration(2*testedGap*float64(gap)))), 0.1)
	if r.apart < testedGap*float64(gap) { // otherwise another limit delays, and the rate is not tested
		r.climb(r.since + share)
	}
	r.due = max(due, now-r.caughtUp(gap)) + time.Duration((share+1)/2*float64(gap))
}

// caughtUp returns by how much of the gap an attempt may follow sooner on one that was late.
func (r *rate) caughtUp(gap time.Duration) time.Duration {
	if r.spaced {
		return gap / catchUpSpaced
	}
	return gap / catchUp
}

func (r *rate) takeBack(share float64) {
	share = r.weight(share)
	r.climb(max(0, r.since-share))
	r.count = max(0, r.count-share)
}

// fullness is always the least that counts, since a rate explains every short block.
func (*rate) fullness(*view, refusal) float64 { return nearlyFull }

func (r *rate) blame(v *view, f refusal) {
	r.refused = f.sent
	r.top, r.climbed = r.pace(), r.since
	if r.dear += 0.3 * (f.dear - r.dear); math.Abs(r.dear) > surelyDear {
		r.counts = r.dear < 0
	}
	if r.since < r.stretch/2 {
		r.earlyInRow++
	} else {
		r.earlyInRow = 0
	}
	if r.since > 2*carrier && !r.bursty {
		r.provenPace = max(r.provenPace, r.paceAt(r.since-carrier))
	}
}

// agreed returns the part of the refused pace that is safe under a penalty because the refusal before came at
// about the same pace.
func (r *rate) agreed() float64 {
	if r.was.top == 0 {
		return 0
	}
	return penaltyHigh - 2*math.Abs(math.Log(r.top/r.was.top))
}

// alike reports whether the last refusals came at about the same pace, as they do without a
// burst.
func (r *rate) alike() bool {
	return r.spaced && r.off.top < min(alikeTops, r.off.mean/2)
}

// carried returns the fastest pace that the limit is known to allow: without a burst that of this climb a
// hundred attempts ago, else the lower end of the bracket.
func (r *rate) carried() float64 {
	if !r.alike() {
		return r.low
	}
	return r.paceAt(max(0, r.since-carrier))
}

// refine uses the position of a refusal in its climb: a late one confirms the bracket,
// which is halved; an early one shows that it was too narrow.
func (r *rate) refine() {
	switch y := r.climbed / r.stretch; {
	case r.guessed: // what was admitted before is a better bracket
		r.step = min(max(guessedStep, math.Log(r.top/r.paceAt(max(0, r.climbed-narrowedBy)))), maxStep)
		r.guessed = false
	case y < tooEarly:
		r.step = min(2*r.step, maxStep)
	case y > confirms:
		r.step /= 2
		if r.alike() { // about as wide as the difference of the last two
			r.step = min(r.step, alikeStep+alikeSpread*math.Abs(math.Log(r.top/r.was.top)))
		}
		r.step = max(r.step, minStep)
	}
}

// steep reports whether attempts come faster because the pace has grown much in this climb.
func (r *rate) steep() bool {
	pace := r.pace()
	return pace > steepness*r.low && r.apart < reachedGap*float64(seconds(1/pace))
}

// compare finds out what predicts refusals better: the pace at the last refusal, as without
// a burst, or the mean rate of the cycle.
func (r *rate) compare(mean float64) {
	now := cycleRates{r.top, mean}
	if r.was.mean > 0 {
		smooth(&r.off.top, math.Abs(math.Log(now.top/r.was.top)), 0.4)
		smooth(&r.off.mean, math.Abs(math.Log(now.mean/r.was.mean)), 0.4)
		switch {
		case r.off.top < r.off.mean/2:
			r.spaced = true
		case r.off.mean < r.off.top/2:
			r.spaced = false
		}
	}
	r.was = now
}

// ended records a whole cycle, after its block.
func (r *rate) ended(v *view, released time.Duration) {
	open, whole := (r.refused - r.released).Seconds(), (released - r.released).Seconds()
	n := r.count
	if n < 1 || open <= 0 { // of a block with another cause nothing was refused
		r.void(v.now)
		r.plan(v.now)
		return
	}
	r.refused = 0
	r.refine()
	if r.top > raisedTop*r.high && (!r.spaced || r.cycles > 2) {
		low := max(r.low, r.paceAt(r.climbed-rateMemory))
		r.sum, r.cycles, r.released, r.count = cycle{}, 0, released, 0
		r.bracket(v.now, low, r.top)
		return
	}
	if r.spaced && n < minCycle {
		low := r.top * math.Exp(-r.step)
		if r.earlyInRow < 2 && r.sum.n > 0 {
			low = max(low, min(r.top, r.sum.n/r.sum.whole))
		}
		low = max(low, min(r.top, (n-1)/whole)) // what was admitted before the canary
		r.bracket(v.now, low, r.top)
		return
	}
	if n < minCycle {
		r.bracket(v.now, max(shortCut*r.low, min(r.low, n/whole)), max(shortCut*r.high, min(r.high, n/open)))
		return
	}
	r.released, r.count = released, 0 // the canary was the last attempt of this cycle
	r.add(cycle{n, open, whole})
	doubt := 1 + endDoubt/r.sum.n
	low, high := r.sum.n/r.sum.whole/doubt, r.sum.n/r.sum.open*doubt
	high = max(high, low*math.Exp(r.off.mean)) // as far apart as the last means
	if r.earlyInRow >= 2 {
		r.bursty = r.bursty || r.provenPace > 0
		r.provenPace, r.earlyInRow = 0, 0
	}
	low, high = max(low, 0.97*r.provenPace), max(high, r.provenPace)
	if r.spaced {
		low, high = max(r.top*math.Exp(-r.step), min(r.top, low)), r.top
	}
	if r.cycles > 2 {
		r.price = fullPrice
	}
	r.bracket(v.now, low, high)
}

// add takes a cycle into the sum of the newest ones.
func (r *rate) add(c cycle) {
	r.last[r.cycles%len(r.last)] = c
	r.cycles++
	fade := rateMemory / max(rateMemory, r.sum.n+c.n)
	r.sum = cycle{r.sum.n * fade, r.sum.open * fade, r.sum.whole * fade}
	r.sum = cycle{r.sum.n + c.n, r.sum.open + c.open, r.sum.whole + c.whole}
	r.compare(c.n / c.whole)
	if r.cycles < len(r.last) {
		return
	}
	var three cycle
	for _, l := range r.last {
		three = cycle{three.n + l.n, three.open + l.open, three.whole + l.whole}
	}
	if q := three.n / three.whole / (r.sum.n / r.sum.whole); q < changedDown || q > changedUp {
		r.sum, r.off.mean = three, 0 // the rate has changed, which is not noise
	} else if r.earlyInRow >= 2 {
		r.sum = three
	}
}

// bracket starts a new climb from low to high, or to a little more than low.
func (r *rate) bracket(now time.Duration, low, high float64) {
	r.low = max(low, slowest)
	r.high = max(high, r.low*1.002)
	r.plan(now)
}

// sure returns a pace that was admitted until an instant: that of the last hundred
// attempts, which is too many for a burst, or else the mean.
func (r *rate) sure(until time.Duration) float64 {
	pace := math.Inf(1)
	if open := (until - r.released).Seconds(); r.count >= 5 && open > 0 {
		pace = r.count / open
	}
	if r.climbed > 2*carrier && r.refused > 0 {
		pace = max(pace, r.paceAt(r.climbed-carrier))
	}
	return pace
}

// punish starts again under a penalty: refusals are expensive, and attempts refused by
// the penalty say nothing about the limit.
func (r *rate) punish(now time.Duration, low, high float64, length time.Duration) {
	r.low, r.high, r.provenPace = believable(low), believable(high), 0
	r.costs(length)
	r.released, r.count, r.refused, r.empty = now, 0, 0, true
	r.plan(now)
}

// costs sets the cost of a refusal that is followed by a block of that length: the attempts
// that could have been sent meanwhile.
func (r *rate) costs(length time.Duration) {
	r.price = max(fullPrice, min(length, penaltyLongest).Seconds()*math.Sqrt(r.low*r.high))
}

// void drops the current cycle, because something else blocked.
func (r *rate) void(now time.Duration) {
	r.released, r.count, r.refused, r.empty = now, 0, 0, false
	r.due = max(r.due, now+seconds(1/r.pace()))
}

func (r *rate) interval(*view) float64 { return 1e9 / r.pace() }

// slowest and fastest bound the rates that are accepted, from one attempt a day to one a
// nanosecond.
const slowest, fastest = 1.0 / (24 * 60 * 60), 1e9

func believable(rate float64) float64 { return min(max(rate, slowest), fastest) }

func seconds(s float64) time.Duration { return time.Duration(min(max(s, 0), 1e8) * 1e9) }

// ramp is the pace until the first refusal, or the first after an attempt was admitted. It starts at
// the initial interval and increases.
type ramp struct {
	every    float64 // nanoseconds between attempts
	answers  int
	at       time.Duration // the last step
	grew     time.Duration // the last that increased the pace
	was      float64       // every before that; 0 before the first
	admitted float64       // total admitted at that time
}

// answered increases the pace if it is what limits the attempts, and reports whether it
// did.
func (r *ramp) answered(v *view, sent time.Duration, fastest float64) bool {
	r.answers++
	answers, pause := rampAnswers, rampPause
	if r.every > 1e9/slowRamp {
		answers, pause = 1, 0
	}
	trip := min(time.Duration(v.latency), rampTrip)
	if r.answers < answers || v.now-r.at < max(pause, 2*trip) || sent <= r.at && trip < rampTrip {
		return false
	}
	if v.now-v.last < 2*time.Duration(r.every)+2*time.Duration(v.latency) {
		was := r.every
		r.every = max(r.every/r.step(v), fastest)
		r.answers, r.at = 0, v.now
		if r.every < was {
			r.grew, r.was = v.now, was
		}
		return r.every < was
	}
	r.answers, r.at = 0, v.now
	return false
}

// step returns the factor of the next increase, smaller if more attempts are in flight.
func (*ramp) step(v *view) float64 {
	return max(minRampStep, min(rampStep, 1+rampFlying/float64(v.flying+1)))
}

// smooth updates an exponentially weighted mean; 0 means no value yet.
func smooth(mean *float64, x, gain float64) {
	if *mean == 0 {
		*mean = x
	} else {
		*mean += gain * (x - *mean)
	}
}
