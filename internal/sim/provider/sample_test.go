package provider_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

func TestLatencyHasItsPercentiles(t *testing.T) {
	s := parse(t, "\n  latency: {p50: 120ms, p99: 600ms}")
	p := provider.NewSampler(s, 3, 0)
	const n = 100_000
	var up, total []time.Duration
	for range n {
		u, d := p.Latency()
		if d < 2*u {
			t.Fatalf("total %s is shorter than two uplinks of %s", d, u)
		}
		up, total = append(up, u), append(total, d)
	}
	slices.Sort(up)
	slices.Sort(total)
	near := func(name string, got, want time.Duration) {
		t.Helper()
		if math.Abs(float64(got)/float64(want)-1) > 0.03 {
			t.Errorf("%s is %s, want about %s", name, got, want)
		}
	}
	near("p50", total[n/2], 120*ms)
	near("p99", total[n*99/100], 600*ms)
	near("uplink p50", up[n/2], 12*ms)
	near("uplink p99", up[n*99/100], 24*ms)
}

func TestConstantLatencyAndCost(t *testing.T) {
	s := parse(t, "\n  latency: {p50: 80ms, p99: 80ms, uplink_p50: 5ms, uplink_p99: 5ms}")
	p := provider.NewSampler(s, 3, 0)
	for range 100 {
		if u, d := p.Latency(); u != 5*ms || d != 80*ms {
			t.Fatalf("latency %s of %s, want 5ms of 80ms", u, d)
		}
		if c := p.Cost(); c != 1 {
			t.Fatalf("cost %g, want 1", c)
		}
		if g := p.Gap(); g != provider.Never {
			t.Fatalf("a backlog has a gap of %s", g)
		}
	}
}

func TestCostAndGapHaveTheirMeans(t *testing.T) {
	s := parse(t, "\n  limits: []")
	s.Workload = scenario.Workload{Kind: scenario.Open, Rate: scenario.Rate{Count: 20, Per: time.Second}, Cost: scenario.Cost{Mean: 900, Spread: 0.8}}
	p := provider.NewSampler(s, 5, 0)
	const n = 200_000
	cost, gap := 0.0, time.Duration(0)
	for range n {
		cost += p.Cost()
		gap += p.Gap()
	}
	if mean := cost / n; math.Abs(mean/900-1) > 0.02 {
		t.Errorf("mean cost %g, want about 900", mean)
	}
	if mean := gap / n; math.Abs(float64(mean)/float64(50*ms)-1) > 0.02 {
		t.Errorf("mean gap %s, want about 50ms", mean)
	}
}

func TestSamplersAreDeterministicAndApart(t *testing.T) {
	s := parse(t, "\n  latency: {p50: 120ms, p99: 600ms}")
	a, b, other, seed := provider.NewSampler(s, 3, 0), provider.NewSampler(s, 3, 0), provider.NewSampler(s, 3, 1), provider.NewSampler(s, 4, 0)
	same := 0
	for range 1000 {
		b.Cost() // another stream: leaves latency as it is
		u, d := a.Latency()
		if bu, bd := b.Latency(); bu != u || bd != d {
			t.Fatal("the same seed and client gave other latencies")
		}
		if _, od := other.Latency(); od == d {
			same++
		}
		if _, sd := seed.Latency(); sd == d {
			same++
		}
	}
	if same > 5 {
		t.Errorf("%d equal latencies between other clients and seeds", same)
	}
}

func Example() {
	s, err := scenario.Parse("slack.yaml", []byte(`
name: slack
provider:
  limits: [{kind: fixed_window, limit: 2, window: 1m, align: first}]
  throttle: {retry_after: seconds}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := provider.New(s, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, at := range []time.Duration{0, time.Second, 2500 * time.Millisecond, time.Minute} {
		v := m.Arrive(at, 0, 1, 100*time.Millisecond)
		fmt.Println(at, v.Status, m.Fields(v, nil), v.Throttled)
	}
	fmt.Println(m.Counts(), m.Free(time.Minute, 1, 0))
	// Output:
	// 0s 200 [] false
	// 1s 200 [] false
	// 2.5s 429 [{Retry-After 58}] true
	// 1m0s 200 [] false
	// {3 1 0} 1m0s
}

func TestNoAllocationInSteadyState(t *testing.T) {
	for _, limits := range steady {
		m := model(t, limits)
		at := time.Duration(0)
		call := func() {
			at += 7 * ms
			m.Arrive(at, 0, 1, 20*ms)
		}
		for range 20_000 {
			call()
		}
		if n := testing.AllocsPerRun(1000, call); n != 0 {
			t.Errorf("%s: %g allocations an arrival, want 0", limits, n)
		}
	}
}

var steady = []string{
	"\n  limits: [{kind: token_bucket, rate: 100/s, burst: 20}]",
	"\n  limits: [{kind: fixed_window, limit: 5000, window: 1m}]",
	"\n  limits: [{kind: sliding_window, limit: 5000, window: 1m}]",
	"\n  limits: [{kind: concurrency, limit: 2}]",
	"\n  limits: [{kind: cost_window, limit: 500, window: 10s}]",
	"\n  limits: [{kind: busy_time, limit: 10s, window: 10s}]",
	"\n  limits: [{kind: slowdown, knee: 100/s, factor: 3}]",
	"\n  limits: [{kind: token_bucket, rate: 100/s, burst: 20}]\n  strangers: {rate: 50/s}\n" +
		"  penalty: {base: 1s}\n  suspend: {throttles: 100000, within: 1m}",
}

func BenchmarkArrive(b *testing.B) {
	for i, name := range []string{"bucket", "fixed", "sliding", "concurrency", "cost", "busy", "slowdown"} {
		b.Run(name, func(b *testing.B) {
			m := model(b, steady[i])
			at := time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				at += 7 * ms
				m.Arrive(at, 0, 1, 20*ms)
			}
		})
	}
}

func BenchmarkLatency(b *testing.B) {
	p := provider.NewSampler(parse(b, "\n  latency: {p50: 120ms, p99: 600ms}"), 1, 0)
	b.ReportAllocs()
	for b.Loop() {
		p.Latency()
	}
}

func TestExecutionGrowsWithTheRowsAndHasItsMedian(t *testing.T) {
	s := parse(t, "\n  limits: []")
	if got := provider.NewSampler(s, 3, 0).Execution(100); got != 0 {
		t.Errorf("a batch takes %v where there are none", got)
	}
	s.Provider.Batch = &scenario.Batch{Overhead: 200 * ms, PerRow: 20 * ms, MaxRows: 1000}
	if got := provider.NewSampler(s, 3, 0).Execution(100); got != 2200*ms {
		t.Errorf("100 rows take %v, want 2.2s", got)
	}
	s.Provider.Batch.Spread = 0.2
	p := provider.NewSampler(s, 3, 0)
	const n = 20_000
	var all []time.Duration
	for range n {
		all = append(all, p.Execution(100))
	}
	slices.Sort(all)
	if median := all[n/2]; median < 2150*ms || median > 2250*ms {
		t.Errorf("the median is %v, want about 2.2s", median)
	}
	// One standard deviation is a factor of e to the 0.2.
	if high := all[n*84/100]; high < 2600*ms || high > 2780*ms {
		t.Errorf("one standard deviation up is %v, want about 2.69s", high)
	}
}
