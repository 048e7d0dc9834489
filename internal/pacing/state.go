package pacing

import (
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// Interval is the current interval.
func (c *Core) Interval() time.Duration { return c.law.Interval() }

// Belief is what the law holds the limit to be.
func (c *Core) Belief() control.Belief { return c.law.Belief() }

// InFlight counts attempts that were admitted and not settled.
func (c *Core) InFlight() int { return int(c.inFlight) }

// Learned is what a warm start needs.
func (c *Core) Learned() control.State { return c.law.State() }

// Restore starts from what was learned before, clamped to the ceiling and the
// initial interval. Call it before the first attempt; an unreadable state is an
// error and changes nothing.
func (c *Core) Restore(s control.State) error { return c.law.Restore(s) }

// Law is the control law's name.
func (c *Core) Law() string { return c.law.Name() }

// Ceiling is the shortest interval that is ever allowed.
func (c *Core) Ceiling() time.Duration { return c.set.params.Ceiling }

// Answered reports whether a response has come back at all: before, nothing is
// known of the rate.
func (c *Core) Answered() bool { return c.answered }

// LastBackoff is the last time that the rate was cut.
func (c *Core) LastBackoff() Backoff { return c.backoff }

// Circuit is the breaker's state; ok is false without one.
func (c *Core) Circuit() (state breaker.State, ok bool) {
	return c.circuit.State(), !c.set.noBreaker
}

// ResumesAt is when a cooldown or an open circuit ends, whichever is later.
func (c *Core) ResumesAt() time.Duration {
	return max(c.cooldown, c.circuit.ReadyAt(&c.set.breaker))
}

// Earliest is when an attempt that came now could go, as far as pacing and cooldown
// are concerned.
func (c *Core) Earliest(now time.Duration) Decision {
	d := c.earliest(now, c.params())
	d.Bound = c.bound(d.Reason, false)
	return d
}

// Pressure is what of the provider made a wait for cooldown or pacing so long; none
// where it had no part in it.
func (c *Core) Pressure(wait reason.Reason) reason.Reason {
	switch wait {
	case reason.Cooldown:
		return c.cooldownWhy.Reason()
	case reason.Pacing:
		if c.backoff.Reason != reason.None {
			return c.backoff.Reason
		}
		return c.pushed.Reason()
	default:
		return reason.None
	}
}

// Burst is how many attempts may go at once when nothing was sent for long, as far as
// is known, and after how long that is so again.
func (c *Core) Burst() (attempts float64, after time.Duration) {
	p := c.params()
	attempts, after = float64(p.Tolerance)/float64(max(p.Interval, 1)), p.Tolerance
	if b := c.law.Belief(); b.Window > 0 {
		attempts, after = max(attempts, b.Limit), max(after, b.Window)
	}
	return attempts, after
}
