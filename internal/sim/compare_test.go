package sim_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
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

// What a limit is costs the informed client one refusal, and what was under way then.
func TestTheInformedClientLosesLittle(t *testing.T) {
	const owner = "owner: {ceiling: 40ms, initial: 1s}"
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
		"halved, doubled": {0.97, 60, []string{"  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]", "  changes: [{at: 20m, scale: 0.5}, {at: 40m, scale: 2}]"}},
		"drift":           {0.97, 60, []string{"  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]", "  changes: [{at: 20m, over: 20m, scale: 0.5}]"}},
		"a limiter's 503": {0.99, 12, []string{"  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]", "  throttle: {status: 503}", "  penalty: {base: 10s, factor: 1, max: 10s, fixed: true}"}},
		"outage":          {0.97, 12, []string{"  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]", "  faults: [{at: 10m, for: 2m, kind: outage}]"}},
		"slow-down":       {0.99, 0, []string{"  limits: [{kind: slowdown, knee: 5/s, factor: 4}]"}},
	} {
		r, m := informed(t, append([]string{owner, "provider:"}, tt.lines...)...)
		if *r.GoodputRatio < tt.goodput || r.Throttled > tt.throttled || r.CeilingViolations > 0 {
			t.Errorf("%s: %g with %d refusals and %d violations under %+v, want %g with %d",
				name, *r.GoodputRatio, r.Throttled, r.CeilingViolations, m, tt.goodput, tt.throttled)
		}
	}
}

func TestTheInformedClientIsNotSuspendedAndDoesNotPushABan(t *testing.T) {
	r, _ := informed(t, "owner: {ceiling: 10ms, initial: 1s}", "provider:", "  latency: {p50: 500ms, p99: 2s, uplink_p50: 150ms, uplink_p99: 400ms}",
		"  limits: [{kind: token_bucket, rate: 40/s, burst: 40}]",
		"  penalty: {base: 10s, factor: 2, max: 5m, forgive: 2m}", "  suspend: {throttles: 50, within: 1h}")
	if r.Suspended || r.Blocks > 3 || *r.GoodputRatio < 0.5 {
		t.Errorf("suspended %v, %d blocks, goodput %g", r.Suspended, r.Blocks, *r.GoodputRatio)
	}
}

func TestInformedClientsThatAreApartShareFairly(t *testing.T) {
	r, _ := informed(t, "clients: 7", "owner: {ceiling: 10ms, initial: 1s}", "provider:", "  limits: [{kind: token_bucket, rate: 20/s, burst: 20}]")
	if *r.FairnessJain < 0.99 || *r.GoodputRatio < 0.97 || *r.ThrottledPer1000 > 3 {
		t.Errorf("Jain %g, goodput %g, %g per 1000", *r.FairnessJain, *r.GoodputRatio, *r.ThrottledPer1000)
	}
}

// Clients that all go the instant that a block ends would bring the next one about.
func TestInformedClientsTakeTurnsAfterABlock(t *testing.T) {
	r, _ := informed(t, "clients: 6", "owner: {ceiling: 20ms, initial: 1s}", "provider:", "  latency: {p50: 20ms, p99: 160ms, uplink_p50: 1ms, uplink_p99: 3ms}",
		"  limits: [{kind: token_bucket, rate: 4/s, burst: 1}]", "  penalty: {base: 20s, factor: 1, max: 20s, forgive: 0s, fixed: true}")
	if *r.GoodputRatio < 0.5 || r.Blocks > 50 {
		t.Errorf("goodput %g with %d blocks, %d refusals", *r.GoodputRatio, r.Blocks, r.Throttled)
	}
}

// Each law over every scenario, at seed 1, gives what its archive says. In a run
// without -long each scenario is under one of the laws only; make check-golden has
// all of them.
// After a change that is meant to change it: go test ./internal/sim -run Golden -update,
// and read the difference.
func TestGoldenResults(t *testing.T) {
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	for l, law := range []string{"aimd", "envelope"} {
		archive := golden.Open(t, filepath.Join("testdata", "golden", law+".txtar"))
		var names []string
		for i, s := range all {
			name := s.Name + ".json"
			names = append(names, name)
			if (i+l)%2 == 0 || longtest.Long() || golden.Updating() {
				archive.Check(t, name, string(jsonOf(t, run(t, s, sim.Options{Law: law, Seed: 1}))))
			}
		}
		archive.Only(t, names)
	}
}

// Each bulk scenario under the laws that have no number, at seed 1.
func TestGoldenBulkResults(t *testing.T) {
	all, err := scenarios.Bulk()
	if err != nil {
		t.Fatal(err)
	}
	for _, law := range sim.BulkLaws() {
		archive := golden.Open(t, filepath.Join("testdata", "golden", "bulk-"+law+".txtar"))
		var names []string
		for _, s := range all {
			r, err := sim.RunBulk(s, sim.Options{Law: law, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.JSON()
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, s.Name+".json")
			archive.Check(t, s.Name+".json", string(got))
		}
		archive.Only(t, names)
	}
}
