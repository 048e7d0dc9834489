package pacing

import (
	"math"
	"slices"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pace"
	"github.com/headway-go/headway/reason"
)

// Interval returns the current interval.
func (l *Pool) Interval() time.Duration { return l.law.Interval() }

// Belief returns the law's estimate of the limit.
func (l *Pool) Belief() control.Belief { return l.law.Belief() }

// RefusedForLoad returns the part of attempts that is refused for load whatever the pace; 0 while the law
// knows of no such refusals.
func (l *Pool) RefusedForLoad() float64 {
	if law, ok := l.law.(interface{ RefusedForLoad() float64 }); ok {
		return law.RefusedForLoad()
	}
	return 0
}

// Name returns the pool's name; empty for the account.
func (l *Pool) Name() string { return l.name }

// Learned returns the state that a warm start needs.
func (l *Pool) Learned() control.State { return l.law.State() }

// Restore starts from a state learned earlier, clamped to the ceiling and the initial
// interval. Call it before the first attempt; an unreadable state is an error and changes
// nothing. A restored pool is paced from its first attempt, even after a passive start.
func (l *Pool) Restore(s control.State) error { return l.start(l.law.Restore(s)) }

// Resume is Restore for a state that was in use until now, in another core: what is slower than
// the initial interval stays so.
func (l *Pool) Resume(s control.State) error { return l.start(resume(l.law, s)) }

// start paces a pool whose law has started from a state, unless that is an error.
func (l *Pool) start(err error) error {
	l.objected = l.objected || err == nil
	return err
}

// resume makes a law go on from the state of another one.
func resume(law control.Law, s control.State) error {
	if l, ok := law.(interface{ Resume(control.State) error }); ok {
		return l.Resume(s)
	}
	return law.Restore(s)
}

// Law returns the control law's name.
func (l *Pool) Law() string { return l.law.Name() }

// Ceiling returns the shortest interval that is allowed.
func (l *Pool) Ceiling() time.Duration { return l.set.params.Ceiling }

// Known reports whether anything is known about the rate: a response was received, and
// the start was not passive or the provider has objected.
func (l *Pool) Known() bool { return l.answered && !l.free() }

// LastBackoff returns the last reduction of the rate.
func (l *Pool) LastBackoff() Backoff { return l.backoff }

// Circuit returns the breaker's state; ok is false without a breaker.
func (l *Pool) Circuit() (state breaker.State, ok bool) {
	return l.circuit.State(), !l.set.noBreaker
}

// ResumesAt returns when a cooldown or an open circuit ends, whichever is later.
func (l *Pool) ResumesAt() time.Duration {
	return max(l.cooldown, l.circuit.ReadyAt(&l.set.breaker))
}

// Pressure returns the provider's pressure that lengthened the wait of a decision; none
// if there was none.
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

// Burst returns how many attempts may go at once after a long idle time, as far as is
// known, and how long it takes until that many may go again.
func (l *Pool) Burst() (attempts float64, after time.Duration) {
	p := l.params()
	attempts, after = float64(p.Tolerance)/float64(max(p.Interval, 1)), p.Tolerance
	if b := l.law.Belief(); b.Window > 0 {
		attempts, after = max(attempts, b.Limit), max(after, b.Window)
	}
	return attempts, after
}

// Spaced returns when the owner's ceiling allows the next attempt. Before the first attempt it
// is the smallest instant there is.
func (l *Pool) Spaced() time.Duration {
	return l.gcra.Next(pace.Params{Tolerance: math.MaxInt64, Ceiling: l.set.params.Ceiling})
}

// Uses appends how much of each of the pool's limits is in use, in the order of Limits.
// Those that it leaves out are unknown.
func (l *Pool) Uses(now time.Duration, to []control.Use) []control.Use {
	if law, ok := l.law.(control.Limiter); ok {
		to = law.Uses(now, to)
	}
	return to
}

// Limits appends the provider's limits that are known: those that the law found and
// those that were advertised.
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

// kept is what a pool has learned; live in this run, or in a fleet until now.
type kept struct {
	control.State
	live bool
}

// keep remembers what a pool has learned.
func (c *Core) keep(name string, s kept) {
	if c.known == nil {
		c.known = make(map[string]kept)
	}
	if _, ok := c.known[name]; !ok && len(c.known) >= keptPools*c.set.maxPools {
		for other := range c.known { // any
			delete(c.known, other)
			break
		}
	}
	c.known[name] = s
}

// LearnedPools returns the states that a warm start of the pools needs, by name.
func (c *Core) LearnedPools() map[string]control.State {
	if len(c.of)+len(c.known) == 0 {
		return nil
	}
	all := make(map[string]control.State, len(c.of)+len(c.known))
	for name, s := range c.known {
		all[name] = s.State
	}
	for name, l := range c.of {
		if l.Known() {
			all[name] = l.Learned()
		}
	}
	return all
}

// RestorePools restores what pools learned earlier. Each starts from its state when it is
// first used.
func (c *Core) RestorePools(all map[string]control.State) {
	for name, s := range all {
		c.keep(name, kept{State: s})
	}
}

// ResumePools is RestorePools for states that were in use until now, in another core.
func (c *Core) ResumePools(all map[string]control.State) {
	for name, s := range all {
		c.keep(name, kept{s, true})
	}
}

// Part moves what the account has learned since before, and its cooldown, to one pool,
// whose attempts were the ones refused. A pool that has learned something itself keeps that.
// The other members of a fleet do the same.
func (c *Core) Part(now time.Duration, name string, before control.State) {
	l := c.In(now, name)
	c.member.part(name, before)
	if !l.answered {
		_ = l.Restore(c.law.State()) // the law's own state is valid
		l.answered = c.answered
	}
	c.moveCooldown(l)
	c.forget(before)
}

// moveCooldown moves the account's cooldown to a pool.
func (c *Core) moveCooldown(l *Pool) {
	l.rest(c.cooldown, c.cooldownWhy)
	c.cooldown = 0
}
