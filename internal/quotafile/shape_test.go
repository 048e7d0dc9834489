package quotafile_test

import (
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/quotafile"
)

// TestWhatIsTooDeepIsNotParsed: one problem, at its place, and nothing else of the
// file is looked at.
func TestWhatIsTooDeepIsNotParsed(t *testing.T) {
	const models = "models: {m: {}}\n"
	for name, c := range map[string]struct{ file, at string }{
		"many brackets side by side":    {models + "# " + strings.Repeat("[]", 30), ""},
		"twenty brackets":               {models + "# " + strings.Repeat("[", 20), ""},
		"twenty-one brackets":           {models + "# " + strings.Repeat("[", 21), "q.yaml:2:23"},
		"closing more than was opened":  {models + "# " + strings.Repeat("]", 30) + strings.Repeat("{", 21), "q.yaml:2:53"},
		"a thousand bytes in a line":    {models + "# " + strings.Repeat("x", 998), ""},
		"a line that is longer":         {models + "# " + strings.Repeat("x", 999), "q.yaml:2:1001"},
		"a hundred columns of blanks":   {models + strings.Repeat(" ", 100) + "# x", ""},
		"more columns of blanks":        {models + strings.Repeat(" ", 101) + "# x", "q.yaml:2:101"},
		"more columns of tabs":          {models + strings.Repeat("\t", 101), "q.yaml:2:101"},
		"lists in lists":                {models + strings.Repeat("- ", 60), "q.yaml:2:101"},
		"keys in keys":                  {models + strings.Repeat("? ", 60), "q.yaml:2:101"},
		"blanks after the line's begin": {models + "#" + strings.Repeat(" ", 200), ""},
		"blanks in lines one after all": {models + strings.Repeat(strings.Repeat(" ", 90)+"# x\n", 5), ""},
		"brackets in lines one by one":  {models + strings.Repeat("# [\n", 21), "q.yaml:22:3"},
		"brackets in a text":            {models + "charges: {c: {max_tokens: \"" + strings.Repeat("[", 21) + "\"}}", "q.yaml:2:46"},
	} {
		_, err := quotafile.Parse("q.yaml", []byte(c.file))
		switch {
		case c.at == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.at != "" && (err == nil || !strings.HasPrefix(err.Error(), c.at+": ") || !strings.Contains(err.Error(), "too deep or too wide") || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want one problem at %s", name, err, c.at)
		}
	}
}

// TestWhatIsNotYAMLHasItsPlace as the parser has it.
func TestWhatIsNotYAMLHasItsPlace(t *testing.T) {
	for file, at := range map[string]string{
		"models: {m: {}}\nglobal: {burst: 1\n": "q.yaml:2:9: ",
		"models: {m: {}}\n  - x: 1\n":          "q.yaml:2:3: ",
		"a: \"b":                               "q.yaml:1:4: ",
	} {
		_, err := quotafile.Parse("q.yaml", []byte(file))
		if err == nil || !strings.HasPrefix(err.Error(), at) || !strings.Contains(err.Error(), "not YAML here (") {
			t.Errorf("%q: %v, want it at %s", file, err, at)
		}
	}
}

// TestWhoSaysSpread: also one who says no.
func TestWhoSaysSpread(t *testing.T) {
	s, err := quotafile.Read("q.yaml", []byte("global: {calls_per_minute: 60, spread: false}\nmodels: {a: {calls_per_minute: 60, spread: true}, b: {calls_per_minute: 60}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]bool{"": true, "a": true, "b": false, "c": false} {
		if got := s.SaysSpread(model); got != want {
			t.Errorf("%q says spread: %v, want %v", model, got, want)
		}
	}
}
