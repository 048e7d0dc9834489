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

// Store is a [collect.Store] in memory. Make one with [New]; it need not be closed.
type Store struct {
	mu          sync.RWMutex
	connections map[string]*connection
	runs        []*run // oldest first
	byID        map[string]*run
	gapID       int64 // the last id that was assigned
}

var _ collect.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{connections: map[string]*connection{}, byID: map[string]*run{}}
}

// connection is the state and the lease of one connection.
type connection struct {
	name string

	token          int64
	held           *run // nil if there is no lease
	since, expires time.Time

	state
	cooldown collect.Cooldown
}

// state is the part that Forget deletes.
type state struct {
	lanes   map[laneKey]collect.Lane
	streams map[string]*stream
	gaps    map[collect.GapKey]*gap
	order   []*gap // the same gaps, by id
	shapes  map[string]collect.StreamShape
	sink    json.RawMessage
	at      collect.Location // the sink that sink belongs to
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

// stream holds the known items of a stream, and the keys of those that are owed.
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

// gap is a gap and its rank for serving.
type gap struct {
	collect.Gap

	tried time.Time // when it was last tried; zero if never
	rank  time.Time // when it was first seen or last tried
}

// run is the record of a run and its trace. Events are stored as JSON, as in other stores.
type run struct {
	collect.Run

	of     *connection
	events [][]byte
}

// write runs f exclusively if l is the current lease. f must change nothing if it returns
// an error.
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

// read runs f while no write is under way.
func (s *Store) read(ctx context.Context, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	f()
	return nil
}

// plain returns a time as a store returns it: in UTC, without a monotonic reading.
func plain(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}

// Acquire leases the connection for one run. See [collect.Store]. An expired lease is taken
// over, and its run becomes abandoned. A lease expires when req.Now reaches its expiry.
func (s *Store) Acquire(ctx context.Context, req collect.LeaseRequest) (collect.Lease, error) {
	if err := req.Check("store"); err != nil {
		return collect.Lease{}, err
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

// unlease makes leased gaps pending again.
func (c *connection) unlease() {
	for _, g := range c.order {
		if g.Status == collect.GapLeased {
			g.Status = collect.GapPending
		}
	}
}

// Renew extends the lease to now + ttl. See [collect.Store]. An expired lease that was not
// taken over is renewed too.
func (s *Store) Renew(ctx context.Context, l collect.Lease, now time.Time, ttl time.Duration) error {
	return s.write(ctx, l, func(c *connection) error {
		c.expires = plain(now.Add(ttl))
		return nil
	})
}

// Finish ends the run and releases the lease. See [collect.Store].
func (s *Store) Finish(ctx context.Context, l collect.Lease, end collect.RunEnd) error {
	if err := end.Check("store"); err != nil {
		return err
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

// Forget deletes the connection's state. See [collect.Store]. The lease stays.
func (s *Store) Forget(ctx context.Context, l collect.Lease) error {
	return s.write(ctx, l, func(c *connection) error {
		c.state, c.cooldown = newState(), collect.Cooldown{}
		return nil
	})
}
