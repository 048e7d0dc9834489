package learn

import (
	"testing"
	"time"
)

// A hundred attempts went by 100 s, one each second; of those in the last ten seconds ten filled a window
// of 10 s. The last long block ended at 40 s, the last one that no window explains at 20 s.
func TestWhatALongBlockBehindAKnownWindowIsPutDownTo(t *testing.T) {
	short := func(do func(*window)) *window {
		w := &window{size: amounts{10, 10, 0}, low: 10 * sec, high: 10 * sec, raise: 1, testAfter: 1, hits: sureHits + 1, off: doubtUnit}
		do(w)
		return w
	}
	longer := func(size float64) *window {
		return &window{size: amounts{size, size, 0}, low: 50 * sec, high: 60 * sec, raise: 1, testAfter: 1, lone: true, off: doubtUnit, released: 41 * sec, from: 900 * sec}
	}
	as := func(*window) {}
	for _, tt := range []struct {
		name   string
		limits []limit
		blamed int
		until  time.Duration
		do     func(*Law)
		want   int // the blamed one afterwards
		from   time.Duration
	}{
		{"it may be full still", []limit{short(as)}, 0, 113500*ms - 1, nil, 0, 40 * sec},
		{"it is over: no limit that is held", []limit{short(as)}, 0, 113500 * ms, nil, -1, 20 * sec},
		{"one by the clock", []limit{short(func(w *window) { w.clock = w.high })}, 0, 113500 * ms, nil, -1, 20 * sec},
		{"a longer one that was full", []limit{short(as), longer(59)}, 0, 113500 * ms, nil, 1, 41 * sec},
		{"that was not full", []limit{short(as), longer(90)}, 0, 113500 * ms, nil, -1, 20 * sec},
		{"a shorter one that was full", []limit{short(as), short(func(w *window) { w.high, w.low = 9*sec, 9*sec })}, 0, 113500 * ms, nil, -1, 20 * sec},
		{"too few refusals support it", []limit{short(func(w *window) { w.hits = sureHits - 2 })}, 0, time.Hour, nil, 0, 40 * sec},
		{"its length is not known", []limit{short(func(w *window) { w.low = 9 * sec })}, 0, time.Hour, nil, 0, 40 * sec},
		{"a penalty is", []limit{short(as)}, 0, time.Hour, func(l *Law) { l.penalty.length = sec }, 0, 40 * sec},
		{"a rate was blamed: the cause is longer", []limit{short(as), newRate(0, 1, 2)}, 1, 113500 * ms, nil, 1, 20 * sec},
		{"a limit in flight was blamed", []limit{short(as), &flight{size: 3}}, 1, 113500 * ms, nil, 1, 40 * sec},
		{"none was, and it may be full still", []limit{short(as)}, -1, 113500*ms - 1, nil, -1, 40 * sec},
		{"none was: longer than the one that is known", []limit{short(as)}, -1, 113500 * ms, nil, -1, 20 * sec},
		{"than all of them", []limit{short(as), short(func(w *window) { w.high, w.low = 30*sec, 30*sec })}, -1, 138 * sec, nil, -1, 40 * sec},
		{"none is known", []limit{longer(59)}, -1, time.Hour, nil, -1, 40 * sec},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock, l.since, l.limits = *sentEvenly(100*sec, sec, 100), 100*sec, 20*sec, tt.limits
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: tt.until, refusals: 2, from: 40 * sec, cost: 1}
		l.block.count = l.h.between(attempts, 40*sec, 100*sec)
		var before window
		if x := nth(tt.limits, tt.blamed); x != nil {
			if w, ok := x.(*window); ok {
				before = *w
			}
			l.block.blame(l.look(), x, refusal{sent: 100 * sec, now: 100 * sec, cost: 1})
		}
		if tt.do != nil {
			tt.do(l)
		}
		l.outlasted(tt.until)
		if l.block.blamed != nth(tt.limits, tt.want) || l.block.from != tt.from || l.block.count != l.h.between(attempts, tt.from, 100*sec) {
			t.Errorf("%s: blamed %+v from %v on, after %v attempts; want %d, %v", tt.name, l.block.blamed, l.block.from, l.block.count, tt.want, tt.from)
		}
		w, ok := nth(tt.limits, tt.blamed).(*window)
		if acquitted := tt.want != tt.blamed; ok && acquitted != (*w == before) {
			t.Errorf("%s: it has learned nothing %v, want %v", tt.name, *w == before, acquitted)
		}
		if x, ok := l.block.blamed.(*window); ok && tt.want != tt.blamed && (x.hits != 1 || l.block.window.hits != 0) {
			t.Errorf("%s: the longer one has %d refusals, and %d before", tt.name, x.hits, l.block.window.hits)
		}
	}
}

func TestALimitThatIsAcquittedIsAsBefore(t *testing.T) {
	x := &flight{size: 9, testAfter: 500, untested: 400}
	w := &window{size: amounts{9, 9, 0}, low: sec, high: sec, raise: 1.1, testAfter: 1}
	v := &view{now: 100 * sec, h: sentEvenly(100*sec, 100*ms, 20), latency: 1e8, mean: amounts{1, 1, 0}}
	f := refusal{sent: 100 * sec, now: 100 * sec, others: 5, cost: 1}
	for _, tt := range []struct {
		name   string
		limit  limit
		same   func() bool
		tested bool
	}{
		{"a limit in flight", x, func() bool { return *x == flight{size: 9, testAfter: 500, untested: 400} }, false},
		{"a window", w, func() bool {
			return *w == window{size: amounts{9, 9, 0}, low: sec, high: sec, raise: 1.1, testAfter: 1}
		}, true},
	} {
		var b block
		if b.blame(v, tt.limit, f); tt.same() || b.blamed != tt.limit || b.tested != tt.tested {
			t.Errorf("%s: blamed %v, it has learned nothing %v, in a test %v", tt.name, b.blamed, tt.same(), b.tested)
		}
		if b.acquit(); !tt.same() || b.blamed != nil {
			t.Errorf("%s: blamed %v, as before %v", tt.name, b.blamed, tt.same())
		}
	}
}

// A window is found in two blocks, which end at 11 and 22 s: a longer one may have begun before.
func TestWhenALongerWindowMayHaveBegun(t *testing.T) {
	for until, blocks := range map[time.Duration]int{14 * sec: 1, 30 * sec: 2} {
		l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour})
		drive(l, until, slidingOf(100, 10*sec))
		want := l.began
		if blocks == 1 {
			want = l.freed
		}
		if l.since != want || l.freed < 10*sec*time.Duration(blocks) {
			t.Errorf("after %d blocks: since %v, freed %v; want %v", blocks, l.since, l.freed, want)
		}
	}
}

// A short window, and a longer one behind it that allows a slower pace.
func TestALongerWindowIsFoundBehindAShortOne(t *testing.T) {
	part, refusals, runs := 0.0, 0, 0
	for _, tt := range []struct {
		size   int
		length time.Duration
		behind int
		long   time.Duration
	}{
		{100, 10 * sec, 2000, 10 * time.Minute},
		{30, 10 * sec, 1000, 10 * time.Minute},
		{60, time.Minute, 1000, time.Hour},
		{100, time.Minute, 2000, time.Hour},
		{120, time.Minute, 1500, 30 * time.Minute},
	} {
		for _, kind := range []string{"sliding", "clock", "first"} {
			of := func(size int, length time.Duration) func(time.Duration) bool {
				if kind == "sliding" {
					return slidingOf(float64(size), length)
				}
				return fixedOf(size, length, kind == "first")
			}
			l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour})
			admitted, refused := drive(l, 6*tt.long, both(of(tt.size, tt.length), of(tt.behind, tt.long)))
			got := float64(admitted) / float64(6*tt.behind)
			if got < 0.6 || refused > 60 {
				t.Errorf("%v in %v behind %v in %v, %s: %.3f of what is allowed, %d refused; holds %s", tt.behind, tt.long, tt.size, tt.length, kind, got, refused, held(l))
			}
			part, refusals, runs = part+got, refusals+refused, runs+1
		}
	}
	if part /= float64(runs); part < 0.95 || refusals > 30*runs {
		t.Errorf("%.3f of what is allowed, %.1f refused", part, float64(refusals)/float64(runs))
	}
}

func TestNoPenaltyFollowedALimitInFlightThatAShortBlockShowed(t *testing.T) {
	for release, want := range map[time.Duration]bool{101 * sec: true, 160 * sec: false} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock = *sentEvenly(100*sec, sec, 100), release
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: release, refusals: 1, pace: 4}
		l.out.add(100*sec, 7)
		l.crowd.evidence, l.weighed = 5, 2
		l.ended(l.look())
		if x := l.flight(); x == nil || x.brief != want {
			t.Errorf("released at %v: holds %+v, want %v", release, x, want)
		}
	}
}
