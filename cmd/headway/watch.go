package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// watch says when the next run is: a deferred one at its RetryAt, any other by
// the schedule.
type watch struct {
	schedule cron.Schedule
}

// The waits after a run that was deferred without saying until when, or whose
// connection another process was collecting.
const (
	retrySoon  = time.Minute
	retryLeast = time.Second
)

func newWatch(expression string) (*watch, error) {
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, usage(fmt.Errorf("--schedule is %q: %w (five fields such as \"*/15 * * * *\", or \"@every 15m\")", expression, err))
	}
	return &watch{schedule: s}, nil
}

// next is when to run again after a run that ended at now. Ok is false when
// running again is pointless: the provider refused for good, or we are broken.
func (w *watch) next(s collect.Summary, err error, now time.Time) (at time.Time, ok bool) {
	if _, held := errors.AsType[*collect.HeldError](err); held {
		return now.Add(retrySoon), true
	}
	switch s.State {
	case collect.RunDrained:
		return w.schedule.Next(now), true
	case collect.RunDeferred:
		scheduled := w.schedule.Next(now)
		switch {
		case s.RetryAt.IsZero():
			at = now.Add(retrySoon)
		default:
			at = s.RetryAt
		}
		if at.Before(now.Add(retryLeast)) {
			at = now.Add(retryLeast)
		}
		// A schedule that comes first is not put off by one gap's wait.
		if scheduled.Before(at) {
			at = scheduled
		}
		return at, true
	case collect.RunFailed, collect.RunRunning, collect.RunAbandoned:
	}
	return time.Time{}, false
}

// pause waits for the next run; false when there is none to come.
func (w *watch) pause(ctx context.Context, stop <-chan struct{}, s *screen, sum collect.Summary, err error) bool {
	if e, ok := errors.AsType[*exitError](err); ok && e.err != nil {
		err = e.err
	}
	at, ok := w.next(sum, err, time.Now())
	if !ok || sum.Reason == reason.Interrupted {
		return false
	}
	s.say("next run at " + at.Local().Format(time.DateTime))
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
	case <-ctx.Done():
	}
	return false
}
