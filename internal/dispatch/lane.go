package dispatch

import (
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// A lane is the state of one identity.
type lane struct {
	law      control.Parallelism
	breaker  breaker.Breaker
	spent    spent
	gate     time.Duration // nothing is sent before
	inFlight int
	streak   int           // epochs throttled since the last success
	heard    bool          // whether an attempt has come back
	stopped  reason.Reason // None while it may be used
}

func newLane(p *Params, now time.Duration) lane {
	return lane{law: control.NewParallelism(&p.Law, now), spent: newSpent(p.Law.BusyBudget, p.Law.BusyWindow, now)}
}

// free is how many more attempts may be sent now, the next one with that many
// rows. Without one it says from when there may be, and why not now.
func (l *lane) free(now time.Duration, p *Params, rows int) (n int, from time.Duration, why reason.Reason) {
	switch {
	case l.stopped != reason.None:
		return 0, Never, l.stopped
	case l.gate > now:
		return 0, l.gate, reason.Cooldown
	case l.breaker.ReadyAt(&p.Breaker) > now:
		return 0, l.breaker.ReadyAt(&p.Breaker), reason.CircuitOpen.Reason()
	}
	n = l.law.Level(now, l.inFlight) - l.inFlight
	if p.Hinted && !l.heard {
		n = min(n, 1-l.inFlight)
	}
	if n <= 0 {
		return 0, Never, reason.Concurrency
	}
	if !p.Law.Disabled {
		if at := l.spent.free(now, l.spent.expect(rows)); at > now {
			return 0, at, reason.Pacing
		}
	}
	return n, 0, reason.None
}

// held is what keeps the lane from having more under way than it has places.
func (l *lane) held(p *Params) reason.Bound {
	if p.Hinted && !l.heard {
		return reason.BoundLearning
	}
	return l.law.Bound()
}

// Bound is what keeps more batches from being under way at once: of several
// identities the one that is nearest to having more.
func (c *Core) Bound() reason.Bound {
	by := reason.BoundUnknown
	for i := range c.lanes {
		if c.lanes[i].stopped != reason.None {
			continue
		}
		if next := c.lanes[i].held(c.params); rankOf(next) > rankOf(by) {
			by = next
		}
	}
	return by
}

// rankOf orders bounds by how soon they may give way.
func rankOf(b reason.Bound) int {
	switch b {
	case reason.BoundLearning:
		return 4
	case reason.BoundParallelism:
		return 3
	case reason.BoundLimit:
		return 2
	case reason.BoundCeiling:
		return 1
	default:
		return 0
	}
}

// Identity is the state of one identity, to show.
type Identity struct {
	// Law is its parallelism.
	Law control.ParallelismStatistics
	// InFlight is how many batches it has under way.
	InFlight int
	// Circuit is where its breaker stands; RetryAt is when it sends again, 0 for now.
	Circuit breaker.State
	RetryAt time.Duration
	// Stopped is why it is not used any more; None while it is.
	Stopped reason.Reason
}

// Identities are the states of all identities, in order. It changes nothing.
func (c *Core) Identities(now time.Duration) []Identity {
	all := make([]Identity, len(c.lanes))
	for i := range c.lanes {
		l := &c.lanes[i]
		all[i] = Identity{Law: l.law.Statistics(now), InFlight: l.inFlight, Circuit: l.breaker.State(), Stopped: l.stopped}
		if at := max(l.gate, l.breaker.ReadyAt(&c.params.Breaker)); at > now {
			all[i].RetryAt = at
		}
	}
	return all
}
