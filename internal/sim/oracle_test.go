package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

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
			// One more or less, where the last falls on the horizon.
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
