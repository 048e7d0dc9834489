package collect_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

func isDetail(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/docs/") }

func TestARunCollectsEverythingOnceAndTheNextOnlyWhatIsNew(t *testing.T) {
	b := newBench(t, 8)
	s := b.drained(t)
	b.complete(t)
	if s.Records != 8+16 || s.Details != 8 || s.Pages != 4 || len(b.lines(t, "docs")) != 8 {
		t.Fatalf("got %+v", s.Progress)
	}
	b.requests = nil
	if s = b.drained(t); s.Attempts != 1 || s.Records != 0 || s.Unchanged != 1 {
		t.Fatalf("nothing new: %+v, requests %q", s.Progress, b.requests)
	}
	if want := "/docs?cursor=&since=2024-01-01T00%3A00%3A07Z"; b.requests[0] != want {
		t.Fatalf("the steady walk asked for %s, want %s", b.requests[0], want)
	}
	// One new doc, and one old one with one more message.
	b.docs = append(b.docs, doc{ID: "new", Updated: "2024-01-02T00:00:00Z", Messages: []string{"x"}})
	b.docs[2].Updated = "2024-01-02T00:00:01Z"
	b.docs[2].Messages = append(b.docs[2].Messages, "one more")
	if s = b.drained(t); s.Details != 2 || s.Records != 2+2 {
		t.Fatalf("got %+v", s.Progress)
	}
	b.complete(t)
}

func TestAFailedDetailBecomesAGapAndIsRecovered(t *testing.T) {
	b := newBench(t, 5)
	b.o.Retry.Attempts = 2
	broken := true
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return broken && r.URL.Path == "/docs/d01" && fail(w, http.StatusInternalServerError)
	}
	s, err := b.run(t)
	if err != nil || s.State != collect.RunDeferred || s.Reason != reason.ServerError || s.Owed["server_error"] != 1 {
		t.Fatalf("got %+v, %v", s, err)
	}
	gaps := b.gaps(t, collect.GapPending)
	if len(gaps) != 1 {
		t.Fatalf("gaps %+v, want one", gaps)
	}
	g := gaps[0]
	// Two requests in the walk and two in the recovery count as one try.
	if g.Stream != "messages" || g.Parent != "docs" || g.Key != "d01" || g.Attempts != 1 || g.LastError != "500 server_error" {
		t.Fatalf("got %+v", g)
	}
	if wait := g.RetryAt.Sub(g.LastSeen); wait != time.Minute || !s.RetryAt.Equal(g.RetryAt) {
		t.Fatalf("the gap waits %v, and the run says %v; want a minute", wait, s.RetryAt)
	}
	broken = false
	b.retry(t)
	s = b.drained(t)
	if s.GapsRecovered != 1 || len(b.gaps(t, collect.GapPending)) != 0 || len(b.gaps(t, collect.GapRecovered)) != 1 {
		t.Fatalf("got %+v", s.Progress)
	}
	b.complete(t)
}

func TestMaxRequestsDefersWithACapAndTheRestFollows(t *testing.T) {
	b := newBench(t, 8)
	b.o.MaxRequests = 3 // a list and two of its three details
	s, err := b.run(t)
	if err != nil || s.State != collect.RunDeferred || s.Reason != reason.MaxRequests.Reason() || s.Attempts != 3 || len(b.requests) != 3 {
		t.Fatalf("got %+v, %v after %q", s, err, b.requests)
	}
	gaps := b.gaps(t, collect.GapPending)
	if len(gaps) != 1 || gaps[0].Reason != reason.MaxRequests.Reason() || gaps[0].Attempts != 0 {
		t.Fatalf("gaps %+v", gaps)
	}
	for range 6 {
		if s, err = b.run(t); err != nil {
			t.Fatal(err)
		}
		if s.State == collect.RunDrained {
			b.complete(t)
			return
		}
	}
	t.Fatalf("still %s (%s)", s.State, s.Reason)
}

func TestMaxWallClockNeverCutsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 6)
		b.o.MaxWallClock = 5 * time.Second
		b.overrule = func(n int, r *http.Request, _ http.ResponseWriter) bool {
			if n == 3 {
				time.Sleep(10 * time.Second) // the provider is slow, past the deadline
				if r.Context().Err() != nil {
					t.Error("the attempt under way was cut")
				}
			}
			return false
		}
		s, err := b.run(t)
		if err != nil || s.State != collect.RunDeferred || s.Reason != reason.MaxWallClock.Reason() || len(b.requests) != 3 || s.Details != 2 {
			t.Fatalf("got %+v, %v after %q", s, err, b.requests)
		}
		b.o.MaxWallClock = 0
		b.drained(t)
		b.complete(t)
	})
}

func TestARefusedCredentialEndsTheRunForGood(t *testing.T) {
	b := newBench(t, 6)
	b.overrule = func(n int, _ *http.Request, w http.ResponseWriter) bool {
		return n >= 3 && fail(w, http.StatusUnauthorized)
	}
	s, err := b.run(t)
	if err == nil || s.State != collect.RunFailed || s.Reason != reason.Unauthorized || len(b.requests) != 6 {
		t.Fatalf("got %+v, %v after %q", s, err, b.requests)
	}
	if len(b.gaps(t, collect.GapPending)) != 2 {
		t.Fatalf("gaps %+v, want the details that were not fetched", b.gaps(t, collect.GapPending))
	}
	b.overrule = nil
	b.retry(t)
	b.drained(t)
	b.complete(t)
}

func TestAListThatFailsKeepsItsCursor(t *testing.T) {
	b := newBench(t, 9)
	b.o.Retry.Attempts = 1
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return r.URL.Query().Get("cursor") == "after-3" && fail(w, http.StatusBadGateway)
	}
	s, err := b.run(t)
	if err != nil || s.State != collect.RunDeferred || s.Reason != reason.ServerError {
		t.Fatalf("got %+v, %v", s, err)
	}
	b.overrule, b.requests = nil, nil
	b.drained(t)
	if b.requests[0] != "/docs?cursor=after-3&since=" {
		t.Fatalf("it went on with %s", b.requests[0])
	}
	b.complete(t)
}

func TestACursorThatExpiredRestartsTheWalk(t *testing.T) {
	b := newBench(t, 9)
	b.o.MaxRequests = 5
	if _, err := b.run(t); err != nil {
		t.Fatal(err)
	}
	b.o.MaxRequests = 0
	once := true
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		if once && r.URL.Query().Get("cursor") != "" {
			once = false
			return fail(w, http.StatusGone)
		}
		return false
	}
	s := b.drained(t)
	b.complete(t)
	if once || s.Unchanged == 0 {
		t.Fatalf("it did not start over with what it knew: %+v", s.Progress)
	}
}

func TestACursorThatRepeatsIsAnErrorAndKeepsWhatCame(t *testing.T) {
	b := newBench(t, 3)
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		if isDetail(r) {
			return false
		}
		_, _ = w.Write([]byte(`{"items":[{"id":"d00","updated":"2024-01-01T00:00:00Z"}],"next":"same"}`))
		return true
	}
	s, err := b.run(t)
	if err == nil || s.State != collect.RunFailed || s.Reason != reason.CursorRepeats || !strings.Contains(err.Error(), "docs") {
		t.Fatalf("got %+v, %v", s, err)
	}
	if got := b.lines(t, "messages"); len(got) != 2 || len(b.requests) > 5 {
		t.Fatalf("%d messages after %q", len(got), b.requests)
	}
}

func TestAnOpenCircuitIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 12)
		b.o.Retry.Attempts = 1
		b.o.Pacing.Breaker.OpenFor = 50 * time.Millisecond
		b.overrule = func(n int, r *http.Request, w http.ResponseWriter) bool {
			return n > 4 && n < 12 && isDetail(r) && fail(w, http.StatusInternalServerError)
		}
		s := b.drained(t)
		b.complete(t)
		events, err := b.store.Events(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		var moves []string
		for _, e := range events {
			if e.Type == event.Circuit {
				moves = append(moves, e.Circuit.State)
				if e.Circuit.Requests == 0 || e.Circuit.Trigger == "" {
					t.Errorf("a transition without its counters: %+v", e.Circuit)
				}
			}
		}
		if len(moves) < 3 || moves[0] != "open" || moves[1] != "half_open" || moves[len(moves)-1] != "closed" {
			t.Fatalf("moves %v", moves)
		}
	})
}

func TestWorkersWaitOneCircuitOutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 40)
		b.pageSize, b.o.Concurrency, b.o.Retry.Attempts = 20, 4, 1
		b.o.Pacing.Breaker.OpenFor = 40 * time.Millisecond
		probes := 0
		b.overrule = func(n int, r *http.Request, w http.ResponseWriter) bool {
			// Five to eight openings, by how many are under way when it opens first:
			// with four workers that is two dozen waits and more.
			if n <= 4 || !isDetail(r) || probes >= 11 {
				return false
			}
			probes++
			return fail(w, http.StatusInternalServerError)
		}
		b.drained(t)
		b.complete(t)
	})
}

func TestAnOutageLongerThanTheRunIsACapAndNoPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 9)
		b.o.Pacing.Law = "aimd"            // it does not stop before the circuit opens
		b.o.MaxWallClock = 2 * time.Second // the circuit stays open for a minute
		down := true
		b.overrule = func(n int, _ *http.Request, w http.ResponseWriter) bool {
			return down && n > 2 && fail(w, http.StatusServiceUnavailable)
		}
		b.o.Pacing.Initial, b.o.Pacing.Step = time.Microsecond, time.Microsecond
		s, err := b.run(t)
		if err != nil || s.State != collect.RunDeferred || s.Reason != reason.MaxWallClock.Reason() || s.Cooldown.Cycles != 0 || !s.Cooldown.Until.IsZero() {
			t.Fatalf("got %s (%s), %+v, %v", s.State, s.Reason, s.Cooldown, err)
		}
		down, b.o.MaxWallClock = false, 0
		b.drained(t)
		b.complete(t)
	})
}

func TestASecondRunYieldsAndNamesTheHolder(t *testing.T) {
	b := newBench(t, 3)
	b.o.Holder = "the first"
	hold, release := b.hold(t)
	first := make(chan error)
	go func() {
		_, err := b.run(t)
		first <- err
	}()
	<-hold
	second := *b
	second.o.Holder = "the second"
	_, err := second.run(t)
	held, ok := errors.AsType[*collect.HeldError](err)
	if !ok || held.Holder != "the first" || held.Connection != "bench" {
		t.Errorf("got %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	b.complete(t)
}

func TestAHolderThatLostItsLeaseCannotCommit(t *testing.T) {
	b := newBench(t, 3)
	var thief collect.Lease
	b.overrule = func(n int, _ *http.Request, _ http.ResponseWriter) bool {
		if n == 2 { // while it fetches a detail, its lease expires and is taken
			var err error
			thief, err = b.store.Acquire(context.Background(), collect.LeaseRequest{
				Connection: "bench", Run: "thief", Holder: "thief", Now: time.Now().Add(time.Hour), TTL: time.Hour,
			})
			if err != nil {
				t.Error(err)
			}
		}
		return false
	}
	s, err := b.run(t)
	if !errors.Is(err, collect.ErrLeaseLost) || s.Reason != reason.LeaseLost {
		t.Fatalf("got %+v, %v", s, err)
	}
	state, err := b.store.Load(t.Context(), "bench")
	if err != nil || len(state.Lanes) != 0 {
		t.Fatalf("the stale holder moved a cursor: %+v, %v", state, err)
	}
	if err := b.store.Commit(t.Context(), thief, collect.Commit{At: time.Now()}); err != nil {
		t.Fatalf("the new holder cannot commit: %v", err)
	}
}

func TestStopFinishesTheSliceAndCancelDropsIt(t *testing.T) {
	for _, graceful := range []bool{true, false} {
		b := newBench(t, 9)
		stop := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		b.o.Stop = stop
		b.overrule = func(n int, _ *http.Request, _ http.ResponseWriter) bool {
			if n == 2 {
				if graceful {
					close(stop)
				} else {
					cancel()
				}
			}
			return false
		}
		b.o.Sink = newSink(b)
		c, err := collect.New(b.o)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Run(ctx)
		if err != nil || s.State != collect.RunDeferred || s.Reason != reason.Interrupted {
			t.Fatalf("graceful %v: got %+v, %v", graceful, s, err)
		}
		if want := map[bool]int64{true: 1, false: 0}[graceful]; s.Pages != want {
			t.Fatalf("graceful %v: %d pages committed, want %d", graceful, s.Pages, want)
		}
		b.o.Stop, b.overrule = nil, nil
		b.drained(t)
		b.complete(t)
		cancel()
	}
}

func TestWarmStart(t *testing.T) {
	b := newBench(t, 4)
	b.o.Pacing.Law = "aimd"
	b.o.Pacing.Initial, b.o.Pacing.Ceiling, b.o.Pacing.Step = 20*time.Millisecond, 5*time.Millisecond, 5*time.Millisecond
	if s := b.drained(t); s.WarmStart {
		t.Fatal("a first run was warm")
	}
	state, err := b.store.Load(t.Context(), "bench")
	if err != nil || state.Pacing == nil || state.Pacing.IntervalMS != 5 || state.Pacing.Law != "aimd" || time.Since(state.Pacing.RecordedAt) > time.Minute {
		t.Fatalf("stored %+v, %v", state.Pacing, err)
	}
	// The aimd law starts at the interval with which it ended.
	b.o.Pacing.Ceiling = 2 * time.Millisecond
	began := 0.0
	b.o.OnEvent = func(e event.Event) {
		if e.Rate != nil && began == 0 {
			began = e.Rate.CurrentIntervalMS
		}
	}
	if b.drained(t); began < 2 || began > 5 {
		t.Fatalf("it began with %v ms between requests", began)
	}
	b.o.OnEvent = nil
	b.o.Pacing.Ceiling = 10 * time.Millisecond // the owner has changed it since: it bounds the restored interval
	s := b.drained(t)
	if !s.WarmStart || s.Rate.CurrentIntervalMS != 10 {
		t.Fatalf("got %+v", s)
	}
	// Too old, from the future, of another law: reported, and not used.
	for _, tt := range []struct {
		at        time.Time
		law, note string
	}{
		{time.Now().Add(-7 * time.Hour), "aimd", "discarded_stale_or_undated"},
		{time.Now().Add(time.Hour), "aimd", "discarded_stale_or_undated"},
		{time.Now().Add(-time.Hour), "envelope", "discarded_unreadable"},
	} {
		at := tt.at
		l, err := b.store.Acquire(t.Context(), collect.LeaseRequest{Connection: "bench", Run: at.String(), Now: time.Now(), TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		p := *state.Pacing
		p.RecordedAt, p.Law = at, tt.law
		if err := b.store.Finish(t.Context(), l, collect.RunEnd{At: time.Now(), State: collect.RunDrained, Pacing: &p}); err != nil {
			t.Fatal(err)
		}
		s := b.drained(t)
		events, err := b.store.Events(t.Context(), s.ID)
		if err != nil || s.WarmStart || !slices.ContainsFunc(events, func(e event.Event) bool { return e.Note == tt.note }) {
			t.Fatalf("a state of law %s at %v: %+v, %v", tt.law, at, events, err)
		}
	}
}

func TestFreshStartsOverAndDeletesNothing(t *testing.T) {
	b := newBench(t, 4)
	b.drained(t)
	b.o.Fresh = true
	if s := b.drained(t); s.Details != 4 {
		t.Fatalf("got %+v", s.Progress)
	}
	b.complete(t)
	if len(aside(t, b)) != 2 {
		t.Fatalf("set aside: %v", aside(t, b))
	}
}

func TestABoundedCatchupDoesNotKeepTheSteadyStateWaiting(t *testing.T) {
	b := newBench(t, 12)
	b.o.CatchupPages = 2
	s, err := b.run(t)
	if err != nil || s.State != collect.RunDeferred || s.Reason != reason.MaxCatchup.Reason() || !s.Cooldown.Until.IsZero() {
		t.Fatalf("got %s (%s), %v", s.State, s.Reason, err)
	}
	catchup, steady := b.lanes(t)
	if catchup.Done || catchup.Cursor != "after-6" || !steady.Done {
		t.Fatalf("catch-up %+v, steady %+v", catchup, steady)
	}
	// Something changes now: the next run collects it, though the catch-up is not done.
	now := time.Now().UTC().Add(time.Hour).Format(time.RFC3339)
	b.docs = append(b.docs, doc{ID: "new", Updated: now, Messages: []string{"fresh"}})
	if _, err := b.run(t); err != nil {
		t.Fatal(err)
	}
	if catchup, _ = b.lanes(t); catchup.Done || b.served["new"] != 1 || b.served["d11"] != 0 && catchup.Pages < 4 {
		t.Fatalf("catch-up %+v, served %v", catchup, b.served)
	}
	watermark := steady.Watermark
	b.o.CatchupPages = 0
	b.drained(t)
	b.complete(t)
	if catchup, steady = b.lanes(t); !catchup.Done || steady.Watermark < watermark || b.served["new"] != 1 {
		t.Fatalf("catch-up %+v, steady %+v, served %v", catchup, steady, b.served)
	}
}

func TestConcurrentDetailsKeepTheBound(t *testing.T) {
	b := newBench(t, 30)
	b.pageSize, b.o.Concurrency = 10, 4
	b.drained(t)
	b.complete(t)
	for id, n := range b.served {
		if n != 1 {
			t.Errorf("%s was served %d times", id, n)
		}
	}
}

func TestOptionsNameWhatIsWrong(t *testing.T) {
	b := newBench(t, 1)
	b.o.Sink = newSink(b)
	for want, change := range map[string]func(*collect.Options){
		"no name":                        func(o *collect.Options) { o.Connection = "" },
		"no connector":                   func(o *collect.Options) { o.Connector = nil },
		"no store":                       func(o *collect.Options) { o.Store = nil },
		"no sink":                        func(o *collect.Options) { o.Sink = nil },
		"max requests is -1":             func(o *collect.Options) { o.MaxRequests = -1 },
		"max wall clock is -1ns":         func(o *collect.Options) { o.MaxWallClock = -1 },
		"concurrency is 2000":            func(o *collect.Options) { o.Concurrency = 2000 },
		`two streams are named "docs"`:   func(o *collect.Options) { o.Connector = twins{} },
		"the connector has no streams":   func(o *collect.Options) { o.Connector = none{} },
		"lease TTL is -1ns":              func(o *collect.Options) { o.LeaseTTL = -1 },
		"max body is -1 bytes":           func(o *collect.Options) { o.MaxBody = -1 },
		"timeout is -1ns, must not be n": func(o *collect.Options) { o.Timeout = -1 },
	} {
		o := b.o
		change(&o)
		if _, err := collect.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

type twins struct{ client }

func (twins) Streams() []connector.Stream {
	return []connector.Stream{{Name: "docs"}, {Name: "other", DetailStream: "docs"}}
}

type none struct{ client }

func (none) Streams() []connector.Stream { return nil }
