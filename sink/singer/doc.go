// Package singer writes records as a Singer tap does: SCHEMA, RECORD and STATE
// messages, one a line, for any target of that ecosystem. [New] makes the
// [collect.Sink]; it wants the pipe's writing end and nothing else:
//
//	sink := singer.New(os.Stdout)
//
// Nothing but messages may go to that writer; progress and logs go to standard
// error. A program that writes to its standard output should also ignore
// SIGPIPE (signal.Ignore), so that a target that died is an error of the run
// and not the end of the process; neither loses anything.
//
// Use it where a target for the destination exists already. For files or a
// database of one's own the other sinks are safer: they can tell what is there.
//
// # What is promised
//
// A slice counts as written when all of it was handed to the pipe. A write that
// fails fails the run, and nothing of the slice is committed. STATE is written
// after the store's commit only ([collect.Informed]), so it is never ahead of
// the records, and never goes back within a run. A slice that was handed over
// but not committed comes again: records are delivered at least once, and
// key_properties make one row of them.
//
// What a target had read but not kept when it died is beyond a pipe's reach: if
// the run had committed it, only `headway collect --fresh` brings it again.
//
// # State
//
// The value counts each stream's records, from the first run on:
//
//	{"bookmarks":{"messages":{"position":1234}}}
//
// It is for people and for orchestrators that want to see progress. Headway
// reads it back from nobody: where a run goes on is in its own state. Each run
// begins by repeating the last one, in case the process died before it could
// write it; after a fresh start the count begins at 0.
//
// # Schemas
//
// A stream's schema is learned from its records, and written again before the
// first record that needs more. It only ever widens:
//
//	null -> boolean, integer, number, array or object; integer -> number; anything else that differs -> string
//
// Where other records had another type, a value is written as the text of its
// JSON, so that each record fits the schema before it. Integers beyond 64 bits
// and numbers beyond a double are text as well: a target would round them.
// A field that was only ever null stays out of the schema until it has a type.
//
// An object within a field that has more than 256 properties, or lies more than
// 8 levels deep, is an object of anything; so are the deepest ones once the
// names of a stream take more than 64 KiB. They pass as they are. Records of
// more than 1000 fields are an error. What was learned is in the committed
// position, so that the next run begins with the same schema.
//
// # Keys
//
// key_properties is the field that holds the key, a text or a number, or
// _headway_key, which is then added to each record. Details have
// _headway_parent before it, the key of the item that they belong to. A record
// that is not an object is put under _headway_value.
//
// A Sink is not safe for concurrent use, and reads no clock. Memory is the
// records of one Write and 64 KiB, beside what was learned.
//
// Stability: settling.
package singer
