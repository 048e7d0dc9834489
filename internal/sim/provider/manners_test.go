package provider_test

import (
	"math"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

func TestARetryAfterThatIsWrong(t *testing.T) {
	tests := []struct {
		throttle string
		wait     time.Duration
		field    provider.Field
	}{
		{"retry_after: seconds, retry_after_factor: 1000", 90_000 * time.Second, provider.Field{Name: "Retry-After", Value: "90000"}},
		{"retry_after: ms, retry_after_factor: 0.001", 90 * ms, provider.Field{Name: "Retry-After-Ms", Value: "90"}},
		{"retry_after: seconds, retry_after_constant: 7s", 7 * time.Second, provider.Field{Name: "Retry-After", Value: "7"}},
		{"retry_after: seconds, retry_after_factor: 1000000", scenario.MaxHorizon, provider.Field{Name: "Retry-After", Value: "2678400"}},
	}
	for _, tt := range tests {
		m := model(t, "\n  limits: [{kind: sliding_window, limit: 1, window: 100s}]\n  throttle: {"+tt.throttle+"}")
		m.Arrive(0, 0, 1, 0)
		v := m.Arrive(10*time.Second, 0, 1, 0)
		if fields := m.Fields(v, nil); v.RetryAfter != tt.wait || len(fields) != 1 || fields[0] != tt.field {
			t.Errorf("%s: %s and %v, want %s and %v", tt.throttle, v.RetryAfter, fields, tt.wait, tt.field)
		}
	}
}

func TestAFixedBlockIsNotLengthenedByCalls(t *testing.T) {
	m := model(t, `
  limits: [{kind: token_bucket, rate: 1/s, burst: 1}]
  penalty: {base: 10s, factor: 1, max: 10s, forgive: 0s, fixed: true}`)
	m.Arrive(0, 0, 1, 0)
	for _, at := range []time.Duration{100 * ms, 5 * time.Second, 9 * time.Second} {
		if v := m.Arrive(at, 0, 1, 0); !v.Throttled || m.BlockedUntil() != 10*time.Second+100*ms {
			t.Errorf("at %s: %+v, blocked until %s, want 10.1s", at, v, m.BlockedUntil())
		}
	}
	if v := m.Arrive(10*time.Second+100*ms, 0, 1, 0); !v.Admitted {
		t.Errorf("after the block: %+v", v)
	}
	if started, pushed := m.Blocks(); started != 1 || pushed != 1 {
		t.Errorf("%d blocks, %d of them pushed, want 1 and 1", started, pushed)
	}
}

func TestBlocksThatWereMet(t *testing.T) {
	m := model(t, `
  limits: [{kind: sliding_window, limit: 1, window: 1m}]
  penalty: {base: 10s, factor: 2, max: 1h, forgive: 5s}`)
	for _, at := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 2 * time.Minute, 121 * time.Second} {
		m.Arrive(at, 0, 1, 0)
	}
	if started, pushed := m.Blocks(); started != 2 || pushed != 1 {
		t.Errorf("%d blocks, %d of them pushed, want 2 and 1", started, pushed)
	}
}

func TestStrangersThatComeAndGo(t *testing.T) {
	s := parse(t, "\n  strangers: {rate: 2/s, on: 30s, off: 90s}")
	s.Horizon = 10 * 24 * time.Hour
	m, err := provider.New(s, 7)
	if err != nil {
		t.Fatal(err)
	}
	// Of seconds with a stranger in the minute around them, an always-on stream of
	// 2/s has all; this one about a half.
	quiet, minutes := 0, int(s.Horizon/time.Minute)
	last := int64(0)
	for i := 1; i <= minutes; i++ {
		m.Advance(time.Duration(i) * time.Minute)
		if n := m.Strangers().Admitted; n == last {
			quiet++
		} else {
			last = n
		}
	}
	if mean := float64(last) / s.Horizon.Seconds(); math.Abs(mean-2) > 0.15 {
		t.Errorf("mean rate %g/s, want 2", mean)
	}
	if part := float64(quiet) / float64(minutes); part < 0.25 || part > 0.5 {
		t.Errorf("%g of the minutes are quiet, want about a third", part)
	}
}

func TestADriftMovesTheLimitInSteps(t *testing.T) {
	m := model(t, `
  limits: [{kind: fixed_window, limit: 1000, window: 1s}]
  changes: [{at: 1h, over: 2h, scale: 0.25}]`)
	for at, want := range map[time.Duration]float64{59 * time.Minute: 1, 3 * time.Hour: 0.25} {
		c := m.Clone()
		if c.Advance(at); math.Abs(c.Factor()-want) > 1e-9 {
			t.Errorf("at %s the limits are times %g, want %g", at, c.Factor(), want)
		}
	}
	if m.Advance(2 * time.Hour); m.Factor() < 0.45 || m.Factor() > 0.5 {
		t.Errorf("in the middle of the drift the limits are times %g, want a little under 0.5", m.Factor())
	}
}

func TestWorkArrivesInBursts(t *testing.T) {
	s, err := scenario.Parse("burst.yaml", []byte("name: burst\nworkload: {kind: open, rate: 5/s, burst: 50}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p := provider.NewSampler(s, 3, 0)
	var sum time.Duration
	gaps := 0
	const n = 50_000
	for range n {
		gap := p.Gap()
		if sum += gap; gap > 0 {
			gaps++
		}
	}
	if gaps != n/50 || math.Abs(n/sum.Seconds()-5) > 0.5 {
		t.Errorf("%d gaps and %g/s, want %d and 5", gaps, n/sum.Seconds(), n/50)
	}
}
