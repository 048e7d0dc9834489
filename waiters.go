package headway

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/fairqueue"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// waiters holds the waiting attempts and what their flows were served. A caller that
// changes something serves them ([Governor.serve]). One of those still waiting then owns
// the timer, so that a connection has one timer and wakes one goroutine.
type waiters struct {
	queue  fairqueue.Queue[*waiter]
	owner  *waiter                  // owns the timer; nil if none waits
	wakeAt time.Duration            // when the timer fires
	held   Wait                     // what the first waits for
	gone   []*waiter                // waiters to refuse
	full   map[uint32]time.Duration // until when limits of budgets have no capacity for some waiter

	last time.Duration // when an attempt last waited
}

// waiter is one waiting attempt.
type waiter struct {
	item     *fairqueue.Item[*waiter]
	came     time.Duration
	attempt  pacing.Attempt
	from     *pacing.Pool // the attempt's pool, or the account's
	pool     string
	budget   Budget        // nil without a budget
	deadline time.Duration // of the caller's context
	held     Wait          // what held it up when it was first

	wake chan struct{} // capacity 1: a wake-up is never lost and never blocks
	// The result of the wait. If done is false, a wake-up makes it check the timer.
	done   bool
	permit Permit
	err    error
}

func (l *waiters) empty() bool { return l == nil || l.queue.Len() == 0 }

func (l *waiters) len() int {
	if l == nil {
		return 0
	}
	return l.queue.Len()
}

func (l *waiters) first() Wait {
	if l.empty() {
		return Wait{}
	}
	return l.held
}

// leave removes w, with the lock held.
func (l *waiters) leave(now time.Duration, w *waiter) {
	l.queue.Remove(w.item)
	l.left(now, w)
}

// refuse removes a waiter that waits in vain. Its flow keeps its position until it comes
// back.
func (l *waiters) refuse(now time.Duration, w *waiter, wait time.Duration) {
	r := w.item.Request
	l.leave(now, w)
	if wait > 0 {
		l.queue.Refused(now, r, wait)
	}
	w.end(Permit{}, w.err)
}

// refused counts the waiters that are refused together and come back for the same
// resource: those of one pool, or all if the account holds them up.
func (l *waiters) refused(pool *pacing.Pool) (n int) {
	for _, w := range l.gone {
		if pool == nil || w.attempt.Pool == pool {
			n++
		}
	}
	return n
}

// left records that w is out of the queue.
func (l *waiters) left(now time.Duration, w *waiter) {
	w.item, l.last = nil, now
	w.from.Leave()
	if l.owner == w {
		l.owner = nil
	}
}

// end wakes w with the result.
func (w *waiter) end(p Permit, err error) {
	w.done, w.permit, w.err = true, p, err
	w.permit.wait = w.held
	w.notify()
}

func (w *waiter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// share returns the request to the queue.
func (g *Governor) share(r *Request) fairqueue.Request {
	f := fairqueue.Request{Priority: r.Priority, Flow: r.Flow, Weight: r.Weight}
	if r.Budget != nil {
		f.Cost = cost(r.Budget)
	}
	f.Budgets = needs(r.Budget, r.Pool)
	return f
}

// needs returns the numbers of what an attempt shares with only some of the others: the
// limits of its budget and, last, its pool.
func needs(b Budget, pool string) (keys []uint32) {
	if b != nil {
		keys = b.Keys()
	}
	if pool != "" {
		keys = append(slices.Clip(keys), poolKey(pool))
	}
	return keys
}

// poolKey returns the number of a pool in the queue: attempts that wait for one pool let
// those of others pass. If two pools had the same number, they would only wait for each
// other.
func poolKey(pool string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, pool)
	return h.Sum32() | 1<<31
}

// cost returns what shares are counted in, nanoseconds. An attempt without a budget is
// one unit, about a millisecond.
func cost(b Budget) int64 { return int64(b.Cost()) }

// direct counts an attempt that goes without waiting, with the lock held. Without flows
// there is nothing to count.
func (g *Governor) direct(now time.Duration, r *Request) {
	if r.Flow == "" && (g.waiters == nil || g.waiters.queue.Flows() == 0) {
		return
	}
	f := g.share(r)
	g.settleShares(now, r, &f)
	g.waiters.queue.Direct(now, f)
}

// until returns how long a refusal asks to wait; 0 if it does not say.
func (g *Governor) until(now time.Duration, err error) time.Duration {
	if r, ok := errors.AsType[*reason.Refusal](err); ok && !r.RetryAt.IsZero() {
		return r.RetryAt.Sub(g.wall(now))
	}
	return 0
}

// memory is the minimum time for which the shares of idle flows are kept.
const memory = time.Minute

// settleShares makes the queue forget what was served, once no attempt has waited for as
// long as the limit needs to refill.
func (g *Governor) settleShares(now time.Duration, r *Request, f *fairqueue.Request) {
	if g.waiters == nil {
		g.waiters = &waiters{last: now}
	}
	l := g.waiters
	attempts, whole := g.poolOf(g.pool(now, r.Pool)).Burst()
	each, held := int64(fairqueue.Unit), time.Duration(0)
	if f.Cost > 0 {
		each = f.Cost
	}
	if r.Budget != nil {
		held = r.Budget.Whole()
		whole = max(whole, held)
	}
	if l.queue.Len() == 0 && now-l.last > max(memory, whole) {
		l.queue.Full(now)
		l.last = now
	}
	l.queue.Burst = max(int64(min(attempts, maxBurst)*float64(each)), int64(held))
}

// maxBurst bounds the attempts of a burst that are compensated for.
const maxBurst = 1 << 20

// join queues the request and waits. It is called with the lock held and releases it.
func (g *Governor) join(ctx context.Context, now, ready time.Duration, r *Request) (Permit, error) {
	f := g.share(r)
	g.settleShares(now, r, &f)
	pool := g.pool(now, r.Pool)
	w := &waiter{
		came: now, pool: r.Pool, attempt: pacing.Attempt{Ready: ready, Cost: r.Cost, Pool: pool},
		budget: r.Budget, deadline: math.MaxInt64, wake: make(chan struct{}, 1),
	}
	if until, ok := ctx.Deadline(); ok {
		w.deadline = until.Sub(g.set.origin)
		if !g.waiters.empty() {
			if wait, budget := g.expected(now, r); wait > w.deadline-now {
				g.waiters.queue.Refused(now, f, wait)
				err := g.inVain(now, r, wait, budget)
				g.mu.Unlock()
				return Permit{}, err
			}
		}
	}
	w.from = g.poolOf(pool)
	w.from.Wait(now)
	w.item = g.waiters.queue.Push(now, f, w)
	moves := g.serve(now, w)
	g.tellFleet(now)
	g.mu.Unlock()
	g.publish(moves...)
	return g.await(ctx, w, r)
}

// await sleeps until w is served or refused.
func (g *Governor) await(ctx context.Context, w *waiter, r *Request) (Permit, error) {
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for {
		g.mu.Lock()
		if w.done {
			g.mu.Unlock()
			if w.err != nil {
				return w.permit, w.err
			}
			return g.confirm(w.permit, w.budget)
		}
		var fired <-chan time.Time
		if g.waiters.owner == w {
			wait := g.waiters.wakeAt - g.now()
			if timer == nil {
				timer = time.NewTimer(wait)
			} else {
				timer.Reset(wait)
			}
			fired = timer.C
		}
		g.mu.Unlock()
		select {
		case <-w.wake:
		case <-fired:
			now := g.now()
			g.mu.Lock()
			moves := g.serve(now, w)
			g.tellFleet(now)
			g.mu.Unlock()
			g.publish(moves...)
		case <-ctx.Done():
			return g.abandon(w, r, ctx.Err())
		}
	}
}

// abandon ends a wait because the context ended. A permit granted at the same moment is
// given back. A refusal at the same moment as the deadline is the error returned.
func (g *Governor) abandon(w *waiter, r *Request, why error) (Permit, error) {
	now, overdue := g.now(), errors.Is(why, context.DeadlineExceeded)
	g.mu.Lock()
	if w.done {
		if w.err == nil && w.budget != nil {
			w.budget.Back()
		}
		g.mu.Unlock()
		w.permit.Cancel()
		if w.err != nil && overdue {
			return Permit{wait: w.held}, w.err
		}
		return Permit{wait: w.held}, g.gaveUp(why)
	}
	g.waiters.leave(now, w)
	var err error = g.gaveUp(why)
	if overdue {
		wait, budget := g.expected(now, r)
		g.waiters.queue.Refused(now, g.share(r), wait)
		err = g.inVain(now, r, wait, budget)
	}
	moves := g.serve(now, nil)
	g.tellFleet(now)
	g.mu.Unlock()
	g.publish(moves...)
	return Permit{wait: w.held}, err
}

// serve grants permits to the waiters that may go, refuses those that wait in vain, and
// gives one of the others the timer, with the lock held. Self is the waiter of the
// calling goroutine; it is not woken to set the timer.
func (g *Governor) serve(now time.Duration, self *waiter) (moves []*notes) {
	l := g.waiters
	if l.empty() {
		return nil
	}
	var (
		first  *waiter
		wakeAt = time.Duration(math.MaxInt64)
		permit Permit
	)
	try := func(it *fairqueue.Item[*waiter]) fairqueue.Verdict {
		w := it.Value
		p, a := g.ask(now, w)
		if note := g.note(now, a.fx); note != nil {
			moves = append(moves, note)
		}
		if a.OK {
			permit = p
			return fairqueue.Verdict{OK: true}
		}
		w.held = Wait{Reason: a.Reason, Bound: a.Bound}
		if w.err = a.err; w.err != nil {
			l.gone = append(l.gone, w)
			return fairqueue.Verdict{}
		}
		if first == nil {
			first = w
		}
		if a.At == pacing.Forever {
			// A slot becomes free when a permit is settled or times out.
			a.At = now + g.set.permitTimeout
		}
		wakeAt = min(wakeAt, a.At)
		if a.Pool != nil {
			return fairqueue.Verdict{Blocked: 1 << (len(it.Budgets) - 1)}
		}
		return fairqueue.Verdict{Stop: !a.budget, Blocked: a.blocked}
	}
	l.queue.Begin()
	for ok := true; ok; {
		var w *waiter
		w, ok = l.queue.Next(try)
		for _, w := range l.gone {
			l.refuse(now, w, g.until(now, w.err))
		}
		l.gone = l.gone[:0]
		if ok {
			last := l.last
			l.left(now, w)
			if w.held.Reason != reason.None || w.came < now {
				w.from.Serve(now)
			} else {
				l.last = last
			}
			w.end(permit, nil)
		}
	}
	l.held = Wait{}
	if first == nil {
		return moves // none is left
	}
	l.held, l.last = first.held, now
	switch {
	case l.owner == nil:
		// The newest waiter keeps the timer longest before it has to be handed on.
		for it := range l.queue.All() {
			if l.owner == nil || it.Value.came >= l.owner.came {
				l.owner = it.Value
			}
		}
	case l.owner != self && wakeAt >= l.wakeAt:
		return moves // the timer fires early, and is set again then
	}
	if l.wakeAt = wakeAt; l.owner != self {
		l.owner.notify()
	}
	return moves
}

// answer is what holds an attempt up.
type answer struct {
	pacing.Decision
	fx      pacing.Effects
	err     error  // refuses the attempt
	budget  bool   // the budget holds it up, so others may go
	blocked uint32 // of the budget's keys
}

// ask grants w a permit or returns what holds it up, with the lock held.
func (g *Governor) ask(now time.Duration, w *waiter) (p Permit, a answer) {
	if w.budget != nil && !g.closed {
		if until, blocked := g.waiters.unfit(now, w); until > now && g.core.Following() {
			// A permit is not asked for before there is room.
			a.Decision = pacing.Decision{At: until, Reason: reason.Pacing, Bound: reason.BoundCeiling}
			a.budget, a.blocked = true, blocked
			return p, a
		}
		if a.Decision = g.core.Ask(now, w.attempt); a.At == pacing.Forever && g.expire(now) {
			a.Decision = g.core.Ask(now, w.attempt)
		}
		if a.OK {
			if a.Decision, a.blocked, a.err = g.reserve(now, w); !a.OK {
				a.budget = true
				return p, a
			}
		}
	}
	if w.budget == nil || a.OK || g.closed {
		took := a.OK
		if p, a.Decision, a.fx = g.admit(now, w.attempt); !a.OK && took {
			w.budget.Back()
		}
	}
	if !a.OK {
		a.err = g.hopeless(now, a.Decision, w.deadline, g.waiters.refused(a.Pool))
	}
	return p, a
}

// confirm returns a permit once its budget is durable. It is called without the lock.
func (g *Governor) confirm(p Permit, b Budget) (Permit, error) {
	if b != nil {
		if err := b.Confirm(); err != nil {
			p.Cancel()
			return Permit{wait: p.wait}, err
		}
	}
	return p, nil
}

// expected estimates how long an attempt that came now would wait behind those that would
// go before it, and reports whether its budget is the reason, with the lock held.
func (g *Governor) expected(now time.Duration, r *Request) (wait time.Duration, budget bool) {
	l, share := g.waiters, g.share(r)
	first := time.Duration(0)
	pool := g.pool(now, r.Pool)
	if d := g.core.Ask(now, pacing.Attempt{Ready: now, Cost: r.Cost, Pool: pool}); d.At != pacing.Forever {
		first = max(0, d.At-now)
	}
	from := g.poolOf(pool)
	self := &waiter{budget: r.Budget, attempt: pacing.Attempt{Pool: pool}}
	wait = l.queue.Wait(now, share, self, func(other *waiter) int64 {
		if other != self && (other.attempt.Pool != pool || l.blockedElsewhere(now, other, share.Budgets)) {
			return 0
		}
		return 1
	}, func(n int64) time.Duration {
		return first + from.After(n-1)
	})
	if r.Budget == nil {
		return wait, false
	}
	for _, key := range r.Budget.Keys() {
		at := l.queue.Wait(now, share, self, func(other *waiter) int64 {
			if other.budget == nil || other != self && l.blockedElsewhere(now, other, share.Budgets) {
				return 0
			}
			return other.budget.Load(key)
		}, func(load int64) time.Duration { return r.Budget.Serves(key, load) })
		if at >= wait {
			wait, budget = at, at > 0
		}
	}
	return wait, budget
}

// inVain returns the refusal of an attempt that would wait too long.
func (g *Governor) inVain(now time.Duration, r *Request, wait time.Duration, budget bool) error {
	if budget {
		return r.Budget.Refuse(wait)
	}
	return g.late(now + min(wait, maxAdvertised))
}

// maxAdvertised bounds the wait in a refusal; estimates beyond it are worthless.
const maxAdvertised = 24 * time.Hour
