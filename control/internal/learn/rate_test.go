package learn

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func TestTheRampDoublesAfterTwoAnswersAndHalfASecond(t *testing.T) {
	for _, tt := range []struct {
		name    string
		every   time.Duration
		flying  int
		answers []time.Duration // instants; sent 50 ms before
		want    time.Duration
	}{
		{"one answer is too few", 100 * ms, 0, []time.Duration{sec}, 100 * ms},
		{"two are enough", 100 * ms, 0, []time.Duration{sec, 1100 * ms}, 50 * ms},
		{"but not within half a second", 100 * ms, 0, []time.Duration{200 * ms, 300 * ms, 400 * ms, 499 * ms}, 100 * ms},
		{"with eleven in flight as well", 100 * ms, 11, []time.Duration{sec, 1100 * ms}, 50 * ms},
		{"where many are in flight it grows by less", 100 * ms, 47, []time.Duration{sec, 1100 * ms}, 80 * ms},
		{"never beyond the ceiling", 100 * ms, 0, []time.Duration{1, 2, 3, sec, 2 * sec, 3 * sec, 4 * sec, 5 * sec, 6 * sec, 7 * sec, 8 * sec, 9 * sec}, 25 * ms},
		{"at a slow pace after one", sec, 0, []time.Duration{100 * ms}, sec / 2},
		{"two latencies after the step before", sec, 0, []time.Duration{99 * ms}, sec},
		{"to an attempt of after it", sec, 0, []time.Duration{sec, 1049 * ms}, sec / 2},
		{"and again", sec, 0, []time.Duration{sec, 1500 * ms}, sec / 4},
		{"until it is no longer slow", sec, 0, []time.Duration{sec, 1500 * ms, 1750 * ms, 2249 * ms, 2250 * ms}, sec / 16},
		{"from then on after two and half a second", sec, 0, []time.Duration{sec, 1500 * ms, 1750 * ms, 2000 * ms, 2249 * ms}, sec / 8},
	} {
		r := ramp{every: float64(tt.every)}
		for _, at := range tt.answers {
			r.answered(&view{now: at, last: at, latency: float64(50 * ms), flying: tt.flying}, at-50*ms, float64(25*ms))
		}
		if got := time.Duration(r.every); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	// The second answer since a step, at 10 s: the interval is a tenth of a second, the latency nearly a second.
	for _, tt := range []struct {
		name           string
		at, last, sent time.Duration // of the step, and of the newest attempt and the answered one
		latency        time.Duration
		fastest        time.Duration
		grows          bool
		answers        int
	}{
		{"two round trips after the step", 8020 * ms, 9900 * ms, 9 * sec, 990 * ms, ms, true, 0},
		{"sooner", 8021 * ms, 9900 * ms, 9 * sec, 990 * ms, ms, false, 2},
		{"to an attempt of before it", 8 * sec, 9900 * ms, 8 * sec, 990 * ms, ms, false, 2},
		{"but its refusal would have come by now", 8 * sec, 9900 * ms, sec, 9 * sec, ms, true, 0},
		{"but not within two seconds", 8001 * ms, 9900 * ms, sec, 9 * sec, ms, false, 2},
		{"the attempts are not paced: the newest is old", 8 * sec, 7820 * ms, 9 * sec, 990 * ms, ms, false, 0},
		{"as old as two intervals and round trips", 8 * sec, 7821 * ms, 9 * sec, 990 * ms, ms, true, 0},
		{"it is at the ceiling", 8 * sec, 9900 * ms, 9 * sec, 990 * ms, 100 * ms, false, 0},
	} {
		r := ramp{every: 1e8, answers: 1, at: tt.at}
		grew := r.answered(&view{now: 10 * sec, last: tt.last, latency: float64(tt.latency)}, tt.sent, float64(tt.fastest))
		want := ramp{every: 1e8, answers: tt.answers, at: tt.at}
		if tt.answers == 0 {
			want.at = 10 * sec
		}
		if tt.grows {
			want.every, want.was, want.grew = 5e7, 1e8, 10*sec
		}
		if grew != tt.grows || r != want {
			t.Errorf("%s: grew %v, %+v; want %+v", tt.name, grew, r, want)
		}
	}
}

func TestARateIsTheMeanFromReleaseToRelease(t *testing.T) {
	for _, tt := range []struct {
		name        string
		cycles      []cycle // n attempts, seconds until the refusal, with the block
		low, high   float64
		near, since float64
	}{
		{"one cycle: between with the block and without it", []cycle{{100, 9, 10}}, 10, 11.1, 0.03, 0},
		{"more of them: nearer", []cycle{{100, 9, 10}, {200, 19, 20}, {200, 19.5, 20}}, 10, 10.6, 0.03, 0},
		{"three at another rate replace the mean", []cycle{{300, 29, 30}, {40, 7.9, 8}, {40, 7.9, 8}, {40, 7.9, 8}}, 5, 5.06, 0.1, 0},
		{"a cycle of few attempts only cuts a little", []cycle{{3, 0.1, 1.1}}, 7, 20, 0.01, 0},
	} {
		r := newRate(0, 10, 20)
		r.spaced = false
		now := time.Duration(0)
		for _, c := range tt.cycles {
			for range int(c.n) - int(r.count) {
				r.sent(now, 1)
			}
			v := &view{now: now + seconds(c.open)}
			r.blame(v, refusal{sent: v.now, now: v.now})
			now += seconds(c.whole)
			v.now = now
			r.ended(v, now)
		}
		if math.Abs(r.low/tt.low-1) > tt.near || math.Abs(r.high/tt.high-1) > tt.near {
			t.Errorf("%s: from %.3g to %.3g a second, want %v to %v", tt.name, r.low, r.high, tt.low, tt.high)
		}
	}
}

func TestARateClimbsFromLowToHighAndThenFaster(t *testing.T) {
	r := newRate(0, 10, 20)
	last := 0.0
	for _, since := range []float64{0, r.stretch / 2, r.stretch, r.stretch + 100, r.stretch + 1000} {
		pace := r.paceAt(since)
		if pace <= last {
			t.Errorf("after %v attempts %v a second, before %v", since, pace, last)
		}
		last = pace
	}
	if r.paceAt(0) != 10 || r.paceAt(r.stretch) != 20 {
		t.Errorf("from %v to %v, want 10 to 20", r.paceAt(0), r.paceAt(r.stretch))
	}
}

func TestAFewClimbsFindARate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limit  float64 // a second
		burst  float64
		climbs int
		near   float64
	}{
		// The limit is on the time between two attempts: the mean of a climb is too low.
		{"without a burst", 9, 1, 7, 0.05},
		{"slower than the bracket", 3, 1, 7, 0.1},
		// The pace at the refusal is too high.
		{"a burst of a hundred", 9, 100, 7, 0.05},
	} {
		r := newRate(0, 5, 20)
		tokens, filled, now := tt.burst, time.Duration(0), time.Duration(0)
		for range tt.climbs {
			now = climb(r, now, func(_, now time.Duration) bool {
				tokens, filled = min(tt.burst, tokens+tt.limit*(now-filled).Seconds()), now
				if tokens < 1-1e-9 {
					return true
				}
				tokens--
				return false
			})
		}
		if math.Abs(r.low/tt.limit-1) > tt.near || r.high < r.low || r.high > 1.4*tt.limit {
			t.Errorf("%s: from %.3g to %.3g a second, want %v", tt.name, r.low, r.high, tt.limit)
		}
	}
}

// The shares of single clients depend on chance, and so does when they become even.
func TestClientsOfOneBucketComeToEvenShares(t *testing.T) {
	sum, n := 0.0, 0
	for _, limit := range []float64{4, 7, 10, 20, 30, 50, 80} {
		for _, parts := range [][3]float64{{0.8, 0.15, 0.05}, {0.7, 0.2, 0.1}, {0.6, 0.3, 0.1}, {0.5, 0.4, 0.1}, {0.9, 0.07, 0.03}, {0.75, 0.2, 0.05}} {
			jain, refused := shared(t, limit, parts)
			if sum, n = sum+jain, n+1; refused > 600 {
				t.Errorf("%v of %v a second: %d refused", parts, limit, refused)
			}
		}
	}
	if mean := sum / float64(n); mean < 0.82 {
		t.Errorf("a mean Jain of %.3f in the second hour", mean)
	}
}

// shared runs clients that begin with parts of a bucket's rate for two hours. It returns how
// even their shares are in the second hour, and the number of refusals.
func shared(t *testing.T, limit float64, parts [3]float64) (jain float64, refused int) {
	var laws [3]*Law
	var due [3]time.Duration
	for i := range laws {
		laws[i] = New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour})
		part := limit * parts[i]
		if err := laws[i].Restore(Stored{Found: []Found{{Kind: Rate, Size: part, High: 1.01 * part, Confidence: 1}}}, sec); err != nil {
			t.Fatal(err)
		}
	}
	tokens, filled := limit, time.Duration(0)
	var admitted [3]float64
	for filled < 2*time.Hour {
		i := 0
		for j := range due {
			if due[j] < due[i] {
				i = j
			}
		}
		now := due[i]
		if at := laws[i].Hold(now, 1); at > now {
			due[i] = at
			continue
		}
		laws[i].Sent(now, 1)
		tokens, filled = min(limit, tokens+limit*(now-filled).Seconds()), now
		o := Outcome{Sent: now, Now: now + ms, Class: Admitted, Estimate: 1, Cost: 1}
		if tokens < 1 {
			o.Class = Refused
			refused++
		} else if tokens--; now > time.Hour {
			admitted[i]++
		}
		laws[i].Observe(o)
		due[i] = now + 10*ms
		if !laws[i].Answered() {
			due[i] += sec
		}
	}
	sum, squares := 0.0, 0.0
	for _, n := range admitted {
		sum, squares = sum+n, squares+n*n
	}
	return sum * sum / 3 / squares, refused
}

func TestUnderAPenaltyAKnownBracketIsClimbedSlowly(t *testing.T) {
	for _, tt := range []struct {
		price  float64
		cycles int
		want   float64 // attempts from low to high
	}{{1000, 1, 8963}, {1000, 2, 26_890}, {fullPrice, 2, 358}, {40, 2, 1076}} {
		r := newRate(0, 8, 10)
		r.price, r.cycles, r.spaced = tt.price, tt.cycles, false
		r.plan(0)
		if math.Abs(r.stretch/tt.want-1) > 0.01 {
			t.Errorf("at a price of %v after %d cycles: %.0f attempts, want %.0f", tt.price, tt.cycles, r.stretch, tt.want)
		}
		if r.spaced, r.step = true, 2; tt.price > fullPrice { // a penalty sets the bracket, whatever the last climbs were
			if r.plan(0); math.Abs(r.stretch/tt.want-1) > 0.01 {
				t.Errorf("at a price of %v after %d cycles, with a step of 2: %.0f attempts, want %.0f", tt.price, tt.cycles, r.stretch, tt.want)
			}
		}
	}
}

// A climb from 5 to 10 a second under a penalty, with 75 attempts in 10 s, ends with a refusal at 10 a
// second. If earlier ones came at that pace, the next climb begins just below it, else below the mean, and
// the closer, the closer the last two were.
func TestWhereAClimbUnderAPenaltyBegins(t *testing.T) {
	for _, tt := range []struct {
		name string
		was  float64    // the pace at the refusal before, 0 if there was none
		off  cycleRates // how badly the pace and the mean predicted refusals
		low  float64
	}{
		{"refusals come at one pace", 10, cycleRates{0.01, 0.2}, 10 * penaltyHigh},
		{"the last two did", 10, cycleRates{0.2, 0.2}, 7.5 * penaltyHigh},
		{"a hundredth higher", 10 * math.Exp(0.01), cycleRates{0.2, 0.2}, 7.5 * (penaltyHigh - 0.02)},
		{"lower", 10 * math.Exp(-0.01), cycleRates{0.2, 0.2}, 7.5 * (penaltyHigh - 0.02)},
		{"too far apart", 10 * math.Exp(-0.03), cycleRates{0.2, 0.2}, 7.5 * (penaltyLow + 0.08)},
		{"the first refusal", 0, cycleRates{}, 7.5 * (penaltyLow + 0.08)},
		{"the means are as alike", 10, cycleRates{0.01, 0.01}, 7.5 * penaltyHigh},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock = *sentEvenly(100*sec, 133*ms, 75), 130*sec
		r := &rate{low: 5, high: 10, stretch: 75, count: 75, released: 90 * sec, refused: 100 * sec, top: 10, climbed: 75, since: 75, step: 0.2, price: 300, spaced: true, was: cycleRates{tt.was, 1.875}, off: tt.off, cycles: 1}
		l.limits, l.penalty = []limit{r}, penalty{length: 30 * sec, blocks: 1}
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 130 * sec, refusals: 1, pace: 10, blamed: r}
		if l.ended(l.look()); math.Abs(r.low-tt.low) > 0.01 {
			t.Errorf("%s: %.2f to %.2f a second, want from %.2f", tt.name, r.low, r.high, tt.low)
		}
	}
}

// However well a slow rate is known, a climb does not take so long that a raised limit is
// found an hour later.
// A cycle that began with a refusal says what the limit admits; another one may have a burst in it.
func TestAClimbTakesAQuarterOfAnHourAtMost(t *testing.T) {
	for _, tt := range []struct{ low, want float64 }{
		{0.5, 1000}, // more would be refused than is gained
		{1.2, 1080},
		{3, 2700},
		{20, 4000},
	} {
		r := &rate{low: tt.low, high: 1.005 * tt.low, price: fullPrice, cycles: 4}
		if r.plan(0); math.Abs(r.stretch-tt.want) > 1 {
			t.Errorf("%v a second: the climb takes %.0f attempts, want %.0f", tt.low, r.stretch, tt.want)
		}
	}
}

func TestARaisedRateIsNotTheMeanOfTheClimbToIt(t *testing.T) {
	r := newRate(0, 10, 10.1)
	r.spaced, r.sum, r.cycles = false, cycle{300, 30, 30.1}, 5
	tokens, filled, now := 10.0, time.Duration(0), time.Duration(0)
	for range 4 { // twice as much as before
		now = climb(r, now, func(_, now time.Duration) bool {
			tokens, filled = min(10, tokens+20*(now-filled).Seconds()), now
			if tokens < 1-1e-9 {
				return true
			}
			tokens--
			return false
		})
	}
	if r.low < 18 {
		t.Errorf("four refusals after the limit was raised to 20 a second it goes from %.3g to %.3g", r.low, r.high)
	}
}

func TestMoreInFlightDuringASteepClimbIsNoEvidence(t *testing.T) {
	r := newRate(0, 5, 20)
	if r.climb(r.stretch); !r.steep() {
		t.Error("from 5 to 20 a second is not steep")
	}
	r = newRate(0, 10, 10.2)
	if r.climb(r.stretch); r.steep() {
		t.Error("from 10 to 10.2 a second is steep")
	}
	r = newRate(0, 10, 20)
	for i, now := 0, time.Duration(0); i < 400; i++ { // four in flight, each answered after 200 ms
		if now += [...]time.Duration{35, 39, 40, 91}[i%4] * ms; i > 40 && i < 70 && !r.steep() {
			t.Fatalf("attempt %d: it climbs to %.3g a second, and is not steep", i, r.pace())
		}
		r.sent(now, 1)
	}
	if r.steep() {
		t.Errorf("twenty a second go for a while, though %.3g may, and it is steep", r.pace())
	}
}

func TestACanaryCountsInOneCycle(t *testing.T) {
	r := newRate(0, 1, 1.1)
	r.spaced = false
	now := time.Duration(0)
	for range 6 { // nine and the canary in ten seconds
		for i := range 9 {
			r.sent(now+time.Duration(i)*sec, 1)
		}
		r.blame(&view{now: now + 9*sec}, refusal{sent: now + 9*sec})
		now += 10 * sec
		r.sent(now, 1)
		r.ended(&view{now: now}, now)
	}
	if got := r.sum.n / r.sum.whole; math.Abs(got-1) > 1e-9 {
		t.Errorf("%.3f a second, want 1", got)
	}
}

func TestABracketIsAsWideAsTheMeansOfCyclesDiffer(t *testing.T) {
	r := newRate(0, 1, 1.1)
	r.spaced, r.off = false, cycleRates{top: 0.4, mean: 0.3}
	for i := range 20 {
		r.sent(time.Duration(i)*sec, 1)
	}
	r.blame(&view{now: 20 * sec}, refusal{sent: 20 * sec})
	r.ended(&view{now: 21 * sec}, 21*sec)
	if r.high < 1.3*r.low {
		t.Errorf("from %.3g to %.3g a second, though cycles differ by 0.3", r.low, r.high)
	}
}

func TestAPaceThatCarriedAHundredAttemptsIsTrusted(t *testing.T) {
	for _, tt := range []struct {
		name string
		sent int // attempts of the climb, which goes from 10 to 20 a second in 1000
		want float64
	}{
		{"few may have been a burst", 150, 10.7},
		{"many were not", 1000, 19},
	} {
		r := &rate{low: 10, high: 20, stretch: 1000}
		now := time.Duration(0)
		for range tt.sent {
			r.sent(now, 1)
			now += seconds(1 / r.pace())
		}
		r.blame(&view{}, refusal{sent: now})
		if got := r.sure(now); math.Abs(got/tt.want-1) > 0.03 {
			t.Errorf("%s: %.3g a second, want %.3g", tt.name, got, tt.want)
		}
	}
}

// Without a burst, refusals come at one pace: after three of them the climb is short, and
// the canary goes as soon as there may be room. With a burst, units return in the second
// before the canary, and the paces of refusals differ.
func TestRefusalsAtOnePaceNarrowTheClimb(t *testing.T) {
	for _, tt := range []struct {
		name   string
		burst  float64
		step   float64 // at most
		canary time.Duration
	}{
		{"without a burst", 1, 0.06, 200 * ms},
		{"a burst of twenty", 20, maxStep, sec},
	} {
		r := newRate(0, 4, 8)
		tokens, filled, now := tt.burst, time.Duration(0), time.Duration(0)
		for range 4 {
			now = climb(r, now, func(_, now time.Duration) bool {
				tokens, filled = min(tt.burst, tokens+10*(now-filled).Seconds()), now
				if tokens < 1-1e-9 {
					return true
				}
				tokens--
				return false
			})
		}
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.hold(r)
		l.block, l.brief = block{blamed: r, pace: 10}, 4
		if got := l.soonest(); r.alike() != (tt.burst == 1) || r.step > tt.step || got != tt.canary {
			t.Errorf("%s: alike %v, a step of %.3f, the canary after %v; want at most %.3f and %v", tt.name, r.alike(), r.step, got, tt.step, tt.canary)
		}
	}
}

// A pace that is never reached, because the owner's ceiling or the latency holds attempts
// further apart, is not tested: the estimate does not grow beyond the rate that was sent.
func TestAPaceThatIsNotReachedIsNotTested(t *testing.T) {
	r := newRate(0, 30, 36)
	now := time.Duration(0)
	for range 5000 {
		now = max(now+20*ms, r.free(&view{now: now, h: &history{}}, 1))
		r.sent(now, 1)
	}
	if got := r.pace(); got < 50 || got > 50*1.25*1.05 {
		t.Errorf("a pace of %.1f after 5,000 attempts at 50 a second, want at most %.1f", got, 50*testedGap)
	}
}

func TestThePositionOfARefusalInAClimbSetsTheNext(t *testing.T) {
	for _, tt := range []struct{ at, step, want float64 }{
		{tooEarly - 0.01, 0.4, 0.8}, {tooEarly, 0.4, 0.4}, {confirms, 0.4, 0.4}, {confirms + 0.01, 0.4, 0.2}, {confirms + 0.01, 0.02, minStep},
	} {
		r := &rate{stretch: 100, climbed: 100 * tt.at, step: tt.step}
		if r.refine(); r.step != tt.want {
			t.Errorf("after %v of it the next one starts lower by %v, want %v", tt.at, r.step, tt.want)
		}
	}
	// Between two steps of the ramp: from the pace of four attempts before.
	for _, tt := range []struct{ low, high, stretch, climbed, want float64 }{
		{10, 20, 100, 50, guessedStep}, {10, 100, 30, 10, math.Log(40 / 28.)}, {10, 100, 30, 3, math.Log(19 / 10.)}, {1, 1000, 30, 3, maxStep},
	} {
		r := &rate{low: tt.low, high: tt.high, stretch: tt.stretch, climbed: tt.climbed, guessed: true, step: 9}
		r.top = r.paceAt(tt.climbed)
		if r.refine(); math.Abs(r.step-tt.want) > 1e-9 || r.guessed {
			t.Errorf("after %v of %v attempts from %v to %v a second the next one starts lower by %v, want %v", tt.climbed, tt.stretch, tt.low, tt.high, r.step, tt.want)
		}
	}
}

// A cycle of a rate from 10 to 20 a second, in a climb of 100 attempts: 100 attempts in 8 s
// were admitted, the next was refused at a pace of 15, and after 10 s there was room again.
func TestWhatARateLearnsFromACycle(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*rate)
		want string
	}{
		{"the rate is between with and without the block", func(*rate) {}, "9.90-12.62, step 0.20, cycle 1 of 100 in 8/10, price 12, early 0"},
		{"a second one like it", func(r *rate) { r.sum, r.cycles = cycle{100, 8, 10}, 1 }, "9.95-12.56, step 0.20, cycle 2 of 200 in 16/20, price 12, early 0"},
		{"the third one: a refusal has its price now", func(r *rate) {
			r.sum, r.cycles, r.last = cycle{200, 16, 20}, 2, [3]cycle{{100, 8, 10}, {100, 8, 10}}
		}, "9.97-12.54, step 0.20, cycle 3 of 300 in 24/30, price 25, early 0"},
		{"old ones are forgotten", func(r *rate) {
			r.sum, r.cycles, r.last = cycle{500, 40, 50}, 3, [3]cycle{{100, 8, 10}, {100, 8, 10}, {100, 8, 10}}
		}, "9.97-12.54, step 0.20, cycle 4 of 350 in 28/35, price 25, early 0"},
		{"three of half the rate replace the mean", func(r *rate) {
			r.sum, r.cycles, r.last, r.off.mean = cycle{500, 20, 25}, 5, [3]cycle{{100, 8, 10}, {100, 8, 10}}, 0.1
		}, "9.97-12.54, step 0.20, cycle 6 of 300 in 24/30, price 25, early 0"},
		{"three of a slightly higher one do not", func(r *rate) {
			r.sum, r.cycles, r.last = cycle{500, 43, 54}, 5, [3]cycle{{100, 8, 10}, {100, 8, 10}}
		}, "9.43-11.90, step 0.20, cycle 6 of 350 in 30/37, price 25, early 0"},
		{"three of a higher one do", func(r *rate) {
			r.sum, r.cycles, r.last = cycle{500, 48, 60}, 5, [3]cycle{{100, 8, 10}, {100, 8, 10}}
		}, "9.97-12.54, step 0.20, cycle 6 of 300 in 24/30, price 25, early 0"},
		{"so do three after two early refusals", func(r *rate) {
			r.sum, r.cycles, r.last, r.earlyInRow = cycle{500, 43, 54}, 5, [3]cycle{{100, 8, 10}, {100, 8, 10}}, 2
		}, "9.97-12.54, step 0.20, cycle 6 of 300 in 24/30, price 25, early 0"},
		{"a pace that a hundred attempts had proven", func(r *rate) { r.provenPace = 14 }, "13.58-14.00, step 0.20, cycle 1 of 100 in 8/10, price 12, proven 14, early 0"},
		{"unless two early refusals say that it was a burst", func(r *rate) { r.provenPace, r.earlyInRow = 14, 2 }, "9.90-12.62, step 0.20, cycle 1 of 100 in 8/10, price 12, early 0, bursty"},
		{"after one of them it may be", func(r *rate) { r.provenPace, r.earlyInRow = 14, 1 }, "13.58-14.00, step 0.20, cycle 1 of 100 in 8/10, price 12, proven 14, early 1"},
		{"means that differ: as wide as they do", func(r *rate) { r.off.mean, r.off.top = 0.5, 0.4 }, "9.90-16.32, step 0.20, cycle 1 of 100 in 8/10, price 12, early 0"},
		{"attempts are limited one by one: the pace was too high, and so is the mean too low", func(r *rate) { r.spaced = true }, "12.28-15.00, step 0.20, cycle 1 of 100 in 8/10, price 12, early 0, spaced"},
		{"a mean within the step", func(r *rate) { r.spaced, r.count = true, 135 }, "13.40-15.00, step 0.20, cycle 1 of 135 in 8/10, price 12, early 0, spaced"},
		{"a mean above the pace", func(r *rate) { r.spaced, r.count = true, 200 }, "15.00-15.03, step 0.20, cycle 1 of 200 in 8/10, price 12, early 0, spaced"},
		{"the third of another rate: three replace the mean", func(r *rate) {
			r.sum, r.cycles, r.last = cycle{500, 20, 25}, 2, [3]cycle{{100, 8, 10}, {100, 8, 10}}
		}, "9.97-12.54, step 0.20, cycle 3 of 300 in 24/30, price 25, early 0"},
		{"two do not", func(r *rate) {
			r.sum, r.cycles, r.last = cycle{500, 20, 25}, 1, [3]cycle{{100, 8, 10}}
		}, "15.51-19.50, step 0.20, cycle 2 of 350 in 18/22, price 12, early 0"},
		{"three after one early refusal do not", func(r *rate) {
			r.sum, r.cycles, r.last, r.earlyInRow = cycle{500, 43, 54}, 5, [3]cycle{{100, 8, 10}, {100, 8, 10}}, 1
		}, "9.43-11.90, step 0.20, cycle 6 of 350 in 30/37, price 25, early 1"},
		{"after early refusals it is still a burst", func(r *rate) { r.bursty, r.earlyInRow = true, 2 }, "9.90-12.62, step 0.20, cycle 1 of 100 in 8/10, price 12, early 0, bursty"},
		{"few attempts, of a narrow bracket", func(r *rate) { r.count, r.released, r.refused, r.high = 9, 9150*ms, 9950*ms, 10.01 }, "10.00-10.02, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0, going on"},
		{"ten that are limited one by one are enough", func(r *rate) { r.count, r.spaced = 10, true }, "12.28-15.00, step 0.20, cycle 1 of 10 in 8/10, price 12, early 0, spaced"},
		{"few after one early refusal", func(r *rate) { r.count, r.spaced, r.sum, r.earlyInRow = 9, true, cycle{140, 8, 10}, 1 }, "14.00-15.00, step 0.20, cycle 0 of 140 in 8/10, price 12, early 1, spaced, going on"},
		{"a raised limit: from the last 300 attempts on", func(r *rate) { r.climbed, r.top = 350, 35 }, "15.00-35.00, step 0.10, cycle 0 of 0 in 0/0, price 12, early 0"},
		{"although attempts seem to be limited one by one", func(r *rate) { r.climbed, r.top, r.spaced, r.cycles = 350, 35, true, 3 }, "15.00-35.00, step 0.10, cycle 0 of 0 in 0/0, price 12, early 0, spaced"},
		{"which the raise would refute", func(r *rate) { r.climbed, r.top, r.spaced, r.cycles, r.was = 350, 35, true, 3, cycleRates{20, 10} }, "15.00-35.00, step 0.10, cycle 0 of 0 in 0/0, price 12, early 0, spaced"},
		{"limited one by one, as it seems, and nothing known: by how much the limit was raised does not matter", func(r *rate) { r.climbed, r.top, r.spaced = 200, 35, true }, "31.67-35.00, step 0.10, cycle 1 of 100 in 8/10, price 12, early 0, spaced"},
		{"and two cycles known: the bracket is a guess", func(r *rate) { r.climbed, r.top, r.spaced, r.cycles = 350, 35, true, 2 }, "31.67-35.00, step 0.10, cycle 3 of 100 in 8/10, price 25, early 0, spaced"},
		{"hardly any raise: from the bottom on", func(r *rate) { r.climbed, r.top = 200, 35 }, "10.00-35.00, step 0.10, cycle 0 of 0 in 0/0, price 12, early 0"},
		{"not raised far enough", func(r *rate) { r.climbed, r.top = 200, 34 }, "9.90-12.62, step 0.10, cycle 1 of 100 in 8/10, price 12, early 0"},
		{"few attempts: the bracket moves down a little", func(r *rate) { r.count = 9 }, "7.00-14.00, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0, going on"},
		{"few attempts in a short cycle", func(r *rate) { r.count, r.released, r.refused = 9, 9*sec, 9500*ms }, "9.00-18.00, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0, going on"},
		{"few attempts at once", func(r *rate) { r.count, r.released, r.refused = 9, 9500*ms, 9700*ms }, "10.00-20.00, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0, going on"},
		{"ten are enough", func(r *rate) { r.count = 10 }, "0.91-1.38, step 0.20, cycle 1 of 10 in 8/10, price 12, early 0"},
		{"few that are limited one by one", func(r *rate) { r.count, r.spaced = 9, true }, "12.28-15.00, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0, spaced, going on"},
		{"eight before the canary, in a short time: no slower than that", func(r *rate) { r.count, r.spaced, r.released, r.refused = 9, true, 9400*ms, 9900*ms }, "13.33-15.00, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0, spaced, going on"},
		{"nor faster than the pace that was refused", func(r *rate) { r.count, r.spaced, r.released, r.refused = 9, true, 9500*ms, 9900*ms }, "15.00-15.03, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0, spaced, going on"},
		{"also after many early refusals", func(r *rate) {
			r.count, r.spaced, r.released, r.refused, r.earlyInRow, r.climbed = 9, true, 9400*ms, 9900*ms, 4, 0
		}, "13.33-15.00, step 0.40, cycle 0 of 0 in 0/0, price 12, early 4, spaced, going on"},
		{"with a mean that is known", func(r *rate) { r.count, r.spaced, r.sum = 9, true, cycle{140, 8, 10} }, "14.00-15.00, step 0.20, cycle 0 of 140 in 8/10, price 12, early 0, spaced, going on"},
		{"with a mean above the pace", func(r *rate) { r.count, r.spaced, r.sum = 9, true, cycle{240, 8, 10} }, "15.00-15.03, step 0.20, cycle 0 of 240 in 8/10, price 12, early 0, spaced, going on"},
		{"not after two early refusals", func(r *rate) { r.count, r.spaced, r.sum, r.earlyInRow = 9, true, cycle{140, 8, 10}, 2 }, "12.28-15.00, step 0.20, cycle 0 of 140 in 8/10, price 12, early 2, spaced, going on"},
		{"a late refusal halves the step", func(r *rate) { r.climbed = 61 }, "9.90-12.62, step 0.10, cycle 1 of 100 in 8/10, price 12, early 0"},
		{"down to a bound", func(r *rate) { r.climbed, r.step = 61, 0.02 }, "9.90-12.62, step 0.01, cycle 1 of 100 in 8/10, price 12, early 0"},
		{"an early one doubles it", func(r *rate) { r.climbed = 24 }, "9.90-12.62, step 0.40, cycle 1 of 100 in 8/10, price 12, early 0"},
		{"up to a bound", func(r *rate) { r.climbed, r.step = 24, 1 }, "9.90-12.62, step 1.40, cycle 1 of 100 in 8/10, price 12, early 0"},
		{"at one pace: to three times the difference", func(r *rate) {
			r.climbed, r.spaced, r.off, r.was, r.step = 61, true, cycleRates{0.02, 0.2}, cycleRates{15 * math.Exp(-0.01), 10}, 0.4
		}, "14.27-15.00, step 0.05, cycle 1 of 100 in 8/10, price 12, early 0, spaced"},
		{"not at one pace", func(r *rate) {
			r.climbed, r.spaced, r.off, r.was, r.step = 61, true, cycleRates{0.03, 0.2}, cycleRates{15 * math.Exp(-0.01), 10}, 0.4
		}, "12.28-15.00, step 0.20, cycle 1 of 100 in 8/10, price 12, early 0, spaced"},
		{"nor if means are as alike", func(r *rate) {
			r.climbed, r.spaced, r.off, r.was, r.step = 61, true, cycleRates{0.02, 0.04}, cycleRates{15 * math.Exp(-0.01), 10}, 0.4
		}, "12.28-15.00, step 0.20, cycle 1 of 100 in 8/10, price 12, early 0, spaced"},
		{"the means of cycles predict it", func(r *rate) { r.spaced, r.was, r.off = true, cycleRates{7.5, 10}, cycleRates{0.5, 0.2} }, "9.90-12.62, step 0.20, cycle 1 of 100 in 8/10, price 12, early 0"},
		{"the paces of refusals do", func(r *rate) { r.was, r.off = cycleRates{15, 5}, cycleRates{0.1, 0.2} }, "12.28-15.00, step 0.20, cycle 1 of 100 in 8/10, price 12, early 0, spaced"},
		{"another limit blocked: nothing is learned", func(r *rate) { r.refused = 0 }, "10.00-20.00, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0"},
		{"nothing was sent", func(r *rate) { r.count = 0.5 }, "10.00-20.00, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0"},
		{"one attempt was", func(r *rate) { r.count = 1 }, "7.00-14.00, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0, going on"},
		{"refused at once", func(r *rate) { r.released = 8 * sec }, "10.00-20.00, step 0.20, cycle 0 of 0 in 0/0, price 12, early 0"},
	} {
		r := &rate{low: 10, high: 20, stretch: 100, count: 100, refused: 8 * sec, top: 15, climbed: 50, step: 0.2, price: firstPrice, since: 50}
		tt.do(r)
		r.ended(&view{now: 11 * sec}, 10*sec)
		got := fmt.Sprintf("%.2f-%.2f, step %.2f, cycle %d of %.0f in %.0f/%.0f, price %.0f", r.low, r.high, r.step, r.cycles, r.sum.n, r.sum.open, r.sum.whole, r.price)
		if r.provenPace > 0 {
			got += fmt.Sprintf(", proven %.0f", r.provenPace)
		}
		got += fmt.Sprintf(", early %d", r.earlyInRow)
		if r.bursty {
			got += ", bursty"
		}
		if r.spaced {
			got += ", spaced"
		}
		if r.count > 0 {
			got += ", going on"
		}
		if got != tt.want || r.refused != 0 || r.since != 0 || (r.due-11*sec-seconds(1/r.low)).Abs() > ms {
			t.Errorf("%s: %s, want %s; next at %v", tt.name, got, tt.want, r.due)
		}
		if released := r.released; r.count == 0 && released != 10*sec && released != 11*sec {
			t.Errorf("%s: the next cycle began at %v", tt.name, released)
		}
	}
}

func TestThePaceOfAClimb(t *testing.T) {
	for _, tt := range []struct {
		name  string
		r     rate
		since float64
		want  float64
	}{
		{"it begins low", rate{low: 10, high: 20, stretch: 100, price: 12}, 0, 10},
		{"and grows evenly", rate{low: 10, high: 20, stretch: 100, price: 12}, 25, 12.5},
		{"to the top of the bracket", rate{low: 10, high: 20, stretch: 100, price: 12}, 100, 20},
		{"beyond a guessed one it grows soon", rate{low: 10, high: 20, stretch: 100, price: 12}, 160, 20 * math.Exp(firstBeyond*4)},
		{"beyond a known one later", rate{low: 10, high: 20, stretch: 100, price: 12, cycles: 1}, 160, 20 * math.Exp(beyond*4)},
		{"and later if more is known", rate{low: 10, high: 20, stretch: 100, price: 12, cycles: 1, sum: cycle{n: 180}}, 220, 20 * math.Exp(beyond*4)},
		{"after some hundred attempts at the latest", rate{low: 10, high: 20, stretch: 100, price: 12, cycles: 1, sum: cycle{n: 3000}}, 300, 20 * math.Exp(beyond*4)},
		{"later where a refusal costs much", rate{low: 10, high: 20, stretch: 100, price: 100, cycles: 1}, 500, 20 * math.Exp(beyond*4)},
		{"not without end", rate{low: 10, high: 20, stretch: 100, price: 12}, 1e6, 20 * math.Exp(maxBeyond)},
	} {
		if got := tt.r.paceAt(tt.since); math.Abs(got/tt.want-1) > 1e-9 {
			t.Errorf("%s: %v a second after %v attempts, want %v", tt.name, got, tt.since, tt.want)
		}
	}
	for _, tt := range []struct {
		price, low, want float64
	}{{firstPrice, 100, firstPrice}, {firstPrice + 1, 100, 500}, {600, 100, 600}, {firstPrice + 1, 1, firstPrice + 1}} {
		if got := (&rate{price: tt.price, low: tt.low}).worth(); got != tt.want {
			t.Errorf("at %v a second a refusal with the price %v costs %v attempts, want %v", tt.low, tt.price, got, tt.want)
		}
	}
	for rate, want := range map[float64]float64{0: slowest, 1: 1, 2 * fastest: fastest, math.Inf(1): fastest} {
		if got := believable(rate); got != want {
			t.Errorf("%v a second is taken for %v, want %v", rate, got, want)
		}
	}
}

func TestARefusalOfARate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		r      rate
		early  int
		proven float64
		sure   float64 // the pace that was admitted in the 20 s before, with 100 attempts
	}{
		{"late in a climb", rate{since: 50, earlyInRow: 1}, 0, 0, 5},
		{"early in it", rate{since: 49, earlyInRow: 1}, 2, 0, 5},
		{"after many attempts the pace is proven", rate{since: 201}, 0, 20 * math.Exp(beyond*1e-2*1e-2), 20},
		{"not after some less", rate{since: 200}, 0, 0, 5},
		{"a burst proves nothing", rate{since: 201, bursty: true}, 0, 0, 20},
		{"a higher one was proven before", rate{since: 201, provenPace: 70}, 0, 70, 20},
		{"few attempts prove nothing", rate{since: 50, count: -96}, 0, 0, math.Inf(1)},
		{"five do", rate{since: 50, count: -95}, 0, 0, 0.25},
	} {
		r := tt.r
		r.low, r.high, r.stretch, r.price, r.cycles, r.count = 10, 20, 100, 100, 1, 100+r.count
		r.climb(r.since)
		pace := r.pace()
		r.blame(&view{}, refusal{sent: 20 * sec})
		if r.earlyInRow != tt.early || math.Abs(r.provenPace-tt.proven) > 0.1 || r.refused != 20*sec || r.top != pace || r.climbed != tt.r.since {
			t.Errorf("%s: %d early, proven %v, %+v", tt.name, r.earlyInRow, r.provenPace, r)
		}
		if got := r.sure(20 * sec); got != tt.sure && math.Abs(got-tt.sure) > 0.1 {
			t.Errorf("%s: %v a second were admitted, want %v", tt.name, got, tt.sure)
		}
		if r.refused = 0; r.count == 100 && r.sure(20*sec) != 5 {
			t.Errorf("%s: without a refusal %v a second were admitted, want 5", tt.name, r.sure(20*sec))
		}
		r.takeBack(1)
		if r.count != tt.r.count+99 || r.since != max(0, tt.r.since-1) {
			t.Errorf("%s: one less: %v sent, %v of the climb", tt.name, r.count, r.since)
		}
		r.count, r.since = 0.5, 0.5
		if r.takeBack(1); r.count != 0 || r.since != 0 {
			t.Errorf("%s: less than nothing was sent: %v and %v", tt.name, r.count, r.since)
		}
		r.punish(30*sec, 4, 9, 20*sec)
		if r.low != 4 || r.high != 9 || r.provenPace != 0 || r.price != 120 || r.released != 30*sec || r.refused != 0 || r.since != 0 || r.due != 30*sec+sec/4 {
			t.Errorf("%s: after a penalty of 20s %+v", tt.name, r)
		}
		for length, want := range map[time.Duration]float64{sec: fullPrice, time.Minute: 360, time.Hour: 5400} {
			if r.costs(length); r.price != want {
				t.Errorf("a refusal with a block of %v costs %v attempts, want %v", length, r.price, want)
			}
		}
		r.count, r.refused = 7, 31*sec
		if r.void(40 * sec); r.count != 0 || r.refused != 0 || r.released != 40*sec || r.due != 40*sec+sec/4 {
			t.Errorf("%s: after a block with another cause %+v", tt.name, r)
		}
		if got := r.interval(&view{}); got != 1e9/4 {
			t.Errorf("%s: one each %v ns, want a quarter of a second", tt.name, got)
		}
		if got := r.fullness(&view{}, refusal{}); got != nearlyFull {
			t.Errorf("%s: full %v", tt.name, got)
		}
	}
}

func TestARateBeginsBelievable(t *testing.T) {
	for _, tt := range []struct{ low, high, wantLow, wantHigh, step, stretch float64 }{
		{10, 20, 10, 20, math.Log(2), 24 / math.Log(2)},
		{10, 10, 10, 10, minStep, 24 / minStep},
		{10, 5, 10, 10, minStep, 24 / minStep},
		{1, 10, 1, 10, math.Log(10), minStretch}, // ten attempts and a half would do
		{0, 1, slowest, 1, math.Log(1 / slowest), minStretch},
		{1e12, 1e13, fastest, fastest, minStep, 24 / minStep},
	} {
		r := newRate(7*sec, tt.low, tt.high)
		if r.low != tt.wantLow || r.high != tt.wantHigh || math.Abs(r.step-tt.step) > 1e-9 || math.Abs(r.stretch-tt.stretch) > 1e-6 || r.top != tt.wantHigh || r.released != 7*sec {
			t.Errorf("from %v to %v: %+v; want %+v", tt.low, tt.high, r, tt)
		}
		if r.due != 7*sec+seconds(1/tt.wantLow) || r.apart != 0 {
			t.Errorf("from %v to %v: the first attempt goes at %v", tt.low, tt.high, r.due)
		}
	}
	if got := seconds(3e8); got != 100_000_000*sec {
		t.Errorf("300,000,000 s are taken for %v, want a third", got)
	}
	r := newRate(0, 10, 10.1)
	r.spaced, r.step, r.apart = false, 0.4, 9e9
	if r.plan(3 * sec); math.Abs(r.stretch-24/math.Log(1.01)) > 1e-6 || r.apart != 0 {
		t.Errorf("where means are limited the climb has the width of the bracket: %+v", r)
	}
	// Rates of less than an attempt a day.
	for _, count := range []float64{9, 10} {
		for _, spaced := range []bool{true, false} {
			r := &rate{low: slowest, high: slowest, stretch: 100, count: count, refused: 8_000_000 * sec, top: slowest / 2, climbed: 50, step: 0.2, price: firstPrice, spaced: spaced}
			if r.ended(&view{now: 9_000_000 * sec}, 9_000_000*sec); r.low != slowest || r.high < slowest || r.high > 1.0101*slowest {
				t.Errorf("after %v attempts in 100 days, spaced %v: %v to %v a day, want 1 to 1.01", count, spaced, r.low/slowest, r.high/slowest)
			}
		}
	}
}

// At ten a second, that is 100 ms apart. Where units of a burst may be left, an attempt that was late delays none
// after it. Without a burst one that made up for it would be refused: real clients are late by some milliseconds
// now and then.
func TestWhenTheNextAttemptOfARateIsDue(t *testing.T) {
	for _, tt := range []struct {
		name       string
		spaced     bool // there seems to be no burst, so that a late attempt is hardly made up for
		sent       []time.Duration
		due, apart time.Duration
		since      float64
	}{
		{"in time", false, []time.Duration{100 * ms}, 200 * ms, 100 * ms, 1},
		{"sooner than due", false, []time.Duration{60 * ms}, 200 * ms, 60 * ms, 1},
		{"a little late: the next one is not", false, []time.Duration{112 * ms}, 200 * ms, 112 * ms, 1},
		{"later: the next one is, too", false, []time.Duration{200 * ms}, 287500 * time.Microsecond, 200 * ms, 0},
		{"a quarter too far apart: the pace is not tested", false, []time.Duration{125 * ms}, 212500 * time.Microsecond, 125 * ms, 0},
		{"almost", false, []time.Duration{124 * ms}, 211500 * time.Microsecond, 124 * ms, 1},
		{"a pause counts as two and a half intervals", false, []time.Duration{100 * ms, 1100 * ms}, 1187500 * time.Microsecond, 115 * ms, 2},
		{"no burst, in time", true, []time.Duration{100 * ms}, 200 * ms, 100 * ms, 1},
		{"no burst, late by less than a sixty-fourth", true, []time.Duration{101 * ms}, 200 * ms, 101 * ms, 1},
		{"no burst, later: so is the next one", true, []time.Duration{110 * ms}, 208437500, 110 * ms, 1},
		{"no burst, a second late", true, []time.Duration{1100 * ms}, 1198437500, 250 * ms, 0},
	} {
		r := newRate(0, 10, 10)
		r.spaced = tt.spaced
		for _, at := range tt.sent {
			r.sent(at, 1)
		}
		if r.due != tt.due || time.Duration(r.apart).Round(ms) != tt.apart || r.since != tt.since || r.count != float64(len(tt.sent)) {
			t.Errorf("%s: the next one is due at %v, %v apart, %v of the climb; want %v, %v, %v", tt.name, r.due, time.Duration(r.apart), r.since, tt.due, tt.apart, tt.since)
		}
	}
}

func TestWhetherThePaceOrTheMeanPredictsRefusals(t *testing.T) {
	for _, tt := range []struct {
		name      string
		off       cycleRates // before a refusal at that pace, and with that mean; they were ten before
		top, mean float64
		spaced    bool // before
		want      bool
		wantOff   cycleRates
	}{
		{"both about as well", cycleRates{0.1, 0.2}, 10 * math.Exp(0.3), 10 * math.Exp(0.1), false, false, cycleRates{0.18, 0.16}},
		{"the same as before", cycleRates{0.1, 0.2}, 10 * math.Exp(0.3), 10 * math.Exp(0.1), true, true, cycleRates{0.18, 0.16}},
		{"the pace twice as well", cycleRates{0.09, 0.2}, 10 * math.Exp(0.09), 10 * math.Exp(0.2), false, true, cycleRates{0.09, 0.2}},
		{"the pace as well as half of that", cycleRates{}, 20, 40, false, false, cycleRates{math.Ln2, 2 * math.Ln2}},
		{"the pace somewhat better", cycleRates{0.15, 0.2}, 10 * math.Exp(0.15), 10 * math.Exp(0.2), false, false, cycleRates{0.15, 0.2}},
		{"the mean twice as well", cycleRates{0.2, 0.09}, 10 * math.Exp(0.2), 10 * math.Exp(-0.09), true, false, cycleRates{0.2, 0.09}},
		{"the mean as well as half of that", cycleRates{}, 40, 20, true, true, cycleRates{2 * math.Ln2, math.Ln2}},
		{"the mean somewhat better", cycleRates{0.2, 0.15}, 10 * math.Exp(0.2), 10 * math.Exp(0.15), true, true, cycleRates{0.2, 0.15}},
	} {
		r := &rate{off: tt.off, was: cycleRates{10, 10}, top: tt.top, spaced: tt.spaced}
		if r.compare(tt.mean); r.spaced != tt.want || math.Abs(r.off.top-tt.wantOff.top) > 1e-9 || math.Abs(r.off.mean-tt.wantOff.mean) > 1e-9 || r.was != (cycleRates{tt.top, tt.mean}) {
			t.Errorf("%s: spaced %v, off by %v; want %v, %v", tt.name, r.spaced, r.off, tt.want, tt.wantOff)
		}
	}
	for _, tt := range []struct {
		off    cycleRates
		spaced bool
		want   bool
	}{
		{cycleRates{0.02, 0.06}, true, true}, {cycleRates{0.02, 0.06}, false, false}, {cycleRates{0.03, 0.2}, true, false}, {cycleRates{0.02, 0.04}, true, false}, {cycleRates{}, true, false},
	} {
		if got := (&rate{off: tt.off, spaced: tt.spaced}).alike(); got != tt.want {
			t.Errorf("off by %v, spaced %v: alike %v", tt.off, tt.spaced, got)
		}
	}
	for _, tt := range []struct {
		since float64       // of 100 attempts from 10 to 20 a second
		apart time.Duration // the attempts
		want  bool
	}{{5, 90 * ms, false}, {6, 90 * ms, true}, {100, 57400 * time.Microsecond, true}, {100, 57500 * time.Microsecond, false}} {
		r := &rate{low: 10, high: 20, stretch: 100, apart: float64(tt.apart)}
		r.climb(tt.since)
		if got := r.steep(); got != tt.want {
			t.Errorf("after %v attempts %v apart: steep %v", tt.since, tt.apart, got)
		}
	}
	r := &rate{count: 50, released: 10 * sec}
	if got := r.sure(20 * sec); got != 5 {
		t.Errorf("of fifty attempts in ten seconds %v a second were admitted", got)
	}
}

func TestARateGoesByWhatAttemptsCost(t *testing.T) {
	r, v := newRate(0, 10, 10), view{h: &history{total: amounts{4, 8, 0}}}
	r.spaced = false
	for _, tt := range []struct {
		now, due time.Duration
		cost     float64
		counts   bool
		next     time.Duration // when one of mean cost is due
		apart    time.Duration
		since    float64
	}{
		{0, 200 * ms, 6, false, 400 * ms, 100 * ms, 3},
		{250 * ms, 250 * ms, 0, false, 287500 * time.Microsecond, 250 * ms, 0},
		{0, 100 * ms, 6, true, 200 * ms, 100 * ms, 1},
	} {
		r.plan(0)
		r.count, r.counts = 0, tt.counts
		if at := r.free(&view{now: tt.now, h: v.h}, tt.cost); at != tt.due {
			t.Errorf("cost %v, at %v: due at %v, want %v", tt.cost, tt.now, at, tt.due)
		}
		r.sent(tt.due, v.h.share(tt.cost))
		if r.due != tt.next || time.Duration(r.apart) != tt.apart || r.since != tt.since {
			t.Errorf("cost %v: the next is due at %v, %v apart, %v of the climb; want %v, %v, %v", tt.cost, r.due, time.Duration(r.apart), r.since, tt.next, tt.apart, tt.since)
		}
		if r.takeBack(v.h.share(tt.cost)); r.since != 0 || r.count != 0 {
			t.Errorf("cost %v was refused: %v of the climb, %v sent", tt.cost, r.since, r.count)
		}
	}
	if got := v.h.share(1e9); got != dearest {
		t.Errorf("one that costs as much as all others counts as %v", got)
	}
	r.counts, r.dear = false, 0
	for _, tt := range []struct {
		dear   float64
		counts bool
	}{{-0.6, false}, {-0.3, true}, {0.6, true}, {0.8, false}} {
		if r.blame(&view{}, refusal{sent: sec, dear: tt.dear}); r.counts != tt.counts {
			t.Errorf("refused after attempts that cost %v more: it counts attempts: %v, %.2f", tt.dear, r.counts, r.dear)
		}
	}
}
