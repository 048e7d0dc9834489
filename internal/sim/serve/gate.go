package serve

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// API is a provider with its own protocol: its handlers decide who may call, what a request
// costs and how a refusal looks.
type API interface {
	// Mount adds the handlers, which must take requests that cost something through the
	// gate. Patterns must not begin with /-/; they are the path kinds in [Stats].
	Mount(mux *http.ServeMux, gate *Gate)
}

// Gate applies the server's limits to the requests of an [API]. It is safe for concurrent
// use.
type Gate struct{ server *Server }

// Call describes a request to the gate.
type Call struct {
	// Key identifies the caller by [KeyID], in log and stats.
	Key string
	// Model is the called model; may be empty.
	Model string
	// Scope selects the limits: each scope has all limits of the scenario for itself.
	// Concurrency is counted by the model: a call is in flight while it is busy, even if
	// its client has disconnected. Empty, the default, means the shared limits. Beyond
	// 1,000 scopes, further ones share one.
	Scope string
	// Cost is the call's cost on cost limits, above 0.
	Cost float64
	// Busy is how long the provider works on it beyond the latency; at least 0.
	Busy time.Duration
}

// Usage is the tokens that calls used.
type Usage struct {
	Input int64 `json:"input_tokens"`
	// Cached is the part of Input that was read from a cache.
	Cached int64 `json:"cached_tokens"`
	Output int64 `json:"output_tokens"`
}

// KeyCounts are the counts of one key.
type KeyCounts struct {
	provider.Counts
	// Charged is the cost of admitted calls, as charged on admission.
	Charged float64 `json:"charged"`
	Usage
}

// ScopeCounts are the counts of one scope.
type ScopeCounts struct {
	provider.Counts
	// ByLimit counts refusals by the limit that refused.
	ByLimit map[string]int64 `json:"by_limit,omitempty"`
}

// KeyID identifies a credential in log and stats: the first 12 hexadecimal digits of its
// SHA-256.
func KeyID(credential string) string {
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:6])
}

// Knows reports whether a credential is accepted: any that is not empty or, if the server
// has a token, only that. It counts credentials that are not.
func (g *Gate) Knows(credential string) bool {
	got := sha256.Sum256([]byte("Bearer " + credential))
	s := g.server
	if credential != "" && (!s.auth || subtle.ConstantTimeCompare(got[:], s.token[:]) == 1) {
		return true
	}
	s.mu.Lock()
	s.stats.Unauthorized++
	s.mu.Unlock()
	return false
}

// Visit is one request that met the limits. Its verdict reports whether it was admitted.
// Its writer logs the decision before the response is sent. It is not safe for concurrent
// use.
type Visit struct {
	provider.Verdict
	http.ResponseWriter
	// At is when it met the limits, on the wall clock.
	At time.Time
	// Quotas is the rest of the limits after this request.
	Quotas []Quota

	out   *logged
	gate  *Gate
	key   string
	holds bool // it occupies a slot
}

// Quota is the rest of one limit, with the wall time of its reset.
type Quota struct {
	provider.Quota
	// ResetAt is when it is completely free if nothing is used.
	ResetAt time.Time
}

// Enter takes a request through the uplink, the limits and the latency. Then the caller
// responds and calls [Visit.Leave]. Enter returns false if the client has disconnected or
// the connection was reset.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request, c Call) (*Visit, bool) {
	s := g.server
	s.mu.Lock()
	uplink, total := s.sampler.Latency()
	s.mu.Unlock()
	if !wait(r.Context(), uplink) {
		return nil, false
	}
	d := s.decide(r.Pattern, c, total-2*uplink+c.Busy)
	out := &logged{ResponseWriter: w, journal: &s.log, entry: s.entry(r, d)}
	out.entry.Key, out.entry.Model, out.entry.Scope, out.entry.Cost = c.Key, cut(c.Model), cut(c.Scope), c.Cost
	v := &Visit{Verdict: d.Verdict, ResponseWriter: out, At: s.start.Add(d.at), out: out, gate: g, key: c.Key, holds: d.Admitted}
	if d.Reset {
		s.log.add(out.entry)
		reset(w)
		return nil, false
	}
	for _, q := range d.quotas {
		v.Quotas = append(v.Quotas, Quota{Quota: q, ResetAt: s.start.Add(q.Reset)})
	}
	rest := uplink
	if d.Admitted {
		rest = provider.Slowed(total, d.Slow) - uplink
	}
	if !wait(r.Context(), rest) {
		v.Leave()
		return nil, false
	}
	return v, true
}

// Pause waits for d; it returns false if the client has disconnected.
func (v *Visit) Pause(ctx context.Context, d time.Duration) bool { return wait(ctx, d) }

// Unwrap lets http.ResponseController flush and set deadlines.
func (v *Visit) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// Use counts the usage of an admitted request, in addition to earlier calls. Call it before
// the response is sent, so that the client finds it in the stats.
func (v *Visit) Use(u Usage) {
	s := v.gate.server
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.account(v.key)
	k := s.stats.ByKey[key]
	k.Input += u.Input
	k.Cached += u.Cached
	k.Output += u.Output
	s.stats.ByKey[key] = k
}

// Wrote records the number of rows that the request wrote, for the log. Call it before the
// response.
func (v *Visit) Wrote(rows int) { v.out.entry.Written = rows }

// Cut resets the connection instead of responding, and logs status 0.
func (v *Visit) Cut() {
	v.Free()
	v.out.cut()
	reset(v.out.ResponseWriter)
}

// Free frees the slot of an admitted request. Call it before the last bytes are sent;
// otherwise the client might send its next request before the slot is free.
func (v *Visit) Free() {
	if v.holds {
		v.holds = false
		v.gate.server.leave()
	}
}

// Leave ends the visit: it frees the slot, and logs an admitted request without a response
// as 499, since its client has disconnected. Further calls have no effect.
func (v *Visit) Leave() {
	v.Free()
	if v.Admitted {
		v.out.status(statusClientGone)
	} else {
		v.out.status(v.Status)
	}
}

// place is a concurrency limit that the server enforces itself.
type place struct {
	name   string
	count  int
	status int // of a refusal
}

// apart removes the concurrency limits from a scenario. The model would free a slot after
// the given busy time; only the server knows when a stream has ended.
func apart(s *scenario.Scenario) (*scenario.Scenario, []place) {
	rest, places := *s, []place(nil)
	rest.Provider.Limits = nil
	for _, l := range s.Provider.Limits {
		if l.Kind == scenario.Concurrency {
			places = append(places, place{l.String(), l.Count, s.Provider.Throttle.Status})
			continue
		}
		rest.Provider.Limits = append(rest.Provider.Limits, l)
	}
	return &rest, places
}

// crowded returns the refusal by a concurrency limit without a free slot; ok is false if
// all have one. s.mu must be held.
func (s *Server) crowded() (v provider.Verdict, ok bool) {
	for _, p := range s.places {
		if s.stats.InFlight >= max(1, int64(math.Round(float64(p.count)*s.model.Factor()))) {
			return provider.Verdict{Throttled: true, Status: p.status, Slow: 1, Limit: p.name, Index: -1}, true
		}
	}
	return v, false
}

// limits returns the model of a scope. s.mu must be held.
func (s *Server) limits(scope string) *provider.Model {
	if scope == "" {
		return s.model
	}
	scope = s.scope(scope)
	m := s.scopes[scope]
	if m == nil {
		m = s.pristine.Clone()
		s.scopes[scope] = m
	}
	return m
}

// tally counts a verdict on a scope's call. s.mu must be held.
func (s *Server) tally(scope string, v provider.Verdict) {
	if scope == "" {
		return
	}
	scope = s.scope(scope)
	c := s.stats.ByScope[scope]
	c.Add(v)
	if !v.Admitted {
		if c.ByLimit == nil {
			c.ByLimit = make(map[string]int64)
		}
		c.ByLimit[refusedBy(v)]++
	}
	s.stats.ByScope[scope] = c
}

// scope returns the name under which a scope is counted. s.mu must be held.
func (s *Server) scope(name string) string {
	if _, known := s.scopes[name]; !known && len(s.scopes) >= maxKeys {
		return "others"
	}
	return name
}

// maxKeys bounds the number of keys, and of scopes, that are counted separately.
const maxKeys = 1000

// account returns the name under which a key is counted. s.mu must be held.
func (s *Server) account(key string) string {
	if _, known := s.stats.ByKey[key]; !known && len(s.stats.ByKey) >= maxKeys {
		return "others"
	}
	return key
}

// Entry is a line of the log: a request that reached the limiter. Requests without a valid
// token and those to /-/ are not logged.
type Entry struct {
	// T is when it reached the limiter, in milliseconds since the start.
	T float64 `json:"t_ms"`
	// At is the same on the wall clock.
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	// Path has no query; Cursor and UpdatedAfter are the only parts of the query that are
	// logged. All three are cut at a kilobyte.
	Path         string `json:"path"`
	Cursor       string `json:"cursor,omitempty"`
	UpdatedAfter string `json:"updated_after,omitempty"`
	// Key, Model, Scope and Cost are set for requests through the [Gate]; Key is a [KeyID].
	Key   string  `json:"key,omitempty"`
	Model string  `json:"model,omitempty"`
	Scope string  `json:"scope,omitempty"`
	Cost  float64 `json:"cost,omitempty"`
	// Written is the number of rows that it wrote, whatever the response.
	Written int `json:"written,omitempty"`
	// Status is the status of the response: 0 if the connection was reset, 499 if the
	// client disconnected before the response to an admitted request.
	Status int `json:"status"`
	// Admitted reports that it counted against the limits, whatever its status.
	Admitted bool `json:"admitted"`
	// Limit names what refused it: a limit, "penalty", "outage", "reset" or "suspended";
	// empty if admitted.
	Limit string `json:"limit,omitempty"`
	// RetryAfterMS is the advertised wait; absent without one.
	RetryAfterMS *float64 `json:"retry_after_ms,omitempty"`
}

// maxLine bounds the length of a line when the log is read, in bytes.
const maxLine = 64 << 10

// ReadLog reads a log in its order, which is the order of responses. It stops after the
// first error. An incomplete last line, as a killed server may leave, is an error that
// matches io.ErrUnexpectedEOF.
func ReadLog(r io.Reader) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		in := bufio.NewReaderSize(r, maxLine)
		for number := 1; ; number++ {
			line, err := in.ReadSlice('\n')
			switch {
			case errors.Is(err, io.EOF) && len(line) == 0:
				return
			case errors.Is(err, io.EOF):
				err = io.ErrUnexpectedEOF
			case errors.Is(err, bufio.ErrBufferFull):
				err = fmt.Errorf("longer than %d bytes", maxLine)
			}
			var e Entry
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil {
				yield(Entry{}, fmt.Errorf("serve: log line %d: %w", number, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// journal writes each entry with one Write, so that a killed process leaves whole lines,
// and a client that has a response finds its line.
type journal struct {
	mu  sync.Mutex
	to  io.Writer
	err error // the first write error
}

func (j *journal) add(e Entry) {
	if j.to == nil {
		return
	}
	line, err := json.Marshal(e)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		_, err = j.to.Write(append(line, '\n'))
	}
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("serve: log: %w", err)
	}
}

// failure returns the first write error; nil if there was none.
func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}
