// Package control holds the laws: feedback rules that turn the outcomes of
// attempts into the interval of the next one.
//
// A law answers how fast; package pace answers when. A law never goes faster
// than the owner's ceiling, never speeds up on an error however quickly it
// came, and starts conservatively. Laws are registered by name ([New],
// [Names]); "aimd" is the baseline: additive decrease of the interval on
// success, multiplicative increase on a throttle. "cycle", the default, finds out what
// kind of limit it faces, holds just under it, and says what it believes.
//
// Laws are deterministic functions of what they were told, with instants
// passed in (durations since an origin that the caller fixes). They are not
// safe for concurrent use: the owner holds a lock. The verbs take
// constant time; they allocate when something is found out, not while it holds.
//
// Do not use a law for a limit that the provider declares exactly and that
// never changes: a fixed interval is simpler.
//
// Sources: D. Chiu, R. Jain, "Analysis of the increase and decrease algorithms
// for congestion avoidance in computer networks", 1989; RFC 5681.
//
// Stability: settling.
package control
