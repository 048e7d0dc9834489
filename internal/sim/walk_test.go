package sim_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/fit"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/scenarios"
)

// What docs/law.md says of the first four minutes is what happens: when attempts are refused, what is believed at
// the end, and the pictures, which -update draws again.
func TestGoldenWalkOfTheLaw(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	page, err := os.ReadFile(filepath.Join(docs, "law.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, walk, found := strings.Cut(string(page), "## A walk through one refusal\n")
	_, rest, fenced := strings.Cut(walk, "```yaml\n")
	code, _, ended := strings.Cut(rest, "```")
	if !found || !fenced || !ended {
		t.Fatal("docs/law.md has no walk with a scenario")
	}
	s, err := scenario.Parse("docs/law.md", []byte(code))
	if err != nil {
		t.Fatal(err)
	}
	var refused []string // to a tenth of a second
	r := run(t, s, sim.Options{Law: "cycle", Seed: 1, Trace: true, OnAttempt: func(a fit.Attempt) {
		if a.Fate == fit.Refused {
			refused = append(refused, fmt.Sprintf("%.1f", a.Sent.Seconds()))
		}
	}})
	var said []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9., ]+) s \| [^|]*\brefused\b`).FindAllStringSubmatch(walk, -1) {
		said = append(said, strings.Split(row[1], ", ")...)
	}
	if refused = slices.Compact(refused); len(said) < 3 || !slices.Equal(said, refused) {
		t.Errorf("the table has refusals at %v s, they come at %v", said, refused)
	}
	if want := fmt.Sprintf("%g in %g s, with confidence %.2f", r.Belief.Limit, r.Belief.WindowS, r.Belief.Confidence); !strings.Contains(walk, strings.Replace(want, " 0.", " .", 1)) {
		t.Errorf("the table does not say what is believed at the end: %s", want)
	}
	checkPicture(t, filepath.Join(docs, "law", "refusal.svg"), r.Trace)
	source, _ := scenarios.Source("changes")
	changes, err := scenario.Parse("changes.yaml", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	changed := run(t, changes, sim.Options{Law: "cycle", Seed: 1, Trace: true})
	checkPicture(t, filepath.Join(docs, "law", "changes.svg"), changed.Trace)
}

func checkPicture(t *testing.T, name string, of *sim.Trace) {
	t.Helper()
	var drawn bytes.Buffer
	if err := sim.WriteSVG(&drawn, of); err != nil {
		t.Fatal(err)
	}
	if golden.Updating() {
		if err := os.WriteFile(name, drawn.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, drawn.Bytes()) {
		t.Errorf("%s is not what a run draws (%v); make golden draws it", name, err)
	}
}
