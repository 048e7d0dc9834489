package collect_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
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

// A run that is killed after some seconds keeps nine tenths of the responses that it
// received, apart from the newest, even if commits are slow.
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

// The record of a run is kept up to date during a long wait, for readers and for the next
// run if this one is killed.
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

// Outstanding counts all owed details in each phase of a run.
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
			if left := time.Duration(now.Owed) * 200 * time.Millisecond; now.Pacing.Rate != nil && (now.Left < left || now.Left > 2*left) {
				t.Errorf("%d details at %v ms apart take %v", now.Owed, now.Pacing.Rate.CurrentIntervalMS, now.Left)
			}
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
				// Details are counted when they are committed, at most a second later.
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
		ended, _ := c.Live()
		time.Sleep(time.Hour)
		if later, _ := c.Live(); later.Progress != ended.Progress || ended.Phase != collect.PhaseDone {
			t.Errorf("an hour after its end it is %+v, and was %+v", later.Progress, ended.Progress)
		}
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

// There is no request for a bad entry of a list. If an operator releases it, it goes back
// into quarantine and keeps its position.
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

// The event of a failed stream has the phase in which it failed.
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

// clerk is a store that records the time and the progress of each commit.
type clerk struct {
	collect.Store
	began   time.Time
	mu      sync.Mutex
	at      []time.Duration
	last    collect.Commit
	idle    int // commits without a slice
	noted   int // events in commits
	busy    int // commits under way
	takes   func(at time.Duration) time.Duration
	torn    bool // the run ended during a commit
	forgets error
}

func (c *clerk) Commit(ctx context.Context, l collect.Lease, made collect.Commit) error {
	at := time.Since(c.began)
	c.mu.Lock()
	c.at, c.last = append(c.at, at), made
	if made.Lane == nil && made.Items == nil && made.Sink == nil && made.Reshaped == nil {
		c.idle++
	}
	c.noted += len(made.Events)
	c.busy++
	c.mu.Unlock()
	if c.takes != nil {
		time.Sleep(c.takes(at))
	}
	c.mu.Lock()
	c.busy--
	c.mu.Unlock()
	return c.Store.Commit(context.WithoutCancel(ctx), l, made)
}

func (c *clerk) Finish(ctx context.Context, l collect.Lease, end collect.RunEnd) error {
	c.mu.Lock()
	c.torn = c.busy > 0
	c.mu.Unlock()
	return c.Store.Finish(ctx, l, end)
}

// look returns what was recorded.
func (c *clerk) look(read func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	read()
}

func (c *clerk) Forget(ctx context.Context, l collect.Lease) error {
	if c.forgets != nil {
		return c.forgets
	}
	return c.Store.Forget(ctx, l)
}

// While no slice is committed, the run's record is renewed at intervals from 10 s to 20 s.
func TestTheRecordIsRenewedWhenNothingElseIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 200)
		b.pageSize = 200
		c := &clerk{Store: b.store, began: time.Now()}
		b.o.Store = c
		b.overrule = func(n int, r *http.Request, w http.ResponseWriter) bool {
			if n != 151 {
				return false
			}
			c.look(func() {
				if c.last.Progress.Details < 100 || c.last.Pacing == nil || c.last.Progress.Attempts < 100 || c.noted == 0 {
					t.Errorf("the last commit before the wait says %+v, paced %+v", c.last.Progress, c.last.Pacing)
				}
				c.at = nil
			})
			w.Header().Set("Retry-After", "120")
			return fail(w, http.StatusTooManyRequests)
		}
		began, working := time.Now(), 0
		time.AfterFunc(20*time.Second, func() { c.look(func() { working = c.idle }) })
		time.AfterFunc(140*time.Second, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(c.at) < 6 || len(c.at) > 13 {
				t.Errorf("the record was renewed at %v in two minutes of waiting", c.at)
			}
			for i := 1; i < len(c.at); i++ {
				if apart := c.at[i] - c.at[i-1]; apart > 20*time.Second || apart < 10*time.Second {
					t.Errorf("%v between two renewals", apart)
				}
			}
		})
		b.drained(t)
		if working > 0 {
			t.Errorf("the record alone was committed %d times in 20 s of work", working)
		}
		if time.Since(began) < 2*time.Minute {
			t.Error("nothing was waited for")
		}
	})
}

// The end of a run waits for a record that is being written and includes its content.
func TestTheEndWaitsForTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := endure(t, 3)
		c := &clerk{Store: b.store, began: time.Now()}
		c.takes = func(at time.Duration) time.Duration {
			if at < 10*time.Second {
				return 0
			}
			return 15 * time.Second
		}
		b.o.Store, b.o.Sink = c, newSink(b)
		b.overrule = func(n int, r *http.Request, _ http.ResponseWriter) bool {
			if n == 2 {
				time.Sleep(23 * time.Second)
			}
			return false
		}
		run, err := collect.New(b.o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 22*time.Second)
		defer cancel()
		if s, err := run.Run(ctx); err != nil || s.Reason != reason.Interrupted {
			t.Fatalf("got %s (%s), %v", s.State, s.Reason, err)
		}
		if last := c.at[len(c.at)-1]; c.torn || last < 10*time.Second {
			t.Errorf("it ended while a commit was under way: %v, the last began after %v", c.torn, last)
		}
	})
}

func TestAConnectionThatCannotBeForgottenIsNotCollected(t *testing.T) {
	b := newBench(t, 3)
	b.drained(t)
	b.o.Store, b.o.Fresh = &clerk{Store: b.store, forgets: errors.New("the disk is full")}, true
	if s, err := b.run(t); err == nil || s.State != collect.RunFailed || s.Records != 0 {
		t.Errorf("got %s, %d records, %v", s.State, s.Records, err)
	}
}

func TestAWallClockOfNothingIsSpentAtOnce(t *testing.T) {
	b := newBench(t, 3)
	b.o.MaxWallClock = 1
	if s, err := b.run(t); err != nil || s.Reason != reason.MaxWallClock.Reason() || s.Attempts != 0 {
		t.Errorf("got %s after %d attempts, %v", s.Reason, s.Attempts, err)
	}
}

// A run has a fifth of its requests for retries, however many succeed.
func TestAFifthOfTheRequestsAreForRetries(t *testing.T) {
	b := newBench(t, 60)
	b.pageSize, b.o.MaxRequests, b.o.Pacing.NoBreaker = 60, 60, true
	b.overrule = func(n int, r *http.Request, w http.ResponseWriter) bool {
		return n > 41 && fail(w, http.StatusInternalServerError)
	}
	if s, err := b.run(t); err != nil || s.Retries != 12 {
		t.Errorf("%d retries of %d requests (%s), %v", s.Retries, s.Attempts, s.Reason, err)
	}
}
