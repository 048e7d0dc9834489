// Package fault names the steps of a collection at which a test can kill the process.
// [Point] marks a step in the source. In a binary that was built with the tag "faults" the
// process kills itself with SIGKILL when it reaches the step named in the environment.
//
// In a build without the tag a point is an empty function that the compiler removes, and
// the environment is not read. Points may be passed by any goroutine at any time.
package fault

import "slices"

// Name names a step.
type Name string

// The steps of a run, in the order in which it comes to them first.
const (
	// LeaseAcquired: the connection is ours, and nothing was done with it.
	LeaseAcquired Name = "lease.acquired"
	// FreshAside: what the sink had was set aside, the state is not forgotten.
	FreshAside Name = "fresh.aside"
	// FreshForgotten: the state is forgotten, and nothing of the new one is there.
	FreshForgotten Name = "fresh.forgotten"
	// SinkOpened: the sink is back at the committed position.
	SinkOpened Name = "sink.opened"
	// PageListed: a page came, nothing of it is written.
	PageListed Name = "page.listed"
	// SinkWritten: the sink has taken records, which are not durable.
	SinkWritten Name = "sink.written"
	// DetailFetched: a detail came or failed, nothing of it is written.
	DetailFetched Name = "detail.fetched"
	// SinkSynced: the records of a slice are durable, its cursor is not.
	SinkSynced Name = "sink.synced"
	// SliceCommitting: the slice is about to go to the store.
	SliceCommitting Name = "slice.committing"
	// SliceCommitted: the store has acknowledged a slice, the run does not count it yet.
	SliceCommitted Name = "slice.committed"
	// WalkCompleted: the last page of a walk is committed.
	WalkCompleted Name = "walk.completed"
	// GapsServed: gaps are leased to the run, none was asked for.
	GapsServed Name = "gaps.served"
	// GapsSettled: the results of the gaps are known, but not durable.
	GapsSettled Name = "gaps.settled"
	// GapsRecovered: the results of the gaps are committed.
	GapsRecovered Name = "gaps.recovered"
	// BacklogListed: a page of a backlog gap came, nothing of it is written.
	BacklogListed Name = "backlog.listed"
	// BacklogCommitted: a page of a backlog gap is committed.
	BacklogCommitted Name = "backlog.committed"
	// RunFinishing: the run is over, which nobody has written down.
	RunFinishing Name = "run.finishing"
	// RunFinished: the run's end is durable, the lease is given back.
	RunFinished Name = "run.finished"

	// StoreBegun: a transaction of the store has begun, whichever it is.
	StoreBegun Name = "store.begun"
	// StoreCommitting: all of a transaction is written but its COMMIT.
	StoreCommitting Name = "store.committing"
	// StoreCommitted: a transaction is durable, and its caller does not know it.
	StoreCommitted Name = "store.committed"

	// JSONLChanging: the jsonl sink is about to change something on disk.
	JSONLChanging Name = "disk.changing"

	// FileStaging: the sqlite sink is about to write a slice aside, in a file of its own.
	FileStaging Name = "file.staging"
	// FileStaged: the slice is durable there, and not in the tables.
	FileStaged Name = "file.staged"
	// FileApplying: the slice's cursor is committed, the tables are without it.
	FileApplying Name = "file.applying"
	// FileApplied: the tables have it, which the run does not know.
	FileApplied Name = "file.applied"
)

// names are all of the above.
var names = []Name{
	LeaseAcquired, FreshAside, FreshForgotten, SinkOpened, PageListed, SinkWritten, DetailFetched, SinkSynced,
	SliceCommitting, SliceCommitted, WalkCompleted, GapsServed, GapsSettled, GapsRecovered,
	BacklogListed, BacklogCommitted, RunFinishing, RunFinished,
	StoreBegun, StoreCommitting, StoreCommitted, JSONLChanging,
	FileStaging, FileStaged, FileApplying, FileApplied,
}

// Names lists every step that there is a point for, so that a test can die at
// each and notice one that it never comes to.
func Names() []Name { return slices.Clone(names) }

// The environment of a process that was built with the tag.
const (
	// Env names the step to die at and, after a colon, which pass of it:
	// "sink.synced:3". Without a number it is the first; without the variable
	// nobody dies.
	Env = "HEADWAY_FAULT"
	// TraceEnv names a file to which each pass of a point appends the step's
	// name as a line.
	TraceEnv = "HEADWAY_FAULT_TRACE"
)
