// Package population draws providers at random and runs a law on them, so that a
// law is judged by what it meets and not by scenarios that it has learned by heart.
//
// [Draw] makes one member, [Run] a population and its [Report]. Tune on one seed
// and report on others: the figures of a seed that was tuned on say nothing.
//
// # What is drawn
//
// A member is drawn for a [Family], which decides what it has for certain; each
// trouble of the other families comes with a chance of 4 %. All members draw their
// sizes alike: what the tightest limit sustains is log-uniform from 6 a minute to
// 100 a second, a window from 1 s to a day (every other one a round number, and none
// that holds more than 20,000 attempts), a burst is 1 to 5 times what the rate gives
// in a second, concurrency is 1 to 60. A median latency is 5 ms to 2 s, with a 99th
// percentile of 1.2 to 10 times that. A slow-down that is alone begins at 30 a second at
// most; a limit that strangers use holds ten attempts at least, so that not all of it is
// chance. Throttles are 429, 503 or 403, with a Retry-After
// in seconds, ms, as a date, exact, wrong, of another unit or none, and with limit
// headers or none. The owner's ceiling is above the limit nine times in ten.
//
// The family [Pools] is drawn only on request, and takes no turn with the others: two to
// five pools, each with a limit of its own, and in every other member one of the
// account. What the limits of such a member sustain is that of all pools together.
//
// # The horizon
//
// A member lasts an hour, or four of its longest windows, or the time for 3000
// attempts at the rate that its tightest limit sustains, whichever is longest; pauses
// come on top. So the slowest limits are seen long enough, and no member has more than
// some 360,000 admissions.
//
// # The bound
//
// Beside a law stands the informed client of sim.Player.Informed, which knows everything
// of a member but the sizes of its limits, and has the best of twelve margins in
// hindsight. What a law lacks compared with it, the law could still win; what it lacks
// itself compared with 1 is the price of chance: arrivals that jitter, strangers that
// nobody sees. It is a client that can be built, not an upper bound: in a few members a
// law may be ahead of it.
//
// # Reproduction
//
// A member is what its scenario file says: [Member.File] written out and run alone,
// with the seed that its comment names, gives the same result. The same seed gives the
// same bytes, whatever runs side by side.
//
// Do not use it to learn how a law fares with one provider: write a scenario.
package population
