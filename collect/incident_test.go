package collect_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/reason"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
)

// Each test here repeats an incident of another collector with its numbers, or with a fifth
// of them if the count does not matter.

// owe stores gaps for the docs from..to-1 and their known items, as an earlier run would
// have.
func (b *bench) owe(t *testing.T, why reason.Reason, from, to int, change func(*collect.Gap)) {
	t.Helper()
	l, err := b.store.Acquire(t.Context(), collect.LeaseRequest{
		Connection: "bench", Run: fmt.Sprintf("owe-%s-%d-%d", why, from, to), Now: time.Now(), TTL: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := collect.Commit{At: time.Now(), Stream: "docs"}
	for _, d := range b.docs[from:to] {
		g := collect.Gap{
			GapKey: collect.GapKey{Stream: "messages", Key: d.ID}, Parent: "docs", Reason: why,
			Locator: fmt.Appendf(nil, `{"id":%q,"updated":%q}`, d.ID, d.Updated), FirstSeen: time.Now().Add(-time.Hour),
		}
		if change != nil {
			change(&g)
		}
		c.Opened = append(c.Opened, g)
		c.Items = append(c.Items, collect.KnownItem{Key: d.ID, Fingerprint: "seen"})
	}
	// The list has been walked: nothing but the gaps is left.
	c.Lane = &collect.Lane{Stream: "docs", Kind: collect.Catchup, Done: true, Watermark: "9999"}
	if err := b.store.Commit(t.Context(), l, c); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Finish(t.Context(), l, collect.RunEnd{At: time.Now(), State: collect.RunDeferred}); err != nil {
		t.Fatal(err)
	}
}

// retry makes all gaps due at once.
func (b *bench) retry(t *testing.T) {
	t.Helper()
	if _, err := b.store.Act(t.Context(), collect.GapRetry, collect.GapFilter{Connection: "bench"}, nil); err != nil {
		t.Fatal(err)
	}
}

// cool arms the source-pressure cooldown.
func (b *bench) cool(t *testing.T, until time.Time) {
	t.Helper()
	l, err := b.store.Acquire(t.Context(), collect.LeaseRequest{Connection: "bench", Run: "cool", Now: time.Now(), TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	end := collect.RunEnd{At: time.Now(), State: collect.RunDeferred, Cooldown: collect.Cooldown{Until: until}}
	if err := b.store.Finish(t.Context(), l, end); err != nil {
		t.Fatal(err)
	}
}

func TestIncident51StalePressureGapsHeld942OthersHostage(t *testing.T) {
	b := newBench(t, 993)
	b.owe(t, reason.RateLimited.Reason(), 0, 51, nil)
	b.owe(t, reason.ServerError, 51, 993, nil)
	b.cool(t, time.Now().Add(time.Hour))
	s, err := b.run(t)
	if err != nil || s.GapsRecovered != 942 || s.Owed["rate_limited"] != 51 || len(s.Owed) != 1 {
		t.Fatalf("recovered %d, owed %v, %v", s.GapsRecovered, s.Owed, err)
	}
	for _, g := range b.gaps(t, collect.GapPending) {
		if g.Attempts != 0 {
			t.Fatalf("a gap in the cooldown was attempted: %+v", g)
		}
	}
	// Once it is over they follow; an operator may also end it.
	if n, err := b.store.Act(t.Context(), collect.GapRetry, collect.GapFilter{Connection: "bench"}, nil); err != nil || n != 51 {
		t.Fatalf("retry moved %d, %v", n, err)
	}
	b.drained(t)
}

func TestIncidentAFirstInFirstOutPageStarved10012Gaps(t *testing.T) {
	const bad = 256
	good := longtest.Size(2_012, 10_012)
	b := newBench(t, bad+good)
	b.o.Retry.Attempts = 1
	b.o.Pacing.NoBreaker = true
	// The broken ones are the oldest, so that they come first.
	b.owe(t, reason.ServerError, 0, bad, func(g *collect.Gap) { g.FirstSeen = g.FirstSeen.Add(-time.Hour) })
	b.owe(t, reason.ServerError, bad, bad+good, nil)
	broken := map[string]int{}
	for _, d := range b.docs[:bad] {
		broken["/docs/"+d.ID] = 0
	}
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		if _, is := broken[r.URL.Path]; is {
			broken[r.URL.Path]++
			return fail(w, http.StatusInternalServerError)
		}
		return false
	}
	b.o.MaxRequests = int64(good / 5) // a fifth of what is owed
	recovered := int64(0)
	for run := range 6 {
		s, err := b.run(t)
		if err != nil {
			t.Fatal(err)
		}
		recovered += s.GapsRecovered
		if recovered == int64(good) {
			for path, n := range broken {
				if n > run+1 {
					t.Fatalf("%s was tried %d times in %d runs", path, n, run+1)
				}
			}
			t.Logf("all %d recovered in %d runs of %d requests", good, run+1, b.o.MaxRequests)
			return
		}
	}
	t.Fatalf("%d of %d recovered after six runs", recovered, good)
}

func TestIncidentServingAPageCountedAsAnAttempt(t *testing.T) {
	b := newBench(t, 115)
	b.owe(t, reason.ServerError, 0, 115, nil)
	b.o.Retry.Attempts = 1
	b.o.MaxRequests = 1
	for range 3 {
		if _, err := b.run(t); err != nil {
			t.Fatal(err)
		}
	}
	sent, attempts := int64(0), int64(0)
	for _, n := range b.served {
		sent += int64(n)
	}
	for _, g := range b.gaps(t, "") {
		attempts += g.Attempts
	}
	if sent != 3 || attempts != 0 || len(b.gaps(t, collect.GapPending)) != 112 || len(b.gaps(t, collect.GapLeased)) != 0 {
		t.Fatalf("%d were sent for, %d attempts on record, %d pending", sent, attempts, len(b.gaps(t, collect.GapPending)))
	}
}

func TestIncidentTwoRunsSharedOneActiveRunRow(t *testing.T) {
	b := newBench(t, 3)
	hold, release := b.hold(t)
	done := make(chan error)
	go func() {
		_, err := b.run(t)
		done <- err
	}()
	<-hold
	_, err := b.run(t)
	if _, held := errors.AsType[*collect.HeldError](err); !held {
		t.Errorf("got %v", err)
	}
	runs, err := b.store.Runs(t.Context(), "bench", 0)
	if err != nil || len(runs) != 1 || runs[0].State != collect.RunRunning {
		t.Errorf("runs %+v, %v; want the one that runs", runs, err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestIncidentAGapWasRecoveredByARecordThoughItsDetailHadFailed(t *testing.T) {
	b := newBench(t, 3)
	b.o.Retry.Attempts = 1
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return r.URL.Path == "/docs/d01" && fail(w, http.StatusInternalServerError)
	}
	if _, err := b.run(t); err != nil {
		t.Fatal(err)
	}
	// The item changes, so that its record is emitted again; its detail still fails.
	b.docs[1].Updated = "2024-01-02T00:00:00Z"
	s, err := b.run(t)
	if err != nil || s.Records == 0 || len(b.gaps(t, collect.GapPending)) != 1 || len(b.gaps(t, collect.GapRecovered)) != 0 {
		t.Fatalf("got %+v, %v, gaps %+v", s.Progress, err, b.gaps(t, ""))
	}
}

func TestIncidentARecoveryOnlyRunOverwroteInventoryFacts(t *testing.T) {
	b := newBench(t, 6)
	b.o.Retry.Attempts = 1
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return r.URL.Path == "/docs/d01" && fail(w, http.StatusInternalServerError)
	}
	if _, err := b.run(t); err != nil {
		t.Fatal(err)
	}
	b.retry(t)
	keys := []string{"d00", "d01", "d02", "d03", "d04", "d05"}
	before, err := b.store.Known(t.Context(), "bench", "docs", keys)
	if err != nil {
		t.Fatal(err)
	}
	state, err := b.store.Load(t.Context(), "bench")
	if err != nil {
		t.Fatal(err)
	}
	b.overrule, b.o.MaxRequests = nil, 1 // enough for the gap, and nothing else
	if s, err := b.run(t); err != nil || s.GapsRecovered != 1 {
		t.Fatalf("got %+v, %v", s, err)
	}
	after, err := b.store.Known(t.Context(), "bench", "docs", keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if before[k].Fingerprint != after[k].Fingerprint || after[k].Fingerprint == "" {
			t.Errorf("%s: fingerprint %q became %q", k, before[k].Fingerprint, after[k].Fingerprint)
		}
		if k != "d01" && !bytes.Equal(before[k].Children, after[k].Children) {
			t.Errorf("%s: what was written of it is forgotten", k)
		}
	}
	then, err := b.store.Load(t.Context(), "bench")
	if err != nil || fmt.Sprint(then.Lanes) != fmt.Sprint(state.Lanes) {
		t.Errorf("lanes moved from %+v to %+v, %v", state.Lanes, then.Lanes, err)
	}
	b.o.MaxRequests = 0
	b.drained(t)
	b.complete(t)
}

func TestIncidentSkippingAKnownItemNulledItsEnrichedFields(t *testing.T) {
	b := newBench(t, 3)
	b.onDisk(t)
	// A sink that replaces rows by key: the one in which a careless skip would show.
	collectInto := func() collect.Summary {
		b.o.Sink = sqlsink.New("bench")
		c, err := collect.New(b.o)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Run(t.Context())
		if err != nil || s.State != collect.RunDrained {
			t.Fatalf("got %s, %v", s.State, err)
		}
		return s
	}
	rows := func() (all []string) {
		db, err := sql.Open("sqlite", filepath.Join(b.dir, "state.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		found, err := db.QueryContext(t.Context(), `SELECT _parent || ' ' || id || ' ' || text FROM messages ORDER BY 1`)
		if err != nil {
			t.Fatal(err)
		}
		defer found.Close()
		for found.Next() {
			var row string
			if err := found.Scan(&row); err != nil {
				t.Fatal(err)
			}
			all = append(all, row)
		}
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	collectInto()
	before := rows()
	if len(before) != 6 || before[0] != "d00 d00/0 hello 0" {
		t.Fatalf("rows %q", before)
	}
	if s := collectInto(); s.Unchanged != 1 {
		t.Fatalf("got %+v", s.Progress)
	}
	if after := rows(); !slices.Equal(before, after) {
		t.Fatalf("rows %q became %q", before, after)
	}
}

func TestIncidentAByteBudgetWasBindingAndNotTheRate(t *testing.T) {
	b := newBench(t, 256)
	// Each locator is a sixteenth of a page: the page's bound is met over and over.
	b.owe(t, reason.ServerError, 0, 256, func(g *collect.Gap) {
		g.Locator = []byte(`{"id":"` + g.Key + `","pad":"` + strings.Repeat("x", 64<<10) + `"}`)
	})
	if s := b.drained(t); s.GapsRecovered != 256 {
		t.Fatalf("recovered %d of 256", s.GapsRecovered)
	}
	// One that is larger than a page is served all the same.
	b.owe(t, reason.ServerError, 0, 1, func(g *collect.Gap) {
		g.Locator = []byte(`{"id":"` + g.Key + `","pad":"` + strings.Repeat("x", 3<<20) + `"}`)
	})
	if s := b.drained(t); s.GapsRecovered != 1 {
		t.Fatalf("recovered %d of 1", s.GapsRecovered)
	}
}

// The figures are scaled: a tenth of a second for each of its seconds in 136,
// 900 and 60.
func TestIncidentOneCircuitTripEndedARunAt136SecondsOf900(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 60)
		b.o.Retry.Attempts = 1
		b.o.MaxWallClock = 900 * time.Second
		began := time.Now()
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			d := time.Since(began)
			return isDetail(r) && d > 2*time.Second && d < 300*time.Second && fail(w, http.StatusInternalServerError)
		}
		s := b.drained(t)
		b.complete(t)
		if took := s.Ended.Sub(s.Started); took > 900*time.Second {
			t.Fatalf("it took %v", took)
		}
	})
}

func TestABrokenGapIsQuarantinedAndCanBeReleased(t *testing.T) {
	b := newBench(t, 3)
	b.o.Retry.Attempts = 1
	broken := true
	b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
		return broken && r.URL.Path == "/docs/d01" && fail(w, http.StatusInternalServerError)
	}
	// Seen for the first time more than a day ago, and tried six times since.
	b.owe(t, reason.ServerError, 0, 3, func(g *collect.Gap) { g.FirstSeen, g.Attempts = time.Now().Add(-25*time.Hour), 6 })
	for tries := int64(7); tries <= 8; tries++ {
		if s, err := b.run(t); err != nil || s.State == collect.RunDrained {
			t.Fatalf("try %d: %v, %v; something is not collected", tries, s.State, err)
		}
		left := b.gaps(t, map[bool]collect.GapStatus{true: collect.GapTerminal, false: collect.GapPending}[tries == 8])
		if len(left) != 1 || left[0].Attempts != tries {
			t.Fatalf("gaps %+v after try %d, want it terminal after 8", b.gaps(t, ""), tries)
		}
		b.retry(t)
	}
	quarantined := b.gaps(t, collect.GapTerminal)
	b.requests = nil
	// It is in quarantine: no longer owed, but still stored.
	if s, err := b.run(t); err != nil || s.Quarantined != 1 || s.State != collect.RunIncomplete || !s.Cooldown.NeedsAttention || len(s.Owed) > 0 {
		t.Fatalf("got %+v, %v; want an incomplete run that needs attention", s, err)
	}
	for _, path := range b.requests {
		if path == "/docs/d01" {
			t.Fatal("a quarantined gap was attempted")
		}
	}
	broken = false
	if n, err := b.store.Act(t.Context(), collect.GapRelease, collect.GapFilter{}, []int64{quarantined[0].ID}); err != nil || n != 1 {
		t.Fatalf("released %d, %v", n, err)
	}
	b.drained(t)
	b.complete(t)
}

func TestAVeryLargeTailIsOneBacklogGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 2500)
		for i := range b.docs { // a watermark of its own for each
			b.docs[i].Updated = time.Date(2024, 1, 1, 0, 0, i, 0, time.UTC).Format(time.RFC3339)
		}
		b.pageSize = 100
		b.o.Retry.Attempts = 1
		b.o.Pacing.Ceiling, b.o.Pacing.Initial = time.Millisecond, time.Millisecond
		broken := true
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			return broken && isDetail(r) && fail(w, http.StatusServiceUnavailable)
		}
		s, err := b.run(t)
		if err != nil || s.State != collect.RunDeferred || s.Reason != reason.UpstreamPressure.Reason() {
			t.Fatalf("got %s (%s), %v", s.State, s.Reason, err)
		}
		if got := len(b.lines(t, "docs")); got != 2500 {
			t.Fatalf("the forward walk wrote %d of 2500 records", got)
		}
		var backlog []collect.Gap
		for _, g := range b.gaps(t, collect.GapPending) {
			if g.Backlog {
				backlog = append(backlog, g)
			}
		}
		if n := len(b.gaps(t, collect.GapPending)); len(backlog) != 1 || n > 1400 || backlog[0].Since != "" || total(s.Owed) != 2500 {
			t.Fatalf("%d gaps, backlog %+v", n, backlog)
		}
		if !s.Cooldown.Until.After(time.Now()) || !s.RetryAt.Equal(s.Cooldown.Until) {
			t.Fatalf("no cooldown: %+v, retry at %v", s.Cooldown, s.RetryAt)
		}
		broken = false
		// A list whose cursors repeat, and one whose cursors are refused again and again,
		// end the run but not the backlog.
		healthy := b.overrule
		for why, spoil := range map[reason.Reason]func(w http.ResponseWriter){
			reason.CursorRepeats: func(w http.ResponseWriter) {
				_, _ = w.Write([]byte(`{"items":[],"next":"after-100"}`))
			},
			reason.ClientError: func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) },
		} {
			b.retry(t)
			b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
				if isDetail(r) || r.URL.Query().Get("cursor") == "" {
					return false
				}
				spoil(w)
				return true
			}
			s, err := b.run(t)
			if err == nil || s.Reason != why || backlogs(b.gaps(t, collect.GapPending)) != 1 {
				t.Fatalf("%s: got %s, %v, %d backlog gaps", why, s.Reason, err, backlogs(b.gaps(t, collect.GapPending)))
			}
		}
		b.overrule = healthy
		b.retry(t)
		// In two runs, so that the backlog goes on where it stopped.
		b.o.MaxRequests = 1500
		if _, err := b.run(t); err != nil {
			t.Fatal(err)
		}
		b.o.MaxRequests = 0
		b.drained(t)
		b.complete(t)
		if got := len(b.lines(t, "docs")); got != 2500 {
			t.Fatalf("%d records of 2500 docs: recovery wrote some again", got)
		}
	})
}

func total(owed map[string]int64) (n int64) {
	for _, of := range owed {
		n += of
	}
	return n
}

func backlogs(gaps []collect.Gap) (n int) {
	for _, g := range gaps {
		if g.Backlog {
			n++
		}
	}
	return n
}
