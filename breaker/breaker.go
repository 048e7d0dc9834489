// Package breaker is a circuit breaker: it answers whether attempts to a
// provider that keeps failing should fail at once for a while.
//
//	stateDiagram-v2
//	    [*] --> closed
//	    closed --> open: failure_ratio
//	    open --> half_open: open_elapsed
//	    half_open --> closed: probe_succeeded
//	    half_open --> open: probe_failed
//
// It opens when at least Ratio of the last Window outcomes failed, once
// Minimum outcomes are known, so that a cold start cannot open it; the outcome that opens
// it is a failure. After
// OpenFor it lets a bounded number of probes through. Outcomes of attempts that
// were admitted in an earlier state are not counted in a later one.
//
// It does not know what a failure is (the caller says), does not pace and does
// not wait. A rate limit is not a failure: pacing answers that.
//
// A [Breaker] is a plain value; not safe for concurrent use: its owner holds a
// lock. All verbs take constant time and do not allocate. Instants are
// durations since an origin that the caller fixes.
//
// Stability: stable.
package breaker

import (
	"cmp"
	"fmt"
	"math/bits"
	"time"
)

// State is where the circuit stands.
type State uint8

// The states.
const (
	Closed State = iota
	Open
	HalfOpen
)

// String is the state's stable name.
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

// Trigger is what moved the circuit.
type Trigger uint8

// The triggers. Each belongs to exactly one edge of the diagram.
const (
	NoTrigger Trigger = iota
	FailureRatio
	OpenElapsed
	ProbeSucceeded
	ProbeFailed
)

// String is the trigger's stable name.
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

// Transition is one move. The zero value is not a move.
type Transition struct {
	From, To State
	Trigger  Trigger
}

// Moved reports whether there was a move.
func (t Transition) Moved() bool { return t.Trigger != NoTrigger }

// Config is shared by any number of breakers. Zero fields take the defaults.
type Config struct {
	// Ratio of failures that opens the circuit, in (0, 1]. Default 0.5.
	Ratio float64
	// Window is how many outcomes are looked at, 1 to 64. Default 10.
	Window int
	// Minimum is how many must be known before it can open, 1 to Window. Default 5.
	Minimum int
	// OpenFor is how long attempts fail at once. Default 60 s.
	OpenFor time.Duration
	// Probes is how many attempts may be under way while half-open. Default 1.
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

// Ticket marks an admitted attempt with the state it was admitted in.
type Ticket struct{ epoch uint32 }

// Result is how an attempt counts.
type Result uint8

// The results.
const (
	// Neutral says nothing of the provider's health: canceled, or refused for rate.
	Neutral Result = iota
	Success
	Failure
)

// Breaker is one circuit. The zero value is closed and knows nothing.
type Breaker struct {
	state    State
	known    uint8  // outcomes in the window
	probing  uint8  // probes under way
	epoch    uint32 // counts moves
	failures uint64 // the newest outcome in bit 0; 1 is a failure
	openedAt time.Duration
}

// State is where the circuit stands, as of the last call of a verb that moves it.
func (b *Breaker) State() State { return b.state }

// ReadyAt is the earliest instant at which an attempt could be admitted: zero
// when the circuit is not open. It changes nothing.
func (b *Breaker) ReadyAt(c *Config) time.Duration {
	if b.state != Open {
		return 0
	}
	return b.openedAt + c.OpenFor
}

// Admit asks for one attempt at now. A refused one has no effect but, possibly,
// the move from open to half-open.
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

// Settle tells how an admitted attempt ended.
func (b *Breaker) Settle(c *Config, now time.Duration, t Ticket, r Result) Transition {
	if t.epoch != b.epoch {
		return Transition{} // admitted in another state: it says nothing of this one
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

// count adds an outcome to the window and reports whether the ratio is reached;
// only a failure then opens the circuit.
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

// legal is the table of moves; the diagram in the package's documentation shows it.
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
