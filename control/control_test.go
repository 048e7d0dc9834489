package control_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

func newLaw(t testing.TB, name string, p control.Params) control.Law {
	t.Helper()
	resolved, err := p.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	law, err := control.New(name, &resolved)
	if err != nil {
		t.Fatal(err)
	}
	return law
}

func TestAIMDStepByStep(t *testing.T) {
	type step struct {
		o      control.Observation
		want   time.Duration
		change control.Change
	}
	ok := func(at time.Duration) control.Observation {
		return control.Observation{Sent: at, Now: at, Class: reason.OK}
	}
	saw := func(sent, now time.Duration, c reason.Class) control.Observation {
		return control.Observation{Sent: sent, Now: now, Class: c}
	}
	tests := []struct {
		name  string
		p     control.Params
		steps []step
	}{
		{"defaults: 1000 ms, 100 ms a success, floored at 250 ms", control.Params{}, []step{
			{ok(0), 900 * ms, control.SpeedUp},
			{ok(1), 800 * ms, control.SpeedUp},
			{ok(2), 700 * ms, control.SpeedUp},
			{ok(3), 600 * ms, control.SpeedUp},
			{ok(4), 500 * ms, control.SpeedUp},
			{ok(5), 400 * ms, control.SpeedUp},
			{ok(6), 300 * ms, control.SpeedUp},
			{ok(7), 250 * ms, control.SpeedUp},
			{ok(8), 250 * ms, control.Held},
		}},
		{"a throttle doubles, of either kind", control.Params{}, []step{
			{saw(0, 1, reason.Throttled), 2 * sec, control.BackOff},
			{saw(2, 3, reason.Overloaded), 4 * sec, control.BackOff},
			{ok(4), 3900 * ms, control.SpeedUp},
		}},
		{"a Retry-After is not an interval", control.Params{}, []step{
			{control.Observation{Sent: 0, Now: 1, Class: reason.Throttled, RetryAfter: 100 * sec}, 2 * sec, control.BackOff},
		}},
		{"errors change nothing, however fast they came", control.Params{}, []step{
			{saw(0, 0, reason.Failed), sec, control.Held},
			{saw(0, 0, reason.Rejected), sec, control.Held},
			{saw(0, 0, reason.Lost), sec, control.Held},
			{saw(0, 0, reason.Unknown), sec, control.Held},
		}},
		{"each throttle counts, also those that were in flight together", control.Params{}, []step{
			{saw(0, 50*ms, reason.Throttled), 2 * sec, control.BackOff},
			{saw(10*ms, 60*ms, reason.Throttled), 4 * sec, control.BackOff},
		}},
		{"steady successes do not speed up, steady throttles slow down", control.Params{}, []step{
			{control.Observation{Class: reason.OK, Steady: true}, sec, control.Held},
			{control.Observation{Class: reason.Throttled, Steady: true}, 2 * sec, control.BackOff},
		}},
		{"bounded from above", control.Params{Slowest: 3 * sec}, []step{
			{saw(0, 1, reason.Throttled), 2 * sec, control.BackOff},
			{saw(2, 3, reason.Throttled), 3 * sec, control.BackOff},
			{saw(4, 5, reason.Throttled), 3 * sec, control.Held},
		}},
		{"the initial interval is clamped to the ceiling", control.Params{Ceiling: 5 * sec}, []step{
			{saw(0, 0, reason.Rejected), 5 * sec, control.Held},
			{ok(1), 5 * sec, control.Held},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			law := newLaw(t, "aimd", tt.p)
			for i, s := range tt.steps {
				if got := law.Observe(s.o); got != s.change || law.Interval() != s.want {
					t.Fatalf("step %d: got %v %v, want %v %v", i, got, law.Interval(), s.change, s.want)
				}
			}
		})
	}
}

func TestParamsNameFieldValueAndBound(t *testing.T) {
	for _, tt := range []struct {
		p    control.Params
		want string
	}{
		{control.Params{Ceiling: -1}, "ceiling is -1ns, must be from 1ns to 24h"},
		{control.Params{Initial: 48 * time.Hour}, "initial is 48h0m0s, must be at most 24h"},
		{control.Params{Slowest: 48 * time.Hour}, "slowest is 48h0m0s, must be at most 24h"},
		{control.Params{Step: -1}, "step is -1ns, must not be negative"},
		{control.Params{Factor: 1}, "factor is 1, must be between 0 and 1"},
		{control.Params{Factor: math.NaN()}, "factor is NaN, must be between 0 and 1"},
	} {
		if _, err := tt.p.Resolve(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.p, err, tt.want)
		}
	}
	p, err := control.Params{}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := control.New("fastest", &p); err == nil || !strings.Contains(err.Error(), `law is "fastest", must be one of aimd, cycle`) {
		t.Errorf("unknown law: %v", err)
	}
	if _, err := control.New("envelope", &p); err == nil || !strings.Contains(err.Error(), "cycle has replaced envelope") {
		t.Errorf("a law that is gone: %v", err)
	}
}

func drawObservation(t *rapid.T, now time.Duration) control.Observation {
	return control.Observation{
		Sent:       now - time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "latency")),
		Now:        now,
		Class:      reason.Class(rapid.IntRange(int(reason.Unknown), int(reason.Lost)).Draw(t, "class")),
		RetryAfter: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "retry after")),
		Steady:     rapid.Bool().Draw(t, "steady"),
	}
}

func drawLaw(t *rapid.T) (control.Law, control.Params) {
	p, err := control.Params{
		Ceiling: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "ceiling")),
		Initial: time.Duration(rapid.Int64Range(int64(time.Microsecond), int64(time.Hour)).Draw(t, "initial")),
		Step:    time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "step")),
		Factor:  rapid.Float64Range(0.01, 0.99).Draw(t, "factor"),
	}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	law, err := control.New(rapid.SampledFrom(control.Names()).Draw(t, "law"), &p)
	if err != nil {
		t.Fatal(err)
	}
	return law, p
}

// Whatever is observed or restored, no law is faster than the ceiling, none is
// slower than the bound, and only a success makes one faster.
func TestEveryLawKeepsTheCeilingAndTheRatchet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		law, p := drawLaw(t)
		if law.Interval() != p.Initial {
			t.Fatalf("starts at %v, not at the initial %v", law.Interval(), p.Initial)
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 100).Draw(t, "outcomes") {
			if rapid.IntRange(0, 20).Draw(t, "restore") == 0 {
				s := law.State()
				s.Interval = time.Duration(rapid.Int64().Draw(t, "stored"))
				_ = law.Restore(s)
			}
			now += time.Duration(rapid.Int64Range(-int64(sec), int64(time.Minute)).Draw(t, "step"))
			before := law.Interval()
			o := drawObservation(t, now)
			change := law.Observe(o)
			after := law.Interval()
			if after < p.Ceiling || after > p.Slowest {
				t.Fatalf("interval %v outside %v..%v", after, p.Ceiling, p.Slowest)
			}
			if after < before && !o.Class.Success() {
				t.Fatalf("%v made it faster: %v to %v", o.Class, before, after)
			}
			if (change == control.SpeedUp) != (after < before) || (change == control.BackOff) != (after > before) {
				t.Fatalf("reported %v for %v to %v", change, before, after)
			}
			if s := law.State(); s.Interval > p.Initial {
				t.Fatalf("stores %v, slower than the initial %v", s.Interval, p.Initial)
			}
		}
	})
}

func TestWarmStartAgeIsInclusive(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		age  time.Duration
		want string
	}{
		{0, ""},
		{6 * time.Hour, ""},
		{6*time.Hour + 1, "at most 6h0m0s is used"},
		{-1, "in the future"},
	} {
		err := control.Fresh(at, at.Add(tt.age), control.StaleAfter)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("age %v: got %v, want %q", tt.age, err, tt.want)
		}
	}
	if control.Fresh(time.Time{}, at, control.StaleAfter) == nil {
		t.Error("a state without a date was taken")
	}
}

func TestRestoreClampsOrRefuses(t *testing.T) {
	law := newLaw(t, "aimd", control.Params{})
	for _, tt := range []struct {
		s    control.State
		want time.Duration
		err  string
	}{
		{control.State{Law: "aimd", Version: 1, Interval: 400 * ms}, 400 * ms, ""},
		{control.State{Law: "aimd", Version: 1, Interval: 1}, 250 * ms, ""},
		{control.State{Law: "aimd", Version: 1, Interval: time.Hour}, sec, ""},
		{control.State{Law: "other", Version: 1, Interval: 400 * ms}, sec, `of law "other"`},
		{control.State{Law: "aimd", Version: 9, Interval: 400 * ms}, sec, "of version 9"},
		{control.State{Law: "aimd", Version: 1, Interval: -1}, sec, "must be positive"},
	} {
		err := law.Restore(tt.s)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%+v: got %v, want %q", tt.s, err, tt.err)
		}
		if law.Interval() != tt.want {
			t.Errorf("%+v: interval %v, want %v", tt.s, law.Interval(), tt.want)
		}
	}
}

// A rate that is slower than the initial interval is raised for a later run, which may find
// another limit, and kept by a law that goes on at once. A pace that was just refused is no pace to
// start at while nothing else is known.
func TestResumeKeepsASlowRate(t *testing.T) {
	slow := control.State{Law: "cycle", Version: 1, Interval: sec, Data: []byte(`{"found":[{"kind":"rate","size":0.1,"high":0.11,"confidence":0.9}]}`)}
	for name, tt := range map[string]struct {
		take func(*control.Cycle, control.State) error
		want time.Duration
	}{
		"restored": {(*control.Cycle).Restore, sec},
		"resumed":  {(*control.Cycle).Resume, 10 * sec},
	} {
		law := newLaw(t, "cycle", control.Params{}).(*control.Cycle)
		if err := tt.take(law, slow); err != nil {
			t.Fatal(err)
		}
		if got := law.Limits(nil); len(got) != 1 || got[0].Size != 1/tt.want.Seconds() {
			t.Errorf("%s: %+v, want one in %v", name, got, tt.want)
		}
	}
	law := newLaw(t, "cycle", control.Params{Ceiling: ms})
	now := time.Duration(0)
	for ; law.Interval() > 50*ms; now += law.Interval() {
		law.Sent(now, 1)
		law.Observe(control.Observation{Sent: now, Now: now + ms, Class: reason.OK, Estimate: 1, Cost: 1})
	}
	if got := law.State().Interval; got != law.Interval() {
		t.Errorf("before a refusal %v is stored, want %v", got, law.Interval())
	}
	law.Sent(now, 1)
	law.Observe(control.Observation{Sent: now, Now: now + ms, Class: reason.Throttled, Estimate: 1, Cost: 1})
	if got := law.State().Interval; got != sec {
		t.Errorf("after the first refusal %v is stored, want %v", got, sec)
	}
}

func ExampleNew() {
	p, _ := control.Params{Ceiling: 100 * time.Millisecond}.Resolve()
	law, _ := control.New("aimd", &p)
	law.Observe(control.Observation{Class: reason.OK})
	fmt.Println(law.Interval())
	change := law.Observe(control.Observation{Sent: 1, Now: 2, Class: reason.Throttled})
	fmt.Println(law.Interval(), change)
	// Output:
	// 900ms
	// 1.8s back_off
}

func ExampleFresh() {
	recorded := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fmt.Println(control.Fresh(recorded, recorded.Add(time.Hour), control.StaleAfter))
	fmt.Println(control.Fresh(recorded, recorded.Add(7*time.Hour), control.StaleAfter))
	// Output:
	// <nil>
	// control: the state is 7h0m0s old, at most 6h0m0s is used
}

func ExampleParams_Resolve() {
	_, err := control.Params{Factor: 2}.Resolve()
	fmt.Println(err)
	// Output:
	// control: factor is 2, must be between 0 and 1
}

func ExampleNames() {
	fmt.Println(control.Names())
	// Output:
	// [aimd cycle]
}

func BenchmarkObserve(b *testing.B) {
	for _, name := range control.Names() {
		b.Run(name, func(b *testing.B) {
			law := newLaw(b, name, control.Params{})
			b.ReportAllocs()
			now := time.Duration(0)
			for b.Loop() {
				now += ms
				law.Observe(control.Observation{Sent: now, Now: now, Class: reason.OK})
			}
		})
	}
}

const day = 24 * time.Hour

func TestParamsMayBeTheirBounds(t *testing.T) {
	for _, p := range []control.Params{
		{Ceiling: 1}, {Ceiling: day}, {Initial: day}, {Slowest: day}, {Phase: 0}, {Phase: 1}, {Step: 1}, {Windows: []time.Duration{1, day}},
		{Factor: math.SmallestNonzeroFloat64}, {Factor: math.Nextafter(1, 0)},
	} {
		if got, err := p.Resolve(); err != nil || got.Initial < got.Ceiling || got.Slowest < got.Initial {
			t.Errorf("%+v: %+v, %v", p, got, err)
		}
	}
	for _, tt := range []struct {
		p    control.Params
		want string
	}{
		{control.Params{Ceiling: day + 1}, "ceiling is 24h0m0.000000001s"},
		{control.Params{Initial: day + 1}, "initial is"},
		{control.Params{Slowest: day + 1}, "slowest is"},
		{control.Params{Phase: -1}, "phase is -1ns"},
		{control.Params{Windows: []time.Duration{time.Minute, 0}}, "windows are [1m0s 0s]"},
		{control.Params{Windows: []time.Duration{day + 1}}, "windows are [24h0m0.000000001s]"},
		{control.Params{MaxRetryAfter: -1}, "max Retry-After is -1ns"},
		{control.Params{Factor: -0.1}, "factor is -0.1"},
	} {
		if _, err := tt.p.Resolve(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.p, err, tt.want)
		}
	}
	p, err := control.Params{}.Resolve()
	if want := (control.Params{Ceiling: 250 * ms, Initial: sec, Slowest: 10 * time.Minute, MaxRetryAfter: 24 * time.Hour, Step: 100 * ms, Factor: 0.5}); err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("by default %+v, %v, want %+v", p, err, want)
	}
	if law, err := control.New("", &p); err != nil || law.Name() != "cycle" {
		t.Errorf("the law without a name is %v, %v", law, err)
	}
}

func TestKindsOfLimitsHaveNames(t *testing.T) {
	for k, want := range map[control.Kind]string{
		control.Unknown: "unknown", control.Slowdown: "slowdown", control.Slowdown + 1: "kind(7)", math.MaxUint8: "kind(255)",
	} {
		if got := k.String(); got != want {
			t.Errorf("%d is %q, want %q", uint8(k), got, want)
		}
	}
}

func TestAStateOfAIMDNamesItsVersion(t *testing.T) {
	law := newLaw(t, "aimd", control.Params{})
	if s := law.State(); s.Version != 1 || s.Law != "aimd" || s.Interval != sec {
		t.Errorf("stores %+v", s)
	}
	if err := law.Restore(control.State{Law: "aimd", Version: 2, Interval: sec}); err == nil || !strings.Contains(err.Error(), "of version 2, this binary knows 1") {
		t.Errorf("a later version: %v", err)
	}
	if err := law.Restore(control.State{Law: "aimd", Version: 1}); err == nil {
		t.Error("an interval of 0 was taken")
	}
}

// Whatever a law believes, an outcome that is not a success lets the next attempt
// go no sooner than it might have gone without it. That the place of the attempt
// is free, that the outcome everything waited for is there, and that a first
// response has come at all, is not a speeding up.
func TestNoErrorLetsTheNextAttemptGoSooner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := control.Params{
			Ceiling: time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "ceiling")),
			Initial: time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(10*time.Second)).Draw(t, "initial")),
		}.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		law, err := control.New(rapid.SampledFrom(control.Names()).Draw(t, "law"), &p)
		if err != nil {
			t.Fatal(err)
		}
		type flight struct{ sent, answer time.Duration }
		var out []flight
		now, last, answered := time.Duration(0), -time.Hour, false
		// A provider with a bucket, as slow as its draw, that fails at times.
		rate := rapid.Float64Range(0.2, 50).Draw(t, "rate")
		burst := rapid.Float64Range(1, 20).Draw(t, "burst")
		latency := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(3*time.Second)).Draw(t, "latency"))
		tokens, filled := burst, time.Duration(0)
		next := func() time.Duration {
			return max(law.Hold(now, 1), last+law.Spacing())
		}
		errors := []reason.Class{reason.Unknown, reason.Rejected, reason.Failed, reason.Lost}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if at := next(); len(out) == 0 || at <= out[0].answer && len(out) < 8 {
				now = max(now, at)
				if at == control.Never {
					t.Fatal("nothing is under way, and nothing may go")
				}
				law.Sent(now, 1)
				last = now
				out = append(out, flight{now, now + latency})
				continue
			}
			f := out[0]
			out = out[1:]
			now = max(now, f.answer)
			o := control.Observation{Sent: f.sent, Now: now, Class: reason.OK, Estimate: 1, Cost: 1}
			tokens, filled = min(burst, tokens+rate*(now-filled).Seconds()), now
			if tokens < 1 {
				o.Class = reason.Throttled
			} else {
				tokens--
			}
			if rapid.IntRange(0, 3).Draw(t, "error") == 0 {
				o.Class = rapid.SampledFrom(errors).Draw(t, "class")
			}
			before := next()
			if law.Belief().Kind == control.Concurrency {
				before = now // its place is free either way
			}
			law.Observe(o)
			after := next()
			if !o.Class.Success() && !o.Class.Throttle() && answered && before != control.Never && after < before {
				t.Fatalf("at %v a %v let the next attempt go at %v, and not at %v", now, o.Class, after, before)
			}
			answered = answered || o.Class != reason.Unknown && o.Class != reason.Lost
		}
	})
}
