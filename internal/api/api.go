// Package api is the HTTP API of the daemon: it approves and settles calls under quotas, shows
// rates, runs, gaps and events, and serves health and metrics. The command line, the console
// and programs in any language use it. Answers have the same JSON as "headway ... --json", and
// errors are problem+json (RFC 9457). The API serves its own OpenAPI document, and tests check
// it against that.
//
//	POST  /v1/quota/approve      ask for a call; wait_ms to wait for it
//	POST  /v1/quota/usage        settle it with what it used, or cancel it
//	GET   /v1/quota/snapshot     what is left
//	GET   /v1/quota/forecast     when it runs out
//	GET   /v1/quota/statistics   totals (viewer)
//	GET   /v1/quota/config       limits (viewer)
//	PATCH /v1/quota/config       change them (operator)
//	GET   /v1/events             what happens, as server-sent events
//	POST  /v1/gaps               retry, quarantine, release or drop gaps (operator)
//	GET   /v1/audit              who changed what (viewer)
//	GET, POST /v1/simulator      laws against models of providers (viewer, operator)
//	GET   /v1/rate, /v1/samples, /v1/sparks, /v1/calls, /v1/usage, /v1/connections, /v1/schedule, /v1/fleet, /v1/runs[/{id}], /v1/gaps[/{id}]  (viewer)
//	GET, POST, DELETE /v1/keys   keys for calls (admin)
//	GET   /v1, /v1/openapi.json, /healthz, /readyz, /metrics (viewer)
//
// Limits, keys and the store come from [Options]. The package calls no provider; that is the
// proxy's task (package egress).
//
// An [API] is safe for concurrent use. Requests are bounded in size and time. Streams of events
// are bounded in number and in how slowly a client may read. The package starts no goroutines.
// Closing the hub of events ends the streams.
package api

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/fleet"
	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/calls"
	"github.com/headway-go/headway/internal/events"
	"github.com/headway-go/headway/internal/samples"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/quota/governor"
	"github.com/headway-go/headway/reason"
)

// Bounds of the API.
const (
	// MaxBody is the maximum size of a request body in bytes.
	MaxBody = 1 << 20
	// MaxPage is the maximum number of entries in an answer.
	MaxPage = 1000
	// DefaultStreams is the default maximum of open streams of events.
	DefaultStreams = 256
	// DefaultPermits is the default maximum of permits known at once; see Options.
	DefaultPermits = 100_000
	// DefaultQuota is the name of the quota without a provider.
	DefaultQuota = "default"

	// bodyTime bounds the time to receive a request body, writeTime the time in which a
	// client must read an answer or an event.
	bodyTime  = 15 * time.Second
	writeTime = 15 * time.Second
	// heartbeat is the interval of comments on a silent stream.
	heartbeat = 15 * time.Second
)

// Quota approves calls. A *governor.Governor implements it.
type Quota interface {
	Approve(quota.Request) (quota.Decision, error)
	ApproveWait(context.Context, quota.Request) (quota.Decision, error)
	RecordUsage(quota.Permit, quota.Usage) (first bool, err error)
	Cancel(quota.Permit) (first bool, err error)
	Snapshot() quota.Snapshot
	Statistics() governor.Statistics
	Forecast(quota.Scope) []quota.Forecast
	Factor(quota.Request) float64
	Config() quota.Config
	UpdateConfig(patch []byte) error
}

// Caller identifies the sender of a request and what it may do.
type Caller struct {
	// ID names the key in the log. It is not the key itself. Only a caller with the same ID
	// or an admin can settle a permit.
	ID string
	// Role is what the caller may read and change; empty for a caller that only makes calls.
	// The fields below are ignored with a role.
	Role Role
	// Tenant and Agent, when set, apply to all calls of the caller. A request that names
	// another one is refused, and events and forecasts of others are hidden.
	Tenant, Agent string
	// Priority is the default priority of a request, PriorityMax the maximum it may ask
	// for.
	Priority, PriorityMax int
	// May reports whether the caller may use a model of a provider; with the model "",
	// whether it may use the provider at all. Nil allows all. It must be safe for
	// concurrent use.
	May func(provider, model string) bool
}

// Anybody is an Options.Authorize for a daemon on loopback without keys. Every caller is an
// admin.
func Anybody(*http.Request, Role) (Caller, error) {
	return Caller{ID: "local", Role: Admin}, nil
}

// Role is what a caller may read and change. Each role may do all that the ones before it may.
type Role string

// The roles. A Viewer reads. An Operator also acts on gaps and overrides limits. An Admin may do
// everything.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Admin    Role = "admin"
)

// Covers reports whether the role may do what takes another one. The empty role covers none, and
// an unknown one is covered by none.
func (r Role) Covers(need Role) bool {
	all := []Role{Viewer, Operator, Admin}
	at := slices.Index(all, need)
	return at >= 0 && slices.Index(all, r) >= at
}

// Options configure an API. The functions are called for each request, so their results may
// change at a reload. They must be safe for concurrent use.
type Options struct {
	// Authorize identifies the caller. Need is the role that the operation takes; empty if
	// any key will do. The API itself checks the caller's role. The error is a
	// *reason.Refusal: Unauthorized is answered with 401, Forbidden with 403,
	// RateLimited with 429 and its RetryAt; any other error is a 401. The error's
	// text is not shown. Required; see [Anybody].
	Authorize func(r *http.Request, need Role) (Caller, error)
	// OtherOrigins reports whether a web page of another origin may send a request that
	// changes something; need is as in Authorize, which is called as well. Default: no page
	// may.
	OtherOrigins func(r *http.Request, need Role) bool
	// Quotas returns the quotas by provider name. A request without a provider uses
	// [DefaultQuota], or else the only quota. Default: no quotas.
	Quotas func() map[string]Quota
	// Rates returns the live rates of connections in this process, proxied or being
	// collected. Default: none.
	Rates func() []Live
	// Samples returns samples of a connection for the hour or day before an instant; false
	// when there are none. Default: samples made from the traces of its runs.
	Samples func(connection string, span samples.Span, now time.Time) (samples.Series, bool)
	// Sparks returns the rates of all connections over the hour before an instant, by name.
	// Default: none.
	Sparks func(now time.Time) []samples.Spark
	// Calls are the latest proxied calls. Default: none.
	Calls *calls.Recent
	// Usage has the totals of proxied calls. Default: none.
	Usage *calls.Ledger
	// Schedule returns the status of each connection that this process collects. Default:
	// none.
	Schedule func() []schedule.Status
	// Fleet returns the credentials that processes share through this one, with their
	// members. Default: none are shared.
	Fleet func() []fleet.Credential
	// Reader reads the state of collections. Default: there are none.
	Reader collect.Reader
	// Act changes gaps, as the store that Reader reads does. Default: gaps are only shown.
	Act audit.GapAct
	// Audit is the log of changes. Default: changes are not written down, and gaps are only
	// shown.
	Audit *audit.Log
	// Simulator tries laws. Default: none.
	Simulator Simulator
	// Events is the hub of events. The daemon publishes to it and closes it. Default: a hub
	// without events.
	Events *events.Hub
	// Ready returns nil when requests can be served. Default: always nil.
	Ready func() error
	// Keys issues and revokes keys. Default: the API has no such paths.
	Keys Keyring
	// Metrics serves /metrics. Default: the API has no such path.
	Metrics http.Handler
	// Version is the version of the program.
	Version string
	// Streams bounds the open streams of events, 1 to 100,000. A caller who is not an admin
	// can have at most a quarter of them, and an eighth is reserved for admins. Default
	// [DefaultStreams].
	Streams int
	// Permits bounds the permits known at once, 1 to 10,000,000. When that many are open,
	// nothing is approved until one ends. Default [DefaultPermits].
	Permits int
	// Log receives a line for each change of configuration and each internal error. Default:
	// nothing is logged.
	Log *slog.Logger
}

// API is an http.Handler. Make one with [New]. It is safe for concurrent use.
type API struct {
	o       Options
	log     *slog.Logger
	mux     *http.ServeMux
	permits *ledger
	streams seats
	ended   traces
	guard   *http.CrossOriginProtection
	openapi []byte

	simulating sync.Mutex
}

// who says which callers may use an operation: one of the roles, or one of these.
type who string

const (
	public   who = "public"
	data     who = ""     // any key
	call     who = "call" // a key for calls, or an admin's
	viewer       = who(Viewer)
	operator     = who(Operator)
	admin        = who(Admin)
)

// role is the role that an operation takes; empty if it takes none.
func (by who) role() Role {
	switch by {
	case viewer, operator, admin:
		return Role(by)
	case public, data, call:
	}
	return ""
}

// allows reports whether a caller may use the operation.
func (by who) allows(c Caller) bool {
	if by == call {
		return c.Role == "" || c.Role == Admin
	}
	need := by.role()
	return need == "" || c.Role.Covers(need)
}

// operation handles one method of a path. It returns an error only if it has written nothing;
// the error is answered as a problem.
type operation struct {
	by who
	do func(w http.ResponseWriter, r *http.Request, c Caller) error
}

// New returns an API. The error names the option, its value and its bound.
func New(o Options) (*API, error) {
	if o.Authorize == nil {
		return nil, errors.New("api: authorize is nil, must be a function; api.Anybody lets everybody in")
	}
	for _, b := range [...]struct {
		name       string
		value      *int
		usual, top int
	}{{"streams", &o.Streams, DefaultStreams, 100_000}, {"permits", &o.Permits, DefaultPermits, 10_000_000}} {
		if *b.value == 0 {
			*b.value = b.usual
		}
		if *b.value < 1 || *b.value > b.top {
			return nil, fmt.Errorf("api: %s is %d, must be from 1 to %d, or 0 for %d", b.name, *b.value, b.top, b.usual)
		}
	}
	a := &API{o: o, log: o.Log, mux: http.NewServeMux(), permits: newLedger(o.Permits), guard: http.NewCrossOriginProtection()}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if o.Events == nil {
		hub, err := events.New(1)
		if err != nil {
			return nil, err
		}
		a.o.Events = hub
	}
	doc, err := document()
	if err != nil {
		return nil, err
	}
	a.openapi = doc
	for path, methods := range a.routes() {
		a.mux.Handle(path, a.serve(methods))
	}
	a.mux.HandleFunc("/", a.nowhere)
	return a, nil
}

// routes returns all paths with their methods, except HEAD and OPTIONS.
func (a *API) routes() map[string]map[string]operation {
	get := func(by who, do func(http.ResponseWriter, *http.Request, Caller) error) map[string]operation {
		return map[string]operation{http.MethodGet: {by, do}}
	}
	routes := map[string]map[string]operation{
		"/v1":                  get(data, a.index),
		"/v1/openapi.json":     get(public, a.describe),
		"/v1/quota/approve":    {http.MethodPost: {call, a.approve}},
		"/v1/quota/usage":      {http.MethodPost: {call, a.usage}},
		"/v1/quota/snapshot":   get(data, a.snapshot),
		"/v1/quota/forecast":   get(data, a.forecast),
		"/v1/quota/statistics": get(viewer, a.statistics),
		"/v1/quota/config":     {http.MethodGet: {viewer, a.config}, http.MethodPatch: {operator, a.patch}},
		"/v1/rate":             get(viewer, a.rate),
		"/v1/samples":          get(viewer, a.samples),
		"/v1/sparks":           get(viewer, a.sparks),
		"/v1/calls":            get(viewer, a.calls),
		"/v1/usage":            get(viewer, a.used),
		"/v1/connections":      get(viewer, a.connections),
		"/v1/schedule":         get(viewer, a.schedule),
		"/v1/fleet":            get(viewer, a.fleet),
		"/v1/runs":             get(viewer, a.runs),
		"/v1/runs/{id}":        get(viewer, a.run),
		"/v1/gaps":             {http.MethodGet: {viewer, a.gaps}, http.MethodPost: {operator, a.act}},
		"/v1/audit":            get(viewer, a.audited),
		"/v1/simulator":        {http.MethodGet: {viewer, a.menu}, http.MethodPost: {operator, a.simulate}},
		"/v1/gaps/{id}":        get(viewer, a.gap),
		"/v1/events":           get(data, a.stream),
		"/healthz":             get(public, a.healthy),
		"/readyz":              get(public, a.ready),
	}
	if a.o.Keys != nil {
		routes["/v1/keys"] = map[string]operation{http.MethodGet: {admin, a.keys}, http.MethodPost: {admin, a.issue}}
		routes["/v1/keys/{id}"] = map[string]operation{http.MethodDelete: {admin, a.revoke}}
	}
	if a.o.Metrics != nil {
		routes["/metrics"] = get(viewer, func(w http.ResponseWriter, r *http.Request, _ Caller) error {
			a.o.Metrics.ServeHTTP(w, r)
			return nil
		})
	}
	return routes
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if r.Body != nil && r.Body != http.NoBody {
		// Set it also for a body that no handler reads, since the server reads it then.
		// A ResponseWriter without deadlines leaves those of the server.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	if r.Method == http.MethodConnect || path.Clean(r.URL.EscapedPath()) != r.URL.EscapedPath() {
		a.nowhere(w, r) // the mux would answer with a page or a redirect
		return
	}
	a.mux.ServeHTTP(w, r)
}

func (a *API) nowhere(w http.ResponseWriter, _ *http.Request) {
	a.refuse(w, &Problem{Status: http.StatusNotFound, Title: "No such path", Detail: "the paths are described at /v1/openapi.json"})
}

// secure sets the headers that keep a browser from sniffing, caching, running or framing an
// answer.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
}

// serve picks the operation of a path by method.
func (a *API) serve(methods map[string]operation) http.Handler {
	names := slices.Collect(maps.Keys(methods))
	if _, ok := methods[http.MethodGet]; ok {
		names = append(names, http.MethodHead)
	}
	names = append(names, http.MethodOptions)
	slices.Sort(names)
	allow := strings.Join(names, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		op, ok := methods[method]
		switch {
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", allow)
			w.WriteHeader(http.StatusNoContent)
			return
		case !ok:
			w.Header().Set("Allow", allow)
			a.refuse(w, &Problem{Status: http.StatusMethodNotAllowed, Title: "Method not allowed", Detail: "this path takes " + allow})
			return
		}
		if err := a.admit(op, w, r); err != nil {
			a.refuse(w, a.problem(r, err))
		}
	})
}

// admit runs an operation if the caller is allowed to use it.
func (a *API) admit(op operation, w http.ResponseWriter, r *http.Request) error {
	// Refuse requests from web pages of other origins, except trusted ones.
	if err := a.guard.Check(r); err != nil && (a.o.OtherOrigins == nil || !a.o.OtherOrigins(r, op.by.role())) {
		return &Problem{Status: http.StatusForbidden, Title: "Another site's page", Detail: "a browser sent this from a page of another origin"}
	}
	var c Caller
	if op.by != public {
		var err error
		if c, err = a.o.Authorize(r, op.by.role()); err != nil {
			return a.unauthorized(w, err, op.by)
		}
		if !op.by.allows(c) {
			return notAllowed(op.by)
		}
	}
	return op.do(w, r, c)
}

//go:embed openapi.json
var description []byte

// document returns the OpenAPI document, after a check that it is JSON.
func document() ([]byte, error) {
	if !json.Valid(description) {
		return nil, fmt.Errorf("api: openapi.json is not JSON")
	}
	return description, nil
}

// Health is the answer to /healthz and /readyz on success.
type Health struct {
	// Status is "ok".
	Status string `json:"status"`
}

// send answers with JSON, and ignores a failed write.
func (a *API) send(w http.ResponseWriter, v any) error {
	_ = a.respond(w, v)
	return nil
}

// respond writes a value as JSON. An error means that the client did not get it.
func (a *API) respond(w http.ResponseWriter, v any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		a.log.LogAttrs(context.Background(), slog.LevelError, "answer cannot be written as JSON", slog.Any("error", err))
		a.refuse(w, &Problem{Status: http.StatusInternalServerError, Title: "Internal error", Detail: "the daemon's log says what failed"})
		return err
	}
	return write(w, body.Bytes())
}

// write writes a complete JSON body.
func write(w http.ResponseWriter, body []byte) error {
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	control := http.NewResponseController(w)
	// The deadline ends a write to a client that does not read.
	_ = control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := w.Write(body); err != nil {
		return err
	}
	if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (a *API) healthy(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	return a.send(w, Health{Status: "ok"})
}

// ready answers whether the daemon is ready. The reason may name files, so only the log has it.
func (a *API) ready(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if a.o.Ready == nil {
		return a.send(w, Health{Status: "ok"})
	}
	err := a.o.Ready()
	if err == nil {
		return a.send(w, Health{Status: "ok"})
	}
	a.log.LogAttrs(r.Context(), slog.LevelDebug, "not ready", slog.Any("error", err))
	why := reason.Internal
	if refusal, ok := errors.AsType[*reason.Refusal](err); ok {
		why = refusal.Reason
	}
	return &Problem{
		Status: http.StatusServiceUnavailable, Title: "Not ready", Reason: why.String(), RetryInMS: 1000,
		Detail: "no requests are served now; the daemon's log says why",
	}
}

func (a *API) describe(w http.ResponseWriter, _ *http.Request, _ Caller) error {
	_ = write(w, a.openapi) // ignore a failed write
	return nil
}
