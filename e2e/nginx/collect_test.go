package nginx_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/e2e/internal/harness"
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
  base_url: ${CHAT_URL}
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

// slowest bounds a run that takes half a minute where nothing is wrong.
const slowest = 5 * time.Minute

// TestMain builds the program: what is tested is what people run.
func TestMain(m *testing.M) { os.Exit(harness.Run(m, harness.Setup{MaxWait: slowest})) }

// run runs "headway collect" and gives its summary. Any exit code but 0 fails the test.
func run(t *testing.T, w harness.Workplace) collect.Summary {
	t.Helper()
	o := prompt(t, w.Dir, w.Env, harness.Program(), "collect", "conn.yaml", "--json").Wait(t)
	if o.Code != harness.ExitDrained {
		t.Fatalf("headway collect ended with exit code %d after %v\n%s\n%s", o.Code, o.Took, o.Stderr, lastLines(o.Stdout, 5))
	}
	return harness.Summary(t, o)
}

func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-1-n):], "")
}
