// Package jsonl is the default [collect.Sink]: it writes records as JSON lines, one
// file for each stream.
//
// Use it to collect into plain files in one folder. Records are appended: an item
// that changed has several lines, and the last one is the newest. For one row per key
// use a database sink.
//
// When the provider deletes a detail record, a tombstone is appended to the same file:
//
//	{"_headway_deleted_at":"2026-01-02T03:04:05Z","_headway_parent":"c1","_headway_key":"m7"}
//
// It holds the time at which the deletion was noticed, the key of the item to which the
// detail belongs, and the key of the record. If the record comes back, a line after the
// tombstone holds it. Records collected by an earlier version that did not store keys
// get no tombstone; the run's children_gone counts them.
//
// # Position
//
// The committed position is the length of each file:
//
//	{"files":{"conversations.jsonl":{"length":1234,"tail":"8f14e45fceea167a"}}}
//
// and a digest of the last 64 bytes. [Sink.Open] truncates each file to its committed
// length, so that the unfinished slice of a killed run is removed; the next run writes
// it again. A file that is shorter than committed, or has another tail, is an error,
// and nothing is truncated. A file without a committed length that is not empty belongs
// to another program: it is never changed, and writing to its stream is an error.
//
// # Rotation
//
// If a file is missing or empty, it was moved away, for example by logrotate. The stream
// continues in a new file, and [Sink.Noticed] reports it. Files may be moved between
// runs or during one: a run keeps writing to its open file under the new name. Copying
// and truncating a file during a run loses the records written in between.
//
// # The first slice of a stream
//
// A new file is written before its length can be committed. An empty marker beside it
// shows after a crash that the file is ours:
//
//	stateDiagram-v2
//	    [*] --> new: .NAME.jsonl.new is on disk, then NAME.jsonl is created
//	    new --> [*]: Open finds it. No position was returned for the file, so it is emptied
//	    new --> synced: Sync makes the file durable, the marker becomes .NAME.jsonl.synced
//	    synced --> committed: the next Write or Sync, or an Open whose position has the file
//	    synced --> aside: Write, after an Open whose position lacks the file
//	    committed --> [*]: the marker is removed
//
// For a synced file a position was returned, but only the store knows whether it was
// committed. If it was not, the file holds one slice that will be written again. If the
// store was lost, the file is the only copy. So it is not deleted but renamed to
// NAME.jsonl.uncommitted (then .uncommitted.2 and so on), which may be removed by hand.
//
// # Limits
//
// A lock on .headway.lock ensures that only one [Sink], in any process, writes to a
// folder; it ends with the process. A sink needs 64 KiB of memory for each stream. Files
// are readable by their owner only. A Sink is not safe for concurrent use. It reads no
// clock.
//
// Stability: settling.
package jsonl
