package learn

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// played returns the history and the blocks of a client that sends at changing paces and,
// after a refusal, probes each second.
func played(until time.Duration, pace func(time.Duration) time.Duration, admits func(time.Duration) bool) (*history, []block) {
	h, blocks := &history{}, []block(nil)
	var b *block
	a := amounts{1, 1, 0}
	for now := 25 * sec; now < until; {
		switch ok := admits(now); {
		case ok && b != nil:
			b.release = now
			blocks, b = append(blocks, *b), nil
			h.add(now, a)
		case ok:
			h.add(now, a)
		case b != nil:
			b.lastRefused = now
			b.refusals++
		default:
			b = &block{began: now, noticed: now, lastRefused: now, refusals: 1, pace: 10}
		}
		if b != nil {
			now += sec
		} else {
			now += pace(now)
		}
	}
	return h, blocks
}

// fixedOf admits size attempts between two fixed instants: by the clock or, with first,
// from the first attempt after the last window.
func fixedOf(size int, length time.Duration, first bool) func(time.Duration) bool {
	n, end := 0, time.Duration(0)
	return func(now time.Duration) bool {
		if now >= end {
			n, end = 0, now-now%length+length
			if first {
				end = now + length
			}
		}
		n++
		return n <= size
	}
}

// slidingOf admits size attempts in any period of a length.
func slidingOf(size float64, length time.Duration) func(time.Duration) bool {
	var h history
	return func(now time.Duration) bool {
		if h.used(attempts, now, length)+1 > size {
			return false
		}
		h.add(now, amounts{1, 1, 0})
		return true
	}
}

// countedOf admits as proxies do that count a window in periods, from the first attempt on:
// attempts of the period before leave it evenly. Refused attempts count.
func countedOf(size float64, length time.Duration) func(time.Duration) bool {
	began, prior, n := -length, 0.0, 0.0
	return func(now time.Duration) bool {
		switch since := now - began; {
		case since >= 2*length:
			began, prior, n = now, 0, 0
		case since >= length:
			began, prior, n = began+length, n, 0
		}
		n++
		return math.Floor(prior*float64(began+length-now)/float64(length)+n) <= size
	}
}

// bucketAt admits at a rate, with a burst.
func bucketAt(rate, burst float64) func(time.Duration) bool {
	tokens, filled := burst, time.Duration(0)
	return func(now time.Duration) bool {
		tokens, filled = min(burst, tokens+rate*(now-filled).Seconds()), now
		if tokens < 1 {
			return false
		}
		tokens--
		return true
	}
}

// wavering returns a slowly changing interval from 70 ms to 210 ms.
func wavering(now time.Duration) time.Duration {
	return 140*ms + time.Duration(70*math.Sin(now.Seconds()/3)*float64(ms))
}

func TestAPeriodIsFoundInTheBlocksThatItEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		admits func(time.Duration) bool
		length time.Duration // 0: none
		size   float64
		clock  bool
	}{
		{"a minute of the clock", fixedOf(200, time.Minute, false), time.Minute, 200, true},
		{"17 seconds from the first attempt", fixedOf(100, 17*sec, true), 17 * sec, 100, false},
		{"a bucket ends its blocks at no fixed instants", bucketAt(7, 10), 0, 0, false},
		{"nor does a sliding window that is used evenly", slidingOf(100, 14*sec), 0, 0, false},
	} {
		h, blocks := played(4*time.Minute, wavering, tt.admits)
		var s spans
		var found period
		for i := range blocks[:min(len(blocks), 5)] {
			s.add(&blocks[i], 1)
			if p, ok := s.period(view{now: blocks[i].release, h: h, mean: amounts{1, 1, 0}}); ok {
				found = p
			}
		}
		if math.Abs(float64(found.length-tt.length)) > 0.1*float64(tt.length) || math.Abs(found.size-tt.size) > 0.03*tt.size || found.clock != tt.clock {
			t.Errorf("%s: %+v in %d blocks", tt.name, found, len(blocks))
		}
	}
}

func TestAWindowIsFoundIfTheSameAmountWasInUseAtEachRefusal(t *testing.T) {
	length := lengthOf(12)
	for _, tt := range []struct {
		name   string
		before []int     // attempts early in each cycle of 20 s
		early  []int     // of the hundred in the window before the refusal, in its first half
		each   []float64 // what an attempt costs
		unit   unit
		ok     bool
	}{
		{"by attempts", []int{0, 40, 10, 70, 60, 20}, []int{20, 80, 50, 35, 65, 10}, []float64{1, 1, 1, 1, 1, 1}, attempts, true},
		{"one rate explains it", []int{40, 40, 40, 40, 40, 40}, []int{20, 80, 50, 35, 65, 10}, []float64{1, 1, 1, 1, 1, 1}, attempts, false},
		{"too few blocks", []int{0, 40, 10}, []int{20, 80, 50}, []float64{1, 1, 1}, attempts, false},
	} {
		h, es, v := &history{}, episodes{}, view{mean: amounts{1, 1, 0}}
		v.h = h
		send := func(from, length time.Duration, n int, each float64) {
			for i := range n {
				h.add(from+time.Duration(i)*length/time.Duration(n), amounts{1, each, 0})
			}
		}
		ok, u, found, size := false, attempts, time.Duration(0), 0.0
		for i := range tt.before {
			at := time.Duration(20*i) * sec
			send(at, 4*sec, tt.before[i], tt.each[i])
			send(at+8*sec, length/2, tt.early[i], tt.each[i])
			send(at+8*sec+length/2, length/2, 100-tt.early[i], tt.each[i])
			b := block{began: at + 8*sec + length - ms, cost: tt.each[i]}
			b.lastRefused, b.release = b.began, b.began+sec
			v.now = b.release
			es.add(v, &b)
			u, found, size, ok = es.window(v)
		}
		if ok != tt.ok || ok && (u != tt.unit || found != length || math.Abs(size-100) > 1) {
			t.Errorf("%s: %v, %.1f of unit %d in %v", tt.name, ok, size, u, found)
		}
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
		w.climb, w.testAfter, w.size, w.hits = 1, 1, amounts{10, 0, 0}, 6
		if w.proven[attempts] > 0 {
			w.size[attempts] = 13
		}
		v := view{now: time.Hour, h: sentEvenly(time.Hour, 5*sec, tt.used), mean: amounts{1, 1, 0}}
		w.blame(v, refusal{sent: v.now, now: v.now, cost: 1})
		if math.Abs(w.size[attempts]-tt.size) > 0.01 || w.usable() != tt.room || w.margin > 0 != tt.margin {
			t.Errorf("%s: size %.2f, room %.2f, margin %.3f", tt.name, w.size[attempts], w.usable(), w.margin)
		}
	}
}

func TestACanaryWaitsForTheEndOfAConfiguredWindow(t *testing.T) {
	minute := New(Config{Ceiling: 1, Initial: 1, Windows: []time.Duration{time.Minute}}).likely
	late := minute.configured()[0] / 500
	for _, tt := range []struct {
		name   string
		b      block
		likely *candidates
		now    time.Duration
		want   time.Duration
	}{
		{"which the last release began", block{refusals: 3, wait: 9 * sec, began: 75 * sec}, minute, 88 * sec, 22*sec + late},
		{"which the clock ends", block{refusals: 4, wait: 9 * sec, began: 75 * sec}, minute, 112 * sec, 8*sec + late},
		{"which the refused attempt began", block{refusals: 5, wait: 9 * sec, began: 75 * sec}, minute, 125 * sec, 10*sec + late},
		{"once all have ended as before", block{refusals: 6, wait: 9 * sec, began: 75 * sec}, minute, 140 * sec, 9 * sec},
		{"the second canary, too", block{refusals: 2, wait: 9 * sec, began: 75 * sec}, minute, 88 * sec, 22*sec + late},
		{"the first goes as always", block{refusals: 1, wait: 9 * sec, began: 75 * sec}, minute, 88 * sec, 9 * sec},
		{"not for more than five times as long as otherwise", block{refusals: 2, wait: 6823 * ms, began: 75 * sec}, minute, 76 * sec, 6823 * ms},
		{"but for as long", block{refusals: 2, wait: 6824 * ms, began: 75 * sec}, minute, 76 * sec, 34*sec + late},
		{"in a second", block{refusals: 2, wait: 9 * sec, began: 75 * sec}, minute, 109*sec + late, sec},
		{"no sooner", block{refusals: 2, wait: 9 * sec, began: 75 * sec}, minute, 109*sec + late + 1, 11*sec - 1},
		{"not under a penalty", block{refusals: 3, wait: 9 * sec, began: 75 * sec, punished: true}, minute, 88 * sec, 9 * sec},
		{"not in an outage", block{refusals: 3, wait: 9 * sec, began: 75 * sec, outage: true}, minute, 88 * sec, 9 * sec},
		{"not in a block that an advertised limit explains", block{refusals: 3, wait: 9 * sec, began: 75 * sec, explained: true}, minute, 88 * sec, 9 * sec},
		{"nor if none is configured", block{refusals: 3, wait: 9 * sec, began: 75 * sec}, nil, 88 * sec, 9 * sec},
	} {
		p := canaryPlan{block: &tt.b, now: tt.now, from: 50 * sec, likely: tt.likely}
		if got := p.awaits(tt.b.wait); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestAConfiguredLengthIsBelievedSooner: one of 70 s is none of the usual ones.
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
		l.block = block{began: 30 * sec, noticed: 30 * sec, lastRefused: 40 * sec, release: 72 * sec, pace: 1, refusals: 4, blamed: -1}
		l.ended(l.view())
		w := l.limits[0].(*window)
		if got := w.length(l.clock); configured != (got == 70*sec) || !configured && got != 72*sec || w.size[attempts] != 30 {
			t.Errorf("configured %v: %v of %v, want 30 in 70s or in 72s", configured, w.size[attempts], got)
		}
	}
}

func TestACanaryHalvesTheBracketUnlessAUsualInstantIsInIt(t *testing.T) {
	b := block{began: 100 * sec}
	some := New(Config{Ceiling: 1, Initial: 1, Windows: []time.Duration{23 * sec, 15 * sec}}).likely
	for _, tt := range []struct {
		low, high, want time.Duration
		likely          *candidates
	}{
		{110 * sec, 130 * sec, 120*sec + 120*ms, nil}, // two minutes of the clock
		{110 * sec, 130 * sec, 123 * sec, some},       // a configured length, and the first of two
		{111 * sec, 114 * sec, 112500 * ms, nil},
		{90 * sec, 95 * sec, 100 * sec, nil}, // over
	} {
		p := canaryPlan{block: &b, now: 100 * sec, likely: tt.likely}
		if got := p.within(tt.low, tt.high); (got - tt.want).Abs() > 130*ms {
			t.Errorf("from %v to %v: at %v, want %v", tt.low, tt.high, got, tt.want)
		}
	}
	for _, tt := range []struct {
		name                         string
		began, low, high, from, want time.Duration
		phase                        time.Duration
	}{
		{"two minutes after the last release", 100 * sec, 156 * sec, 159 * sec, 37 * sec, 157240 * ms, 0},
		{"just too early", 100 * sec, 157240 * ms, 159240 * ms, 37 * sec, 158240 * ms, 0},
		{"just too late", 100 * sec, 155240 * ms, 157240 * ms, 37 * sec, 156240 * ms, 0},
		{"which comes before one after the refused attempt", 38 * sec, 156 * sec, 160 * sec, 37 * sec, 157240 * ms, 0},
		{"after the refused attempt", 38 * sec, 158 * sec, 160 * sec, 37 * sec, 158240 * ms, 0},
		{"by the clock", 100 * sec, 106 * sec, 109 * sec, 0, 107240 * ms, 13 * sec},
		{"nothing is left of it", 100 * sec, 110 * sec, 110 * sec, 0, 100 * sec, 0},
	} {
		b.began = tt.began
		p := canaryPlan{block: &b, now: 100 * sec, from: tt.from, phase: tt.phase}
		if got := p.within(tt.low, tt.high); got != tt.want {
			t.Errorf("%s: at %v, want %v", tt.name, got, tt.want)
		}
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
		if got := w.calm(view{lastBlock: 1, open: seconds(tt.calm), punished: tt.punished}); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	for _, tt := range []struct {
		size, want float64 // attempts a minute; the maximum number of attempts before a test
	}{{10, minTest}, {100, 1500}, {1000, maxTest}} {
		w := &window{size: amounts{tt.size, 0, 0}, low: time.Minute, high: time.Minute}
		if got := w.maxUntested(view{mean: amounts{1, 1, 1}}); math.Abs(got-tt.want) > 1 {
			t.Errorf("of %v a minute it is tested after %v attempts, want %v", tt.size, got, tt.want)
		}
	}
}

// Work is the time of a response beyond the round trip.
func TestAWarmStartMeasuresWorkAsBefore(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: ms, Slowest: time.Hour})
	if err := l.Restore(Stored{Found: []Found{{Kind: Window, Unit: uint8(busy), Size: 0.08, Window: 10 * sec}}, Trip: 90 * ms}, ms); err != nil {
		t.Fatal(err)
	}
	n, now := 0, time.Duration(0)
	for ; now < 100*sec; n++ {
		now = l.Hold(now, 1)
		l.Sent(now, 1)
		now += 100 * ms
		l.Observe(Outcome{Sent: now - 100*ms, Now: now, Class: Admitted})
	}
	if n < 70 || n > 120 { // it is tested, too
		t.Errorf("%d attempts in 100 s, want 80 or some more: each works for 10 ms", n)
	}
	if got := l.Store().Trip; got != 90*ms {
		t.Errorf("a trip of %v is stored", got)
	}
}

func TestALengthShrinksFromTheBlockOn(t *testing.T) {
	for silence, fold := range map[time.Duration]time.Duration{8 * sec: minFold, 400 * sec: 100 * sec, 800 * sec: 2 * time.Minute} {
		w := newWindow(7*sec, amounts{10, 20, 0}, sec, 40*sec, 60*sec, silence, 5)
		if *w != (window{size: amounts{10, 20, 0}, off: doubtUnit, low: 40 * sec, high: 60 * sec, from: 7 * sec, fold: fold, climb: 1, testAfter: 1, lone: true, floor: sec, pace: 5}) {
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
		w := &window{size: amounts{10, 100, 0}, off: tt.off, low: time.Minute, high: time.Minute, climb: 1, hits: tt.hits}
		now := time.Hour + 14*sec
		w.blame(view{now: now, h: h, mean: amounts{1, 7, 0}}, refusal{sent: now, now: now})
		if w.unit != tt.want {
			t.Errorf("%s: unit %d, want %d", tt.name, w.unit, tt.want)
		}
	}
}

func TestNoLimitHoldsBackForMoreThanADay(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	if err := l.Restore(Stored{Found: []Found{{Kind: Window, Size: 1, Window: 2 * maxSilence}}}, sec); err != nil {
		t.Fatal(err)
	}
	l.Sent(sec, 1)
	l.Observe(Outcome{Sent: sec, Now: 2 * sec, Class: Admitted})
	if at := l.Hold(2*sec, 1); at != sec+maxSilence {
		t.Errorf("the next attempt goes at %v, want a day after the last", at)
	}
}

func TestAWindowCountedInPeriodsIsFoundAndPacedEvenly(t *testing.T) {
	for _, tt := range []struct {
		name   string
		size   float64
		length time.Duration
		admits func(time.Duration) bool
		even   bool
		least  float64 // the part of what is allowed that is admitted
	}{
		{"100 in 10 s", 100, 10 * sec, countedOf(100, 10*sec), true, 0.96},
		{"60 a minute", 60, time.Minute, countedOf(60, time.Minute), true, 0.96},
		{"a sliding window", 100, 10 * sec, slidingOf(100, 10*sec), false, 0.9},
		{"a window by the clock", 60, time.Minute, fixedOf(60, time.Minute, false), false, 0.9},
	} {
		l := New(Config{Ceiling: 5 * ms, Initial: sec, Slowest: time.Hour})
		until := 20 * tt.length
		admitted, refused := drive(l, until, tt.admits)
		if least := tt.least * tt.size * 20; float64(admitted) < least || tt.even && refused > 10 {
			t.Errorf("%s: %d admitted, want %.0f; %d refused", tt.name, admitted, least, refused)
		}
		f := l.Binding()
		if f.Kind != Window || f.Even != tt.even || math.Abs(f.Size/tt.size-1) > 0.05 || math.Abs(f.Window.Seconds()/tt.length.Seconds()-1) > 0.05 {
			t.Errorf("%s: holds %+v", tt.name, f)
		}
		again := New(l.cfg)
		if err := again.Restore(l.Store(), l.Interval()); err != nil || again.Binding().Even != tt.even {
			t.Errorf("%s: restored %+v, %v", tt.name, again.Binding(), err)
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
			if b := l.Binding(); b.Kind != Window || b.Window != time.Minute || admitted < 1940 || refused > 12 {
				t.Errorf("%s, the clock is at %d: %d admitted, want 1940 of 2040; %d refused; holds %+v", name, phase, admitted, refused, b)
			}
		}
	}
}

// both admits what two limits admit.
func both(a, b func(time.Duration) bool) func(time.Duration) bool {
	return func(now time.Duration) bool {
		x, y := a(now), b(now)
		return x && y
	}
}

func TestAWindowThatIsFullIsCountedInPeriodsIfTwoBlocksSaySo(t *testing.T) {
	for _, tt := range []struct {
		name string
		size float64       // that the window is held with, in hundreds; some 45 were sent in its length
		many int           // attempts, in hundreds
		next time.Duration // the refusal after the first at 5 seconds
		even bool
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
		v := view{now: tt.next, h: &l.h, mean: amounts{1, 1, 0}}
		l.blameCounted(v, refusal{sent: tt.next, now: tt.next, cost: 1})
		if w.even != tt.even || w.even && (w.high != 10*sec || w.size[attempts] != 100*float64(tt.many)) {
			t.Errorf("%s: even %v, %v in %v", tt.name, w.even, w.size[attempts], w.high)
		}
	}
}

func TestAWindowWhoseUnitsReturnEvenlyIsDroppedIfItRefusesTooOften(t *testing.T) {
	w := &window{even: true, size: amounts{60, 0, 0}, low: time.Minute, high: time.Minute, climb: 1, testAfter: 1}
	v := view{now: time.Hour, h: sentEvenly(time.Hour, sec, 60), mean: amounts{1, 1, 0}, lastBlock: 1, open: 10 * sec}
	f := refusal{sent: v.now, now: v.now, cost: 1}
	for i := range maxUneven + 1 {
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
	w.climb = 1.1
	if w.blame(v, f); w.margin != margin || w.testAfter != testGrowth {
		t.Errorf("after a test that failed the margin is %v, was %v; the next comes after %v", w.margin, margin, w.testAfter)
	}
}

func TestALateAttemptOfAnEvenWindowDelaysNoneAfterIt(t *testing.T) {
	for _, tt := range []struct {
		name string
		late time.Duration // the 50th of 100 attempts
		want time.Duration // when the last one goes
	}{
		{"in time", 0, 100 * sec},
		{"two intervals late", 2 * sec, 100 * sec},
		{"later than a part of the length", 10 * sec, 108800 * ms},
	} {
		w := &window{even: true, size: amounts{60, 0, 0}, low: time.Minute, high: time.Minute, climb: 1, due: sec}
		h, now := &history{}, time.Duration(0)
		for i := range 100 {
			v := view{now: now, last: now, h: h, mean: amounts{1, 1, 0}}
			if now = w.free(v, 1); i == 49 {
				now += tt.late
			}
			h.add(now, amounts{1, 1, 0})
			w.sent(now)
		}
		if (now - tt.want).Abs() > 1100*ms {
			t.Errorf("%s: the last one goes at %v, want %v", tt.name, now, tt.want)
		}
	}
}

// A refusal at 1000 s, with attempts of cost 3 sent each second before.
func TestWhatAWindowLearnsFromARefusal(t *testing.T) {
	const now = 1000 * sec
	known := window{size: amounts{20, 60, 0}, off: amounts{0.1, 0.1, 0.1}, low: 20 * sec, high: 20 * sec, climb: 1, testAfter: 2, untested: 9, hits: 3, margin: 0.01, published: true}
	for _, tt := range []struct {
		name string
		do   func(*window)
		want string
	}{
		{"full, as predicted", func(*window) {},
			"size 20.00 60.45, off 0.060 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"more was in use than it holds: half of that is believed", func(w *window) { w.size[attempts] = 19.5 },
			"size 19.75 60.45, off 0.070 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"by far more: all of it is", func(w *window) { w.size[attempts] = 18 },
			"size 20.00 60.45, off 0.104 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"less was in use: a third of that is believed", func(w *window) { w.size[attempts] = 25 },
			"size 23.50 60.45, off 0.140 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"a third unit that has no size yet", func(w *window) { w.size[cost], w.off[cost] = 0, 0.01 },
			"size 20.00 60.00, off 0.060 0.060, margin 0.018, next test 2, unit 0, proven 0"},
		{"at the second refusal it does not", func(w *window) { w.size[attempts], w.hits = 25, 1 },
			"size 23.50 60.45, off 0.140 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"another unit is somewhat better", func(w *window) { w.off[attempts] = 0.15 },
			"size 20.00 60.45, off 0.090 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"hardly better", func(w *window) { w.off[attempts] = 0.13 },
			"size 20.00 60.45, off 0.078 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"a larger one was tested, and less was in use: what was proven stays", func(w *window) { w.size[attempts], w.climb, w.proven = 25, 1.1, amounts{15, 15, 0} },
			"size 23.50 60.45, off 0.140 0.070, margin 0.005, next test 5, unit 1, proven 15"},
		{"a single block says that the length is settled", func(w *window) { w.lone, w.low, w.floor, w.fold = true, 19300*ms, 5*sec, sec },
			"size 20.00 60.45, off 0.060 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"the assumed length was hardly shorter", func(w *window) { w.low, w.from, w.fold = 17*sec, now-105*ms, sec },
			"size 20.00 60.00, off 0.060 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"at the first refusal the unit stays", func(w *window) { w.size[attempts], w.hits = 25, 0 },
			"size 23.50 60.45, off 0.140 0.070, margin 0.018, next test 2, unit 0, proven 0"},
		{"it was tested: the next test comes later", func(w *window) { w.climb = 1.1 },
			"size 20.00 60.45, off 0.060 0.070, margin 0.005, next test 5, unit 0, proven 20"},
		{"and much later", func(w *window) { w.climb, w.testAfter = 1.1, 3000 },
			"size 20.00 60.45, off 0.060 0.070, margin 0.005, next test 4000, unit 0, proven 20"},
		{"what a test had raised before stays proven", func(w *window) { w.climb, w.proven = 1.1, amounts{15, 15, 0} },
			"size 20.00 60.45, off 0.060 0.070, margin 0.005, next test 5, unit 0, proven 15"},
		{"the raised size is not enough: back to the proven one", func(w *window) { w.size[attempts], w.proven = 25, amounts{16, 48, 5} },
			"size 16.00 48.00, off 0.140 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"more than the proven one is in use", func(w *window) { w.size[attempts], w.proven = 25, amounts{24, 72, 0} },
			"size 23.50 60.45, off 0.140 0.070, margin 0.018, next test 2, unit 1, proven 0"},
		{"the raised size holds", func(w *window) { w.proven = amounts{16, 48, 0} },
			"size 20.00 60.45, off 0.060 0.070, margin 0.018, next test 2, unit 0, proven 16"},
		{"a margin has a bound", func(w *window) { w.margin = 0.14 },
			"size 20.00 60.45, off 0.060 0.070, margin 0.150, next test 2, unit 0, proven 0"},
		{"a length that is not settled: the size stays", func(w *window) { w.high = 21 * sec },
			"size 20.00 60.00, off 0.060 0.070, margin 0.010, next test 2, unit 0, proven 0"},
		{"the assumed length was too short", func(w *window) { w.high, w.fold = 40*sec, sec },
			"size 20.00 60.00, off 0.060 0.070, margin 0.010, next test 2, unit 0, proven 0"},
		{"it was the longest possible", func(w *window) { w.high, w.from = 40*sec, now },
			"size 20.00 60.00, off 0.460 0.460, margin 0.018, next test 2, unit 0, proven 0"},
	} {
		w := known
		w.size[busy] = 5 // of which nothing is used
		tt.do(&w)
		h := &history{}
		for i := range 1000 {
			h.add(time.Duration(i+1)*sec, amounts{1, 3, 0})
		}
		w.blame(view{now: now, h: h, mean: amounts{1, 3, 0}}, refusal{sent: now, now: now, cost: 3})
		got := fmt.Sprintf("size %.2f %.2f, off %.3f %.3f, margin %.3f, next test %.0f, unit %d, proven %.0f", w.size[0], w.size[1], w.off[0], w.off[1], w.margin, w.testAfter, w.unit, w.proven[0])
		if got != tt.want || w.climb != 1 || w.untested != 0 || w.published || w.size[busy] != 5 {
			t.Errorf("%s: %s, want %s; %+v", tt.name, got, tt.want, w)
		}
	}
}

// A window of 20 attempts in some 20 s was filled at ten a second until 100 s.
func TestWhatAWindowLearnsFromTheEndOfABlock(t *testing.T) {
	known := window{size: amounts{20, 40, 0}, low: 18 * sec, high: 20 * sec, climb: 1, hits: 3, doubts: 1, floor: 5 * sec}
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
		{"a little later", func(*window) {}, 20200 * ms, 21 * sec, true, "unit 0, 18.0s-20.0s, 0 doubts"},
		{"at the upper bound", func(*window) {}, 20 * sec, 21 * sec, true, "unit 0, 20.0s-20.0s, 0 doubts"},
		{"a little later, where few fit", func(w *window) { w.size = amounts{3, 0, 0} }, 21900 * ms, 22700 * ms, true, "unit 0, 20.0s-20.4s, 0 doubts"},
		{"where few fit, just at the upper bound", func(w *window) { w.size = amounts{3, 0, 0} }, 21700 * ms, 22700 * ms, true, "unit 0, 20.0s-20.0s, 0 doubts"},
		{"where few fit, for one canary", func(w *window) { w.size = amounts{3, 0, 0} }, 21900 * ms, 21910 * ms, true, "unit 0, 20.0s-20.2s, 0 doubts"},
		{"four are not few", func(w *window) { w.size = amounts{4, 0, 0} }, 21800 * ms, 22700 * ms, true, "unit 0, 18.0s-20.0s, 0 doubts"},
		{"too early", func(*window) {}, 10 * sec, 14 * sec, false, "unit 0, 18.0s-20.0s, 2 doubts"},
		{"just not too early", func(*window) {}, 10 * sec, 16 * sec, true, "unit 0, 18.0s-20.0s, 0 doubts"},
		{"just too early, by any size", func(*window) {}, 10 * sec, 15790 * ms, false, "unit 0, 18.0s-20.0s, 2 doubts"},
		{"too late", func(*window) {}, 25 * sec, 26 * sec, false, "unit 0, 18.0s-20.0s, 2 doubts"},
		{"just not too late", func(*window) {}, 22 * sec, 26 * sec, true, "unit 0, 18.0s-20.0s, 0 doubts"},
		{"too late, but not if some more fit", func(*window) {}, 22200 * ms, 26 * sec, true, "unit 0, 18.0s-20.0s, 0 doubts"},
		{"too early by attempts, but not by cost", func(w *window) { w.size[cost] = 120 }, 10 * sec, 14 * sec, true, "unit 1, 18.0s-18.0s, 0 doubts"},
		{"the unit is sure", func(w *window) { w.size[cost], w.hits = 120, sureHits }, 10 * sec, 14 * sec, false, "unit 0, 18.0s-20.0s, 2 doubts"},
		{"a cost without a size", func(w *window) { w.size[cost] = 0 }, 10 * sec, 14 * sec, false, "unit 0, 18.0s-20.0s, 2 doubts"},
		{"one of a single block", func(w *window) { w.lone = true }, 18500 * ms, 19500 * ms, true, "unit 0, 18.5s-19.5s, 0 doubts"},
		{"one of a single block, too early", func(w *window) { w.lone = true }, 10 * sec, 14 * sec, true, "unit 0, 9.8s-13.8s lone, 2 doubts, from 3.3s"},
		{"whatever cost says", func(w *window) { w.lone, w.size[cost] = true, 10 }, 10 * sec, 14 * sec, true, "unit 0, 9.8s-13.8s lone, 2 doubts, from 3.3s"},
		{"at once", func(w *window) { w.lone = true }, 1900 * ms, 2500 * ms, true, "unit 0, 1.7s-2.3s lone, 2 doubts, from 0.6s"},
		{"in less than a second", func(w *window) { w.lone, w.size = true, amounts{2, 0, 0} }, 1900 * ms, 2 * sec, true, "unit 0, 0.2s-0.2s lone, 2 doubts, from 0.3s"},
		{"that early again", func(w *window) { w.lone, w.doubts = true, 2 }, 10 * sec, 14 * sec, false, "unit 0, 18.0s-20.0s lone, 3 doubts, from 5.0s"},
		{"one of a single block, too late", func(w *window) { w.lone = true }, 25 * sec, 26 * sec, false, "unit 0, 18.0s-20.0s lone, 2 doubts, from 5.0s"},
		{"by the clock", func(w *window) { w.clock, w.low = 20*sec, 20*sec }, 19900 * ms, 22900 * ms, true, "unit 0, 20.0s-20.0s, 0 doubts, by the clock"},
		{"not by the clock, after all", func(w *window) { w.clock, w.low = 20*sec, 20*sec }, 21900 * ms, 23900 * ms, true, "unit 0, 20.0s-20.0s, 0 doubts"},
		{"evenly", func(w *window) { w.even = true }, 18 * sec, 19 * sec, true, "unit 0, 18.0s-20.0s, 1 doubts, next in 1s"},
	} {
		w := known
		tt.do(&w)
		h := sentEvenly(100*sec, 100*ms, 200)
		for i := range h.sum {
			h.sum[i][cost] *= 2
		}
		b := &block{began: 100 * sec, noticed: 100 * sec, lastRefused: 98100*ms + tt.last, release: 98100*ms + tt.release, refusals: 1}
		v := view{now: b.release, h: h, mean: amounts{1, 2, 0}}
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
		if w.even {
			got += fmt.Sprintf(", next in %v", w.due-v.now)
		} else if agrees != (w.from == v.now) && w.clock == 0 {
			t.Errorf("%s: its length shrinks from %v on", tt.name, w.from)
		}
		if agrees != tt.agrees || got != tt.want || w.clock < 0 {
			t.Errorf("%s: agrees %v, %s; want %v, %s", tt.name, agrees, got, tt.agrees, tt.want)
		}
	}
	w := window{lone: true, low: 18 * sec, high: 20 * sec, size: amounts{20, 20, 0}}
	if w.shorter(view{now: 50 * sec, h: sentEvenly(100*sec, sec, 100)}, &block{began: 40 * sec}, 3*sec, 6*sec); w.low != 3*sec || w.high != 6*sec || w.floor != sec || w.from != 50*sec || w.size != (amounts{6, 6, 0}) {
		t.Errorf("a shorter window: %+v", w)
	}
}

func TestHowMuchOfAWindowMayBeUsed(t *testing.T) {
	for _, tt := range []struct {
		w      window
		usable float64
		late   float64 // how many attempts of an even one may be late
	}{
		{window{size: amounts{10, 10, 0}}, 10, 0}, {window{size: amounts{9.992, 10, 0}}, 10, 0}, {window{size: amounts{9.985, 10, 0}}, 9, 0}, {window{size: amounts{0.5, 1, 0}}, 1, 0},
		{window{size: amounts{10, 10, 0}, margin: 0.04}, 10, 0}, {window{size: amounts{10, 10, 0}, margin: 0.06}, 9, 0}, {window{unit: cost, size: amounts{10, 9.5, 0}, margin: 0.1}, 8.55, 0},
		{window{size: amounts{60, 60, 0}, even: true}, 60, 2.2}, {window{size: amounts{60, 60, 0}, climb: 1.1, margin: 0.1}, 66, 0},
	} {
		if got := tt.w.usable(); math.Abs(got-tt.usable) > 1e-9 || math.Abs(tt.w.late()-tt.late) > 1e-9 {
			t.Errorf("%+v: %v may be used, %v late; want %v, %v", tt.w, got, tt.w.late(), tt.usable, tt.late)
		}
	}
	// A window is as full as in its unit, and until that is known as in the fullest one.
	v := view{now: 70 * sec, h: &history{}, mean: amounts{1, 10, 0}}
	v.h.add(50*sec, amounts{9, 80, 0})
	for hits, want := range map[int]float64{0: 0.9, 2: 0.9, 3: 0.1} {
		w := window{size: amounts{100, 100, 0}, low: time.Minute, high: time.Minute, hits: hits}
		if got := w.fullness(v, refusal{sent: 70 * sec, cost: 10}); math.Abs(got-want) > 1e-9 {
			t.Errorf("after %d refusals it is full to %v, want %v", hits, got, want)
		}
	}
	// By the clock, what was sent just before the minute does not count.
	v.h = sentEvenly(sec, sec, 1)
	v.h.add(60*sec-1, amounts{1, 1, 0})
	v.h.add(60*sec, amounts{1, 1, 0})
	w := window{size: amounts{9, 9, 0}, low: time.Minute, high: time.Minute, clock: time.Minute}
	if got := w.used(v, attempts, 70*sec, time.Minute); got != 1 {
		t.Errorf("%v attempts of this minute, want 1", got)
	}
	for _, tt := range []struct {
		name         string
		w            window
		tested       bool
		calm         float64
		margin, next float64
		doubts       int
	}{
		{"soon after the block before", window{margin: 0.01, testAfter: 2, doubts: 1}, false, 30, 0.018, 2, 2},
		{"later than its length", window{margin: 0.01, testAfter: 2, doubts: 1}, false, 30.5, 0.018, 2, 0},
		{"with a large margin", window{margin: 0.14, testAfter: 2}, false, 30, 0.15, 2, 1},
		{"a test", window{margin: 0.01, testAfter: 2, doubts: 1}, true, 30, 0.01, 5, 1},
		{"one of many", window{margin: 0.01, testAfter: 3000}, true, 30, 0.01, 4000, 0},
	} {
		w := tt.w
		w.even, w.low, w.high = true, time.Minute, time.Minute
		if w.uneven(view{open: seconds(2 * tt.calm), lastBlock: 2}, tt.tested); math.Abs(w.margin-tt.margin) > 1e-9 || w.testAfter != tt.next || w.doubts != tt.doubts {
			t.Errorf("%s: a margin of %v, the next test after %v, %d doubts; want %v, %v, %d", tt.name, w.margin, w.testAfter, w.doubts, tt.margin, tt.next, tt.doubts)
		}
	}
}

// At 100 s, with an attempt of cost 3 sent each second from 51 s on.
func TestWhatIsInUseOfAWindow(t *testing.T) {
	const now = 100 * sec
	minute := window{size: amounts{60, 180, 0}, low: time.Minute, high: time.Minute, climb: 1}
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
		{"a test goes beyond the size", with(func(w *window) { w.size[attempts], w.climb = 48, 1.0625 }), 60 * sec / 51 * 10 / 125 * 10, 1, 1250 * ms, 51 / 48., true, 51, false},
		{"by the clock: since the minute", with(func(w *window) { w.clock, w.size[attempts] = time.Minute, 42 }), 60 * sec / 42 * 10 / 125 * 10, 1, 60 * sec / 42, 1, true, 42, false},
		{"by the clock, full until the next minute", with(func(w *window) { w.clock, w.size[attempts] = time.Minute, 41 }), 20*sec + ms, 0, 60 * sec / 41, 42 / 41., true, 41, false},
		{"refused attempts may count", with(func(w *window) { w.size[attempts], w.slack = 50, 700*ms }), 11*sec + 701*ms, 0, 1200 * ms, 51 / 50., true, 50, false},
		{"evenly", with(func(w *window) { w.even, w.due = true, 105*sec }), 5 * sec, 10, sec, 51 / 60., false, 60, false},
		{"evenly, one late", with(func(w *window) { w.even, w.due, w.size[attempts] = true, 99*sec, 50 }), 0, 0, 1200 * ms, 51 / 50., true, 50, false},
		{"exceeded without a refusal", with(func(w *window) {
			w.lone, w.low, w.fold, w.size, w.floor = true, 40*sec, sec, amounts{30, 100, 0}, 30*sec
		}), sec + ms, 0, sec, 41 / 30., true, 30, true},
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
		v := view{now: now, last: now, guard: ms, h: &history{}, mean: amounts{1, 3, 0}}
		for i := range 50 {
			v.h.add(time.Duration(51+i)*sec, amounts{1, 3, 0})
		}
		w := tt.w
		if w.even {
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
		climb   float64
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
		{"a test goes on", window{untested: 3, climb: 1.1}, 100, 0, 1.1 * 1.0015, 100, 70, 4},
		{"if it is used", window{untested: 3, climb: 1.1}, 80, 0, 1.1, 100, 70, 4},
		{"up to so much", window{untested: 3, climb: 1.298}, 120, 0, 1.298 * 1.0015, 100, 70, 4},
		{"then the size is raised", window{untested: 3, climb: 1.299}, 120, 0, 1.25 / 1.2, 125, 70, 4},
		{"a raised size is trusted after ten times as many", window{untested: 1000}, 10, 0, 1, 100, 0, 1001},
		{"not before", window{untested: 999}, 10, 0, 1, 100, 70, 1000},
	} {
		w := tt.w
		if w.climb == 0 {
			w.climb = 1
		}
		w.low, w.high, w.size, w.proven = time.Minute, time.Minute, amounts{100, 100, 0}, amounts{70, 0, 0}
		v := view{now: time.Hour, h: sentEvenly(time.Hour, 100*ms, tt.used), mean: amounts{1, 1, 0}, lastBlock: 1, open: seconds(tt.calm)}
		w.answered(v)
		if math.Abs(w.climb-tt.climb) > 1e-6 || w.size[attempts] != tt.size || w.size[cost] != tt.size || w.proven[attempts] != tt.proven || w.untested != tt.untests {
			t.Errorf("%s: climb %.4f, size %v, proven %v, %v untested; want %.4f, %v, %v, %v", tt.name, w.climb, w.size, w.proven[attempts], w.untested, tt.climb, tt.size, tt.proven, tt.untests)
		}
	}
	large := window{untested: 499, testAfter: 1, climb: 1, low: time.Minute, high: time.Minute, size: amounts{200, 200, 0}}
	for i, want := range []float64{1, 1.0025} {
		if large.answered(view{now: time.Hour, h: sentEvenly(time.Hour, 100*ms, 200), mean: amounts{1, 1, 0}, lastBlock: 1, open: 99 * sec}); large.climb != want {
			t.Errorf("after %d attempts a window of 200 is tested with %v, want %v", 500+i, large.climb, want)
		}
	}
	dear := window{unit: cost, untested: 10, climb: 1, low: time.Minute, high: time.Minute, size: amounts{2, 2, 0}, proven: amounts{1, 1, 0}}
	if dear.answered(view{now: time.Hour, h: &history{}, mean: amounts{1, 4, 0}}); dear.proven != (amounts{}) {
		t.Errorf("a size of less than one attempt is not trusted after ten: %v", dear.proven)
	}
	few := window{untested: 26, testAfter: 1, climb: 1, low: time.Minute, high: time.Minute, size: amounts{2, 2, 0}}
	if few.answered(view{now: time.Hour, h: sentEvenly(time.Hour, sec, 2), mean: amounts{1, 1, 0}, lastBlock: 1, open: 99 * sec}); few.climb != 1.25 {
		t.Errorf("a window of two is tested with %v, want 1.25", few.climb)
	}
	few.climb = 1.2
	if few.answered(view{now: time.Hour, h: sentEvenly(time.Hour, sec, 3), mean: amounts{1, 1, 0}}); math.Abs(few.climb-1.2*1.015) > 1e-9 {
		t.Errorf("the test of a window of two goes on with %v, want %v", few.climb, 1.2*1.015)
	}
}

// Three minutes of the clock in which 100 attempts were admitted after 10 s, one was refused
// after 50 s, a canary after 59 s, and one admitted half a second after the end.
func TestBlocksThatAPeriodExplains(t *testing.T) {
	later := func(s *spans, by time.Duration) {
		for i := range s.n {
			s.ring[i].high += by
		}
	}
	brackets := func(s *spans, width time.Duration) { // of the ends of the blocks, which begin earlier
		for i := range s.n {
			x := &s.ring[i]
			x.refused, x.low = x.refused-30*sec, x.high-width
		}
	}
	for _, tt := range []struct {
		name   string
		do     func(s *spans, sent map[time.Duration]float64)
		length time.Duration
		clock  bool
		size   float64 // 0: it does not
		off    float64
		slides bool
		now    time.Duration
	}{
		{"a minute of the clock", nil, time.Minute, true, 100, 0, false, 0},
		{"half a minute", nil, 30 * sec, true, 0, 0, false, 0},
		{"a minute from the release on", nil, time.Minute, false, 100, 0, false, 0},
		{"which a sliding one explains too", func(_ *spans, sent map[time.Duration]float64) {
			for k := range time.Duration(3) {
				delete(sent, k*60*sec+10*sec)
				sent[k*60*sec+sec] = 100
			}
		}, time.Minute, true, 100, 0, true, 0},
		{"two of them may be by chance", func(s *spans, _ map[time.Duration]float64) { s.n = 2 }, time.Minute, true, 0, 0, false, 0},
		{"but not if the canaries were not timed for that", func(s *spans, _ map[time.Duration]float64) {
			s.n, s.ring[0].high, s.ring[1].high = 2, 181500*ms, 121500*ms
		}, time.Minute, true, 100, 0, false, 0},
		{"one says nothing", func(s *spans, _ map[time.Duration]float64) { s.n = 1 }, time.Minute, true, 0, 0, false, 0},
		{"from one release to another nothing either", func(s *spans, _ map[time.Duration]float64) { s.n = 2 }, time.Minute, false, 0, 0, false, 0},
		{"a block that is as long as the period", func(s *spans, _ map[time.Duration]float64) { s.ring[1].refused = 59 * sec }, time.Minute, true, 0, 0, false, 0},
		{"a release that is at no beginning", func(s *spans, _ map[time.Duration]float64) { s.ring[1].low, s.ring[1].high = 115*sec, 118900*ms }, time.Minute, true, 0, 0, false, 0},
		{"a second before one is near enough", func(s *spans, _ map[time.Duration]float64) { s.ring[1].low, s.ring[1].high = 115*sec, 119100*ms }, time.Minute, true, 100, 0, false, 0},
		{"a second after one, too", func(s *spans, _ map[time.Duration]float64) { s.ring[1].low, s.ring[1].high = 120900*ms, 122*sec }, time.Minute, true, 100, 0, false, 0},
		{"more than that is not", func(s *spans, _ map[time.Duration]float64) { s.ring[1].low, s.ring[1].high = 121*sec, 122*sec }, time.Minute, true, 0, 0, false, 0},
		{"two short blocks, which a rate explains", func(s *spans, _ map[time.Duration]float64) { s.ring[0].refused, s.ring[1].refused = 176*sec, 116*sec }, time.Minute, true, 0, 0, false, 0},
		{"one", func(s *spans, _ map[time.Duration]float64) { s.ring[1].refused = 116 * sec }, time.Minute, true, 100, 0, false, 0},
		{"about as many each time", func(_ *spans, sent map[time.Duration]float64) { sent[70*sec] = 97 }, time.Minute, true, 100, 0.03, false, 0},
		{"different numbers", func(_ *spans, sent map[time.Duration]float64) { sent[70*sec] = 96 }, time.Minute, true, 0, 0, false, 0},
		{"of few one more or less", func(_ *spans, sent map[time.Duration]float64) { sent[10*sec], sent[70*sec], sent[130*sec] = 10, 9, 10 }, time.Minute, true, 10, 0.1, false, 0},
		{"of few two more or less", func(_ *spans, sent map[time.Duration]float64) { sent[10*sec], sent[70*sec], sent[130*sec] = 10, 8, 10 }, time.Minute, true, 0, 0, false, 0},
		{"one at a time is a rate", func(_ *spans, sent map[time.Duration]float64) { sent[10*sec], sent[70*sec], sent[130*sec] = 1, 1, 1 }, time.Minute, true, 0, 0, false, 0},
		{"two at a time", func(_ *spans, sent map[time.Duration]float64) { sent[10*sec], sent[70*sec], sent[130*sec] = 2, 2, 2 }, time.Minute, true, 2, 0, false, 0},
		{"some more were admitted in another minute", func(_ *spans, sent map[time.Duration]float64) { sent[-50*sec] = 104 }, time.Minute, true, 100, 0, false, 0},
		{"more than that", func(_ *spans, sent map[time.Duration]float64) { sent[-50*sec] = 105 }, time.Minute, true, 0, 0, false, 0},
		{"from a release on a minute may begin later", func(_ *spans, sent map[time.Duration]float64) { sent[-50*sec] = 200 }, time.Minute, false, 100, 0, false, 0},
		{"and have twice as many at most", func(_ *spans, sent map[time.Duration]float64) { sent[-50*sec] = 201 }, time.Minute, false, 0, 0, false, 0},
		{"the present minute is not over", func(_ *spans, sent map[time.Duration]float64) { sent[190*sec] = 300 }, time.Minute, true, 100, 0, false, 200 * sec},
		{"the one before is", func(_ *spans, sent map[time.Duration]float64) { sent[190*sec] = 300 }, time.Minute, true, 0, 0, false, 250 * sec},
		{"at its last instant, too", func(_ *spans, sent map[time.Duration]float64) { sent[240*sec-1] = 300 }, time.Minute, true, 0, 0, false, 250 * sec},
		{"at the instant when a minute begins, too", func(_ *spans, sent map[time.Duration]float64) {
			for k := range time.Duration(3) {
				delete(sent, k*60*sec+10*sec)
				sent[k*60*sec] = 100
			}
		}, time.Minute, true, 100, 0, true, 0},
		{"not just before that", func(_ *spans, sent map[time.Duration]float64) { sent[60*sec-1], sent[120*sec-1] = 2, 2 }, time.Minute, true, 100, 0, false, 0},
		{"more in another one from its beginning on", func(_ *spans, sent map[time.Duration]float64) { sent[-60*sec] = 105 }, time.Minute, true, 0, 0, false, 0},
		{"no more than fit, with those just before it", func(_ *spans, sent map[time.Duration]float64) { sent[-60*sec-1], sent[-50*sec] = 50, 60 }, time.Minute, true, 100, 0, false, 0},
		{"of the newest twenty minutes", func(_ *spans, sent map[time.Duration]float64) { sent[-1010*sec] = 105 }, time.Minute, true, 0, 0, false, 0},
		{"of earlier ones nothing has to be known", func(_ *spans, sent map[time.Duration]float64) { sent[-1070*sec] = 105 }, time.Minute, true, 100, 0, false, 0},
		{"minutes from the newest release on", func(s *spans, sent map[time.Duration]float64) {
			s.ring[1].high = 121200 * ms
			sent[-59600*ms], sent[-59*sec] = 150, 150
		}, time.Minute, false, 100, 0, false, 0},
		{"blocks that may have ended in a fifth of a minute", func(s *spans, _ map[time.Duration]float64) { brackets(s, 12200*ms) }, time.Minute, false, 100, 0, false, 0},
		{"in a quarter of it", func(s *spans, _ map[time.Duration]float64) { brackets(s, 14600*ms) }, time.Minute, false, 0, 0, false, 0},
		{"two blocks that may have ended in half a minute of the clock", func(s *spans, _ map[time.Duration]float64) { later(s, sec); brackets(s, 26*sec); s.n = 2 }, time.Minute, true, 0, 0, false, 0},
		{"in two fifths of it", func(s *spans, _ map[time.Duration]float64) { later(s, sec); brackets(s, 24200*ms); s.n = 2 }, time.Minute, true, 100, 0, false, 0},
		{"and a third one in all of it", func(s *spans, _ map[time.Duration]float64) {
			later(s, sec)
			brackets(s, 24200*ms)
			s.ring[0].refused, s.ring[0].low = 90*sec, 91500*ms
		}, time.Minute, true, 100, 0, false, 0},
		{"canaries that went a second after a minute were not timed for it", func(s *spans, _ map[time.Duration]float64) { later(s, sec/2); s.n = 2 }, time.Minute, true, 100, 0, false, 0},
		{"a sliding one of as many as one block had fewer of does not", func(_ *spans, sent map[time.Duration]float64) {
			for k := range time.Duration(3) {
				delete(sent, k*60*sec+10*sec)
				sent[k*60*sec+sec] = 100
			}
			sent[61*sec] = 97
		}, time.Minute, true, 100, 0.03, false, 0},
		{"a sliding one may end a twentieth later", func(_ *spans, sent map[time.Duration]float64) {
			for k := range time.Duration(3) {
				delete(sent, k*60*sec+10*sec)
				sent[k*60*sec+3499*ms] = 100
			}
		}, time.Minute, true, 100, 0, true, 0},
		{"not more", func(_ *spans, sent map[time.Duration]float64) {
			for k := range time.Duration(3) {
				delete(sent, k*60*sec+10*sec)
				sent[k*60*sec+3500*ms] = 100
			}
		}, time.Minute, true, 100, 0, false, 0},
		{"at its end it is the next", func(_ *spans, sent map[time.Duration]float64) { sent[240*sec] = 300 }, time.Minute, true, 100, 0, false, 250 * sec},
	} {
		var s spans
		sent := make(map[time.Duration]float64)
		for k := range time.Duration(3) {
			s.add(&block{began: k*60*sec + 50*sec, lastRefused: k*60*sec + 59*sec, release: k*60*sec + 60500*ms}, 1)
			sent[k*60*sec+10*sec] = 100
		}
		if tt.do != nil {
			tt.do(&s, sent)
		}
		h := &history{}
		for _, at := range slices.Sorted(maps.Keys(sent)) {
			h.add(at, amounts{sent[at], 0, 0})
		}
		// A history counts from instant 0 on.
		v := view{now: max(tt.now, s.ring[0].high), h: h, mean: amounts{1, 1, 0}}
		f, ok := s.fit(v, tt.length, tt.clock)
		if ok != (tt.size > 0) || ok && (f.size != tt.size || math.Abs(f.off-tt.off) > 1e-9 || f.slides != tt.slides) {
			t.Errorf("%s: %v, %+v; want %v, %v off, slides %v", tt.name, ok, f, tt.size, tt.off, tt.slides)
		}
	}
	minute := New(Config{Ceiling: 1, Initial: 1, Windows: []time.Duration{time.Minute}}).likely
	for _, tt := range []struct {
		name    string
		blocks  int
		refused [2]time.Duration // of the newest two, when they began
		want    bool
	}{
		{"of a configured length two blocks are enough", 2, [2]time.Duration{170 * sec, 110 * sec}, true},
		{"also if one of them was short", 2, [2]time.Duration{176 * sec, 110 * sec}, true},
		{"not if both were", 2, [2]time.Duration{176 * sec, 116 * sec}, false},
		{"nor is one", 1, [2]time.Duration{170 * sec, 110 * sec}, false},
	} {
		s := spans{n: tt.blocks}
		h := &history{}
		for i := range 3 {
			from := time.Duration(2-i) * 60 * sec
			s.ring[i] = span{from + 50*sec, from + 59*sec, from + 60500*ms, 1}
			h.add(time.Duration(i)*60*sec+10*sec, amounts{100, 0, 0})
		}
		s.ring[0].refused, s.ring[1].refused = tt.refused[0], tt.refused[1]
		if _, ok := s.fit(view{now: s.ring[0].high, h: h, likely: minute}, time.Minute, true); ok != tt.want {
			t.Errorf("%s: %v", tt.name, ok)
		}
	}
}

// Blocks of a window of some 17 s from one release to the next, in which a hundred attempts go at
// once. A row has what is between two releases: when the last canary was refused before each, the
// newest block first.
func TestThePeriodBetweenReleases(t *testing.T) {
	type end struct{ refused, low, high time.Duration } // since the release before
	usually := end{9 * sec, 16 * sec, 17 * sec}
	again := func(n int, e end) (all []end) {
		for range n {
			all = append(all, e)
		}
		return all
	}
	after := func(periods time.Duration) end {
		gone := (periods - 1) * 17 * sec
		return end{gone + 9*sec, gone + 16*sec, gone + 17*sec}
	}
	for _, tt := range []struct {
		name string
		ends []end
		more []map[time.Duration]float64 // attempts besides the hundred after the beginning of the last period, from the oldest release on
		want period
	}{
		{"the longest that explains them, and the shortest", []end{usually, {9 * sec, 16400 * ms, 17 * sec}, usually}, nil, period{16100 * ms, 17 * sec, 100, false}},
		{"half of it is another one", []end{{8 * sec, 16 * sec, 17 * sec}, {8 * sec, 16400 * ms, 17 * sec}, {8 * sec, 16 * sec, 17 * sec}}, nil, period{16100 * ms, 17 * sec, 100, false}},
		{"the newest canary was late", []end{{9 * sec, 16 * sec, 20 * sec}, usually, {9 * sec, 16 * sec, 17300 * ms}}, nil, period{16100 * ms, 17 * sec, 100, false}},
		{"the newest two were: in the middle", []end{{9 * sec, 14 * sec, 20 * sec}, {9 * sec, 14 * sec, 20 * sec}, {9 * sec, 16900 * ms, 17 * sec}}, nil, period{17 * sec, 17 * sec, 100, false}},
		{"or soon after the one before", []end{{5 * sec, 10 * sec, 22 * sec}, {5 * sec, 10 * sec, 22 * sec}, {5 * sec, 11190 * ms, 11300 * ms}}, nil, period{11 * sec, 11200 * ms, 100, false}},
		{"two periods, of which the longer explains less", again(3, after(2)), []map[time.Duration]float64{{5 * sec: 1, 16900 * ms: 1}, {5 * sec: 2}, {5 * sec: 3, 16900 * ms: 1}}, period{17 * sec, 17 * sec, 100, false}},
		{"eight", again(3, after(8)), []map[time.Duration]float64{{118900 * ms: 30}, {118900 * ms: 60}, {118900 * ms: 90}}, period{17 * sec, 17 * sec, 100, false}},
		{"nine are not looked for", again(3, after(9)), []map[time.Duration]float64{{135900 * ms: 30}, {135900 * ms: 60}, {135900 * ms: 90}}, period{}},
		{"a second", again(4, end{500 * ms, 950 * ms, sec}), nil, period{sec, sec, 100, false}},
		{"two releases are too few", []end{usually}, nil, period{}},
	} {
		released, refused := sec, sec
		h, s := &history{}, spans{}
		s.add(&block{release: released}, 0)
		for i := range tt.ends {
			e := tt.ends[len(tt.ends)-1-i]
			sent := map[time.Duration]float64{}
			if i < len(tt.more) {
				sent = maps.Clone(tt.more[i])
			}
			sent[e.refused/(17*sec)*17*sec+100*ms] += 100
			for _, at := range slices.Sorted(maps.Keys(sent)) {
				h.add(released+at, amounts{sent[at], 0, 0})
			}
			refused = released + e.refused
			s.add(&block{began: refused, lastRefused: released + e.low, release: released + e.high}, 0)
			released += e.high
		}
		got, ok := s.period(view{now: released, h: h, phase: 3 * sec})
		if ok != (tt.want.size > 0) || (got.low-tt.want.low).Abs() > ms || (got.length-tt.want.length).Abs() > ms || got.size != tt.want.size || got.clock {
			t.Errorf("%s: %v, %+v; want %+v", tt.name, ok, got, tt.want)
		}
	}
	var s spans
	for i := range 7 {
		if s.add(&block{}, 0); s.n != min(i+1, 5) {
			t.Errorf("of %d blocks %d are known, want at most 5", i+1, s.n)
		}
	}
}

func TestWhatIsInUseOfAWindowThatIsCountedInPeriods(t *testing.T) {
	h := sentEvenly(30*sec, sec, 30)
	for _, tt := range []struct {
		t, from time.Duration
		refused time.Duration
		weight  float64
		want    float64 // of ten seconds each, with three refusals at an instant
	}{
		{25 * sec, 0, 0, 0, 6 + 5}, {20 * sec, 0, 0, 0, 1 + 10}, {29 * sec, 0, 0, 0, 10 + 1}, {25 * sec, 5 * sec, 0, 0, 1 + 10}, {24 * sec, 5 * sec, 0, 0, 10 + 1},
		{25 * sec, 0, 22 * sec, 1, 6 + 5 + 3}, {25 * sec, 0, 22 * sec, 0, 6 + 5}, {25 * sec, 0, 12 * sec, 1, 6 + 5 + 1.5}, {25 * sec, 0, 25 * sec, 1, 6 + 5},
		{25 * sec, 0, 20 * sec, 1, 6 + 5 + 3}, {25 * sec, 0, 10 * sec, 1, 6 + 5 + 1.5}, {25 * sec, 0, 20*sec - 1, 1, 6 + 5 + 1.5}, {25 * sec, 0, 10*sec - 1, 1, 6 + 5}, {25 * sec, 0, 26 * sec, 1, 6 + 5},
	} {
		var s spans
		s.add(&block{began: tt.refused}, 3)
		if got := s.counter(view{h: h}, tt.t, tt.from, 10*sec, tt.weight); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A thousand in 10 s, all at 1 s: refused at 5 s, again until 10.04 s, but not at 10.2 s. At
// 12 s 400 more, and at 14 s one is refused.
func TestAWindowThatIsCountedInPeriodsExplainsARefusal(t *testing.T) {
	for _, tt := range []struct {
		name      string
		sent      map[time.Duration]float64
		x         span
		began     time.Duration
		at        time.Duration
		low, high time.Duration // of the lengths that are tried
		size      float64       // 0: it does not
	}{
		{"from the first attempt on", nil, span{}, 0, 0, 0, 0, 1000},
		{"from the release before", nil, span{}, -3 * sec, 0, 0, 0, 1000},
		{"with the clock", nil, span{}, 500 * ms, 0, 0, 0, 1000},
		{"no other beginning", nil, span{}, -13 * sec, 0, 0, 0, 1000},
		{"one more", map[time.Duration]float64{12 * sec: 401}, span{}, 0, 0, 0, 0, 1000},
		{"two more", map[time.Duration]float64{12 * sec: 402}, span{}, 0, 0, 0, 0, 0},
		{"one less", map[time.Duration]float64{12 * sec: 399}, span{}, 0, 0, 0, 0, 0},
		{"soon after the block", nil, span{refused: 13100 * ms}, 0, 0, 0, 0, 0},
		{"long after it", map[time.Duration]float64{12 * sec: 0, 22 * sec: 1000}, span{}, 0, 25100 * ms, 0, 0, 0},
		{"just not", map[time.Duration]float64{12 * sec: 0, 22 * sec: 1000}, span{}, 0, 25 * sec, 0, 0, 1000},
		{"in use at the release", map[time.Duration]float64{10100 * ms: 21, 12 * sec: 379}, span{}, 0, 0, 0, 0, 0},
		{"just not in use then", map[time.Duration]float64{10100 * ms: 20, 12 * sec: 380}, span{}, 0, 0, 0, 0, 1000},
		{"not in use at a refused canary", nil, span{low: 10010 * ms}, 0, 0, 0, 0, 0},
		{"just in use then", nil, span{low: 10009 * ms}, 0, 0, 0, 0, 1000},
		{"refused attempts count", map[time.Duration]float64{12 * sec: 397}, span{refusals: 5}, 0, 0, 0, 0, 1000},
		{"lengths to ten seconds", nil, span{}, 0, 0, sec, 10 * sec, 1000},
		{"shorter ones", nil, span{}, 0, 0, sec, 10*sec - 1, 0},
		{"from ten seconds on", nil, span{}, 0, 0, 10 * sec, time.Hour, 1000},
		{"longer ones", nil, span{}, 0, 0, 10*sec + 1, time.Hour, 0},
		{"from the release before, and with no clock", nil, span{}, -3 * sec, 0, 0, 0, 1000},
		{"from the release before, if that block is known", nil, span{}, -3 * sec, 0, 0, 0, 0},
		{"just long enough after the refusal before", map[time.Duration]float64{13500 * ms: 100}, span{refused: 13 * sec, low: 13004 * ms}, 0, 0, 0, 0, 1100},
		{"too soon after it", map[time.Duration]float64{13500 * ms: 90}, span{refused: 13100 * ms, low: 13104 * ms}, 0, 0, 0, 0, 0},
		{"five hundred are enough for one block", map[time.Duration]float64{sec: 500, 12 * sec: 200}, span{}, 0, 0, 0, 0, 500},
		{"three hundred are too few", map[time.Duration]float64{sec: 300, 12 * sec: 120}, span{}, 0, 0, 0, 0, 0},
		{"a hundred are too few for one block", map[time.Duration]float64{sec: 100, 12 * sec: 40}, span{low: 10001 * ms}, 0, 0, 0, 0, 0},
	} {
		sent := map[time.Duration]float64{sec: 1000, 12 * sec: 400}
		maps.Copy(sent, tt.sent)
		h := &history{}
		for _, at := range slices.Sorted(maps.Keys(sent)) {
			if sent[at] > 0 {
				h.add(at, amounts{sent[at], 0, 0})
			}
		}
		var s spans
		s.add(&block{release: 0}, 0)
		s.add(&block{}, 0)
		s.ring[0] = span{cmp.Or(tt.x.refused, 5*sec), cmp.Or(tt.x.low, 10004*ms), cmp.Or(tt.x.low, 10*sec).Truncate(100*ms) + 200*ms, tt.x.refusals}
		v := view{now: 14 * sec, h: h}
		if strings.HasPrefix(tt.name, "from the release before, ") {
			v.phase = 4 * sec
			if tt.size == 0 {
				s.n = 1
			}
		}
		length, size, ok := s.counted(v, 1, tt.began, cmp.Or(tt.at, 14*sec), cmp.Or(tt.low, sec), cmp.Or(tt.high, time.Hour))
		if ok != (tt.size > 0) || ok && (length != 10*sec || size != tt.size) {
			t.Errorf("%s: %v, %v in %v; want %v", tt.name, ok, size, length, tt.size)
		}
		if _, _, ok := s.counted(v, 3, tt.began, 14*sec, sec, time.Hour); ok {
			t.Errorf("%s: two blocks count for three", tt.name)
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
		{"a tenth below them", large, 11100 * ms, 12 * sec, func(*window) {}, 1000},
		{"more than a tenth", large, 11200 * ms, 12 * sec, func(*window) {}, 0},
		{"a tenth above them", large, 8 * sec, 9100 * ms, func(*window) {}, 1000},
		{"more than that", large, 8 * sec, 9050 * ms, func(*window) {}, 0},
		{"a window of cost", large, 9 * sec, 11 * sec, func(w *window) { w.unit = cost }, 0},
		{"one that is already", large, 9 * sec, 11 * sec, func(w *window) { w.even = true }, 0},
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
		w := &window{size: amounts{5000, 5000, 0}, low: tt.low, high: tt.high, climb: 1, testAfter: 9, lone: true, floor: tt.low}
		tt.do(w)
		before := *w
		l.limits, l.block.blamed = []limit{newRate(0, 8, 9), w}, -1
		l.clock = tt.at
		l.blameCounted(l.view(), refusal{sent: tt.at, now: tt.at, cost: 1})
		want, blamed := before, -1
		if tt.size > 0 {
			want.low, want.high, want.lone, want.even, want.clock, want.size, want.testAfter = 10*sec, 10*sec, false, true, 0, amounts{tt.size, 0, 0}, testGrowth
			blamed = 1
		}
		if *w != want || l.block.blamed != blamed {
			t.Errorf("%s: %+v, blamed %d; want %+v, %d", tt.name, *w, l.block.blamed, want, blamed)
		}
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
		high   time.Duration
	}{
		{"as many as were sent", attempts, amounts{227, 0, 0}, 5, 120 * sec, true, 61 * sec},
		{"one more, which was refused after it was counted", attempts, amounts{228, 0, 0}, 5, 120 * sec, true, 60800 * ms},
		{"many more", attempts, amounts{270, 0, 0}, 5, 120 * sec, false, 92600 * ms},
		{"an attempt of the usual cost", cost, amounts{0, 1135, 0}, 5, 120 * sec, true, 61 * sec},
		{"of sixty times the cost, for which sixty had to leave", cost, amounts{0, 1135, 0}, 300, 145*sec + 800*ms, true, 61 * sec},
		{"that is larger than the window", cost, amounts{0, 1135, 0}, 5000, 157 * sec, true, 61400 * ms},
	} {
		w := &window{unit: tt.unit, size: tt.size, low: 59 * sec, high: 62 * sec, hits: sureHits, climb: 1}
		b := &block{began: 119200 * ms, lastRefused: tt.freed, release: tt.freed + sec, cost: tt.cost}
		_, high, agrees := w.bracket(view{now: b.release, h: h, mean: amounts{1, 5, 1}}, b)
		if agrees != tt.agrees || high.Round(200*ms) != tt.high {
			t.Errorf("%s: agrees %v, at most %v; want %v, %v", tt.name, agrees, high, tt.agrees, tt.high)
		}
	}
}
