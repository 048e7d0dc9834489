package quota_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/headway-go/headway/quota"
)

// ample limits never refuse in a benchmark, but everything is checked.
func ample() quota.Limits {
	return quota.Limits{CallsPerMinute: 1e9, TokensPerMinute: 1e9}
}

func BenchmarkApproveSettle(b *testing.B) {
	full := ample()
	full.InputTokensPerMinute, full.OutputTokensPerMinute = 1e9, 1e9
	full.SoftTokenBudget, full.SoftTokenWindowMS = 1e15, 60_000
	full.MaxDailyTokens = 1e15
	for _, bench := range []struct {
		name   string
		limits quota.Limits
		for_   quota.Request
	}{
		{"calls over global and model", quota.Limits{CallsPerMinute: 1e9}, quota.Request{}},
		{"calls and tokens over global and model", ample(), quota.Request{}},
		{"every budget over global and model", full, quota.Request{}},
		{"calls and tokens over global, model, tenant, agent", ample(), quota.Request{Tenant: "t", Agent: "a"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			g := governor(b, quota.Config{
				Global: bench.limits, Models: map[string]quota.Model{"m": {Limits: bench.limits}},
				TenantDefault: quota.Tenant{Limits: bench.limits, AgentDefault: quota.Agent{Limits: bench.limits}},
			})
			r := bench.for_
			r.Model, r.InputTokens, r.OutputTokens = "m", 10, 10
			now := time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				now += time.Microsecond
				d := g.Approve(now, r)
				if !d.Approved {
					b.Fatal(d)
				}
				if _, err := g.RecordUsage(now, d.Permit, quota.Usage{Input: 10, Output: 5}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	// Two limiters, for global and for the model: the calls of the first line
	// above, without tokens, states, permits or giving back.
	b.Run("x-time-rate, two limiters", func(b *testing.B) {
		global, model := rate.NewLimiter(1e9/60, 1e9), rate.NewLimiter(1e9/60, 1e9)
		now := time.Now()
		b.ReportAllocs()
		for b.Loop() {
			now = now.Add(time.Microsecond)
			if !global.AllowN(now, 1) || !model.AllowN(now, 1) {
				b.Fatal("refused")
			}
		}
	})
	// Calls and tokens of both scopes need four, and ReserveN to give back.
	b.Run("x-time-rate, two limiters for calls and two for tokens, with giving back", func(b *testing.B) {
		calls := [2]*rate.Limiter{rate.NewLimiter(1e9/60, 1e9), rate.NewLimiter(1e9/60, 1e9)}
		tokens := [2]*rate.Limiter{rate.NewLimiter(1e9/60, 1e9), rate.NewLimiter(1e9/60, 1e9)}
		now := time.Now()
		b.ReportAllocs()
		for b.Loop() {
			now = now.Add(time.Microsecond)
			for i := range calls {
				if !calls[i].AllowN(now, 1) {
					b.Fatal("refused")
				}
				r := tokens[i].ReserveN(now, 20)
				if !r.OK() || r.DelayFrom(now) > 0 {
					b.Fatal("refused")
				}
				r.CancelAt(now)
				tokens[i].AllowN(now, 15)
			}
		}
	})
}

func BenchmarkRefusal(b *testing.B) {
	g := governor(b, quota.Config{Models: map[string]quota.Model{"m": {Limits: quota.Limits{CallsPerMinute: 1}}}})
	g.Approve(0, quota.Request{Model: "m"})
	b.ReportAllocs()
	for b.Loop() {
		if g.Approve(1, quota.Request{Model: "m"}).Approved {
			b.Fatal("approved")
		}
	}
}

// A thousand tenants use three models, each with limits of its own.
func BenchmarkThousandTenants(b *testing.B) {
	g := governor(b, quota.Config{
		Global: ample(), Models: map[string]quota.Model{"a": {Limits: ample()}, "b": {Limits: ample()}, "c": {Limits: ample()}},
		TenantDefault: quota.Tenant{Limits: ample(), Models: map[string]quota.Limits{"a": ample(), "b": ample(), "c": ample()}},
	})
	requests := make([]quota.Request, 3000)
	for i := range requests {
		requests[i] = quota.Request{Model: string(rune('a' + i%3)), Tenant: fmt.Sprintf("tenant-%d", i/3), InputTokens: 10}
	}
	now, i := time.Duration(0), 0
	for range requests {
		d := g.Approve(now, requests[i])
		if _, err := g.RecordUsage(now, d.Permit, quota.Usage{Input: 10}); err != nil {
			b.Fatal(err)
		}
		i = (i + 1) % len(requests)
	}
	b.ReportAllocs()
	for b.Loop() {
		now += time.Microsecond
		d := g.Approve(now, requests[i])
		if !d.Approved {
			b.Fatal(d)
		}
		if _, err := g.RecordUsage(now, d.Permit, quota.Usage{Input: 10}); err != nil {
			b.Fatal(err)
		}
		i = (i + 1) % len(requests)
	}
}

// As a shell uses it: one lock for many callers.
func BenchmarkUnderALock(b *testing.B) {
	g := governor(b, quota.Config{Global: ample(), Models: map[string]quota.Model{"m": {Limits: ample()}}})
	var mu sync.Mutex
	var now time.Duration
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			now += time.Microsecond
			d := g.Approve(now, quota.Request{Model: "m", InputTokens: 10})
			mu.Unlock()
			mu.Lock()
			_, err := g.RecordUsage(now, d.Permit, quota.Usage{Input: 10})
			mu.Unlock()
			if err != nil {
				b.Error(err)
			}
		}
	})
}
