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
// When a method returns nil its effect is durable: it survives SIGKILL and power
// loss. Implementations are safe for concurrent use, also by several processes.
// Package storetest tests this contract.
type Store interface {
	// Acquire leases the connection to one run, and creates the run's record and, if
	// needed, the connection. If another lease has not expired it returns a *HeldError.
	Acquire(ctx context.Context, req LeaseRequest) (Lease, error)
	// Renew extends the lease to now + ttl. It returns ErrLeaseLost if another holder
	// has taken the connection.
	Renew(ctx context.Context, l Lease, now time.Time, ttl time.Duration) error
	// Finish writes the run's final state and pacing and releases the lease, in one transaction.
	Finish(ctx context.Context, l Lease, end RunEnd) error

	// Load returns the stored state that a run starts from. For an unknown connection
	// that is the zero State.
	Load(ctx context.Context, connection string) (State, error)
	// Known returns the known items among keys, by key.
	Known(ctx context.Context, connection, stream string, keys []string) (map[string]KnownItem, error)
	// Owed returns the keys of the items of a stream that are marked as Owed, sorted.
	// A limit of 0 means all.
	Owed(ctx context.Context, connection, stream string, limit int) ([]string, error)
	// Serve leases the next gaps to try: pending and due, in fair order. Each is
	// leased until a commit opens, recovers or returns it, or until another
	// holder takes the connection. Being served is not an attempt.
	Serve(ctx context.Context, l Lease, ask ServeRequest) ([]Gap, error)
	// Act applies an operator's action to the gaps with the given ids or, if ids is
	// empty, to those that f selects, and returns how many it changed. It needs no lease.
	Act(ctx context.Context, a GapAction, f GapFilter, ids []int64) (int64, error)
	// Commit makes one slice durable, in one transaction.
	Commit(ctx context.Context, l Lease, c Commit) error
	// Forget removes the connection's lanes, items, gaps, shapes, pacing and sink
	// position. Its runs and events stay.
	Forget(ctx context.Context, l Lease) error

	Reader
}

// Reader is the read side of a store, for the command line and the console. It needs
// no lease and never blocks a run. It is safe for concurrent use.
type Reader interface {
	// Connections lists every connection that has state, by name.
	Connections(ctx context.Context) ([]ConnectionStatus, error)
	// Runs lists runs, newest first. An empty connection means all, and so does limit 0.
	Runs(ctx context.Context, connection string, limit int) ([]Run, error)
	// Gaps lists the gaps that f selects, oldest first.
	Gaps(ctx context.Context, f GapFilter) ([]Gap, error)
	// Events lists the stored events of a run in order.
	Events(ctx context.Context, run string) ([]event.Event, error)
}

// StatusOf returns the status of the named connection; ok is false if the store has no
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

// ErrLeaseLost reports that another holder has taken the connection. Nothing was written.
var ErrLeaseLost = &reason.Refusal{Reason: reason.LeaseLost}

// LeaseRequest is the argument of [Store].Acquire.
type LeaseRequest struct {
	Connection string
	// Run is the id of the new run, unique in the store.
	Run string
	// Kind is the kind of the run.
	Kind RunKind
	// Holder describes the process to people, such as by host and process id.
	Holder string
	Now    time.Time
	TTL    time.Duration
}

// Check returns an error that begins with who if a name is empty or TTL is not above 0.
func (r LeaseRequest) Check(who string) error {
	if r.Connection == "" || r.Run == "" || r.TTL <= 0 {
		return fmt.Errorf("%s: acquire: connection %q, run %q, time to live %s: "+
			"the names must not be empty and the time must be above 0", who, r.Connection, r.Run, r.TTL)
	}
	return nil
}

// Lease is the right to write a connection's state. Token is the fencing token: it
// increases with each holder, and each write is checked against it.
type Lease struct {
	Connection string
	Run        string
	Token      int64
}

// HeldError reports that another run holds the lease on the connection.
type HeldError struct {
	Connection, Holder, Run string
	Since, Expires          time.Time
}

// Error names the connection and the holder.
func (e *HeldError) Error() string {
	return fmt.Sprintf("connection %q is being collected by %s (run %s, since %s)",
		e.Connection, e.Holder, e.Run, e.Since.UTC().Format(time.RFC3339))
}

// State is the stored state that a run starts from.
type State struct {
	Lanes []Lane
	// Pacing is the rate that the last run learned; nil if unknown.
	Pacing *Pacing
	// Sink is the sink's committed position, opaque to the store; nil before the first commit.
	Sink json.RawMessage
	// SinkAt is the sink of that position; the zero value means unknown.
	SinkAt Location
	// FormerSinks are the sinks that the connection had before, sorted by kind and path.
	FormerSinks []FormerSink
	// Replays are the replays into the connection's sinks, finished or not.
	Replays []Replay
	// Cooldown is the source-pressure cooldown; the zero value means no cooldown.
	Cooldown Cooldown
}

// LaneKind is the kind of a lane.
type LaneKind string

// The lanes of a stream. Each has a cursor of its own.
const (
	// Catchup walks the whole list, once.
	Catchup LaneKind = "catchup"
	// Steady lists what changed since the last walk.
	Steady LaneKind = "steady"
)

// Lane is the position of one walk over one stream.
type Lane struct {
	Stream string   `json:"stream"`
	Kind   LaneKind `json:"kind"`
	// Cursor is the next page to request; empty at the start of a walk.
	Cursor string `json:"cursor,omitempty"`
	// Walking reports that a walk is under way. Cursor and Since belong to it.
	Walking bool `json:"walking"`
	// Done reports that the lane has completed at least one walk.
	Done bool `json:"done"`
	// Since is the watermark after which the walk under way lists changes.
	Since string `json:"since,omitempty"`
	// High is the highest watermark seen in the walk under way.
	High string `json:"high,omitempty"`
	// Start is the provider's time at the walk's first page. Later watermarks are not trusted.
	Start time.Time `json:"start,omitzero"`
	// Watermark is where the next steady walk starts; set when a walk completes.
	Watermark string `json:"watermark,omitempty"`
	// Pages counts the pages of the walk under way.
	Pages int64 `json:"pages"`
	// Trail detects a cursor that repeats, in constant space.
	Trail connector.Trail `json:"trail,omitzero"`
}

// KnownItem is what the store keeps of an item. With it a run skips an item whose list
// entry did not change, and writes only the detail records that did.
type KnownItem struct {
	Key         string
	Fingerprint string
	// Owed reports that a backlog gap stands for the item's detail. Such an item is not
	// skipped even if its list entry did not change.
	Owed bool
	// Children holds digests of the detail records that were written, opaque to the
	// store; nil if there are none.
	Children []byte
}

// Commit is one slice, which becomes durable in one transaction.
type Commit struct {
	// At is the time of the commit, by the wall clock of this process.
	At time.Time
	// Reshaped are streams with a new shape. They are applied before the rest of the
	// commit.
	Reshaped []Reshaped
	// SinkAt is the sink to which the position Sink belongs; the zero value leaves the
	// stored one. If it differs from the stored one, the stored sink and its position
	// move to the former sinks, and SinkAt is removed from them.
	SinkAt Location
	// Replays replaces the stored replays; nil leaves them.
	Replays []Replay
	// Lane is the new position of a lane; nil leaves all positions.
	Lane *Lane
	// Stream is the stream of Items.
	Stream string
	Items  []KnownItem
	// Opened are the new gaps. A gap that exists for the same stream and key is
	// updated: attempts are added, last seen and last error are replaced.
	Opened []Gap
	// Recovered are gaps whose detail was fetched and written.
	Recovered []GapKey
	// Returned are gaps that were served and not tried. They become pending again.
	Returned []GapKey
	// Sink is the sink's position after this slice; nil leaves the stored one.
	Sink json.RawMessage
	// Within, if not nil, is called inside the transaction, for a sink in the store's own
	// database. A store that cannot do so returns an error.
	Within func(ctx context.Context, tx Execer) error
	// Progress holds the run's counters including this slice.
	Progress Progress
	// Events are appended to the run's trace.
	Events []event.Event
	// Pacing is the current rate; nil leaves the stored one.
	Pacing *Pacing
}

// Pacing is a stored rate.
type Pacing struct {
	Version    int             `json:"version"`
	Law        string          `json:"law"`
	IntervalMS float64         `json:"pacing_interval_ms"`
	RecordedAt time.Time       `json:"pacing_recorded_at"`
	State      json.RawMessage `json:"state,omitempty"`
	// Pools holds the rates of the connection's pools by name, and Keys those of each
	// credential after the first. If both are nil, a commit leaves the stored ones.
	Pools map[string]Pacing `json:"pools,omitempty"`
	Keys  map[string]Pacing `json:"keys,omitempty"`
}

// RunState is the state of a run.
type RunState string

// The states of a run. A run that is still Running without a live lease was
// killed; readers show it as Abandoned.
const (
	RunRunning RunState = "running"
	RunDrained RunState = "drained" // nothing left to do, and nothing missing
	// RunIncomplete is a run that has nothing left to do while gaps are in quarantine: an
	// operator has to decide about them.
	RunIncomplete RunState = "incomplete"
	RunDeferred   RunState = "deferred"  // stopped early, resumable
	RunFailed     RunState = "failed"    // ended with a permanent error
	RunAbandoned  RunState = "abandoned" // the process died
)

// RunKind is the kind of a run.
type RunKind string

// The kinds of a run. A replay holds the connection's lease and has a run record, but
// it is never the LastRun of a connection.
const (
	RunCollects RunKind = ""
	RunReplays  RunKind = "replay"
)

// Progress holds a run's counters. They never decrease.
type Progress struct {
	// Attempts counts requests sent, whatever their outcome.
	Attempts int64 `json:"attempts"`
	// Retries counts attempts that repeated an earlier one.
	Retries int64 `json:"retries"`
	// Throttled counts attempts that the provider refused for rate or load.
	Throttled int64 `json:"throttled"`
	// Pages counts committed pages.
	Pages int64 `json:"pages"`
	// Items counts list entries; Unchanged those that were skipped as unchanged.
	Items     int64 `json:"items"`
	Unchanged int64 `json:"unchanged"`
	// Details counts items whose detail was fetched and committed.
	Details int64 `json:"details"`
	// Records counts records committed to the sink.
	Records int64 `json:"records"`
	// GapsOpened counts details that became owed; GapsRecovered those fetched later.
	GapsOpened    int64 `json:"gaps_opened"`
	GapsRecovered int64 `json:"gaps_recovered"`
	// ChildrenGone counts detail records that the provider has deleted.
	ChildrenGone int64 `json:"children_gone,omitempty"`
	// BoundBy divides the run's time by what limited its speed; the zero value means
	// unknown.
	BoundBy reason.Bounds `json:"bound_by,omitzero"`
}

// Run is the stored record of one run of a connection.
type Run struct {
	ID         string `json:"id"`
	Connection string `json:"connection"`
	Holder     string `json:"holder"`
	// Kind is the kind of the run; empty for a collection.
	Kind    RunKind       `json:"kind,omitempty"`
	State   RunState      `json:"state"`
	Reason  reason.Reason `json:"reason"`
	Started time.Time     `json:"started"`
	Ended   time.Time     `json:"ended,omitzero"`
	RetryAt time.Time     `json:"retry_at,omitzero"`
	// Error describes the failure that ended or deferred the run, in one line and without
	// content; empty if there was none.
	Error string `json:"error,omitempty"`
	Progress
}

// RunEnd is the final state of a run.
type RunEnd struct {
	At       time.Time
	State    RunState
	Reason   reason.Reason
	RetryAt  time.Time
	Error    string
	Progress Progress
	Events   []event.Event
	// Pacing is the learned rate; nil leaves the stored one.
	Pacing *Pacing
	// Cooldown is the source-pressure cooldown from now on.
	Cooldown Cooldown
}

// Check returns an error that begins with who if no run can end in the state.
func (e RunEnd) Check(who string) error {
	switch e.State {
	case RunDrained, RunIncomplete, RunDeferred, RunFailed, RunAbandoned:
		return nil
	case RunRunning:
	}
	return fmt.Errorf("%s: finish: %q is not a state for a run to end in", who, e.State)
}

// SinkAt returns the connection's sink; the zero value means unknown.
func (c ConnectionStatus) SinkAt() Location { return Location{Kind: c.SinkKind, Path: c.SinkPath} }

// ConnectionStatus is the stored status of a connection.
type ConnectionStatus struct {
	Name  string `json:"name"`
	Lanes []Lane `json:"lanes"`
	// Shapes describe how each stream was configured when it was last collected, sorted
	// by stream.
	Shapes []StreamShape `json:"shapes,omitempty"`
	// SinkKind is the kind of the connection's sink; empty means unknown.
	SinkKind string `json:"sink_kind,omitempty"`
	// SinkPath is the path of the sink, as the connection names it.
	SinkPath string `json:"sink_path,omitempty"`
	// FormerSinks are the sinks that the connection had before, sorted by kind and path.
	FormerSinks []Location `json:"former_sinks,omitempty"`
	// Replays are the replays into its sinks, without their positions.
	Replays []Replay `json:"replays,omitempty"`
	// Items counts the known items by stream.
	Items map[string]int64 `json:"items"`
	// Owed counts the items of pending and leased gaps, by reason. Quarantined counts
	// the items of terminal gaps. A backlog gap counts with all of its items.
	Owed        map[string]int64 `json:"owed"`
	Quarantined int64            `json:"quarantined"`
	// Pacing is the stored rate; nil means unknown.
	Pacing *Pacing `json:"pacing"`
	// Cooldown is the source-pressure cooldown.
	Cooldown Cooldown `json:"pressure"`
	// LastRun is the newest collection; nil if there was none.
	LastRun *Run `json:"last_run"`
	// Holder is the holder of the current lease; empty if there is none.
	Holder string `json:"holder,omitempty"`
}

// ClosingReader is a [Reader] that has to be closed.
type ClosingReader interface {
	Reader
	io.Closer
}

// Archive is a [Reader] of a store that may not exist yet; it is empty until the store
// exists. Create it with [NewArchive]. It is safe for concurrent use.
type Archive struct {
	find func(context.Context) (ClosingReader, error)

	mu   sync.Mutex
	open ClosingReader
}

// NewArchive returns an archive, which calls open on first use. open returns the read
// side of the store, or an error that matches [fs.ErrNotExist] if the store does not
// exist yet.
func NewArchive(open func(context.Context) (ClosingReader, error)) *Archive {
	return &Archive{find: open}
}

// reader returns the open reader, or nil while there is no store.
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

// Close closes the underlying reader, if it is open. The archive stays usable: the next
// read opens the store again.
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

// ask calls read with the open reader, or returns the zero value while there is no
// store.
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

// Runs lists runs, newest first. An empty connection means all, and so does limit 0.
func (a *Archive) Runs(ctx context.Context, connection string, limit int) ([]Run, error) {
	return ask(ctx, a, func(r Reader) ([]Run, error) { return r.Runs(ctx, connection, limit) })
}

// Gaps lists the gaps that f selects, oldest first.
func (a *Archive) Gaps(ctx context.Context, f GapFilter) ([]Gap, error) {
	return ask(ctx, a, func(r Reader) ([]Gap, error) { return r.Gaps(ctx, f) })
}

// Events lists the stored events of a run in order.
func (a *Archive) Events(ctx context.Context, run string) ([]event.Event, error) {
	return ask(ctx, a, func(r Reader) ([]event.Event, error) { return r.Events(ctx, run) })
}

var _ Reader = (*Archive)(nil)
