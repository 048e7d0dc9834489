package learn

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestASharedLimitIsSpreadOverTheRestOfItsWindow(t *testing.T) {
	v := &view{now: 100 * sec, last: 100 * sec, h: &history{}, mean: amounts{1, 1, 0}}
	for _, tt := range []struct {
		name   string
		shape  shape
		shared bool
		margin float64 // not used since a refusal
		taken  float64 // by others in the last minute
		left   float64
		want   time.Duration // interval between attempts
	}{
		{"it is refused no more", fixed, true, 0, 20, 40, 0},
		{"alone", fixed, false, grazed, 20, 40, 0},
		{"a window", fixed, true, grazed, 20, 40, 400 * ms},
		{"of which little is left", fixed, true, grazed, 20, 4, 4 * sec},
		{"of which others take more than a quarter, without a refusal", fixed, false, 0, 20.1, 40, 400 * ms},
		{"of which little is left: they may have taken that", fixed, false, 0, 30, 4, 20*sec + 60*ms},
		{"a bucket", bucket, true, grazed, 30, 40, 800 * ms},
		{"a bucket that was never refused, and that others use", bucket, false, 0, 30, 40, 800 * ms},
		{"of which little is left: others leave more than that", bucket, false, 0, 30, 4, 4 * sec / 3},
		{"a sliding window that was never refused", sliding, false, 0, 30, 40, time.Minute / 12 / 40},
	} {
		a := advertised{taken: tt.taken, during: 60, others: 40, resets: known(time.Minute, 0), share: 1, shaper: newShaper(tt.shape), quota: 80, left: tt.left, shared: tt.shared, margin: tt.margin, at: 90 * sec, whole: 120 * sec, slow: 2, fast: 2}
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
		t.Errorf("what is in flight on a limit on cost is taken for the use of others: the next goes %v after the last", got)
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
			t.Errorf("under a penalty the next of %v, of which %v are left, goes %v after the last, want %v or more, or at once while much is left or few can be in flight at a refusal", tt.quota, tt.left, got, tt.want)
		}
	}
}

// Others take one of sixty units a second in a window of a minute, and the newest response is four
// seconds old.
func TestHowManyUnitsAreLeftToOthers(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*advertised, *view)
		want float64
	}{
		{"as many as they take meanwhile", func(*advertised, *view) {}, 4},
		{"a few of all at most", func(a *advertised, _ *view) { a.at = 50 * sec }, maxGrazed * 60},
		{"under a penalty all that they may have taken", func(a *advertised, v *view) { a.at, v.punished = 50*sec, true }, 50},
		{"in a new window none: nobody knows whether they are back", func(a *advertised, _ *view) { a.rolled = true }, 0},
		{"a quarter of the window is not much", func(a *advertised, _ *view) { a.taken = 2.5 }, 0},
		{"a little more is", func(a *advertised, _ *view) { a.taken = 2.6 }, 1.04},
		{"of seven none", func(a *advertised, _ *view) { a.quota = 7 }, 0},
		{"of eight some", func(a *advertised, _ *view) { a.quota = 8 }, maxGrazed * 8},
		{"of a bucket none: it fills meanwhile", func(a *advertised, _ *view) { a.shape = bucket }, 0},
		{"of costs none: it may be our own attempts in flight", func(a *advertised, _ *view) { a.perCost = true }, 0},
	} {
		a := advertised{shaper: newShaper(fixed), quota: 60, window: time.Minute, taken: 10, during: 10, at: 96 * sec}
		v := &view{now: 100 * sec}
		tt.do(&a, v)
		if got := a.reserve(v); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v units, want %v", tt.name, got, tt.want)
		}
	}
}

// Three clients share 600 calls in each five minutes, and responses say how many are left. One of them is never
// refused, and must not take what the others spread over the next window.
func TestClientsOfAnAdvertisedWindowGetEvenShares(t *testing.T) {
	p := provider{shape: fixed, units: 600, length: 5 * time.Minute, round: sec}
	var laws [3]*Law
	var due [3]time.Duration
	var admitted [3]int
	for c := range laws {
		laws[c], due[c] = New(Config{Ceiling: 20 * ms, Initial: sec, Slowest: time.Hour}), time.Duration(c)*7*ms
	}
	refused := 0
	for now := time.Duration(0); now < time.Hour; {
		c := slices.Index(due[:], slices.Min(due[:]))
		l := laws[c]
		if now = l.Hold(due[c], 1); now > due[c] {
			due[c] = now
			continue
		}
		l.Sent(now, 1)
		f, ok := p.arrives(now)
		o := Outcome{Sent: now, Now: now + 5*ms, Class: Admitted, Estimate: 1, Cost: 1}
		if ok {
			admitted[c]++
		} else {
			refused++
			o.Class = Refused
		}
		l.Advertise(now, o.Now, !ok, f)
		l.Observe(o)
		due[c] = now + 20*ms
		if !l.Answered() {
			due[c] = now + sec
		}
	}
	if least, most := slices.Min(admitted[:]), slices.Max(admitted[:]); least < most*9/10 || refused > 8 {
		t.Errorf("of 7200 calls the clients got %v, with %d refusals", admitted, refused)
	}
}

// Refusals are fast, and responses of admitted attempts may take long.
// What others use of rounded units changes slowly upwards.
func TestWhatOthersUseOfRoundedUnits(t *testing.T) {
	for _, tt := range []struct{ grain, others, want, surge float64 }{{1, 44, 44, 40}, {1000, 44, 6, 40}, {1000, 1, 1, 0.9}, {1000, -9, 0, 0.9}} {
		a := advertised{grain: tt.grain, others: 4, surge: 1}
		if a.seen(tt.others); math.Abs(a.others-tt.want) > 1e-9 || a.surge != tt.surge {
			t.Errorf("others use %v of units rounded to %v: taken for %v, growing by %v; want %v, %v", tt.others, tt.grain, a.others, a.surge, tt.want, tt.surge)
		}
	}
}

func TestWhatOthersUseIsForgottenWithSlowResponses(t *testing.T) {
	h := &history{}
	a := advertised{shaper: newShaper(sliding), name: "x", quota: 100, grain: 1, share: 1, at: -1, resets: known(10*sec, 0), others: 40}
	for n := range 400 {
		now := time.Duration(n) * sec / 8
		h.add(now, amounts{1, 1, 0})
		used := h.used(attempts, now, 10*sec)
		a.update(&view{now: now + 2*sec, h: h, latency: 2e9}, now, false, Fact{Quota: 100, Remaining: 100 - used, Window: -1, Reset: 10 * sec})
	}
	if a.others > 1 {
		t.Errorf("others use %.1f, and the responses count only our own attempts", a.others)
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
		v := &view{now: 10 * sec, h: &history{}, mean: amounts{1, 1, 0}, punished: tt.punished}
		a := advertised{shaper: newShaper(bucket), quota: 4475, left: tt.left, slow: 1.0 / 2860, share: 1}
		if got := a.apart(v, 1); (got > 0) != tt.spread {
			t.Errorf("%.0f of 4475 left, penalty %v: the next attempt goes after %v", tt.left, tt.punished, got)
		}
	}
}

// Sixty units, of which forty are left; those of a bucket return at two a second, and others
// take half of that.
func TestHowFarApartSharedUnitsAreUsed(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*advertised, *view)
		cost float64
		want time.Duration
	}{
		{"a window: over the rest of it", func(*advertised, *view) {}, 1, 20 * sec * 10 / 400 * 10 / 125 * 10},
		{"of which much was spent since", func(a *advertised, _ *view) { a.spent = 20 }, 1, 20 * sec * 10 / 200 * 10 / 125 * 10},
		{"of which less is left than one needs", func(a *advertised, _ *view) { a.spent = 39.5 }, 1, 16 * sec},
		{"of which others have taken some since", func(a *advertised, v *view) { a.at, v.latency = 100*sec-500*ms, 500e6 }, 1, 20 * sec * 10 / 395 * 10 / 125 * 10},
		{"in the time of a response at most", func(a *advertised, v *view) { a.at, v.latency = 80*sec, 20e9/2 }, 1, 20 * sec * 10 / 300 * 10 / 125 * 10},
		{"in which they cannot have taken more than all", func(a *advertised, v *view) { a.at, a.taken, v.latency = 80*sec, 100, 10e9 }, 1, 16 * sec},
		{"of few that is not guessed", func(a *advertised, v *view) { a.quota, a.at, v.latency = manyAtOnce-1, 80*sec, 10e9 }, 1, 400 * ms},
		{"nor of costs", func(a *advertised, v *view) { a.perCost, a.at, v.latency = true, 80*sec, 10e9 }, 1, 400 * ms},
		{"it is over", func(_ *advertised, v *view) { v.now = 130 * sec }, 1, 0},
		{"others use it no more", func(a *advertised, _ *view) { a.shared = false }, 1, 0},
		{"the refusal is long ago", func(a *advertised, _ *view) { a.margin = grazed/2 - 1e-6 }, 1, 0},
		{"not that long", func(a *advertised, _ *view) { a.margin = grazed / 2 }, 1, 400 * ms},
		{"a sliding window: over a twelfth of it", func(a *advertised, _ *view) {
			a.shape, a.resets, a.others, a.margin = sliding, known(time.Minute, 0), 4, 0
		}, 1, 125 * ms},
		{"of which less is left than one needs", func(a *advertised, _ *view) {
			a.shape, a.resets, a.others, a.spent = sliding, known(time.Minute, 0), 4, 39.5
		}, 1, 5 * sec},
		{"of costs", func(a *advertised, _ *view) {
			a.shape, a.resets, a.others, a.perCost = sliding, known(time.Minute, 0), 4, true
		}, 4, 500 * ms},
		{"others use hardly any of it", func(a *advertised, _ *view) { a.shape, a.resets, a.others = sliding, known(time.Minute, 0), 3 }, 1, 0},
		{"of one", func(a *advertised, _ *view) { a.quota = 1 }, 1, 0},
		{"of two", func(a *advertised, _ *view) { a.quota = 2 }, 1, 400 * ms},
		{"of costs", func(a *advertised, _ *view) { a.perCost = true }, 4, 1600 * ms},
		{"a bucket: over the time that it takes to refill", func(a *advertised, _ *view) { a.shape = bucket }, 1, 600 * ms},
		{"of which little is left: twice what others leave of it", func(a *advertised, _ *view) { a.shape, a.left = bucket, 1 }, 1, 2 * sec},
		{"which they took at once", func(a *advertised, _ *view) { a.shape, a.left, a.taken, a.during = bucket, 1, 0.001, 0 }, 1, 2 * sec},
		{"they leave a twentieth at least", func(a *advertised, _ *view) { a.shape, a.left, a.taken = bucket, 1, 100 }, 1, 20 * sec},
		{"a larger one of which they leave as much", func(a *advertised, _ *view) { a.shape, a.left, a.taken, a.quota = bucket, 1, 100, 120 }, 1, 20 * sec},
		{"what they gave back does not count", func(a *advertised, _ *view) { a.shape, a.left, a.taken = bucket, 1, -100 }, 1, sec},
		{"a bucket of costs is spread evenly", func(a *advertised, _ *view) { a.shape, a.perCost, a.left = bucket, true, 4 }, 4, 24 * sec},
		{"a bucket that they use, without a refusal", func(a *advertised, _ *view) { a.shape, a.shared = bucket, false }, 1, 600 * ms},
		{"if it is surely one", func(a *advertised, _ *view) { a.shape, a.shared, a.errors = bucket, false, [shapes]float64{} }, 1, 0},
		{"and they use a twentieth of it", func(a *advertised, _ *view) { a.shape, a.shared, a.taken = bucket, false, 1 }, 1, 0},
		{"more than that", func(a *advertised, _ *view) { a.shape, a.shared, a.taken = bucket, false, 1.01 }, 1, 600 * ms},
		{"under a penalty from half of it on", func(a *advertised, v *view) {
			a.shape, a.taken, a.shared, a.spent, v.punished = bucket, 0, false, 10.1, true
		}, 1, 24 * sec * 10 / 299},
		{"not before", func(a *advertised, v *view) {
			a.shape, a.taken, a.shared, a.spent, v.punished = bucket, 0, false, 10, true
		}, 1, 0},
		{"of eight", func(a *advertised, v *view) {
			a.shape, a.taken, a.shared, a.quota, a.left, v.punished = bucket, 0, false, 8, 3.9, true
		}, 1, 820 * ms},
		{"of fewer nothing is saved", func(a *advertised, v *view) {
			a.shape, a.taken, a.shared, a.quota, a.left, v.punished = bucket, 0, false, 7.9, 3.9, true
		}, 1, 0},
		{"of a bucket of which no rate is known, the end is", func(a *advertised, _ *view) { a.shape, a.slow = bucket, 0 }, 1, 400 * ms},
	} {
		a := advertised{shaper: shaper{errors: [shapes]float64{2, 2, 2}}, quota: 60, left: 40, whole: 120 * sec, slow: 2, taken: 10, during: 10, shared: true, margin: grazed, share: 1}
		a.shape = fixed
		v := &view{now: 100 * sec}
		tt.do(&a, v)
		if got := a.apart(v, tt.cost); (got-tt.want).Abs() > 5*ms || tt.want == 0 && got != 0 {
			t.Errorf("%s: %v apart, want %v", tt.name, got, tt.want)
		}
	}
}
