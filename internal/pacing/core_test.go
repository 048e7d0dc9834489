package pacing_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

func newCore(t testing.TB, c pacing.Config) *pacing.Core {
	t.Helper()
	if c.Law == "" {
		c.Law = "aimd" // its intervals are easy to predict
	}
	core, err := pacing.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return core
}

// noJitter makes waits exact.
func noJitter(c pacing.Config) pacing.Config {
	c.JitterMax = -1
	if c.Law == "" {
		c.Law = "aimd" // its intervals are easy to predict
	}
	return c
}

// If a limit on attempts in flight is answered with 503, the circuit does not open.
func TestConcurrentRefusalsForLoadCountOnce(t *testing.T) {
	core := newCore(t, noJitter(pacing.Config{Law: "cycle", Ceiling: ms, Initial: ms}))
	send := func(at time.Duration) pacing.Ticket {
		t.Helper()
		ticket, d, _ := core.Admit(at, pacing.Attempt{Ready: at, Cost: 1})
		if !d.OK {
			t.Fatalf("at %v: %+v", at, d)
		}
		return ticket
	}
	core.Settle(sec, send(0), pacing.Outcome{Class: reason.OK})
	var tickets []pacing.Ticket
	for i := range 10 {
		tickets = append(tickets, send(2*sec+time.Duration(i)*10*ms))
	}
	for i, ticket := range tickets {
		fx := core.Settle(3*sec+time.Duration(i)*ms, ticket, pacing.Outcome{Class: reason.Overloaded})
		if fx.Circuit.Moved() {
			t.Fatalf("refusal %d: %+v", i, fx.Circuit)
		}
	}
	// Refusals that are late, when an admitted canary has ended the block, do not count either.
	tickets = nil
	now := 40 * sec
	for range 10 {
		now = core.Ask(now, pacing.Attempt{Ready: now, Cost: 1}).At
		tickets = append(tickets, send(now))
	}
	core.Settle(now+sec, tickets[0], pacing.Outcome{Class: reason.Overloaded})
	now = core.Ask(now+sec, pacing.Attempt{Ready: now + sec, Cost: 1}).At
	core.Settle(now+sec, send(now), pacing.Outcome{Class: reason.OK})
	for i, ticket := range tickets[1:] {
		fx := core.Settle(now+2*sec+time.Duration(i)*ms, ticket, pacing.Outcome{Class: reason.Overloaded})
		if fx.Circuit.Moved() {
			t.Fatalf("late refusal %d: %+v", i, fx.Circuit)
		}
	}
	// If canaries are refused one after another, the provider is down.
	now += 4 * sec
	opened := false
	for range 8 {
		d := core.Ask(now, pacing.Attempt{Ready: now, Cost: 1})
		now = max(now, d.At)
		fx := core.Settle(now+ms, send(now), pacing.Outcome{Class: reason.Overloaded})
		if opened = fx.Circuit.To == breaker.Open; opened {
			break
		}
		now += 2 * ms
	}
	if !opened {
		t.Error("eight refused canaries did not open the circuit")
	}
}

// A provider that keeps advertising new limits does not fill memory.
func TestAdvertisedLimitsAreBounded(t *testing.T) {
	for _, law := range []string{"aimd", "cycle"} {
		core := newCore(t, pacing.Config{Law: law})
		for i := range 100 {
			at := time.Duration(i) * 10 * sec
			ticket, d, _ := core.Admit(at, pacing.Attempt{Ready: at})
			if !d.OK {
				t.Fatalf("%s: %+v", law, d)
			}
			core.Settle(at, ticket, pacing.Outcome{Class: reason.OK, Facts: []control.Fact{
				{Name: strconv.Itoa(i), Quota: 60, Remaining: 60, Window: time.Minute, Reset: time.Minute},
			}})
		}
		if n := len(core.Limits(nil)); n == 0 || n > 16 {
			t.Errorf("%s: %d limits are shown", law, n)
		}
	}
}

func TestCoreStepByStep(t *testing.T) {
	type step struct {
		at     time.Duration
		why    reason.Reason // none: admitted
		next   time.Duration // when refused
		settle *pacing.Outcome
	}
	ok := &pacing.Outcome{Class: reason.OK}
	throttled := func(after time.Duration) *pacing.Outcome {
		return &pacing.Outcome{Class: reason.Throttled, RetryAfter: after}
	}
	tests := []struct {
		name  string
		c     pacing.Config
		steps []step
	}{
		{"conservative start: the initial interval until a response, whatever the credit", pacing.Config{}, []step{
			{0, reason.None, 0, nil},
			{250 * ms, reason.ConservativeStart, sec, nil},
			{sec, reason.None, 0, nil},
			{sec + 250*ms, reason.ConservativeStart, 2 * sec, nil},
		}},
		{"idle credit: one at once, the next not before the ceiling", pacing.Config{}, []step{
			{0, reason.None, 0, ok},
			{time.Hour, reason.None, 0, ok},
			{time.Hour + 249*ms, reason.Pacing, time.Hour + 250*ms, nil},
			{time.Hour + 250*ms, reason.None, 0, ok},
		}},
		{"a Retry-After of 100 s delays one attempt by 100 s and the next ones not at all",
			pacing.Config{Initial: 250 * ms, Ceiling: 250 * ms, Tolerance: -1}, []step{
				{0, reason.None, 0, throttled(100 * sec)},
				{sec, reason.Cooldown, 100 * sec, nil},
				{100*sec - 1, reason.Cooldown, 100 * sec, nil},
				{100 * sec, reason.None, 0, ok},
				{100*sec + 499*ms, reason.Pacing, 100*sec + 500*ms, nil}, // doubled once, for the throttle
				{100*sec + 500*ms, reason.None, 0, ok},
			}},
		{"a Retry-After is never paid on top of pacing debt", pacing.Config{Tolerance: -1}, []step{
			{0, reason.None, 0, throttled(sec / 2)}, // the debt is longer
			{sec / 2, reason.Pacing, sec, nil},
			{sec, reason.None, 0, nil},
		}},
		{"a Retry-After beyond a day is a day", pacing.Config{}, []step{
			{0, reason.None, 0, throttled(10 * 365 * 24 * time.Hour)},
			{sec, reason.Cooldown, 24 * time.Hour, nil},
		}},
		{"a Retry-After of 30 hours and some seconds may be of another unit", pacing.Config{Law: "cycle"}, []step{
			{0, reason.None, 0, throttled(30*time.Hour + 17*sec)},
			{sec, reason.Cooldown, 118818700 * time.Microsecond, nil},
		}},
		{"a Retry-After beyond the bound is the bound", pacing.Config{MaxRetryAfter: time.Hour}, []step{
			{0, reason.None, 0, throttled(2 * time.Hour)},
			{sec, reason.Cooldown, time.Hour, nil},
		}},
		{"a Retry-After on a success is not a throttle", pacing.Config{}, []step{
			{0, reason.None, 0, &pacing.Outcome{Class: reason.OK, RetryAfter: time.Hour}},
			{2 * sec, reason.None, 0, nil},
		}},
		{"places: the third waits for an outcome", pacing.Config{MaxInFlight: 2, Ceiling: ms, Initial: ms}, []step{
			{0, reason.None, 0, nil},
			{sec, reason.None, 0, nil},
			{2 * sec, reason.Concurrency, pacing.Forever, nil},
		}},
		{"five failures open the circuit, whatever the pacing says", pacing.Config{Ceiling: ms, Initial: ms}, []step{
			{0, reason.None, 0, &pacing.Outcome{Class: reason.Overloaded}},
			{1 * sec, reason.None, 0, &pacing.Outcome{Class: reason.Lost}},
			{2 * sec, reason.None, 0, &pacing.Outcome{Class: reason.Failed}},
			{3 * sec, reason.None, 0, &pacing.Outcome{Class: reason.Failed}},
			{4 * sec, reason.None, 0, &pacing.Outcome{Class: reason.Failed}},
			{5 * sec, reason.CircuitOpen.Reason(), 64 * sec, nil},
			{64 * sec, reason.None, 0, nil}, // the probe
			{65 * sec, reason.CircuitOpen.Reason(), pacing.Forever, nil},
		}},
		{"refusals for rate never open the circuit", pacing.Config{Ceiling: ms, Initial: ms}, []step{
			{0, reason.None, 0, throttled(0)}, {1 * sec, reason.None, 0, throttled(0)},
			{2 * sec, reason.None, 0, throttled(0)}, {3 * sec, reason.None, 0, throttled(0)},
			{4 * sec, reason.None, 0, throttled(0)}, {5 * sec, reason.None, 0, throttled(0)},
		}},
		{"without a breaker nothing fails at once", pacing.Config{NoBreaker: true, Ceiling: ms, Initial: ms}, []step{
			{0, reason.None, 0, &pacing.Outcome{Class: reason.Lost}}, {1 * sec, reason.None, 0, &pacing.Outcome{Class: reason.Lost}},
			{2 * sec, reason.None, 0, &pacing.Outcome{Class: reason.Lost}}, {3 * sec, reason.None, 0, &pacing.Outcome{Class: reason.Lost}},
			{4 * sec, reason.None, 0, &pacing.Outcome{Class: reason.Lost}}, {5 * sec, reason.None, 0, nil},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			core := newCore(t, noJitter(tt.c))
			for i, s := range tt.steps {
				ticket, d, _ := core.Admit(s.at, pacing.Attempt{Ready: core.Arrive(s.at), Cost: 1})
				if d.OK != (s.why == reason.None) || d.Reason != s.why || !d.OK && d.At != s.next {
					t.Fatalf("step %d at %v: got %+v, want reason %v at %v", i, s.at, d, s.why, s.next)
				}
				if d.OK && s.settle != nil {
					core.Settle(s.at, ticket, *s.settle)
				}
			}
		})
	}
}

func TestJitterShrinksWithTheCeilingAndIsNeverAFloor(t *testing.T) {
	for _, tt := range []struct {
		c      pacing.Config
		lo, hi time.Duration
	}{
		{pacing.Config{}, 0, 150 * ms},
		{pacing.Config{Ceiling: 20 * ms}, 0, 20 * ms},
		{pacing.Config{Ceiling: 20 * ms, JitterMin: 5 * ms, JitterMax: 10 * ms}, 5 * ms, 10 * ms},
		{pacing.Config{JitterMax: -1}, 0, 0},
	} {
		core := newCore(t, tt.c)
		low, high := time.Hour, time.Duration(0)
		for range 10_000 {
			j := core.Arrive(0)
			low, high = min(low, j), max(high, j)
		}
		span := tt.hi - tt.lo
		if low < tt.lo || high > tt.hi || low > tt.lo+span/100 || high < tt.hi-span/100 {
			t.Errorf("%+v: jitter from %v to %v, want %v to %v", tt.c, low, high, tt.lo, tt.hi)
		}
	}
	// max(jitter, pacing): a paced attempt pays no jitter on top.
	core := newCore(t, pacing.Config{Ceiling: 100 * ms, Initial: 100 * ms, Tolerance: -1, JitterMin: 100 * ms})
	core.Admit(100*ms, pacing.Attempt{Ready: core.Arrive(0), Cost: 1})
	if _, d, _ := core.Admit(200*ms, pacing.Attempt{Ready: core.Arrive(100 * ms), Cost: 1}); !d.OK {
		t.Errorf("jitter was added to pacing: %+v", d)
	}
}

func TestConfigNamesFieldValueAndBound(t *testing.T) {
	for _, tt := range []struct {
		c    pacing.Config
		want string
	}{
		{pacing.Config{JitterMin: 300 * ms}, "jitter minimum is 300ms, must be from 0 to the ceiling's interval of 250ms"},
		{pacing.Config{JitterMin: 100 * ms, JitterMax: 50 * ms}, "jitter maximum is 50ms, must be at least the minimum of 100ms"},
		{pacing.Config{MaxInFlight: -1}, "max in flight is -1"},
		{pacing.Config{MaxRetryAfter: -1}, "max Retry-After is -1ns"},
		{pacing.Config{Law: "warp"}, `law is "warp"`},
		{pacing.Config{Ceiling: -1}, "ceiling is -1ns"},
	} {
		if _, err := pacing.New(tt.c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}

// Whatever the outcomes, stored states, clock steps and laws, two admissions are never
// closer than the ceiling, and the slots of attempts in flight are neither lost nor
// duplicated.
func TestCoreNeverPassesTheCeiling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ceiling := time.Duration(rapid.Int64Range(int64(ms), int64(sec)).Draw(t, "ceiling"))
		places := rapid.IntRange(0, 3).Draw(t, "places")
		core, err := pacing.New(pacing.Config{
			Ceiling: ceiling, MaxInFlight: places,
			Initial:   time.Duration(rapid.Int64Range(int64(ms), int64(5*sec)).Draw(t, "initial")),
			Law:       rapid.SampledFrom(control.Names()).Draw(t, "law"),
			Tolerance: time.Duration(rapid.Int64Range(-1, int64(time.Minute)).Draw(t, "tolerance")),
			Seed:      rapid.Uint64().Draw(t, "seed"),
		})
		if err != nil {
			t.Fatal(err)
		}
		var out []pacing.Ticket
		now, seen, last, sent := time.Duration(0), time.Duration(0), time.Duration(0), false
		for range rapid.IntRange(1, 150).Draw(t, "calls") {
			now += time.Duration(rapid.Int64Range(-int64(sec), int64(2*sec)).Draw(t, "step"))
			seen = max(seen, now)
			switch rapid.IntRange(0, 5).Draw(t, "call") {
			case 0:
				s := core.Learned()
				s.Interval = time.Duration(rapid.Int64().Draw(t, "stored"))
				_ = core.Restore(s)
			case 1, 2:
				if len(out) > 0 {
					core.Settle(now, out[0], pacing.Outcome{
						Class:      reason.Class(rapid.IntRange(int(reason.Unknown), int(reason.Lost)).Draw(t, "class")),
						RetryAfter: time.Duration(rapid.Int64Range(0, int64(3*sec)).Draw(t, "after")),
					})
					out = out[1:]
				}
			default:
				ticket, d, _ := core.Admit(now, pacing.Attempt{Ready: core.Arrive(now), Cost: 1})
				if !d.OK {
					if d.Reason == reason.None {
						t.Fatal("refused without a reason")
					}
					continue
				}
				if sent && seen-last < ceiling {
					t.Fatalf("admissions %v apart, the ceiling is %v", seen-last, ceiling)
				}
				last, sent = seen, true
				out = append(out, ticket)
			}
			if core.InFlight() != len(out) || places > 0 && len(out) > places {
				t.Fatalf("in flight %d, out %d, places %d", core.InFlight(), len(out), places)
			}
			if core.Interval() < ceiling {
				t.Fatalf("interval %v below the ceiling %v", core.Interval(), ceiling)
			}
		}
	})
}

// If headers advertise a limit in tokens, the costs of attempts reduce what is left of
// it.
func TestCostsReduceTheAdvertisedRemainder(t *testing.T) {
	core := newCore(t, pacing.Config{Law: "cycle", Ceiling: ms, Initial: ms, JitterMax: -1})
	ticket, _, _ := core.Admit(0, pacing.Attempt{Ready: 0, Cost: 400})
	core.Settle(10*ms, ticket, pacing.Outcome{Class: reason.OK, Cost: 400, Facts: []control.Fact{
		{Name: "tokens", PerCost: true, Quota: 1400, Remaining: 1000, Window: time.Minute, Reset: 30 * sec},
	}})
	if _, d, _ := core.Admit(sec, pacing.Attempt{Ready: sec, Cost: 600}); !d.OK {
		t.Fatalf("600 of 1000 tokens: %+v", d)
	}
	if _, d, _ := core.Admit(2*sec, pacing.Attempt{Ready: 2 * sec, Cost: 600}); d.OK || d.At < 30*sec || d.At > 31*sec {
		t.Errorf("600 of 400 tokens: %+v, want it at the window's end", d)
	}
	if _, d, _ := core.Admit(3*sec, pacing.Attempt{Ready: 3 * sec, Cost: 300}); !d.OK {
		t.Errorf("300 of 400 tokens: %+v", d)
	}
}

func BenchmarkCore(b *testing.B) {
	core := newCore(b, pacing.Config{Law: control.DefaultLaw, Ceiling: 1, Initial: 1, JitterMax: -1})
	b.ReportAllocs()
	now := time.Duration(0)
	for b.Loop() {
		now += time.Microsecond
		t, d, _ := core.Admit(now, pacing.Attempt{Ready: now, Cost: 1})
		if !d.OK {
			b.Fatal(d)
		}
		core.Settle(now, t, pacing.Outcome{Class: reason.OK})
	}
}

// A member that has never reached its server has no share. It says once that the server is away,
// also while it goes on trying, and that it is back when it gets permits.
func TestAMemberThatNeverReachedItsServer(t *testing.T) {
	core := newCore(t, noJitter(pacing.Config{Ceiling: time.Millisecond, Initial: time.Millisecond}))
	core.Join("one", false)
	if core.Away() || core.New() {
		t.Error("it is away before anything was tried")
	}
	for i, want := range []bool{true, false, false} {
		if _, turned := core.Hear(time.Duration(i)*time.Second, &pacing.ToMember{Lost: pacing.Gone}); turned != want || !core.Away() || !core.New() {
			t.Errorf("try %d: turned %v, away %v, new %v", i, turned, core.Away(), core.New())
		}
	}
	now := time.Hour
	if _, d, _ := core.Admit(now, pacing.Attempt{}); d.OK {
		t.Error("an attempt was admitted without the server")
	}
	if _, turned := core.Hear(now, &pacing.ToMember{News: &pacing.News{Members: 1, Lease: time.Second, Interval: time.Millisecond}}); !turned || core.Away() || core.New() {
		t.Errorf("the server is there: turned %v, away %v, new %v", turned, core.Away(), core.New())
	}
}
