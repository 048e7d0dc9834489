package sim_test

import (
	"testing"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// hour is about 100,000 attempts in an hour: the ceiling is 36 ms and a bucket
// above it never refuses.
func hour(b *testing.B) *scenario.Scenario {
	return parse(b, "horizon: 1h", "owner: {ceiling: 36ms, initial: 36ms}", "provider:", "  latency: {p50: 120ms, p99: 600ms}",
		"  limits: [{kind: token_bucket, rate: 30/s, burst: 20}, {kind: sliding_window, limit: 9000, window: 5m}]")
}

func BenchmarkRunHour100k(b *testing.B) {
	s := hour(b)
	b.ReportAllocs()
	var attempts int64
	for b.Loop() {
		attempts += run(b, s, sim.Options{Seed: 1}).Attempts
	}
	b.ReportMetric(float64(attempts)/float64(b.N), "attempts/op")
	b.ReportMetric(float64(attempts)/b.Elapsed().Seconds(), "attempts/s")
}

func BenchmarkOracleHour100k(b *testing.B) {
	s := hour(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sim.NewOracle(s, 1); err != nil {
			b.Fatal(err)
		}
	}
}
