//go:build unix

package bulk_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/e2e/internal/harness"
)

// office is a target that outlives those who load it. It takes rows with an id,
// and does with a batch what a table does: each row of it, or none.
type office struct {
	*httptest.Server
	t testing.TB
	// took is how long a batch takes.
	took time.Duration
	// keyed says that a batch with a key it knows is not written again.
	keyed bool
	// answer decides on a request before it is looked at; ok is false when it is
	// well. It is called under the lock.
	answer func(n int, r request) (reply, bool)
	// refuses says that a row is at fault.
	refuses func(row map[string]any) bool

	mu       sync.Mutex
	requests int
	inFlight int
	keys     map[string]bool
	written  map[string]int // how often, by id
	held     map[string]string
	largest  int // rows of the largest batch that was written
}

// request is what is known of one before its rows are.
type request struct {
	rows, inFlight int
	token          string
}

// reply is an answer in the place of the usual one.
type reply struct {
	status int
	body   string
	header map[string]string
	// writes says that the rows are written all the same.
	writes bool
}

// newOffice is one that does not serve yet: newPlace opens it.
func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{t: t, keys: map[string]bool{}, written: map[string]int{}, held: map[string]string{}}
	o.Server = harness.NewServer(t, http.HandlerFunc(o.handle))
	return o
}

// open begins to serve: from then on its fields are changed and read under the
// lock.
func (o *office) open() {
	if o.URL == "" {
		o.Start()
	}
}

// locked changes how it answers, or looks at what it has, while it serves.
func (o *office) locked(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	do()
}

func (o *office) handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client was killed: half a batch is not a batch
	}
	rows, err := rowsOf(r.URL.Path, body)
	if err != nil {
		o.t.Errorf("a request that is not a batch: %v", err)
		return
	}
	o.mu.Lock()
	o.requests++
	o.inFlight++
	say, scripted := reply{}, false
	if o.answer != nil {
		if say, scripted = o.answer(o.requests, request{len(rows), o.inFlight, r.Header.Get("Authorization")}); !scripted {
			say = reply{}
		}
	}
	o.mu.Unlock()
	if o.took > 0 {
		wait := time.NewTimer(o.took)
		defer wait.Stop()
		<-wait.C
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight--
	results := ""
	if !scripted || say.writes {
		results = o.write(r.Header.Get("Idempotency-Key"), rows)
	}
	for name, value := range say.header {
		w.Header().Set(name, value)
	}
	if say.status == 0 {
		say.status = http.StatusOK
	}
	if !scripted || say.body == "" && say.status == http.StatusOK {
		say.body = results
	}
	w.WriteHeader(say.status)
	_, _ = io.WriteString(w, say.body)
}

// rowsOf takes the rows out of a body of either kind of target.
func rowsOf(path string, body []byte) (rows []json.RawMessage, err error) {
	if strings.HasPrefix(path, "/api/data/") {
		var batch struct{ Targets []json.RawMessage }
		err = json.Unmarshal(body, &batch)
		return batch.Targets, err
	}
	err = json.Unmarshal(body, &rows)
	return rows, err
}

// write writes the rows that are not at fault, and gives the result of each.
func (o *office) write(key string, rows []json.RawMessage) string {
	fresh := !o.keyed || !o.keys[key]
	o.keys[key] = true
	o.largest = max(o.largest, len(rows))
	results := make([]string, len(rows))
	for i, raw := range rows {
		var row map[string]any
		if err := json.Unmarshal(raw, &row); err != nil {
			o.t.Errorf("invalid row: %v", err)
			continue
		}
		if o.refuses != nil && o.refuses(row) {
			results[i] = `{"ok":false,"code":"E7","message":"the office does not take this"}`
			continue
		}
		results[i] = `{"ok":true}`
		if fresh {
			id := fmt.Sprint(row["id"])
			o.written[id]++
			o.held[id] = string(raw)
		}
	}
	return "[" + strings.Join(results, ",") + "]"
}

// count is how many rows it holds, and how often it wrote.
func (o *office) count() (held, writes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.written {
		writes += n
	}
	return len(o.held), writes
}

// place is a folder with a target file, an input and the folder of a load.
type place struct {
	t     *testing.T
	dir   string
	input string
	token string
}

// load is the folder of the load in every place.
const load = "load"

// The kinds of operation, as the target file has them.
const (
	create = "resend: never"
	keyed  = "key_header: Idempotency-Key"
	upsert = "resend: any"
)

// quick makes several small batches at once.
const quick = "load: {first_rows: 50, batch_rows: 50, parallelism: {max: 8, initial_factor: 1}}\n"

// newPlace is a folder with a JSON target of an office and an input.
func newPlace(t *testing.T, o *office, kind, input, text string) *place {
	t.Helper()
	o.open()
	p := &place{t: t, dir: t.TempDir(), input: input, token: harness.Token}
	p.write("target.yaml", fmt.Sprintf(`target: office
auth: {bearer: "${OFFICE_TOKEN}"}
http:
  url: %s/rows
  %s
  answer: {rows: ., success: .ok, code: .code, message: .message}
`, o.URL, kind)+quick)
	p.write(input, text)
	return p
}

func (p *place) write(name, text string) {
	p.t.Helper()
	harness.Write(p.t, filepath.Join(p.dir, name), text)
}

// start begins "headway bulk".
func (p *place) start(args ...string) *harness.Process {
	p.t.Helper()
	return harness.Launch(p.t, p.dir, []string{"OFFICE_TOKEN=" + p.token}, append([]string{"bulk"}, args...)...)
}

// bulk runs it to its end, with the exit code that is expected.
func (p *place) bulk(code int, args ...string) harness.Outcome {
	p.t.Helper()
	o := p.start(args...).Wait(p.t)
	if o.Code != code {
		p.t.Fatalf("headway bulk %s: want exit code %d: %s", strings.Join(args, " "), code, o)
	}
	if strings.Contains(o.Stdout+o.Stderr, harness.Token) {
		p.t.Errorf("headway bulk %s shows the credential: %s", strings.Join(args, " "), o)
	}
	return o
}

// run loads the input.
func (p *place) run(code int, args ...string) harness.Outcome {
	p.t.Helper()
	return p.bulk(code, append([]string{"run", p.input, "--target", "target.yaml", "--dir", load}, args...)...)
}

// resume goes on.
func (p *place) resume(code int, args ...string) harness.Outcome {
	p.t.Helper()
	return p.bulk(code, append([]string{"resume", load}, args...)...)
}

// status is what "bulk status" says of the load.
func (p *place) status() bulk.Status {
	p.t.Helper()
	var all []bulk.Status
	o := p.bulk(0, "status", load, "--json")
	if err := json.Unmarshal([]byte(o.Stdout), &all); err != nil || len(all) != 1 {
		p.t.Fatalf("status: %v: %s", err, o)
	}
	s := all[0]
	if s.Acknowledged+s.Rejected+s.Uncertain+s.Owed != s.Rows {
		p.t.Errorf("the outcomes do not add up: %+v", s.Totals)
	}
	return s
}

// rejects are the rows of one kind that the program prints.
func (p *place) rejects(flags ...string) (all []bulk.Reject) {
	p.t.Helper()
	o := p.bulk(0, append([]string{"rejects", load, "--json"}, flags...)...)
	for line := range strings.Lines(o.Stdout) {
		var r bulk.Reject
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			p.t.Fatalf("%q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// secretless fails the test when the credential stands in a file.
func (p *place) secretless() {
	p.t.Helper()
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), harness.Token) {
			p.t.Errorf("%s holds the credential", path)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// accounted holds the outcome of every row of a drained load against what the
// office took, both ways. Row n of the input has the id n.
func (p *place) accounted(o *office, rows int, kind string) bulk.Status {
	p.t.Helper()
	s := p.status()
	if s.Owed != 0 || s.InDoubt != 0 || !s.InputRead || s.Rows != int64(rows) {
		p.t.Errorf("it is not complete: %+v", s)
	}
	outcome := map[string]string{}
	for name, all := range map[string][]bulk.Reject{"rejected": p.rejects(), "uncertain": p.rejects("--uncertain")} {
		if want := map[string]int64{"rejected": s.Rejected, "uncertain": s.Uncertain}[name]; int64(len(all)) != want {
			p.t.Errorf("%d rows are printed as %s, %d counted", len(all), name, want)
		}
		for _, r := range all {
			id := fmt.Sprint(r.Number)
			if before, twice := outcome[id]; twice {
				p.t.Errorf("row %s is %s and %s", id, before, name)
			}
			outcome[id] = name
		}
	}
	if kind != create && s.Uncertain != 0 {
		p.t.Errorf("%d rows of a load that may be sent twice are uncertain", s.Uncertain)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for n := range rows {
		id := fmt.Sprint(n)
		times := o.written[id]
		switch outcome[id] {
		case "":
			if times == 0 || times > 1 && kind != upsert {
				p.t.Errorf("row %s is acknowledged, and was written %d times", id, times)
			}
		case "rejected":
			if times != 0 {
				p.t.Errorf("row %s is rejected, and was written %d times", id, times)
			}
		case "uncertain":
			if times > 1 {
				p.t.Errorf("row %s is uncertain, and was written %d times", id, times)
			}
		}
	}
	if len(o.written) > rows {
		p.t.Errorf("the office has %d rows, the input %d", len(o.written), rows)
	}
	return s
}

// lines are rows of JSON lines with ids from 0; bad ones are not JSON.
func lines(rows int, bad func(n int) bool) string {
	var b strings.Builder
	for n := range rows {
		if bad != nil && bad(n) {
			fmt.Fprintf(&b, "{\"id\":%d,oops\n", n)
			continue
		}
		fmt.Fprintf(&b, "{\"id\":%d,\"name\":\"Row %d\"}\n", n, n)
	}
	return b.String()
}

func says(t *testing.T, o harness.Outcome, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.Stdout+o.Stderr, text) {
			t.Errorf("nothing says %q: %s", text, o)
		}
	}
}
