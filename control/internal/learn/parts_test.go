package learn

import (
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"
)

func TestOnlyTheTransitionsOfTheTableAreLegal(t *testing.T) {
	for from := starting; from <= trying; from++ {
		for e := answered; e <= nothing; e++ {
			want, legal := moves[from][e]
			l := &Law{state: from}
			func() {
				defer func() {
					if refused := recover() != nil; refused == legal {
						t.Errorf("%v, event %d: legal %v, refused %v", from, e, legal, refused)
					}
				}()
				l.transition(e)
			}()
			if legal && l.state != want {
				t.Errorf("%v, event %d: %v, want %v", from, e, l.state, want)
			}
		}
	}
}

func TestTheRampDoublesAfterTwoAnswersAndHalfASecond(t *testing.T) {
	for _, tt := range []struct {
		name    string
		flying  int
		answers []time.Duration // instants; sent 100 ms before
		want    time.Duration
	}{
		{"one answer is too few", 0, []time.Duration{sec}, sec},
		{"two are enough", 0, []time.Duration{sec, 2 * sec}, sec / 2},
		{"but not within half a second", 0, []time.Duration{200 * ms, 300 * ms, 400 * ms, 499 * ms}, sec},
		{"with eleven under way as well", 11, []time.Duration{sec, 2 * sec}, sec / 2},
		{"where many are under way it grows by less", 47, []time.Duration{sec, 2 * sec}, 800 * ms},
		{"never beyond the ceiling", 0, []time.Duration{1, 2, 3, 4 * sec, 5 * sec, 6 * sec, 7 * sec, 8 * sec, 9 * sec, 10 * sec, 11 * sec, 12 * sec}, 250 * ms},
	} {
		r := ramp{every: float64(sec)}
		for _, at := range tt.answers {
			r.answered(view{now: at, last: at, latency: float64(100 * ms), flying: tt.flying}, at-100*ms, float64(250*ms))
		}
		if got := time.Duration(r.every); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	// The second answer since a step, at 10 s: the interval is a second, and so is the latency.
	for _, tt := range []struct {
		name           string
		at, last, sent time.Duration // of the step, and of the newest attempt and the answered one
		fastest        time.Duration
		grows          bool
		answers        int
	}{
		{"two round trips after the step", 8 * sec, 9900 * ms, 9 * sec, ms, true, 0},
		{"sooner", 8001 * ms, 9900 * ms, 9 * sec, ms, false, 2},
		{"to an attempt of before it", 8 * sec, 9900 * ms, 8 * sec, ms, false, 2},
		{"the attempts are not paced: the newest is old", 8 * sec, 6 * sec, 9 * sec, ms, false, 0},
		{"as old as two intervals and round trips", 8 * sec, 6001 * ms, 9 * sec, ms, true, 0},
		{"it is at the ceiling", 8 * sec, 9900 * ms, 9 * sec, sec, false, 0},
	} {
		r := ramp{every: 1e9, answers: 1, at: tt.at}
		grew := r.answered(view{now: 10 * sec, last: tt.last, latency: 1e9}, tt.sent, float64(tt.fastest))
		want := ramp{every: 1e9, answers: tt.answers, at: tt.at}
		if tt.answers == 0 {
			want.at = 10 * sec
		}
		if tt.grows {
			want.every, want.was, want.grew = 5e8, 1e9, 10*sec
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
				r.sent(now)
			}
			v := view{now: now + seconds(c.open)}
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

// sentEvenly returns a history of n attempts, the last at now.
func sentEvenly(now, every time.Duration, n int) *history {
	h := &history{}
	for i := range n {
		h.add(now-time.Duration(n-1-i)*every, amounts{1, 1, 0})
	}
	return h
}

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
		w := window{low: 60 * sec, high: 60 * sec, climb: 1}
		w.size = amounts{10, 10, 0}
		v := view{now: now, last: now - 30*sec, h: sentEvenly(now, sec, tt.n), mean: amounts{1, 1, 0}}
		if got := w.free(v, 1); got != tt.want {
			t.Errorf("%s: free at %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestTheUseOfHeldLimits(t *testing.T) {
	now := 100 * sec
	l := New(Config{Ceiling: ms, Initial: ms, Slowest: time.Hour})
	l.h, l.clock, l.last, l.flying = *sentEvenly(now, sec, 10), now, now, 3
	w := &window{low: 60 * sec, high: 60 * sec, climb: 1, hits: 9}
	w.size = amounts{10, 10, 0}
	r := newRate(now, 0.5, 0.5)
	l.limits = []limit{w, &flight{size: 3}, &flight{size: 4}, r}
	for _, tt := range []struct {
		at   time.Duration
		want []Use
	}{
		{now, []Use{{10, 151 * sec}, {3, never}, {3, now}, {-1, 102 * sec}}},
		{now + 55*sec, []Use{{5, now + 55*sec}, {3, never}, {3, now + 55*sec}, {-1, now + 55*sec}}},
	} {
		got := l.Uses(tt.at, nil)
		for i := range tt.want {
			if math.Abs(got[i].Used-tt.want[i].Used) > 1 || (got[i].Used < 0 || tt.want[i].Used < 0) && got[i].Used != tt.want[i].Used || (got[i].Free-tt.want[i].Free).Abs() > sec {
				t.Errorf("at %v limit %d: %+v, want %+v", tt.at, i, got[i], tt.want[i])
			}
		}
	}
	if held := l.Limits(nil); len(held) != len(l.Uses(now, nil)) {
		t.Errorf("uses of %d limits", len(held))
	}
}

func TestAWindowOfFewUnitsThatRefusesTooEarlyIsLonger(t *testing.T) {
	for _, tt := range []struct {
		name      string
		size      float64
		unit      unit
		apart     time.Duration // between attempts, the last of which is refused
		low, high time.Duration // the length afterwards
	}{
		{"one unit, and the attempt before is 6 s old", 1, attempts, 6 * sec, 5900 * ms, 6060 * ms},
		{"one unit, refused when the window predicts", 1, attempts, 5800 * ms, 5800 * ms, 5900 * ms},
		{"ten units, whose margin keeps attempts apart", 10, attempts, 600 * ms, 5700 * ms, 5900 * ms},
		{"one second of work", 1, busy, 6 * sec, 5700 * ms, 5900 * ms},
	} {
		now := 100 * sec
		h := &history{}
		for i := range 20 {
			h.add(now-time.Duration(20-i)*tt.apart, amounts{1, 1, 1})
		}
		w := &window{unit: tt.unit, low: 5700 * ms, high: 5900 * ms, climb: 1, hits: 9}
		w.size = amounts{tt.size, tt.size, tt.size}
		b := &block{began: now, noticed: now, lastRefused: now, release: now + sec, refusals: 1}
		if agrees := w.ended(view{now: now + sec, h: h, mean: amounts{1, 1, 1}}, b); !agrees || w.low != tt.low || w.high != tt.high {
			t.Errorf("%s: agrees %v, %v to %v, want %v to %v", tt.name, agrees, w.low, w.high, tt.low, tt.high)
		}
	}
}

func TestThePaceBeforeARefusalIsThatOfItsTime(t *testing.T) {
	for _, tt := range []struct {
		name       string
		fast, slow int // attempts in a second and in ten, one after another
		low, high  float64
	}{
		{"slow for long", 600, 150, 0.09, 0.13},
		{"fast until now", 600, 0, 0.9, 1.1},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		now := time.Duration(0)
		for i := range tt.fast + tt.slow {
			if now += sec; i >= tt.fast {
				now += 9 * sec
			}
			l.h.add(now, amounts{1, 1, 0})
		}
		l.shown = 10 * sec
		if got := l.pace(l.view(), now); got < tt.low || got > tt.high {
			t.Errorf("%s: %.3f/s, want %g to %g", tt.name, got, tt.low, tt.high)
		}
	}
	for _, tt := range []struct {
		name   string
		bursts map[time.Duration]float64 // how many were sent so long before the refusal
		freed  time.Duration             // the end of the last long block, before it
		shown  time.Duration
		want   float64
	}{
		{"of the last second, and the refused one", map[time.Duration]float64{500 * ms: 10, 1500 * ms: 20}, time.Hour, ms, 11},
		{"or of eight intervals", map[time.Duration]float64{sec: 10, 3 * sec: 20}, time.Hour, 500 * ms, 31 / 4.},
		{"of a minute, if that is more", map[time.Duration]float64{50 * sec: 600}, time.Hour, ms, 10},
		{"or of a hundred intervals", map[time.Duration]float64{80 * sec: 600}, time.Hour, sec, 6},
		{"nothing for long: one now", map[time.Duration]float64{200 * sec: 600}, time.Hour, ms, 1},
		{"since the last long block", map[time.Duration]float64{1400 * ms: 30, 50 * sec: 6000}, 1500 * ms, ms, 20},
		{"which was hardly over", map[time.Duration]float64{5 * ms: 1, 50 * sec: 6000}, 10 * ms, ms, 40},
	} {
		const now = 2000 * sec
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		for _, ago := range slices.Backward(slices.Sorted(maps.Keys(tt.bursts))) {
			l.h.add(now-ago, amounts{tt.bursts[ago], 0, 0})
		}
		l.shown, l.freed = tt.shown, now-tt.freed
		if got := l.pace(l.view(), now); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%s: %v a second, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAWindowIsRecountedInTheUnitThatExplainsARefusal(t *testing.T) {
	now := 100 * sec
	for _, tt := range []struct {
		name string
		size amounts
		lone bool
		want unit
	}{
		{"as much cost was in use as before, and few attempts", amounts{40, 100, 0}, false, cost},
		{"neither as much cost nor as many attempts", amounts{40, 400, 0}, false, attempts},
		{"both", amounts{10, 100, 0}, false, attempts},
		{"one block alone speaks for the window", amounts{40, 100, 0}, true, attempts},
	} {
		h := &history{}
		for i := range 10 {
			h.add(now-time.Duration(10-i)*sec, amounts{1, 10, 0})
		}
		w := &window{size: tt.size, off: amounts{0.05, 0.05, 0.06}, low: 60 * sec, high: 60 * sec, climb: 1, hits: 5, lone: tt.lone}
		got := w.recounted(view{now: now, h: h, mean: amounts{1, 10, 0}}, refusal{sent: now, cost: 10})
		if got != (tt.want == cost) || w.unit != tt.want {
			t.Errorf("%s: recounted %v, unit %v, want %v", tt.name, got, w.unit, tt.want)
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
	v := view{now: sec, h: sentEvenly(sec, 10*ms, 10), mean: amounts{1, 1, 0}, last: -time.Hour}
	at := w.free(v, 1)
	if v.now = at; at >= 60*sec || w.free(v, 1) > at+sec {
		t.Errorf("room at %v, and then at %v", at, w.free(v, 1))
	}
}

func TestABlockThatARoundTripExplainsIsNotLong(t *testing.T) {
	for _, tt := range []struct {
		name  string
		least time.Duration
		want  bool
	}{
		{"the canary could have gone before", 100 * ms, true},
		{"it went as soon as what was under way was back", 4 * sec, false},
	} {
		b := block{refusals: 1, release: 5 * sec, pace: 14, least: tt.least}
		if got := b.long(); got != tt.want {
			t.Errorf("%s: long %v", tt.name, got)
		}
	}
}

func TestCanariesComeAtGrowingWaits(t *testing.T) {
	for _, tt := range []struct {
		name string
		b    block
		room time.Duration
		want time.Duration
	}{
		{"the first after a second", block{refusals: 1, soonest: sec}, 0, sec},
		{"or sooner", block{refusals: 1, soonest: sec / 4}, 0, sec / 4},
		{"or when a limit predicted it", block{refusals: 1}, 42 * sec, 42 * sec},
		{"then three times later", block{refusals: 2, wait: sec, began: -7 * time.Hour}, 0, 3 * sec},
		{"a multiple of five minutes is tried but once", block{refusals: 7, wait: 5 * time.Minute, began: -10 * time.Minute, count: 4000}, 0, 330 * sec},
		{"later by half as much after many attempts", block{refusals: 7, wait: 2 * time.Minute, began: -7 * time.Hour, count: 200_000}, 0, 3 * time.Minute},
		{"three times after few, which a ban is likelier to refuse", block{refusals: 7, wait: 2 * time.Minute, began: -7 * time.Hour, count: 100_000}, 0, 6 * time.Minute},
		{"nor is a penalty longer", block{refusals: 7, wait: 10 * time.Minute, began: -20 * time.Minute, punished: true}, 0, 15 * time.Minute},
		{"but no later than any ban lasts", block{refusals: 7, wait: 10 * time.Minute, began: -20 * time.Minute}, 0, 15 * time.Minute},
		{"20 seconds if there is room, but not for us", block{refusals: 2, wait: sec, began: -2 * sec, explained: true, punished: true}, 0, 20 * sec},
		{"unless it must be a penalty", block{refusals: 7, wait: 2 * time.Minute, began: -7 * time.Hour, punished: true}, 0, 6 * time.Minute},
		{"what no penalty can lengthen is asked for more often", block{refusals: 9, wait: 20 * time.Minute, began: -48 * time.Minute, count: 10_000}, 0, 5 * time.Minute},
		{"in an outage twice", block{refusals: 3, wait: 4 * sec, outage: true}, 0, 8 * sec},
		{"and at most half a minute", block{refusals: 9, wait: 25 * sec, outage: true}, 0, 30 * sec},
	} {
		// Half past an hour and a bit: no common instant is near.
		p := canaryPlan{block: &tt.b, room: tt.room, from: -7 * time.Hour, phase: 1801 * sec}
		if got := p.next(); got < tt.want || got > 2*tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAPenaltyEndsAfterTwoShortBlocks(t *testing.T) {
	p := penalty{length: time.Minute}
	for i, tt := range []struct {
		took time.Duration
		on   bool
	}{{time.Minute, true}, {sec, true}, {time.Minute, true}, {sec, true}, {sec, false}, {time.Minute, false}} {
		if p.ended(tt.took, tt.took, sec, 1); p.on() != tt.on {
			t.Errorf("block %d of %v: on %v", i, tt.took, p.on())
		}
	}
}

func TestTheLengthOfAPenaltyIsSearchedFor(t *testing.T) {
	p := penalty{length: 160 * sec, low: 10 * sec}
	for i, tt := range []struct {
		refused bool // the first canary of the block
		wait    time.Duration
		after   time.Duration // the length that suffices then
	}{
		{false, 40 * sec, 40 * sec},
		{true, 20 * sec, 40 * sec}, // a length between these is close enough
		{false, 44 * sec, 40 * sec},
		{true, 44 * sec, 120 * sec}, // longer than it was
	} {
		first := p.wait()
		if first != tt.wait {
			t.Errorf("block %d: the first canary goes after %v, want %v", i, first, tt.wait)
		}
		if tt.refused {
			p.ended(time.Hour, 10*time.Minute, first, 2)
		} else {
			p.ended(first, first, first, 1)
		}
		if p.length != tt.after {
			t.Errorf("block %d: %v is enough, want %v", i, p.length, tt.after)
		}
	}
}

func TestAPenaltyBehindAnAdvertisedLimitIsSearchedForToo(t *testing.T) {
	p := penalty{length: 40 * sec}
	first := p.wait()
	p.endedExplained(&block{noticed: 0, lastRefused: first, release: first + 100*sec, tooShort: first, refusals: 2, punished: true, expected: sec})
	if got := p.wait(); got <= first {
		t.Errorf("the first canary of the next block goes after %v, and %v was not enough", got, first)
	}
	p = penalty{}
	p.endedExplained(&block{lastRefused: 100 * sec, release: 500 * sec, tooShort: 4 * sec, refusals: 5, punished: true, expected: sec})
	if p.length != 400*sec || p.wait() != 40*sec {
		t.Errorf("a new penalty of %v: the next canary goes after %v, want 40s, between 4s and 400s", p.length, p.wait())
	}
}

// A wait that was not enough bounds the penalty, but refused canaries may have doubled it.
func TestAWaitThatWasNotEnough(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	now := time.Duration(0)
	for n, want := range []time.Duration{0, 0, 4, 8, 64, 64} { // in 1/8 s
		if n > 0 {
			now = l.block.resume
			l.block.wait = [...]time.Duration{0, 0, sec / 2, 2 * sec, 32 * sec, 40 * sec}[n]
		}
		l.Sent(now, 1)
		class := Refused
		if n == 0 {
			class = Admitted
		}
		l.Observe(Outcome{Sent: now, Now: now + ms, Class: class, Estimate: 1, Cost: 1})
		if l.block.tooShort != want*sec/8 {
			t.Errorf("after %d refusals the longest wait that was not enough is %v, want %v", n, l.block.tooShort, want*sec/8)
		}
	}
}

// The mean rate before a refusal starts at the release before, whatever had refused.
func TestALongBlockThatAnAdvertisedLimitExplainsEndsACycle(t *testing.T) {
	for _, long := range []bool{true, false} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h.add(0, amounts{1, 1, 0})
		l.block = block{blamed: -1, explained: true, pace: 10, refusals: 1, began: sec, noticed: sec, lastRefused: sec, release: 2 * sec}
		if long {
			l.block.release = 60 * sec
		}
		l.clock = l.block.release
		l.ended(l.view())
		if (l.freed == l.block.release) != long {
			t.Errorf("long %v: freed at %v, released at %v", long, l.freed, l.block.release)
		}
	}
}

func TestAVeryDifferentWaitIsANewOne(t *testing.T) {
	for _, tt := range []struct {
		name         string
		refusals     int
		before, wait time.Duration
		want         bool
	}{
		{"none", 1, 0, 0, false},
		{"the first", 1, 0, 9 * sec, true},
		{"the first canary's", 2, 9 * sec, 9 * sec, true},
		{"the same again and again", 3, 9 * sec, 9 * sec, false},
		{"what is left, by a wrong measure", 4, 9 * sec, 8 * sec, false},
		{"a penalty that was lengthened", 4, 9 * sec, 20 * sec, true},
		{"one that has begun anew", 4, 9 * time.Minute, 9 * sec, true},
	} {
		b := block{refusals: tt.refusals, lastWait: tt.before}
		if got := b.newly(tt.wait); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestAWaitThatABurstLengthenedIsNotAllBelieved(t *testing.T) {
	for _, tt := range []struct {
		name  string
		waits []time.Duration
		want  time.Duration
	}{
		{"each refusal of a burst has a longer one", []time.Duration{266 * sec, 613 * sec, 1409 * sec, 3051 * sec}, penaltyLongest},
		{"it is no longer than a penalty", []time.Duration{266 * sec, 613 * sec}, 613 * sec},
		{"it ends with the hour", []time.Duration{266 * sec, time.Hour - 12*sec}, time.Hour - 12*sec},
		{"waits are known to be seconds", []time.Duration{266 * sec, 3051 * sec}, 3051 * sec},
		{"the rest of one that is in milliseconds", []time.Duration{20_711 * sec, 20_611 * sec, 20_511 * sec}, 22562100 * time.Microsecond},
		{"responses that overtook others", []time.Duration{20_711 * sec, 20_511 * sec, 20_611 * sec}, 22672100 * time.Microsecond},
		{"a quarter longer", []time.Duration{20_000*sec + 11*sec, 25_013*sec + 750*ms}, 27515125 * time.Microsecond},
		{"more than that", []time.Duration{20_000*sec + 11*sec, 25_014 * sec}, penaltyLongest},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: 24 * time.Hour})
		if tt.name == "waits are known to be seconds" {
			l.named.unit = 1
		}
		now := 10 * sec
		for range tt.waits {
			l.Sent(now, 1)
		}
		for _, wait := range tt.waits {
			now += 100 * ms
			l.Observe(Outcome{Sent: 10 * sec, Now: now, Class: Refused, RetryAfter: wait, Estimate: 1})
		}
		last := tt.waits[len(tt.waits)-1]
		if got := l.Believed(last); got != tt.want {
			t.Errorf("%s: %v of %v is believed, want %v", tt.name, got, last, tt.want)
		}
		if got := l.Hold(now, 1) - now; got < tt.want-sec || got > tt.want+2*sec {
			t.Errorf("%s: the next attempt in %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestASuspectedPenaltyIsTestedOnce(t *testing.T) {
	for _, tt := range []struct {
		name     string
		known    time.Duration
		misses   int
		refusals int
		want     time.Duration
	}{
		{"nothing speaks for a penalty", 0, 0, 1, 0},
		{"suspected: the first canary comes early", 0, 1, 1, suspectedPenalty},
		{"then between that and the silence that ended the last long block", 0, 1, 2, 77 * sec},
		{"known: at its end", time.Minute, 1, 1, 66 * sec},
		{"known, and refused then: likewise", time.Minute, 1, 2, 77 * sec},
		{"whatever was suspected before", time.Minute, 0, 2, 77 * sec},
	} {
		l := &Law{refuted: tt.misses, silence: 5 * time.Minute, penalty: penalty{length: tt.known}, block: block{refusals: tt.refusals, wait: 20 * sec}}
		if got := l.penaltyWait(); got.Truncate(sec) != tt.want || tt.want == 0 && got != 0 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestALongSilenceAfterRefusedCanariesIsThePenalty(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	l.h = *sentEvenly(100*sec, sec, 100)
	l.clock, l.meanLong = 1000*sec, 450*sec
	l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 600 * sec, release: 1000 * sec, refusals: 6, blamed: -1, pace: 4, ramping: true}
	l.penalize(l.view(), 0)
	if l.penalty.length != 400*sec {
		t.Errorf("the penalty is %v, want the 400 s that no canary lengthened", l.penalty.length)
	}
	// It grew all the time: the limit may be anywhere between the mean and the last pace.
	if r := l.rate(); r.low > 1 || r.high != 4 || r.price < 400 || r.price > 1600 {
		t.Errorf("from %.3g to %.3g a second at %.0f attempts", r.low, r.high, r.price)
	}
}

func TestAnOutageIsNotMostlyOverAtTheFirstCanary(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: 100 * ms, Slowest: time.Hour})
	now := time.Duration(0)
	var last bool
	const calm = 1000 // attempts that are all admitted
	for i := range calm + 6*maxBlips {
		refused := i > calm && i%2 == 1
		now = max(now+sec, l.Hold(now, 1))
		l.Sent(now, 1)
		l.Advertise(now, now+ms, refused, Fact{Name: "requests", Refills: true, Quota: 60, Remaining: 50, Window: -1, Reset: sec})
		o := Outcome{Sent: now, Now: now + ms, Class: Admitted, Estimate: 1, Cost: 1}
		if refused {
			o.Class = Overloaded // though there is room
		}
		l.Observe(o)
		if o.Class == Overloaded {
			if last = l.block.outage; i == calm+1 && !last {
				t.Fatal("the first is no outage")
			}
		}
	}
	if last || l.rate() == nil {
		t.Errorf("the last is an outage: %v; a rate is held: %v", last, l.rate() != nil)
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

// bucketOf plays a law against a bucket.
func bucketOf(l *Law, rate float64, until time.Duration) (admitted, refused int) {
	return drive(l, until, bucketAt(rate, 10))
}

// drive plays a law with an endless backlog. Responses take 20 ms.
func drive(l *Law, until time.Duration, admits func(time.Duration) bool) (admitted, refused int) {
	now := time.Duration(0)
	for now < until {
		now = max(now+ms, l.Hold(now, 1))
		if !l.Answered() {
			now += sec
		}
		if now >= until {
			break
		}
		l.Sent(now, 1)
		o := Outcome{Sent: now, Now: now + 20*ms, Class: Admitted, Estimate: 1, Cost: 1}
		if admits(now) {
			admitted++
		} else {
			o.Class = Refused
			refused++
		}
		l.Observe(o)
	}
	return admitted, refused
}

// A bucket of ten a second: after a minute the law holds a rate close to it, and a law
// restored from its state starts there.
func TestABucketIsFoundHeldAndStored(t *testing.T) {
	cfg := Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour}
	l := New(cfg)
	admitted, refused := bucketOf(l, 10, 30*time.Minute)
	if admitted < 17_000 || refused > 30 {
		t.Errorf("%d admitted, %d refused", admitted, refused)
	}
	f := l.Binding()
	if f.Kind != Rate || math.Abs(f.Size-10) > 0.3 {
		t.Errorf("holds %+v", f)
	}
	again := New(cfg)
	if err := again.Restore(l.Store(), l.Interval()); err != nil {
		t.Fatal(err)
	}
	if g := again.Binding(); g.Kind != Rate || math.Abs(g.Size-f.Size) > 0.3 {
		t.Errorf("restored %+v, stored %+v", g, f)
	}
	for _, bad := range []Found{{Kind: "tide", Size: 1}, {Kind: Rate, Size: -1}, {Kind: Rate, Size: 2, High: 1}, {Kind: Window, Size: 1}, {Kind: Flight, Size: math.NaN()}} {
		if err := New(cfg).Restore(Stored{Found: []Found{bad}}, sec); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestAnAttemptUnderAHeldLimitAllocatesNothing(t *testing.T) {
	l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour})
	bucketOf(l, 10, 10*time.Minute)
	now := l.clock
	if n := testing.AllocsPerRun(1000, func() {
		now += 200 * ms
		l.Hold(now, 1)
		l.Sent(now, 1)
		l.Observe(Outcome{Sent: now, Now: now + 20*ms, Class: Admitted, Estimate: 1, Cost: 1})
	}); n != 0 {
		t.Errorf("%v allocations an attempt", n)
	}
}

func BenchmarkAttemptUnderAHeldLimit(b *testing.B) {
	l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Hour})
	bucketOf(l, 10, 10*time.Minute)
	now := l.clock
	b.ReportAllocs()
	for b.Loop() {
		now += 200 * ms
		l.Hold(now, 1)
		l.Sent(now, 1)
		l.Observe(Outcome{Sent: now, Now: now + 20*ms, Class: Admitted, Estimate: 1, Cost: 1})
	}
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

// A report of a limit of 100 changes what was known, at 100 s. An attempt of cost 10 was sent
// each second before and after.
func TestWhatAReportOfALimitChanges(t *testing.T) {
	one := func(get func(a *advertised) float64) func(*advertised) []float64 {
		return func(a *advertised) []float64 { return []float64{get(a)} }
	}
	left := func(a *advertised) []float64 { return []float64{a.left, a.spent, a.at.Seconds()} }
	fine := one(func(a *advertised) float64 { return float64(a.fine) })
	whole := one(func(a *advertised) float64 { return a.whole.Seconds() })
	taken := func(a *advertised) []float64 { return []float64{a.taken, a.during} }
	fades := func(a *advertised) []float64 { return []float64{a.margin, float64(a.slack)} }
	refused := func(a *advertised) []float64 { return []float64{a.refused.Seconds(), a.remained} }
	rate := func(a *advertised) []float64 { return []float64{a.quota, a.slow, a.prior.used} }
	longest := func(a *advertised) []float64 { return []float64{a.longest.Seconds(), a.least.Seconds()} }
	grain := one(func(a *advertised) float64 { return a.grain })
	others := func(a *advertised) []float64 { return []float64{a.others, a.surge} }
	bounds := func(a *advertised) []float64 { return []float64{a.slow, a.fast} }
	rest := one(func(a *advertised) float64 { return a.left })
	type change = func(a *advertised, v *view, sent *time.Duration, refused *bool, f *Fact)
	overtaken := func(left float64, do func(a *advertised, v *view)) change { // 47 are known to be left, and three may be on their way
		return func(a *advertised, v *view, _ *time.Duration, _ *bool, f *Fact) {
			f.Remaining, a.whole, v.guard = left, 160*sec, 2500*ms
			do(a, v)
		}
	}
	rounded := func(quota, left, share float64, do func(a *advertised, refused *bool)) change { // 200 of cost in 20 s were ours
		return func(a *advertised, _ *view, _ *time.Duration, refused *bool, f *Fact) {
			a.perCost, a.grain, a.share, a.window, a.quota, f.Quota, f.Remaining, f.Reset = true, coarseUnits, share, 20*sec, quota, quota, left, 20*sec
			do(a, refused)
		}
	}
	for _, tt := range []struct {
		name  string
		shape shape
		do    change
		get   func(*advertised) []float64
		want  []float64
	}{
		{"what is left, without what was sent since", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, left, []float64{40, 5, 100}},
		{"of its cost", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.perCost, a.share = true, 0.5 }, left, []float64{40, 25, 100}},
		{"an older report says nothing", fixed, func(_ *advertised, _ *view, sent *time.Duration, _ *bool, _ *Fact) { *sent = 89 * sec }, left, []float64{50, 3, 90}},
		{"another one of as old does", fixed, func(_ *advertised, _ *view, sent *time.Duration, _ *bool, _ *Fact) { *sent = 90 * sec }, left, []float64{40, 15, 90}},
		{"a refused attempt", fixed, func(_ *advertised, _ *view, _ *time.Duration, refused *bool, _ *Fact) { *refused = true }, refused, []float64{100, 40}},
		{"an older refused one", fixed, func(_ *advertised, _ *view, sent *time.Duration, refused *bool, _ *Fact) {
			*sent, *refused = 80*sec, true
		}, refused, []float64{80, 40}},
		{"an admitted one", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, refused, []float64{0, 0}},
		{"milliseconds", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 1500 * ms }, fine, []float64{1}},
		{"an odd number of milliseconds", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 1501 * ms }, fine, []float64{1}},
		{"milliseconds again", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.fine, f.Reset = 100, 1500*ms }, fine, []float64{100}},
		{"by the clock", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 1500*ms + 1 }, fine, []float64{-1}},
		{"by the clock again", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.fine, f.Reset = -100, 1500*ms+1 }, fine, []float64{-100}},
		{"a whole second", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, fine, []float64{0}},
		{"a duration of whole seconds, at first", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.at, f.Precise = -1, true }, fine, []float64{1}},
		{"a duration of whole seconds, after one at the very beginning", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.at, f.Precise = 0, true }, fine, []float64{-1}},
		{"it says that it is a duration", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Precise = true }, one(func(a *advertised) float64 { return map[bool]float64{true: 1}[a.precise] }), []float64{1}},
		{"it is compared with the next", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, one(func(a *advertised) float64 { return a.last.reset.Seconds() }), []float64{60}},
		{"the same duration again", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) {
			a.last.reset, f.Precise = f.Reset, true
		}, fine, []float64{0}},
		{"another one of whole seconds", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Precise = true }, fine, []float64{-1}},
		{"another one, again", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.fine, f.Precise = -100, true }, fine, []float64{-100}},
		{"the same size", bucket, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, one(func(a *advertised) float64 { return a.quota }), []float64{100}},
		{"another size: what was known of the rate is not", bucket, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Quota, f.Remaining = 50, 50 }, rate, []float64{50, 0, 0}},
		{"no size", bucket, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Quota, f.Remaining = 0, 100 }, rate, []float64{100, 2, 7}},
		{"a length", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Window = 1 }, one(func(a *advertised) float64 { return float64(a.window) }), []float64{1}},
		{"no length", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.window, f.Window = 5, 0 }, one(func(a *advertised) float64 { return float64(a.window) }), []float64{5}},
		{"a margin fades with the attempts that are sent", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.window = 100 * sec }, fades, []float64{0.08 * math.Exp(-10/slackMemory), 5e6 * math.Exp(-10/slackMemory)}},
		{"not while none go", fixed, func(a *advertised, _ *view, sent *time.Duration, _ *bool, _ *Fact) {
			a.window, *sent = 100*sec, 1000*sec
		}, fades, []float64{0.08 * math.Exp(-15/slackMemory), 5e6 * math.Exp(-15/slackMemory)}},
		{"more slowly if a refusal costs more", fixed, func(a *advertised, v *view, _ *time.Duration, _ *bool, _ *Fact) { a.window, v.lastBlock = 100*sec, 2 }, fades, []float64{0.08 * math.Exp(-5/slackMemory), 5e6 * math.Exp(-5/slackMemory)}},
		{"nor if no rate is known", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.slow = 0 }, fades, []float64{0.08, 5e6}},
		{"since one at the very beginning", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.window, a.at = 100*sec, 0 }, fades, []float64{0.08 * math.Exp(-100/slackMemory), 5e6 * math.Exp(-100/slackMemory)}},
		{"not before the first report", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.window, a.at = 100*sec, -1 }, fades, []float64{0.08, 5e6}},
		{"what others took from a bucket", bucket, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, taken, []float64{0.98*3 + 50 + 2*10 - 10 - 40, 0.98*4 + 10}},
		{"a full one does not refill", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.left = 95 }, taken, []float64{0.98*3 + 100 - 10 - 40, 0.98*4 + 10}},
		{"since the very beginning", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.at = 0 }, taken, []float64{0.98*3 + 100 - 100 - 40, 0.98*4 + 100}},
		{"a part of the cost", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.perCost, a.share = true, 0.1 }, taken, []float64{0.98*3 + 50 + 2*10 - 10 - 40, 0.98*4 + 10}},
		{"at the same instant none", bucket, func(_ *advertised, _ *view, sent *time.Duration, _ *bool, _ *Fact) { *sent = 90 * sec }, taken, []float64{3, 4}},
		{"nor before the first report", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.at = -1 }, taken, []float64{3, 4}},
		{"nor from a window", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, taken, []float64{3, 4}},
		{"costs that are no thousands are not rounded", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) {
			a.perCost, a.grain = true, coarseUnits
		}, grain, []float64{1}},
		{"costs may be rounded to thousands", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) {
			a.perCost, a.grain, f.Quota, f.Remaining = true, coarseUnits, 5000, 1000
		}, grain, []float64{coarseUnits}},
		{"attempts are not", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) {
			a.grain, f.Remaining = coarseUnits, 0
		}, grain, []float64{1}},
		{"the rest of costs is what our own use leaves", sliding, rounded(5000, 1000, 16, func(*advertised, *bool) {}), rest, []float64{1800}},
		{"which is used in steps of the rounding", sliding, rounded(5000, 1000, 16, func(*advertised, *bool) {}), one(func(a *advertised) float64 { return a.prior.used }), []float64{3.2}},
		{"not of a refused attempt", sliding, rounded(5000, 1000, 16, func(_ *advertised, refused *bool) { *refused = true }), rest, []float64{1000}},
		{"nor where others use it", sliding, rounded(5000, 1000, 16, func(a *advertised, _ *bool) { a.shared = true }), rest, []float64{1000}},
		{"but of as few as it is rounded to", sliding, rounded(1000, 0, 2, func(a *advertised, _ *bool) { a.shared = true }), rest, []float64{600}},
		{"of more it is not", sliding, rounded(1001, 0, 2, func(a *advertised, _ *bool) { a.shared = true }), rest, []float64{0}},
		{"three more are left than is known: the attempt overtook them", fixed, overtaken(55, func(*advertised, *view) {}), rest, []float64{52}},
		{"four cannot have been overtaken", fixed, overtaken(56, func(*advertised, *view) {}), rest, []float64{56}},
		{"three can, if an answer takes so long", fixed, overtaken(55, func(_ *advertised, v *view) { v.guard, v.latency = 0, 5e10 }), rest, []float64{52}},
		{"four cannot then", fixed, overtaken(56, func(_ *advertised, v *view) { v.guard, v.latency = 0, 5e10 }), rest, []float64{56}},
		{"it is the first attempt of a window", fixed, overtaken(55, func(a *advertised, _ *view) { a.rolled = true }), rest, []float64{55}},
		{"the window ended then", fixed, overtaken(55, func(a *advertised, _ *view) { a.whole = 100 * sec }), rest, []float64{55}},
		{"of costs others were estimated", fixed, overtaken(55, func(a *advertised, _ *view) { a.perCost, a.share = true, 0.1 }), rest, []float64{55}},
		{"when it is free", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, whole, []float64{160}},
		{"later for the first one, which may count from its response", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.at = -1 }, whole, []float64{160.1}},
		{"not later for the second one, after one at the very beginning", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.at = 0 }, whole, []float64{160}},
		{"nothing says when", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.whole, f.Reset = 150*sec, -1 }, one(func(a *advertised) float64 { return float64(a.whole) }), []float64{0}},
		{"now", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 0 }, whole, []float64{100}},
		{"at most in a day", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 25 * time.Hour }, whole, []float64{100 + 24*3600}},
		{"the same instant, rounded", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.whole = 160900 * ms }, whole, []float64{160.9}},
		{"of a sliding window, that is no instant", sliding, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.whole = 160900 * ms }, whole, []float64{160}},
		{"another instant", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.whole = 166 * sec }, whole, []float64{160}},
		{"the first of a new window", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.whole, a.rolled = 160900*ms, true }, whole, []float64{160}},
		{"a tenth of the length is the same instant", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) {
			a.whole, a.window = 169900*ms, 100*sec
		}, whole, []float64{169.9}},
		{"a longer reset", fixed, func(*advertised, *view, *time.Duration, *bool, *Fact) {}, longest, []float64{60, 20}},
		{"a shorter one in a fast response", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset = 10 * sec }, longest, []float64{30, 10}},
		{"in a slow one", fixed, func(_ *advertised, v *view, _ *time.Duration, _ *bool, f *Fact) { f.Reset, v.now = 10*sec, 100500*ms }, longest, []float64{30, 20}},
		{"the first one", fixed, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.least = 0 }, longest, []float64{60, 60}},
		{"a refusal's is no measure", fixed, func(_ *advertised, _ *view, _ *time.Duration, refused *bool, _ *Fact) { *refused = true }, longest, []float64{30, 20}},
		{"nor that of an unused limit", fixed, func(_ *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { f.Remaining = 100 }, longest, []float64{30, 20}},
		{"what others use of a sliding window", sliding, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.window = 20 * sec }, others, []float64{40, 36}},
		{"by a slow response, which may not have counted all", sliding, func(a *advertised, v *view, _ *time.Duration, _ *bool, _ *Fact) { a.window, v.now = 20*sec, 101*sec }, others, []float64{4 + doubtedShare*36, 1}},
		{"by one that is not that slow", sliding, func(a *advertised, v *view, _ *time.Duration, _ *bool, _ *Fact) { a.window, v.now = 20*sec, 100999*ms }, others, []float64{40, 36}},
		{"by a refused attempt, which does not count", sliding, func(a *advertised, _ *view, _ *time.Duration, refused *bool, _ *Fact) {
			a.window, *refused = 19500*ms, true
		}, others, []float64{41, 37}},
		{"by the same one if it is admitted", sliding, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.window = 19500 * ms }, others, []float64{40, 36}},
		{"a bucket's rate, by whole seconds", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, _ *Fact) { a.slow, a.fast = 0, 1000 }, bounds, []float64{59. / 60, 60. / 59}},
		{"by milliseconds", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) {
			a.slow, a.fast, f.Reset = 0, 1000, 1500*ms
		}, bounds, []float64{59 / 1.5, 60 / 1.499}},
		{"of one, by an admitted attempt", bucket, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) {
			a.quota, f.Quota, f.Remaining = 1, 1, 0
		}, bounds, []float64{1. / 60, 1. / 59}},
		{"of one, by a refused attempt, which may lengthen it", bucket, func(a *advertised, _ *view, _ *time.Duration, refused *bool, f *Fact) {
			a.quota, f.Quota, f.Remaining, *refused = 1, 1, 0, true
		}, bounds, []float64{2, 2}},
		{"of two, by a refused attempt", bucket, func(a *advertised, _ *view, _ *time.Duration, refused *bool, f *Fact) {
			a.quota, f.Quota, f.Remaining, *refused = 2, 2, 0, true
		}, bounds, []float64{1. / 60, 2. / 59}},
		{"a reset may be off by a second and by how much answers differ", fixed, func(a *advertised, v *view, _ *time.Duration, _ *bool, f *Fact) {
			a.prior, v.latency, f.Reset = report{sent: 90 * sec, used: 5, reset: 69500 * ms}, 5e9, 61*sec
		}, one(func(a *advertised) float64 { return a.wrong }), []float64{0.1}},
		{"nobody does", sliding, func(a *advertised, _ *view, _ *time.Duration, _ *bool, f *Fact) { a.window, f.Remaining = 20*sec, 90 }, others, []float64{0, 0.9}},
	} {
		h := &history{}
		for i := range 105 {
			h.add(time.Duration(i+1)*sec, amounts{1, 10, 0})
		}
		a := advertised{
			shaper: newShaper(tt.shape), quota: 100, share: 1, grain: 1, at: 90 * sec, left: 50, spent: 3, margin: 0.08, slack: 5 * ms, slow: 2, fast: 2,
			longest: 30 * sec, least: 20 * sec, taken: 3, during: 4, others: 4, surge: 1,
		}
		a.prior.used = 7
		v, sent, refused, f := view{now: 100100 * ms, h: h}, 100*sec, false, Fact{Quota: 100, Remaining: 40, Window: -1, Reset: time.Minute}
		tt.do(&a, &v, &sent, &refused, &f)
		a.update(v, sent, refused, f)
		for i, got := range tt.get(&a) {
			if math.Abs(got-tt.want[i]) > 1e-6*max(1, math.Abs(tt.want[i])) {
				t.Errorf("%s: %v, want %v", tt.name, tt.get(&a), tt.want)
				break
			}
		}
	}
}

func TestTheDocumentDrawsTheTransitionsOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/law.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(map[string]int)
	for _, m := range regexp.MustCompile(`(?m)^ +(\w+ --> \w+: \w+)$`).FindAllStringSubmatch(string(text), -1) {
		drawn[m[1]]++
	}
	events := map[event]string{answered: "answered", refused: "refused", canary: "canary", admitted: "admitted", nothing: "nothing"}
	for from, to := range moves {
		for e, s := range to {
			drawn[fmt.Sprintf("%v --> %v: %s", from, s, events[e])]--
		}
	}
	for move, n := range drawn {
		if n != 0 {
			t.Errorf("%s: %d more in docs/law.md than in the table", move, n)
		}
	}
}

func TestTheDocumentNamesConstantsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../../docs/law.md")
	if err != nil {
		t.Fatal(err)
	}
	tuning, err := os.ReadFile("tuning.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(string(text), -1)
	names := 0
	for _, row := range rows {
		for _, m := range regexp.MustCompile("`([a-z][A-Za-z]+)`").FindAllStringSubmatch(row[1], -1) {
			names++
			if !regexp.MustCompile(`(?m)^\t(.*\W)?` + m[1] + `\W.*=`).Match(tuning) {
				t.Errorf("docs/law.md names %s, which tuning.go does not have", m[1])
			}
		}
	}
	if names < 20 {
		t.Errorf("docs/law.md names %d constants, want at least 20", names)
	}
}
