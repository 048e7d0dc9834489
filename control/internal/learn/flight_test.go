package learn

import (
	"math"
	"testing"
	"time"
)

func TestARareNumberInFlightIsEvidenceForALimitOnIt(t *testing.T) {
	for _, tt := range []struct {
		name     string
		refusals []float64
		want     float64
	}{
		{"always at the most that ever were", []float64{9, 9, 9}, 3 * maxEvidence},
		{"at the most that are usual", []float64{7}, math.Log(201/25.5) - 1},
		{"with one other, as seven of eight attempts have", []float64{1}, math.Log(201/175.5) - 1},
		{"at any number", []float64{2, 5, 4, 7, 3}, math.Log(201/150.5*201/75.5*201/100.5*201/25.5*201/125.5) - 5},
		{"at a usual number each time: never worse than this", []float64{1, 1, 1, 1, 1, 1, 1, 1}, -2},
		{"alone", []float64{0, 0, 0}, 0},
	} {
		var c crowd
		c.refused(9, maxEvidence)
		if c.evidence != 0 {
			t.Errorf("evidence %v before anything was sent", c.evidence)
		}
		for i := range 200 {
			c.sent(i % 8)
		}
		for _, others := range tt.refusals {
			c.refused(others, maxEvidence)
		}
		if math.Abs(c.evidence-tt.want) > 1e-4 {
			t.Errorf("%s: evidence %.4f, want %.4f", tt.name, c.evidence, tt.want)
		}
	}
}

func TestAttemptsWithAsManyInFlightAreNearlyAlwaysRefused(t *testing.T) {
	for _, tt := range []struct {
		name     string
		refusals []float64
		admitted [][]int // after each refusal, with so many others
		want     bool
	}{
		{"with four each time", []float64{4, 4}, [][]int{{3, 2, 1}}, true},
		{"once", []float64{4}, [][]int{{3, 2}}, false},
		{"differently many", []float64{4, 4, 3}, nil, false},
		{"a tenth more or fewer is the same", []float64{40, 37}, [][]int{{36, 30}}, true},
		{"more than that is not", []float64{40, 35}, nil, false},
		{"few were admitted between", []float64{4, 4}, [][]int{{4, 3, 5}}, true},
		{"many were", []float64{4, 4}, [][]int{{4, 5, 4}}, false},
		{"before the last two", []float64{4, 4, 4}, [][]int{{4, 5, 4}}, true},
		{"a quarter of all went with clearly more, before", []float64{9, 4, 4}, [][]int{{8, 1, 1, 1}, {3}}, true},
		{"more than that did", []float64{9, 4, 4}, [][]int{{8, 8, 1, 1}, {3}}, false},
		{"with one more", []float64{9, 4, 4}, [][]int{{5, 5, 1, 1}, {3}}, false},
	} {
		var c crowd
		for i, others := range tt.refusals {
			c.sent(int(others))
			c.takeBack(others)
			c.refused(others, maxEvidence)
			if i < len(tt.admitted) {
				for _, n := range tt.admitted[i] {
					c.sent(n)
				}
			}
		}
		if got := c.certain(); got != tt.want {
			t.Errorf("%s: %v, want %v; %d refused, %d admitted between", tt.name, got, tt.want, c.times, c.between)
		}
	}
}

func TestAShareOfAttemptsInFlight(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sent   [][2]int // so many, with that many others
		others float64
		want   float64 // of all attempts and one more, with half an attempt added
	}{
		{"more than ever", [][2]int{{99, 3}}, 4, 0.5 / 100},
		{"as many as all", [][2]int{{99, 3}}, 3, 99.5 / 100},
		{"at least none", [][2]int{{99, 3}}, 0, 99.5 / 100},
		{"two of nine", [][2]int{{7, 3}, {2, 5}}, 4, 2.5 / 10},
		{"what is forgotten counts as none", [][2]int{{99, 0}}, -1, 99.5 / 100},
		{"beyond 63 to a sixteenth", [][2]int{{9, 67}, {10, 68}, {80, 64}}, 68, 10.5 / 100},
		{"so that a few less may count", [][2]int{{9, 63}, {10, 64}, {80, 65}}, 67, 90.5 / 100},
		{"very many count as 1,023", [][2]int{{9, 1023}, {10, 5000}, {80, 980}}, 2000, 19.5 / 100},
		{"what was before the newest 400 counts half", [][2]int{{400, 1}, {1, 9}}, 9, 1 / 201.5},
		{"not before", [][2]int{{399, 1}, {1, 9}}, 9, 1.5 / 401},
		{"and a quarter", [][2]int{{400, 1}, {200, 9}, {1, 5}}, 1, (400/4. + 200/2. - 1/4. + 1/2. + 0.5) / (400/4. + 200/2. - 1/4. + 1/2. + 1)},
	} {
		var c crowd
		for _, s := range tt.sent {
			for range s[0] {
				c.sent(s[1])
			}
		}
		if got := c.share(tt.others); math.Abs(got-tt.want) > 0.001 {
			t.Errorf("%s: %.5f, want %.5f", tt.name, got, tt.want)
		}
	}
}

func TestNumbersInFlightAreCountedInSteps(t *testing.T) {
	var c crowd
	last := 0
	for others := range 5000 {
		step := flightStep(others)
		switch {
		case others < 64 && step != others:
			t.Fatalf("%d in flight count as step %d, want one step each", others, step)
		case step < last || step > last+1 || step >= len(c.seen):
			t.Fatalf("%d in flight count as step %d, after %d, of %d", others, step, last, len(c.seen))
		}
		last = step
	}
	for others, want := range map[int]int{-1: 0, 64: 64, 67: 64, 68: 65, 127: 79, 128: 80, 1023: 127, 1 << 40: 127} {
		if got := flightStep(others); got != want {
			t.Errorf("%d in flight count as step %d, want %d", others, got, want)
		}
	}
}

func TestHowManyWereInFlightIsKnownOfTheNewest(t *testing.T) {
	var d departures
	if got := d.others(sec); got != -1 {
		t.Errorf("of no attempt %v are known", got)
	}
	for i := range 200 {
		d.add(time.Duration(i)*sec, i)
		for back, want := range map[int]float64{0: float64(i), 1: float64(i - 1), 59: float64(i - 59), 60: -1} {
			if back > i {
				want = -1
			}
			if got := d.others(time.Duration(i-back) * sec); got != max(-1, want) {
				t.Errorf("%d attempts before the newest of %d %v others were in flight, want %v", back, i+1, got, want)
			}
		}
	}
}

func TestALimitOnAttemptsInFlight(t *testing.T) {
	for _, tt := range []struct {
		x            flight
		flying       int
		free         bool
		room         float64
		full         float64       // if the last of them is refused
		untilLatency time.Duration // between attempts that take a second each
	}{
		{flight{size: 1}, 0, true, 1, 0, sec},
		{flight{size: 1}, 1, false, 0, 0.5, sec},
		{flight{size: 4}, 3, true, 1, 0.625, sec / 4},
		{flight{size: 4}, 4, false, 0, 0.875, sec / 4},
		{flight{size: 4, extra: 1}, 4, true, 1, 1, sec / 4}, // a test of five
		{flight{size: 4, extra: 1}, 5, false, 0, 1.25, sec / 4},
		{flight{size: 0.5}, 0, true, 0.5, 0, sec}, // one always goes
	} {
		v := &view{now: sec, flying: tt.flying, latency: 1e9, open: time.Hour}
		if got := tt.x.free(v, 1); got != sec && got != never || (got == sec) != tt.free {
			t.Errorf("%+v, %d in flight: the next goes at %v", tt.x, tt.flying, got)
		}
		room, full, every := tt.x.room(v), tt.x.fullness(v, refusal{others: float64(tt.flying - 1)}), time.Duration(tt.x.interval(v))
		if room != tt.room || full != tt.full || every != tt.untilLatency {
			t.Errorf("%+v, %d in flight: room %v, full %v, one each %v; want %v, %v, %v", tt.x, tt.flying, room, full, every, tt.room, tt.full, tt.untilLatency)
		}
	}
}

func TestAfterABlockNoAnswersAreOnTheirWayBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		x      flight
		trip   time.Duration // of a second that an attempt takes
		open   time.Duration
		flying int
		free   bool
	}{
		{"a fifth of ten is on its way: eight go at first", flight{size: 10}, 200 * ms, 0, 7, true},
		{"and no more", flight{size: 10}, 200 * ms, 0, 8, false},
		{"until two answers' time has passed", flight{size: 10}, 200 * ms, 2*sec - 1, 8, false},
		{"all of them then", flight{size: 10}, 200 * ms, 2 * sec, 9, true},
		{"less than one is on its way", flight{size: 4}, 200 * ms, 0, 3, true},
		{"one always goes", flight{size: 1}, 2 * sec, 0, 0, true},
	} {
		v := &view{now: 9 * sec, flying: tt.flying, latency: 1e9, guard: tt.trip, open: tt.open}
		if got := tt.x.free(v, 1); (got == v.now) != tt.free {
			t.Errorf("%s: with %d in flight the next goes at %v", tt.name, tt.flying, got)
		}
	}
}

func TestATestedNumberInFlightIsConfirmed(t *testing.T) {
	x := &flight{size: 12, testAfter: 10}
	v := &view{flying: 12, lastBlock: sec, open: seconds(testAfterBlocks)}
	for range 20 {
		if x.answered(v); x.extra > 0 {
			t.Fatal("it is tested soon after a block")
		}
	}
	x.untested, v.open = 0, seconds(testAfterBlocks+0.1)
	for i, want := range []float64{10: 12, 11: 12, 16: 12, 17: 13} {
		if want > 0 && x.size != want {
			t.Errorf("after %d answers the size is %v, want %v", i, x.size, want)
		}
		if x.answered(v); (x.extra == 1) != (i >= 10) {
			t.Errorf("after %d answers %v more are tested", i+1, x.extra)
		}
	}
	x.blame(v, refusal{others: 13})
	if x.size != 13 || x.extra != 0 || x.testAfter != 20 {
		t.Errorf("%v and %v on top after a failed test, the next after %v; want 13, 0 and 20", x.size, x.extra, x.testAfter)
	}
	x = &flight{size: 60, testAfter: 10, untested: 10}
	if x.answered(v); x.extra != 3 {
		t.Errorf("%v more than 60 are tested, want 3", x.extra)
	}
	for _, tt := range []struct {
		doubtful bool
		size     float64
		again    float64 // answers until the next test
	}{{false, 40, 100}, {true, 40, 10}, {true, 1000, 100}} {
		x = &flight{size: tt.size, testAfter: 200, untested: 200, doubtful: tt.doubtful}
		v.flying = int(2 * tt.size)
		if x.answered(v); x.testAfter-x.untested != 100 {
			t.Errorf("%+v: the first test counts %v answers, want 100", x, x.testAfter-x.untested)
		}
		for extra := x.extra; x.size == tt.size; x.answered(v) {
			x.untested, x.over = 200, extra
		}
		if got := x.testAfter - x.untested; got != tt.again {
			t.Errorf("%+v is tested again after %v answers, want %v", x, got, tt.again)
		}
	}
}

func TestARefusalByALimitOnAttemptsInFlight(t *testing.T) {
	for _, tt := range []struct {
		name   string
		x      flight
		others float64
		want   flight
	}{
		{"long after the last one: as many as there were", flight{size: 10, untested: 50, soonInRow: 2}, 7, flight{size: 7}},
		{"unless as many went since as a block of a second and the lowered size cost", flight{size: 10, untested: 101, soonInRow: 2}, 7, flight{size: 10}},
		{"but not fewer", flight{size: 10, untested: 100}, 7, flight{size: 7}},
		{"it holds no more than it did", flight{size: 10, untested: 50}, 12, flight{size: 10}},
		{"soon after the last one: a tenth less", flight{size: 20, untested: 99, soonInRow: 1}, 19, flight{size: 17, soonInRow: 2}},
		{"soon, with fewer in flight", flight{size: 20, untested: 99}, 15, flight{size: 13, soonInRow: 1}},
		{"one always goes", flight{size: 1, untested: 50}, 0, flight{size: 1}},
		{"in a test: the next one comes later", flight{size: 10, extra: 1, testAfter: 500, untested: 300, soonInRow: 1}, 10, flight{size: 10, testAfter: 1000, soonInRow: 1}},
		{"unless it carried as many as a block of a second and the refused size cost", flight{size: 10, proven: 10, extra: 1, testAfter: 500, untested: 300, over: 101}, 10, flight{size: 11, proven: 11, testAfter: 500}},
		{"but not with fewer", flight{size: 10, proven: 10, extra: 1, testAfter: 500, untested: 300, over: 100}, 10, flight{size: 10, proven: 10, testAfter: 1000}},
		{"up to a bound", flight{size: 10, extra: 1, testAfter: 3000}, 10, flight{size: 10, testAfter: maxTest}},
	} {
		got := tt.x
		if got.blame(&view{latency: 1e9, lastBlock: 500 * ms}, refusal{others: tt.others}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestRefusalsWithEverFewerInFlightContradictALimitOnThem(t *testing.T) {
	for _, tt := range []struct {
		size, to float64
		wrong    bool
		still    bool // after a test that confirmed one more
		count    float64
	}{
		{20, 15, false, false, 80},
		{20, 14, true, false, 80},
		{20, 13, true, true, 80},
		{20, 18, false, false, 79}, // doubtful
		{20, 17, true, false, 79},
		{3, 2, false, false, 12},
		{2, 1, false, false, 8},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.out.add(0, int(tt.size))
		l.holdFlight(&block{count: tt.count})
		x := l.flight()
		for x.size > tt.to {
			x.untested = 1000
			x.blame(l.look(), refusal{others: x.size - 1})
		}
		if x.wrong() != tt.wrong {
			t.Errorf("refused from %v down to %v in flight: wrong is %v, want %v", tt.size, tt.to, x.wrong(), tt.wrong)
		}
		x.extra, x.untested, x.over = 1, x.testAfter+1, 1
		x.answered(&view{open: time.Hour})
		if x.wrong() != tt.still {
			t.Errorf("%v in flight, and a test confirmed %v: wrong is %v, want %v", tt.size, x.size, x.wrong(), tt.still)
		}
	}
}
