// Package agent slows the decision loops of agents that share a quota: it
// answers when an agent should decide next and whether it should think smaller.
//
// A [Pacer] learns of quota events, wherever they come from: from a governor in
// the process, from a stream of events, from the headers of a response
// ([Pacer.Backoff]) or from a snapshot ([Pacer.Restate]). An agent's interval is
// its base times a factor. The factor rises at once and returns in steps, so
// that agents that were slowed together do not come back as one wave. A
// throttled agent cycles at most half as often until the resume.
//
// The interval is never shorter than the base. A quota's scale factor can be
// below 1 (0.85 of a soft budget is 0.85), but the base is how often the owner
// wants decisions: pressure is no reason for more of them.
//
// It does not decide whether a call may be made: that is package quota, and a
// call that is refused stays refused however slow the agent is. Do not use it
// to pace requests to a provider; that is the root package.
//
// A Pacer is pure and for one owner; its instants are durations since an origin
// of the caller's choice. A [Loop] is a Pacer with a lock and the real clock,
// safe for concurrent use; it starts no goroutine.
//
// Stability: settling.
package agent
