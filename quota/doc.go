// Package quota is a governor for calls and tokens: it decides whether a call of a given
// cost may be made now for a model, tenant and agent, and if not, why and when to come
// back. It reserves an estimate, settles it with what was used, and releases the
// estimates of calls that were canceled or never settled.
//
// Scopes form a tree, global > tenant > agent, crossed with the model. A call takes from
// all its scopes or from none. Each scope may have call and token buckets, a soft rolling
// window of tokens and a hard daily cap, and is in one of four states:
//
//	stateDiagram-v2
//	    [*] --> normal
//	    normal --> soft: soft_reached
//	    soft --> normal: soft_relieved
//	    normal --> throttle: bucket_empty
//	    soft --> throttle: bucket_empty
//	    normal --> throttle: held_back
//	    soft --> throttle: held_back
//	    throttle --> normal: resume
//	    normal --> exhausted: cap_reached
//	    soft --> exhausted: cap_reached
//	    throttle --> exhausted: cap_reached
//	    exhausted --> normal: day_turned
//	    exhausted --> normal: cap_raised
//	    exhausted --> normal: room_made
//
// The state reports pressure; the numbers decide. A call that fits into every budget is
// approved in any state, so that a refund has effect at once. A scope is soft above 0.8
// of its window, or earlier if a budget is forecast to run out, and normal again at 0.7.
// A refusal for an empty bucket begins an episode of throttle; the episode ends when the
// bucket holds what was refused plus one call (or a tenth of the token bucket). If
// something besides the budgets holds requests back, such as a provider's Retry-After,
// that is an episode of the global scope too; it is reported and does not change
// decisions.
//
// Memory is bounded: by MaxTenants tenants and MaxAgents agents of each, by MaxWaiting
// waiters and by the event buffer; open permits are bounded by what the budgets admit
// within the permit's time to live. A tenant or agent whose budgets are full again and
// that has no permit is idle and may be evicted for a new one; if none is idle, new ones
// share a scope named "*" with the default limits, so that inventing names never gains
// budget.
//
// It does not wait, send or count tokens, and is independent of providers: model names
// are opaque, and a [Charge] rule says which tokens count. For the pace of one connection
// use package pace.
//
// A [Governor] is a state machine that is not safe for concurrent use: its owner holds a
// lock. Approve and RecordUsage take time proportional to the number of scopes on the
// path (two to six) and do not allocate. Instants are durations since the origin, whose
// wall-clock time is passed to [New]; an instant before the latest one seen counts as
// that one. Decisions use integer arithmetic only, so that the same calls at the same
// instants give the same moves on every machine, which [Governor.LogHash] shows.
//
// Stability: stable.
package quota
