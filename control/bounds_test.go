package control_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

const day = 24 * time.Hour

func TestParamsMayBeTheirBounds(t *testing.T) {
	for _, p := range []control.Params{
		{Ceiling: 1}, {Ceiling: day}, {Initial: day}, {Slowest: day}, {Phase: 0}, {Phase: 1}, {Step: 1},
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
		{control.Params{Factor: -0.1}, "factor is -0.1"},
	} {
		if _, err := tt.p.Resolve(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.p, err, tt.want)
		}
	}
	p, err := control.Params{}.Resolve()
	if want := (control.Params{Ceiling: 250 * ms, Initial: sec, Slowest: 10 * time.Minute, Step: 100 * ms, Factor: 0.5}); err != nil || p != want {
		t.Errorf("by default %+v, %v, want %+v", p, err, want)
	}
	if law, err := control.New("", &p); err != nil || law.Name() != "cycle" {
		t.Errorf("the law without a name is %v, %v", law, err)
	}
}

func TestParallelismParamsMayBeTheirBounds(t *testing.T) {
	const most = 65536
	for _, p := range []control.ParallelismParams{
		{Max: 1}, {Max: most}, {Max: 1, Ceiling: 1}, {Ceiling: most}, {Min: 1}, {Max: 7, Min: 7}, {InitialFactor: 1},
		{InitialFactor: math.SmallestNonzeroFloat64}, {Increase: 1}, {Increase: most}, {DecreaseFactor: math.Nextafter(1, 0)},
		{StabilizationBatches: 1}, {RecoveryMultiplier: 1}, {RecoveryMultiplier: most}, {MinIncreaseInterval: day}, {IdleReset: 1},
		{BusyBudget: day, BusyWindow: day},
	} {
		if _, err := p.Resolve(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, tt := range []struct {
		p    control.ParallelismParams
		want string
	}{
		{control.ParallelismParams{Max: most + 1}, "max parallelism is 65537, must be from 1 to 65536"},
		{control.ParallelismParams{Ceiling: most + 1}, "ceiling is 65537, must be from the max of 52 to 65536"},
		{control.ParallelismParams{Max: 7, Ceiling: 6}, "ceiling is 6, must be from the max of 7 to 65536"},
		{control.ParallelismParams{Min: -1}, "min parallelism is -1"},
		{control.ParallelismParams{Max: 7, Min: 8}, "min parallelism is 8"},
		{control.ParallelismParams{InitialFactor: -0.1}, "initial factor is -0.1"},
		{control.ParallelismParams{Increase: most + 1}, "increase is 65537, must be from 1 to 65536"},
		{control.ParallelismParams{DecreaseFactor: -0.1}, "decrease factor is -0.1"},
		{control.ParallelismParams{RecoveryMultiplier: most + 1}, "recovery multiplier is 65537, must be from 1 to 65536"},
		{control.ParallelismParams{IdleReset: day + 1}, "idle reset is"},
		{control.ParallelismParams{BusyWindow: sec}, "busy budget is 0s in a busy window of 1s"},
	} {
		if _, err := tt.p.Resolve(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.p, err, tt.want)
		}
	}
	p, err := control.ParallelismParams{}.Resolve()
	if err != nil || p.Ceiling != 256 || p.Max != 52 || p.Min != 1 {
		t.Errorf("by default %+v, %v", p, err)
	}
	if p, err := (control.ParallelismParams{Max: 300}).Resolve(); err != nil || p.Ceiling != 300 {
		t.Errorf("above the default ceiling %+v, %v", p, err)
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

func TestAThrottleSaysWhetherItIsTheFirstOfItsEpoch(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		l := newParallelism(t, control.ParallelismParams{Disabled: disabled})
		for i, step := range []struct {
			sent, now, wait time.Duration
			fresh           bool
			activity        time.Duration
		}{
			{0, sec, -5, true, sec}, // an invalid wait
			{0, 2 * sec, 0, false, 2 * sec},
			{sec, 3 * sec, 0, false, 3 * sec},
			{sec + 1, 4 * sec, time.Minute, true, 64 * sec},
		} {
			if fresh := l.Throttle(step.sent, step.now, step.wait); fresh != step.fresh {
				t.Errorf("disabled %v, throttle %d: fresh %v, want %v", disabled, i, fresh, step.fresh)
			}
			if s := l.Statistics(step.now); s.LastThrottle != step.now || s.LastActivity != step.activity || s.TotalThrottles != int64(i+1) {
				t.Errorf("disabled %v, throttle %d: %+v", disabled, i, s)
			}
		}
	}
}

func TestADisabledLawCountsAndTakesNoSteps(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{Disabled: true})
	for i := range 5 {
		now := time.Duration(i+1) * 10 * sec
		if l.Success(now-sec, now, 0) {
			t.Error("the level rose")
		}
	}
	if s := l.Statistics(0); s.Current != 52 || s.SuccessesSinceThrottle != 5 || s.LastIncrease != 0 {
		t.Errorf("%+v", s)
	}
}

func TestRecoveryTakesSeveralStepsAtOnce(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{Max: 52, Increase: 3, RecoveryMultiplier: 3})
	l.Throttle(0, sec, 0)
	if s := l.Statistics(0); s.Current != 13 || s.LastKnownGood != 23 {
		t.Fatalf("after the throttle %+v", s)
	}
	for range 3 {
		l.Success(6*sec, 7*sec, 0)
	}
	if s := l.Statistics(0); s.Current != 13+3*3 {
		t.Errorf("the level is %d, want 22", s.Current)
	}
}

func TestAResetIsActivity(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{})
	l.Reset(time.Hour)
	if s := l.Statistics(time.Hour); s.LastActivity != time.Hour || s.LastIncrease != time.Hour {
		t.Errorf("%+v", s)
	}
}

// A server that allows a thousand seconds of execution in each second, so that
// the ceiling shows the mean of the batches.
func TestTheCeilingFollowsTheMeanOfTheBatches(t *testing.T) {
	type batch struct{ took, busy time.Duration }
	for _, tt := range []struct {
		name    string
		batches []batch
		want    int
	}{
		{"none yet", nil, 1000},
		{"the first stands for itself", []batch{{8 * sec, 4 * sec}}, 2000},
		{"each next moves it by an eighth", []batch{{8 * sec, 4 * sec}, {16 * sec, 4 * sec}}, 2250},
		{"a server that does not say was busy all the time", []batch{{8 * sec, 4 * sec}, {8 * sec, 0}}, 1777},
		{"nor one that says less", []batch{{8 * sec, 4 * sec}, {8 * sec, -1}}, 1777},
		{"a nanosecond counts", []batch{{4, 1}}, 4000},
		{"and is a mean", []batch{{4, 1}, {4, 9}}, 2000},
		{"no batch takes less", []batch{{0, 1}}, 1000},
		{"at most what the server recommends", []batch{{80 * sec, sec}}, 5000},
	} {
		l := newParallelism(t, control.ParallelismParams{Max: 5000, BusyBudget: 1000 * sec, BusyWindow: sec})
		for _, b := range tt.batches {
			l.Success(time.Minute-b.took, time.Minute, b.busy)
		}
		if got := l.Statistics(0).Ceiling; got != tt.want {
			t.Errorf("%s: ceiling %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestABudgetThatIsNoneIsIgnored(t *testing.T) {
	l := newParallelism(t, control.ParallelismParams{Max: 100})
	for _, tt := range []struct {
		busy, window time.Duration
		want         int
	}{{0, sec, 100}, {sec, 0, 100}, {-1, sec, 100}, {1, 1, 1}, {7 * sec, sec, 7}, {0, sec, 7}, {sec, 0, 7}, {sec, -1, 7}} {
		l.Budget(tt.busy, tt.window)
		if got := l.Statistics(0).Ceiling; got != tt.want {
			t.Errorf("after a budget of %v in %v the ceiling is %d, want %d", tt.busy, tt.window, got, tt.want)
		}
	}
}

func TestWhatKeepsTheLevelFromBeingHigher(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    control.ParallelismParams
		do   func(*control.Parallelism)
		want reason.Bound
	}{
		{"it has not grown yet", control.ParallelismParams{}, nil, reason.BoundParallelism},
		{"the assumed maximum", control.ParallelismParams{InitialFactor: 1}, nil, reason.BoundCeiling},
		{"a recommendation", control.ParallelismParams{InitialFactor: 1}, func(l *control.Parallelism) { l.Recommend(4) }, reason.BoundLimit},
		{"the owner's ceiling", control.ParallelismParams{Max: 8, Ceiling: 8, InitialFactor: 1}, func(l *control.Parallelism) { l.Recommend(8) }, reason.BoundCeiling},
		{"a ceiling below the recommendation", control.ParallelismParams{Max: 8, Ceiling: 8, InitialFactor: 1}, func(l *control.Parallelism) { l.Recommend(9) }, reason.BoundCeiling},
		{"execution time", control.ParallelismParams{InitialFactor: 1, BusyBudget: 4 * sec, BusyWindow: sec}, nil, reason.BoundLimit},
	} {
		l := newParallelism(t, tt.p)
		if tt.do != nil {
			tt.do(&l)
		}
		if got := l.Bound(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
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
