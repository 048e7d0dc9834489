package learn

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestALimitInFlightThatWasLoweredIsHeldWithItsNewSize(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	l.hold(&flight{size: 3, testAfter: maxTest})
	l.hold(newRate(0, 3, 4))
	l.out.add(100*sec, 2)
	l.crowd.last, l.crowd.times, l.weighed = 2, 2, 2
	l.block = block{blamed: l.limits[1], began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 101 * sec, refusals: 1, pace: 4, count: 8}
	l.ended(l.look())
	if x := l.flight(); len(l.limits) != 1 || x == nil || x.size != 2 || x.testAfter != firstTest {
		t.Errorf("holds %+v", l.limits)
	}
}

func TestALimitInFlightThatIsRefusedTooOftenIsDropped(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	was := newRate(0, 20, 25)
	x := &flight{size: 43, testAfter: firstTest, was: was}
	l.hold(x)
	v := l.look()
	for i := range maxSoon {
		if x.soonInRow >= maxSoon {
			t.Fatalf("given up after %d refusals", i)
		}
		x.untested = 46
		x.blame(v, refusal{others: x.size - 1})
	}
	l.block = block{refusals: 1, blamed: x}
	l.crowd.evidence, was.count, was.since, was.refused, l.clock = 5, 7, 9, 40*sec, 50*sec
	l.ended(l.look())
	if l.flight() != nil || l.rate() != was || l.crowd.evidence != 0 {
		t.Errorf("holds %v after %d refusals soon after each other, want the rate of before; evidence %v", l.Binding(), maxSoon, l.crowd.evidence)
	}
	if was.low != 20 || was.high != 25 || was.released != 50*sec || was.count != 0 || was.since != 0 || was.due != 50*sec+sec/20 {
		t.Errorf("the rate of before goes on with %+v", was)
	}
	l = New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	l.out.add(0, 9)
	l.crowd.evidence = 5
	l.hold(was)
	l.holdFlight(&block{count: 36})
	if x, ok := l.limits[0].(*flight); !ok || x.size != 9 || x.testAfter != firstTest || x.doubtful || x.was != was || l.crowd.evidence != 0 {
		t.Errorf("with nine others in flight it holds %+v, evidence %v", l.limits[0], l.crowd.evidence)
	}
}

// Of what had gone before a block a quarter and more was in flight.
func TestADoubtfulLimitInFlightIsTestedSooner(t *testing.T) {
	for _, tt := range []struct {
		others int
		count  float64
		want   float64 // the first test comes after so many
		doubt  bool
	}{
		{9, 36, firstTest, false},
		{9, 35, 72, true},
		{3, 11, doubtfulTest, true},
		{100, 399, firstTest, true},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.out.add(0, tt.others)
		l.holdFlight(&block{count: tt.count})
		if x := l.flight(); x.doubtful != tt.doubt || x.testAfter != tt.want {
			t.Errorf("%d of %v in flight: doubtful %v, tested after %v, want %v, %v", tt.others, tt.count, x.doubtful, x.testAfter, tt.doubt, tt.want)
		}
	}
}

func TestLimitsTakeEachOthersPlace(t *testing.T) {
	sized := func(size float64, length time.Duration) *window {
		return &window{size: amounts{size, size, 0}, low: length, high: length, floor: length / 3, raise: 1, pace: 7}
	}
	law := func(limits ...limit) *Law {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock = *sentEvenly(100*sec, sec, 101), 100*sec
		for _, x := range limits {
			l.hold(x)
		}
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 130 * sec, release: 150 * sec, refusals: 3, pace: 4, tooShort: 9 * sec}
		if len(limits) > 0 {
			l.block.blamed = limits[0]
		}
		l.silence, l.meanLong = 20*sec, 10*sec
		return l
	}
	for _, tt := range []struct {
		name string
		l    *Law
		do   func(*Law)
		want string
	}{
		{"a window that was exceeded becomes a rate", law(sized(60, time.Minute)), func(l *Law) { l.windowToRate(l.look(), l.limits[0].(*window)) }, "1.00-1.50/s"},
		{"which may be as fast as it was filled", law(sized(300, time.Minute)), func(l *Law) {
			w := l.limits[0].(*window)
			w.pace, w.floor = 12, 10*sec
			l.windowToRate(l.look(), w)
		}, "5.00-12.00/s"},
		{"within a third of the time it took", law(sized(300, time.Minute)), func(l *Law) {
			w := l.limits[0].(*window)
			w.pace, w.floor = 99, 10*sec
			l.windowToRate(l.look(), w)
		}, "5.00-12.00/s"},
		{"a held rate stays", law(sized(60, time.Minute), newRate(0, 8, 9)), func(l *Law) { l.windowToRate(l.look(), l.limits[0].(*window)) }, "8.00-9.00/s"},
		{"five limits are too many: the oldest window goes", law(newRate(0, 1, 2), sized(1, sec), sized(2, sec), &flight{size: 3}), func(l *Law) { l.hold(sized(4, sec)) },
			"1.00-2.00/s, 2 of unit 0 in 1.0s-1.0s, 3 in flight, 4 of unit 0 in 1.0s-1.0s"},
		{"four are not", law(newRate(0, 1, 2), sized(1, sec), sized(2, sec)), func(l *Law) { l.hold(sized(4, sec)) },
			"1.00-2.00/s, 1 of unit 0 in 1.0s-1.0s, 2 of unit 0 in 1.0s-1.0s, 4 of unit 0 in 1.0s-1.0s"},
		{"a limit in flight goes, and the rate comes back", law(&flight{size: 3, was: newRate(0, 1, 2)}), func(l *Law) { l.dropFlight(l.look(), l.limits[0].(*flight)) }, "1.00-2.00/s"},
		{"unless another was found meanwhile", law(&flight{size: 3, was: newRate(0, 1, 2)}, newRate(0, 5, 6)), func(l *Law) { l.dropFlight(l.look(), l.limits[0].(*flight)) }, "5.00-6.00/s"},
		{"or a new one", law(&flight{size: 3}), func(l *Law) { l.dropFlight(l.look(), l.limits[0].(*flight)) }, "3.08-4.00/s"},
		{"a doubtful one goes, and its mean is held", law(&flight{size: 3, doubtful: true, was: newRate(0, 8, 9)}), func(l *Law) {
			if l.dropFlight(l.look(), l.limits[0].(*flight)); !l.misled {
				t.Error("another doubtful one would be held")
			}
		}, "1.09-4.00/s"},
		{"that of all if so many did not go", law(&flight{size: 60, doubtful: true}), func(l *Law) { l.dropFlight(l.look(), l.limits[0].(*flight)) }, "1.01-4.00/s"},
		{"unless another rate was found", law(&flight{size: 3, doubtful: true}, newRate(0, 5, 6)), func(l *Law) { l.dropFlight(l.look(), l.limits[0].(*flight)) }, "5.00-6.00/s"},
		{"under a penalty the pace of before is held", law(), func(l *Law) { l.block.blamed = nil; l.penalize(l.look(), 0) }, "0.81-1.01/s"},
		{"or that of a window", law(), func(l *Law) { l.block.blamed = nil; l.penalize(l.look(), 3) }, "2.40-3.00/s"},
		{"or that before a refusal in the ramp", law(), func(l *Law) { l.block.blamed, l.block.ramping = nil, true; l.penalize(l.look(), 0) }, "0.81-4.00/s"},
		{"or of few attempts", law(), func(l *Law) { l.block.blamed, l.freed = nil, 97*sec; l.penalize(l.look(), 0) }, "3.20-4.00/s"},
		{"of five", law(), func(l *Law) { l.block.blamed, l.freed = nil, 96*sec; l.penalize(l.look(), 0) }, "1.00-1.25/s"},
		{"a rate that was blamed stays", law(newRate(0, 8, 9)), func(l *Law) { l.penalize(l.look(), 0) }, "8.00-9.00/s"},
		{"another one does not", law(newRate(0, 8, 9)), func(l *Law) { l.block.blamed = nil; l.penalize(l.look(), 0) }, "0.81-1.01/s"},
	} {
		limits, refuted := len(tt.l.limits), tt.l.refuted
		tt.do(tt.l)
		if got := held(tt.l); got != tt.want {
			t.Errorf("%s: holds %q, want %q", tt.name, got, tt.want)
		}
		if was := limits > 0 && strings.HasPrefix(tt.name, "a window"); was && (tt.l.refuted != refuted+1 || tt.l.block.blamed != nil || tt.l.rate().price != fullPrice || tt.l.rate().stretch != 2*refusalTime.Seconds()*5/math.Log(1.5)) {
			t.Errorf("%s: %d windows were refuted, blamed %v, a price of %v, a climb of %v", tt.name, tt.l.refuted, tt.l.block.blamed, tt.l.rate().price, tt.l.rate().stretch)
		}
		if p := tt.l.penalty; p.on() && (p.length != 20*sec || p.low != 9*sec) {
			t.Errorf("%s: a penalty from %v to %v, want 9s to 20s", tt.name, p.low, p.length)
		}
	}
	for refusals, want := range map[int]time.Duration{1: 0, 2: 9 * sec} { // a first canary that was admitted bounds nothing
		l := law()
		l.block.blamed, l.block.refusals = nil, refusals
		if l.penalize(l.look(), 0); l.penalty.low != want {
			t.Errorf("after %d refusals a penalty is longer than %v, want %v", refusals, l.penalty.low, want)
		}
	}
}

// An attempt was sent each second until one at 100 s is refused, and so are canaries.
// The block is written by hand. What blocked or Law notes before its end, such as block.first,
// block.paced and allAdmitted, is zero unless a row sets it.
func TestWhatFollowsFromABlock(t *testing.T) {
	known := func(size float64, length time.Duration, hits int) *window {
		return &window{size: amounts{size, size, 0}, low: length, high: length, raise: 1, testAfter: 1, hits: hits, off: doubtUnit}
	}
	hold := func(blamed int, limits ...limit) func(*Law) {
		return func(l *Law) { l.limits, l.block.blamed = limits, nth(limits, blamed) }
	}
	both := func(cycles int, w *window) func(*Law) {
		return func(l *Law) {
			r := newRate(0, 3, 4)
			r.cycles = cycles
			hold(0, w, r)(l)
		}
	}
	unsettled, supported := known(100, 101*sec, sureHits), known(60, 105*sec, 5)
	unsettled.low, supported.low = 90*sec, 95*sec
	punishes := func(l *Law) {
		l.limits[0].(*window).doubts, l.block.exact, l.block.release = 1, true, 130*sec+1
	}
	crowd := func(l *Law) {
		l.crowd.evidence, l.weighed = 5, 2
		l.out.add(100*sec, 7)
	}
	and := func(all ...func(*Law)) func(*Law) {
		return func(l *Law) {
			for _, do := range all {
				do(l)
			}
		}
	}
	penalized := func(do func(*rate)) func(*Law) {
		return func(l *Law) {
			r := newRate(0, 3, 4)
			r.price, r.stretch, r.since, r.climbed, r.count, r.empty = 100, 100, 24, 199, 100, true
			hold(0, r)(l)
			l.penalty = penalty{length: time.Minute, blocks: 2, earned: cycle{whole: 400}}
			do(r)
		}
	}
	for _, tt := range []struct {
		name string
		long bool // a canary was refused at 140 s, and one admitted at 160 s; else one at 101 s
		do   func(*Law)
		want string

		refusedCanary bool // though it is short
		unlikely      bool // one outage more ended at the first canary
		refuted       bool // a window is, or was
		penalty       time.Duration
		silence       time.Duration // that ended the last long block, if neither 20 s of the long one nor 7 s of one before
		mean          time.Duration // recent length of long blocks, if neither 34 s with the long one nor 8 s without
		freed         time.Duration // the release of a long block that is not the long one
	}{
		{name: "a short one: a rate, somewhat below the pace", want: "3.08-4.00/s"},
		{name: "in the ramp it may be half of it", do: func(l *Law) { l.block.ramping = true }, want: "2.00-4.00/s"},
		{name: "after a refused canary", do: func(l *Law) { l.block.refusals = 2 }, want: "3.08-4.00/s", refusedCanary: true},
		{name: "a long one: a window that was filled since the beginning", long: true, want: "100 of unit 0 in 140.0s-160.0s lone"},
		{name: "since the last long block", long: true, do: func(l *Law) { l.block.from = 51 * sec }, want: "49 of unit 0 in 89.0s-109.0s lone"},
		{name: "to the end of an advertised wait", long: true, do: func(l *Law) { l.block.exact = true }, want: "100 of unit 0 in 155.8s-160.0s lone"},
		{name: "which is a guess if it is doubted: any time since the last refusal", long: true, do: func(l *Law) { l.block.exact, l.block.doubted = true, true }, want: "100 of unit 0 in 140.0s-160.0s lone"},
		{name: "with nothing sent before: a penalty", long: true, do: func(l *Law) { l.freed, l.block.from = 101*sec, 101*sec }, want: "3.20-4.00/s", penalty: 20 * sec},
		{name: "without a refused canary the silence says nothing new", do: func(l *Law) { l.block.release = 110 * sec }, want: "100 of unit 0 in 100.0s-110.0s lone", mean: 9 * sec, freed: 110 * sec},
		{name: "but for the first time", do: func(l *Law) { l.silence, l.block.release = 0, 110*sec }, want: "100 of unit 0 in 100.0s-110.0s lone", silence: 10 * sec, mean: 9 * sec, freed: 110 * sec},
		{name: "the same window again", long: true, do: hold(-1, newWindow(0, amounts{9, 9, 0}, sec, 150*sec, 170*sec, sec, 1)), want: "100 of unit 0 in 140.0s-160.0s lone"},
		{name: "a shorter one", long: true, do: hold(-1, newWindow(0, amounts{9, 9, 0}, sec, 100*sec, 140*sec, sec, 1)), want: "9 of unit 0 in 100.0s-140.0s lone, 100 of unit 0 in 140.0s-160.0s lone"},
		{name: "a longer one", long: true, do: hold(-1, newWindow(0, amounts{9, 9, 0}, sec, 160*sec, 180*sec, sec, 1)), want: "9 of unit 0 in 160.0s-180.0s lone, 100 of unit 0 in 140.0s-160.0s lone"},
		{name: "after a window that was refuted: a penalty", long: true, do: func(l *Law) { l.refuted = 1 }, want: "0.80-1.00/s", penalty: 20 * sec, refuted: true},
		{name: "there was room, but not for us: a penalty", long: true, do: func(l *Law) { l.block.hadRoom = true }, want: "0.80-1.00/s", penalty: 20 * sec},
		{name: "a penalty is known", long: true, do: func(l *Law) { l.penalty.length, l.block.tooShort = 30*sec, 40*sec }, want: "0.84-1.00/s", penalty: 30 * sec},
		{name: "many attempts were in flight", long: true, do: crowd, want: "7 in flight", penalty: time.Minute},
		{name: "the same with a short block", do: crowd, want: "7 in flight"},
		{name: "which a rate was blamed for", do: and(crowd, hold(0, newRate(0, 3, 4), known(9, sec, sureHits), known(9, sec, sureHits-1))), want: "9 of unit 0 in 1.0s-1.0s, 7 in flight"},
		{name: "a window of two blocks whose length is known is kept", do: and(crowd, hold(0, known(9, sec, 1))), want: "9 of unit 0 in 1.0s-1.0s"},
		{name: "a sure one is kept", do: and(crowd, hold(0, known(100, 101*sec, sureHits))), want: "100 of unit 0 in 101.0s-101.0s"},
		{name: "an outage", do: func(l *Law) { l.block.outage = true }, unlikely: true},
		{name: "an outage that was not over at once", do: func(l *Law) { l.block.outage, l.block.refusals = true, 2 }, refusedCanary: true},
		{name: "a long outage", do: func(l *Law) { l.block.outage, l.block.release = true, 110*sec }, mean: 9 * sec},
		{name: "an advertised limit explains it", do: func(l *Law) { l.block.explained = true }},
		{name: "and there was a penalty", long: true, do: func(l *Law) { l.block.explained, l.block.hadRoom = true, true }, penalty: 20 * sec},
		{name: "a window whose length agrees", long: true, do: hold(0, known(60, 100*sec, 5)), want: "60 of unit 0 in 100.0s-100.0s"},
		{name: "one whose length does not, at first", long: true, do: hold(0, known(60, 30*sec, 5)), want: "60 of unit 0 in 30.0s-30.0s"},
		{name: "for the second time", long: true, do: and(hold(0, known(60, 30*sec, 5)), func(l *Law) { l.limits[0].(*window).doubts = 1 }), want: "1.44-1.80/s", penalty: 20 * sec, refuted: true},
		{name: "for the second time, but the advertised wait was longer than the window: it is kept, and a penalty follows", do: and(hold(0, known(60, 30*sec, 3)), punishes), want: "60 of unit 0 in 30.0s-30.0s", mean: 19 * sec, penalty: 30*sec + 1, freed: 130*sec + 1},
		{name: "which was known", do: and(hold(0, known(60, 30*sec, 3)), punishes, func(l *Law) { l.penalty.length = 40 * sec }), want: "60 of unit 0 in 30.0s-30.0s", mean: 19 * sec, penalty: 30*sec + 1, freed: 130*sec + 1},
		{name: "not longer", do: and(hold(0, known(60, 30*sec, 3)), punishes, func(l *Law) { l.block.release = 130 * sec }), want: "1.44-1.80/s", mean: 19 * sec, penalty: 30 * sec, freed: 130 * sec, refuted: true},
		{name: "not advertised", do: and(hold(0, known(60, 30*sec, 3)), punishes, func(l *Law) { l.block.exact = false }), want: "1.44-1.80/s", mean: 19 * sec, penalty: 30*sec + 1, freed: 130*sec + 1, refuted: true},
		{name: "its length is not known", do: and(hold(0, known(60, 30*sec, 3)), punishes, func(l *Law) { l.limits[0].(*window).low = 28 * sec }), want: "1.44-1.80/s", mean: 19 * sec, penalty: 30*sec + 1, freed: 130*sec + 1, refuted: true},
		{name: "one that a single block supported", long: true, do: and(hold(0, known(60, 30*sec, 5)), func(l *Law) { l.limits[0].(*window).lone = true }), want: "1.44-1.80/s", penalty: 20 * sec, refuted: true},
		{name: "if a rate explains it too, it is kept", do: both(3, newWindow(0, amounts{40, 40, 0}, sec, 30*sec, 40*sec, sec, 1)), want: "40 of unit 0 in 30.0s-40.0s lone, 3.00-4.00/s"},
		{name: "unless the block ended while it was full", do: both(3, newWindow(0, amounts{9, 9, 0}, sec, 30*sec, 40*sec, sec, 1)), want: "3.00-4.00/s"},
		{name: "one counted in periods that refuses too often", do: hold(0, &window{counted: true, doubts: maxEarly + 1, size: amounts{9, 0, 0}, low: sec, high: sec, raise: 1}), want: "3.08-4.00/s"},
		{name: "a rate of few cycles does not", do: both(2, newWindow(0, amounts{9, 9, 0}, sec, 30*sec, 40*sec, sec, 1)), want: "9 of unit 0 in 9.0s-10.0s lone, 3.00-4.00/s"},
		{name: "nor one if more than a single block supports the window", do: and(both(3, supported), func(l *Law) { l.block.release = 140 * sec }), want: "60 of unit 0 in 95.0s-100.0s, 3.00-4.00/s", mean: 24 * sec, freed: 140 * sec},
		{name: "a rate under a penalty: well below the pace that was admitted", do: penalized(func(*rate) {}), want: "0.55-4.00/s", penalty: time.Minute},
		{name: "not as far after many attempts", do: penalized(func(r *rate) { r.climbed = 200 }), want: "0.80-4.00/s", penalty: time.Minute},
		{name: "nor late in a climb, after two such blocks", do: penalized(func(r *rate) { r.since = 25 }), want: "0.88-4.00/s", penalty: time.Minute},
		{name: "nor if a refusal cost little", do: penalized(func(r *rate) { r.price = fullPrice }), want: "0.88-4.00/s", penalty: time.Minute},
		{name: "unless hardly any attempt was admitted, twice in a row", do: penalized(func(r *rate) { r.price, r.since, r.climbed, r.earlyInRow = fullPrice, 2, 2, 2 }), want: "0.55-4.00/s", penalty: time.Minute},
		{name: "three were", do: penalized(func(r *rate) { r.price, r.since, r.climbed, r.earlyInRow = fullPrice, 3, 3, 2 }), want: "0.88-4.00/s", penalty: time.Minute},
		{name: "hardly any for the first time", do: penalized(func(r *rate) { r.price, r.since, r.climbed, r.earlyInRow = fullPrice, 2, 2, 1 }), want: "0.88-4.00/s", penalty: time.Minute},
		{name: "nor if another limit was blamed", do: and(penalized(func(*rate) {}), func(l *Law) { l.block.blamed = &flight{size: 5}; l.limits = append(l.limits, l.block.blamed) }), want: "3.00-4.00/s, 5 in flight", penalty: time.Minute},
		{name: "under a penalty a refusal may cost up to twice as much as one without", do: penalized(func(r *rate) { r.price = 1.5 * fullPrice }), want: "0.55-4.00/s", penalty: time.Minute},
		{name: "no slower than what the cycle admitted, with its block", do: and(penalized(func(*rate) {}), func(l *Law) { l.penalty.earned = cycle{} }), want: "0.98-4.00/s", penalty: time.Minute},
		{name: "and those before", do: and(penalized(func(*rate) {}), func(l *Law) { l.penalty.earned = cycle{n: 200, whole: 100} }), want: "1.43-4.00/s", penalty: time.Minute},
		{name: "which may be faster than what was refused", do: and(penalized(func(*rate) {}), func(l *Law) { l.penalty.earned = cycle{n: 900, whole: 100} }), want: "4.52-4.52/s", penalty: time.Minute},
		{name: "a second short block ends a penalty", do: and(penalized(func(*rate) {}), func(l *Law) { l.penalty.shortInRow = 1 }), want: "3.00-4.00/s"},
		{name: "one that lasts longer than a short penalty does lengthens it", do: func(l *Law) {
			l.penalty.length, l.block.refusals, l.block.lastRefused, l.block.tooShort, l.block.release = 1500*ms, 2, 100200*ms, 2*sec, 102*sec
		}, want: "3.08-4.00/s", penalty: 1800 * ms, refusedCanary: true},
		{name: "a window that is sure, but for its length, and many in flight", do: and(crowd, hold(0, unsettled)), want: "100 of unit 0 in 90.0s-101.0s, 7 in flight"},
		{name: "one of a single block, and many in flight", long: true, do: and(crowd, hold(0, newWindow(0, amounts{9, 9, 0}, sec, 30*sec, 31*sec, sec, 1))), want: "7 in flight", penalty: time.Minute},
		{name: "one of a single block that ended when it did, and many in flight, but not at the canary", long: true, do: and(crowd, hold(0, newWindow(0, amounts{100, 100, 0}, 50*sec, 140*sec, 160*sec, sec, 1)), func(l *Law) { l.out.add(140*sec, 1) }), want: "100 of unit 0 in 140.0s-160.0s"},
		{name: "a rate that does not explain the second refusal", do: func(l *Law) {
			r := newRate(0, 3, 4)
			r.cycles, l.block.refusals = 3, 2
			hold(0, newWindow(0, amounts{9, 9, 0}, sec, 30*sec, 40*sec, sec, 1), r)(l)
		}, want: "9 of unit 0 in 9.0s-10.0s lone, 3.00-4.00/s", refusedCanary: true},
		{name: "a limit in flight", do: hold(0, &flight{size: 5}), want: "5 in flight"},
		{name: "for long", long: true, do: and(hold(0, &flight{size: 4}), func(l *Law) { l.block.flight.size = 5; l.out.add(140*sec, 1) }), want: "4 in flight"},
		{name: "for long, and a canary had a quarter of them in flight: another limit", long: true, do: and(hold(0, &flight{size: 4}), func(l *Law) { l.block.flight.size = 5; l.out.add(100*sec, 8); l.out.add(140*sec, 2) }), want: "5 in flight, 100 of unit 0 in 140.0s-160.0s lone"},
		{name: "for long, and it had more", long: true, do: and(hold(0, &flight{size: 4}), func(l *Law) { l.block.flight.size = 5; l.out.add(100*sec, 8); l.out.add(140*sec, 3) }), want: "4 in flight"},
		{name: "for long, and a canary was alone in flight: another limit, and this one was not lowered", long: true, do: and(hold(0, &flight{size: 4}), func(l *Law) { l.block.flight.size = 5; l.out.add(140*sec, 0) }), want: "5 in flight, 100 of unit 0 in 140.0s-160.0s lone"},
		{name: "that ended when a wait did", do: and(hold(0, &flight{size: 4, brief: true}), func(l *Law) { l.block.flight.size, l.block.exact, l.block.release = 5, true, 160*sec }), want: "5 in flight, 100 of unit 0 in 155.8s-160.0s lone", mean: 34 * sec, freed: 160 * sec},
		{name: "which may be that of a penalty, if no block was short", do: and(hold(0, &flight{size: 4}), func(l *Law) { l.block.flight.size, l.block.exact, l.block.release = 5, true, 160*sec }), want: "4 in flight", mean: 34 * sec, freed: 160 * sec},
		{name: "one that is refused often", do: hold(0, &flight{size: 5, soonInRow: maxSoon - 1}), want: "5 in flight"},
		{name: "one that is refused too often: the rate again", do: hold(0, &flight{size: 5, soonInRow: maxSoon}), want: "3.08-4.00/s"},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.silence, l.meanLong, l.brief = *sentEvenly(99*sec, sec, 100), 7*sec, 8*sec, 2
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 101 * sec, refusals: 1, pace: 4, expected: sec}
		brief, unlikely, refuted := 3, 0, 0
		tt.silence, tt.mean = cmp.Or(tt.silence, 7*sec), cmp.Or(tt.mean, 8*sec)
		if tt.long {
			l.block.refusals, l.block.lastRefused, l.block.release = 2, 140*sec, 160*sec
			tt.silence, tt.mean, tt.freed = 20*sec, 34*sec, 160*sec
		}
		if tt.long || tt.refusedCanary {
			brief = 0
		}
		if tt.unlikely {
			unlikely++
		}
		if tt.refuted {
			refuted++
		}
		if tt.do != nil {
			tt.do(l)
		}
		l.clock = l.block.release
		l.ended(l.look())
		if got := held(l); got != tt.want {
			t.Errorf("%s: holds %q, want %q", tt.name, got, tt.want)
		}
		if l.penalty.length != tt.penalty || l.silence != tt.silence || l.meanLong != tt.mean || l.freed != tt.freed {
			t.Errorf("%s: penalty %v, silence %v, long blocks of %v, freed %v; want %v, %v, %v, %v", tt.name, l.penalty.length, l.silence, l.meanLong, l.freed, tt.penalty, tt.silence, tt.mean, tt.freed)
		}
		if w, ok := l.block.blamed.(*window); ok && w.margin > 0 && (w.margin != punishedMargin || w.doubts != 0 || l.penalty.length != 30*sec+1) {
			t.Errorf("%s: a part of %v is not used, after %d doubts, with a penalty of %v", tt.name, w.margin, w.doubts, l.penalty.length)
		}
		if (l.longs == 1) != l.block.long() {
			t.Errorf("%s: %d long blocks", tt.name, l.longs)
		}
		if l.unlikely != unlikely || l.brief != brief || l.refuted != refuted || l.lastRelease != l.clock || l.lastBlock != l.block.release-100*sec {
			t.Errorf("%s: %d unlikely outages, %d brief ones, %d refuted, the last release at %v; want %d, %d, %d, %v", tt.name, l.unlikely, l.brief, l.refuted, l.lastRelease, unlikely, brief, refuted, l.clock)
		}
	}
}

func TestOnlyARefusalOfTheRateEndsACycleUnderAPenalty(t *testing.T) {
	for _, tt := range []struct {
		name   string
		blamed int // of the rate and the limit in flight
		short  int // blocks that were too short for the penalty
		want   cycle
	}{
		{"a refusal of the rate: with what was before", 0, 0, cycle{n: 0.8*100 + 99, whole: 0.8*200 + 160}},
		{"of another limit: nothing is added", 1, 0, cycle{n: 100, whole: 200}},
		{"the penalty has ended, and another one begins with nothing", 0, 1, cycle{}},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h = *sentEvenly(99*sec, sec, 100)
		r := newRate(0, 3, 4)
		r.count, r.empty, r.refused, r.climbed = 100, true, 100*sec, 50
		l.limits = []limit{r, &flight{size: 5}}
		l.penalty = penalty{length: time.Minute, blocks: 2, shortInRow: tt.short, earned: cycle{n: 100, whole: 200}}
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 160 * sec, refusals: 1, pace: 4, blamed: l.limits[tt.blamed]}
		if tt.short > 0 {
			l.block.release = 101 * sec
		}
		l.clock = l.block.release
		l.ended(l.look())
		if got := l.penalty.earned; math.Abs(got.n-tt.want.n)+math.Abs(got.whole-tt.want.whole) > 1e-9 {
			t.Errorf("%s: %v attempts in %v s, want %v in %v", tt.name, got.n, got.whole, tt.want.n, tt.want.whole)
		}
	}
}

func TestBlocksAreCounted(t *testing.T) {
	for _, tt := range []struct {
		name     string
		b        block
		unlikely int
		sought   time.Duration
		beyond   time.Duration // what an advertised limit explains
	}{
		{"another outage, soon after the last", block{began: 139 * sec, noticed: 139 * sec, release: 147 * sec, outage: true, refusals: 2}, 3, 80 * sec, 0},
		{"five lengths of this one later", block{began: 140 * sec, noticed: 140 * sec, release: 148 * sec, outage: true, refusals: 2}, 3, 80 * sec, 0},
		{"or of the one before", block{began: 150 * sec, noticed: 150 * sec, release: 151 * sec, outage: true, refusals: 2}, 3, 80 * sec, 0},
		{"long after it, over at once", block{began: 151 * sec, noticed: 151 * sec, release: 152 * sec, outage: true, refusals: 1}, 3, 80 * sec, 0},
		{"long after it, and not at once", block{began: 151 * sec, noticed: 151 * sec, release: 152 * sec, outage: true, refusals: 2}, 0, 80 * sec, 0},
		{"no outage", block{began: 101 * sec, noticed: 101 * sec, release: 102 * sec, refusals: 9, wait: 300 * sec}, 2, 80 * sec, 0},
		{"others use a limit less", block{began: 101 * sec, noticed: 101 * sec, release: 102 * sec, refusals: 2, wait: 300 * sec, explained: true}, 2, 40 * sec, 0},
		{"or not", block{began: 101 * sec, noticed: 101 * sec, release: 102 * sec, refusals: 3, wait: 300 * sec, explained: true}, 2, 150 * sec, 0},
		{"a limit has room soon, but not for us", block{began: 101 * sec, noticed: 101 * sec, release: 141 * sec, expected: 10 * sec, refusals: 2, explained: true}, 2, 40 * sec, 17 * sec},
		{"which may be late", block{began: 101 * sec, noticed: 101 * sec, release: 124 * sec, expected: 10 * sec, refusals: 2, explained: true}, 2, 40 * sec, 0},
		{"a long block that no advertised limit explains", block{began: 101 * sec, noticed: 101 * sec, release: 141 * sec, refusals: 2}, 2, 80 * sec, 0},
	} {
		l := Law{unlikely: 2, sought: 80 * sec, lastRelease: 100 * sec, view: view{lastBlock: 10 * sec}, beyond: 99 * sec, block: tt.b}
		l.count(tt.b.release)
		if l.unlikely != tt.unlikely || l.sought != tt.sought || l.beyond != tt.beyond {
			t.Errorf("%s: %d unlikely outages, %v sought, %v beyond what a limit explains; want %d, %v, %v", tt.name, l.unlikely, l.sought, l.beyond, tt.unlikely, tt.sought, tt.beyond)
		}
	}
}

func TestWhenRefusalsSuggestALimitInFlight(t *testing.T) {
	// A canary was refused with so many others in flight after an attempt with ten, when so many had gone.
	canaryWith := func(others int, gone float64) func(*Law, *block, *rate) {
		return func(l *Law, b *block, _ *rate) {
			b.count, b.refusals, b.lastRefused, b.release = gone, 2, 101*sec, 102*sec
			l.out.add(100*sec, 10)
			l.out.add(101*sec, others)
		}
	}
	for _, tt := range []struct {
		name string
		do   func(l *Law, b *block, r *rate)
		want bool
	}{
		{"rare numbers in flight at long blocks", func(*Law, *block, *rate) {}, true},
		{"not rare enough", func(l *Law, _ *block, _ *rate) { l.crowd.evidence = heldEvidence }, false},
		{"a rate may explain it", func(l *Law, _ *block, r *rate) { l.hold(r) }, true},
		{"one refusal is not enough", func(l *Law, _ *block, _ *rate) { l.weighed = 1 }, false},
		{"one is held", func(l *Law, _ *block, _ *rate) { l.hold(&flight{size: 3}) }, false},
		{"no other attempt was in flight", func(l *Law, _ *block, _ *rate) { l.out.add(100*sec, 0) }, false},
		{"refused twice with one other, and hardly ever admitted between", func(l *Law, _ *block, r *rate) {
			r.cycles, l.crowd.evidence, l.crowd.times, l.crowd.between = 2, -2, 2, fewBetween
			l.hold(r)
		}, true},
		{"a canary was refused while nothing was in flight: a ban may follow", func(l *Law, b *block, _ *rate) { b.refusals, b.lastRefused = 2, 105*sec; l.out.add(105*sec, 0) }, true},
		{"and a window is known", func(l *Law, b *block, _ *rate) {
			b.refusals, b.lastRefused = 2, 105*sec
			l.out.add(105*sec, 0)
			l.hold(&window{hits: 2, size: amounts{9, 9, 0}, low: sec, high: sec})
		}, false},
		{"most of what went was in flight, and a canary was refused with clearly fewer", canaryWith(7, 39), false},
		{"not clearly", canaryWith(8, 39), true},
		{"not most of it", canaryWith(7, 40), true},
		{"most of what went was in flight, and that misled before", func(l *Law, b *block, _ *rate) {
			b.count, l.misled = 3, true
		}, false},
		{"it misled, and not most of it was", func(l *Law, b *block, _ *rate) {
			b.count, l.misled = 4, true
		}, true},
		{"or a rate that may explain blocks", func(l *Law, b *block, _ *rate) {
			b.refusals, b.paced, b.lastRefused = 2, true, 105*sec
			l.out.add(105*sec, 0)
		}, false},
		{"or the block ended with an advertised wait", func(_ *Law, b *block, _ *rate) { b.paced, b.exact = true, true }, false},
		{"of which a canary tested only a part", func(_ *Law, b *block, _ *rate) { b.paced, b.exact, b.doubted = true, true, true }, true},
		{"but a canary was refused long after all answers", func(l *Law, b *block, r *rate) {
			r.cycles, l.crowd.evidence, l.crowd.times, l.crowd.between, b.refusals = 2, -2, 2, fewBetween, 2
			l.hold(r)
		}, false},
		{"a canary was refused, and the block was short", func(l *Law, b *block, r *rate) {
			r.cycles, l.crowd.evidence, l.crowd.times, l.crowd.between, b.refusals, b.release = 2, -2, 2, fewBetween, 2, b.noticed+sec
			l.hold(r)
		}, true},
		{"admitted more often", func(l *Law, _ *block, r *rate) {
			r.cycles, l.crowd.evidence, l.crowd.times, l.crowd.between = 2, -2, 2, fewBetween+1
			l.hold(r)
		}, false},
		{"refused once", func(l *Law, _ *block, r *rate) {
			r.cycles, l.crowd.evidence, l.crowd.times = 2, -2, 1
			l.hold(r)
		}, false},
		{"the one that is held was lowered", func(l *Law, _ *block, _ *rate) {
			l.hold(&flight{size: 2})
			l.crowd.evidence, l.crowd.times = -2, 2
		}, true},
		{"as many others as it allows", func(l *Law, _ *block, _ *rate) {
			l.hold(&flight{size: 1})
			l.crowd.evidence, l.crowd.times = -2, 2
		}, false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.crowd.evidence, l.weighed = 3, 2
		l.out.add(100*sec, 1)
		b := &block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 110 * sec, refusals: 1, pace: 10}
		r := newRate(0, 9, 10)
		r.cycles = 1
		tt.do(l, b, r)
		if got := l.suggestsFlight(b); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// A minute of the clock in which as much was in use at each refusal is no sliding one if more was in
// use of that.
func TestAWindowThatIsSureBeginsWithTheClockIfRefusalsSaySo(t *testing.T) {
	for name, tt := range map[string]struct {
		hits  int
		clock time.Duration
	}{"sure": {sureHits, time.Minute}, "not sure": {sureHits - 1, 0}} {
		w := &window{size: amounts{103, 9, 0}, low: 59500 * ms, high: time.Minute, raise: 1, testAfter: 1, hits: tt.hits, released: 7}
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		for k, early := range []time.Duration{0, 0, 15 * sec} {
			start := time.Duration(k) * time.Minute
			l.h.add(start+40*sec-early, amounts{60, 60, 0})
			l.h.add(start+49*sec-early, amounts{40, 40, 0})
			l.block = block{began: start + 50*sec - early, lastRefused: start + 59*sec, release: start + 60500*ms, refusals: 2, pace: 5}
			if k < 2 {
				l.spans.add(&l.block, 1)
			}
		}
		l.clock, l.limits, l.block.blamed = l.block.release, []limit{w}, w
		if got := l.holdClockWindow(l.look()); got != (tt.clock > 0) || w.clock != tt.clock || tt.clock > 0 && (w.low != time.Minute || w.size != amounts{100, 0, 0}) {
			t.Errorf("%s: %v, by the clock %v, %v to %v, %v", name, got, w.clock, w.low, w.high, w.size)
		}
	}
}

// Of an attempt a second until one at 100 s is refused: the newest long block ended at 40 s, and
// this one ends between canaries at 140 s and at 160 s.
func TestTheWindowThatALongBlockSuggests(t *testing.T) {
	for _, tt := range []struct {
		name    string
		windows []time.Duration // that are configured
		do      func(*Law)
		want    string
		floor   time.Duration // the shortest assumed length, and when and how fast it shrinks to that
		from    time.Duration
		fold    time.Duration
	}{
		{"between the canaries", nil, func(*Law) {}, "60 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"that are far apart", nil, func(l *Law) { l.block.lastRefused = 100 * sec }, "60 of unit 0 in 60.0s-120.0s lone", 20 * sec, 160 * sec, 15 * sec},
		{"of two attempts that were refused before the last canary one may count in the window", nil, func(l *Law) { l.allRefused = 3 }, "60 of unit 0 in 98.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"the canary itself does not", nil, func(l *Law) { l.allRefused = 1 }, "60 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"if more were refused than admitted, all but one attempt may have left", nil, func(l *Law) { l.allRefused = 99 }, "60 of unit 0 in 41.0s-120.0s lone", 41 * sec / 3, 160 * sec, minFold},
		{"refused after a while", nil, func(l *Law) { l.block.noticed = 106 * sec }, "60 of unit 0 in 100.0s-120.0s lone", 22 * sec, 160 * sec, minFold},
		{"an attempt at the end of the last block counts", nil, func(l *Law) { l.block.from = 40*sec - 1 }, "60 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"one before it does not", nil, func(l *Law) { l.block.from = 40*sec + 1 }, "59 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"of a single attempt", nil, func(l *Law) { l.block.from, l.block.lastRefused = 98900*ms, 99*sec }, "1 of unit 0 in 1.0s-61.1s lone", sec / 3, 160 * sec, 15250 * ms},
		{"to the end of an advertised wait: it is assumed for half of it", nil, func(l *Law) { l.block.exact = true }, "60 of unit 0 in 116.6s-120.0s lone", 20 * sec, 220 * sec, 15 * sec},
		{"for two minutes at most", nil, func(l *Law) { l.block.exact, l.block.release = true, 400*sec }, "60 of unit 0 in 351.8s-360.0s lone", 20 * sec, 520 * sec, 75 * sec},
		{"besides one that more blocks support", nil, func(l *Law) { l.limits = []limit{&window{size: amounts{9, 9, 0}, low: 110 * sec, high: 115 * sec}} }, "9 of unit 0 in 110.0s-115.0s, 60 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"configured, since the last long block", []time.Duration{110 * sec}, func(*Law) {}, "60 of unit 0 in 107.8s-110.0s lone", 20 * sec, 270 * sec, minFold},
		{"and ended at the canary that was admitted", []time.Duration{120 * sec}, func(*Law) {}, "60 of unit 0 in 117.6s-120.0s lone", 20 * sec, 280 * sec, minFold},
		{"one that the canary before would have found over", []time.Duration{100 * sec}, func(l *Law) { l.phase = 5 * sec }, "60 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"one that is not over yet", []time.Duration{121 * sec}, func(l *Law) { l.phase = 5 * sec }, "60 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"the second of two", []time.Duration{121 * sec, 110 * sec}, func(l *Law) { l.phase = 5 * sec }, "60 of unit 0 in 107.8s-110.0s lone", 20 * sec, 270 * sec, minFold},
		{"the first of two", []time.Duration{115 * sec, 110 * sec}, func(l *Law) { l.phase = 5 * sec }, "60 of unit 0 in 112.7s-115.0s lone", 20 * sec, 275 * sec, minFold},
		{"a long one is assumed for two minutes", []time.Duration{300 * sec}, func(l *Law) { l.block.release = 350 * sec }, "60 of unit 0 in 294.0s-300.0s lone", 20 * sec, 470 * sec, 52500 * ms},
		{"by the clock, of which only its newest period counts", []time.Duration{50 * sec}, func(l *Law) { l.phase = 5 * sec }, "5 of unit 0 in 50.0s-50.0s lone", 20 * sec, 210 * sec, minFold},
		{"not what was sent at the end of the one before", []time.Duration{50 * sec}, func(l *Law) { l.phase = 5*sec - 1 }, "4 of unit 0 in 50.0s-50.0s lone", 20 * sec, 210 * sec, minFold},
		{"which began before", []time.Duration{70 * sec}, func(l *Law) { l.phase = 60 * sec }, "20 of unit 0 in 70.0s-70.0s lone", 20 * sec, 230 * sec, minFold},
		{"before the last long block ended, too", []time.Duration{75 * sec}, func(l *Law) { l.block.from = 70 * sec }, "30 of unit 0 in 73.5s-75.0s lone", 10 * sec, 235 * sec, minFold},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour, Windows: tt.windows})
		l.h = *sentEvenly(99*sec, sec, 100)
		l.block = block{from: 40 * sec, began: 100 * sec, noticed: 100 * sec, lastRefused: 140 * sec, release: 160 * sec, refusals: 2, pace: 4}
		tt.do(l)
		l.clock = l.block.release
		l.holdWindow(l.look(), &l.block)
		w, ok := l.limits[len(l.limits)-1].(*window)
		if got := held(l); got != tt.want || !ok {
			t.Errorf("%s: holds %q, want %q", tt.name, got, tt.want)
		} else if (w.floor-tt.floor).Abs() > ms || w.from != tt.from || w.fold != tt.fold || w.pace != 4 || w.size[cost] != w.size[attempts] {
			t.Errorf("%s: assumed down to %v, from %v on in %v, %v; want %v, %v, %v", tt.name, w.floor, w.from, w.fold, w.size, tt.floor, tt.from, tt.fold)
		}
	}
}

// A short block in the ramp, of which the last step from two attempts a second to four was at
// 99 s. An attempt at 100 s was refused.
func TestTheRateThatAShortBlockSuggests(t *testing.T) {
	for _, tt := range []struct {
		name    string
		do      func(*Law)
		want    string
		guessed bool
	}{
		{"the first attempt after a step: between the two paces", func(*Law) {}, "2.00-4.00/s", true},
		{"the second one", func(l *Law) { l.h.add(99500*ms, amounts{1, 1, 0}) }, "4.00-8.00/s", false},
		{"one that others overtook", func(l *Law) { l.out.add(100*sec, 1) }, "4.00-8.00/s", false},
		{"before the first step", func(l *Law) { l.ramp.was = 0 }, "4.00-8.00/s", false},
		{"long after the ramp", func(l *Law) { l.block.ramping = false }, "6.15-8.00/s", false},
		{"a rate that is held stays", func(l *Law) { l.hold(newRate(0, 5, 6)) }, "5.00-6.00/s", false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock = *sentEvenly(99*sec, sec, 100), 101*sec
		l.h.add(100*sec, amounts{1, 1, 0})
		l.ramp = ramp{was: 5e8, every: 2.5e8, grew: 99 * sec}
		l.block = block{began: 100 * sec, ramping: true, pace: 8}
		l.out.add(100*sec, 0)
		tt.do(l)
		l.holdRate(l.look(), &l.block)
		if got := held(l); got != tt.want || l.rate().guessed != tt.guessed {
			t.Errorf("%s: %s, guessed %v; want %s", tt.name, got, l.rate().guessed, tt.want)
		}
	}
}

// What was sent before a block with another cause says nothing about a rate.
func TestABlockWithAnotherCauseEndsTheCycleOfARate(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*Law)
		void bool
	}{
		{"a short one, by the rate", func(*Law) {}, false},
		{"an outage", func(l *Law) { l.block.outage = true }, true},
		{"an advertised limit's", func(l *Law) { l.block.explained = true }, true},
		{"a long one", func(l *Law) { l.block.refusals, l.block.lastRefused, l.block.release = 2, 140*sec, 160*sec }, true},
		{"a penalty's", func(l *Law) {
			l.block.refusals, l.block.lastRefused, l.block.release, l.penalty.length = 2, 140*sec, 160*sec, 20*sec
			l.block.blamed = &flight{size: 9}
			l.limits = append(l.limits, l.block.blamed)
		}, false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h = *sentEvenly(99*sec, sec, 100)
		r := newRate(0, 3, 4)
		r.count, r.refused, r.since = 30, 100*sec, 30
		l.limits = []limit{r}
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 101 * sec, refusals: 1, pace: 4, blamed: r}
		tt.do(l)
		l.clock = l.block.release
		l.ended(l.look())
		if void := r.cycles == 0; void != tt.void || r.released != l.clock || r.refused != 0 || r.count != 0 {
			t.Errorf("%s: cycle dropped %v, began at %v; %+v", tt.name, void, r.released, r)
		}
	}
}

// A climb that is above its bracket has carried more than was known, so that it does not begin again when
// another limit refuses.
func TestAClimbAboveItsBracketGoesOnAfterABlockOfAnotherLimit(t *testing.T) {
	known := &window{size: amounts{90, 0, 0}, low: time.Minute, high: time.Minute, raise: 1, testAfter: 1, hits: sureHits}
	for _, tt := range []struct {
		name   string
		blamed limit
		since  float64
		goesOn bool
	}{
		{"a limit in flight", &flight{size: 9, proven: 9, testAfter: firstTest}, 300, true},
		{"a window", known, 300, true},
		{"a window that only one block supports: the rate explains the refusal, too", newWindow(0, amounts{90, 90, 0}, sec, time.Minute, time.Minute, sec, 4), 300, false},
		{"a climb in its bracket", known, 100, false},
		{"a refusal of the rate", nil, 300, false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h = *sentEvenly(99*sec, sec, 100)
		r := newRate(0, 3, 4)
		r.stretch, r.count, r.cycles = 100, 30, 3
		r.climb(tt.since)
		pace := r.pace()
		l.limits = []limit{r}
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 101 * sec, refusals: 1, pace: 4, blamed: r}
		if tt.blamed != nil {
			l.limits, l.block.blamed = append(l.limits, tt.blamed), tt.blamed
		} else {
			r.refused = 100 * sec
		}
		l.clock = l.block.release
		l.rateEnded(l.look())
		if goesOn := r.pace() == pace; goesOn != tt.goesOn || !goesOn && r.since != 0 {
			t.Errorf("%s: goes on %v at %v after %v attempts, was %v", tt.name, goesOn, r.pace(), r.since, pace)
		}
		if r.count != 0 || r.released < 100*sec {
			t.Errorf("%s: the next cycle began at %v with %v attempts", tt.name, r.released, r.count)
		}
	}
}

// The mean rate before a refusal starts at the release before, whatever had refused.
func TestALongBlockThatAnAdvertisedLimitExplainsEndsACycle(t *testing.T) {
	for _, long := range []bool{true, false} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h.add(0, amounts{1, 1, 0})
		l.block = block{explained: true, pace: 10, refusals: 1, began: sec, noticed: sec, lastRefused: sec, release: 2 * sec}
		if long {
			l.block.release = 60 * sec
		}
		l.clock = l.block.release
		l.ended(l.look())
		if (l.freed == l.block.release) != long {
			t.Errorf("long %v: freed at %v, released at %v", long, l.freed, l.block.release)
		}
	}
}

func TestALongSilenceAfterRefusedCanariesIsThePenalty(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	l.h = *sentEvenly(100*sec, sec, 100)
	l.clock, l.meanLong = 1000*sec, 450*sec
	l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 600 * sec, release: 1000 * sec, refusals: 6, pace: 4, ramping: true}
	l.penalize(l.look(), 0)
	if l.penalty.length != 400*sec {
		t.Errorf("the penalty is %v, want the 400 s that no canary lengthened", l.penalty.length)
	}
	// It grew all the time: the limit may be anywhere between the mean and the last pace.
	if r := l.rate(); r.low > 1 || r.high != 4 || r.price < 400 || r.price > 1600 {
		t.Errorf("from %.3g to %.3g a second at %.0f attempts", r.low, r.high, r.price)
	}
}

// The configured length is 70 s, which is not a usual one.
func TestAConfiguredLengthIsBelievedSooner(t *testing.T) {
	for _, configured := range []bool{false, true} {
		cfg := Config{Ceiling: 1, Initial: 1}
		if configured {
			cfg.Windows = []time.Duration{70 * sec}
		}
		l := New(cfg)
		for now := time.Duration(0); now < 30*sec; now += sec {
			l.h.add(now, amounts{1, 1, 0})
		}
		l.clock = 72 * sec
		l.block = block{began: 30 * sec, noticed: 30 * sec, lastRefused: 40 * sec, release: 72 * sec, pace: 1, refusals: 4}
		l.ended(l.look())
		w := l.limits[0].(*window)
		if got := w.length(l.clock); configured != (got == 70*sec) || !configured && got != 72*sec || w.size[attempts] != 30 {
			t.Errorf("configured %v: %v of %v, want 30 in 70s or in 72s", configured, w.size[attempts], got)
		}
	}
}

func TestAWindowThatIsFullIsCountedInPeriodsIfTwoBlocksSaySo(t *testing.T) {
	for _, tt := range []struct {
		name    string
		size    float64       // that the window is held with, in hundreds; some 45 were sent in its length
		many    int           // attempts, in hundreds
		next    time.Duration // the refusal after the first at 5 seconds
		counted bool
	}{
		{"not full at the refusal", 100, 10, 14 * sec, true},
		{"full, which explains it", 45, 10, 14 * sec, false},
		{"few attempts, which agree by chance", 100, 1, 14 * sec, false},
		{"soon after the first refusal, when little has changed", 100, 10, 5900 * ms, false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		w := newWindow(0, amounts{tt.size * float64(tt.many), 0, 0}, sec, 9*sec, 11*sec, sec, 10)
		w.lone = false
		l.limits = []limit{w}
		send := func(from, to time.Duration, n int) {
			for i := range n {
				l.h.add(from+time.Duration(i)*(to-from)/time.Duration(n), amounts{1, 1, 0})
			}
		}
		send(0, 5*sec, 100*tt.many)
		if tt.next < 10*sec {
			l.spans.add(&block{began: 5 * sec, lastRefused: 5 * sec, release: 5500 * ms}, 0)
		} else {
			l.spans.add(&block{began: 5 * sec, lastRefused: 6 * sec, release: 10500 * ms}, 2)
			send(10500*ms, tt.next, 40*tt.many)
		}
		v := &view{now: tt.next, h: &l.h, mean: amounts{1, 1, 0}}
		l.blameCounted(v, refusal{sent: tt.next, now: tt.next, cost: 1})
		if w.counted != tt.counted || w.counted && (w.high != 10*sec || w.size[attempts] != 100*float64(tt.many)) {
			t.Errorf("%s: counted %v, %v in %v", tt.name, w.counted, w.size[attempts], w.high)
		}
	}
}

// As many attempts as a window of ten seconds allows were in use at each of four refusals, if it is
// counted in periods.
func TestWhichWindowIsTakenForOneThatIsCountedInPeriods(t *testing.T) {
	type refusals struct {
		sent   map[time.Duration]float64
		blocks []time.Duration // the instants of the refusals before the newest
		at     time.Duration
	}
	large := refusals{map[time.Duration]float64{sec: 1000, 12 * sec: 400}, []time.Duration{5 * sec}, 14 * sec}
	second := refusals{map[time.Duration]float64{sec: 1000, 12 * sec: 400, 16 * sec: 220}, []time.Duration{5 * sec, 14 * sec}, 16200 * ms}
	least := refusals{map[time.Duration]float64{sec: 20, 12 * sec: 10, 16 * sec: 5, 22 * sec: 12.5}, []time.Duration{5 * sec, 15 * sec, 17500 * ms}, 25 * sec}
	small := refusals{map[time.Duration]float64{sec: 24, 12 * sec: 12, 16 * sec: 6, 22 * sec: 15}, []time.Duration{5 * sec, 15 * sec, 17500 * ms}, 25 * sec}
	for _, tt := range []struct {
		name string
		refusals
		low, high time.Duration
		do        func(*window)
		size      float64 // 0: it is not
	}{
		{"a length between the bounds", large, 9 * sec, 11 * sec, func(*window) {}, 1000},
		{"half of the lower bound", large, 20 * sec, 22 * sec, func(*window) {}, 1000},
		{"less than half", large, 20002 * ms, 22 * sec, func(*window) {}, 0},
		{"twice the upper bound", large, 4 * sec, 5 * sec, func(*window) {}, 1000},
		{"more than twice", large, 4 * sec, 4999 * ms, func(*window) {}, 0},
		{"a sure one, of its length", large, 11111 * ms, 11111 * ms, func(w *window) { w.hits = sureHits }, 1000},
		{"of another", large, 11112 * ms, 11112 * ms, func(w *window) { w.hits = sureHits }, 0},
		{"of another, but unsettled", large, 11 * sec, 12 * sec, func(w *window) { w.hits = sureHits }, 1000},
		{"a window of cost", large, 9 * sec, 11 * sec, func(w *window) { w.unit = cost }, 0},
		{"one that is already", large, 9 * sec, 11 * sec, func(w *window) { w.counted = true }, 0},
		{"one that began with the clock", large, 10 * sec, 10 * sec, func(w *window) { w.clock = 10 * sec }, 1000},
		{"a full one, by two blocks", second, 10 * sec, 10 * sec, func(w *window) { w.size[attempts] = 620 }, 1000},
		{"a full one, by a single block", large, 10 * sec, 10 * sec, func(w *window) { w.size[attempts] = 400 }, 0},
		{"a small one, by three blocks", small, 9 * sec, 11 * sec, func(*window) {}, 24},
		{"of twenty at least", least, 9 * sec, 11 * sec, func(*window) {}, 20},
		{"not by two", refusals{small.sent, small.blocks[1:], small.at}, 9 * sec, 11 * sec, func(*window) {}, 0},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		for _, at := range slices.Sorted(maps.Keys(tt.sent)) {
			l.h.add(at, amounts{tt.sent[at], 0, 0})
		}
		for _, at := range tt.blocks {
			b := block{began: at, lastRefused: at + 4*ms, release: at + 200*ms}
			if at == 5*sec {
				b.lastRefused, b.release = 10004*ms, 10200*ms
			}
			l.spans.add(&b, 0)
		}
		w := &window{size: amounts{5000, 5000, 0}, low: tt.low, high: tt.high, raise: 1, testAfter: 9, lone: true, floor: tt.low}
		tt.do(w)
		before := *w
		l.limits, l.block.blamed = []limit{newRate(0, 8, 9), w}, nil
		l.clock = tt.at
		l.blameCounted(l.look(), refusal{sent: tt.at, now: tt.at, cost: 1})
		want, blamed := before, limit(nil)
		if tt.size > 0 {
			want.low, want.high, want.lone, want.counted, want.clock, want.size, want.testAfter = 10*sec, 10*sec, false, true, 0, amounts{tt.size, 0, 0}, testGrowth
			blamed = w
		}
		if *w != want || l.block.blamed != blamed {
			t.Errorf("%s: %+v, blamed %v; want %+v, %v", tt.name, *w, l.block.blamed, want, blamed)
		}
	}
}

// Three minutes of the clock ended three blocks; a hundred attempts fit into each.
func TestAClockWindowReplacesWhatWasHeld(t *testing.T) {
	known := func(size float64, length time.Duration, hits int) *window {
		return &window{size: amounts{size, size, 0}, low: length, high: length, raise: 1, testAfter: 1, hits: hits, off: doubtUnit}
	}
	unsettled := known(100, time.Minute, sureHits)
	unsettled.low = 57 * sec
	agreeing := known(50, 51*sec, sureHits)
	agreeing.low = 48 * sec
	byCost := known(100, time.Minute, sureHits)
	byCost.unit = cost
	lone := known(9, sec, 0)
	lone.lone = true
	const found = "100 of unit 0 in 60.0s-60.0s by the clock"
	for _, tt := range []struct {
		name   string
		limits []limit
		blamed int
		want   string
	}{
		{"nothing", nil, -1, found},
		{"a rate", []limit{newRate(0, 8, 9)}, 0, found},
		{"a rate and another window", []limit{known(9, sec, 1), newRate(0, 8, 9)}, 1, "9 of unit 0 in 1.0s-1.0s, " + found},
		{"a window of a single block", []limit{lone, newRate(0, 8, 9)}, 1, found},
		{"a limit in flight that was not blamed", []limit{&flight{size: 9}}, -1, "9 in flight, " + found},
		{"one that was", []limit{&flight{size: 9}}, 0, "9 in flight"},
		{"that window", []limit{known(100, time.Minute, 0)}, 0, "100 of unit 0 in 60.0s-60.0s"},
		{"somewhat larger", []limit{known(103, time.Minute, 0)}, 0, "103 of unit 0 in 60.0s-60.0s"},
		{"larger", []limit{known(103.1, time.Minute, 0)}, 0, found},
		{"smaller", []limit{known(96.9, time.Minute, 0)}, 0, found},
		{"somewhat longer", []limit{known(100, 61790*ms, 0)}, 0, "100 of unit 0 in 61.8s-61.8s"},
		{"longer", []limit{known(100, 61800*ms, 0)}, 0, found},
		{"of which the length is not known", []limit{unsettled}, 0, found},
		{"of another unit", []limit{byCost}, 0, found},
		{"another one that explains this block", []limit{known(50, 51*sec, sureHits)}, 0, "50 of unit 0 in 51.0s-51.0s"},
		{"but has no certain length", []limit{agreeing}, 0, found},
		{"but not others yet", []limit{known(50, 51*sec, sureHits-1)}, 0, found},
		{"one that does not explain it", []limit{known(50, 20*sec, sureHits)}, 0, found},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		for k := range time.Duration(3) {
			l.h.add(k*60*sec+10*sec, amounts{100, 100, 0})
			b := block{began: k*60*sec + 50*sec, lastRefused: k*60*sec + 59*sec, release: k*60*sec + 60500*ms, refusals: 2, pace: 5, before: 4}
			if k < 2 {
				l.spans.add(&b, 1)
			} else {
				l.block = b
			}
		}
		l.clock, l.penalty.length, l.allRefused = l.block.release, sec, 9
		l.limits, l.block.blamed = tt.limits, nth(tt.limits, tt.blamed)
		holds := l.holdClockWindow(l.look())
		if got := held(l); got != tt.want || holds != strings.HasSuffix(tt.want, "clock") || holds == l.penalty.on() || l.spans.ring[0].refusals != 5 {
			t.Errorf("%s: %v, holds %q, want %q; a penalty of %v, %v refused", tt.name, holds, got, tt.want, l.penalty.length, l.spans.ring[0].refusals)
		}
		if !holds {
			continue
		}
		if w, ok := l.limits[len(l.limits)-1].(*window); !ok || w.hits != foundHits || w.lone || w.clock != time.Minute || w.from != l.clock || l.block.blamed != nil {
			t.Errorf("%s: %+v, blamed %v", tt.name, l.limits[len(l.limits)-1], l.block.blamed)
		}
	}
}
