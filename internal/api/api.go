// Package api is the daemon's own HTTP interface: quotas to ask for and to
// settle, the rates, runs, gaps and events to look at, health and metrics. The
// command line, the console and programs in any language use this one. It
// answers with the same JSON as "headway ... --json", and with problem+json (RFC
// 9457) when something is wrong; its OpenAPI document is served by itself and
// checked against it.
//
//	POST  /v1/quota/approve      ask for a call; wait_ms to wait for it
//	POST  /v1/quota/usage        settle it with what it used, or cancel it
//	GET   /v1/quota/snapshot     what is left
//	GET   /v1/quota/forecast     when it runs out
//	GET   /v1/quota/statistics   totals (admin)
//	GET   /v1/quota/config       limits (admin)
//	PATCH /v1/quota/config       change them (admin)
//	GET   /v1/events             what happens, as server-sent events
//	GET   /v1/rate, /v1/samples, /v1/calls, /v1/usage, /v1/connections, /v1/schedule, /v1/fleet, /v1/runs[/{id}], /v1/gaps[/{id}]  (admin)
//	GET   /v1, /v1/openapi.json, /healthz, /readyz, /metrics (admin)
//
// It holds no limits, no keys and no store itself: [Options] hands it all three.
// It is not the proxy (package egress): no provider is called from here.
//
// An [API] is safe for concurrent use. Requests are bounded in size and time, a
// stream of events in what it may hold and how slow it may be read. It makes no
// goroutine of its own; closing the hub of events ends the streams.
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
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/fleet"
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
	// MaxBody is the largest request body, in bytes.
	MaxBody = 1 << 20
	// MaxPage is the most entries that one answer lists.
	MaxPage = 1000
	// DefaultStreams is how many streams of events are open at once.
	DefaultStreams = 256
	// DefaultPermits is how many permits are known at once; see Options.
	DefaultPermits = 100_000
	// DefaultQuota is the name of the quota that belongs to no provider.
	DefaultQuota = "default"

	// bodyTime is how long a request body may take to arrive, writeTime how long
	// a client may take to read an answer or an event.
	bodyTime  = 15 * time.Second
	writeTime = 15 * time.Second
	// heartbeat is the time between two signs of life on a silent stream.
	heartbeat = 15 * time.Second
)

// Quota is what hands out approvals: a *governor.Governor is one.
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

// Caller is who asks, as far as it limits what may be asked for.
type Caller struct {
	// ID names the key in the log; never the key itself. A permit is settled only
	// by the caller with the same ID, or by an admin.
	ID string
	// Admin may do everything; the rest is then not looked at.
	Admin bool
	// Tenant and Agent, when set, are whom all its calls are for: a request that
	// names another is refused, and events and forecasts of others are not shown.
	Tenant, Agent string
	// Priority is that of a request that names none, PriorityMax the greatest
	// that it may name.
	Priority, PriorityMax int
	// May says whether it may use the model at the provider; the model "" asks
	// about the provider alone. Nil is all. It may be called at any time.
	May func(provider, model string) bool
}

// Anybody is an Options.Authorize for a daemon without keys, on loopback: every
// caller is an admin.
func Anybody(*http.Request, bool) (Caller, error) { return Caller{ID: "local", Admin: true}, nil }

// Options are what an API is made of. Functions are called for each request, by
// several goroutines at once, so that what they give may change at a reload.
type Options struct {
	// Authorize says who asks; admin says that only an admin may. Its error is a
	// *reason.Refusal: Unauthorized is answered with 401, Forbidden with 403,
	// RateLimited with 429 and its RetryAt; any other error is a 401. The error's
	// text is not shown. Required; see [Anybody].
	Authorize func(r *http.Request, admin bool) (Caller, error)
	// OtherOrigins says whether a page of another origin may have sent a request that
	// changes something; admin says that only an admin may. Its sender is
	// authorized as well. Default: no page may.
	OtherOrigins func(r *http.Request, admin bool) bool
	// Quotas are the quotas by the name of their provider; [DefaultQuota] is the
	// one that requests without a provider are for. Without that one, they are
	// for the only quota there is. Default: none.
	Quotas func() map[string]Quota
	// Rates are the live rates of connections in this process: those through
	// which providers are proxied, and those being collected. Default: none.
	Rates func() []Live
	// Samples is what a connection did in the hour or day up to an instant; false when
	// nobody looked. Default: what the traces of its runs tell.
	Samples func(connection string, span samples.Span, now time.Time) (samples.Series, bool)
	// Calls are the latest proxied calls. Default: none.
	Calls *calls.Recent
	// Usage are the totals of proxied calls. Default: nothing was counted.
	Usage *calls.Ledger
	// Schedule is where each connection stands that this process collects by
	// itself. Default: there is none.
	Schedule func() []schedule.Status
	// Fleet returns the credentials that processes share through this one, with their
	// members. Default: none are shared.
	Fleet func() []fleet.Credential
	// Reader reads what was collected. Default: nothing was.
	Reader collect.Reader
	// Events is what happens. The daemon adds to it and closes it. Default: one
	// of the API's own, to which nobody adds.
	Events *events.Hub
	// Ready is nil when requests can be served. Default: always.
	Ready func() error
	// Keys issues and revokes keys while the daemon runs. Default: there are no such
	// paths.
	Keys Keyring
	// Metrics serves /metrics. Default: there is no such path.
	Metrics http.Handler
	// Version is the program's.
	Version string
	// Streams bounds the open streams of events, 1 to 100,000: a caller who is no
	// admin has a quarter of them at most, and all such callers together leave the
	// admins an eighth. Default [DefaultStreams].
	Streams int
	// Permits bounds the permits that are known at once, 1 to 10,000,000; when
	// that many are open, nothing more is approved until one ends. Default
	// [DefaultPermits].
	Permits int
	// Log gets a line for each change of configuration and each fault of ours.
	// Default: none.
	Log *slog.Logger
}

// API is an http.Handler. Make one with [New].
type API struct {
	o       Options
	log     *slog.Logger
	mux     *http.ServeMux
	permits *ledger
	streams seats
	ended   traces
	guard   *http.CrossOriginProtection
	openapi []byte
}

// who says which callers an operation is for.
type who uint8

const (
	public who = iota
	data
	admin
)

// operation is what one method of a path does. Its error is answered as a
// problem; nothing was written then.
type operation struct {
	by who
	do func(w http.ResponseWriter, r *http.Request, c Caller) error
}

// New makes an API. The error names the option, its value and its bound.
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

// routes are all paths with their methods; HEAD and OPTIONS follow from them.
func (a *API) routes() map[string]map[string]operation {
	get := func(by who, do func(http.ResponseWriter, *http.Request, Caller) error) map[string]operation {
		return map[string]operation{http.MethodGet: {by, do}}
	}
	routes := map[string]map[string]operation{
		"/v1":                  get(data, a.index),
		"/v1/openapi.json":     get(public, a.describe),
		"/v1/quota/approve":    {http.MethodPost: {data, a.approve}},
		"/v1/quota/usage":      {http.MethodPost: {data, a.usage}},
		"/v1/quota/snapshot":   get(data, a.snapshot),
		"/v1/quota/forecast":   get(data, a.forecast),
		"/v1/quota/statistics": get(admin, a.statistics),
		"/v1/quota/config":     {http.MethodGet: {admin, a.config}, http.MethodPatch: {admin, a.patch}},
		"/v1/rate":             get(admin, a.rate),
		"/v1/samples":          get(admin, a.samples),
		"/v1/calls":            get(admin, a.calls),
		"/v1/usage":            get(admin, a.used),
		"/v1/connections":      get(admin, a.connections),
		"/v1/schedule":         get(admin, a.schedule),
		"/v1/fleet":            get(admin, a.fleet),
		"/v1/runs":             get(admin, a.runs),
		"/v1/runs/{id}":        get(admin, a.run),
		"/v1/gaps":             get(admin, a.gaps),
		"/v1/gaps/{id}":        get(admin, a.gap),
		"/v1/events":           get(data, a.stream),
		"/healthz":             get(public, a.healthy),
		"/readyz":              get(public, a.ready),
	}
	if a.o.Keys != nil {
		routes["/v1/keys"] = map[string]operation{http.MethodGet: {admin, a.keys}, http.MethodPost: {admin, a.issue}}
		routes["/v1/keys/{id}"] = map[string]operation{http.MethodDelete: {admin, a.revoke}}
	}
	if a.o.Metrics != nil {
		routes["/metrics"] = get(admin, func(w http.ResponseWriter, r *http.Request, _ Caller) error {
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
		// Also for a body that nobody reads: the server does, before it goes on.
		// Not every ResponseWriter has deadlines; the server's own hold then.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	if r.Method == http.MethodConnect || path.Clean(r.URL.EscapedPath()) != r.URL.EscapedPath() {
		a.nowhere(w, r) // the mux would send a page, or elsewhere
		return
	}
	a.mux.ServeHTTP(w, r)
}

func (a *API) nowhere(w http.ResponseWriter, _ *http.Request) {
	a.refuse(w, &Problem{Status: http.StatusNotFound, Title: "No such path", Detail: "the paths are described at /v1/openapi.json"})
}

// secure says that what we answer is data: not to be guessed at, kept, run or
// framed by a browser.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
}

// serve picks the operation of a path by the method.
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

// admit does an operation for those who may.
func (a *API) admit(op operation, w http.ResponseWriter, r *http.Request) error {
	// A page of another site must not use the reader's place on our network, but for
	// those that the owner trusts.
	if err := a.guard.Check(r); err != nil && (a.o.OtherOrigins == nil || !a.o.OtherOrigins(r, op.by == admin)) {
		return &Problem{Status: http.StatusForbidden, Title: "Another site's page", Detail: "a browser sent this from a page of another origin"}
	}
	var c Caller
	if op.by != public {
		var err error
		if c, err = a.o.Authorize(r, op.by == admin); err != nil {
			return a.unauthorized(w, err, op.by)
		}
		if op.by == admin && !c.Admin {
			return &Problem{Status: http.StatusForbidden, Title: "Not allowed", Detail: "this takes an admin key", Reason: reasonForbidden}
		}
	}
	return op.do(w, r, c)
}

//go:embed openapi.json
var description []byte

// document is the OpenAPI document, checked to be JSON.
func document() ([]byte, error) {
	if !json.Valid(description) {
		return nil, fmt.Errorf("api: openapi.json is not JSON")
	}
	return description, nil
}

// Health is the answer to /healthz and /readyz when all is well.
type Health struct {
	// Status is "ok".
	Status string `json:"status"`
}

// send answers with JSON. A failed write cannot be reported.
func (a *API) send(w http.ResponseWriter, v any) error {
	_ = a.respond(w, v)
	return nil
}

// respond writes a value as JSON; the error says that the client did not get it.
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

// write sends a whole JSON body to the end.
func write(w http.ResponseWriter, body []byte) error {
	w.Header().Set("Content-Type", typeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	control := http.NewResponseController(w)
	// Without a deadline of its own a client that does not read would hold us.
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

// ready tells everybody whether, and only the log why not: it may name files.
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
	_ = write(w, a.openapi) // a failed write cannot be reported
	return nil
}
