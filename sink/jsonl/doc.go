// Package jsonl writes records as JSON lines: the default [collect.Sink], one
// file a stream, which anything can read.
//
// Use it to collect into plain files of one folder. A record is appended as it
// was collected: an item that changed stands there twice, the later line being
// the newer. For one row a key use a sink that is a database.
//
// A record of a detail that the provider no longer lists is followed by a tombstone
// in the same file, from which a reader knows that it is gone:
//
//	{"_headway_deleted_at":"2026-01-02T03:04:05Z","_headway_parent":"c1","_headway_key":"m7"}
//
// with the instant at which that was noticed, the key of the item that the detail
// belongs to, and the record's own. A line of the record after it says that it is
// back. Records that an earlier version collected, before keys were remembered, get
// none: the run's children_gone counts them.
//
// # Position
//
// The committed position is the length of each file:
//
//	{"files":{"conversations.jsonl":{"length":1234,"tail":"8f14e45fceea167a"}}}
//
// with a digest of the last 64 bytes of them. [Sink.Open] cuts each file back to
// its committed length, so what a killed run had written of its last slice is gone
// and comes again with the replay. A file that is shorter than committed, or that
// does not have its tail where it should, is an error, and nothing is cut. A file
// with bytes that has no committed length was written by somebody else: it is
// never touched, and writing to its stream is an error.
//
// # Rotation
//
// A file that is missing or empty was moved away, by logrotate or by hand. The
// stream goes on in a new file, and [Sink.Noticed] says so. Move files between
// runs, or during one: a run keeps writing to the file that it has, under its new
// name. Copying a file and truncating it during a run loses what was written in
// between.
//
// # The first slice of a stream
//
// A new file has bytes before its length can have been committed. So that such
// a file is not taken for somebody else's after a crash, an empty marker is
// put beside it:
//
//	stateDiagram-v2
//	    [*] --> new: .NAME.jsonl.new is on disk, then NAME.jsonl is created
//	    new --> [*]: Open finds it. No position was ever given out, the file is emptied
//	    new --> synced: Sync has the file on disk, the marker becomes .NAME.jsonl.synced
//	    synced --> committed: the next Write or Sync, or an Open whose position has the file
//	    synced --> aside: Write, after an Open whose position lacks the file
//	    committed --> [*]: the marker is removed
//
// A position was given out for a file that is synced, but whether the store
// committed it only the store can tell. If it did not, the file is one slice
// that comes again; if the store was lost since, the file is all there is. So
// it is not deleted but renamed to NAME.jsonl.uncommitted (then
// .uncommitted.2, and so on), which is free to be removed.
//
// # Limits
//
// One [Sink] at a time writes to a folder: a lock on .headway.lock sees to it,
// also between processes, and ends with the process. Memory is one buffer of
// 64 KiB a stream. Files are readable by their owner only. A Sink is not safe
// for concurrent use. It reads no clock.
//
// Stability: settling.
package jsonl
