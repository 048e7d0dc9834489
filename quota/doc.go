// Package quota is a governor for calls and tokens: it answers whether a call
// that costs this much may be made now for this model, tenant and agent, and if
// not, why and when to come back. It reserves an estimate, settles it with what
// was really used, and gives back what was canceled or forgotten.
//
// Scopes form a tree, global > tenant > agent, crossed with the model. An
// approval passes all its scopes or takes from none of them. Each scope may have
// call and token buckets, a soft rolling window of tokens and a hard cap a day,
// and stands in one of four states:
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
// The state tells of pressure; the numbers decide. What fits into every budget
// is approved in any state, so that a refund is worth something at once. A scope
// is soft above 0.8 of its window, or earlier when it is heading for the end of
// a budget, and normal again at 0.7. A refusal for an empty bucket begins an
// episode of throttle; it ends when the bucket holds what was refused and one
// call (or a tenth of the token bucket) to spare. What holds requests back beside the
// budgets, such as a provider that asked to be left alone, is such an episode of the
// global scope; it is reported, and decides nothing here.
//
// Memory is bounded: by MaxTenants tenants and MaxAgents agents of each, by
// MaxWaiting waiters and by the event buffer; open permits are bounded by what
// the budgets admit within the permit's time to live. A tenant or agent whose
// budgets are full again and who holds no permit is idle and makes room for a
// newcomer; when nobody is idle, newcomers share one scope named "*" with the
// default limits, so that inventing names never gains budget.
//
// It does not wait, send or count tokens, and knows no provider: model names are
// opaque and what counts as a token is a [Charge] rule. For the pace of one
// connection use package pace.
//
// A [Governor] is a state machine for one owner; not safe for concurrent use:
// its owner holds a lock. Approve and RecordUsage take time that grows with the
// number of scopes on the path (two to six) and do not allocate. Instants are
// durations since the origin, whose wall-clock instant is given once to [New];
// an instant before the latest one seen counts as that one. Arithmetic that
// decides is in integers, so that the same calls at the same instants make the
// same moves on every machine; [Governor.LogHash] proves it.
//
// Stability: stable.
package quota
