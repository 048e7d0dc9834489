package sim_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
)

func TestCompareGivesWhatRunGives(t *testing.T) {
	a := parse(t, "horizon: 1m", "provider:", exact)
	b := parse(t, "horizon: 2m", "provider:", exact)
	results, err := sim.Compare([]*scenario.Scenario{a, b}, []string{"aimd", "aimd"}, 9)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 4 {
		t.Fatalf("%d results, want 2 scenarios under 2 laws", len(results))
	}
	for i, s := range []*scenario.Scenario{a, a, b, b} {
		want := jsonOf(t, run(t, s, sim.Options{Law: "aimd", Seed: 9}))
		if got := jsonOf(t, results[i]); !bytes.Equal(got, want) {
			t.Errorf("result %d: got\n%s\nwant\n%s", i, got, want)
		}
	}
}

func TestTableIsAlignedAndShowsUnknownAsSuch(t *testing.T) {
	results := []sim.Result{
		{
			Scenario: "a", Law: "aimd", Admitted: 7, Throttled: 12345, GoodputRatio: new(0.5), ThrottledPer1000: new(1.25),
			LongestBlockS: 3, StrangersHarm: new(int64(4)), Suspended: true,
		},
		{Scenario: "a-longer-name", Law: "x", CeilingViolations: 2},
	}
	var b strings.Builder
	if err := sim.WriteTable(&b, results); err != nil {
		t.Fatal(err)
	}
	const want = `scenario       law   goodput  thr/1000  admitted  throttled  to 90 %  block  wait p50  wait p99  thr/change  harm  jain  failed
a              aimd    0.500      1.25         7      12345        -  3.0 s         -         -           -     4     -  suspended
a-longer-name  x           -         -         0          0        -  0.0 s         -         -           -     -     -  2 over the ceiling
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

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
