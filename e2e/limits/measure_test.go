package limits_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/e2e/internal/harness"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/longtest"
)

var (
	askFor  = flag.Int("limits.requests", 2000, "how many details each shape is asked for")
	underBy = flag.String("limits.law", "", "the law to measure; empty is the default one")
	only    = flag.String("limits.only", "", "measure only the shapes whose name holds this")
	report  = flag.String("limits.report", "", "file to add one line of JSON a shape to, with the trace of its refusals")
)

// The targets of a run over 2,000 requests.
const (
	minGoodput = 0.95
	maxRefused = 4    // of 1,000
	maxOff     = 0.05 // of the size
)

// result is what one run came to.
type result struct {
	Shape    string  `json:"shape"`
	Law      string  `json:"law"`
	Answered int     `json:"answered"`
	Refused  int     `json:"refused"`
	Seconds  float64 `json:"seconds"` // from the first request to the last answer
	Allowed  float64 `json:"allowed"` // answers in that time
	// Goodput is answered of what was allowed, burst included, Sustained of what is
	// allowed for ever.
	Goodput   float64 `json:"goodput"`
	Sustained float64 `json:"sustained"`
	Per1000   float64 `json:"refused_per_1000"`
	// Blocked are the seconds between a refusal and the next admission.
	Blocked float64       `json:"blocked_s"`
	Limits  []event.Limit `json:"limits"`
	Belief  *event.Belief `json:"belief"`
	Kind    bool          `json:"kind_right"`
	// Off is how far the size is from the true one, as a part of it; of a bucket or
	// window the rate, and of a window its length too, whichever is further off.
	Off float64 `json:"size_off"`
	// Bound is what the run says bound it.
	Bound json.RawMessage `json:"bound_by"`
	// Tenths is the goodput against the sustained limit in each tenth of the time.
	Tenths   [10]float64 `json:"tenths"`
	Refusals []met       `json:"refusals"`
}

// met is a refusal, and what was in use then.
type met struct {
	At     float64 `json:"at_s"`    // since the first request
	Gap    float64 `json:"gap_s"`   // since the request before it
	Next   float64 `json:"next_s"`  // until the next one that was admitted; 0 for none
	Second int     `json:"last_1s"` // admitted in the time before it
	Ten    int     `json:"last_10s"`
	Minute int     `json:"last_60s"`
	Flying int     `json:"under_way"`
}

// TestRealLimits measures the law against real servers: what it gets of what they
// allow, from the first request on. It needs -long, and as many seconds as the slowest
// of the limits takes for the requests. What is lost or doubled fails it; what misses
// a target is marked in the table.
func TestRealLimits(t *testing.T) {
	if !longtest.Long() {
		t.Skip("it takes half an hour; see make limits")
	}
	requireNginx(t)
	requireHAProxy(t)
	var mu sync.Mutex
	results := map[string]result{}
	t.Run("shape", func(t *testing.T) {
		for _, s := range shapes {
			if !strings.Contains(s.name, *only) {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				r := s.measure(t)
				mu.Lock()
				defer mu.Unlock()
				results[s.name] = r
				record(t, r)
			})
		}
	})
	var table strings.Builder
	fmt.Fprintln(&table, columns)
	for _, s := range shapes {
		if r, ok := results[s.name]; ok {
			fmt.Fprintln(&table, r)
		}
	}
	t.Logf("\n%s(! misses: goodput %.2f, %d refused of 1,000, kind and size within %.0f %%)", table.String(), minGoodput, maxRefused, 100*maxOff)
}

// record adds a line to the report.
func record(t *testing.T, r result) {
	t.Helper()
	if *report == "" {
		return
	}
	f, err := os.OpenFile(*report, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := json.NewEncoder(f).Encode(r); err != nil {
		t.Error(err)
	}
}

// left is a connection with the defaults, but for the ceiling: 200 a second, since the
// default one, four a second, would bind before most limits do.
const left = `connection: measured
provider:
  base_url: ${CHAT_URL}
  ceiling: 5ms
%sstreams:
  - name: items
    list: {path: /items}
    records: .items
    key: .id
    paginate: {cursor: .next, param: cursor}
    detail: {stream: details, path: "/items/{key}", records: ., key: .id}
sink: {jsonl: {dir: ./out}}
`

// measure collects through the shape's server.
func (s shape) measure(t *testing.T) result {
	t.Helper()
	front := s.front(t, s.origin(t, *askFor))
	front.start(t)
	pacing := ""
	if *underBy != "" {
		pacing = "  pacing: {law: " + *underBy + "}\n"
	}
	w := harness.NewWorkplace(t, "http://"+front.address, fmt.Sprintf(left, pacing))
	o := prompt(t, w.Dir, w.Env, harness.Program(), "collect", "conn.yaml", "--json").Wait(t)
	summary := harness.Summary(t, o)
	if o.Code != harness.ExitDrained || summary.Details != int64(*askFor) {
		t.Errorf("headway collect ended with exit code %d, for %s, with %d details of %d: %s", o.Code, summary.Reason, summary.Details, *askFor, o.Stderr)
	}
	details := map[string]bool{}
	for _, d := range records[struct{ ID string }](t, w.File("details")) {
		if details[d.ID] {
			t.Errorf("details.jsonl has %s twice", d.ID)
		}
		details[d.ID] = true
	}
	r := s.judge(t, s.log(t, front))
	if int64(r.Answered+r.Refused) != summary.Attempts || int64(r.Refused) != summary.Throttled {
		t.Errorf("the server logged %d answers and %d refusals; the run counts %d attempts, %d of them throttled", r.Answered, r.Refused, summary.Attempts, summary.Throttled)
	}
	var known []struct {
		Rate   *event.Rate
		Limits []event.Limit
	}
	w.Read(t, &known, "limits")
	if len(known) == 1 && known[0].Rate != nil {
		r.believe(s, known[0].Rate.Belief, known[0].Limits)
	}
	r.Law = "default"
	if *underBy != "" {
		r.Law = *underBy
	}
	var err error
	if r.Bound, err = json.Marshal(summary.BoundBy); err != nil {
		t.Error(err)
	}
	return r
}

// judge takes the figures from the server's log, and holds what the server let through
// against what the shape says that it allows.
func (s shape) judge(t *testing.T, log []request) result {
	t.Helper()
	r := result{Shape: s.name, Off: math.Inf(1)}
	first := math.Inf(1)
	for _, q := range log {
		first = min(first, q.At-q.Took)
	}
	var answered []float64
	for _, q := range log {
		switch {
		case q.admitted():
			answered = append(answered, q.At-first)
			// Logs are in milliseconds, and a limiter may count in whole ones.
			if d := q.At - first + 0.02; float64(len(answered)) > 1.01*s.allows(d)+1 {
				t.Errorf("the server has answered %d requests after %.3f s, and was thought to allow %.1f", len(answered), d, s.allows(d))
			}
		case q.Status == s.status:
			r.Refused++
		default:
			t.Errorf("the server answered %d to %s", q.Status, q.URI)
		}
	}
	if len(answered) == 0 {
		t.Fatal("the server has answered nothing")
	}
	r.Answered, r.Seconds = len(answered), answered[len(answered)-1]
	r.Allowed = s.allows(r.Seconds)
	r.Goodput = float64(r.Answered) / r.Allowed
	r.Sustained = float64(r.Answered) / (s.binds().rate() * r.Seconds)
	r.Per1000 = 1000 * float64(r.Refused) / float64(r.Answered)
	for _, at := range answered {
		r.Tenths[min(9, int(10*at/r.Seconds))] += 10 / (s.binds().rate() * r.Seconds)
	}
	r.trace(s, log, first)
	return r
}

// trace takes in what each refusal met.
func (r *result) trace(s shape, log []request, first float64) {
	byStart := slices.Clone(log)
	began := func(q request) float64 { return q.At - q.Took - first }
	slices.SortStableFunc(byStart, func(a, b request) int { return int(math.Copysign(1, began(a)-began(b))) })
	blocked := -1.0
	for i, q := range byStart {
		at := began(q)
		if q.admitted() {
			if blocked >= 0 {
				r.Blocked += at - blocked
				blocked = -1
			}
			continue
		}
		if blocked < 0 {
			blocked = at
		}
		m := met{At: at}
		if i > 0 {
			m.Gap = at - began(byStart[i-1])
		}
		for _, o := range byStart[:i] {
			if !o.admitted() {
				continue
			}
			for n, d := range map[*int]float64{&m.Second: 1, &m.Ten: 10, &m.Minute: 60} {
				if at-began(o) < d {
					*n++
				}
			}
			if o.At-first > at {
				m.Flying++
			}
		}
		for _, o := range byStart[i:] {
			if o.admitted() {
				m.Next = began(o) - at
				break
			}
		}
		r.Refusals = append(r.Refusals, m)
	}
}

// believe judges what the connection believes at the end.
func (r *result) believe(s shape, b *event.Belief, limits []event.Limit) {
	r.Belief, r.Limits = b, limits
	if b == nil {
		if r.Kind = s.delays && r.Refused == 0 || s.stray > 0; r.Kind {
			r.Off = 0
		}
		return
	}
	want := s.binds()
	r.Kind = b.Kind == want.kind.String() // a rate that is held near the ceiling after a stray refusal is right enough
	switch want.kind {
	case control.Concurrency:
		r.Off = math.Abs(b.Limit/want.size - 1)
	case control.SlidingWindow:
		r.Off = max(math.Abs(b.Limit/want.size-1), math.Abs(b.WindowS/want.per.Seconds()-1))
	default:
		r.Off = math.Abs(b.Limit/max(b.WindowS, 1e-9)/want.rate() - 1)
	}
}

// columns name those of a result.
var columns = fmt.Sprintf("%-32s %8s %8s %8s %8s %9s %9s %8s  %s", "server", "answered", "refused", "time", "goodput", "sustained", "per 1,000", "blocked", "belief at the end")

// String is the result as a line under columns.
func (r result) String() string {
	mark := func(missed bool) string {
		if missed {
			return "!"
		}
		return ""
	}
	belief := "none"
	if b := r.Belief; b != nil {
		belief = fmt.Sprintf("%s %.4g", b.Kind, b.Limit)
		if b.WindowS > 0 {
			belief += fmt.Sprintf(" in %.4g s", b.WindowS)
		}
	}
	switch {
	case !r.Kind:
		belief += " !kind"
	case r.Off > maxOff:
		belief += fmt.Sprintf(" !%.0f %% off", 100*r.Off)
	}
	return fmt.Sprintf("%-32s %8d %8d %7.1fs %8s %9.3f %9s %7.1fs  %s", r.Shape, r.Answered, r.Refused, r.Seconds,
		mark(r.Goodput < minGoodput)+fmt.Sprintf("%.3f", r.Goodput), r.Sustained, mark(r.Per1000 > maxRefused)+fmt.Sprintf("%.1f", r.Per1000), r.Blocked, belief)
}

// MarshalJSON leaves out a distance that there is none of.
func (r result) MarshalJSON() ([]byte, error) {
	type plain result
	if math.IsInf(r.Off, 1) {
		r.Off = -1
	}
	return json.Marshal(plain(r))
}
