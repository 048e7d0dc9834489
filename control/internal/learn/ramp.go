package learn

import "time"

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
