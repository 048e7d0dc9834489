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
	for _, src := range []string{full, unusual, bulk, "name: least\n"} {
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
