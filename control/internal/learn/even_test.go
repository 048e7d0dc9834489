package learn

import (
	"testing"
	"time"
)

func TestAWindowCountedInPeriodsIsDroppedIfItRefusesTooOften(t *testing.T) {
	w := &window{counted: true, size: amounts{60, 0, 0}, low: time.Minute, high: time.Minute, raise: 1, testAfter: 1}
	v := &view{now: time.Hour, h: sentEvenly(time.Hour, sec, 60), mean: amounts{1, 1, 0}, lastBlock: sec, open: 10 * sec}
	f := refusal{sent: v.now, now: v.now, cost: 1}
	for i := range maxEarly + 1 {
		if !w.ended(v, &block{}) {
			t.Fatalf("it was dropped after %d refusals", i)
		}
		w.blame(v, f)
	}
	if w.ended(v, &block{}) || w.size[attempts] != 60 || w.margin == 0 {
		t.Errorf("it is kept, with %v and a margin of %v", w.size, w.margin)
	}
	v.open = 61 * sec // a minute without a refusal
	if w.blame(v, f); !w.ended(v, &block{}) {
		t.Error("a refusal after more than its length is counted with those before")
	}
	margin := w.margin
	w.raise = 1.1
	if w.blame(v, f); w.margin != margin || w.testAfter != testGrowth {
		t.Errorf("after a test that failed the margin is %v, was %v; the next comes after %v", w.margin, margin, w.testAfter)
	}
}

func TestALateAttemptOfAWindowCountedInPeriodsDelaysNoneAfterIt(t *testing.T) {
	for _, tt := range []struct {
		name string
		late time.Duration // the 50th of 100 attempts
		want time.Duration // when the last one goes
	}{
		{"in time", 0, 100 * sec},
		{"two intervals late", 2 * sec, 100 * sec},
		{"later than a part of the length", 10 * sec, 108800 * ms},
	} {
		w := &window{counted: true, size: amounts{60, 0, 0}, low: time.Minute, high: time.Minute, raise: 1, due: sec}
		h, now := &history{}, time.Duration(0)
		for i := range 100 {
			v := &view{now: now, last: now, h: h, mean: amounts{1, 1, 0}}
			if now = w.free(v, 1); i == 49 {
				now += tt.late
			}
			h.add(now, amounts{1, 1, 0})
			w.sent(now, 1)
		}
		if (now - tt.want).Abs() > 1100*ms {
			t.Errorf("%s: the last one goes at %v, want %v", tt.name, now, tt.want)
		}
	}
}

func TestASlidingWindowIsUsedEvenlyOnceItIsConfirmed(t *testing.T) {
	now := 100 * sec
	for _, tt := range []struct {
		name string
		w    window
		want time.Duration // until the next attempt of ten a minute
	}{
		{"confirmed", window{hits: 2}, 6 * sec},
		{"refused once", window{hits: 1}, 4800 * ms},
		{"lone", window{hits: 2, lone: true, floor: time.Minute}, 4800 * ms},
		{"it seems fixed", window{hits: 2, fixed: true}, 4800 * ms},
		{"it begins with the clock", window{hits: 2, clock: time.Minute}, 4800 * ms},
		{"published", window{hits: 2, published: true}, 4800 * ms},
		{"of cost", window{hits: 2, unit: cost}, 4800 * ms},
	} {
		w := tt.w
		w.size, w.low, w.high, w.raise = amounts{10, 10, 10}, time.Minute, time.Minute, 1
		v := &view{now: now, last: now, h: sentEvenly(now, sec, 1), mean: amounts{1, 1, 1}}
		if got := w.free(v, 1) - now; got != tt.want {
			t.Errorf("%s: the next attempt in %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestWhichRefusalsShowThatAWindowIsFixed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cycle  float64 // attempts since the release, of which 10 went before the first block
		opened time.Duration
		w      window
		want   bool
	}{
		{"as many", 10, 50 * sec, window{}, true},
		{"as many, at the end of the window", 10, 40 * sec, window{}, true},
		{"fewer", 8, 50 * sec, window{fixed: true}, false},
		{"more", 12, 50 * sec, window{fixed: true}, false},
		{"after the end of the window nothing is known: still fixed", 10, 39 * sec, window{fixed: true}, true},
		{"after the end of the window nothing is known: still sliding", 10, 39 * sec, window{}, false},
		{"in a test: still fixed", 8, 50 * sec, window{fixed: true, raise: 1.1}, true},
		{"in a test: still sliding", 10, 50 * sec, window{raise: 1.1}, false},
		{"used evenly a sliding one may refuse after as many", 10, 50 * sec, window{hits: 2}, false},
		{"a fixed one is not used evenly", 8, 50 * sec, window{hits: 2, fixed: true}, false},
	} {
		w := tt.w
		w.size, w.low, w.high, w.raise, w.testAfter, w.first = amounts{10, 10, 10}, time.Minute, time.Minute, max(1, w.raise), 1, 10
		v := &view{now: 100 * sec, last: 100 * sec, h: sentEvenly(100*sec, 5*sec, 10), mean: amounts{1, 1, 1}}
		if w.blame(v, refusal{sent: 100 * sec, cost: 1, opened: tt.opened, cycle: tt.cycle}); w.fixed != tt.want {
			t.Errorf("%s: fixed %v, want %v", tt.name, w.fixed, tt.want)
		}
	}
}
