package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/reason"
)

func TestBulkDirIsNamedAfterInputAndTarget(t *testing.T) {
	t.Setenv("HEADWAY_BULK_DIR", "root")
	now := time.Date(2026, 11, 21, 7, 50, 30, 0, time.UTC)
	for _, tt := range []struct {
		in   journal.Input
		want string
	}{
		{journal.Input{Name: "../data/contacts.csv", Hash: "x"}, "contacts.csv-to-crm"},
		{journal.Input{Name: `a:b*c.jsonl`, Hash: "x"}, "a_b_c.jsonl-to-crm"},
		{journal.Input{Name: "-", Hash: "x"}, "stdin-to-crm"},
		{journal.Input{Name: "-"}, "stdin-20261121T075030.000-to-crm"},
	} {
		if got := bulkDir(tt.in, "crm", now); got != filepath.Join("root", tt.want) {
			t.Errorf("%+v: %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestNumbersGoOverTheTargetFile(t *testing.T) {
	p := dispatch.Params{BatchRows: 500, FirstRows: 100, Law: control.ParallelismParams{Max: 52, Min: 4}}
	n := numbers{MaxParallel: 3, BatchRows: 20, TargetTime: time.Second, MaxRejects: 7, StallTimeout: time.Minute, Seed: 9}
	n.over(&p)
	if p.Law.Ceiling != 3 || p.Law.Max != 3 || p.Law.Min != 3 || p.BatchRows != 20 || p.FirstRows != 20 ||
		p.TargetTime != time.Second || p.MaxRejects != 7 || p.StallTimeout != time.Minute || p.Seed != 9 {
		t.Errorf("%+v", p)
	}
	if _, err := p.Resolve(); err != nil {
		t.Error(err)
	}
	var none numbers
	same := dispatch.Params{BatchRows: 500, Law: control.ParallelismParams{Max: 52}}
	none.over(&same)
	if same != (dispatch.Params{BatchRows: 500, Law: control.ParallelismParams{Max: 52}}) {
		t.Errorf("no number changes %+v", same)
	}
}

func TestAStallTimeoutByItsFormerName(t *testing.T) {
	dir := t.TempDir()
	text := `{"version": 1, "input": "/in", "target": "/t.yaml", "numbers": {"patience_ns": 60000000000}}`
	if err := os.WriteFile(filepath.Join(dir, recipeFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := readRecipe(dir)
	if err != nil || r.Numbers != (numbers{StallTimeout: time.Minute}) {
		t.Errorf("%+v, %v", r.Numbers, err)
	}
	for _, flag := range []string{"patience", "stall-timeout"} {
		var f bulkFlags
		cmd := &cobra.Command{Use: "run"}
		f.load(cmd)
		if err := cmd.ParseFlags([]string{"--" + flag + "=2m"}); err != nil {
			t.Fatal(err)
		}
		r := recipe{Numbers: numbers{StallTimeout: time.Minute}}
		if err := f.change(cmd, &r, ""); err != nil || r.Numbers.StallTimeout != 2*time.Minute {
			t.Errorf("--%s: %v, %v", flag, r.Numbers.StallTimeout, err)
		}
		if strings.Contains(cmd.UsageString(), "patience") {
			t.Error("the usage shows the former name")
		}
	}
}

// What --json prints of the rows and batches has the names that scripts read.
func TestTheCountsOfALoadAsJSON(t *testing.T) {
	v := progressJSON{
		Totals: bulk.Totals{Rows: 9, InputRead: true, Counts: bulk.RowCounts{Acknowledged: 1, Rejected: 2, Uncertain: 3}, Owed: 4},
		Counts: bulk.Counts{Offered: 5, Counts: bulk.RowCounts{Acknowledged: 1, Rejected: 2, Uncertain: 3}, Sent: 6, Throttled: 7, Failed: 8, Retried: 9, Split: 10, PutOff: 11},
	}
	got, err := json.Marshal(v)
	want := `{"rows":9,"input_read":true,"acknowledged":1,"rejected":2,"uncertain":3,"owed":4,"elapsed_s":0,"rows_per_second":0,"in_flight":0,"batch_rows":0,` +
		`"counts":{"acknowledged":1,"rejected":2,"uncertain":3,"batches_sent":6,"batches_throttled":7,"batches_failed":8,"batches_retried":9,"batches_split":10,"batches_put_off":11},"identities":null}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
}

func TestBulkBadUsage(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"rows.jsonl": "{}\n", "rows.csv": "a\n1\n", "t.yaml": "target: t\nhttp: {url: \"http://127.0.0.1:1/\"}\n", "bad.yaml": "target: t\nfoo: 1\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ args, want string }{
		{"run", "needs the rows' file"},
		{"run rows.jsonl", "--target is missing"},
		{"run rows.jsonl -t none.yaml", "none.yaml: cannot be read"},
		{"run rows.jsonl -t bad.yaml", "bad.yaml:2"},
		{"run none.jsonl -t t.yaml", "none.jsonl"},
		{"run rows.jsonl -t t.yaml --format xml", "format is \"xml\""},
		{"run rows.jsonl -t t.yaml --max-parallel 0", "--max-parallel is 0"},
		{"run rows.jsonl -t t.yaml --batch-rows -5", "--batch-rows is -5"},
		{"run rows.jsonl -t t.yaml --target-time 30h", "--target-time is 30h"},
		{"run rows.csv -t t.yaml --csv-type a", "--csv-type is \"a\""},
		{"run rows.csv -t t.yaml --csv-type b=number", "column b"},
		{"run rows.csv -t t.yaml --csv-comma ab", "--csv-comma is \"ab\""},
		{"check - -t t.yaml", "cannot be checked and loaded"},
		{"check rows.jsonl -t t.yaml --rows 0", "--rows is 0"},
		{"status", "there are no loads"},
		{"status nowhere", "no load was started here"},
		{"resume", "there are no loads"},
		{"rejects", "there are no loads"},
		{"rejects x --rows --json", "leave one out"},
		{"status a b", "at most the folder of a load"},
	} {
		code, _, stderr := bulkOut(t, strings.Fields(tt.args)...)
		if code != exitUsage || !strings.Contains(stderr, tt.want) {
			t.Errorf("bulk %s: exit code %d, %q, want %d and %q", tt.args, code, stderr, exitUsage, tt.want)
		}
	}
	t.Setenv("HEADWAY_MAX_PARALLEL", "many")
	if code, _, stderr := bulkOut(t, "run", "rows.jsonl", "-t", "t.yaml"); code != exitUsage || !strings.Contains(stderr, `HEADWAY_MAX_PARALLEL is "many"`) {
		t.Errorf("%d %q", code, stderr)
	}
	if _, err := os.Stat(".headway"); err == nil {
		t.Error("bad usage has left a folder")
	}
}

func bulkOut(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"bulk"}, args...), stdio{in: strings.NewReader(""), out: &out, err: &errs})
	return code, out.String(), errs.String()
}

func TestBulkCheckSendsNothingAndShowsNoSecret(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("CRM_TOKEN", "s3cr3t-canary")
	for name, text := range map[string]string{
		"rows.jsonl": "{\"a\":1}\noops\n{\"a\":2}\n{\"a\":3}\n",
		// Nobody listens there: a request would be an error.
		"t.yaml": "target: t\nauth: {bearer: \"${CRM_TOKEN}\"}\nhttp: {url: \"http://127.0.0.1:1/rows\"}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := bulkOut(t, "check", "rows.jsonl", "--target", "t.yaml")
	if code != exitOK {
		t.Fatalf("%d: %s", code, errs)
	}
	for _, want := range []string{"POST http://127.0.0.1:1/rows", "Authorization: Bearer ${CRM_TOKEN}", `[{"a":1},{"a":2}]`, "4 rows, 1 malformed", "line 2: malformed"} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "canary") {
		t.Errorf("it shows the credential:\n%s", out)
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 2 {
		t.Errorf("it left files: %v, %v", entries, err)
	}
}

func TestSpeedIsThatOfLate(t *testing.T) {
	var s speed
	if s.perSecond() != 0 {
		t.Error("a speed from nothing")
	}
	for n := range int64(100) { // 10 a second for 50 s, then 100
		rows := n * 10
		if n > 50 {
			rows = 500 + (n-50)*100
		}
		s.add(time.Duration(n)*time.Second, rows)
	}
	if got := s.perSecond(); got != 100 {
		t.Errorf("%v rows a second, want 100", got)
	}
	if len(s.at) > 22 {
		t.Errorf("%d points are kept", len(s.at))
	}
}

func TestNextStepsSayWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		name string
		sum  bulk.Summary
		pipe bool
		want string
	}{
		{"drained", bulk.Summary{State: bulk.Drained, Reason: reason.Drained}, false, ""},
		{"interrupted", bulk.Summary{State: bulk.Deferred, Reason: reason.Interrupted}, false, "headway bulk resume 'a b'"},
		{"a pipe", bulk.Summary{State: bulk.Deferred, Reason: reason.Interrupted}, true, "save the rows to a file"},
		{"refused", bulk.Summary{State: bulk.Deferred, Reason: reason.Unauthorized}, false, "correct the credential"},
		{"failed", bulk.Summary{State: bulk.Failed, Reason: reason.Internal}, false, "see to the cause"},
		{"uncertain", bulk.Summary{State: bulk.Drained, Progress: bulk.Progress{Totals: bulk.Totals{Counts: bulk.RowCounts{Uncertain: 1}}}}, false, "--uncertain"},
	} {
		got := strings.Join(nextSteps(tt.sum, "a b", tt.pipe), "\n")
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestExitOfLoad(t *testing.T) {
	for _, tt := range []struct {
		state bulk.State
		why   reason.Reason
		err   error
		pipe  bool
		want  int
	}{
		{bulk.Drained, reason.Drained, nil, true, exitOK},
		{bulk.Deferred, reason.Interrupted, nil, true, exitRefused},
		{bulk.Drained, reason.Drained, nil, false, exitOK},
		{bulk.Deferred, reason.Interrupted, nil, false, exitDeferred},
		{bulk.Deferred, reason.Cooldown, nil, false, exitDeferred},
		{bulk.Deferred, reason.QuotaExhausted, nil, false, exitDeferred},
		{bulk.Deferred, reason.Unauthorized, nil, false, exitRefused},
		{bulk.Deferred, reason.ClientError, nil, false, exitRefused},
		{bulk.Failed, reason.Internal, os.ErrClosed, false, exitInternal},
		{bulk.Failed, reason.LeaseHeld, os.ErrClosed, false, exitDeferred},
		{bulk.Failed, reason.Internal, &journal.OtherError{Dir: "d", Err: os.ErrInvalid}, false, exitUsage},
		{bulk.Failed, reason.ClientError, &bulk.MalformedError{Err: os.ErrInvalid}, false, exitUsage},
	} {
		code := exitOK
		if err := exitOfLoad(bulk.Summary{State: tt.state, Reason: tt.why}, tt.err, tt.pipe); err != nil {
			code = exitFor(err).code
		}
		if code != tt.want {
			t.Errorf("%s (%s): %d, want %d", tt.state, tt.why, code, tt.want)
		}
	}
}

func TestBulkCompletesFolders(t *testing.T) {
	t.Setenv("HEADWAY_BULK_DIR", t.TempDir())
	if got, _ := bulkFolders(nil, nil, ""); len(got) != 0 {
		t.Errorf("%v in an empty folder", got)
	}
	dir := filepath.Join(os.Getenv("HEADWAY_BULK_DIR"), "a-to-b")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, journal.File), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := bulkFolders(nil, nil, ""); !slices.Equal(got, []string{dir}) {
		t.Errorf("%v, want %s", got, dir)
	}
}

func TestBulkExamplesAreValid(t *testing.T) {
	for _, name := range []string{"CRM_TOKEN", "CRM_TOKEN_ANA", "CRM_TOKEN_BEN"} {
		t.Setenv(name, "s3cr3t")
	}
	dir := filepath.Join("..", "..", "examples", "bulk")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		code, out, errs := bulkOut(t, "check", filepath.Join(dir, "contacts.csv"), "--target", file, "--rows", "5000", "--csv-type", "creditlimit=number")
		if code != exitOK || !strings.Contains(out, "2,000 rows, 1 malformed") || !strings.Contains(out, "line 1402: malformed") {
			t.Errorf("%s: %d %s%s", file, code, out, errs)
		}
	}
}

// TestAnInputThatWasWrittenSinceIsReported compares when a file was written with the
// journal of a load that has rows to go, and of one that has none.
func TestAnInputThatWasWrittenSinceIsReported(t *testing.T) {
	began := time.Date(2026, 11, 21, 8, 0, 0, 123, time.UTC)
	in := journal.Input{Name: "rows.jsonl", Format: "jsonl", Size: 9, Hash: "x", Modified: began}
	later := in
	later.Modified = began.Add(time.Nanosecond)
	dir := t.TempDir()
	if got := changedInput(dir, later); !got.IsZero() {
		t.Errorf("no load was started and it changed at %v", got)
	}
	j, _, err := journal.Open(dir, journal.Options{Header: journal.Header{Load: "l", Input: in, Target: "t"}})
	if err != nil {
		t.Fatal(err)
	}
	if same, other := changedInput(dir, in), changedInput(dir, later); !same.IsZero() || !other.Equal(later.Modified) {
		t.Errorf("the same file changed at %v, one that was written since at %v", same, other)
	}
	if err := errors.Join(j.Write(journal.Entry{End: true}), j.Close()); err != nil {
		t.Fatal(err)
	}
	if got := changedInput(dir, later); !got.IsZero() {
		t.Errorf("of a load that is done it is said: %v", got)
	}
	// What it is of is the same load all the same.
	j, _, err = journal.Open(dir, journal.Options{Header: journal.Header{Load: "l", Input: later, Target: "t"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// A load that is under way shows what bounds it; the last view of one that was
// killed is shown as such, and one that ended has its summary alone.
func TestBulkStatusShowsWhatBindsALoadUnderWay(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HEADWAY_BULK_DIR", "")
	var during, asJSON string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		look := time.NewTicker(10 * time.Millisecond)
		defer look.Stop()
		for !strings.Contains(during, "% latency") {
			select {
			case <-look.C:
			case <-t.Context().Done():
				return
			case <-r.Context().Done():
				return
			}
			_, during, _ = bulkOut(t, "status")
		}
		_, asJSON, _ = bulkOut(t, "status", "--json")
		_, _ = io.WriteString(w, "[{}]")
	}))
	t.Cleanup(s.Close)
	for name, text := range map[string]string{"rows.jsonl": "{}\n", "t.yaml": "target: t\nhttp: {url: \"" + s.URL + "\"}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := bulkOut(t, "run", "rows.jsonl", "-t", "t.yaml", "--quiet")
	if code != exitOK {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	if !strings.Contains(during, "running       yes") || !strings.Contains(during, "bound by") || !strings.Contains(during, "under way     1 batch") {
		t.Errorf("during the load:\n%s", during)
	}
	var shown []struct {
		Progress *struct {
			At       time.Time
			InFlight int            `json:"in_flight"`
			BoundBy  map[string]any `json:"bound_by"`
		}
	}
	if err := json.Unmarshal([]byte(asJSON), &shown); err != nil || len(shown) != 1 || shown[0].Progress == nil ||
		shown[0].Progress.InFlight != 1 || shown[0].Progress.BoundBy["latency"] == nil || shown[0].Progress.At.IsZero() {
		t.Errorf("during the load, %v: %s", err, asJSON)
	}

	folder := filepath.Join(".headway", "bulk", "rows.jsonl-to-t")
	if _, err := os.Stat(filepath.Join(folder, viewFile)); !os.IsNotExist(err) {
		t.Errorf("the view outlives its run: %v", err)
	}
	if _, after, _ := bulkOut(t, "status"); strings.Count(after, "bound by") != 1 || strings.Contains(after, "under way") {
		t.Errorf("after the load:\n%s", after)
	}

	// As a killed one leaves it.
	if err := os.Remove(filepath.Join(folder, outcomeFile)); err != nil {
		t.Fatal(err)
	}
	view := `{"at":"2026-01-02T03:04:05Z","in_flight":1,"bound_by":{"latency":{"ns":1000,"share":1}}}`
	if err := os.WriteFile(filepath.Join(folder, viewFile), []byte(view), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, killed, _ := bulkOut(t, "status"); !strings.Contains(killed, "100% latency, as of ") {
		t.Errorf("after a kill:\n%s", killed)
	}
	// What cannot be read is not shown.
	if err := os.WriteFile(filepath.Join(folder, viewFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text, _ := bulkOut(t, "status"); code != exitOK || strings.Contains(text, "bound by") {
		t.Errorf("exit %d with an empty view:\n%s", code, text)
	}
}
