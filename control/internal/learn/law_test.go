package learn

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// Three attempts of cost 4 were sent at 99 s. An answer takes 400 ms, give or take 100, and a
// refusal 100 ms, so that one works for half a second.
func TestWhatAnOutcomeChanges(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*Law)
		o    Outcome
		want string
	}{
		{"an answer", nil, Outcome{Class: Admitted, Estimate: 4, Cost: 6}, "holding, 2 in flight, takes 460ms and 150ms, cost 4.100 work 0.520, sent 3 14.0 1.90, trip 100ms"},
		{"without a cost", nil, Outcome{Class: Admitted, Estimate: 4}, "holding, 2 in flight, takes 460ms and 150ms, cost 4.000 work 0.520, sent 3 12.0 1.90, trip 100ms"},
		{"that was not estimated", nil, Outcome{Class: Admitted, Cost: 6}, "holding, 2 in flight, takes 460ms and 150ms, cost 4.100 work 0.520, sent 3 17.0 1.90, trip 100ms"},
		{"as fast as a refusal", func(l *Law) { l.trip = 2e9 }, Outcome{Class: Admitted, Estimate: 4, Cost: 4}, "holding, 2 in flight, takes 460ms and 150ms, cost 4.000 work 0.475, sent 3 12.0 1.00, trip 2s"},
		{"the first", func(l *Law) { l.state, l.latency, l.jitter = starting, 0, 0 }, Outcome{Class: Admitted, Estimate: 4, Cost: 4}, "ramping, 2 in flight, takes 1s and 0s, cost 4.000 work 0.520, sent 3 12.0 1.90, trip 100ms"},
		{"none", nil, Outcome{Class: Lost}, "holding, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 3 12.0 1.50, trip 100ms"},
		{"none to the first", func(l *Law) { l.state = starting }, Outcome{Class: Lost}, "starting, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 3 12.0 1.50, trip 100ms"},
		{"an error", func(l *Law) { l.state = starting }, Outcome{Class: Failed}, "ramping, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 3 12.0 1.50, trip 100ms"},
		{"later", nil, Outcome{Class: Failed}, "holding, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 3 12.0 1.50, trip 100ms"},
		{"of nothing in flight", func(l *Law) { l.flying = 0 }, Outcome{Class: Failed}, "holding, 0 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 3 12.0 1.50, trip 100ms"},
		{"a canary without an answer: another one", func(l *Law) { l.state, l.block.canaryAt, l.block.wait = trying, 99*sec, 3*sec }, Outcome{Class: Lost}, "waiting until 1m43s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 3 12.0 1.50, trip 100ms"},
		{"in a second at least", func(l *Law) { l.state, l.block.canaryAt, l.block.wait = trying, 99*sec, ms }, Outcome{Class: Lost}, "waiting until 1m41s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 3 12.0 1.50, trip 100ms"},
		{"one that was sent before the canary", func(l *Law) { l.state, l.block.canaryAt = trying, 99*sec+1 }, Outcome{Class: Lost}, "trying, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 3 12.0 1.50, trip 100ms"},
		{"an answer to it", func(l *Law) { l.state, l.block.canaryAt = trying, 99*sec+1 }, Outcome{Class: Admitted, Estimate: 4, Cost: 4}, "trying, 2 in flight, takes 460ms and 150ms, cost 4.000 work 0.520, sent 3 12.0 1.90, trip 100ms"},
		{"an answer to a canary", func(l *Law) {
			l.state, l.block = trying, block{canaryAt: 99 * sec, blamed: -1, refusals: 1, pace: 1, began: 98 * sec, noticed: 98 * sec, lastRefused: 98 * sec}
		}, Outcome{Class: Admitted, Estimate: 4, Cost: 4}, "holding, 2 in flight, takes 460ms and 150ms, cost 4.000 work 0.520, sent 3 12.0 1.90, trip 100ms"},
		{"a refusal", nil, Outcome{Class: Refused, Estimate: 4}, "waiting until 1m41s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 280ms, limited"},
		{"a slow one", func(l *Law) { l.trip = 0 }, Outcome{Sent: 10 * sec, Class: Refused, Estimate: 4}, "waiting until 2m52s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 1m0s, limited"},
		{"with a wait", nil, Outcome{Class: Refused, Estimate: 4, RetryAfter: 7 * sec}, "waiting until 1m47.4s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 280ms, limited with waits"},
		{"that may be an outage's", nil, Outcome{Class: Overloaded, Estimate: 4}, "waiting until 1m41s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 280ms"},
		{"which waits had no part in", func(l *Law) { l.givesWaits = true }, Outcome{Class: Refused, Estimate: 4}, "waiting until 1m41s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 280ms, limited with waits"},
		{"of an attempt that was in flight at the last one", func(l *Law) { l.state, l.epoch, l.block.resume = waiting, 99*sec, 101*sec }, Outcome{Class: Refused, Estimate: 4}, "waiting until 1m41s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 100ms"},
		{"with a wait of its own", func(l *Law) { l.state, l.epoch, l.block.resume = waiting, 99*sec, 101*sec }, Outcome{Class: Refused, Estimate: 4, RetryAfter: 5 * sec}, "waiting until 1m45s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 100ms"},
		{"with a shorter one", func(l *Law) { l.state, l.epoch, l.block.resume = waiting, 99*sec, 109*sec }, Outcome{Class: Refused, Estimate: 4, RetryAfter: 5 * sec}, "waiting until 1m49s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 100ms"},
		{"of a provider in trouble", func(l *Law) { l.state, l.epoch, l.block.resume = waiting, 99*sec, 101*sec }, Outcome{Class: Overloaded, Estimate: 4, RetryAfter: 5 * sec}, "waiting until 1m41s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 100ms"},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		for range 3 {
			l.h.add(99*sec, amounts{1, 4, 0.5})
		}
		l.state, l.clock, l.last, l.flying, l.mean, l.latency, l.jitter, l.trip = holding, 100*sec, 99*sec, 3, amounts{1, 4, 0.5}, 4e8, 1e8, 1e8
		if tt.do != nil {
			tt.do(l)
		}
		if tt.o.Now = 100 * sec; tt.o.Sent == 0 {
			tt.o.Sent = 99 * sec
		}
		l.Observe(tt.o)
		got := l.state.String()
		if l.state == waiting {
			got += fmt.Sprintf(" until %v", l.block.resume.Round(ms))
		}
		got += fmt.Sprintf(", %d in flight, takes %v and %v, cost %.3f work %.3f", l.flying, time.Duration(l.latency).Round(ms), time.Duration(l.jitter).Round(ms), l.mean[cost], l.mean[busy])
		got += fmt.Sprintf(", sent %.0f %.1f %.2f, trip %v", l.h.total[0], l.h.total[1], l.h.total[2], time.Duration(l.trip).Round(ms))
		if l.limited {
			got += ", limited"
		}
		if l.limited && l.givesWaits {
			got += " with waits"
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A refusal arrives at 100 s, with a round trip of 100 ms, while answers take 400 ms. An
// attempt was sent each second.
func TestWhenACanaryGoes(t *testing.T) {
	hold := func(x limit) func(*Law) { return func(l *Law) { l.limits, l.block.blamed = []limit{x}, 0 } }
	sized := func(n float64, w window) *window { w.size, w.climb = amounts{n, n, 0}, 1; return &w }
	sliding := func(left float64) func(*Law) {
		return func(l *Law) {
			l.headers = []advertised{{shaper: newShaper(sliding), quota: 100, left: left, share: 1, at: 99 * sec, whole: 140 * sec}}
		}
	}
	windows := func(l *Law) { // of 40 s, since a release at 65 s
		l.expect(40 * sec)
		l.freed, l.block.refusals, l.block.wait = 65*sec, 2, 9*sec
	}
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
		{"with two in flight after an answer's time and a fifth", []func(*Law){func(l *Law) { l.block.soonest, l.flying = 0, 2 }}, refusal{limited: true}, 480 * ms, 480 * ms, 7 * sec},
		{"one in flight is the refused one's successor", []func(*Law){func(l *Law) { l.block.soonest, l.flying = 0, 1 }}, refusal{limited: true}, 120 * ms, 120 * ms, 7 * sec},
		{"after the advertised wait", nil, refusal{limited: true, wait: 5 * sec}, 5100 * ms, 120 * ms, 7 * sec},
		{"when a penalty ends", []func(*Law){func(l *Law) { l.penalty.length = 10 * time.Minute }}, refusal{limited: true}, 11 * time.Minute, 120 * ms, 7 * sec},
		{"unless it may be an outage", []func(*Law){func(l *Law) { l.penalty.length = 10 * time.Minute }}, refusal{}, time.Minute, 120 * ms, 7 * sec},
		{"which two long blocks rule out", []func(*Law){func(l *Law) { l.penalty.length, l.longs = 10*time.Minute, 2 }}, refusal{}, 11 * time.Minute, 120 * ms, 7 * sec},
		{"one does not", []func(*Law){func(l *Law) { l.penalty.length, l.longs = 10*time.Minute, 1 }}, refusal{}, time.Minute, 120 * ms, 7 * sec},
		{"and a refusal in the first minute", []func(*Law){func(l *Law) { l.penalty.length, l.began = 10*time.Minute, 40*sec }}, refusal{}, 11 * time.Minute, 120 * ms, 7 * sec},
		{"not later", []func(*Law){func(l *Law) { l.penalty.length, l.began = 10*time.Minute, 40*sec-1 }}, refusal{}, time.Minute, 120 * ms, 7 * sec},
		{"an outage of five minutes", []func(*Law){func(l *Law) { l.penalty.length, l.block.noticed = 10*time.Minute, -200*sec }}, refusal{}, 150 * sec, 120 * ms, 7 * sec},
		{"an outage that says for how long", []func(*Law){func(l *Law) { l.penalty.length = 10 * time.Minute }}, refusal{wait: 2 * time.Minute}, 2*time.Minute + 100*ms, 120 * ms, 7 * sec},
		{"at most a day", []func(*Law){func(l *Law) { l.penalty.length = 48 * time.Hour }}, refusal{limited: true}, 24 * time.Hour, 120 * ms, 7 * sec},
		{"when a window has room", []func(*Law){hold(sized(5, window{low: 20 * sec, high: 20 * sec}))}, refusal{limited: true}, 16100 * ms, 120 * ms, 7 * sec},
		{"a window of one block: after half of what is left", []func(*Law){hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec}))}, refusal{limited: true}, 18 * sec, 120 * ms, 7 * sec},
		{"but as any, if a rate explains the refusal too", []func(*Law){hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.paced = true }}, refusal{limited: true}, sec, 120 * ms, 7 * sec},
		{"and no sooner once that was refused", []func(*Law){hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait = 2, sec }}, refusal{limited: true}, 3 * sec, 0, 7 * sec},
		{"two blocks support it: when it ends at the latest", []func(*Law){hold(sized(5, window{lone: true, hits: 1, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait = 2, 20*sec }}, refusal{limited: true}, 47100 * ms, 0, 7 * sec},
		{"from the last release on, if all it holds went since then, but for two in a hundred", []func(*Law){hold(sized(100, window{lone: true, hits: 1, low: 105 * sec, high: 110 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait, l.freed = 2, 20*sec, 2*sec }}, refusal{limited: true}, 14300 * ms, 0, 7 * sec},
		{"if more went before: from the first of them on", []func(*Law){hold(sized(100, window{lone: true, hits: 1, low: 105 * sec, high: 110 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait, l.freed = 2, 20*sec, 50*sec }}, refusal{limited: true}, 13300 * ms, 0, 7 * sec},
		{"which has passed", []func(*Law){hold(sized(5, window{lone: true, hits: 1, low: 2 * sec, high: 4 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait, l.block.count = 2, 20*sec, -1 }}, refusal{limited: true}, 60220 * ms, 0, 7 * sec},
		{"one block does: three times later", []func(*Law){hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec})), func(l *Law) { l.block.refusals, l.block.wait, l.block.count = 2, 20*sec, -1 }}, refusal{limited: true}, 60220 * ms, 0, 7 * sec},
		{"an even window: after two and a half units", []func(*Law){hold(sized(20, window{even: true, low: 20 * sec, high: 20 * sec}))}, refusal{limited: true}, 2500 * ms, 120 * ms, 7 * sec},
		{"a window whose length is not known: in between", []func(*Law){hold(sized(5, window{low: 20 * sec, high: 22 * sec, fold: sec}))}, refusal{limited: true}, 17 * sec, 120 * ms, 7 * sec},
		{"one by the clock: with it", []func(*Law){hold(sized(5, window{low: 60 * sec, high: 60 * sec, clock: 60 * sec})), func(l *Law) { l.cfg.Phase = 0 }}, refusal{limited: true}, 20100 * ms, 120 * ms, 7 * sec},
		{"an answer frees a limit in flight", []func(*Law){hold(&flight{size: 1}), func(l *Law) { l.flying = 1 }}, refusal{limited: true}, sec, 120 * ms, 7 * sec},
		{"in an outage whatever the limits say", []func(*Law){hold(sized(5, window{low: 20 * sec, high: 20 * sec})), func(l *Law) { l.block.outage = true }}, refusal{limited: true}, sec, 120 * ms, 7 * sec},
		{"an advertised limit explains it", []func(*Law){sliding(0), func(l *Law) { l.block.explained, l.headers[0].shape = true, fixed }}, refusal{limited: true}, 120 * ms, 120 * ms, 40012500 * time.Microsecond},
		{"but it refuses again: when all units are back", []func(*Law){sliding(1), func(l *Law) { l.block.explained, l.block.punished, l.block.refusals = true, true, 2 }}, refusal{limited: true}, 40 * sec, 0, 7 * sec},
		{"if nearly all of it is used", []func(*Law){sliding(2), func(l *Law) { l.block.explained, l.block.punished, l.block.refusals = true, true, 2 }}, refusal{limited: true}, 20 * sec, 0, 7 * sec},
		{"others came first: not that late", []func(*Law){sliding(1), func(l *Law) { l.block.explained, l.block.refusals = true, 2 }}, refusal{limited: true}, 10 * sec, 0, 7 * sec},
		{"twice the time until there is room", []func(*Law){sliding(0), func(l *Law) {
			l.block.explained, l.block.refusals, l.block.wait, l.headers[0].shape, l.headers[0].whole = true, 2, time.Hour, fixed, 130*sec
		}}, refusal{limited: true}, 60025 * ms, 0, 7 * sec},
		{"after a refused canary, three times later", []func(*Law){func(l *Law) { l.block.refusals, l.block.wait = 2, sec }}, refusal{limited: true}, 3 * sec, 0, 7 * sec},
		{"or after the advertised wait", []func(*Law){func(l *Law) { l.block.refusals, l.block.wait = 3, 2*sec }}, refusal{limited: true, wait: 9 * sec}, 9120 * ms, 0, 7 * sec},
		{"a wait of a day is observed", nil, refusal{limited: true, wait: 24 * time.Hour}, 24*time.Hour + 100*ms, 120 * ms, 7 * sec},
		{"no other wait is longer", []func(*Law){func(l *Law) { l.block.refusals, l.block.wait, l.penalty.length = 2, 9*time.Hour, sec }}, refusal{limited: true}, 24 * time.Hour, 0, 7 * sec},
		{"a wait that is advertised anew replaces the last one", []func(*Law){func(l *Law) { l.block.refusals, l.block.wait = 2, time.Hour }}, refusal{limited: true, wait: 5 * sec}, 5100 * ms, 0, 7 * sec},
		{"in an outage canaries are no further apart, whatever is in flight", []func(*Law){func(l *Law) { l.block.refusals, l.block.outage, l.flying = 2, true, 2 }}, refusal{wait: 9 * sec}, 9100 * ms, 0, 7 * sec},
		{"which is twice the last wait", []func(*Law){func(l *Law) { l.block.refusals, l.block.outage, l.block.wait = 2, true, 4*sec }}, refusal{}, 8 * sec, 0, 7 * sec},
		{"a refusal with a wait that has not changed is no outage's", []func(*Law){func(l *Law) { l.block.refusals, l.block.wait, l.block.punished = 3, 5*time.Minute, true }}, refusal{wait: 5 * sec}, 15 * time.Minute, 0, 7 * sec},
		{"a configured window ends sooner than one would ask otherwise", []func(*Law){windows}, refusal{limited: true}, 5180 * ms, 0, 7 * sec},
		{"though a single block supports another one", []func(*Law){windows, hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec}))}, refusal{limited: true}, 5180 * ms, 0, 7 * sec},
		{"unless a window is known: when a usual one ends", []func(*Law){windows, hold(sized(5, window{low: 20 * sec, high: 20 * sec}))}, refusal{limited: true}, 25220 * ms, 0, 7 * sec},
		{"a window of costs has room for one", []func(*Law){hold(sized(5, window{unit: cost, low: 20 * sec, high: 20 * sec}))}, refusal{limited: true}, 16100 * ms, 120 * ms, 7 * sec},
		{"a window of one block, once a canary was refused: as if there were none", []func(*Law){hold(sized(5, window{lone: true, low: 40 * sec, high: 50 * sec, fold: sec, floor: sec})), func(l *Law) {
			l.block.refusals, l.block.wait, l.block.punished = 2, 9*sec, true
		}}, refusal{limited: true}, 27 * sec, 0, 7 * sec},
		{"an advertised limit on cost has room for one", []func(*Law){sliding(1), func(l *Law) { l.block.explained, l.headers[0].shape, l.headers[0].perCost = true, fixed, true }}, refusal{limited: true}, 120 * ms, 120 * ms, 0},
		{"and had when others came first", []func(*Law){sliding(1), func(l *Law) {
			l.block.explained, l.block.refusals, l.block.wait, l.headers[0].shape, l.headers[0].perCost = true, 2, time.Hour, fixed, true
		}}, refusal{limited: true}, 10 * sec, 0, 7 * sec},
		{"an advertised limit that explains nothing", []func(*Law){sliding(1), func(l *Law) { l.block.refusals, l.block.wait = 2, sec }}, refusal{limited: true}, 3 * sec, 0, 7 * sec},
		{"nor holds back for long", []func(*Law){sliding(1), func(l *Law) { l.block.refusals, l.block.wait = 2, 20*sec }}, refusal{limited: true}, 60220 * ms, 0, 7 * sec},
		{"one that explains it has room", []func(*Law){sliding(1), func(l *Law) { l.block.explained = true }}, refusal{limited: true}, 120 * ms, 120 * ms, 0},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour, Phase: 1811 * sec})
		l.h, l.clock, l.last, l.trip, l.latency, l.freed = *sentEvenly(100*sec, sec, 100), 100*sec, 100*sec, float64(100*ms), float64(400*ms), -7*time.Hour
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, refusals: 1, blamed: -1, soonest: sec, expected: 7 * sec, lastWait: 8 * sec}
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

func TestACanaryThatIsNotRefusedInTimePasses(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*Law)
		want time.Duration // when the attempt after a canary at 100 s goes that is not answered
	}{
		{"after three round trips of a refusal", func(*Law) {}, 100*sec + 300*ms},
		{"never if a rate is blamed", func(l *Law) { l.limits[0] = newRate(0, 1, 2) }, never},
		{"nor if no limit is", func(l *Law) { l.block.blamed = -1 }, never},
		{"nor under a penalty", func(l *Law) { l.penalty.length = sec }, never},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.hold(&flight{size: 3, testAfter: firstTest})
		l.trip, l.latency = float64(100*ms), float64(2*sec)
		l.state, l.block = waiting, block{began: 98 * sec, noticed: 99 * sec, lastRefused: 98 * sec, refusals: 1, pace: 4}
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
		{"nor if it is a penalty", block{refusals: 4, wait: 21 * sec, count: 131_101, punished: true}, 0, 0, far, 0, 0, 63 * sec},
		{"no penalty is longer than a quarter of an hour", block{refusals: 7, wait: 10 * time.Minute}, 0, 0, far, 0, 0, 15 * time.Minute},
		{"or of that length", block{refusals: 7, wait: 15 * time.Minute, punished: true}, 0, 0, far, 0, 0, 15 * time.Minute},
		{"so this is none: a canary now and then", block{refusals: 9, wait: 15 * time.Minute, count: 10_000}, 0, 0, far, 0, 0, 20976 * 100 * ms},
		{"after many attempts more often", block{refusals: 9, wait: 15 * time.Minute, count: 1e7}, 0, 0, far, 0, 0, 5 * time.Minute},
		{"after few every half of its age", block{refusals: 9, wait: 15 * time.Minute, count: 256, began: -44 * time.Minute}, 0, 0, far, 0, 0, 22 * time.Minute},
		{"after one, too", block{refusals: 9, wait: 15 * time.Minute, began: -44 * time.Minute}, 0, 0, far, 0, 0, 22 * time.Minute},
		{"room, but not for us", block{refusals: 2, wait: sec, explained: true, punished: true}, 0, 0, far, 0, 0, 20 * sec},
		{"a minute after the last release", block{refusals: 2, wait: 4 * sec}, 0, 0, -50 * sec, 0, 0, 10120 * ms},
		{"and a round trip", block{refusals: 2, wait: 4 * sec}, 100 * ms, 0, -50 * sec, 0, 0, 10220 * ms},
		{"a minute after the block began", block{refusals: 2, wait: 4 * sec, began: -50 * sec}, 0, 0, far, 50 * sec, 0, 10120 * ms},
		{"a minute of the clock", block{refusals: 2, wait: 4 * sec, began: -50 * sec}, 0, 0, far, 51 * sec, 0, 9120 * ms},
		{"a penalty ends at no minute", block{refusals: 2, wait: 4 * sec, punished: true}, 0, 0, -50 * sec, 0, 0, 12 * sec},
		{"a minute that ends too soon", block{refusals: 2, wait: 4 * sec}, 0, 0, -53 * sec, 0, 0, 12 * sec},
		{"just not too soon", block{refusals: 2, wait: 4 * sec}, 0, 0, -52920 * ms, 0, 0, 7200 * ms},
		{"one that ends too late", block{refusals: 2, wait: 4 * sec}, 0, 0, -36100 * ms, 0, 0, 12 * sec},
		{"just not too late", block{refusals: 2, wait: 4 * sec}, 0, 0, -36200 * ms, 0, 0, 23920 * ms},
		{"before a penalty ends", block{refusals: 2, wait: 4 * sec}, 0, 0, -50 * sec, 0, 11 * sec, 12 * sec},
		{"when a limit has room", block{refusals: 2, wait: 4 * sec}, 0, 15 * sec, far, 0, 0, 15 * sec},
		{"or a minute ends before", block{refusals: 2, wait: 4 * sec}, 0, 15 * sec, -50 * sec, 0, 0, 10120 * ms},
		{"after long waits an instant may be a tenth later than the last wait", block{refusals: 7, wait: 10 * time.Minute}, 0, 660 * sec, far, 0, 0, 660 * sec},
		{"not less", block{refusals: 7, wait: 10 * time.Minute}, 0, 659 * sec, far, 0, 0, 15 * time.Minute},
		{"and a fifth later than any penalty", block{refusals: 7, wait: 10 * time.Minute}, 0, 1079 * sec, far, 0, 0, 1079 * sec},
		{"not more", block{refusals: 7, wait: 10 * time.Minute}, 0, 1080 * sec, far, 0, 0, 15 * time.Minute},
		{"five minutes are not long: an instant may be sooner than the last wait", block{refusals: 7, wait: 200 * sec, count: 1e9, punished: false}, 0, 200 * sec, far, 1801 * sec, 0, 200 * sec},
		{"longer ones are", block{refusals: 7, wait: 150 * sec, punished: true}, 0, 269 * sec, far, 0, 0, 450 * sec},
		{"of which three fifths are not too soon", block{refusals: 7, wait: 150 * sec, punished: true}, 0, 270 * sec, far, 0, 0, 270 * sec},
		{"when a penalty ends, if a limit has room then", block{refusals: 2, wait: 4 * sec, punished: true}, 0, 10 * sec, far, 0, 10 * sec, 10 * sec},
		{"a minute after the first attempt, and not a quarter", block{refusals: 3, wait: 4 * sec, first: true, count: 599}, 0, 0, -39 * sec, 21 * sec, 0, 21535 * ms},
		{"later after fewer attempts", block{refusals: 3, wait: 4 * sec, first: true, count: 89}, 0, 0, -44 * sec, 0, 0, 18887 * ms},
		{"a tenth of it at most", block{refusals: 3, wait: 4 * sec, first: true, count: 40}, 0, 0, -48 * sec, 0, 0, 18120 * ms},
		{"fewer may be a ban", block{refusals: 3, wait: 4 * sec, first: true, count: 39}, 0, 0, -50 * sec, 0, 0, 10120 * ms},
		{"sooner than another window", block{refusals: 3, wait: 10 * sec, first: true, count: 599}, 0, 0, -54 * sec, 0, 0, 6535 * ms},
		{"a fifth of the wait from now at least", block{refusals: 3, wait: 11 * sec, first: true, count: 599}, 0, 0, -54 * sec, 1801 * sec, 0, 33 * sec},
		{"at most a day", block{refusals: 2, wait: 4 * sec}, 0, 0, far, 0, 30 * time.Hour, 24 * time.Hour},
	} {
		b := hours(tt.b)
		p := canaryPlan{block: &b, trip: tt.trip, room: tt.room, from: tt.from, phase: tt.phase, penalty: tt.penalty}
		if got := p.next(); (got - tt.want).Abs() > ms {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
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
	for _, tt := range []struct {
		name          string
		before, after waits
		wait          time.Duration // of the first refusal of a block
		believed      time.Duration
	}{
		{"a plausible wait", waits{}, waits{sane: 1}, sec, sec},
		{"a shorter one says nothing", waits{}, waits{}, sec - 1, sec - 1},
		{"two plausible ones: the unit is known", waits{sane: 1}, waits{sane: 2, unit: 1}, sec, sec},
		{"a day", waits{sane: 1}, waits{sane: 1}, unbelievable, penaltyLongest},
		{"almost a day", waits{}, waits{sane: 1}, unbelievable - sec, unbelievable - sec},
		{"an odd quarter of an hour", waits{odd: true}, waits{odd: true, sane: 1}, penaltyLongest, penaltyLongest},
		{"an odd one that is longer", waits{odd: true}, waits{odd: true}, 2000 * sec, 2200 * ms},
		{"which is hardly longer", waits{odd: true}, waits{odd: true}, 901 * sec, sec},
		{"in milliseconds", waits{unit: millisPerSecond, odd: true}, waits{unit: millisPerSecond, odd: true, sane: 1}, 2000 * sec, 2 * sec},
		{"in milliseconds, as the next will be", waits{unit: millisPerSecond, sane: 1}, waits{unit: millisPerSecond, sane: 2}, 2000 * sec, 2 * sec},
		{"a burst has lengthened it", waits{lengthened: true, unit: 1}, waits{lengthened: true, unit: 1, sane: 1}, 2000 * sec, penaltyLongest},
	} {
		w := tt.before
		if w.heard(tt.wait); w != tt.after || w.believed(tt.wait) != tt.believed {
			t.Errorf("%s: %+v, %v is believed; want %+v, %v", tt.name, w, w.believed(tt.wait), tt.after, tt.believed)
		}
	}
	for wait, want := range map[time.Duration]bool{18*sec + 1: true, 18 * sec: false, 4500 * ms: false, 4500*ms - 1: true, 1: true, 0: false} {
		if b := (&block{refusals: 3, lastWait: 9 * sec}); b.newly(wait) != want {
			t.Errorf("after a wait of 9s one of %v is new: %v", wait, !want)
		}
	}
	for n, want := range map[int]time.Duration{2: 10 * sec, 3: 10 * sec, 4: 20 * sec, 5: 20 * sec, 6: 40 * sec, 8: 80 * sec, 10: 160 * sec, 12: 5 * time.Minute, 99: 5 * time.Minute} {
		if got := (&block{refusals: n}).contended(); got != want {
			t.Errorf("after %d refusals the next canary goes after %v, want %v", n, got, want)
		}
	}
}

func TestWhenAllOfTheAdvertisedWindowsIsBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		a    advertised
		want time.Duration
	}{
		{"nearly used up", advertised{shaper: newShaper(sliding), quota: 200, left: 10, spent: 6.1, whole: 70 * sec}, 70 * sec},
		{"a fiftieth is left", advertised{shaper: newShaper(sliding), quota: 200, left: 10, spent: 6, whole: 70 * sec}, 10 * sec},
		{"two of few are left", advertised{shaper: newShaper(sliding), quota: 20, left: 2, whole: 70 * sec}, 10 * sec},
		{"less than two", advertised{shaper: newShaper(sliding), quota: 20, left: 1.9, whole: 70 * sec}, 70 * sec},
		{"a fixed one", advertised{shaper: newShaper(fixed), quota: 20, whole: 70 * sec}, 10 * sec},
		{"no shape predicts it", advertised{shaper: shaper{wrong: maxWrong}, quota: 20, whole: 70 * sec}, 10 * sec},
	} {
		l := &Law{clock: 10 * sec, headers: []advertised{tt.a}}
		if got := l.allBack(); got != tt.want {
			t.Errorf("%s: at %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestLimitsTakeEachOthersPlace(t *testing.T) {
	sized := func(size float64, length time.Duration) *window {
		return &window{size: amounts{size, size, 0}, low: length, high: length, floor: length / 3, climb: 1, pace: 7}
	}
	law := func(limits ...limit) *Law {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock = *sentEvenly(100*sec, sec, 101), 100*sec
		for _, x := range limits {
			l.hold(x)
		}
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 130 * sec, release: 150 * sec, refusals: 3, pace: 4, blamed: 0, tooShort: 9 * sec}
		l.silence, l.meanLong = 20*sec, 10*sec
		return l
	}
	for _, tt := range []struct {
		name string
		l    *Law
		do   func(*Law)
		want string
	}{
		{"a window that was exceeded becomes a rate", law(sized(60, time.Minute)), func(l *Law) { l.windowToRate(l.view(), 0, l.limits[0].(*window)) }, "1.00-1.50/s"},
		{"which may be as fast as it was filled", law(sized(300, time.Minute)), func(l *Law) {
			w := l.limits[0].(*window)
			w.pace, w.floor = 12, 10*sec
			l.windowToRate(l.view(), 0, w)
		}, "5.00-12.00/s"},
		{"within a third of the time it took", law(sized(300, time.Minute)), func(l *Law) {
			w := l.limits[0].(*window)
			w.pace, w.floor = 99, 10*sec
			l.windowToRate(l.view(), 0, w)
		}, "5.00-12.00/s"},
		{"a held rate stays", law(sized(60, time.Minute), newRate(0, 8, 9)), func(l *Law) { l.windowToRate(l.view(), 0, l.limits[0].(*window)) }, "8.00-9.00/s"},
		{"five limits are too many: the oldest window goes", law(newRate(0, 1, 2), sized(1, sec), sized(2, sec), &flight{size: 3}), func(l *Law) { l.hold(sized(4, sec)) },
			"1.00-2.00/s, 2 of unit 0 in 1.0s-1.0s, 3 in flight, 4 of unit 0 in 1.0s-1.0s"},
		{"four are not", law(newRate(0, 1, 2), sized(1, sec), sized(2, sec)), func(l *Law) { l.hold(sized(4, sec)) },
			"1.00-2.00/s, 1 of unit 0 in 1.0s-1.0s, 2 of unit 0 in 1.0s-1.0s, 4 of unit 0 in 1.0s-1.0s"},
		{"a limit in flight goes, and the rate comes back", law(&flight{size: 3, was: newRate(0, 1, 2)}), func(l *Law) { l.dropFlight(l.view(), l.limits[0].(*flight)) }, "1.00-2.00/s"},
		{"or a new one", law(&flight{size: 3}), func(l *Law) { l.dropFlight(l.view(), l.limits[0].(*flight)) }, "3.08-4.00/s"},
		{"under a penalty the pace of before is held", law(), func(l *Law) { l.block.blamed = -1; l.penalize(l.view(), 0) }, "0.81-1.01/s"},
		{"or that of a window", law(), func(l *Law) { l.block.blamed = -1; l.penalize(l.view(), 3) }, "2.40-3.00/s"},
		{"or that before a refusal in the ramp", law(), func(l *Law) { l.block.blamed, l.block.ramping = -1, true; l.penalize(l.view(), 0) }, "0.81-4.00/s"},
		{"or of few attempts", law(), func(l *Law) { l.block.blamed, l.freed = -1, 97*sec; l.penalize(l.view(), 0) }, "3.20-4.00/s"},
		{"of five", law(), func(l *Law) { l.block.blamed, l.freed = -1, 96*sec; l.penalize(l.view(), 0) }, "1.00-1.25/s"},
		{"a rate that was blamed stays", law(newRate(0, 8, 9)), func(l *Law) { l.penalize(l.view(), 0) }, "8.00-9.00/s"},
		{"another one does not", law(newRate(0, 8, 9)), func(l *Law) { l.block.blamed = -1; l.penalize(l.view(), 0) }, "0.81-1.01/s"},
	} {
		limits, refuted := len(tt.l.limits), tt.l.refuted
		tt.do(tt.l)
		if got := held(tt.l); got != tt.want {
			t.Errorf("%s: holds %q, want %q", tt.name, got, tt.want)
		}
		if was := limits > 0 && strings.HasPrefix(tt.name, "a window"); was && (tt.l.refuted != refuted+1 || tt.l.block.blamed != -1 || tt.l.rate().price != fullPrice || tt.l.rate().stretch != 2*refusalTime.Seconds()*5/math.Log(1.5)) {
			t.Errorf("%s: %d windows were refuted, blamed %d, a price of %v, a climb of %v", tt.name, tt.l.refuted, tt.l.block.blamed, tt.l.rate().price, tt.l.rate().stretch)
		}
		if p := tt.l.penalty; p.on() && (p.length != 20*sec || p.low != 9*sec) {
			t.Errorf("%s: a penalty from %v to %v, want 9s to 20s", tt.name, p.low, p.length)
		}
	}
	for refusals, want := range map[int]time.Duration{1: 0, 2: 9 * sec} { // a first canary that was admitted bounds nothing
		l := law()
		l.block.blamed, l.block.refusals = -1, refusals
		if l.penalize(l.view(), 0); l.penalty.low != want {
			t.Errorf("after %d refusals a penalty is longer than %v, want %v", refusals, l.penalty.low, want)
		}
	}
}

// held describes the limits that a law holds.
func held(l *Law) string {
	var all []string
	for _, x := range l.limits {
		switch x := x.(type) {
		case *rate:
			all = append(all, fmt.Sprintf("%.2f-%.2f/s", x.low, x.high))
		case *flight:
			all = append(all, fmt.Sprintf("%g in flight", x.size))
		case *window:
			s := fmt.Sprintf("%.0f of unit %d in %.1fs-%.1fs", x.size[x.unit], x.unit, x.low.Seconds(), x.high.Seconds())
			if x.lone {
				s += " lone"
			}
			if x.clock > 0 {
				s += " by the clock"
			}
			all = append(all, s)
		}
	}
	return strings.Join(all, ", ")
}

// An attempt was sent each second until one at 100 s is refused, and so are canaries.
// The block is written by hand. What blocked or Law notes before its end, such as block.first,
// block.paced and allAdmitted, is zero unless a row sets it.
func TestWhatFollowsFromABlock(t *testing.T) {
	known := func(size float64, length time.Duration, hits int) *window {
		return &window{size: amounts{size, size, 0}, low: length, high: length, climb: 1, testAfter: 1, hits: hits, off: doubtUnit}
	}
	hold := func(blamed int, limits ...limit) func(*Law) {
		return func(l *Law) { l.limits, l.block.blamed = limits, blamed }
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
			r.price, r.stretch, r.since, r.climbed, r.count = 100, 100, 24, 199, 100
			do(r)
			hold(0, r)(l)
			l.penalty = penalty{length: time.Minute, blocks: 2}
		}
	}
	long := func(l *Law) { l.block.refusals, l.block.lastRefused, l.block.release = 2, 140*sec, 160*sec }
	for _, tt := range []struct {
		name    string
		do      func(*Law)
		want    string
		penalty time.Duration
		silence time.Duration // that ended the last long block
		long    time.Duration // the recent length of long blocks
		freed   time.Duration
		blips   int
		brief   int
		refuted int
	}{
		{"a short one: a rate, somewhat below the pace", func(*Law) {}, "3.08-4.00/s", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"in the ramp it may be half of it", func(l *Law) { l.block.ramping = true }, "2.00-4.00/s", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"after a refused canary", func(l *Law) { l.block.refusals = 2 }, "3.08-4.00/s", 0, 7 * sec, 8 * sec, 0, 0, 0, 0},
		{"a long one: a window that was filled since the beginning", long, "100 of unit 0 in 140.0s-160.0s lone", 0, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"since the last long block", and(long, func(l *Law) { l.freed = 51 * sec }), "49 of unit 0 in 89.0s-109.0s lone", 0, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"to the end of an advertised wait", and(long, func(l *Law) { l.block.exact = true }), "100 of unit 0 in 155.8s-160.0s lone", 0, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"which is a guess if it is doubted: any time since the last refusal", and(long, func(l *Law) { l.block.exact, l.block.doubted = true, true }), "100 of unit 0 in 140.0s-160.0s lone", 0, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"with nothing sent before: a penalty", and(long, func(l *Law) { l.freed = 101 * sec }), "3.20-4.00/s", 20 * sec, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"without a refused canary the silence says nothing new", func(l *Law) { l.block.release = 110 * sec }, "100 of unit 0 in 100.0s-110.0s lone", 0, 7 * sec, 9 * sec, 110 * sec, 0, 3, 0},
		{"but for the first time", func(l *Law) { l.silence, l.block.release = 0, 110*sec }, "100 of unit 0 in 100.0s-110.0s lone", 0, 10 * sec, 9 * sec, 110 * sec, 0, 3, 0},
		{"the same window again", and(long, hold(-1, newWindow(0, amounts{9, 9, 0}, sec, 150*sec, 170*sec, sec, 1))), "100 of unit 0 in 140.0s-160.0s lone", 0, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"a shorter one", and(long, hold(-1, newWindow(0, amounts{9, 9, 0}, sec, 100*sec, 140*sec, sec, 1))), "9 of unit 0 in 100.0s-140.0s lone, 100 of unit 0 in 140.0s-160.0s lone", 0, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"a longer one", and(long, hold(-1, newWindow(0, amounts{9, 9, 0}, sec, 160*sec, 180*sec, sec, 1))), "9 of unit 0 in 160.0s-180.0s lone, 100 of unit 0 in 140.0s-160.0s lone", 0, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"after a window that was refuted: a penalty", and(long, func(l *Law) { l.refuted = 1 }), "0.80-1.00/s", 20 * sec, 20 * sec, 34 * sec, 160 * sec, 0, 0, 1},
		{"there was room, but not for us: a penalty", and(long, func(l *Law) { l.block.punished = true }), "0.80-1.00/s", 20 * sec, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"a penalty is known", and(long, func(l *Law) { l.penalty.length, l.block.tooShort = 30*sec, 40*sec }), "0.84-1.00/s", 30 * sec, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"many attempts were in flight", and(long, crowd), "7 in flight", 60 * sec, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"the same with a short block", crowd, "7 in flight", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"which a rate was blamed for", and(crowd, hold(0, newRate(0, 3, 4), known(9, sec, sureHits), known(9, sec, sureHits-1))), "9 of unit 0 in 1.0s-1.0s, 7 in flight", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"or a window that is not sure", and(crowd, hold(0, known(9, sec, sureHits-1))), "7 in flight", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"a sure one is kept", and(crowd, hold(0, known(100, 101*sec, sureHits))), "100 of unit 0 in 101.0s-101.0s", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"an outage", func(l *Law) { l.block.outage = true }, "", 0, 7 * sec, 8 * sec, 0, 2, 3, 0},
		{"an outage that was not over at once", func(l *Law) { l.block.outage, l.block.refusals = true, 2 }, "", 0, 7 * sec, 8 * sec, 0, 1, 0, 0},
		{"a long outage", func(l *Law) { l.block.outage, l.block.release = true, 110*sec }, "", 0, 7 * sec, 9 * sec, 0, 1, 3, 0},
		{"an advertised limit explains it", func(l *Law) { l.block.explained = true }, "", 0, 7 * sec, 8 * sec, 0, 1, 3, 0},
		{"and there was a penalty", and(long, func(l *Law) { l.block.explained, l.block.punished = true, true }), "", 20 * sec, 20 * sec, 34 * sec, 160 * sec, 1, 0, 0},
		{"a window whose length agrees", and(long, hold(0, known(60, 100*sec, 5))), "60 of unit 0 in 100.0s-100.0s", 0, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"one whose length does not, at first", and(long, hold(0, known(60, 30*sec, 5))), "60 of unit 0 in 30.0s-30.0s", 0, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"for the second time", and(long, hold(0, known(60, 30*sec, 5)), func(l *Law) { l.limits[0].(*window).doubts = 1 }), "1.44-1.80/s", 20 * sec, 20 * sec, 34 * sec, 160 * sec, 0, 0, 1},
		{"one that a single block supported", and(long, hold(0, known(60, 30*sec, 5)), func(l *Law) { l.limits[0].(*window).lone = true }), "1.44-1.80/s", 20 * sec, 20 * sec, 34 * sec, 160 * sec, 0, 0, 1},
		{"if a rate explains it too, it is kept", both(3, newWindow(0, amounts{40, 40, 0}, sec, 30*sec, 40*sec, sec, 1)), "40 of unit 0 in 30.0s-40.0s lone, 3.00-4.00/s", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"unless the block ended while it was full", both(3, newWindow(0, amounts{9, 9, 0}, sec, 30*sec, 40*sec, sec, 1)), "3.00-4.00/s", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"an even one that refuses too often", hold(0, &window{even: true, doubts: maxUneven + 1, size: amounts{9, 0, 0}, low: sec, high: sec, climb: 1}), "3.08-4.00/s", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"a rate of few cycles does not", both(2, newWindow(0, amounts{9, 9, 0}, sec, 30*sec, 40*sec, sec, 1)), "9 of unit 0 in 9.0s-10.0s lone, 3.00-4.00/s", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"nor one if more than a single block supports the window", and(both(3, supported), func(l *Law) { l.block.release = 140 * sec }), "60 of unit 0 in 95.0s-100.0s, 3.00-4.00/s", 0, 7 * sec, 24 * sec, 140 * sec, 0, 3, 0},
		{"a rate under a penalty: well below the pace that was admitted", penalized(func(*rate) {}), "0.55-4.00/s", time.Minute, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"not as far after many attempts", penalized(func(r *rate) { r.climbed = 200 }), "0.80-4.00/s", time.Minute, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"nor late in a climb, after two such blocks", penalized(func(r *rate) { r.since = 25 }), "0.88-4.00/s", time.Minute, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"nor if a refusal cost little", penalized(func(r *rate) { r.price = fullPrice }), "0.88-4.00/s", time.Minute, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"nor if another limit was blamed", and(penalized(func(*rate) {}), func(l *Law) { l.limits, l.block.blamed = append(l.limits, &flight{size: 5}), 1 }), "3.00-4.00/s, 5 in flight", time.Minute, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"under a penalty a refusal may cost up to twice as much as one without", penalized(func(r *rate) { r.price = 1.5 * fullPrice }), "0.55-4.00/s", time.Minute, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"a second short block ends a penalty", and(penalized(func(*rate) {}), func(l *Law) { l.penalty.shortInRow = 1 }), "3.00-4.00/s", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"one that lasts longer than a short penalty does lengthens it", func(l *Law) {
			l.penalty.length, l.block.refusals, l.block.lastRefused, l.block.tooShort, l.block.release = 1500*ms, 2, 100200*ms, 2*sec, 102*sec
		}, "3.08-4.00/s", 1800 * ms, 7 * sec, 8 * sec, 0, 0, 0, 0},
		{"a window that is sure, but for its length, and many in flight", and(crowd, hold(0, unsettled)), "100 of unit 0 in 90.0s-101.0s, 7 in flight", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"one of a single block, and many in flight", and(long, crowd, hold(0, newWindow(0, amounts{9, 9, 0}, sec, 30*sec, 31*sec, sec, 1))), "7 in flight", 60 * sec, 20 * sec, 34 * sec, 160 * sec, 0, 0, 0},
		{"a rate that does not explain the second refusal", func(l *Law) {
			r := newRate(0, 3, 4)
			r.cycles, l.block.refusals = 3, 2
			hold(0, newWindow(0, amounts{9, 9, 0}, sec, 30*sec, 40*sec, sec, 1), r)(l)
		}, "9 of unit 0 in 9.0s-10.0s lone, 3.00-4.00/s", 0, 7 * sec, 8 * sec, 0, 0, 0, 0},
		{"a limit in flight", hold(0, &flight{size: 5}), "5 in flight", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"one that is refused often", hold(0, &flight{size: 5, soonInRow: maxSoon - 1}), "5 in flight", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
		{"one that is refused too often: the rate again", hold(0, &flight{size: 5, soonInRow: maxSoon}), "3.08-4.00/s", 0, 7 * sec, 8 * sec, 0, 0, 3, 0},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.silence, l.meanLong, l.brief, l.blips = *sentEvenly(99*sec, sec, 100), 7*sec, 8*sec, 2, 1
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 101 * sec, refusals: 1, pace: 4, blamed: -1, expected: sec}
		tt.do(l)
		l.clock = l.block.release
		if l.block.outage || l.block.explained {
			l.blips = 1
		} else {
			l.blips = 0
		}
		l.ended(l.view())
		if got := held(l); got != tt.want {
			t.Errorf("%s: holds %q, want %q", tt.name, got, tt.want)
		}
		if l.penalty.length != tt.penalty || l.silence != tt.silence || l.meanLong != tt.long || l.freed != tt.freed {
			t.Errorf("%s: penalty %v, silence %v, long blocks of %v, freed %v; want %v, %v, %v, %v", tt.name, l.penalty.length, l.silence, l.meanLong, l.freed, tt.penalty, tt.silence, tt.long, tt.freed)
		}
		if (l.longs == 1) != l.block.long() {
			t.Errorf("%s: %d long blocks", tt.name, l.longs)
		}
		if l.blips != tt.blips || l.brief != tt.brief || l.refuted != tt.refuted || l.lastRelease != l.clock || l.lastBlock != l.block.release-100*sec {
			t.Errorf("%s: %d blips, %d brief ones, %d refuted, the last release at %v; want %d, %d, %d, %v", tt.name, l.blips, l.brief, l.refuted, l.lastRelease, tt.blips, tt.brief, tt.refuted, l.clock)
		}
	}
}

func TestWhenRefusalsSuggestALimitInFlight(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(l *Law, b *block, r *rate)
		want bool
	}{
		{"rare numbers in flight at long blocks", func(*Law, *block, *rate) {}, true},
		{"not rare enough", func(l *Law, _ *block, _ *rate) { l.crowd.evidence = heldEvidence }, false},
		{"a rate may explain it", func(l *Law, _ *block, r *rate) { l.hold(r) }, true},
		{"a rate explains it", func(l *Law, _ *block, r *rate) { r.cycles = 2; l.hold(r) }, false},
		{"but badly", func(l *Law, _ *block, r *rate) { r.cycles, l.crowd.evidence = 2, 4; l.hold(r) }, true},
		{"a short block costs little", func(_ *Law, b *block, _ *rate) { b.release = b.noticed + sec }, false},
		{"but there is more evidence", func(l *Law, b *block, _ *rate) { b.release, l.crowd.evidence = b.noticed+sec, 4 }, true},
		{"one such limit was wrong", func(l *Law, _ *block, _ *rate) { l.crowd.wrong, l.crowd.evidence = 1, 6.9 }, false},
		{"but there is more evidence than then", func(l *Law, _ *block, _ *rate) { l.crowd.wrong, l.crowd.evidence = 1, 7 }, true},
		{"one refusal is not enough", func(l *Law, _ *block, _ *rate) { l.weighed = 1 }, false},
		{"one is held", func(l *Law, _ *block, _ *rate) { l.hold(&flight{size: 3}) }, false},
		{"no other attempt was in flight", func(l *Law, _ *block, _ *rate) { l.out.add(100*sec, 0) }, false},
		{"three times as many, at one pace", func(l *Law, _ *block, r *rate) {
			r.cycles, r.off, l.crowd.evidence, l.crowd.times, l.crowd.between = 2, cycleRates{0.01, 0.1}, 0.1, alikeCrowds, 9
			l.hold(r)
		}, true},
		{"at different paces", func(l *Law, _ *block, r *rate) {
			r.cycles, r.off, l.crowd.evidence, l.crowd.times, l.crowd.between = 2, cycleRates{0.03, 0.1}, 0.1, alikeCrowds, 9
			l.hold(r)
		}, false},
		{"at paces as different as the means of cycles", func(l *Law, _ *block, r *rate) {
			r.cycles, r.off, l.crowd.evidence, l.crowd.times, l.crowd.between = 2, cycleRates{0.02, 0.04}, 0.1, alikeCrowds, 9
			l.hold(r)
		}, false},
		{"at a pace that is no measure", func(l *Law, _ *block, r *rate) {
			r.cycles, r.off, l.crowd.evidence, l.crowd.times, l.crowd.between, r.spaced = 2, cycleRates{0.01, 0.1}, 0.1, alikeCrowds, 9, false
			l.hold(r)
		}, false},
		{"refused twice with one other, and hardly ever admitted between", func(l *Law, _ *block, r *rate) {
			r.cycles, l.crowd.evidence, l.crowd.times, l.crowd.between = 2, -2, 2, fewBetween
			l.hold(r)
		}, true},
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

func TestWhichStoredStatesAreTaken(t *testing.T) {
	const day = 24 * time.Hour
	rate, window := Found{Kind: Rate, Size: 2, High: 3}, Found{Kind: Window, Size: 2, Window: sec}
	with := func(f Found, do func(*Found)) Stored { do(&f); return Stored{Found: []Found{f}} }
	for _, tt := range []struct {
		s    Stored
		want bool
	}{
		{Stored{}, true},
		{Stored{Found: []Found{rate, rate, window, window}}, true},
		{Stored{Found: []Found{rate, rate, window, window, rate}}, false},
		{Stored{Penalty: day}, true}, {Stored{Penalty: day + 1}, false}, {Stored{Penalty: -1}, false},
		{Stored{WaitUnit: 1}, true}, {Stored{WaitUnit: 1000}, true}, {Stored{WaitUnit: 2}, false}, {Stored{WaitUnit: -1}, false},
		{Stored{Trip: time.Minute}, true}, {Stored{Trip: time.Minute + 1}, false}, {Stored{Trip: -1}, false},
		{with(rate, func(f *Found) { f.Size = slowest }), true}, {with(rate, func(f *Found) { f.Size = 0.99 * slowest }), false},
		{with(rate, func(f *Found) { f.High = 1e15 }), true}, {with(rate, func(f *Found) { f.High = 1.01e15 }), false},
		{with(rate, func(f *Found) { f.High = 2 }), true}, {with(rate, func(f *Found) { f.High = 1.99 }), false},
		{with(rate, func(f *Found) { f.Confidence = 1 }), true}, {with(rate, func(f *Found) { f.Confidence = 1.01 }), false}, {with(rate, func(f *Found) { f.Confidence = -0.01 }), false},
		{with(window, func(f *Found) { f.Size = 1e15 }), true}, {with(window, func(f *Found) { f.Size = 1.01e15 }), false},
		{with(window, func(f *Found) { f.Window = 1 }), true}, {with(window, func(f *Found) { f.Window = 0 }), false},
		{with(window, func(f *Found) { f.Window = 2 * day }), true}, {with(window, func(f *Found) { f.Window = 2*day + 1 }), false},
		{with(window, func(f *Found) { f.Unit = 2 }), true}, {with(window, func(f *Found) { f.Unit = 3 }), false},
		{with(window, func(f *Found) { f.Kind = Unknown }), false}, {with(window, func(f *Found) { f.Kind = Flight }), true},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		err := l.Restore(tt.s, 5*ms)
		for _, bound := range []struct {
			broken bool
			text   string
		}{
			{len(tt.s.Found) > maxLimits, "5 limits are stored, must be at most 4"},
			{tt.s.Penalty > day || tt.s.Penalty < 0, "must be from 0 to 24h0m0s"},
			{tt.s.Trip > time.Minute || tt.s.Trip < 0, "must be from 0 to 1m0s"},
			{tt.s.WaitUnit == 2, "wait unit is 2, must be 0, 1 or 1000"},
		} {
			if bound.broken && (err == nil || !strings.Contains(err.Error(), bound.text)) {
				t.Errorf("%+v: %v, want %q", tt.s, err, bound.text)
			}
		}
		if (err == nil) != tt.want {
			t.Errorf("%+v: %v", tt.s, err)
		} else if err == nil {
			again := l.Store()
			if len(again.Found) != len(tt.s.Found) || again.Penalty != tt.s.Penalty || again.WaitUnit != tt.s.WaitUnit || again.Trip != tt.s.Trip || l.Interval() != 5*ms || l.meanLong != tt.s.Penalty || l.ramp.every != 5e6 {
				t.Errorf("%+v: restored %+v", tt.s, again)
			}
		} else if len(l.limits) > 0 || l.penalty.on() || l.Interval() != sec {
			t.Errorf("%+v was refused and changed the law", tt.s)
		}
	}
}

func TestWhatARestoredLawHolds(t *testing.T) {
	found := []Found{{Kind: Rate, Size: 0.5, High: 0.8}, {Kind: Flight, Size: 4.9}, {Kind: Window, Unit: 1, Size: 60, Window: time.Minute, Even: true}, {Kind: Flight, Size: 0.5}}
	l := New(Config{Ceiling: 10 * ms, Initial: 1500 * ms, Slowest: time.Hour})
	if err := l.Restore(Stored{Found: found}, time.Hour); err != nil || l.Interval() != 1500*ms {
		t.Fatal(err, l.Interval())
	}
	if got, want := held(l), "0.67-0.80/s, 4 in flight, 60 of unit 1 in 60.0s-60.0s, 1 in flight"; got != want {
		t.Errorf("holds %q, want %q: no rate is slower than the initial interval", got, want)
	}
	if err := l.Resume(Stored{Found: found}, ms); err != nil || l.Interval() != 10*ms {
		t.Fatal(err, l.Interval())
	}
	if got, want := held(l), "0.50-0.80/s, 4 in flight, 60 of unit 1 in 60.0s-60.0s, 1 in flight"; got != want {
		t.Errorf("goes on with %q, want %q", got, want)
	}
	w, x := l.limits[2].(*window), l.limits[1].(*flight)
	if !w.even || w.climb != 1 || w.testAfter != 1 || w.hits != sureHits || w.off != doubtUnit || w.slack != 0 || w.published || x.testAfter != firstTest {
		t.Errorf("%+v, %+v", w, x)
	}
	if l.penalty.length, l.named.unit, l.trip = time.Minute, 1000, 7e6; l.Assume(found) != nil {
		t.Fatal("not taken")
	}
	w, x = l.limits[2].(*window), l.limits[1].(*flight)
	if !w.published || w.slack != 600*ms || !math.IsInf(x.testAfter, 1) || l.penalty.length != time.Minute || l.named.unit != 1000 || l.trip != 7e6 || l.Interval() != 10*ms {
		t.Errorf("assumed %+v, %+v, a penalty of %v, waits in 1/%v s, %v", w, x, l.penalty.length, l.named.unit, l.Interval())
	}
	if !l.likely.has(time.Minute) {
		t.Error("blocks are not expected to end with a published window")
	}
	if err := l.Assume([]Found{{Kind: Window}}); err == nil {
		t.Error("an impossible limit is assumed")
	}
	l.limits, l.penalty.length = []limit{newWindow(0, amounts{9, 9, 0}, sec, sec, sec, sec, 1), &flight{size: 3}}, 30*time.Hour
	if s := l.Store(); len(s.Found) != 1 || s.Found[0].Kind != Flight || s.Penalty != 24*time.Hour {
		t.Errorf("stored %+v, want no guess and a day's penalty", s)
	}
}

func TestTheLimitsThatAreShown(t *testing.T) {
	v := view{now: time.Hour, latency: 1e9, mean: amounts{1, 4, 0}, h: &history{}}
	sized := func(w window) *window { w.size, w.climb = amounts{60, 0, 0}, 1; return &w }
	for _, tt := range []struct {
		x    limit
		want Found
	}{
		{&rate{low: 2, high: 3}, Found{Kind: Rate, Size: 2, High: 3, Confidence: 0.5}},
		{&rate{low: 2, high: 5}, Found{Kind: Rate, Size: 2, High: 5}},
		{&flight{size: 7}, Found{Kind: Flight, Size: 7, Confidence: 0.8}},
		{sized(window{low: time.Minute, high: time.Minute}), Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.5}},
		{sized(window{low: time.Minute, high: time.Minute, hits: 4, even: true}), Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.9, Even: true}},
		{sized(window{low: 30 * sec, high: time.Minute, hits: 4, from: time.Hour}), Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.45}},
		{nil, Found{}},
	} {
		if got := found(v, tt.x); got != tt.want {
			t.Errorf("%+v is shown as %+v, want %+v", tt.x, got, tt.want)
		}
	}
	header := advertised{shaper: newShaper(fixed), name: "h", quota: 60, window: 90 * sec, at: 0, share: 1}
	for _, tt := range []struct {
		name   string
		limits []limit
		header func(*advertised)
		want   Found
	}{
		{"nothing", nil, nil, Found{}},
		{"what delays most", []limit{&rate{low: 2, high: 3, stretch: 1}, sized(window{low: time.Minute, high: time.Minute, hits: 4}), &flight{size: 4}}, nil, Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.9}},
		{"an advertised one", []limit{sized(window{low: time.Minute, high: time.Minute, hits: 4})}, func(*advertised) {}, Found{Kind: Window, Size: 60, Window: 90 * sec, Confidence: 1, Advertised: true, Name: "h"}},
		{"one that delays less", []limit{sized(window{low: time.Minute, high: time.Minute, hits: 4})}, func(a *advertised) { a.window = time.Minute }, Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.9}},
		{"the first of two that delay as much", []limit{sized(window{low: time.Minute, high: time.Minute, hits: 4}), sized(window{low: time.Minute, high: time.Minute, hits: 4, even: true})}, nil, Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 0.9}},
		{"one whose resets say how long it is", nil, func(a *advertised) { a.window, a.longest = 0, time.Minute }, Found{Kind: Window, Size: 60, Window: time.Minute, Confidence: 1, Advertised: true, Name: "h"}},
		{"a bucket, whose resets do not", nil, func(a *advertised) { a.shaper = newShaper(bucket); a.slow, a.window, a.longest = 0.1, 0, time.Minute }, Found{Kind: Window, Size: 60, Confidence: 1, Advertised: true, Name: "h", Refills: true}},
		{"a sliding one that is uncertain", nil, func(a *advertised) { a.shaper = newShaper(sliding); a.wrong = 1 }, Found{Kind: Window, Size: 60, Window: 90 * sec, Confidence: 0.5, Advertised: true, Name: "h", Slides: true}},
		{"a bucket", nil, func(a *advertised) { a.shaper = newShaper(bucket); a.slow = 0.1 }, Found{Kind: Window, Size: 60, Window: 90 * sec, Confidence: 1, Advertised: true, Name: "h", Refills: true}},
	} {
		l := &Law{limits: tt.limits, latency: 1e9, clock: time.Hour, mean: amounts{1, 1, 0}}
		if tt.header != nil {
			a := header
			tt.header(&a)
			l.headers = []advertised{a}
		}
		if got := l.Binding(); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
		if got := l.Limits(nil); len(got) != len(l.limits)+len(l.headers) || len(l.Uses(0, nil)) != len(got) {
			t.Errorf("%s: %d limits and %d uses are shown", tt.name, len(got), len(l.Uses(0, nil)))
		}
		if len(l.headers) > 0 {
			if l.headers[0].at = -1; len(l.Limits(nil)) != len(l.limits) || len(l.Uses(0, nil)) != len(l.limits) {
				t.Errorf("%s: it is shown before a response", tt.name)
			}
			if l.headers[0].at, l.headers[0].gone = 0, true; len(l.Limits(nil)) != len(l.limits) || len(l.Uses(0, nil)) != len(l.limits) {
				t.Errorf("%s: it is shown when it is gone", tt.name)
			}
		}
	}
	for _, tt := range []struct {
		name string
		do   func(*advertised)
		used float64
		free time.Duration // from 100 s on, for one of cost 4
	}{
		{"half of it", func(a *advertised) { a.left, a.spent = 40, 10 }, 30, 0},
		{"all", func(a *advertised) { a.left, a.spent = 10, 10 }, 60, 20 * sec},
		{"all but the last", func(a *advertised) { a.left, a.spent = 11, 10 }, 59, 0},
		{"more than all", func(a *advertised) { a.left, a.spent = 0, 10 }, 60, 20 * sec},
		{"less than nothing", func(a *advertised) { a.left = 70 }, 0, 0},
		{"of cost, what does not fit", func(a *advertised) { a.left, a.perCost = 3, true }, 57, 20 * sec},
		{"of an unknown size", func(a *advertised) { a.quota = 0 }, -1, 0},
		{"it is over", func(a *advertised) { a.whole, a.left = 100*sec, 20 }, 0, 0},
		{"nobody says when it is over", func(a *advertised) { a.whole, a.left, a.at = 110*sec, 20, 110*sec }, 0, 0},
		{"a bucket refills", func(a *advertised) { a.shape, a.left, a.slow = bucket, 10, 2 }, 30, 0},
		{"an empty one does", func(a *advertised) { a.shape, a.left, a.slow, a.at = bucket, 0, 0.5, 100*sec }, 60, 2 * sec},
		{"of which no rate is known", func(a *advertised) { a.shape, a.left = bucket, 0 }, 60, 20 * sec},
		{"a sliding one, with others", func(a *advertised) { a.shape, a.longest, a.others, a.window = sliding, 10*sec, 5, 10*sec }, 15, 0},
		{"a full one", func(a *advertised) { a.shape, a.longest, a.others, a.window = sliding, 10*sec, 50, 10*sec }, 60, sec + 10*ms},
		{"one of which no reset is known", func(a *advertised) { a.shape, a.left = sliding, 20 }, 40, 0},
	} {
		a := header
		a.at, a.whole, a.left = 90*sec, 120*sec, 60
		tt.do(&a)
		u := a.use(view{now: 100 * sec, h: sentEvenly(100*sec, sec, 100), mean: amounts{1, 4, 0}})
		if math.Abs(u.Used-tt.used) > 1e-6 || (max(0, u.Free-100*sec)-tt.free).Abs() > ms {
			t.Errorf("%s: %.2f in use, free in %v, want %v and %v", tt.name, u.Used, u.Free-100*sec, tt.used, tt.free)
		}
	}
}

// A caller that is answered after 200 ms keeps one more attempt in flight from time to time,
// and of five the fifth is refused: latency limits the attempts, and not the pace, which grows.
func TestAPaceThatIsNotReachedExplainsNoNumberInFlight(t *testing.T) {
	l := New(Config{Ceiling: 5 * ms, Initial: sec, Slowest: time.Hour})
	now, width, answers, rest, until := time.Duration(0), 1, 0, 30*sec, time.Duration(0)
	var flying []time.Duration // when they were sent
	refusals := 0
	for now < 3*time.Minute && refusals < 10 {
		at := never
		if len(flying) < width {
			at = l.Hold(now, 1)
			if !l.Answered() && len(flying) > 0 {
				at = never
			}
		}
		if len(flying) > 0 && flying[0]+200*ms <= at {
			sent := flying[0]
			flying, now = flying[1:], sent+200*ms
			l.Observe(Outcome{Sent: sent, Now: now, Class: Admitted, Estimate: 1, Cost: 1})
			if answers++; answers >= 8 && now >= until && width < 5 {
				answers, width = 0, width+1
			}
			continue
		}
		now = at
		l.Sent(now, 1)
		if len(flying) < 4 {
			flying = append(flying, now)
			continue
		}
		now += ms
		l.Observe(Outcome{Sent: at, Now: now, Class: Refused, Estimate: 1})
		refusals, width, until, rest = refusals+1, 4, now+rest, 2*rest
	}
	if b := l.Binding(); b.Kind != Flight || b.Size != 4 || refusals > 3 {
		t.Errorf("%d refusals, holds %+v, want 4 in flight after 3", refusals, b)
	}
}

// A refusal at 100 s of one of ten attempts in flight, of which three were usual.
func TestHowABlockBegins(t *testing.T) {
	sized := func(n float64, w window) *window {
		w.size, w.climb, w.low, w.high = amounts{n, n, 0}, max(1, w.climb), time.Minute, time.Minute
		return &w
	}
	climbing := func(high float64) *rate {
		r := newRate(0, 10, high)
		r.cycles, r.since = 3, r.stretch
		return r
	}
	known := func(cycles int) *rate {
		r := climbing(10.2)
		r.cycles = cycles
		return r
	}
	byCost := sized(2000, window{off: amounts{0.05, 0.05, 0}})
	byCost.size[cost], byCost.hits = 232, 3
	room := func(left float64) func(*Law, *refusal) {
		return func(l *Law, f *refusal) {
			l.headers = []advertised{{shaper: newShaper(fixed), quota: 100, left: left, remained: left, refused: 100 * sec, share: 1, explainedAt: -1000}}
			f.limited = false
		}
	}
	for _, tt := range []struct {
		name     string
		limits   []limit
		do       func(*Law, *refusal)
		blamed   int
		flags    string
		evidence float64 // for a limit in flight
		soonest  time.Duration
	}{
		{"in the ramp, which has just grown", nil, func(l *Law, _ *refusal) { l.allAdmitted, l.ramp.grew = 99, 100*sec-rampSettled+1 }, -1, "ramping", maxEvidence / 2, sec},
		{"in the ramp, which grows no more", nil, func(l *Law, _ *refusal) { l.allAdmitted, l.ramp.grew = 99, 100*sec-rampSettled }, -1, "ramping", maxEvidence, sec},
		{"a hundred attempts after its last step", nil, func(*Law, *refusal) {}, -1, "", maxEvidence, sec},
		{"a full window", []limit{climbing(10.2), sized(230, window{})}, nil, 1, "paced", maxEvidence, sec},
		{"a window that is not quite full", []limit{climbing(10.2), sized(256, window{})}, nil, 1, "paced", maxEvidence, sec},
		{"the older one of two", []limit{sized(230, window{}), sized(230, window{})}, nil, 0, "", maxEvidence, sec},
		{"the fuller one of two", []limit{sized(236, window{}), sized(230, window{})}, nil, 1, "", maxEvidence, sec},
		{"a rate", []limit{climbing(10.2), sized(2000, window{})}, nil, 0, "paced", maxEvidence, sec},
		{"a new one", []limit{newRate(0, 10, 10.2)}, nil, 0, "", maxEvidence, sec},
		{"one that has grown: more are in flight because of that", []limit{climbing(11)}, nil, 0, "paced", 0, sec},
		{"under a penalty it has not", []limit{climbing(11)}, func(l *Law, _ *refusal) { l.penalty.length = sec }, 0, "paced", maxEvidence, sec},
		{"a window had been refuted", []limit{climbing(11)}, func(l *Law, _ *refusal) { l.refuted = 1 }, 0, "paced", maxEvidence, sec},
		{"a limit in flight", []limit{&flight{size: 11}}, nil, 0, "", maxEvidence, sec},
		{"whose blocks were brief", []limit{&flight{size: 11}}, func(l *Law, _ *refusal) { l.brief = 1 }, 0, "", maxEvidence, sec / 2},
		{"often", []limit{&flight{size: 11}}, func(l *Law, _ *refusal) { l.brief = 9 }, 0, "", maxEvidence, 485 * ms},
		{"those of a window", []limit{sized(230, window{})}, func(l *Law, _ *refusal) { l.brief = 9 }, 0, "", maxEvidence, sec},
		{"a larger one", []limit{&flight{size: 13}}, nil, -1, "", maxEvidence, sec},
		{"a rate after two cycles", []limit{known(2)}, nil, 0, "", maxEvidence, sec},
		{"no limit was near, and the ramp had just grown", []limit{sized(2000, window{})}, func(l *Law, _ *refusal) { l.allAdmitted, l.ramp.grew = 99, 100*sec }, -1, "", maxEvidence, sec},
		{"a window that was tested, and an outage", []limit{sized(230, window{climb: 1.1})}, func(l *Law, f *refusal) { room(50)(l, f); f.others = 2 }, -1, "", 0, sec},
		{"a window that was not tested, and an advertised limit explains it", []limit{sized(230, window{})}, room(0), -1, "explained", 0, sec},
		{"a limit in flight that was met, and an advertised one explains it", []limit{&flight{size: 11}}, room(0), -1, "explained", 0, sec},
		{"a window that is full of cost", []limit{byCost}, nil, 0, "", maxEvidence, sec},
		{"an advertised limit explains it", []limit{sized(230, window{climb: 1.1})}, room(0), -1, "explained, window tested", 0, sec},
		{"there is room, and as many as usual are in flight: an outage", nil, func(l *Law, f *refusal) { room(50)(l, f); f.others = 2 }, -1, "", 0, sec},
		{"there is room, but many are in flight", nil, room(50), -1, "", maxEvidence, sec},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock, l.last, l.limits, l.state, l.allAdmitted, l.allRefused, l.freed = *sentEvenly(100*sec, 250*ms, 230), 100*sec, 100*sec, tt.limits, holding, 100, 7, 31*sec
		for i := range 300 {
			l.crowd.sent(i % 4)
		}
		f := refusal{sent: 100 * sec, now: 101 * sec, others: 10, cost: 3, limited: true}
		if tt.do != nil {
			tt.do(l, &f)
		}
		l.blocked(f)
		b := &l.block
		var flags []string
		for name, on := range map[string]bool{"ramping": b.ramping, "paced": b.paced, "explained": b.explained} {
			if on {
				flags = append(flags, name)
			}
		}
		if len(l.limits) > 0 {
			if w, ok := l.limits[0].(*window); ok && w.hits == 1 && b.blamed < 0 {
				flags = append(flags, "window tested")
			}
		}
		slices.Sort(flags)
		if got := strings.Join(flags, ", "); b.blamed != tt.blamed || got != tt.flags || b.soonest.Round(ms) != tt.soonest {
			t.Errorf("%s: blamed %d, %s, a canary after %v; want %d, %s, %v", tt.name, b.blamed, got, b.soonest, tt.blamed, tt.flags, tt.soonest)
		}
		if math.Abs(l.crowd.evidence-tt.evidence) > 0.01 || tt.evidence > 0 && l.weighed != 1 {
			t.Errorf("%s: evidence %v, want %v", tt.name, l.crowd.evidence, tt.evidence)
		}
		if b.began != 100*sec || b.noticed != 101*sec || b.lastRefused != 100*sec || b.cost != 3 || b.before != 6 || b.refusals != 1 || b.count != 230 || b.pace < 4 || b.pace > 4.3 {
			t.Errorf("%s: %+v", tt.name, b)
		}
		if got, want := l.Foretold(), b.explained || b.blamed >= 0 && (b.paced || !isRate(l.limits[b.blamed])); got != want {
			t.Errorf("%s: explained %v beforehand, want %v", tt.name, got, want)
		}
	}
}

func TestTheIntervalThatIsReported(t *testing.T) {
	minute := func(n float64) *window {
		return &window{size: amounts{n, 0, 0}, low: time.Minute, high: time.Minute, climb: 1}
	}
	header := []advertised{{shaper: newShaper(fixed), quota: 30, window: time.Minute}}
	for _, tt := range []struct {
		name    string
		state   state
		limits  []limit
		headers []advertised
		shown   time.Duration
		o       Outcome
		want    time.Duration
	}{
		{"nothing is known", ramping, nil, nil, sec, Outcome{Class: Admitted}, 700 * ms},
		{"only a success shortens it", ramping, nil, nil, sec, Outcome{Class: Failed}, sec},
		{"that may speed up", ramping, nil, nil, sec, Outcome{Class: Admitted, Steady: true}, sec},
		{"a window", holding, []limit{minute(10)}, nil, sec, Outcome{Class: Failed}, 6 * sec},
		{"of much", holding, []limit{minute(600)}, nil, sec, Outcome{Class: Admitted}, 100 * ms},
		{"of much, before an answer", starting, []limit{minute(600)}, nil, ms, Outcome{Class: Lost}, 700 * ms},
		{"of much, in the ramp", ramping, []limit{minute(600)}, nil, sec, Outcome{Class: Admitted}, 700 * ms},
		{"the longer one", holding, []limit{minute(600), minute(20), minute(60)}, nil, sec, Outcome{Class: Admitted}, 3 * sec},
		{"an advertised one", holding, []limit{minute(600)}, header, sec, Outcome{Class: Admitted}, 2 * sec},
		{"an advertised one alone", holding, nil, []advertised{{shaper: newShaper(fixed), quota: 600, window: time.Minute}}, sec, Outcome{Class: Admitted}, 700 * ms},
		{"no longer than the longest", holding, []limit{minute(1e-3)}, nil, sec, Outcome{Class: Failed}, time.Minute},
		{"no shorter than the ceiling", holding, []limit{minute(1e6)}, nil, sec, Outcome{Class: Admitted}, 10 * ms},
	} {
		l := New(Config{Ceiling: 10 * ms, Initial: sec, Slowest: time.Minute})
		l.h, l.clock, l.state, l.limits, l.headers, l.shown, l.flying = *sentEvenly(100*sec, time.Hour, 1), 100*sec, tt.state, tt.limits, slices.Clone(tt.headers), tt.shown, 1
		l.ramp = ramp{every: 7e8, at: 100 * sec}
		tt.o.Sent, tt.o.Now = 100*sec, 100*sec
		if l.Observe(tt.o); l.Interval() != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, l.Interval(), tt.want)
		}
	}
}

// A limit that allows no burst refuses the first attempt after a step of the ramp, so that its
// rate lies between two paces that were tried.
func TestWhatALimitWithoutABurstCostsAtFirst(t *testing.T) {
	for _, tt := range []struct{ rate, goodput float64 }{
		{2, 0.97}, {5, 0.96}, {10, 0.94}, {20, 0.90},
	} {
		l := New(Config{Ceiling: 5 * ms, Initial: sec, Slowest: time.Hour})
		until := time.Duration(2000 / tt.rate * float64(sec))
		admitted, refused := drive(l, until, bucketAt(tt.rate, 1))
		if float64(admitted) < tt.goodput*2000 || refused > 6 {
			t.Errorf("%v a second: %d admitted of 2,000, %d refused; want %v of them, 6", tt.rate, admitted, refused, tt.goodput)
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
		{"refused after a while", nil, func(l *Law) { l.block.noticed = 106 * sec }, "60 of unit 0 in 100.0s-120.0s lone", 22 * sec, 160 * sec, minFold},
		{"an attempt at the end of the last block counts", nil, func(l *Law) { l.freed = 40*sec - 1 }, "60 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"one before it does not", nil, func(l *Law) { l.freed = 40*sec + 1 }, "59 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"of a single attempt", nil, func(l *Law) { l.freed, l.block.lastRefused = 98900*ms, 99*sec }, "1 of unit 0 in 1.0s-61.1s lone", sec / 3, 160 * sec, 15250 * ms},
		{"to the end of an advertised wait: it is assumed for half of it", nil, func(l *Law) { l.block.exact = true }, "60 of unit 0 in 116.6s-120.0s lone", 20 * sec, 220 * sec, minFold},
		{"for two minutes at most", nil, func(l *Law) { l.block.exact, l.block.release = true, 400*sec }, "60 of unit 0 in 351.8s-360.0s lone", 20 * sec, 520 * sec, 65 * sec},
		{"besides one that more blocks support", nil, func(l *Law) { l.limits = []limit{&window{size: amounts{9, 9, 0}, low: 110 * sec, high: 115 * sec}} }, "9 of unit 0 in 110.0s-115.0s, 60 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"configured, since the last long block", []time.Duration{110 * sec}, func(*Law) {}, "60 of unit 0 in 107.8s-110.0s lone", 20 * sec, 270 * sec, minFold},
		{"and ended at the canary that was admitted", []time.Duration{120 * sec}, func(*Law) {}, "60 of unit 0 in 117.6s-120.0s lone", 20 * sec, 280 * sec, minFold},
		{"one that the canary before would have found over", []time.Duration{100 * sec}, func(l *Law) { l.cfg.Phase = 5 * sec }, "60 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"one that is not over yet", []time.Duration{121 * sec}, func(l *Law) { l.cfg.Phase = 5 * sec }, "60 of unit 0 in 100.0s-120.0s lone", 20 * sec, 160 * sec, minFold},
		{"the second of two", []time.Duration{121 * sec, 110 * sec}, func(l *Law) { l.cfg.Phase = 5 * sec }, "60 of unit 0 in 107.8s-110.0s lone", 20 * sec, 270 * sec, minFold},
		{"the first of two", []time.Duration{115 * sec, 110 * sec}, func(l *Law) { l.cfg.Phase = 5 * sec }, "60 of unit 0 in 112.7s-115.0s lone", 20 * sec, 275 * sec, minFold},
		{"a long one is assumed for two minutes", []time.Duration{300 * sec}, func(l *Law) { l.block.release = 350 * sec }, "60 of unit 0 in 294.0s-300.0s lone", 20 * sec, 470 * sec, 52500 * ms},
		{"by the clock, of which only its newest period counts", []time.Duration{50 * sec}, func(l *Law) { l.cfg.Phase = 5 * sec }, "5 of unit 0 in 50.0s-50.0s lone", 20 * sec, 210 * sec, minFold},
		{"not what was sent at the end of the one before", []time.Duration{50 * sec}, func(l *Law) { l.cfg.Phase = 5*sec - 1 }, "4 of unit 0 in 50.0s-50.0s lone", 20 * sec, 210 * sec, minFold},
		{"which began before", []time.Duration{70 * sec}, func(l *Law) { l.cfg.Phase = 60 * sec }, "20 of unit 0 in 70.0s-70.0s lone", 20 * sec, 230 * sec, minFold},
		{"before the last long block ended, too", []time.Duration{75 * sec}, func(l *Law) { l.freed = 70 * sec }, "30 of unit 0 in 73.5s-75.0s lone", 10 * sec, 235 * sec, minFold},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour, Windows: tt.windows})
		l.h, l.freed = *sentEvenly(99*sec, sec, 100), 40*sec
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 140 * sec, release: 160 * sec, refusals: 2, pace: 4, blamed: -1}
		tt.do(l)
		l.clock = l.block.release
		l.holdWindow(l.view(), &l.block)
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
		l.block = block{began: 100 * sec, ramping: true, pace: 8, blamed: -1}
		l.out.add(100*sec, 0)
		tt.do(l)
		l.holdRate(l.view(), &l.block)
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
			l.limits = append(l.limits, &flight{size: 9})
			l.block.blamed = 1
		}, false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h = *sentEvenly(99*sec, sec, 100)
		r := newRate(0, 3, 4)
		r.count, r.refused, r.since = 30, 100*sec, 30
		l.limits = []limit{r}
		l.block = block{began: 100 * sec, noticed: 100 * sec, lastRefused: 100 * sec, release: 101 * sec, refusals: 1, pace: 4, blamed: 0, paced: false}
		tt.do(l)
		l.clock = l.block.release
		l.ended(l.view())
		if void := r.cycles == 0; void != tt.void || r.released != l.clock || r.refused != 0 || r.count != 0 {
			t.Errorf("%s: cycle dropped %v, began at %v; %+v", tt.name, void, r.released, r)
		}
	}
}

// Five blocks were explained by a window of 100 attempts in the 13th length, and so is a sixth
// one, which began at 110 s.
func TestAWindowThatWasFittedReplacesARate(t *testing.T) {
	const fitted = "100 of unit 0 in 8.9s-8.9s"
	other := &window{size: amounts{9, 9, 0}, low: 100 * sec, high: 100 * sec, climb: 1, hits: sureHits}
	for _, tt := range []struct {
		name   string
		do     func(*Law)
		want   string
		blocks int // that are known then; 0 once they have been explained
		freed  time.Duration
	}{
		{"a rate was blamed", func(*Law) {}, "9 of unit 0 in 100.0s-100.0s, " + fitted, 0, 0},
		{"nothing was", func(l *Law) { l.limits, l.block.blamed = nil, -1 }, fitted, 0, 0},
		{"a window was", func(l *Law) { l.limits, l.block.blamed = []limit{other}, 0 }, "9 of unit 0 in 100.0s-100.0s", 5, 0},
		{"there is a penalty", func(l *Law) { l.penalty.length = sec }, "8.00-9.00/s, 9 of unit 0 in 100.0s-100.0s", 5, 0},
		{"it is the first block", func(l *Law) { l.episodes = nil }, "8.00-9.00/s, 9 of unit 0 in 100.0s-100.0s", 1, 0},
		{"a long block", func(l *Law) { l.block.refusals, l.block.release = 2, 115*sec }, "9 of unit 0 in 100.0s-100.0s, " + fitted, 0, 115 * sec},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h = *sentEvenly(110*sec, 89*ms, 100)
		es := &episodes{n: 5, last: 100 * sec}
		for j := range es.n {
			e := &es.ring[j]
			e.n, e.whole, e.refused = 250, 10, time.Duration(j)*sec
			for u := range units {
				for i := range lengths {
					e.least[u][i], e.most[u][i] = float32(200+150*(j%2)), float32(200+150*(j%2))
				}
			}
			e.least[attempts][12], e.most[attempts][12] = 100, 101
		}
		es.ring[4].n = 500 // unlike a rate
		l.limits, l.episodes = []limit{newRate(0, 8, 9), other}, es
		l.block = block{began: 110 * sec, noticed: 110 * sec, lastRefused: 110 * sec, release: 110*sec + 10*ms, refusals: 1, pace: 7, blamed: 0}
		tt.do(l)
		l.clock = l.block.release
		l.spans.n = 0
		before := *es
		holds := l.holdFitted(l.view())
		known := 0
		if l.episodes != nil {
			known = l.episodes.n
		}
		if got := held(l); got != tt.want || known != tt.blocks || holds != strings.HasSuffix(got, fitted) {
			t.Errorf("%s: %v, holds %q and knows %d blocks, want %q and %d", tt.name, holds, got, known, tt.want, tt.blocks)
		}
		if !holds {
			continue
		}
		if w := l.limits[len(l.limits)-1].(*window); w.hits != minEpisodes || w.lone || w.from != l.clock || w.pace != 7 || w.floor != w.high {
			t.Errorf("%s: %+v", tt.name, w)
		}
		*es = before // the same, with what else follows from the end of a block
		l.limits, l.episodes, l.block.blamed, l.freed = []limit{newRate(0, 8, 9)}, es, 0, 0
		l.ended(l.view())
		if got := held(l); got != fitted || l.freed != tt.freed {
			t.Errorf("%s: afterwards it holds %q, freed at %v; want %v", tt.name, got, l.freed, tt.freed)
		}
	}
}

// Forty attempts of cost 10 in a minute: a window of 420 of cost is full, and one of 100 attempts
// is not.
func TestARefusalThatAWindowExplainsInAnotherUnit(t *testing.T) {
	minute := func() *window {
		return &window{size: amounts{100, 420, 0}, off: amounts{0.05, 0.05, 0}, low: time.Minute, high: time.Minute, climb: 1}
	}
	for _, tt := range []struct {
		name   string
		limits []limit
		blamed int
		want   int
	}{
		{"nothing was blamed", []limit{minute()}, -1, 0},
		{"a rate was", []limit{newRate(0, 8, 9), minute()}, 0, 1},
		{"a limit in flight was", []limit{&flight{size: 9}, minute()}, 0, 0},
		{"the window itself was", []limit{minute()}, 0, 0},
		{"none explains it", []limit{newRate(0, 8, 9), &window{size: amounts{100, 100, 0}, low: time.Minute, high: time.Minute}}, -1, -1},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h.add(sec, amounts{40, 400, 0})
		l.mean = amounts{1, 10, 0}
		l.limits, l.block.blamed = tt.limits, tt.blamed
		l.blameOtherUnit(l.view(), refusal{sent: 10 * sec, cost: 10})
		if l.block.blamed != tt.want {
			t.Errorf("%s: blamed %d, want %d", tt.name, l.block.blamed, tt.want)
		}
		for i, x := range l.limits {
			if w, ok := x.(*window); ok && (w.unit == cost) != (tt.blamed != tt.want && i == tt.want) {
				t.Errorf("%s: limit %d is of unit %d", tt.name, i, w.unit)
			}
		}
	}
}

// What was sent since the end of the last long block is that block's, up to the attempt that ended it.
func TestHowManyAttemptsABlockFollows(t *testing.T) {
	for freed, want := range map[time.Duration]float64{-1: 230, 50 * sec: 201, 50*sec + 1: 200} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock, l.freed = *sentEvenly(100*sec, 250*ms, 230), 100*sec, freed
		if l.blocked(refusal{sent: 100 * sec, now: 101 * sec}); l.block.count != want {
			t.Errorf("since %v: %v attempts, want %v", freed, l.block.count, want)
		}
	}
}

// A canary is refused. There is room, unless a row says otherwise.
func TestABlockAlthoughThereIsRoom(t *testing.T) {
	for _, tt := range []struct {
		name     string
		do       func(*Law)
		o        Outcome
		refusals int
		punished bool
		outage   bool
	}{
		{"the second refusal: a penalty", func(*Law) {}, Outcome{Class: Refused}, 2, true, false},
		{"the first one says nothing", func(l *Law) { l.state, l.block = holding, block{} }, Outcome{Class: Refused}, 1, false, false},
		{"nothing is left", func(l *Law) { l.headers[0].left = 0 }, Outcome{Class: Refused}, 2, false, false},
		{"nothing is left any more", func(l *Law) { l.headers[0].left, l.block.punished = 0, true }, Outcome{Class: Refused}, 2, true, false},
		{"an outage", func(l *Law) { l.limited = true }, Outcome{Class: Overloaded}, 2, false, true},
		{"an advertised limit explains it, and there is trouble", func(l *Law) { l.limited, l.block.explained = true, true }, Outcome{Class: Overloaded}, 2, true, false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock, l.state, l.epoch = *sentEvenly(100*sec, sec, 100), 100*sec, trying, 50*sec
		l.headers = []advertised{{shaper: newShaper(fixed), quota: 100, left: 50, share: 1}}
		l.block = block{refusals: 1, blamed: -1, canaryAt: 100 * sec, wait: sec}
		tt.do(l)
		tt.o.Sent, tt.o.Now = 100*sec, 101*sec
		l.Observe(tt.o)
		b := &l.block
		if b.refusals != tt.refusals || b.punished != tt.punished || b.outage != tt.outage || l.state != waiting || l.allRefused != 1 {
			t.Errorf("%s: %d refusals, punished %v, outage %v, %v; want %d, %v, %v", tt.name, b.refusals, b.punished, b.outage, l.state, tt.refusals, tt.punished, tt.outage)
		}
	}
}

// A block has been going on since 50 s, and its newest canary was sent at 90 s.
func TestRefusalsDuringABlock(t *testing.T) {
	for _, tt := range []struct {
		name     string
		state    state
		o        Outcome
		known    float64 // the divisor of advertised waits
		want     state
		refusals int
		sane     int           // waits that were believed
		resume   time.Duration // at least
	}{
		{"the canary", trying, Outcome{Sent: 90 * sec, RetryAfter: 4 * sec}, 0, waiting, 4, 0, 104 * sec},
		{"an older canary, after that", trying, Outcome{Sent: 80 * sec, RetryAfter: 4 * sec}, 0, trying, 4, 1, 104 * sec},
		{"an older one before the next is sent", waiting, Outcome{Sent: 80 * sec, RetryAfter: 4 * sec}, 0, waiting, 4, 1, 104 * sec},
		{"an attempt of before the block", waiting, Outcome{Sent: 40 * sec, RetryAfter: 4 * sec}, 0, waiting, 3, 0, 104 * sec},
		{"one that was sent when the block was noticed", waiting, Outcome{Sent: 50 * sec, RetryAfter: 4 * sec}, 0, waiting, 3, 0, 104 * sec},
		{"with a wait of days, which is believed to be seconds", waiting, Outcome{Sent: 80 * sec, RetryAfter: 72 * time.Hour}, 1, waiting, 4, 1, 100*sec + 24*time.Hour},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock, l.state, l.epoch, l.named.unit = *sentEvenly(100*sec, sec, 100), 100*sec, tt.state, 50*sec, tt.known
		l.block = block{refusals: 3, blamed: -1, began: 49 * sec, noticed: 50 * sec, lastRefused: 70 * sec, canaryAt: 90 * sec, wait: sec, resume: 101 * sec}
		tt.o.Now, tt.o.Class = 100*sec, Refused
		l.Observe(tt.o)
		if l.state != tt.want || l.block.refusals != tt.refusals || l.named.sane != tt.sane || l.block.began != 49*sec {
			t.Errorf("%s: %v, %d refusals, %d plausible waits, began at %v; want %v, %d, %d", tt.name, l.state, l.block.refusals, l.named.sane, l.block.began, tt.want, tt.refusals, tt.sane)
		}
		if got := l.block.resume; got < tt.resume || got > tt.resume+30*sec {
			t.Errorf("%s: the next canary goes at %v, want %v", tt.name, got, tt.resume)
		}
	}
}

// The instants that a law is told may go back, as those of responses that arrive together do.
func TestTheClockOfALaw(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	if l.Foretold() {
		t.Error("a limit explains a block before there is one")
	}
	if l.mean != (amounts{1, 1, 0}) || l.Hold(5*sec, 1) != 5*sec || l.Hold(4*sec, 1) != 5*sec {
		t.Errorf("at first %+v; the next attempt goes at %v, want 5s", l.mean, l.Hold(4*sec, 1))
	}
	if l.Sent(3*sec, 1); l.last != 5*sec || l.began != 5*sec || l.freed != 5*sec {
		t.Errorf("the first attempt was sent at %v, want 5s; %v, %v", l.last, l.began, l.freed)
	}
	if l.Observe(Outcome{Sent: 5 * sec, Now: 2 * sec, Class: Refused}); l.epoch != 5*sec || l.block.noticed != 5*sec {
		t.Errorf("it was refused at %v and %v, want 5s", l.epoch, l.block.noticed)
	}
	if l.Sent(9*sec, 1); l.block.canaryAt != 9*sec || l.Hold(time.Hour, 1) != never {
		t.Errorf("a canary was sent at %v, want 9s, and the next attempt at %v, after its answer", l.block.canaryAt, l.Hold(time.Hour, 1))
	}
	l = New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	l.state, l.flying, l.limits = holding, 3, []limit{&flight{size: 3}}
	if at := l.Hold(sec, 1); at != never {
		t.Errorf("with as many in flight as may be, the next goes at %v", at)
	}
	l.clock, l.lastRelease, l.lastBlock = 100*sec, 40*sec, 6*sec-1
	if v := l.view(); v.calm() != 10 {
		t.Errorf("a minute after a block of 6s is %v times as long, want 10", v.calm())
	}
	l = New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	if err := l.Assume([]Found{{Kind: Window, Size: 1, Window: 10 * sec}}); err != nil || l.Uses(5*sec, nil)[0].Free != 5*sec {
		t.Errorf("before the first attempt there is room at %v, want at once; %v", l.Uses(5*sec, nil)[0].Free, err)
	}
}

// An answer to an attempt of 99 s arrives at 100 s.
func TestWhatAnAnswerSaysAboutTheHeldLimits(t *testing.T) {
	lone := func() *window {
		return &window{size: amounts{30, 30, 0}, low: 40 * sec, high: time.Minute, fold: sec, floor: 10 * sec, climb: 1, lone: true, pace: 2}
	}
	for _, tt := range []struct {
		name    string
		state   state
		steady  bool
		limits  []limit
		want    string
		every   time.Duration // of the ramp
		untests []float64
	}{
		{"in the ramp the pace grows", ramping, false, nil, "", 250 * ms, nil},
		{"not if it is told to be steady", ramping, true, nil, "", 500 * ms, nil},
		{"in the ramp with restored limits, too", ramping, false, []limit{&window{size: amounts{900, 900, 0}, low: time.Minute, high: time.Minute, climb: 1}}, "900 of unit 0 in 60.0s-60.0s", 250 * ms, []float64{1}},
		{"once a limit is held it does not", holding, false, []limit{&flight{size: 9, testAfter: firstTest}}, "9 in flight", 500 * ms, []float64{1}},
		{"a window", holding, false, []limit{newRate(0, 1, 2), &window{size: amounts{900, 900, 0}, low: time.Minute, high: time.Minute, climb: 1}, &flight{size: 9, testAfter: firstTest}}, "1.00-2.00/s, 900 of unit 0 in 60.0s-60.0s, 9 in flight", 500 * ms, []float64{0, 1, 1}},
		{"one that was exceeded without a refusal is given up", holding, false, []limit{&flight{size: 9, testAfter: firstTest}, lone(), lone()}, "9 in flight, 30 of unit 0 in 40.0s-60.0s lone, 3.00-4.50/s", 500 * ms, []float64{1, 0, 0}},
	} {
		l := New(Config{Ceiling: ms, Initial: 500 * ms, Slowest: time.Hour})
		for i := range 99 {
			l.h.add(time.Duration(i+1)*sec, amounts{1, 1, 1})
		}
		l.mean[busy] = 1
		l.clock, l.last, l.state, l.limits, l.flying = 99*sec, 99*sec, tt.state, tt.limits, 1
		l.latency, l.ramp.answers, l.allAdmitted, l.headers = 1e9, 9, 41, []advertised{{rolled: true, at: 99 * sec}}
		l.Observe(Outcome{Sent: 99 * sec, Now: 100 * sec, Class: Admitted, Estimate: 1, Cost: 1, Steady: tt.steady})
		if got := held(l); got != tt.want || time.Duration(l.ramp.every) != tt.every {
			t.Errorf("%s: holds %q, the ramp's interval is %v; want %q and %v", tt.name, got, time.Duration(l.ramp.every), tt.want, tt.every)
		}
		if grew := tt.every < 500*ms; l.ramp.admitted != map[bool]float64{true: 42}[grew] || !l.headers[0].gone {
			t.Errorf("%s: the ramp grew after %v attempts, and what no answer reports is gone: %v", tt.name, l.ramp.admitted, l.headers[0].gone)
		}
		for i, want := range tt.untests {
			got := 0.0
			switch x := l.limits[i].(type) {
			case *window:
				got = x.untested
			case *flight:
				got = x.untested
			}
			if got != want {
				t.Errorf("%s: %v answers under limit %d, want %v", tt.name, got, i, want)
			}
		}
	}
	l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	l.trip = 1e9
	if l.Observe(Outcome{Sent: sec, Now: sec, Class: Admitted}); l.mean[busy] != 0.001 {
		t.Errorf("an answer that is faster than a refusal works for %v s, want 1 ms", l.mean[busy])
	}
}

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
		{"there was room after 38 s: the rest is a penalty", penalty{}, block{expected: 38 * sec, punished: true, refusals: 2, tooShort: 9 * sec}, penalty{length: 50 * sec, low: 9 * sec, blocks: 1}},
		{"after 38 s by an advertised wait", penalty{}, block{expected: 38 * sec, exact: true, refusals: 2, tooShort: 90 * sec}, penalty{length: 50 * sec, low: 50 * sec, blocks: 1}},
		{"no canary was refused", penalty{}, block{expected: 38 * sec, punished: true, refusals: 1, tooShort: 9 * sec}, penalty{length: 50 * sec, blocks: 1}},
		{"after 39 s, which may be late", penalty{}, block{expected: 39 * sec, punished: true, refusals: 2}, penalty{}},
		{"nothing suggests a penalty", penalty{}, block{expected: sec, refusals: 2}, penalty{}},
		{"which was longer before", penalty{length: 100 * sec}, block{expected: sec, refusals: 2}, penalty{length: time.Minute, blocks: 1}},
		{"and is searched for", penalty{length: 100 * sec}, block{expected: sec, punished: true, refusals: 2, tooShort: 20 * sec}, penalty{length: 100 * sec, low: 20 * sec, blocks: 1}},
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
}

// If blocks of limits that have room again soon ended at the first canary, the next goes sooner.
func TestAfterBriefBlocksTheFirstCanaryGoesSooner(t *testing.T) {
	for brief, want := range map[int]time.Duration{0: sec, 1: sec / 2, 3: sec / 8, 4: sec / 16, 5: sec / 16, 99: sec / 16} {
		l := &Law{limits: []limit{&flight{size: 9}}, brief: brief, block: block{pace: 1000}}
		if got := l.soonest(); got != want {
			t.Errorf("after %d of them: after %v, want %v", brief, got, want)
		}
	}
}

func TestTheLengthsOfWindowsThatAreExpected(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: sec, Windows: []time.Duration{0, 70 * sec, time.Minute, 70 * sec, -1, 1}})
	if got, want := l.likely.configured(), []time.Duration{70 * sec, time.Minute, 1}; !slices.Equal(got, want) {
		t.Errorf("configured %v, want %v", got, want)
	}
	if got := l.likely.lengths(); len(got) != 3+len(usual) || !slices.Equal(got[3:], usual[:]) {
		t.Errorf("expected %v", got)
	}
	if got := New(Config{}).likely; !slices.Equal(got.lengths(), usual[:]) || got.configured() != nil || got.has(time.Minute) {
		t.Errorf("nothing is configured, and expected %v", got.lengths())
	}
}
