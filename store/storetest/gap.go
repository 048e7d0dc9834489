package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// gap is an owed detail with everything but instants.
func gap(stream, key string) collect.Gap {
	return collect.Gap{
		GapKey: collect.GapKey{Stream: stream, Key: key}, Parent: "parent", Locator: []byte(`{"id":"` + key + `"}`),
		Reason: reason.RateLimited.Reason(), Attempts: 1, LastError: "429 rate_limited",
	}
}

func oneGap(t *testing.T, s collect.Store) collect.Gap {
	t.Helper()
	gaps := must(s.Gaps(t.Context(), collect.GapFilter{}))(t)
	if len(gaps) != 1 {
		t.Fatalf("%d gaps, want 1", len(gaps))
	}
	return gaps[0]
}

func gapFields(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at)
	want := gap("d", "k")
	want.FirstSeen, want.LastSeen, want.RetryAt = at.Add(-time.Hour), at.Add(-time.Minute), at.Add(time.Hour)
	commit(t, s, l, collect.Commit{At: at, Opened: []collect.Gap{want}})
	got := oneGap(t, s)
	if got.ID <= 0 {
		t.Errorf("id %d, want above 0", got.ID)
	}
	want.ID, want.Connection, want.Status = got.ID, "c", collect.GapPending
	same(t, "gap", want, got)

	commit(t, s, l, collect.Commit{At: at, Recovered: []collect.GapKey{want.GapKey}})
	commit(t, s, l, collect.Commit{At: at, Opened: []collect.Gap{{GapKey: collect.GapKey{Stream: "d", Key: "bare"}}}})
	bare := must(s.Gaps(t.Context(), collect.GapFilter{Status: collect.GapPending}))(t)[0]
	same(t, "instants that were not given", [2]time.Time{at, at}, [2]time.Time{bare.FirstSeen, bare.LastSeen})
}

func gapReopens(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at)
	first := gap("d", "k")
	first.RetryAt, first.Attempts = at.Add(time.Hour), 3
	commit(t, s, l, collect.Commit{At: at, Opened: []collect.Gap{first}})
	id := oneGap(t, s).ID

	again := collect.Gap{
		GapKey: first.GapKey, Parent: "parent 2", Locator: []byte("new"), Reason: reason.ServerError, Attempts: 2,
		LastError: "500 server_error",
	}
	commit(t, s, l, collect.Commit{At: at.Add(time.Minute), Opened: []collect.Gap{again}})
	want := again
	want.ID, want.Connection, want.Status, want.Attempts = id, "c", collect.GapPending, 5
	want.FirstSeen, want.LastSeen = at, at.Add(time.Minute)
	same(t, "gap", want, oneGap(t, s))

	// What an operator's retry gives: no locator of its own, attempts taken back.
	commit(t, s, l, collect.Commit{At: at.Add(time.Minute), Opened: []collect.Gap{{
		GapKey: first.GapKey, Reason: reason.ServerError, Attempts: -5, LastError: "500 server_error",
	}}})
	want.Attempts = 0
	same(t, "gap for retry", want, oneGap(t, s))
	commit(t, s, l, collect.Commit{At: at.Add(time.Minute), Opened: []collect.Gap{{
		GapKey: first.GapKey, Reason: reason.ServerError, Attempts: -5, LastError: "500 server_error",
	}}})
	same(t, "attempts are never negative", want, oneGap(t, s))
}

func recoveredReopens(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at)
	g := gap("d", "k")
	g.Attempts = 7
	commit(t, s, l, collect.Commit{At: at, Opened: []collect.Gap{g}})
	commit(t, s, l, collect.Commit{At: at.Add(time.Minute), Recovered: []collect.GapKey{g.GapKey, {Stream: "d", Key: "never"}}})
	got := oneGap(t, s)
	if got.Status != collect.GapRecovered || got.Attempts != 7 || !got.RetryAt.IsZero() {
		t.Errorf("gap %+v, want recovered with its 7 attempts", got)
	}
	later := at.Add(24 * time.Hour)
	g.Attempts = 1
	commit(t, s, l, collect.Commit{At: later, Opened: []collect.Gap{g}})
	got = oneGap(t, s)
	if got.Status != collect.GapPending || got.Attempts != 1 || got.FirstSeen.Sub(later).Abs() > time.Millisecond {
		t.Errorf("gap %+v, want pending with 1 attempt, first seen at the second opening", got)
	}
	same(t, "locator", g.Locator, got.Locator)
}

func recoveredAndOpened(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	g := gap("d", "k")
	commit(t, s, l, collect.Commit{Opened: []collect.Gap{g}})
	commit(t, s, l, collect.Commit{Opened: []collect.Gap{g}, Recovered: []collect.GapKey{g.GapKey}})
	if got := oneGap(t, s); got.Status != collect.GapPending {
		t.Errorf("status %s, want pending", got.Status)
	}
}

func gapStatus(t *testing.T, s collect.Store) {
	l := acquire(t, s, "c", "r1", now())
	for _, status := range []collect.GapStatus{
		collect.GapLeased, collect.GapTerminal, collect.GapPending, collect.GapTerminal, "", collect.GapRecovered, "",
	} {
		g := gap("d", "k")
		g.Status = status
		commit(t, s, l, collect.Commit{Opened: []collect.Gap{g}})
		want := status
		if want == "" {
			want = collect.GapPending
		}
		if got := oneGap(t, s).Status; got != want {
			t.Errorf("opened as %q: status %s, want %s", status, got, want)
		}
	}
}

func gapListing(t *testing.T, s collect.Store) {
	a, b := acquire(t, s, "a", "ra", now()), acquire(t, s, "b", "rb", now())
	for i := range 10 {
		g := gap([]string{"d", "e"}[i%2], fmt.Sprintf("k%d", i))
		if i >= 5 {
			g.Reason = reason.ServerError
		}
		if i == 9 {
			g.Status = collect.GapTerminal
		}
		commit(t, s, a, collect.Commit{Opened: []collect.Gap{g}})
		commit(t, s, b, collect.Commit{Opened: []collect.Gap{gap("d", fmt.Sprintf("k%d", i))}})
	}
	commit(t, s, a, collect.Commit{Opened: []collect.Gap{gap("d", "k0")}}) // seen again, not younger

	all := must(s.Gaps(t.Context(), collect.GapFilter{Connection: "a"}))(t)
	keys := func(list []collect.Gap) (keys []string) {
		for _, g := range list {
			keys = append(keys, g.Key)
		}
		return keys
	}
	same(t, "all of a, oldest first", []string{"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9"}, keys(all))
	for _, c := range []struct {
		filter collect.GapFilter
		want   []string
	}{
		{collect.GapFilter{Connection: "a", Stream: "e"}, []string{"k1", "k3", "k5", "k7", "k9"}},
		{collect.GapFilter{Connection: "a", Reason: reason.ServerError}, []string{"k5", "k6", "k7", "k8", "k9"}},
		{collect.GapFilter{Connection: "a", Status: collect.GapTerminal}, []string{"k9"}},
		{collect.GapFilter{Connection: "a", Stream: "d", Reason: reason.ServerError, Status: collect.GapPending}, []string{"k6", "k8"}},
		{collect.GapFilter{Connection: "a", Stream: "d", AfterID: all[4].ID, Limit: 1}, []string{"k6"}},
		{collect.GapFilter{Connection: "none"}, nil},
		{collect.GapFilter{Status: collect.GapRecovered}, nil},
	} {
		same(t, fmt.Sprintf("gaps of %+v", c.filter), c.want, keys(must(s.Gaps(t.Context(), c.filter))(t)))
	}
	if n := len(must(s.Gaps(t.Context(), collect.GapFilter{}))(t)); n != 20 {
		t.Errorf("%d gaps of all connections, want 20", n)
	}
	var paged []string
	for f := (collect.GapFilter{Connection: "a", Limit: 3}); ; {
		page := must(s.Gaps(t.Context(), f))(t)
		if len(page) == 0 {
			break
		}
		paged, f.AfterID = append(paged, keys(page)...), page[len(page)-1].ID
	}
	same(t, "paged", keys(all), paged)
}
