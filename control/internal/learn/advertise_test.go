package learn

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestAnAdvertisedLimitIsHeldByTheShapeOfItsResets(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    provider
	}{
		{"a bucket", provider{shape: bucket, units: 40, length: 4 * sec, round: ms, named: true}},
		{"a bucket named like a window", provider{shape: bucket, units: 40, length: 20 * sec, round: sec}},
		{"a bucket of one", provider{shape: bucket, units: 1, length: 300 * ms, round: ms, named: true}},
		{"a window of 57 in a second named like a bucket", provider{shape: fixed, units: 57, length: sec, round: ms, named: true}},
		{"a window that begins again", provider{shape: fixed, units: 100, length: 30 * sec, round: sec}},
		{"a sliding window named like a bucket", provider{shape: sliding, units: 38, length: 2760 * ms, round: ms, named: true}},
		{"four in a sliding second, which is always reported as 1s", provider{shape: sliding, units: 4, length: sec, round: ms, named: true, stated: true}},
		{"durations that are rounded to seconds", provider{shape: fixed, units: 100, length: 30 * sec, round: sec, stated: true, alike: true}},
		{"a sliding window of which more is left as time passes", provider{shape: sliding, units: 512, length: 290 * sec, round: sec}},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		p := tt.p
		admitted, refused := p.holds(l, 2*ms, 8*ms, 20*time.Minute)
		if t.Logf("%s: %d admitted, %d refused", tt.name, admitted, refused); refused > 3+admitted/1000 {
			t.Errorf("%s: %d refused", tt.name, refused)
		}
		if least := 0.9 * p.units * float64(20*time.Minute/p.length); float64(admitted) < least {
			t.Errorf("%s: %d admitted, want %.0f", tt.name, admitted, least)
		}
		if a := &l.headers[0]; a.shape != p.shape && p.units > 1 && !p.alike {
			t.Errorf("%s: shape %d, want %d", tt.name, a.shape, p.shape)
		}
		if len(l.limits) > 0 {
			t.Errorf("%s: %d limits are held besides", tt.name, len(l.limits))
		}
	}
}

func TestPlentyIsLeftOfAnUnusedLimit(t *testing.T) {
	for _, tt := range []struct {
		quota, left, spent float64
		want               bool
	}{{1, 1, 0, true}, {1, 0, 0, false}, {1, 1, 1, false}, {100, 3, 0, true}, {100, 1, 0, false}, {6000, 100, 0, false}} {
		l := Law{headers: []advertised{{shaper: newShaper(fixed), quota: tt.quota, left: tt.left, spent: tt.spent}}}
		if got := l.plenty(); got != tt.want {
			t.Errorf("%v of %v left, %v sent since: plenty %v", tt.left, tt.quota, tt.spent, got)
		}
	}
}

// Two responses differ in latency, which is in the reset of neither or of both. That must
// not count as a change of the limit, as if others used it.
func TestAnAttemptThatOvertookOthersShowsNoMoreUnits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		apart time.Duration // between the attempts
		want  int           // room for so many after the answer to the newest, which says 8 of 10
	}{
		{"the others are still on their way", ms, 5},
		{"the others must have arrived, so units came back", 2 * sec, 8},
	} {
		l := New(Config{Ceiling: ms, Initial: ms, Slowest: time.Hour})
		answer := func(sent, now time.Duration, left float64) {
			l.Advertise(sent, now, false, Fact{Name: "requests", Quota: 10, Remaining: left, Window: -1, Reset: time.Minute - sent})
			l.Observe(Outcome{Sent: sent, Now: now, Class: Admitted, Estimate: 1, Cost: 1})
		}
		l.Sent(0, 1)
		answer(0, 100*ms, 9)
		now := sec
		for range 4 {
			l.Sent(now, 1)
			now += tt.apart
		}
		now -= tt.apart
		answer(now, now+100*ms, 8)
		now += sec
		sent := 0
		for ; sent < 12 && l.Hold(now, 1) < now+sec; sent++ {
			now = l.Hold(now, 1) + ms
			l.Sent(now, 1)
		}
		if sent != tt.want {
			t.Errorf("%s: %d more are sent, want %d", tt.name, sent, tt.want)
		}
	}
}

func TestASlowAnswerIsNoChangeOfTheReset(t *testing.T) {
	l := New(Config{Ceiling: 250 * ms, Initial: sec, Slowest: time.Hour})
	for _, a := range []struct{ sent, took, left, reset time.Duration }{
		{1132 * ms, 775 * ms, 58, 59833 * ms},
		{2132 * ms, 873 * ms, 57, 59738 * ms},
		{3632 * ms, 1157 * ms, 56, 59449 * ms},
	} {
		l.Sent(a.sent, 1)
		now := a.sent + a.took
		l.Advertise(a.sent, now, false, Fact{Name: "requests", Refills: true, Quota: 60, Remaining: float64(a.left), Window: -1, Reset: a.reset})
		l.Observe(Outcome{Sent: a.sent, Now: now, Class: Admitted, Estimate: 1, Cost: 1})
		if at := l.Hold(now, 1); at > max(now, a.sent+sec) {
			t.Errorf("with %d of 60 left, the next attempt goes after %v, want at most the second of the beginning: %+v", a.left, at-a.sent, l.headers[0].shaper)
		}
	}
}

// An advertised limit that keeps refusing explains less and less.
func TestAnAdvertisedLimitThatRefusesOftenIsNotTheOnlyOne(t *testing.T) {
	for _, tt := range []struct {
		name           string
		carried, lost  int // from one refusal to the next
		explains, want bool
	}{
		{"after many attempts", 100, 1, true, true},
		{"after few", 15, 1, true, false},
		{"after many, with a third as many refused in flight", 100, 30, true, false},
		{"after many, with room left", 100, 1, false, false},
	} {
		l := &Law{headers: []advertised{{shaper: newShaper(sliding), quota: 69, share: 1}}}
		var got bool
		for n := range 2 * maxExplained {
			l.allAdmitted, l.allRefused = l.allAdmitted+float64(tt.carried), l.allRefused+tt.lost
			a := &l.headers[0]
			if a.refused = time.Duration(n) * time.Minute; !tt.explains {
				a.remained = 30
			}
			got = l.advertisedExplains(refusal{sent: a.refused, cost: 1})
		}
		if got != tt.want {
			t.Errorf("%s: explained %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Ten attempts a second go, and four were refused since the limit explained a refusal.
func TestAfterHowManyAttemptsARefusalOfAnAdvertisedLimitIsRare(t *testing.T) {
	for _, tt := range []struct {
		name            string
		refused         int
		penalty, beyond time.Duration
		want            float64
	}{
		{"twenty at least", 1, 0, 0, 20},
		{"ten times as many as were refused", 4, 0, 0, 40},
		{"three times as many as a penalty costs", 4, time.Minute, 0, 1800},
		{"or the last block, beyond what the limit explains", 4, time.Minute, 2 * time.Minute, 3600},
		{"which cost little", 4, 0, sec, 40},
	} {
		l := Law{penalty: penalty{length: tt.penalty}, beyond: tt.beyond, block: block{pace: 10}}
		if got := l.rare(tt.refused); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Some providers round remaining costs down to thousands. A limit of fewer is always
// reported as used up, and attempts that succeed show that it is not.
func TestALimitBelowTheRoundingIsCountedByItself(t *testing.T) {
	for _, tt := range []struct {
		name             string
		quota, remaining float64
		refused          bool
		held             bool
	}{
		{"too small for the rounding", 645, 0, false, false},
		{"refused", 645, 0, true, true},
		{"large enough", 5000, 0, false, true},
		{"small, and not rounded", 645, 3, false, true},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.Sent(0, 8)
		l.Advertise(0, 100*ms, tt.refused, Fact{Name: "tokens", PerCost: true, Quota: tt.quota, Remaining: tt.remaining, Window: -1, Reset: 5 * time.Minute})
		l.Observe(Outcome{Sent: 0, Now: 100 * ms, Class: Admitted, Estimate: 8, Cost: 8})
		if at := l.advertised(100*ms, 8); (at > time.Minute) != tt.held {
			t.Errorf("%s: the next attempt goes at %v", tt.name, at)
		}
		if got, want := l.headers[0].grain, map[bool]float64{true: 1000, false: 1}[tt.remaining == 0]; got != want {
			t.Errorf("%s: rounded to %v, want %v", tt.name, got, want)
		}
	}
}

// Remaining costs are rounded down, so that up to a thousand more may remain: as many as our
// own use leaves.
func TestRoundedUnitsAreCountedByOurOwnUse(t *testing.T) {
	for _, tt := range []struct {
		name      string
		shape     shape
		used      float64 // in this window or, of a bucket, since the last response
		remaining float64
		want      float64
	}{
		{"as much as was not used", sliding, 2500, 1000, 1500},
		{"the same in a fixed window", fixed, 2500, 1000, 1500},
		{"slightly more than that", sliding, 1900, 1000, 1999},
		{"half of a step more", sliding, 1500, 1000, 1999},
		{"others used some", sliding, 500, 1000, 1000},
		{"no less than is reported", sliding, 3500, 1000, 1000},
		{"of a bucket, what returned and was not used", bucket, 500, 2000, 2100},
	} {
		v := &view{now: 20 * sec} // with some cost in the window before
		a := advertised{shaper: newShaper(tt.shape), quota: 4000, window: 10 * sec, grain: 1000, share: 1, left: 1600, at: 10 * sec, slow: 100}
		for _, part := range []float64{1, 0.5} { // of an attempt's cost that counts
			v.h = &history{}
			v.h.add(0, amounts{1, 900, 0})
			v.h.add(15*sec, amounts{1, tt.used / part, 0})
			a.share = part
			if got := a.unrounded(v, 20*sec, Fact{Remaining: tt.remaining, Reset: 4 * sec}); math.Abs(got-tt.want) > 0.5 {
				t.Errorf("%s: %.0f remain, want %.0f", tt.name, got, tt.want)
			}
		}
	}
	// In the ten seconds before, and when they began.
	v := &view{h: &history{}}
	for _, x := range []struct{ at, cost int }{{0, 900}, {10, 25}, {12, 300}, {14, 100}, {15, 2000}} {
		v.h.add(time.Duration(x.at)*sec, amounts{1, float64(x.cost), 0})
	}
	for _, tt := range []struct {
		name  string
		shape shape
		at    time.Duration
		reset time.Duration
		want  float64
	}{
		{"a sliding window", sliding, 10 * sec, 4 * sec, 1600},
		{"a fixed one: since it began", fixed, 10 * sec, 4 * sec, 1900},
		{"of which that is not known", fixed, 10 * sec, 0, 1600},
		{"a bucket: since the last report", bucket, 10 * sec, 4 * sec, 1000},
		{"which was at the very beginning", bucket, 0, 4 * sec, 1175},
		{"before any: as if it slid", bucket, -1, 4 * sec, 1600},
	} {
		a := advertised{shaper: newShaper(tt.shape), quota: 4000, window: 10 * sec, grain: 1000, share: 1, left: 1600, at: tt.at, slow: 100}
		if got := a.unrounded(v, 20*sec, Fact{Remaining: 1000, Reset: tt.reset}); math.Abs(got-tt.want) > 0.5 {
			t.Errorf("%s: %.0f remain, want %.0f", tt.name, got, tt.want)
		}
	}
}

func TestARefusalThatOthersCausedIsNoEvidenceAgainstABucket(t *testing.T) {
	for _, tt := range []struct {
		own  int // of twenty
		want shape
	}{{19, sliding}, {5, bucket}} {
		a := advertised{shaper: newShaper(bucket), quota: 20, slow: 10, share: 1}
		for range 9 {
			h := &history{}
			for i := range tt.own {
				h.add(time.Duration(i)*100*ms, amounts{1, 1, 0})
			}
			a.graze(&view{h: h}, refusal{sent: 2 * sec, cost: 1})
		}
		if a.shape != tt.want {
			t.Errorf("with %d of 20 units used by us: shape %d, want %d", tt.own, a.shape, tt.want)
		}
	}
}

// The reset of a sliding window is its whole length after each attempt. A date rounds it up.
func TestTheLengthOfAnAdvertisedSlidingWindow(t *testing.T) {
	for _, tt := range []struct {
		name string
		a    advertised
		want time.Duration
	}{
		{"rounded up by up to a second", advertised{shaper: shaper{shape: sliding}, resets: known(7850*ms, 6950*ms)}, 6950 * ms},
		{"close to a usual length", advertised{shaper: shaper{shape: sliding}, resets: known(11380*ms, 10500*ms)}, 10 * sec},
		{"that it may be", advertised{shaper: shaper{shape: sliding}, resets: known(11200*ms, 10200*ms), atLeast: 10 * sec}, 10 * sec},
		{"that it cannot be", advertised{shaper: shaper{shape: sliding}, resets: known(11200*ms, 10200*ms), atLeast: 10*sec + ms}, 10200 * ms},
		{"not rounded", advertised{shaper: shaper{shape: sliding}, resets: known(7850*ms, 6950*ms), fine: 1}, 7850 * ms},
		{"they differ by more", advertised{shaper: shaper{shape: sliding}, resets: known(7850*ms, 5*sec)}, 7850 * ms},
		{"the rest of a fixed window", advertised{shaper: shaper{shape: fixed}, resets: known(7850*ms, 6950*ms)}, 7850 * ms},
	} {
		if got := tt.a.length(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAFractionThatOthersUseTakesNoWholeUnit(t *testing.T) {
	for _, tt := range []struct {
		others  float64
		perCost bool
		now     bool
	}{{0.4, false, true}, {0.6, false, false}, {0.4, true, false}} {
		v := &view{now: 100 * sec, h: &history{}, mean: amounts{1, 1, 0}}
		for i := range 4 {
			v.h.add(99*sec+time.Duration(i)*100*ms, amounts{1, 1, 0})
		}
		a := advertised{shaper: newShaper(sliding), quota: 5, resets: known(10*sec, 0), share: 1, others: tt.others, perCost: tt.perCost}
		if got := a.slide(v, 1) == v.now; got != tt.now {
			t.Errorf("others use %v of 5 units, cost %v: the fifth attempt goes now: %v", tt.others, tt.perCost, got)
		}
	}
}

func TestTheMarginAfterARefusalThatALimitExplains(t *testing.T) {
	v := &view{now: 100 * sec, guard: 80 * ms, h: sentEvenly(100*sec, sec, 101)}
	for _, tt := range []struct {
		name         string
		a            advertised
		punished     bool
		margin       float64
		slack        time.Duration
		shared       bool
		aboutABucket float64 // evidence against one
	}{
		{"the first one", advertised{shaper: newShaper(fixed), quota: 60, window: time.Minute}, false, grazed, 20 * ms, false, 0.5},
		{"the next", advertised{shaper: newShaper(fixed), quota: 60, window: time.Minute, margin: grazed, slack: 20 * ms}, false, 2 * grazed, 40 * ms, false, 0.5},
		{"after many", advertised{shaper: newShaper(fixed), quota: 60, window: time.Minute, margin: 0.075, slack: 60 * ms}, false, maxGrazed, 80 * ms, false, 0.5},
		{"a larger margin stays", advertised{shaper: newShaper(fixed), quota: 60, window: time.Minute, margin: 0.15}, false, 0.15, 20 * ms, false, 0.5},
		{"the first one with a penalty", advertised{shaper: newShaper(fixed), quota: 60, window: time.Minute}, true, grazed, 20 * ms, false, 0.5},
		{"the next with a penalty", advertised{shaper: newShaper(fixed), quota: 60, window: time.Minute, margin: 0.04}, true, 0.08, 20 * ms, false, 0.5},
		{"many with a penalty", advertised{shaper: newShaper(fixed), quota: 60, window: time.Minute, margin: 0.15}, true, maxPunished, 20 * ms, false, 0.5},
		{"others had used it", advertised{shaper: newShaper(fixed), quota: 65, window: time.Minute}, false, grazed, 20 * ms, true, 0.5},
		{"whatever rate a bucket would have", advertised{shaper: newShaper(fixed), quota: 60, window: time.Minute, slow: 9}, false, grazed, 20 * ms, false, 0.5},
		{"a window of two, too early", advertised{shaper: newShaper(fixed), quota: 2, window: time.Minute, whole: 101 * sec}, false, grazed, 20 * ms, false, 0.5},
		{"others had used a bucket of which nothing is known", advertised{shaper: newShaper(bucket), quota: 65, resets: known(time.Minute, 0)}, false, grazed, 20 * ms, true, 0},
		{"they had used a twentieth at most", advertised{shaper: newShaper(fixed), quota: 64, window: time.Minute}, false, grazed, 20 * ms, false, 0.5},
		{"a bucket that we had emptied alone", advertised{shaper: newShaper(bucket), quota: 60, slow: 1}, false, grazed, 20 * ms, false, 0.3},
		{"others had emptied it", advertised{shaper: newShaper(bucket), quota: 60, slow: 2}, false, grazed, 20 * ms, true, 0},
		{"one of which nothing is known", advertised{shaper: newShaper(bucket), quota: 60, resets: known(time.Minute, 0)}, false, grazed, 20 * ms, false, 0.3},
		{"a bucket of two, too early", advertised{shaper: newShaper(bucket), quota: 2, slow: 1, whole: 100*sec + 30*ms, slack: 10 * ms}, false, 0, 40 * ms, false, 0.3},
		{"by more than a round trip", advertised{shaper: newShaper(bucket), quota: 2, slow: 1, whole: 101 * sec, slack: 10 * ms}, false, 0, 90 * ms, false, 0.3},
		{"not too early", advertised{shaper: newShaper(bucket), quota: 2, slow: 1, whole: 100 * sec, slack: 10 * ms}, false, grazed, 20 * ms, false, 0.3},
		{"a bucket of three", advertised{shaper: newShaper(bucket), quota: 3, slow: 1, whole: 101 * sec, slack: 10 * ms}, false, grazed, 20 * ms, false, 0.3},
	} {
		a := tt.a
		a.share, v.punished = 1, tt.punished
		a.graze(v, refusal{sent: 100 * sec, cost: 1})
		if math.Abs(a.margin-tt.margin) > 1e-9 || a.slack != tt.slack || a.shared != tt.shared || a.errors[bucket] != tt.aboutABucket {
			t.Errorf("%s: margin %v, slack %v, shared %v, %v against a bucket; want %v, %v, %v, %v", tt.name, a.margin, a.slack, a.shared, a.errors[bucket], tt.margin, tt.slack, tt.shared, tt.aboutABucket)
		}
	}
}

func TestWhenAnAdvertisedLimitAllowsTheNextAttempt(t *testing.T) {
	const now = 100 * sec
	known := func(s shape) advertised {
		return advertised{shaper: newShaper(s), quota: 60, window: time.Minute, share: 1, at: 90 * sec, whole: 130 * sec, slow: 1, fast: 2, resets: known(time.Minute, sec)}
	}
	with := func(s shape, do func(*advertised)) advertised { a := known(s); do(&a); return a }
	for _, tt := range []struct {
		name string
		a    advertised
		cost float64
		want time.Duration // from now; a window's length is taken for a thousandth longer
	}{
		{"there is room", with(fixed, func(a *advertised) { a.left = 1 }), 1, 0},
		{"none is left", known(fixed), 1, 30*sec + 60*ms},
		{"all was spent since", with(fixed, func(a *advertised) { a.left, a.spent = 5, 5 }), 1, 30*sec + 60*ms},
		{"no shape predicts it", with(fixed, func(a *advertised) { a.wrong = maxWrong }), 1, 0},
		{"almost none does", with(fixed, func(a *advertised) { a.wrong = maxWrong - 0.01 }), 1, 30*sec + 60*ms},
		{"it is reported no more", with(fixed, func(a *advertised) { a.gone = true }), 1, 0},
		{"no response yet", with(fixed, func(a *advertised) { a.at = -1 }), 1, 0},
		{"the first at the very beginning", with(fixed, func(a *advertised) { a.at = 0 }), 1, 30*sec + 60*ms},
		{"nothing says when it ends", with(fixed, func(a *advertised) { a.whole = 0 }), 1, 0},
		{"a margin", with(fixed, func(a *advertised) { a.left, a.margin = 3, 0.05 }), 1, 30*sec + 60*ms},
		{"beyond the margin", with(fixed, func(a *advertised) { a.left, a.margin = 4, 0.05 }), 1, 0},
		{"a cost", with(fixed, func(a *advertised) { a.perCost, a.left = true, 8 }), 9, 30*sec + 60*ms},
		{"a cost that fits", with(fixed, func(a *advertised) { a.perCost, a.left = true, 9 }), 9, 0},
		{"a part of the cost", with(fixed, func(a *advertised) { a.perCost, a.share, a.left = true, 0.5, 5 }), 9, 0},
		{"no cost takes more than there is", with(fixed, func(a *advertised) { a.perCost, a.left = true, 60 }), 900, 0},
		{"it takes all of it", with(fixed, func(a *advertised) { a.perCost, a.left = true, 59 }), 900, 30*sec + 60*ms},
		{"a new window has begun", with(fixed, func(a *advertised) { a.whole = now }), 1, 0},
		{"almost", with(fixed, func(a *advertised) { a.whole = now + 1 }), 1, 60*ms + 1},
		{"in a new window all of it is", with(fixed, func(a *advertised) { a.whole, a.spent = 99*sec, 7 }), 1, 0},
		{"the rest of it was spent", with(fixed, func(a *advertised) { a.left, a.spent, a.whole = 1, 1, 160*sec }), 1, 60*sec + 60*ms},
		// A bucket has one unit to spare, up to half of it.
		{"a bucket with two left", with(bucket, func(a *advertised) { a.left, a.at = 2, now }), 1, 0},
		{"one left: a second later another", with(bucket, func(a *advertised) { a.left, a.at = 1, now }), 1, sec},
		{"ten are missing since the report", with(bucket, func(a *advertised) { a.left, a.spent = 0, 18 }), 1, 10 * sec},
		{"of two, half a unit is to spare", with(bucket, func(a *advertised) { a.quota, a.left, a.at = 2, 1, now }), 1, sec / 2},
		{"of one, none is", with(bucket, func(a *advertised) { a.quota, a.left, a.at = 1, 1, now }), 1, 0},
		{"what arrives together is to spare too", with(bucket, func(a *advertised) { a.left, a.at, a.slow, a.fast, a.whole = 3, now, 40, 40, now+2*sec }), 1, sec / 20},
		{"it is full sooner than at the slowest rate", with(bucket, func(a *advertised) { a.left, a.at, a.whole = 0, now, now+20*sec }), 1, 0},
		{"but no sooner than at the fastest", with(bucket, func(a *advertised) { a.left, a.at, a.whole, a.fast = 0, now, now+20*sec, 58.0/19 }), 1, sec},
		{"much was spent since: that returns after all else", with(bucket, func(a *advertised) { a.left, a.spent, a.at, a.whole = 60, 68, now, now+sec }), 1, 10 * sec},
		{"a margin of a bucket", with(bucket, func(a *advertised) { a.left, a.at, a.margin, a.whole = 2, now, 0.05, now+59*sec }), 1, 3 * sec},
		{"an early attempt makes the next late", with(bucket, func(a *advertised) { a.left, a.at, a.slack = 1, now, 100*ms }), 1, 1100 * ms},
		{"of one unit, a second after the last attempt", with(bucket, func(a *advertised) { a.quota, a.left, a.at, a.whole, a.slack = 1, 0, 99700*ms, 100500*ms, 10*ms }), 1, 810 * ms},
		{"a window of one", with(fixed, func(a *advertised) { a.quota, a.rolled, a.left, a.spent, a.whole = 1, true, 1, 1, 160*sec }), 1, 60*sec + 60*ms},
		{"a sliding one of which no reset is known", with(sliding, func(a *advertised) { a.resets = resetRanges{} }), 1, 30*sec + 80*ms},
		{"or no size", with(sliding, func(a *advertised) { a.quota = 0 }), 1, 30*sec + 80*ms},
		{"a bucket that is full by now", with(bucket, func(a *advertised) { a.at, a.whole = now, now }), 1, 0},
		{"or for long", with(bucket, func(a *advertised) { a.at, a.whole = now, 0 }), 1, 0},
		{"one of which no slowest rate is known", with(bucket, func(a *advertised) { a.slow = 0 }), 1, 30 * sec},
		{"much was spent since, and it would be full before that", with(bucket, func(a *advertised) { a.spent, a.slow, a.at, a.whole = 68, 2, now, now+20*sec }), 1, 25 * sec},
		{"others take a twentieth: it is full sooner than at the slowest rate", with(bucket, func(a *advertised) { a.at, a.whole, a.taken, a.during = now, now+20*sec, 0.5, 10 }), 1, 0},
		{"others took some at once", with(bucket, func(a *advertised) { a.left, a.at, a.taken, a.whole = 1, now, 0.0005, now+59*sec }), 1, 2 * sec},
		{"the last attempt was just before, and others use it", with(bucket, func(a *advertised) { a.left, a.at, a.shared, a.margin = 1, now, true, grazed }), 1, 1800 * ms},
		{"others take half: it comes back half as fast", with(bucket, func(a *advertised) { a.left, a.at, a.taken, a.during = 1, now, 5, 10 }), 1, 2 * sec},
		{"others take all: they will not while it is empty", with(bucket, func(a *advertised) { a.left, a.at, a.taken, a.during, a.whole = 1, now, 50, 10, now+59*sec }), 1, 3333 * ms},
	} {
		v := &view{now: now, last: 99800 * ms, h: &history{}, mean: amounts{1, 1, 0}, latency: 1.6e9}
		if a := tt.a; a.shape == fixed {
			a.fine, v.latency = 1, 1e9
			v.guard = 8 * ms // a response is no later than another by more than a part of that
			tt.a = a
			if a.rolled {
				v.latency = 1.6e9
			}
		}
		got := tt.a.free(v, tt.cost) - now
		if (got - tt.want).Abs() > 5*ms {
			t.Errorf("%s: %v later, want %v", tt.name, got, tt.want)
		}
	}
}

func TestReportsOfSeveralLimits(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	now := sec
	l.Sent(now, 10)
	report := func(f Fact) {
		f.Quota, f.Window, f.Reset = 100, -1, time.Minute
		l.Advertise(sec, 2*sec, false, f)
	}
	var names []string
	check := func(want ...string) {
		t.Helper()
		names = nil
		for i := range l.headers {
			a := &l.headers[i]
			names = append(names, fmt.Sprintf("%s %d %v %.3g %v", a.name, a.unit(), a.left, a.share, a.shape == bucket))
		}
		if got := strings.Join(names, ", "); got != strings.Join(want, ", ") {
			t.Errorf("reported %q, want %q", got, strings.Join(want, ", "))
		}
	}
	report(Fact{Name: "a", Remaining: -1})
	report(Fact{Name: "a", Remaining: math.NaN()})
	check()
	if l.clock != sec {
		t.Errorf("the clock is at %v", l.clock)
	}
	report(Fact{Name: "a", Remaining: 50})
	report(Fact{Name: "a", Remaining: 40, PerCost: true, Share: 0.2})
	report(Fact{Name: "b", Remaining: 30, Refills: true})
	check("a 0 50 1 false", "a 1 40 0.2 false", "b 0 30 1 true")
	report(Fact{Name: "a", Remaining: 45})
	report(Fact{Name: "a", Remaining: 35, PerCost: true, Share: 0.4})
	check("a 0 45 1 false", "a 1 35 0.22 false", "b 0 30 1 true")
	l.headers[0].gone = true // there is room for more, so it is kept
	report(Fact{Name: "c", Remaining: 20})
	l.headers[0].gone = false
	report(Fact{Name: "d", Remaining: 10})
	check("a 0 45 1 false", "a 1 35 0.22 false", "b 0 30 1 true", "c 0 20 1 false")
	l.headers[0].gone = true
	report(Fact{Name: "d", Remaining: 10})
	check("a 1 35 0.22 false", "b 0 30 1 true", "c 0 20 1 false", "d 0 10 1 false")
	if a := &l.headers[3]; a.grain != 1 || a.at != sec || l.clock != 2*sec || a.gone {
		t.Errorf("%+v at %v", a, l.clock)
	}
}

func TestARefusalThatReportsAnAdvertisedLimit(t *testing.T) {
	for _, tt := range []struct {
		name   string
		do     func(*Law, *advertised)
		want   bool
		inRow  int
		margin bool
	}{
		{"used up", func(*Law, *advertised) {}, true, 0, true},
		{"one is left", func(_ *Law, a *advertised) { a.remained = 1 }, false, 3, false},
		{"less than one", func(_ *Law, a *advertised) { a.remained = 0.9 }, true, 0, true},
		{"reported for another attempt", func(_ *Law, a *advertised) { a.refused = 9 * sec }, false, 3, false},
		{"no shape predicts it", func(_ *Law, a *advertised) { a.wrong = maxWrong }, false, 3, false},
		{"again after few attempts", func(l *Law, _ *advertised) { l.allAdmitted = 119 }, false, 4, true},
		{"the third time", func(l *Law, a *advertised) { l.allAdmitted, a.explainedInRow = 119, 2 }, true, 3, true},
		{"after twenty", func(l *Law, _ *advertised) { l.allAdmitted = 120 }, true, 0, true},
		{"after ten for each refusal", func(l *Law, _ *advertised) { l.allRefused, l.allAdmitted = 15, 200 }, true, 0, true},
		{"after less", func(l *Law, _ *advertised) { l.allRefused, l.allAdmitted = 15, 199 }, false, 4, true},
	} {
		l := &Law{allAdmitted: 500, allRefused: 6, headers: []advertised{{shaper: newShaper(fixed), quota: 9, share: 1, refused: 10 * sec, explainedInRow: 3, explainedAt: 100, explainedRefused: 5}}}
		a := &l.headers[0]
		tt.do(l, a)
		got := l.advertisedExplains(refusal{sent: 10 * sec, cost: 1})
		if got != tt.want || a.explainedInRow != tt.inRow || a.margin > 0 != tt.margin {
			t.Errorf("%s: explained %v, %d in a row, margin %v; want %v, %d", tt.name, got, a.explainedInRow, a.margin, tt.want, tt.inRow)
		}
		if tt.margin && (a.explainedAt != l.allAdmitted || a.explainedRefused != l.allRefused) {
			t.Errorf("%s: after %v and %d, want %v and %d", tt.name, a.explainedAt, a.explainedRefused, l.allAdmitted, l.allRefused)
		}
	}
}

func TestWhichAdvertisedLimitsSayThatThereIsRoom(t *testing.T) {
	room := advertised{shaper: newShaper(fixed), quota: 100, left: 50, share: 1}
	with := func(do func(*advertised)) advertised { a := room; do(&a); return a }
	for _, tt := range []struct {
		name   string
		limits []advertised
		want   bool
	}{
		{"none", nil, false},
		{"one with room", []advertised{room}, true},
		{"two", []advertised{room, room}, true},
		{"one of two without", []advertised{room, with(func(a *advertised) { a.spent = 49 })}, false},
		{"one that no shape predicts", []advertised{room, with(func(a *advertised) { a.wrong = maxWrong })}, false},
	} {
		if got := (&Law{headers: tt.limits}).plenty(); got != tt.want {
			t.Errorf("%s: plenty %v", tt.name, got)
		}
	}
	// Two limits are used up, one of which has explained the refusals before.
	used := advertised{shaper: newShaper(fixed), quota: 9, share: 1, refused: 10 * sec, explainedAt: -1000}
	often := used
	often.explainedInRow, often.explainedAt = 9, 0
	if !(&Law{headers: []advertised{used, often}}).advertisedExplains(refusal{sent: 10 * sec, cost: 1}) {
		t.Error("a limit that explains too many refusals hides that another one explains this")
	}
}

// At 100 s, with attempts of which the first was sent at 10 s and the others within 90 µs of 90 s.
func TestASlidingWindowOfManyUnitsKeepsSomeToSpare(t *testing.T) {
	const now = 100 * sec
	later := 150*sec + 600*ms // with a hundredth of the length, by which answers differ
	for _, tt := range []struct {
		name        string
		quota, sent float64
		flying      int
		want        time.Duration
	}{
		{"all but the last two of 300", 300, 297, 0, now},
		{"one more", 300, 299, 0, later},
		{"with three in flight it goes when the first of them leaves", 300, 299, 3, later},
		{"with more when all have left", 300, 299, 4, later + 90*time.Microsecond},
		{"all but the last of 240", 240, 239, 9, now},
		{"all of 240", 240, 241, 9, later},
	} {
		h := &history{}
		h.add(10*sec, amounts{1, 0, 0})
		h.add(90*sec, amounts{1, 0, 0})
		h.add(90*sec+90*time.Microsecond, amounts{tt.sent - 2, 0, 0})
		a := advertised{shaper: newShaper(sliding), quota: tt.quota, window: time.Minute, resets: known(time.Minute, 0), share: 1}
		if got := a.slide(&view{now: now, h: h, flying: tt.flying, jitter: 1e9, mean: amounts{1, 1, 0}}, 1); got != tt.want {
			t.Errorf("%s: at %v, want %v", tt.name, got, tt.want)
		}
	}
	// Half of each cost counts: of ten units twelve were used.
	h := &history{}
	for i := range 4 {
		h.add(time.Duration(91+i)*sec, amounts{1, 6, 0})
	}
	a := advertised{shaper: newShaper(sliding), perCost: true, quota: 10, window: time.Minute, resets: known(time.Minute, 0), share: 0.5}
	if got := a.slide(&view{now: now, h: h}, 2); got != 152*sec+60*ms {
		t.Errorf("an attempt that needs two units goes at %v, when the second one has left", got)
	}
}

func TestWhatIsKnownOfAnAdvertisedLimit(t *testing.T) {
	now := 100 * sec
	v := &view{now: now, h: sentEvenly(now, sec, 101), mean: amounts{1, 4, 0}, latency: 1e9, guard: 80 * ms, jitter: float64(50 * ms)}
	minute := advertised{shaper: newShaper(sliding), quota: 100, window: time.Minute, resets: known(time.Minute, 0), share: 1, at: now, left: 30, spent: 10}
	with := func(do func(*advertised)) advertised { a := minute; do(&a); return a }
	for _, tt := range []struct {
		name       string
		a          advertised
		room       float64 // attempts of cost 4
		every      float64 // attempts may go every so many seconds
		late, next time.Duration
	}{
		{"a sliding minute, of which we used 60 and others 20", with(func(a *advertised) { a.others = 20 }), 20, 0.6, 60 * ms, 0},
		{"a fixed one has what is left", with(func(a *advertised) { a.shape = fixed }), 20, 0.6, 60 * ms, 0},
		{"on cost", with(func(a *advertised) { a.perCost, a.shape = true, fixed }), 5, 0, 60 * ms, 0},
		{"no shape predicts it", with(func(a *advertised) { a.wrong = maxWrong }), math.Inf(1), 0, 60 * ms, 0},
		{"it is reported no more", with(func(a *advertised) { a.gone = true }), math.Inf(1), 0, 60 * ms, 0},
		{"no response yet", with(func(a *advertised) { a.at = -1 }), math.Inf(1), 0.6, 60 * ms, 0},
		{"a first one at the very beginning", with(func(a *advertised) { a.at = 0 }), 40, 0.6, 60 * ms, 0},
		{"a bucket, of which no rate is known", with(func(a *advertised) { a.shape = bucket }), 20, 0, 0, 0},
		{"a bucket", with(func(a *advertised) { a.shape, a.slow = bucket, 4 }), 20, 0.25, 0, 0},
		{"a bucket after an early attempt", with(func(a *advertised) { a.shape, a.slack = bucket, 7*ms }), 20, 0, 7 * ms, 0},
		{"a size that nobody says", with(func(a *advertised) { a.shape, a.quota = fixed, 0 }), 20, 0, 60 * ms, 0},
		{"a short window: part of a round trip", with(func(a *advertised) { a.window, a.resets = sec, known(sec, 0) }), 99, 0.01, 10 * ms, 0},
		{"two seconds: a hundredth", with(func(a *advertised) { a.window, a.resets = 2*sec, known(2*sec, 0) }), 98, 0.02, 20 * ms, 0},
		{"no reset was reported: by what is left", with(func(a *advertised) { a.resets = known(0, 0) }), 20, 0.6, 60 * ms, 0},
		{"after an early attempt", with(func(a *advertised) { a.slack = 90 * ms }), 40, 0.6, 90 * ms, 0},
		{"a long one: a thousandth", with(func(a *advertised) { a.window = 100 * sec }), 0, 1, 100 * ms, 1100 * ms},
		{"ten seconds: as much as answers differ", with(func(a *advertised) { a.window = 10 * sec }), 90, 0.1, 50 * ms, 0},
		// Of what 60 s hold 100 may be used: others, their growth and a margin take room.
		{"full, with others", with(func(a *advertised) { a.others = 40.4 }), -0.4, 0.6, 60 * ms, sec + 60*ms},
		{"others who grow", with(func(a *advertised) { a.others, a.surge = 38, 2 }), 2, 0.6, 60 * ms, 3*sec + 60*ms},
		{"who grow a lot: a part of it", with(func(a *advertised) { a.others, a.surge = 38, 50 }), 2, 0.6, 60 * ms, 7*sec + 60*ms},
		{"a margin of what others leave", with(func(a *advertised) { a.others, a.margin = 38, 0.05 }), 2, 0.6, 60 * ms, 2*sec + 60*ms},
	} {
		if got := tt.a.room(v); got != tt.room && math.Abs(got-tt.room) > 1e-9 {
			t.Errorf("%s: room for %v, want %v", tt.name, got, tt.room)
		}
		if got := tt.a.interval() / 1e9; math.Abs(got-tt.every) > 1e-9 {
			t.Errorf("%s: one each %v s, want %v", tt.name, got, tt.every)
		}
		if got := tt.a.late(v); got != tt.late {
			t.Errorf("%s: %v for the way, want %v", tt.name, got, tt.late)
		}
		if tt.a.shape == sliding {
			if got := max(0, tt.a.slide(v, 1)-now); got != tt.next {
				t.Errorf("%s: the next one in %v, want %v", tt.name, got, tt.next)
			}
		}
	}
	free := with(func(a *advertised) { a.shape, a.perCost = fixed, true })
	if got := free.room(&view{h: v.h}); got != 20e9 {
		t.Errorf("room for %v attempts that cost nothing", got)
	}
	v.guard, v.jitter = 0, 0
	if got := minute.late(v); got != 60*ms {
		t.Errorf("%v for the way of a minute's limit, want 60ms", got)
	}
	if v.latency = 2e9; minute.late(v) != 100*ms {
		t.Errorf("before any refusal %v for the way, want a twentieth of a response's time", minute.late(v))
	}
}

func TestTheLengthsThatAreUsual(t *testing.T) {
	for _, tt := range []struct{ longest, want time.Duration }{
		{58800 * ms, time.Minute}, {58799 * ms, 58799 * ms}, {62200 * ms, time.Minute}, {62201 * ms, 62201 * ms},
		{9800 * ms, 10 * sec}, {9799 * ms, 9799 * ms}, {11200 * ms, 10 * sec}, {11201 * ms, 11201 * ms},
		{15100 * ms, 15 * sec}, {30200 * ms, 30 * sec}, {121 * sec, 2 * time.Minute}, {303 * sec, 5 * time.Minute}, {606 * sec, 10 * time.Minute}, {903 * sec, 15 * time.Minute}, {1810 * sec, 30 * time.Minute},
		{3600 * sec, time.Hour}, {3*time.Hour + time.Minute, 3 * time.Hour}, {6*time.Hour + time.Minute, 6 * time.Hour}, {12*time.Hour + time.Minute, 12 * time.Hour}, {24*time.Hour - time.Minute, 24 * time.Hour},
	} {
		if got := (&advertised{resets: known(tt.longest, 0)}).length(); got != tt.want {
			t.Errorf("a reset of %v: %v long, want %v", tt.longest, got, tt.want)
		}
		if got := (&advertised{resets: known(tt.longest, 0), window: sec}).length(); got != sec {
			t.Errorf("a reset of %v of a second: %v long", tt.longest, got)
		}
	}
	for _, tt := range []struct{ longest, least, want time.Duration }{
		{20 * sec, 18 * sec, 18 * sec}, {20 * sec, 18*sec - 1, 20 * sec}, {20 * sec, 1, 20 * sec}, {sec, 1, 1},
	} {
		a := advertised{shaper: newShaper(sliding), resets: known(tt.longest, tt.least)}
		if got := a.length(); got != tt.want {
			t.Errorf("resets from %v to %v: %v long, want %v", tt.least, tt.longest, got, tt.want)
		}
	}
}

func TestTheShareOfACostThatCounts(t *testing.T) {
	a := advertised{perCost: true, at: -1, share: 1}
	for i, tt := range []struct{ share, want float64 }{{0, 1}, {0.2, 0.2}, {0.4, 0.22}, {0, 0.22}, {-1, 0.22}, {0.22, 0.22}} {
		if a.shares(tt.share); math.Abs(a.share-tt.want) > 1e-9 {
			t.Errorf("after report %d %v of a cost counts, want %v", i, a.share, tt.want)
		}
		if tt.share > 0 {
			a.at = 0
		}
	}
	a.perCost = false
	if a.shares(0.9); math.Abs(a.share-0.22) > 1e-9 {
		t.Errorf("%v of an attempt counts", a.share)
	}
	for _, tt := range []struct {
		a    advertised
		want float64 // of a cost of 8
	}{
		{advertised{quota: 5}, 1}, {advertised{perCost: true, share: 0.5, quota: 5}, 4}, {advertised{perCost: true, share: 0.5, quota: 3}, 3},
		{advertised{perCost: true, share: 0.5}, 1}, {advertised{perCost: true, share: 0.01, quota: 3}, 0.08},
	} {
		if got := tt.a.need(8); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%+v: an attempt needs %v, want %v", tt.a, got, tt.want)
		}
	}
}

func TestAWindowThatEndsBeforeAResponseShowsIt(t *testing.T) {
	known := advertised{shaper: newShaper(fixed), quota: 9, window: 10 * sec, share: 1, at: 5 * sec, left: 3, spent: 2, whole: 20 * sec}
	for _, tt := range []struct {
		name        string
		do          func(*advertised)
		now         time.Duration
		rolled      bool
		left, spent float64 // after an attempt of cost 4
		whole       time.Duration
		gone        bool // once that attempt is answered without a report
	}{
		{"it goes on", func(*advertised) {}, 20*sec - 1, false, 3, 3, 20 * sec, false},
		{"it is over", func(*advertised) {}, 20 * sec, true, 9, 1, 30 * sec, true},
		{"it is over for long", func(*advertised) {}, 99 * sec, true, 9, 1, 109 * sec, true},
		{"a part of the cost", func(a *advertised) { a.perCost, a.share = true, 0.5 }, 20 * sec, true, 9, 2, 30 * sec, true},
		{"nothing was sent in it", func(a *advertised) { a.spent = 0 }, 15 * sec, false, 3, 1, 20 * sec, false},
		{"no other shape ends", func(a *advertised) { a.shape = sliding }, 20 * sec, false, 3, 3, 20 * sec, false},
		{"nothing was reported", func(a *advertised) { a.at = -1 }, 20 * sec, false, 3, 3, 20 * sec, false},
		{"the first report came at once", func(a *advertised) { a.at = 0 }, 20 * sec, true, 9, 1, 30 * sec, true},
		{"no end was reported", func(a *advertised) { a.whole = 5 * sec }, 20 * sec, false, 3, 3, 5 * sec, false},
		{"no size", func(a *advertised) { a.quota = 0 }, 20 * sec, false, 3, 3, 20 * sec, false},
		{"of one", func(a *advertised) { a.quota = 1 }, 20 * sec, true, 1, 1, 30 * sec, true},
		{"a second is the shortest", func(a *advertised) { a.window = ms }, 20 * sec, true, 9, 1, 21 * sec, true},
	} {
		a := known
		tt.do(&a)
		a.sent(tt.now, 4)
		if a.rolled != tt.rolled || a.left != tt.left || a.spent != tt.spent || a.whole != tt.whole {
			t.Errorf("%s: new window %v, %v left, %v spent, until %v; want %v, %v, %v, %v", tt.name, a.rolled, a.left, a.spent, a.whole, tt.rolled, tt.left, tt.spent, tt.whole)
		}
		if a.answered(a.at - 1); a.gone {
			t.Errorf("%s: an answer from the window before says that the limit is gone", tt.name)
		}
		b := a
		if a.answered(a.at); a.gone != tt.gone {
			t.Errorf("%s: gone %v, want %v", tt.name, a.gone, tt.gone)
		}
		if b.rolled {
			spent := b.spent
			b.sent(tt.now+ms, 4)
			if b.spent != 2*spent || b.whole != tt.whole {
				t.Errorf("%s: after another attempt %v spent, until %v", tt.name, b.spent, b.whole)
			}
			b.takeBack(b.at, 4)
			if b.takeBack(b.at-1, 4); b.spent != spent {
				t.Errorf("%s: without it %v spent, want %v", tt.name, b.spent, spent)
			}
			b.takeBack(b.at, 400)
			if b.takeBack(b.at, 400); b.spent != 0 {
				t.Errorf("%s: %v spent of nothing", tt.name, b.spent)
			}
		}
	}
	for window, want := range map[time.Duration]time.Duration{10 * sec: 10 * sec, ms: sec} {
		a := known
		a.window = window
		if a.roll(20 * sec); a.whole != 20*sec+want {
			t.Errorf("a window of %v that begins at 20s ends at %v", window, a.whole)
		}
		a.gone = true
		if a.answered(0); !a.gone {
			t.Error("an older answer brings a limit back")
		}
	}
}

func TestWhenAllOfTheAdvertisedWindowsIsBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		a    advertised
		want time.Duration
	}{
		{"nearly used up", advertised{shaper: newShaper(sliding), quota: 200, left: 10, spent: 6.1, whole: 70 * sec}, 70 * sec},
		{"a fiftieth is left", advertised{shaper: newShaper(sliding), quota: 200, left: 10, spent: 6, whole: 70 * sec}, 10 * sec},
		{"two of few are left", advertised{shaper: newShaper(sliding), quota: 20, left: 2, whole: 70 * sec}, 10 * sec},
		{"less than two", advertised{shaper: newShaper(sliding), quota: 20, left: 1.9, whole: 70 * sec}, 70 * sec},
		{"a fixed one", advertised{shaper: newShaper(fixed), quota: 20, whole: 70 * sec}, 10 * sec},
		{"no shape predicts it", advertised{shaper: shaper{wrong: maxWrong}, quota: 20, whole: 70 * sec}, 10 * sec},
	} {
		l := &Law{clock: 10 * sec, headers: []advertised{tt.a}}
		if got := l.allBack(); got != tt.want {
			t.Errorf("%s: at %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A report of a limit of 100 changes what was known, at 100 s. An attempt of cost 10 was sent
// each second before and after.
func TestWhatAReportOfALimitChanges(t *testing.T) {
	one := func(get func(a *advertised) float64) func(*advertised) []float64 {
		return func(a *advertised) []float64 { return []float64{get(a)} }
	}
	left := func(a *advertised) []float64 { return []float64{a.left, a.spent, a.at.Seconds()} }
	fine := one(func(a *advertised) float64 { return float64(a.fine) })
	whole := one(func(a *advertised) float64 { return a.whole.Seconds() })
	taken := func(a *advertised) []float64 { return []float64{a.taken, a.during} }
	fades := func(a *advertised) []float64 { return []float64{a.margin, float64(a.slack)} }
	refused := func(a *advertised) []float64 { return []float64{a.refused.Seconds(), a.remained} }
	rate := func(a *advertised) []float64 { return []float64{a.quota, a.slow, a.prior.used} }
	longest := func(a *advertised) []float64 {
		return []float64{a.known().longest.Seconds(), a.known().least.Seconds()}
	}
	atLeast := one(func(a *advertised) float64 { return a.atLeast.Seconds() })
	grain := one(func(a *advertised) float64 { return a.grain })
	others := func(a *advertised) []float64 { return []float64{a.others, a.surge} }
	bounds := func(a *advertised) []float64 { return []float64{a.slow, a.fast} }
	rest := one(func(a *advertised) float64 { return a.left })
	type change = func(a *advertised, v *view, sent *time.Duration, refused *bool, f *Fact)
	overtaken := func(left float64, do func(a *advertised, v *view)) change { // 47 are known to be left, and three may be on their way
		return func(a *advertised, v *view, _ *time.Duration, _ *bool, f *Fact) {
			f.Remaining, a.whole, v.guard = left, 160*sec, 2500*ms
			do(a, v)
		}
	}
	rounded := func(quota, left, share float64, do func(a *advertised, refused *bool)) change { // 200 of cost in 20 s were ours
		return func(a *advertised, _ *view, _ *time.Duration, refused *bool, f *Fact) {
			a.perCost, a.grain, a.share, a.window, a.quota, f.Quota, f.Remaining, f.Reset = true, coarseUnits, share, 20*sec, quota, quota, left, 20*sec
			do(a, refused)
		}
	}
	for _, tt := range []struct {
		name  string
		shape shape
		do    change
		get   func(*advertised) []float64
		want  []float64
	}{
		{"what is left, without what was sent since", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, left, []float64{40, 5, 100}},
		{"of its cost", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.perCost, a.share = true, 0.5 }, left, []float64{40, 25, 100}},
		{"an older report says nothing", fixed, func(_ *advertised, _ *view, sent *time.Duration, _ *bool, _ *Fact) { *sent = 89 * sec }, left, []float64{50, 3, 90}},
		{"another one of as old does", fixed, func(_ *advertised, _ *view, sent *time.Duration, _ *bool, _ *Fact) { *sent = 90 * sec }, left, []float64{40, 15, 90}},
		{"a refused attempt", fixed, func(_ *advertised, _ *view, _ *time.Duration, refused *bool, _ *Fact) { *refused = true }, refused, []float64{100, 40}},
		{"an older refused one", fixed, func(_ *advertised, _ *view, sent *time.Duration, refused *bool, _ *Fact) {
			*sent, *refused = 80*sec, true
		}, refused, []float64{80, 40}},
		{"an admitted one", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, refused, []float64{0, 0}},
		{"milliseconds", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 1500 * ms }, fine, []float64{1}},
		{"an odd number of milliseconds", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 1501 * ms }, fine, []float64{1}},
		{"milliseconds again", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.fine, f.Reset = 100, 1500*ms }, fine, []float64{100}},
		{"by the clock", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 1500*ms + 1 }, fine, []float64{-1}},
		{"by the clock again", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.fine, f.Reset = -100, 1500*ms+1 }, fine, []float64{-100}},
		{"a whole second", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, fine, []float64{0}},
		{"a duration of whole seconds, at first", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.at, f.Precise = -1, true }, fine, []float64{1}},
		{"a duration of whole seconds, after one at the very beginning", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.at, f.Precise = 0, true }, fine, []float64{-1}},
		{"it says that it is a duration", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Precise = true }, one(func(a *advertised) float64 { return map[bool]float64{true: 1}[a.precise] }), []float64{1}},
		{"it is compared with the next", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, one(func(a *advertised) float64 { return a.last.reset.Seconds() }), []float64{60}},
		{"a window is as long as a reset at least, but for its rounding and the time of the response", sliding, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, atLeast, []float64{58.9}},
		{"in milliseconds", sliding, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.fine = 2 }, atLeast, []float64{59.899}},
		{"and as one before", sliding, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.atLeast = 59 * sec }, atLeast, []float64{59}},
		{"that of a refused attempt may be a penalty's", sliding, func(_ *advertised, _ *view, _ *time.Duration, refused *bool, _ *Fact) { *refused = true }, atLeast, []float64{0}},
		{"the same duration again", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) {
			a.last.reset, f.Precise = f.Reset, true
		}, fine, []float64{0}},
		{"another one of whole seconds", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Precise = true }, fine, []float64{-1}},
		{"another one, again", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.fine, f.Precise = -100, true }, fine, []float64{-100}},
		{"the same size", bucket, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, one(func(a *advertised) float64 { return a.quota }), []float64{100}},
		{"another size: what was known of the rate is not", bucket, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Quota, f.Remaining = 50, 50 }, rate, []float64{50, 0, 0}},
		{"no size", bucket, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Quota, f.Remaining = 0, 100 }, rate, []float64{100, 2, 7}},
		{"a length", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Window = 1 }, one(func(a *advertised) float64 { return float64(a.window) }), []float64{1}},
		{"no length", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.window, f.Window = 5, 0 }, one(func(a *advertised) float64 { return float64(a.window) }), []float64{5}},
		{"a margin fades with the attempts that are sent", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.window = 100 * sec }, fades, []float64{0.08 * math.Exp(-10/slackMemory), 5e6 * math.Exp(-10/slackMemory)}},
		{"not while none go", fixed, func(a *advertised, _ *view, sent *time.Duration, _ *bool, _ *Fact) {
			a.window, *sent = 100*sec, 1000*sec
		}, fades, []float64{0.08 * math.Exp(-15/slackMemory), 5e6 * math.Exp(-15/slackMemory)}},
		{"more slowly if a refusal costs more", fixed, func(a *advertised, v *view, _ *time.Duration, _ *bool, _ *Fact) {
			a.window, v.lastBlock = 100*sec, 2*sec
		}, fades, []float64{0.08 * math.Exp(-5/slackMemory), 5e6 * math.Exp(-5/slackMemory)}},
		{"nor if no rate is known", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.slow = 0 }, fades, []float64{0.08, 5e6}},
		{"since one at the very beginning", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.window, a.at = 100*sec, 0 }, fades, []float64{0.08 * math.Exp(-100/slackMemory), 5e6 * math.Exp(-100/slackMemory)}},
		{"not before the first report", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.window, a.at = 100*sec, -1 }, fades, []float64{0.08, 5e6}},
		{"what others took from a bucket", bucket, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, taken, []float64{0.98*3 + 50 + 2*10 - 10 - 40, 0.98*4 + 10}},
		{"a full one does not refill", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.left = 95 }, taken, []float64{0.98*3 + 100 - 10 - 40, 0.98*4 + 10}},
		{"since the very beginning", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.at = 0 }, taken, []float64{0.98*3 + 100 - 100 - 40, 0.98*4 + 100}},
		{"a part of the cost", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.perCost, a.share = true, 0.1 }, taken, []float64{0.98*3 + 50 + 2*10 - 10 - 40, 0.98*4 + 10}},
		{"at the same instant none", bucket, func(_ *advertised, _ *view, sent *time.Duration, _ *bool, _ *Fact) { *sent = 90 * sec }, taken, []float64{3, 4}},
		{"nor before the first report", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.at = -1 }, taken, []float64{3, 4}},
		{"from a fixed window", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, taken, []float64{0.98*3 + 50 - 10 - 40, 0.98*4 + 10}},
		{"more is left, so it is another one", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Remaining = 50.1 }, taken, []float64{3, 4}},
		{"which began meanwhile", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.rolled = true }, taken, []float64{3, 4}},
		{"not from a sliding window", sliding, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, taken, []float64{3, 4}},
		{"costs that are no thousands are not rounded", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) {
			a.perCost, a.grain = true, coarseUnits
		}, grain, []float64{1}},
		{"costs may be rounded to thousands", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) {
			a.perCost, a.grain, f.Quota, f.Remaining = true, coarseUnits, 5000, 1000
		}, grain, []float64{coarseUnits}},
		{"attempts are not", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) {
			a.grain, f.Remaining = coarseUnits, 0
		}, grain, []float64{1}},
		{"the rest of costs is what our own use leaves", sliding, rounded(5000, 1000, 16, func(*advertised, *bool) {}), rest, []float64{1800}},
		{"which is used in steps of the rounding", sliding, rounded(5000, 1000, 16, func(*advertised, *bool) {}), one(func(a *advertised) float64 { return a.prior.used }), []float64{3.2}},
		{"not of a refused attempt", sliding, rounded(5000, 1000, 16, func(_ *advertised, refused *bool) { *refused = true }), rest, []float64{1000}},
		{"nor where others use it", sliding, rounded(5000, 1000, 16, func(a *advertised, _ *bool) { a.shared = true }), rest, []float64{1000}},
		{"but of as few as it is rounded to", sliding, rounded(1000, 0, 2, func(a *advertised, _ *bool) { a.shared = true }), rest, []float64{600}},
		{"of more it is not", sliding, rounded(1001, 0, 2, func(a *advertised, _ *bool) { a.shared = true }), rest, []float64{0}},
		{"three more are left than is known: the attempt overtook them", fixed, overtaken(55, func(*advertised, *view) {}), rest, []float64{52}},
		{"four cannot have been overtaken", fixed, overtaken(56, func(*advertised, *view) {}), rest, []float64{56}},
		{"three can, if an answer takes so long", fixed, overtaken(55, func(_ *advertised, v *view) { v.guard, v.latency = 0, 5e10 }), rest, []float64{52}},
		{"four cannot then", fixed, overtaken(56, func(_ *advertised, v *view) { v.guard, v.latency = 0, 5e10 }), rest, []float64{56}},
		{"it is the first attempt of a window", fixed, overtaken(55, func(a *advertised, _ *view) { a.rolled = true }), rest, []float64{55}},
		{"the window ended then", fixed, overtaken(55, func(a *advertised, _ *view) { a.whole = 100 * sec }), rest, []float64{55}},
		{"of costs others were estimated", fixed, overtaken(55, func(a *advertised, _ *view) { a.perCost, a.share = true, 0.1 }), rest, []float64{55}},
		{"when it is free", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, whole, []float64{160}},
		{"later for the first one, which may count from its response", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.at = -1 }, whole, []float64{160.1}},
		{"not later for the second one, after one at the very beginning", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.at = 0 }, whole, []float64{160}},
		{"nothing says when", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.whole, f.Reset = 150*sec, -1 }, one(func(a *advertised) float64 { return float64(a.whole) }), []float64{0}},
		{"now", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 0 }, whole, []float64{100}},
		{"at most in a day", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 25 * time.Hour }, whole, []float64{100 + 24*3600}},
		{"the same instant, rounded", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.whole = 160900 * ms }, whole, []float64{160.9}},
		{"of a sliding window, that is no instant", sliding, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.whole = 160900 * ms }, whole, []float64{160}},
		{"another instant", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.whole = 166 * sec }, whole, []float64{160}},
		{"the first of a new window", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.whole, a.rolled = 160900*ms, true }, whole, []float64{160}},
		{"a tenth of the length is the same instant", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) {
			a.whole, a.window = 169900*ms, 100*sec
		}, whole, []float64{169.9}},
		{"a longer reset", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, longest, []float64{60, 20}},
		{"a shorter one", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 10 * sec }, longest, []float64{30, 10}},
		{"the first one", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.resets.sent.least = 0 }, longest, []float64{60, 60}},
		{"a refusal's is no measure", fixed, func(_ *advertised, _ *view, _ *time.Duration, refused *bool, _ *Fact) { *refused = true }, longest, []float64{30, 20}},
		{"nor that of an unused limit", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Remaining = 100 }, longest, []float64{30, 20}},
		{"what others use of a sliding window", sliding, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.window = 20 * sec }, others, []float64{40, 36}},
		{"by a slow response, which may not have counted all", sliding, func(a *advertised, v *view, _ *time.Duration, _ *bool, _ *Fact) { a.window, v.now = 20*sec, 101*sec }, others, []float64{4 + doubtedShare*36, 1}},
		{"by one that is not that slow", sliding, func(a *advertised, v *view, _ *time.Duration, _ *bool, _ *Fact) { a.window, v.now = 20*sec, 100999*ms }, others, []float64{40, 36}},
		{"by a refused attempt, which does not count", sliding, func(a *advertised, _ *view, _ *time.Duration, refused *bool, _ *Fact) {
			a.window, *refused = 19500*ms, true
		}, others, []float64{41, 37}},
		{"by the same one if it is admitted", sliding, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.window = 19500 * ms }, others, []float64{40, 36}},
		{"a bucket's rate, by whole seconds", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.slow, a.fast = 0, 1000 }, bounds, []float64{59. / 60, 60. / 59}},
		{"by milliseconds", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) {
			a.slow, a.fast, f.Reset = 0, 1000, 1500*ms
		}, bounds, []float64{59 / 1.5, 60 / 1.499}},
		{"of one, by an admitted attempt", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) {
			a.quota, f.Quota, f.Remaining = 1, 1, 0
		}, bounds, []float64{1. / 60, 1. / 59}},
		{"of one, by a refused attempt, which may lengthen it", bucket, func(a *advertised, _ *view, _ *time.Duration, refused *bool, f *Fact) {
			a.quota, f.Quota, f.Remaining, *refused = 1, 1, 0, true
		}, bounds, []float64{2, 2}},
		{"of two, by a refused attempt", bucket, func(a *advertised, _ *view, _ *time.Duration, refused *bool, f *Fact) {
			a.quota, f.Quota, f.Remaining, *refused = 2, 2, 0, true
		}, bounds, []float64{1. / 60, 2. / 59}},
		{"a reset may be off by a second and by how much answers differ", fixed, func(a *advertised, v *view, _ *time.Duration, _ *bool, f *Fact) {
			a.prior, v.latency, f.Reset = report{sent: 90 * sec, used: 5, reset: 69500 * ms}, 5e9, 61*sec
		}, one(func(a *advertised) float64 { return a.wrong }), []float64{0.1}},
		{"nobody does", sliding, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.window, f.Remaining = 20*sec, 90 }, others, []float64{0, 0.9}},
	} {
		h := &history{}
		for i := range 105 {
			h.add(time.Duration(i+1)*sec, amounts{1, 10, 0})
		}
		a := advertised{
			shaper: newShaper(tt.shape), quota: 100, share: 1, grain: 1, at: 90 * sec, left: 50, spent: 3, margin: 0.08, slack: 5 * ms, slow: 2, fast: 2,
			resets: known(30*sec, 20*sec), taken: 3, during: 4, others: 4, surge: 1,
		}
		a.prior.used = 7
		v, sent, refused, f := &view{now: 100100 * ms, h: h}, 100*sec, false, Fact{Quota: 100, Remaining: 40, Window: -1, Reset: time.Minute}
		tt.do(&a, v, &sent, &refused, &f)
		a.update(v, sent, refused, f)
		for i, got := range tt.get(&a) {
			if math.Abs(got-tt.want[i]) > 1e-6*max(1, math.Abs(tt.want[i])) {
				t.Errorf("%s: %v, want %v", tt.name, tt.get(&a), tt.want)
				break
			}
		}
	}
}
