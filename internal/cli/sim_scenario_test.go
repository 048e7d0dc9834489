package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-go/headway/control"
)

func TestANameComesBeforeAFileThatIsCalledTheSame(t *testing.T) {
	t.Chdir(filepath.Dir(scenarioFile(t, "strava", tiny)))
	for arg, want := range map[string]string{"strava": "strava", "./strava": "tiny"} {
		if s, err := scenarioOf(arg); err != nil || s.Name != want {
			t.Errorf("%s: %v, want scenario %s", arg, err, want)
		}
	}
}

func TestSimCompletion(t *testing.T) {
	law := control.Names()[0]
	tests := []struct {
		args        []string
		has, hasNot string
	}{
		{[]string{"sim", "run", "stra"}, "strava\t", "outage"},
		{[]string{"sim", "run", "strava", ""}, ":4\n", "outage"},
		{[]string{"sim", "run", "./stra"}, ":0\n", "strava"},
		{[]string{"sim", "compare", "strava", ""}, "outage\t", "strava\t"},
		{[]string{"sim", "run", "strava", "--law", ""}, law + "\n", "outage"},
		{[]string{"sim", "compare", "strava", "--laws", ""}, law + "\n", "outage"},
		{[]string{"sim", "compare", "strava", "--laws", law + ","}, ":6\n", law + "," + law},
		{[]string{"provider", "serve", "de"}, "demo\t", "outage"},
	}
	for _, tt := range tests {
		_, out, _ := simulate(t, append([]string{"__complete"}, tt.args...)...)
		if !strings.Contains(out, tt.has) || strings.Contains(out, tt.hasNot) {
			t.Errorf("%q completes to %q, want %q and not %q", tt.args, out, tt.has, tt.hasNot)
		}
	}
}

func TestSimHelpHasExamples(t *testing.T) {
	for _, args := range [][]string{
		{"sim"}, {"sim", "run", "--help"}, {"sim", "compare", "--help"}, {"sim", "list", "--help"},
		{"provider"}, {"provider", "serve", "--help"},
	} {
		if code, out, _ := simulate(t, args...); code != exitOK || !strings.Contains(out, "Examples:\n  headway ") {
			t.Errorf("%v: exit %d, %s", args, code, out)
		}
	}
}
