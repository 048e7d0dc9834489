package learn

import (
	"math"
	"testing"
	"time"
)

func TestWhatAPenaltyLearnsFromABlock(t *testing.T) {
	minute := penalty{length: time.Minute}
	for _, tt := range []struct {
		name                 string
		p                    penalty
		took, silence, short time.Duration
		refusals             int
		want                 penalty
	}{
		{"no penalty is suspected", penalty{}, time.Minute, time.Minute, 5 * sec, 2, penalty{}},
		{"half of it", minute, 30 * sec, 30 * sec, 0, 1, penalty{length: 30 * sec, blocks: 1}},
		{"less than half", minute, 30*sec - 1, 30 * sec, 0, 1, penalty{length: time.Minute, shortInRow: 1}},
		{"less than the first wait, where little is known", penalty{length: 160 * sec, low: 10 * sec}, 40*sec - 1, 30 * sec, 0, 1, penalty{length: 160 * sec, low: 10 * sec, shortInRow: 1}},
		{"the first wait was not enough", minute, 70 * sec, 30 * sec, 59 * sec, 2, penalty{length: time.Minute, low: 59 * sec, blocks: 1}},
		{"nor was all of it", minute, 160 * sec, 100 * sec, time.Minute, 2, penalty{length: 100 * sec, low: time.Minute, blocks: 1}},
		{"by far", minute, 300 * sec, 200 * sec, time.Minute, 2, penalty{length: 180 * sec, low: time.Minute, blocks: 1}},
		{"but the next canary was soon enough", minute, 90 * sec, 30 * sec, time.Minute, 2, penalty{length: time.Minute, low: time.Minute, blocks: 1}},
	} {
		if tt.p.ended(tt.took, tt.silence, tt.short, tt.refusals); tt.p != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, tt.p, tt.want)
		}
	}
	// A block of a minute that a limit explains, with fifty seconds without a canary at its end.
	for _, tt := range []struct {
		name string
		p    penalty
		b    block
		want penalty
	}{
		{"there was room after 38 s: the rest is a penalty", penalty{}, block{expected: 38 * sec, hadRoom: true, refusals: 2, tooShort: 9 * sec}, penalty{length: 50 * sec, low: 9 * sec, blocks: 1}},
		{"after 38 s by an advertised wait", penalty{}, block{expected: 38 * sec, exact: true, refusals: 2, tooShort: 90 * sec}, penalty{length: 50 * sec, low: 50 * sec, blocks: 1}},
		{"no canary was refused", penalty{}, block{expected: 38 * sec, hadRoom: true, refusals: 1, tooShort: 9 * sec}, penalty{length: 50 * sec, blocks: 1}},
		{"after 39 s, which may be late", penalty{}, block{expected: 39 * sec, hadRoom: true, refusals: 2}, penalty{}},
		{"nothing suggests a penalty", penalty{}, block{expected: sec, refusals: 2}, penalty{}},
		{"which was longer before", penalty{length: 100 * sec}, block{expected: sec, refusals: 2}, penalty{length: time.Minute, blocks: 1}},
		{"and is searched for", penalty{length: 100 * sec}, block{expected: sec, hadRoom: true, refusals: 2, tooShort: 20 * sec}, penalty{length: 100 * sec, low: 20 * sec, blocks: 1}},
	} {
		tt.b.noticed, tt.b.lastRefused, tt.b.release = 100*sec, 110*sec, 160*sec
		if tt.p.endedExplained(&tt.b); tt.p != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, tt.p, tt.want)
		}
	}
	if got := (&penalty{length: 23 * time.Hour}).wait(); got != 24*time.Hour {
		t.Errorf("a canary goes %v after a penalty of 23 hours, want a day", got)
	}
	for blocks, want := range map[int]float64{0: 0.8, 2: 0.88, 9: penaltyHigh} {
		if got := (&penalty{blocks: blocks}).keep(); math.Abs(got-want) > 1e-9 {
			t.Errorf("after %d blocks %v of the pace is kept, want %v", blocks, got, want)
		}
	}
	for known, want := range map[time.Duration]time.Duration{0: time.Minute, time.Minute: time.Minute} { // three times the last wait
		l := &Law{refuted: 1, silence: time.Minute, penalty: penalty{length: known}, block: block{refusals: 2, wait: 20 * sec}}
		if got := l.penaltyWait(); got != want {
			t.Errorf("with a penalty of %v the second canary waits %v, want %v", known, got, want)
		}
	}
	l := &Law{penalty: penalty{length: time.Minute}, block: block{refusals: 4, wait: 6 * time.Minute}}
	if got := l.penaltyWait(); got != penaltyLongest {
		t.Errorf("after a wait of six minutes the next canary waits %v, want a quarter of an hour, the longest penalty", got)
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
	p.endedExplained(&block{noticed: 0, lastRefused: first, release: first + 100*sec, tooShort: first, refusals: 2, hadRoom: true, expected: sec})
	if got := p.wait(); got <= first {
		t.Errorf("the first canary of the next block goes after %v, and %v was not enough", got, first)
	}
	p = penalty{}
	p.endedExplained(&block{lastRefused: 100 * sec, release: 500 * sec, tooShort: 4 * sec, refusals: 5, hadRoom: true, expected: sec})
	if p.length != 400*sec || p.wait() != 40*sec {
		t.Errorf("a new penalty of %v: the next canary goes after %v, want 40s, between 4s and 400s", p.length, p.wait())
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

func TestTheMeanUnderAPenalty(t *testing.T) {
	r, p := newRate(0, 1, 2), penalty{}
	for _, tt := range []struct {
		name  string
		begin func()
		want  float64
	}{
		{"the first cycle", func() {}, 0},
		{"one after a refusal", func() { r.punish(0, 1, 2, time.Minute) }, 0.5},
		{"of the next one with as many in half the time, and of eight tenths of that", func() { r.released = 30 * sec }, (0.8*30 + 30) / (0.8*60 + 30)},
		{"after another limit refused nothing is added", func() { r.void(0) }, (0.8*30 + 30) / (0.8*60 + 30)},
	} {
		tt.begin()
		r.count = 31
		if got := p.earn(r, time.Minute); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v/s, want %v", tt.name, got, tt.want)
		}
	}
}
