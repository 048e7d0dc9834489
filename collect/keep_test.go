package collect_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// slowStore is a store on a slow disk.
type slowStore struct {
	collect.Store
	takes time.Duration
}

func (s slowStore) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	time.Sleep(s.takes)
	return s.Store.Commit(ctx, l, c)
}

// A run that was killed after some seconds keeps nine tenths of what it was
// answered, also where a commit takes long: but for the answer that has just come.
func TestAKilledRunKeepsWhatItFetchedOnASlowDisk(t *testing.T) {
	for _, takes := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond} {
		for after := 500 * time.Millisecond; after < 8*time.Second; after += 530 * time.Millisecond {
			t.Run(fmt.Sprintf("commits of %v, killed after %v", takes, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := endure(t, 200)
					b.pageSize = 100
					b.o.Store = slowStore{Store: b.store, takes: takes}
					s, answered := killed(t, b, after)
					if float64(s.Details) < 0.9*float64(answered)-1 {
						t.Errorf("kept %d of %d answers", s.Details, answered)
					}
				})
			})
		}
	}
}

// What a run has done stands in its record while it waits for long, so that a
// reader, or the run after one that was killed, knows it.
func TestALongWaitIsOnRecordWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 9)
		stop := make(chan struct{})
		b.o.Stop = stop
		b.overrule = func(n int, _ *http.Request, w http.ResponseWriter) bool {
			if n < 4 {
				return false
			}
			w.Header().Set("Retry-After", "120")
			return fail(w, http.StatusTooManyRequests)
		}
		var during collect.Run
		time.AfterFunc(time.Minute, func() {
			all, err := b.store.Connections(context.Background())
			if err != nil || len(all) != 1 || all[0].LastRun == nil {
				t.Errorf("got %+v, %v", all, err)
			} else {
				during = *all[0].LastRun
			}
			close(stop)
		})
		s, err := b.run(t)
		if err != nil || s.Reason != reason.Interrupted {
			t.Fatalf("got %s (%s), %v", s.State, s.Reason, err)
		}
		if during.Attempts != s.Attempts || during.Throttled != s.Throttled || during.Details != s.Details || s.Throttled == 0 {
			t.Errorf("during the wait the record says %+v, in the end %+v", during.Progress, s.Progress)
		}
		for what, p := range map[string]collect.Progress{"during the wait": during.Progress, "when it was interrupted": s.Progress} {
			if shares := p.BoundBy.Shares(); len(shares) == 0 || shares[0].Bound != reason.BoundCooldown || shares[0].Of < 0.9 {
				t.Errorf("%s the run is said to be bound by %v, want the provider's Retry-After", what, p.BoundBy)
			}
		}
	})
}

// Outstanding is all that is owed at an instant, whatever the run is at.
func TestProgressCountsEachOwedDetailOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 12)
		b.pageSize = 12
		broken := true
		var c *collect.Collector
		var seen []int64
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			if !isDetail(r) {
				return false
			}
			now, _ := c.Live()
			seen = append(seen, now.Outstanding)
			return broken && fail(w, http.StatusConflict)
		}
		run := func(want []int64) {
			t.Helper()
			seen = nil
			b.o.Sink = newSink(b)
			var err error
			if c, err = collect.New(b.o); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(seen) != len(want) {
				t.Fatalf("outstanding at each detail: %v, want %v", seen, want)
			}
			for i := range seen {
				// What has come is counted with its commit, a second later at most.
				if seen[i] < want[i] || seen[i] > want[i]+5 {
					t.Fatalf("outstanding at each detail: %v, want %v", seen, want)
				}
			}
		}
		twelve := []int64{12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12}
		run(append(twelve, twelve...)) // in the walk, and in the recovery that follows it
		time.Sleep(time.Hour)
		broken = false
		run([]int64{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1})
	})
}

// Details that failed one after another are not tried again one by one: each
// run would list everything again.
func TestDetailsThatFailedTogetherAreTriedAgainTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 60)
		b.pageSize = 60
		healthy := time.Now().Add(3 * time.Minute)
		lists := 0
		b.overrule = func(_ int, r *http.Request, w http.ResponseWriter) bool {
			if !isDetail(r) {
				lists++
				return false
			}
			if time.Now().After(healthy) {
				return false
			}
			time.Sleep(2 * time.Second) // a redirect in circles takes as long
			return fail(w, http.StatusConflict)
		}
		runs := 0
		for {
			s, err := b.run(t)
			if err != nil {
				t.Fatal(err)
			}
			if runs++; s.State == collect.RunDrained {
				break
			}
			if runs > 100 {
				t.Fatal("100 runs did not collect it")
			}
			time.Sleep(max(time.Until(s.RetryAt), time.Second)) // as a process that stays does
		}
		if runs > 10 {
			t.Errorf("it took %d runs and %d lists to collect what failed for three minutes", runs, lists)
		}
		b.complete(t)
	})
}

// misread is a connector whose first page holds an entry that is not an item.
type misread struct {
	connector.Connector
	pages int
}

func (m *misread) List(ctx context.Context, call connector.Caller, r connector.ListRequest) (connector.Page, error) {
	page, err := m.Connector.List(ctx, call, r)
	if m.pages++; m.pages == 1 {
		page.Unread = []connector.Unread{{Position: 2, ID: "0a", Problem: "it has no key"}}
	}
	return page, err
}

// A bad entry of a list that an operator releases cannot be asked for: it goes
// back into quarantine, and still says where it stood.
func TestAReleasedBadEntryIsQuarantinedAgain(t *testing.T) {
	b := newBench(t, 3)
	b.o.Connector = &misread{Connector: b.o.Connector}
	for range 2 {
		s, err := b.run(t)
		if err != nil || s.State != collect.RunIncomplete || s.Quarantined != 1 || len(s.Owed) != 0 {
			t.Fatalf("got %s, %d quarantined, owed %v, %v", s.State, s.Quarantined, s.Owed, err)
		}
		gaps := b.gaps(t, collect.GapTerminal)
		if len(gaps) != 1 || gaps[0].Reason != reason.InvalidResponse || !strings.Contains(gaps[0].LastError, "record 2: it has no key") {
			t.Fatalf("gaps %+v, want the entry with its place", gaps)
		}
		if n, err := b.store.Act(t.Context(), collect.GapRelease, collect.GapFilter{Connection: "bench"}, nil); err != nil || n != 1 {
			t.Fatalf("released %d, %v", n, err)
		}
	}
	b.complete(t)
}

// A stream that fails is on record in the phase that it failed in.
func TestAFailedStreamIsOnRecordInItsPhase(t *testing.T) {
	b := newBench(t, 3)
	b.o.Retry.Attempts = 1
	b.overrule = func(_ int, _ *http.Request, w http.ResponseWriter) bool { return fail(w, http.StatusForbidden) }
	var failed []event.Event
	b.o.OnEvent = func(e event.Event) {
		if e.Note == "stream_failed" {
			failed = append(failed, e)
		}
	}
	_, _ = b.run(t)
	if len(failed) != 1 || failed[0].Phase != string(collect.Catchup) || failed[0].Stream != "docs" || failed[0].Reason != reason.Forbidden {
		t.Errorf("events %+v, want one of the catch-up of docs", failed)
	}
}
