package learn

import (
	"testing"
	"time"
)

func TestACanaryThatIsNotRefusedInTimePasses(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*Law)
		want time.Duration // when the attempt after a canary at 100 s goes that is not answered
	}{
		{"after three round trips of a refusal", func(*Law) {}, 100*sec + 300*ms},
		{"of a rate that is known", func(l *Law) { l.block.blamed, l.block.paced = newRate(0, 1, 2), true }, 100*sec + 300*ms},
		{"of an advertised limit", func(l *Law) { l.block.blamed, l.block.explained = nil, true }, 100*sec + 300*ms},
		{"after a second if another rate is blamed", func(l *Law) { l.block.blamed = newRate(0, 1, 2) }, 101 * sec},
		{"or none", func(l *Law) { l.block.blamed = nil }, 101 * sec},
		{"or after six round trips", func(l *Law) { l.block.blamed, l.trip = nil, float64(300*ms) }, 101800 * ms},
		{"never under a penalty", func(l *Law) { l.penalty.length = sec }, never},
		{"nor in an outage", func(l *Law) { l.block.blamed, l.block.outage = nil, true }, never},
		{"nor if it tests an advertised wait", func(l *Law) { l.block.blamed, l.block.doubted = nil, true }, never},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.hold(&flight{size: 3, testAfter: firstTest})
		l.trip, l.latency = float64(100*ms), float64(2*sec)
		l.state, l.block = waiting, block{began: 98 * sec, noticed: 99 * sec, lastRefused: 98 * sec, refusals: 1, pace: 4, blamed: l.limits[0]}
		tt.do(l)
		l.Sent(100*sec, 1)
		if got := l.Hold(100*sec, 1); got != tt.want {
			t.Errorf("%s: the next goes at %v, want %v", tt.name, got, tt.want)
		}
		if l.state != trying || tt.want == never {
			continue
		}
		if got := l.Hold(tt.want, 1); got != tt.want {
			t.Errorf("%s: then at %v", tt.name, got)
		}
		l.Sent(tt.want, 1)
		if l.state != holding || l.block.release != 100*sec || l.flying != 2 {
			t.Errorf("%s: %v after it, released at %v, %d in flight", tt.name, l.state, l.block.release, l.flying)
		}
	}
}

func TestWhatABlockLooksLike(t *testing.T) {
	for _, tt := range []struct {
		name  string
		b     block
		long  bool
		freed time.Duration // since when there may have been room
	}{
		{"three seconds", block{release: 3 * sec, pace: 100, refusals: 1}, false, 0},
		{"more", block{release: 3*sec + 1, pace: 100, refusals: 1}, true, 0},
		{"no more than the round trip takes", block{release: 5 * sec, least: 2 * sec, pace: 100, refusals: 1}, false, 0},
		{"more than that", block{release: 5*sec + 1, least: 2 * sec, pace: 100, refusals: 1}, true, 0},
		{"five attempts", block{release: 10 * sec, pace: 0.5, refusals: 1}, false, 0},
		{"more attempts", block{release: 10*sec + 1, pace: 0.5, refusals: 1}, true, 0},
		{"a canary was refused after a second", block{release: 9 * sec, lastRefused: sec, pace: 100, refusals: 2}, true, sec},
		{"a rate explains that", block{release: 9 * sec, lastRefused: sec, pace: 100, refusals: 2, paced: true}, false, sec},
		{"not for so long", block{release: 9 * sec, lastRefused: 4 * sec, pace: 100, refusals: 2, paced: true}, true, 4 * sec},
		{"nor without a refused canary", block{release: 9 * sec, pace: 100, refusals: 1, paced: true}, true, 0},
		{"the end of an advertised wait is known", block{release: 100 * sec, lastRefused: 4 * sec, pace: 100, refusals: 2, exact: true}, true, 97 * sec},
		{"but not before the last refusal", block{release: 100 * sec, lastRefused: 99 * sec, pace: 100, refusals: 2, exact: true}, true, 99 * sec},
	} {
		for _, began := range []time.Duration{0, 50 * sec} {
			b, freed := tt.b, tt.freed+began
			b.began, b.noticed, b.lastRefused, b.release = began, began, b.lastRefused+began, b.release+began
			if got := b.long(); got != tt.long || b.freedFrom() != freed {
				t.Errorf("%s: long %v, room since %v; want %v, %v", tt.name, got, b.freedFrom(), tt.long, freed)
			}
		}
	}
}

// If blocks of limits that have room again soon ended at the first canary, the next goes sooner.
func TestAfterBriefBlocksTheFirstCanaryGoesSooner(t *testing.T) {
	for brief, want := range map[int]time.Duration{0: sec, 1: sec / 2, 3: sec / 8, 4: sec / 16, 5: sec / 16, 99: sec / 16} {
		l := &Law{brief: brief, block: block{pace: 1000, blamed: &flight{size: 9}}}
		if got := l.soonest(); got != want {
			t.Errorf("after %d of them: after %v, want %v", brief, got, want)
		}
	}
}

func TestABlockThatARoundTripExplainsIsNotLong(t *testing.T) {
	for _, tt := range []struct {
		name  string
		least time.Duration
		want  bool
	}{
		{"the canary could have gone before", 100 * ms, true},
		{"it went as soon as what was in flight was back", 4 * sec, false},
	} {
		b := block{refusals: 1, release: 5 * sec, pace: 14, least: tt.least}
		if got := b.long(); got != tt.want {
			t.Errorf("%s: long %v", tt.name, got)
		}
	}
}
