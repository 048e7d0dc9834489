package learn

import "time"

// drained records how much others took from a bucket, or in a fixed window, since the response before.
func (t *advertised) drained(v *view, sent time.Duration, remaining float64) {
	passed := (sent - t.at).Seconds()
	left := t.left
	switch {
	case t.shape == bucket:
		left = min(t.quota, t.left+t.slow*passed)
	case t.rolled, remaining > left:
		return // another window
	}
	own := t.share * (v.h.until(t.unit(), sent) - v.h.until(t.unit(), t.at))
	t.taken = drainFade*t.taken + left - own - remaining
	t.during = drainFade*t.during + passed
}

// takes returns how many units others take in a second.
func (t *advertised) takes() float64 { return max(0, t.taken/max(t.during, 1e-3)) }

// contended reports whether others would take much of a fixed window at their pace.
func (t *advertised) contended() bool {
	return t.shape == fixed && !t.perCost && t.takes()*t.length().Seconds() > contendedPart*t.quota
}

// reserve returns how many units of a contended window are left to the others, since they may have taken
// them after the newest response: few of all, unless a refusal costs more than units that nobody uses.
func (t *advertised) reserve(v *view) float64 {
	if t.rolled || t.quota < manyAtOnce || !t.contended() {
		return 0
	}
	taken := t.takes() * (v.now - t.at).Seconds()
	if v.punished {
		return taken
	}
	return min(taken, maxGrazed*t.quota)
}

// occupied records how much of a sliding window others use.
func (t *advertised) occupied(v *view, sent time.Duration, refused bool, used float64) {
	own, length := sent, t.length()
	if refused {
		own-- // this shows whether refusals count
	}
	others := used - t.share*v.h.used(t.unit(), own, length)
	if v.now-sent < length/20 {
		t.seen(others)
	} else { // what the provider had counted by then is less certain
		t.others = max(0, t.others+doubtedShare*(others-t.others))
	}
}

// seen records how much of a window others use, and how fast that grows.
func (t *advertised) seen(others float64) {
	others = max(0, others)
	t.surge = max(0.9*t.surge, others-t.others)
	if t.grain > 1 && others > t.others {
		others = t.others + doubtedShare*(others-t.others) // most of the increase is rounding
	}
	t.others = others
}

// apart returns the interval between attempts while others use the limit too: the remaining
// units are spread over the time until all are free. All clients do so and get equal
// shares, since the responses report the same remaining units to all. Under a penalty a
// bucket is not drained at once either, because each attempt in flight at a refusal may
// lengthen the penalty. A fixed window is spread while others take much of it, since a client that is never
// refused would leave little to those that were. A limit on cost is spread only after a refusal showed that others
// use it: before that, attempts in flight look like use by others. A sliding window is spread
// whenever others use it, since its units would otherwise return to the client that used them.
func (t *advertised) apart(v *view, need float64) time.Duration {
	if t.shape == sliding {
		if t.others <= (1-ownUse)*t.quota {
			return 0
		}
		return time.Duration(float64(t.length()) * need / max(need, t.left-t.spent) / slideSpread)
	}
	over, longest := t.whole-v.now, never
	spread := t.contended() || t.shared && t.margin >= grazed/2
	if t.shape == bucket && t.slow > 0 {
		over = seconds(t.quota / t.slow)
		if taken := t.takes(); !t.perCost {
			longest = seconds(2 * need / (t.slow - min(taken, maxTaken*t.slow)))
			low := v.punished && t.quota >= manyAtOnce && t.left-t.spent < t.quota/2
			spread = spread || low || t.sure() && taken > (1-ownUse)*t.slow
		}
	}
	if !spread || t.quota <= 1 {
		return 0
	}
	left := t.left - t.spent
	if t.shape == fixed && !t.perCost && t.quota >= manyAtOnce { // what they have taken since the response
		left -= t.takes() * min(v.now-t.at, time.Duration(v.latency)).Seconds()
	}
	return min(longest, time.Duration(max(0, float64(over))*need/max(need, left)/windowSpread))
}

// pace returns the number of a bucket's units that return each second and are not taken by
// others. Others take less when little is left. For a limit on cost, the others may be
// attempts in flight.
func (t *advertised) pace() float64 {
	part := waitedTaken
	if t.perCost {
		part = maxTaken
	}
	return t.slow - min(t.takes(), part*t.slow)
}
