package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/reason"
)

// watch says when the next run is, and of which lanes: a deferred one at its
// RetryAt, any other by the schedule.
type watch struct {
	lanes *schedule.Lanes
	turn  schedule.Turn // the run under way
}

// newWatch reads the schedule, and that of the past where it has one of its own.
func newWatch(expression string, run rest.Run, lane collect.LaneKind) (*watch, error) {
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, usage(fmt.Errorf("--schedule is %q: %w (five fields such as \"*/15 * * * *\", or \"@every 15m\")", expression, err))
	}
	var catchup cron.Schedule
	if run.CatchupSchedule != "" && lane == "" {
		if catchup, err = cron.ParseStandard(run.CatchupSchedule); err != nil {
			return nil, usage(fmt.Errorf("run.catchup_schedule is %q: %w", run.CatchupSchedule, err))
		}
	}
	return &watch{lanes: schedule.NewLanes(s, catchup, run.MaxWallClock, time.Now())}, nil
}

// begin says what the run that begins now is bounded to.
func (w *watch) begin() schedule.Turn {
	w.turn = w.lanes.Begin(time.Now())
	return w.turn
}

// pause waits for the next run; false when there is none to come.
func (w *watch) pause(ctx context.Context, stop <-chan struct{}, s *screen, sum collect.Summary, err error) bool {
	if e, ok := errors.AsType[*exitError](err); ok && e.err != nil {
		err = e.err
	}
	if !w.lanes.Ended(w.turn, sum, err, time.Now()) || sum.Reason == reason.Interrupted {
		return false
	}
	at, _, catchup := w.lanes.Due()
	text := "next run at " + at.Local().Format(time.DateTime)
	if !catchup.IsZero() && catchup.After(at) {
		text += ", of the past at " + catchup.Local().Format(time.DateTime)
	}
	s.say(text)
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
