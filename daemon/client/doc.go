// Package client is the Go side of the daemon's HTTP interface: it asks
// a running daemon what "headway status", "rate", "runs", "gaps" and "top" show
// without one, and changes limits.
//
// To have calls approved from a program in this process, use package
// quota/governor; from other languages, the interface itself.
//
// A [Client] is safe for concurrent use. Every call ends with its context, and
// by itself after [Options].Timeout, but for a stream of events, which ends when
// nothing was heard for longer than the daemon's heartbeat. Answers are bounded;
// a redirect is not followed, so that the key goes nowhere else.
//
// Stability: settling.
package client
