package bulk

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/internal/ledger"
	"github.com/headway-go/headway/reason"
)

// account divides a load's time among what limited its speed. Instants are durations since
// the run began. It is not safe for concurrent use.
type account struct {
	spent reason.Bounds
	last  time.Duration
}

// to counts the time since the last call for one bound. An instant before the last one is
// ignored.
func (a *account) to(now time.Duration, by reason.Bound) {
	if now > a.last {
		a.spent[by] += now - a.last
		a.last = now
	}
}

// bounds returns the divided time up to now. The time since the last call of to counts for
// by.
func (a *account) bounds(now time.Duration, by reason.Bound) reason.Bounds {
	then := *a
	then.to(now, by)
	return then.spent
}

// standstill is the state of a load that waits.
type standstill struct {
	dispatch.Decision
	// Sent is the number of batches that were sent and not answered; Unwritten is the
	// number of batches that are sent once they are in the journal.
	sent, unwritten int64
	// Asking is how many wait for a permit.
	awaiting int64
	// Held is what limits the number of batches in flight.
	held reason.Bound
	// Read reports that no row has to be read now: all were read, or enough are waiting.
	read bool
}

// bound returns the bound for which a standstill counts.
func (s standstill) bound() reason.Bound {
	switch s.Reason {
	case reason.Cooldown:
		return reason.BoundCooldown
	case reason.CircuitOpen.Reason():
		return reason.BoundCircuit
	case reason.Pacing:
		return reason.BoundLimit // of execution time
	case reason.Concurrency:
		if s.sent == 0 && s.awaiting > 0 {
			return reason.BoundLimit
		}
		if s.sent == 0 && s.unwritten > 0 {
			return reason.BoundDisk
		}
		return s.held
	case reason.None:
	default: // the load has stopped, and batches in flight have to end
		return s.rest()
	}
	if !s.read {
		return reason.BoundInput
	}
	return s.rest()
}

// rest returns the bound of a load that has no row to send.
func (s standstill) rest() reason.Bound {
	switch {
	case s.sent > 0:
		return reason.BoundLatency
	case s.awaiting > 0:
		return reason.BoundLimit
	case s.unwritten > 0:
		return reason.BoundDisk
	case s.At != dispatch.Never:
		return reason.BoundBackoff
	}
	return reason.BoundUnknown
}

// Totals count the rows of a load by outcome, over all its runs.
type Totals struct {
	// Rows is the number of rows of the input, malformed ones included, or, while
	// InputRead is false, the number of rows read so far.
	Rows      int64 `json:"rows"`
	InputRead bool  `json:"input_read"`
	// The four outcomes, three of them embedded. They add up to Rows.
	ledger.Counts
	Owed int64 `json:"owed"`
}

// Progress is the progress of a load.
type Progress struct {
	Totals
	// InFlight is how many batches are under way, BatchRows how many rows the next
	// one should have.
	InFlight  int `json:"in_flight"`
	BatchRows int `json:"batch_rows"`
	// Offset is where the last row that was read begins, as in [Position].
	Offset int64 `json:"offset,omitempty"`
	// Counts are those of this run.
	Counts Counts `json:"counts"`
	// Elapsed is the time since this run began, and RowsPerSecond what it
	// acknowledged in it.
	Elapsed       time.Duration `json:"elapsed_ns"`
	RowsPerSecond float64       `json:"rows_per_second"`
	// BoundBy divides the time of this run among the things that kept it from being
	// faster.
	BoundBy reason.Bounds `json:"bound_by,omitzero"`
	// Waiting is why nothing more is sent now; None while something is.
	Waiting reason.Reason `json:"waiting,omitempty"`
	// Identities are in the target's order.
	Identities []IdentityProgress `json:"identities"`
}

// IdentityProgress is the state of one identity.
type IdentityProgress struct {
	Name string `json:"name"`
	dispatch.Identity
}

// State is the state in which a run ended.
type State string

// The states.
const (
	// Drained: every row has its outcome.
	Drained State = "drained"
	// Deferred: the rest is owed, and another run continues it.
	Deferred State = "deferred"
	// Failed: an error of this process, which Run returned.
	Failed State = "failed"
)

// Summary is the result of a run.
type Summary struct {
	Progress
	// Load is the load's own name.
	Load  string `json:"load"`
	State State  `json:"state"`
	// Reason is why the run ended, Cause what the provider or the input said, when
	// that was the reason.
	Reason reason.Reason `json:"reason"`
	Cause  string        `json:"cause,omitempty"`
	// RetryAt is when the provider may be asked again; zero when unknown.
	RetryAt time.Time `json:"retry_at,omitzero"`
	// RejectsFile and UncertainFile are where those rows are; empty when there are
	// none.
	RejectsFile   string `json:"rejects_file,omitempty"`
	UncertainFile string `json:"uncertain_file,omitempty"`
}

// totals returns the totals of a journal and the number of rows read.
func totals(s journal.State, read int64) Totals {
	t := Totals{
		Rows: max(read, s.Settled.Len()), InputRead: s.Rows >= 0, Counts: s.Counts}
	if spans := s.Settled.Spans(); len(spans) > 0 {
		t.Rows = max(t.Rows, spans[len(spans)-1].Last+1)
	}
	if t.InputRead {
		t.Rows = s.Rows
	}
	t.Owed = t.Rows - s.Settled.Len()
	return t
}

// Status is the state of a load according to its folder.
type Status struct {
	Totals
	// Load is the load's own name.
	Load string `json:"load"`
	// Input and Target are what it loads, and into what.
	Input  journal.Input `json:"input"`
	Target string        `json:"target"`
	// InDoubt is how many rows are in batches without a known outcome. They are in flight
	// if the load is running; if it was killed, the next run settles them.
	InDoubt int64 `json:"in_doubt"`
	// Running says whether a process runs the load now; nil when that cannot be
	// known.
	Running *bool `json:"running"`
	// RejectsFile and UncertainFile are where those rows are; empty when there are
	// none.
	RejectsFile   string `json:"rejects_file,omitempty"`
	UncertainFile string `json:"uncertain_file,omitempty"`
}

// ReadStatus reads the state of a load from its folder. It may be called while the load
// runs. The error matches [ErrNone] if the folder has no load.
func ReadStatus(dir string) (Status, error) {
	s, err := journal.Read(dir)
	if err != nil {
		if errors.Is(err, journal.ErrNone) {
			return Status{}, fmt.Errorf("bulk: %w", err)
		}
		return Status{}, err
	}
	st := Status{Totals: totals(s, 0), Load: s.Header.Load, Input: s.Header.Input, Target: s.Header.Target}
	for _, b := range s.Open {
		for _, a := range b.Rows {
			st.InDoubt += a.Rows()
		}
	}
	if held, err := journal.Held(dir); err == nil {
		st.Running = &held
	}
	st.RejectsFile, st.UncertainFile = sideFiles(dir, s.Counts)
	return st, nil
}

func sideFiles(dir string, c ledger.Counts) (rejects, uncertain string) {
	if c.Rejected > 0 {
		rejects = filepath.Join(dir, journal.RejectsFile)
	}
	if c.Uncertain > 0 {
		uncertain = filepath.Join(dir, journal.UncertainFile)
	}
	return rejects, uncertain
}
