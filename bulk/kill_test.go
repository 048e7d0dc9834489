package bulk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/bulk/source"
	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/reason"
)

// childEnv makes the test binary run one load and nothing else: the process
// that the crash test kills.
const childEnv = "HEADWAY_BULK_CHILD"

// job is what the child has to do.
type job struct{ Dir, Input, Target string }

func child() {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &j); err != nil {
		panic(err)
	}
	if sum, err := load(context.Background(), j); err != nil || sum.State != bulk.Drained {
		fmt.Fprintln(os.Stderr, sum.State, sum.Reason, err)
		os.Exit(1)
	}
}

func load(ctx context.Context, j job) (bulk.Summary, error) {
	c, err := target.Parse("target.yaml", []byte(j.Target), nil)
	if err != nil {
		return bulk.Summary{}, err
	}
	in, err := source.Open(j.Input, source.Options{})
	if err != nil {
		return bulk.Summary{}, err
	}
	defer func() { _ = in.Close() }()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	return bulk.Run(ctx, in, c.Target(client), bulk.Options{Dir: j.Dir, Params: dispatch.Params{
		FirstRows: 20, TargetTime: -1, Law: control.ParallelismParams{Max: 8, InitialFactor: 1},
	}})
}

// api is a server that keeps running while loads are killed. It takes batches of rows
// {"id":N}, refuses every 500th row, and honors idempotency keys if the job says so.
type api struct {
	mu      sync.Mutex
	keyed   bool
	keys    map[string]bool
	written map[int64]int
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var rows []struct{ ID int64 }
	if err != nil || json.Unmarshal(body, &rows) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	time.Sleep(2 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	fresh := !a.keyed || !a.keys[key]
	a.keys[key] = true
	var b strings.Builder
	for i, row := range rows {
		if i > 0 {
			b.WriteString(",")
		}
		good := row.ID%500 != 499
		if good && fresh {
			a.written[row.ID]++
		}
		fmt.Fprintf(&b, `{"ok":%v}`, good)
	}
	_, _ = fmt.Fprintf(w, "[%s]", b.String())
}

// TestKilledAtRandomInstants kills loads of each kind of resending and starts them
// again until they are done. Then every row has one outcome, acknowledged rows were
// written, and none was written twice unless rows may be.
func TestKilledAtRandomInstants(t *testing.T) {
	const rows = 3000
	input := filepath.Join(t.TempDir(), "rows.jsonl")
	var text strings.Builder
	for n := range rows {
		if n%700 == 699 {
			text.WriteString("{oops\n")
			continue
		}
		fmt.Fprintf(&text, "{\"id\":%d}\n", n)
	}
	if err := os.WriteFile(input, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	kills, whole := 0, time.Duration(0)
	for round := 0; round < 3 || kills < longtest.Size(8, 50); round++ {
		resend := []string{"resend: never", "key_header: Idempotency-Key", "resend: any"}[round%3]
		a := &api{keyed: round%3 == 1, keys: map[string]bool{}, written: map[int64]int{}}
		server := httptest.NewServer(a)
		j := job{
			Dir: filepath.Join(t.TempDir(), "load"), Input: input,
			Target: fmt.Sprintf("target: t\nhttp:\n  url: %s/rows\n  %s\n  answer: {rows: ., success: .ok}\n", server.URL, resend),
		}
		// The first load shows how long one takes on this machine. The others are killed a
		// few times within that time and then run to their end.
		for here := 0; ; here++ {
			after, began := time.Minute, time.Now()
			if round > 0 && here < 6 {
				after = rand.N(whole)
			}
			if !kill(t, j, after) {
				whole = max(whole, time.Since(began))
				break
			}
			kills++
		}
		status, err := bulk.ReadStatus(j.Dir)
		if err != nil {
			t.Fatal(err)
		}
		server.Close()
		checkLoad(t, a, j, status, rows)
		if t.Failed() {
			t.Fatalf("with %s after %d kills", resend, kills)
		}
	}
}

// kill starts a load and kills it after a while; killed is false if it had ended
// by then.
func kill(t *testing.T, j job, after time.Duration) (killed bool) {
	t.Helper()
	encoded, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(cmd.Environ(), childEnv+"="+string(encoded))
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState != nil && cmd.ProcessState.Success() {
		return false
	}
	if cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("%v: %s", err, out)
	}
	return true
}

func checkLoad(t *testing.T, a *api, j job, status bulk.Status, rows int64) {
	t.Helper()
	if status.Rows != rows || status.Owed != 0 || status.InDoubt != 0 || status.Acknowledged+status.Rejected+status.Uncertain != rows {
		t.Errorf("%+v", status)
	}
	outcome := map[int64]string{}
	for name, path := range map[string]string{"rejected": status.RejectsFile, "uncertain": status.UncertainFile} {
		for _, r := range rejects(t, path) {
			if before, twice := outcome[r.Number]; twice {
				t.Errorf("row %d is %s and %s", r.Number, before, name)
			}
			outcome[r.Number] = name
		}
	}
	if int64(len(outcome)) != status.Rejected+status.Uncertain {
		t.Errorf("%d rows in the side files, %d counted", len(outcome), status.Rejected+status.Uncertain)
	}
	anyTimes := strings.Contains(j.Target, "resend: any")
	if status.Uncertain > 0 && !strings.Contains(j.Target, "resend: never") {
		t.Errorf("%d rows are uncertain", status.Uncertain)
	}
	for n := range rows {
		malformed, refused := n%700 == 699, n%500 == 499
		times := a.written[n]
		switch outcome[n] {
		case "":
			if times == 0 || times > 1 && !anyTimes || malformed || refused {
				t.Errorf("row %d is acknowledged and was written %d times", n, times)
			}
		case "rejected":
			if !malformed && !refused || times != 0 {
				t.Errorf("row %d is rejected and was written %d times", n, times)
			}
		case "uncertain":
			if times > 1 || malformed {
				t.Errorf("row %d is uncertain and was written %d times", n, times)
			}
		}
	}
}

// TestAbortCutsOffWhatIsUnderWay ends a load whose server takes an hour for each
// batch.
func TestAbortCutsOffWhatIsUnderWay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &server{took: time.Hour, resend: dispatch.ResendAny}
		abort := make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(abort) })
		began := time.Now()
		sum, err := run(t, t.Context(), &counter{rows: 500}, s, bulk.Options{Dir: dir, Drain: 2 * time.Hour, Abort: abort})
		if err != nil || sum.State != bulk.Deferred || sum.Reason != reason.Interrupted || sum.Owed != 500 {
			t.Errorf("%+v, %v", sum, err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v to be cut off after a minute", took)
		}
	})
}

// TestRejectsAreThoseThatTheJournalCounts reads the side files of a load, and of
// folders without one.
func TestRejectsAreThoseThatTheJournalCounts(t *testing.T) {
	dir := t.TempDir()
	src := &counter{rows: 300, malformed: map[int64]bool{7: true, 200: true}}
	if _, err := run(t, t.Context(), src, &server{}, bulk.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	var numbers []int64
	for r, err := range bulk.Rejects(dir) {
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, r.Number)
	}
	if !slices.Equal(numbers, []int64{7, 200}) {
		t.Errorf("rows %v are rejected", numbers)
	}
	for r, err := range bulk.Uncertain(dir) {
		t.Errorf("%+v is uncertain, %v", r, err)
	}
	for _, err := range bulk.Rejects(t.TempDir()) {
		if !errors.Is(err, journal.ErrNone) {
			t.Errorf("of an empty folder: %v", err)
		}
	}
}

// TestStatusSaysWhetherALoadRuns looks at a folder while a load has it, and
// after.
func TestStatusSaysWhetherALoadRuns(t *testing.T) {
	dir := t.TempDir()
	looked := false
	_, err := run(t, t.Context(), &counter{rows: 300}, &server{}, bulk.Options{Dir: dir, OnProgress: func(bulk.Progress) {
		if s, err := bulk.ReadStatus(dir); !looked && (err != nil || s.Running == nil || !*s.Running) {
			t.Errorf("while it runs: %+v, %v", s, err)
		}
		looked = true
	}})
	if err != nil || !looked {
		t.Fatalf("looked %v, %v", looked, err)
	}
	if s, err := bulk.ReadStatus(dir); err != nil || s.Running == nil || *s.Running {
		t.Errorf("after it: %+v, %v", s, err)
	}
}

// TestAnInterruptThatFindsNothingLeft cuts off the last batch of a load that must not
// be sent twice. Its rows are uncertain and none is owed, so the load is complete.
func TestAnInterruptThatFindsNothingLeft(t *testing.T) {
	for rows, state := range map[int64]bulk.State{200: bulk.Drained, 50_000: bulk.Deferred} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			s := &server{took: time.Hour, resend: dispatch.ResendNothing}
			abort := make(chan struct{})
			time.AfterFunc(time.Minute, func() { close(abort) })
			sum, err := run(t, t.Context(), &counter{rows: rows}, s, bulk.Options{Dir: dir, Abort: abort})
			if err != nil || sum.State != state || sum.Uncertain == 0 || (sum.Owed == 0) != (state == bulk.Drained) {
				t.Errorf("%d rows: %+v, %v", rows, sum, err)
			}
		})
	}
}

// shift is a source that gives rows until an instant, with a break in between.
type shift struct {
	counter
	began              time.Time
	lunch, back, close time.Duration
}

func (s *shift) Next() (bulk.Row, error) {
	switch at := time.Since(s.began); {
	case at >= s.close:
		return bulk.Row{}, io.EOF
	case at >= s.lunch && at < s.back:
		time.Sleep(s.back - at)
	}
	return s.counter.Next()
}

func (s *shift) Identity() journal.Input { return journal.Input{Name: "shift", Hash: "shift"} }

// TestALongLoadForgetsAndStartsAfresh: after its one throttle the level rises by four
// while the last good level is less than five minutes old, then by two. After a break
// of more than five minutes the law starts from its initial level; totals stay.
func TestALongLoadForgetsAndStartsAfresh(t *testing.T) {
	for _, tt := range []struct {
		lunch time.Duration
		want  []int
	}{
		{6 * time.Minute, []int{26, 13, 17, 21, 23, 25, 26, 28}},
		{4 * time.Minute, []int{26, 13, 17, 21, 23, 25, 27, 29, 31}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{took: time.Second}
			s.answer = func(n int64, _ int, _ bulk.Batch) *bulk.Outcome {
				if n == 200 {
					return throttle(time.Second)
				}
				return nil
			}
			src := &shift{counter: counter{rows: 1 << 40}, began: time.Now(), lunch: 9 * time.Minute, back: 9*time.Minute + tt.lunch, close: 18 * time.Minute}
			var levels []int
			sum, err := run(t, t.Context(), src, s, bulk.Options{
				Dir: t.TempDir(), OnProgress: func(p bulk.Progress) { levels = append(levels, p.Identities[0].Law.Current) },
				Params: dispatch.Params{
					FirstRows: 2, TargetTime: -1, WindowRows: 200,
					Law: control.ParallelismParams{Max: 52, MinIncreaseInterval: 2 * time.Minute},
				},
			})
			if err != nil || sum.State != bulk.Drained || sum.Acknowledged != sum.Rows {
				t.Fatalf("%+v, %v", sum, err)
			}
			if levels = slices.Compact(levels); fmt.Sprint(levels) != fmt.Sprint(tt.want) {
				t.Errorf("with a break of %v the levels are %v, want %v", tt.lunch, levels, tt.want)
			}
			if law := sum.Identities[0].Law; law.TotalThrottles != 1 || law.Max != 52 {
				t.Errorf("at the end %+v, want one throttle", law)
			}
			s.eachOnce(t, sum.Rows)
		})
	}
}

// sink takes everything and keeps nothing.
type sink struct{ rows atomic.Int64 }

func (s *sink) Traits() bulk.Traits {
	return bulk.Traits{Name: "sink", Identities: []string{"one"}, Resend: dispatch.ResendAny}
}

func (s *sink) Send(_ context.Context, _ int, b bulk.Batch) bulk.Outcome {
	s.rows.Add(int64(len(b.Rows)))
	return bulk.Outcome{Outcome: dispatch.Outcome{Class: reason.OK}}
}

// TestMemoryDoesNotGrowWithTheInput reads many more rows than the window holds.
func TestMemoryDoesNotGrowWithTheInput(t *testing.T) {
	rows := int64(longtest.Size(300_000, 1_000_000))
	s, peak := &sink{}, uint64(0)
	sum, err := run(t, t.Context(), &counter{rows: rows}, s, bulk.Options{Dir: t.TempDir(), ProgressEvery: 1e7, OnProgress: func(bulk.Progress) {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse+m.StackInuse)
	}})
	if err != nil || sum.Acknowledged != rows || s.rows.Load() != rows {
		t.Fatalf("%+v, %v", sum, err)
	}
	if peak > uint64(rows/10_000)<<20 {
		t.Errorf("%d MiB of memory for %d rows", peak>>20, rows)
	}
	t.Logf("%d MiB at most, %.0f rows/s", peak>>20, sum.RowsPerSecond)
}
