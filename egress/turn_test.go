package egress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/reason"
)

// every is how long a turn takes here.
func every() time.Duration { return time.Second }

// TestTurnsGoByWeight: when the pacing gives less than the quota, tenants have
// their weights of it, however many of their calls wait.
func TestTurnsGoByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			line turns
			mu   sync.Mutex
			got  = map[string]float64{}
			all  sync.WaitGroup
		)
		ctx, cancel := context.WithTimeout(t.Context(), 2000*time.Second)
		defer cancel()
		for tenant, c := range map[string]struct{ weight, calls int }{"a": {1, 20}, "b": {2, 3}, "c": {3, 5}} {
			for n := range c.calls {
				random := rand.New(rand.NewPCG(1, uint64(n)))
				all.Go(func() {
					for ctx.Err() == nil {
						cost := 1 + 9*random.Float64()
						if line.take(ctx, &turn{tenant: tenant, share: cost / float64(c.weight)}, every) != nil {
							return // there is no time left
						}
						time.Sleep(time.Second)
						mu.Lock()
						got[tenant] += cost
						mu.Unlock()
						line.pass()
					}
				})
			}
		}
		all.Wait()
		whole := got["a"] + got["b"] + got["c"]
		for tenant, want := range map[string]float64{"a": 1. / 6, "b": 2. / 6, "c": 3. / 6} {
			if part := got[tenant] / whole; part < 0.97*want || part > 1.03*want {
				t.Errorf("%s got %.3f of it all, want %.3f", tenant, part, want)
			}
		}
		if line.taken || len(line.waiting) != 0 || len(line.served) != 0 {
			t.Errorf("it is over, and left is %+v", &line)
		}
	})
}

func TestTurnsGoByPriorityThenByArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			line  turns
			order []string
			all   sync.WaitGroup
		)
		if err := line.take(t.Context(), &turn{share: 1}, every); err != nil {
			t.Fatal(err)
		}
		for n, priority := range []int{0, 5, 0, 5} {
			all.Go(func() {
				if err := line.take(t.Context(), &turn{tenant: fmt.Sprint(n), priority: priority, share: 1}, every); err != nil {
					t.Error(err)
				}
				order = append(order, fmt.Sprint(n))
				line.pass()
			})
			synctest.Wait()
		}
		line.pass()
		all.Wait()
		if want := []string{"1", "3", "0", "2"}; !slices.Equal(order, want) {
			t.Errorf("they went in the order %v, want %v", order, want)
		}
	})
}

// TestATurnThatCannotComeInTimeIsRefused: at once when that is certain, else when
// the time is over, and then nothing of it is left.
func TestATurnThatCannotComeInTimeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turns
		if err := line.take(t.Context(), &turn{tenant: "a", share: 1}, every); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		began, ends := time.Now(), make(chan error, 2)
		for range 2 {
			go func() { ends <- line.take(ctx, &turn{tenant: "a", share: 1}, every) }()
			synctest.Wait()
		}
		err := line.take(ctx, &turn{tenant: "a", share: 1}, func() time.Duration { return 2 * time.Second })
		r, ok := errors.AsType[*reason.Refusal](err)
		if !ok || r.Reason != reason.Deadline || !r.RetryAt.Equal(began.Add(4*time.Second).Round(0)) || time.Since(began) != 0 {
			t.Errorf("behind two of two seconds: %v after %v, want a refusal at once", err, time.Since(began))
		}
		for range 2 {
			err := <-ends
			if r, ok := errors.AsType[*reason.Refusal](err); !ok || r.Reason != reason.Deadline || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("at the deadline: %v", err)
			}
		}
		if at := time.Since(began); at != 2500*time.Millisecond {
			t.Errorf("they gave up after %v", at)
		}
		synctest.Wait()
		line.pass()
		if line.taken || len(line.waiting) != 0 {
			t.Errorf("left is %+v", &line)
		}
	})
}
