package headway

import (
	"slices"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// Budget is what an attempt needs beside the pace: room in further limits, which
// attempts share. A quota.Reservation is one. But for Confirm its methods are called
// with the governor's lock held: they must not block, do I/O or call the governor back,
// also not through another goroutine that they wait for.
//
// When there is more room, the budget's owner calls [Governor.Wake].
type Budget interface {
	// Keys are the numbers of the shared limits that the attempt needs, at most 31, below
	// 1<<31. A number means the same for all who ask one governor.
	Keys() []uint32
	// Cost is what the attempt takes of the scarcest limit that flows have in common, as
	// the time that it takes to refill: it is what shares are counted in. Whole is how
	// long that limit takes to fill.
	Cost() time.Duration
	Whole() time.Duration
	// Load is what the attempt takes of one limit; 0 of one that it does not need. Serves
	// is how long, from now, the limit takes to serve so much.
	Load(key uint32) int64
	Serves(key uint32, load int64) time.Duration
	// Reserve takes what the attempt needs, or nothing. Then retryIn is when to ask
	// again, and bit i of blocked says that Keys()[i] had no room. The error is a refusal
	// that no wait helps.
	Reserve() (retryIn time.Duration, blocked uint32, err error)
	// Back gives back what Reserve took, for the pace does not allow the attempt.
	Back()
	// Confirm makes durable what Reserve took. It is called without the lock, before the
	// permit is handed out. An error refuses the attempt.
	Confirm() error
	// Refuse gives the refusal of an attempt that would have to wait so long for the
	// limits, which is too long.
	Refuse(wait time.Duration) error
}

// room asks the budget of w, after the pace has allowed it.
func (g *Governor) room(now time.Duration, w *waiter) (d pacing.Decision, blocked uint32, err error) {
	retryIn, blocked, err := w.budget.Reserve()
	if err != nil || retryIn <= 0 {
		return pacing.Decision{OK: err == nil}, 0, err
	}
	d = pacing.Decision{At: now + retryIn, Reason: reason.Pacing, Bound: reason.BoundCeiling}
	if d.At > w.deadline || retryIn > g.set.maxWait {
		return d, 0, w.budget.Refuse(retryIn)
	}
	g.line.fill(d.At, w.budget.Keys(), blocked)
	return d, blocked, nil
}

// fill notes until when limits have no room for somebody.
func (l *line) fill(until time.Duration, keys []uint32, blocked uint32) {
	for i, key := range keys {
		if blocked&(1<<i) == 0 {
			continue
		}
		if l.full == nil {
			l.full = map[uint32]time.Duration{}
		}
		l.full[key] = until
	}
}

// unfit is until when limits of a budget have no room for an attempt, and which of its keys
// those are.
func (l *line) unfit(now time.Duration, w *waiter) (until time.Duration, blocked uint32) {
	if w.budget == nil || len(l.full) == 0 {
		return 0, 0
	}
	for i, key := range w.item.Budgets {
		if at := l.full[key]; at > now {
			until, blocked = max(until, at), blocked|1<<i
		}
	}
	return until, blocked
}

// elsewhere reports whether other waits for a limit that an attempt with these keys does
// not need: it leaves what both need to that one meanwhile.
func (l *line) elsewhere(now time.Duration, other *waiter, keys []uint32) bool {
	if other.budget == nil || len(l.full) == 0 {
		return false
	}
	for _, key := range other.item.Budgets {
		if now < l.full[key] && !slices.Contains(keys, key) {
			return true
		}
	}
	return false
}

// Wake asks again for those who wait: a [Budget] may have more room.
func (g *Governor) Wake() {
	now := g.now()
	g.mu.Lock()
	if g.line.empty() {
		g.mu.Unlock()
		return
	}
	clear(g.line.full)
	for it := range g.line.queue.All() {
		if w := it.Value; w.budget != nil { // what it needs may be another since
			r := it.Request
			r.Cost, r.Budgets = cost(w.budget), needs(w.budget, w.pool)
			g.line.queue.Update(it, r)
		}
	}
	moves := g.serve(now, nil)
	g.tellFleet(now)
	g.mu.Unlock()
	g.publish(moves...)
}
