package storetest

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// serve asks for gaps and gives their keys, or ends the test.
func serve(t *testing.T, s collect.Store, l collect.Lease, ask collect.ServeRequest) (keys []string) {
	t.Helper()
	ask.MaxBytes = cmp.Or(ask.MaxBytes, 1<<20)
	ask.MaxRows = cmp.Or(ask.MaxRows, 100)
	if ask.Before.IsZero() {
		ask.Before = ask.Now.Add(time.Hour)
	}
	for _, g := range must(s.Serve(t.Context(), l, ask))(t) {
		if g.ID <= 0 || g.Connection != "c" || g.Status == collect.GapRecovered || g.Status == collect.GapTerminal {
			t.Errorf("served %+v, want a gap of c with its id that was pending", g)
		}
		keys = append(keys, g.Key)
	}
	return keys
}

// giveBack returns what was served.
func giveBack(t *testing.T, s collect.Store, l collect.Lease, keys ...string) {
	t.Helper()
	var c collect.Commit
	for _, k := range keys {
		c.Returned = append(c.Returned, collect.GapKey{Stream: "d", Key: k})
	}
	commit(t, s, l, c)
}

func serveOrder(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at)
	other := acquire(t, s, "other", "r2", at)
	commit(t, s, other, collect.Commit{At: at, Opened: []collect.Gap{gap("d", "foreign")}})
	fresh := func(key string, seen time.Time) collect.Gap {
		g := gap("d", key)
		g.Attempts, g.FirstSeen, g.LastSeen = 0, seen, seen
		return g
	}
	tried, later, terminal := gap("d", "tried"), fresh("later", at), fresh("terminal", at)
	tried.FirstSeen, tried.LastSeen = at.Add(-time.Hour), at.Add(-time.Minute)
	later.RetryAt, terminal.Status = at.Add(time.Minute), collect.GapTerminal
	commit(t, s, l, collect.Commit{At: at, Opened: []collect.Gap{
		tried, fresh("b", at.Add(-2*time.Minute)), fresh("a", at.Add(-2*time.Minute)), fresh("old", at.Add(-time.Hour)), later, terminal,
	}})
	order := []string{"old", "b", "a", "tried"}
	same(t, "served", order, serve(t, s, l, collect.ServeRequest{Now: at}))
	same(t, "served while the others are leased", []string(nil), serve(t, s, l, collect.ServeRequest{Now: at}))
	giveBack(t, s, l, order...)
	same(t, "served after they were returned", order, serve(t, s, l, collect.ServeRequest{Now: at}))
	giveBack(t, s, l, "terminal", "later", "old", "b", "a", "tried") // those that were not served stay as they are
	same(t, "served once the wait of one is over", append(order, "later"), serve(t, s, l, collect.ServeRequest{Now: at.Add(time.Minute)}))

	// An attempt goes to the back and is left out of its pass; a sighting does neither.
	again := gap("d", "old")
	again.LastSeen = at.Add(time.Minute)
	seen := fresh("b", at.Add(time.Minute))
	commit(t, s, l, collect.Commit{At: at.Add(time.Minute), Opened: []collect.Gap{again, seen}})
	giveBack(t, s, l, "a", "tried", "later")
	pass := collect.ServeRequest{Now: at.Add(time.Hour), Before: at.Add(time.Minute)}
	same(t, "served in the pass of the attempt", []string{"b", "a", "tried", "later"}, serve(t, s, l, pass))
	giveBack(t, s, l, "b", "a", "tried", "later")
	same(t, "served in the next pass", []string{"b", "a", "tried", "later", "old"}, serve(t, s, l, collect.ServeRequest{Now: at.Add(time.Hour)}))

	commit(t, s, l, collect.Commit{At: at, Recovered: []collect.GapKey{{Stream: "d", Key: "b"}, {Stream: "d", Key: "a"}}})
	if err := s.Finish(t.Context(), l, collect.RunEnd{At: at, State: collect.RunDeferred}); err != nil {
		t.Fatal(err)
	}
	l = acquire(t, s, "c", "r3", at.Add(-ttl))
	same(t, "served to the next run", []string{"tried", "later", "old"}, serve(t, s, l, collect.ServeRequest{Now: at.Add(time.Hour)}))
	l = acquire(t, s, "c", "r4", at)
	same(t, "served to who took over", []string{"tried", "later", "old"}, serve(t, s, l, collect.ServeRequest{Now: at.Add(time.Hour)}))
}

func serveBounds(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at)
	var opened []collect.Gap
	for i := range 6 {
		g := gap("d", fmt.Sprintf("k%d", i))
		g.Locator, g.FirstSeen, g.LastSeen = make([]byte, 100), at, at
		if i%2 == 1 {
			g.Reason = reason.ServerError
		}
		opened = append(opened, g)
	}
	commit(t, s, l, collect.Commit{At: at, Opened: opened})
	for _, c := range []struct {
		ask  collect.ServeRequest
		want []string
	}{
		{collect.ServeRequest{MaxRows: 2}, []string{"k0", "k1"}},
		{collect.ServeRequest{MaxBytes: 300}, []string{"k0", "k1", "k2"}},
		{collect.ServeRequest{MaxBytes: 1}, []string{"k0"}},
		{collect.ServeRequest{NoPressure: true}, []string{"k1", "k3", "k5"}},
		{collect.ServeRequest{Before: at}, nil},
		{collect.ServeRequest{Streams: []string{"x", "d"}, MaxRows: 1}, []string{"k0"}},
		{collect.ServeRequest{Streams: []string{"x"}}, nil},
		{collect.ServeRequest{Streams: []string{}}, nil},
	} {
		c.ask.Now = at
		same(t, fmt.Sprintf("served for %+v", c.ask), c.want, serve(t, s, l, c.ask))
		giveBack(t, s, l, c.want...)
	}
	for _, ask := range []collect.ServeRequest{{MaxRows: 1}, {MaxBytes: 1}} {
		if _, err := s.Serve(t.Context(), l, ask); err == nil {
			t.Errorf("Serve without a bound: no error for %+v", ask)
		}
	}
	l.Token++
	_, err := s.Serve(t.Context(), l, collect.ServeRequest{Now: at, Before: at, MaxBytes: 1, MaxRows: 1})
	lost(t, "Serve", err)
}

func operatorActs(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at)
	pending, terminal, recovered := gap("d", "p"), gap("d", "t"), gap("d", "r")
	terminal.Status, terminal.Attempts, pending.RetryAt, terminal.RetryAt = collect.GapTerminal, 8, at.Add(time.Hour), at.Add(time.Hour)
	commit(t, s, l, collect.Commit{At: at, Opened: []collect.Gap{pending, terminal, recovered}})
	commit(t, s, l, collect.Commit{At: at, Recovered: []collect.GapKey{recovered.GapKey}})
	cooldown := collect.Cooldown{Cycles: 3, Until: at.Add(time.Hour), NeedsAttention: true}
	if err := s.Finish(t.Context(), l, collect.RunEnd{At: at, State: collect.RunDeferred, Cooldown: cooldown}); err != nil {
		t.Fatal(err)
	}
	act := func(a collect.GapAction, f collect.GapFilter, ids []int64, want int64) {
		t.Helper()
		same(t, string(a), want, must(s.Act(t.Context(), a, f, ids))(t))
	}
	statuses := func(p, q collect.GapStatus, attempts int64) {
		t.Helper()
		list := must(s.Gaps(t.Context(), collect.GapFilter{}))(t)
		same(t, "statuses", []collect.GapStatus{p, q, collect.GapRecovered}, []collect.GapStatus{list[0].Status, list[1].Status, list[2].Status})
		same(t, "attempts", attempts, list[1].Attempts)
	}
	same(t, "cooldown", cooldown, must(s.Load(t.Context(), "c"))(t).Cooldown)
	act(collect.GapRetry, collect.GapFilter{Connection: "other"}, nil, 0)
	same(t, "cooldown", cooldown, must(s.Connections(t.Context()))(t)[0].Cooldown)
	act(collect.GapRetry, collect.GapFilter{Connection: "c"}, nil, 1)
	same(t, "cooldown after a retry", collect.Cooldown{}, must(s.Load(t.Context(), "c"))(t).Cooldown)
	statuses(collect.GapPending, collect.GapTerminal, 8)

	l = acquire(t, s, "c", "r2", at)
	same(t, "served after a retry, in a pass that tried it", []string{"p"}, serve(t, s, l, collect.ServeRequest{Now: at, Before: at}))
	act(collect.GapQuarantine, collect.GapFilter{Stream: "d"}, nil, 1)
	statuses(collect.GapTerminal, collect.GapTerminal, 8)
	id := must(s.Gaps(t.Context(), collect.GapFilter{}))(t)[1].ID
	act(collect.GapRelease, collect.GapFilter{}, []int64{id, 12345}, 1)
	statuses(collect.GapTerminal, collect.GapPending, 0)
	same(t, "served after a release", []string{"t"}, serve(t, s, l, collect.ServeRequest{Now: at, Before: at}))
	if _, err := s.Act(t.Context(), "sideways", collect.GapFilter{}, nil); err == nil {
		t.Error("an unknown action was taken")
	}
}

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
		want := cmp.Or(status, collect.GapPending)
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

	// The caller that opens it again decides where it begins.
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
