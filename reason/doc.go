// Package reason is Headway's shared vocabulary: the closed set of reasons
// that a decision can carry, the classes of outcome that an attempt can have,
// and [Refusal], the one error that says "not now" or "not at all".
//
// It answers "why?" in the same words everywhere: errors, events, logs,
// metrics, the store, the command line and the simulator. Pressure (the
// provider wants less) and Cap (the owner's own bound on a run) are types of
// their own, so that one can never be passed for the other.
//
// Do not add a reason for one caller's detail: put detail in the wrapped
// error. Everything here is an immutable value; safe for concurrent use, no
// allocation, constant time.
//
// Stability: stable.
package reason
