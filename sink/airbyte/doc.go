// Package airbyte writes records as the read of an Airbyte source does: RECORD,
// STATE and TRACE messages of the protocol 0.3, one a line. [New] makes the
// [collect.Sink]. The collector tells it how the run stands:
//
//	var collector *collect.Collector
//	sink := airbyte.New(os.Stdout, airbyte.Options{
//		Live: func() (collect.Live, bool) { return collector.Live() },
//	})
//	collector, err := collect.New(collect.Options{Sink: sink, OnEvent: sink.OnEvent})
//
// Nothing but messages may go to that writer; progress and logs go to standard
// error. A program that writes to its standard output should also ignore
// SIGPIPE (signal.Ignore), so that a reader that died is an error of the run
// and not the end of the process; neither loses anything.
//
// It is a read's output, no whole connector: SPEC, CHECK and DISCOVER are not
// here. For files or a database of one's own use another sink: those can tell
// what is there.
//
// # What is promised
//
// A slice counts as written when all of it was handed to the pipe. A write that
// fails fails the run, and nothing of the slice is committed. STATE is written
// after the store's commit only ([collect.Informed]). A slice that was handed
// over but not committed comes again: records are delivered at least once, and
// a destination that removes duplicates by the primary key has each once. What a
// destination had read but not kept when it died is beyond a pipe's reach: if
// the run had committed it, only `headway collect --fresh` brings it again.
//
// # Records
//
// Data is the record as it was collected; types are the catalog's business. The
// primary key is the field that holds the key, or _headway_key, which is then
// added to the record. Details have _headway_parent before it, the key of the
// item that they belong to. A record that is not an object is put under
// _headway_value. emitted_at is when it was written.
//
// # State
//
// Each stream has a state of its own (STREAM), which counts its records from the
// first run on, and sourceStats with the records since the last one:
//
//	{"position":1234}
//
// Headway reads it back from nobody: where a run goes on is in its own state. A
// stream begins by repeating its last state, with a count of 0 records, in case
// the process died before it could write it.
//
// # Status
//
//	stateDiagram-v2
//	    [*] --> STARTED: the run comes to the stream, or to the list whose details these are
//	    STARTED --> RUNNING: its first record, or the provider wants less
//	    RUNNING --> RUNNING: RATE_LIMITED with quota_reset, and again without when records follow
//	    STARTED --> COMPLETE: the run drained
//	    RUNNING --> COMPLETE: the run drained
//	    STARTED --> INCOMPLETE: the run stopped early
//	    RUNNING --> INCOMPLETE: the run stopped early, RATE_LIMITED if the provider made it
//
// Pressure is a back-off, an open circuit or work put off, for the reasons
// rate_limited, upstream_pressure, circuit_open, cooldown and quota_exhausted:
// the protocol knows one word for all. quota_reset is when the cooldown or the
// circuit ends, and is left out when nobody knows. A stream that the run did not
// get to has no status. An ESTIMATE follows once no page does: a list has all
// its rows then, and the details that are still owed are counted as the ones
// before.
//
// A Sink is safe for concurrent use, in that events may come at any time.
// Memory is the records of one Write and 64 KiB.
//
// Stability: settling.
package airbyte
