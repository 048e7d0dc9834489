package learn

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestARefusalWithoutAReasonIsAttributed(t *testing.T) {
	room := []advertised{{shaper: newShaper(fixed), quota: 6000, left: 5900}}
	full := []advertised{{shaper: newShaper(fixed), quota: 6000, left: 1}}
	for _, tt := range []struct {
		name string
		l    Law
		f    refusal
		want bool
	}{
		{"429 is how it refuses", Law{limited: true}, refusal{others: 9}, true},
		{"this is one", Law{limited: true}, refusal{limited: true}, false},
		{"nothing is known", Law{}, refusal{}, false},
		{"there is room, at the usual number in flight", Law{headers: room}, refusal{others: 2}, true},
		{"there is room, at a number that is rare", Law{headers: room}, refusal{others: 30}, false},
		{"there is room, in the ramp", Law{headers: room, block: block{ramping: true}}, refusal{others: 2}, false},
		{"but outages are over at once here, or come again and again", Law{headers: room, unlikely: maxUnlikely}, refusal{others: 2}, false},
		{"they were, but not often", Law{headers: room, unlikely: maxUnlikely - 1}, refusal{others: 2}, true},
		{"it names no limit, as answers do, though one was nearly used up", Law{headers: full}, refusal{sent: sec, others: 2}, true},
		{"it names one", Law{headers: []advertised{{shaper: newShaper(fixed), quota: 6000, left: 1, refused: sec}}}, refusal{sent: sec, others: 2}, false},
		{"answers named one, but not in this window", Law{headers: []advertised{{shaper: newShaper(fixed), quota: 6000, left: 1, gone: true}}}, refusal{sent: sec, others: 2}, false},
		{"they name one that cannot be trusted", Law{headers: []advertised{{shaper: shaper{wrong: maxWrong}, quota: 6000, left: 1}}}, refusal{sent: sec, others: 2}, false},
		{"one that no answer has named yet", Law{headers: []advertised{{shaper: newShaper(fixed), quota: 6000, at: -1}}}, refusal{sent: sec, others: 2}, false},
		{"it names none, at a number in flight that is rare", Law{headers: full}, refusal{sent: sec, others: 30}, false},
		{"it says for how long", Law{headers: room, limited: true}, refusal{others: 2, wait: sec}, false},
		{"a canary is refused, as in the outage before", Law{block: block{refusals: 2, outage: true}}, refusal{others: 9}, true},
		{"a canary is refused, and there was no outage", Law{headers: room, block: block{refusals: 2}}, refusal{others: 2}, false},
	} {
		for range 100 {
			tt.l.crowd.sent(4)
		}
		tt.l.allAdmitted = 1000
		if got := tt.l.outage(tt.f); got != tt.want {
			t.Errorf("%s: outage %v", tt.name, got)
		}
	}
	for more, want := range map[int]bool{1: false, 2: true} { // 1.5 of 15, and 2.5
		l := Law{headers: room}
		for i := range 14 {
			l.crowd.sent(map[bool]int{true: 5}[i < more])
		}
		if got := l.outage(refusal{others: 5}); got != want {
			t.Errorf("%d of 14 attempts were sent with as many in flight: outage %v", more, got)
		}
	}
	b := block{refusals: 9, wait: 60 * sec, outage: true}
	if got := (&canaryPlan{block: &b, now: time.Hour}).next(); got <= outageLongest {
		t.Errorf("an hour into an outage a canary goes each %v: it may keep a penalty alive", got)
	}
}

func TestTheWaitsOfTheNextAttemptsAreEstimated(t *testing.T) {
	v := &history{}
	for i := range 6 {
		v.add(time.Duration(95+i)*sec, amounts{1, 1, 0})
	}
	minute := newWindow(0, amounts{10, 10, 0}, sec, time.Minute, time.Minute, sec, 1)
	minute.lone = false
	bucketed := func(left float64) []advertised {
		return []advertised{{shaper: newShaper(bucket), quota: 60, left: left, slow: 1.0 / 30, fast: 1, at: 0, whole: 200 * sec, share: 1}}
	}
	for _, tt := range []struct {
		name    string
		state   state
		limits  []limit
		headers []advertised
		n       float64
		want    time.Duration
	}{
		{"nothing is known: the ramp's pace", ramping, nil, nil, 4, 2 * sec},
		{"nor after a refusal", holding, nil, nil, 4, 2 * sec},
		{"a window with room for four, in the ramp", ramping, []limit{minute}, nil, 4, 2 * sec},
		{"before the first answer", starting, []limit{minute}, nil, 4, 2 * sec},
		{"no longer than the longest interval for each", holding, []limit{newRate(0, slowest, slowest)}, nil, 4, 4 * time.Hour},
		{"nor than there is time", holding, []limit{newRate(0, slowest, slowest)}, nil, 1e9, never / 2},
		{"a window with room for four", holding, []limit{minute}, nil, 4, 4 * ms},
		{"and those after them, at its mean rate", holding, []limit{minute}, nil, 6, 12 * sec},
		{"an advertised bucket with 57 left", ramping, nil, bucketed(57), 29, 14500 * ms},
		{"one with none left", ramping, nil, bucketed(0), 29, 29 * 30 * sec},
		{"what an advertised window lacks comes at once", holding, []limit{minute}, []advertised{{shaper: newShaper(fixed), quota: 60, at: 0, whole: 200 * sec, share: 1}}, 4, 4 * ms},
	} {
		l := New(Config{Ceiling: ms, Initial: 500 * ms, Slowest: time.Hour})
		l.state, l.limits, l.headers, l.h, l.clock = tt.state, tt.limits, tt.headers, *v, 100*sec
		if got := l.After(tt.n); (got - tt.want).Abs() > ms {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

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
			l.state, l.block = trying, block{canaryAt: 99 * sec, refusals: 1, pace: 1, began: 98960 * ms, noticed: 98960 * ms, lastRefused: 98960 * ms}
		}, Outcome{Class: Admitted, Estimate: 4, Cost: 4}, "holding, 2 in flight, takes 460ms and 150ms, cost 4.000 work 0.520, sent 3 12.0 1.90, trip 100ms"},
		{"an answer to a canary, and none before", func(l *Law) {
			l.state, l.block = trying, block{canaryAt: 99 * sec, refusals: 1, pace: 1, began: 98940 * ms, noticed: 98940 * ms, lastRefused: 98940 * ms}
		}, Outcome{Class: Admitted, Estimate: 4, Cost: 4}, "ramping, 2 in flight, takes 460ms and 150ms, cost 4.000 work 0.520, sent 3 12.0 1.90, trip 100ms"},
		{"the same, and a limit is held", func(l *Law) {
			l.hold(newRate(0, 1, 1))
			l.state, l.block = trying, block{canaryAt: 99 * sec, refusals: 1, pace: 1, began: 98 * sec, noticed: 98 * sec, lastRefused: 98 * sec}
		}, Outcome{Class: Admitted, Estimate: 4, Cost: 4}, "holding, 2 in flight, takes 460ms and 150ms, cost 4.000 work 0.520, sent 3 12.0 1.90, trip 100ms"},
		{"the same, and an advertised limit had refused", func(l *Law) {
			l.state, l.block = trying, block{canaryAt: 99 * sec, refusals: 1, pace: 1, explained: true, began: 98 * sec, noticed: 98 * sec, lastRefused: 98 * sec}
		}, Outcome{Class: Admitted, Estimate: 4, Cost: 4}, "holding, 2 in flight, takes 460ms and 150ms, cost 4.000 work 0.520, sent 3 12.0 1.90, trip 100ms"},
		{"a refusal", nil, Outcome{Class: Refused, Estimate: 4}, "waiting until 1m41s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 280ms, limited"},
		{"a slow one", func(l *Law) { l.trip = 0 }, Outcome{Sent: 10 * sec, Class: Refused, Estimate: 4}, "waiting until 2m52s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 1m0s, limited"},
		{"with a wait", nil, Outcome{Class: Refused, Estimate: 4, RetryAfter: 7 * sec}, "waiting until 1m47.4s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 280ms, limited"},
		{"that may be an outage's", nil, Outcome{Class: Overloaded, Estimate: 4}, "waiting until 1m41s, 2 in flight, takes 400ms and 100ms, cost 4.000 work 0.500, sent 2 8.0 1.00, trip 280ms"},
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
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A refusal at 100 s of one of ten attempts in flight, of which three were usual.
func TestHowABlockBegins(t *testing.T) {
	sized := func(n float64, w window) *window {
		w.size, w.raise, w.low, w.high = amounts{n, n, 0}, max(1, w.raise), time.Minute, time.Minute
		return &w
	}
	climbing := func(high float64) *rate {
		r := newRate(0, 10, high)
		r.cycles = 3
		r.climb(r.stretch)
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
		{"in the ramp", nil, func(l *Law, _ *refusal) { l.allAdmitted = 99 }, -1, "ramping", maxEvidence, sec},
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
		{"a window that was tested, and an outage", []limit{sized(230, window{raise: 1.1})}, func(l *Law, f *refusal) { room(50)(l, f); f.others = 2 }, -1, "", 0, sec},
		{"a window that was not tested, and an advertised limit explains it", []limit{sized(230, window{})}, room(0), -1, "explained", 0, sec},
		{"a limit in flight that was met, and an advertised one explains it", []limit{&flight{size: 11}}, room(0), -1, "explained", 0, sec},
		{"an advertised limit explains it", []limit{sized(230, window{raise: 1.1})}, room(0), -1, "explained, window tested", 0, sec},
		{"there is room, and as many as usual are in flight: an outage", nil, func(l *Law, f *refusal) { room(50)(l, f); f.others = 2 }, -1, "", 0, sec},
		{"there is room, but many are in flight", nil, room(50), -1, "", maxEvidence, sec},
		{"refusals had waits, and this one has none: an outage", nil, func(l *Law, f *refusal) { l.named.sane, f.limited, f.others = 2, false, 2 }, -1, "", 0, sec},
		{"one refusal had", nil, func(l *Law, f *refusal) { l.named.sane, f.limited, f.others = 1, false, 2 }, -1, "", -0.307, sec},
		{"not all had", nil, func(l *Law, f *refusal) { l.named.sane, l.named.silent, f.limited, f.others = 2, 1, false, 2 }, -1, "", -0.307, sec},
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
			if w, ok := l.limits[0].(*window); ok && w.hits == 1 && b.blamed == nil {
				flags = append(flags, "window tested")
			}
		}
		slices.Sort(flags)
		if got := strings.Join(flags, ", "); b.blamed != nth(tt.limits, tt.blamed) || got != tt.flags || b.soonest.Round(ms) != tt.soonest {
			t.Errorf("%s: blamed %v, %s, a canary after %v; want limit %d, %s, %v", tt.name, b.blamed, got, b.soonest, tt.blamed, tt.flags, tt.soonest)
		}
		if math.Abs(l.crowd.evidence-tt.evidence) > 0.01 || tt.evidence > 0 && l.weighed != 1 {
			t.Errorf("%s: evidence %v, want %v", tt.name, l.crowd.evidence, tt.evidence)
		}
		if b.began != 100*sec || b.noticed != 101*sec || b.lastRefused != 100*sec || b.cost != 3 || b.before != 6 || b.refusals != 1 || b.count != 230 || b.pace < 4 || b.pace > 4.3 {
			t.Errorf("%s: began %v, noticed %v, last refused %v, cost %v, %v refused before, %d refusals, count %v, pace %v; want 100 s, 101 s, 100 s, 3, 6, 1, 230, 4 to 4.3",
				tt.name, b.began, b.noticed, b.lastRefused, b.cost, b.before, b.refusals, b.count, b.pace)
		}
		if got, want := l.Foretold(), b.explained || b.blamed != nil && (b.paced || !isRate(b.blamed)); got != want {
			t.Errorf("%s: explained %v beforehand, want %v", tt.name, got, want)
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
		{"nothing is left any more", func(l *Law) { l.headers[0].left, l.block.hadRoom = 0, true }, Outcome{Class: Refused}, 2, true, false},
		{"an outage", func(l *Law) { l.limited = true }, Outcome{Class: Overloaded}, 2, false, true},
		{"an advertised limit explains it, and there is trouble", func(l *Law) { l.limited, l.block.explained = true, true }, Outcome{Class: Overloaded}, 2, true, false},
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.h, l.clock, l.state, l.epoch = *sentEvenly(100*sec, sec, 100), 100*sec, trying, 50*sec
		l.headers = []advertised{{shaper: newShaper(fixed), quota: 100, left: 50, share: 1}}
		l.block = block{refusals: 1, canaryAt: 100 * sec, wait: sec}
		tt.do(l)
		tt.o.Sent, tt.o.Now = 100*sec, 101*sec
		l.Observe(tt.o)
		b := &l.block
		if b.refusals != tt.refusals || b.hadRoom != tt.punished || b.outage != tt.outage || l.state != waiting || l.allRefused != 1 {
			t.Errorf("%s: %d refusals, punished %v, outage %v, %v; want %d, %v, %v", tt.name, b.refusals, b.hadRoom, b.outage, l.state, tt.refusals, tt.punished, tt.outage)
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
		l.block = block{refusals: 3, began: 49 * sec, noticed: 50 * sec, lastRefused: 70 * sec, canaryAt: 90 * sec, wait: sec, resume: 101 * sec}
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
// What is rare in flight is measured by attempts that are no canaries.
func TestAttemptsAreCountedByHowManyWereInFlight(t *testing.T) {
	for state, want := range map[state]float32{holding: 2, trying: 0} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		l.state, l.flying, l.block.canaryAt = state, 3, 2*sec
		l.Sent(sec, 1)
		l.Sent(2*sec, 1)
		if l.crowd.total != want || l.crowd.seen[3] != want/2 || l.crowd.seen[4] != want/2 {
			t.Errorf("state %v: %v attempts, %v with three others in flight, %v with four; want %v", state, l.crowd.total, l.crowd.seen[3], l.crowd.seen[4], want)
		}
	}
}

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
	if l.Sent(9*sec, 1); l.block.canaryAt != 9*sec || l.Hold(9*sec, 1) != 10*sec {
		t.Errorf("a canary was sent at %v, want 9s, and the next attempt at %v, when its refusal would have come", l.block.canaryAt, l.Hold(9*sec, 1))
	}
	l = New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	l.state, l.flying, l.limits = holding, 3, []limit{&flight{size: 3}}
	if at := l.Hold(sec, 1); at != never {
		t.Errorf("with as many in flight as may be, the next goes at %v", at)
	}
	l.clock, l.lastRelease, l.lastBlock = 100*sec, 40*sec, 6*sec-1
	if v := l.look(); v.calm() != 10 {
		t.Errorf("a minute after a block of 6s is %v times as long, want 10", v.calm())
	}
	l = New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
	if err := l.Assume([]Found{{Kind: Window, Size: 1, Window: 10 * sec}}); err != nil || l.Uses(5*sec, nil)[0].Free != 5*sec {
		t.Errorf("before the first attempt there is room at %v, want at once; %v", l.Uses(5*sec, nil)[0].Free, err)
	}
}

// Once a canary counts as admitted, limits decide again.
func TestWhenAnAttemptMayFollowACanary(t *testing.T) {
	for now, want := range map[time.Duration]time.Duration{
		10*sec + 299*ms: 10*sec + 300*ms,
		10*sec + 300*ms: 11 * sec,
		10*sec + 301*ms: 11 * sec,
	} {
		l := New(Config{Ceiling: ms, Initial: sec, Slowest: time.Hour})
		r := newRate(0, 1, 2)
		r.due = 11 * sec
		l.limits, l.state, l.trip, l.last = []limit{r}, trying, 1e8, 10*sec
		l.block = block{blamed: r, paced: true, canaryAt: 10 * sec}
		if got := l.Hold(now, 1); got != want {
			t.Errorf("at %v the next one goes at %v, want %v", now, got, want)
		}
	}
}

// An answer to an attempt of 99 s arrives at 100 s.
func TestWhatAnAnswerSaysAboutTheHeldLimits(t *testing.T) {
	lone := func() *window {
		return &window{size: amounts{30, 30, 0}, low: 40 * sec, high: time.Minute, fold: sec, floor: 10 * sec, raise: 1, lone: true, pace: 2}
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
		{"in the ramp with restored limits, too", ramping, false, []limit{&window{size: amounts{900, 900, 0}, low: time.Minute, high: time.Minute, raise: 1}}, "900 of unit 0 in 60.0s-60.0s", 250 * ms, []float64{1}},
		{"once a limit is held it does not", holding, false, []limit{&flight{size: 9, testAfter: firstTest}}, "9 in flight", 500 * ms, []float64{1}},
		{"a window", holding, false, []limit{newRate(0, 1, 2), &window{size: amounts{900, 900, 0}, low: time.Minute, high: time.Minute, raise: 1}, &flight{size: 9, testAfter: firstTest}}, "1.00-2.00/s, 900 of unit 0 in 60.0s-60.0s, 9 in flight", 500 * ms, []float64{0, 1, 1}},
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
		if got := l.pace(l.look(), now); got < tt.low || got > tt.high {
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
		if got := l.pace(l.look(), now); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%s: %v a second, want %v", tt.name, got, tt.want)
		}
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

func TestAnOutageIsNotMostlyOverAtTheFirstCanary(t *testing.T) {
	l := New(Config{Ceiling: ms, Initial: 100 * ms, Slowest: time.Hour})
	now := time.Duration(0)
	var last bool
	const calm = 1000 // attempts that are all admitted
	for i := range calm + 6*maxUnlikely {
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
