package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/sim"
)

func TestTheTextHasEveryFieldAndSaysUnknown(t *testing.T) {
	none := resultText(&sim.Result{Scenario: "s", Law: "l", Seed: 5, HorizonS: 90})
	// The trace and the blocks are not rows, and notes and pools only where there are any.
	if rows, fields := strings.Count(none, "\n"), reflect.TypeFor[sim.Result]().NumField()-5; rows != fields {
		t.Errorf("%d rows for %d fields", rows, fields)
	}
	unknowns, pointers := strings.Count(none, unknownText), 0
	for f := range reflect.TypeFor[sim.Result]().Fields() {
		if f.Type.Kind() == reflect.Pointer && f.Name != "Trace" {
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
	if got := beliefText(&sim.Belief{Kind: "token_bucket"}); got != "token_bucket of unknown size (confidence 0.00)" {
		t.Errorf("belief %q does not say that its size is unknown", got)
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
	if code, text, complaints := simulate(t, "sim", "population", "--seed", "5", "--member", "1", "--out", path); code != exitOK || text != "" {
		t.Fatalf("exit %d: %s%s", code, text, complaints)
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
