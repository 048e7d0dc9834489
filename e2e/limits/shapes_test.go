package limits_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/e2e/internal/harness"
)

// shape is a server with a limit that `make limits` measures.
type shape struct {
	name string
	// nginx is the directive of the zone and that of the limit; haproxy is the stick
	// tables, each a window. One of them is set.
	nginx   [2]string
	haproxy []window
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
	if s.haproxy == nil {
		all = f.requests(t)
	} else {
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
