package collect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// Store is the durable state of connections. Every write of a run goes through
// [Store.Commit] or another method that takes the run's [Lease], and is refused
// with [ErrLeaseLost] when a later holder has taken the connection (fencing).
// A method that returned nil has made its effect durable: it survives SIGKILL
// and power loss. Implementations are safe for concurrent use, also by several
// processes. package storetest is the contract as tests.
type Store interface {
	// Acquire takes the connection for one run, creating the connection and the
	// run's record. When another holder's lease has not expired it returns *HeldError.
	Acquire(ctx context.Context, req LeaseRequest) (Lease, error)
	// Renew extends the lease to now + ttl; ErrLeaseLost when it is no longer ours.
	Renew(ctx context.Context, l Lease, now time.Time, ttl time.Duration) error
	// Finish writes the run's last state and pacing and gives the lease back, in one transaction.
	Finish(ctx context.Context, l Lease, end RunEnd) error

	// Load reads what a run starts from; a connection never seen is the zero State.
	Load(ctx context.Context, connection string) (State, error)
	// Known reads the items of a stream that the store knows, by key. Keys that
	// are not known are absent from the map.
	Known(ctx context.Context, connection, stream string, keys []string) (map[string]KnownItem, error)
	// Owed lists items of a stream that are marked as Owed, by key, in order of
	// keys; limit 0 is all.
	Owed(ctx context.Context, connection, stream string, limit int) ([]string, error)
	// Serve leases the next gaps to work off: due, pending, in fair order. Each is
	// leased until a commit opens, recovers or returns it, or until another
	// holder takes the connection. Being served is not an attempt.
	Serve(ctx context.Context, l Lease, ask ServeRequest) ([]Gap, error)
	// Act applies an operator's action to the gaps that f selects, or to those
	// with the given ids when there are any, and counts them. It needs no lease.
	Act(ctx context.Context, a GapAction, f GapFilter, ids []int64) (int64, error)
	// Commit makes one slice durable, whole or not at all.
	Commit(ctx context.Context, l Lease, c Commit) error
	// Forget removes everything that is known of the connection but its runs
	// and events: lanes, items, gaps, shapes, pacing and sink position.
	Forget(ctx context.Context, l Lease) error

	Reader
}

// Reader is the store's read side: what the command line and the console show.
// It needs no lease and never blocks a run.
type Reader interface {
	// Connections lists every connection that has state, by name.
	Connections(ctx context.Context) ([]ConnectionStatus, error)
	// Runs lists the newest runs first; connection "" is all; limit 0 is all.
	Runs(ctx context.Context, connection string, limit int) ([]Run, error)
	// Gaps lists owed work, oldest first, filtered.
	Gaps(ctx context.Context, f GapFilter) ([]Gap, error)
	// Events lists a run's durable trace in order.
	Events(ctx context.Context, run string) ([]event.Event, error)
}

// StatusOf looks up one connection by name; ok is false when the store has no
// state of it.
func StatusOf(ctx context.Context, r Reader, name string) (status ConnectionStatus, ok bool, err error) {
	all, err := r.Connections(ctx)
	if err != nil {
		return ConnectionStatus{}, false, err
	}
	i := slices.IndexFunc(all, func(c ConnectionStatus) bool { return c.Name == name })
	if i < 0 {
		return ConnectionStatus{}, false, nil
	}
	return all[i], true, nil
}

// ErrLeaseLost says that another holder has taken the connection since; nothing was written.
var ErrLeaseLost = &reason.Refusal{Reason: reason.LeaseLost}

// LeaseRequest asks for a connection.
type LeaseRequest struct {
	Connection string
	// Run is the new run's id, unique in the store.
	Run string
	// Kind is what the run does.
	Kind RunKind
	// Holder names the process for people: host, process id.
	Holder string
	Now    time.Time
	TTL    time.Duration
}

// Lease is the right to write a connection's state. Token is the fencing
// token: it rises with each holder and every write carries it.
type Lease struct {
	Connection string
	Run        string
	Token      int64
}

// HeldError says who has the connection.
type HeldError struct {
	Connection, Holder, Run string
	Since, Expires          time.Time
}

// Error names the holder.
func (e *HeldError) Error() string {
	return fmt.Sprintf("connection %q is being collected by %s (run %s, since %s)",
		e.Connection, e.Holder, e.Run, e.Since.UTC().Format(time.RFC3339))
}

// State is what a run starts from.
type State struct {
	Lanes []Lane
	// Pacing is what the last run learned; nil when there is nothing.
	Pacing *Pacing
	// Sink is the sink's committed position, as the sink gave it; nil before the first commit.
	Sink json.RawMessage
	// SinkAt is the sink whose position that is; the zero value is unknown.
	SinkAt Location
	// FormerSinks are those that the connection had before, by kind and path.
	FormerSinks []FormerSink
	// Replays are the copies into the connection's sinks, done or not.
	Replays []Replay
	// Cooldown is the source-pressure cooldown; the zero value means no cooldown.
	Cooldown Cooldown
}

// LaneKind tells catch-up from steady state.
type LaneKind string

// The lanes of a stream. Each has a cursor of its own.
const (
	// Catchup walks everything there was, once.
	Catchup LaneKind = "catchup"
	// Steady lists what changed since the last time.
	Steady LaneKind = "steady"
)

// Lane is the position of one walk over one stream.
type Lane struct {
	Stream string   `json:"stream"`
	Kind   LaneKind `json:"kind"`
	// Cursor is the next page to ask for; empty at the start of a walk.
	Cursor string `json:"cursor,omitempty"`
	// Walking says that a walk is under way (Cursor and Since belong to it).
	Walking bool `json:"walking"`
	// Done says that the lane has completed at least one walk.
	Done bool `json:"done"`
	// Since is the watermark that the walk under way lists changes after.
	Since string `json:"since,omitempty"`
	// High is the highest watermark seen in the walk under way.
	High string `json:"high,omitempty"`
	// Start is the provider's clock at the walk's first page: no watermark past it is trusted.
	Start time.Time `json:"start,omitzero"`
	// Watermark is what the next steady walk starts after; set when a walk completes.
	Watermark string `json:"watermark,omitempty"`
	// Pages counts the pages of the walk under way.
	Pages int64 `json:"pages"`
	// Trail finds a cursor that repeats, in constant space.
	Trail connector.Trail `json:"trail,omitzero"`
}

// KnownItem is what the store remembers of an item: enough to skip it when its
// list entry did not change, and to write only what is new when it did.
type KnownItem struct {
	Key         string
	Fingerprint string
	// Owed says that the item's detail is owed through a backlog gap: it is not
	// skipped though its list entry did not change.
	Owed bool
	// Children holds digests of the detail records already written, opaque to
	// the store; nil when there are none.
	Children []byte
}

// Commit is one slice: all of it becomes durable together.
type Commit struct {
	// At is when, by our wall clock.
	At time.Time
	// Reshaped are streams that are read in another way from now on: applied
	// before the rest of the commit.
	Reshaped []Reshaped
	// SinkAt is the sink that Sink is a position of; the zero value leaves it. When
	// it differs from the stored one, the stored position becomes that of a former
	// sink, and SinkAt is no longer among the former sinks.
	SinkAt Location
	// Replays are the copies into the connection's sinks from now on; nil leaves them.
	Replays []Replay
	// Lane is the new position; nil leaves positions as they are.
	Lane *Lane
	// Stream is the stream of Items.
	Stream string
	Items  []KnownItem
	// Opened are gaps that the slice leaves; one that exists for the same
	// stream and key is updated (attempts added, last seen and error renewed).
	Opened []Gap
	// Recovered are gaps whose detail was fetched and written.
	Recovered []GapKey
	// Returned are gaps that were served and not attempted: they stay as they were.
	Returned []GapKey
	// Sink is the sink's position with this slice in it; nil leaves it.
	Sink json.RawMessage
	// Within is run inside the transaction, for a sink that shares the store's
	// database; nil is nothing. A store that cannot do so returns an error.
	Within func(ctx context.Context, tx Execer) error
	// Progress is the run's counters with this slice in them.
	Progress Progress
	// Events are appended to the run's trace.
	Events []event.Event
	// Pacing is the rate at this moment; nil leaves it.
	Pacing *Pacing
}

// Pacing is a learned rate as it is stored.
type Pacing struct {
	Version    int             `json:"version"`
	Law        string          `json:"law"`
	IntervalMS float64         `json:"pacing_interval_ms"`
	RecordedAt time.Time       `json:"pacing_recorded_at"`
	State      json.RawMessage `json:"state,omitempty"`
}
