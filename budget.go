package headway

import (
	"slices"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// Budget is what an attempt needs besides the pace: capacity in further limits that
// several attempts share. A quota.Reservation is one. All methods but Confirm are called
// with the governor's lock held: they must not block, do I/O, or call the governor, not
// even through another goroutine that they wait for.
//
// When capacity becomes available early, the budget's owner calls [Governor.Wake].
type Budget interface {
	// Keys returns the numbers of the limits that the attempt needs: at most 31, each
	// below 1<<31. All budgets used with one governor must number the limits the same
	// way.
	Keys() []uint32
	// Cost returns what the attempt takes of the scarcest limit that the flows share, as
	// the time the limit needs to refill it. Shares are counted in this unit. Whole
	// returns how long that limit needs to refill completely.
	Cost() time.Duration
	Whole() time.Duration
	// Load returns what the attempt takes of one limit; 0 if it does not need it. Serves
	// returns how long from now the limit needs to serve that load.
	Load(key uint32) int64
	Serves(key uint32, load int64) time.Duration
	// Reserve takes all that the attempt needs, or nothing. If it took nothing, retryIn
	// is when to ask again, and bit i of blocked is set if Keys()[i] had no capacity. An
	// error refuses the attempt for good: waiting would not help.
	Reserve() (retryIn time.Duration, blocked uint32, err error)
	// Back returns what Reserve took, because the pace does not allow the attempt.
	Back()
	// Confirm makes durable what Reserve took. It is called without the lock, before the
	// permit is handed out. An error refuses the attempt.
	Confirm() error
	// Refuse returns the error for an attempt that would have to wait longer for the
	// limits than it may.
	Refuse(wait time.Duration) error
}

// reserve asks the budget of w, once the pace has allowed the attempt.
func (g *Governor) reserve(now time.Duration, w *waiter) (d pacing.Decision, blocked uint32, err error) {
	retryIn, blocked, err := w.budget.Reserve()
	if err != nil || retryIn <= 0 {
		return pacing.Decision{OK: err == nil}, 0, err
	}
	d = pacing.Decision{At: now + retryIn, Reason: reason.Pacing, Bound: reason.BoundCeiling}
	if d.At > w.deadline || retryIn > g.set.maxWait {
		return d, 0, w.budget.Refuse(retryIn)
	}
	g.waiters.fill(d.At, w.budget.Keys(), blocked)
	return d, blocked, nil
}

// fill records until when limits have no capacity for some waiter.
func (l *waiters) fill(until time.Duration, keys []uint32, blocked uint32) {
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

// unfit returns until when limits of a budget have no capacity for an attempt, and the
// set of its keys that this concerns.
func (l *waiters) unfit(now time.Duration, w *waiter) (until time.Duration, blocked uint32) {
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

// blockedElsewhere reports whether other waits for a limit that an attempt with these
// keys does not need. Until that limit has capacity, other does not compete for what both
// need.
func (l *waiters) blockedElsewhere(now time.Duration, other *waiter, keys []uint32) bool {
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

// Wake tries again to serve the waiting attempts, because a [Budget] may have more
// capacity.
func (g *Governor) Wake() {
	now := g.now()
	g.mu.Lock()
	if g.waiters.empty() {
		g.mu.Unlock()
		return
	}
	clear(g.waiters.full)
	for it := range g.waiters.queue.All() {
		if w := it.Value; w.budget != nil { // its needs may have changed
			r := it.Request
			r.Cost, r.Budgets = cost(w.budget), needs(w.budget, w.pool)
			g.waiters.queue.Update(it, r)
		}
	}
	moves := g.serve(now, nil)
	g.tellFleet(now)
	g.mu.Unlock()
	g.publish(moves...)
}
