package sim_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/scenarios"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Each law over every scenario, at seed 1, gives what it gave before. But in a
// long run, which make check has without the race detector, the scenarios are
// shared out between the laws.
// After a change that is meant to change it: go test ./sim -run Golden -update,
// and read the difference.
func TestGoldenResults(t *testing.T) {
	all, err := scenarios.All()
	if err != nil {
		t.Fatal(err)
	}
	wanted := make(map[string]bool)
	for i := range 2 * len(all) {
		s, law := all[i/2], []string{"aimd", "envelope"}[i%2]
		path := filepath.Join("golden", law, s.Name+".json")
		wanted[path] = true
		if (i/2+i)%2 == 1 && !longtest.Long() && !*update {
			continue
		}
		got := jsonOf(t, run(t, s, sim.Options{Law: law, Seed: 1}))
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%v; write it with -update", err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", s.Name, got, want)
		}
	}
	files, err := filepath.Glob("golden/*/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !wanted[f] {
			t.Errorf("%s belongs to no scenario", f)
		}
	}
}

// Each bulk scenario under the laws that have no number, at seed 1.
func TestGoldenBulkResults(t *testing.T) {
	all, err := scenarios.Bulk()
	if err != nil {
		t.Fatal(err)
	}
	wanted := make(map[string]bool)
	for _, s := range all {
		for _, law := range sim.BulkLaws() {
			path := filepath.Join("golden", "bulk", law, s.Name+".json")
			wanted[path] = true
			r, err := sim.RunBulk(s, sim.Options{Law: law, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.JSON()
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Errorf("%v; write it with -update", err)
				continue
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s under %s: got\n%s\nwant\n%s", s.Name, law, got, want)
			}
		}
	}
	files, err := filepath.Glob("golden/bulk/*/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !wanted[f] {
			t.Errorf("%s belongs to no scenario", f)
		}
	}
}
