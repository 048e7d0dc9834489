package learn

import (
	"math"
	"slices"
	"time"
)

// Fact is one limit that a response reports, as of when the attempt was settled. Quota and
// Remaining are in units. Quota, Remaining, Window and Reset are negative if unknown.
type Fact struct {
	Name             string
	PerCost          bool
	Refills          bool // the name says that units return one by one
	Quota, Remaining float64
	Window, Reset    time.Duration
	Precise          bool // Reset is stated as a duration with a unit
	// Share is the part of the attempt's cost that counts against the limit, such as the
	// share of output in all tokens; 0 if unknown.
	Share float64
}

// Advertise records a limit that the response to an attempt reports. Call it before
// [Law.Observe] for the same attempt.
func (l *Law) Advertise(sent, now time.Duration, refused bool, f Fact) {
	if !(f.Remaining >= 0) {
		return
	}
	l.clock = max(l.clock, now)
	for i := range l.headers {
		if t := &l.headers[i]; t.name == f.Name && t.perCost == f.PerCost {
			t.shares(f.Share)
			t.update(l.look(), sent, refused, f)
			return
		}
	}
	if i := slices.IndexFunc(l.headers, func(t advertised) bool { return t.gone }); i >= 0 && len(l.headers) == maxLimits {
		l.headers = slices.Delete(l.headers, i, i+1)
	}
	if len(l.headers) < maxLimits {
		t := advertised{name: f.Name, perCost: f.PerCost, shaper: newShaper(fixed), grain: coarseUnits, fast: math.Inf(1), at: -1, share: 1}
		if f.Refills {
			t.shaper = newShaper(bucket)
		}
		t.shares(f.Share)
		t.update(l.look(), sent, refused, f)
		l.headers = append(l.headers, t)
	}
}

// plenty reports whether every advertised limit has something left, as far as is known.
func (l *Law) plenty() bool {
	for i := range l.headers {
		if t := &l.headers[i]; !t.trusted() || t.left-t.spent < min(t.quota, max(2, t.quota/50)) {
			return false
		}
	}
	return len(l.headers) > 0
}

// unreported reports whether a refusal reports no limit, though responses usually do.
func (l *Law) unreported(f refusal) bool {
	known := false
	for i := range l.headers {
		t := &l.headers[i]
		if t.refused == f.sent {
			return false
		}
		known = known || t.trusted() && !t.gone && t.at >= 0
	}
	return known
}

// advertisedExplains reports whether the refusal itself reports a limit that is used up:
// because of other clients, because the attempt came too early, or because its cost was
// uncertain. The limit's margin is then increased.
func (l *Law) advertisedExplains(f refusal) bool {
	found := false
	for i := range l.headers {
		t := &l.headers[i]
		if !t.trusted() || t.refused != f.sent || t.remained >= t.need(f.cost) {
			continue
		}
		if l.allAdmitted < t.explainedAt+l.rare(l.allRefused-t.explainedRefused) {
			t.explainedInRow++
		} else {
			t.explainedInRow = 0
		}
		t.explainedAt, t.explainedRefused = l.allAdmitted, l.allRefused
		t.graze(l.look(), f)
		found = found || t.explainedInRow < maxExplained
	}
	return found
}

// rare returns how many attempts have to be admitted since the last refusal that an advertised limit
// explained, and so many refusals, for the next one to be rare. If each costs a block that is longer than
// the limit explains, more have to be: then a slower pace than the limit allows is worth more.
func (l *Law) rare(refused int) float64 {
	beyond := max(l.penalty.length, l.beyond).Seconds()
	return max(rareRefusal, rarePart*float64(refused), rareBlocks*beyond*l.block.pace)
}

// advertised returns when the advertised limits allow an attempt.
func (l *Law) advertised(now time.Duration, c float64) time.Duration {
	at := now
	if len(l.headers) == 0 {
		return at
	}
	v := l.look()
	for i := range l.headers {
		at = max(at, l.headers[i].free(v, c))
	}
	return at
}

// allBack returns when the advertised sliding windows that are nearly used up will be
// completely free.
func (l *Law) allBack() time.Duration {
	at := l.clock
	for i := range l.headers {
		if t := &l.headers[i]; t.trusted() && t.shape == sliding && t.left-t.spent < max(2, t.quota/50) {
			at = max(at, t.whole)
		}
	}
	return at
}

// advertised is a limit that response headers report. It can only delay attempts.
type advertised struct {
	shaper
	name    string
	perCost bool
	quota   float64
	window  time.Duration // as reported
	resets  resetRanges
	atLeast time.Duration // the length of the window: no reset is further away, but for its rounding
	fine    int           // above 0: resets are rounded to milliseconds, not to seconds
	precise bool          // resets are durations, not instants
	share   float64       // the part of an attempt's cost that counts
	grain   float64       // remaining units are rounded down to a multiple of it

	at    time.Duration // when the newest answered attempt was sent; -1 before any
	left  float64       // remaining units at that time
	spent float64       // units sent since
	whole time.Duration // when everything is free if nothing more is sent

	refused  time.Duration // when the newest refused attempt was sent
	remained float64       // remaining units at that time

	slow, fast float64 // bounds on the refill rate of a bucket, in units a second
	taken      float64 // units that others recently took from a bucket
	during     float64 // the seconds in which they did
	others     float64 // units of a window that others use
	surge      float64 // growth of others from one response to the next
	rolled     bool    // no response in this window yet
	gone       bool    // the responses in this window do not report the limit
	shared     bool    // at the last refusal others had used much of it
	margin     float64 // part of the quota that is not used
	slack      time.Duration

	last    report
	origins [2]origin // of resets, if they do not draw nearer, and if they do

	explainedInRow   int     // consecutive refusals that it explained
	explainedAt      float64 // when it last did, in attempts admitted
	explainedRefused int     // and in refusals
}

// origin compares the instants that resets may be counted from: the sums of the squared changes
// of the reset from one response to the next, counted from sending and from the response.
type origin struct{ sent, answered float64 }

func (t *advertised) unit() unit {
	if t.perCost {
		return cost
	}
	return attempts
}

// need returns how many units an attempt takes.
func (t *advertised) need(c float64) float64 {
	if t.perCost {
		return min(c*t.share, max(1, t.quota))
	}
	return 1
}

// shares learns which part of attempts' costs counts.
func (t *advertised) shares(share float64) {
	if share > 0 && t.perCost {
		if t.at < 0 {
			t.share = share
		}
		t.share += newestShare * (share - t.share)
	}
}

// length returns the window's length, rounded to a common length if it is close to one.
func (t *advertised) length() time.Duration {
	if t.window > 0 {
		return t.window
	}
	known := t.known()
	length := known.longest
	if t.shape == sliding && t.fine <= 0 && known.longest-known.least <= time.Second+known.longest/20 {
		length = known.least // they are all of the whole window, rounded up to seconds
	}
	for _, u := range usual {
		if u >= t.atLeast && length >= u-u/50 && length <= u+u/50+time.Second {
			return u
		}
	}
	return length
}

func (t *advertised) update(v *view, sent time.Duration, refused bool, f Fact) {
	if refused {
		t.refused, t.remained = sent, f.Remaining
	}
	if sent < t.at {
		return
	}
	rounded := t.precision(f)
	if f.Quota > 0 && f.Quota != t.quota {
		t.quota, t.slow, t.fast, t.prior = f.Quota, 0, math.Inf(1), report{}
	}
	if f.Window > 0 {
		t.window = f.Window
	}
	if t.interval() > 0 && t.at >= 0 { // other attempts need room too
		since := v.h.until(attempts, sent) - v.h.until(attempts, t.at)
		fade := math.Exp(-since / (slackMemory * max(1, v.lastBlock.Seconds())))
		t.margin, t.slack = t.margin*fade, time.Duration(float64(t.slack)*fade)
	}
	if t.shape != sliding && t.at >= 0 && sent > t.at {
		t.drained(v, sent, f.Remaining)
	}
	if math.Mod(f.Remaining, coarseUnits) != 0 || !t.perCost {
		t.grain = 1
	}
	if t.grain > 1 && !refused && (!t.shared || t.quota <= t.grain) {
		f.Remaining = t.unrounded(v, sent, f)
	}
	first, unsure := t.rolled, t.at < 0 // the first response of a window, and the first of all
	t.rolled, t.gone = false, false
	known := t.left - t.spent
	t.left, t.spent = f.Remaining, t.share*max(0, v.h.total[t.unit()]-v.h.until(t.unit(), sent))
	if more := t.left - t.spent - known; more > 0 && t.shape == fixed && !t.perCost && !first && t.at >= 0 && sent < t.whole &&
		more <= v.h.until(attempts, sent)-v.h.until(attempts, sent-max(v.guard, time.Duration(v.latency/jitterOfLatency))) {
		t.left -= more // the attempt overtook others on its way
	}
	t.at = sent
	if f.Reset < 0 {
		t.whole = 0
		return
	}
	named := report{sent: sent, took: v.now - sent, reset: min(f.Reset, maxSilence)}
	t.compare(named)
	reset := t.fromSending(named)
	whole := sent + reset
	if unsure {
		whole = v.now + reset // rather late, until its origin is known
	}
	if used := t.quota - t.left; t.quota > 0 && used > 0 {
		if t.quota > 1 || !refused {
			t.refill(used, reset, rounded)
		}
		if !refused {
			t.resets.sent.add(named.reset)
			t.resets.answered.add(named.reset + named.took)
			t.atLeast = max(t.atLeast, named.reset-named.took-rounded)
			named.used = used / t.rounding()
			t.learn(named, t.fromSending, rounded+time.Duration(max(v.jitter, v.latency/jitterOfLatency)))
		}
		if t.shape == sliding {
			t.occupied(v, sent, refused, used)
		}
	}
	if near := t.shape == fixed && (whole-t.whole).Abs() < max(rounded, t.length()/10); near && !first {
		whole = max(whole, t.whole) // the round trip of the others took longer
	}
	t.whole = whole
}

// precision learns to what resets are rounded, and returns it.
func (t *advertised) precision(f Fact) time.Duration {
	switch {
	case f.Reset%time.Millisecond != 0: // derived from the clock
		t.fine = max(-100, t.fine-1)
	case f.Reset%time.Second != 0, f.Precise && t.at < 0:
		t.fine = min(100, t.fine+1)
	case f.Precise && f.Reset != t.last.reset: // from one whole second to another
		t.fine = max(-100, t.fine-1)
	}
	t.precise = f.Precise
	if t.fine <= 0 {
		return time.Second
	}
	return time.Millisecond
}

// unrounded returns the remaining units that agree best with our own use, of those that are
// rounded down to the reported ones.
func (t *advertised) unrounded(v *view, sent time.Duration, f Fact) float64 {
	length := max(t.length(), f.Reset)
	left := t.quota - t.share*v.h.used(cost, sent, length)
	switch {
	case t.shape == fixed && f.Reset > 0:
		left = t.quota - t.share*v.h.between(cost, sent+f.Reset-length, sent)
	case t.shape == bucket && t.at >= 0:
		left = min(t.quota, t.left+t.slow*(sent-t.at).Seconds()) - t.share*(v.h.until(cost, sent)-v.h.until(cost, t.at))
	}
	if left > f.Remaining+ownGrains*t.grain {
		return f.Remaining // others use it, too
	}
	return min(max(f.Remaining, left), f.Remaining+t.grain-1)
}

// graze increases the limit's margin, because an attempt came too early.
func (t *advertised) graze(v *view, f refusal) {
	length := t.length()
	if t.shape == bucket && t.slow > 0 {
		length = seconds(t.quota / t.slow)
	}
	own := t.share*v.h.used(t.unit(), f.sent, length) + t.need(f.cost) // including the refused attempt
	t.shared = own < ownUse*t.quota
	if t.shape == bucket && !t.shared {
		t.errors[bucket] += 0.3 // evidence against a bucket, which would not have run dry
		t.turn()
	}
	if t.shape == bucket && t.quota <= 2 && t.whole > f.sent {
		t.slack += min(t.whole-f.sent, v.guard)
		return
	}
	t.slack = min(max(2*t.slack, v.guard/4), v.guard)
	if v.punished {
		t.margin = min(maxPunished, max(2*t.margin, grazed))
		return
	}
	t.margin = max(t.margin, min(maxGrazed, t.margin+grazed))
}

func (t *advertised) sent(now time.Duration, c float64) {
	t.roll(now)
	if t.perCost {
		t.spent += c * t.share
	} else {
		t.spent++
	}
}

// takeBack undoes sent for an attempt that was sent at an instant.
func (t *advertised) takeBack(sent time.Duration, c float64) {
	switch {
	case sent < t.at:
	case t.perCost:
		t.spent = max(0, t.spent-c*t.share)
	default:
		t.spent = max(0, t.spent-1)
	}
}

// roll starts a new window if one has ended and no response has shown it.
func (t *advertised) roll(now time.Duration) {
	if t.shape != fixed || t.at < 0 || t.whole <= t.at || now < t.whole || t.quota <= 0 {
		return
	}
	t.left, t.spent, t.at, t.rolled = t.quota, 0, t.whole, true
	t.whole = now + max(t.length(), time.Second)
}

// answered records the response to an attempt sent at an instant. If the window has ended
// and responses no longer report the limit, it no longer delays attempts.
func (t *advertised) answered(sent time.Duration) {
	t.gone = t.gone || t.rolled && sent >= t.at
}

func (t *advertised) free(v *view, c float64) time.Duration {
	if !t.trusted() || t.gone || t.at < 0 {
		return v.now
	}
	t.roll(v.now)
	need := t.need(c)
	spare := math.Floor(t.margin*t.quota) + t.reserve(v)
	switch {
	case t.shape == sliding && t.quota > 0 && t.known().longest > 0:
		return max(v.now, t.slide(v, need), v.last+t.apart(v, need))
	case t.shape == bucket:
		spare = min((t.quota-need)/2, 1+max(spare, math.Floor(t.slow*v.latency/jitterOfLatency/1e9)))
	}
	short := min(need+spare, max(need, t.quota)) - (t.left - t.spent)
	if short <= 0 || t.whole <= t.at {
		return max(v.now, v.last+t.apart(v, need))
	}
	at := t.whole
	if t.shape == bucket && t.slow > 0 {
		pace := t.pace()
		at = t.at + seconds(short/pace)
		if pace < 0.95*t.slow { // the refill while nobody sends shows little
		} else if over := t.quota - need - spare - t.spent; over > 0 {
			at = min(at, t.whole-seconds(over/t.fast))
		} else {
			at = min(at, t.whole+seconds(-over/t.slow))
		}
	}
	at += t.late(v)
	if t.quota <= 1 && t.slow > 0 { // with so few units, nothing compensates for an attempt that overtakes another
		at = max(at, v.last+seconds(1/t.pace())+t.slack)
	}
	return max(v.now, at, v.last+t.apart(v, need))
}

// late returns the margin added to each attempt, since network latency varies.
func (t *advertised) late(v *view) time.Duration {
	usual := v.guard / jitterOfTrip
	if usual == 0 {
		usual = time.Duration(v.latency / jitterOfLatency)
	}
	if t.shape == bucket {
		return t.slack // a unit to spare
	}
	return max(t.slack, usual, t.length()/lateness, min(time.Duration(v.jitter), t.length()/maxLateness))
}

// slide returns when a sliding window has room.
func (t *advertised) slide(v *view, need float64) time.Duration {
	at := v.now
	others := t.others
	if !t.perCost {
		others = math.Round(others) // a fraction would take a whole one of few units
	}
	mine := t.quota - others
	room := max(need, mine-min(2*t.surge, maxGrazed*t.quota)-math.Floor(t.margin*mine))
	late := false
	if t.quota > maxCells { // with so many, the history has only approximate times
		room = max(need, room-coarse*mine)
		late = float64(v.flying) > 2*coarse*t.quota // and responses come too late to correct that
	}
	if over := t.share*v.h.total[t.unit()] + need - room; over > 0 {
		if left := v.h.sentBy(t.unit(), over/t.share, late); left != never {
			at = left + t.length() + t.late(v)
		}
	}
	return at
}

// room estimates how many attempts could be sent at once now, by the latest response.
func (t *advertised) room(v *view) float64 {
	if !t.trusted() || t.gone || t.at < 0 {
		return math.Inf(1)
	}
	left := t.left - t.spent
	if t.shape == sliding && t.known().longest > 0 {
		left = t.quota - t.others - t.share*v.h.used(t.unit(), v.now, t.length())
	}
	return left / max(1e-9, t.need(v.mean[cost]))
}

// interval returns the sustained interval in nanoseconds; 0 if unknown.
func (t *advertised) interval() float64 {
	switch {
	case t.perCost || !t.trusted() || t.gone || t.quota <= 0:
	case t.shape == bucket && t.slow > 0:
		return 1e9 / t.slow
	case t.shape != bucket:
		return float64(t.length()) / t.quota
	}
	return 0
}
