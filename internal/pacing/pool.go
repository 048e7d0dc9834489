package pacing

import (
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pace"
	"github.com/headway-go/headway/reason"
)

// Pool paces attempts that share limits: all attempts of an account, or those of one of
// its pools.
type Pool struct {
	set  *Rules
	name string // empty for the account
	law  control.Law

	gcra     pace.GCRA
	circuit  breaker.Breaker
	cooldown time.Duration // no attempt before this
	backoff  Backoff
	report   rateReport
	heard    []control.Fact // the advertised limits
	costs    costs

	overloaded time.Duration // when the last refusal for load came that counted as a failure

	cooldownWhy reason.Pressure
	pushed      reason.Pressure // why the last throttle happened
	answered    bool            // a response has been received
	objected    bool            // the provider has refused something, or advertised a limit

	blocked blocked
	turns   turns
	use     use
	ahead   ahead // permits held by a member of a fleet
}

func newPool(r *Rules, name string) Pool {
	law, err := control.New(r.law, &r.params)
	if err != nil {
		panic(err) // Resolve has checked this
	}
	return Pool{set: r, name: name, law: law}
}

// free reports whether only the owner's ceiling holds attempts back: the provider has not
// objected yet, and the pool is not the account's or the start is passive.
func (l *Pool) free() bool { return (l.set.passive || l.name != "") && !l.objected }

// broken reports whether the circuit is open, and until when.
func (l *Pool) broken(now time.Duration) (d Decision, open bool) {
	if l.set.noBreaker || l.circuit.State() != breaker.Open {
		return d, false
	}
	at := l.circuit.ReadyAt(&l.set.breaker)
	return Decision{At: at, Reason: reason.CircuitOpen.Reason(), Bound: reason.BoundCircuit}, now < at
}

// ask returns when an attempt may go that is ready at the given instant. If it may go
// now, it also returns the schedule that allows it.
func (l *Pool) ask(now, ready time.Duration, cost float64) (d Decision, p pace.Params) {
	jitter := ready
	if l.set.passive {
		ready = now // an attempt that may go at once needs no jitter
	}
	p = l.params()
	d = l.earliest(ready, p)
	held := false
	if !l.free() {
		if at := l.law.Hold(now, cost); at > d.At {
			// If the law waits out what the provider asked for, the reason is the same.
			if d.At = at; now >= l.cooldown {
				d.Reason, held = reason.Pacing, true
			}
		}
	}
	if now < d.At {
		d.At = max(d.At, jitter)
		d.Bound = l.bound(d.Reason, held)
		return d, p
	}
	return Decision{OK: true, At: now}, p
}

// send counts an attempt that [Pool.ask] allowed. It fails only if the clock stepped
// back; the attempt then counts at a later instant.
func (l *Pool) send(now time.Duration, cost float64, p pace.Params) (at time.Duration, ok bool) {
	if p.Interval > noCeiling {
		if at, ok = l.gcra.Admit(now, p); !ok {
			return at, false
		}
	}
	l.law.Sent(now, cost)
	return now, true
}

// bound returns what a wait is due to. Held says that the law waits longer than its
// interval.
func (l *Pool) bound(why reason.Reason, held bool) reason.Bound {
	switch why {
	case reason.ConservativeStart:
		return reason.BoundLearning
	case reason.Pacing:
		switch {
		case !held && (l.free() || l.law.Spacing() <= l.set.params.Ceiling):
			return reason.BoundCeiling
		case l.backoff.Reason != reason.None, l.pushed.Reason() != reason.None, l.law.Belief().Kind != control.Unknown:
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

func (l *Pool) params() pace.Params {
	p := pace.Params{Interval: l.set.params.Ceiling, Ceiling: l.set.params.Ceiling}
	if !l.free() {
		p.Interval = l.law.Spacing()
	}
	if l.answered {
		// Before the first response nothing justifies a burst.
		p.Tolerance = l.set.tolerance
	}
	return p
}

// earliest returns the wait before an attempt: the longest of jitter, cooldown and
// pacing, never their sum.
func (l *Pool) earliest(ready time.Duration, p pace.Params) Decision {
	d := Decision{At: ready, Reason: reason.Jitter}
	if at := l.gcra.Next(p); at > d.At && p.Interval > noCeiling {
		d = Decision{At: at, Reason: reason.Pacing}
		if !l.answered && !l.free() {
			d.Reason = reason.ConservativeStart
		}
	}
	if l.cooldown > d.At {
		d = Decision{At: l.cooldown, Reason: reason.Cooldown}
	}
	return d
}

// effect is what an outcome did to the rate of a pool, and whether that should be
// reported.
type effect struct {
	change control.Change
	tell   bool
}

// settle learns from an outcome. The facts are those about this pool. Elsewhere says that
// a refusal does not concern this pool.
func (l *Pool) settle(now time.Duration, t *Ticket, o *Outcome, facts []control.Fact, elsewhere bool) (e effect) {
	if o.Class != reason.Unknown && o.Class != reason.Lost {
		l.answered = true
	}
	class, retryAfter, cost := o.Class, o.RetryAfter, o.Cost
	free := l.free()
	steady := o.Steady || free // the law did not set the pace
	if elsewhere {
		class, retryAfter = reason.Unknown, 0
	}
	l.hear(facts)
	l.objected = l.objected || class.Throttle() || len(l.heard) > 0
	if class.Throttle() {
		if p, ok := class.Pressure(); ok {
			l.pushed = p
		}
	}
	before := l.law.Interval()
	if free {
		before = l.set.params.Ceiling
		if before <= noCeiling {
			before = 0 // no rate is known
		}
	}
	switch {
	case !(cost > 0):
		cost = t.cost
	case class.Success():
		l.costs.learn(t.asked, cost)
	}
	e.change = l.law.Observe(control.Observation{
		Sent: t.sent, Now: now, Class: class, RetryAfter: retryAfter, Steady: steady,
		Estimate: t.cost, Cost: cost, Facts: facts,
	})
	if retryAfter > 0 && !class.Success() {
		// Paid once, as a cooldown; the interval learns only that it was a throttle.
		why := reason.UpstreamPressure
		if p, ok := class.Pressure(); ok {
			why = p
		}
		l.rest(now+l.believed(class, retryAfter), why)
	}
	if free && class.Throttle() {
		e.change = control.BackOff // from as fast as the owner allows to what the law has in mind
	}
	if e.change == control.BackOff {
		p, ok := class.Pressure()
		if !ok {
			p = l.pushed // a law may slow down only at the end of the block that a refusal began
		}
		if p.Reason() != reason.None {
			l.backoff = Backoff{Reason: p.Reason(), Interval: before, At: now}
		}
	}
	if e.change != control.Held || l.report.owed {
		e.tell = l.report.due(now, e.change, l.law.Interval(), l.set.params.Ceiling)
	}
	return e
}

// believed returns how much of a wait requested by the provider to observe: at most what the
// owner allows, and a law may have found that the provider uses a different unit.
func (l *Pool) believed(c reason.Class, wait time.Duration) time.Duration {
	if b, ok := l.law.(interface {
		Believed(wait time.Duration) time.Duration
	}); ok && c.Throttle() {
		wait = b.Believed(wait)
	}
	return min(wait, l.set.params.MaxRetryAfter)
}

// rest holds all attempts back until an instant.
func (l *Pool) rest(until time.Duration, why reason.Pressure) {
	if until > l.cooldown {
		l.cooldown, l.cooldownWhy = until, why
	}
}

// health returns what a class says about the provider's health. A refusal for rate says
// nothing: pacing handles it, and a breaker on top would only delay recovery.
//
// Neither does a refusal for load of an attempt that was in flight when another was refused so, or
// while the law waits: they meet the same refusal, and a limit that is answered with 503 would open
// the circuit each time.
func (l *Pool) health(now, sent time.Duration, c reason.Class) breaker.Result {
	switch c {
	case reason.OK, reason.Rejected:
		return breaker.Success
	case reason.Overloaded:
		if l.Waiting() || sent < l.overloaded {
			return breaker.Neutral
		}
		l.overloaded = now
		return breaker.Failure
	case reason.Failed, reason.Lost:
		return breaker.Failure
	case reason.Unknown, reason.Throttled:
	}
	return breaker.Neutral
}

// waiter is a law that holds all attempts back for a while after a refusal.
type waiter interface{ Waiting() bool }

// Waiting reports whether the law holds all attempts back after a refusal. The outcome of the next one
// shows whether others may follow.
func (l *Pool) Waiting() bool {
	w, ok := l.law.(waiter)
	return ok && w.Waiting()
}

// maxHeard bounds the advertised limits that are remembered; no provider has as many.
const maxHeard = 8

// hear remembers the advertised limits, whether or not the law uses them.
func (l *Pool) hear(facts []control.Fact) {
	for i := range facts {
		f := &facts[i]
		at := slices.IndexFunc(l.heard, func(h control.Fact) bool {
			return h.Name == f.Name && h.PerCost == f.PerCost && h.InFlight == f.InFlight
		})
		switch {
		case at < 0 && len(l.heard) == maxHeard:
			continue
		case at < 0:
			l.heard = append(l.heard, *f)
			at = len(l.heard) - 1
			l.heard[at].Name = strings.Clone(f.Name) // the name is part of a whole header
		}
		h := &l.heard[at]
		h.Refills = f.Refills
		if f.Quota >= 0 {
			h.Quota = f.Quota
		}
		if f.Window > 0 {
			h.Window = f.Window
		}
	}
}

// turns measures how often waiting attempts of a pool are served.
type turns struct {
	waiting int
	granted time.Duration // when a waiting attempt was last served
	gap     time.Duration // moving average of the time between two such instants
}

const (
	// gapShare is the divisor for the weight of the latest gap in the average.
	gapShare = 16
	// maxGap bounds a gap, as a multiple of the average.
	maxGap = 4
)

// Wait counts an attempt that begins to wait, Leave one that stops waiting.
func (l *Pool) Wait(now time.Duration) {
	if l.turns.waiting == 0 {
		l.turns.granted = now
	}
	l.turns.waiting++
}

// Leave undoes Wait.
func (l *Pool) Leave() { l.turns.waiting-- }

// Serve records that a waiting attempt was served.
func (l *Pool) Serve(now time.Duration) {
	t := &l.turns
	gap := now - t.granted
	t.granted = now
	if t.gap == 0 {
		t.gap = gap
		return
	}
	// The end of a window, or of a Retry-After, is not the usual gap between two
	// attempts.
	t.gap += (min(gap, maxGap*t.gap) - t.gap) / gapShare
}

// After estimates how long after the first waiting attempt the one goes that has n before
// it.
func (l *Pool) After(n int64) time.Duration {
	took := float64(n) * float64(l.law.Interval())
	if b, ok := l.law.(bursts); ok {
		took = float64(b.After(float64(n)))
	}
	return time.Duration(min(max(took, float64(n)*float64(l.turns.gap)), float64(maxAfter)))
}

// maxAfter bounds an estimated wait.
const maxAfter = 365 * 24 * time.Hour

// bursts is a law that knows how many attempts could go at once now.
type bursts interface {
	After(n float64) time.Duration
}
