package pacing

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pace"
	"github.com/headway-go/headway/reason"
)

// Core is one connection's state machine. Instants are durations since an origin
// that the caller fixes. Make one with [New] or [Rules.Core]. Not safe for
// concurrent use.
type Core struct {
	set *Rules
	law control.Law

	gcra     pace.GCRA
	circuit  breaker.Breaker
	random   uint64
	cooldown time.Duration // no attempt before this
	backoff  Backoff
	report   rateReport
	heard    []control.Fact // the limits that responses advertised

	inFlight    int32
	cooldownWhy reason.Pressure
	pushed      reason.Pressure // of the last throttle
	answered    bool            // a response has come back at all
}

// New makes a connection's state machine.
func New(c Config) (*Core, error) {
	rules, err := c.Resolve()
	if err != nil {
		return nil, err
	}
	core := rules.Core(c.Seed)
	return &core, nil
}

// Core is a new state machine by the rules. The same seed and calls give the same
// waits.
func (r *Rules) Core(seed uint64) Core {
	law, err := control.New(r.law, &r.params)
	if err != nil {
		panic(err) // Resolve has made one already
	}
	return Core{set: r, law: law, random: seed}
}

// Arrive draws the jitter of a new attempt: the earliest instant at which it may go.
func (c *Core) Arrive(now time.Duration) (ready time.Duration) {
	low, span := c.set.jitterMin, c.set.jitterMax-c.set.jitterMin
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

// Ask says whether an attempt that may go at ready (see [Core.Arrive]) could be sent
// at now. The cost is what it is thought to take of a limit that counts units; 0 is 1.
// It changes nothing.
func (c *Core) Ask(now, ready time.Duration, cost float64) Decision {
	d, _ := c.ask(now, ready, cost)
	return d
}

// ask is Ask, with the schedule by which it is so when the attempt may go.
func (c *Core) ask(now, ready time.Duration, cost float64) (d Decision, p pace.Params) {
	if !(cost > 0) {
		cost = 1
	}
	if !c.set.noBreaker && c.circuit.State() == breaker.Open {
		if at := c.circuit.ReadyAt(&c.set.breaker); now < at {
			return Decision{At: at, Reason: reason.CircuitOpen.Reason(), Bound: reason.BoundCircuit}, p
		}
	}
	if c.set.maxInFlight > 0 && int(c.inFlight) >= c.set.maxInFlight {
		return Decision{At: Forever, Reason: reason.Concurrency, Bound: reason.BoundLatency}, p
	}
	p = c.params()
	d = c.earliest(ready, p)
	held := false
	if at := c.law.Hold(now, cost); at > d.At {
		// A law that waits out what the provider asked for waits for the same reason.
		if d.At = at; now >= c.cooldown {
			d.Reason, held = reason.Pacing, true
		}
	}
	if now < d.At {
		d.Bound = c.bound(d.Reason, held)
		return d, p
	}
	return Decision{OK: true, At: now}, p
}

// Admit sends at now an attempt that may go at ready, where [Core.Ask] allows it. A
// refused attempt changes nothing.
func (c *Core) Admit(now, ready time.Duration, cost float64) (Ticket, Decision, Effects) {
	if !(cost > 0) {
		cost = 1
	}
	d, p := c.ask(now, ready, cost)
	if !d.OK {
		return Ticket{}, d, Effects{}
	}
	var fx Effects
	ticket := Ticket{sent: now, cost: cost}
	if !c.set.noBreaker {
		var ok bool
		if ticket.circuit, ok, fx.Circuit = c.circuit.Admit(&c.set.breaker, now); !ok {
			return Ticket{}, Decision{At: Forever, Reason: reason.CircuitOpen.Reason(), Bound: reason.BoundCircuit}, fx
		}
	}
	if at, ok := c.gcra.Admit(now, p); !ok {
		// Only a clock that stepped back comes here: the instant counts as a later one.
		c.circuit.Settle(&c.set.breaker, now, ticket.circuit, breaker.Neutral)
		return Ticket{}, Decision{At: at, Reason: reason.Pacing, Bound: c.bound(reason.Pacing, false)}, fx
	}
	c.inFlight++
	c.law.Sent(now, cost)
	return ticket, d, fx
}

// bound is what a wait stands for. Held says that the law makes it wait beyond its
// interval.
func (c *Core) bound(why reason.Reason, held bool) reason.Bound {
	switch why {
	case reason.ConservativeStart:
		return reason.BoundLearning
	case reason.Pacing:
		switch {
		case !held && c.law.Spacing() <= c.set.params.Ceiling:
			return reason.BoundCeiling
		case c.backoff.Reason != reason.None, c.pushed.Reason() != reason.None, c.law.Belief().Kind != control.Unknown:
			return reason.BoundLimit
		}
		return reason.BoundLearning
	case reason.Cooldown:
		return reason.BoundCooldown
	case reason.Jitter:
		return reason.BoundJitter
	default:
		return reason.BoundUnknown
	}
}

func (c *Core) params() pace.Params {
	p := pace.Params{Interval: c.law.Spacing(), Ceiling: c.set.params.Ceiling}
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
	if !c.set.noBreaker {
		fx.Circuit = c.circuit.Settle(&c.set.breaker, now, t.circuit, health(o.Class))
	}
	c.hear(o.Facts)
	o.RetryAfter = min(o.RetryAfter, c.set.maxRetryAfter)
	if o.RetryAfter > 0 && !o.Class.Success() {
		// Paid once, as a cooldown; the interval learns only that it was a throttle.
		if until := now + o.RetryAfter; until > c.cooldown {
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
	fx.Rate = c.report.due(now, fx.Change, c.law.Interval(), c.set.params.Ceiling)
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

// maxHeard is how many advertised limits are remembered: more than any provider has.
const maxHeard = 8

// hear remembers the limits that responses advertised, whatever the law makes of them.
func (c *Core) hear(facts []control.Fact) {
	for i := range facts {
		f := &facts[i]
		at := slices.IndexFunc(c.heard, func(h control.Fact) bool {
			return h.Name == f.Name && h.PerCost == f.PerCost && h.InFlight == f.InFlight
		})
		switch {
		case at < 0 && len(c.heard) == maxHeard:
			continue
		case at < 0:
			c.heard = append(c.heard, *f)
			at = len(c.heard) - 1
			c.heard[at].Name = strings.Clone(f.Name) // of a whole header
		}
		h := &c.heard[at]
		h.Refills = f.Refills
		if f.Quota >= 0 {
			h.Quota = f.Quota
		}
		if f.Window > 0 {
			h.Window = f.Window
		}
	}
}

// Limits appends what is known of the provider's limits: those that the law found,
// and those that responses advertised.
func (c *Core) Limits(to []control.Limit) []control.Limit {
	if law, ok := c.law.(control.Limiter); ok {
		to = law.Limits(to)
	} else if b := c.law.Belief(); b.Kind != control.Unknown {
		to = append(to, control.Limit{Kind: b.Kind, PerCost: b.Kind == control.CostWindow, Size: b.Limit, Window: b.Window, Confidence: b.Confidence})
	}
	for _, f := range c.heard {
		l := control.Limit{
			Advertised: true, Name: f.Name, Kind: control.FixedWindow, PerCost: f.PerCost,
			Size: max(0, f.Quota), Window: max(0, f.Window), Confidence: 1,
		}
		switch {
		case f.InFlight:
			l.Kind, l.Window = control.Concurrency, 0
		case f.Refills:
			l.Kind = control.TokenBucket
		}
		known := func(k control.Limit) bool {
			return k.Advertised && k.Name == l.Name && k.PerCost == l.PerCost && (k.Kind == control.Concurrency) == f.InFlight
		}
		if !slices.ContainsFunc(to, known) {
			to = append(to, l)
		}
	}
	return to
}

// MaxInFlight bounds the attempts under way at once; 0 is no bound.
func (c *Core) MaxInFlight() int { return c.set.maxInFlight }
