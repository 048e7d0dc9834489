package learn

import (
	"cmp"
	"testing"
	"time"
)

// Others use up the limit each time before a canary arrives, until once they do not. The
// canaries become rarer, up to one a minute.
func TestALimitThatOthersUseUpIsProbedRepeatedly(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	now := time.Duration(0)
	for range 40 {
		l.Sent(now, 1)
		now += ms
		l.Observe(Outcome{Sent: now - ms, Now: now, Class: Admitted})
	}
	for n := range 40 {
		at := l.Hold(now, 1)
		low, high := sec, minContended
		switch {
		case n > 11:
			low, high = maxContended, maxContended
		case n > 5:
			low, high = minContended<<(n/2-2), minContended<<(n/2-1) // a usual window may end sooner
		case n > 4:
			low, high = minContended, 2*minContended
		}
		if wait := at - now; n > 0 && (wait < low || wait > high*5/4+sec) {
			t.Fatalf("after %d refusals the next attempt goes after %v, want %v to %v", n, wait, low, high*5/4+sec)
		}
		now = at
		l.Sent(now, 1)
		now += ms
		l.Advertise(now-ms, now, true, Fact{Name: "requests", Quota: 1, Remaining: 0, Reset: 10 * ms, Window: -1})
		l.Observe(Outcome{Sent: now - ms, Now: now, Class: Refused, RetryAfter: sec})
	}
	for n, want := range map[int]time.Duration{2: 10 * sec, 3: 10 * sec, 4: 20 * sec, 5: 20 * sec, 6: 40 * sec, 8: 80 * sec, 10: 160 * sec, 12: 5 * time.Minute, 99: 5 * time.Minute} {
		if got := (&block{refusals: n}).contended(0); got != want {
			t.Errorf("after %d refusals the next canary goes after %v, want %v", n, got, want)
		}
	}
	for n, want := range map[int]time.Duration{2: 90 * sec, 3: 90 * sec, 4: 180 * sec, 6: 5 * time.Minute, 99: 5 * time.Minute} {
		if got := (&block{refusals: n}).contended(90 * sec); got != want {
			t.Errorf("after %d refusals where 90 s found room the next canary goes after %v, want %v", n, got, want)
		}
	}
	if got := (&block{refusals: 9}).contended(time.Hour); got != time.Hour {
		t.Errorf("where an hour found room the next canary goes after %v", got)
	}
}

// A refusal arrives at 100 s, with a round trip of 100 ms, while answers take 400 ms. An
// attempt was sent each second.
func TestWhenACanaryGoes(t *testing.T) {
	hold := func(x limit) func(*Law) { return func(l *Law) { l.limits, l.block.blamed = []limit{x}, x } }
	sized := func(n float64, w window) *window { w.size, w.raise = amounts{n, n, 0}, 1; return &w }
	sliding := func(left float64) func(*Law) {
		return func(l *Law) {
			l.headers = []advertised{{shaper: newShaper(sliding), quota: 100, left: left, share: 1, at: 99 * sec, whole: 140 * sec}}
		}
	}
	windows := func(l *Law) { // of 40 s, since a release at 65 s
		l.expect(40 * sec)
		l.block.from, l.block.refusals, l.block.wait = 65*sec, 2, 9*sec
	}
	never := func(l *Law) { l.allAdmitted, l.allRefused, l.block.wait, l.block.noticed = 1, 2, 2*sec, 40*sec }
	for _, tt := range []struct {
		name     string
		do       []func(*Law)
		f        refusal
		want     time.Duration // a canary after another goes up to a quarter later
		least    time.Duration
		expected time.Duration
	}{
		{"the first after a second", nil, refusal{limited: true}, sec, 120 * ms, 7 * sec},
		{"or a round trip and a fifth", []func(*Law){func(l *Law) { l.block.soonest = 0 }}, refusal{limited: true}, 120 * ms, 120 * ms, 7 * sec},
		{"with two or three in flight after an answer's time and a fifth", []func(*Law){func(l *Law) { l.block.soonest, l.flying = 0, 3 }}, refusal{limited: true}, 480 * ms, 480 * ms, 7 * sec},
		{"with more after that in which three return", []func(*Law){func(l *Law) { l.block.soonest, l.flying = 0, 6 }}, refusal{limited: true}, 240 * ms, 240 * ms, 7 * sec},
		{"with many after a round trip", []func(*Law){func(l *Law) { l.block.soonest, l.flying = 0, 60 }}, refusal{limited: true}, 120 * ms, 120 * ms, 7 * sec},
		{"one in flight is the refused one's successor", []func(*Law){func(l *Law) { l.block.soonest, l.flying = 0, 1 }}, refusal{limited: true}, 120 * ms, 120 * ms, 7 * sec},
		{"after the advertised wait", nil, refusal{limited: true, wait: 5 * sec}, 5100 * ms, 120 * ms, 7 * sec},
		{"when a penalty ends", []func(*Law){func(l *Law) { l.penalty.length = 10 * time.Minute }}, refusal{limited: true}, 11 * time.Minute, 120 * ms, 7 * sec},
		{"or when a limit has room, unless it may be an outage", []func(*Law){func(l *Law) { l.block.soonest = 11 * time.Minute }}, refusal{}, time.Minute, 120 * ms, 7 * sec},
		{"which two long blocks rule out", []func(*Law){func(l *Law) { l.block.soonest, l.longs = 11*time.Minute, 2 }}, refusal{}, 11 * time.Minute, 120 * ms, 7 * sec},
		{"one does not", []func(*Law){func(l *Law) { l.block.soonest, l.longs = 11*time.Minute, 1 }}, refusal{}, time.Minute, 120 * ms, 7 * sec},
		{"and a refusal in the first minute", []func(*Law){func(l *Law) { l.block.soonest, l.began = 11*time.Minute, 40*sec }}, refusal{}, 11 * time.Minute, 120 * ms, 7 * sec},
		{"not later", []func(*Law){func(l *Law) { l.block.soonest, l.began = 11*time.Minute, 40*sec-1 }}, refusal{}, time.Minute, 120 * ms, 7 * sec},
		{"and a penalty", []func(*Law){func(l *Law) { l.penalty.length = 10 * time.Minute }}, refusal{}, 11 * time.Minute, 120 * ms, 7 * sec},
		{"also one that is suspected", []func(*Law){func(l *Law) { l.block.soonest, l.refuted = 11*time.Minute, 1 }}, refusal{}, 11 * time.Minute, 120 * ms, 7 * sec},
		{"an outage of five minutes", []func(*Law){func(l *Law) { l.block.soonest, l.block.noticed = 11*time.Minute, -200*sec }}, refusal{}, 150 * sec, 120 * ms, 7 * sec},
		{"an outage that says for how long", []func(*Law){func(l *Law) { l.penalty.length = 10 * time.Minute }}, refusal{wait: 2 * time.Minute}, 2*time.Minute + 100*ms, 120 * ms, 7 * sec},
		{"at most a day", []func(*Law){func(l *Law) { l.penalty.length = 48 * time.Hour }}, refusal{limited: true}, 24 * time.Hour, 120 * ms, 7 * sec},
		{"when a window has room", []func(*Law){hold(sized(5, window{low: 20 * sec, high: 20 * sec}))}, refusal{limited: true}, 16100 * ms, 120 * ms, 7 * sec},
		{"in a test: when it has room with its size before", []func(*Law){hold(sized(9, window{low: 20 * sec, high: 20 * sec})), func(l *Law) {
			l.block.tested, l.block.window = true, *sized(5, window{low: 20 * sec, high: 20 * sec})
			l.block.window.raise = 1.5
		}}, refusal{limited: true}, 16100 * ms, 120 * ms, 7 * sec},
		{"a window of one block: after half of what is left", []func(*Law){hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec}))}, refusal{limited: true}, 18 * sec, 120 * ms, 7 * sec},
		{"but as any, if a rate explains the refusal too", []func(*Law){hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.paced = true }}, refusal{limited: true}, sec, 120 * ms, 7 * sec},
		{"and no sooner once that was refused", []func(*Law){hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait = 2, sec }}, refusal{limited: true}, 3 * sec, 0, 7 * sec},
		{"two blocks support it: when it ends at the latest", []func(*Law){hold(sized(5, window{lone: true, hits: 1, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait = 2, 20*sec }}, refusal{limited: true}, 47100 * ms, 0, 7 * sec},
		{"from the last release on, if all it holds went since then, but for two in a hundred", []func(*Law){hold(sized(100, window{lone: true, hits: 1, low: 105 * sec, high: 110 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait, l.block.from = 2, 20*sec, 2*sec }}, refusal{limited: true}, 14300 * ms, 0, 7 * sec},
		{"if more went before: from the first of them on", []func(*Law){hold(sized(100, window{lone: true, hits: 1, low: 105 * sec, high: 110 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait, l.block.from = 2, 20*sec, 50*sec }}, refusal{limited: true}, 13300 * ms, 0, 7 * sec},
		{"of many attempts: first when a usual one ends", []func(*Law){hold(sized(5, window{lone: true, hits: 1, low: 40 * sec, high: 70 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait = 2, 60*sec }}, refusal{limited: true}, 56220 * ms, 0, 7 * sec},
		{"of few: at the latest", []func(*Law){hold(sized(5, window{lone: true, hits: 1, low: 40 * sec, high: 70 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait, l.block.count = 2, 60*sec, minAimed-1 }}, refusal{limited: true}, 67500 * ms, 0, 7 * sec},
		{"none is usual before: at the latest", []func(*Law){hold(sized(5, window{lone: true, hits: 1, low: 60 * sec, high: 70 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait = 2, 60*sec }}, refusal{limited: true}, 67500 * ms, 0, 7 * sec},
		{"of costs: at the latest", []func(*Law){hold(sized(5, window{unit: cost, lone: true, hits: 1, low: 40 * sec, high: 70 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait = 2, 60*sec }}, refusal{limited: true}, 67500 * ms, 0, 7 * sec},
		{"which has passed", []func(*Law){hold(sized(5, window{lone: true, hits: 1, low: 2 * sec, high: 4 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait, l.block.count = 2, 20*sec, -1 }}, refusal{limited: true}, 60220 * ms, 0, 7 * sec},
		{"one block does: three times later", []func(*Law){hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait, l.block.count = 2, 20*sec, -1 }}, refusal{limited: true}, 60220 * ms, 0, 7 * sec},
		{"a window counted in periods: after two and a half units", []func(*Law){hold(sized(20, window{counted: true, low: 20 * sec, high: 20 * sec}))}, refusal{limited: true}, 2500 * ms, 120 * ms, 7 * sec},
		{"a window whose length is not known: in between", []func(*Law){hold(sized(5, window{low: 20 * sec, high: 22 * sec, fold: sec}))}, refusal{limited: true}, 17 * sec, 120 * ms, 7 * sec},
		{"one by the clock: with it", []func(*Law){hold(sized(5, window{low: 60 * sec, high: 60 * sec, clock: 60 * sec})), func(l *Law) { l.phase = 0 }}, refusal{limited: true}, 20100 * ms, 120 * ms, 7 * sec},
		{"an answer frees a limit in flight", []func(*Law){hold(&flight{size: 1}), func(l *Law) { l.flying = 1 }}, refusal{limited: true}, sec, 120 * ms, 7 * sec},
		{"in an outage whatever the limits say", []func(*Law){hold(sized(5, window{low: 20 * sec, high: 20 * sec})), func(l *Law) { l.block.outage = true }}, refusal{limited: true}, sec, 120 * ms, 7 * sec},
		{"an advertised limit explains it", []func(*Law){sliding(0), func(l *Law) { l.block.explained, l.headers[0].shape = true, fixed }}, refusal{limited: true}, 120 * ms, 120 * ms, 40012500 * time.Microsecond},
		{"but it refuses again: when all units are back", []func(*Law){sliding(1), func(l *Law) { l.block.explained, l.block.hadRoom, l.block.refusals = true, true, 2 }}, refusal{limited: true}, 40 * sec, 0, 7 * sec},
		{"if nearly all of it is used", []func(*Law){sliding(2), func(l *Law) { l.block.explained, l.block.hadRoom, l.block.refusals = true, true, 2 }}, refusal{limited: true}, 20 * sec, 0, 7 * sec},
		{"others came first: not that late", []func(*Law){sliding(1), func(l *Law) { l.block.explained, l.block.refusals = true, 2 }}, refusal{limited: true}, 10 * sec, 0, 7 * sec},
		{"unless the advertised wait is longer", []func(*Law){sliding(1), func(l *Law) { l.block.explained, l.block.refusals = true, 2 }}, refusal{limited: true, wait: 30 * sec}, 30100 * ms, 0, 7 * sec},
		{"twice the time until there is room", []func(*Law){sliding(0), func(l *Law) {
			l.block.explained, l.block.refusals, l.block.wait, l.headers[0].shape, l.headers[0].whole = true, 2, time.Hour, fixed, 130*sec
		}}, refusal{limited: true}, 60025 * ms, 0, 7 * sec},
		{"after a refused canary, three times later", []func(*Law){func(l *Law) { l.block.refusals, l.block.wait = 2, sec }}, refusal{limited: true}, 3 * sec, 0, 7 * sec},
		{"or after the advertised wait", []func(*Law){func(l *Law) { l.block.refusals, l.block.wait = 3, 2*sec }}, refusal{limited: true, wait: 9 * sec}, 9120 * ms, 0, 7 * sec},
		{"a wait of a day is observed", nil, refusal{limited: true, wait: 24 * time.Hour}, 24*time.Hour + 100*ms, 120 * ms, 7 * sec},
		{"no other wait is longer", []func(*Law){func(l *Law) {
			l.block.refusals, l.block.wait, l.block.began, l.block.count = 2, 9*time.Hour, -100*time.Hour, 1
		}}, refusal{limited: true}, 24 * time.Hour, 0, 7 * sec},
		{"a wait that is advertised anew replaces the last one", []func(*Law){func(l *Law) { l.block.refusals, l.block.wait = 2, time.Hour }}, refusal{limited: true, wait: 5 * sec}, 5100 * ms, 0, 7 * sec},
		{"in an outage canaries are no further apart, whatever is in flight", []func(*Law){func(l *Law) { l.block.refusals, l.block.outage, l.flying = 2, true, 2 }}, refusal{wait: 9 * sec}, 9100 * ms, 0, 7 * sec},
		{"which is twice the last wait", []func(*Law){func(l *Law) { l.block.refusals, l.block.outage, l.block.wait = 2, true, 4*sec }}, refusal{}, 8 * sec, 0, 7 * sec},
		{"a refusal with a wait that has not changed is no outage's", []func(*Law){func(l *Law) { l.block.refusals, l.block.wait, l.block.hadRoom = 3, 5*time.Minute, true }}, refusal{wait: 5 * sec}, 15 * time.Minute, 0, 7 * sec},
		{"a configured window ends sooner than one would ask otherwise", []func(*Law){windows}, refusal{limited: true}, 5180 * ms, 0, 7 * sec},
		{"though a single block supports another one", []func(*Law){windows, hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec}))}, refusal{limited: true}, 5180 * ms, 0, 7 * sec},
		{"unless a window is known: when a usual one ends", []func(*Law){windows, hold(sized(5, window{low: 20 * sec, high: 20 * sec}))}, refusal{limited: true}, 25220 * ms, 0, 7 * sec},
		{"a window of costs has room for one", []func(*Law){hold(sized(5, window{unit: cost, low: 20 * sec, high: 20 * sec}))}, refusal{limited: true}, 16100 * ms, 120 * ms, 7 * sec},
		{"a window of one block, once a canary was refused: as if there were none", []func(*Law){hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec})), func(l *Law) {
			l.block.refusals, l.block.wait, l.block.hadRoom = 2, 9*sec, true
		}}, refusal{limited: true}, 27 * sec, 0, 7 * sec},
		{"an advertised limit on cost has room for one", []func(*Law){sliding(1), func(l *Law) { l.block.explained, l.headers[0].shape, l.headers[0].perCost = true, fixed, true }}, refusal{limited: true}, 120 * ms, 120 * ms, 0},
		{"and had when others came first", []func(*Law){sliding(1), func(l *Law) {
			l.block.explained, l.block.refusals, l.block.wait, l.headers[0].shape, l.headers[0].perCost = true, 2, time.Hour, fixed, true
		}}, refusal{limited: true}, 10 * sec, 0, 7 * sec},
		{"an advertised limit that explains nothing", []func(*Law){sliding(1), func(l *Law) { l.block.refusals, l.block.wait = 2, sec }}, refusal{limited: true}, 3 * sec, 0, 7 * sec},
		{"nor holds back for long", []func(*Law){sliding(1), func(l *Law) { l.block.refusals, l.block.wait = 2, 20*sec }}, refusal{limited: true}, 60220 * ms, 0, 7 * sec},
		{"one that explains it has room", []func(*Law){sliding(1), func(l *Law) { l.block.explained = true }}, refusal{limited: true}, 120 * ms, 120 * ms, 0},
		{"once a canary was refused, half of what found room last time", []func(*Law){sliding(1), func(l *Law) {
			l.sought, l.block.explained, l.block.refusals, l.block.wait, l.headers[0].shape = 70*sec, true, 2, sec, fixed
		}}, refusal{limited: true}, 70 * sec, 0, 7 * sec},
		{"more often refused than admitted, not at once", []func(*Law){sliding(1), never, func(l *Law) { l.block.explained = true }}, refusal{limited: true}, sec, 120 * ms, 0},
		{"not while a minute may be the cause", []func(*Law){never, func(l *Law) { l.block.refusals, l.block.wait, l.block.noticed = 2, 20*sec, 40*sec+1 }}, refusal{limited: true}, 60220 * ms, 0, 7 * sec},
		{"nor one of a configured length, of 70 s", []func(*Law){never, func(l *Law) {
			l.expect(70 * sec)
			l.block.refusals, l.block.wait, l.block.noticed = 2, 20*sec, 30*sec+1
		}}, refusal{limited: true}, 60 * sec, 0, 7 * sec},
		{"but after it", []func(*Law){never, func(l *Law) { l.expect(70 * sec); l.block.refusals, l.block.wait, l.block.noticed = 2, 20*sec, 30*sec }}, refusal{limited: true}, 100 * sec, 0, 7 * sec},
		{"then five times later", []func(*Law){never, func(l *Law) { l.block.refusals = 2 }}, refusal{limited: true}, 10 * sec, 0, 7 * sec},
		{"up to an hour", []func(*Law){never, func(l *Law) { l.block.refusals, l.block.wait = 2, 12*time.Minute+sec }}, refusal{limited: true}, time.Hour, 0, 7 * sec},
		{"also if others use it up", []func(*Law){sliding(1), never, func(l *Law) { l.block.explained, l.block.refusals, l.block.wait = true, 2, 30*sec }}, refusal{}, 150 * sec, 0, 7 * sec},
		{"then up to a quarter of an hour", []func(*Law){sliding(1), never, func(l *Law) { l.block.explained, l.block.refusals, l.block.wait = true, 2, 4*time.Minute }}, refusal{}, 15 * time.Minute, 0, 7 * sec},
		{"then twice as late", []func(*Law){sliding(1), never, func(l *Law) { l.block.explained, l.block.refusals, l.block.wait = true, 2, 15*time.Minute }}, refusal{}, 30 * time.Minute, 0, 7 * sec},
		{"up to an hour then, too", []func(*Law){sliding(1), never, func(l *Law) { l.block.explained, l.block.refusals, l.block.wait = true, 2, 45*time.Minute }}, refusal{}, time.Hour, 0, 7 * sec},
		{"as often admitted", []func(*Law){never, func(l *Law) { l.allRefused, l.block.refusals, l.block.wait = 1, 2, 20*sec }}, refusal{limited: true}, 60220 * ms, 0, 7 * sec},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour, Phase: 1811 * sec})
		l.h, l.clock, l.last, l.trip, l.latency = *sentEvenly(100*sec, sec, 100), 100*sec, 100*sec, float64(100*ms), float64(400*ms)
		l.block = block{from: -7 * time.Hour, began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, refusals: 1, soonest: sec, expected: 7 * sec, lastWait: 8 * sec, count: 1e6}
		l.allAdmitted = 99
		for _, do := range tt.do {
			do(l)
		}
		tt.f.sent, tt.f.now = 100*sec, 100*sec
		l.plan(tt.f)
		b := &l.block
		most := tt.want + 5*ms
		if b.refusals > 1 && !b.outage {
			most = max(maxSilence, tt.f.wait+100*ms)
			if apart := (&block{}).apart(l.clock, tt.want); apart < tt.want/20 || tt.want+apart < most {
				most = tt.want + apart + 5*ms
			}
		}
		if b.wait < tt.want-5*ms || b.wait > most || b.resume != l.clock+b.wait {
			t.Errorf("%s: after %v, at %v, want %v", tt.name, b.wait, b.resume, tt.want)
		}
		if b.least != tt.least || (b.expected-tt.expected).Abs() > ms || b.exact != (tt.f.wait > 0 && b.refusals <= 2) && b.refusals <= 2 || b.lastWait != cmp.Or(tt.f.wait, 8*sec) {
			t.Errorf("%s: least %v, expected %v, exact %v, last wait %v; want %v, %v", tt.name, b.least, b.expected, b.exact, b.lastWait, tt.least, tt.expected)
		}
	}
}

// A refusal at 100 s asks for 5 s. Under the penalty of the rows the next canary goes after 11 minutes.
func TestAdvertisedWaitsMayBeTooShortForAPenalty(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(*Law)
		exact bool
		want  time.Duration
	}{
		{"two canaries in a row were refused at the end of one", func(l *Law) { l.penalty.length, l.named.short = 10*time.Minute, 2 }, false, 11 * time.Minute},
		{"one was", func(l *Law) { l.penalty.length, l.named.short = 10*time.Minute, 1 }, true, 5 * sec},
		{"two were, but there is no penalty", func(l *Law) { l.named.short = 2 }, true, 5 * sec},
		{"one is suspected", func(l *Law) { l.refuted, l.silence, l.named.short = 1, 9*sec, 2 }, false, 9 * sec},
		{"no penalty lasts longer than the last wait", func(l *Law) {
			l.penalty.length, l.named.short, l.block.refusals, l.block.wait = 10*time.Minute, 2, 2, penaltyLongest+1
		}, true, 5 * sec},
		{"one may", func(l *Law) {
			l.penalty.length, l.named.short, l.block.refusals, l.block.wait = 10*time.Minute, 2, 2, penaltyLongest
		}, false, 15 * time.Minute},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock, l.allAdmitted = *sentEvenly(100*sec, sec, 100), 100*sec, 99
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, refusals: 1, count: 1e6}
		tt.do(l)
		l.plan(refusal{sent: 100 * sec, now: 100 * sec, wait: 5 * sec, limited: true})
		if b := &l.block; b.exact != tt.exact || b.wait < tt.want || b.wait > tt.want+tt.want/4 {
			t.Errorf("%s: after %v, as advertised %v; want %v, %v", tt.name, b.wait, b.exact, tt.want, tt.exact)
		}
	}
}

// The newest canary was refused now, hours after the block began, unless a row says otherwise.
func TestTheWaitBeforeACanary(t *testing.T) {
	const far = -1000 * time.Hour
	hours := func(b block) block {
		if b.began == 0 {
			b.began = -7*time.Hour - 17*time.Minute
		}
		return b
	}
	for _, tt := range []struct {
		name             string
		b                block
		trip, room, from time.Duration
		phase, penalty   time.Duration
		want             time.Duration
	}{
		{"the first", block{refusals: 1, soonest: sec}, 100 * ms, 0, far, 0, 0, sec},
		{"a long round trip", block{refusals: 1, soonest: sec}, 2 * sec, 0, far, 0, 0, 2400 * ms},
		{"a penalty", block{refusals: 1, soonest: sec}, 100 * ms, 0, far, 0, 5 * sec, 5 * sec},
		{"a limit has room later", block{refusals: 1, soonest: sec}, 100 * ms, 42 * sec, far, 0, 5 * sec, 42 * sec},
		{"an advertised limit has room", block{refusals: 1, soonest: sec, explained: true}, 100 * ms, 0, far, 0, 0, 120 * ms},
		{"it has, but there is a penalty", block{refusals: 1, soonest: sec, explained: true}, 100 * ms, 0, far, 0, 5 * sec, 5 * sec},
		{"it has later", block{refusals: 1, soonest: sec, explained: true}, 100 * ms, 9 * sec, far, 0, 0, 9 * sec},
		{"an outage: twice the last wait", block{refusals: 3, wait: 4 * sec, outage: true}, 0, 0, far, 0, 0, 8 * sec},
		{"a second at least", block{refusals: 1, wait: 100 * ms, outage: true}, 0, 0, far, 0, 0, sec},
		{"half a minute at most", block{refusals: 9, wait: 25 * sec, outage: true}, 0, 0, far, 0, 0, 30 * sec},
		{"or a quarter of its age", block{refusals: 9, wait: 45 * sec, outage: true, noticed: -200 * sec}, 0, 0, far, 0, 0, 50 * sec},
		{"the second: three times later", block{refusals: 2, wait: sec}, 0, 0, far, 0, 0, 3 * sec},
		{"a second later at least", block{refusals: 2, wait: 100 * ms}, 0, 0, far, 0, 0, sec},
		{"or after a penalty", block{refusals: 2, wait: sec}, 0, 0, far, 0, 9 * sec, 9 * sec},
		{"after many attempts half as much later", block{refusals: 4, wait: 21 * sec, count: 131_101}, 0, 0, far, 1801 * sec, 0, 31500 * ms},
		{"not after somewhat less", block{refusals: 4, wait: 21 * sec, count: 131_100}, 0, 0, far, 1801 * sec, 0, 63 * sec},
		{"nor in the first minute", block{refusals: 4, wait: 20 * sec, count: 131_101}, 0, 0, far, 1801 * sec, 0, time.Minute},
		{"nor if it is a penalty", block{refusals: 4, wait: 21 * sec, count: 131_101, hadRoom: true}, 0, 0, far, 0, 0, 63 * sec},
		{"no penalty is longer than a quarter of an hour", block{refusals: 7, wait: 10 * time.Minute}, 0, 0, far, 0, 0, 15 * time.Minute},
		{"or of that length", block{refusals: 7, wait: 15 * time.Minute, hadRoom: true}, 0, 0, far, 0, 0, 15 * time.Minute},
		{"a block that outlasts it is no penalty: canaries are rare", block{refusals: 9, wait: 15 * time.Minute, count: 23_437.5}, 0, 0, far, 0, 0, 20976 * 100 * ms},
		{"after many attempts more often", block{refusals: 9, wait: 15 * time.Minute, count: 1e7}, 0, 0, far, 0, 0, 5 * time.Minute},
		{"after few every half of its age", block{refusals: 9, wait: 15 * time.Minute, count: 600, began: -44 * time.Minute}, 0, 0, far, 0, 0, 22 * time.Minute},
		{"after one, too", block{refusals: 9, wait: 15 * time.Minute, began: -44 * time.Minute}, 0, 0, far, 0, 0, 22 * time.Minute},
		{"room, but not for us", block{refusals: 2, wait: sec, explained: true, hadRoom: true}, 0, 0, far, 0, 0, 20 * sec},
		{"a minute after the last release", block{refusals: 2, wait: 4 * sec, count: 1e6}, 0, 0, -50 * sec, 0, 0, 10120 * ms},
		{"and a round trip", block{refusals: 2, wait: 4 * sec, count: 1e6}, 100 * ms, 0, -50 * sec, 0, 0, 10220 * ms},
		{"a minute after the block began", block{refusals: 2, wait: 4 * sec, began: -50 * sec}, 0, 0, far, 50 * sec, 0, 10120 * ms},
		{"a minute of the clock", block{refusals: 2, wait: 4 * sec, began: -50 * sec}, 0, 0, far, 51 * sec, 0, 9120 * ms},
		{"a penalty ends at no minute", block{refusals: 2, wait: 4 * sec, hadRoom: true}, 0, 0, -50 * sec, 0, 0, 12 * sec},
		{"a minute that ends too soon", block{refusals: 2, wait: 4 * sec, count: 1e6}, 0, 0, -53 * sec, 0, 0, 12 * sec},
		{"just not too soon", block{refusals: 2, wait: 4 * sec, count: 1e6}, 0, 0, -52920 * ms, 0, 0, 7200 * ms},
		{"one that ends too late", block{refusals: 2, wait: 4 * sec, count: 1e6}, 0, 0, -36100 * ms, 0, 0, 12 * sec},
		{"just not too late", block{refusals: 2, wait: 4 * sec, count: 1e6}, 0, 0, -36200 * ms, 0, 0, 23920 * ms},
		{"before a penalty ends", block{refusals: 2, wait: 4 * sec, count: 1e6}, 0, 0, -50 * sec, 0, 11 * sec, 12 * sec},
		{"when a limit has room", block{refusals: 2, wait: 4 * sec}, 0, 15 * sec, far, 0, 0, 15 * sec},
		{"or a minute ends before", block{refusals: 2, wait: 4 * sec, count: 1e6}, 0, 15 * sec, -50 * sec, 0, 0, 10120 * ms},
		{"after long waits an instant may be a tenth later than the last wait", block{refusals: 7, wait: 10 * time.Minute}, 0, 660 * sec, far, 0, 0, 660 * sec},
		{"not less", block{refusals: 7, wait: 10 * time.Minute}, 0, 659 * sec, far, 0, 0, 15 * time.Minute},
		{"and a fifth later than any penalty", block{refusals: 7, wait: 10 * time.Minute}, 0, 1079 * sec, far, 0, 0, 1079 * sec},
		{"not more", block{refusals: 7, wait: 10 * time.Minute}, 0, 1080 * sec, far, 0, 0, 15 * time.Minute},
		{"five minutes are not long: an instant may be sooner than the last wait", block{refusals: 7, wait: 200 * sec, count: 1e9, hadRoom: false}, 0, 200 * sec, far, 1801 * sec, 0, 200 * sec},
		{"longer ones are", block{refusals: 7, wait: 150 * sec, hadRoom: true}, 0, 269 * sec, far, 0, 0, 450 * sec},
		{"of which three fifths are not too soon", block{refusals: 7, wait: 150 * sec, hadRoom: true}, 0, 270 * sec, far, 0, 0, 270 * sec},
		{"when a penalty ends, if a limit has room then", block{refusals: 2, wait: 4 * sec, hadRoom: true}, 0, 10 * sec, far, 0, 10 * sec, 10 * sec},
		{"a minute after the first attempt, and not a quarter", block{refusals: 3, wait: 4 * sec, first: true, count: 599}, 0, 0, -39 * sec, 21 * sec, 0, 21535 * ms},
		{"later after fewer attempts", block{refusals: 3, wait: 4 * sec, first: true, count: 89}, 0, 0, -44 * sec, 0, 0, 18887 * ms},
		{"a tenth of it at most", block{refusals: 3, wait: 4 * sec, first: true, count: 40}, 0, 0, -48 * sec, 0, 0, 18120 * ms},
		{"fewer may be a ban", block{refusals: 3, wait: 4 * sec, first: true, count: 39}, 0, 0, -50 * sec, 0, 0, 16120 * ms},
		{"sooner than another window", block{refusals: 3, wait: 10 * sec, first: true, count: 599}, 0, 0, -54 * sec, 0, 0, 6535 * ms},
		{"a fifth of the wait from now at least", block{refusals: 3, wait: 11 * sec, first: true, count: 599}, 0, 0, -54 * sec, 1801 * sec, 0, 33 * sec},
		{"nor when a window of the clock ends", block{refusals: 3, wait: 4 * sec, first: true, count: 599}, 0, 0, far, 51 * sec, 0, 12 * sec},
		{"nor one that the refused attempt began", block{refusals: 3, wait: 4 * sec, first: true, count: 599, began: -50 * sec}, 0, 0, far, 1801 * sec, 0, 12 * sec},
		{"a quarter of an hour after it", block{refusals: 6, wait: 263 * sec, first: true, count: 1210}, 0, 0, -650 * sec, 0, 0, 257114 * ms},
		{"which has passed: an hour", block{refusals: 6, wait: 263 * sec, first: true, count: 1210}, 0, 0, -55 * time.Minute, 0, 0, 328455 * ms},
		{"in a later block half an hour, which is not too soon", block{refusals: 6, wait: 263 * sec, count: 1210}, 0, 0, -1000 * sec, 1801 * sec, 0, 814228 * ms},
		{"nor an hour after it that is too far away", block{refusals: 3, wait: 4 * sec, first: true, count: 599}, 0, 0, -70 * sec, 1801 * sec, 0, 12 * sec},
		{"refused attempts may count in a window", block{refusals: 3, wait: 4 * sec, count: 100}, 0, 0, -40 * sec, 1801 * sec, 0, 22585 * ms},
		{"at most a day", block{refusals: 2, wait: 4 * sec}, 0, 0, far, 0, 30 * time.Hour, 24 * time.Hour},
	} {
		b := hours(tt.b)
		p := canaryPlan{block: &b, trip: tt.trip, room: tt.room, from: tt.from, phase: tt.phase, penalty: tt.penalty, lost: float64(b.refusals)}
		if got := p.next(); (got - tt.want).Abs() > ms {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
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
		{"nor is a penalty longer", block{refusals: 7, wait: 10 * time.Minute, began: -20 * time.Minute, hadRoom: true}, 0, 15 * time.Minute},
		{"but no later than any ban lasts", block{refusals: 7, wait: 10 * time.Minute, began: -20 * time.Minute}, 0, 15 * time.Minute},
		{"20 seconds if there is room, but not for us", block{refusals: 2, wait: sec, began: -2 * sec, explained: true, hadRoom: true}, 0, 20 * sec},
		{"unless it must be a penalty", block{refusals: 7, wait: 2 * time.Minute, began: -7 * time.Hour, hadRoom: true}, 0, 6 * time.Minute},
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
	for wait, want := range map[time.Duration]bool{18*sec + 1: true, 18 * sec: false, 4500 * ms: false, 4500*ms - 1: true, 1: true, 0: false} {
		if b := (&block{refusals: 3, lastWait: 9 * sec}); b.newly(wait) != want {
			t.Errorf("after a wait of 9s one of %v is new: %v", wait, !want)
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
		{"not under a penalty", block{refusals: 3, wait: 9 * sec, began: 75 * sec, hadRoom: true}, minute, 88 * sec, 9 * sec},
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

func TestClientsRefusedTogetherSeparate(t *testing.T) {
	const wait = 10 * sec
	var b block
	for _, tick := range []time.Duration{ms, 1 << 20} { // nanoseconds by which the canaries differ
		seen := make(map[time.Duration]bool)
		for i := range 8 {
			d := b.apart(time.Minute+time.Duration(i)*tick, wait)
			if d < 0 || d > wait/4 {
				t.Errorf("%v later, must be at most a quarter of %v", d, wait)
			}
			seen[d.Round(wait/100)] = true
		}
		if len(seen) < 6 {
			t.Errorf("8 clients that are %v apart go at %d instants", tick, len(seen))
		}
	}
	b.aimed = true
	for i := range 8 {
		if d := b.apart(time.Minute+time.Duration(i)*ms, wait); d < 0 || d > sec {
			t.Errorf("%v after a minute ended, must be a second at most", d)
		}
	}
}

func TestANewWaitIsNotAimedAtTheMinute(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec})
	l.block = block{refusals: 2, aimed: true}
	if l.plan(refusal{wait: 10 * sec}); l.block.aimed {
		t.Error("the delay that separates clients is that of a canary that goes when a minute ends")
	}
}

func TestWhichRefusalsStarveAClient(t *testing.T) {
	for _, tt := range []struct {
		name      string
		f         refusal
		explained bool
		want      bool
	}{
		{"for the rate", refusal{limited: true}, false, true},
		{"with a wait", refusal{wait: sec}, false, true},
		{"by an advertised limit", refusal{}, true, true},
		{"without either: it may be an outage", refusal{}, false, false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.allRefused, l.clock = 3, 2*time.Minute
		l.block.explained = tt.explained
		if got := l.starved(tt.f); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if l.allAdmitted = 3; l.starved(tt.f) {
			t.Errorf("%s: starved with as many admitted", tt.name)
		}
	}
}

func TestCanariesOfClientsThatWereHardlyAdmittedGoTogether(t *testing.T) {
	for i := range time.Duration(50) {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.allRefused, l.clock = 3, 100*sec+i*ms
		l.block = block{began: 40 * sec, noticed: 40 * sec, lastRefused: 100 * sec, refusals: 2, wait: 6 * time.Minute}
		if l.plan(refusal{sent: l.clock, now: l.clock, limited: true}); l.block.wait < 30*time.Minute || l.block.wait > 30*time.Minute+10*sec {
			t.Fatalf("after %v, want half an hour and up to ten seconds", l.block.wait)
		}
	}
}
