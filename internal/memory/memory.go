// Package memory is a [collect.Store] in memory, for tests and as the model with which
// package storetest compares other stores. A program that needs temporary state opens
// store/sqlite in a temporary folder.
//
// All methods are safe for concurrent use and atomic. Arguments and results are copied. A
// commit with Within is an error, since there is no database to share with a sink. Times
// come from the caller, except that the read side uses the clock to find out whether a
// lease has expired.
package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// Store is a [collect.Store] in memory. Make one with [New]; there is nothing
// to close.
type Store struct {
	mu          sync.RWMutex
	connections map[string]*connection
	runs        []*run // oldest first
	byID        map[string]*run
	gapID       int64 // the last one that was given out
}

var _ collect.Store = (*Store)(nil)

// New gives an empty store.
func New() *Store {
	return &Store{connections: map[string]*connection{}, byID: map[string]*run{}}
}

// connection is all that is known of one, and its lease.
type connection struct {
	name string

	token          int64
	held           *run // nil when nobody holds it
	since, expires time.Time

	state
	cooldown collect.Cooldown
}

// state is what Forget removes.
type state struct {
	lanes   map[laneKey]collect.Lane
	streams map[string]*stream
	gaps    map[collect.GapKey]*gap
	order   []*gap // the same, by id
	shapes  map[string]collect.StreamShape
	sink    json.RawMessage
	at      collect.Location // of sink
	former  map[collect.Location]json.RawMessage
	replays []collect.Replay
	pacing  *collect.Pacing
}

func newState() state {
	return state{
		lanes: map[laneKey]collect.Lane{}, streams: map[string]*stream{},
		gaps: map[collect.GapKey]*gap{}, shapes: map[string]collect.StreamShape{},
		former: map[collect.Location]json.RawMessage{},
	}
}

type laneKey struct {
	stream string
	kind   collect.LaneKind
}

// stream is the known items of one, and the keys of those that are owed.
type stream struct {
	items map[string]collect.KnownItem
	owed  map[string]struct{}
}

func (s *stream) put(it collect.KnownItem) {
	s.items[it.Key] = it
	if it.Owed {
		s.owed[it.Key] = struct{}{}
	} else {
		delete(s.owed, it.Key)
	}
}

// gap is a gap and its place in the order of serving.
type gap struct {
	collect.Gap

	tried time.Time // when it was last asked for; zero is never
	rank  time.Time // when it was first seen, or tried last
}

// run is a run's record and its trace. Events are kept as JSON, as other stores
// keep them.
type run struct {
	collect.Run

	of     *connection
	events [][]byte
}

// write runs f alone, once l was checked to be the current lease. f changes
// nothing when it returns an error.
func (s *Store) write(ctx context.Context, l collect.Lease, f func(*connection) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.connections[l.Connection]
	if c == nil || c.held == nil || c.token != l.Token || c.held.ID != l.Run {
		return &reason.Refusal{Reason: reason.LeaseLost, Scope: l.Connection}
	}
	return f(c)
}

// read runs f while nobody writes.
func (s *Store) read(ctx context.Context, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	f()
	return nil
}

// plain is an instant as a store gives it back: in UTC, without a monotonic part.
func plain(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}

// Acquire takes the connection for one run. See [collect.Store]. A lease that
// has expired is taken over: the run that held it becomes abandoned. A lease has
// expired when req.Now has reached its expiry.
func (s *Store) Acquire(ctx context.Context, req collect.LeaseRequest) (collect.Lease, error) {
	if req.Connection == "" || req.Run == "" || req.TTL <= 0 {
		return collect.Lease{}, fmt.Errorf("store: acquire: connection %q, run %q, time to live %s: "+
			"the names must not be empty and the time must be above 0", req.Connection, req.Run, req.TTL)
	}
	if err := ctx.Err(); err != nil {
		return collect.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.connections[req.Connection]
	if c != nil && c.held != nil && req.Now.Before(c.expires) {
		return collect.Lease{}, &collect.HeldError{
			Connection: c.name, Holder: c.held.Holder, Run: c.held.ID, Since: c.since, Expires: c.expires,
		}
	}
	if s.byID[req.Run] != nil {
		return collect.Lease{}, fmt.Errorf("store: acquire: run %q is on record already: give each run an id of its own", req.Run)
	}
	if c == nil {
		c = &connection{name: req.Connection, state: newState()}
		s.connections[c.name] = c
	}
	if c.held != nil {
		c.held.State, c.held.Reason, c.held.Ended = collect.RunAbandoned, reason.LeaseLost, c.expires
	}
	c.unlease()
	u := &run{of: c, Run: collect.Run{
		ID: req.Run, Connection: c.name, Holder: req.Holder, State: collect.RunRunning, Started: plain(req.Now), Kind: req.Kind,
	}}
	s.runs, s.byID[u.ID] = append(s.runs, u), u
	c.token++
	c.held, c.since, c.expires = u, plain(req.Now), plain(req.Now.Add(req.TTL))
	return collect.Lease{Connection: c.name, Run: u.ID, Token: c.token}, nil
}

// unlease puts back what a holder was served and did not finish.
func (c *connection) unlease() {
	for _, g := range c.order {
		if g.Status == collect.GapLeased {
			g.Status = collect.GapPending
		}
	}
}

// Renew extends the lease to now + ttl. See [collect.Store]. A lease that has
// expired but that nobody took over is renewed too.
func (s *Store) Renew(ctx context.Context, l collect.Lease, now time.Time, ttl time.Duration) error {
	return s.write(ctx, l, func(c *connection) error {
		c.expires = plain(now.Add(ttl))
		return nil
	})
}

// Finish writes the run's end and gives the lease back. See [collect.Store].
func (s *Store) Finish(ctx context.Context, l collect.Lease, end collect.RunEnd) error {
	switch end.State {
	case collect.RunDrained, collect.RunIncomplete, collect.RunDeferred, collect.RunFailed, collect.RunAbandoned:
	case collect.RunRunning:
		fallthrough
	default:
		return fmt.Errorf("store: finish: %q is not a state for a run to end in", end.State)
	}
	return s.write(ctx, l, func(c *connection) error {
		u := c.held
		if err := u.trace(end.Events); err != nil {
			return err
		}
		u.State, u.Reason, u.Error, u.Progress = end.State, end.Reason, end.Error, end.Progress
		u.Ended, u.RetryAt = plain(end.At), plain(end.RetryAt)
		c.pace(end.Pacing)
		c.unlease()
		c.cooldown = end.Cooldown
		c.cooldown.Until = plain(end.Cooldown.Until)
		c.held = nil
		return nil
	})
}

// Forget removes what is known of the connection. See [collect.Store]. The
// lease stays.
func (s *Store) Forget(ctx context.Context, l collect.Lease) error {
	return s.write(ctx, l, func(c *connection) error {
		c.state, c.cooldown = newState(), collect.Cooldown{}
		return nil
	})
}
