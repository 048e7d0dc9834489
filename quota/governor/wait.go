package governor

import (
	"context"
	"errors"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// waiter is one who waits in ApproveWait.
type waiter struct {
	done chan outcome // capacity 1, sent to once, by the one that takes it out of waiting
}

// outcome is how a wait ended.
type outcome struct {
	decision   quota.Decision
	at         time.Time
	generation uint64
	closed     bool
}

// ApproveWait is [Governor.Approve], but waits its turn: the greater priority
// first, then the tenant that was granted least for its weight, then who came
// first. It waits until the context's deadline, and no longer than
// Options.MaxWait. What cannot be served by then is refused at once, and so is
// what no wait helps: a daily cap, an unknown model, a full queue.
//
// The error is that of Approve; when the context ends it is a *reason.Refusal
// that matches context.Canceled or context.DeadlineExceeded.
func (g *Governor) ApproveWait(ctx context.Context, r quota.Request) (quota.Decision, error) {
	if err := ctx.Err(); err != nil {
		return quota.Decision{}, gaveUp(err)
	}
	maxWait := g.maxWait
	if deadline, ok := ctx.Deadline(); ok {
		maxWait = min(maxWait, time.Until(deadline))
	}
	g.mu.Lock()
	now := g.now()
	if g.closed {
		g.mu.Unlock()
		return quota.Decision{}, closed()
	}
	// Strictly before, so that an approval never meets the end of its context.
	id, d := g.core.Enqueue(now, r, now+max(maxWait-1, 1))
	if id == 0 {
		at := g.at(now)
		g.settled(now)
		g.mu.Unlock()
		g.tell()
		return d, d.Refusal(at)
	}
	w := &waiter{done: make(chan outcome, 1)}
	g.waiting[id] = w
	g.settled(now)
	g.mu.Unlock()
	g.tell()
	select {
	case o := <-w.done:
		return g.receive(now, o)
	default: // not served at once, so that an ended context counts
	}
	select {
	case o := <-w.done:
		return g.receive(now, o)
	case <-ctx.Done():
		return g.abandon(id, w, ctx.Err())
	}
}

// receive ends a wait with its outcome.
func (g *Governor) receive(asked time.Duration, o outcome) (quota.Decision, error) {
	if o.closed {
		return quota.Decision{}, closed()
	}
	return g.handOut(asked, o.at, o.decision, o.generation)
}

// abandon ends a wait from the waiter's side. An approval that crossed it on its
// way is given back.
func (g *Governor) abandon(id quota.Waiter, w *waiter, why error) (quota.Decision, error) {
	g.change(func(now time.Duration) {
		if g.waiting[id] == w {
			g.core.Withdraw(now, id)
			delete(g.waiting, id)
			return
		}
		if o := <-w.done; o.decision.Approved {
			_, _ = g.core.Cancel(now, o.decision.Permit) // it is ours, and nobody has seen it
		}
	})
	return quota.Decision{}, gaveUp(why)
}

// release hands the grants to those who wait for them, with the lock held.
func (g *Governor) release(now time.Duration, generation uint64) {
	for _, grant := range g.grants {
		w := g.waiting[grant.Waiter]
		delete(g.waiting, grant.Waiter)
		w.done <- outcome{decision: grant.Decision, at: g.at(now), generation: generation}
	}
}

func gaveUp(err error) error {
	why := reason.Canceled
	if errors.Is(err, context.DeadlineExceeded) {
		why = reason.Deadline
	}
	return &reason.Refusal{Reason: why, Scope: "quota", Err: err}
}
