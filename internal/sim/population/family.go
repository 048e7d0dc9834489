package population

// Family is what a member was drawn for. What else a member has is left to
// chance: a bucket may have a second limit, and strangers may meet an outage.
type Family string

// The families, in the order of the report.
const (
	Ban           Family = "ban"            // a penalty that calls lengthen
	FixedBlock    Family = "fixed-block"    // a penalty of one length
	Bucket        Family = "bucket"         // a token bucket with a burst
	BurstOne      Family = "burst-1"        // a token bucket without one
	BusyTime      Family = "busy-time"      // execution time in a window
	Changes       Family = "changes"        // limits that are halved, doubled or drift
	ClientsApart  Family = "clients-apart"  // clients that do not talk to each other
	Concurrency   Family = "concurrency"    // attempts under way
	Cost          Family = "cost"           // units of cost in a window
	FixedWindow   Family = "fixed-window"   // attempts in a window that begins again
	SeveralLimits Family = "several-limits" // two or three at once
	OpenArrivals  Family = "open-arrivals"  // work that arrives on its own
	Outage        Family = "outage"         // a provider that is away for a while
	SlidingWindow Family = "sliding-window" // attempts in any stretch of a length
	SlowDown      Family = "slow-down"      // latency that grows above a rate
	Strangers     Family = "strangers"      // unseen users of the same limit
)

// Families are all of them, in the order of the report.
func Families() []Family {
	return []Family{
		Ban, FixedBlock, Bucket, BurstOne, BusyTime, Changes, ClientsApart, Concurrency,
		Cost, FixedWindow, SeveralLimits, OpenArrivals, Outage, SlidingWindow, SlowDown, Strangers,
	}
}
