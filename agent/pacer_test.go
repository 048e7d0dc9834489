package agent_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/agent"
	"github.com/headway-go/headway/quota"
)

var mine = quota.Scope{Tenant: "t", Agent: "a", Model: "m"}

func pacer(t *testing.T, c agent.Config) *agent.Pacer {
	t.Helper()
	if c.Base == 0 {
		c.Base = 10 * time.Second
	}
	if c.Scope.Global() {
		c.Scope = mine
	}
	p, err := agent.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func event(kind quota.EventType, s quota.Scope) quota.Event {
	return quota.Event{Type: kind, Scope: s}
}

// cycles is how many cycles an agent makes from one instant up to another.
func cycles(p *agent.Pacer, from, to time.Duration) (n int) {
	for now := from + p.Due(from); now < to; now += p.Due(now) {
		p.Begin(now)
		n++
	}
	return n
}

func TestAThrottledAgentCyclesAtMostHalfAsOftenUntilResumeThenReturnsInSteps(t *testing.T) {
	p := pacer(t, agent.Config{Base: time.Second})
	const span = 100 * time.Second
	free := cycles(p, 0, span)
	if free != 100 {
		t.Fatalf("%d cycles in %v at a base of 1s", free, span)
	}
	p.Observe(span, event(quota.EventThrottle, quota.Scope{Model: "m"}))
	if slow := cycles(p, span, 2*span); slow > free/2 {
		t.Errorf("%d cycles while throttled, %d before: more than half", slow, free)
	}
	// Not even a long throttle ends by itself.
	if got := p.Factor(100 * time.Hour); got != 2 {
		t.Errorf("factor %v after a hundred hours of throttle", got)
	}
	p.Observe(2*span, event(quota.EventResume, quota.Scope{Model: "m"}))
	for i, want := range []float64{2, 1.75, 1.5, 1.25, 1, 1} {
		at := 2*span + time.Duration(i)*5*time.Second
		if got := p.Factor(at); got != want {
			t.Errorf("factor %v, %v after the resume, want %v", got, at-2*span, want)
		}
		if i > 0 && i < 5 && p.Factor(at-1) != want+0.25 {
			t.Errorf("factor %v just before the step to %v", p.Factor(at-1), want)
		}
	}
	if again := cycles(p, 3*span, 4*span); again < free-1 {
		t.Errorf("%d cycles after the return, %d before", again, free)
	}
}

func TestScaleEventsOfTheGovernorAreFollowedWithoutDelay(t *testing.T) {
	p := pacer(t, agent.Config{})
	m := quota.Scope{Model: "m"}
	scale := func(now time.Duration, f float64) {
		p.Observe(now, quota.Event{Type: quota.EventAdaptiveScale, Scope: m, Factor: f})
	}
	p.Observe(0, event(quota.EventThrottle, m))
	scale(0, 3)
	resumed := 30 * time.Second
	p.Observe(resumed, event(quota.EventResume, m))
	for i, want := range []float64{2.5, 2, 1.5, 1} {
		now := resumed + time.Duration(i+1)*5*time.Second
		scale(now, want)
		if got := p.Factor(now); got != want {
			t.Errorf("factor %v at %v, the governor says %v", got, now, want)
		}
	}
}

func TestAFallOfTheFactorIsSmoothed(t *testing.T) {
	p := pacer(t, agent.Config{})
	p.Observe(0, quota.Event{Type: quota.EventAdaptiveScale, Factor: 3})
	late := time.Hour
	p.Observe(late, quota.Event{Type: quota.EventAdaptiveScale, Factor: 1})
	for i, want := range []float64{2.5, 2, 1.5, 1} {
		if got := p.Factor(late + time.Duration(i)*5*time.Second); got != want {
			t.Errorf("step %d: factor %v, want %v", i, got, want)
		}
	}
}

func TestAFactorBelowOneIsOne(t *testing.T) {
	p := pacer(t, agent.Config{})
	for _, f := range []float64{0.5, 0, -3, math.NaN(), math.Inf(-1), 1} {
		p.Observe(0, quota.Event{Type: quota.EventAdaptiveScale, Factor: f})
		if got := p.Interval(0); got != 10*time.Second {
			t.Errorf("interval %v at factor %v, want the base", got, f)
		}
	}
	for _, f := range []float64{99, math.Inf(1)} {
		p.Observe(0, quota.Event{Type: quota.EventAdaptiveScale, Factor: f})
		if got := p.Factor(0); got != 4 {
			t.Errorf("factor %v at %v, want the bound", got, f)
		}
	}
}

func TestOnlyEventsOnTheAgentsPathConcernIt(t *testing.T) {
	for _, c := range []struct {
		scope quota.Scope
		want  bool
	}{
		{quota.Scope{}, true},
		{quota.Scope{Model: "m"}, true},
		{quota.Scope{Tenant: "t"}, true},
		{quota.Scope{Tenant: "t", Model: "m"}, true},
		{mine, true},
		{quota.Scope{Model: "other"}, false},
		{quota.Scope{Tenant: "other", Model: "m"}, false},
		{quota.Scope{Tenant: "t", Agent: "other"}, false},
	} {
		p := pacer(t, agent.Config{})
		if got := p.Observe(0, event(quota.EventThrottle, c.scope)); got != c.want || p.Factor(0) > 1 != c.want {
			t.Errorf("%v: concerned %v, factor %v, want %v", c.scope, got, p.Factor(0), c.want)
		}
	}
	p := pacer(t, agent.Config{})
	if p.Observe(0, event(quota.EventDenied, mine)) || p.Observe(0, event(quota.EventConfig, quota.Scope{})) {
		t.Error("an event that says nothing of the rhythm was taken")
	}
}

func TestOneScopesResumeDoesNotEndAnothersThrottle(t *testing.T) {
	p := pacer(t, agent.Config{})
	p.Observe(0, event(quota.EventThrottle, quota.Scope{}))
	p.Observe(0, event(quota.EventExhausted, mine))
	p.Observe(time.Second, event(quota.EventResume, quota.Scope{}))
	if got := p.Factor(time.Hour); got != 2 {
		t.Errorf("factor %v while the agent's own day is used up", got)
	}
}

func TestHints(t *testing.T) {
	p := pacer(t, agent.Config{})
	want := func(now time.Duration, names ...string) {
		t.Helper()
		if got := p.Hint(now).Names(); !slices.Equal(got, names) {
			t.Errorf("hints at %v: %v, want %v", now, got, names)
		}
	}
	want(0)
	p.Observe(0, quota.Event{Type: quota.EventSoftPressure, Scope: mine, Utilization: 0.85, WindowMS: 30_000})
	want(0, "shrink_planning_depth", "compress_context")
	if p.Interval(0) != 10*time.Second {
		t.Error("soft pressure alone changed the interval")
	}
	want(30*time.Second-1, "shrink_planning_depth", "compress_context")
	want(30 * time.Second) // a whole window without another word
	p.Observe(time.Minute, quota.Event{Type: quota.EventSoftPressure, Scope: mine, WindowMS: 3_600_000})
	p.Observe(time.Minute, quota.Event{Type: quota.EventAdaptiveScale, Scope: mine, Factor: 0.9})
	want(2*time.Minute, "shrink_planning_depth", "compress_context")
	p.Observe(2*time.Minute, quota.Event{Type: quota.EventAdaptiveScale, Scope: mine, Factor: 1})
	want(2 * time.Minute)
	p.Observe(3*time.Minute, event(quota.EventThrottle, mine))
	want(3*time.Minute, "shrink_planning_depth")
	p.Observe(4*time.Minute, event(quota.EventResume, mine))
	want(4 * time.Minute)
	p.Observe(5*time.Minute, quota.Event{Type: quota.EventSoftPressure, Scope: mine, WindowMS: math.MaxInt64})
	want(6*time.Minute, "shrink_planning_depth", "compress_context")
}

func TestABackoffPutsTheNextCycleOff(t *testing.T) {
	p := pacer(t, agent.Config{})
	p.Begin(0)
	p.Backoff(0, 3*time.Second)
	if got := p.Due(0); got != 10*time.Second {
		t.Errorf("due in %v: a backoff shorter than the interval changed it", got)
	}
	p.Observe(0, quota.Event{Type: quota.EventBackoff, Scope: mine, RetryInMS: 25_000})
	if got := p.Due(0); got != 25*time.Second {
		t.Errorf("due in %v, want the 25s that the event says", got)
	}
	p.Observe(0, quota.Event{Type: quota.EventBackoff, Scope: mine, RetryInMS: math.MaxInt64})
	if got := p.Due(0); got != 40*time.Second {
		t.Errorf("due in %v, want no more than the longest interval", got)
	}
	p.Backoff(0, -time.Hour)
	if got := p.Due(0); got != 40*time.Second {
		t.Errorf("due in %v after a negative backoff", got)
	}
}

func TestASnapshotReplacesEventsThatWereLost(t *testing.T) {
	p := pacer(t, agent.Config{})
	p.Observe(0, event(quota.EventThrottle, mine)) // its resume is lost
	if !p.Restate(time.Minute, mine, quota.Normal, 1) || p.Factor(time.Minute+20*time.Second) != 1 {
		t.Errorf("factor %v after a snapshot said normal", p.Factor(time.Minute+20*time.Second))
	}
	p.Restate(2*time.Minute, mine, quota.Exhausted, 1)
	if got := p.Factor(2 * time.Minute); got != 2 {
		t.Errorf("factor %v after a snapshot said exhausted", got)
	}
	p.Restate(3*time.Minute, mine, quota.Soft, 3)
	if p.Factor(3*time.Minute) != 3 || p.Hint(3*time.Minute) != agent.ShrinkPlanningDepth|agent.CompressContext {
		t.Errorf("factor %v, hints %v after a snapshot said soft", p.Factor(3*time.Minute), p.Hint(3*time.Minute).Names())
	}
	if p.Restate(0, quota.Scope{Model: "other"}, quota.Throttle, 4) {
		t.Error("a scope that is not on the path was taken")
	}
}

func TestAFixedIntervalStaysAtTheBase(t *testing.T) {
	p := pacer(t, agent.Config{Fixed: true})
	p.Observe(0, event(quota.EventThrottle, mine))
	p.Observe(0, quota.Event{Type: quota.EventAdaptiveScale, Scope: mine, Factor: 4})
	if p.Interval(0) != 10*time.Second || p.Hint(0) != agent.ShrinkPlanningDepth {
		t.Errorf("interval %v, hints %v", p.Interval(0), p.Hint(0).Names())
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for _, c := range []struct {
		config agent.Config
		want   string
	}{
		{agent.Config{}, "Base is 0s, must be from 1ms to 24h"},
		{agent.Config{Base: 25 * time.Hour}, "Base is 25h0m0s"},
		{agent.Config{Base: time.Second, MaxFactor: 1.5}, "MaxFactor is 1.5, must be from 2 to 100"},
		{agent.Config{Base: time.Second, MaxFactor: math.NaN()}, "MaxFactor is NaN"},
		{agent.Config{Base: time.Second, Steps: -1}, "Steps is -1, must be from 1 to 100"},
		{agent.Config{Base: time.Second, StepEvery: time.Nanosecond}, "StepEvery is 1ns, must be from 1ms to 1h"},
	} {
		if _, err := agent.New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
		if _, err := agent.NewLoop(c.config); err == nil {
			t.Errorf("NewLoop accepted %+v", c.config)
		}
	}
}

// Whatever is observed, the interval stays within its bounds, a cycle is due
// when Due says and not before, and calm leads back to the base.
func TestTheRhythmKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, 60_000).Draw(r, "base")) * time.Millisecond
		steps := rapid.IntRange(1, 9).Draw(r, "steps")
		p, err := agent.New(agent.Config{Base: base, Scope: mine, Steps: steps, MaxFactor: 8})
		if err != nil {
			r.Fatal(err)
		}
		scopes := []quota.Scope{{}, {Model: "m"}, mine}
		kinds := []quota.EventType{
			quota.EventThrottle, quota.EventResume, quota.EventSoftPressure, quota.EventAdaptiveScale, quota.EventExhausted, quota.EventBackoff,
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(r, "events") {
			now += time.Duration(rapid.Int64Range(0, 30_000).Draw(r, "pause")) * time.Millisecond
			before := p.Factor(now)
			p.Observe(now, quota.Event{
				Type: rapid.SampledFrom(kinds).Draw(r, "type"), Scope: rapid.SampledFrom(scopes).Draw(r, "scope"),
				Factor: rapid.Float64Range(0, 10).Draw(r, "factor"), RetryInMS: rapid.Int64Range(0, 1000).Draw(r, "retry"),
			})
			f := p.Factor(now)
			if f < 1 || f > 8 || p.Interval(now) < base {
				r.Fatalf("factor %v, interval %v at a base of %v", f, p.Interval(now), base)
			}
			if f < before-(8-1)/float64(steps)-0.001 {
				r.Fatalf("factor fell from %v to %v at once", before, f)
			}
			if due := p.Due(now); due > 0 {
				if left := p.Due(now + due - 1); left != 1 {
					r.Fatalf("due in %v, but in %v one nanosecond before", due, left)
				}
			}
			if p.Due(now+p.Due(now)) != 0 {
				r.Fatalf("due in %v, and then not", p.Due(now))
			}
			if rapid.Bool().Draw(r, "begin") && p.Due(now) == 0 {
				p.Begin(now)
			}
		}
		for _, s := range scopes {
			p.Restate(now, s, quota.Normal, 1)
		}
		if f := p.Factor(now + time.Duration(steps)*5*time.Second); f != 1 {
			r.Fatalf("factor %v after a long calm", f)
		}
	})
}

func TestAPacerReadsHeaders(t *testing.T) {
	header := func(fields ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(fields); i += 2 {
				if fields[i] == name {
					return fields[i+1]
				}
			}
			return ""
		}
	}
	p, err := agent.New(agent.Config{Base: time.Second, Scope: quota.Scope{Tenant: "t"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Begin(0)
	if p.ObserveHeader(0, header("Retry-After", "30", "Content-Type", "text/html")) || p.Due(0) != time.Second {
		t.Errorf("it took an answer that is not Headway's: due in %v", p.Due(0))
	}
	for i, c := range []struct {
		fields   []string
		interval time.Duration
		due      time.Duration
		hint     agent.Hint
	}{
		{[]string{"X-Headway-Wait-Ms", "0"}, time.Second, time.Second, 0},
		{[]string{"X-Headway-Wait-Ms", "0", "X-Headway-Scale", "1.5", "X-Headway-Pressure", "soft"}, 1500 * time.Millisecond, 1500 * time.Millisecond, agent.ShrinkPlanningDepth | agent.CompressContext},
		{[]string{"X-Headway-Pressure", "throttle", "Retry-After", "3"}, 2 * time.Second, 3 * time.Second, agent.ShrinkPlanningDepth},
		{[]string{"X-Headway-Pressure", "throttle", "Retry-After-Ms", "2500", "Retry-After", "99"}, 2 * time.Second, 2500 * time.Millisecond, agent.ShrinkPlanningDepth},
		{[]string{"X-Headway-Pressure", "exhausted", "X-Headway-Scale", "3", "Retry-After", "999999999999999"}, 3 * time.Second, 4 * time.Second, agent.ShrinkPlanningDepth},
		{[]string{"X-Headway-Pressure", "exhausted", "Retry-After", "-5"}, 2 * time.Second, 2 * time.Second, agent.ShrinkPlanningDepth},
		{[]string{"X-Headway-Pressure", "exhausted", "Retry-After", "soon"}, 2 * time.Second, 2 * time.Second, agent.ShrinkPlanningDepth},
	} {
		p, err := agent.New(agent.Config{Base: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		p.Begin(0)
		if !p.ObserveHeader(0, header(c.fields...)) || p.Interval(0) != c.interval || p.Due(0) != c.due || p.Hint(0) != c.hint {
			t.Errorf("%d: interval %v, due in %v, hint %v, want %v, %v, %v", i, p.Interval(0), p.Due(0), p.Hint(0).Names(), c.interval, c.due, c.hint.Names())
		}
	}
	// An answer without pressure ends it.
	p.ObserveHeader(0, header("X-Headway-Pressure", "throttle", "X-Headway-Scale", "4"))
	p.ObserveHeader(time.Second, header("X-Headway-Wait-Ms", "0"))
	if p.Hint(time.Second) != 0 || p.Interval(time.Minute) != time.Second {
		t.Errorf("after recovery: hint %v, interval %v", p.Hint(time.Second).Names(), p.Interval(time.Minute))
	}
}
