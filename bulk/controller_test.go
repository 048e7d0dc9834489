package bulk_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

func newController(t testing.TB, p control.ParallelismParams) *bulk.Controller {
	t.Helper()
	c, err := bulk.NewController(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAControllerIsolatesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, control.ParallelismParams{})
		a, b := bulk.Key{Connection: "a"}, bulk.Key{Connection: "b"}
		start := time.Now()
		time.Sleep(time.Second)
		c.Throttle(a, start, 0)
		c.Recommend("a", 40)
		if got := [2]int{c.Parallelism(a, 1), c.Parallelism(b, 1)}; got != [2]int{13, 26} {
			t.Errorf("levels %v, want 13 and 26", got)
		}
		s := c.Statistics(a)
		if s.TotalThrottles != 1 || s.Max != 40 || !s.LastThrottleAt.Equal(time.Now()) || !c.Statistics(b).LastThrottleAt.IsZero() {
			t.Errorf("%+v", s)
		}
		c.Reset(a)
		if s := c.Statistics(a); s.Current != 20 || s.TotalThrottles != 1 {
			t.Errorf("after a reset %+v", s)
		}
	})
}

func TestTypesShareWhatTheConnectionMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, control.ParallelismParams{Max: 12, InitialFactor: 1})
		account, contact := bulk.Key{Connection: "crm", Type: "account"}, bulk.Key{Connection: "crm", Type: "contact"}
		if got := c.Parallelism(account, 0); got != 12 {
			t.Fatalf("alone it gets %d", got)
		}
		if got := c.Parallelism(contact, 0); got != 6 {
			t.Errorf("the second gets %d, want half", got)
		}
		if got := c.Parallelism(account, 5); got != 6 {
			t.Errorf("the first gets %d, want half", got)
		}
		start := time.Now()
		time.Sleep(time.Second)
		c.Throttle(account, start, 0)
		if c.Statistics(account).Current != 6 || c.Statistics(contact).Current != 12 {
			t.Error("a throttle of one type lowered the other's level")
		}
		c.Recommend("crm", 4)
		if a, b := c.Parallelism(account, 1), c.Parallelism(contact, 1); a+b > 4 {
			t.Errorf("%d and %d after a hint of 4", a, b)
		}
		if got := c.Statistics(bulk.Key{Connection: "crm", Type: "lead"}); got.Max != 4 {
			t.Errorf("a new type may use %d", got.Max)
		}
		time.Sleep(6 * time.Minute)
		if got := c.Parallelism(contact, 0); got != 4 {
			t.Errorf("once the others are idle it gets %d", got)
		}
	})
}

func TestTypesNeverExceedTheCeilingTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, control.ParallelismParams{})
		c.Recommend("crm", 1)
		account, contact := bulk.Key{Connection: "crm", Type: "account"}, bulk.Key{Connection: "crm", Type: "contact"}
		start := time.Now()
		if got := [2]int{c.Parallelism(account, 0), c.Parallelism(contact, 0)}; got != [2]int{1, 0} {
			t.Fatalf("a hint of 1 gives %v, want one batch in all", got)
		}
		time.Sleep(time.Second)
		c.Success(account, start, 0)
		if got := [2]int{c.Parallelism(contact, 0), c.Parallelism(account, 0)}; got != [2]int{1, 0} {
			t.Errorf("once the first is back %v, want the place for who asks", got)
		}
		c.Throttle(contact, time.Now(), 0)
		if got := c.Parallelism(account, 0); got != 1 {
			t.Errorf("once the second is refused the first gets %d", got)
		}
		// Who is not heard of any more gives its place back.
		if got := c.Parallelism(contact, 0); got != 0 {
			t.Errorf("beside one under way there are %d", got)
		}
		time.Sleep(6 * time.Minute)
		if got := c.Parallelism(contact, 0); got != 1 {
			t.Errorf("once the first is idle there are %d", got)
		}
	})
}

func TestTypesShareTheBudgetOfExecutionTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, control.ParallelismParams{})
		account, contact := bulk.Key{Connection: "crm", Type: "account"}, bulk.Key{Connection: "crm", Type: "contact"}
		if got := c.Parallelism(account, 0); got != 26 {
			t.Fatalf("before the server recommends a level it is %d", got)
		}
		c.Budget("crm", 0, time.Second)
		c.Budget("crm", 1200*time.Second, 300*time.Second)
		if got := c.Parallelism(account, 0); got != 4 {
			t.Errorf("alone it gets %d, want the 4 that are busy on average", got)
		}
		if got := [2]int{c.Parallelism(contact, 0), c.Parallelism(account, 1)}; got != [2]int{2, 2} {
			t.Errorf("both get %v, want 4 together", got)
		}
		if got := c.Parallelism(bulk.Key{Connection: "erp"}, 0); got != 26 {
			t.Errorf("another connection gets %d", got)
		}
	})
}

func TestAControllerIsSafeForConcurrentUse(t *testing.T) {
	c := newController(t, control.ParallelismParams{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			k := bulk.Key{Connection: fmt.Sprint(i % 2), Type: fmt.Sprint(i % 3)}
			for range 200 {
				start := time.Now()
				if n := c.Parallelism(k, 1); n < 0 || n > control.DefaultMaxParallelism {
					t.Errorf("level %d", n)
				}
				c.Success(k, start, 0)
				c.Throttle(k, start, 0)
				c.Recommend(k.Connection, 1+i)
				c.Statistics(k)
				c.Reset(k)
			}
		})
	}
	wg.Wait()
}

func TestTheControllersParamsAreChecked(t *testing.T) {
	if _, err := bulk.NewController(control.ParallelismParams{Min: -1}); err == nil {
		t.Error("a minimum of -1")
	}
}

func ExampleController() {
	c, err := bulk.NewController(control.ParallelismParams{Max: 52})
	if err != nil {
		panic(err)
	}
	key := bulk.Key{Connection: "crm", Type: "contact"}
	fmt.Println(c.Parallelism(key, 0))
	c.Recommend("crm", 4)
	fmt.Println(c.Parallelism(key, 0))
	c.Throttle(key, time.Now(), 0)
	s := c.Statistics(key)
	fmt.Println(s.Current, "of at most", s.Max, "after", s.TotalThrottles, "throttle")
	// Output:
	// 26
	// 4
	// 2 of at most 4 after 1 throttle
}

// slowly gives a row now and then.
type slowly struct {
	counter
	every time.Duration
}

func (s *slowly) Next() (bulk.Row, error) {
	time.Sleep(s.every)
	return s.counter.Next()
}

func TestALoadSaysWhatBoundIt(t *testing.T) {
	level := func(most int) dispatch.Params {
		return dispatch.Params{BatchRows: 10, Law: control.ParallelismParams{Max: most, Ceiling: most, Min: 1}}
	}
	hint := func(n int) *bulk.Outcome {
		return &bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.OK, Parallelism: n}}
	}
	for _, tt := range []struct {
		name   string
		source bulk.Source
		server *server
		params dispatch.Params
		want   reason.Bound
	}{
		{"the owner's ceiling", &counter{rows: 2000}, &server{took: time.Second}, level(1), reason.BoundCeiling},
		{"what the server recommends", &counter{rows: 2000}, &server{took: time.Second, answer: func(int64, int, bulk.Batch) *bulk.Outcome { return hint(2) }},
			level(50), reason.BoundLimit},
		{"what the provider has borne", &counter{rows: 2000}, &server{took: time.Second, answer: func(n int64, _ int, _ bulk.Batch) *bulk.Outcome {
			if n%20 == 19 {
				return throttle(0)
			}
			return nil
		}}, level(50), reason.BoundParallelism},
		{"Retry-After", &counter{rows: 50}, &server{took: time.Second, answer: func(n int64, _ int, _ bulk.Batch) *bulk.Outcome {
			if n == 1 {
				return throttle(time.Minute)
			}
			return nil
		}}, level(1), reason.BoundCooldown},
		{"an input that is slow", &slowly{counter{rows: 200}, time.Second}, &server{took: time.Second}, level(50), reason.BoundInput},
		{"the last answers", &counter{rows: 20}, &server{took: time.Minute}, level(50), reason.BoundLatency},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sum, err := run(t, t.Context(), tt.source, tt.server, bulk.Options{Dir: t.TempDir(), Params: tt.params})
				if err != nil || sum.State != bulk.Drained {
					t.Fatalf("%+v, %v", sum, err)
				}
				if shares := sum.BoundBy.Shares(); len(shares) == 0 || shares[0].Bound != tt.want || shares[0].Of < 0.7 {
					t.Errorf("the load was bound by %v, want %v", sum.BoundBy, tt.want)
				}
				if total := sum.BoundBy.Total(); total != sum.Elapsed {
					t.Errorf("%v of %v is accounted for", total, sum.Elapsed)
				}
			})
		})
	}
}

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
				if err != nil || sum.State != bulk.Deferred || sum.Reason != want || sum.Owed != 50 || sum.Uncertain != 0 || (sum.Cause == "") != interrupted {
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

// A load that has stopped sends no batch that still waits for its permit, and does not wait
// for that permit.
func TestAStoppedLoadDoesNotWaitForPermits(t *testing.T) {
	for name, aborted := range map[string]bool{"aborted": true, "the provider refuses the load": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				paced := func(string) (*headway.Governor, error) {
					return headway.New(headway.Config{Name: "crm", Passive: true, Ceiling: time.Hour, NoBreaker: true, JitterMax: -1, MaxWait: 24 * time.Hour})
				}
				s, abort := &server{maxRows: 10, took: time.Minute}, make(chan struct{})
				want, took := reason.Interrupted, 10*time.Second
				if aborted {
					time.AfterFunc(took, func() { close(abort) })
				} else {
					want, took = reason.ClientError, s.took
					s.answer = func(int64, int, bulk.Batch) *bulk.Outcome {
						return &bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.Rejected, Reason: want, Fatal: true}}
					}
				}
				began := time.Now()
				sum, err := run(t, t.Context(), &counter{rows: 200}, s, bulk.Options{
					Dir: t.TempDir(), Params: bulk.Params{StallTimeout: 24 * time.Hour}, Pacing: paced, Abort: abort,
				})
				if err != nil || sum.State != bulk.Deferred || sum.Reason != want || s.batches != 1 {
					t.Errorf("%d batches were sent: %+v, %v", s.batches, sum, err)
				}
				if now := time.Since(began); now != took {
					t.Errorf("it ended after %v, want %v", now, took)
				}
			})
		})
	}
}
