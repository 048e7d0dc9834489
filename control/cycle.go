package control

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/headway-go/headway/control/internal/learn"
	"github.com/headway-go/headway/reason"
)

// Cycle is the default law. From whole cycles, each from one release to the next, it learns
// which limits a provider enforces: rates, windows of any length, attempts in flight.
// Package learn implements it; Cycle adapts that to [Law].
type Cycle struct {
	params *Params
	law    *learn.Law
}

func newCycle(p *Params) Law {
	return &Cycle{params: p, law: learn.New(learn.Config{
		Ceiling: p.Ceiling, Initial: p.Initial, Slowest: p.Slowest, MaxWait: p.MaxRetryAfter, Phase: p.Phase, Windows: p.Windows,
	})}
}

// Name is "cycle".
func (*Cycle) Name() string { return "cycle" }

// Interval is the sustained interval under what is held.
func (c *Cycle) Interval() time.Duration { return c.law.Interval() }

// Spacing is the initial interval until a response has come back, then the
// ceiling's: Hold times the attempts.
func (c *Cycle) Spacing() time.Duration {
	if !c.law.Answered() {
		return c.params.Initial
	}
	return c.params.Ceiling
}

// After estimates how long after the next attempt the one with n others before it goes.
func (c *Cycle) After(n float64) time.Duration { return c.law.After(n) }

// Hold is the latest instant that a limit asks for.
func (c *Cycle) Hold(now time.Duration, cost float64) time.Duration { return c.law.Hold(now, cost) }

// Waiting reports whether a block lasts: after a refusal nothing is sent until the next
// canary.
func (c *Cycle) Waiting() bool { return c.law.Waiting() }

// Believed is how much of a wait that a refusal advertised to observe, once the refusal was
// observed: less than all of it only if it seems to have another unit, or is longer than
// [Params.MaxRetryAfter].
func (c *Cycle) Believed(wait time.Duration) time.Duration { return c.law.Believed(wait) }

// Foretold reports whether a known limit was nearly used up when the newest block began.
func (c *Cycle) Foretold() bool { return c.law.Foretold() }

// Sent counts an attempt.
func (c *Cycle) Sent(now time.Duration, cost float64) { c.law.Sent(now, cost) }

// Recount says that an attempt that was counted at one instant went at a later one, or not
// at all: at is [Never] then, and nothing more is said of it.
func (c *Cycle) Recount(sent, at time.Duration, cost float64) { c.law.Recount(sent, at, cost) }

// Recost says that an attempt that was counted at an instant costs so much more than it was
// counted with, or less.
func (c *Cycle) Recost(sent time.Duration, more float64) { c.law.Recost(sent, more) }

// Observe learns from an outcome.
func (c *Cycle) Observe(o Observation) Change {
	was := c.law.Interval()
	for i := range o.Facts {
		if f := &o.Facts[i]; !f.InFlight {
			c.law.Advertise(o.Sent, o.Now, o.Class.Throttle(), f.learn(o.Cost))
		}
	}
	c.law.Observe(learn.Outcome{
		Sent: o.Sent, Now: o.Now, Class: learnClass(o.Class), RetryAfter: o.RetryAfter,
		Estimate: o.Estimate, Cost: o.Cost, Steady: o.Steady,
	})
	switch now := c.law.Interval(); {
	case now < was:
		return SpeedUp
	case now > was:
		return BackOff
	}
	return Held
}

// learn is the fact as the law has it, from an attempt of that cost.
func (f *Fact) learn(cost float64) learn.Fact {
	l := learn.Fact{
		Name: f.Name, PerCost: f.PerCost, Refills: f.Refills, Quota: f.Quota, Remaining: f.Remaining, Window: f.Window, Reset: f.Reset, Precise: f.Precise,
	}
	if cost > 0 {
		l.Share = f.Took / cost
	}
	return l
}

func learnClass(c reason.Class) learn.Class {
	switch {
	case c == reason.Overloaded:
		return learn.Overloaded
	case c.Throttle():
		return learn.Refused
	case c.Success():
		return learn.Admitted
	case c == reason.Unknown, c == reason.Lost:
		return learn.Lost
	}
	return learn.Failed
}

// Advertise takes in limits that the provider named apart from any attempt.
func (c *Cycle) Advertise(now time.Duration, facts []Fact) {
	for i := range facts {
		if f := &facts[i]; !f.InFlight {
			c.law.Advertise(now, now, false, f.learn(0))
		}
	}
}

// Assume begins with limits that the provider publishes. Call it before the first attempt.
func (c *Cycle) Assume(limits []Limit) error {
	var all []learn.Found
	for _, l := range limits {
		f := learn.Found{Kind: learn.Window, Size: l.Size, Window: l.Window, Confidence: 1}
		if l.PerCost {
			f.Unit = 1
		}
		switch l.Kind {
		case TokenBucket, FixedWindow, SlidingWindow, CostWindow:
		case Concurrency:
			f.Kind = learn.Flight
		case Unknown, Slowdown:
			continue
		}
		all = append(all, f)
	}
	if err := c.law.Assume(all); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	return nil
}

// Belief is the limit that binds.
func (c *Cycle) Belief() Belief {
	f := c.law.Binding()
	b := Belief{Kind: kindOf(f), Limit: f.Size, Window: f.Window, Confidence: f.Confidence}
	switch {
	case f.Kind == learn.Rate:
		b.Window = time.Second
	case f.Unit > 0:
		b.Kind = CostWindow
	}
	return b
}

// RefusedForLoad returns the part of attempts, from 0 to 1, that is refused for load whatever the pace, so
// that the law does not slow down for it; 0 while it knows of no such refusals.
func (c *Cycle) RefusedForLoad() float64 { return c.law.RefusedForLoad() }

// Limits appends the limits that the law found and those that responses advertise.
func (c *Cycle) Limits(to []Limit) []Limit {
	var room [16]learn.Found
	for _, f := range c.law.Limits(room[:0]) {
		l := Limit{
			Advertised: f.Advertised, Name: f.Name, Kind: kindOf(f), PerCost: f.Unit > 0,
			Size: f.Size, Window: f.Window, Confidence: f.Confidence,
		}
		if f.Kind == learn.Rate {
			l.Window = time.Second
		}
		to = append(to, l)
	}
	return to
}

// Uses appends how much of each limit is in use.
func (c *Cycle) Uses(now time.Duration, to []Use) []Use {
	var room [16]learn.Use
	for _, u := range c.law.Uses(now, room[:0]) {
		if u.Free == math.MaxInt64 { // an answer decides
			u.Free = -1
		}
		to = append(to, Use{Used: u.Used, Free: u.Free})
	}
	return to
}

// kindOf is the kind of a limit that was found. A learned window is a sliding one:
// what is held then is right for one that is fixed, too.
func kindOf(f learn.Found) Kind {
	switch f.Kind {
	case learn.Rate:
		return TokenBucket
	case learn.Flight:
		return Concurrency
	case learn.Window:
		switch {
		case f.Refills:
			return TokenBucket
		case f.Advertised && !f.Slides:
			return FixedWindow
		}
		return SlidingWindow
	case learn.Unknown:
	}
	return Unknown
}

// cycleVersion is of the stored state.
const cycleVersion = 1

// State is the interval, never slower than the initial one, and what is held. While nothing is known
// but that a pace was refused, it is the initial interval.
func (c *Cycle) State() State {
	stored, interval := c.law.Store(), min(c.law.Interval(), c.params.Initial)
	if len(stored.Found) == 0 && c.law.Waiting() {
		interval = c.params.Initial
	}
	data, err := json.Marshal(stored)
	if err != nil { // no number here is infinite
		data = nil
	}
	return State{Law: c.Name(), Version: cycleVersion, Interval: interval, Data: data}
}

// Restore starts from stored limits; the first attempts still go at the initial
// interval.
func (c *Cycle) Restore(s State) error { return c.start(s, c.law.Restore) }

// Resume is Restore for a state that was in use until now, elsewhere: a rate that is slower than
// the initial interval stays as slow.
func (c *Cycle) Resume(s State) error { return c.start(s, c.law.Resume) }

// start starts from a state, which a function of the law takes in.
func (c *Cycle) start(s State, take func(learn.Stored, time.Duration) error) error {
	switch {
	case s.Law != c.Name():
		return fmt.Errorf("control: the state is of law %q, not %q", s.Law, c.Name())
	case s.Version != cycleVersion:
		return fmt.Errorf("control: the state is of version %d, this binary knows %d", s.Version, cycleVersion)
	case s.Interval <= 0:
		return fmt.Errorf("control: the stored interval is %v, must be positive", s.Interval)
	}
	var stored learn.Stored
	if len(s.Data) > 0 {
		if err := json.Unmarshal(s.Data, &stored); err != nil {
			return fmt.Errorf("control: the stored limits cannot be read: %w", err)
		}
	}
	if err := take(stored, s.Interval); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	return nil
}
