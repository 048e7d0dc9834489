package schedule

import (
	"errors"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/collect"
)

// The waits after a run that was deferred without saying until when, or whose
// connection another process was collecting; the least wait; and the longest
// after runs that failed in a row.
const (
	RetrySoon   = time.Minute
	RetryLeast  = time.Second
	RetryFailed = 24 * time.Hour
)

// Next is when to run again after a run that ended at now with a summary and an
// error: one that was deferred at its RetryAt, any other by the timetable. Ok is
// false when running again is pointless as things are: the provider refused for
// good, or we are broken.
func Next(timetable cron.Schedule, s collect.Summary, err error, now time.Time) (at time.Time, ok bool) {
	if _, held := errors.AsType[*collect.HeldError](err); held {
		return now.Add(RetrySoon), true
	}
	switch s.State {
	case collect.RunDrained, collect.RunIncomplete:
		return timetable.Next(now), true
	case collect.RunDeferred:
		at = s.RetryAt
		if at.IsZero() {
			at = now.Add(RetrySoon)
		}
		if least := now.Add(RetryLeast); at.Before(least) {
			at = least
		}
		// A timetable that comes first is not put off by one gap's wait.
		if planned := timetable.Next(now); planned.Before(at) {
			at = planned
		}
		return at, true
	case collect.RunFailed, collect.RunRunning, collect.RunAbandoned:
	}
	return time.Time{}, false
}

// afterFailure is when to try again after so many runs in a row that failed, at
// least one: by the timetable, but not before a minute that doubles each time.
func afterFailure(timetable cron.Schedule, failures int, now time.Time) time.Time {
	wait := RetryFailed
	if n := failures - 1; n < 11 {
		wait = min(RetryFailed, RetrySoon<<n)
	}
	return timetable.Next(now.Add(wait - time.Second))
}
