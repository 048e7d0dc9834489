//go:build unix

package limits_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	measured := shapes
	if *traefikPath != "" {
		measured = slices.Concat(shapes, traefiks)
	}
	t.Run("shape", func(t *testing.T) {
		for _, s := range measured {
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
	for _, s := range measured {
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
	if s.traefik != "" {
		awaitTraefik(t, front)
	}
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
	over := false // more than was thought to be allowed
	for _, q := range log {
		switch {
		case q.admitted():
			answered = append(answered, q.At-first)
			// Logs are in milliseconds, and a limiter may count in whole ones.
			if d := q.At - first + 0.02; !over && float64(len(answered)) > 1.01*s.allows(d)+1 {
				over = true
				say := t.Errorf
				if s.traefik != "" { // it forgets a bucket that was not asked of for one to two seconds
					say = t.Logf
				}
				say("the server has answered %d requests after %.3f s, and was thought to allow %.1f", len(answered), d, s.allows(d))
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

// shape is a server with a limit that `make limits` measures.
type shape struct {
	name string
	// nginx is the directive of the zone and that of the limit; haproxy is the stick
	// tables, each a window. One of them is set.
	nginx   [2]string
	haproxy []window
	// traefik is Traefik's middleware.
	traefik string
	status  int           // of a refusal
	answers time.Duration // how long the origin takes
	bounds  []bound       // all of them hold
	// delays says that the server makes a request wait before it refuses one. Who asks
	// for one at a time then never meets the limit, and need not know it.
	delays bool
	// stray is the request that the origin refuses, for no reason, while there is no
	// limit but the owner's ceiling; 0 for no such request.
	stray int
}

// window is so many requests in the last so many seconds, as a stick table counts:
// what was refused too, and the window before this one by its part that is left.
type window struct{ size, seconds int }

// bound is how much a limit allows.
type bound struct {
	kind  control.Kind
	size  float64       // in each window, or under way
	per   time.Duration // of a number under way: what an answer takes
	burst float64       // at once, beside that
}

// allows is how many answers the limit allows in the first d seconds.
func (b bound) allows(d float64) float64 {
	n := b.size * d / b.per.Seconds()
	if b.kind == control.SlidingWindow {
		return max(b.size, n)
	}
	return n + b.burst
}

// rate is what is allowed for ever, a second.
func (b bound) rate() float64 { return b.size / b.per.Seconds() }

// allows is how many answers the server allows in the first d seconds.
func (s shape) allows(d float64) float64 {
	n := math.Inf(1)
	for _, b := range s.bounds {
		n = min(n, b.allows(d))
	}
	return n
}

// binds is the bound that allows least for ever.
func (s shape) binds() bound {
	return slices.MinFunc(s.bounds, func(a, b bound) int {
		if a.rate() < b.rate() {
			return -1
		}
		return 1
	})
}

// requests a second, with how many at once.
func bucket(rate, burst float64) []bound {
	return []bound{{control.TokenBucket, rate, time.Second, 1 + burst}}
}

func sliding(all ...window) (bounds []bound) {
	for _, w := range all {
		bounds = append(bounds, bound{control.SlidingWindow, float64(w.size), time.Duration(w.seconds) * time.Second, 0})
	}
	return bounds
}

func limitReq(rate, limit string) [2]string {
	return [2]string{"limit_req_zone $server_name zone=api:1m rate=" + rate + ";", "limit_req zone=api" + limit + ";"}
}

var shapes = []shape{
	{name: "nginx 10r/s burst=20 nodelay", nginx: limitReq("10r/s", " burst=20 nodelay"), status: 429, bounds: bucket(10, 20)},
	{name: "nginx 10r/s", nginx: limitReq("10r/s", ""), status: 429, bounds: bucket(10, 0)},
	{name: "nginx 120r/m, 503", nginx: limitReq("120r/m", ""), status: 503, bounds: bucket(2, 0)},
	{name: "nginx 5r/s burst=10, 503", nginx: limitReq("5r/s", " burst=10"), status: 503, bounds: bucket(5, 0), delays: true},
	{name: "nginx 50r/s burst=50 nodelay", nginx: limitReq("50r/s", " burst=50 nodelay"), status: 429, bounds: bucket(50, 50)},
	{name: "nginx limit_conn 4, 200 ms, 503", nginx: [2]string{"limit_conn_zone $server_name zone=api:1m;", "limit_conn api 4;"}, status: 503,
		answers: 200 * time.Millisecond, bounds: []bound{{control.Concurrency, 4, 200 * time.Millisecond, 0}}},
	{name: "nginx without a limit, one 429", status: 429, bounds: bucket(200, 0), stray: 1000},
	{name: "haproxy 100 in 10 s", haproxy: []window{{100, 10}}, status: 429, bounds: sliding(window{100, 10})},
	{name: "haproxy 60 in 60 s", haproxy: []window{{60, 60}}, status: 429, bounds: sliding(window{60, 60})},
	{name: "haproxy 20 in 1 s, 600 in 60 s", haproxy: []window{{20, 1}, {600, 60}}, status: 429, bounds: sliding(window{20, 1}, window{600, 60})},
}

// origin serves a list of so many items, a hundred a page, and each item.
func (s shape) origin(t *testing.T, items int) string {
	const page = 100
	type item struct {
		ID string `json:"id"`
	}
	var asked atomic.Int64
	server := harness.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == int64(s.stray) {
			w.WriteHeader(s.status)
			return
		}
		if s.answers > 0 {
			select {
			case <-time.After(s.answers):
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if id, ok := strings.CutPrefix(r.URL.Path, "/items/"); ok {
			_ = json.NewEncoder(w).Encode(item{id})
			return
		}
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		var body struct {
			Items []item `json:"items"`
			Next  string `json:"next,omitempty"`
		}
		for i := from; i < min(from+page, items); i++ {
			body.Items = append(body.Items, item{fmt.Sprintf("item-%05d", i)})
		}
		if from+page < items {
			body.Next = strconv.Itoa(from + page)
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	return server.Listener.Addr().String()
}

// proxy puts everything through to the origin, under the limit.
const proxy = `{limit_req}
		location / {
			proxy_pass http://{origin};
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}`

// haproxyConfiguration is one HAProxy of its own, in one thread: it counts a request
// when it comes, and refuses it when there are too many then.
const haproxyConfiguration = `global
	nbthread 1
	maxconn 256
defaults
	mode http
	option dontlognull
	timeout client 5m
	timeout server 5m
	timeout connect 5s
frontend api
	bind {address}
	log stdout format raw local0
	log-format {\"began\":%[var(txn.began)],\"took\":%Ta,\"status\":%ST,\"uri\":\"%HU\"}
	http-request set-var(txn.began) date(0,ms)
{rules}
	default_backend origin
backend origin
	server origin {origin}
{tables}`

// front is the server of a shape, before an origin.
func (s shape) front(t *testing.T, origin string) *server {
	t.Helper()
	if s.traefik != "" {
		return s.traefikFront(t, origin)
	}
	if s.haproxy == nil {
		return newNginx(t, requireNginx(t), "{serve}", proxy, "{zone}", s.nginx[0], "{limit_req}", s.nginx[1], "{status}", fmt.Sprint(s.status), "{origin}", origin)
	}
	var track, deny, tables strings.Builder
	for i, w := range s.haproxy {
		fmt.Fprintf(&track, "\thttp-request track-sc%d src table window%d\n", i, i)
		fmt.Fprintf(&deny, "\thttp-request deny deny_status %d if { sc_http_req_rate(%d) gt %d }\n", s.status, i, w.size)
		fmt.Fprintf(&tables, "backend window%d\n\tstick-table type ip size 1k expire %ds store http_req_rate(%ds)\n", i, 10*w.seconds, w.seconds)
	}
	f := newFront(t, requireHAProxy(t),
		strings.NewReplacer("{rules}", track.String()+deny.String(), "{tables}", tables.String(), "{origin}", origin).Replace(haproxyConfiguration))
	f.args = []string{"-db", "-f", filepath.Join(f.prefix, "server.conf")}
	return f
}

// log is what the front says of each request, in the order of their answers. It stops
// the front first.
func (s shape) log(t *testing.T, f *server) []request {
	t.Helper()
	var all []request
	switch {
	case s.traefik != "":
		all = traefikRequests(t, f)
	case s.haproxy == nil:
		all = f.requests(t)
	default:
		f.stop()
		for line := range strings.Lines(f.process.Stdout.Text()) {
			var l struct {
				Began, Took float64 // milliseconds
				Status      int
				URI         string
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("haproxy logged %q: %v", line, err)
			}
			all = append(all, request{At: (l.Began + l.Took) / 1000, Took: l.Took / 1000, Status: l.Status, URI: l.URI})
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return int(math.Copysign(1, a.At-b.At)) })
	return all
}
