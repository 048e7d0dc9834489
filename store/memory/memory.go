// Package memory keeps the state of connections in memory: a [collect.Store]
// for runs that need not be continued by another process, and for tests.
//
// It passes the same contract as store/sqlite, except that nothing of it is
// durable: the state ends with the process, so the next one collects everything
// anew and has no record of what was owed. Use store/sqlite for anything whose
// position, owed work or learned rate has to outlive the process.
//
// All methods are safe for concurrent use. Each takes effect whole or not at
// all, and what goes in and comes out is a copy. A commit with Within is an
// error, since there is no database to share: a sink that keeps its records in
// the store's own database needs another store. Instants come from the caller,
// except that the read side asks the clock whether a lease is alive.
//
// Stability: settling.
package memory

import (
	"context"
	"encoding/json"
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
