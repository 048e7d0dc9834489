package learn

import (
	"cmp"
	"fmt"
	"math"
	"testing"
	"time"
)

func TestAWindowLetsNoMoreThanItsSizeIntoItsLength(t *testing.T) {
	now := 100 * sec
	for _, tt := range []struct {
		name string
		n    int
		want time.Duration
	}{
		{"room", 5, now},
		{"the newest of ten leaves in a window's length", 10, now - 9*sec + 60*sec},
		{"twelve: three have to leave", 12, now - 9*sec + 60*sec},
	} {
		w := window{low: 60 * sec, high: 60 * sec, raise: 1}
		w.size = amounts{10, 10, 0}
		v := &view{now: now, last: now - 30*sec, h: sentEvenly(now, sec, tt.n), mean: amounts{1, 1, 0}}
		if got := w.free(v, 1); got != tt.want {
			t.Errorf("%s: free at %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAWindowOfFewUnitsThatRefusesTooEarlyIsLonger(t *testing.T) {
	for _, tt := range []struct {
		name      string
		size      float64
		unit      unit
		apart     time.Duration // between attempts, the last of which is refused
		tested    bool
		low, high time.Duration // the length afterwards
	}{
		{"one unit, and the attempt before is 6 s old", 1, attempts, 6 * sec, false, 5900 * ms, 6060 * ms},
		{"one unit, refused when the window predicts", 1, attempts, 5800 * ms, false, 5800 * ms, 5900 * ms},
		{"24 units", 24, attempts, 250 * ms, false, 5900 * ms, 6060 * ms},
		{"25 units, whose margin keeps attempts apart", 25, attempts, 240 * ms, false, 5700 * ms, 5900 * ms},
		{"in a test of its size", 1, attempts, 6 * sec, true, 5700 * ms, 5900 * ms},
		{"one second of work", 1, busy, 6 * sec, false, 5700 * ms, 5900 * ms},
	} {
		now := 100 * sec
		h := &history{}
		for i := range 30 {
			h.add(now-time.Duration(30-i)*tt.apart, amounts{1, 1, 1})
		}
		w := &window{unit: tt.unit, low: 5700 * ms, high: 5900 * ms, raise: 1, hits: 9}
		w.size = amounts{tt.size, tt.size, tt.size}
		b := &block{began: now, noticed: now, lastRefused: now, release: now + sec, refusals: 1, tested: tt.tested}
		if agrees := w.ended(&view{now: now + sec, h: h, mean: amounts{1, 1, 1}}, b); !agrees || w.low != tt.low || w.high != tt.high {
			t.Errorf("%s: agrees %v, %v to %v, want %v to %v", tt.name, agrees, w.low, w.high, tt.low, tt.high)
		}
	}
}

// Each refusal comes after the end of the window, as those of a bucket do that gives back one unit at a time.
func TestAWindowThatGetsLongerWithEachRefusalIsNone(t *testing.T) {
	w := &window{low: 5700 * ms, high: 6 * sec, raise: 1, hits: 9, size: amounts{3, 3, 0}}
	for i, tt := range []struct {
		last   time.Duration // the attempt that is refused, after the third newest
		high   time.Duration
		agrees bool
	}{{6200 * ms, 6262 * ms, true}, {6400 * ms, 6464 * ms, true}, {6500 * ms, 6565 * ms, true}, {6601 * ms, 6565 * ms, false}} {
		h := sentEvenly(100*sec, 10*ms, 3)
		from := h.newest(attempts, 100*sec, 3)
		b := &block{began: 100 * sec, noticed: 100 * sec, lastRefused: from + tt.last, release: from + tt.last + sec, refusals: 1}
		if agrees := w.ended(&view{now: b.release, h: h, mean: amounts{1, 1, 0}}, b); agrees != tt.agrees || w.high != tt.high || agrees == (w.doubts > 1) {
			t.Errorf("refusal %d: agrees %v, at most %v, %d doubts; want %v, %v", i, agrees, w.high, w.doubts, tt.agrees, tt.high)
		}
	}
}

// A short block of another limit was taken for its end, so that it refuses after the assumed one.
func TestAWindowThatWasTakenForTooShortIsCorrected(t *testing.T) {
	after := func(last time.Duration) [2]time.Duration { return [2]time.Duration{last, last + 500*ms} }
	late, end := after(11300*ms), after(9900*ms)
	for _, tt := range []struct {
		name   string
		do     func(*window)
		blocks [][2]time.Duration // the newest refused canary, and the admitted one, since the first attempt
		tested bool
		want   string
	}{
		{"refused after the end once", func(*window) {}, [][2]time.Duration{late}, false, "9.8s-10.0s"},
		{"twice in a row: as long as the second block says", func(*window) {}, [][2]time.Duration{late, after(11400 * ms)}, false, "11.4s-11.9s, margin 0"},
		{"with one between that ended in time", func(*window) {}, [][2]time.Duration{late, end, late}, false, "9.9s-10.0s"},
		{"in tests of its size", func(*window) {}, [][2]time.Duration{late, late}, true, "9.8s-10.0s"},
		{"in a window of costs", func(w *window) { w.unit = cost }, [][2]time.Duration{late, late}, false, "9.8s-10.0s"},
		{"twice again: up to a tenth longer", func(*window) {}, [][2]time.Duration{late, late, after(12100 * ms), after(12300 * ms)}, false, "12.3s-12.8s, margin 0"},
		{"but no more", func(*window) {}, [][2]time.Duration{late, late, after(12100 * ms), after(12600 * ms)}, false, "11.3s-11.8s, margin 0, contradicted"},
	} {
		w := &window{low: 9800 * ms, high: 10 * sec, raise: 1, hits: 9, margin: 0.01, size: amounts{30, 30, 0}}
		tt.do(w)
		for _, ended := range tt.blocks {
			h := sentEvenly(100*sec, 100*ms, 30)
			from := h.newest(attempts, 100*sec, 30)
			b := &block{began: 100 * sec, noticed: 100 * sec, lastRefused: from + ended[0], release: from + ended[1], refusals: 1, tested: tt.tested}
			w.ended(&view{now: b.release, h: h, mean: amounts{1, 1, 0}}, b)
		}
		got := fmt.Sprintf("%.1fs-%.1fs", w.low.Seconds(), w.high.Seconds())
		if w.margin == 0 {
			got += ", margin 0"
		}
		if w.doubts > 1 {
			got += ", contradicted"
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestALengthThatIsRefusedAtItsShortestAgainIsLonger(t *testing.T) {
	for last, want := range map[time.Duration]time.Duration{18050 * ms: 22 * sec, 18590 * ms: 22 * sec, 18610 * ms: 18610 * ms, 17 * sec: 18 * sec} {
		w := &window{size: amounts{100, 100, 0}, low: 18 * sec, high: 30 * sec, raise: 1, hits: 3}
		h := sentEvenly(100*sec, 10*ms, 100)
		from := h.newest(attempts, 100*sec, 100)
		b := &block{began: 100 * sec, noticed: 100 * sec, lastRefused: from + last, release: from + 40*sec, refusals: 2}
		if agrees := w.ended(&view{now: b.release, h: h, mean: amounts{1, 1, 0}}, b); !agrees || w.low != want || w.high != 30*sec {
			t.Errorf("refused after %v: agrees %v, %v to %v, want %v", last, agrees, w.low, w.high, want)
		}
	}
}

func TestALengthThatIsKnownRoughlyIsAUsualOneIfItMayBe(t *testing.T) {
	some := New(Config{Ceiling: 1, Initial: 1, Windows: []time.Duration{57 * sec}}).likely
	for _, tt := range []struct {
		name                string
		unit                unit
		low, high           time.Duration
		likely              *candidates
		wantLow, wantHigher time.Duration
	}{
		{"a minute", attempts, 55 * sec, 65 * sec, nil, 58800 * ms, 61200 * ms},
		{"near its end", attempts, 59500 * ms, 64 * sec, nil, 59500 * ms, 61200 * ms},
		{"one that is configured first", attempts, 55 * sec, 65 * sec, some, 55860 * ms, 58140 * ms},
		{"none is in it", attempts, 61 * sec, 65 * sec, nil, 61 * sec, 65 * sec},
		{"at its end it is not", attempts, 55 * sec, 60 * sec, nil, 55 * sec, 60 * sec},
		{"too little is known", attempts, 54 * sec, 65 * sec, nil, 54 * sec, 65 * sec},
		{"enough is known", attempts, 59 * sec, 61 * sec, nil, 59 * sec, 61 * sec},
		{"of a cost", cost, 55 * sec, 65 * sec, nil, 55 * sec, 65 * sec},
	} {
		w := &window{unit: tt.unit, low: tt.low, high: tt.high}
		if w.preferUsual(&view{likely: tt.likely}); w.low != tt.wantLow || w.high != tt.wantHigher {
			t.Errorf("%s: %v to %v, want %v to %v", tt.name, w.low, w.high, tt.wantLow, tt.wantHigher)
		}
	}
}

// Ten attempts from 50 s on, after five that a block followed; one more is refused at 70 s.
func TestAsManyAttemptsAsBeforeTheFirstBlockFillAFixedWindow(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  float64
		opened time.Duration
		raise  float64
		want   string
	}{
		{"as many", 10, 50 * sec, 1, "full true, size 10 100, margin 0, proven 0"},
		{"one fewer of twenty-one", 10.5, 50 * sec, 1, "full true, size 10 100, margin 0, proven 0"},
		{"two fewer of twenty-one", 10.6, 50 * sec, 1, "full false, size 13 130, margin 0, proven 9"},
		{"one attempt is no window", 1, 69500 * ms, 1, "full false, size 13 130, margin 0, proven 9"},
		{"in a test, which goes beyond it", 10, 50 * sec, 1.1, "full true, size 15 150, margin 0, proven 9"},
		{"that took longer than the window", 10, 5 * sec, 1, "full false, size 13 130, margin 0, proven 9"},
	} {
		h := &history{}
		for i := range 5 {
			h.add(40*sec+time.Duration(i)*sec, amounts{1, 10, 0})
		}
		for i := range 10 {
			h.add(50*sec+time.Duration(i)*2*sec, amounts{1, 10, 0})
		}
		w := &window{size: amounts{13, 130, 0}, proven: amounts{9, 90, 0}, low: 40 * sec, high: time.Minute, from: 70 * sec, fold: sec, raise: tt.raise, testAfter: 1, first: tt.first, hits: 5}
		f := refusal{sent: 70 * sec, cost: 10, opened: tt.opened}
		f.cycle = h.between(attempts, f.opened, f.sent)
		v := &view{now: 70 * sec, h: h, mean: amounts{1, 10, 0}}
		again := w.again(f)
		if full := w.fullness(v, f); again && full < nearlyFull {
			t.Errorf("%s: full to %v", tt.name, full)
		}
		w.blame(v, f)
		if got := fmt.Sprintf("full %v, size %.0f %.0f, margin %.0f, proven %.0f", again, w.size[0], w.size[1], w.margin, w.proven[0]); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestTheAssumedLengthOfALoneWindowShrinks(t *testing.T) {
	w := newWindow(0, amounts{10, 10, 0}, 10*sec, 40*sec, 60*sec, 40*sec, 5)
	last := w.length(0)
	if last != 60*sec {
		t.Fatalf("at first %v, want the top of the bracket", last)
	}
	for _, at := range []time.Duration{5 * sec, 20 * sec, time.Minute, time.Hour} {
		if got := w.length(at); got >= last || got < 10*sec {
			t.Errorf("at %v %v, before %v", at, got, last)
		} else {
			last = got
		}
	}
	// The instant at which the window has room accounts for that.
	v := &view{now: sec, h: sentEvenly(sec, 10*ms, 10), mean: amounts{1, 1, 0}, last: -time.Hour}
	at := w.free(v, 1)
	if v.now = at; at >= 60*sec || w.free(v, 1) > at+sec {
		t.Errorf("room at %v, and then at %v", at, w.free(v, 1))
	}
}

func TestARefusalOfAWindow(t *testing.T) {
	for _, tt := range []struct {
		name   string
		w      window
		used   int // in the minute before the refusal
		size   float64
		room   float64
		margin bool
	}{
		{"of few a small margin takes none", window{high: time.Minute, low: time.Minute}, 10, 10, 10, true},
		{"which was taken for too short says nothing of its size", window{high: 90 * sec, low: 50 * sec}, 10, 10, 10, false},
		{"that a test had raised takes it back", window{high: time.Minute, low: time.Minute, proven: amounts{10}}, 11, 10, 10, true},
	} {
		w := tt.w
		w.raise, w.testAfter, w.size, w.hits = 1, 1, amounts{10, 0, 0}, 6
		if w.proven[attempts] > 0 {
			w.size[attempts] = 13
		}
		v := &view{now: time.Hour, h: sentEvenly(time.Hour, 5*sec, tt.used), mean: amounts{1, 1, 0}}
		w.blame(v, refusal{sent: v.now, now: v.now, cost: 1})
		if math.Abs(w.size[attempts]-tt.size) > 0.01 || w.usable() != tt.room || w.margin > 0 != tt.margin {
			t.Errorf("%s: size %.2f, room %.2f, margin %.3f", tt.name, w.size[attempts], w.usable(), w.margin)
		}
	}
}

// Six a minute, one each ten seconds, the seventh refused: the size stays, and the first counts
// for longer than a minute.
func TestAnAttemptThatArrivedLateLengthensTheTimeForWhichAttemptsCount(t *testing.T) {
	for _, tt := range []struct {
		name  string
		size  float64
		first time.Duration // when the first one was sent, before the minute
		w     window
		slack time.Duration // 0: it tells about the size
	}{
		{"just before", 6, 100 * ms, window{low: time.Minute, high: time.Minute}, 100 * ms},
		{"less than before", 6, 100 * ms, window{low: time.Minute, high: time.Minute, slack: 300 * ms}, 300 * ms},
		{"at most a fiftieth", 6, 1250 * ms, window{low: time.Minute, high: time.Minute}, 1200 * ms},
		{"too long before", 6, 1350 * ms, window{low: time.Minute, high: time.Minute}, 0},
		{"none are missing", 5, 100 * ms, window{low: time.Minute, high: time.Minute}, 0},
		{"two are missing", 7, 100 * ms, window{low: time.Minute, high: time.Minute}, 0},
		{"a length that is not known", 6, 100 * ms, window{low: 50 * sec, high: time.Minute}, 0},
		{"a window that begins with the clock", 6, 100 * ms, window{low: time.Minute, high: time.Minute, clock: time.Minute}, 0},
		{"a limit on cost", 6, 100 * ms, window{low: time.Minute, high: time.Minute, unit: cost}, 0},
	} {
		w, h := tt.w, &history{}
		w.size, w.raise, w.hits = amounts{tt.size, tt.size, 0}, 1, 3
		h.add(time.Hour-time.Minute-tt.first, amounts{1, 1, 0})
		for i := range 5 {
			h.add(time.Hour-50*sec+time.Duration(i)*10*sec, amounts{1, 1, 0})
		}
		w.blame(&view{now: time.Hour, h: h, guard: 100 * ms, mean: amounts{1, 1, 0}}, refusal{sent: time.Hour, now: time.Hour, cost: 1})
		if w.slack.Round(ms) != tt.slack || tt.slack > 0 && (w.size[attempts] != tt.size || w.margin != 0) {
			t.Errorf("%s: counts for %v longer, size %v, margin %v", tt.name, w.slack, w.size[attempts], w.margin)
		}
	}
	large := &window{size: amounts{30, 0, 0}, low: time.Minute, high: time.Minute, raise: 1, hits: 3}
	if large.blame(&view{now: time.Hour, h: sentEvenly(time.Hour, 2050*ms, 60), mean: amounts{1, 1, 0}}, refusal{sent: time.Hour, now: time.Hour}); large.slack != 0 || large.margin == 0 {
		t.Errorf("a window of thirty counts for %v longer, margin %v", large.slack, large.margin)
	}
}

func TestATestOfAWindowWaitsLongerEachTimeThatOneFailed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		failed   float64 // what the failed tests have multiplied
		calm     float64 // the time since the last block, in multiples of its length
		punished bool
		want     bool
	}{
		{"the first one, soon after a block", 1, 8, false, false},
		{"after eight times its length", 1, 8.1, false, true},
		{"the second one waits longer", testGrowth, 8.1, false, false},
		{"so long", testGrowth, 20.1, false, true},
		{"at most forty times the length", 1000, 40.1, false, true},
		{"under a penalty each waits so long", 1, 40, true, false},
	} {
		w := &window{testAfter: tt.failed}
		if got := w.calm(&view{lastBlock: sec, open: seconds(tt.calm), punished: tt.punished}); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	for _, tt := range []struct {
		size, want float64 // attempts a minute; the maximum number of attempts before a test
	}{{10, minTest}, {100, 1500}, {1000, maxTest}} {
		w := &window{size: amounts{tt.size, 0, 0}, low: time.Minute, high: time.Minute}
		if got := w.maxUntested(&view{mean: amounts{1, 1, 1}}); math.Abs(got-tt.want) > 1 {
			t.Errorf("of %v a minute it is tested after %v attempts, want %v", tt.size, got, tt.want)
		}
	}
}

func TestALengthShrinksFromTheBlockOn(t *testing.T) {
	for silence, fold := range map[time.Duration]time.Duration{8 * sec: minFold, 400 * sec: 100 * sec, 800 * sec: 2 * time.Minute} {
		w := newWindow(7*sec, amounts{10, 20, 0}, sec, 40*sec, 60*sec, silence, 5)
		if *w != (window{size: amounts{10, 20, 0}, off: doubtUnit, low: 40 * sec, high: 60 * sec, from: 7 * sec, fold: fold, raise: 1, testAfter: 1, lone: true, floor: sec, pace: 5, first: 10}) {
			t.Errorf("after a silence of %v: %+v, want %v", silence, *w, fold)
		}
	}
	for low, want := range map[time.Duration]bool{24 * sec: true, 24*sec - 1: false} {
		if w := (window{low: low, high: 25 * sec}); w.settled() != want {
			t.Errorf("from %v to 25s: settled %v", low, !want)
		}
	}
	w := newWindow(100*sec, amounts{10, 10, 0}, 30*sec, 40*sec, 60*sec, 400*sec, 5)
	for _, tt := range []struct{ now, want time.Duration }{
		{99 * sec, 60 * sec}, {100 * sec, 60 * sec},
		{100*sec + w.fold, 30*sec + 11036*ms}, // the uncertainty has shrunk to 1/e
		{time.Hour, 30 * sec},
	} {
		if got := w.length(tt.now); (got - tt.want).Abs() > ms {
			t.Errorf("at %v: %v, want %v", tt.now, got, tt.want)
		}
	}
}

func TestTheUnitThatPredictsRefusalsIsHeld(t *testing.T) {
	for _, tt := range []struct {
		name string
		hits int
		off  amounts // before the refusal, which comes with 14 attempts and 100 units in use
		want unit
	}{
		{"attempts were wrong", 2, amounts{0.2, 0.01, 1}, cost},
		{"the first refusal says too little", 0, amounts{0.2, 0.01, 1}, attempts},
		{"units were wrong as often", 2, amounts{0.2, 0.5, 1}, attempts},
	} {
		h := &history{}
		for i := range 14 {
			h.add(time.Hour+time.Duration(i)*sec, amounts{1, 100.0 / 14, 0})
		}
		w := &window{size: amounts{10, 100, 0}, off: tt.off, low: time.Minute, high: time.Minute, raise: 1, hits: tt.hits}
		now := time.Hour + 14*sec
		w.blame(&view{now: now, h: h, mean: amounts{1, 7, 0}}, refusal{sent: now, now: now})
		if w.unit != tt.want {
			t.Errorf("%s: unit %d, want %d", tt.name, w.unit, tt.want)
		}
	}
}

// A refusal at 1000 s, with attempts of cost 3 sent each second before.
func TestWhatAWindowLearnsFromARefusal(t *testing.T) {
	const now = 1000 * sec
	known := window{size: amounts{20, 60, 0}, off: amounts{0.1, 0.1, 0.1}, low: 20 * sec, high: 20 * sec, raise: 1, testAfter: 2, untested: 9, hits: 3, margin: 0.01, published: true}
	for _, tt := range []struct {
		name string
		do   func(*window)
		want string
	}{
		{"full, as predicted", func(*window) {},
			"size 20.00 60.45, off 0.060 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"a test finds more than it holds: half of that is believed", func(w *window) { w.size[attempts], w.raise = 19.5, 1.1 },
			"size 19.75 60.45, off 0.060 0.070, margin 0.005, next test 5, unit 0, proven 20"},
		{"by far more: all of it is", func(w *window) { w.size[attempts], w.raise = 18, 1.1 },
			"size 20.00 60.45, off 0.082 0.070, margin 0.005, next test 5, unit 0, proven 18"},
		{"without a test it may be that of two fixed windows", func(w *window) { w.size[attempts] = 18 },
			"size 18.60 60.45, off 0.082 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"but not more than twice as much", func(w *window) { w.size[attempts] = 9.9 },
			"size 20.00 60.45, off 0.428 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"less was in use: a third of that is believed", func(w *window) { w.size[attempts] = 25 },
			"size 23.50 60.45, off 0.124 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"a third unit that has no size yet", func(w *window) { w.size[cost], w.off[cost] = 0, 0.01 },
			"size 20.00 60.00, off 0.060 0.060, margin 0.018, next test 2, unit 0, proven 0"},
		{"at the second refusal it does not", func(w *window) { w.size[attempts], w.hits = 25, 1 },
			"size 23.50 60.45, off 0.124 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"another unit is somewhat better", func(w *window) { w.off[attempts] = 0.15 },
			"size 20.00 60.45, off 0.090 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"hardly better", func(w *window) { w.off[attempts] = 0.13 },
			"size 20.00 60.45, off 0.078 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"a larger one was tested, and less was in use: what was proven stays", func(w *window) { w.size[attempts], w.raise, w.proven = 25, 1.1, amounts{15, 15, 0} },
			"size 23.50 60.45, off 0.124 0.070, margin 0.005, next test 5, unit 1, proven 15"},
		{"a single block says that the length is settled", func(w *window) { w.lone, w.low, w.floor, w.fold = true, 19300*ms, 5*sec, sec },
			"size 20.00 60.45, off 0.060 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"the assumed length was hardly shorter", func(w *window) { w.low, w.from, w.fold = 17*sec, now-105*ms, sec },
			"size 20.00 60.00, off 0.060 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"at the first refusal the unit stays", func(w *window) { w.size[attempts], w.hits = 25, 0 },
			"size 23.50 60.45, off 0.124 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"it was tested: the next test comes later", func(w *window) { w.raise = 1.1 },
			"size 20.00 60.45, off 0.060 0.070, margin 0.005, next test 5, unit 0, proven 20"},
		{"what a test had raised before stays proven", func(w *window) { w.raise, w.proven = 1.1, amounts{15, 15, 0} },
			"size 20.00 60.45, off 0.060 0.070, margin 0.005, next test 5, unit 0, proven 15"},
		{"the raised size is not enough: back to the proven one", func(w *window) { w.size[attempts], w.proven = 25, amounts{16, 48, 5} },
			"size 16.00 48.00, off 0.124 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"more than the proven one is in use", func(w *window) { w.size[attempts], w.proven = 25, amounts{24, 72, 0} },
			"size 23.50 60.45, off 0.124 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"the raised size holds", func(w *window) { w.proven = amounts{16, 48, 0} },
			"size 20.00 60.45, off 0.060 0.070, margin 0.018, next test 2, unit 0, proven 16"},
		{"a margin has a bound", func(w *window) { w.margin = 0.14 },
			"size 20.00 60.45, off 0.060 0.070, margin 0.150, next test 2, unit 0, proven 0"},
		{"a length that is not settled: the size stays", func(w *window) { w.high = 21 * sec },
			"size 20.00 60.00, off 0.060 0.070, margin 0.010, next test 2, unit 0, proven 0"},
		{"the assumed length was too short", func(w *window) { w.high, w.fold = 40*sec, sec },
			"size 20.00 60.00, off 0.060 0.070, margin 0.010, next test 2, unit 0, proven 0"},
		{"it was the longest possible", func(w *window) { w.high, w.from = 40*sec, now },
			"size 20.00 60.00, off 0.440 0.460, margin 0.018, next test 2, unit 0, proven 0"},
	} {
		w := known
		w.size[busy] = 5 // of which nothing is used
		tt.do(&w)
		h := &history{}
		for i := range 1000 {
			h.add(time.Duration(i+1)*sec, amounts{1, 3, 0})
		}
		w.blame(&view{now: now, h: h, mean: amounts{1, 3, 0}}, refusal{sent: now, now: now, cost: 3})
		got := fmt.Sprintf("size %.2f %.2f, off %.3f %.3f, margin %.3f, next test %.0f, unit %d, proven %.0f", w.size[0], w.size[1], w.off[0], w.off[1], w.margin, w.testAfter, w.unit, w.proven[0])
		if got != tt.want || w.raise != 1 || w.untested != 0 || w.published || w.size[busy] != 5 {
			t.Errorf("%s: %s, want %s; %+v", tt.name, got, tt.want, w)
		}
	}
}

// A window of 20 attempts in some 20 s was filled at ten a second until 100 s.
func TestWhatAWindowLearnsFromTheEndOfABlock(t *testing.T) {
	known := window{size: amounts{20, 40, 0}, low: 18 * sec, high: 20 * sec, raise: 1, hits: 3, doubts: 1, floor: 5 * sec}
	for _, tt := range []struct {
		name          string
		do            func(*window)
		last, release time.Duration // the newest refused canary, and the admitted one, since the 20th attempt before the refusal
		agrees        bool
		want          string
	}{
		{"as predicted", func(*window) {}, 18500 * ms, 19500 * ms, true, "unit 0, 18.5s-19.5s, 0 doubts"},
		{"sooner than predicted", func(*window) {}, 10 * sec, 16 * sec, true, "unit 0, 18.0s-20.0s, 0 doubts"},
		{"at the lower bound", func(*window) {}, 10 * sec, 18 * sec, true, "unit 0, 18.0s-18.0s, 0 doubts"},
		{"a little later", func(*window) {}, 20200 * ms, 21 * sec, true, "unit 0, 20.0s-20.4s, 0 doubts"},
		{"a little later, where many fit", func(w *window) { w.size[attempts] = 25 }, 20700 * ms, 21500 * ms, true, "unit 0, 18.0s-20.0s, 0 doubts"},
		{"at the upper bound", func(*window) {}, 20 * sec, 21 * sec, true, "unit 0, 20.0s-20.0s, 0 doubts"},
		{"a little later, where few fit", func(w *window) { w.size = amounts{3, 0, 0} }, 21900 * ms, 22700 * ms, true, "unit 0, 20.0s-20.4s, 0 doubts"},
		{"where few fit, just at the upper bound", func(w *window) { w.size = amounts{3, 0, 0} }, 21700 * ms, 22700 * ms, true, "unit 0, 20.0s-20.0s, 0 doubts"},
		{"where few fit, for one canary", func(w *window) { w.size = amounts{3, 0, 0} }, 21900 * ms, 21910 * ms, true, "unit 0, 20.0s-20.2s, 0 doubts"},
		{"too early", func(*window) {}, 10 * sec, 14 * sec, false, "unit 0, 18.0s-20.0s, 2 doubts"},
		{"just not too early", func(*window) {}, 10 * sec, 16 * sec, true, "unit 0, 18.0s-20.0s, 0 doubts"},
		{"just too early, by any size", func(*window) {}, 10 * sec, 15790 * ms, false, "unit 0, 18.0s-20.0s, 2 doubts"},
		{"too late", func(*window) {}, 25 * sec, 26 * sec, false, "unit 0, 18.0s-20.0s, 2 doubts"},
		{"just not too late", func(*window) {}, 22 * sec, 26 * sec, true, "unit 0, 20.0s-22.2s, 0 doubts"},
		{"too late, but not if some more fit", func(*window) {}, 22200 * ms, 26 * sec, true, "unit 0, 20.0s-22.2s, 0 doubts"},
		{"too early by attempts, but not by cost", func(w *window) { w.size[cost] = 120 }, 10 * sec, 14 * sec, true, "unit 1, 18.0s-18.0s, 0 doubts"},
		{"nor by seconds of work", func(w *window) { w.size[busy] = 120 }, 10 * sec, 14 * sec, true, "unit 2, 18.0s-18.0s, 0 doubts"},
		{"the unit is sure", func(w *window) { w.size[cost], w.hits = 120, sureHits }, 10 * sec, 14 * sec, false, "unit 0, 18.0s-20.0s, 2 doubts"},
		{"a cost without a size", func(w *window) { w.size[cost] = 0 }, 10 * sec, 14 * sec, false, "unit 0, 18.0s-20.0s, 2 doubts"},
		{"too late by attempts, but not by cost", func(w *window) { w.size[cost] = 10 }, 20900 * ms, 21400 * ms, true, "unit 1, 18.0s-20.0s, 0 doubts"},
		{"though cost predicted somewhat worse", func(w *window) { w.size[cost], w.off[cost] = 10, doubtedUnit }, 20900 * ms, 21400 * ms, true, "unit 1, 18.0s-20.0s, 0 doubts"},
		{"cost predicted worse", func(w *window) { w.size[cost], w.off[cost] = 10, doubtedUnit+0.001 }, 20900 * ms, 21400 * ms, true, "unit 0, 20.0s-21.1s, 0 doubts"},
		{"by cost it was too early", func(w *window) { w.size[cost], w.low = 10, 19950*ms }, 20900 * ms, 21400 * ms, true, "unit 0, 20.0s-21.1s, 0 doubts"},
		{"by cost it was too late, too", func(w *window) { w.size[cost] = 30 }, 20900 * ms, 21400 * ms, true, "unit 0, 20.0s-21.1s, 0 doubts"},
		{"when it ended is not known well", func(w *window) { w.size[cost] = 10 }, 20900 * ms, 21701 * ms, true, "unit 0, 20.0s-21.1s, 0 doubts"},
		{"one of a single block", func(w *window) { w.lone = true }, 18500 * ms, 19500 * ms, true, "unit 0, 18.5s-19.5s, 0 doubts"},
		{"one of a single block, too early", func(w *window) { w.lone = true }, 10 * sec, 14 * sec, true, "unit 0, 9.8s-13.8s lone, 2 doubts, from 3.3s"},
		{"whatever cost says", func(w *window) { w.lone, w.size[cost] = true, 10 }, 10 * sec, 14 * sec, true, "unit 0, 9.8s-13.8s lone, 2 doubts, from 3.3s"},
		{"at once", func(w *window) { w.lone = true }, 1900 * ms, 2500 * ms, true, "unit 0, 1.7s-2.3s lone, 2 doubts, from 0.6s"},
		{"in less than a second", func(w *window) { w.lone, w.size = true, amounts{2, 0, 0} }, 1900 * ms, 2 * sec, true, "unit 0, 0.2s-0.2s lone, 2 doubts, from 0.3s"},
		{"that early again", func(w *window) { w.lone, w.doubts = true, 2 }, 10 * sec, 14 * sec, false, "unit 0, 18.0s-20.0s lone, 3 doubts, from 5.0s"},
		{"one of a single block, too late", func(w *window) { w.lone = true }, 25 * sec, 26 * sec, false, "unit 0, 18.0s-20.0s lone, 2 doubts, from 5.0s"},
		{"by the clock", func(w *window) { w.clock, w.low = 20*sec, 20*sec }, 19900 * ms, 22900 * ms, true, "unit 0, 20.0s-20.0s, 0 doubts, by the clock"},
		{"not by the clock, after all", func(w *window) { w.clock, w.low = 20*sec, 20*sec }, 21900 * ms, 23900 * ms, true, "unit 0, 20.0s-22.1s, 0 doubts"},
		{"evenly", func(w *window) { w.counted = true }, 18 * sec, 19 * sec, true, "unit 0, 18.0s-20.0s, 1 doubts, next in 1s"},
	} {
		w := known
		tt.do(&w)
		h := sentEvenly(100*sec, 100*ms, 200)
		for i := range h.cells {
			h.cells[i].sum[cost] *= 2
			h.cells[i].sum[busy] = h.cells[i].sum[cost]
		}
		b := &block{began: 100 * sec, noticed: 100 * sec, lastRefused: 98100*ms + tt.last, release: 98100*ms + tt.release, refusals: 1}
		v := &view{now: b.release, h: h, mean: amounts{1, 2, 0}}
		agrees := w.ended(v, b)
		got := fmt.Sprintf("unit %d, %.1fs-%.1fs", w.unit, w.low.Seconds(), w.high.Seconds())
		if w.lone {
			got += " lone"
		}
		got += fmt.Sprintf(", %d doubts", w.doubts)
		if w.lone {
			got += fmt.Sprintf(", from %.1fs", w.floor.Seconds())
		}
		if w.clock > 0 {
			got += ", by the clock"
		}
		if w.counted {
			got += fmt.Sprintf(", next in %v", w.due-v.now)
		} else if agrees != (w.from == v.now) && w.clock == 0 {
			t.Errorf("%s: its length shrinks from %v on", tt.name, w.from)
		}
		if agrees != tt.agrees || got != tt.want || w.clock < 0 {
			t.Errorf("%s: agrees %v, %s; want %v, %s", tt.name, agrees, got, tt.agrees, tt.want)
		}
	}
	for _, tt := range []struct {
		name               string
		low, last, release time.Duration // the shortest that it may be, and the two canaries as above
		agrees             bool
		wantLow, wantHigh  time.Duration
	}{
		{"it is not known", 18 * sec, 18500 * ms, 19500 * ms, true, 18500 * ms, 19500 * ms},
		{"it is known", 19300 * ms, 18500 * ms, 19500 * ms, true, 19300 * ms, 20 * sec},
		{"it is known and contradicted", 19300 * ms, 10 * sec, 14 * sec, false, 19300 * ms, 20 * sec},
	} {
		w := known
		w.low = tt.low
		b := &block{tested: true, began: 100 * sec, noticed: 100 * sec, lastRefused: 98100*ms + tt.last, release: 98100*ms + tt.release, refusals: 1}
		v := &view{now: b.release, h: sentEvenly(100*sec, 100*ms, 200), mean: amounts{1, 1, 0}}
		if agrees := w.ended(v, b); agrees != tt.agrees || w.low != tt.wantLow || w.high != tt.wantHigh {
			t.Errorf("after a test of its size, where the length is one of which %s: agrees %v, %v to %v; want %v, %v to %v",
				tt.name, agrees, w.low, w.high, tt.agrees, tt.wantLow, tt.wantHigh)
		}
	}
	w := window{lone: true, low: 18 * sec, high: 20 * sec, size: amounts{20, 20, 0}}
	if w.shorter(&view{now: 50 * sec, h: sentEvenly(100*sec, sec, 100)}, &block{began: 40 * sec}, 3*sec, 6*sec); w.low != 3*sec || w.high != 6*sec || w.floor != sec || w.from != 50*sec || w.size != (amounts{6, 6, 0}) {
		t.Errorf("a shorter window: %+v", w)
	}
}

func TestHowMuchOfAWindowMayBeUsed(t *testing.T) {
	for _, tt := range []struct {
		w      window
		usable float64
		late   float64 // how many attempts of one counted in periods may be late
	}{
		{window{size: amounts{10, 10, 0}}, 10, 0}, {window{size: amounts{9.992, 10, 0}}, 10, 0}, {window{size: amounts{9.985, 10, 0}}, 9, 0}, {window{size: amounts{0.5, 1, 0}}, 1, 0},
		{window{size: amounts{10, 10, 0}, margin: 0.04}, 10, 0}, {window{size: amounts{10, 10, 0}, margin: 0.06}, 9, 0}, {window{unit: cost, size: amounts{10, 9.5, 0}, margin: 0.1}, 8.55, 0},
		{window{size: amounts{60, 60, 0}, counted: true}, 60, 2.2}, {window{size: amounts{60, 60, 0}, raise: 1.1, margin: 0.1}, 66, 0},
	} {
		if got := tt.w.usable(); math.Abs(got-tt.usable) > 1e-9 || math.Abs(tt.w.late()-tt.late) > 1e-9 {
			t.Errorf("%+v: %v may be used, %v late; want %v, %v", tt.w, got, tt.w.late(), tt.usable, tt.late)
		}
	}
	// A window is as full as in its unit, and until that is known as in the fullest one.
	v := &view{now: 70 * sec, h: &history{}, mean: amounts{1, 10, 0}}
	v.h.add(50*sec, amounts{9, 80, 0})
	for hits, want := range map[int]float64{0: 0.9, 2: 0.9, 3: 0.1} {
		w := window{size: amounts{100, 100, 0}, low: time.Minute, high: time.Minute, hits: hits}
		if got := w.fullness(v, refusal{sent: 70 * sec, cost: 10}); math.Abs(got-want) > 1e-9 {
			t.Errorf("after %d refusals it is full to %v, want %v", hits, got, want)
		}
	}
}

// At 100 s, with an attempt of cost 3 sent each second from 51 s on.
func TestWhatIsInUseOfAWindow(t *testing.T) {
	const now = 100 * sec
	minute := window{size: amounts{60, 180, 0}, low: time.Minute, high: time.Minute, raise: 1}
	with := func(do func(*window)) window { w := minute; do(&w); return w }
	for _, tt := range []struct {
		name    string
		w       window
		next    time.Duration // until an attempt may go
		room    float64       // attempts
		every   time.Duration
		full    float64 // when an attempt is refused
		delays  bool    // whether it is what delays attempts
		usable  float64
		refuted bool
	}{
		{"room", minute, 800 * ms, 10, sec, 51 / 60., false, 60, false},
		{"of cost", with(func(w *window) { w.unit = cost }), 800 * ms, 10, sec, 51 / 60., false, 180, false},
		{"full", with(func(w *window) { w.size[attempts] = 50 }), 11*sec + ms, 0, 1200 * ms, 51 / 50., true, 50, false},
		{"one of cost without room", with(func(w *window) { w.unit, w.size[cost] = cost, 149.9 }), 12*sec + ms, -0.1 / 3, 60 * sec * 30 / 1499, 153 / 149.9, true, 149.9, false},
		{"nearly full: so far apart that it lasts", with(func(w *window) { w.size[attempts] = 51 }), 60 * sec / 51 * 10 / 125 * 10, 1, 60 * sec / 51, 1, true, 51, false},
		{"a margin", with(func(w *window) { w.margin = 0.15 }), 60 * sec / 51 * 10 / 125 * 10, 1, sec, 1, true, 51, false},
		{"a margin of cost", with(func(w *window) { w.unit, w.margin = cost, 0.15 }), 60 * sec / 51 * 10 / 125 * 10, 1, sec, 1, true, 153, false},
		{"half of one attempt is not taken", with(func(w *window) { w.size[attempts], w.margin = 3.995, 0.12 }), 57*sec + ms, -46, 60 * sec * 1000 / 3995, 51 / 3.995 / 0.88, true, 4, false},
		{"a test goes beyond the size", with(func(w *window) { w.size[attempts], w.raise = 48, 1.0625 }), 60 * sec / 51 * 10 / 125 * 10, 1, 1250 * ms, 51 / 48., true, 51, false},
		{"by the clock: since the minute", with(func(w *window) { w.clock, w.size[attempts] = time.Minute, 42 }), 60 * sec / 42 * 10 / 125 * 10, 1, 60 * sec / 42, 1, true, 42, false},
		{"by the clock, full until the next minute", with(func(w *window) { w.clock, w.size[attempts] = time.Minute, 41 }), 20*sec + ms, 0, 60 * sec / 41, 42 / 41., true, 41, false},
		{"refused attempts may count", with(func(w *window) { w.size[attempts], w.slack = 50, 700*ms }), 11*sec + 701*ms, 0, 1200 * ms, 51 / 50., true, 50, false},
		{"evenly", with(func(w *window) { w.counted, w.due = true, 105*sec }), 5 * sec, 10, sec, 51 / 60., false, 60, false},
		{"evenly, one late", with(func(w *window) { w.counted, w.due, w.size[attempts] = true, 99*sec, 50 }), 0, 0, 1200 * ms, 51 / 50., true, 50, false},
		{"exceeded without a refusal", with(func(w *window) {
			w.lone, w.low, w.fold, w.size, w.floor = true, 40*sec, sec, amounts{30, 100, 0}, 30*sec
		}), sec + ms, 0, sec, 41 / 30., true, 30, true},
		{"exceeded, but not since its block", with(func(w *window) {
			w.lone, w.low, w.fold, w.size, w.floor, w.released = true, 40*sec, sec, amounts{30, 100, 0}, 30*sec, 67*sec
		}), sec + ms, 0, sec, 41 / 30., true, 30, false},
		{"not exceeded by enough", with(func(w *window) {
			w.lone, w.low, w.fold, w.size, w.floor = true, 40*sec, sec, amounts{34.8, 100, 0}, 30*sec
		}), 706 * ms, 4, 30 * sec * 10 / 348, 41 / 34.8, true, 34, false},
		{"too long for that", with(func(w *window) {
			w.lone, w.low, w.fold, w.size, w.floor = true, 40*sec, sec, amounts{30, 100, 0}, 36100*ms
		}), 7*sec + 101*ms, -7, 36100 * ms / 30, 41 / 30., true, 30, false},
		{"just short enough for that", with(func(w *window) {
			w.lone, w.low, w.fold, w.size, w.floor = true, 40*sec, sec, amounts{30, 100, 0}, 36*sec
		}), 7*sec + ms, -6, 36 * sec / 30, 41 / 30., true, 30, true},
		{"more than one block supports it", with(func(w *window) { w.low, w.fold, w.size = 40*sec, sec, amounts{30, 100, 0} }), 11*sec + ms, -10, 40 * sec / 30, 41 / 30., true, 30, false},
	} {
		v := &view{now: now, last: now, guard: ms, h: &history{}, mean: amounts{1, 3, 0}}
		for i := range 50 {
			v.h.add(time.Duration(51+i)*sec, amounts{1, 3, 0})
		}
		w := tt.w
		if w.counted {
			v.guard = 0
		}
		next, every := w.free(v, 3)-now, time.Duration(w.interval(v))
		w.hits = 9
		if full := w.fullness(v, refusal{sent: now, cost: 3}); math.Abs(full-tt.full) > 0.002 {
			t.Errorf("%s: full %.3f, want %.3f", tt.name, full, tt.full)
		}
		if (next-tt.next).Abs() > 50*ms || math.Abs(w.room(v)-tt.room) > 0.01 || (every-tt.every).Abs() > 50*ms || math.Abs(w.usable()-tt.usable) > 0.01 {
			t.Errorf("%s: next in %v, room %.2f, one each %v, usable %.1f; want %v, %.2f, %v, %.1f", tt.name, next, w.room(v), every, w.usable(), tt.next, tt.room, tt.every, tt.usable)
		}
		if w.busy(v) != tt.delays || w.refuted(v) != tt.refuted {
			t.Errorf("%s: delays %v, refuted %v; want %v, %v", tt.name, w.busy(v), w.refuted(v), tt.delays, tt.refuted)
		}
	}
}

func TestAWindowIsTestedAndRaised(t *testing.T) {
	for _, tt := range []struct {
		name    string
		w       window
		used    int
		calm    float64
		raise   float64
		size    float64
		proven  float64
		untests float64
	}{
		{"many attempts were admitted: some more are tried", window{untested: 320, testAfter: 1}, 100, 99, 1.005, 100, 70, 321},
		{"some more have to be", window{untested: 319, testAfter: 1}, 100, 99, 1, 100, 70, 320},
		{"after a test that failed, more", window{untested: 799, testAfter: 2.5}, 100, 99, 1, 100, 70, 800},
		{"and then", window{untested: 800, testAfter: 2.5}, 100, 99, 1.005, 100, 70, 801},
		{"at the latest after a quarter of an hour", window{untested: 1500, testAfter: 1e6}, 100, 99, 1.005, 100, 0, 1501},
		{"not before", window{untested: 1499, testAfter: 1e6}, 100, 99, 1, 100, 0, 1500},
		{"soon after a block", window{untested: 900, testAfter: 1}, 100, 8, 1, 100, 70, 901},
		{"what is not used is not tested", window{untested: 900, testAfter: 1}, 84, 99, 1, 100, 70, 901},
		{"just used enough", window{untested: 900, testAfter: 1}, 85, 99, 1.005, 100, 70, 901},
		{"nor what is published", window{untested: 900, testAfter: 1, published: true}, 100, 99, 1, 100, 70, 901},
		{"nor what one block supports", window{untested: 900, testAfter: 1, lone: true}, 100, 99, 1, 100, 70, 901},
		{"a test goes on", window{untested: 3, raise: 1.1}, 100, 0, 1.1 * 1.0015, 100, 70, 4},
		{"if it is used", window{untested: 3, raise: 1.1}, 80, 0, 1.1, 100, 70, 4},
		{"up to so much", window{untested: 3, raise: 1.298}, 120, 0, 1.298 * 1.0015, 100, 70, 4},
		{"then the size is raised for good", window{untested: 3, raise: 1.299}, 120, 0, 1.25 / 1.2, 125, 0, 4},
		{"a raised size is trusted after ten times as many", window{untested: 1000}, 10, 0, 1, 100, 0, 1001},
		{"not before", window{untested: 999}, 10, 0, 1, 100, 70, 1000},
	} {
		w := tt.w
		if w.raise == 0 {
			w.raise = 1
		}
		w.low, w.high, w.size, w.proven = time.Minute, time.Minute, amounts{100, 100, 0}, amounts{70, 0, 0}
		v := &view{now: time.Hour, h: sentEvenly(time.Hour, 100*ms, tt.used), mean: amounts{1, 1, 0}, lastBlock: sec, open: seconds(tt.calm)}
		w.answered(v)
		if math.Abs(w.raise-tt.raise) > 1e-6 || w.size[attempts] != tt.size || w.size[cost] != tt.size || w.proven[attempts] != tt.proven || w.untested != tt.untests {
			t.Errorf("%s: raised by %.4f, size %v, proven %v, %v untested; want %.4f, %v, %v, %v", tt.name, w.raise, w.size, w.proven[attempts], w.untested, tt.raise, tt.size, tt.proven, tt.untests)
		}
	}
	large := window{untested: 499, testAfter: 1, raise: 1, low: time.Minute, high: time.Minute, size: amounts{200, 200, 0}}
	for i, want := range []float64{1, 1.0025} {
		if large.answered(&view{now: time.Hour, h: sentEvenly(time.Hour, 100*ms, 200), mean: amounts{1, 1, 0}, lastBlock: sec, open: 99 * sec}); large.raise != want {
			t.Errorf("after %d attempts a window of 200 is tested with %v, want %v", 500+i, large.raise, want)
		}
	}
	dear := window{unit: cost, untested: 10, raise: 1, low: time.Minute, high: time.Minute, size: amounts{2, 2, 0}, proven: amounts{1, 1, 0}}
	if dear.answered(&view{now: time.Hour, h: &history{}, mean: amounts{1, 4, 0}}); dear.proven != (amounts{}) {
		t.Errorf("a size of less than one attempt is not trusted after ten: %v", dear.proven)
	}
	few := window{untested: 26, testAfter: 1, raise: 1, low: time.Minute, high: time.Minute, size: amounts{2, 2, 0}}
	if few.answered(&view{now: time.Hour, h: sentEvenly(time.Hour, sec, 2), mean: amounts{1, 1, 0}, lastBlock: sec, open: 99 * sec}); few.raise != 1.25 {
		t.Errorf("a window of two is tested with %v, want 1.25", few.raise)
	}
	few.raise = 1.2
	if few.answered(&view{now: time.Hour, h: sentEvenly(time.Hour, sec, 3), mean: amounts{1, 1, 0}}); math.Abs(few.raise-1.2*1.015) > 1e-9 {
		t.Errorf("the test of a window of two goes on with %v, want %v", few.raise, 1.2*1.015)
	}
}

func TestWhatABlockTellsAboutTheLengthOfAWindow(t *testing.T) {
	h := &history{}
	for i := range 300 { // of the minute before
		h.add(time.Duration(i)*100*ms, amounts{1, 5, 0})
	}
	for i := range 5 {
		h.add(time.Minute+time.Duration(i)*100*ms, amounts{1, 5, 0})
	}
	for i := range 222 {
		h.add(75*sec+time.Duration(i)*200*ms, amounts{1, 5, 0})
	}
	for _, tt := range []struct {
		name   string
		unit   unit
		size   amounts
		cost   float64
		freed  time.Duration // and released a second later
		agrees bool
		low    time.Duration // 0 is a second less than high
		high   time.Duration
	}{
		{"as many as were sent", attempts, amounts{227, 0, 0}, 5, 120 * sec, true, 0, 61 * sec},
		{"one more, which was refused after it was counted, and some are from before a pause", attempts, amounts{228, 0, 0}, 5, 120 * sec, true, 45 * sec, 60800 * ms},
		{"the oldest of which is from before a pause: with one less it is shorter", attempts, amounts{223, 0, 0}, 5, 120 * sec, true, 44400 * ms, 60600 * ms},
		{"many more", attempts, amounts{270, 0, 0}, 5, 120 * sec, false, 0, 92600 * ms},
		{"an attempt of the usual cost", cost, amounts{0, 1135, 0}, 5, 120 * sec, true, 0, 61 * sec},
		{"of sixty times the cost, for which sixty had to leave", cost, amounts{0, 1135, 0}, 300, 145*sec + 800*ms, true, 0, 61 * sec},
		{"that is larger than the window", cost, amounts{0, 1135, 0}, 5000, 157 * sec, true, 0, 61400 * ms},
	} {
		w := &window{unit: tt.unit, size: tt.size, low: 59 * sec, high: 62 * sec, hits: sureHits, raise: 1}
		b := &block{began: 119200 * ms, lastRefused: tt.freed, release: tt.freed + sec, cost: tt.cost}
		low, high, agrees := w.bracket(&view{now: b.release, h: h, mean: amounts{1, 5, 1}}, b)
		if agrees != tt.agrees || low.Round(200*ms) != cmp.Or(tt.low, tt.high-sec) || high.Round(200*ms) != tt.high {
			t.Errorf("%s: agrees %v, from %v to %v; want %v, %v to %v", tt.name, agrees, low, high, tt.agrees, cmp.Or(tt.low, tt.high-sec), tt.high)
		}
	}
}
