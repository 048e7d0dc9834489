package headway

import (
	"math"
	"math/bits"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pace"
	"github.com/headway-go/headway/reason"
)

// Forever is an instant that only an outcome can bring nearer.
const Forever = time.Duration(math.MaxInt64)

// Core is one connection's state machine: it composes pacing, law and breaker.
// It has no clock, lock or goroutine; instants are durations since an origin
// that the caller fixes. [Governor] is this with a clock, a lock and a queue;
// the simulator runs it in virtual time. Not safe for concurrent use.
type Core struct {
	set *settings
	law control.Law

	gcra     pace.GCRA
	circuit  breaker.Breaker
	random   uint64
	cooldown time.Duration // no attempt before this
	backoff  Backoff
	told     news

	inFlight    int32
	cooldownWhy reason.Pressure
	pushed      reason.Pressure // of the last throttle
	answered    bool            // a response has come back at all
}

// Backoff is the last time that the rate was cut; the zero value is never.
type Backoff struct {
	// Reason is the pressure that cut it; none when it never was.
	Reason reason.Reason
	// Interval is the interval at which the provider pushed back.
	Interval time.Duration
	// At is when.
	At time.Duration
}

// Decision is the answer to a request to send.
type Decision struct {
	// OK says that the attempt may be sent now.
	OK bool
	// At is the earliest instant at which asking again can succeed, as far as is
	// known now; [Forever] when that takes an outcome first.
	At time.Duration
	// Reason is what stands in the way; none when OK.
	Reason reason.Reason
	// Pace is whose interval stands in the way, where the reason is pacing.
	Pace Pace
}

// Pace is what a wait for pacing comes from.
type Pace uint8

// The origins of a wait for pacing.
const (
	// PaceUnknown: it was not a wait for pacing.
	PaceUnknown Pace = iota
	// PaceCeiling: the owner's ceiling. The law would go as fast or faster.
	PaceCeiling
	// PaceLimit: a limit of the provider, learned or advertised.
	PaceLimit
	// PaceLearning: the law has not found the provider's limit yet.
	PaceLearning
)

// Wait is what an attempt waited for; the zero value is for nothing.
type Wait struct {
	// Reason is what stood in the way last; none when nothing did.
	Reason reason.Reason
	// Pace is whose interval it was, where the reason is pacing.
	Pace Pace
}

// Bound is what a wait stands for; unknown for a wait that nothing is known of.
func (w Wait) Bound() reason.Bound {
	switch w.Reason {
	case reason.Pacing, reason.ConservativeStart:
		switch w.Pace {
		case PaceCeiling:
			return reason.BoundCeiling
		case PaceLimit:
			return reason.BoundLimit
		case PaceLearning:
			return reason.BoundLearning
		case PaceUnknown:
		}
	case reason.Cooldown:
		return reason.BoundCooldown
	case reason.CircuitOpen.Reason():
		return reason.BoundCircuit
	case reason.Jitter:
		return reason.BoundJitter
	case reason.Concurrency:
		return reason.BoundLatency
	default:
	}
	return reason.BoundUnknown
}

// Ticket is an admitted attempt, to be settled exactly once.
type Ticket struct {
	sent    time.Duration
	cost    float64
	circuit breaker.Ticket
}

// Sent is the instant of admission.
func (t Ticket) Sent() time.Duration { return t.sent }

// Outcome is how an attempt ended.
type Outcome struct {
	// Class is the kind of ending. The zero value, Unknown, teaches nothing.
	Class Class
	// RetryAfter is how long the provider asked to wait; 0 when untold.
	RetryAfter time.Duration
	// Cost is what the attempt took of a limit that counts units, such as tokens;
	// 0 when it took what it was admitted with.
	Cost float64
	// Facts are the limits that the response advertised; they are not kept.
	Facts []control.Fact
	// Steady forbids speeding up on this outcome.
	Steady bool
}

// Effects is what a call changed, beyond its answer.
type Effects struct {
	// Circuit is the move of the breaker, if any.
	Circuit breaker.Transition
	// Rate says that the change of the rate is worth telling (coalesced).
	Rate bool
	// Change is what the law did.
	Change control.Change
}

// NewCore makes a connection's state machine.
func NewCore(c Config) (*Core, error) {
	s, err := resolve(c)
	if err != nil {
		return nil, err
	}
	core := new(Core)
	core.init(s, c.Seed)
	return core, nil
}

func (c *Core) init(s *settings, seed uint64) {
	law, err := control.New(s.Law, &s.params)
	if err != nil {
		panic(err) // resolve has made one already
	}
	*c = Core{set: s, law: law, random: seed}
}

// Arrive draws the jitter of a new attempt: the earliest instant at which it may go.
func (c *Core) Arrive(now time.Duration) (ready time.Duration) {
	low, span := c.set.JitterMin, c.set.JitterMax-c.set.JitterMin
	if span == 0 {
		return now + low
	}
	hi, _ := bits.Mul64(c.draw(), uint64(span)+1)
	return now + low + time.Duration(hi)
}

// draw is SplitMix64: S. Vigna, 2015, after Steele, Lea and Flood, 2014.
func (c *Core) draw() uint64 {
	c.random += 0x9e3779b97f4a7c15
	z := c.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Admit asks to send at now an attempt that may go at ready (see [Core.Arrive]).
// The cost is what it is thought to take of a limit that counts units; 0 is 1. A
// refused attempt changes nothing.
func (c *Core) Admit(now, ready time.Duration, cost float64) (Ticket, Decision, Effects) {
	if !(cost > 0) {
		cost = 1
	}
	if !c.set.NoBreaker && c.circuit.State() == breaker.Open {
		if at := c.circuit.ReadyAt(&c.set.Breaker); now < at {
			return Ticket{}, Decision{At: at, Reason: reason.CircuitOpen.Reason()}, Effects{}
		}
	}
	if c.set.MaxInFlight > 0 && int(c.inFlight) >= c.set.MaxInFlight {
		return Ticket{}, Decision{At: Forever, Reason: reason.Concurrency}, Effects{}
	}
	params := c.params()
	d := c.earliest(ready, params)
	held := false
	if at := c.law.Hold(now, cost); at > d.At {
		// A law that waits out what the provider asked for waits for the same reason.
		if d.At = at; now >= c.cooldown {
			d.Reason, held = reason.Pacing, true
		}
	}
	if now < d.At {
		d.Pace = c.pace(d, held)
		return Ticket{}, d, Effects{}
	}
	var fx Effects
	ticket := Ticket{sent: now, cost: cost}
	if !c.set.NoBreaker {
		var ok bool
		if ticket.circuit, ok, fx.Circuit = c.circuit.Admit(&c.set.Breaker, now); !ok {
			return Ticket{}, Decision{At: Forever, Reason: reason.CircuitOpen.Reason()}, fx
		}
	}
	if at, ok := c.gcra.Admit(now, params); !ok {
		// Only a clock that stepped back comes here: the instant counts as a later one.
		c.circuit.Settle(&c.set.Breaker, now, ticket.circuit, breaker.Neutral)
		return Ticket{}, Decision{At: at, Reason: reason.Pacing, Pace: c.pace(Decision{Reason: reason.Pacing}, false)}, fx
	}
	c.inFlight++
	c.law.Sent(now, cost)
	return ticket, Decision{OK: true, At: now}, fx
}

// pace is what a wait for pacing comes from. Held says that the law made it wait
// beyond its interval.
func (c *Core) pace(d Decision, held bool) Pace {
	switch {
	case d.Reason == reason.ConservativeStart:
		return PaceLearning
	case d.Reason != reason.Pacing:
		return PaceUnknown
	case !held && c.law.Spacing() <= c.set.Ceiling:
		return PaceCeiling
	case c.backoff.Reason != reason.None, c.pushed.Reason() != reason.None, c.law.Belief().Kind != control.Unknown:
		return PaceLimit
	}
	return PaceLearning
}

func (c *Core) params() pace.Params {
	p := pace.Params{Interval: c.law.Spacing(), Ceiling: c.set.Ceiling}
	if c.answered {
		// Before the first response nothing justifies a burst.
		p.Tolerance = c.set.tolerance
	}
	return p
}

// earliest is the wait before an attempt: the longest of jitter, cooldown and
// pacing, never their sum.
func (c *Core) earliest(ready time.Duration, p pace.Params) Decision {
	d := Decision{At: ready, Reason: reason.Jitter}
	if at := c.gcra.Next(p); at > d.At {
		d = Decision{At: at, Reason: reason.Pacing}
		if !c.answered {
			d.Reason = reason.ConservativeStart
		}
	}
	if c.cooldown > d.At {
		d = Decision{At: c.cooldown, Reason: reason.Cooldown}
	}
	return d
}

// Settle tells how an admitted attempt ended.
func (c *Core) Settle(now time.Duration, t Ticket, o Outcome) Effects {
	c.inFlight--
	if o.Class != reason.Unknown && o.Class != reason.Lost {
		c.answered = true
	}
	var fx Effects
	if !c.set.NoBreaker {
		fx.Circuit = c.circuit.Settle(&c.set.Breaker, now, t.circuit, health(o.Class))
	}
	if o.RetryAfter > 0 && !o.Class.Success() {
		// Paid once, as a cooldown; the interval learns only that it was a throttle.
		if until := now + min(o.RetryAfter, maxCooldown); until > c.cooldown {
			c.cooldown = until
			c.cooldownWhy = reason.UpstreamPressure
			if p, ok := o.Class.Pressure(); ok {
				c.cooldownWhy = p
			}
		}
	}
	if p, ok := o.Class.Pressure(); ok && o.Class.Throttle() {
		c.pushed = p
	}
	before := c.law.Interval()
	if !(o.Cost > 0) {
		o.Cost = t.cost
	}
	fx.Change = c.law.Observe(control.Observation{
		Sent: t.sent, Now: now, Class: o.Class, RetryAfter: o.RetryAfter, Steady: o.Steady,
		Estimate: t.cost, Cost: o.Cost, Facts: o.Facts,
	})
	if fx.Change == control.BackOff {
		p, _ := o.Class.Pressure()
		c.backoff = Backoff{Reason: p.Reason(), Interval: before, At: now}
	}
	fx.Rate = c.told.worth(now, fx.Change, c.law.Interval(), c.set.Ceiling)
	return fx
}

// health is what a class says of the provider's health. A refusal for rate says
// nothing: pacing answers it, and a breaker on top would only stop recovery.
func health(c reason.Class) breaker.Result {
	switch c {
	case reason.OK, reason.Rejected:
		return breaker.Success
	case reason.Overloaded, reason.Failed, reason.Lost:
		return breaker.Failure
	case reason.Unknown, reason.Throttled:
	}
	return breaker.Neutral
}

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
