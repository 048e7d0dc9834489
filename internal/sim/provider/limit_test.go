package provider_test

import (
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

// step is one call and what it must give. Without n it is one attempt.
type step struct {
	at     time.Duration
	n      int // attempts at that instant
	cost   float64
	busy   time.Duration
	admits int
	free   time.Duration // what Free says afterwards; -1 is not asked
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
