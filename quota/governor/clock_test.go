package governor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/quota"
)

// The wall clock that is set forward brings the next day; set back, it hands
// out no day twice.
func TestAWallClockThatIsSetMovesTheDay(t *testing.T) {
	origin := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	now, set := time.Duration(0), time.Duration(0)
	c := quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyCalls: 1}}}}
	g, err := newGovernor(Options{Config: c}, origin, func() (time.Duration, time.Time) { return now, origin.Add(now + set) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, step := range []struct {
		set      time.Duration
		approved bool
	}{{0, true}, {0, false}, {500 * time.Millisecond, false}, {13 * time.Hour, true}, {13 * time.Hour, false}, {-48 * time.Hour, false}, {37 * time.Hour, true}} {
		set = step.set
		now += time.Minute
		if d, err := g.Approve(quota.Request{Model: "m"}); d.Approved != step.approved {
			t.Errorf("with the clock set by %v: %+v, %v", set, d, err)
		}
		if at := g.Snapshot().Timestamp; at.Sub(origin.Add(now+set)).Abs() > time.Second {
			t.Errorf("with the clock set by %v the snapshot says %v", set, at)
		}
	}
}

func FuzzDecode(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(`{"version":1,"use":[{"scope":{"model":"m"},"day":"2026-03-04","zone":"UTC","tokens":5,"calls":1}]}`))
	f.Add([]byte(`{"version":1,"use":[{"scope":{"tenant":"t","agent":"a"},"day":"9999-12-31","tokens":-1}]}`))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		use, err := decode(b)
		if err != nil {
			return
		}
		core, err := quota.New(quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 10}}}}, time.Unix(1e9, 0))
		if err != nil {
			t.Fatal(err)
		}
		if core.Restore(0, use) != nil {
			return
		}
		for _, u := range core.Use(0, nil) {
			if u.Tokens < 0 || u.Calls < 0 {
				t.Errorf("%+v out of %s", u, b)
			}
		}
	})
}

// Whose deadline comes before the queue hears of it is refused by the budget all the same.
func TestADeadlineIsRefusedByTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin, slow := time.Now(), false
		c := quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 100}}}}
		g, err := newGovernor(Options{Config: c}, origin, func() (time.Duration, time.Time) {
			if slow {
				slow = false
				time.Sleep(time.Millisecond)
			}
			return time.Since(origin), time.Now().Round(0)
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}()
		d, err := g.Approve(quota.Request{Model: "m", InputTokens: 90})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		slow = true
		_, err = g.ApproveWait(ctx, quota.Request{Model: "m", InputTokens: 60})
		if denial, ok := errors.AsType[*quota.Denial](err); !ok || denial.Code != quota.CodeThrottled || !denial.Held {
			t.Errorf("at the deadline: %v", err)
		}
		if time.Since(origin) != time.Second {
			t.Errorf("refused after %v", time.Since(origin))
		}
		if _, err := g.RecordUsage(d.Permit, quota.Usage{Input: 10}); err != nil {
			t.Error(err)
		}
		if s := g.Snapshot().Statistics; s.Waiting != 0 || s.Denied != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Nobody is kept who has been served.
func TestWhoWasServedWaitsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Options{Config: quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 60, Burst: 1}}}}})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := g.ApproveWait(t.Context(), quota.Request{Model: "m"}); err != nil {
				t.Error(err)
			}
		}
		if len(g.waiting) != 0 {
			t.Errorf("%d wait", len(g.waiting))
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}
