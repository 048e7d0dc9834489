package learn

import "time"

// waits records whether advertised waits are right. Some providers send milliseconds
// instead of seconds.
type waits struct {
	unit    float64       // divisor of waits; 0 if unknown
	short   int           // waits in a row that were over when a canary was refused
	silent  int           // blocks of a limit whose refusal advertised none
	sane    int           // blocks with a plausible wait
	longest time.Duration // of those waits
	tried   time.Duration // when the next canary of a wait that may have been cut goes
	// lengthened says that attempts of a burst were refused with longer and longer waits, the
	// newest of which is longer than any penalty and ends at no usual instant.
	lengthened bool
	odd        bool          // the newest wait ends at no usual instant
	shortest   time.Duration // in the refusals of this burst
}

// readWait returns how much of the wait that a refusal advertises to observe, and whether its next
// canary finds out if that is right.
func (l *Law) readWait(o Outcome, isCanary bool) (wait time.Duration, doubted bool) {
	w, fresh := &l.named, o.Sent > l.epoch // else it was in flight when another was refused
	odd := w.unit == 0 && o.RetryAfter > penaltyLongest && !w.trusts(o.RetryAfter) && !l.ends(o.Now, o.RetryAfter)
	if fresh && !isCanary {
		w.odd = odd
		w.heard(o.RetryAfter)
	}
	if fresh || o.RetryAfter < w.shortest {
		w.shortest = o.RetryAfter
	}
	w.lengthened = odd && !fresh && o.RetryAfter > w.shortest+w.shortest/4
	return min(w.believed(o.RetryAfter), maxSilence), w.doubts(o.RetryAfter)
}

// heard records the wait in the first refusal of a block.
func (w *waits) heard(wait time.Duration) {
	if wait >= time.Second && !w.doubts(wait) {
		w.sane++
		w.longest = max(w.longest, wait)
	}
}

// always reports whether a limit's refusals advertise a wait.
func (w *waits) always() bool { return w.sane >= usualStyle && w.silent == 0 }

// trusts reports whether a wait is right by those before it. After some plausible ones a long one
// is: calls may lengthen a ban, and so would a canary. But a wait of seconds that was meant as
// milliseconds is observed without harm, so that one is not trusted that is far longer.
func (w *waits) trusts(wait time.Duration) bool {
	return w.sane >= saneWaits && wait <= farLonger*w.longest
}

// believed returns how much of a wait to observe. For the first doubtful wait that is what
// it would be in the other unit, or the length of a long penalty if it may have been cut or
// a burst has lengthened it; then a canary finds out.
func (w *waits) believed(wait time.Duration) time.Duration {
	switch {
	case w.lengthened, w.doubts(wait) && wait >= unbelievable:
		return max(penaltyLongest, w.tried)
	case w.doubts(wait):
		return max(firstCanary, wait/millisPerSecond+wait/millisPerSecond/10)
	case w.unit > 0:
		return time.Duration(float64(wait) / w.unit)
	}
	return wait
}

// denied records that there was no room when the canary of a doubted wait went: it was right. Of
// one that may have been cut this shows little, so that the next canary goes four times later.
func (w *waits) denied(wait time.Duration) {
	w.tried = 4 * max(penaltyLongest, w.tried)
	if wait < unbelievable || w.tried >= unbelievable {
		w.unit = 1
	}
}

// doubts reports whether a wait may have another unit: it is so long that it may have been
// cut, or too long for a penalty and ends when no usual window does.
func (w *waits) doubts(wait time.Duration) bool {
	return w.unit == 0 && !w.trusts(wait) && (wait >= unbelievable || w.odd && wait > penaltyLongest)
}

// ends reports whether a wait from now is one that providers mean: a whole number of
// minutes, of quarters of an hour if it is longer than one, a round number of seconds such as 5000, or until a usual window ends
// that began with the clock, with the first attempt or at the last release.
func (l *Law) ends(now, wait time.Duration) bool {
	near := func(d, length time.Duration) bool { return (d - length).Abs() <= usualEnd }
	whole := time.Minute
	if wait > time.Hour+time.Second {
		whole = time.Hour / 4
	}
	for _, round := range [...]time.Duration{whole, 10_000 * time.Second, 1000 * time.Second} {
		if (wait+time.Second)%round <= 2*time.Second { // dates have whole seconds
			return true
		}
		if round > whole && wait > round {
			break
		}
	}
	for _, u := range l.likely.lengths() {
		if u < penaltyLongest {
			continue
		}
		end := now + wait
		if since := (end + l.cfg.Phase + usualEnd) % u; since <= 2*usualEnd || near(wait, u) || near(end-l.began, u) || near(end-l.freed, u) {
			return true
		}
	}
	return false
}

// waitError returns how much sooner than after an advertised wait there may be room, since waits
// are not exact. The wait began with a time of that length.
func waitError(length time.Duration) time.Duration { return length/50 + time.Second }
