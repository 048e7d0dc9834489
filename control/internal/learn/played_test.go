package learn

import (
	"math"
	"slices"
	"testing"
	"time"
)

// A caller that is answered after 200 ms keeps one more attempt in flight from time to time,
// and of five the fifth is refused: latency limits the attempts, and not the pace, which grows.
func TestAPaceThatIsNotReachedExplainsNoNumberInFlight(t *testing.T) {
	l := New(Config{Ceiling: 5 * ms, Initial: sec, Slowest: time.Hour})
	now, width, answers, rest, until := time.Duration(0), 1, 0, 30*sec, time.Duration(0)
	var flying []time.Duration // when they were sent
	refusals := 0
	for now < 3*time.Minute && refusals < 10 {
		at := never
		if len(flying) < width {
			at = l.Hold(now, 1)
			if !l.Answered() && len(flying) > 0 {
				at = never
			}
		}
		if len(flying) > 0 && flying[0]+200*ms <= at {
			sent := flying[0]
			flying, now = flying[1:], sent+200*ms
			l.Observe(Outcome{Sent: sent, Now: now, Class: Admitted, Estimate: 1, Cost: 1})
			if answers++; answers >= 8 && now >= until && width < 5 {
				answers, width = 0, width+1
			}
			continue
		}
		now = at
		l.Sent(now, 1)
		if len(flying) < 4 {
			flying = append(flying, now)
			continue
		}
		now += ms
		l.Observe(Outcome{Sent: at, Now: now, Class: Refused, Estimate: 1})
		refusals, width, until, rest = refusals+1, 4, now+rest, 2*rest
	}
	if b := l.Binding(); b.Kind != Flight || b.Size != 4 || refusals > 3 {
		t.Errorf("%d refusals, holds %+v, want 4 in flight after 3", refusals, b)
	}
}

// A limit that allows no burst refuses the first attempt after a step of the ramp, so that its
// rate lies between two paces that were tried.
func TestWhatALimitWithoutABurstCostsAtFirst(t *testing.T) {
	for _, tt := range []struct{ rate, goodput float64 }{
		{2, 0.97}, {5, 0.96}, {10, 0.94}, {20, 0.90},
	} {
		l := New(Config{Ceiling: 5 * ms, Initial: sec, Slowest: time.Hour})
		until := time.Duration(2000 / tt.rate * float64(sec))
		admitted, refused := drive(l, until, bucketAt(tt.rate, 1))
		if float64(admitted) < tt.goodput*2000 || refused > 6 {
			t.Errorf("%v a second: %d admitted of 2,000, %d refused; want %v of them, 6", tt.rate, admitted, refused, tt.goodput)
		}
	}
}

// A bucket of ten a second: after a minute the law holds a rate close to it, and a law
// restored from its state starts there.
func TestABucketIsFoundHeldAndStored(t *testing.T) {
	cfg := Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour}
	l := New(cfg)
	admitted, refused := bucketOf(l, 10, 30*time.Minute)
	if admitted < 17_000 || refused > 30 {
		t.Errorf("%d admitted, %d refused", admitted, refused)
	}
	f := l.Binding()
	if f.Kind != Rate || math.Abs(f.Size-10) > 0.3 {
		t.Errorf("holds %+v", f)
	}
	again := New(cfg)
	if err := again.Restore(l.Store(), l.Interval()); err != nil {
		t.Fatal(err)
	}
	if g := again.Binding(); g.Kind != Rate || math.Abs(g.Size-f.Size) > 0.3 {
		t.Errorf("restored %+v, stored %+v", g, f)
	}
	for _, bad := range []Found{{Kind: "tide", Size: 1}, {Kind: Rate, Size: -1}, {Kind: Rate, Size: 2, High: 1}, {Kind: Window, Size: 1}, {Kind: Flight, Size: math.NaN()}} {
		if err := New(cfg).Restore(Stored{Found: []Found{bad}}, sec); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// How fast one run finds a window depends on when its canaries happen to go, so that the mean of
// several counts: they begin at other instants of the clock and have other ceilings.
func TestAWindowCountedInPeriodsIsFoundAndPacedEvenly(t *testing.T) {
	const runs = 16
	for _, tt := range []struct {
		name    string
		size    float64
		length  time.Duration
		admits  func() func(time.Duration) bool
		counted bool
		least   float64 // the part of what is allowed that is admitted
		most    float64 // refusals
	}{
		{"100 in 10 s", 100, 10 * sec, func() func(time.Duration) bool { return countedOf(100, 10*sec) }, true, 0.93, 15},
		{"60 a minute", 60, time.Minute, func() func(time.Duration) bool { return countedOf(60, time.Minute) }, true, 0.96, 15},
		{"300 in 30 s", 300, 30 * sec, func() func(time.Duration) bool { return countedOf(300, 30*sec) }, true, 0.97, 12},
		{"30 in 15 s", 30, 15 * sec, func() func(time.Duration) bool { return countedOf(30, 15*sec) }, true, 0.95, 12},
		{"200 a minute", 200, time.Minute, func() func(time.Duration) bool { return countedOf(200, time.Minute) }, true, 0.97, 12},
		{"a sliding window", 100, 10 * sec, func() func(time.Duration) bool { return slidingOf(100, 10*sec) }, false, 0.92, 12},
		{"a window by the clock", 60, time.Minute, func() func(time.Duration) bool { return fixedOf(60, time.Minute, false) }, false, 0.96, 25},
	} {
		part, refusals := 0.0, 0.0
		for run := range runs {
			cfg := Config{Ceiling: 5*ms + time.Duration(run)*700*time.Microsecond, Initial: sec, Slowest: time.Hour, Phase: time.Duration(run) * 3700 * ms}
			l := New(cfg)
			admitted, refused := drive(l, 20*tt.length, tt.admits())
			part += float64(admitted) / tt.size / 20 / runs
			refusals += float64(refused) / runs
			if run > 0 {
				continue
			}
			f := l.Binding()
			if f.Kind != Window || f.Counted != tt.counted || math.Abs(f.Size/tt.size-1) > 0.05 || math.Abs(f.Window.Seconds()/tt.length.Seconds()-1) > 0.05 {
				t.Errorf("%s: holds %+v", tt.name, f)
			}
			again := New(cfg)
			if err := again.Restore(l.Store(), l.Interval()); err != nil || tt.counted != slices.ContainsFunc(again.Limits(nil), func(f Found) bool { return f.Counted }) {
				t.Errorf("%s: restored %+v, %v", tt.name, again.Limits(nil), err)
			}
		}
		if part < tt.least || refusals > tt.most {
			t.Errorf("%s: %.3f of what is allowed, want %.3f; %.1f refused, want at most %.0f", tt.name, part, tt.least, refusals, tt.most)
		}
	}
}

// Bursts and pauses suit a window that is counted in periods badly: it assumes that the attempts of a
// period came evenly.
func TestSmallWindowsCountedInPeriodsAreUsedEvenly(t *testing.T) {
	const runs, lengths = 24, 60
	for _, tt := range []struct {
		size   float64
		length time.Duration
		least  float64 // the part of what is allowed that is admitted
		most   float64 // refusals
	}{{10, time.Minute, 0.78, 15}, {30, 10 * sec, 0.955, 11}} {
		part, refusals := 0.0, 0.0
		for run := range runs {
			l := New(Config{Ceiling: 5*ms + time.Duration(run)*700*time.Microsecond, Initial: sec, Slowest: time.Hour, Phase: time.Duration(run) * 3700 * ms})
			admitted, refused := drive(l, lengths*tt.length, countedOf(tt.size, tt.length))
			part += float64(admitted) / tt.size / lengths / runs
			refusals += float64(refused) / runs
		}
		if part < tt.least || refusals > tt.most {
			t.Errorf("%.0f in %v: %.3f of what is allowed, want %.3f; %.1f refused, want at most %.0f", tt.size, tt.length, part, tt.least, refusals, tt.most)
		}
	}
}

// What a block after a few seconds is due to shows a minute after the first attempt. A canary that
// goes too soon before or after it is followed by a far longer wait.
func TestAMinuteThatIsCountedInPeriodsIsFoundAtItsFirstEnd(t *testing.T) {
	for phase := range 12 {
		for name, admits := range map[string]func(time.Duration) bool{
			"600 a minute, and 20 a second": both(countedOf(20, sec), countedOf(600, time.Minute)),
			"600 a minute":                  countedOf(600, time.Minute),
		} {
			l := New(Config{Ceiling: 5 * ms, Initial: sec, Slowest: time.Hour, Phase: time.Duration(phase) * 4900 * ms})
			admitted, refused := drive(l, 204*sec, admits)
			if b := l.Binding(); b.Kind != Window || b.Window != time.Minute || admitted < 1940 || refused > 14 {
				t.Errorf("%s, the clock is at %d: %d admitted, want 1940 of 2040; %d refused; holds %+v", name, phase, admitted, refused, b)
			}
		}
	}
}

// What a refusal costs is what the same law is admitted without it. Blocks of minutes cost what the
// canary that ends them is late, so that the mean of several lengths counts.
func TestWhatOneRefusalCosts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limit   float64       // a second, with a burst of as much; 0 means none
		refused time.Duration // how long everything is refused, once the pace has settled; in other runs up to a quarter less
		within  time.Duration // it costs at most this beyond that, at the pace before
	}{
		{"a stray one among thousands", 0, ms, 5 * sec},
		{"half a minute", 0, 30 * sec, time.Minute},
		{"four minutes", 0, 4 * time.Minute, 2 * time.Minute},
		{"a stray one under a limit", 20, ms, 5 * sec},
		{"four minutes under a limit", 20, 4 * time.Minute, 2 * time.Minute},
	} {
		const runs = 8
		run := func(refused time.Duration) (admitted, pace float64) {
			l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour})
			from := 30 * time.Minute
			tokens, filled := tt.limit, time.Duration(0)
			limited := func(now time.Duration) bool {
				tokens, filled = min(tt.limit, tokens+tt.limit*(now-filled).Seconds()), now
				if tt.limit > 0 && tokens < 1 {
					return true
				}
				tokens--
				return false
			}
			play(l, 0, from, limited)
			pace = float64(play(l, from, from+10*time.Minute, limited)) / 600
			from += 10 * time.Minute
			first := refused > 0
			return float64(play(l, from, from+time.Hour, func(now time.Duration) bool {
				refuse := first || now < from+refused
				first = false
				return refuse || limited(now)
			})), pace
		}
		without, pace := run(0)
		lost := 0.0
		for i := range runs {
			refused := tt.refused - tt.refused*time.Duration(i)/(4*runs)
			admitted, _ := run(refused)
			lost += ((without-admitted)/pace - refused.Seconds()) / runs
		}
		if lost > tt.within.Seconds() {
			t.Errorf("%s: costs %.1f s, want at most %v", tt.name, lost, tt.within)
		}
		t.Logf("%s: costs %.1f s", tt.name, lost)
	}
}

// A block of minutes could be caused by a window. If it does not happen again, it must not
// delay attempts hours later, although the real limit refuses now and then.
func TestAWindowFromOneLongBlockIsDroppedLater(t *testing.T) {
	for _, limit := range []float64{5, 20} {
		for _, from := range []time.Duration{15 * time.Minute, 20 * time.Minute, 27 * time.Minute, 33 * time.Minute, 40 * time.Minute, 51 * time.Minute} {
			l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour})
			tokens, filled, refused := limit, time.Duration(0), false
			limited := func(now time.Duration) bool {
				tokens, filled = min(limit, tokens+limit*(now-filled).Seconds()), now
				if tokens < 1 || refused && now < from+4*time.Minute {
					return true
				}
				tokens--
				return false
			}
			play(l, 0, from, limited)
			refused = true
			for m := range 4 * 60 {
				at := from + time.Duration(m)*time.Minute
				if n := play(l, at, at+time.Minute, limited); n == 0 && m > 30 {
					t.Errorf("of %g a second, refused for 4 minutes after %v: nothing goes %d minutes later", limit, from, m)
				}
			}
		}
	}
}

// A bucket was held for minutes, then a window of ten minutes refuses and says until when.
func TestALongWaitUnderAKnownRateIsAWindow(t *testing.T) {
	const size, length = 2500, 10 * time.Minute
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	inBucket, next := bucketAt(10, 1), time.Duration(0)
	var sent []time.Duration // admitted
	refused := 0
	for now := time.Duration(0); now < 2*time.Hour; {
		now = max(now+ms, next, l.Hold(now, 1))
		l.Sent(now, 1)
		o := Outcome{Sent: now, Now: now + 20*ms, Class: Admitted}
		full := len(sent) >= size && now-sent[len(sent)-size] < length
		switch {
		case full:
			o.Class, o.RetryAfter = Refused, length-(now-sent[len(sent)-size])
		case !inBucket(now):
			o.Class, o.RetryAfter = Refused, 50*ms
		default:
			sent = append(sent, now)
		}
		if o.Class == Refused {
			refused++
			next = o.Now + o.RetryAfter
		}
		l.Observe(o)
		now = o.Now
	}
	if most := size * 12; len(sent) < most*95/100 || refused > 40 {
		t.Errorf("%d of %d admitted, %d refused, %+v held", len(sent), most, refused, l.Limits(nil))
	}
}

func TestARateCountsWhatIsLimited(t *testing.T) {
	for _, tt := range []struct {
		unit   unit
		counts bool
		want   float64 // of what the limit allows
	}{{attempts, true, 0.9}, {cost, false, 0.85}} {
		l, h, x := New(Config{Ceiling: 5 * ms, Initial: sec, Slowest: time.Hour}), history{}, uint64(1)
		admitted, length := 0.0, 600*sec
		for now := time.Duration(0); now < length; {
			x = x*6364136223846793005 + 1442695040888963407
			c := 0.2 + 1.6*float64(x>>40)/(1<<24)
			if now = max(now+ms, l.Hold(now, c)); !l.Answered() {
				now += sec
			}
			l.Sent(now, c)
			a := amounts{1, c, 0}
			o := Outcome{Sent: now, Now: now + 20*ms, Class: Admitted, Estimate: c, Cost: c}
			if h.used(tt.unit, now, sec)+a[tt.unit] > 20 {
				o.Class = Refused
			} else {
				h.add(now, a)
				admitted += a[tt.unit]
			}
			l.Observe(o)
			now += 4 * ms
		}
		if r := l.rate(); r == nil || r.counts != tt.counts || admitted < tt.want*20*length.Seconds() {
			t.Errorf("20 of unit %d a second: %.0f of %.0f in %d refusals, %+v", tt.unit, admitted, 20*length.Seconds(), l.allRefused, r)
		}
	}
}

// 1,500 attempts against small windows, which begin with the clock or with the first attempt.
func TestSmallFixedWindowsAreFound(t *testing.T) {
	for _, first := range []bool{false, true} {
		for _, waits := range []bool{false, true} {
			for _, length := range []time.Duration{time.Minute, 90 * sec, 5 * time.Minute, 15 * time.Minute} {
				for _, size := range []int{5, 10, 20, 40} {
					l := New(Config{Ceiling: 200 * ms, Initial: sec, Slowest: time.Hour})
					admits, wait := fixedWaits(size, length, first)
					if !waits {
						wait = func(time.Duration) time.Duration { return 0 }
					}
					admitted, refused := driveWaits(l, time.Duration(1500/size)*length, 200*ms, admits, wait)
					least, most := 0.86, 40
					if waits {
						least, most = 0.95, 12
					}
					if part := float64(admitted) / 1500; part < least || refused > most {
						t.Errorf("%d in %v, from the first attempt %v, waits %v: %.3f of what is allowed, %d refused; want %v, %d", size, length, first, waits, part, refused, least, most)
					}
				}
			}
		}
	}
}

// Language models answer after many seconds, and refuse at once.
func TestAnswersMayTakeLong(t *testing.T) {
	part, refusals, runs := 0.0, 0, 0
	for _, tt := range []struct {
		name   string
		rate   float64 // admitted a second
		admits func() func(time.Duration) bool
	}{
		{"60 in any minute", 1, func() func(time.Duration) bool { return slidingOf(60, time.Minute) }},
		{"300 in any minute", 5, func() func(time.Duration) bool { return slidingOf(300, time.Minute) }},
		{"120 in a minute of the clock", 2, func() func(time.Duration) bool { return fixedOf(120, time.Minute, false) }},
		{"500 in a minute that the first one begins", 8.33, func() func(time.Duration) bool { return fixedOf(500, time.Minute, true) }},
		{"2 a second after 10 at once", 2, func() func(time.Duration) bool { return bucketAt(2, 10) }},
		{"5 a second after 100 at once", 5, func() func(time.Duration) bool { return bucketAt(5, 100) }},
	} {
		for _, answer := range []time.Duration{2 * sec, 5 * sec, 10 * sec} {
			l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour})
			admitted, refused := driveSlow(l, 20*time.Minute, answer, tt.admits())
			got := float64(admitted) / (tt.rate * 1200)
			if got < 0.7 || refused > 40 {
				t.Errorf("%s, answers take %v: %.3f of what is allowed, %d refused; holds %s", tt.name, answer, got, refused, held(l))
			}
			part, refusals, runs = part+got, refusals+refused, runs+1
		}
	}
	if part /= float64(runs); part < 0.96 || refusals > 20*runs {
		t.Errorf("%.3f of what is allowed, %.1f refused", part, float64(refusals)/float64(runs))
	}
}

// A limit of more than 64 in flight is found as well as one of fewer.
func TestLargeLimitsInFlightAreFound(t *testing.T) {
	for _, limit := range []int{40, 80, 200} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		admitted, refused := driveCrowd(l, 20*time.Minute, sec, 100*ms, 1000, func(_ time.Duration, others int) Class { return classOf(others < limit) })
		f := l.Binding()
		if f.Kind != Flight || math.Abs(f.Size-float64(limit)) > 0.1*float64(limit) || refused > admitted/150 {
			t.Errorf("%d in flight: %d admitted, %d refused; holds %s", limit, admitted, refused, held(l))
		}
	}
}

// After a restart the first attempt may meet an outage or a limit that is used up, which shows no pace: the law
// neither takes it for a fast one nor stays slow.
func TestARefusedFirstAttemptShowsNoPace(t *testing.T) {
	for _, tt := range []struct {
		rate           float64
		answer         time.Duration
		until          time.Duration
		least, refused int
	}{
		{0.5, 2 * sec, 20 * sec, 4, 5},
		{2, 20 * ms, 2 * time.Minute, 210, 5},
		{20, 20 * ms, 2 * time.Minute, 2000, 8},
		{100, 20 * ms, 2 * time.Minute, 9500, 20},
	} {
		for _, first := range []Class{Admitted, Refused, Overloaded} {
			l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
			limit, sent := bucketAt(tt.rate, max(1, tt.rate/10)), 0
			admitted, refused := driveCrowd(l, tt.until, tt.answer, tt.answer, 128, func(now time.Duration, _ int) Class {
				if sent++; sent == 1 && first != Admitted {
					return first
				}
				return classOf(limit(now))
			})
			if admitted < tt.least || refused > tt.refused {
				t.Errorf("%v a second, the first one is of class %v: %d admitted, %d refused, want %d and %d; holds %s", tt.rate, first, admitted, refused, tt.least, tt.refused, held(l))
			}
		}
	}
}

// Nine callers of a bucket of 20 a second, of which five go at once, start together.
func TestABurstThatIsPartlyRefusedIsNoReasonToGoSlowly(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	limit := bucketAt(20, 5)
	answer := make([]Class, 9)
	for i := range answer {
		l.Sent(0, 1)
		answer[i] = classOf(limit(0))
	}
	for i := range answer {
		l.Observe(Outcome{Sent: 0, Now: ms, Class: answer[len(answer)-1-i], Estimate: 1, Cost: 1})
	}
	if admitted, refused := drive(l, 5*sec, limit); admitted < 60 || refused > 4 {
		t.Errorf("%d of the next 100 were admitted and %d refused, want 60 and 4; holds %s", admitted, refused, held(l))
	}
}

// What attempts cost may be estimated ten times too high, as of a model that seldom writes all that it may.
func TestEstimatesThatAreAlwaysWrongChangeNoPace(t *testing.T) {
	for _, estimate := range []float64{0.1, 1, 10, 1000} {
		l, limit := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour}), bucketAt(20, 5)
		admitted, refused := 0, 0
		for now := time.Duration(0); now < time.Minute; {
			if now = max(now+ms, l.Hold(now, estimate)); !l.Answered() {
				now += sec
			}
			l.Sent(now, estimate)
			o := Outcome{Sent: now, Now: now + 20*ms, Class: classOf(limit(now)), Estimate: estimate, Cost: 1}
			l.Observe(o)
			if o.Class == Admitted {
				admitted++
			} else {
				refused++
			}
		}
		if admitted < 1020 || refused > 8 {
			t.Errorf("%v times what they cost: %d of 1,200 admitted, %d refused, want 1,020 and 8; holds %s", estimate, admitted, refused, held(l))
		}
	}
}
