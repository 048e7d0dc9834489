package schedule

import (
	"errors"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

func TestRunsAgainWhenItShould(t *testing.T) {
	w, err := cron.ParseStandard("0 3 * * *") // at three each night
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 2, 0, 0, 0, time.Local)
	night := time.Date(2026, 1, 2, 3, 0, 0, 0, time.Local)
	run := func(state collect.RunState, why reason.Reason, retry time.Time) collect.Summary {
		return collect.Summary{Run: collect.Run{ID: "r", State: state, Reason: why, RetryAt: retry}}
	}
	for _, tt := range []struct {
		name string
		s    collect.Summary
		err  error
		at   time.Time // zero: not again
	}{
		{"drained: by the schedule", run(collect.RunDrained, reason.Drained, time.Time{}), nil, night},
		{"deferred: at its time", run(collect.RunDeferred, reason.RateLimited.Reason(), now.Add(20*time.Minute)), nil, now.Add(20 * time.Minute)},
		{"deferred without a time: soon", run(collect.RunDeferred, reason.MaxRequests.Reason(), time.Time{}), nil, now.Add(time.Minute)},
		{"deferred to the past: not in a tight loop", run(collect.RunDeferred, reason.ServerError, now.Add(-time.Hour)), nil, now.Add(time.Second)},
		{"deferred past the schedule: the schedule", run(collect.RunDeferred, reason.RateLimited.Reason(), now.Add(9*time.Hour)), nil, night},
		{"another process has it: soon", collect.Summary{}, &collect.HeldError{}, now.Add(time.Minute)},
		{"refused for good: never", run(collect.RunFailed, reason.Unauthorized, time.Time{}), errors.New("401"), time.Time{}},
	} {
		at, ok := Next(w, tt.s, tt.err, now)
		if ok == tt.at.IsZero() || !at.Equal(tt.at) {
			t.Errorf("%s: got %v %v, want %v", tt.name, at, ok, tt.at)
		}
	}
}

func TestFailuresAreTriedLaterEachTime(t *testing.T) {
	often, err := cron.ParseStandard("* * * * *")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 2, 0, 0, 0, time.UTC)
	for failures, want := range map[int]time.Duration{1: time.Minute, 2: 2 * time.Minute, 5: 16 * time.Minute, 11: 1024 * time.Minute, 12: 24 * time.Hour, 500: 24 * time.Hour} {
		if got := afterFailure(often, failures, now).Sub(now); got != want {
			t.Errorf("after %d failures: in %v, want %v", failures, got, want)
		}
	}
	daily, err := cron.ParseStandard("0 3 * * *")
	if err != nil {
		t.Fatal(err)
	}
	if got := afterFailure(daily, 1, now).Sub(now); got != time.Hour {
		t.Errorf("a daily one after a failure: in %v, want the next time of the schedule, in 1h", got)
	}
}
