// Package pipe is what the sinks share that hand records to another program as
// lines of JSON: a [Writer] that never leaves half a message behind, and what a
// record becomes on the way, an object that holds its own key ([Stream]).
//
// It is not for files that have to be cut back to a committed length; that is
// package jsonl. Nothing here is safe for concurrent use or reads a clock.
package pipe
