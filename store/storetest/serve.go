package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// serve asks for gaps and gives their keys, or ends the test.
func serve(t *testing.T, s collect.Store, l collect.Lease, ask collect.ServeRequest) (keys []string) {
	t.Helper()
	if ask.MaxBytes == 0 {
		ask.MaxBytes = 1 << 20
	}
	if ask.MaxRows == 0 {
		ask.MaxRows = 100
	}
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
