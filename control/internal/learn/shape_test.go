package learn

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

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

// An attempt used one unit and was reported to be free after ten seconds. The next report
// comes four seconds later, unless a row says otherwise; both are exact to 100 ms.
func TestWhatTwoResetsSayAboutAShape(t *testing.T) {
	for _, tt := range []struct {
		name   string
		shape  shape
		prior  report
		next   report
		want   shape
		errors [shapes]float64 // of sliding, fixed and bucket
		wrong  float64
		sure   bool
		taken  bool // it is what the next one is compared with
	}{
		{"the same end", fixed, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 6 * sec}, fixed, [3]float64{1.5, 0, 1.5}, 0, true, true},
		{"the same length", sliding, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 10 * sec}, sliding, [3]float64{0, 1.5, 1.5}, 0, true, true},
		{"which turns a fixed one", fixed, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 10 * sec}, sliding, [3]float64{0, 0.5, 1}, 0, false, true},
		{"twice as long for two", bucket, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 10, reset: 20 * sec}, bucket, [3]float64{1.5, 1.5, 0}, 0, true, true},
		{"half a unit of an error", sliding, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 10200 * ms}, sliding, [3]float64{0, 1, 1}, 0.5, true, true},
		{"three tolerances of a difference are enough", sliding, report{used: 5, reset: 10 * sec}, report{sent: 300 * ms, used: 9, reset: 10 * sec}, sliding, [3]float64{0, 1.5, 1.5}, 0, true, true},
		{"less are not", sliding, report{used: 5, reset: 10 * sec}, report{sent: 299 * ms, used: 9, reset: 10 * sec}, sliding, [3]float64{0, 0.5, 0.5}, 0, false, false},
		{"between two shapes", fixed, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 8 * sec}, fixed, [3]float64{0.5, 0, 0.5}, 0, false, false},
		{"the same end, from the response", fixed, report{used: 5, reset: 9 * sec, took: sec}, report{sent: 4 * sec, used: 9, reset: 5900 * ms, took: 100 * ms}, fixed, [3]float64{1.5, 0, 1.5}, 0, true, true},
		{"after one that was free at once", fixed, report{used: 5, took: 5 * sec}, report{sent: 4 * sec, used: 9, reset: sec}, fixed, [3]float64{0.5, 0, 0.5}, 0, false, true},
		{"no shape", fixed, report{used: 5, reset: 10 * sec}, report{sent: 4 * sec, used: 9, reset: 2 * sec}, fixed, [3]float64{0.5, 0, 0.5}, 1, false, true},
		{"after the end it is another window", fixed, report{used: 5, reset: 10 * sec}, report{sent: 9900 * ms, used: 9, reset: sec}, fixed, [3]float64{0.5, 0, 0.5}, 0, false, true},
		{"just before it", fixed, report{used: 5, reset: 10 * sec}, report{sent: 9899 * ms, used: 9, reset: 101 * ms}, fixed, [3]float64{1.5, 0, 1.5}, 0, true, true},
		{"the first one", fixed, report{}, report{sent: 4 * sec, used: 9, reset: 6 * sec}, fixed, [3]float64{0.5, 0, 0.5}, 0, false, true},
	} {
		r := newShaper(tt.shape)
		r.prior = tt.prior
		r.learn(tt.next, func(x report) time.Duration { return x.reset + x.took }, 100*ms)
		off := 0.0
		for s := range r.errors {
			off = max(off, math.Abs(r.errors[s]-tt.errors[s]))
		}
		if off > 0.01 || r.shape != tt.want || math.Abs(r.wrong-tt.wrong) > 0.01 || r.sure() != tt.sure || (r.prior == tt.next) != tt.taken {
			t.Errorf("%s: %+v, sure %v; want %+v", tt.name, r, r.sure(), tt)
		}
	}
	r := newShaper(fixed)
	for i := range 9 { // however often
		r.prior = report{used: 5, reset: 10 * sec}
		if r.learn(report{sent: 4 * sec, used: 9, reset: 6 * sec}, func(x report) time.Duration { return x.reset }, 100*ms); r.errors[sliding] != min(maxShapeError, 1.5+float64(i)) {
			t.Errorf("after %d reports the error is %v", i+1, r.errors[sliding])
		}
	}
	if r.wrong = maxWrong; r.trusted() {
		t.Error("what no shape predicts is trusted")
	}
	// By how much two resets of a bucket disagree, if they are exact to a second: a unit takes 10 s
	// to 11 s by the first, of two units.
	for _, tt := range []struct {
		next report
		want time.Duration
	}{
		{report{used: 10, reset: 200 * sec}, 17600 * ms}, {report{used: 1, reset: 50 * sec}, 37 * sec}, {report{used: 10, reset: 100 * sec}, 0}, {report{used: 10, reset: 20 * sec}, 2 * (4*sec - 21*sec/9)},
	} {
		for _, x := range [][2]report{{{used: 2, reset: 10 * sec}, tt.next}, {tt.next, {used: 2, reset: 10 * sec}}} {
			if got := apart(x[0], x[1], sec); (got - tt.want).Abs() > time.Microsecond {
				t.Errorf("%+v and %+v disagree by %v, want %v", x[0], x[1], got, tt.want)
			}
		}
	}
}

func TestWhereAResetIsCountedFrom(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shape shape
		next  report
		want  origin // if the reset draws nearer, for a fixed window, else if it does not
	}{
		{"a fixed end, from the response", fixed, report{sent: 4 * sec, took: 300 * ms, reset: 5800 * ms}, origin{0.04, 0}},
		{"a fixed end, from sending", fixed, report{sent: 4 * sec, took: 300 * ms, reset: 6 * sec}, origin{0, 0.04}},
		{"a fixed length, from the response", sliding, report{sent: 4 * sec, took: 300 * ms, reset: 9800 * ms}, origin{0.04, 0}},
		{"a fixed length, from sending", sliding, report{sent: 4 * sec, took: 300 * ms, reset: 10 * sec}, origin{0, 0.04}},
		{"a bucket that is as empty as before, from the response", bucket, report{sent: 4 * sec, took: 300 * ms, reset: 9800 * ms}, origin{0.04, 0}},
		{"another window", sliding, report{sent: 4 * sec, took: 100 * ms, reset: 25 * sec}, origin{}},
		{"not quite", sliding, report{sent: 4 * sec, took: 100 * ms, reset: 25*sec - ms}, origin{14.999 * 14.999, 14.999 * 14.999}},
	} {
		a := advertised{shaper: newShaper(tt.shape), window: time.Minute, last: report{sent: 3 * sec, took: 100 * ms, reset: 10 * sec}}
		tt.next.sent += 3 * sec
		a.compare(tt.next)
		got := a.origins[0]
		if tt.shape == fixed {
			got = a.origins[1]
		}
		if math.Abs(got.sent-tt.want.sent) > 1e-9 || math.Abs(got.answered-tt.want.answered) > 1e-9 || a.last != tt.next {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
		want := tt.next.reset
		if tt.want.answered < tt.want.sent {
			want += tt.next.took
		}
		if got := a.fromSending(tt.next); got != want {
			t.Errorf("%s: %v from sending on, want %v", tt.name, got, want)
		}
		if a.precise = true; a.fromSending(tt.next) != tt.next.reset {
			t.Errorf("%s: a duration counts from the response", tt.name)
		}
	}
	a := advertised{shaper: newShaper(sliding), window: time.Minute, last: report{reset: 10 * sec}, origins: [2]origin{{100, 200}, {}}}
	if a.compare(report{sent: sec, took: sec, reset: 12 * sec}); a.origins[0] != (origin{103, 207}) {
		t.Errorf("%+v, want a hundredth less and the squares of the changes", a.origins[0])
	}
}

// Dates are rounded up to seconds, by more than responses differ: only many of them show from
// where they are counted, and then the length of the window.
func TestRoundedResetsShowALength(t *testing.T) {
	const length = 14900 * ms
	for _, answered := range []bool{false, true} {
		for seed := range 20 {
			dice := rand.New(rand.NewPCG(1, uint64(seed)))
			h, latencies := &history{}, [...]time.Duration{1200 * ms, 1500 * ms, 2200 * ms}
			a := advertised{shaper: newShaper(sliding), grain: 1, share: 1, at: -1, fine: -100}
			for i := range 200 {
				sent := time.Duration(i)*700*ms + time.Duration(dice.IntN(200))*ms
				v := &view{now: sent + latencies[dice.IntN(3)], h: h, latency: 1500e6}
				h.add(sent, amounts{1, 0, 0})
				reset := (sent + length + sec - 1).Truncate(sec) - sent // by the Date of the response
				if answered {
					reset -= v.now - sent // by our clock when it arrived
				}
				a.update(v, sent, false, Fact{Quota: 30, Remaining: 30 - math.Round(h.used(attempts, sent, length)), Window: -1, Reset: reset})
			}
			if got := a.length(); a.fromAnswer() != answered || got != 15*sec {
				t.Errorf("seed %d, counted from the response: %v: taken for %v, %v long", seed, answered, a.fromAnswer(), got)
			}
		}
	}
}

func TestHowFastABucketRefills(t *testing.T) {
	for _, tt := range []struct {
		name         string
		a            advertised
		used         float64
		reset        time.Duration // rounded up to a second
		slow, fast   float64
		aboutABucket float64 // evidence against one
	}{
		{"ten in 5 s, one of which is hardly used", advertised{quota: 60, grain: 1}, 10, 5 * sec, 9 / 5., 10 / 4., 0},
		{"of one", advertised{quota: 1, grain: 1}, 1, 5 * sec, 1 / 5., 1 / 4., 0},
		{"in less than a second", advertised{quota: 60, grain: 1}, 10, sec, 9, math.Inf(1), 0},
		{"at once", advertised{quota: 60, grain: 1}, 10, 0, 9000, math.Inf(1), 0},
		{"rounded to thousands", advertised{quota: 6000, grain: 1000}, 500, 5 * sec, 0, 125, 0},
		{"narrower bounds stay", advertised{quota: 60, grain: 1, slow: 1.9, fast: 2.1}, 10, 5 * sec, 1.9, 2.1, 0},
		{"bounds that meet stay", advertised{quota: 60, grain: 1, slow: 2.5, fast: 9}, 10, 5 * sec, 2.5, 2.5, 0},
		{"wider ones do not", advertised{quota: 60, grain: 1, slow: 1, fast: 3}, 10, 5 * sec, 9 / 5., 10 / 4., 0},
		{"another rate", advertised{quota: 60, grain: 1, slow: 2.6, fast: 2.7}, 10, 5 * sec, 9 / 5., 10 / 4., 0},
		{"by far", advertised{quota: 60, grain: 1, slow: 3.1, fast: 3.2}, 10, 5 * sec, 9 / 5., 10 / 4., 1},
		{"of two units, the rounding explains it", advertised{quota: 2, grain: 1, slow: 3.1, fast: 3.2}, 2, 5 * sec, 1 / 5., 2 / 4., 0},
	} {
		a := tt.a
		a.shaper = newShaper(bucket)
		a.refill(tt.used, tt.reset, sec)
		if tt.a.fast == 0 {
			a = tt.a
			a.shaper, a.fast = newShaper(bucket), math.Inf(1)
			a.refill(tt.used, tt.reset, sec)
		}
		if math.Abs(a.slow-tt.slow) > 1e-9 || a.fast != tt.fast && math.Abs(a.fast-tt.fast) > 1e-9 || a.errors[bucket] != tt.aboutABucket {
			t.Errorf("%s: from %v to %v a second, %v against a bucket; want %v to %v, %v", tt.name, a.slow, a.fast, a.errors[bucket], tt.slow, tt.fast, tt.aboutABucket)
		}
	}
}

func TestResetsOfAWindowSayNothingAboutABucket(t *testing.T) {
	a := advertised{shaper: newShaper(fixed), quota: 60, grain: 1, slow: 3.1, fast: 3.2}
	if a.refill(10, 5*sec, sec); a.errors[bucket] != 0.5 || a.slow != 9/5. || a.fast != 10/4. {
		t.Errorf("%+v", a)
	}
}

func TestHeadersOfASlidingWindowThatLookLikeABucket(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	now := time.Duration(0)
	for i := range 50 {
		now += 100 * ms
		l.Sent(now, 1)
		l.Advertise(now, now, false, Fact{Name: "requests", Refills: true, Quota: 60, Remaining: float64(59 - i), Window: -1, Reset: time.Minute})
		l.Observe(Outcome{Sent: now, Now: now, Class: Admitted, Estimate: 1, Cost: 1})
	}
	a := &l.headers[0]
	if a.shape != sliding || a.length() != time.Minute {
		t.Errorf("shape %v, %v long", a.shape, a.length())
	}
}
