package pacing

import (
	"math/bits"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/internal/pace"
	"github.com/headway-go/headway/reason"
)

// Core is the state machine of one connection: the limits of its account and of its pools
// (see [Core.In]). Instants are durations since an origin that the caller chooses. Make
// one with [New] or [Rules.Core]. Not safe for concurrent use.
type Core struct {
	Pool // the account, in which every attempt counts
	pools

	random   uint64
	inFlight int32
	reserves bool    // the provider has advertised a limit by cost
	member   *member // nil outside a fleet
}

// New returns the state machine of a connection.
func New(c Config) (*Core, error) {
	rules, err := c.Resolve()
	if err != nil {
		return nil, err
	}
	core := rules.Core(c.Seed)
	return &core, nil
}

// Core returns a new state machine. The same seed and calls give the same waits.
func (r *Rules) Core(seed uint64) Core { return Core{Pool: newPool(r, ""), random: seed} }

// Arrive draws the jitter of a new attempt and returns the earliest instant at which it
// may go.
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

// Attempt is a request to send. The zero Attempt concerns the account only, costs 1 and
// has no jitter.
type Attempt struct {
	// Ready is the earliest instant at which the attempt may go; see [Core.Arrive].
	Ready time.Duration
	// Cost is the estimate of what the attempt takes of a limit that counts units; 0
	// means 1.
	Cost float64
	// Pool is the pool whose limits the attempt shares; nil means the account only.
	Pool *Pool
}

func (a *Attempt) cost() float64 {
	if a.Cost > 0 {
		return a.Cost
	}
	return 1
}

// Ask decides whether an attempt could be sent now. It changes nothing.
func (c *Core) Ask(now time.Duration, a Attempt) Decision {
	d, _, _ := c.ask(now, &a, c.expect(a.Pool, a.cost()))
	return d
}

// ask is Ask. If the attempt may go, it also returns the schedules of account and pool
// that allow it. A wait of the account is reported before one of the pool.
func (c *Core) ask(now time.Duration, a *Attempt, cost float64) (d Decision, account, pool pace.Params) {
	if d, open := c.poolOf(a.Pool).broken(now); open {
		d.Pool = a.Pool
		return d, account, pool
	}
	if c.set.maxInFlight > 0 && int(c.inFlight) >= c.set.maxInFlight {
		return Decision{At: Forever, Reason: reason.Concurrency, Bound: reason.BoundLatency}, account, pool
	}
	if c.member != nil {
		var final bool
		if d, account, final = c.member.ask(c, now, a); final {
			return d, account, pool
		}
	}
	// Where nothing is known of a pool, all that holds it up holds up the account.
	if d, account = c.Pool.ask(now, a.Ready, cost); d.OK && a.Pool != nil && (a.Pool.objected || now < a.Pool.cooldown) {
		if d, pool = a.Pool.ask(now, a.Ready, cost); !d.OK {
			d.Pool = a.Pool
		}
	}
	return d, account, pool
}

// Admit sends an attempt now if [Core.Ask] allows it. If it does not, nothing changes.
func (c *Core) Admit(now time.Duration, a Attempt) (Ticket, Decision, Effects) {
	cost := c.expect(a.Pool, a.cost())
	d, account, pool := c.ask(now, &a, cost)
	if !d.OK {
		return Ticket{}, d, Effects{}
	}
	var fx Effects
	t := Ticket{sent: now, cost: cost, asked: a.cost(), pool: a.Pool}
	l := c.poolOf(a.Pool)
	if !c.set.noBreaker {
		var ok bool
		if t.circuit, ok, fx.Circuit = l.circuit.Admit(&c.set.breaker, now); !ok {
			return Ticket{}, Decision{At: Forever, Reason: reason.CircuitOpen.Reason(), Bound: reason.BoundCircuit, Pool: a.Pool}, fx
		}
		fx.CircuitPool = l
	}
	var at time.Duration
	ok := true
	if m := c.member; m != nil && m.stand == following {
		// The server's law has counted the attempt.
		if account.Interval > noCeiling {
			at, ok = c.gcra.Admit(now, account)
		}
		if ok {
			t.permit, t.ahead = m.take(c, now, &a)
		}
	} else if at, ok = c.send(now, t.cost, account); ok && a.Pool != nil {
		at, ok = a.Pool.send(now, t.cost, pool)
	}
	if !ok {
		l.circuit.Settle(&c.set.breaker, now, t.circuit, breaker.Neutral)
		return Ticket{}, Decision{At: at, Reason: reason.Pacing, Bound: l.bound(reason.Pacing, false)}, fx
	}
	c.inFlight++
	c.sent(&t)
	if c.member != nil {
		c.member.sent(c, now)
	}
	return t, d, fx
}

// expect returns what an attempt of a pool probably costs that was estimated to cost so much. A provider
// that advertises a limit by cost reserves what an attempt may take, and gives back the rest: for that the
// estimate counts.
func (c *Core) expect(pool *Pool, estimate float64) float64 {
	if c.reserves {
		return estimate
	}
	if pool != nil && pool.costs.answers > 0 {
		return pool.costs.expect(estimate)
	}
	return c.costs.expect(estimate)
}

// poolOf returns the given pool, or the account's if it is nil.
func (c *Core) poolOf(pool *Pool) *Pool {
	if pool != nil {
		return pool
	}
	return &c.Pool
}

// Settle learns from the outcome of an admitted attempt.
func (c *Core) Settle(now time.Duration, t Ticket, o Outcome) Effects {
	c.inFlight--
	l := c.poolOf(t.pool)
	var circuit breaker.Transition
	if !c.set.noBreaker {
		circuit = l.circuit.Settle(&c.set.breaker, now, t.circuit, l.health(now, t.sent, o.Class))
	}
	if t.permit != 0 {
		c.submit(now, &t, &o)
		return Effects{Circuit: circuit, CircuitPool: l}
	}
	if o.Pool != "" && (t.pool == nil || t.pool.name != o.Pool) {
		c.move(now, &t, o.Pool)
	}
	fx := c.settle(now, &t, &o)
	fx.Circuit, fx.CircuitPool = circuit, l
	return fx
}

// Free reports whether only the owner's settings hold back attempts of a pool, or of the
// account for nil.
func (c *Core) Free(pool *Pool) bool {
	return c.member == nil && c.free() && (pool == nil || pool.free())
}

// MaxInFlight returns the bound of the attempts in flight; 0 means no bound.
func (c *Core) MaxInFlight() int { return c.set.maxInFlight }

// InFlight returns the number of attempts that were admitted and not settled.
func (c *Core) InFlight() int { return int(c.inFlight) }
