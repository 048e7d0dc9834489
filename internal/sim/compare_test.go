package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/scenarios"
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

func informed(t *testing.T, lines ...string) (sim.Result, sim.Margin) {
	t.Helper()
	p, err := sim.NewPlayer(parse(t, lines...), 1)
	if err != nil {
		t.Fatal(err)
	}
	r, m, err := p.Informed()
	if err != nil {
		t.Fatal(err)
	}
	return r, m
}

// The informed client learns a limit from one refusal, and from the refusals of attempts
// that were in flight then.
func TestTheInformedClientLosesLittle(t *testing.T) {
	const horizon, owner = "horizon: 30m", "owner: {ceiling: 40ms, initial: 1s}"
	for name, tt := range map[string]struct {
		goodput   float64
		throttled int64
		lines     []string
	}{
		"bucket":          {0.99, 12, []string{"  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]"}},
		"fixed, epoch":    {0.97, 60, []string{"  limits: [{kind: fixed_window, limit: 250, window: 42s}]"}},
		"fixed, first":    {0.98, 60, []string{"  limits: [{kind: fixed_window, limit: 250, window: 42s, align: first}]"}},
		"sliding":         {0.99, 60, []string{"  limits: [{kind: sliding_window, limit: 542, window: 1m49s}]"}},
		"concurrency":     {0.78, 60, []string{"  latency: {p50: 2s}", "  limits: [{kind: concurrency, limit: 12}]"}},
		"cost":            {0.98, 60, []string{"  limits: [{kind: cost_window, limit: 300, window: 1m}]"}},
		"two limits":      {0.97, 60, []string{"  limits: [{kind: token_bucket, rate: 5/s, burst: 10}, {kind: sliding_window, limit: 1000, window: 10m}]"}},
		"halved, doubled": {0.97, 60, []string{"  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]", "  changes: [{at: 10m, scale: 0.5}, {at: 20m, scale: 2}]"}},
		"drift":           {0.97, 60, []string{"  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]", "  changes: [{at: 10m, over: 10m, scale: 0.5}]"}},
		"a limiter's 503": {0.99, 12, []string{"  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]", "  throttle: {status: 503}", "  penalty: {base: 10s, factor: 1, max: 10s, fixed: true}"}},
		"outage":          {0.97, 12, []string{"  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]", "  faults: [{at: 5m, for: 1m, kind: outage}]"}},
		"slow-down":       {0.99, 0, []string{"  limits: [{kind: slowdown, knee: 5/s, factor: 4}]"}},
	} {
		r, m := informed(t, append([]string{horizon, owner, "provider:"}, tt.lines...)...)
		if *r.GoodputRatio < tt.goodput || r.Throttled > tt.throttled || r.CeilingViolations > 0 {
			t.Errorf("%s: %g with %d refusals and %d violations under %+v, want %g with %d",
				name, *r.GoodputRatio, r.Throttled, r.CeilingViolations, m, tt.goodput, tt.throttled)
		}
	}
}

func TestTheInformedClientIsNotSuspendedAndDoesNotPushABan(t *testing.T) {
	horizon := fmt.Sprintf("horizon: %dm", longtest.Size(15, 60))
	r, _ := informed(t, horizon, "owner: {ceiling: 10ms, initial: 1s}", "provider:", "  latency: {p50: 500ms, p99: 2s, uplink_p50: 150ms, uplink_p99: 400ms}",
		"  limits: [{kind: token_bucket, rate: 40/s, burst: 40}]",
		"  penalty: {base: 10s, factor: 2, max: 5m, forgive: 2m}", "  suspend: {throttles: 50, within: 1h}")
	if r.Suspended || r.Blocks > 3 || *r.GoodputRatio < 0.5 {
		t.Errorf("suspended %v, %d blocks, goodput %g", r.Suspended, r.Blocks, *r.GoodputRatio)
	}
}

func TestInformedClientsThatAreApartShareFairly(t *testing.T) {
	horizon := fmt.Sprintf("horizon: %dm", longtest.Size(15, 60))
	r, _ := informed(t, horizon, "clients: 7", "owner: {ceiling: 10ms, initial: 1s}", "provider:", "  limits: [{kind: token_bucket, rate: 20/s, burst: 20}]")
	if *r.FairnessJain < 0.99 || *r.GoodputRatio < 0.97 || *r.ThrottledPer1000 > 3 {
		t.Errorf("Jain %g, goodput %g, %g per 1000", *r.FairnessJain, *r.GoodputRatio, *r.ThrottledPer1000)
	}
}

// If all clients sent when a block ends, they would cause the next one.
func TestInformedClientsTakeTurnsAfterABlock(t *testing.T) {
	r, _ := informed(t, "clients: 6", "owner: {ceiling: 20ms, initial: 1s}", "provider:", "  latency: {p50: 20ms, p99: 160ms, uplink_p50: 1ms, uplink_p99: 3ms}",
		"  limits: [{kind: token_bucket, rate: 4/s, burst: 1}]", "  penalty: {base: 20s, factor: 1, max: 20s, forgive: 0s, fixed: true}")
	if *r.GoodputRatio < 0.5 || r.Blocks > 50 {
		t.Errorf("goodput %g with %d blocks, %d refusals", *r.GoodputRatio, r.Blocks, r.Throttled)
	}
}

// Each law over every scenario, at seed 1, gives what its archive says. In a run
// without -long each scenario is under one of the laws only, and those of more than
// 40,000 attempts are left out; make check-golden has all of them.
// After a change that is meant to change it: go test ./internal/sim -run Golden -update,
// and read the difference.
func TestGoldenResults(t *testing.T) {
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	for l, law := range []string{"aimd", "cycle"} {
		archive := golden.Open(t, filepath.Join("testdata", "golden", law+".txtar"))
		var names []string
		for i, s := range all {
			name := s.Name + ".json"
			names = append(names, name)
			if (i+l)%2 == 0 && attemptsOf(t, archive, name) <= 40_000 || longtest.Long() || golden.Updating() {
				archive.Check(t, name, string(jsonOf(t, run(t, s, sim.Options{Law: law, Seed: 1}))))
			}
		}
		archive.Only(t, names)
	}
}

// attemptsOf is how many attempts a golden result has.
func attemptsOf(t *testing.T, archive *golden.Archive, name string) int64 {
	t.Helper()
	var r sim.Result
	if text, ok := archive.File(name); ok {
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return r.Attempts
}

// Each bulk scenario under the laws that have no number, at seed 1; "told" is the former
// name of "advertised", which is the same law.
func TestGoldenBulkResults(t *testing.T) {
	all, err := scenarios.Bulk()
	if err != nil {
		t.Fatal(err)
	}
	archive := golden.Open(t, filepath.Join("testdata", "golden", "bulk.txtar"))
	var names []string
	for _, law := range []string{sim.BulkParallel, "told", sim.BulkAIMD, sim.BulkHint} {
		for _, s := range all {
			r, err := sim.RunBulk(s, sim.Options{Law: law, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.JSON()
			if err != nil {
				t.Fatal(err)
			}
			name := law + "/" + s.Name + ".json"
			names = append(names, name)
			archive.Check(t, name, string(got))
		}
	}
	archive.Only(t, names)
}

// parse reads a scenario from lines that follow its name.
func parse(t testing.TB, lines ...string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte("name: test\n"+strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// exact is a provider without jitter: 10 ms up, 100 ms in all.
const exact = "  latency: {p50: 100ms, p99: 100ms, uplink_p50: 10ms, uplink_p99: 10ms}"

func TestOracleGetsWhatCanBeWorkedOutByHand(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  int
	}{
		{"the ceiling", []string{"owner: {ceiling: 100ms}", "provider:", exact}, 600},
		{"places in flight: 2 in each 100 ms", []string{"owner: {ceiling: 1ms}", "workload: {max_in_flight: 2}", "provider:", exact}, 1200},
		{"a bucket: its burst, and its rate from the first on", []string{"owner: {ceiling: 1ms}", "provider:", exact,
			"  limits: [{kind: token_bucket, rate: 10/s, burst: 20}]"}, 20 + 599},
		{"a fixed window", []string{"owner: {ceiling: 1ms}", "provider:", exact,
			"  limits: [{kind: fixed_window, limit: 37, window: 20s}]"}, 3 * 37},
		{"a sliding window", []string{"owner: {ceiling: 1ms}", "provider:", exact,
			"  limits: [{kind: sliding_window, limit: 6, window: 10s}]"}, 6 * 6},
		{"two limits: the tighter one", []string{"owner: {ceiling: 1ms}", "provider:", exact,
			"  limits: [{kind: token_bucket, rate: 10/s, burst: 1}, {kind: fixed_window, limit: 37, window: 20s}]"}, 3 * 37},
		{"concurrency: 4 are busy for 80 ms", []string{"owner: {ceiling: 1ms}", "provider:", exact,
			"  limits: [{kind: concurrency, limit: 4}]"}, 4 * 750},
		{"cost: 50 of 2 in each 10 s", []string{"owner: {ceiling: 1ms}", "workload: {cost: {mean: 2}}", "provider:", exact,
			"  limits: [{kind: cost_window, limit: 100, window: 10s}]"}, 50 * 6},
		{"busy time: 50 of 80 ms in each 10 s", []string{"owner: {ceiling: 1ms}", "provider:", exact,
			"  limits: [{kind: busy_time, limit: 4s, window: 10s}]"}, 50 * 6},
		{"the knee is not passed", []string{"owner: {ceiling: 1ms}", "provider:", exact,
			"  limits: [{kind: slowdown, knee: 5/s, factor: 4}]"}, 300},
		{"a limit halved at half-time", []string{"owner: {ceiling: 1ms}", "provider:", exact,
			"  limits: [{kind: fixed_window, limit: 40, window: 10s}]", "  changes: [{at: 30s, scale: 0.5}]"}, 3*40 + 3*20},
		{"a rise is known at once", []string{"owner: {ceiling: 1ms}", "provider:", exact,
			"  limits: [{kind: fixed_window, limit: 40, window: 60s}]", "  changes: [{at: 30s, scale: 2}]"}, 80},
		{"nothing during an outage and a reset", []string{"owner: {ceiling: 100ms}", "provider:", exact,
			"  faults: [{at: 20010ms, for: 10s, kind: outage}, {at: 30010ms, for: 10s, kind: reset}]"}, 400},
		{"a slow spell holds its places longer", []string{"owner: {ceiling: 1ms}", "workload: {max_in_flight: 1}", "provider:", exact,
			"  faults: [{at: 30s, for: 10s, kind: slow}]"}, 300 + 10 + 200},
		{"no penalty for who is never refused", []string{"owner: {ceiling: 1ms}", "provider:", exact,
			"  limits: [{kind: fixed_window, limit: 37, window: 20s}]", "  penalty: {base: 10s}", "  suspend: {throttles: 1, within: 1m}"}, 3 * 37},
		{"four clients have four ceilings", []string{"clients: 4", "owner: {ceiling: 100ms}", "provider:", exact}, 2400},
		{"a fleet has one", []string{"clients: 4", "fleet: true", "owner: {ceiling: 100ms}", "provider:", exact}, 600},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := parse(t, append([]string{"horizon: 1m"}, tt.lines...)...)
			o, err := sim.NewOracle(s, 1)
			if err != nil {
				t.Fatal(err)
			}
			// One more or less, since the last may fall on the horizon.
			if got := len(o.Admissions); got < tt.want-1 || got > tt.want+1 {
				t.Errorf("admitted %d, want %d", got, tt.want)
			}
			for i, at := range o.Admissions {
				if at >= s.Horizon || i > 0 && at < o.Admissions[i-1] {
					t.Fatalf("admission %d at %v is out of order or past the horizon", i, at)
				}
			}
		})
	}
}

func TestOracleHasWhatStrangersLeave(t *testing.T) {
	lines := []string{"horizon: 10m", "owner: {ceiling: 1ms}", "provider:", exact,
		"  limits: [{kind: token_bucket, rate: 10/s, burst: 20}]"}
	alone, err := sim.NewOracle(parse(t, lines...), 3)
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, append(lines, "  strangers: {rate: 3/s}")...)
	shared, err := sim.NewOracle(s, 3)
	if err != nil {
		t.Fatal(err)
	}
	m, err := provider.New(s, 3)
	if err != nil {
		t.Fatal(err)
	}
	m.Advance(s.Horizon)
	strangers := m.Strangers()
	if strangers.Admitted < 1700 || strangers.Throttled != shared.StrangersThrottled {
		t.Fatalf("strangers alone: %+v, the oracle says %d were refused", strangers, shared.StrangersThrottled)
	}
	want := len(alone.Admissions) - int(strangers.Admitted)
	if got := len(shared.Admissions); got < want-1 || got > want+1 {
		t.Errorf("admitted %d, want %d less %d", got, len(alone.Admissions), strangers.Admitted)
	}
}

func TestOracleIsBoundByOpenWork(t *testing.T) {
	s := parse(t, "horizon: 10m", "clients: 2", "owner: {ceiling: 1ms}", "workload: {kind: open, rate: 2/s}", "provider:", exact)
	o, err := sim.NewOracle(s, 5)
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for c := range 2 {
		arrivals := provider.NewSampler(s, 5, c)
		for at := arrivals.Gap(); at+10*time.Millisecond < s.Horizon; at += arrivals.Gap() {
			want++
		}
	}
	if got := len(o.Admissions); got != want {
		t.Errorf("admitted %d of %d", got, want)
	}
}

// steady is a provider that admits one a second, and a client that may not go faster.
const steady = `
name: steady
horizon: 1m
owner: {ceiling: 2s, initial: 2s}
provider:
  latency: {p50: 100ms}
  limits:
    - {kind: token_bucket, rate: 1/s, burst: 5}
`

func ExampleRun() {
	s, err := scenario.Parse("steady.yaml", []byte(steady))
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := sim.Run(s, sim.Options{Law: "aimd", Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Admitted, r.Throttled, *r.GoodputRatio)
	// Output:
	// 30 0 1
}

func ExampleCompare() {
	s, err := scenario.Parse("steady.yaml", []byte(steady))
	if err != nil {
		fmt.Println(err)
		return
	}
	results, err := sim.Compare([]*scenario.Scenario{s}, []string{"aimd"}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range results {
		fmt.Println(r.Scenario, r.Law, r.Admitted)
	}
	// Output:
	// steady aimd 30
}

func ExampleNewOracle() {
	s, err := scenario.Parse("steady.yaml", []byte(steady))
	if err != nil {
		fmt.Println(err)
		return
	}
	o, err := sim.NewOracle(s, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(o.Admissions))
	// Output:
	// 30
}

func ExampleWriteTable() {
	known := 0.98
	err := sim.WriteTable(os.Stdout, []sim.Result{{Scenario: "steady", Law: "aimd", Admitted: 30, GoodputRatio: &known}})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// scenario  law   goodput  thr/1000  admitted  throttled  to 90 %  block  wait p50  wait p99  thr/change  harm  jain  failed
	// steady    aimd    0.980         -        30          0        -  0.0 s         -         -           -     -     -  no
}

func ExampleWriteSVG() {
	s, err := scenario.Parse("steady.yaml", []byte(steady))
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := sim.Run(s, sim.Options{Law: "aimd", Seed: 1, Trace: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := os.CreateTemp("", "*.svg")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.Remove(f.Name()) }()
	fmt.Println(sim.WriteSVG(f, r.Trace), f.Close())
	// Output:
	// <nil> <nil>
}

// rows is a load whose figures can be worked out: ten batches of 2 s, two at a
// time.
const rows = `
name: rows
workload: {kind: bulk, rows: 1000}
provider:
  latency: {p50: 0s}
  batch: {per_row: 20ms, max_rows: 100}
  hint: 2
`

func ExampleRunBulk() {
	s, err := scenario.Parse("rows.yaml", []byte(rows))
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := sim.RunBulk(s, sim.Options{Law: sim.BulkHint, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Acknowledged, r.Owed, r.ElapsedS, r.RowsPerS, r.ParallelismMax)
	// Output:
	// 1000 0 12 83.333 2
}

func ExampleCompareBulk() {
	s, err := scenario.Parse("rows.yaml", []byte(rows))
	if err != nil {
		fmt.Println(err)
		return
	}
	results, err := sim.CompareBulk([]*scenario.Scenario{s}, []string{"fixed:1", "fixed:5"}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := sim.WriteBulkTable(os.Stdout, results); err != nil {
		fmt.Println(err)
	}
	// Output:
	// scenario  law      rows/s  elapsed  batches  throttled  thr/1000  mean  max  retry-after  longest  owed  ended
	// rows      fixed:1    50.0     20 s       10          0      0.00  1.00    1          0 s      0 s     0  whole
	// rows      fixed:5   250.0      4 s       10          0      0.00  5.00    5          0 s      0 s     0  whole
}
