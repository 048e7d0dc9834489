package scenario_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// unusual says what full does not.
const unusual = `name: "7"
horizon: 12h
workload: {kind: open, rate: 2/s, burst: 40, active: 2h, pause: 90m}
provider:
  throttle: {status: 503, retry_after: ms, retry_after_factor: 0.001, retry_after_constant: 30s}
  penalty: {base: 30s, factor: 1, max: 30s, forgive: 0s, fixed: true}
  strangers: {rate: 3/s, on: 20s, off: 3m}
  changes: [{at: 1h, over: 4h, scale: 0.25}, {at: 6h, scale: 4}]
`

func TestAFormattedScenarioIsReadBackTheSame(t *testing.T) {
	bulk := "name: bulk\nworkload: {kind: bulk, rows: 72493, users: 2}\nprovider:\n  batch: {per_row: 22ms, knee: 4}\n  hint: 4\n  changes: [{at: 1m, hint: 2}]\n"
	const pools = "name: pools\nprovider:\n  limits: [{kind: token_bucket, rate: 5/s}]\n  pools:\n    - {name: core/1, share: 2.5, limits: [{kind: concurrency, limit: 3}, {kind: fixed_window, limit: 9, window: 1m}]}\n    - {name: search}\n"
	for _, src := range []string{full, unusual, bulk, pools, "name: least\n"} {
		s, err := scenario.Parse("f.yaml", []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		written := scenario.Format(s)
		again, err := scenario.Parse("again.yaml", written)
		if err != nil {
			t.Fatalf("%v\n%s", err, written)
		}
		if diff := cmp.Diff(s, again, plain); diff != "" {
			t.Errorf("-read +read back\n%s\n%s", diff, written)
		}
	}
}

func TestADescriptionTooLongForALineIsLeftOut(t *testing.T) {
	s, err := scenario.Parse("f.yaml", []byte("name: x\ndescription: |\n"+strings.Repeat("  word word word\n", 200)))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := scenario.Parse("again.yaml", scenario.Format(s)); err != nil || again.Description != "" {
		t.Errorf("%v, %v", again, err)
	}
}

func TestPausesComeInTurns(t *testing.T) {
	w := scenario.Workload{Active: 2 * time.Hour, Pause: time.Hour}
	for at, want := range map[time.Duration]time.Duration{
		0: 0, 2*time.Hour - 1: 2*time.Hour - 1, 2 * time.Hour: 3 * time.Hour, 170 * time.Minute: 3 * time.Hour,
		4 * time.Hour: 4 * time.Hour, 5 * time.Hour: 6 * time.Hour, math.MaxInt64: math.MaxInt64,
	} {
		if got := w.Awake(at); got != want {
			t.Errorf("awake at %s, want %s", got, want)
		}
	}
	if got := new(scenario.Workload).Awake(time.Hour); got != time.Hour {
		t.Errorf("without pauses awake at %s", got)
	}
}

func TestADriftComesInSteps(t *testing.T) {
	p := scenario.Provider{Changes: []scenario.Change{{At: time.Hour, Over: 32 * time.Minute, Scale: 0.5}, {At: 2 * time.Hour, Scale: 4}}}
	steps, product := p.Steps(), 1.0
	if n := len(steps); n != scenario.DriftSteps+1 {
		t.Fatalf("%d steps", n)
	}
	for i, c := range steps[:scenario.DriftSteps] {
		product *= c.Scale
		if want := time.Hour + time.Duration(i)*time.Minute; c.At != want || c.Scale != steps[0].Scale {
			t.Errorf("step %d: %+v, want at %s", i, c, want)
		}
	}
	if math.Abs(product-0.5) > 1e-12 || steps[scenario.DriftSteps] != p.Changes[1] {
		t.Errorf("the drift multiplies to %g, and then %+v", product, steps[scenario.DriftSteps])
	}
}

func TestParseRate(t *testing.T) {
	tests := []struct {
		text      string
		perSecond float64
		interval  time.Duration
	}{
		{"10/s", 10, 100 * time.Millisecond},
		{"600/min", 10, 100 * time.Millisecond},
		{"600/m", 10, 100 * time.Millisecond},
		{"37/min", 37.0 / 60, 1621621622},
		{"3600/h", 1, time.Second},
		{"1500/day", 1500.0 / 86400, 57600 * time.Millisecond},
		{"1500/d", 1500.0 / 86400, 57600 * time.Millisecond},
		{"0.5/s", 0.5, 2 * time.Second},
		{"1000000/s", 1e6, time.Microsecond},
	}
	for _, tt := range tests {
		r, err := scenario.ParseRate(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if r.PerSecond() != tt.perSecond || r.Interval() != tt.interval || r.String() != tt.text {
			t.Errorf("%s is %g/s, interval %s, written %s; want %g, %s", tt.text, r.PerSecond(), r.Interval(), r, tt.perSecond, tt.interval)
		}
	}
	for _, text := range []string{
		"", "10", "/s", "10/", "10/S", "0/s", "-3/s", "1e3/s", "inf/s", "NaN/s", "0x10/s", "1_0/s", "1..2/s", "1000001/s", "0.01/day", "10/s ", "10 /s", "1-1/s",
	} {
		if r, err := scenario.ParseRate(text); err == nil {
			t.Errorf("%q was read as %v", text, r)
		}
	}
}

func TestZeroRateIsNoRate(t *testing.T) {
	var r scenario.Rate
	if r.PerSecond() != 0 || r.Interval() != 0 || r.String() != "0/s" {
		t.Errorf("the zero rate is %v, %g/s, interval %s", r, r.PerSecond(), r.Interval())
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1h": time.Hour, "15m": 15 * time.Minute, "1200s": 20 * time.Minute, "1h30m": 90 * time.Minute,
		"250ms": 250 * time.Millisecond, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "0": 0, "-5s": -5 * time.Second,
	} {
		if got, err := scenario.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s is %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "1w", "d", "-1d", "1.5d", "1d-5s", "1d1d", "99999d", "1h 5m", "soon"} {
		if got, err := scenario.ParseDuration(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
}
