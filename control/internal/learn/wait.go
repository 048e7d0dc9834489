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
	asked   time.Duration // by the first refusal of the block, or the newest one since a wait is doubted
	askedAt time.Duration // and when
	tried   time.Duration // the least that a canary of a doubted wait waits for, after others that were refused
	// lengthened says that attempts of a burst were refused with longer and longer waits, the
	// newest of which is longer than any penalty and ends at no usual instant.
	lengthened bool
	odd        bool          // the newest wait ends at no usual instant
	shortest   time.Duration // in the refusals of this burst
}

// readWait returns how much of the wait that a refusal advertises to observe, whether its next
// canary finds out if that is right, and whether it is longer than the owner allows.
func (l *Law) readWait(o Outcome, isCanary bool) (wait time.Duration, doubted, cut bool) {
	w, fresh := &l.named, o.Sent > l.epoch // else it was in flight when another was refused
	odd := w.unit == 0 && o.RetryAfter > penaltyLongest && !w.trusts(o.RetryAfter) && !l.ends(o.Now, o.RetryAfter)
	if fresh && !isCanary {
		w.odd = odd
		w.heard(o.Now, o.RetryAfter)
	}
	if fresh || o.RetryAfter < w.shortest {
		w.shortest = o.RetryAfter
	}
	w.lengthened = odd && !fresh && o.RetryAfter > w.shortest+w.shortest/4
	return l.Believed(o.RetryAfter), w.doubts(o.RetryAfter), w.believed(o.RetryAfter) > l.cfg.MaxWait
}

// heard records the wait in the first refusal of a block.
func (w *waits) heard(now, wait time.Duration) {
	w.asked, w.askedAt = wait, now
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
// it would be in the other unit, or the length of a long penalty if a burst has lengthened it;
// then a canary finds out.
func (w *waits) believed(wait time.Duration) time.Duration {
	switch {
	case w.lengthened:
		return penaltyLongest
	case w.doubts(wait):
		return max(firstCanary, wait/millisPerSecond+wait/millisPerSecond/10, w.tried)
	case w.unit > 0:
		return time.Duration(float64(wait) / w.unit)
	}
	return wait
}

// denied records that there was no room when the canary of a doubted wait went, and what is left of the
// wait. If that became less in the time since, the wait was right. If it became less much faster, it is of
// another unit. If it did not, somebody cuts waits: then a canary goes twice as late, until a day has passed.
func (w *waits) denied(now, wait time.Duration) {
	passed, less := now-w.askedAt, w.asked-wait
	switch {
	case w.asked > maxUsual && less > 2*passed:
	case w.asked > maxUsual && less < passed/2 && w.tried < maxUsual/2:
		w.tried = 2 * w.believed(wait)
	default:
		w.unit = 1
	}
	w.asked, w.askedAt = wait, now
}

// doubts reports whether a wait may have another unit: it is too long for a penalty and ends when
// no usual window does.
func (w *waits) doubts(wait time.Duration) bool {
	return w.unit == 0 && !w.trusts(wait) && w.odd && wait > penaltyLongest
}

// ends reports whether a wait from now is one that providers mean: a whole number of minutes, of
// quarters of an hour if it is longer than one, at most a day, but not of thousands of seconds, or until a usual window ends
// that began with the clock, with the first attempt or at the last release. None ends later than after its
// length, but a long one may end with any hour of the clock: with the day of another time zone.
func (l *Law) ends(now, wait time.Duration) bool {
	if wait > maxUsual+time.Second {
		return false // to doubt it costs little in comparison
	}
	near := func(d, length time.Duration) bool { return (d - length).Abs() <= usualEnd }
	multiple := func(of time.Duration) bool {
		if wait%time.Second == 0 {
			return wait%of == 0
		}
		return (wait+time.Second)%of < 2*time.Second // a date has whole seconds, and now has not
	}
	whole := time.Minute
	if wait > time.Hour+time.Second {
		whole = time.Hour / 4
	}
	if multiple(whole) && !multiple(millisPerSecond*time.Second) {
		return true
	}
	for _, u := range l.likely.lengths() {
		end := now + wait
		since := (end + l.phase + usualEnd) % u
		if byClock := since <= 2*usualEnd && (u == time.Hour || wait <= u); byClock || near(wait, u) || near(end-l.began, u) || near(end-l.freed, u) {
			return true
		}
	}
	return false
}

// waitError returns how much sooner than after an advertised wait there may be room, since waits
// are not exact. The wait began with a time of that length.
func waitError(length time.Duration) time.Duration { return length/50 + time.Second }
