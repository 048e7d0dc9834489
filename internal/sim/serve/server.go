// Package serve is a simulated provider in real time over real HTTP, with data: the
// upstream of quick starts and end-to-end tests. Its limits and refusals are those of the
// simulator's [provider.Model].
//
// A [Server] is an http.Handler:
//
//	GET /conversations?limit=&cursor=&updated_after=   a page, oldest change first
//	GET /conversations/{id}                            one, with its messages
//	GET /-/healthz                                     204; never limited
//	GET /-/stats                                       counts as JSON; never limited
//
// A request's bearer token is checked first. Then the request takes the scenario's uplink,
// meets the limits and faults, and gets its response after the scenario's latency. Unknown
// paths are limited like any other. A request whose client disconnects during the uplink
// does not count against limits; later it does.
//
// The data are computed from the seed and an index and never stored, so 100,000
// conversations take no memory. A restart with the same seed serves the same data. With
// more conversations, the new ones have changed later than all old ones; with Updated, the
// oldest have changed again, after the newest, and have one more message. So a second start
// shows what an incremental collection finds. Cursors stay valid between such starts. (With
// more conversations and Updated together, conversations that were updated before have
// changed once more, without another message.)
//
// Every decision is a JSON line in the log ([Entry], [ReadLog]), written before the
// response is sent, so that a test can compare a client's view with the provider's.
//
// Another protocol (its keys, the cost of requests, the form of refusals) is mounted as an
// [API], such as package llm's. With an API mounted, concurrency limits count requests that
// are really in flight, and are checked before the others; they then count neither for
// penalties nor for suspension. An API may give each of its callers the whole limits
// ([Call].Scope), and report its state ([Reporter]). Do not expose a server to other
// networks: it is a test double, without TLS or bounds on clients.
//
// A Server is safe for concurrent use. Time is real: instants are the monotonic time since
// [New], windows follow the wall clock, and the server continues after the scenario's
// horizon. In a testing/synctest bubble all time is virtual.
package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// Options configure a server in addition to its scenario. The zero value has 1,000
// conversations, no token and no log.
type Options struct {
	// Seed determines the data, latencies and strangers.
	Seed uint64
	// Conversations is the number of conversations: 1 to 100,000, default 1,000.
	Conversations int
	// Messages is their mean number in a conversation: 1 to 1,000, default 8.
	Messages int
	// Updated is the number of the oldest conversations that have changed since: 0, the
	// default, to Conversations.
	Updated int
	// Token is the bearer token that requests for data must have; empty requires none.
	Token string
	// Log receives a JSON line for each decision, each with one Write, and never two at a
	// time; nil writes none.
	Log io.Writer
	// APIs are mounted in addition to the conversations, and have precedence for equal
	// paths.
	APIs []API
}

// statusClientGone is logged if the client disconnected before a response.
const statusClientGone = 499

// Server is a simulated provider. Make one with [New].
type Server struct {
	data  *http.ServeMux
	apis  *http.ServeMux
	token [sha256.Size]byte // of the whole header value
	auth  bool
	start time.Time
	log   journal
	// places are the concurrency limits that the server enforces instead of the model.
	places []place

	mu      sync.Mutex // guards everything below
	model   *provider.Model
	sampler *provider.Sampler
	stats   Stats
	// scopes are the limits by [Call.Scope], copies of the original ones.
	scopes   map[string]*provider.Model
	pristine *provider.Model

	reporters []Reporter
}

// Reporter is an API that reports its state.
type Reporter interface {
	API
	// Report returns the API's name, and its state for JSON, in [Stats] and at /-/NAME.
	Report() (name string, did any)
}

// Stats has the server's counts so far.
type Stats struct {
	provider.Counts
	// Unauthorized counts requests without the token; they met no limit.
	Unauthorized int64 `json:"unauthorized"`
	// InFlight is the number of admitted requests in flight.
	InFlight int64 `json:"in_flight"`
	// Suspended reports that the account is suspended.
	Suspended bool `json:"suspended"`
	// ByLimit counts refusals by what refused them, as in [Entry.Limit].
	ByLimit map[string]int64 `json:"by_limit"`
	// ByPath counts by path kind, such as "GET /conversations/{id}"; unknown
	// paths are "other".
	ByPath map[string]provider.Counts `json:"by_path"`
	// ByKey counts requests through the [Gate], by [KeyID]; beyond 1,000 keys, further ones
	// count as "others".
	ByKey map[string]KeyCounts `json:"by_key,omitempty"`
	// ByScope counts by [Call.Scope]; beyond 1,000, further ones count as "others".
	ByScope map[string]ScopeCounts `json:"by_scope,omitempty"`
	// Reports are the states of the APIs.
	Reports map[string]any `json:"reports,omitempty"`
}

// New returns a server whose scenario starts now. Errors name the option, its value and its
// bounds.
func New(s *scenario.Scenario, opt Options) (*Server, error) {
	conversations, err := newConversations(opt)
	if err != nil {
		return nil, err
	}
	start, places := time.Now(), []place(nil)
	pristine, err := provider.NewAt(s, opt.Seed, start)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	if len(opt.APIs) > 0 {
		s, places = apart(s)
	}
	model, err := provider.NewAt(s, opt.Seed, start)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	srv := &Server{
		data:    http.NewServeMux(),
		apis:    http.NewServeMux(),
		token:   sha256.Sum256([]byte("Bearer " + opt.Token)),
		auth:    opt.Token != "",
		start:   start,
		log:     journal{to: opt.Log},
		places:  places,
		model:   model,
		sampler: provider.NewSampler(s, opt.Seed, 0),
		stats: Stats{
			ByLimit: make(map[string]int64), ByPath: make(map[string]provider.Counts), ByKey: make(map[string]KeyCounts),
			ByScope: make(map[string]ScopeCounts),
		},
		scopes: make(map[string]*provider.Model), pristine: pristine,
	}
	srv.data.HandleFunc("GET /conversations", conversations.list)
	srv.data.HandleFunc("GET /conversations/{id}", conversations.one)
	for _, a := range opt.APIs {
		a.Mount(srv.apis, &Gate{server: srv})
		if r, ok := a.(Reporter); ok {
			srv.reporters = append(srv.reporters, r)
		}
	}
	return srv, nil
}

// Close returns the first error of writing the log. Close an http.Server that uses this
// handler first.
func (s *Server) Close() error { return s.log.failure() }

// Stats returns a copy of the counts.
func (s *Server) Stats() Stats {
	reports := make(map[string]any)
	for _, r := range s.reporters {
		name, did := r.Report()
		reports[name] = did
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Reports, out.Suspended = reports, s.model.Suspended()
	out.ByLimit, out.ByPath, out.ByKey = maps.Clone(out.ByLimit), maps.Clone(out.ByPath), maps.Clone(out.ByKey)
	out.ByScope = maps.Clone(out.ByScope)
	for scope, c := range out.ByScope {
		c.ByLimit = maps.Clone(c.ByLimit)
		out.ByScope[scope] = c
	}
	return out
}

// ServeHTTP handles one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/-/healthz":
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == "/-/stats":
		writeJSON(w, http.StatusOK, "application/json", s.Stats())
	case strings.HasPrefix(r.URL.Path, "/-/"):
		s.report(w, strings.TrimPrefix(r.URL.Path, "/-/"))
	case s.spoken(r):
		s.apis.ServeHTTP(w, r)
	case !s.authorized(r):
		s.mu.Lock()
		s.stats.Unauthorized++
		s.mu.Unlock()
		w.Header().Set("WWW-Authenticate", "Bearer")
		problem(w, http.StatusUnauthorized, "a bearer token is required")
	default:
		s.limited(w, r)
	}
}

// report responds with the state of an API.
func (s *Server) report(w http.ResponseWriter, of string) {
	for _, r := range s.reporters {
		if name, did := r.Report(); name == of {
			writeJSON(w, http.StatusOK, "application/json", did)
			return
		}
	}
	problem(w, http.StatusNotFound, "no such path")
}

// spoken reports whether an API handles the request's path.
func (s *Server) spoken(r *http.Request) bool {
	_, pattern := s.apis.Handler(r)
	return pattern != ""
}

// authorized compares digests, so that timing reveals neither content nor length.
func (s *Server) authorized(r *http.Request) bool {
	if !s.auth {
		return true
	}
	got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	return subtle.ConstantTimeCompare(got[:], s.token[:]) == 1
}

// decision is the model's decision on one request.
type decision struct {
	provider.Verdict
	at     time.Duration
	fields []provider.Field
	quotas []provider.Quota // for APIs
}

// limited takes a request through uplink, limits and latency to its data.
func (s *Server) limited(w http.ResponseWriter, r *http.Request) {
	_, pattern := s.data.Handler(r)
	pattern = cmp.Or(pattern, "other")
	s.mu.Lock()
	uplink, total := s.sampler.Latency()
	cost := s.sampler.Cost()
	s.mu.Unlock()
	if !wait(r.Context(), uplink) {
		return
	}
	d := s.decide(pattern, Call{Cost: cost}, total-2*uplink)
	if d.Admitted {
		defer s.leave()
	}
	entry := s.entry(r, d)
	if d.Reset {
		s.log.add(entry)
		reset(w)
		return
	}
	rest := uplink
	if d.Admitted {
		rest = provider.Slowed(total, d.Slow) - uplink
	}
	if !wait(r.Context(), rest) {
		if d.Admitted {
			entry.Status = statusClientGone
		}
		s.log.add(entry)
		return
	}
	for _, f := range d.fields {
		w.Header().Set(f.Name, f.Value)
	}
	if !d.Admitted {
		s.log.add(entry)
		problem(w, d.Status, http.StatusText(d.Status))
		return
	}
	s.data.ServeHTTP(&logged{ResponseWriter: w, journal: &s.log, entry: entry}, r)
}

// decide lets a request arrive at the limits and counts the result.
func (s *Server) decide(pattern string, c Call, busy time.Duration) decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := decision{at: time.Since(s.start)}
	model := s.limits(c.Scope)
	model.Advance(d.at)
	if v, full := s.crowded(); full && c.Scope == "" {
		d.Verdict = v
	} else {
		d.Verdict = model.Arrive(d.at, 0, c.Cost, busy)
	}
	s.tally(c.Scope, d.Verdict)
	by := s.stats.ByPath[pattern]
	s.stats.Add(d.Verdict)
	by.Add(d.Verdict)
	s.stats.ByPath[pattern] = by
	if d.Admitted {
		s.stats.InFlight++
	} else {
		s.stats.ByLimit[refusedBy(d.Verdict)]++
	}
	if c.Key == "" {
		d.fields = model.Fields(d.Verdict, nil)
		return d
	}
	d.quotas = model.Quotas(d.at, nil)
	key := s.account(c.Key)
	k := s.stats.ByKey[key]
	k.Add(d.Verdict)
	if d.Admitted {
		k.Charged += c.Cost
	}
	s.stats.ByKey[key] = k
	return d
}

func (s *Server) leave() {
	s.mu.Lock()
	s.stats.InFlight--
	s.mu.Unlock()
}

// refusedBy names what refused a request, for the log.
func refusedBy(v provider.Verdict) string {
	switch {
	case v.Admitted:
		return ""
	case v.Reset:
		return string(scenario.Reset)
	case v.Suspended:
		return "suspended"
	case v.Throttled:
		return v.Limit
	case v.Overloaded:
		return string(scenario.Overload)
	default:
		return string(scenario.Outage)
	}
}

func (s *Server) entry(r *http.Request, d decision) Entry {
	query := r.URL.Query()
	e := Entry{
		T: float64(d.at.Microseconds()) / 1000, At: s.start.Add(d.at).UTC(),
		Method: r.Method, Path: cut(r.URL.Path),
		Cursor: cut(query.Get("cursor")), UpdatedAfter: cut(query.Get("updated_after")),
		Status: d.Status, Admitted: d.Admitted, Limit: refusedBy(d.Verdict),
	}
	if d.HasRetryAfter {
		e.RetryAfterMS = new(float64(d.RetryAfter) / float64(time.Millisecond))
	}
	return e
}

func cut(text string) string { return text[:min(len(text), 1024)] }

// logged writes the log's entry when the status is known, before the response.
type logged struct {
	http.ResponseWriter
	journal *journal
	entry   Entry
	written bool
}

func (l *logged) status(code int) {
	if l.written || code < 200 {
		return
	}
	l.written, l.entry.Status = true, code
	l.journal.add(l.entry)
}

// cut writes the entry of a response that is not sent.
func (l *logged) cut() {
	if !l.written {
		l.written, l.entry.Status = true, 0
		l.journal.add(l.entry)
	}
}

// WriteHeader writes the entry first.
func (l *logged) WriteHeader(code int) {
	l.status(code)
	l.ResponseWriter.WriteHeader(code)
}

// Write writes the entry first.
func (l *logged) Write(b []byte) (int, error) {
	l.status(http.StatusOK)
	return l.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush.
func (l *logged) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// wait waits for d; it returns false if the client has disconnected.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// reset closes the connection with a TCP reset. If the connection cannot be taken over, as
// with HTTP/2, it resets the stream instead.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	raw := conn
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		raw = wrapped.NetConn() // below TLS, so that no close_notify is sent either
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a failure leaves an orderly close, which also ends it
	}
	_ = raw.Close()
}

// problem responds with application/problem+json. The detail is sent to the client.
func problem(w http.ResponseWriter, status int, detail string) {
	writeJSON(w, status, "application/problem+json", struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{http.StatusText(status), status, detail})
}

func writeJSON(w http.ResponseWriter, status int, kind string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encoding failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}
