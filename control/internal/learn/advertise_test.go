package learn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// provider responds with the headers of one limit, of any size and shape.
type provider struct {
	shape  shape
	units  float64
	length time.Duration // of a window; for a bucket, the time to fill
	round  time.Duration // of resets
	named  bool          // with names like a bucket's
	stated bool          // resets are durations with a unit
	alike  bool          // too much like another shape to tell
	whole  time.Duration // when a bucket is full or a window ends
	sent   []time.Duration
}

// arrives handles an attempt at now. It returns the reported limit and whether the attempt
// is admitted.
func (p *provider) arrives(now time.Duration) (Fact, bool) {
	used, reset, ok := 0.0, time.Duration(0), false
	switch p.shape {
	case bucket:
		each := time.Duration(float64(p.length) / p.units)
		p.whole = max(p.whole, now)
		if ok = p.whole+each <= now+p.length; ok {
			p.whole += each
		}
		reset = p.whole - now
		used = math.Ceil(float64(reset) / float64(each))
	case fixed:
		if now >= p.whole {
			p.whole, p.sent = now+p.length, nil
		}
		if ok = float64(len(p.sent)) < p.units; ok {
			p.sent = append(p.sent, now)
		}
		used, reset = float64(len(p.sent)), p.whole-now
	case sliding:
		for len(p.sent) > 0 && p.sent[0]+p.length <= now {
			p.sent = p.sent[1:]
		}
		if ok = float64(len(p.sent)) < p.units; ok {
			p.sent = append(p.sent, now)
		}
		used, reset = float64(len(p.sent)), p.sent[len(p.sent)-1]+p.length-now
	}
	reset = (reset + p.round - 1) / p.round * p.round
	return Fact{Name: "requests", Refills: p.named, Quota: p.units, Remaining: p.units - used, Window: -1, Reset: reset, Precise: p.stated}, ok
}

// holds runs the law against a provider. there and back are the latencies of request and
// response.
func (p *provider) holds(l *Law, there, back, until time.Duration) (admitted, refused int) {
	for now := time.Duration(0); ; {
		now = max(now+ms, l.Hold(now, 1))
		if !l.Answered() {
			now += sec
		}
		if now >= until {
			return admitted, refused
		}
		l.Sent(now, 1)
		f, ok := p.arrives(now + there)
		o := Outcome{Sent: now, Now: now + there + back, Class: Admitted, Estimate: 1, Cost: 1}
		if admitted++; !ok {
			o.Class = Refused
			admitted, refused = admitted-1, refused+1
		}
		l.Advertise(now, o.Now, !ok, f)
		l.Observe(o)
		now = o.Now
	}
}

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

func TestASharedLimitIsSpreadOverTheRestOfItsWindow(t *testing.T) {
	v := view{now: 100 * sec, last: 100 * sec, h: &history{}, mean: amounts{1, 1, 0}}
	for _, tt := range []struct {
		name   string
		shape  shape
		shared bool
		margin float64 // not used since a refusal
		left   float64
		want   time.Duration // interval between attempts
	}{
		{"it is refused no more", fixed, true, 0, 40, 0},
		{"alone", fixed, false, grazed, 40, 0},
		{"a window", fixed, true, grazed, 40, 400 * ms},
		{"of which little is left", fixed, true, grazed, 4, 4 * sec},
		{"a bucket", bucket, true, grazed, 40, 800 * ms},
		{"a bucket that was never refused, and that others use", bucket, false, 0, 40, 800 * ms},
		{"of which little is left: others leave more than that", bucket, false, 0, 4, 4 * sec / 3},
		{"a sliding window that was never refused", sliding, false, 0, 40, time.Minute / 12 / 40},
	} {
		a := advertised{taken: 30, during: 60, others: 40, longest: time.Minute, share: 1, shaper: newShaper(tt.shape), quota: 80, left: tt.left, shared: tt.shared, margin: tt.margin, at: 90 * sec, whole: 120 * sec, slow: 2, fast: 2}
		for s := range a.errors {
			a.errors[s] = 2
		}
		if got := a.free(v, 1) - v.now; (got - tt.want).Abs() > time.Millisecond {
			t.Errorf("%s: %v later, want %v", tt.name, got, tt.want)
		}
	}
	tokens := advertised{perCost: true, share: 1, taken: 30, during: 60, shaper: newShaper(bucket), quota: 80, left: 40, at: 90 * sec, whole: 120 * sec, slow: 2, fast: 2}
	for s := range tokens.errors {
		tokens.errors[s] = 2
	}
	if got := tokens.free(v, 1) - v.now; got != 0 {
		t.Errorf("what is under way on a limit on cost is taken for the use of others: the next goes %v after the last", got)
	}
	tokens.taken = 200
	calls := tokens
	calls.perCost = false
	if got, want := tokens.pace(), calls.pace(); math.Abs(got-0.1) > 1e-9 || math.Abs(want-0.6) > 1e-9 {
		t.Errorf("of 2 a second, which others take all, %v are waited for where the limit is on cost, want 0.1; %v where it is on calls, want 0.6", got, want)
	}
	v.punished = true
	for _, tt := range []struct {
		quota, left float64
		want        time.Duration
	}{{80, 39, 300 * ms}, {80, 41, 0}, {2, 2, 0}} {
		a := advertised{shaper: newShaper(bucket), quota: tt.quota, left: tt.left, at: 90 * sec, whole: 90 * sec, slow: 2, fast: 2}
		if got := a.free(v, 1) - v.now; got < tt.want || tt.want == 0 && got != 0 {
			t.Errorf("under a penalty the next of %v, of which %v are left, goes %v after the last, want %v or more, or at once while much is left or few can be under way at a refusal", tt.quota, tt.left, got, tt.want)
		}
	}
}

func TestTheUseOfAdvertisedLimits(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    provider
		want [3]Use // after ten attempts in ten seconds, half a window later, and a whole one
	}{
		{"a fixed window", provider{shape: fixed, units: 10, length: time.Minute, round: ms}, [3]Use{{10, 60 * sec}, {10, 60 * sec}, {0, 0}}},
		{"a sliding window", provider{shape: sliding, units: 10, length: time.Minute, round: ms}, [3]Use{{10, 60 * sec}, {10, 60 * sec}, {0, 0}}},
		{"a bucket", provider{shape: bucket, units: 10, length: time.Minute, round: ms, named: true}, [3]Use{{9, 0}, {4, 0}, {0, 0}}},
	} {
		l := New(Config{Ceiling: ms, Initial: ms, Slowest: time.Hour})
		now := time.Duration(0)
		for i := range 10 {
			now = time.Duration(i) * sec
			l.Sent(now, 1)
			f, _ := tt.p.arrives(now)
			l.Advertise(now, now+ms, false, f)
			l.Observe(Outcome{Sent: now, Now: now + ms, Class: Admitted, Estimate: 1, Cost: 1})
		}
		for i, want := range tt.want {
			at := now + 100*ms + time.Duration(i)*32*sec
			uses := l.Uses(at, nil)
			if len(uses) != 1 {
				t.Fatalf("%s: %d limits are in use", tt.name, len(uses))
			}
			got := uses[0]
			if wait := max(0, want.Free-at); math.Abs(got.Used-want.Used) > 1 || (max(0, got.Free-at)-wait).Abs() > sec {
				t.Errorf("%s: at %v %.1f are in use and room in %v, want %.0f and %v", tt.name, at, got.Used, got.Free-at, want.Used, wait)
			}
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

func TestARefusalWithoutAReasonIsAttributed(t *testing.T) {
	room := []advertised{{shaper: newShaper(fixed), quota: 6000, left: 5900}}
	for _, tt := range []struct {
		name string
		l    Law
		f    refusal
		want bool
	}{
		{"429 is how it refuses", Law{limited: true}, refusal{others: 9}, true},
		{"this is one", Law{limited: true}, refusal{limited: true}, false},
		{"its refusals carry a wait, this does not", Law{givesWaits: true}, refusal{}, true},
		{"nothing is known", Law{}, refusal{}, false},
		{"there is room, at the usual number under way", Law{headers: room}, refusal{others: 2}, true},
		{"there is room, at a number that is rare", Law{headers: room}, refusal{others: 30}, false},
		{"there is room, in the ramp", Law{headers: room, block: block{ramping: true}}, refusal{others: 2}, false},
		{"but outages are over at once here", Law{headers: room, blips: maxBlips}, refusal{others: 2}, false},
		{"they were, but not often", Law{headers: room, blips: maxBlips - 1}, refusal{others: 2}, true},
		{"it says for how long", Law{headers: room, limited: true}, refusal{others: 2, wait: sec}, false},
		{"a canary is refused, as in the outage before", Law{block: block{refusals: 2, outage: true}}, refusal{others: 9}, true},
		{"a canary is refused, and there was no outage", Law{headers: room, block: block{refusals: 2}}, refusal{others: 2}, false},
	} {
		for range 100 {
			tt.l.crowd.sent(4)
		}
		tt.l.allAdmitted = 1000
		if got := tt.l.outage(tt.f); got != tt.want {
			t.Errorf("%s: outage %v", tt.name, got)
		}
	}
	for more, want := range map[int]bool{1: false, 2: true} { // 1.5 of 15, and 2.5
		l := Law{headers: room}
		for i := range 14 {
			l.crowd.sent(map[bool]int{true: 5}[i < more])
		}
		if got := l.outage(refusal{others: 5}); got != want {
			t.Errorf("%d of 14 attempts were sent with as many under way: outage %v", more, got)
		}
	}
	b := block{refusals: 9, wait: 60 * sec, outage: true}
	if got := (&canaryPlan{block: &b, now: time.Hour}).next(); got <= outageLongest {
		t.Errorf("an hour into an outage a canary goes each %v: it may keep a penalty alive", got)
	}
}

// A steady client of a sliding window sees about the same reset in each response, as it
// would with a bucket. The latency of responses varies, which must not make it look like a
// bucket.
func TestVaryingLatencyDoesNotLookLikeABucket(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	p := provider{shape: sliding, units: 60, length: time.Minute, round: ms, named: true}
	refused := 0
	for now := time.Duration(0); now < 20*time.Minute; {
		now = max(now+1020*ms, l.Hold(now, 1)) // a budget of its own limits it to 59 a minute
		l.Sent(now, 1)
		took := time.Duration(200+random.IntN(400)) * ms
		f, ok := p.arrives(now + took)
		f.Reset -= time.Duration(random.IntN(300)) * ms // as another client's request may have arrived meanwhile
		o := Outcome{Sent: now, Now: now + took, Class: Admitted, Estimate: 1, Cost: 1}
		if !ok {
			o.Class = Refused
			refused++
		}
		l.Advertise(now, o.Now, !ok, f)
		l.Observe(o)
		if a := &l.headers[0]; now > 2*time.Minute && a.shape != sliding {
			t.Fatalf("at %v: shape %d, want %d; %v wrong", now, a.shape, sliding, a.errors)
		}
	}
	if refused > 0 {
		t.Errorf("%d refused, want none", refused)
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

func TestTheWaitsOfTheNextAttemptsAreEstimated(t *testing.T) {
	v := &history{}
	for i := range 6 {
		v.add(time.Duration(95+i)*sec, amounts{1, 1, 0})
	}
	minute := newWindow(0, amounts{10, 10, 0}, sec, time.Minute, time.Minute, sec, 1)
	minute.lone = false
	bucketed := func(left float64) []advertised {
		return []advertised{{shaper: newShaper(bucket), quota: 60, left: left, slow: 1.0 / 30, fast: 1, at: 0, whole: 200 * sec, share: 1}}
	}
	for _, tt := range []struct {
		name    string
		state   state
		limits  []limit
		headers []advertised
		n       float64
		want    time.Duration
	}{
		{"nothing is known: the ramp's pace", ramping, nil, nil, 4, 2 * sec},
		{"nor after a refusal", holding, nil, nil, 4, 2 * sec},
		{"a window with room for four, in the ramp", ramping, []limit{minute}, nil, 4, 2 * sec},
		{"before the first answer", starting, []limit{minute}, nil, 4, 2 * sec},
		{"no longer than the longest interval for each", holding, []limit{newRate(0, slowest, slowest)}, nil, 4, 4 * time.Hour},
		{"nor than there is time", holding, []limit{newRate(0, slowest, slowest)}, nil, 1e9, never / 2},
		{"a window with room for four", holding, []limit{minute}, nil, 4, 4 * ms},
		{"and those after them, at its mean rate", holding, []limit{minute}, nil, 6, 12 * sec},
		{"an advertised bucket with 57 left", ramping, nil, bucketed(57), 29, 14500 * ms},
		{"one with none left", ramping, nil, bucketed(0), 29, 29 * 30 * sec},
		{"what an advertised window lacks comes at once", holding, []limit{minute}, []advertised{{shaper: newShaper(fixed), quota: 60, at: 0, whole: 200 * sec, share: 1}}, 4, 4 * ms},
	} {
		l := New(Config{Ceiling: ms, Initial: 500 * ms, Slowest: time.Hour})
		l.state, l.limits, l.headers, l.h, l.clock = tt.state, tt.limits, tt.headers, *v, 100*sec
		if got := l.After(tt.n); (got - tt.want).Abs() > ms {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Some providers send milliseconds instead of seconds. One canary finds out.
func TestAnImplausibleWaitIsTested(t *testing.T) {
	for _, tt := range []struct {
		name  string
		waits []time.Duration // in the first refusals of blocks
		truth float64         // their divisor
		last  time.Duration   // the time without an attempt in the last block
		tried int             // canaries that were refused
		unit  float64         // stored for a warm start
	}{
		{"almost a day is believed", []time.Duration{24*time.Hour - sec}, 1, 24*time.Hour - sec, 0, 0},
		{"a day may be the rest of more, and costs a canary", []time.Duration{24 * time.Hour}, 1, 24 * time.Hour, 1, 1},
		{"or 15 minutes", []time.Duration{24 * time.Hour}, millisPerSecond, 15 * time.Minute, 0, millisPerSecond},
		{"a longer one that is true costs a canary", []time.Duration{30 * time.Hour}, 1, 30 * time.Hour, 1, 1},
		{"but one alone", []time.Duration{30 * time.Hour, 40 * time.Hour}, 1, 40 * time.Hour, 1, 1},
		{"one of another unit costs 15 minutes", []time.Duration{48 * time.Hour}, millisPerSecond, 15 * time.Minute, 0, millisPerSecond},
		{"those after it cost what they mean", []time.Duration{48 * time.Hour, 300 * sec}, millisPerSecond, 300 * ms, 0, millisPerSecond},
		{"an hour and a half is believed", []time.Duration{90 * time.Minute}, 1, 90 * time.Minute, 0, 0},
		{"any number of seconds is, if penalties are as long", []time.Duration{877 * sec}, 1, 877 * sec, 0, 0},
		{"a longer one that no window explains costs a canary", []time.Duration{4217 * sec}, 1, 4217 * sec, 1, 1},
		{"but one alone, too", []time.Duration{4217 * sec, 5003 * sec}, 1, 5003 * sec, 1, 1},
		{"or little, if it has another unit", []time.Duration{4217 * sec}, millisPerSecond, 4638 * ms, 0, millisPerSecond},
		{"as do those after it", []time.Duration{4217 * sec, 93 * sec}, millisPerSecond, 93 * ms, 0, millisPerSecond},
		{"after two that can be believed it is believed", []time.Duration{sec, sec, 48 * time.Hour}, 1, 48 * time.Hour, 0, 1},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		now, tried, block := time.Duration(0), 0, time.Duration(0)
		for _, wait := range tt.waits {
			now += time.Hour
			l.Sent(now, 1)
			l.Observe(Outcome{Sent: now, Now: now, Class: Refused, RetryAfter: wait})
			began, over := now, now+time.Duration(float64(wait)/tt.truth)
			for l.Waiting() {
				now = max(now+l.Believed(wait-time.Duration(float64(now-began)*tt.truth)), l.Hold(now, 1))
				l.Sent(now, 1)
				o := Outcome{Sent: now, Now: now, Class: Admitted}
				if now < over {
					tried++
					o.Class, o.RetryAfter = Refused, time.Duration(float64(over-now)*tt.truth)
				}
				l.Observe(o)
			}
			block = now - began
		}
		if off := block - tt.last; off < 0 || off > sec+tt.last/50 || tried != tt.tried || l.Store().WaitUnit != tt.unit {
			t.Errorf("%s: nothing goes for %v, want %v; %d canaries refused, want %d; unit %v, want %v",
				tt.name, block, tt.last, tried, tt.tried, l.Store().WaitUnit, tt.unit)
		}
	}
}

func TestUsualWindowsExplainALongWait(t *testing.T) {
	const now = 1234 * sec
	for _, tt := range []struct {
		name string
		wait time.Duration
		want bool
	}{
		{"whole minutes", 17 * time.Minute, true},
		{"thousands of seconds", 5000 * sec, true},
		{"tens of thousands", 20_000 * sec, true},
		{"eleven thousand, which may be milliseconds", 11_000 * sec, false},
		{"minutes by a date, which has whole seconds", 17*time.Minute - 600*ms, true},
		{"until an hour after the first attempt", time.Hour + 100*sec - now, true},
		{"until a day after the last release", 24*time.Hour + 507*sec - now, true},
		{"until the clock strikes", 2*time.Hour - 400*sec - now + 3*sec, true},
		{"neither", 4217 * sec, false},
		{"an hour after the first attempt, and some seconds", time.Hour + 105*sec - now, true},
		{"and some more", time.Hour + 105*sec + ms - now, false},
		{"some seconds after the clock strikes", 2*time.Hour - 395*sec - now, true},
		{"some more", 2*time.Hour - 395*sec + ms - now, false},
		{"ten", 2*time.Hour - 390*sec - now, false},
		{"whole minutes and a second", 17*time.Minute + sec, true},
		{"and more than that", 17*time.Minute + sec + ms, false},
		{"whole minutes and two seconds", 17*time.Minute + 2*sec, false},
		{"whole minutes but for a second and a half", 17*time.Minute - 1500*ms, false},
		{"about a quarter of an hour", 15*time.Minute + 3*sec, true},
	} {
		l := Law{cfg: Config{Phase: 400 * sec}, began: 100 * sec, freed: 507 * sec}
		if got := l.ends(now, tt.wait); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Others use up the limit each time before a canary arrives, until once they do not. The
// canaries become rarer, up to one a minute.
func TestALimitThatOthersUseUpIsProbedRepeatedly(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	now := time.Duration(0)
	for n := range 40 {
		at := l.Hold(now, 1)
		low, high := sec, minContended
		switch {
		case n > 11:
			low, high = maxContended, maxContended
		case n > 5:
			low, high = minContended<<(n/2-1), minContended<<(n/2-1)
		case n > 4:
			low, high = minContended, 2*minContended
		}
		if wait := at - now; n > 0 && (wait < low || wait > high*5/4+sec) {
			t.Fatalf("after %d refusals the next attempt goes after %v, want %v to %v", n, wait, low, high*5/4+sec)
		}
		now = at
		l.Sent(now, 1)
		now += ms
		l.Advertise(now-ms, now, true, Fact{Name: "requests", Quota: 1, Remaining: 0, Reset: 10 * ms, Window: -1})
		l.Observe(Outcome{Sent: now - ms, Now: now, Class: Refused, RetryAfter: sec})
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
		v := view{now: 20 * sec} // with some cost in the window before
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
	v := view{h: &history{}}
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
	// What others use of rounded units changes slowly upwards.
	for _, tt := range []struct{ grain, others, want, surge float64 }{{1, 44, 44, 40}, {1000, 44, 6, 40}, {1000, 1, 1, 0.9}, {1000, -9, 0, 0.9}} {
		a := advertised{grain: tt.grain, others: 4, surge: 1}
		if a.seen(tt.others); math.Abs(a.others-tt.want) > 1e-9 || a.surge != tt.surge {
			t.Errorf("others use %v of units rounded to %v: taken for %v, growing by %v; want %v, %v", tt.others, tt.grain, a.others, a.surge, tt.want, tt.surge)
		}
	}
}

// Refusals are fast, and responses of admitted attempts may take long.
func TestWhatOthersUseIsForgottenWithSlowResponses(t *testing.T) {
	h := &history{}
	a := advertised{shaper: newShaper(sliding), name: "x", quota: 100, grain: 1, share: 1, at: -1, longest: 10 * sec, others: 40}
	for n := range 400 {
		now := time.Duration(n) * sec / 8
		h.add(now, amounts{1, 1, 0})
		used := h.used(attempts, now, 10*sec)
		a.update(view{now: now + 2*sec, h: h, latency: 2e9}, now, false, Fact{Quota: 100, Remaining: 100 - used, Window: -1, Reset: 10 * sec})
	}
	if a.others > 1 {
		t.Errorf("others use %.1f, and the responses count only our own attempts", a.others)
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
			a.graze(view{h: h}, refusal{sent: 2 * sec, cost: 1})
		}
		if a.shape != tt.want {
			t.Errorf("with %d of 20 units used by us: shape %d, want %d", tt.own, a.shape, tt.want)
		}
	}
}

// Resets that contradict a bucket's rate by far are those of a window.
func TestResetsThatContradictABucket(t *testing.T) {
	for _, tt := range []struct {
		name  string
		quota float64
		reset time.Duration // with three units used; with one it was a second
		want  shape
	}{
		{"three return as soon as one", 4, sec, sliding},
		{"three return later", 4, 3 * sec, bucket},
		{"with two units the rounding explains it", 2, sec, bucket},
	} {
		a := advertised{shaper: newShaper(bucket), quota: tt.quota, grain: 1, fast: math.Inf(1)}
		a.refill(1, sec, ms)
		a.refill(min(3, tt.quota), tt.reset, ms)
		if a.shape != tt.want {
			t.Errorf("%s: shape %d, want %d", tt.name, a.shape, tt.want)
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
		{"rounded up by up to a second", advertised{shaper: shaper{shape: sliding}, longest: 7850 * ms, least: 6950 * ms}, 6950 * ms},
		{"close to a usual length", advertised{shaper: shaper{shape: sliding}, longest: 11380 * ms, least: 10500 * ms}, 10 * sec},
		{"not rounded", advertised{shaper: shaper{shape: sliding}, longest: 7850 * ms, least: 6950 * ms, fine: 1}, 7850 * ms},
		{"they differ by more", advertised{shaper: shaper{shape: sliding}, longest: 7850 * ms, least: 5 * sec}, 7850 * ms},
		{"only slow responses", advertised{shaper: shaper{shape: sliding}, longest: 7850 * ms}, 7850 * ms},
		{"the rest of a fixed window", advertised{shaper: shaper{shape: fixed}, longest: 7850 * ms, least: 6950 * ms}, 7850 * ms},
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
		v := view{now: 100 * sec, h: &history{}, mean: amounts{1, 1, 0}}
		for i := range 4 {
			v.h.add(99*sec+time.Duration(i)*100*ms, amounts{1, 1, 0})
		}
		a := advertised{shaper: newShaper(sliding), quota: 5, longest: 10 * sec, share: 1, others: tt.others, perCost: tt.perCost}
		if got := a.slide(v, 1) == v.now; got != tt.now {
			t.Errorf("others use %v of 5 units, cost %v: the fifth attempt goes now: %v", tt.others, tt.perCost, got)
		}
	}
}

// Under a penalty a bucket is not drained at once. While it is nearly full, the little that
// its resets show of the rate holds nothing back.
func TestABucketIsSpreadUnderAPenaltyOnceHalfIsUsed(t *testing.T) {
	for _, tt := range []struct {
		left     float64
		punished bool
		spread   bool
	}{{4473, true, false}, {2000, true, true}, {2000, false, false}} {
		v := view{now: 10 * sec, h: &history{}, mean: amounts{1, 1, 0}, punished: tt.punished}
		a := advertised{shaper: newShaper(bucket), quota: 4475, left: tt.left, slow: 1.0 / 2860, share: 1}
		if got := a.apart(v, 1); (got > 0) != tt.spread {
			t.Errorf("%.0f of 4475 left, penalty %v: the next attempt goes after %v", tt.left, tt.punished, got)
		}
	}
}

func TestTheMarginAfterARefusalThatALimitExplains(t *testing.T) {
	v := view{now: 100 * sec, guard: 80 * ms, h: sentEvenly(100*sec, sec, 101)}
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
		{"others had used a bucket of which nothing is known", advertised{shaper: newShaper(bucket), quota: 65, longest: time.Minute}, false, grazed, 20 * ms, true, 0},
		{"they had used a twentieth at most", advertised{shaper: newShaper(fixed), quota: 64, window: time.Minute}, false, grazed, 20 * ms, false, 0.5},
		{"a bucket that we had emptied alone", advertised{shaper: newShaper(bucket), quota: 60, slow: 1}, false, grazed, 20 * ms, false, 0.3},
		{"others had emptied it", advertised{shaper: newShaper(bucket), quota: 60, slow: 2}, false, grazed, 20 * ms, true, 0},
		{"one of which nothing is known", advertised{shaper: newShaper(bucket), quota: 60, longest: time.Minute}, false, grazed, 20 * ms, false, 0.3},
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
		return advertised{shaper: newShaper(s), quota: 60, window: time.Minute, share: 1, at: 90 * sec, whole: 130 * sec, slow: 1, fast: 2, least: sec, longest: time.Minute}
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
		{"in a new window the first attempt finds out", with(fixed, func(a *advertised) { a.whole, a.spent = 99*sec, 7 }), 1, 0},
		{"the second waits for it", with(fixed, func(a *advertised) { a.rolled, a.rolls, a.left, a.spent, a.whole = true, 1, 1, 1, 160*sec }), 1, 3 * sec},
		{"in the second new window it does not", with(fixed, func(a *advertised) { a.rolled, a.rolls, a.left, a.spent, a.whole = true, 2, 60, 1, 160*sec }), 1, 0},
		{"nor with a response from it", with(fixed, func(a *advertised) { a.rolls, a.left, a.spent, a.whole = 1, 1, 1, 160*sec }), 1, 60*sec + 60*ms},
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
		{"a window of costs does not wait for the first answer", with(fixed, func(a *advertised) {
			a.rolled, a.rolls, a.left, a.spent, a.whole, a.perCost = true, 1, 60, 1, 160*sec, true
		}), 1, 0},
		{"nor a second window of one", with(fixed, func(a *advertised) { a.quota, a.rolled, a.rolls, a.left, a.spent, a.whole = 1, true, 2, 1, 1, 160*sec }), 1, 60*sec + 60*ms},
		{"a sliding one of which no reset is known", with(sliding, func(a *advertised) { a.longest = 0 }), 1, 30*sec + 80*ms},
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
		v := view{now: now, last: 99800 * ms, h: &history{}, mean: amounts{1, 1, 0}, latency: 1.6e9}
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
		a := advertised{shaper: newShaper(sliding), quota: tt.quota, window: time.Minute, longest: time.Minute, share: 1}
		if got := a.slide(view{now: now, h: h, flying: tt.flying, jitter: 1e9, mean: amounts{1, 1, 0}}, 1); got != tt.want {
			t.Errorf("%s: at %v, want %v", tt.name, got, tt.want)
		}
	}
	// Half of each cost counts: of ten units twelve were used.
	h := &history{}
	for i := range 4 {
		h.add(time.Duration(91+i)*sec, amounts{1, 6, 0})
	}
	a := advertised{shaper: newShaper(sliding), perCost: true, quota: 10, window: time.Minute, longest: time.Minute, share: 0.5}
	if got := a.slide(view{now: now, h: h}, 2); got != 152*sec+60*ms {
		t.Errorf("an attempt that needs two units goes at %v, when the second one has left", got)
	}
}

// Costs are reported as rounded down to thousands, so that of fewer nothing seems to be left.
// The resets show the shape, by what we have used ourselves.
func TestTheShapeOfALimitBelowTheRounding(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reset func(used float64) time.Duration
		want  shape
	}{
		{"the whole window from each use", func(float64) time.Duration { return 300 * sec }, sliding},
		{"as long as the used units take to return", func(used float64) time.Duration { return seconds(used / 2) }, bucket},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		for i := range 100 {
			now := time.Duration(i) * sec
			l.Sent(now, 3)
			l.Advertise(now, now+50*ms, false, Fact{Name: "tokens", PerCost: true, Refills: true, Quota: 400, Remaining: 0, Window: -1, Reset: tt.reset(float64(i+3) + 0.9).Round(sec)})
			l.Observe(Outcome{Sent: now, Now: now + 50*ms, Class: Admitted, Estimate: 3, Cost: 3})
		}
		if got := l.headers[0].shape; got != tt.want {
			t.Errorf("%s: shape %d, want %d", tt.name, got, tt.want)
		}
	}
}
