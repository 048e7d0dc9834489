// Package singer writes records as a Singer tap does: SCHEMA, RECORD and STATE messages,
// one per line, for any Singer target. [New] returns the [collect.Sink]:
//
//	sink := singer.New(os.Stdout)
//
// Nothing but messages may go to that writer; progress and logs go to standard
// error. A program that writes to its standard output should also ignore SIGPIPE
// (signal.Ignore), so that the end of the target is an error of the run instead of the
// end of the process.
//
// Use it if a Singer target for the destination exists. For files or a database of your
// own the other sinks are safer, since they can check what was written.
//
// # Guarantees
//
// A slice counts as written once all of it is in the pipe. If a write fails, the run
// fails and nothing of the slice is committed. STATE is written only after the store's
// commit ([collect.Informed]), so it is never ahead of the records and never goes back
// within a run. A slice that was written but not committed comes again: records are
// delivered at least once, and the target removes duplicates by key_properties.
//
// Records that a target has read but not stored when it dies are lost if the run has
// committed them. Only `headway collect --fresh` delivers them again.
//
// # State
//
// The value of STATE counts each stream's records since the first run:
//
//	{"bookmarks":{"messages":{"position":1234}}}
//
// It shows progress to people and orchestrators. Headway never reads it back: its
// position is in its own state. Each run begins by repeating the last STATE, in case the
// process died before writing it. After a fresh start the count begins at 0.
//
// # Schemas
//
// A stream's schema is learned from its records, and written again before the
// first record that does not fit. It only widens:
//
//	null -> boolean, integer, number, array or object; integer -> number; anything else that differs -> string
//
// If a field has values of several types, a value that is not a string is written as the
// text of its JSON, so that each record fits the last schema. Integers beyond 64 bits and
// numbers beyond a double are written as text too, since a target would round them. A
// field that was always null is not in the schema until it has a type.
//
// A nested object with more than 256 properties, or more than 8 levels deep, is described
// as an object of any content; so are the deepest objects once the names of a stream take
// more than 64 KiB. Their values are written unchanged. Records with more than 1000 fields
// are an error. The schema is part of the committed position, so that the next run begins
// with it.
//
// # Keys
//
// key_properties is the field that holds the key, a string or a number, or _headway_key,
// which is then added to each record. For details it begins with _headway_parent, the key
// of the item to which they belong. A record that is not an object is written as the
// property _headway_value.
//
// A Sink is not safe for concurrent use, and reads no clock. It needs memory for the
// records of one Write, the schemas, and 64 KiB.
//
// Stability: settling.
package singer
