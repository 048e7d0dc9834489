package learn

import (
	"math"
	"time"
)

// never means that no instant is known, or that none comes.
const never = time.Duration(math.MaxInt64)

// limit is a limit that the law holds.
type limit interface {
	// free returns when the limit allows an attempt of that cost.
	free(v *view, cost float64) time.Duration
	// sent counts an attempt, which costs that many times the mean.
	sent(now time.Duration, share float64)
	// takeBack undoes sent: the attempt was refused.
	takeBack(share float64)
	// fullness returns the part of the limit that was in use at a refusal.
	fullness(v *view, f refusal) float64
	// blame learns from a refusal that is blamed on this limit: one at which it was
	// nearly full, by fullest, or that it explains counted in periods.
	// A rate is blamed for all that no other limit explains.
	blame(v *view, f refusal)
	// interval returns the sustained interval, in nanoseconds.
	interval(v *view) float64
	// room estimates how many attempts could be sent at once now.
	room(v *view) float64
}

// view is what limits need to know of the law.
type view struct {
	last      time.Duration // when the newest attempt was sent
	flying    int           // attempts in flight
	mean      amounts       // of an attempt
	latency   float64       // nanoseconds, of admitted attempts
	jitter    float64       // nanoseconds, variation of the latency
	lastBlock time.Duration // how long the last block lasted
	likely    *candidates   // lengths of windows
	phase     time.Duration // the wall clock at instant 0

	// As of the last call of Law.look:
	now      time.Duration
	guard    time.Duration // how much later than another an attempt may arrive
	punished bool          // a penalty follows each refusal
	open     time.Duration // how long ago the last block ended
	h        *history
}

// calm returns how long ago the last block ended, in multiples of its length.
func (v *view) calm() float64 { return float64(v.open) / float64(v.lastBlock+1) }

// amounts returns the amounts of an attempt of that cost.
func (v *view) amounts(c float64) amounts { return amounts{1, c, v.mean[busy]} }

// refusal is a refusal that is evidence: the first of a block, or that of a canary.
type refusal struct {
	sent, now time.Duration
	others    float64       // in flight when it was sent; -1 if that was forgotten
	cost      float64       // of the attempt
	opened    time.Duration // the release before it
	cycle     float64       // attempts since then
	wait      time.Duration
	cut       bool    // the advertised wait is longer than that
	dear      float64 // how much more than the mean the attempts before it cost, in mean deviations
	limited   bool    // it names a limit as the cause
}

// fullest returns the limit that was fullest; nil if none was nearly full.
// Windows and flights take precedence over rates, which explain every refusal a little.
func fullest(limits []limit, v *view, f refusal) limit {
	var best limit
	full := nearlyFull
	for _, x := range limits {
		if part := x.fullness(v, f); part >= full && (best == nil || part > full || isRate(best)) {
			best, full = x, part
		}
	}
	return best
}
