package learn

import (
	"math"
	"time"
)

// Fact is one limit that a response names, as of when it was settled. Quota and
// Remaining are in units, negative when unknown, as are Window and Reset.
type Fact struct {
	Name             string
	PerCost          bool
	Refills          bool // units come back one by one
	Quota, Remaining float64
	Window, Reset    time.Duration
}

// Advertise takes in a limit that a response to an attempt names. Call it before
// [Law.Observe] of the same attempt.
func (l *Law) Advertise(sent, now time.Duration, refused bool, retryAfter time.Duration, f Fact) {
	if !(f.Remaining >= 0) {
		return
	}
	l.clock = max(l.clock, now)
	for i := range l.headers {
		if t := &l.headers[i]; t.name == f.Name && t.perCost == f.PerCost {
			t.update(l.view(), sent, refused, retryAfter, f)
			return
		}
	}
	if len(l.headers) < maxLimits {
		l.headers = append(l.headers, advertised{name: f.Name, perCost: f.PerCost, refills: f.Refills, at: -1})
		l.headers[len(l.headers)-1].update(l.view(), sent, refused, retryAfter, f)
	}
}

// plenty says that every advertised limit has something left, as far as is known.
func (l *Law) plenty() bool {
	for i := range l.headers {
		if t := &l.headers[i]; t.at < 0 || t.doubts > trust || t.left-t.spent < max(2, t.quota/50) {
			return false
		}
	}
	return len(l.headers) > 0
}

// explained says that the refusal itself named a limit that was used up, which
// happens now and then when others use it or costs are uncertain.
func (l *Law) explained(f refusal) bool {
	if l.penalty.on() {
		return false
	}
	for i := range l.headers {
		t := &l.headers[i]
		if t.quota < minExplains {
			continue
		}
		need := 1.0
		if t.perCost {
			need = min(f.cost, max(1, t.quota))
		}
		if t.doubts <= trust && t.at == f.sent && t.left < need {
			t.explains++
			return t.explains%maxExplained != 0
		}
	}
	return false
}

// maxExplained is how often an advertised limit may explain a refusal before one is
// looked into all the same.
const maxExplained = 3

// minExplains: with a smaller quota it is used up at each refusal, whatever refused.
const minExplains = 4

// grazed leaves something of the limits that were nearly used up at a refusal.
func (l *Law) grazed() {
	for i := range l.headers {
		if t := &l.headers[i]; t.left-t.spent < max(2, t.quota/50) {
			t.margin = min(maxGrazed, t.margin+grazed)
		}
	}
}

const grazed, maxGrazed = 0.01, 0.08

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
	name     string
	perCost  bool
	refills  bool
	quota    float64
	window   time.Duration
	left     float64       // as of the newest attempt that was answered
	at       time.Duration // when that was sent; -1 before any
	spent    float64       // units sent since
	reset    time.Duration // when all is back
	rate     float64       // units a second that come back, for one that refills
	doubts   int           // how often it was found wrong
	explains int           // refusals that it explained
	margin   float64       // part of the quota that is left alone
	rolled   bool          // a window has ended, and nothing was answered since

	longest time.Duration // reset that was seen, and the units in use at such ones
	few     float64
	many    float64
	others  float64 // what others have in use of a sliding window
	slides  bool    // named like a bucket, it was found to be a sliding window
}

// Of a bucket of which twice as much is in use, all is back after twice the time;
// a sliding window takes its whole length, however little is in use.
const (
	minSlide   = 3 * time.Second // resets that are rounded to seconds say little
	sameReset  = 0.88
	deeper     = 2.0
	deeperPart = 0.1 // of the quota
	// The same of one that is named like a fixed window, whose reset comes nearer.
	deeperFixed = 0.5
)

// discern finds out whether a limit that is named like a bucket is a sliding window.
func (t *advertised) discern(v view, sent time.Duration, reset time.Duration) {
	used := t.quota - t.left
	if t.slides {
		if length := t.length(); v.now-sent < length/20 {
			t.others = max(0, used-v.h.used(t.unit(), sent, length))
		}
		return
	}
	if reset < minSlide || used <= 0 {
		return
	}
	if float64(reset) > 1.1*float64(t.longest) {
		t.longest, t.few, t.many = reset, used, used
	}
	t.longest = max(t.longest, reset)
	if float64(reset) >= sameReset*float64(t.longest) {
		t.few, t.many = min(t.few, used), max(t.many, used)
	}
	part := deeperFixed
	if t.refills {
		part = deeperPart
	}
	t.slides = t.many > deeper*t.few && t.many-t.few > part*t.quota
}

// length is that of a sliding window: a usual one, when it is one but for rounding.
func (t *advertised) length() time.Duration {
	for _, u := range usual {
		if t.longest >= u-u/50 && t.longest <= u+u/50+time.Second {
			return u
		}
	}
	return t.longest
}

// trust is how often an advertised limit may be wrong before it is left out.
const trust = 3

func (t *advertised) unit() unit {
	if t.perCost {
		return cost
	}
	return attempts
}

func (t *advertised) update(v view, sent time.Duration, refused bool, retryAfter time.Duration, f Fact) {
	if sent < t.at {
		return
	}
	reset := t.reset
	if f.Reset >= 0 {
		reset = v.now + min(f.Reset, maxSilence)
	}
	if t.at >= 0 && !t.refills && t.quota > 0 && f.Remaining > t.left+1 &&
		reset < t.reset+t.window/4 && v.now < t.reset-t.window/20 {
		t.doubts++ // more is left, though the window goes on
	}
	if f.Quota > 0 {
		t.quota = f.Quota
	}
	if f.Window > 0 {
		t.window = f.Window
	}
	t.left, t.at, t.reset, t.rolled = f.Remaining, sent, reset, false
	t.spent = max(0, v.h.total[t.unit()]-v.h.until(t.unit(), sent))
	if used := t.quota - t.left; t.refills && used > 0 && f.Reset > 0 && (t.rate == 0 || !refused) {
		// What is left is rounded down, the time is rounded up; and a sliding window,
		// which some name like a bucket, takes as long however little is in use.
		measured := max(1, used-1) / f.Reset.Seconds()
		if used < 3 || t.rate == 0 {
			t.rate = measured
		} else {
			t.rate = max(0.98*t.rate, measured)
		}
		if t.window > 0 {
			t.rate = min(t.rate, t.quota/t.window.Seconds())
		}
	}
	if !refused {
		t.discern(v, sent, f.Reset)
	}
	if refused && t.left <= 0 && t.refills && !t.slides && f.Reset > 2*time.Second && !t.perCost &&
		(retryAfter <= 0 || retryAfter >= f.Reset/2) {
		t.refills = false // it comes back all at once, or has not yet
	}
}

func (t *advertised) sent(now time.Duration, c float64) {
	t.roll(now)
	if t.perCost {
		t.spent += c
	} else {
		t.spent++
	}
}

// roll starts a new window when one has ended and nothing was answered since.
func (t *advertised) roll(now time.Duration) {
	if now < t.reset || t.refills || t.left-t.spent >= t.quota {
		return
	}
	t.left, t.spent, t.rolled = max(1, t.left), 0, true
	if t.perCost {
		t.left = t.quota
	}
	t.reset = now + max(t.window, time.Second)
}

func (t *advertised) free(v view, c float64) time.Duration {
	if t.doubts > trust || t.at < 0 {
		return v.now
	}
	t.roll(v.now)
	need := 1.0
	if t.perCost {
		need = min(c, max(1, t.quota))
	}
	spare := math.Floor(t.margin * t.quota)
	if t.rolled {
		spare = 0 // one may find out
	}
	if t.slides {
		room := max(need, (t.quota-t.others)*0.995-spare)
		if over := v.h.total[t.unit()] + need - room; over > 0 {
			if at := v.h.reached(t.unit(), over-need*0.999); at != never {
				return max(v.now, at+t.length()+v.guard)
			}
		}
		return v.now
	}
	short := min(need+spare, t.quota) - (t.left - t.spent)
	switch {
	case short <= 0:
		return v.now
	case t.refills && t.rate > 0:
		return max(v.now, min(t.reset, t.at+seconds(short/t.rate)))
	case t.reset <= v.now:
		return v.now
	}
	return t.reset + 20*time.Millisecond
}

// interval is the sustained one, in nanoseconds; 0 when it is not known.
func (t *advertised) interval() float64 {
	switch {
	case t.perCost || t.doubts > trust || t.quota <= 0:
	case t.slides:
		return float64(t.length()) / t.quota
	case t.window > 0:
		return float64(t.window) / t.quota
	case t.refills && t.rate > 0:
		return 1e9 / t.rate
	}
	return 0
}
