package headway_test

import (
	"context"
	"runtime"
	"testing"

	"golang.org/x/time/rate"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/reason"
)

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
