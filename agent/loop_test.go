package agent_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/agent"
	"github.com/headway-go/headway/quota"
)

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
