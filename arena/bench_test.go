package arena

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"golang.org/x/time/rate"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/reason"
)

// BenchmarkDecision is what it costs to be let through and to say how it ended,
// where nothing has to wait.
func BenchmarkDecision(b *testing.B) {
	ctx := context.Background()
	b.Run("headway", func(b *testing.B) {
		g, err := headway.New(headway.Config{Ceiling: 1, Initial: 1, JitterMax: -1})
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
	b.Run("failsafe-limiter-breaker-adaptive", func(b *testing.B) {
		executor := failsafe.With(
			ratelimiter.NewBursty[any](1<<40, 1<<40),
			circuitbreaker.NewWithDefaults[any](),
			adaptivelimiter.NewWithDefaults[any](),
		)
		nothing := func() error { return nil }
		b.ReportAllocs()
		for b.Loop() {
			if err := executor.Run(nothing); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("aws-adaptive-token", func(b *testing.B) {
		mode := retry.NewAdaptiveMode()
		b.ReportAllocs()
		for b.Loop() {
			release, err := mode.GetAttemptToken(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := release(nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("x-time-rate-wait", func(b *testing.B) {
		l := rate.NewLimiter(1e12, 1<<30)
		b.ReportAllocs()
		for b.Loop() {
			if err := l.Wait(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("x-time-rate-allow", func(b *testing.B) {
		l := rate.NewLimiter(1e12, 1<<30)
		b.ReportAllocs()
		for b.Loop() {
			l.Allow()
		}
	})
}
