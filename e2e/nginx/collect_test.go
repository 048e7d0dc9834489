package nginx_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// connection is a connection file as an owner writes it who expects a fast API
// and does not know its limit. It is the same for every limit below.
//
// The default shape of law "aimd" (start at 1 s, 100 ms off for each success,
// half the rate after a throttle) is made for limits of a few requests a second
// and less: at 20 a second one of its steps is two whole intervals. The numbers
// here are those for an API of some tens a second:
//
//   - ceiling 2ms: 500 a second, far from every limit below.
//   - initial 60ms: 17 a second. Much faster, and with the slowest limit below
//     (10 a second) half of the first answers would be 503s, which open the
//     circuit for a minute. Much slower, and the way to 50 a second would take
//     more packages than a small machine has.
//   - step 200us and factor 0.9: 200 successes lead from there to 50 a second,
//     and a throttle is forgotten after some 20 (at 40 a second), so that one
//     attempt in 20 is refused at most. A burst allowance hides the sawtooth;
//     without one its mean is 0.92 of the limit.
//   - retry base 20ms: shorter than every interval, so that a refused request
//     goes again in the next slot and none is lost. At one in 20 the retry
//     budget, which lives on one in six, never runs dry.
//   - concurrency 4: an answer that takes longer than the interval, as nginx's
//     delayed ones do, costs no slot either.
const connection = `connection: debian
provider:
  base_url: %s
  ceiling: 2ms
  pacing: {initial: 60ms, law: aimd, step: 200us, factor: 0.9, tolerance: 0s}
  retry: {base: 20ms, attempts: 8}
streams:
  - name: packages
    list: {path: /packages}
    records: .items
    key: .package
    paginate: {cursor: .next_cursor, param: cursor}
    detail:
      stream: details
      path: /packages/{key}
      records: .
      key: .package
run: {concurrency: 4}
sink: {jsonl: {dir: ./out}}
`

// summary is what a run says of itself at its end, as far as it is checked here.
type summary struct {
	State         string           `json:"state"`
	Reason        string           `json:"reason"`
	Attempts      int              `json:"attempts"`
	Retries       int              `json:"retries"`
	Throttled     int              `json:"throttled"`
	Items         int              `json:"items"`
	Unchanged     int              `json:"unchanged"`
	Details       int              `json:"details"`
	GapsOpened    int              `json:"gaps_opened"`
	GapsRecovered int              `json:"gaps_recovered"`
	Owed          map[string]int64 `json:"owed"`
	WarmStart     bool             `json:"warm_start"`
}

// slowest bounds a run that takes half a minute where nothing is wrong.
const slowest = 5 * time.Minute

// owner is a person with a connection file in a folder of their own.
type owner struct{ dir string }

func newOwner(t *testing.T, url string) owner {
	t.Helper()
	o := owner{dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(o.dir, "conn.yaml"), fmt.Appendf(nil, connection, url), 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

// collect runs "headway collect" and gives its summary. Any exit code but 0 fails the test.
func (o owner) collect(t *testing.T) summary {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), slowest)
	defer cancel()
	cmd := prompt(ctx, headway, "collect", "conn.yaml", "--json")
	cmd.Dir = o.dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HEADWAY_") { // would overrule the file
			cmd.Env = append(cmd.Env, v)
		}
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("headway collect: %v\n%s\n%s", err, errs.Bytes(), lastLines(out.Bytes(), 5))
	}
	for line := range bytes.Lines(out.Bytes()) {
		var l struct {
			Type    string  `json:"type"`
			Summary summary `json:"summary"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("headway collect --json wrote a line that is no JSON: %v: %s", err, line)
		}
		if l.Type == "summary" {
			return l.Summary
		}
	}
	t.Fatalf("headway collect --json wrote no summary\n%s", lastLines(out.Bytes(), 5))
	return summary{}
}

func lastLines(b []byte, n int) []byte {
	lines := bytes.SplitAfter(b, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-1-n):], nil)
}

// headway is the program under test, built by TestMain.
var headway string

// TestMain builds the program: what is tested is what people run.
func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "headway-nginx-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder, at the end of the process
	headway = filepath.Join(dir, "headway")
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "go env GOMOD:", err)
		return 1
	}
	build := exec.Command("go", "build", "-o", headway, "./cmd/headway")
	build.Dir = filepath.Dir(strings.TrimSpace(string(mod)))
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build ./cmd/headway: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
