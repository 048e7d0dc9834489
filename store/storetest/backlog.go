package storetest

import (
	"testing"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

func owedItems(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	commit(t, s, l, collect.Commit{Stream: "x", Items: []collect.KnownItem{
		{Key: "b", Owed: true}, {Key: "a", Owed: true}, {Key: "c"}, {Key: "d", Owed: true},
	}})
	commit(t, s, l, collect.Commit{Stream: "y", Items: []collect.KnownItem{{Key: "other", Owed: true}}})
	same(t, "all", []string{"a", "b", "d"}, must(s.Owed(t.Context(), "c", "x", 0))(t))
	same(t, "at most two", []string{"a", "b"}, must(s.Owed(t.Context(), "c", "x", 2))(t))
	commit(t, s, l, collect.Commit{Stream: "x", Items: []collect.KnownItem{{Key: "a"}, {Key: "c", Owed: true}}})
	same(t, "after a change", []string{"b", "c", "d"}, must(s.Owed(t.Context(), "c", "x", 0))(t))
	same(t, "of a stream never seen", []string(nil), must(s.Owed(t.Context(), "c", "z", 0))(t))
	same(t, "of a connection never seen", []string(nil), must(s.Owed(t.Context(), "z", "x", 0))(t))
	if err := s.Forget(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	same(t, "forgotten", []string(nil), must(s.Owed(t.Context(), "c", "x", 0))(t))
}

func backlogCounts(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	g := collect.Gap{
		GapKey: collect.GapKey{Stream: "d"}, Parent: "x", Backlog: true, Since: "5", Cursor: "p2", Reason: reason.CircuitOpen.Reason(),
	}
	owing := func(n int) []collect.KnownItem {
		list := items(0, 7)
		for i := range list {
			list[i].Owed = i < n
		}
		return list
	}
	commit(t, s, l, collect.Commit{Stream: "x", Items: owing(5), Opened: []collect.Gap{g, gap("d", "k")}})
	backlog := func() collect.Gap {
		t.Helper()
		list := must(s.Gaps(t.Context(), collect.GapFilter{Connection: "c", Stream: "d", Backlog: true}))(t)
		if len(list) != 1 {
			t.Fatalf("%d backlog gaps, want 1", len(list))
		}
		return list[0]
	}
	owed := func(want map[string]int64, terminal int64) {
		t.Helper()
		status := must(s.Connections(t.Context()))(t)[0]
		same(t, "owed", want, status.Owed)
		same(t, "quarantined", terminal, status.Quarantined)
	}
	if got := backlog(); got.Since != "5" || got.Cursor != "p2" || got.Items != 5 {
		t.Errorf("backlog %+v, want 5 items since 5 from page p2", got)
	}
	owed(map[string]int64{"circuit_open": 5, "rate_limited": 1}, 0)

	// Whoever opens it again decides where it begins.
	for _, since := range []string{"9", "", "2"} {
		g.Since, g.Cursor = since, ""
		commit(t, s, l, collect.Commit{Opened: []collect.Gap{g}})
		if got := backlog(); got.Since != since || got.Cursor != "" {
			t.Errorf("backlog %+v, want it since %q from its first page", got, since)
		}
	}
	commit(t, s, l, collect.Commit{Stream: "x", Items: owing(2)})
	served := must(s.Serve(t.Context(), l, collect.ServeRequest{Now: now(), Before: now(), MaxBytes: 1 << 20, MaxRows: 9}))(t)
	for _, got := range served {
		if want := map[bool]int64{true: 2}[got.Backlog]; got.Items != want {
			t.Errorf("served %+v, want %d items", got, want)
		}
	}
	owed(map[string]int64{"circuit_open": 2, "rate_limited": 1}, 0)
	g.Status = collect.GapTerminal
	commit(t, s, l, collect.Commit{Opened: []collect.Gap{g}})
	owed(map[string]int64{"rate_limited": 1}, 2)
	g.Status = collect.GapPending
	commit(t, s, l, collect.Commit{Stream: "x", Items: owing(0), Opened: []collect.Gap{g}})
	owed(map[string]int64{"rate_limited": 1}, 0)
}
