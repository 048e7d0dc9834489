package headway_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/reason"
)

// An hour of virtual time under throttles, failures and open circuits: the last
// third of it may need no more memory and goroutines than the first.
func TestAnHourIsFlatInMemoryAndGoroutines(t *testing.T) {
	for _, law := range []string{"aimd", "cycle"} {
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

// unlimited never has to wait: reading the clock takes longer than its interval.
func unlimited() headway.Config {
	return headway.Config{Ceiling: 1, Initial: 1, JitterMax: -1}
}

func BenchmarkAcquireSettle(b *testing.B) {
	ctx := context.Background()
	b.Run("headway", func(b *testing.B) {
		g, err := headway.New(unlimited())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			p, err := g.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			p.Settle(headway.Outcome{Class: reason.OK})
		}
	})
	for _, passive := range []bool{false, true} {
		for _, pool := range []string{"", "m"} {
			b.Run(fmt.Sprintf("passive=%v/pool=%q", passive, pool), func(b *testing.B) {
				c := unlimited()
				c.Passive = passive
				g, err := headway.New(c)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					p, err := g.AcquireFor(ctx, headway.Request{Pool: pool})
					if err != nil {
						b.Fatal(err)
					}
					p.Settle(headway.Outcome{Class: reason.OK})
				}
			})
		}
	}
	b.Run("x-time-rate-wait", func(b *testing.B) {
		l := rate.NewLimiter(rate.Inf, 1)
		b.ReportAllocs()
		for b.Loop() {
			if err := l.Wait(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("x-time-rate-allow", func(b *testing.B) {
		l := rate.NewLimiter(1e9, 1000)
		b.ReportAllocs()
		for b.Loop() {
			l.Allow()
		}
	})
}

func BenchmarkConnectionsParallel(b *testing.B) {
	c, err := headway.NewConnections[int](unlimited())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for key := 0; pb.Next(); key = (key + 1) % 1000 {
			p, err := c.For(key).Acquire(context.Background())
			if err != nil {
				b.Error(err)
				return
			}
			p.Settle(headway.Outcome{Class: reason.OK})
		}
	})
}

// BenchmarkConnectionSize reports what a connection costs in memory.
func BenchmarkConnectionSize(b *testing.B) {
	const keys = 100_000
	for b.Loop() {
		c, err := headway.NewConnections[int](headway.Config{JitterMax: -1})
		if err != nil {
			b.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for key := range keys {
			p, err := c.For(key).TryAcquire()
			if err != nil {
				b.Fatal(err)
			}
			p.Settle(headway.Outcome{Class: reason.OK})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "B/connection")
		runtime.KeepAlive(c)
	}
}

// BenchmarkPoolSize reports what a pool costs in memory: one in use of which nothing is
// known, one that was refused, and one that was given up, whose belief is kept.
func BenchmarkPoolSize(b *testing.B) {
	const pools, bound = 300, 256
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		for _, refused := range []bool{false, true} {
			g, err := headway.New(headway.Config{Passive: true, JitterMax: -1, NoBreaker: true})
			if err != nil {
				b.Fatal(err)
			}
			use := func(from, to int) {
				for i := range to - from {
					for try := range 2 {
						p, err := g.AcquireFor(b.Context(), headway.Request{Pool: fmt.Sprint("model-", from+i)})
						if err != nil {
							b.Fatal(err)
						}
						o := headway.Outcome{Class: reason.OK}
						if refused && try == 1 {
							o.Class = reason.Throttled
						}
						p.Settle(o)
					}
				}
			}
			before := heap()
			use(0, bound)
			full := heap()
			use(bound, pools)
			after := heap()
			name := "B/quiet_pool"
			if refused {
				name = "B/refused_pool"
				b.ReportMetric((after-full)/(pools-bound), "B/kept_belief")
			}
			b.ReportMetric((full-before)/bound, name)
			runtime.KeepAlive(g)
		}
	}
}
