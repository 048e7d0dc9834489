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

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/reason"
)

// In an hour of virtual time under throttles, failures and open circuits, the last third
// may not need more memory or goroutines than the first.
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

// unlimited never makes a caller wait: reading the clock takes longer than its interval.
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

// BenchmarkConnectionSize reports the memory that a connection takes under each law.
func BenchmarkConnectionSize(b *testing.B) {
	const keys = 100_000
	for _, law := range []string{"aimd", "cycle"} {
		b.Run("law="+law, func(b *testing.B) {
			for b.Loop() {
				c, err := headway.NewConnections[int](headway.Config{Law: law, JitterMax: -1})
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
		})
	}
}

// Of three hundred pools, the 256 most recently used are in use; the others are evicted,
// and start again from what they learned. Thousands of names take no more memory than the
// bound allows.
func TestThreeHundredPoolsOfOneConnection(t *testing.T) {
	const pools, bound = 300, 256
	g, err := headway.New(headway.Config{Passive: true, JitterMax: -1, NoBreaker: true})
	if err != nil {
		t.Fatal(err)
	}
	name := func(i int) string { return fmt.Sprint("model-", i) }
	refuse := func(i int) {
		// Each one answers, and then refuses: that is what its law learns.
		for _, c := range []headway.Class{reason.OK, reason.Throttled} {
			p, err := g.AcquireFor(t.Context(), headway.Request{Pool: name(i)})
			if err != nil {
				t.Fatal(err)
			}
			p.Settle(headway.Outcome{Class: c})
		}
	}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	inUse := func() map[string]bool {
		all := map[string]bool{}
		for _, p := range g.Snapshot().Pools {
			all[p.Name] = true
		}
		return all
	}
	before := heap()
	refuse(0)
	learned := g.LearnedPools()[name(0)]
	for i := 1; i < pools; i++ {
		refuse(i)
	}
	all := inUse()
	if len(all) != bound || all[name(0)] || !all[name(pools-1)] {
		t.Errorf("%d pools are in use, the first among them: %v; the last: %v", len(all), all[name(0)], all[name(pools-1)])
	}
	if len(g.LearnedPools()) != pools {
		t.Errorf("%d pools are remembered, want %d", len(g.LearnedPools()), pools)
	}
	full := heap()
	if each := (full - before) / bound; each > 4_000 {
		t.Errorf("a pool takes %.0f bytes, want at most 4,000", each)
	}
	if diff := cmp.Diff(learned, g.LearnedPools()[name(0)]); diff != "" || learned.Law == "" {
		t.Errorf("what the first pool learned changed while it was given up (-before +after):\n%s", diff)
	}
	if g.RoomAt(name(0)); !inUse()[name(0)] {
		t.Error("the first pool did not come back")
	}
	if diff := cmp.Diff(learned, g.LearnedPools()[name(0)]); diff != "" || g.Unlimited(name(0)) {
		t.Errorf("the first pool did not come back with what it had learned (-before +after):\n%s", diff)
	}
	for i := range 20 * bound {
		g.RoomAt(fmt.Sprint("made-up-", i)) // names of which nothing is learned are forgotten
	}
	for i := range 20 * bound {
		refuse(pools + i)
	}
	if more := heap() - full; len(inUse()) != bound || more > 4<<20 {
		t.Errorf("%d pools are in use after %d, which took %.0f bytes more", len(inUse()), pools+20*bound, more)
	}
	runtime.KeepAlive(g)
}

// BenchmarkPoolSize reports the memory that a pool takes: in use with nothing learned, in
// use after a refusal, and evicted with its belief kept.
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
