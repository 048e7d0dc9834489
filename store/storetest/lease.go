package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

func acquireIsExclusive(t *testing.T, s collect.Store) {
	at := now()
	acquire(t, s, "c", "r1", at)
	_, err := s.Acquire(t.Context(), request("c", "r2", at.Add(ttl-time.Second)))
	if _, ok := errors.AsType[*collect.HeldError](err); !ok {
		t.Fatalf("a second holder got %v, want *collect.HeldError", err)
	}
	if runs := must(s.Runs(t.Context(), "c", 0))(t); len(runs) != 1 {
		t.Error("an acquire that was refused left a run on record")
	}
}

func heldNamesHolder(t *testing.T, s collect.Store) {
	at := now()
	acquire(t, s, "c", "r1", at)
	_, err := s.Acquire(t.Context(), request("c", "r2", at))
	held, ok := errors.AsType[*collect.HeldError](err)
	if !ok {
		t.Fatalf("got %v, want *collect.HeldError", err)
	}
	same(t, "held", &collect.HeldError{Connection: "c", Holder: "host-r1", Run: "r1", Since: at, Expires: at.Add(ttl)}, held)
}

func acquireRefusesUsedRun(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at)
	if _, err := s.Acquire(t.Context(), request("other", "r1", at)); err == nil {
		t.Error("a run id that is on record was taken a second time")
	}
	if err := s.Renew(t.Context(), l, at, ttl); err != nil {
		t.Errorf("the first holder of the run id was disturbed: %v", err)
	}
	acquire(t, s, "other", "r2", at) // the refused acquire holds nothing
}

func acquireRefusesIncomplete(t *testing.T, s collect.Store) {
	for name, req := range map[string]collect.LeaseRequest{
		"no connection": {Run: "r", Now: now(), TTL: ttl},
		"no run":        {Connection: "c", Now: now(), TTL: ttl},
		"no time":       {Connection: "c", Run: "r", Now: now()},
	} {
		if _, err := s.Acquire(t.Context(), req); err == nil {
			t.Errorf("%s: got a lease, want an error", name)
		}
	}
}

func concurrentAcquires(t *testing.T, s collect.Store) {
	const n = 16
	at := now()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, errs[i] = s.Acquire(t.Context(), request("c", fmt.Sprintf("r%d", i), at))
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if _, ok := errors.AsType[*collect.HeldError](err); !ok {
			t.Errorf("a loser got %v, want *collect.HeldError", err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d concurrent acquires won, want 1", won, n)
	}
}

func connectionsAreApart(t *testing.T, s collect.Store) {
	at := now()
	a, b := acquire(t, s, "a", "ra", at), acquire(t, s, "b", "rb", at)
	commit(t, s, a, collect.Commit{Stream: "x", Items: items(0, 1), Sink: position(1)})
	commit(t, s, b, collect.Commit{Lane: &collect.Lane{Stream: "x", Kind: collect.Steady}})
	got := must(s.Load(t.Context(), "b"))(t)
	same(t, "state of b", collect.State{Lanes: []collect.Lane{{Stream: "x", Kind: collect.Steady}}}, got)
	if known := must(s.Known(t.Context(), "b", "x", []string{"k000000"}))(t); len(known) != 0 {
		t.Errorf("b knows %v of a", known)
	}
	mixed := collect.Lease{Connection: "b", Run: a.Run, Token: a.Token}
	lost(t, "Renew", s.Renew(t.Context(), mixed, at, ttl))
}

func takeover(t *testing.T, s collect.Store) {
	at := now()
	old := acquire(t, s, "c", "r1", at.Add(-ttl))
	next := acquire(t, s, "c", "r2", at) // exactly at the expiry
	if next.Token <= old.Token {
		t.Errorf("token %d after %d, want it to rise", next.Token, old.Token)
	}
	runs := must(s.Runs(t.Context(), "c", 0))(t)
	if len(runs) != 2 || runs[1].State != collect.RunAbandoned || runs[0].State != collect.RunRunning {
		t.Fatalf("runs %+v, want r2 running and r1 abandoned", runs)
	}
	if runs[1].Ended.IsZero() {
		t.Error("the abandoned run has no end")
	}
	if err := s.Finish(t.Context(), next, collect.RunEnd{At: at, State: collect.RunDrained}); err != nil {
		t.Fatal(err)
	}
	if runs = must(s.Runs(t.Context(), "c", 0))(t); runs[1].State != collect.RunAbandoned {
		t.Errorf("after the next run ended, the old one is %s, want abandoned for good", runs[1].State)
	}
}

func lateHolder(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at.Add(-2*ttl))
	commit(t, s, l, collect.Commit{Sink: position(1)})
	if err := s.Renew(t.Context(), l, at, ttl); err != nil {
		t.Fatalf("a late renewal of a lease that nobody took: %v", err)
	}
	if _, err := s.Acquire(t.Context(), request("c", "r2", at)); err == nil {
		t.Error("the renewed lease did not hold")
	}
}

func renewExtends(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at)
	if err := s.Renew(t.Context(), l, at.Add(ttl/2), ttl); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), request("c", "r2", at.Add(ttl))); err == nil {
		t.Error("the lease was taken although it was renewed")
	}
	acquire(t, s, "c", "r3", at.Add(ttl/2+ttl))
}

// staleToken tries every write with leases that are not the current one.
func staleToken(t *testing.T, s collect.Store) {
	at := now()
	old := acquire(t, s, "c", "r1", at.Add(-ttl))
	commit(t, s, old, collect.Commit{Sink: position(1), Lane: &collect.Lane{Stream: "x", Kind: collect.Steady, Cursor: "1"}})
	current := acquire(t, s, "c", "r2", at)
	before := must(s.Load(t.Context(), "c"))(t)
	for name, l := range map[string]collect.Lease{
		"an earlier holder":      old,
		"an earlier token":       {Connection: "c", Run: current.Run, Token: old.Token},
		"another run":            {Connection: "c", Run: old.Run, Token: current.Token},
		"a later token":          {Connection: "c", Run: current.Run, Token: current.Token + 1},
		"a connection not known": {Connection: "never", Run: current.Run, Token: current.Token},
		"the zero lease":         {},
	} {
		t.Run(name, func(t *testing.T) {
			everyWriteLost(t, s, l)
		})
	}
	same(t, "state after refused writes", before, must(s.Load(t.Context(), "c"))(t))
	if gaps := must(s.Gaps(t.Context(), collect.GapFilter{}))(t); len(gaps) != 0 {
		t.Errorf("refused writes left %d gaps", len(gaps))
	}
	if err := s.Finish(t.Context(), current, collect.RunEnd{At: at, State: collect.RunDrained}); err != nil {
		t.Fatalf("the current holder: %v", err)
	}
	everyWriteLost(t, s, current) // finished
}

func everyWriteLost(t *testing.T, s collect.Store, l collect.Lease) {
	t.Helper()
	lost(t, "Commit", s.Commit(t.Context(), l, collect.Commit{
		At: now(), Lane: &collect.Lane{Stream: "x", Kind: collect.Steady, Cursor: "2"}, Stream: "x", Items: items(0, 3),
		Opened: []collect.Gap{{GapKey: collect.GapKey{Stream: "d", Key: "k"}}}, Sink: position(2),
		Events: []event.Event{{Type: event.Phase}}, Pacing: &collect.Pacing{Version: 1, Law: "aimd"},
	}))
	lost(t, "Renew", s.Renew(t.Context(), l, now(), ttl))
	lost(t, "Forget", s.Forget(t.Context(), l))
	lost(t, "Finish", s.Finish(t.Context(), l, collect.RunEnd{At: now(), State: collect.RunDrained}))
}

func tokenRises(t *testing.T, s collect.Store) {
	var last int64
	for i := range 5 {
		l := acquire(t, s, "c", fmt.Sprintf("r%d", i), now())
		if l.Token <= last {
			t.Fatalf("holder %d has token %d after %d", i, l.Token, last)
		}
		last = l.Token
		if err := s.Forget(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if err := s.Finish(t.Context(), l, collect.RunEnd{At: now(), State: collect.RunDrained}); err != nil {
			t.Fatal(err)
		}
	}
}

func finish(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at)
	pacing := &collect.Pacing{Version: 1, Law: "aimd", IntervalMS: 250.5, RecordedAt: at, State: []byte(`{"n":1}`)}
	end := collect.RunEnd{
		At: at.Add(time.Minute), State: collect.RunDeferred, Reason: reason.RateLimited.Reason(), RetryAt: at.Add(time.Hour),
		Error: "GET /x: 429 rate_limited", Progress: collect.Progress{Attempts: 9, Records: 7}, Pacing: pacing,
		Events: []event.Event{{At: at, Type: event.RunEnd}},
	}
	if err := s.Finish(t.Context(), l, end); err != nil {
		t.Fatal(err)
	}
	same(t, "runs", []collect.Run{{
		ID: "r1", Connection: "c", Holder: "host-r1", State: end.State, Reason: end.Reason, Started: at, Ended: end.At,
		RetryAt: end.RetryAt, Error: end.Error, Progress: end.Progress,
	}}, must(s.Runs(t.Context(), "c", 0))(t))
	same(t, "pacing", pacing, must(s.Load(t.Context(), "c"))(t).Pacing)
	if n := len(must(s.Events(t.Context(), "r1"))(t)); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	l = acquire(t, s, "c", "r2", at) // at once
	if err := s.Finish(t.Context(), l, collect.RunEnd{At: at, State: collect.RunFailed}); err != nil {
		t.Fatal(err)
	}
	same(t, "pacing that a run without one left", pacing, must(s.Load(t.Context(), "c"))(t).Pacing)
}

func finishRefusesRunning(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	for _, state := range []collect.RunState{"", collect.RunRunning, "sideways"} {
		if err := s.Finish(t.Context(), l, collect.RunEnd{At: now(), State: state}); err == nil {
			t.Errorf("a run ended in state %q", state)
		}
	}
	if err := s.Renew(t.Context(), l, now(), ttl); err != nil {
		t.Errorf("a refused finish took the lease: %v", err)
	}
}
