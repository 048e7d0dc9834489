package control

import (
	"time"

	"github.com/headway-go/headway/reason"
)

// Parallelism is the law of how many attempts may be under way at once on one
// connection: additive increase while batches succeed, multiplicative decrease
// on a throttle, never above what the server recommends. It remembers the last
// level known to be good and comes back to it quickly, then probes in small
// steps.
//
// Three things keep it from what such laws are known to do wrong. Throttles of
// attempts that were sent before the last decrease are one and the same signal
// and do not decrease again. A server's lower recommendation is obeyed at once.
// And where the server also budgets execution time, the level is bounded so
// that the time spent fits the budget, although nothing is throttled yet.
//
// It says nothing of Retry-After beyond not taking the wait for idleness: whoever
// sends holds the gate. Like all laws it is a plain value, not safe for
// concurrent use; its verbs take constant time and do not allocate. Instants are
// those of the caller; time that runs backwards never raises the level.
type Parallelism struct {
	params *ParallelismParams

	current, max int
	recommended  bool // max is what the server asked for
	lastGood     int
	successes    int
	throttles    int64
	decreases    int64

	lastGoodAt, lastIncrease, lastDecrease, lastThrottle, lastActivity time.Duration

	// took and busy are the means of a batch's time as the client and as the
	// server sees it; budget per window is what the server allows of the latter.
	took, busy, budget, window time.Duration
}

// NewParallelism starts a law at now. The parameters must have been resolved and
// are shared: many connections may point to the same ones.
func NewParallelism(p *ParallelismParams, now time.Duration) Parallelism {
	l := Parallelism{params: p, max: p.Max, budget: p.BusyBudget, window: p.BusyWindow, lastActivity: now}
	l.Reset(now)
	return l
}

// Level is how many attempts may be under way now. inFlight is how many are: a
// law that has been without any for longer than IdleReset starts afresh here.
func (l *Parallelism) Level(now time.Duration, inFlight int) int {
	// Compare before the touch: the other way round the law is never idle.
	if inFlight <= 0 && now-l.lastActivity > l.params.IdleReset {
		l.Reset(now)
	}
	l.touch(now)
	return l.level()
}

// Success records an attempt that was sent at sent and served at now. busy is
// how long the server says that it worked on it; 0 when it does not say, and all
// of the time counts. grew says that the level rose.
func (l *Parallelism) Success(sent, now, busy time.Duration) (grew bool) {
	l.touch(now)
	took := max(now-sent, 1)
	if busy <= 0 {
		busy = took
	}
	l.took, l.busy = meanBatch(l.took, took), meanBatch(l.busy, busy)
	l.refresh(now)
	if l.stale(sent) {
		return false // it was sent at the level before, and says nothing of this one
	}
	l.successes++
	if l.params.Disabled || l.successes < l.params.StabilizationBatches || now-l.lastIncrease < l.params.MinIncreaseInterval {
		return false
	}
	before := l.level()
	if l.current < l.lastGood {
		l.current = min(l.current+l.params.Increase*l.params.RecoveryMultiplier, l.lastGood)
	} else {
		l.current += l.params.Increase
	}
	l.current = min(l.current, max(l.ceiling(), before))
	l.successes, l.lastIncrease = 0, max(now, l.lastIncrease)
	return l.level() > before
}

// Throttle records an attempt that was sent at sent and refused for rate or
// load at now. wait is how long the server asks to wait; 0 when it named none. fresh
// says that it is the first of its epoch, so that it lowered the level (where
// that is possible); the others are counted and change nothing.
func (l *Parallelism) Throttle(sent, now, wait time.Duration) (fresh bool) {
	l.throttles++
	l.lastThrottle = max(now, l.lastThrottle)
	// Waiting as asked is not idleness, or a long wait would be rewarded.
	l.touch(now + max(wait, 0))
	if l.stale(sent) {
		return false
	}
	l.decreases++
	l.successes, l.lastDecrease = 0, max(now, l.lastDecrease)
	if l.params.Disabled {
		return true
	}
	from := l.level()
	l.lastGood, l.lastGoodAt = max(from-l.params.Increase, l.least()), now
	l.current = max(int(float64(from)*l.params.DecreaseFactor), l.least())
	return true
}

// Recommend sets how many attempts in flight the server recommends. Less than
// before takes effect at once; more is grown into. What is not a recommendation
// (below 1) is ignored, and what is above the owner's ceiling is cut to it.
func (l *Parallelism) Recommend(n int) {
	if n < 1 {
		return
	}
	l.max, l.recommended = min(n, l.params.Ceiling), n < l.params.Ceiling
	l.current = max(min(l.current, l.max), l.least())
	l.lastGood = max(min(l.lastGood, l.max), l.least())
}

// Budget sets how much execution time the server allows in each window, as
// learned from what it says. Figures that are not positive are ignored.
func (l *Parallelism) Budget(busy, window time.Duration) {
	if busy > 0 && window > 0 {
		l.budget, l.window = busy, window
	}
}

// Reset starts afresh, with what the server recommends and allows, and the
// totals, as they are.
func (l *Parallelism) Reset(now time.Duration) {
	l.current = max(int(float64(l.max)*l.params.InitialFactor), l.least())
	l.lastGood, l.lastGoodAt = l.current, now
	l.successes, l.lastIncrease = 0, max(now, l.lastIncrease)
	l.touch(now)
}

// ParallelismStatistics is what a law has to show.
type ParallelismStatistics struct {
	// Current is the level, Max what the server recommends.
	Current, Max int
	// Ceiling is the level that the budget of execution time allows; Max when
	// there is no budget or it allows more.
	Ceiling int
	// LastKnownGood is the level to recover to; Stale says that it is too old.
	LastKnownGood int
	Stale         bool
	// SuccessesSinceThrottle counts towards the next step.
	SuccessesSinceThrottle int
	// TotalThrottles counts all, also those of one epoch; TotalDecreases the epochs.
	TotalThrottles, TotalDecreases int64
	// The last of each; LastThrottle means nothing while TotalThrottles is 0.
	LastThrottle, LastIncrease, LastActivity time.Duration
}

// Statistics is what the law has to show at now. It changes nothing.
func (l *Parallelism) Statistics(now time.Duration) ParallelismStatistics {
	return ParallelismStatistics{
		Current: l.level(), Max: l.max, Ceiling: l.ceiling(),
		LastKnownGood: l.lastGood, Stale: l.old(now),
		SuccessesSinceThrottle: l.successes, TotalThrottles: l.throttles, TotalDecreases: l.decreases,
		LastThrottle: l.lastThrottle, LastIncrease: l.lastIncrease, LastActivity: l.lastActivity,
	}
}

func (l *Parallelism) level() int {
	if l.params.Disabled {
		return l.max
	}
	return max(min(l.current, l.ceiling()), l.least())
}

// ceiling is the level at which the execution time that is spent fits the
// budget: each place is busy for busy out of every took. It is drawn from single
// batches and not from the level, so it does not follow the level down.
func (l *Parallelism) ceiling() int {
	if l.budget == 0 {
		return l.max
	}
	share := 1.0 // until a batch reports it, all of its time counts
	if l.busy > 0 {
		share = float64(l.took) / float64(l.busy)
	}
	fits := float64(l.budget) / float64(l.window) * share
	if fits >= float64(l.max) {
		return l.max
	}
	return max(int(fits+1e-6), l.least()) // a mean is off by some nanoseconds
}

// least is the lower bound: a server that recommends less than the owner's is
// obeyed.
func (l *Parallelism) least() int { return min(l.params.Min, l.max) }

// Bound is what keeps the level from being higher: the owner's bound, what the
// server recommends or the execution time that it allows, or the law itself.
func (l *Parallelism) Bound() reason.Bound {
	switch {
	case l.level() < l.ceiling():
		return reason.BoundParallelism
	case l.ceiling() < l.max, l.recommended:
		return reason.BoundLimit
	}
	return reason.BoundCeiling
}

// stale reports whether an attempt was sent before the last decrease.
func (l *Parallelism) stale(sent time.Duration) bool {
	return l.decreases > 0 && sent <= l.lastDecrease
}

func (l *Parallelism) old(now time.Duration) bool {
	return now-l.lastGoodAt > l.params.LastKnownGoodTTL
}

// refresh replaces a last known good level that is too old by the current one.
func (l *Parallelism) refresh(now time.Duration) {
	if l.old(now) {
		l.lastGood, l.lastGoodAt = l.level(), now
	}
}

func (l *Parallelism) touch(now time.Duration) { l.lastActivity = max(l.lastActivity, now) }

// meanBatch moves an average by an eighth; the first value stands for itself.
func meanBatch(old, value time.Duration) time.Duration {
	if old == 0 {
		return value
	}
	return old + (value-old)/8
}
