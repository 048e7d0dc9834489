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

// model builds a provider from the provider section of a scenario.
func model(t testing.TB, section string) *provider.Model {
	t.Helper()
	m, err := provider.New(parse(t, section), 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func parse(t testing.TB, section string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte("name: test\nhorizon: 10h\nprovider:\n"+section))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const ms = time.Millisecond

// step is a call and its expected results. n defaults to one attempt.
type step struct {
	at     time.Duration
	n      int // attempts at that instant
	cost   float64
	busy   time.Duration
	admits int
	free   time.Duration // the expected result of Free afterwards; -1 if it is not called
}

func TestLimits(t *testing.T) {
	tests := []struct {
		name, section string
		steps         []step
	}{
		{"bucket: burst, then one an interval", `
  limits: [{kind: token_bucket, rate: 10/s, burst: 3}]`, []step{
			{at: 0, n: 5, admits: 3, free: 100 * ms},
			{at: 100*ms - 1, n: 1, admits: 0, free: 100 * ms},
			{at: 100 * ms, n: 2, admits: 1, free: 200 * ms},
			{at: time.Hour, n: 5, admits: 3, free: time.Hour + 100*ms},
		}},
		{"bucket: burst defaults to 1", `
  limits: [{kind: token_bucket, rate: 60/min}]`, []step{
			{at: 0, n: 2, admits: 1, free: time.Second},
			{at: time.Second, n: 2, admits: 1, free: 2 * time.Second},
		}},
		{"bucket: an interval that is not a whole nanosecond is rounded up", `
  limits: [{kind: token_bucket, rate: 37/min}]`, []step{
			{at: 0, n: 2, admits: 1, free: 1621621622},
		}},
		{"bucket: rejected attempts empty it but never into debt", `
  throttle: {counts_rejected: true}
  limits: [{kind: token_bucket, rate: 10/s, burst: 2}]`, []step{
			{at: 0, n: 9, admits: 2, free: 100 * ms},
			{at: 90 * ms, n: 1, admits: 0, free: 190 * ms},
			{at: 190 * ms, n: 1, admits: 1, free: 290 * ms},
		}},
		{"fixed window at the epoch", `
  limits: [{kind: fixed_window, limit: 2, window: 1m}]`, []step{
			{at: 59 * time.Second, n: 3, admits: 2, free: time.Minute},
			{at: time.Minute - 1, n: 1, admits: 0, free: time.Minute},
			{at: time.Minute, n: 3, admits: 2, free: 2 * time.Minute},
			{at: 10 * time.Minute, n: 1, admits: 1, free: 10 * time.Minute},
		}},
		{"fixed window from the first request", `
  limits: [{kind: fixed_window, limit: 2, window: 1m, align: first}]`, []step{
			{at: 59 * time.Second, n: 3, admits: 2, free: 119 * time.Second},
			{at: 119*time.Second - 1, n: 1, admits: 0, free: 119 * time.Second},
			{at: 150 * time.Second, n: 3, admits: 2, free: 210 * time.Second},
		}},
		{"fixed window: rejected attempts change nothing that was full", `
  throttle: {counts_rejected: true}
  limits: [{kind: fixed_window, limit: 2, window: 1m}]`, []step{
			{at: 0, n: 50, admits: 2, free: time.Minute},
			{at: time.Minute, n: 2, admits: 2, free: 2 * time.Minute},
		}},
		{"sliding window", `
  limits: [{kind: sliding_window, limit: 2, window: 1m}]`, []step{
			{at: 10 * time.Second, n: 1, admits: 1, free: 10 * time.Second},
			{at: 50 * time.Second, n: 2, admits: 1, free: 70 * time.Second},
			{at: 70*time.Second - 1, n: 1, admits: 0, free: 70 * time.Second},
			{at: 70 * time.Second, n: 2, admits: 1, free: 110 * time.Second},
		}},
		{"approximate sliding window: attempts leave evenly in the next period", `
  limits: [{kind: sliding_window, limit: 4, window: 20s, approximate: true}]`, []step{
			{at: time.Second, n: 6, admits: 4, free: 21*time.Second + 1}, // three and a part of one remain
			{at: 21 * time.Second, n: 1, admits: 0, free: 21*time.Second + 1},
			{at: 21*time.Second + 1, n: 2, admits: 1, free: 26*time.Second + 1},
			{at: 40 * time.Second, n: 4, admits: 3, free: 41*time.Second + 1},
			{at: 90 * time.Second, n: 5, admits: 4, free: 110*time.Second + 1}, // two periods were idle
		}},
		{"approximate sliding window: rejected attempts count", `
  throttle: {counts_rejected: true}
  limits: [{kind: sliding_window, limit: 4, window: 20s, approximate: true}]`, []step{
			{at: 0, n: 8, admits: 4, free: 30*time.Second + 1}, // half of eight leave half a period later
			{at: 30*time.Second + 1, n: 1, admits: 1, free: -1},
		}},
		{"sliding window: rejected attempts keep it full", `
  throttle: {counts_rejected: true}
  limits: [{kind: sliding_window, limit: 2, window: 1m}]`, []step{
			{at: 0, n: 2, admits: 2, free: time.Minute},
			{at: 50 * time.Second, n: 2, admits: 0, free: 110 * time.Second},
			{at: 110 * time.Second, n: 1, admits: 1, free: 110 * time.Second},
		}},
		{"concurrency frees by itself", `
  limits: [{kind: concurrency, limit: 2}]`, []step{
			{at: 0, n: 1, busy: 300 * ms, admits: 1, free: 0},
			{at: 100 * ms, n: 2, busy: 100 * ms, admits: 1, free: 200 * ms},
			{at: 200*ms - 1, n: 1, busy: 100 * ms, admits: 0, free: 200 * ms},
			{at: 200 * ms, n: 2, busy: time.Second, admits: 1, free: 300 * ms},
		}},
		{"cost window", `
  limits: [{kind: cost_window, limit: 100, window: 1m}]`, []step{
			{at: 0, n: 1, cost: 60, admits: 1, free: time.Minute},
			{at: time.Second, n: 1, cost: 40, admits: 1, free: time.Minute},
			{at: 2 * time.Second, n: 1, cost: 0.5, admits: 0, free: time.Minute},
			{at: time.Minute, n: 1, cost: 61, admits: 0, free: 61 * time.Second},
			{at: time.Minute, n: 1, cost: 60, admits: 1, free: 120 * time.Second},
		}},
		{"cost window: more than the whole limit needs it empty", `
  limits: [{kind: cost_window, limit: 100, window: 1m}]`, []step{
			{at: 0, n: 1, cost: 1, admits: 1, free: 0},
			{at: 0, n: 1, cost: 1000, admits: 0, free: time.Minute},
			{at: time.Minute, n: 1, cost: 1000, admits: 1, free: 2 * time.Minute},
		}},
		{"cost window: rejected attempts cost too", `
  throttle: {counts_rejected: true}
  limits: [{kind: cost_window, limit: 100, window: 1m}]`, []step{
			{at: 0, n: 1, cost: 60, admits: 1, free: time.Minute},
			{at: 30 * time.Second, n: 1, cost: 60, admits: 0, free: 90 * time.Second},
			{at: 60 * time.Second, n: 1, cost: 60, admits: 0, free: 120 * time.Second},
		}},
		{"busy time", `
  limits: [{kind: busy_time, limit: 10s, window: 1m}]`, []step{
			{at: 0, n: 3, busy: 4 * time.Second, admits: 2, free: time.Minute},
			{at: time.Minute, n: 1, busy: 4 * time.Second, admits: 1, free: time.Minute},
		}},
		{"all must admit, and a refusal by one uses none of the other", `
  limits:
    - {kind: token_bucket, rate: 1/s, burst: 2}
    - {kind: fixed_window, limit: 3, window: 1m}`, []step{
			{at: 0, n: 5, admits: 2, free: time.Second},
			{at: time.Second, n: 1, admits: 1, free: time.Minute},
			{at: 5 * time.Second, n: 5, admits: 0, free: time.Minute},
			{at: time.Minute, n: 5, admits: 2, free: 61 * time.Second},
		}},
		{"changes multiply one after the other", `
  limits: [{kind: fixed_window, limit: 10, window: 1m}]
  changes: [{at: 1m, scale: 0.45}, {at: 2m, scale: 2}]`, []step{
			{at: 0, n: 12, admits: 10, free: time.Minute},
			{at: time.Minute, n: 12, admits: 5, free: 2 * time.Minute}, // 4.5 rounds to 5
			{at: 2 * time.Minute, n: 12, admits: 9, free: 3 * time.Minute},
		}},
		{"a change within a window counts what was used", `
  limits: [{kind: sliding_window, limit: 4, window: 10m}]
  changes: [{at: 1m, scale: 0.5}, {at: 2m, scale: 2}]`, []step{
			{at: 0, n: 3, admits: 3, free: 0},
			{at: time.Minute, n: 1, admits: 0, free: 10 * time.Minute},
			{at: 2 * time.Minute, n: 2, admits: 1, free: 10 * time.Minute},
		}},
		{"a bucket keeps its tokens, up to the new burst", `
  limits: [{kind: token_bucket, rate: 10/s, burst: 10}]
  changes: [{at: 1m, scale: 0.5}, {at: 2m, scale: 4}]`, []step{
			{at: time.Minute, n: 9, admits: 5, free: time.Minute + 200*ms},
			{at: 2 * time.Minute, n: 9, admits: 5, free: 2*time.Minute + 50*ms},
			{at: 3 * time.Minute, n: 30, admits: 20, free: 3*time.Minute + 50*ms},
		}},
		{"concurrency above a lowered limit", `
  limits: [{kind: concurrency, limit: 4}]
  changes: [{at: 1s, scale: 0.5}]`, []step{
			{at: 0, n: 2, busy: 3 * time.Second, admits: 2, free: 0},
			{at: 0, n: 2, busy: 2 * time.Second, admits: 2, free: 2 * time.Second},
			{at: time.Second, n: 1, busy: 0, admits: 0, free: 3 * time.Second},
			{at: 2 * time.Second, n: 1, busy: time.Second, admits: 0, free: 3 * time.Second},
			{at: 3 * time.Second, n: 3, busy: time.Second, admits: 2, free: 4 * time.Second},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := model(t, tt.section)
			for i, s := range tt.steps {
				if s.cost == 0 {
					s.cost = 1
				}
				admits := 0
				for range s.n {
					if m.Arrive(s.at, 0, s.cost, s.busy).Admitted {
						admits++
					}
				}
				if admits != s.admits {
					t.Errorf("step %d: %d of %d admitted at %s, want %d", i, admits, s.n, s.at, s.admits)
				}
				if s.free >= 0 {
					if got := m.Free(s.at, s.cost, s.busy); got != s.free {
						t.Errorf("step %d: free at %s, want %s", i, got, s.free)
					}
				}
			}
		})
	}
}

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
		if c := p.Cost(); c != 1 || p.Estimate(7) != 7 {
			t.Fatalf("cost %g, want 1; 7 is estimated as %g", c, p.Estimate(7))
		}
		if g := p.Gap(); g != provider.Never {
			t.Fatalf("a backlog has a gap of %s", g)
		}
	}
}

func TestCostAndGapHaveTheirMeans(t *testing.T) {
	s := parse(t, "\n  limits: []")
	s.Workload = scenario.Workload{Kind: scenario.Open, Rate: scenario.Rate{Count: 20, Per: time.Second}, Cost: scenario.Cost{Mean: 900, Spread: 0.8, Estimate: 5, Error: 1}}
	p := provider.NewSampler(s, 5, 0)
	const n = 200_000
	cost, estimate, gap, logs, squares := 0.0, 0.0, time.Duration(0), 0.0, 0.0
	for range n {
		c := p.Cost()
		e := p.Estimate(c)
		cost, estimate, gap = cost+c, estimate+e, gap+p.Gap()
		l := math.Log(e / c)
		logs, squares = logs+l/n, squares+l*l/n
	}
	if factor, spread := estimate/cost, math.Sqrt(squares-logs*logs); math.Abs(factor/5-1) > 0.03 || math.Abs(spread-1) > 0.02 {
		t.Errorf("estimates are %g times too high with a spread of %g, want about 5 and 1", factor, spread)
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
		b.Cost() // another stream: does not change the latency
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
