package bulk_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/reason"
)

// Two loads in a fleet send at one pace together, and each row once.
func TestLoadsShareAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gap = 100 * time.Millisecond
		f := fleet.NewServer()
		defer f.Close()
		var mu sync.Mutex
		var sent []time.Time
		paced := func(string) (*headway.Governor, error) {
			return headway.New(headway.Config{
				Name: "crm", Fleet: f.Fleet().Member("crm.example.com", "key"), Passive: true, Ceiling: gap,
				NoBreaker: true, JitterMax: -1, MaxWait: time.Hour,
			})
		}
		var loads sync.WaitGroup
		for range 2 {
			loads.Go(func() {
				s := &server{maxRows: 10, took: 20 * time.Millisecond}
				s.answer = func(int64, int, bulk.Batch) *bulk.Outcome {
					mu.Lock()
					defer mu.Unlock()
					sent = append(sent, time.Now())
					return nil
				}
				sum, err := run(t, t.Context(), &counter{rows: 200}, s, bulk.Options{Dir: t.TempDir(), Pacing: paced})
				if err != nil || sum.State != bulk.Drained || sum.Acknowledged != 200 {
					t.Errorf("%+v, %v", sum, err)
				}
				if by := sum.BoundBy; by[reason.BoundLimit] < by.Total()/2 {
					t.Errorf("bound by %v, want the limit", by)
				}
				s.eachOnce(t, 200)
			})
		}
		loads.Wait()
		slices.SortFunc(sent, time.Time.Compare)
		if len(sent) < 40 {
			t.Fatalf("%d batches, want at least 40", len(sent))
		}
		for i := range sent[1:] {
			if d := sent[i+1].Sub(sent[i]); d < gap {
				t.Errorf("batches %d and %d are %v apart, want %v", i, i+1, d, gap)
			}
		}
	})
}

// A batch that waits for its turn was not sent: when the load is interrupted, or its fleet is
// away for too long, its rows are owed, not in doubt.
func TestAWaitForATurnLeavesNoDoubt(t *testing.T) {
	for name, interrupted := range map[string]bool{"interrupted": true, "away": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fleet.NewServer()
				f.Close() // nobody is there
				paced := func(string) (*headway.Governor, error) {
					return headway.New(headway.Config{Fleet: f.Fleet().Member("crm.example.com", "key"), Passive: true, NoBreaker: true, JitterMax: -1, MaxWait: time.Hour})
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if interrupted {
					time.AfterFunc(10*time.Second, stop)
				}
				dir, s := t.TempDir(), &server{took: time.Second}
				began := time.Now()
				sum, err := run(t, ctx, &counter{rows: 50}, s, bulk.Options{Dir: dir, Params: bulk.Params{StallTimeout: time.Minute}, Pacing: paced})
				want, took := reason.Interrupted, 10*time.Second
				if !interrupted {
					want, took = reason.Deadline, time.Minute
				}
				if err != nil || sum.State != bulk.Deferred || sum.Reason != want || sum.Owed != 50 || sum.Uncertain != 0 {
					t.Errorf("%+v, %v", sum, err)
				}
				if now := time.Since(began); now < took || now > took+2*time.Second {
					t.Errorf("it took %v, want %v", now, took)
				}
				sum, err = run(t, t.Context(), &counter{rows: 50}, s, bulk.Options{Dir: dir})
				if err != nil || sum.State != bulk.Drained || sum.Acknowledged != 50 {
					t.Errorf("without a fleet: %+v, %v", sum, err)
				}
			})
		})
	}
}
