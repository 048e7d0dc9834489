package headway_test

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/reason"
)

// An hour of virtual time under throttles, failures and open circuits: the last
// third of it may need no more memory and goroutines than the first.
func TestAnHourIsFlatInMemoryAndGoroutines(t *testing.T) {
	for _, law := range []string{"aimd", "envelope"} {
		var heap, goroutines []uint64
		attempts := 0
		synctest.Test(t, func(t *testing.T) {
			g := newGovernor(t, headway.Config{Law: law, Ceiling: 50 * time.Millisecond, Initial: 200 * time.Millisecond})
			var mu sync.Mutex
			for range 10 {
				end := time.Now().Add(6 * time.Minute)
				var workers sync.WaitGroup
				for range 4 {
					workers.Go(func() {
						for time.Now().Before(end) {
							p, err := g.Acquire(t.Context())
							if err != nil {
								time.Sleep(time.Second) // the circuit is open
								continue
							}
							time.Sleep(20 * time.Millisecond)
							mu.Lock()
							attempts++
							n := attempts
							mu.Unlock()
							out := headway.Outcome{Class: reason.OK}
							switch {
							case n%500 == 0:
								out = headway.Outcome{Class: reason.Throttled, RetryAfter: 2 * time.Second}
							case n%2000 < 8:
								out.Class = reason.Lost
							}
							p.Settle(out)
						}
					})
				}
				workers.Wait()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				heap, goroutines = append(heap, m.HeapAlloc), append(goroutines, uint64(runtime.NumGoroutine()))
			}
		})
		at, end := slices.Min(heap[:3]), slices.Min(heap[7:])
		t.Logf("%s: %d attempts; heap %d to %d bytes, goroutines %d to %d", law, attempts, at, end, goroutines[0], goroutines[9])
		if end > at+at/5 {
			t.Errorf("%s: the heap grew from %d to %d bytes", law, at, end)
		}
		if slices.Max(goroutines[7:]) > slices.Max(goroutines[:3]) {
			t.Errorf("%s: goroutines grew: %v", law, goroutines)
		}
	}
}
