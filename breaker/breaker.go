// Package breaker is a circuit breaker: while a provider keeps failing, it makes attempts
// fail at once.
//
//	stateDiagram-v2
//	    [*] --> closed
//	    closed --> open: failure_ratio
//	    open --> half_open: open_elapsed
//	    half_open --> closed: probe_succeeded
//	    half_open --> open: probe_failed
//
// It opens on a failure if at least Ratio of the last Window outcomes failed and at least
// Minimum outcomes are known, so that a cold start cannot open it. After OpenFor it
// admits a bounded number of probes. Outcomes of attempts admitted in an earlier state
// are not counted in a later one.
//
// The caller decides what a failure is. A rate limit is not one: pacing handles it. The
// package does not pace and does not wait.
//
// A [Breaker] is a plain value that is not safe for concurrent use: its owner holds a
// lock. All methods take constant time and do not allocate. Instants are durations since
// an origin that the caller chooses.
//
// Stability: stable.
package breaker

import (
	"cmp"
	"fmt"
	"math/bits"
	"time"
)

// State is the state of the circuit.
type State uint8

// The states.
const (
	Closed State = iota
	Open
	HalfOpen
)

// String returns the state's stable name.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half_open"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Trigger is the cause of a transition.
type Trigger uint8

// The triggers. Each belongs to exactly one edge of the diagram.
const (
	NoTrigger Trigger = iota
	FailureRatio
	OpenElapsed
	ProbeSucceeded
	ProbeFailed
)

// String returns the trigger's stable name.
func (t Trigger) String() string {
	switch t {
	case NoTrigger:
		return "none"
	case FailureRatio:
		return "failure_ratio"
	case OpenElapsed:
		return "open_elapsed"
	case ProbeSucceeded:
		return "probe_succeeded"
	case ProbeFailed:
		return "probe_failed"
	}
	return fmt.Sprintf("trigger(%d)", uint8(t))
}

// Transition is one change of state. The zero value is no transition.
type Transition struct {
	From, To State
	Trigger  Trigger
}

// Moved reports whether there was a transition.
func (t Transition) Moved() bool { return t.Trigger != NoTrigger }

// Config configures any number of breakers. Zero fields take the defaults.
type Config struct {
	// Ratio is the share of failures that opens the circuit, in (0, 1]. Default 0.5.
	Ratio float64
	// Window is how many of the last outcomes count, 1 to 64. Default 10.
	Window int
	// Minimum is how many outcomes must be known before the circuit can open, 1 to
	// Window. Default 5.
	Minimum int
	// OpenFor is how long the circuit stays open. Default 60 s.
	OpenFor time.Duration
	// Probes is how many attempts may be in flight while half-open, 1 to 255. Default 1.
	Probes int
}

// Resolve fills in defaults and checks the rest; the error names field, value and bound.
func (c Config) Resolve() (Config, error) {
	c.Ratio = cmp.Or(c.Ratio, 0.5)
	c.Window = cmp.Or(c.Window, 10)
	c.Minimum = cmp.Or(c.Minimum, min(5, c.Window))
	c.OpenFor = cmp.Or(c.OpenFor, time.Minute)
	c.Probes = cmp.Or(c.Probes, 1)
	switch {
	case !(c.Ratio > 0 && c.Ratio <= 1):
		return c, fmt.Errorf("breaker: ratio is %v, must be above 0 and at most 1", c.Ratio)
	case c.Window < 1 || c.Window > 64:
		return c, fmt.Errorf("breaker: window is %d, must be from 1 to 64", c.Window)
	case c.Minimum < 1 || c.Minimum > c.Window:
		return c, fmt.Errorf("breaker: minimum is %d, must be from 1 to the window of %d", c.Minimum, c.Window)
	case c.OpenFor < 0:
		return c, fmt.Errorf("breaker: open for is %v, must not be negative", c.OpenFor)
	case c.Probes < 1 || c.Probes > 255:
		return c, fmt.Errorf("breaker: probes is %d, must be from 1 to 255", c.Probes)
	}
	return c, nil
}

// Ticket identifies the state in which an attempt was admitted.
type Ticket struct{ epoch uint32 }

// Result says how an attempt counts.
type Result uint8

// The results.
const (
	// Neutral says nothing about the provider's health: canceled, or refused for rate.
	Neutral Result = iota
	Success
	Failure
)

// Breaker is one circuit. The zero value is closed, with no known outcomes.
type Breaker struct {
	state    State
	known    uint8  // outcomes in the window
	probing  uint8  // probes in flight
	epoch    uint32 // counts transitions
	failures uint64 // the last outcome is bit 0; 1 is a failure
	openedAt time.Duration
}

// State returns the state as of the last call that could change it.
func (b *Breaker) State() State { return b.state }

// ReadyAt returns the earliest instant at which an attempt could be admitted: zero if the
// circuit is not open. It changes nothing.
func (b *Breaker) ReadyAt(c *Config) time.Duration {
	if b.state != Open {
		return 0
	}
	return b.openedAt + c.OpenFor
}

// Admit requests one attempt at now. If it is refused, the only possible effect is the
// transition from open to half-open.
func (b *Breaker) Admit(c *Config, now time.Duration) (t Ticket, ok bool, moved Transition) {
	if b.state == Open && now >= b.openedAt+c.OpenFor {
		moved = b.transition(OpenElapsed, now)
	}
	switch b.state {
	case Open:
		return Ticket{}, false, moved
	case HalfOpen:
		if int(b.probing) >= c.Probes {
			return Ticket{}, false, moved
		}
		b.probing++
	case Closed:
	}
	return Ticket{b.epoch}, true, moved
}

// Settle reports how an admitted attempt ended.
func (b *Breaker) Settle(c *Config, now time.Duration, t Ticket, r Result) Transition {
	if t.epoch != b.epoch {
		return Transition{} // admitted in another state: does not count in this one
	}
	switch b.state {
	case HalfOpen:
		switch r {
		case Success:
			return b.transition(ProbeSucceeded, now)
		case Failure:
			return b.transition(ProbeFailed, now)
		case Neutral:
			b.probing--
		}
	case Closed:
		if r != Neutral && b.count(c, r) && r == Failure {
			return b.transition(FailureRatio, now)
		}
	case Open:
	}
	return Transition{}
}

// count adds an outcome to the window and reports whether the circuit should open: the
// ratio is reached and the outcome is a failure.
func (b *Breaker) count(c *Config, r Result) (open bool) {
	b.failures <<= 1
	if r == Failure {
		b.failures |= 1
	}
	b.failures &= ^uint64(0) >> (64 - c.Window)
	b.known = min(b.known+1, uint8(c.Window))
	if int(b.known) < c.Minimum {
		return false
	}
	return float64(bits.OnesCount64(b.failures)) >= c.Ratio*float64(b.known)
}

// legal is the transition table; the diagram in the package documentation shows it.
var legal = [...]Transition{
	FailureRatio:   {Closed, Open, FailureRatio},
	OpenElapsed:    {Open, HalfOpen, OpenElapsed},
	ProbeSucceeded: {HalfOpen, Closed, ProbeSucceeded},
	ProbeFailed:    {HalfOpen, Open, ProbeFailed},
}

// transition is the only place where the state changes.
func (b *Breaker) transition(t Trigger, now time.Duration) Transition {
	move := legal[t]
	if move.From != b.state {
		panic(fmt.Sprintf("breaker: %v in state %v", t, b.state))
	}
	b.state = move.To
	b.epoch++
	b.probing, b.known, b.failures = 0, 0, 0
	if b.state == Open {
		b.openedAt = now
	}
	return move
}
