package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

// clock is an instant after a beginning.
func clock(after time.Duration) time.Time { return time.Unix(1_700_000_000, 0).Add(after) }

func TestEachFailedTryWaitsTwiceAsLong(t *testing.T) {
	for tries, want := range map[int64]time.Duration{
		0: time.Minute, 1: time.Minute, 2: 2 * time.Minute, 3: 4 * time.Minute, 9: 256 * time.Minute, 10: 6 * time.Hour, 17: 6 * time.Hour, 1 << 40: 6 * time.Hour,
	} {
		if got := tryWait(tries); got != want {
			t.Errorf("after %d: %v, want %v", tries, got, want)
		}
	}
}

func TestGivingUpTakesManyTriesAndALongTime(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		why   reason.Reason
		tries int64
		age   time.Duration
		want  bool
	}{
		{reason.ServerError, 7, 1000 * day, false}, {reason.ServerError, 8, day - 1, false}, {reason.ServerError, 8, day, true},
		{reason.NotFound, 7, day, false}, {reason.NotFound, 8, 0, true},
		{reason.RateLimited.Reason(), 1000, 1000 * day, false}, {reason.Unreachable, 1000, 1000 * day, false},
		{reason.Timeout, 1000, 1000 * day, false}, {reason.Unauthorized, 1000, 1000 * day, false}, {reason.TLS, 1000, 1000 * day, false},
		{reason.QuotaExhausted, 1000, 1000 * day, false}, {reason.WrongScheme, 1000, 1000 * day, false}, {reason.InvalidResponse, 8, day, true},
	} {
		if got := givenUp(tt.why, tt.tries, tt.age); got != tt.want {
			t.Errorf("%v after %d tries in %v: %v", tt.why, tt.tries, tt.age, got)
		}
	}
}

func TestTheGapThatAFailureLeaves(t *testing.T) {
	later := clock(time.Hour)
	failed := func(f connector.Failure) error { return fmt.Errorf("detail: %w", &f) }
	for _, tt := range []struct {
		name     string
		err      error
		why      reason.Reason
		attempts int64
		status   GapStatus
		retry    time.Time
		last     string
	}{
		{"an error of ours", errors.New("x"), reason.Internal, 0, GapPending, time.Time{}, ""},
		{"a refusal", &reason.Refusal{Reason: reason.CircuitOpen.Reason(), RetryAt: later}, reason.CircuitOpen.Reason(), 0, GapPending, later, ""},
		{"an answer", failed(connector.Failure{Reason: reason.ServerError, Status: 503, Attempts: 5, RetryAt: later}), reason.ServerError, 1, GapPending, later, "503 server_error"},
		{"no answer", failed(connector.Failure{Reason: reason.Timeout, Attempts: 1}), reason.Timeout, 1, GapPending, time.Time{}, "timeout"},
		{"stopped before it was sent", failed(connector.Failure{Reason: reason.RateLimited.Reason(), Stopped: reason.MaxRequests.Reason()}), reason.RateLimited.Reason(), 0, GapPending, time.Time{}, "rate_limited"},
		{"stopped after it was sent", failed(connector.Failure{Reason: reason.ServerError, Attempts: 2, Stopped: reason.RetryBudget.Reason()}), reason.ServerError, 1, GapPending, time.Time{}, "server_error"},
		{"one that cannot be made", failed(connector.Failure{Reason: reason.InvalidResponse}), reason.InvalidResponse, 1, GapTerminal, time.Time{}, "invalid_response"},
		{"an invalid answer", failed(connector.Failure{Reason: reason.InvalidResponse, Status: 200, Attempts: 1}), reason.InvalidResponse, 1, GapPending, time.Time{}, "200 invalid_response"},
		{"one not sent for another reason", failed(connector.Failure{Reason: reason.NotFound}), reason.NotFound, 1, GapPending, time.Time{}, "not_found"},
	} {
		o := outcome{task: task{item: connector.Item{Key: "k", Data: []byte("{}")}, from: "docs", to: "messages"}, err: tt.err}
		g := gapOf("bench", o, clock(0))
		if g.Reason != tt.why || g.Attempts != tt.attempts || g.Status != tt.status || !g.RetryAt.Equal(tt.retry) || g.LastError != tt.last {
			t.Errorf("%s: %+v", tt.name, g)
		}
		if g.GapKey != (GapKey{"messages", "k"}) || g.Parent != "docs" || string(g.Locator) != "{}" || !g.FirstSeen.Equal(clock(0)) || !g.LastSeen.Equal(clock(0)) {
			t.Errorf("%s: %+v", tt.name, g)
		}
	}
}

func TestAFailureWaitsAndPressureHasItsOwnWaits(t *testing.T) {
	for _, tt := range []struct {
		why         reason.Reason
		before, end time.Time
	}{
		{reason.ServerError, time.Time{}, clock(2 * time.Minute)},
		{reason.ServerError, clock(time.Minute), clock(2 * time.Minute)},
		{reason.ServerError, clock(time.Hour), clock(time.Hour)},
		{reason.RateLimited.Reason(), clock(time.Second), clock(time.Second)},
	} {
		g := Gap{Reason: tt.why, RetryAt: tt.before}
		if g.waitFor(2, clock(0)); !g.RetryAt.Equal(tt.end) {
			t.Errorf("%v until %v: until %v, want %v", tt.why, tt.before, g.RetryAt, tt.end)
		}
	}
}

func TestARunComesBackForGapsThatAreDueTogether(t *testing.T) {
	for _, tt := range []struct {
		due  []time.Duration
		want time.Duration
	}{
		{[]time.Duration{time.Hour}, time.Hour},
		{[]time.Duration{time.Hour + time.Minute, time.Hour}, time.Hour + time.Minute},
		{[]time.Duration{time.Hour, time.Hour + time.Minute + 1, time.Hour + time.Second}, time.Hour + time.Second},
	} {
		var due []time.Time
		for _, d := range tt.due {
			due = append(due, clock(d))
		}
		if got := together(due); !got.Equal(clock(tt.want)) {
			t.Errorf("%v: %v, want %v", tt.due, got.Sub(clock(0)), tt.want)
		}
	}
	if at := together(nil); !at.IsZero() {
		t.Errorf("nothing is due: %v", at)
	}
}

func TestWhatIsFetchedIsCommittedSoon(t *testing.T) {
	for _, tt := range []struct {
		cost, age, want time.Duration
	}{
		{0, time.Hour, 100 * time.Millisecond}, {10 * time.Millisecond, time.Hour, 200 * time.Millisecond},
		{10 * time.Millisecond, time.Second, 100 * time.Millisecond}, {10 * time.Millisecond, 3 * time.Second, 150 * time.Millisecond},
		{time.Second, time.Hour, time.Second},
	} {
		s := saves{last: clock(0), cost: tt.cost, age: tt.age}
		if got := s.at().Sub(clock(0)); got != tt.want {
			t.Errorf("commits of %v at an age of %v: after %v, want %v", tt.cost, tt.age, got, tt.want)
		}
		if s.due(clock(tt.want-1), 255) || !s.due(clock(tt.want), 1) || !s.due(clock(0), 256) {
			t.Errorf("commits of %v at an age of %v are due at another time", tt.cost, tt.age)
		}
	}
	if !(saves{}).due(clock(0), 1) {
		t.Error("the first one is not due")
	}
}

func TestWhichFailuresOfDetailsStopTheRun(t *testing.T) {
	fetched := errors.New("fetched")
	fail := func(why reason.Reason) error { return &connector.Failure{Reason: why, RetryAt: clock(0)} }
	for _, tt := range []struct {
		name   string
		errs   []error
		at     int // which of them stops it; -1 means none
		why    reason.Reason
		failed bool
	}{
		{"errors", slices.Repeat([]error{fail(reason.ServerError), fail(reason.NotFound), fail(reason.Forbidden)}, 20), -1, 0, false},
		{"three refused credentials", slices.Repeat([]error{fail(reason.Unauthorized)}, 3), 2, reason.Unauthorized, true},
		{"eight refused for pressure", slices.Repeat([]error{fail(reason.RateLimited.Reason())}, 9), 7, reason.RateLimited.Reason(), false},
		{"a certificate", []error{fail(reason.TLS)}, 0, reason.TLS, true},
		{"a quota", []error{fail(reason.QuotaExhausted)}, 0, reason.QuotaExhausted, false},
		{"an error of ours", []error{errors.New("x")}, 0, reason.Internal, true},
		{"a refusal", []error{&reason.Refusal{Reason: reason.MaxRequests.Reason(), RetryAt: clock(0)}}, 0, reason.MaxRequests.Reason(), false},
		{"stopped", []error{&connector.Failure{Reason: reason.ServerError, Stopped: reason.RetryBudget.Reason(), RetryAt: clock(0)}}, 0, reason.RetryBudget.Reason(), false},
		{"stopped under pressure", []error{&connector.Failure{Reason: reason.RateLimited.Reason(), Stopped: reason.RetryBudget.Reason(), RetryAt: clock(0)}}, 0, reason.RateLimited.Reason(), false},
		{"two, one fetched, and two", []error{fail(reason.Unauthorized), fail(reason.Unauthorized), fetched, fail(reason.Unauthorized), fail(reason.Unauthorized)}, -1, 0, false},
	} {
		r, at := &execution{}, -1
		var end *stop
		for i, err := range tt.errs {
			if errors.Is(err, fetched) {
				r.denied, r.pressed = 0, 0
			} else if end = r.stopsRun(err); end != nil {
				at = i
				break
			}
		}
		if at != tt.at {
			t.Errorf("%s: stopped by number %d, want %d", tt.name, at, tt.at)
		} else if end != nil && (end.why != tt.why || (end.err != nil) != tt.failed || !tt.failed && !end.retryAt.Equal(clock(0))) {
			t.Errorf("%s: %+v", tt.name, end)
		}
	}
}

func TestWhichListsAreAskedForAgain(t *testing.T) {
	bad := func(change func(*connector.Failure)) error {
		f := &connector.Failure{Reason: reason.InvalidResponse, Status: 200, Class: reason.Failed}
		change(f)
		return f
	}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no page", bad(func(*connector.Failure) {}), true},
		{"an empty one", bad(func(f *connector.Failure) { f.Status = 204 }), true},
		{"an odd success", bad(func(f *connector.Failure) { f.Status = 299 }), true},
		{"an error's page", bad(func(f *connector.Failure) { f.Status = 404 }), false},
		{"another reason", bad(func(f *connector.Failure) { f.Reason = reason.ServerError }), false},
		{"one that stays as it is", bad(func(f *connector.Failure) { f.Class = reason.Rejected }), false},
		{"a stop", bad(func(f *connector.Failure) { f.Stopped = reason.MaxRequests.Reason() }), false},
		{"another error", io.EOF, false},
		{"none", nil, false},
	} {
		if got := garbled(tt.err); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestWhereABacklogBegins(t *testing.T) {
	old := Gap{Parent: "docs", Since: "2024-01-02", Status: GapPending}
	for _, tt := range []struct {
		name      string
		old       Gap
		since, as string
	}{
		{"earlier", old, "2024-01-01", "2024-01-01"},
		{"later", old, "2024-01-03", "2024-01-02"},
		{"from the beginning", old, "", ""},
		{"after one that is recovered", Gap{Parent: "docs", Since: "2024-01-02", Status: GapRecovered}, "2024-01-03", "2024-01-03"},
		{"of another list", Gap{Parent: "talks", Since: "2024-01-02", Status: GapPending}, "2024-01-03", ""},
	} {
		if got := joined(tt.old, Gap{Parent: "docs", Since: tt.since}); got != tt.as {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.as)
		}
	}
}

func TestWhatABacklogPassesOn(t *testing.T) {
	b := &batch{items: map[string]KnownItem{}}
	for _, key := range []string{"unsent", "failed", "impossible", "unknown"} {
		if key != "unknown" {
			b.items[key] = KnownItem{Key: key, Owed: true}
		}
	}
	backlog := Gap{GapKey: GapKey{Stream: "messages"}, Backlog: true}
	b.Opened = []Gap{
		{GapKey: GapKey{"messages", "unsent"}, Status: GapPending}, {GapKey: GapKey{"messages", "failed"}, Status: GapPending, Attempts: 1},
		{GapKey: GapKey{"messages", "impossible"}, Status: GapTerminal, Attempts: 1}, backlog, {GapKey: GapKey{"messages", "unknown"}, Attempts: 1},
	}
	b.Progress.GapsOpened, b.Progress.Details = 9, 4
	b.settleBacklog()
	var opened []string
	for _, g := range b.Opened {
		opened = append(opened, g.Key)
	}
	if want := []string{"failed", "impossible", "", "unknown"}; !slices.Equal(opened, want) {
		t.Errorf("gaps of their own: %q, want %q", opened, want)
	}
	if !b.items["unsent"].Owed || b.items["failed"].Owed || b.items["impossible"].Owed {
		t.Errorf("owed in the backlog: %+v", b.items)
	}
	if b.Progress.GapsOpened != 0 || b.Progress.GapsRecovered != 4 {
		t.Errorf("counted %+v", b.Progress)
	}
}

// slow is an error of the network that took too long.
type slow struct{ timeout bool }

func (slow) Error() string   { return "slow" }
func (s slow) Timeout() bool { return s.timeout }
func (slow) Temporary() bool { return false }

func TestWhyNoResponseCame(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want reason.Reason
	}{
		{errRedirect, reason.InvalidResponse}, {errRedirectLoop, reason.InvalidResponse}, {transport.ErrTooLarge, reason.InvalidResponse},
		{http.ErrSchemeMismatch, reason.WrongScheme}, {context.DeadlineExceeded, reason.Timeout}, {&net.OpError{Op: "read", Err: slow{true}}, reason.Timeout},
		{&net.OpError{Op: "read", Err: slow{false}}, reason.Unreachable}, {io.ErrUnexpectedEOF, reason.Unreachable},
	} {
		if got := unreached(fmt.Errorf("x: %w", tt.err)); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestWhatEndsTheWaitForACircuit(t *testing.T) {
	until := clock(time.Minute)
	open := reason.CircuitOpen.Reason()
	for _, tt := range []struct {
		err  error
		open bool
	}{
		{&reason.Refusal{Reason: open, RetryAt: until}, true}, {&connector.Failure{Stopped: open, RetryAt: until}, true},
		{&reason.Refusal{Reason: reason.MaxRequests.Reason(), RetryAt: until}, false}, {&connector.Failure{Reason: open, RetryAt: until}, false}, {nil, false},
	} {
		if at, ok := circuitOpen(tt.err); ok != tt.open || ok && !at.Equal(until) {
			t.Errorf("%v: %v, %v", tt.err, at, ok)
		}
	}
	err := stopped(&connector.Failure{Reason: reason.ServerError, Stopped: open, RetryAt: until}, reason.Interrupted)
	if f, ok := errors.AsType[*connector.Failure](err); !ok || f.Stopped != reason.Interrupted || !f.RetryAt.IsZero() || f.Reason != reason.ServerError {
		t.Errorf("a failure: %+v", err)
	}
	err = stopped(&reason.Refusal{Reason: open, RetryAt: until}, reason.Interrupted)
	if r, ok := errors.AsType[*reason.Refusal](err); !ok || r.Reason != reason.Interrupted || !r.RetryAt.IsZero() {
		t.Errorf("a refusal: %+v", err)
	}
}

func TestTheEndOfWorkIsSaidInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		halt := make(chan struct{})
		r := &execution{o: Options{Stop: halt}}
		if end := r.halted(t.Context()); end != nil {
			t.Fatalf("nothing ends it: %+v", end)
		}
		r.budget.deadline = time.Now()
		if end := r.halted(t.Context()); end == nil || end.why != reason.MaxWallClock.Reason() {
			t.Errorf("out of time: %+v", end)
		}
		close(halt)
		if end := r.halted(t.Context()); end == nil || end.why != reason.Interrupted || end.err != nil {
			t.Errorf("stopped: %+v", end)
		}
		ctx, lost := context.WithCancelCause(t.Context())
		lost(ErrLeaseLost)
		if end := r.halted(ctx); end == nil || end.why != reason.LeaseLost || !errors.Is(end.err, ErrLeaseLost) {
			t.Errorf("the lease is lost: %+v", end)
		}
	})
}
