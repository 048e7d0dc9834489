package headway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// Governor paces one connection. Make one with [New]. Safe for concurrent use.
type Governor struct {
	name string

	mu      sync.Mutex
	set     *settings
	core    pacing.Core
	permits permits
	waiters *waiters // waiting attempts; nil until an attempt waits or has a flow
	closed  bool     // all attempts are refused
	fleet   FleetWay
}

// New makes a governor. The error names the field, its value and its bound.
func New(c Config) (*Governor, error) {
	s, err := resolve(c)
	if err != nil {
		return nil, err
	}
	g := newGovernor(s, c.Name, c.Seed)
	g.enter(c)
	return g, nil
}

func newGovernor(s *settings, name string, seed uint64) *Governor {
	return &Governor{name: name, set: s, core: s.rules.Core(seed)}
}

func (g *Governor) now() time.Duration              { return time.Since(g.set.origin) }
func (g *Governor) wall(at time.Duration) time.Time { return g.set.origin.Add(at) }

// Request says what an attempt needs. The zero Request is one attempt with the defaults.
type Request struct {
	// Priority orders the waiting attempts: the greatest goes first. Any number; default 0.
	Priority int
	// Flow names whose share of the rate the attempt counts against, such as a tenant.
	// Waiting attempts of the same priority share the rate by the weights of their flows,
	// and are served first come, first served within a flow. Default "".
	Flow string
	// Weight is the flow's weight, from 1 to 1000; the most recent one applies. Default
	// 1.
	Weight int
	// Cost is the estimate of what the attempt takes of a limit that counts units, such
	// as tokens. The actual cost is reported by [Outcome].Cost when the permit is
	// settled. Law "cycle" learns such limits in units. Estimates that are always too high or too
	// low, or all alike, are corrected by what attempts did cost; not where responses name a limit by
	// cost, since such providers reserve what an attempt may take. Default 1.
	Cost float64
	// Pool names the group of attempts that share limits, such as a model or a group of
	// endpoints. A refusal in one pool does not slow the others, unless the whole account
	// turns out to be limited. Default "": the account only.
	Pool string
	// Budget is what the attempt needs besides the pace. Default nil: nothing.
	Budget Budget
}

// Acquire waits until one attempt may be sent. Callers are served first come, first
// served. The permit must be settled.
//
// It returns a *[Refusal] when the circuit is open, when the wait would exceed
// Config.MaxWait or the context's deadline, when the context ends, and after
// [Governor.Close]; at once if that can be known. RetryAt says when to come back.
func (g *Governor) Acquire(ctx context.Context) (Permit, error) {
	return g.AcquireFor(ctx, Request{})
}

// AcquireFor is [Governor.Acquire] for an attempt with a priority, a flow, a cost, a pool
// or a budget. The greatest priority goes first, then the flow that was served least for
// its weight, then the attempt that came first.
func (g *Governor) AcquireFor(ctx context.Context, r Request) (Permit, error) {
	if err := ctx.Err(); err != nil {
		return Permit{}, g.gaveUp(err)
	}
	now := g.now()
	g.mu.Lock()
	ready := g.core.Arrive(now)
	if !g.waiters.empty() {
		return g.join(ctx, now, now, &r)
	}
	if r.Budget != nil {
		return g.join(ctx, now, ready, &r)
	}
	p, d, fx := g.admit(now, pacing.Attempt{Ready: ready, Cost: r.Cost, Pool: g.pool(now, r.Pool)})
	if !d.OK {
		note := g.note(now, fx)
		p, err := g.join(ctx, now, ready, &r)
		g.publish(note)
		return p, err
	}
	g.direct(now, &r)
	note := g.note(now, fx)
	g.mu.Unlock()
	if note != nil {
		g.publish(note)
	}
	return p, nil
}

// TryAcquire returns a permit if one is available without waiting and no other attempt
// waits. Otherwise the error is a *[Refusal]. It never blocks, and there is no jitter: an
// attempt that does not wait is not in step with others.
func (g *Governor) TryAcquire() (Permit, error) {
	now := g.now()
	g.mu.Lock()
	p, d, fx := Permit{}, pacing.Decision{At: pacing.Forever, Reason: reason.Pacing}, pacing.Effects{}
	if g.waiters.empty() {
		p, d, fx = g.admit(now, pacing.Attempt{Ready: now})
	}
	var err error
	if d.OK {
		g.direct(now, &Request{})
	} else {
		err = g.refuse(now, d)
	}
	note := g.note(now, fx)
	g.mu.Unlock()
	g.publish(note)
	return p, err
}

// pool returns the named pool, or nil for the account, with the lock held.
func (g *Governor) pool(now time.Duration, name string) *pacing.Pool {
	if name == "" {
		return nil
	}
	return g.core.In(now, name)
}

// poolOf returns the given pool, or the account's if it is nil.
func (g *Governor) poolOf(pool *pacing.Pool) *pacing.Pool {
	if pool != nil {
		return pool
	}
	return &g.core.Pool
}

// admit asks the core, with the lock held.
func (g *Governor) admit(now time.Duration, a pacing.Attempt) (Permit, pacing.Decision, pacing.Effects) {
	if g.closed {
		return Permit{}, pacing.Decision{At: pacing.Forever, Reason: reason.Closed}, pacing.Effects{}
	}
	ticket, d, fx := g.core.Admit(now, a)
	if !d.OK && d.At == pacing.Forever && g.expire(now) {
		ticket, d, fx = g.core.Admit(now, a)
	}
	if !d.OK {
		return Permit{}, d, fx
	}
	slot, serial := g.permits.put(ticket)
	return Permit{g: g, slot: slot, serial: serial, sent: now}, d, fx
}

// expire gives back permits that were never settled, with the lock held.
func (g *Governor) expire(now time.Duration) (any bool) {
	for ticket := range g.permits.olderThan(now - g.set.permitTimeout) {
		g.core.Settle(now, ticket, pacing.Outcome{})
		any = true
	}
	return any
}

// settle takes the permit back and serves the attempts that may go now.
func (g *Governor) settle(p Permit, o Outcome) (settled bool) {
	now := g.now()
	g.mu.Lock()
	ticket, ok := g.permits.take(p.slot, p.serial)
	if !ok {
		g.mu.Unlock()
		return false
	}
	fx := g.core.Settle(now, ticket, pacing.Outcome(o))
	note := g.note(now, fx)
	var moves []*notes
	if !g.waiters.empty() {
		moves = g.serve(now, nil) // the interval, a free slot or the circuit may have changed
	}
	if g.fleet != nil {
		g.tellFleet(now)
	}
	g.mu.Unlock()
	if note != nil || moves != nil {
		g.publish(note)
		g.publish(moves...)
	}
	return true
}

// hopeless returns the refusal if there is no point in waiting for d until the deadline,
// and nil if there is. Ahead is the number of attempts that are refused together with
// this one and come back before it.
func (g *Governor) hopeless(now time.Duration, d pacing.Decision, deadline time.Duration, ahead int) error {
	served := d
	if ahead > 0 && d.At != pacing.Forever {
		served.At += g.poolOf(d.Pool).After(int64(ahead))
	}
	switch {
	case d.Reason == reason.Closed || d.Reason == reason.CircuitOpen.Reason():
		return g.refuse(now, d)
	case d.At == pacing.Forever:
		return nil // it depends on an outcome, whose time is unknown
	case d.Reason == reason.Cooldown && d.At-now > g.set.maxWait:
		return g.refuse(now, served) // the provider's doing, whatever the deadline
	case d.At > deadline:
		return g.late(served.At)
	case d.At-now > g.set.maxWait:
		return g.refuse(now, served)
	}
	return nil
}

// late returns the refusal of an attempt whose deadline ends before at.
func (g *Governor) late(at time.Duration) error {
	return &reason.Refusal{Reason: reason.Deadline, Scope: g.name, RetryAt: g.wall(at).Round(0)}
}

// refuse returns the refusal for a decision. For a cooldown, and for an interval longer
// than MaxWait, the reason is the pressure that caused it.
func (g *Governor) refuse(now time.Duration, d pacing.Decision) error {
	r := &reason.Refusal{Reason: d.Reason, Scope: g.name}
	if d.Reason == reason.Cooldown || d.Reason == reason.Pacing && d.At-now > g.set.maxWait {
		if why := g.core.Pressure(d); why != reason.None {
			r.Reason = why
		}
	}
	if d.At != pacing.Forever {
		r.RetryAt = g.wall(d.At).Round(0)
	}
	return r
}

func (g *Governor) gaveUp(err error) *reason.Refusal {
	why := reason.Canceled
	if errors.Is(err, context.DeadlineExceeded) {
		why = reason.Deadline
	}
	return &reason.Refusal{Reason: why, Scope: g.name, Err: err}
}

// Close refuses all waiting and future attempts and leaves the fleet. Outstanding permits
// can still be settled; Close does not wait for them.
func (g *Governor) Close() {
	now := g.now()
	g.mu.Lock()
	g.closed = true
	g.serve(now, nil)
	g.tellFleet(now)
	g.mu.Unlock()
	if g.fleet != nil {
		g.fleet.Leave()
	}
}

// Learned returns the state that a warm start needs, for the account; see
// [Governor.LearnedPools] for the pools. Store it with the wall-clock time.
func (g *Governor) Learned() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.Learned()
}

// LearnedPools returns the states that a warm start of the pools needs, by name; nil if
// there are no pools.
func (g *Governor) LearnedPools() map[string]State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.LearnedPools()
}

// Part moves what the account has learned since before, a result of [Governor.Learned],
// to one pool. Use it when it turns out that only some of the attempts were refused: the
// others are then no longer held back, and in a fleet those of the other members neither.
// Attempts of that kind must name the pool from now on.
func (g *Governor) Part(pool string, before State) {
	now := g.now()
	g.mu.Lock()
	g.core.Part(now, pool, before)
	var moves []*notes
	if !g.waiters.empty() {
		moves = g.serve(now, nil)
	}
	g.tellFleet(now)
	g.mu.Unlock()
	g.publish(moves...)
}

// RestorePools restores what pools learned earlier. Each pool starts from its state when
// its first attempt comes; a pool whose state cannot be read starts cold.
func (g *Governor) RestorePools(all map[string]State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.RestorePools(all)
	g.tellLearned()
}

// Restore starts from a state learned earlier, clamped to the ceiling and the initial
// interval. If the state cannot be read, it returns an error and changes nothing. Call it
// before the first Acquire. The caller decides with [Fresh] whether a state is recent
// enough.
func (g *Governor) Restore(s State) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.core.Restore(s); err != nil {
		return err
	}
	g.tellLearned()
	return nil
}

// Advertise records limits that the provider reported outside of any attempt, such as in
// answer to a query for them, for a pool or, for "", for the account.
func (g *Governor) Advertise(pool string, limits []control.Fact) {
	now := g.now()
	g.mu.Lock()
	g.core.Advertise(now, pool, limits)
	var moves []*notes
	if !g.waiters.empty() {
		moves = g.serve(now, nil)
	}
	g.tellFleet(now)
	g.mu.Unlock()
	g.publish(moves...)
}

// Assume starts a pool, or the account for "", from limits that the provider publishes,
// even if the governor is passive. Advertised limits and refusals take precedence. It
// does nothing if something was already learned or sent. The error says which limit is
// invalid.
func (g *Governor) Assume(pool string, limits []control.Limit) error {
	if len(limits) == 0 {
		return nil
	}
	now := g.now()
	g.mu.Lock()
	err := g.core.Assume(now, pool, limits)
	g.tellFleet(now)
	g.mu.Unlock()
	if err != nil {
		return fmt.Errorf("headway: %w", err)
	}
	return nil
}

// notes are the events of one call, built with the lock held and emitted after it is
// released.
type notes struct {
	at     time.Duration
	fx     pacing.Effects
	rate   *event.Rate
	limits []event.Limit
}

// note returns nil, without allocating, if there is nothing to report.
func (g *Governor) note(now time.Duration, fx pacing.Effects) *notes {
	if g.set.onEvent == nil || !fx.Rate && !fx.Circuit.Moved() {
		return nil
	}
	n := &notes{at: now, fx: fx}
	if fx.Rate {
		n.rate, n.limits = g.rate(fx.Pool), g.limits(now, fx.Pool)
	}
	return n
}

func (g *Governor) publish(all ...*notes) {
	for _, n := range all {
		if n != nil {
			g.emit(n)
		}
	}
}

func (g *Governor) emit(n *notes) {
	at := g.wall(n.at).Round(0)
	if moved := n.fx.Circuit; moved.Moved() {
		e := event.Event{
			At: at, Type: event.Circuit, Connection: g.name, Pool: n.fx.CircuitPool.Name(),
			Circuit: &event.Breaker{Previous: moved.From.String(), State: moved.To.String(), Trigger: moved.Trigger.String()},
		}
		if moved.To != breaker.Closed {
			e.Reason = reason.CircuitOpen.Reason()
		}
		g.set.onEvent(e)
	}
	if n.fx.Rate {
		g.set.onEvent(event.Event{
			At: at, Type: event.CollectionRate, Connection: g.name, Pool: n.fx.Pool.Name(),
			Note: n.fx.Change.String(), Rate: n.rate, Limits: n.limits,
		})
	}
}
