package headway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/event"
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
	queue   queue
	held    Wait // what the head of the queue waits for
}

// New makes a governor. The error names the field, its value and its bound.
func New(c Config) (*Governor, error) {
	s, err := resolve(c)
	if err != nil {
		return nil, err
	}
	return newGovernor(s, c.Name, c.Seed), nil
}

func newGovernor(s *settings, name string, seed uint64) *Governor {
	return &Governor{name: name, set: s, core: s.rules.Core(seed)}
}

func (g *Governor) now() time.Duration              { return time.Since(g.set.origin) }
func (g *Governor) wall(at time.Duration) time.Time { return g.set.origin.Add(at) }

// Acquire waits for leave to send one attempt. Callers are served in the order
// in which they came. The permit must be settled.
//
// It returns a *[Refusal], at once where that can be known, when the
// circuit is open, when the wait would exceed Config.MaxWait or the context's
// deadline, when the context ends, and after [Governor.Close]. RetryAt says
// when to come back.
func (g *Governor) Acquire(ctx context.Context) (Permit, error) {
	return g.AcquireCost(ctx, 1)
}

// AcquireCost is [Governor.Acquire] for an attempt that is thought to take so many
// units, such as tokens, of a limit that counts them. What it really took is reported
// by [Outcome].Cost when the permit is settled. Law "envelope" learns such limits
// in units; a cost that is not positive is 1.
func (g *Governor) AcquireCost(ctx context.Context, cost float64) (Permit, error) {
	if err := ctx.Err(); err != nil {
		return Permit{}, g.gaveUp(err)
	}
	now := g.now()
	g.mu.Lock()
	ready := g.core.Arrive(now)
	if g.queue.empty() {
		p, d, fx := g.admit(now, ready, cost)
		if d.OK {
			note := g.note(now, fx)
			g.mu.Unlock()
			g.publish(note)
			return p, nil
		}
		if err := g.hopeless(ctx, now, d, 0); err != nil {
			note := g.note(now, fx)
			g.mu.Unlock()
			g.publish(note)
			return Permit{}, err
		}
	} else if err := g.hopelessBehind(ctx, now); err != nil {
		g.mu.Unlock()
		return Permit{}, err
	}
	w := g.queue.push(ready, cost)
	g.mu.Unlock()
	return g.await(ctx, w)
}

// TryAcquire gives a permit when one can be had now without waiting, ahead of
// nobody. Otherwise the error is a *[Refusal]. It never blocks, and pays no
// jitter: who does not wait is not in step with anybody.
func (g *Governor) TryAcquire() (Permit, error) {
	now := g.now()
	g.mu.Lock()
	p, d, fx := Permit{}, pacing.Decision{At: pacing.Forever, Reason: reason.Pacing}, pacing.Effects{}
	if g.queue.empty() {
		p, d, fx = g.admit(now, now, 1)
	}
	var err error
	if !d.OK {
		err = g.refuse(now, d)
	}
	note := g.note(now, fx)
	g.mu.Unlock()
	g.publish(note)
	return p, err
}

// admit asks the core, with the lock held.
func (g *Governor) admit(now, ready time.Duration, cost float64) (Permit, pacing.Decision, pacing.Effects) {
	if g.queue.closed {
		return Permit{}, pacing.Decision{At: pacing.Forever, Reason: reason.Closed}, pacing.Effects{}
	}
	ticket, d, fx := g.core.Admit(now, ready, cost)
	if !d.OK && d.At == pacing.Forever && g.expire(now) {
		ticket, d, fx = g.core.Admit(now, ready, cost)
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
	g.queue.wakeHead() // the interval, a place or the circuit may have changed
	g.mu.Unlock()
	g.publish(note)
	return true
}

// await sleeps until w is the head and admitted, or there is no point in waiting.
func (g *Governor) await(ctx context.Context, w *waiter) (Permit, error) {
	defer w.stop()
	var held Wait
	leave := func() {
		if g.queue.head == w {
			g.held = Wait{}
		}
		g.queue.remove(w)
	}
	for {
		now := g.now()
		g.mu.Lock()
		var alarm <-chan time.Time
		if g.queue.head == w {
			p, d, fx := g.admit(now, w.ready, w.cost)
			var err error
			if d.OK {
				p.wait = held
			} else {
				held = Wait{Reason: d.Reason, Bound: d.Bound}
				g.held, p.wait = held, held
				err = g.hopeless(ctx, now, d, 0)
			}
			note := g.note(now, fx)
			if d.OK || err != nil {
				leave()
				g.mu.Unlock()
				g.publish(note)
				return p, err
			}
			g.mu.Unlock()
			g.publish(note)
			if d.At == pacing.Forever {
				// A place frees when a permit is settled, or when one times out.
				alarm = w.alarm(g.set.permitTimeout)
			} else {
				alarm = w.alarm(d.At - now)
			}
		} else {
			g.mu.Unlock()
		}
		select {
		case <-w.wake:
		case <-alarm:
		case <-ctx.Done():
			g.mu.Lock()
			leave()
			g.mu.Unlock()
			return Permit{wait: held}, g.gaveUp(ctx.Err())
		}
	}
}

// hopeless says why waiting for d makes no sense; nil when it does.
func (g *Governor) hopeless(ctx context.Context, now time.Duration, d pacing.Decision, queued time.Duration) error {
	switch {
	case d.Reason == reason.Closed || d.Reason == reason.CircuitOpen.Reason():
		return g.refuse(now, d)
	case d.At == pacing.Forever:
		return nil // it takes an outcome, and nobody knows when that comes
	case d.Reason == reason.Cooldown && d.At-now > g.set.maxWait:
		return g.refuse(now, d) // the provider's doing, whatever time the caller has
	}
	at := d.At + queued
	if deadline, ok := ctx.Deadline(); ok && g.wall(at).After(deadline) {
		return &reason.Refusal{Reason: reason.Deadline, Scope: g.name, RetryAt: g.wall(at).Round(0)}
	}
	if d.At-now > g.set.maxWait {
		return g.refuse(now, d)
	}
	return nil
}

// hopelessBehind is hopeless for one who would stand at the end of the queue.
func (g *Governor) hopelessBehind(ctx context.Context, now time.Duration) error {
	if _, ok := ctx.Deadline(); !ok {
		return nil
	}
	d := g.core.Earliest(now)
	return g.hopeless(ctx, now, d, time.Duration(g.queue.len)*g.core.Interval())
}

// refuse is the refusal that a decision stands for. A cooldown, and an interval
// beyond MaxWait, are refused in the name of the pressure that made them.
func (g *Governor) refuse(now time.Duration, d pacing.Decision) error {
	r := &reason.Refusal{Reason: d.Reason, Scope: g.name}
	if d.Reason == reason.Cooldown || d.Reason == reason.Pacing && d.At-now > g.set.maxWait {
		if why := g.core.Pressure(d.Reason); why != reason.None {
			r.Reason = why
		}
	}
	if d.At != pacing.Forever {
		r.RetryAt = g.wall(d.At).Round(0)
	}
	return r
}

func (g *Governor) gaveUp(err error) error {
	why := reason.Canceled
	if errors.Is(err, context.DeadlineExceeded) {
		why = reason.Deadline
	}
	return &reason.Refusal{Reason: why, Scope: g.name, Err: err}
}

// Close refuses all who wait and all who come. Permits that are out can still
// be settled. It does not wait for them.
func (g *Governor) Close() {
	g.mu.Lock()
	g.queue.closed = true
	g.queue.wakeHead()
	g.mu.Unlock()
}

// Learned is what a warm start needs, to be stored with the wall-clock time.
func (g *Governor) Learned() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.Learned()
}

// Restore starts from what was learned before, clamped to the ceiling and the initial
// interval; a state that cannot be read is an error and changes nothing. Call it
// before the first Acquire. Whether a state is recent enough is the caller's to
// decide, with [Fresh].
func (g *Governor) Restore(s State) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.Restore(s)
}

// notes are the events of one call, built under the lock and emitted after it.
type notes struct {
	at       time.Duration
	fx       pacing.Effects
	snapshot Snapshot
}

// note is nil, which costs nothing, when there is nothing to tell.
func (g *Governor) note(now time.Duration, fx pacing.Effects) *notes {
	if g.set.onEvent == nil || !fx.Rate && !fx.Circuit.Moved() {
		return nil
	}
	return &notes{at: now, fx: fx, snapshot: g.snapshot(now)}
}

func (g *Governor) publish(n *notes) {
	if n == nil {
		return
	}
	at := g.wall(n.at).Round(0)
	if moved := n.fx.Circuit; moved.Moved() {
		e := event.Event{
			At: at, Type: event.Circuit, Connection: g.name,
			Circuit: &event.Breaker{Previous: moved.From.String(), State: moved.To.String(), Trigger: moved.Trigger.String()},
		}
		if moved.To != breaker.Closed {
			e.Reason = reason.CircuitOpen.Reason()
		}
		g.set.onEvent(e)
	}
	if n.fx.Rate {
		g.set.onEvent(event.Event{
			At: at, Type: event.CollectionRate, Connection: g.name,
			Note: n.fx.Change.String(), Rate: n.snapshot.Rate,
		})
	}
}
