package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/api"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/sim/fit"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// simulate runs the program and gives its exit code and what it printed.
func simulate(t *testing.T, args ...string) (code int, out, complaints string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, stdio{in: strings.NewReader(""), out: &o, err: &e})
	return code, o.String(), e.String()
}

// scenarioFile writes a file of that name into a new directory.
func scenarioFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const tiny = `
name: tiny
horizon: 1m
owner: {ceiling: 20ms, initial: 200ms}
provider:
  limits: [{kind: token_bucket, rate: 5/s, burst: 5}]
`

func TestSimComplainsAboutWhatItCannotRun(t *testing.T) {
	good := scenarioFile(t, "good.yaml", tiny)
	bad := scenarioFile(t, "bad.yaml", "name: bad\nbogus: 1\nhorizon: -1h\n")
	worse := scenarioFile(t, "worse.yaml", "name: worse\nclients: 0\n")
	folder := t.TempDir()
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"no scenario", []string{"run"}, []string{"sim list"}},
		{"two scenarios for run", []string{"run", good, good}, []string{"got 2"}},
		{"every problem of a file", []string{"run", bad}, []string{bad + ":2:1: bogus: ", bad + ":3:10: horizon: "}},
		{"every problem of all files", []string{"compare", bad, good, worse}, []string{bad + ":2:1: ", bad + ":3:10: ", worse + ":2:10: clients: "}},
		{"no such file or name", []string{"run", "nowhere"}, []string{`"nowhere"`, "sim list"}},
		{"a path is not a name", []string{"run", "./strava"}, []string{"./strava"}},
		{"a directory", []string{"run", folder}, []string{folder}},
		{"unknown law", []string{"run", good, "--law", "magic"}, []string{`"magic"`, strings.Join(control.Names(), ", ")}},
		{"unknown law among known", []string{"compare", good, "--laws", "aimd,magic"}, []string{`"magic"`, strings.Join(control.Names(), ", ")}},
		{"unknown law of a bulk workload", []string{"run", "dataverse-bulk-1user", "--law", "magic"}, []string{`"magic"`, "parallel, advertised, aimd, hint, fixed:N"}},
		{"a law that paces for a bulk workload", []string{"run", "dataverse-bulk-1user", "--law", "cycle"}, []string{`"cycle" paces requests and does not fit dataverse-bulk-1user, whose workload is bulk`, "parallel, advertised, aimd, hint, fixed:N"}},
		{"a bulk law for another workload", []string{"run", good, "--law", "fixed:4"}, []string{`"fixed:4" is a law of bulk workloads and does not fit tiny, whose workload is backlog`, strings.Join(control.Names(), ", ")}},
		{"no whole number of places", []string{"run", "dataverse-bulk-1user", "--law", "fixed:x"}, []string{"--law", `"x" must be a whole number`}},
		{"more places than there are", []string{"run", "dataverse-bulk-1user", "--law", "fixed:65"}, []string{"max_in_flight of 64"}},
		{"workloads of two kinds", []string{"compare", good, "dataverse-bulk-1user"}, []string{"tiny has the workload backlog and dataverse-bulk-1user has bulk"}},
		{"a law twice", []string{"compare", good, "--laws", "aimd,aimd"}, []string{"twice"}},
		{"no law", []string{"compare", good, "--laws", ""}, []string{"--laws", "aimd"}},
		{"compare nothing", []string{"compare"}, []string{"at least one scenario"}},
		{"a seed that is not a number", []string{"run", good, "--seed", "-1"}, []string{"--seed"}},
		{"plot without a name", []string{"run", good, "--plot", ""}, []string{"--plot"}},
		{"plot into no directory", []string{"run", good, "--plot", filepath.Join(folder, "none", "x.svg")}, []string{"--plot", "none"}},
		{"plot as another kind of picture", []string{"run", good, "--plot", filepath.Join(folder, "x.png")}, []string{"x.png: only SVG can be drawn, must end in .svg"}},
		{"plot over a directory", []string{"run", good, "--plot", folder}, []string{"--plot", "regular file"}},
		{"no such subcommand", []string{"rum"}, []string{`"rum"`, "did you mean run?"}},
		{"a trace of a bulk load", []string{"run", "dataverse-bulk-1user", "--trace", filepath.Join(folder, "x")}, []string{"--trace", "bulk workload"}},
		{"fit nothing", []string{"fit"}, []string{"a trace"}},
		{"fit no trace", []string{"fit", bad}, []string{"not a trace of attempts:\n" + bad + ":1:1: is not an attempt as a JSON object"}},
		{"fit what was never refused", []string{"fit", scenarioFile(t, "t.jsonl", `{"sent":1,"status":200}`)}, []string{"t.jsonl: nothing was refused, so nothing shows where a limit is"}},
		{"fit with an invalid status", []string{"fit", bad, "--refused", "42"}, []string{"--refused: 42 must be an HTTP status"}},
		{"fit to an invalid name", []string{"fit", bad, "--name", "A b"}, []string{`--name is "A b", must be lower-case letters`}},
		{"list takes nothing", []string{"list", "x"}, []string{"sim list"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, complaints := simulate(t, append([]string{"sim"}, tt.args...)...)
			if code != exitUsage || out != "" {
				t.Errorf("exit %d and output %q, want %d and none", code, out, exitUsage)
			}
			for _, want := range tt.want {
				if !strings.Contains(complaints, want) {
					t.Errorf("complaint %q does not say %q", complaints, want)
				}
			}
		})
	}
}

func TestProblemsStandAtTheBeginningOfTheirLines(t *testing.T) {
	bad := scenarioFile(t, "bad.yaml", "name: bad\nbogus: 1\nhorizon: -1h\n")
	_, _, complaints := simulate(t, "sim", "run", bad)
	lines := strings.Split(strings.TrimSpace(complaints), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], bad+":2:1: ") || !strings.HasPrefix(lines[2], bad+":3:10: ") {
		t.Errorf("complaint %q, want a heading and two lines that begin with the file", complaints)
	}
}

func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	file, other := scenarioFile(t, "tiny.yaml", tiny), scenarioFile(t, "other.yaml", strings.Replace(tiny, "name: tiny", "name: other", 1))
	for _, args := range [][]string{
		{"sim", "run", file}, {"sim", "run", file, "--json"}, {"sim", "run", "fixed-37", "--json"},
		{"sim", "run", "dataverse-bulk-2users"}, {"sim", "run", "dataverse-bulk-1user", "--law", "aimd", "--json"},
		{"sim", "compare", "dataverse-bulk-1user", "dataverse-bulk-2users", "--laws", "aimd,fixed:8"},
		{"sim", "compare", file, other}, {"sim", "compare", file, other, "--json"},
		{"sim", "list"}, {"sim", "list", "--json"},
	} {
		code, first, complaints := simulate(t, args...)
		if code != exitOK || first == "" || complaints != "" {
			t.Fatalf("%v: exit %d, %q", args, code, complaints)
		}
		if _, second, _ := simulate(t, args...); second != first {
			t.Errorf("%v: two runs differ:\n%s\n%s", args, first, second)
		}
	}
	_, one, _ := simulate(t, "sim", "run", file, "--json")
	_, two, _ := simulate(t, "sim", "run", file, "--json", "--seed", "2")
	if one == two {
		t.Error("another seed gives the same run")
	}
}

func TestRunGivesTheResultAsItIs(t *testing.T) {
	file := scenarioFile(t, "tiny.yaml", tiny)
	_, out, _ := simulate(t, "sim", "run", file, "--law", "aimd", "--seed", "9", "--json")
	s, err := scenarioOf(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(s, sim.Options{Law: "aimd", Seed: 9})
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if out != string(want) {
		t.Errorf("output %s, want %s", out, want)
	}
	if r.Seed != 9 || r.Scenario != "tiny" || r.Admitted == 0 {
		t.Errorf("result %+v, want that of tiny with seed 9", r)
	}
}

func TestRunAndCompareOfABulkWorkloadHaveLawsOfTheirOwn(t *testing.T) {
	s, err := scenarioOf("dataverse-bulk-2users")
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.RunBulk(s, sim.Options{Law: sim.BulkParallel, Seed: 9})
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	code, out, complaints := simulate(t, "sim", "run", "dataverse-bulk-2users", "--seed", "9", "--json")
	if code != exitOK || out != string(want) {
		t.Errorf("exit %d (%s), output %s, want %s", code, complaints, out, want)
	}
	results, err := sim.CompareBulk([]*scenario.Scenario{s}, sim.BulkLaws(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := sim.WriteBulkTable(&table, results); err != nil {
		t.Fatal(err)
	}
	if _, out, _ := simulate(t, "sim", "compare", "dataverse-bulk-2users"); out != table.String() {
		t.Errorf("table %s, want %s", out, &table)
	}
	_, out, _ = simulate(t, "sim", "compare", "dataverse-bulk-2users", "--laws", "aimd,fixed:8", "--json")
	var got []sim.BulkResult
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != 2 || got[0].Law != "aimd" || got[1].Law != "fixed:8" {
		t.Errorf("%v: %d results, want those of aimd and fixed:8", err, len(got))
	}
}

func TestCompareKeepsTheOrder(t *testing.T) {
	file := scenarioFile(t, "tiny.yaml", tiny)
	code, out, complaints := simulate(t, "sim", "compare", "outage", file, "--laws", "aimd", "--seed", "3", "--json")
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, complaints)
	}
	var results []sim.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, r.Scenario+" "+r.Law)
	}
	if diff := cmp.Diff([]string{"outage aimd", "tiny aimd"}, got); diff != "" {
		t.Error(diff)
	}
	_, table, _ := simulate(t, "sim", "compare", "outage", file, "--laws", "aimd", "--seed", "3")
	var want bytes.Buffer
	if err := sim.WriteTable(&want, results); err != nil {
		t.Fatal(err)
	}
	if table != want.String() {
		t.Errorf("table %s, want that of the same results: %s", table, &want)
	}
}

// A backlog always has work, so a rate at which it fills means nothing: such a
// scenario runs, and its result says so.
func TestSimRunSaysThatABacklogUsesNoRate(t *testing.T) {
	const text = "name: filled\nhorizon: 1m\nworkload: {kind: backlog, rate: 10/s}\nprovider:\n  limits: [{kind: token_bucket, rate: 5/s, burst: 2}]\n"
	results := map[bool]sim.Result{}
	for _, rated := range []bool{true, false} {
		file := filepath.Join(t.TempDir(), "filled.yaml")
		source := text
		if !rated {
			source = strings.Replace(text, ", rate: 10/s", "", 1)
		}
		if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errs := headway(t, "sim", "run", file)
		if code != exitOK || strings.Contains(out, "workload.rate 10/s is not used") != rated {
			t.Errorf("rated %v: exit %d: %s%s", rated, code, out, errs)
		}
		code, out, errs = headway(t, "sim", "run", file, "--json")
		var r sim.Result
		if err := json.Unmarshal([]byte(out), &r); code != exitOK || err != nil {
			t.Fatalf("exit %d, %v: %s", code, err, errs)
		}
		if (len(r.Notes) == 1) != rated {
			t.Errorf("rated %v: notes %q", rated, r.Notes)
		}
		r.Notes = nil
		results[rated] = r
	}
	if results[true].Admitted != results[false].Admitted || results[true].Attempts != results[false].Attempts {
		t.Errorf("the rate changed the run: %+v, without it %+v", results[true], results[false])
	}
}

func TestPlotIsWholeAndReplacesTheOldOne(t *testing.T) {
	file := scenarioFile(t, "tiny.yaml", tiny)
	plot := filepath.Join(filepath.Dir(file), "out.svg")
	if err := os.WriteFile(plot, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, with, complaints := simulate(t, "sim", "run", file, "--plot", plot)
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, complaints)
	}
	if _, without, _ := simulate(t, "sim", "run", file); with != without {
		t.Error("the plot changes what is printed")
	}
	svg, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	var root struct{ XMLName xml.Name }
	if err := xml.Unmarshal(svg, &root); err != nil || root.XMLName.Local != "svg" {
		t.Errorf("root %q, %v, want an svg", root.XMLName.Local, err)
	}
	if !bytes.Contains(svg, []byte("tiny under cycle")) {
		t.Error("the plot does not say what was run")
	}
	onlyFiles(t, filepath.Dir(file), "out.svg", "tiny.yaml")
}

func TestPlotOfALoad(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "load.svg")
	if code, _, complaints := simulate(t, "sim", "run", "dataverse-bulk-hint-drop", "--plot", plot); code != exitOK {
		t.Fatalf("exit %d: %s", code, complaints)
	}
	svg, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(svg, []byte("dataverse-bulk-hint-drop under parallel")) || !bytes.Contains(svg, []byte("no throttles")) {
		t.Error("the plot does not show the run and its result")
	}
}

func TestAFileThatFailsHalfwayLeavesTheOldOne(t *testing.T) {
	path := scenarioFile(t, "kept", "old")
	full := errors.New("disk is full")
	err := writeWhole("--out", path, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, full)
	})
	if !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("file holds %q, %v, want the old content", got, err)
	}
	onlyFiles(t, filepath.Dir(path), "kept")
}

// onlyFiles fails when the directory holds anything else.
func onlyFiles(t *testing.T, folder string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

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

func TestSimFitsAScenarioToATrace(t *testing.T) {
	scenarios := scenarioFile(t, "truth.yaml", "name: truth\nhorizon: 5m\nowner: {ceiling: 20ms, initial: 200ms}\nprovider: {throttle: {retry_after: seconds}, limits: [{kind: token_bucket, rate: 5/s, burst: 5}]}\n")
	folder := t.TempDir()
	trace, fitted := filepath.Join(folder, "Trace.jsonl"), filepath.Join(folder, "fitted.yaml")
	if code, _, complaints := simulate(t, "sim", "run", scenarios, "--trace", trace); code != 0 {
		t.Fatalf("exit code %d: %s", code, complaints)
	}
	code, out, complaints := simulate(t, "sim", "fit", trace, "--json", "--out", fitted)
	var r fit.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("exit code %d: %v %s", code, err, complaints)
	}
	if len(r.Limits) != 1 || r.Limits[0].Kind != scenario.TokenBucket || r.Limits[0].RatePerMin < 285 || r.Limits[0].RatePerMin > 315 {
		t.Errorf("it found %s", out)
	}
	if code, _, complaints := simulate(t, "sim", "run", fitted); code != 0 {
		t.Errorf("the scenario cannot be run: exit code %d: %s", code, complaints)
	}
	_, text, _ := simulate(t, "sim", "fit", trace)
	if s, err := scenario.Parse("x.yaml", []byte(text)); err != nil || s.Name != "trace" || !strings.HasPrefix(text, "# ") {
		t.Errorf("the output is no scenario: %v\n%s", err, text)
	}
}

func TestTheTextHasEveryFieldAndSaysUnknown(t *testing.T) {
	none := resultText(&sim.Result{Scenario: "s", Law: "l", Seed: 5, HorizonS: 90})
	// The trace and the blocks are not rows, and notes, pools and the fleet only where there are any.
	if rows, fields := strings.Count(none, "\n"), reflect.TypeFor[sim.Result]().NumField()-6; rows != fields {
		t.Errorf("%d rows for %d fields", rows, fields)
	}
	unknowns, pointers := strings.Count(none, unknownText), 0
	for f := range reflect.TypeFor[sim.Result]().Fields() {
		if f.Type.Kind() == reflect.Pointer && f.Name != "Trace" && f.Name != "Fleet" {
			pointers++
		}
	}
	if unknowns != pointers {
		t.Errorf("%d values are unknown, want %d:\n%s", unknowns, pointers, none)
	}

	all := resultText(&sim.Result{
		Scenario: "s", Law: "l", Seed: 5, HorizonS: 3600, Attempts: 1100, Admitted: 1000, Throttled: 99,
		ThrottledPer1000: new(99.0), GoodputRatio: new(0.9876), TimeTo90PctS: new(7.0), LongestBlockS: 1.25,
		WaitP50MS: new(12.4), WaitP99MS: new(130.0), Suspended: true, ThrottlesPerChange: new(2.5),
		StrangersHarm: new(int64(0)), CeilingViolations: 1, FairnessJain: new(0.5),
		Belief: &sim.Belief{Kind: "bucket", Limit: 600, WindowS: 60, Confidence: 0.75},
	})
	want := `scenario              s
law                   l
seed                  5
horizon               1h                                  in virtual time
attempts              1,100                               that reached the provider
admitted              1,000
throttled             99                                  refused by a limit
throttled per 1000    99.00                               admitted
goodput ratio         0.988                               of what a clairvoyant client is admitted
time to 90 %          7 s                                 of that client's rate
longest block         1.2 s                               with work and nothing admitted
wait p50              12 ms                               until work was admitted
wait p99              130 ms
suspended             yes: the run has failed
throttles per change  2.5                                 of the limits
strangers' harm       0                                   refusals that others would not have had
ceiling violations    1
fairness (Jain)       0.500                               1 is even between clients
belief                bucket 600 in 1m (confidence 0.75)  what the law holds the limit to be
`
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	fleet := resultText(&sim.Result{Fleet: &sim.FleetResult{
		Members: 10, MessagesPerS: 106.8, Overshoot: new(0.0123), Alone: sim.AloneResult{GoodputRatio: new(0.99), ThrottledPer1000: new(0.5)},
	}})
	for _, want := range []string{"10       members; 107 messages/s", "0.0123   of a limit in its worst window", "0.990    goodput ratio; 0.50 throttled per 1000, overshoot unknown"} {
		if !strings.Contains(fleet, want) {
			t.Errorf("the text of a fleet lacks %q:\n%s", want, fleet)
		}
	}
	if got := beliefText(&sim.Belief{Kind: "token_bucket"}); got != "token_bucket of unknown size (confidence 0.00)" {
		t.Errorf("belief %q does not say that its size is unknown", got)
	}
	for seconds, want := range map[float64]string{8.916100448: "8.92s", 0.0123456: "12.3ms", 90: "1m30s", 86400: "24h", 100.4: "1m40s"} {
		if got := beliefText(&sim.Belief{Kind: "fixed_window", Limit: 1, WindowS: seconds}); got != "fixed_window 1 in "+want+" (confidence 0.00)" {
			t.Errorf("a belief in %g s is %q, want %s", seconds, got, want)
		}
	}
}

func TestTheTextOfALoadHasEveryFigure(t *testing.T) {
	got := bulkText(&sim.BulkResult{
		Scenario: "s", Law: "aimd", Seed: 5, HorizonS: 3600, Rows: 1100, Acknowledged: 1000, Rejected: 40, Owed: 60,
		Stopped: new("forbidden"), ElapsedS: 12.5, RowsPerS: 80, Batches: 20, BatchRowsMean: new(55.5), Throttled: 2,
		ThrottledPer1000: new(111.1), ParallelismMean: 3.456, ParallelismMax: 9, RetryAfterS: 7, LongestRetryAfterS: 5,
		Users: []sim.BulkUser{
			{Rows: 600, Batches: 12, Throttled: 2, ParallelismMean: 2, ParallelismMax: 5, RetryAfterS: 7},
			{Rows: 400, Batches: 8, ParallelismMean: 1.456, ParallelismMax: 4},
		},
	})
	want := `scenario             s
law                  aimd
seed                 5
horizon              1h         in virtual time
rows                 1,100
acknowledged         1,000
rejected             40
owed                 60         neither, when the load ended
ended                forbidden  is why it gave up
elapsed              12.5 s
rows a second        80.0       acknowledged
batches              20
rows a batch         55.5       of those served, on average
throttled            2          refused by a limit
throttled per 1000   111.10     batches served
parallelism mean     3.46       batches in flight
parallelism max      9
retry-after          7 s        waited for Retry-After, over all users
longest retry-after  5 s
user 1               600 rows   12 batches, 2 throttled, parallelism 2.00 mean and 5 max, 7 s of retry-after
user 2               400 rows   8 batches, 0 throttled, parallelism 1.46 mean and 4 max, 0 s of retry-after
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	none := bulkText(&sim.BulkResult{Scenario: "s", Law: "l", Rows: 5, Owed: 5})
	if strings.Count(none, unknownText) != 2 || !strings.Contains(none, "came before the end") {
		t.Errorf("does not say what is unknown, or how it ended:\n%s", none)
	}
	if whole := bulkText(&sim.BulkResult{Rows: 5, Acknowledged: 5}); !strings.Contains(whole, "every row is settled") {
		t.Errorf("does not say that it is whole:\n%s", whole)
	}
	if put := bulkText(&sim.BulkResult{Rows: 5, Owed: 1, ElapsedS: 1, HorizonS: 2}); !strings.Contains(put, "rows that failed too often") {
		t.Errorf("does not say that rows are put off:\n%s", put)
	}
}

func TestListNamesWhatRunAccepts(t *testing.T) {
	_, out, _ := simulate(t, "sim", "list", "--json")
	var all []embedded
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(all, func(a, b embedded) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not in the order of names")
	}
	_, text, _ := simulate(t, "sim", "list")
	for _, e := range all {
		s, err := scenarioOf(e.Name)
		if err != nil || s.Name != e.Name {
			t.Errorf("%s: %v, want the scenario of that name", e.Name, err)
		}
		if e.Description == "" || e.HorizonS <= 0 || e.Clients < 1 {
			t.Errorf("entry %+v is not complete", e)
		}
		if !strings.Contains(text, e.Name+" ") || !strings.Contains(text, e.Description) {
			t.Errorf("the text lacks %s", e.Name)
		}
	}
	if !slices.ContainsFunc(all, func(e embedded) bool { return e.Name == "dataverse-bulk-2users" && e.Rows == 72493 && e.Clients == 2 }) ||
		!strings.Contains(text, "bulk: 72,493 rows, 2 users") {
		t.Errorf("%s lacks a load, or its rows and users", text)
	}
	if !slices.ContainsFunc(all, func(e embedded) bool {
		return e.Name == demoName && slices.Equal(e.Limits, []string{"token_bucket 40/s burst 40"})
	}) {
		t.Errorf("%s lacks the demo and its limit", out)
	}
}

func TestBriefDropsUnitsThatAreZero(t *testing.T) {
	for seconds, want := range map[float64]string{3600: "1h", 90: "1m30s", 60: "1m", 10: "10s", 5400: "1h30m", 3601: "1h0m1s", 600: "10m", 0: "0s", 36000: "10h"} {
		got := resultText(&sim.Result{HorizonS: seconds})
		if !strings.Contains(got, " "+want+" ") {
			t.Errorf("%v s is not %q in\n%s", seconds, want, got)
		}
	}
}

func TestSimPopulation(t *testing.T) {
	dir := t.TempDir()
	svg := filepath.Join(dir, "p.svg")
	code, text, complaints := simulate(t, "sim", "population", "--n", "3", "--seed", "13", "--law", "aimd", "--bound=false", "--plot", svg)
	for _, want := range []string{"law aimd, seed 13, 3 members", "family", "per 1000", "\nall "} {
		if code != exitOK || !strings.Contains(text, want) {
			t.Errorf("exit %d, the report lacks %q:\n%s%s", code, want, text, complaints)
		}
	}
	if b, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(b), "<svg") || strings.Contains(string(b), "%!") {
		t.Errorf("%v, plot:\n%s", err, b)
	}
	if code, text, _ := simulate(t, "sim", "population", "--n", "2", "--seed", "13", "--law", "aimd", "--bound=false", "--json"); code != exitOK || !strings.Contains(text, `"members": [`) {
		t.Errorf("exit %d:\n%s", code, text)
	}
}

func TestAMemberRunsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "member.yaml")
	code, text, command := simulate(t, "sim", "population", "--seed", "5", "--member", "1", "--out", path)
	if code != exitOK || text != "" {
		t.Fatalf("exit %d: %s%s", code, text, command)
	}
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, text, _ := simulate(t, "sim", "population", "--seed", "5", "--member", "1"); text != string(src) {
		t.Errorf("without --out the output is\n%s\nand the file\n%s", text, src)
	}
	first, _, _ := strings.Cut(string(src), "\n")
	_, seed, ok := strings.Cut(first, "--seed ")
	if !ok {
		t.Fatalf("the first line names no seed: %s", first)
	}
	if want := "headway sim run " + path + " --seed " + seed + "\n"; command != want {
		t.Errorf("beside the file %q is printed, want %q", command, want)
	}
	if code, _, complaints := simulate(t, "sim", "run", path, "--seed", seed, "--law", "aimd"); code != exitOK {
		t.Errorf("exit %d: %s", code, complaints)
	}
}

func TestSimPopulationRefusesWhatItCannotDo(t *testing.T) {
	for args, want := range map[string]string{
		"--n 0":                         "--n: 0 must be from 1 to 100000",
		"--family leaky":                `unknown family "leaky", want one of ban, fixed-block`,
		"--law magic":                   `unknown law "magic", want one of`,
		"--out x.yaml":                  "--out needs --member",
		"--member 1 --json":             "--json does not go with --member, which writes a file and runs nothing",
		"--member 1 --plot x.svg":       "--plot does not go with --member",
		"--member -1":                   "--member: -1 must be from 0",
		"--member 1 --out /nowhere/x.y": "there is no directory /nowhere",
		"--plot /nowhere/x.svg":         "there is no directory /nowhere",
		"more":                          "no argument",
	} {
		code, _, complaints := simulate(t, append([]string{"sim", "population"}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(complaints, want) {
			t.Errorf("%s: exit %d, %s, want %d and %q", args, code, complaints, exitUsage, want)
		}
	}
}

// TestTheConsoleSimulates runs what the page of the simulator runs.
func TestTheConsoleSimulates(t *testing.T) {
	var s simulator
	menu, err := s.Menu()
	if err != nil || len(menu.Scenarios) < 10 || len(menu.Families) == 0 || len(menu.Laws) == 0 {
		t.Fatalf("%d scenarios, %v, %v, %v", len(menu.Scenarios), menu.Families, menu.Laws, err)
	}
	for _, p := range []api.SimulatorPick{{Scenario: "fixed-37", Member: -1}, {Seed: 3, Member: 4}} {
		text, err := s.Draft(p)
		if err != nil {
			t.Fatal(err)
		}
		done, err := s.Simulate(t.Context(), api.Simulation{Source: text, Laws: []string{control.DefaultLaw}, Seed: 1})
		if err != nil || len(done.Results) != 1 || !strings.HasPrefix(done.Results[0].SVG, "<svg") || len(done.Results[0].Figures) < 10 {
			t.Errorf("%+v: %.300v, %v", p, done, err)
		}
	}
	for field, ask := range map[string]api.Simulation{
		"source": {Source: "name: x\nhorizon: -1h\n", Laws: menu.Laws},
		"laws":   {Source: "name: x\nprovider: {limits: [{kind: fixed_window, limit: 12, window: 1m}]}\n", Laws: []string{"gravity"}},
	} {
		_, err := s.Simulate(t.Context(), ask)
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Field != field || p.Status != 422 {
			t.Errorf("%s: %v", field, err)
		}
	}
	// What is far too much ends when nobody waits for it any more.
	big := "name: x\nhorizon: 24h\nowner: {ceiling: 1ms, initial: 1ms}\nworkload: {kind: backlog, max_in_flight: 1000}\nprovider: {latency: {p50: 1ms, p99: 2ms}, limits: [{kind: token_bucket, rate: 1000/s, burst: 1000}]}\n"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Simulate(ctx, api.Simulation{Source: big, Laws: []string{"aimd"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
