package schedule

import (
	"errors"
	"log/slog"
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
	// window is when max_wall_clock ends a catch-up that pauses in between.
	window time.Time
}

// NewLanes starts with the steady lane; the catch-up waits for its time. If catchup is nil,
// it has no timetable of its own. maxWallClock bounds a catch-up from its start over all
// its parts; 0 means no bound.
func NewLanes(steady, catchup cron.Schedule, maxWallClock time.Duration, now time.Time) *Lanes {
	l := &Lanes{steady: steady, catchup: catchup, maxWallClock: maxWallClock, dueSteady: now}
	if catchup != nil {
		l.dueCatchup = catchup.Next(now)
	}
	return l
}

// Standing is the state of a [Lanes], with which another process can continue.
type Standing struct {
	Failures int       `json:"failures,omitzero"`
	Steady   time.Time `json:"steady"`
	Catchup  time.Time `json:"catchup,omitzero"`
	Window   time.Time `json:"window,omitzero"`
}

// Standing returns the current state.
func (l *Lanes) Standing() Standing {
	return Standing{l.failures, l.dueSteady, l.dueCatchup, l.window}
}

// Resume continues from a state of lanes with the same timetables.
func (l *Lanes) Resume(s Standing) {
	l.failures, l.dueSteady, l.window = s.Failures, s.Steady, s.Window
	if l.catchup != nil && !s.Catchup.IsZero() {
		l.dueCatchup = s.Catchup
	}
}

// Turn is one run.
type Turn struct {
	// Lane is the lane to collect; empty means both.
	Lane collect.LaneKind
	// MaxWallClock bounds the run; 0 means the connection's own bound.
	MaxWallClock time.Duration
}

// Log returns the lane for a log.
func (t Turn) Log() slog.Attr {
	if t.Lane == "" {
		return slog.String("lane", "both")
	}
	return slog.String("lane", string(t.Lane))
}

// Due returns when the next run begins. catchup is zero if the catch-up has no timetable of
// its own.
func (l *Lanes) Due() (next, steady, catchup time.Time) {
	if next = l.dueSteady; l.catchup != nil && l.dueCatchup.Before(next) {
		next = l.dueCatchup
	}
	return next, l.dueSteady, l.dueCatchup
}

// Begin returns the run to start at now, when one is due. If both lanes are due, the steady
// lane goes first.
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

// Ended records the end of a turn. ok is false if another run would fail again unless
// something changes; then the lane is retried later each time.
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
		l.dueCatchup = at // what delays the steady lane delays the catch-up too
	}
	return true
}

// afterCatchup returns when a catch-up continues: at once if it paused for the steady lane,
// at its next time if it is done or reached a bound.
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

// The waits after a run that was deferred without a time, and after one whose connection
// another process was collecting; the minimum wait; and the maximum wait after consecutive
// failures.
const (
	RetrySoon   = time.Minute
	RetryLeast  = time.Second
	RetryFailed = 24 * time.Hour
)

// Next returns when to run again after a run that ended at now with a summary and an error:
// at RetryAt if it was deferred, otherwise by the timetable. ok is false if another run
// would fail again unless something changes, such as a provider's permanent refusal or a
// bug.
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
		// A timetable that is earlier is not delayed by one gap's wait.
		if planned := timetable.Next(now); planned.Before(at) {
			at = planned
		}
		return at, true
	case collect.RunFailed, collect.RunRunning, collect.RunAbandoned:
	}
	return time.Time{}, false
}

// afterFailure returns when to run again after a number of consecutive failures, at least
// one: by the timetable, but not before a wait of one minute that doubles each time.
func afterFailure(timetable cron.Schedule, failures int, now time.Time) time.Time {
	wait := RetryFailed
	if n := failures - 1; n < 11 {
		wait = min(RetryFailed, RetrySoon<<n)
	}
	return timetable.Next(now.Add(wait - time.Second))
}
