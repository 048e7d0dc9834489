package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
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
	// Pools are what parts of the connection that have limits of their own have learned,
	// Keys what each credential after the first has, by name. In a commit both nil leave
	// what is stored of them.
	Pools map[string]Pacing `json:"pools,omitempty"`
	Keys  map[string]Pacing `json:"keys,omitempty"`
}

// RunState is where a run stands.
type RunState string

// The states of a run. A run that is still Running without a live lease was
// killed; readers show it as Abandoned.
const (
	RunRunning RunState = "running"
	RunDrained RunState = "drained" // nothing left to do, and nothing missing
	// RunIncomplete is a run that has nothing left to do by itself while something
	// is quarantined: somebody has to look.
	RunIncomplete RunState = "incomplete"
	RunDeferred   RunState = "deferred"  // stopped early, resumable
	RunFailed     RunState = "failed"    // the provider or we ourselves refused for good
	RunAbandoned  RunState = "abandoned" // the process died
)

// RunKind is what a run does.
type RunKind string

// The kinds of a run. A replay has the connection's lease and a record, and says
// nothing of how the collection stands: it is never a connection's last run.
const (
	RunCollects RunKind = ""
	RunReplays  RunKind = "replay"
)

// Progress is a run's counters. All of them only grow.
type Progress struct {
	// Attempts counts requests sent, whatever came of them.
	Attempts int64 `json:"attempts"`
	// Retries counts those that repeated an earlier one.
	Retries int64 `json:"retries"`
	// Throttled counts attempts that the provider refused for rate or load.
	Throttled int64 `json:"throttled"`
	// Pages counts slices committed.
	Pages int64 `json:"pages"`
	// Items counts list entries seen; Unchanged those skipped as known.
	Items     int64 `json:"items"`
	Unchanged int64 `json:"unchanged"`
	// Details counts items whose detail was fetched and committed.
	Details int64 `json:"details"`
	// Records counts records committed to the sink.
	Records int64 `json:"records"`
	// GapsOpened counts details that were deferred; GapsRecovered those made good.
	GapsOpened    int64 `json:"gaps_opened"`
	GapsRecovered int64 `json:"gaps_recovered"`
	// ChildrenGone counts detail records that were there and are no longer.
	ChildrenGone int64 `json:"children_gone,omitempty"`
	// BoundBy is the run's time by what kept it from being faster; the zero value
	// is unknown.
	BoundBy reason.Bounds `json:"bound_by,omitzero"`
}

// Run is one execution of a connection's collection, as recorded.
type Run struct {
	ID         string `json:"id"`
	Connection string `json:"connection"`
	Holder     string `json:"holder"`
	// Kind is what the run does: empty for a collection.
	Kind    RunKind       `json:"kind,omitempty"`
	State   RunState      `json:"state"`
	Reason  reason.Reason `json:"reason"`
	Started time.Time     `json:"started"`
	Ended   time.Time     `json:"ended,omitzero"`
	RetryAt time.Time     `json:"retry_at,omitzero"`
	// Error is the failure, or what deferred the run, in one line, without
	// content; empty when there was none.
	Error string `json:"error,omitempty"`
	Progress
}

// RunEnd is what a run leaves when it ends.
type RunEnd struct {
	At       time.Time
	State    RunState
	Reason   reason.Reason
	RetryAt  time.Time
	Error    string
	Progress Progress
	Events   []event.Event
	// Pacing is what was learned; nil leaves the stored value.
	Pacing *Pacing
	// Cooldown is the source-pressure cooldown from now on.
	Cooldown Cooldown
}

// SinkAt is the sink that holds what was collected; the zero value is unknown.
func (c ConnectionStatus) SinkAt() Location { return Location{Kind: c.SinkKind, Path: c.SinkPath} }

// ConnectionStatus is a connection at a glance.
type ConnectionStatus struct {
	Name  string `json:"name"`
	Lanes []Lane `json:"lanes"`
	// Shapes say how each stream was read when it was last collected, by stream.
	Shapes []StreamShape `json:"shapes,omitempty"`
	// SinkKind is the kind of sink that holds what was collected; empty is unknown.
	SinkKind string `json:"sink_kind,omitempty"`
	// SinkPath is where it writes, as the connection names it.
	SinkPath string `json:"sink_path,omitempty"`
	// FormerSinks are those that the connection had before, by kind and path.
	FormerSinks []Location `json:"former_sinks,omitempty"`
	// Replays are the copies of kept records into its sinks, without their positions.
	Replays []Replay `json:"replays,omitempty"`
	// Items and Gaps count per stream.
	Items map[string]int64 `json:"items"`
	// Owed counts the items whose details are owed, by reason: those of gaps that
	// are pending or leased. Quarantined counts those of terminal gaps. A backlog
	// gap stands for many items.
	Owed        map[string]int64 `json:"owed"`
	Quarantined int64            `json:"quarantined"`
	// Pacing is the stored rate; nil is unknown.
	Pacing *Pacing `json:"pacing"`
	// Cooldown is the source-pressure cooldown and whether somebody should look.
	Cooldown Cooldown `json:"pressure"`
	// LastRun is the newest run that collects; nil when there was none.
	LastRun *Run `json:"last_run"`
	// Holder names who is collecting now; empty when nobody is.
	Holder string `json:"holder,omitempty"`
}

// ClosingReader is a [Reader] that is closed in the end.
type ClosingReader interface {
	Reader
	io.Closer
}

// Archive is a [Reader] of a store that need not be there yet: it is empty until then. Make
// it with [NewArchive]. It is safe for concurrent use.
type Archive struct {
	find func(context.Context) (ClosingReader, error)

	mu   sync.Mutex
	open ClosingReader
}

// NewArchive makes an archive; nothing is opened yet. Open gives the read side, or an
// error that matches [fs.ErrNotExist] as long as nothing was stored.
func NewArchive(open func(context.Context) (ClosingReader, error)) *Archive {
	return &Archive{find: open}
}

// reader is nil while there is no database.
func (a *Archive) reader(ctx context.Context) (Reader, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open != nil {
		return a.open, nil
	}
	r, err := a.find(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a.open = r
	return r, nil
}

// Close closes the read side, if it was opened; it can be read again.
func (a *Archive) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		return nil
	}
	err := a.open.Close()
	a.open = nil
	return err
}

// ask reads what there is; nothing while there is no database.
func ask[T any](ctx context.Context, a *Archive, read func(Reader) (T, error)) (none T, err error) {
	r, err := a.reader(ctx)
	if r == nil {
		return none, err
	}
	return read(r)
}

// Connections lists every connection that has state, by name.
func (a *Archive) Connections(ctx context.Context) ([]ConnectionStatus, error) {
	return ask(ctx, a, func(r Reader) ([]ConnectionStatus, error) { return r.Connections(ctx) })
}

// Runs lists the newest runs first.
func (a *Archive) Runs(ctx context.Context, connection string, limit int) ([]Run, error) {
	return ask(ctx, a, func(r Reader) ([]Run, error) { return r.Runs(ctx, connection, limit) })
}

// Gaps lists the gaps that f selects, the oldest first.
func (a *Archive) Gaps(ctx context.Context, f GapFilter) ([]Gap, error) {
	return ask(ctx, a, func(r Reader) ([]Gap, error) { return r.Gaps(ctx, f) })
}

// Events lists a run's trace in order.
func (a *Archive) Events(ctx context.Context, run string) ([]event.Event, error) {
	return ask(ctx, a, func(r Reader) ([]event.Event, error) { return r.Events(ctx, run) })
}

var _ Reader = (*Archive)(nil)
