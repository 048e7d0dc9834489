package governor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
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
	}{{0, true}, {0, false}, {500 * time.Millisecond, false}, {13 * time.Hour, true}, {13 * time.Hour, false}, {13*time.Hour + 1500*time.Millisecond, false}, {-48 * time.Hour, false}, {37 * time.Hour, true}} {
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

// A wall clock that is a little off is passed over; one that was set is followed, in
// what a refusal says too.
func TestOnlyAClockThatWasSetIsFollowed(t *testing.T) {
	origin := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	now, set := time.Duration(0), time.Duration(0)
	c := quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 1, Burst: 1}}}}
	g, err := newGovernor(Options{Config: c}, origin, func() (time.Duration, time.Time) { return now, origin.Add(now + set) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	if _, err := g.Approve(quota.Request{Model: "m"}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ set, want time.Duration }{
		{}, {time.Second / 2, 0}, {time.Second, 0}, {time.Second + 1, time.Second + 1}, {time.Hour, time.Hour}, {time.Hour - time.Second, time.Hour},
	} {
		now += time.Second
		set = step.set
		_, err := g.Approve(quota.Request{Model: "m"})
		r, ok := errors.AsType[*reason.Refusal](err)
		if want := origin.Add(time.Minute + step.want); !ok || !r.RetryAt.Equal(want) {
			t.Errorf("with the clock set by %v: %+v, want %v", step.set, r, want)
		}
		if at, want := g.Snapshot().Timestamp, origin.Add(now+step.want).Truncate(time.Millisecond); !at.Truncate(time.Millisecond).Equal(want) {
			t.Errorf("with the clock set by %v the snapshot says %v, want %v", step.set, at, want)
		}
	}
}

// A clock that was set forward before the end brings the next day, which is said even
// though nobody asks any more.
func TestTheEndSaysThatTheDayHasTurned(t *testing.T) {
	origin := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	var set time.Duration
	var heard []string
	c := quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyCalls: 1}}}}
	g, err := newGovernor(Options{Config: c, OnEvent: func(e quota.Event) { heard = append(heard, e.String()) }}, origin,
		func() (time.Duration, time.Time) { return 0, origin.Add(set) })
	if err != nil {
		t.Fatal(err)
	}
	d, err := g.Approve(quota.Request{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.RecordUsage(d.Permit, quota.Usage{}); err != nil {
		t.Fatal(err)
	}
	_, _ = g.Approve(quota.Request{Model: "m"})
	set = 13 * time.Hour
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if n := len(heard); n == 0 || heard[n-1] != "rate:resume model m" {
		t.Errorf("heard %q", heard)
	}
}

// Nobody is kept who gave up, or whom the end refused; and who gave up as the end came
// is refused for the reason that it had.
func TestWhoGaveUpOrWasRefusedWaitsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Options{Config: quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyTokens: 100}}}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Approve(quota.Request{Model: "m", InputTokens: 90}); err != nil {
			t.Fatal(err)
		}
		one := quota.Request{Model: "m", InputTokens: 60}
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := g.ApproveWait(short, one); err == nil || len(g.waiting) != 0 {
			t.Errorf("after its deadline: %v, %d wait", err, len(g.waiting))
		}
		ended := make(chan error)
		go func() {
			_, err := g.ApproveWait(t.Context(), one)
			ended <- err
		}()
		synctest.Wait()
		if len(g.waiting) != 1 {
			t.Fatalf("%d wait", len(g.waiting))
		}
		var id quota.Waiter
		for id = range g.waiting {
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if n := g.Snapshot().Statistics.Waiting; n != 0 || len(g.waiting) != 0 {
			t.Errorf("after the end %d wait in the queue, %d of the callers", n, len(g.waiting))
		}
		if r, ok := errors.AsType[*reason.Refusal](<-ended); !ok || r.Reason != reason.Closed {
			t.Errorf("%v", r)
		}
		crossing := &waiter{done: make(chan outcome, 1)}
		crossing.done <- outcome{closed: true}
		_, err = g.abandon(id, crossing, context.DeadlineExceeded)
		if r, ok := errors.AsType[*reason.Refusal](err); !ok || r.Reason != reason.Deadline {
			t.Errorf("%v", err)
		}
	})
}

// An approval that its caller no longer waited for is given back.
func TestAnApprovalThatNobodyTakesIsGivenBack(t *testing.T) {
	g, err := New(Options{Config: quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{MaxDailyCalls: 1}}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	d, err := g.Approve(quota.Request{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	crossing := &waiter{done: make(chan outcome, 1)}
	crossing.done <- outcome{decision: d}
	if _, err := g.abandon(99, crossing, context.Canceled); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s := g.Snapshot(); s.Statistics.Open != 0 || *s.Models["m"].DailyCallsRemaining != 1 {
		t.Errorf("%+v", s)
	}
	// A refusal that crosses the deadline is the budget's, with the instant it named.
	at := time.Unix(1e9, 0)
	crossing.done <- outcome{decision: quota.Decision{Reason: "THROTTLED", Code: quota.CodeThrottled, RetryIn: time.Minute}, at: at}
	_, err = g.abandon(99, crossing, context.DeadlineExceeded)
	if r, ok := errors.AsType[*reason.Refusal](err); !ok || !r.RetryAt.Equal(at.Add(time.Minute)) {
		t.Errorf("%v, %+v", err, r)
	}
}

// A log line has the fields of its event that are set.
func TestWhatALineSays(t *testing.T) {
	for want, e := range map[string]quota.Event{
		"[scope=model m model=m]":                              {Type: quota.EventResume, Scope: quota.Scope{Model: "m"}, Count: 1},
		"[scope=global retry_in_ms=1 count=2]":                 {Type: quota.EventDenied, RetryInMS: 1, Count: 2},
		"[scope=global factor=2]":                              {Type: quota.EventAdaptiveScale, Factor: 2},
		"[scope=global utilization=0.5 forecast=true]":         {Type: quota.EventSoftPressure, Utilization: 0.5, Forecast: true},
		"[scope=global reason=r code=c cap=t config_digest=d]": {Type: quota.EventExhausted, Reason: "r", Code: "c", CapType: "t", Digest: "d"},
	} {
		if got := fmt.Sprint(describe(e)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
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

// OpenFileOn is OpenFile on another disk.
var OpenFileOn = openFile
