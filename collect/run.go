package collect

import (
	"time"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

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
