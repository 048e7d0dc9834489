package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/daemon/schedule"
	"github.com/headway-go/headway/reason"
)

// watch says when the next run is: a deferred one at its RetryAt, any other by
// the schedule.
type watch struct {
	schedule cron.Schedule
}

func newWatch(expression string) (*watch, error) {
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, usage(fmt.Errorf("--schedule is %q: %w (five fields such as \"*/15 * * * *\", or \"@every 15m\")", expression, err))
	}
	return &watch{schedule: s}, nil
}

// pause waits for the next run; false when there is none to come.
func (w *watch) pause(ctx context.Context, stop <-chan struct{}, s *screen, sum collect.Summary, err error) bool {
	if e, ok := errors.AsType[*exitError](err); ok && e.err != nil {
		err = e.err
	}
	at, ok := schedule.Next(w.schedule, sum, err, time.Now())
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
