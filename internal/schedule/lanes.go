package schedule

import (
	"errors"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// Lanes decides when the lanes of a connection run. With one timetable each run collects
// both lanes. With its own timetable the catch-up runs separately: it starts at its times,
// pauses whenever the steady lane is due, and continues after it, until the catch-up is
// done or a limit of the run ends it. Then it waits for its next time. Lanes is pure: the
// caller passes the times.
type Lanes struct {
	steady, catchup       cron.Schedule
	maxWallClock          time.Duration
	failures              int
	dueSteady, dueCatchup time.Time
	// window is when max_wall_clock ends a catch-up that makes way in between.
	window time.Time
}

// NewLanes begins at now with the steady state; the catch-up waits for its time.
// A nil catchup has no timetable of its own. MaxWallClock bounds a catch-up from
// its start over all its parts; 0 means no bound.
func NewLanes(steady, catchup cron.Schedule, maxWallClock time.Duration, now time.Time) *Lanes {
	l := &Lanes{steady: steady, catchup: catchup, maxWallClock: maxWallClock, dueSteady: now}
	if catchup != nil {
		l.dueCatchup = catchup.Next(now)
	}
	return l
}

// Standing is what a [Lanes] has learned, so that another process can go on from there.
type Standing struct {
	Failures int       `json:"failures,omitzero"`
	Steady   time.Time `json:"steady"`
	Catchup  time.Time `json:"catchup,omitzero"`
	Window   time.Time `json:"window,omitzero"`
}

// Standing gives where the lanes stand.
func (l *Lanes) Standing() Standing {
	return Standing{l.failures, l.dueSteady, l.dueCatchup, l.window}
}

// Resume goes on from where lanes of the same timetables stood.
func (l *Lanes) Resume(s Standing) {
	l.failures, l.dueSteady, l.window = s.Failures, s.Steady, s.Window
	if l.catchup != nil && !s.Catchup.IsZero() {
		l.dueCatchup = s.Catchup
	}
}

// Turn is one run.
type Turn struct {
	// Lane is what to collect; empty is both.
	Lane collect.LaneKind
	// MaxWallClock bounds the run; 0 leaves the connection's own bound.
	MaxWallClock time.Duration
}

// Due is when the next run begins. The catch-up's instant is zero when it has no
// timetable of its own.
func (l *Lanes) Due() (next, steady, catchup time.Time) {
	if next = l.dueSteady; l.catchup != nil && l.dueCatchup.Before(next) {
		next = l.dueCatchup
	}
	return next, l.dueSteady, l.dueCatchup
}

// Begin says what to run at now, when a run is due. Where both lanes are due the
// steady state goes first.
func (l *Lanes) Begin(now time.Time) Turn {
	if l.catchup == nil {
		return Turn{}
	}
	if !l.dueSteady.After(now) || l.dueSteady.Before(l.dueCatchup) {
		return Turn{Lane: collect.Steady}
	}
	bound := l.dueSteady.Sub(now)
	if l.maxWallClock > 0 {
		if !l.window.After(now) {
			l.window = now.Add(l.maxWallClock)
		}
		bound = min(bound, l.window.Sub(now))
	}
	return Turn{Lane: collect.Catchup, MaxWallClock: max(bound, RetryLeast)}
}

// Ended takes how a turn ended. Ok is false when running again is pointless as
// things are; the lane is then tried again later each time.
func (l *Lanes) Ended(t Turn, s collect.Summary, err error, now time.Time) (ok bool) {
	timetable, due := l.steady, &l.dueSteady
	if t.Lane == collect.Catchup {
		timetable, due = l.catchup, &l.dueCatchup
	}
	at, ok := Next(timetable, s, err, now)
	if !ok {
		l.failures++
		*due, l.window = afterFailure(timetable, l.failures, now), time.Time{}
		return false
	}
	l.failures = 0
	if t.Lane == collect.Catchup && err == nil {
		at = l.afterCatchup(s, at, now)
	}
	*due = at
	if t.Lane == collect.Steady && s.State == collect.RunDeferred && s.Reason.Kind() == reason.KindPressure && l.dueCatchup.Before(at) {
		l.dueCatchup = at // what holds the steady state back holds the past back too
	}
	return true
}

// afterCatchup is when a catch-up goes on: at once when it made way for the steady
// state, at its next time when it is done or its bounds ended it.
func (l *Lanes) afterCatchup(s collect.Summary, at, now time.Time) time.Time {
	_, capped := reason.AsCap(s.Reason)
	switch {
	case s.State == collect.RunDeferred && s.Reason == reason.MaxWallClock.Reason() && (l.maxWallClock == 0 || l.window.After(now)):
		return now
	case s.State == collect.RunDeferred && !capped:
		return at
	}
	l.window = time.Time{}
	return l.catchup.Next(now)
}

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
