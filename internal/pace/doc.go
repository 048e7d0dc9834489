// Package pace answers one question: may an attempt be sent at this instant,
// and if not, when? It is the generic cell rate algorithm (GCRA) in its
// virtual-scheduling form, with a floor under the distance between any two
// attempts.
//
// It does not decide how fast to go (package control does), does not wait, and
// knows nothing of responses. Use golang.org/x/time/rate when the rate is known
// and never changes.
//
// A [GCRA] is a plain value of a few words; it is not safe for concurrent use:
// its owner holds a lock around it. Both verbs take constant time and do not
// allocate. Instants are durations since an origin that the caller fixes;
// arithmetic is in integer nanoseconds.
//
// Source: ITU-T Recommendation I.371, annex A (GCRA, virtual scheduling).
package pace
