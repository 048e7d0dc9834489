package learn

import (
	"math"
	"slices"
	"time"
)

// Fact is one limit that a response names, as of when it was settled. Quota and
// Remaining are in units, negative when unknown, as are Window and Reset.
type Fact struct {
	Name             string
	PerCost          bool
	Refills          bool // units come back one by one, going by its name
	Quota, Remaining float64
	Window, Reset    time.Duration
	// Share is the part of the attempt's cost that counted in it, such as the output among
	// all tokens; 0 when that is not known.
	Share float64
}

// Advertise takes in a limit that a response to an attempt names. Call it before
// [Law.Observe] of the same attempt.
func (l *Law) Advertise(sent, now time.Duration, refused bool, f Fact) {
	if !(f.Remaining >= 0) {
		return
	}
	l.clock = max(l.clock, now)
	for i := range l.headers {
		if t := &l.headers[i]; t.name == f.Name && t.perCost == f.PerCost {
			t.shares(f.Share)
			t.update(l.view(), sent, refused, f)
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
		t.update(l.view(), sent, refused, f)
		l.headers = append(l.headers, t)
	}
}

// plenty says that every advertised limit has something left, as far as is known.
func (l *Law) plenty() bool {
	for i := range l.headers {
		if t := &l.headers[i]; !t.trusted() || t.left-t.spent < min(t.quota, max(2, t.quota/50)) {
			return false
		}
	}
	return len(l.headers) > 0
}

// explained says that the refusal itself names a limit that is used up: others use it
// too, it came too early, or its cost was uncertain. The limit is held back a little
// more for it.
func (l *Law) explained(f refusal) bool {
	found := false
	for i := range l.headers {
		t := &l.headers[i]
		if !t.trusted() || t.refused != f.sent || t.remained >= t.need(f.cost) {
			continue
		}
		if l.carried < t.explained+rareRefusal {
			t.explains++
		} else {
			t.explains = 0
		}
		t.explained = l.carried
		t.graze(l.view(), f)
		found = found || t.explains < maxExplained
	}
	return found
}

// allBack is when the advertised sliding windows that are nearly used up are whole
// again.
func (l *Law) allBack() time.Duration {
	at := l.clock
	for i := range l.headers {
		if t := &l.headers[i]; t.trusted() && t.shape == sliding && t.left-t.spent < max(2, t.quota/50) {
			at = max(at, t.whole)
		}
	}
	return at
}

// advertised is when the advertised limits let an attempt go.
func (l *Law) advertised(now time.Duration, c float64) time.Duration {
	at := now
	if len(l.headers) == 0 {
		return at
	}
	v := l.view()
	for i := range l.headers {
		at = max(at, l.headers[i].free(v, c))
	}
	return at
}

// advertised is a limit that response headers name. It only ever holds back.
type advertised struct {
	shaper
	name    string
	perCost bool
	quota   float64
	window  time.Duration // as it is named
	longest time.Duration // reset that was seen
	fine    int           // above 0: resets are rounded to milliseconds, not to seconds
	share   float64       // of what an attempt costs, what counts here
	grain   float64       // what is left is rounded down to a multiple of it

	at    time.Duration // when the newest attempt that was answered was sent; -1 before any
	left  float64       // units, then
	spent float64       // units sent since
	whole time.Duration // when all is back if nothing more is sent

	refused  time.Duration // when the newest attempt was sent that was refused
	remained float64       // and what was left then

	slow, fast float64 // units a second that come back to a bucket lie between these
	taken      float64 // what others took of a bucket lately
	during     float64 // and in how many seconds
	others     float64 // what others have in use of a window
	surge      float64 // by how much that grew from one answer to the next
	rolls      int     // windows that ended before an answer said so
	rolled     bool    // nothing of this one was answered
	gone       bool    // what was answered in this one does not name it
	shared     bool    // at the last refusal others had used much of it
	margin     float64 // part of the quota that is left alone
	slack      time.Duration

	last               said
	sentAt, answeredAt float64 // by how much the reset changes, going by either instant

	explains  int     // refusals in short order that it explained
	explained float64 // when it last did, in attempts carried
}

func (t *advertised) unit() unit {
	if t.perCost {
		return cost
	}
	return attempts
}

// need is how much of it an attempt takes.
func (t *advertised) need(c float64) float64 {
	if t.perCost {
		return min(c*t.share, max(1, t.quota))
	}
	return 1
}

// shares learns which part of what attempts cost counts here.
func (t *advertised) shares(share float64) {
	if share > 0 && t.perCost {
		if t.at < 0 {
			t.share = share
		}
		t.share += newestShare * (share - t.share)
	}
}

// length is that of a window: a usual one, when it is one but for rounding.
func (t *advertised) length() time.Duration {
	if t.window > 0 {
		return t.window
	}
	for _, u := range usual {
		if t.longest >= u-u/50 && t.longest <= u+u/50+time.Second {
			return u
		}
	}
	return t.longest
}

func (t *advertised) update(v view, sent time.Duration, refused bool, f Fact) {
	if refused {
		t.refused, t.remained = sent, f.Remaining
	}
	if sent < t.at {
		return
	}
	rounded := time.Millisecond
	switch {
	case f.Reset%time.Millisecond != 0: // taken from the clock
		t.fine = max(-100, t.fine-1)
	case f.Reset%time.Second != 0:
		t.fine = min(100, t.fine+1)
	}
	if t.fine <= 0 {
		rounded = time.Second
	}
	if f.Quota > 0 && f.Quota != t.quota {
		t.quota, t.slow, t.fast, t.from = f.Quota, 0, math.Inf(1), said{}
	}
	if f.Window > 0 {
		t.window = f.Window
	}
	if every := t.interval(); every > 0 && t.at >= 0 { // others make room for it too
		fade := math.Exp(-float64(sent-t.at) / every / (slackMemory * max(1, v.dear)))
		t.margin, t.slack = t.margin*fade, time.Duration(float64(t.slack)*fade)
	}
	if t.shape == bucket && t.at >= 0 && sent > t.at {
		passed := (sent - t.at).Seconds()
		own := t.share * (v.h.until(t.unit(), sent) - v.h.until(t.unit(), t.at))
		t.taken = drainFade*t.taken + min(t.quota, t.left+t.slow*passed) - own - f.Remaining
		t.during = drainFade*t.during + passed
	}
	first, unsure := t.rolled, t.at < 0 // the first answer of a window, and of all
	t.rolled, t.gone = false, false
	t.left, t.at, t.spent = f.Remaining, sent, t.share*max(0, v.h.total[t.unit()]-v.h.until(t.unit(), sent))
	if f.Reset < 0 {
		t.whole = 0
		return
	}
	named := said{sent: sent, took: v.now - sent, reset: min(f.Reset, maxSilence)}
	t.compare(named)
	reset := t.fromSending(named)
	whole := sent + reset
	if unsure {
		whole = v.now + reset // rather late, while it is not known from when it counts
	}
	if math.Mod(f.Remaining, coarseUnits) != 0 || !t.perCost {
		t.grain = 1
	}
	if used := t.quota - t.left; t.quota > 0 && used > 0 {
		if t.quota > 1 || !refused {
			t.refill(used, reset, rounded)
		}
		if !refused {
			t.longest = max(t.longest, reset)
			named.used = used / t.grain
			t.learn(named, t.fromSending, rounded+time.Duration(max(v.jitter, v.latency/jitterOfLatency)))
		}
		if length := t.length(); t.shape == sliding && v.now-sent < length/20 {
			own := sent
			if refused {
				own-- // whether refusals count is seen so
			}
			t.seen(used - t.share*v.h.used(t.unit(), own, length))
		}
	}
	if near := t.shape == fixed && (whole-t.whole).Abs() < max(rounded, t.length()/10); near && !first {
		whole = max(whole, t.whole) // the way there took the others longer
	}
	t.whole = whole
}

// compare notes whether the reset is counted from when the attempt was answered. If the
// provider names an instant, the time until then was computed when the answer arrived;
// if it names a duration, that counts from when the answer was sent. Which of the two
// varies less from one answer to the next shows which kind it is.
func (t *advertised) compare(b said) {
	a := t.last
	t.last = b
	early, late := b.reset-a.reset, b.reset-a.reset+b.took-a.took
	if t.shape == fixed {
		early, late = early+b.sent-a.sent, late+b.sent-a.sent
	}
	if max(early.Abs(), late.Abs()) < t.length()/4 {
		smooth(&t.sentAt, float64(early.Abs()), 0.1)
		smooth(&t.answeredAt, float64(late.Abs()), 0.1)
	}
}

// fromSending returns the time from when an attempt was sent to the reset that its answer
// names.
func (t *advertised) fromSending(b said) time.Duration {
	if t.answeredAt < t.sentAt {
		return b.reset + b.took
	}
	return b.reset
}

// refill learns how fast a bucket fills: what is in use is rounded up, and so is the
// reset.
func (t *advertised) refill(used float64, reset, rounded time.Duration) {
	high := math.Inf(1)
	if reset > rounded {
		high = used / (reset - rounded).Seconds()
	}
	if t.quota > 1 {
		used = max(0, used-t.grain) // all but a part of one
	}
	low := used / max(reset, time.Millisecond).Seconds()
	if t.slow, t.fast = max(t.slow, low), min(t.fast, high); t.slow > t.fast {
		t.slow, t.fast = low, high // it was changed
	}
}

// seen takes in what others have in use of a window, and how fast that grows.
func (t *advertised) seen(others float64) {
	others = max(0, others)
	t.surge = max(0.9*t.surge, others-t.others)
	if t.grain > 1 && others > t.others {
		others = t.others + (others-t.others)/20 // it is mostly rounding
	}
	t.others = others
}

// graze reserves a part of the limit, because an attempt came too early.
func (t *advertised) graze(v view, f refusal) {
	length := t.length()
	if t.shape == bucket && t.slow > 0 {
		length = seconds(t.quota / t.slow)
	}
	own := t.share*v.h.used(t.unit(), f.sent, length) + t.need(f.cost) // with what did not fit
	t.shared = own < ownUse*t.quota
	if t.shape == bucket {
		t.errors[bucket] += 0.3 // such a one does not run dry
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
	if t.rolled && t.spent == 0 {
		t.whole = now + max(t.length(), time.Second) // some begin with the first attempt
	}
	if t.perCost {
		t.spent += c * t.share
	} else {
		t.spent++
	}
}

// takeBack undoes sent, in the window in which that was.
func (t *advertised) takeBack(sent time.Duration, c float64) {
	switch {
	case sent < t.at:
	case t.perCost:
		t.spent = max(0, t.spent-c*t.share)
	default:
		t.spent = max(0, t.spent-1)
	}
}

// roll starts a new window when one has ended and nothing was answered since.
func (t *advertised) roll(now time.Duration) {
	if t.shape != fixed || t.at < 0 || t.whole <= t.at || now < t.whole || t.quota <= 0 {
		return
	}
	t.left, t.spent, t.at, t.rolled = t.quota, 0, t.whole, true
	t.whole = now + max(t.length(), time.Second)
	if t.rolls++; t.rolls == 1 && !t.perCost {
		t.left = 1 // the first time one finds out
	}
}

// answered notes that an attempt, sent at that instant, was answered. If the window has
// ended and answers no longer name the limit, it no longer holds anything back.
func (t *advertised) answered(sent time.Duration) {
	t.gone = t.gone || t.rolled && sent >= t.at
}

func (t *advertised) free(v view, c float64) time.Duration {
	if !t.trusted() || t.gone || t.at < 0 {
		return v.now
	}
	t.roll(v.now)
	need := t.need(c)
	spare := math.Floor(t.margin * t.quota)
	if t.rolled && t.rolls == 1 && t.left == 1 { // one goes and finds out, the next when that is answered
		if t.spent == 0 {
			return v.now
		}
		return max(v.now, v.last+2*time.Duration(v.latency))
	}
	switch {
	case t.shape == sliding && t.quota > 0 && t.longest > 0:
		return max(v.now, t.slide(v, need))
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
		if pace < 0.95*t.slow { // what is back when nobody sends says little
		} else if over := t.quota - need - spare - t.spent; over > 0 {
			at = min(at, t.whole-seconds(over/t.fast))
		} else {
			at = min(at, t.whole+seconds(-over/t.slow))
		}
	}
	at += t.late(v)
	if t.quota <= 1 && t.slow > 0 { // nothing makes up for one that overtakes another
		at = max(at, v.last+seconds(1/t.pace())+t.slack)
	}
	return max(v.now, at, v.last+t.apart(v, need))
}

// apart is how far apart attempts go while others use the limit too: what is left is
// spread over the time until all is back. All of them do so, and each gets as much, since
// all are answered the same that is left. Under a penalty a bucket is not drained at once
// either: each that is under way at a refusal may lengthen it. A limit on cost is spread once
// it was refused and others proved to use it, not before: what is under way there looks like
// the use of others.
func (t *advertised) apart(v view, need float64) time.Duration {
	over, longest := t.whole-v.now, never
	spread := t.shared && t.margin >= grazed/2
	if t.shape == bucket && t.slow > 0 {
		over = seconds(t.quota / t.slow)
		if taken := t.taken / max(t.during, 1e-3); !t.perCost {
			longest = seconds(2 * need / (t.slow - min(max(0, taken), maxTaken*t.slow)))
			spread = spread || v.punished && t.quota >= manyAtOnce || t.sure() && taken > (1-ownUse)*t.slow
		}
	}
	if !spread || t.quota <= 1 {
		return 0
	}
	return min(longest, time.Duration(max(0, float64(over))*need/max(need, t.left-t.spent)/windowSpread))
}

// pace is how many units of a bucket come back in a second and are not taken by others,
// who take less once they see that there is little left. On a limit on cost that may be what
// is under way, which takes what it took.
func (t *advertised) pace() float64 {
	part := waitedTaken
	if t.perCost {
		part = maxTaken
	}
	return t.slow - min(max(0, t.taken/max(t.during, 1e-3)), part*t.slow)
}

// late returns the margin added to each attempt, since network latency varies.
func (t *advertised) late(v view) time.Duration {
	usual := v.guard / jitterOfTrip
	if usual == 0 {
		usual = time.Duration(v.latency / jitterOfLatency)
	}
	if t.shape == bucket {
		return t.slack // there is a unit to spare
	}
	return max(t.slack, usual, t.length()/lateness, min(time.Duration(v.jitter), t.length()/maxLateness))
}

// slide is when there is room in a sliding window.
func (t *advertised) slide(v view, need float64) time.Duration {
	at := v.now
	mine := t.quota - t.others
	room := max(need, mine-min(2*t.surge, maxGrazed*t.quota)-math.Floor(t.margin*mine))
	late := false
	if t.quota > maxCells { // of so many the history knows only about when they went
		room = max(need, room-coarse*mine)
		late = float64(v.flying) > 2*coarse*t.quota // and answers come too late to set that right
	}
	if over := t.share*v.h.total[t.unit()] + need - room; over > 0 {
		if left := v.h.sentBy(t.unit(), over/t.share, late); left != never {
			at = left + t.length() + t.late(v)
		}
	}
	return at
}

// room is about how many attempts could go at once now, going by what was answered.
func (t *advertised) room(v view) float64 {
	if !t.trusted() || t.gone || t.at < 0 {
		return math.Inf(1)
	}
	left := t.left - t.spent
	if t.shape == sliding && t.longest > 0 {
		left = t.quota - t.others - t.share*v.h.used(t.unit(), v.now, t.length())
	}
	return left / max(1e-9, t.need(v.mean[cost]))
}

// interval is the sustained one, in nanoseconds; 0 when it is not known.
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
