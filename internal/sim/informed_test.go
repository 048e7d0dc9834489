package sim_test

import (
	"testing"

	"github.com/headway-go/headway/internal/sim"
)

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
