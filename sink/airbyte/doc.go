// Package airbyte writes records as the read command of an Airbyte source does: RECORD,
// STATE and TRACE messages of protocol 0.3, one per line. [New] returns the
// [collect.Sink]. The collector reports the state of the run to it:
//
//	var collector *collect.Collector
//	sink := airbyte.New(os.Stdout, airbyte.Options{
//		Live: func() (collect.Live, bool) { return collector.Live() },
//	})
//	collector, err := collect.New(collect.Options{Sink: sink, OnEvent: sink.OnEvent})
//
// Nothing but messages may go to that writer; progress and logs go to standard
// error. A program that writes to its standard output should also ignore SIGPIPE
// (signal.Ignore), so that the end of the reader is an error of the run instead of the
// end of the process.
//
// It implements read only, not SPEC, CHECK and DISCOVER. For files or a database of your
// own use another sink, since those can check what was written.
//
// # Guarantees
//
// A slice counts as written once all of it is in the pipe. If a write fails, the run
// fails and nothing of the slice is committed. STATE is written only after the store's
// commit ([collect.Informed]). A slice that was written but not committed comes again:
// records are delivered at least once, and a destination can remove duplicates by the
// primary key. Records that a destination has read but not stored when it dies are lost if
// the run has committed them. Only `headway collect --fresh` delivers them again.
//
// # Records
//
// data is the record as it was collected; the catalog describes its types. The primary key
// is the field that holds the key, or _headway_key, which is then added to the record. For
// details it begins with _headway_parent, the key of the item to which they belong. A
// record that is not an object is written as the property _headway_value. emitted_at is
// when the record was written.
//
// # State
//
// Each stream has its own state (STREAM), which counts its records since the first run,
// and sourceStats with the records since the last STATE:
//
//	{"position":1234}
//
// Headway never reads it back: its position is in its own state. A stream begins by
// repeating its last STATE, with a count of 0 records, in case the process died before
// writing it.
//
// # Status
//
//	stateDiagram-v2
//	    [*] --> STARTED: the run begins the stream, or the list whose details it holds
//	    STARTED --> RUNNING: its first record, or pressure
//	    RUNNING --> RUNNING: RATE_LIMITED under pressure, and without it when records follow
//	    STARTED --> COMPLETE: the run drained
//	    RUNNING --> COMPLETE: the run drained
//	    STARTED --> INCOMPLETE: the run stopped early
//	    RUNNING --> INCOMPLETE: the run stopped early, RATE_LIMITED if because of pressure
//
// Pressure is a back-off, an open circuit or deferred work, for the reasons rate_limited,
// upstream_pressure, circuit_open, cooldown and quota_exhausted, for which the protocol
// has only RATE_LIMITED. quota_reset is when the cooldown or the circuit ends, and is left
// out if unknown. A stream that the run did not begin has no status. An ESTIMATE is written
// after the last page of a list, when the number of its rows is known; for owed details it
// assumes the average number of records of those before.
//
// A Sink is safe for concurrent use, so that OnEvent may be called at any time. It needs
// memory for the records of one Write and 64 KiB.
//
// Stability: settling.
package airbyte
