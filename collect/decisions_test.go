package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

// clock returns a time that is d after a fixed origin.
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

func TestQuarantineNeedsManyTriesAndALongTime(t *testing.T) {
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
		if got := nextRun(due); !got.Equal(clock(tt.want)) {
			t.Errorf("%v: %v, want %v", tt.due, got.Sub(clock(0)), tt.want)
		}
	}
	if at := nextRun(nil); !at.IsZero() {
		t.Errorf("nothing is due: %v", at)
	}
}

func TestFetchedDetailsAreCommittedSoon(t *testing.T) {
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

func TestWhichDetailsLeaveABacklog(t *testing.T) {
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

// The items of a backlog are looked for in a list since its watermark, then in the whole
// list. Details of items that no list shows are requested by key.
func TestHowABacklogIsWorkedOff(t *testing.T) {
	const since = "2024-01-02T00:00:00Z"
	page := func(next string, keys ...string) any {
		p := connector.Page{Next: next}
		for _, key := range keys {
			p.Items = append(p.Items, connector.Item{Key: key, Fingerprint: "f", Watermark: since, Data: []byte("{}")})
		}
		return p
	}
	refused := &connector.Failure{Status: http.StatusBadRequest, Reason: reason.ClientError}
	broken := &connector.Failure{Status: http.StatusInternalServerError, Reason: reason.ServerError, Attempts: 1}
	standing := func(cursor, since string, status GapStatus) string {
		return fmt.Sprintf("backlog %q@%q %s", cursor, since, status)
	}
	for _, tt := range []struct {
		name    string
		owed    []string
		cursor  string // of the gap
		strict  bool   // the list is declared inclusive, and
		anyhow  bool   // unless this is set, ascending
		changed bool   // the items have changed since
		stopped bool   // the run is to end, from the first record written on
		pages   map[string][]any
		made    map[string]any
		asked   []string // pages and details, in order
		gaps    []string // as they were committed
		why     reason.Reason
	}{
		{name: "nothing is owed any more", gaps: []string{"closed"}},
		{
			name: "the list since its watermark shows all of it", owed: []string{"a", "c"},
			pages: map[string][]any{"": {page("2", "a", "b")}, "2": {page("3", "c")}, "3": {page("", "d")}},
			asked: []string{"@" + since, "a", "2@" + since, "c"},
			gaps:  []string{standing("2", since, GapLeased), standing("3", since, GapLeased), "closed"},
		},
		{
			name: "only the whole list does", owed: []string{"a"},
			pages: map[string][]any{"": {page(""), page("", "a")}},
			asked: []string{"@" + since, "@", "a"},
			gaps:  []string{standing("", "", GapLeased), standing("", "", GapLeased), "closed"},
		},
		{
			name: "no list does", owed: []string{"a", "b", "c"},
			pages: map[string][]any{"": {page("2", "b")}, "2": {page("")}},
			asked: []string{"@" + since, "b", "2@" + since, "@", "2@"},
			gaps: []string{
				standing("2", since, GapLeased), standing("", "", GapLeased), standing("2", "", GapLeased), standing("", "", GapLeased),
				"a not_found not_listed", "c not_found not_listed", "closed",
			},
		},
		{
			name: "the whole list shows what one that is inclusive left out", owed: []string{"a"}, strict: true, why: reason.InvalidResponse,
			pages: map[string][]any{"": {page(""), page("2", "a")}, "2": {page("")}},
			asked: []string{"@" + since, "@", "a"},
			gaps:  []string{standing("", "", GapLeased), standing("2", "", GapLeased), "closed"},
		},
		{
			name: "one in no order may leave it out", owed: []string{"a"}, strict: true, anyhow: true,
			pages: map[string][]any{"": {page(""), page("", "a")}},
			asked: []string{"@" + since, "@", "a"},
			gaps:  []string{standing("", "", GapLeased), standing("", "", GapLeased), "closed"},
		},
		{
			name: "what it left out is noticed before the last page", owed: []string{"a", "b"}, strict: true, why: reason.InvalidResponse,
			pages: map[string][]any{"": {page(""), page("2", "a")}, "2": {page("")}},
			asked: []string{"@" + since, "@", "a", "2@"},
			gaps:  []string{standing("", "", GapLeased), standing("2", "", GapLeased), standing("", "", GapLeased), "b not_found not_listed", "closed"},
		},
		{
			name: "what changed since may have left its place", owed: []string{"a"}, strict: true, changed: true,
			pages: map[string][]any{"": {page(""), page("", "a")}},
			asked: []string{"@" + since, "@", "a"},
			gaps:  []string{standing("", "", GapLeased), standing("", "", GapLeased), "closed"},
		},
		{
			name: "an expired cursor is begun again once", owed: []string{"a"}, cursor: "2", why: reason.ClientError,
			pages: map[string][]any{"": {page("2")}, "2": {refused}},
			asked: []string{"2@" + since, "@" + since, "2@" + since},
			gaps:  []string{standing("2", since, GapLeased), "given back"},
		},
		{
			name: "a list that is refused is not asked for again", owed: []string{"a"}, why: reason.ClientError,
			pages: map[string][]any{"": {refused}},
			asked: []string{"@" + since},
			gaps:  []string{"given back"},
		},
		{
			name: "a page that follows itself", owed: []string{"a"}, why: reason.CursorRepeats,
			pages: map[string][]any{"": {page("2")}, "2": {page("2", "a")}},
			asked: []string{"@" + since, "2@" + since},
			gaps:  []string{standing("2", since, GapLeased), "given back"},
		},
		{
			name: "a list that runs in a circle", owed: []string{"a"}, why: reason.CursorRepeats,
			pages: map[string][]any{"": {page("2")}, "2": {page("3")}, "3": {page("2")}},
			asked: []string{"@" + since, "2@" + since, "3@" + since},
			gaps:  []string{standing("2", since, GapLeased), standing("3", since, GapLeased), "given back"},
		},
		{
			name: "a detail that fails by itself leaves the backlog", owed: []string{"a", "b"},
			pages: map[string][]any{"": {page("", "a", "b")}}, made: map[string]any{"a": broken},
			asked: []string{"@" + since, "a", "b"},
			gaps:  []string{"a server_error 500 server_error", standing("", "", GapLeased), "closed"},
		},
		{
			name: "a run that is stopped comes back to its page", owed: []string{"a", "b", "c"}, stopped: true, why: reason.Interrupted,
			pages: map[string][]any{"": {page("2", "a")}, "2": {page("", "b", "c")}}, made: map[string]any{"a": []connector.Record{{Key: "1", Data: []byte("{}")}}},
			asked: []string{"@" + since, "a"},
			gaps:  []string{standing("2", since, GapLeased), "given back"},
		},
		{
			name: "pressure holds the page", owed: []string{"a", "b", "c"}, why: reason.QuotaExhausted,
			pages: map[string][]any{"": {page("2", "a")}, "2": {page("", "b", "c")}},
			made:  map[string]any{"b": &connector.Failure{Status: http.StatusTooManyRequests, Reason: reason.QuotaExhausted, Attempts: 1}},
			asked: []string{"@" + since, "a", "2@" + since, "b"},
			gaps:  []string{standing("2", since, GapLeased), "b quota_exhausted 429 quota_exhausted", standing("2", since, GapPending)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := &shelf{pays: true, known: map[string]KnownItem{"d": {Key: "d", Fingerprint: "f"}}}, &paper{pages: tt.pages, made: tt.made}
				for _, key := range tt.owed {
					it := KnownItem{Key: key, Fingerprint: "f", Owed: true}
					if tt.changed {
						it.Fingerprint = "g"
					}
					s.known[key] = it
				}
				stream := connector.Stream{Name: "docs", DetailStream: "messages", Incremental: true, Ascending: tt.strict && !tt.anyhow, Inclusive: tt.strict}
				r := walker(t, s, p, stream)
				r.live.width.set, r.started = 1, time.Now()
				if tt.stopped {
					stop := make(chan struct{})
					r.o.Stop, p.onWrite = stop, func() { close(stop) }
				}
				g := Gap{ID: 9, GapKey: GapKey{Stream: "messages"}, Connection: "bench", Parent: "docs", Backlog: true, Since: since, Cursor: tt.cursor, Status: GapLeased, Attempts: 7}
				end := r.recoverBacklog(t.Context(), stream, g)
				why := reason.None
				if end != nil {
					why = end.why
				}
				if why != tt.why {
					t.Errorf("it ended with %q, want %q", why, tt.why)
				}
				asked := slices.DeleteFunc(p.log, func(what string) bool { return strings.HasPrefix(what, "write") || what == "sync" })
				if !slices.Equal(asked, tt.asked) {
					t.Errorf("asked for %q, want %q", asked, tt.asked)
				}
				var gaps []string
				for _, c := range s.commits {
					for _, g := range c.Opened {
						switch {
						case g.Backlog && g.Attempts == 0:
							gaps = append(gaps, standing(g.Cursor, g.Since, g.Status))
						case !g.Backlog:
							gaps = append(gaps, fmt.Sprint(g.Key, " ", g.Reason, " ", g.LastError))
						}
					}
					if slices.Contains(c.Recovered, g.GapKey) {
						gaps = append(gaps, "closed")
					}
					if slices.Contains(c.Returned, g.GapKey) {
						gaps = append(gaps, "given back")
					}
				}
				if !slices.Equal(gaps, tt.gaps) {
					t.Errorf("committed %q, want %q", gaps, tt.gaps)
				}
				if left, _ := s.Owed(t.Context(), "bench", "docs", 9); tt.why == reason.None && len(left) > 0 {
					t.Errorf("%q are owed in no gap", left)
				}
			})
		})
	}
}

// slow is a network error that is a timeout.
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

func TestRecoveryEndsWithTheRightReason(t *testing.T) {
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
