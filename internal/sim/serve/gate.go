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

// API is what a provider serves in a language of its own: its handlers decide
// who may come in, what a request weighs and how a refusal is said.
type API interface {
	// Mount adds the handlers, which must take what costs something through the
	// gate. Patterns must not begin with /-/, and are the path kinds in [Stats].
	Mount(mux *http.ServeMux, gate *Gate)
}

// Gate is where the requests of an [API] meet the server's limits. It is safe
// for concurrent use.
type Gate struct{ server *Server }

// Call is what the gate has to know of a request.
type Call struct {
	// Key is who calls, as [KeyID] has it: it goes into log and stats.
	Key string
	// Model is what is called; may be empty.
	Model string
	// Scope is whose limits it meets: calls of one scope have all limits of the
	// scenario to themselves, concurrency as the model has it: a call is under way
	// as long as it is busy, also when its client has gone. Empty, the default, is the
	// limits that all share. Beyond 1,000 scopes, further ones share one.
	Scope string
	// Cost is what it weighs on limits that count cost, above 0.
	Cost float64
	// Busy is how long the provider works on it beyond the latency; at least 0.
	Busy time.Duration
}

// Usage is what calls used in the end, in tokens.
type Usage struct {
	Input int64 `json:"input_tokens"`
	// Cached is the part of Input that was read from a cache.
	Cached int64 `json:"cached_tokens"`
	Output int64 `json:"output_tokens"`
}

// KeyCounts is what one key did.
type KeyCounts struct {
	provider.Counts
	// Charged is the cost of what was admitted, as weighed on admission.
	Charged float64 `json:"charged"`
	Usage
}

// ScopeCounts is what became of one scope's calls.
type ScopeCounts struct {
	provider.Counts
	// ByLimit counts refusals by what refused.
	ByLimit map[string]int64 `json:"by_limit,omitempty"`
}

// KeyID stands for a credential in log and stats: the first 12 hexadecimal
// digits of its SHA-256.
func KeyID(credential string) string {
	sum := sha256.Sum256([]byte(credential))
	return hex.EncodeToString(sum[:6])
}

// Knows says whether a credential may come in: any that is not empty or, when
// the server has a token, only that. Those it does not know are counted.
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

// Visit is one request that met the limits. Its verdict says whether it was
// admitted. Its writer logs the decision before the answer goes out. One
// goroutine at a time.
type Visit struct {
	provider.Verdict
	http.ResponseWriter
	// At is when it met the limits, on the wall clock.
	At time.Time
	// Quotas is what was left then, after this request.
	Quotas []Quota

	out   *logged
	gate  *Gate
	key   string
	holds bool // a place
}

// Quota is what one limit has left, with the wall time of its reset.
type Quota struct {
	provider.Quota
	// ResetAt is when it is whole again if nothing is used.
	ResetAt time.Time
}

// Enter takes a request through the uplink, the limits and the latency; the
// caller answers it and then calls [Visit.Leave]. The answer is false when there
// is nobody to answer, because the client has gone away or the connection was
// reset.
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

// Pause lets d pass; false when the client has gone away.
func (v *Visit) Pause(ctx context.Context, d time.Duration) bool { return wait(ctx, d) }

// Unwrap lets http.ResponseController flush and set deadlines.
func (v *Visit) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// Use counts what an admitted request used, beyond what was counted before. Count
// before the answer goes out: then a client that has it finds it in the stats.
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

// Wrote has the log tell how many rows the request wrote; before the answer.
func (v *Visit) Wrote(rows int) { v.out.entry.Written = rows }

// Cut resets the connection instead of an answer, and logs status 0.
func (v *Visit) Cut() {
	v.Free()
	v.out.cut()
	reset(v.out.ResponseWriter)
}

// Free gives back the place that an admitted request holds, before its last
// bytes go out: else the client could be back before it is free.
func (v *Visit) Free() {
	if v.holds {
		v.holds = false
		v.gate.server.leave()
	}
}

// Leave ends the visit: it frees the place, and logs an admitted one that nothing
// was answered to as 499, since its client went away. More calls do nothing.
func (v *Visit) Leave() {
	v.Free()
	if v.Admitted {
		v.out.status(statusClientGone)
	} else {
		v.out.status(v.Status)
	}
}

// place is a limit of concurrency that the server keeps itself.
type place struct {
	name   string
	count  int
	status int // of a refusal
}

// apart takes the limits of concurrency out of a scenario. The model frees a
// place after the busy time that it was given; only the server knows when a
// stream ended, or was left.
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

// crowded is the refusal by a limit of concurrency that has no place left; ok is
// false when all have. The lock is held.
func (s *Server) crowded() (v provider.Verdict, ok bool) {
	for _, p := range s.places {
		if s.stats.InFlight >= max(1, int64(math.Round(float64(p.count)*s.model.Factor()))) {
			return provider.Verdict{Throttled: true, Status: p.status, Slow: 1, Limit: p.name, Index: -1}, true
		}
	}
	return v, false
}

// limits is the model that a scope meets. The lock is held.
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

// tally counts a verdict on a scope's call. The lock is held.
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

// scope is what a scope is counted as. The lock is held.
func (s *Server) scope(name string) string {
	if _, known := s.scopes[name]; !known && len(s.scopes) >= maxKeys {
		return "others"
	}
	return name
}

// maxKeys bounds how many keys, and scopes, are counted apart.
const maxKeys = 1000

// account is where a key is counted. The lock is held.
func (s *Server) account(key string) string {
	if _, known := s.stats.ByKey[key]; !known && len(s.stats.ByKey) >= maxKeys {
		return "others"
	}
	return key
}

// Entry is one line of the log: one request that reached the limiter. Requests
// without a valid token and those to /-/ are not in it.
type Entry struct {
	// T is when it reached the limiter, in milliseconds since the start.
	T float64 `json:"t_ms"`
	// At is the same on the wall clock.
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	// Path has no query; Cursor and UpdatedAfter are the only parts of the
	// query that are kept. All three are cut at a kilobyte.
	Path         string `json:"path"`
	Cursor       string `json:"cursor,omitempty"`
	UpdatedAfter string `json:"updated_after,omitempty"`
	// Key, Model, Scope and Cost are of requests that came through the [Gate]; Key
	// is a [KeyID].
	Key   string  `json:"key,omitempty"`
	Model string  `json:"model,omitempty"`
	Scope string  `json:"scope,omitempty"`
	Cost  float64 `json:"cost,omitempty"`
	// Written is how many rows it wrote, whatever was answered.
	Written int `json:"written,omitempty"`
	// Status is what was answered: 0 when the connection was reset, 499 when
	// the client had gone away before an admitted request was answered.
	Status int `json:"status"`
	// Admitted says that it used up the limits, whatever its status.
	Admitted bool `json:"admitted"`
	// Limit names what refused it: a limit, "penalty", "outage", "reset" or
	// "suspended"; empty when admitted.
	Limit string `json:"limit,omitempty"`
	// RetryAfterMS is the advertised wait; absent without one.
	RetryAfterMS *float64 `json:"retry_after_ms,omitempty"`
}

// maxLine bounds a line that is read back, in bytes.
const maxLine = 64 << 10

// ReadLog reads a log back, in its order, which is the order of answers. It
// stops after the first error; an unfinished last line, as a killed server may
// leave, is one that matches io.ErrUnexpectedEOF.
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

// journal writes entries, each with one Write, so that a killed process leaves
// whole lines and a client that has an answer finds its line.
type journal struct {
	mu  sync.Mutex
	to  io.Writer
	err error // the first failure to write
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

// failure is the first failure to write the log; nil when there was none.
func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}
