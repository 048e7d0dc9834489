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

// line holds those who wait, and what their flows were served. A caller that changes
// something serves them ([Governor.serve]); of those who still wait then, one has the
// alarm: one timer a connection, no herd.
type line struct {
	queue fairqueue.Queue[*waiter]
	next  *waiter                  // who has the alarm; nil when nobody waits
	alarm time.Duration            // when it goes off
	held  Wait                     // what the first waits for
	gone  []*waiter                // those for whom there is no point in waiting
	full  map[uint32]time.Duration // until when limits of budgets have no room for somebody

	last time.Duration // when somebody waited last
}

// waiter is one who waits.
type waiter struct {
	item     *fairqueue.Item[*waiter]
	came     time.Duration
	attempt  pacing.Attempt
	from     *pacing.Pool // its pool, or the account's
	pool     string
	budget   Budget        // nil without one
	deadline time.Duration // of its context
	held     Wait          // what stood in its way when it was first in line

	wake chan struct{} // capacity 1: a wake-up is never lost and never blocks
	// What it is woken for, unless it is to look at the alarm.
	done   bool
	permit Permit
	err    error
}

func (l *line) empty() bool { return l == nil || l.queue.Len() == 0 }

func (l *line) len() int {
	if l == nil {
		return 0
	}
	return l.queue.Len()
}

func (l *line) first() Wait {
	if l.empty() {
		return Wait{}
	}
	return l.held
}

// leave takes w out, with the lock held.
func (l *line) leave(now time.Duration, w *waiter) {
	l.queue.Remove(w.item)
	l.left(now, w)
}

// refuse takes out who waits in vain. Its flow keeps its place until it comes back.
func (l *line) refuse(now time.Duration, w *waiter, wait time.Duration) {
	r := w.item.Request
	l.leave(now, w)
	if wait > 0 {
		l.queue.Refused(now, r, wait)
	}
	w.end(Permit{}, w.err)
}

// refused counts those who are refused together and come back for the same: those of one
// pool, or all where it is the account that stands in the way.
func (l *line) refused(pool *pacing.Pool) (n int) {
	for _, w := range l.gone {
		if pool == nil || w.attempt.Pool == pool {
			n++
		}
	}
	return n
}

// left notes that w is out of the queue.
func (l *line) left(now time.Duration, w *waiter) {
	w.item, l.last = nil, now
	w.from.Leave()
	if l.next == w {
		l.next = nil
	}
}

// end wakes w with what it waited for.
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

// share is what the request asks the queue for.
func (g *Governor) share(r *Request) fairqueue.Request {
	f := fairqueue.Request{Priority: r.Priority, Flow: r.Flow, Weight: r.Weight}
	if r.Budget != nil {
		f.Cost = cost(r.Budget)
	}
	f.Budgets = needs(r.Budget, r.Pool)
	return f
}

// needs are the numbers of what an attempt shares with some of the others: the limits of
// its budget, and last its pool.
func needs(b Budget, pool string) (keys []uint32) {
	if b != nil {
		keys = b.Keys()
	}
	if pool != "" {
		keys = append(slices.Clip(keys), poolKey(pool))
	}
	return keys
}

// poolKey is the number under which the queue knows a pool: those who wait for one pool
// let those of others pass. Two pools of the same number would only wait for each other.
func poolKey(pool string) uint32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, pool)
	return h.Sum32() | 1<<31
}

// cost is what shares are counted in, nanoseconds; an attempt without a budget is one unit,
// which is about a millisecond here.
func cost(b Budget) int64 { return int64(b.Cost()) }

// direct counts an attempt that goes without having waited, with the lock held. Where
// nobody has a share there is nothing to count.
func (g *Governor) direct(now time.Duration, r *Request) {
	if r.Flow == "" && (g.line == nil || g.line.queue.Flows() == 0) {
		return
	}
	f := g.share(r)
	g.settleShares(now, r, &f)
	g.line.queue.Direct(now, f)
}

// until is how long a refusal asks to wait; 0 when it does not say.
func (g *Governor) until(now time.Duration, err error) time.Duration {
	if r, ok := errors.AsType[*reason.Refusal](err); ok && !r.RetryAt.IsZero() {
		return r.RetryAt.Sub(g.wall(now))
	}
	return 0
}

// memory is for how long shares are kept that nobody waits for, at least.
const memory = time.Minute

// settleShares has the queue forget what was served once nobody has waited for as long
// as the limit takes to be whole again.
func (g *Governor) settleShares(now time.Duration, r *Request, f *fairqueue.Request) {
	if g.line == nil {
		g.line = &line{last: now}
	}
	l := g.line
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

// maxBurst bounds the attempts of a burst that are made good.
const maxBurst = 1 << 20

// join stands at the place in the line that the request has, and waits. The lock is
// held; join gives it back.
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
		if !g.line.empty() {
			if wait, budget := g.expected(now, r); wait > w.deadline-now {
				g.line.queue.Refused(now, f, wait)
				err := g.inVain(now, r, wait, budget)
				g.mu.Unlock()
				return Permit{}, err
			}
		}
	}
	w.from = g.poolOf(pool)
	w.from.Wait(now)
	w.item = g.line.queue.Push(now, f, w)
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
		var alarm <-chan time.Time
		if g.line.next == w {
			wait := g.line.alarm - g.now()
			if timer == nil {
				timer = time.NewTimer(wait)
			} else {
				timer.Reset(wait)
			}
			alarm = timer.C
		}
		g.mu.Unlock()
		select {
		case <-w.wake:
		case <-alarm:
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

// abandon ends a wait from the waiter's side. A permit that crossed it on its way is
// given back; a refusal is the error where it is the deadline that it crossed.
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
	g.line.leave(now, w)
	var err error = g.gaveUp(why)
	if overdue {
		wait, budget := g.expected(now, r)
		g.line.queue.Refused(now, g.share(r), wait)
		err = g.inVain(now, r, wait, budget)
	}
	moves := g.serve(now, nil)
	g.tellFleet(now)
	g.mu.Unlock()
	g.publish(moves...)
	return Permit{wait: w.held}, err
}

// serve lets those go who may, refuses those who wait in vain, and sees to it that one of
// the others has the alarm, with the lock held. Self is the caller's own place: it is
// not woken for the alarm.
func (g *Governor) serve(now time.Duration, self *waiter) (moves []*notes) {
	l := g.line
	if l.empty() {
		return nil
	}
	var (
		first  *waiter
		alarm  = time.Duration(math.MaxInt64)
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
			// A place frees when a permit is settled, or when one times out.
			a.At = now + g.set.permitTimeout
		}
		alarm = min(alarm, a.At)
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
		return moves // nobody is left
	}
	l.held, l.last = first.held, now
	switch {
	case l.next == nil:
		// Who came last has it longest before it has to be handed on.
		for it := range l.queue.All() {
			if l.next == nil || it.Value.came >= l.next.came {
				l.next = it.Value
			}
		}
	case l.next != self && alarm >= l.alarm:
		return moves // it goes off early, and is set again then
	}
	if l.alarm = alarm; l.next != self {
		l.next.notify()
	}
	return moves
}

// answer is what stands in the way of an attempt.
type answer struct {
	pacing.Decision
	fx      pacing.Effects
	err     error  // there is no point in waiting
	budget  bool   // it is the budget, so that others may go
	blocked uint32 // of the budget's keys
}

// ask has w go, or says what stands in its way, with the lock held.
func (g *Governor) ask(now time.Duration, w *waiter) (p Permit, a answer) {
	if w.budget != nil && !g.closed {
		if until, blocked := g.line.unfit(now, w); until > now && g.core.Following() {
			// A permit is not asked for before there is room.
			a.Decision = pacing.Decision{At: until, Reason: reason.Pacing, Bound: reason.BoundCeiling}
			a.budget, a.blocked = true, blocked
			return p, a
		}
		if a.Decision = g.core.Ask(now, w.attempt); a.At == pacing.Forever && g.expire(now) {
			a.Decision = g.core.Ask(now, w.attempt)
		}
		if a.OK {
			if a.Decision, a.blocked, a.err = g.room(now, w); !a.OK {
				a.budget = true
				return p, a
			}
		}
	}
	if w.budget == nil || a.OK || g.closed {
		reserved := a.OK
		if p, a.Decision, a.fx = g.admit(now, w.attempt); !a.OK && reserved {
			w.budget.Back()
		}
	}
	if !a.OK {
		a.err = g.hopeless(now, a.Decision, w.deadline, g.line.refused(a.Pool))
	}
	return p, a
}

// confirm hands a permit out, once its budget is durable. The lock is not held.
func (g *Governor) confirm(p Permit, b Budget) (Permit, error) {
	if b != nil {
		if err := b.Confirm(); err != nil {
			p.Cancel()
			return Permit{wait: p.wait}, err
		}
	}
	return p, nil
}

// expected is about how long an attempt would wait that came now, for the attempts that
// would go before it, and whether it is its budget that takes so long, with the lock held.
func (g *Governor) expected(now time.Duration, r *Request) (wait time.Duration, budget bool) {
	l, share := g.line, g.share(r)
	first := time.Duration(0)
	pool := g.pool(now, r.Pool)
	if d := g.core.Ask(now, pacing.Attempt{Ready: now, Cost: r.Cost, Pool: pool}); d.At != pacing.Forever {
		first = max(0, d.At-now)
	}
	from := g.poolOf(pool)
	self := &waiter{budget: r.Budget, attempt: pacing.Attempt{Pool: pool}}
	wait = l.queue.Wait(now, share, self, func(other *waiter) int64 {
		if other != self && (other.attempt.Pool != pool || l.elsewhere(now, other, share.Budgets)) {
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
			if other.budget == nil || other != self && l.elsewhere(now, other, share.Budgets) {
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

// inVain is the refusal of who would have to wait so long.
func (g *Governor) inVain(now time.Duration, r *Request, wait time.Duration, budget bool) error {
	if budget {
		return r.Budget.Refuse(wait)
	}
	return g.late(now + min(wait, maxAdvertised))
}

// maxAdvertised bounds the wait of a refusal: beyond, nobody knows.
const maxAdvertised = 24 * time.Hour
