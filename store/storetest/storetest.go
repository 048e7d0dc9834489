// Package storetest is the contract of [collect.Store] as tests: a store that
// passes [Run] can take the place of any other.
//
// It is for the tests of a store's own package, and for nothing else; what a
// kind of store adds, such as files and processes, that package tests itself.
// It needs no clock of its own: it reads the time once a test, since the read
// side of a store asks the clock whether a lease is alive.
//
// Stability: settling.
package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// ttl is how long a lease of these tests lives: longer than any of them takes.
const ttl = time.Hour

// Run runs the contract against stores that open gives. Each call of open must
// give an empty store, and close it when its test ends.
func Run(t *testing.T, open func(t *testing.T) collect.Store) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(t *testing.T, s collect.Store)
	}{
		{"acquire gives the connection to one holder", acquireIsExclusive},
		{"acquire names the holder that is in the way", heldNamesHolder},
		{"acquire refuses a run id that was used", acquireRefusesUsedRun},
		{"acquire refuses what is not complete", acquireRefusesIncomplete},
		{"of concurrent acquires exactly one wins", concurrentAcquires},
		{"connections do not hold one another", connectionsAreApart},
		{"a lease that expired is taken over", takeover},
		{"a lease that expired and was not taken over may go on", lateHolder},
		{"renew extends the lease", renewExtends},
		{"a stale token can write nothing", staleToken},
		{"the token rises with each holder", tokenRises},
		{"finish records the end and frees the connection", finish},
		{"finish refuses a state that is not an end", finishRefusesRunning},

		{"a connection never seen is the zero state", zeroState},
		{"lanes keep every field", laneFields},
		{"lanes of a stream are apart", lanesAreApart},
		{"sink position and pacing stay until replaced", keptUntilReplaced},
		{"unreadable pacing and position do not block", unreadable},
		{"items are known by key and stream", knownItems},
		{"items are replaced whole", itemsReplaced},
		{"owed items are listed by key", owedItems},
		{"a batch of keys of any size is answered", knownBatches},
		{"text is kept byte for byte", oddText},
		{"a commit that fails changes nothing", commitIsAtomic},
		{"a commit whose context has ended changes nothing", canceledCommit},
		{"concurrent commits of one holder all count", concurrentCommits},

		{"a gap keeps every field", gapFields},
		{"a gap that opens again is updated", gapReopens},
		{"a recovered gap that opens again is a new debt", recoveredReopens},
		{"a gap recovered and opened in one commit is owed", recoveredAndOpened},
		{"a gap takes the status it is given", gapStatus},
		{"a backlog takes the start it is given and counts what is owed", backlogCounts},
		{"gaps are listed by id, filtered and in pages", gapListing},
		{"gaps are served in fair order, each to one", serveOrder},
		{"what is served is bounded", serveBounds},
		{"operators retry, quarantine and release gaps", operatorActs},

		{"shapes and the sink's kind stay until replaced", shapesAreKept},
		{"a sink that is replaced keeps its position aside", sinksReplaced},
		{"replays are kept, and are not collections", replaysKept},
		{"a new shape changes what is known of its stream's items", reshapedItems},
		{"gaps are dropped by id and by stream", gapsDropped},

		{"runs are listed newest first", runListing},
		{"a run without a live lease is shown as abandoned", abandonedRuns},
		{"events come in order with numbers", eventOrder},
		{"connections are summed up", connectionStatus},
		{"forget leaves runs, events and the lease", forget},

		{"after any sequence of calls it shows what a store in memory does", agreesWithMemory},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// now is the time of a test, without the monotonic part that no store keeps.
func now() time.Time { return time.Now().UTC().Round(0) }

// acquire takes a connection for a run at an instant, or ends the test.
func acquire(t *testing.T, s collect.Store, connection, run string, at time.Time) collect.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), request(connection, run, at))
	if err != nil {
		t.Fatalf("Acquire(%s for %s): %v", connection, run, err)
	}
	return l
}

func request(connection, run string, at time.Time) collect.LeaseRequest {
	return collect.LeaseRequest{Connection: connection, Run: run, Holder: "host-" + run, Now: at, TTL: ttl}
}

// commit writes a slice, or ends the test.
func commit(t *testing.T, s collect.Store, l collect.Lease, c collect.Commit) {
	t.Helper()
	if c.At.IsZero() {
		c.At = now()
	}
	if err := s.Commit(t.Context(), l, c); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

// must gives what a call gave, or ends the test: must(call())(t).
func must[T any](v T, err error) func(rapid.TB) T {
	return func(t rapid.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// same compares what the store gave with what it should have.
func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// diff takes an empty list for the same as none, and instants to the
// millisecond, which is what a store must keep.
func diff(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(time.Millisecond))
}

// lost checks that err is collect.ErrLeaseLost.
func lost(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, collect.ErrLeaseLost) {
		t.Errorf("%s with a lease that was lost: got %v, want collect.ErrLeaseLost", what, err)
	}
}

func items(from, n int) []collect.KnownItem {
	list := make([]collect.KnownItem, n)
	for i := range list {
		list[i] = collect.KnownItem{Key: fmt.Sprintf("k%06d", from+i), Fingerprint: fmt.Sprintf("f%d", from+i)}
	}
	return list
}

func position(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"at":%d}`, n)) }

func runListing(t *testing.T, s collect.Store) {
	// The clock steps back between the runs; the order is that of their making.
	for i := range 4 {
		at := now().Add(-time.Duration(i) * time.Minute)
		l := acquire(t, s, []string{"a", "b"}[i%2], fmt.Sprintf("r%d", i), at)
		commit(t, s, l, collect.Commit{Progress: collect.Progress{Attempts: int64(10 + i), Records: 5}})
		if err := s.Finish(t.Context(), l, collect.RunEnd{At: at, State: collect.RunDrained, Progress: collect.Progress{Attempts: int64(20 + i)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		connection string
		limit      int
		want       []string
	}{
		{"", 0, []string{"r3", "r2", "r1", "r0"}},
		{"", 3, []string{"r3", "r2", "r1"}},
		{"a", 0, []string{"r2", "r0"}},
		{"b", 1, []string{"r3"}},
		{"none", 0, nil},
	} {
		var ids []string
		for _, r := range must(s.Runs(t.Context(), c.connection, c.limit))(t) {
			ids = append(ids, r.ID)
		}
		same(t, fmt.Sprintf("runs of %q, limit %d", c.connection, c.limit), c.want, ids)
	}
	l := acquire(t, s, "a", "r9", now())
	commit(t, s, l, collect.Commit{Progress: collect.Progress{Attempts: 3, Details: 2, GapsOpened: 1}})
	got := must(s.Runs(t.Context(), "a", 1))(t)[0]
	same(t, "progress of a run under way", collect.Progress{Attempts: 3, Details: 2, GapsOpened: 1}, got.Progress)
	if got.State != collect.RunRunning || !got.Ended.IsZero() {
		t.Errorf("a run under way is shown as %s, ended %s", got.State, got.Ended)
	}
}

func abandonedRuns(t *testing.T, s collect.Store) {
	at := now().Add(-2 * ttl)
	l := acquire(t, s, "c", "r1", at)
	check := func(want collect.RunState, holder string) {
		t.Helper()
		run, status := must(s.Runs(t.Context(), "c", 0))(t)[0], must(s.Connections(t.Context()))(t)[0]
		if run.State != want || status.LastRun == nil || status.LastRun.State != want || status.Holder != holder {
			t.Errorf("run %s, last run %+v, holder %q; want %s and holder %q", run.State, status.LastRun, status.Holder, want, holder)
		}
	}
	check(collect.RunAbandoned, "")
	if run := must(s.Runs(t.Context(), "c", 0))(t)[0]; run.Ended.Sub(at.Add(ttl)).Abs() > time.Millisecond {
		t.Errorf("ended %s, want when the lease did, %s", run.Ended, at.Add(ttl))
	}
	// It was only late.
	if err := s.Renew(t.Context(), l, now(), ttl); err != nil {
		t.Fatal(err)
	}
	check(collect.RunRunning, "host-r1")
	if err := s.Finish(t.Context(), l, collect.RunEnd{At: now(), State: collect.RunDrained, Reason: reason.Drained}); err != nil {
		t.Fatal(err)
	}
	check(collect.RunDrained, "")
}

func eventOrder(t *testing.T, s collect.Store) {
	at := now()
	l := acquire(t, s, "c", "r1", at)
	full := event.Event{
		At: at, Type: event.CollectionRate, Connection: "c", Run: "r1", Reason: reason.Pacing, Stream: "x", Phase: "walk", Count: 7, Note: "n",
		Rate: &event.Rate{CurrentIntervalMS: 1, EffectiveRatePerMin: 2, CeilingIntervalMS: 3, CeilingRatePerMin: 4,
			LastBackoff: &event.Backoff{Reason: reason.RateLimited.Reason(), AtIntervalMS: 5, At: at}},
		Circuit: &event.Breaker{Previous: "closed", State: "open", Trigger: "ratio", ElapsedMS: 6, Requests: 7, Retries: 8},
	}
	commit(t, s, l, collect.Commit{Events: []event.Event{{At: at, Type: event.RunStart}, full}})
	commit(t, s, l, collect.Commit{})
	// An instant before the others: the order is that of the commits.
	commit(t, s, l, collect.Commit{Events: []event.Event{{At: at.Add(-time.Hour), Type: event.Phase}}})
	if err := s.Finish(t.Context(), l, collect.RunEnd{At: at, State: collect.RunDrained, Events: []event.Event{{At: at, Type: event.RunEnd}}}); err != nil {
		t.Fatal(err)
	}
	full.Seq = 2
	same(t, "events", []event.Event{
		{Seq: 1, At: at, Type: event.RunStart}, full, {Seq: 3, At: at.Add(-time.Hour), Type: event.Phase}, {Seq: 4, At: at, Type: event.RunEnd},
	}, must(s.Events(t.Context(), "r1"))(t))
	l = acquire(t, s, "c", "r2", at)
	commit(t, s, l, collect.Commit{Events: []event.Event{{At: at, Type: event.RunStart}}})
	same(t, "events of the next run", []event.Event{{Seq: 1, At: at, Type: event.RunStart}}, must(s.Events(t.Context(), "r2"))(t))
	if got := must(s.Events(t.Context(), "never"))(t); len(got) != 0 {
		t.Errorf("a run that never was has %d events", len(got))
	}
}

// fullCommit writes one of everything.
func fullCommit(at time.Time) collect.Commit {
	terminal := gap("d", "t")
	terminal.Status = collect.GapTerminal
	leased, failed := gap("d", "l"), gap("d", "f")
	leased.Status, failed.Reason = collect.GapLeased, reason.ServerError
	return collect.Commit{
		At: at, Lane: &collect.Lane{Stream: "x", Kind: collect.Catchup, Cursor: "1", Walking: true}, Stream: "x", Items: items(0, 3),
		Opened: []collect.Gap{gap("d", "p"), gap("d", "r"), leased, failed, terminal}, Sink: position(1),
		Progress: collect.Progress{Items: 3}, Events: []event.Event{{At: at, Type: event.Phase}},
		Pacing: &collect.Pacing{Version: 1, Law: "aimd", IntervalMS: 250, RecordedAt: at},
	}
}

func connectionStatus(t *testing.T, s collect.Store) {
	if got := must(s.Connections(t.Context()))(t); len(got) != 0 {
		t.Errorf("an empty store has %d connections", len(got))
	}
	at := now()
	acquire(t, s, "z", "rz", at.Add(-2*ttl))
	l := acquire(t, s, "a", "ra", at)
	c := fullCommit(at)
	commit(t, s, l, c)
	commit(t, s, l, collect.Commit{Recovered: []collect.GapKey{{Stream: "d", Key: "r"}}, Stream: "y", Items: items(0, 1), Progress: c.Progress})
	got := must(s.Connections(t.Context()))(t)
	if len(got) != 2 || got[1].Name != "z" {
		t.Fatalf("connections %+v, want a and z", got)
	}
	same(t, "connection a", collect.ConnectionStatus{
		Name: "a", Lanes: []collect.Lane{*c.Lane}, Items: map[string]int64{"x": 3, "y": 1},
		Owed: map[string]int64{"rate_limited": 2, "server_error": 1}, Quarantined: 1, Pacing: c.Pacing, Holder: "host-ra",
		LastRun: &collect.Run{ID: "ra", Connection: "a", Holder: "host-ra", State: collect.RunRunning, Started: at, Progress: c.Progress},
	}, got[0])
	if got[1].Pacing != nil || got[1].Holder != "" {
		t.Errorf("connection z %+v, want unknown pacing and no holder", got[1])
	}
	if _, err := json.Marshal(got); err != nil {
		t.Errorf("the status cannot be shown as JSON: %v", err)
	}
}

func forget(t *testing.T, s collect.Store) {
	at := now()
	other := acquire(t, s, "other", "ro", at)
	commit(t, s, other, fullCommit(at))
	l := acquire(t, s, "c", "r1", at)
	commit(t, s, l, fullCommit(at))
	before := must(s.Gaps(t.Context(), collect.GapFilter{Connection: "c"}))(t)
	if err := s.Forget(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	same(t, "state", collect.State{}, must(s.Load(t.Context(), "c"))(t))
	same(t, "known", map[string]collect.KnownItem{}, must(s.Known(t.Context(), "c", "x", []string{"k000000"}))(t))
	same(t, "gaps", []collect.Gap(nil), must(s.Gaps(t.Context(), collect.GapFilter{Connection: "c"}))(t))
	if n := len(must(s.Runs(t.Context(), "c", 0))(t)); n != 1 {
		t.Errorf("%d runs, want the 1 there was", n)
	}
	if n := len(must(s.Events(t.Context(), "r1"))(t)); n != 1 {
		t.Errorf("%d events, want the 1 there was", n)
	}
	status := must(s.Connections(t.Context()))(t)
	if len(status) != 2 || status[0].Holder == "" || len(status[0].Items)+len(status[0].Owed) != 0 || status[0].Quarantined != 0 {
		t.Errorf("status %+v, want c held and empty", status)
	}
	if got := must(s.Load(t.Context(), "other"))(t); len(got.Lanes) != 1 || got.Sink == nil || got.Pacing == nil {
		t.Errorf("forget took %+v of another connection", got)
	}
	commit(t, s, l, fullCommit(at)) // the run goes on from nothing
	for _, g := range must(s.Gaps(t.Context(), collect.GapFilter{Connection: "c"}))(t) {
		if g.ID <= before[len(before)-1].ID {
			t.Errorf("the id %d of a forgotten gap was given out again", g.ID)
		}
	}
}
