package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/agent"
	"github.com/headway-go/headway/quota"
)

// TestTheRhythm feeds events to a pacer with a base of 10 s. A step has the instant, the
// event, and what follows: factor, time to the next cycle, hints.
func TestTheRhythm(t *testing.T) {
	const s = time.Second
	scale := func(f float64) quota.Event {
		return quota.Event{Type: quota.EventAdaptiveScale, Scope: mine, Factor: f}
	}
	soft := func(ms int64) quota.Event {
		return quota.Event{Type: quota.EventSoftPressure, Scope: mine, WindowMS: ms}
	}
	throttle, resume := event(quota.EventThrottle, mine), event(quota.EventResume, mine)
	global := event(quota.EventThrottle, quota.Scope{})
	const both = agent.ShrinkPlanningDepth | agent.CompressContext
	type step struct {
		at     time.Duration
		event  quota.Event // none: only look
		factor float64
		due    time.Duration
		hint   agent.Hint
	}
	for name, steps := range map[string][]step{
		"the end of a throttle is felt at the next step": {
			{0, throttle, 2, 20 * s, agent.ShrinkPlanningDepth},
			{17 * s, resume, 2, 3 * s, 0}, // steps at 22, 27, 32 and 37 s: it is due before
			{20 * s, quota.Event{}, 2, 0, 0},
			{22 * s, quota.Event{}, 1.75, 0, 0},
			{37 * s, quota.Event{}, 1, 0, 0},
		},
		"a cycle is due at the step that makes it so": {
			{0, scale(4), 4, 40 * s, 0},
			{15 * s, throttle, 4, 25 * s, agent.ShrinkPlanningDepth},
			{16 * s, resume, 4, 24 * s, 0},  // the factor still is 4
			{17 * s, scale(1), 4, 9 * s, 0}, // at 26 s two steps make it 2.5; 25 s have passed
			{21 * s, quota.Event{}, 3.25, 5 * s, 0},
			{25 * s, quota.Event{}, 3.25, 1 * s, 0},
			{26 * s, quota.Event{}, 2.5, 0, 0},
		},
		"a factor that falls within a throttle goes a step at once": {
			{0, throttle, 2, 20 * s, agent.ShrinkPlanningDepth},
			{0, scale(3), 3, 30 * s, agent.ShrinkPlanningDepth},
			{100 * s, scale(2), 2.5, 0, agent.ShrinkPlanningDepth},
			{105 * s, quota.Event{}, 2, 0, agent.ShrinkPlanningDepth},
		},
		"a cycle that a step makes overdue is due at the step": {
			{0, throttle, 2, 20 * s, agent.ShrinkPlanningDepth},
			{14 * s, resume, 2, 5 * s, 0}, // at 19 s it is 1.75, and 17.5 s have passed
			{19*s - 1, quota.Event{}, 2, 1, 0},
			{19 * s, quota.Event{}, 1.75, 0, 0},
		},
		"a factor that is said again has steps of its own": {
			{0, scale(4), 4, 40 * s, 0},
			{100 * s, scale(2), 3.25, 0, 0},
			{120 * s, quota.Event{}, 2, 0, 0},
			{120 * s, scale(2), 2, 0, 0},
			{200 * s, scale(1), 1.75, 0, 0},
		},
		"a backoff": {
			{0, quota.Event{Type: quota.EventBackoff, Scope: mine, RetryInMS: 12_000}, 1, 12 * s, 0},
		},
		"the steps are a thousandth at least": {
			{0, scale(1.003), 1.003, 10030 * time.Millisecond, 0},
			{60 * s, scale(1), 1.002, 0, 0},
			{65 * s, quota.Event{}, 1.001, 0, 0},
			{70 * s, quota.Event{}, 1, 0, 0},
		},
		"of two scopes the one that presses more": {
			{0, throttle, 2, 20 * s, agent.ShrinkPlanningDepth},
			{0, global, 2, 20 * s, agent.ShrinkPlanningDepth},
			{1 * s, scale(3.5), 3.5, 34 * s, agent.ShrinkPlanningDepth},
			{2 * s, resume, 3.5, 33 * s, agent.ShrinkPlanningDepth},
		},
		"soft pressure lasts its window": {
			{0, soft(30_000), 1, 10 * s, both},
			{30*s - 1, quota.Event{}, 1, 0, both},
			{30 * s, quota.Event{}, 1, 0, 0},
		},
		"and a minute where no window is named": {
			{0, soft(0), 1, 10 * s, both},
			{60*s - 1, quota.Event{}, 1, 0, both},
			{60 * s, quota.Event{}, 1, 0, 0},
		},
		"and a millisecond where that is the window": {
			{0, soft(1), 1, 10 * s, both},
			{time.Millisecond, quota.Event{}, 1, 10*s - time.Millisecond, 0},
		},
		"a word of its factor prolongs it": {
			{0, soft(30_000), 1, 10 * s, both},
			{20 * s, scale(0.9), 1, 0, both},
			{80*s - 1, quota.Event{}, 1, 0, both},
			{80 * s, quota.Event{}, 1, 0, 0},
		},
		"but does not shorten it": {
			{0, soft(3_600_000), 1, 10 * s, both},
			{1 * s, scale(1.2), 1.2, 11 * s, both},
			{3600*s - 1, quota.Event{}, 1.2, 0, both},
			{3600 * s, quota.Event{}, 1.2, 0, 0},
		},
		"and begins none": {
			{0, scale(1.2), 1.2, 12 * s, 0},
		},
		"a month at most": {
			{0, soft(40 * 24 * 3_600_000), 1, 10 * s, both},
			{31*24*time.Hour - 1, quota.Event{}, 1, 0, both},
			{31 * 24 * time.Hour, quota.Event{}, 1, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pacer(t, agent.Config{})
			p.Begin(0)
			for i, c := range steps {
				if c.event.Type != "" && !p.Observe(c.at, c.event) {
					t.Errorf("step %d at %v: not taken", i, c.at)
				}
				got := fmt.Sprintf("factor %v, due in %v, hints %q", p.Factor(c.at), p.Due(c.at), p.Hint(c.at).Names())
				if want := fmt.Sprintf("factor %v, due in %v, hints %q", c.factor, c.due, c.hint.Names()); got != want {
					t.Errorf("step %d at %v: %s, want %s", i, c.at, got, want)
				}
			}
		})
	}
}

// TestTheBoundsOfAConfiguration: both ends of each range are valid.
func TestTheBoundsOfAConfiguration(t *testing.T) {
	for _, tt := range []struct {
		c  agent.Config
		ok bool
	}{
		{agent.Config{Base: time.Millisecond}, true},
		{agent.Config{Base: time.Millisecond - 1}, false},
		{agent.Config{Base: 24 * time.Hour}, true},
		{agent.Config{Base: 24*time.Hour + 1}, false},
		{agent.Config{Base: time.Second, MaxFactor: 2}, true},
		{agent.Config{Base: time.Second, MaxFactor: 100}, true},
		{agent.Config{Base: time.Second, MaxFactor: 100.5}, false},
		{agent.Config{Base: time.Second, Steps: 1}, true},
		{agent.Config{Base: time.Second, Steps: 100}, true},
		{agent.Config{Base: time.Second, Steps: 101}, false},
		{agent.Config{Base: time.Second, StepEvery: time.Millisecond}, true},
		{agent.Config{Base: time.Second, StepEvery: time.Millisecond - 1}, false},
		{agent.Config{Base: time.Second, StepEvery: time.Hour}, true},
		{agent.Config{Base: time.Second, StepEvery: time.Hour + 1}, false},
	} {
		if _, err := agent.New(tt.c); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt.c, err)
		}
	}
}

// TestWhenARefusalSaysToComeBack reads what HTTP gives, before any cycle began.
func TestWhenARefusalSaysToComeBack(t *testing.T) {
	for _, tt := range []struct {
		milliseconds, seconds string
		want                  time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"-1", "", 0},
		{"1500", "", 1500 * time.Millisecond},
		{"", "2", 2 * time.Second},
		{"1500", "9", 1500 * time.Millisecond},
		{"soon", "2", 2 * time.Second},
		{"", "0", 0},
		{"", "-3", 0},
		{"9223372036854775807", "1", 40 * time.Second}, // at most the longest interval
		{"", "9223372036854775807", 40 * time.Second},
		{"9223372036854775808", "1", time.Second}, // out of range, so not read
	} {
		p := pacer(t, agent.Config{})
		h := map[string]string{"X-Headway-Pressure": "throttle", "Retry-After-Ms": tt.milliseconds, "Retry-After": tt.seconds}
		p.ObserveHeader(0, func(name string) string { return h[name] })
		if got := p.Due(0); got != tt.want {
			t.Errorf("Retry-After-Ms %q, Retry-After %q: due in %v, want %v", tt.milliseconds, tt.seconds, got, tt.want)
		}
	}
}

// TestWhichAnswersSayAnything: an answer with any of the three fields counts, and a
// scale only if it is a number.
func TestWhichAnswersSayAnything(t *testing.T) {
	for _, tt := range []struct {
		field, value string
		taken        bool
		factor       float64
	}{
		{"X-Headway-Scale", "1.5", true, 1.5},
		{"X-Headway-Scale", "1e400", true, 1}, // out of range
		{"X-Headway-Scale", "much", true, 1},
		{"X-Headway-Pressure", "throttle", true, 2},
		{"X-Headway-Pressure", "unheard", true, 1},
		{"X-Headway-Wait-Ms", "0", true, 1},
		{"Retry-After", "1", false, 1},
	} {
		p := pacer(t, agent.Config{})
		taken := p.ObserveHeader(0, func(name string) string {
			if name == tt.field {
				return tt.value
			}
			return ""
		})
		if taken != tt.taken || p.Factor(0) != tt.factor {
			t.Errorf("%s: %s: taken %v, factor %v, want %v and %v", tt.field, tt.value, taken, p.Factor(0), tt.taken, tt.factor)
		}
	}
}

func TestASnapshotsSoftPressureIsBelievedForAMinute(t *testing.T) {
	p := pacer(t, agent.Config{})
	p.Restate(time.Second, mine, quota.Soft, 1)
	if p.Hint(time.Second+time.Minute-1) == 0 || p.Hint(time.Second+time.Minute) != 0 {
		t.Errorf("hints %v before a minute has passed, %v after", p.Hint(time.Minute), p.Hint(time.Second+time.Minute))
	}
}

func loop(t *testing.T) *agent.Loop {
	t.Helper()
	l, err := agent.NewLoop(agent.Config{Base: 10 * time.Second, Scope: mine})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wait(t *testing.T, l *agent.Loop) (took time.Duration) {
	t.Helper()
	start := time.Now()
	if err := l.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

func TestALoopWaitsAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop(t)
		if took := wait(t, l); took != 0 {
			t.Errorf("the first cycle waited %v", took)
		}
		if took := wait(t, l); took != 10*time.Second {
			t.Errorf("waited %v, want the base", took)
		}
		time.Sleep(4 * time.Second) // the agent's own work
		if took := wait(t, l); took != 6*time.Second {
			t.Errorf("waited %v after 4s of work, want the rest of the base", took)
		}
	})
}

func TestAWaitFollowsWhatIsLearnedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop(t)
		wait(t, l)
		go func() {
			time.Sleep(9 * time.Second)
			l.Observe(event(quota.EventThrottle, mine))
		}()
		if took := wait(t, l); took != 20*time.Second || l.Interval() != took || l.Hint() != agent.ShrinkPlanningDepth {
			t.Errorf("waited %v, interval %v, hints %v; want twice the base", took, l.Interval(), l.Hint().Names())
		}
		go func() {
			time.Sleep(time.Second)
			l.Restate(mine, quota.Normal, 1)
		}()
		// Steps at 6 and 11 s lead to 1.75 and 1.5; 15 s have passed before the next.
		if took := wait(t, l); took != 15*time.Second {
			t.Errorf("waited %v, want the 15s of the second step", took)
		}
		time.Sleep(time.Minute)
		wait(t, l)
		go func() {
			time.Sleep(time.Second)
			l.Backoff(30 * time.Second)
		}()
		if took := wait(t, l); took != 31*time.Second {
			t.Errorf("waited %v, want 30s from the backoff on", took)
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop(t)
		over := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(over)
		if err := l.Wait(ctx); !errors.Is(err, over) {
			t.Errorf("error %v, want the cause", err)
		}
		if took := wait(t, l); took != 0 {
			t.Errorf("a wait that was canceled began a cycle: the next took %v", took)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := l.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the deadline", err)
		}
	})
}

func TestALoopReadsTheHeaderOfARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop(t)
		header := http.Header{"X-Headway-Pressure": {"throttle"}, "Retry-After": {"30"}}
		if !l.ObserveHeader(header.Get) || l.ObserveHeader(http.Header{}.Get) {
			t.Error("want a header of Headway's to be read, and no other")
		}
		if took := wait(t, l); took != 30*time.Second {
			t.Errorf("waited %v, want the Retry-After", took)
		}
	})
}

func TestALoopIsSafeForConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop(t)
		var others sync.WaitGroup
		for i := range 8 {
			others.Go(func() {
				for range 50 {
					l.Observe(event(quota.EventThrottle, mine))
					l.Observe(event(quota.EventResume, mine))
					l.Restate(mine, quota.Normal, 1)
					l.Backoff(time.Duration(i))
					_, _ = l.Interval(), l.Hint()
				}
			})
		}
		for range 5 {
			wait(t, l)
		}
		others.Wait()
	})
}
