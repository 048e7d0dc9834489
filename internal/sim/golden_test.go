package sim_test

import (
	"path/filepath"
	"testing"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenarios"
)

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
