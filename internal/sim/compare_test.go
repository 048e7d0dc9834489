package sim_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenario"
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
