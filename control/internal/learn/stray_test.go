package learn

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Six refusals, each with the pace before it and the attempts admitted since the one before.
func TestRefusalsThatComeAsOftenAtAnyPaceAreStrays(t *testing.T) {
	for _, tt := range []struct {
		name   string
		last   []isolated
		failed int
		pace   float64 // of before the fall; 0 if they are no strays
		mean   float64
	}{
		{"the pace fell, and they come as often", []isolated{{20, 100}, {18, 50}, {17, 150}, {17, 40}, {16, 160}, {16, 100}}, 0, 20, 100},
		{"one fewer", []isolated{{20, 100}, {18, 50}, {17, 150}, {16, 160}, {15, 100}}, 0, 0, 0},
		{"the fastest is not the first", []isolated{{16, 100}, {20, 50}, {17, 150}, {17, 40}, {16, 160}, {16, 100}}, 0, 20, 100},
		{"the pace fell less", []isolated{{20, 100}, {18, 50}, {17, 150}, {17, 40}, {16, 160}, {16.1, 100}}, 0, 0, 0},
		{"less than is needed after a failure", []isolated{{20, 100}, {18, 50}, {17, 150}, {17, 40}, {16, 160}, {14, 100}}, 1, 0, 0},
		{"enough after one", []isolated{{20, 100}, {18, 50}, {17, 150}, {17, 40}, {16, 160}, {12, 100}}, 1, 20, 100},
		{"slowing down helped", []isolated{{20, 50}, {18, 50}, {17, 50}, {17, 100}, {16, 101}, {16, 100}}, 0, 0, 0},
		{"it hardly did", []isolated{{20, 50}, {18, 50}, {17, 50}, {17, 100}, {16, 100}, {16, 100}}, 0, 20, 75},
		{"a limit refuses as often", []isolated{{20, 20}, {18, 20}, {17, 20}, {17, 20}, {16, 20}, {16, 19}}, 0, 0, 0},
		{"no limit does", []isolated{{20, 20}, {18, 20}, {17, 20}, {17, 20}, {16, 20}, {16, 20}}, 0, 20, 20},
		{"the newest six decide", []isolated{{90, 1}, {20, 100}, {18, 50}, {17, 150}, {17, 40}, {16, 160}, {16, 100}}, 0, 20, 100},
	} {
		s := strays{failed: tt.failed}
		pace, found := 0.0, false
		for _, x := range tt.last {
			pace, found = s.add(x)
		}
		if found != (tt.pace > 0) || found && pace != tt.pace || s.mean != tt.mean || s.first != tt.mean {
			t.Errorf("%s: found %v, %v/s, one in %v; want %v/s, one in %v", tt.name, found, pace, s.mean, tt.pace, tt.mean)
		}
	}
}

// One attempt in a hundred is refused, whatever the pace.
func TestALimitRefusesMoreOftenThanStraysCome(t *testing.T) {
	for _, tt := range []struct {
		name   string
		gaps   []float64 // attempts admitted before each refusal
		strays int       // so many of them are taken for strays, one after the other
	}{
		{"as often as ever", []float64{100, 100, 100, 100, 100}, 5},
		{"two at once", []float64{100, 0}, 2},
		{"a third is no stray", []float64{100, 0, 0}, 2},
		{"four in as many as usually lie between two", []float64{100, 15, 15, 15}, 3},
		{"four in more", []float64{100, 16, 16, 16, 100}, 5},
	} {
		s := strays{mean: 100, first: 100}
		n := 0
		for _, gap := range tt.gaps {
			for range int(gap) {
				s.admit()
			}
			stray := s.refuse()
			if s.before != gap || s.gap != 0 {
				t.Errorf("%s: %v were admitted before a refusal, want %v; %v since", tt.name, s.before, gap, s.gap)
			}
			if !stray {
				break
			}
			n++
		}
		if n != tt.strays {
			t.Errorf("%s: %d strays, want %d", tt.name, n, tt.strays)
		}
	}
}

func TestStraysAreReviewed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		s      strays // after 1600 attempts, where one in a hundred was refused
		mean   float64
		failed int
	}{
		{"as many as before", strays{mean: 100, first: 100, refused: 16}, 100, 0},
		{"more", strays{mean: 100, first: 100, refused: 32}, 50, 0},
		{"those before a limit's refusal do not count", strays{mean: 100, first: 100, refused: 18, limits: 1}, 100, 0},
		{"four times as many: a limit", strays{mean: 100, first: 100, refused: 64}, 0, 1},
		{"which it was not at first", strays{mean: 99, first: 100, refused: 64}, 0, 0},
		{"one in twenty", strays{mean: 100, first: 40, refused: 80}, 20, 0},
		{"one in nineteen: a limit", strays{mean: 100, first: 40, refused: 84}, 0, 0},
		{"a quarter", strays{mean: 100, first: 100, refused: 4}, 400, 0},
		{"fewer: they have ended", strays{mean: 100, first: 100, refused: 3}, 0, 1},
		{"none", strays{mean: 100, first: 100}, 0, 1},
	} {
		tt.s.admitted, tt.s.n = 1600, 5
		tt.s.review()
		if ended := tt.mean == 0; ended != (tt.s.n == 0) {
			t.Errorf("%s: %d refusals may be strays", tt.name, tt.s.n)
		}
		if tt.s.mean != tt.mean || tt.s.failed != tt.failed || tt.mean > 0 && (tt.s.admitted != 0 || tt.s.refused != 0 || tt.s.limits != 0) {
			t.Errorf("%s: one in %v, failed %d; want %v, %d: %+v", tt.name, tt.s.mean, tt.s.failed, tt.mean, tt.failed, tt.s)
		}
	}
}

func TestWhichRefusalIsAStray(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*Law)
		f    refusal
		want bool
		gap  float64 // attempts admitted since the newest refusal that counts
	}{
		{"for load, where there are strays", func(*Law) {}, refusal{}, true, 0},
		{"for rate", func(*Law) {}, refusal{limited: true}, false, 70},
		{"with a wait", func(*Law) {}, refusal{wait: sec}, false, 70},
		{"where none are known", func(l *Law) { l.strays.mean = 0 }, refusal{}, false, 0},
		{"under a penalty", func(l *Law) { l.penalty.length = sec }, refusal{}, false, 70},
		{"of a rate", func(l *Law) { l.limits = []limit{newRate(0, 1, 2)} }, refusal{}, true, 0},
		{"of a window that is full", func(l *Law) { l.limits = []limit{newWindow(0, amounts{50, 50, 0}, sec, 50*sec, 50*sec, sec, 1)} }, refusal{}, false, 70},
		{"of one that is not", func(l *Law) { l.limits = []limit{newWindow(0, amounts{90, 90, 0}, sec, 50*sec, 50*sec, sec, 1)} }, refusal{}, true, 0},
		{"of a fixed one: as many went since the release as before its first block", func(l *Law) {
			l.block.release = 70 * sec
			l.limits = []limit{newWindow(0, amounts{90, 90, 0}, sec, 50*sec, 50*sec, sec, 1)}
			l.limits[0].(*window).first = 30
		}, refusal{}, false, 70},
		{"of a limit in flight", func(l *Law) { l.limits = []limit{&flight{size: 3}} }, refusal{others: 3}, false, 70},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock = *sentEvenly(100*sec, sec, 100), 100*sec
		l.strays = strays{gap: 70, mean: 100, first: 100}
		tt.do(l)
		tt.f.sent, tt.f.now, tt.f.cost = 100*sec, 100*sec, 1
		if got := l.isStray(tt.f); got != tt.want || l.strays.gap != tt.gap {
			t.Errorf("%s: %v, %v admitted since the newest; want %v, %v", tt.name, got, l.strays.gap, tt.want, tt.gap)
		}
	}
}

// The sixth refusal for load, at 16 a second after 20.
func TestThePaceOfBeforeStraysComesBack(t *testing.T) {
	for _, tt := range []struct {
		name     string
		isolated bool
		do       func(*Law)
		n        int
		low      float64 // of the rate afterwards; 0 without one
	}{
		{"an isolated one of the rate", true, func(*Law) {}, 0, 20},
		{"another one: they start again", false, func(*Law) {}, 0, 15},
		{"no rate is held any more", true, func(l *Law) { l.limits = nil }, 0, 0},
		{"under a penalty", true, func(l *Law) { l.penalty.length = sec }, 0, 15},
		{"slowing down helped", true, func(l *Law) { l.strays.before = 1000 }, 6, 15},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.limits, l.strays.before, l.block.pace = []limit{newRate(0, 15, 16)}, 100, 16
		for range strayRefusals - 1 {
			l.strays.add(isolated{20, 100})
		}
		tt.do(l)
		l.seekStrays(l.look(), tt.isolated)
		low := 0.0
		if r := l.rate(); r != nil {
			low = r.low
		}
		if low != tt.low || l.strays.n != tt.n || (l.strays.mean > 0) != (tt.low == 20) {
			t.Errorf("%s: %v/s, %d may be strays, one in %v; want %v/s, %d", tt.name, low, l.strays.n, l.strays.mean, tt.low, tt.n)
		}
	}
}

// A refusal for load at 100 s, of a rate that has learned from two cycles, and a canary that is admitted at 101 s.
func TestWhichBlocksMayBeStrays(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*Law, *rate)
		n    int // refusals in a row that may be strays; there was one
	}{
		{"over at the first canary", func(*Law, *rate) {}, 2},
		{"of a rate with one cycle", func(_ *Law, r *rate) { r.cycles = 1 }, 2},
		{"of a new rate", func(_ *Law, r *rate) { r.cycles = 0 }, 0},
		{"a refusal for rate", func(l *Law, _ *rate) { l.block.overloaded = false }, 0},
		{"another canary was refused", func(l *Law, _ *rate) { l.block.refusals = 2 }, 0},
		{"a wait was advertised", func(l *Law, _ *rate) { l.block.exact = true }, 0},
		{"a long block", func(l *Law, _ *rate) { l.block.release = 200 * sec }, 0},
		{"no limit was blamed", func(l *Law, _ *rate) { l.block.blamed = nil }, 0},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		r := newRate(0, 15, 16)
		r.cycles = 2
		l.limits, l.strays.n, l.allAdmitted = []limit{r}, 1, 500
		l.h, l.clock = *sentEvenly(100*sec, sec, 100), 101*sec
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 101 * sec, refusals: 1, pace: 4, blamed: r, overloaded: true}
		tt.do(l, r)
		l.ended(l.look())
		if l.strays.n != tt.n {
			t.Errorf("%s: %d refusals in a row may be strays, want %d", tt.name, l.strays.n, tt.n)
		}
	}
}

// An overloaded provider answers one request in a hundred with 529, whatever the pace.
func TestOverloadThatNoPaceAvoidsIsBorne(t *testing.T) {
	none := func(time.Duration) bool { return true }
	for _, tt := range []struct {
		name   string
		rate   float64 // allowed a second
		admits func() func(time.Duration) bool
		want   float64
	}{
		{"no limit", 20, func() func(time.Duration) bool { return none }, 0.8},
		{"10 a second after 20 at once", 10, func() func(time.Duration) bool { return bucketAt(10, 20) }, 0.85},
		{"10 a second", 10, func() func(time.Duration) bool { return bucketAt(10, 1) }, 0.7},
	} {
		part, strays, refusals := 0.0, 0.0, 0
		const runs = 10
		for seed := range uint64(runs) {
			rng, admits := rand.New(rand.NewPCG(seed, 7)), tt.admits()
			l := New(Config{Ceiling: 50 * ms, Initial: sec, Slowest: time.Hour})
			now, admitted := time.Duration(0), 0
			for now < 20*time.Minute {
				now = max(now+50*ms, l.Hold(now, 1))
				if !l.Answered() {
					now += sec
				}
				l.Sent(now, 1)
				o := Outcome{Sent: now, Now: now + 20*ms, Class: Admitted, Estimate: 1, Cost: 1}
				switch {
				case rng.IntN(100) == 0:
					o.Class = Overloaded
					refusals++
				case admits(now):
					admitted++
				default:
					o.Class = Refused
					refusals++
				}
				l.Observe(o)
			}
			part += float64(admitted) / (tt.rate * 1200) / runs
			strays += l.RefusedForLoad() / runs
		}
		if part < tt.want || strays < 0.005 || strays > 0.02 {
			t.Errorf("%s: %.3f of what is allowed, want %.2f; %d refused, %.3f of all for load", tt.name, part, tt.want, refusals/runs, strays)
		}
	}
}
