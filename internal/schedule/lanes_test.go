package schedule

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/robfig/cron/v3"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

func timetable(t *testing.T, expression string) cron.Schedule {
	t.Helper()
	s, err := cron.ParseStandard(expression)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ended(state collect.RunState, why reason.Reason) collect.Summary {
	return collect.Summary{Run: collect.Run{ID: "r", State: state, Reason: why}}
}

// span is a run in virtual time.
type span struct {
	Lane     collect.LaneKind
	From, To string
}

// play runs the lanes until the end. A steady run takes a minute. A catch-up takes all the
// time that it gets, until it has run for past.
func play(l *Lanes, now, end time.Time, past time.Duration) (runs []span) {
	for {
		at, _, _ := l.Due()
		if at.After(now) {
			now = at
		}
		if !now.Before(end) {
			return runs
		}
		turn, began := l.Begin(now), now
		sum := ended(collect.RunDrained, reason.Drained)
		took := time.Minute
		if turn.Lane == collect.Catchup {
			if took = past; turn.MaxWallClock > 0 && turn.MaxWallClock < past {
				took, sum = turn.MaxWallClock, ended(collect.RunDeferred, reason.MaxWallClock.Reason())
			}
			past -= took
		}
		now = now.Add(took)
		l.Ended(turn, sum, nil, now)
		runs = append(runs, span{turn.Lane, began.Format("2 15:04"), now.Format("2 15:04")})
	}
}

func TestThePastHasItsOwnHours(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.Local)
	for name, tt := range map[string]struct {
		window, past time.Duration
		want         []span // of the past
	}{
		"it makes way every hour, until it is done":       {0, 150 * time.Minute, []span{{collect.Catchup, "2 02:01", "2 03:00"}, {collect.Catchup, "2 03:01", "2 04:00"}, {collect.Catchup, "2 04:01", "2 04:33"}}},
		"its bound holds over all parts, and waits a day": {90 * time.Minute, 150 * time.Minute, []span{{collect.Catchup, "2 02:01", "2 03:00"}, {collect.Catchup, "2 03:01", "2 03:31"}, {collect.Catchup, "3 02:01", "3 03:00"}, {collect.Catchup, "3 03:01", "3 03:03"}}},
		"what is short runs in one":                       {0, 5 * time.Minute, []span{{collect.Catchup, "2 02:01", "2 02:06"}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLanes(timetable(t, "0 * * * *"), timetable(t, "0 2 * * *"), tt.window, noon)
			runs := play(l, noon, noon.Add(40*time.Hour), tt.past)
			var past []span
			steady := 0
			for _, r := range runs {
				if r.Lane == collect.Catchup {
					past = append(past, r)
				} else {
					steady++
				}
			}
			past = slices.DeleteFunc(past, func(s span) bool { return s.From == s.To }) // there was nothing left
			if diff := cmp.Diff(tt.want, past); diff != "" {
				t.Errorf("the past (-want +got):\n%s", diff)
			}
			// One at once, then one at each full hour, however long the catch-up takes.
			if steady != 40 {
				t.Errorf("%d runs of the steady state in 40 hours: %v", steady, runs)
			}
		})
	}
}

func TestOneTimetableIsOneRun(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.Local)
	l := NewLanes(timetable(t, "0 * * * *"), nil, time.Hour, now)
	if turn := l.Begin(now); turn != (Turn{}) {
		t.Errorf("the turn is %+v, want one for both lanes without a bound of its own", turn)
	}
	if both, past := (Turn{}).Log().String(), (Turn{Lane: collect.Catchup}).Log().String(); both != "lane=both" || past != "lane=catchup" {
		t.Errorf("logged as %s and %s", both, past)
	}
	l.Ended(Turn{}, ended(collect.RunDrained, reason.Drained), nil, now.Add(time.Minute))
	if next, steady, catchup := l.Due(); !next.Equal(now.Add(time.Hour)) || !steady.Equal(next) || !catchup.IsZero() {
		t.Errorf("due %v %v %v", next, steady, catchup)
	}
}

func TestLanesAfterTrouble(t *testing.T) {
	two := time.Date(2026, 1, 2, 2, 0, 0, 0, time.Local)
	steady, catchup := Turn{Lane: collect.Steady}, Turn{Lane: collect.Catchup}
	in := func(d time.Duration) time.Time { return two.Add(d) }
	pressed := ended(collect.RunDeferred, reason.RateLimited.Reason())
	pressed.RetryAt = in(10 * time.Minute)
	for name, tt := range map[string]struct {
		turn            Turn
		sum             collect.Summary
		err             error
		ok              bool
		steady, catchup time.Time
	}{
		"pressure on the steady state holds the past":    {steady, pressed, nil, true, in(10 * time.Minute), in(10 * time.Minute)},
		"pressure on the past leaves the steady state":   {catchup, pressed, nil, true, two, in(10 * time.Minute)},
		"a bound of the past: its next time":             {catchup, ended(collect.RunDeferred, reason.MaxCatchup.Reason()), nil, true, two, in(24 * time.Hour)},
		"the past refused for good: later each time":     {catchup, ended(collect.RunFailed, reason.Forbidden), errors.New("403"), false, two, in(24 * time.Hour)},
		"another process has it":                         {catchup, collect.Summary{}, &collect.HeldError{}, true, two, in(time.Minute)},
		"the steady state is deferred: the past goes on": {steady, ended(collect.RunDeferred, reason.MaxRequests.Reason()), nil, true, in(time.Minute), two},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLanes(timetable(t, "@every 1h"), timetable(t, "0 2 * * *"), 0, two.Add(-time.Minute))
			l.Ended(steady, ended(collect.RunDrained, reason.Drained), nil, two.Add(-time.Hour)) // next at two
			ok := l.Ended(tt.turn, tt.sum, tt.err, two)
			_, s, c := l.Due()
			if ok != tt.ok || !s.Equal(tt.steady) || !c.Equal(tt.catchup) {
				t.Errorf("ok %v, steady at %v, past at %v; want %v, %v, %v", ok, s, c, tt.ok, tt.steady, tt.catchup)
			}
		})
	}
}

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
