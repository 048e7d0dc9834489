// Package dataverse simulates a Dataverse environment over real HTTP, for tests of bulk
// loads. An [API] is mounted on a [serve.Server]; its built-in scenario ([API.Scenario])
// has the documented limits.
//
// # Endpoints
//
//	POST  /api/data/v9.2/{set}/Microsoft.Dynamics.CRM.CreateMultiple   200 {"Ids":[...]}
//	POST  /api/data/v9.2/{set}/Microsoft.Dynamics.CRM.UpdateMultiple   204
//	POST  /api/data/v9.2/{set}/Microsoft.Dynamics.CRM.UpsertMultiple   204
//	POST  /api/data/v9.2/{set}           204, one row is created
//	PATCH /api/data/v9.2/{set}({key})    204, one row is upserted; updated with If-Match: *
//	GET   /api/data/v9.2/{set}({key})    200, or 404 when it is not held
//	GET   /api/data/v9.2/{set}/$count    how many are held
//	GET   /-/dataverse                   a [Report]; never limited
//
// Any version v9.x and any entity set are accepted. Only the name of a row and a hash of
// its columns are stored, so reads return those and not the columns, and a million rows
// take 50 to 90 MB. A row's name is the alternate key or id in its @odata.id, its primary
// key ({type}id, a GUID), or the columns of [Options].AlternateKey, in this order. A row
// without a name is always created, with a new id. An update replaces the hash; it does not
// merge. If a row occurs twice in a batch, both are written in order.
//
// # Limits
//
// A user is a bearer token. Each user has on each web server 6,000 requests and 1,200 s of
// execution in any 300 s, and 52 concurrent requests, or the limits of the scenario. A
// refusal is a 429 with Dataverse's code and Retry-After. The first one starts a block of 5
// s; a request during a block doubles it, up to 300 s; after 120 s without a refusal the
// next block is 5 s again. Execution is charged on admission. Requests go to the servers in
// turn, unless the cookie ARRAffinity names one. Every response to a known user has
// x-ms-dop-hint and the rest of the limits of that user and server. Malformed, too large or
// unknown requests do not count against limits.
//
// A batch of n rows executes for [Options].Overhead + n x [Options].RowTime, plus 400 ms of
// network latency. With the defaults (200 ms and 21 ms), batches of 450 rows, four at a
// time, give about 176 rows a second, just below the limit on execution.
//
// # Rows that fail
//
// A standard table accepts all rows of a batch or none; the error names the first bad row.
// An elastic table accepts the rows that it can. If some fail, and the request's Prefer
// header asks for annotations, the error has the status of each row in
// @Microsoft.PowerApps.CDS.ErrorDetails.Plugin.BulkApiErrorDetails. Rows fail by
// [Options].FailEvery, when a row to update does not exist or a row to create exists, and
// by the column sim_fault:
//
//	reject     the row is refused, always
//	throttle   the row of an elastic table is refused with 429, the first time
//	cut        the batch is written and the connection reset, the first time
//	garbage    the batch is written and answered with what is not JSON, the first time
//
// [Options].Faults are the same, and more, by the number of the request. A batch in
// execution is written even if its client disconnects.
//
// A row without a name whose columns equal those of another such row is a duplicate: it is
// stored twice, and counted.
//
// # Scale
//
// With [Options].Scale n all times are n times shorter: windows, execution, latency,
// penalties, and the times of hints. Retry-After is rounded up to whole seconds, so clients
// should use the exact wait in Retry-After-Ms. The remaining execution time and the texts
// of errors are not scaled.
//
// It is not a reference for what Dataverse accepts: it has no columns, types, plug-ins or
// privileges. An API is for one server, and safe for concurrent use. Time is real, or that
// of a testing/synctest bubble.
package dataverse

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

// Bounds apart from those of the options.
const (
	maxUsers  = 1000
	maxTables = 100
)

// API is the environment, for [serve.Options].APIs of one server.
type API struct {
	opt   Options
	start time.Time

	mu      sync.Mutex // guards everything below
	users   map[string]*user
	servers []Traffic
	tables  map[string]*table
	arrived int // requests of known users
	written int // batches that were written
	crowded int // requests in flight
}

// New checks the options; the times of hints start now. Errors name the option, its value
// and its bounds.
func New(opt Options) (*API, error) {
	if err := opt.settle(); err != nil {
		return nil, err
	}
	return &API{
		opt: opt, start: time.Now(),
		users: make(map[string]*user), servers: make([]Traffic, opt.Servers), tables: make(map[string]*table),
	}, nil
}

// Mount adds the endpoints.
func (a *API) Mount(mux *http.ServeMux, gate *serve.Gate) {
	for pattern, handle := range map[string]func(port, *request){
		"POST /api/data/{version}/{set}/{action}": port.bulk,
		"GET /api/data/{version}/{set}/{action}":  port.count,
		"POST /api/data/{version}/{set}":          port.create,
		"PATCH /api/data/{version}/{entity}":      port.patch,
		"GET /api/data/{version}/{entity}":        port.read,
		"/api/data/":                              port.nowhere,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			p := port{api: a, gate: gate}
			if in, ok := p.open(w, r); ok {
				handle(p, in)
			}
		})
	}
}

// hint returns the currently recommended parallelism.
func (a *API) hint() int {
	level := a.opt.Hint
	for _, h := range a.opt.Hints {
		if time.Since(a.start) >= a.scaled(h.After) {
			level = h.Parallelism
		}
	}
	return level
}

// port handles requests.
type port struct {
	api  *API
	gate *serve.Gate
}

// request is a request of a known user.
type request struct {
	w      http.ResponseWriter
	r      *http.Request
	user   *user
	server int
	body   []byte
}

// open identifies the user and reads the body. It responds to errors.
func (p port) open(w http.ResponseWriter, r *http.Request) (in *request, ok bool) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !p.gate.Knows(token) {
		unauthorized(w)
		return nil, false
	}
	in = &request{w: w, r: r}
	a, key := p.api, serve.KeyID(token)
	a.mu.Lock()
	if in.user = a.users[key]; in.user == nil && len(a.users) < a.opt.Users {
		in.user = &user{name: key, last: make(map[int]problem)}
		a.users[key] = in.user
	}
	known := in.user != nil
	if known {
		in.server = a.choose(in.user, r)
		a.arrived++
	}
	at, hint := a.arrived, a.hint()
	a.mu.Unlock()
	w.Header().Set("Odata-Version", "4.0")
	if !known {
		refuse(w, problem{http.StatusForbidden, codeNoMember, "The user is not a member of the organization."}, nil)
		return nil, false
	}
	w.Header().Set("X-Ms-Dop-Hint", strconv.Itoa(hint))
	http.SetCookie(w, &http.Cookie{Name: affinity, Value: server(in.server), Path: "/", HttpOnly: true})
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(a.opt.MaxBytes)))
	_, long := errors.AsType[*http.MaxBytesError](err)
	switch {
	case long || a.due(TooLarge, at):
		tooLarge(w)
	case err != nil: // the client has disconnected
	case a.due(Unauthorized, at):
		unauthorized(w)
	case a.due(Broken, at):
		refuse(w, problem{http.StatusInternalServerError, codeUnexpected, "An unexpected error occurred."}, nil)
	case !strings.HasPrefix(r.PathValue("version"), "v9."):
		p.nowhere(in)
	default:
		in.body = body
		return in, true
	}
	return nil, false
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "HTTP Error 401 - Unauthorized: Access is denied", http.StatusUnauthorized)
}

// tooLarge responds like the gateway in front of Dataverse, which has another format.
func tooLarge(w http.ResponseWriter) {
	http.Error(w, "The page was not displayed because the request entity is too large.", http.StatusRequestEntityTooLarge)
}

// affinity is the cookie that names a server.
const affinity = "ARRAffinity"

// choose picks the server of a request. a.mu must be held.
func (a *API) choose(u *user, r *http.Request) int {
	if c, err := r.Cookie(affinity); err == nil {
		for i := range a.servers {
			if c.Value == server(i) {
				return i
			}
		}
	}
	i := u.next
	u.next = (u.next + 1) % len(a.servers)
	return i
}

// due reports whether a fault is due.
func (a *API) due(t Trouble, at int) bool { return slices.Contains(a.opt.Faults, Fault{t, at}) }

func (p port) nowhere(in *request) {
	refuse(in.w, notFound(in.r.URL.Path[strings.LastIndex(in.r.URL.Path, "/")+1:]), nil)
}

// enter takes a request with a number of rows through the limits and its execution, and
// responds to a refusal. Otherwise the caller responds and calls leave. gone reports that
// the client has disconnected.
func (p port) enter(in *request, rows int) (v *serve.Visit, gone, ok bool) {
	a := p.api
	execution := a.lasts(in.user, rows)
	defer func() {
		if !ok {
			a.crowd(in.user, -1)
		}
	}()
	v, ok = p.gate.Enter(in.w, in.r, serve.Call{
		Key: in.user.name, Scope: in.user.name + "@" + server(in.server), Cost: float64(rows), Busy: execution,
	})
	if !ok {
		return nil, true, false
	}
	a.tell(v)
	refused := a.meet(in, v, execution)
	if !v.Admitted {
		if v.HasRetryAfter {
			v.Header().Set("Retry-After", strconv.FormatInt(int64((max(0, v.RetryAfter)+time.Second-1)/time.Second), 10))
			if a.opt.Scale > 1 {
				v.Header().Set("Retry-After-Ms", strconv.FormatInt(int64((max(0, v.RetryAfter)+time.Millisecond-1)/time.Millisecond), 10))
			}
		}
		refuse(v, refused, nil)
		v.Leave()
		return nil, false, false
	}
	gone = !v.Pause(in.r.Context(), provider.Slowed(execution, v.Slow))
	return v, gone, true
}

// leave ends a request after enter.
func (p port) leave(in *request, v *serve.Visit) {
	a := p.api
	a.crowd(in.user, -1)
	a.mu.Lock()
	in.user.count.Executing--
	a.servers[in.server].Executing--
	a.mu.Unlock()
	v.Free()
}

// lasts returns how long a request's rows will execute. From now on the request counts as
// in flight.
func (a *API) lasts(u *user, rows int) time.Duration {
	mine, all := a.crowd(u, 1)
	slow := 1.0
	if a.opt.Knee > 0 {
		slow = max(slow, float64(all)/float64(a.opt.Knee))
	}
	if a.opt.UserKnee > 0 {
		slow = max(slow, float64(mine)/float64(a.opt.UserKnee))
	}
	return a.scaled(provider.Slowed(a.opt.Overhead+time.Duration(rows)*a.opt.RowTime, slow))
}

// crowd counts the requests in flight, of a user and of all. They include those that are
// about to be refused.
func (a *API) crowd(u *user, more int) (mine, all int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	u.crowd += more
	a.crowded += more
	return u.crowd, a.crowded
}

// tell reports the rest of the limits in the header.
func (a *API) tell(v *serve.Visit) {
	for _, q := range slices.Backward(v.Quotas) { // the first of a kind is advertised
		switch q.Kind {
		case scenario.SlidingWindow:
			v.Header().Set("X-Ms-Ratelimit-Burst-Remaining-Xrm-Requests", strconv.FormatInt(int64(q.Remaining), 10))
		case scenario.BusyTime:
			cents := int64(math.Round(q.Remaining * a.opt.Scale * 100))
			v.Header().Set("X-Ms-Ratelimit-Time-Remaining-Xrm-Requests", grouped(cents/100)+"."+strconv.FormatInt(100+cents%100, 10)[1:])
		case scenario.TokenBucket, scenario.FixedWindow, scenario.CostWindow, scenario.Concurrency, scenario.Slowdown:
		}
	}
}

// meet counts the verdict, and returns the error of a refusal.
func (a *API) meet(in *request, v *serve.Visit, execution time.Duration) (refused problem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case v.Suspended:
		refused = problem{http.StatusForbidden, codePrivilege, "The account is suspended."}
	case v.Throttled:
		// A block repeats the error that started it.
		refused = in.user.last[in.server]
		for i := range v.Quotas {
			if v.Quotas[i].Name == v.Limit {
				refused = throttled(&v.Quotas[i], a.opt.Scale)
			}
		}
		in.user.last[in.server] = refused
	case !v.Admitted:
		refused = problem{http.StatusServiceUnavailable, codeUnexpected, "The service is unavailable."}
	}
	charged := time.Duration(float64(execution) * a.opt.Scale)
	in.user.count.met(v.Verdict, refused.code, charged)
	a.servers[in.server].met(v.Verdict, refused.code, charged)
	return refused
}

// write writes a request's rows; ok is false if there are too many sets.
func (a *API) write(in *request, set string, op operation, rows []row) (b batch, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tables[set]
	if t == nil {
		if len(a.tables) >= maxTables {
			return b, false
		}
		t = newTable(set, a.opt.Seed)
		a.tables[set] = t
	}
	b = t.write(op, rows, a.opt.Tables == Standard || len(rows) == 1)
	in.user.count.wrote(b.written)
	a.servers[in.server].wrote(b.written)
	if b.written > 0 {
		a.written++
		b.cut, b.garbled = b.cut || a.due(Cut, a.written), b.garbled || a.due(Garbage, a.written)
	}
	return b, true
}

// fields reads the body of a single row.
func (in *request) fields() (out map[string]json.RawMessage, err error) {
	if err = json.Unmarshal(in.body, &out); err == nil && out == nil {
		err = errors.New("the body is not an object")
	}
	return out, err
}

// Report is the state of an environment.
type Report struct {
	// Hint is the currently recommended parallelism.
	Hint int `json:"hint"`
	// Sets counts the rows of each set.
	Sets map[string]SetCounts `json:"sets"`
	// Users is by serve.KeyID, Servers by "server-1" and so on.
	Users   map[string]Traffic `json:"users"`
	Servers map[string]Traffic `json:"servers"`
}

// Traffic counts requests of a user, or to a server, that met the limits.
type Traffic struct {
	provider.Counts
	// ByCode counts throttles by Dataverse's code.
	ByCode map[string]int64 `json:"by_code,omitempty"`
	// Batches and Rows count written ones.
	Batches int64 `json:"batches"`
	Rows    int64 `json:"rows"`
	// Execution is the charged time in seconds, unscaled.
	Execution float64 `json:"execution_seconds"`
	// Executing is the number of executing requests, Peak its maximum so far.
	Executing int `json:"executing"`
	Peak      int `json:"peak"`
}

// user is the state of one user.
type user struct {
	name  string
	next  int             // the server of the next request
	last  map[int]problem // the last refusal of each server
	crowd int             // requests in flight
	count Traffic
}

// Report returns the state of the environment.
func (a *API) Report() (name string, did any) { return "dataverse", a.Standing() }

// Standing returns the current [Report].
func (a *API) Standing() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := Report{
		Hint: a.hint(), Sets: make(map[string]SetCounts, len(a.tables)),
		Users: make(map[string]Traffic, len(a.users)), Servers: make(map[string]Traffic, len(a.servers)),
	}
	for name, t := range a.tables {
		r.Sets[name] = t.report()
	}
	for name, u := range a.users {
		r.Users[name] = u.count.clone()
	}
	for i := range a.servers {
		r.Servers[server(i)] = a.servers[i].clone()
	}
	return r
}

func server(i int) string { return fmt.Sprintf("server-%d", i+1) }

func (t *Traffic) clone() Traffic {
	c := *t
	c.ByCode = maps.Clone(t.ByCode)
	return c
}

// met counts a request's verdict; code is the code of a throttle.
func (t *Traffic) met(v provider.Verdict, code string, execution time.Duration) {
	switch {
	case v.Admitted:
		t.Admitted++
		t.Execution += execution.Seconds()
		t.Executing++
		t.Peak = max(t.Peak, t.Executing)
	case v.Throttled:
		t.Throttled++
		if t.ByCode == nil {
			t.ByCode = make(map[string]int64)
		}
		t.ByCode[code]++
	default:
		t.Failed++
	}
}

// wrote counts a batch.
func (t *Traffic) wrote(rows int) {
	if rows > 0 {
		t.Batches++
		t.Rows += int64(rows)
	}
}
