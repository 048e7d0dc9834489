package pacing

import (
	"slices"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// Interval is the current interval.
func (l *Pool) Interval() time.Duration { return l.law.Interval() }

// Belief is what the law holds the limit to be.
func (l *Pool) Belief() control.Belief { return l.law.Belief() }

// Name is the pool's name; empty for the account.
func (l *Pool) Name() string { return l.name }

// Learned is what a warm start needs.
func (l *Pool) Learned() control.State { return l.law.State() }

// Restore starts from what was learned before, clamped to the ceiling and the
// initial interval. Call it before the first attempt; an unreadable state is an
// error and changes nothing. It is paced from the first attempt then, whatever the start.
func (l *Pool) Restore(s control.State) error {
	if err := l.law.Restore(s); err != nil {
		return err
	}
	l.objected = true
	return nil
}

// Law is the control law's name.
func (l *Pool) Law() string { return l.law.Name() }

// Ceiling is the shortest interval that is ever allowed.
func (l *Pool) Ceiling() time.Duration { return l.set.params.Ceiling }

// Known reports whether anything is known of the rate: a response has come back, and
// the start was not passive or the provider has objected.
func (l *Pool) Known() bool { return l.answered && !l.free() }

// LastBackoff is the last time that the rate was cut.
func (l *Pool) LastBackoff() Backoff { return l.backoff }

// Circuit is the breaker's state; ok is false without one.
func (l *Pool) Circuit() (state breaker.State, ok bool) {
	return l.circuit.State(), !l.set.noBreaker
}

// ResumesAt is when a cooldown or an open circuit ends, whichever is later.
func (l *Pool) ResumesAt() time.Duration {
	return max(l.cooldown, l.circuit.ReadyAt(&l.set.breaker))
}

// Pressure is what of the provider made the wait that a decision stands for so long;
// none where it had no part in it.
func (c *Core) Pressure(d Decision) reason.Reason {
	l := c.poolOf(d.Pool)
	switch d.Reason {
	case reason.Cooldown:
		return l.cooldownWhy.Reason()
	case reason.Pacing:
		if l.backoff.Reason != reason.None {
			return l.backoff.Reason
		}
		return l.pushed.Reason()
	default:
		return reason.None
	}
}

// Burst is how many attempts may go at once when nothing was sent for long, as far as
// is known, and after how long that is so again.
func (l *Pool) Burst() (attempts float64, after time.Duration) {
	p := l.params()
	attempts, after = float64(p.Tolerance)/float64(max(p.Interval, 1)), p.Tolerance
	if b := l.law.Belief(); b.Window > 0 {
		attempts, after = max(attempts, b.Limit), max(after, b.Window)
	}
	return attempts, after
}

// Limits appends what is known of the provider's limits: those that the law found,
// and those that responses advertised.
func (l *Pool) Limits(to []control.Limit) []control.Limit {
	if law, ok := l.law.(control.Limiter); ok {
		to = law.Limits(to)
	} else if b := l.law.Belief(); b.Kind != control.Unknown {
		to = append(to, control.Limit{Kind: b.Kind, PerCost: b.Kind == control.CostWindow, Size: b.Limit, Window: b.Window, Confidence: b.Confidence})
	}
	for _, f := range l.heard {
		limit := control.Limit{
			Advertised: true, Name: f.Name, Kind: control.FixedWindow, PerCost: f.PerCost,
			Size: max(0, f.Quota), Window: max(0, f.Window), Confidence: 1,
		}
		switch {
		case f.InFlight:
			limit.Kind, limit.Window = control.Concurrency, 0
		case f.Refills:
			limit.Kind = control.TokenBucket
		}
		known := func(k control.Limit) bool {
			return k.Advertised && k.Name == limit.Name && k.PerCost == limit.PerCost && (k.Kind == control.Concurrency) == f.InFlight
		}
		if !slices.ContainsFunc(to, known) {
			to = append(to, limit)
		}
	}
	return to
}
