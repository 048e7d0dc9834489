// Package events merges what all connections and all quotas of a process tell
// into one numbered sequence. It answers "what happened since I last looked?"
// for readers that come and go: the newest events are kept within a bound, each
// has an id that a reader can come back with, and a reader that missed some is
// told so instead of being left to think that nothing happened.
//
// An id holds the epoch of the hub, random for each process, and a number that
// rises by one: "k3f9x2a1-123". So an id of an earlier process is known for what
// it is, and its reader gets all that is kept, with a mark that more was lost.
//
// It is not a log: what has to outlive the process belongs into a store. To keep
// the events of one connection in a library, use package event's Recorder.
//
// A [Hub] is safe for concurrent use. Adding takes a short lock, calls nothing
// and never waits for a reader: readers have no queue of their own, they read
// from the one ring at their own pace. The zero Hub is not ready; see [New].
package events
