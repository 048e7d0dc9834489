package headway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// Governor is the rate authority of one connection. Make one with [New]. Safe for
// concurrent use.
type Governor struct {
	name string

	mu      sync.Mutex
	set     *settings
	core    pacing.Core
	permits permits
	line    *line // of those who wait; nil until somebody does, or has a share
	closed  bool  // nobody may come or be served any more
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

// Request is what an attempt asks for. The zero Request is one attempt.
type Request struct {
	// Priority: of those who wait, the greater goes first. Any number; default 0.
	Priority int
	// Flow is whose share of the rate the attempt counts against, such as a tenant.
	// Those who wait with the same priority have shares by the weights of their flows,
	// and are served in the order in which they came within a flow. Default "".
	Flow string
	// Weight is the flow's, from 1 to 1000; the newest counts. Default 1.
	Weight int
	// Cost is what the attempt is thought to take of a limit that counts units, such as
	// tokens. What it really took is reported by [Outcome].Cost when the permit is
	// settled. Law "cycle" learns such limits in units. Default 1.
	Cost float64
	// Pool names what the attempt shares limits with, such as a model or a group of
	// endpoints: what is refused in one pool slows no other, unless it is shown that the
	// whole account is limited. Default "", the account alone.
	Pool string
	// Budget is what the attempt needs beside the pace. Default nil, nothing.
	Budget Budget
}

// Acquire waits for leave to send one attempt. Callers are served in the order
// in which they came. The permit must be settled.
//
// It returns a *[Refusal], at once where that can be known, when the
// circuit is open, when the wait would exceed Config.MaxWait or the context's
// deadline, when the context ends, and after [Governor.Close]. RetryAt says
// when to come back.
func (g *Governor) Acquire(ctx context.Context) (Permit, error) {
	return g.AcquireFor(ctx, Request{})
}

// AcquireFor is [Governor.Acquire] for an attempt that has a priority, a share or a
// cost: the greater priority goes first, then the flow that was served least for its
// weight, then who came first.
func (g *Governor) AcquireFor(ctx context.Context, r Request) (Permit, error) {
	if err := ctx.Err(); err != nil {
		return Permit{}, g.gaveUp(err)
	}
	now := g.now()
	g.mu.Lock()
	ready := g.core.Arrive(now)
	if !g.line.empty() {
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

// TryAcquire gives a permit when one can be had now without waiting, ahead of
// nobody. Otherwise the error is a *[Refusal]. It never blocks, and pays no
// jitter: who does not wait is not in step with anybody.
func (g *Governor) TryAcquire() (Permit, error) {
	now := g.now()
	g.mu.Lock()
	p, d, fx := Permit{}, pacing.Decision{At: pacing.Forever, Reason: reason.Pacing}, pacing.Effects{}
	if g.line.empty() {
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

// pool is the pool of that name, nil for the account alone, with the lock held.
func (g *Governor) pool(now time.Duration, name string) *pacing.Pool {
	if name == "" {
		return nil
	}
	return g.core.In(now, name)
}

// poolOf is the pool of an attempt: the account for nil.
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

// expire gives up permits that were never settled, with the lock held.
func (g *Governor) expire(now time.Duration) (any bool) {
	for ticket := range g.permits.olderThan(now - g.set.permitTimeout) {
		g.core.Settle(now, ticket, pacing.Outcome{})
		any = true
	}
	return any
}

// settle is the other half of admit.
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
	if !g.line.empty() {
		moves = g.serve(now, nil) // the interval, a place or the circuit may have changed
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

// hopeless says why waiting for d makes no sense for who has until a deadline, after
// ahead others who are refused with it and come back before it; nil when it does.
func (g *Governor) hopeless(now time.Duration, d pacing.Decision, deadline time.Duration, ahead int) error {
	served := d
	if ahead > 0 && d.At != pacing.Forever {
		served.At += g.poolOf(d.Pool).After(int64(ahead))
	}
	switch {
	case d.Reason == reason.Closed || d.Reason == reason.CircuitOpen.Reason():
		return g.refuse(now, d)
	case d.At == pacing.Forever:
		return nil // it takes an outcome, and nobody knows when that comes
	case d.Reason == reason.Cooldown && d.At-now > g.set.maxWait:
		return g.refuse(now, served) // the provider's doing, whatever time the caller has
	case d.At > deadline:
		return g.late(served.At)
	case d.At-now > g.set.maxWait:
		return g.refuse(now, served)
	}
	return nil
}

// late is the refusal of who has no time until an instant.
func (g *Governor) late(at time.Duration) error {
	return &reason.Refusal{Reason: reason.Deadline, Scope: g.name, RetryAt: g.wall(at).Round(0)}
}

// refuse is the refusal that a decision stands for. A cooldown, and an interval
// beyond MaxWait, are refused in the name of the pressure that made them.
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

// Close refuses all who wait and all who come. Permits that are out can still
// be settled. It does not wait for them. A fleet is left.
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

// Learned is what a warm start needs, to be stored with the wall-clock time. It is
// that of the account; see [Governor.LearnedPools].
func (g *Governor) Learned() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.Learned()
}

// LearnedPools is what a warm start of the pools needs, by their names; nil when there
// are none.
func (g *Governor) LearnedPools() map[string]State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.LearnedPools()
}

// Part takes what the account has learned since before, which [Governor.Learned] gave, for
// the belief of one pool: where it turns out that only some of the attempts were refused,
// the rest are not held back by it. Those attempts are to name the pool from now on.
func (g *Governor) Part(pool string, before State) {
	now := g.now()
	g.mu.Lock()
	g.core.Part(now, pool, before)
	var moves []*notes
	if !g.line.empty() {
		moves = g.serve(now, nil)
	}
	g.mu.Unlock()
	g.publish(moves...)
}

// RestorePools takes what pools had learned before. Each starts with it when its first
// attempt comes; one that cannot be read starts cold.
func (g *Governor) RestorePools(all map[string]State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.RestorePools(all)
	g.tellLearned()
}

// Restore starts from what was learned before, clamped to the ceiling and the initial
// interval; a state that cannot be read is an error and changes nothing. Call it
// before the first Acquire. Whether a state is recent enough is the caller's to
// decide, with [Fresh].
func (g *Governor) Restore(s State) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.core.Restore(s); err != nil {
		return err
	}
	g.tellLearned()
	return nil
}

// Advertise takes in limits that the provider named apart from any attempt, such as in
// answer to a request for them: those of a pool, or of the account for "".
func (g *Governor) Advertise(pool string, limits []control.Fact) {
	now := g.now()
	g.mu.Lock()
	g.core.Advertise(now, pool, limits)
	var moves []*notes
	if !g.line.empty() {
		moves = g.serve(now, nil)
	}
	g.tellFleet(now)
	g.mu.Unlock()
	g.publish(moves...)
}

// Assume has a pool, or the account for "", begin with limits that the provider publishes,
// whatever the start; what responses say of them, or refuse, counts more. It does nothing
// where something was learned or sent already. The error is of a limit without sense.
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
