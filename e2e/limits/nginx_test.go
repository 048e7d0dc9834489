//go:build unix

package limits_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/internal/longtest"
)

// least is the share of the allowed rate that a run must reach once warmed up.
const least = 0.9

// enough is how many admissions a rate is measured over at least.
const enough = 60

// tries is how often a limit is run at most when the rate falls short. Other work
// on the machine can only lower it; what must be complete is so in every try.
const tries = 3

// TestCollectsEverythingThroughLimitsOfNginx collects this machine's packages through real nginx
// servers with different limits. With -long, on a machine that has nothing else to do, it asks for
// the rate that they allow, too.
func TestCollectsEverythingThroughLimitsOfNginx(t *testing.T) {
	nginx := requireNginx(t)
	cases := []struct {
		limit
		packages int
	}{
		{limit{"40r/s", 40, 20, true, http.StatusTooManyRequests}, 450},
		{limit{"50r/s", 50, 10, false, http.StatusServiceUnavailable}, 450},
		{limit{"30r/s", 30, 5, true, http.StatusTooManyRequests}, 450},
		{limit{"600r/m", 10, 5, true, http.StatusServiceUnavailable}, 200},
	}
	table := make([]string, len(cases))
	t.Run("limit", func(t *testing.T) {
		for i, c := range cases {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel() // each waits for its own nginx nearly all the time
				packages := installed(t, c.packages)
				for try := 1; ; try++ {
					m := collectTwice(t, nginx, c.limit, packages)
					table[i] = m.String()
					if m.ratio >= least || !longtest.Long() {
						return
					}
					short := fmt.Sprintf("%.2f requests a second of the %v that nginx allows: %.3f, want at least %v (with %d packages; 400 are needed to warm up on)",
						m.rate, c.allowed, m.ratio, least, len(packages))
					if try == tries || t.Failed() {
						t.Fatal(short)
					}
					t.Logf("try %d of %d: %s", try, tries, short)
				}
			})
		}
	})
	t.Logf("\n%s\n%s", header, strings.Join(table, "\n"))
}

// TestCollectsEverythingFromALimitWithoutBurst asks for nothing of the rate:
// nginx then refuses whatever comes a millisecond early, and a late request makes
// the one after it early. On a machine that has nothing else to do the rate is
// 0.92 of what is allowed; on a busy one it says how punctual the machine is.
func TestCollectsEverythingFromALimitWithoutBurst(t *testing.T) {
	nginx := requireNginx(t)
	t.Parallel()
	m := collectTwice(t, nginx, limit{"20r/s", 20, 0, false, http.StatusTooManyRequests}, installed(t, 250))
	t.Logf("\n%s\n%s", header, m)
}

// collectTwice collects the packages from an nginx of its own, twice, and gives
// what nginx saw of the first run. What is lost, doubled or asked for in vain
// fails the test.
func collectTwice(t *testing.T, nginx string, l limit, packages []detail) measurement {
	t.Helper()
	s := newServer(t, nginx, l, packages)
	w := harness.NewWorkplace(t, "http://"+s.address, connection)
	s.start(t)
	first := run(t, w)
	log := s.requests(t)
	// The second run meets an nginx that has forgotten the first. Straight after
	// it the limit would still be used up, and where it answers 503 the first
	// five answers of a warm start would open the circuit for a minute.
	s.start(t)
	second := run(t, w)
	again := s.requests(t)[len(log):]

	complete(t, w, packages, first)
	agree(t, log, packages, first)
	unchanged(t, again, packages, second)
	m := measure(t, l, log)
	m.limit, m.packages, m.gaps = l, len(packages), first.GapsOpened
	return m
}

// complete holds what the run left against what there is: every package once,
// with its document.
func complete(t *testing.T, w harness.Workplace, packages []detail, run collect.Summary) {
	t.Helper()
	if run.State != collect.RunDrained || len(run.Owed) != 0 || run.WarmStart {
		t.Errorf("the first run ended %s for %s, warm start %v, owing %v; want drained, cold, nothing owed", run.State, run.Reason, run.WarmStart, run.Owed)
	}
	want := map[string]detail{}
	for _, p := range packages {
		want[p.Package] = p
	}
	listing := map[string]int{}
	for _, got := range records[listed](t, w.File("packages")) {
		if listing[got.Package]++; got != want[got.Package].listed {
			t.Errorf("packages.jsonl has %+v, want %+v", got, want[got.Package].listed)
		}
	}
	details := map[string]int{}
	for _, got := range records[detail](t, w.File("details")) {
		if details[got.Package]++; !sameDetail(got, want[got.Package]) {
			t.Errorf("details.jsonl has %+v, want %+v", got, want[got.Package])
		}
	}
	for name := range want {
		if listing[name] != 1 || details[name] != 1 {
			t.Errorf("package %s is %d times in packages.jsonl and %d times in details.jsonl, want once in each", name, listing[name], details[name])
		}
	}
}

// agree holds what nginx says of the run against what the run says of itself.
func agree(t *testing.T, log []request, packages []detail, run collect.Summary) {
	t.Helper()
	served := map[string]int{}
	pages, refused := 0, 0
	for _, r := range log {
		name, isDetail := r.pkg(t)
		switch {
		case r.Limit == "REJECTED":
			refused++
		case !r.admitted():
			t.Errorf("nginx answered %d to %s", r.Status, r.URI)
		case isDetail:
			served[name]++
		default:
			pages++
		}
	}
	for _, p := range packages {
		if served[p.Package] != 1 {
			t.Errorf("nginx served the detail of %s %d times, want once", p.Package, served[p.Package])
		}
	}
	if len(served) != len(packages) {
		t.Errorf("nginx served the details of %d packages, want %d", len(served), len(packages))
	}
	if want := (len(packages) + pageSize - 1) / pageSize; pages != want {
		t.Errorf("nginx served %d pages, want %d", pages, want)
	}
	if run.Attempts != int64(len(log)) || run.Throttled != int64(refused) {
		t.Errorf("the run counts %d attempts, %d of them throttled; nginx logged %d and %d", run.Attempts, run.Throttled, len(log), refused)
	}
	if run.Items != int64(len(packages)) || run.Details < int64(len(packages)) || run.GapsOpened != run.GapsRecovered {
		t.Errorf("the run counts %d items, %d details, %d gaps opened and %d recovered; want %d items, each with its detail",
			run.Items, run.Details, run.GapsOpened, run.GapsRecovered, len(packages))
	}
}

// unchanged holds a second run against its purpose: to find that nothing changed.
func unchanged(t *testing.T, log []request, packages []detail, run collect.Summary) {
	t.Helper()
	for _, r := range log {
		if name, ok := r.pkg(t); ok {
			t.Errorf("the second run asked for the detail of %s again", name)
		}
	}
	if run.State != collect.RunDrained || !run.WarmStart || run.Unchanged != int64(len(packages)) {
		t.Errorf("the second run ended %s, warm start %v, %d packages unchanged; want drained, warm, all %d",
			run.State, run.WarmStart, run.Unchanged, len(packages))
	}
}

// measurement is a run as nginx saw it.
type measurement struct {
	limit                      limit
	packages                   int
	gaps                       int64
	requests, refused, delayed int
	rate, ratio                float64 // admissions a second once warmed up, and as a share of what is allowed
	warm                       float64 // the share of the admissions that was warm-up
	seconds                    float64 // from the first answer to the last
}

// header names the columns of a measurement.
var header = fmt.Sprintf("%-39s %8s %8s %7s %7s %5s %7s %6s %6s %6s", "limit", "packages", "requests", "refused", "delayed", "gaps", "rate/s", "ratio", "warm", "time")

// String is the measurement as a line under header.
func (m measurement) String() string {
	return fmt.Sprintf("%-39s %8d %8d %7d %7d %5d %7.2f %6.3f %5.0f%% %5.1fs",
		m.limit, m.packages, m.requests, m.refused, m.delayed, m.gaps, m.rate, m.ratio, 100*m.warm, m.seconds)
}

// measure takes the rate from nginx's log. The law finds the limit by meeting
// it: warm-up ends with the first half of the admissions, or with the first
// refusal when that came later. What a burst allowance gives away for once is
// spent by then.
func measure(t *testing.T, l limit, log []request) measurement {
	t.Helper()
	m := measurement{requests: len(log), seconds: log[len(log)-1].At - log[0].At}
	var admitted []float64
	from := 0
	for _, r := range log {
		switch {
		case r.admitted():
			admitted = append(admitted, r.At)
		case r.Limit == "REJECTED":
			if r.Status != l.status {
				t.Errorf("nginx refused with %d, want %d", r.Status, l.status)
			}
			if m.refused++; m.refused == 1 {
				from = len(admitted)
			}
		}
		if r.Limit == "DELAYED" {
			m.delayed++
		}
	}
	if m.refused+m.delayed == 0 {
		t.Fatal("nginx neither refused nor delayed anything: the run never met the limit")
	}
	from = max(from, len(admitted)/2)
	if len(admitted)-from < enough {
		t.Fatalf("the limit was met after %d of %d admissions, which leaves less than %d to measure: this machine has too few packages", from, len(admitted), enough)
	}
	m.warm = float64(from) / float64(len(admitted))
	m.rate = float64(len(admitted)-1-from) / (admitted[len(admitted)-1] - admitted[from])
	m.ratio = m.rate / l.allowed
	return m
}

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

// TestMain builds the program: what is tested is what people run. A run takes half a
// minute where nothing is wrong, one that is measured up to an hour.
func TestMain(m *testing.M) {
	if name := os.Getenv(asMember); name != "" {
		if err := member(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	setup := harness.Setup{MaxWait: 5 * time.Minute}
	if longtest.Long() {
		setup = harness.Setup{MaxWait: 3 * time.Hour, Parallel: len(shapes)}
	}
	os.Exit(harness.Run(m, setup))
}

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

// TestAScenarioIsFittedToWhatNginxDid has a client that knows nothing of limits ask at
// one speed after another until it was refused often enough, and gives what nginx logged
// to "headway sim fit". How fast the machine is does not matter: nginx says when each
// request came.
func TestAScenarioIsFittedToWhatNginxDid(t *testing.T) {
	nginx := requireNginx(t)
	for _, l := range []limit{
		{"20r/s", 20, 10, true, http.StatusTooManyRequests},
		{"600r/m", 10, 0, false, http.StatusServiceUnavailable},
	} {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			s := newServer(t, nginx, l, installed(t, pageSize))
			s.start(t)
			askUnevenly(t, "http://"+s.address+"/packages", l.allowed)
			var trace strings.Builder
			for _, r := range s.requests(t) {
				fmt.Fprintf(&trace, `{"answered":%.3f,"took":%.3f,"status":%d}`+"\n", r.At, r.Took, r.Status)
			}
			dir := t.TempDir()
			harness.Write(t, filepath.Join(dir, "trace.jsonl"), trace.String())
			o := harness.Launch(t, dir, nil, "sim", "fit", "trace.jsonl", "--json", "--out", "nginx.yaml").Wait(t)
			var got struct {
				Limits []struct {
					Kind       string
					Size       float64
					RatePerMin float64 `json:"rate_per_min"`
					Confidence float64
				}
			}
			if err := json.Unmarshal([]byte(o.Stdout), &got); err != nil || o.Code != 0 {
				t.Fatalf("headway sim fit ended with exit code %d: %v\n%s", o.Code, err, o.Stderr)
			}
			t.Logf("%s", o.Stdout)
			if len(got.Limits) == 0 || got.Limits[0].Kind != "token_bucket" || math.Abs(got.Limits[0].RatePerMin/60/l.allowed-1) > 0.05 {
				t.Errorf("it found %+v", got.Limits)
			}
			if o := harness.Launch(t, dir, nil, "sim", "run", "./nginx.yaml").Wait(t); o.Code != 0 {
				t.Errorf("the scenario cannot be run: exit code %d: %s", o.Code, o.Stderr)
			}
		})
	}
}

// askUnevenly asks at half to twice and a half of a rate, another one every few seconds,
// until 60 requests were refused and 200 were not.
func askUnevenly(t *testing.T, address string, rate float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	timer := time.NewTimer(0)
	gap := 0.0
	for n, passed, refused := 0, 0, 0; passed < 200 || refused < 60; n++ {
		<-timer.C
		if n%40 == 0 {
			gap = 1 / (rate * (0.5 + 2*rng.Float64()))
		}
		res, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			passed++
		} else {
			refused++
		}
		timer.Reset(time.Duration(gap * (0.5 + rng.Float64()) * float64(time.Second)))
	}
}
