// Package provider is a model of an API that limits its callers: given an
// attempt and its instant, is it admitted, and what does the answer say? The
// simulator asks it in virtual time, the served provider in real time, the
// arena through an in-memory transport; all get the same answers.
//
// # Time
//
// Instants are durations since the scenario's start and only go forward: an
// instant before the last one counts as the last one. Windows that are aligned
// to the epoch, HTTP dates and absolute reset headers need a wall clock at the
// start: [New] takes the Unix epoch itself, so that aligned windows begin with
// the scenario, and [NewAt] takes any other. Nothing here reads a clock.
//
// A window of length W is half open: what happened at t counts until just
// before t+W.
//
// # Order of decisions
//
// An attempt meets, in this order: suspension (403 for ever), an outage (503)
// or reset fault, neither of which touches a limit; then the block of a
// penalty; then all limits, each of which must admit. A refused attempt uses
// up nothing, unless the scenario counts rejected attempts: then every token
// bucket and window is charged for it, as far as there is something to take.
// Concurrency and busy time are never charged for a refusal, since no work was
// done.
//
// # Penalty
//
// The first refusal by a limit starts a block of the base length. An attempt
// during the block is refused, multiplies the block's length by the factor up
// to the maximum, and starts it again from that instant. A refusal by a limit
// after a block multiplies likewise, unless the time to forgive has passed
// since the block's end: then the length is the base again. During a block that is
// fixed attempts are refused and change nothing.
//
// # Suspension
//
// Every throttle counts, by a limit or by a block. The one that makes the
// number within the time is still answered as a throttle; everything after it
// is 403.
//
// # Charges
//
// A request costs one on buckets and counting windows, its cost on cost
// windows and its busy time on busy-time windows, both booked when it is
// admitted. A request larger than a whole cost or busy-time limit is charged
// the whole limit: it is admitted when the window is empty. A request is under
// way, for concurrency, from its admission until its busy time has passed; the
// model frees the slot itself. Slowness is waiting and not work: it lengthens
// how long a slot is held, and is not charged as busy time.
//
// # Changes
//
// A change multiplies every limit from its instant on, whether or not anybody
// calls: sizes and bursts are rounded to the nearest whole and are at least 1,
// intervals are rounded up to a nanosecond, knees are at least one a second.
// What has been used stays used; a bucket keeps its tokens, up to its new burst. A
// change that takes a time comes in steps.
//
// # Strangers
//
// Strangers are a Poisson stream drawn from the seed alone, so that it is the
// same whatever other clients do, with stretches and gaps of random length where the
// scenario has them come and go. Each costs the mean cost and is busy for the median
// latency. They share limits and faults, but not blocks and suspension, which
// fall on the credential.
//
// # Concurrency
//
// A [Model] and a [Sampler] are each for one goroutine at a time; callers that
// share one hold a mutex. Do not use this package to govern real traffic: it
// answers for the provider, not for the client.
package provider
