package population

import (
	"fmt"
	"math"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
)

// limits draws one to three limits, and sets the rate that they sustain.
func (g *generator) limits() {
	if g.family == Pools {
		g.pools()
		return
	}
	g.rate = g.log(minRate, maxRate)
	kind := pick(&g.dice,
		odds[scenario.Kind]{30, scenario.TokenBucket}, odds[scenario.Kind]{25, scenario.FixedWindow},
		odds[scenario.Kind]{20, scenario.SlidingWindow}, odds[scenario.Kind]{10, scenario.Concurrency},
		odds[scenario.Kind]{10, scenario.CostWindow}, odds[scenario.Kind]{5, scenario.BusyTime},
	)
	switch g.family {
	case Bucket, BurstOne:
		kind = scenario.TokenBucket
	case FixedWindow:
		kind = scenario.FixedWindow
	case SlidingWindow:
		kind = scenario.SlidingWindow
	case Concurrency:
		kind = scenario.Concurrency
	case Cost:
		kind = scenario.CostWindow
	case BusyTime:
		kind = scenario.BusyTime
	case SlowDown:
		kind = scenario.Slowdown
	case Ban, FixedBlock, Changes, ClientsApart, SeveralLimits, OpenArrivals, Outage, Strangers, Pools, Fleet:
	}
	if g.family == SlowDown {
		g.rate = min(maxKnee, g.rate)
	}
	g.add(kind, g.rate)
	more := 0
	if several := g.has(SeveralLimits); several {
		more = 1
		if g.chance(0.35) {
			more = 2
		}
	}
	if g.family == SlowDown && g.chance(0.5) {
		more = max(more, 1)
	}
	first := g.rate
	for range more {
		g.add(g.another(), first*g.log(0.5, 1.5))
	}
}

// pools draws two to five pools, each with a limit of its own, and for every other member a
// limit of the account that allows somewhat less, or more, than all of them together.
func (g *generator) pools() {
	n, sum := g.whole(2, 5), 0.0
	for i := range n {
		kind := pick(&g.dice, odds[scenario.Kind]{40, scenario.TokenBucket}, odds[scenario.Kind]{30, scenario.FixedWindow}, odds[scenario.Kind]{30, scenario.SlidingWindow})
		g.s.Provider.Limits = nil
		g.add(kind, g.log(minRate, maxRate/5))
		sum += g.rate
		g.s.Provider.Pools = append(g.s.Provider.Pools, scenario.Pool{
			Name: fmt.Sprintf("m%d", i+1), Share: digits(g.log(1, 10), 2), Limits: g.s.Provider.Limits,
		})
	}
	g.s.Provider.Limits = nil
	whole := g.chance(0.5)
	if of := sum * g.log(0.5, 2); whole {
		g.add(pick(&g.dice, odds[scenario.Kind]{1, scenario.TokenBucket}, odds[scenario.Kind]{1, scenario.SlidingWindow}), of)
	}
	if len(g.s.Provider.Limits) == 0 || g.rate > sum {
		g.rate = sum
	}
}

// another returns a kind that the member does not have yet.
func (g *generator) another() scenario.Kind {
	for {
		kind := pick(&g.dice,
			odds[scenario.Kind]{20, scenario.TokenBucket}, odds[scenario.Kind]{25, scenario.FixedWindow},
			odds[scenario.Kind]{25, scenario.SlidingWindow}, odds[scenario.Kind]{15, scenario.Concurrency},
			odds[scenario.Kind]{15, scenario.CostWindow},
		)
		taken := false
		for _, l := range g.s.Provider.Limits {
			taken = taken || l.Kind == kind
		}
		if !taken {
			return kind
		}
	}
}

// add adds a limit that sustains a rate, as closely as whole numbers allow.
func (g *generator) add(kind scenario.Kind, sustained float64) {
	l := scenario.Limit{Kind: kind}
	switch kind {
	case scenario.TokenBucket:
		l.Rate, l.Burst = rate(sustained), g.burst(sustained)
		sustained = l.Rate.PerSecond()
	case scenario.FixedWindow:
		l.Window = g.window(sustained, float64(g.fewest(3)))
		l.Count = count(sustained, l.Window)
		l.Align = pick(&g.dice, odds[scenario.Align]{1, scenario.AlignEpoch}, odds[scenario.Align]{1, scenario.AlignFirst})
		sustained = float64(l.Count) / l.Window.Seconds()
	case scenario.SlidingWindow:
		l.Window = g.window(sustained, float64(g.fewest(3)))
		l.Count = count(sustained, l.Window)
		sustained = float64(l.Count) / l.Window.Seconds()
	case scenario.Concurrency:
		l.Count, sustained = g.places(sustained)
	case scenario.CostWindow:
		c := &g.s.Workload.Cost
		c.Mean, c.Spread = digits(g.log(1, 5000), 3), digits(g.between(0.2, 1), 2)
		l.Window = g.window(sustained, 10)
		l.Units = digits(sustained*l.Window.Seconds()*c.Mean, 3)
		sustained = l.Units / c.Mean / l.Window.Seconds()
	case scenario.BusyTime:
		l.Window = g.window(sustained, 10)
		l.Busy = max(time.Millisecond, span(sustained*l.Window.Seconds()*g.served()))
		sustained = l.Busy.Seconds() / g.served() / l.Window.Seconds()
	case scenario.Slowdown:
		sustained = max(1, sustained)
		l.Knee, l.Factor = rate(sustained), digits(g.between(2, 6), 2)
	}
	g.s.Provider.Limits = append(g.s.Provider.Limits, l)
	if len(g.s.Provider.Limits) == 1 {
		g.rate = sustained
	}
	g.rate = min(g.rate, sustained)
}

// fewest returns the minimum number of attempts that a limit holds, which is larger for a
// shared one.
func (g *generator) fewest(alone int) int {
	if g.shared {
		return max(alone, minShared)
	}
	return alone
}

// burst returns one to five times the attempts of a second, or of a minute if the rate is
// below one a second; 1 in the family burst-1.
func (g *generator) burst(sustained float64) int {
	unit := 1.0
	if sustained < 1 {
		unit = 60
	}
	burst := max(g.fewest(2), int(math.Round(g.between(1, 5)*sustained*unit)))
	if g.family == BurstOne {
		return 1
	}
	return burst
}

// places returns a concurrency limit and the rate that it sustains. The first limit of a
// member draws its own size and a suitable latency; a later one depends on the rate.
func (g *generator) places(sustained float64) (int, float64) {
	if len(g.s.Provider.Limits) > 0 {
		n := min(maxPlaces, max(1, int(math.Round(sustained*g.served()))))
		n = max(n, g.s.Clients, g.fewest(1))
		return n, float64(n) / g.served()
	}
	n := max(int(math.Round(g.log(1, maxPlaces))), g.s.Clients, g.fewest(1))
	g.latency(max(minLatency, time.Duration(2*float64(n)/maxRate*float64(time.Second)))) // latency is not work
	return n, float64(n) / g.served()
}

// round are common windows of providers.
var round = []time.Duration{
	time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
	time.Hour, 3 * time.Hour, 24 * time.Hour,
}

// window returns a log-uniform window between a second and a day that holds at least least
// and at most maxHeld attempts; every other one is round.
func (g *generator) window(sustained, least float64) time.Duration {
	low := max(minWindow.Seconds(), least/sustained)
	high := max(low, min(maxWindow.Seconds(), maxHeld/sustained))
	w := g.log(low, high)
	if g.chance(0.5) {
		near, distance := 0.0, math.Inf(1)
		for _, r := range round {
			if d := math.Abs(math.Log(r.Seconds() / w)); d < distance && r.Seconds() >= low && r.Seconds() <= high {
				near, distance = r.Seconds(), d
			}
		}
		if near > 0 {
			return span(near)
		}
	}
	return span(w)
}

// count returns how many attempts a window holds, at least 2.
func count(sustained float64, window time.Duration) int {
	return max(2, int(math.Round(sustained*window.Seconds())))
}

// Family is the property that a member has for certain. Its other properties are random: a
// bucket may have a second limit, and strangers may meet an outage.
type Family string

// The families, in the order of the report.
const (
	Ban           Family = "ban"            // a penalty that further calls lengthen
	FixedBlock    Family = "fixed-block"    // a penalty of fixed length
	Bucket        Family = "bucket"         // a token bucket with a burst
	BurstOne      Family = "burst-1"        // a token bucket without a burst
	BusyTime      Family = "busy-time"      // execution time in a window
	Changes       Family = "changes"        // limits that are halved, doubled or drift
	ClientsApart  Family = "clients-apart"  // separate clients
	Concurrency   Family = "concurrency"    // attempts in flight
	Cost          Family = "cost"           // units of cost in a window
	FixedWindow   Family = "fixed-window"   // attempts in a fixed window
	SeveralLimits Family = "several-limits" // two or three at once
	OpenArrivals  Family = "open-arrivals"  // work that arrives by itself
	Outage        Family = "outage"         // a provider that is unavailable for a while
	SlidingWindow Family = "sliding-window" // attempts in a sliding window
	SlowDown      Family = "slow-down"      // latency that grows above a rate
	Strangers     Family = "strangers"      // unseen users of the same limit
	Pools         Family = "pools"          // parts of the account with limits of their own
	Fleet         Family = "fleet"          // processes that share what they learn through a server
)

// Families returns all families, in the order of the report.
func Families() []Family { return append(Mixed(), Pools, Fleet) }

// Mixed returns the families of a mixed population. The others are drawn only on request,
// so that adding them does not change the members of a seed.
func Mixed() []Family {
	return []Family{
		Ban, FixedBlock, Bucket, BurstOne, BusyTime, Changes, ClientsApart, Concurrency,
		Cost, FixedWindow, SeveralLimits, OpenArrivals, Outage, SlidingWindow, SlowDown, Strangers,
	}
}
