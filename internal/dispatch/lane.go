package dispatch

import (
	"math"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// lane is the state of one identity.
type lane struct {
	law      control.Parallelism
	breaker  breaker.Breaker
	spent    spent
	gate     time.Duration // nothing is sent before this instant
	inFlight int
	streak   int           // epochs throttled since the last success
	heard    bool          // an attempt has returned
	stopped  reason.Reason // None while the identity is in use
}

func newLane(p *Params, now time.Duration) lane {
	return lane{law: control.NewParallelism(&p.Law, now), spent: newSpent(p.Law.BusyBudget, p.Law.BusyWindow, now)}
}

// free returns how many more attempts may be sent now, if the next one has that many rows.
// If none, from is when there may be one and why is the reason.
func (l *lane) free(now time.Duration, p *Params, rows int) (n int, from time.Duration, why reason.Reason) {
	switch {
	case l.stopped != reason.None:
		return 0, Never, l.stopped
	case l.gate > now:
		return 0, l.gate, reason.Cooldown
	case l.breaker.ReadyAt(&p.Breaker) > now:
		return 0, l.breaker.ReadyAt(&p.Breaker), reason.CircuitOpen.Reason()
	}
	n = l.law.Level(now, l.inFlight) - l.inFlight
	if p.Hinted && !l.heard {
		n = min(n, 1-l.inFlight)
	}
	if n <= 0 {
		return 0, Never, reason.Concurrency
	}
	if !p.Law.Disabled {
		if at := l.spent.free(now, l.spent.expect(rows)); at > now {
			return 0, at, reason.Pacing
		}
	}
	return n, 0, reason.None
}

// held returns what limits the number of the lane's batches in flight.
func (l *lane) held(p *Params) reason.Bound {
	if p.Hinted && !l.heard {
		return reason.BoundLearning
	}
	return l.law.Bound()
}

// Bound returns what limits the number of batches in flight; with several identities, the
// bound of the one that is closest to sending more.
func (c *Core) Bound() reason.Bound {
	by := reason.BoundUnknown
	for i := range c.lanes {
		if c.lanes[i].stopped != reason.None {
			continue
		}
		if next := c.lanes[i].held(c.params); rankOf(next) > rankOf(by) {
			by = next
		}
	}
	return by
}

// rankOf orders bounds by how soon they may end.
func rankOf(b reason.Bound) int {
	switch b {
	case reason.BoundLearning:
		return 4
	case reason.BoundParallelism:
		return 3
	case reason.BoundLimit:
		return 2
	case reason.BoundCeiling:
		return 1
	default:
		return 0
	}
}

// Identity is the state of one identity, for display.
type Identity struct {
	// Law is the state of its parallelism law.
	Law control.ParallelismStatistics
	// InFlight is the number of its batches in flight.
	InFlight int
	// Circuit is the state of its breaker. RetryAt is when it sends again; 0 means now.
	Circuit breaker.State
	RetryAt time.Duration
	// Stopped is why it is no longer used; None while it is in use.
	Stopped reason.Reason
}

// Identities returns the states of all identities, in order. It changes nothing.
func (c *Core) Identities(now time.Duration) []Identity {
	all := make([]Identity, len(c.lanes))
	for i := range c.lanes {
		l := &c.lanes[i]
		all[i] = Identity{Law: l.law.Statistics(now), InFlight: l.inFlight, Circuit: l.breaker.State(), Stopped: l.stopped}
		if at := max(l.gate, l.breaker.ReadyAt(&c.params.Breaker)); at > now {
			all[i].RetryAt = at
		}
	}
	return all
}

const (
	// spentSlots is the number of slots in a window of execution time.
	spentSlots = 120
	// usualWindow is the assumed window until the provider or the owner states one. If it
	// is right, earlier execution time is already counted.
	usualWindow = 5 * time.Minute
)

// spent counts the execution time of an identity in the server's sliding window. The law's
// ceiling keeps the mean within the budget; spent keeps the sum within it, which whole
// batches could exceed.
//
// A batch in flight counts with its expected time, and a settled one with its real time,
// until its slot and a window have passed. So the sum is never below the server's, whether
// the server counts a batch from its start or from its end.
//
// Other users of the same identity are visible only through refusals: a refusal although
// the budget should suffice shows how much they use.
type spent struct {
	budget, window time.Duration // budget is 0 if unknown

	slot   time.Duration
	slots  [spentSlots + 2]time.Duration
	tail   int64 // the oldest slot that counts
	newest int64
	sum    time.Duration // of the slots
	flying time.Duration // expected time of the batches in flight
	perRow time.Duration // mean

	since time.Duration // when counting began

	// others is the execution time that other users spent of the budget in a window, as
	// estimated at othersAt from refusals. Half of it is forgotten in each half.
	others, othersAt, half time.Duration
}

const (
	// othersMargin is the part of the budget (1/othersMargin) by which later batches stay
	// below the last refusal.
	othersMargin = 50
	// firstHalf is the time after which half of others is forgotten. Each refusal doubles
	// it, up to lastHalf, because the other users are still there.
	firstHalf, lastHalf = 30 * time.Minute, 4 * time.Hour
)

func newSpent(budget, window, now time.Duration) spent {
	s := spent{budget: budget, since: now}
	if window <= 0 {
		window = usualWindow
	}
	s.cut(window)
	return s
}

// learn sets the server's budget.
func (s *spent) learn(now, budget, window time.Duration) {
	if budget <= 0 || window <= 0 {
		return
	}
	s.budget = budget
	if window != s.window {
		s.cut(window)
		s.since = now
	}
}

// cut starts counting again with slots of another length.
func (s *spent) cut(window time.Duration) {
	s.window, s.slot = window, (window+spentSlots-1)/spentSlots
	s.slots, s.sum, s.tail, s.newest = [spentSlots + 2]time.Duration{}, 0, 0, 0
}

// gone returns when a slot stops to count.
func (s *spent) gone(slot int64) time.Duration { return time.Duration(slot+1)*s.slot + s.window }

func (s *spent) at(slot int64) *time.Duration { return &s.slots[slot%int64(len(s.slots))] }

// roll removes slots that no longer count.
func (s *spent) roll(now time.Duration) {
	for s.sum > 0 && s.gone(s.tail) <= now {
		s.sum -= *s.at(s.tail)
		*s.at(s.tail) = 0
		s.tail++
	}
	s.newest = max(s.newest, int64(now/s.slot))
	if s.sum == 0 {
		s.tail = s.newest
	}
}

// expect returns the expected execution time of a batch with that many rows.
func (s *spent) expect(rows int) time.Duration { return s.perRow * time.Duration(rows) }

// add counts a settled batch.
func (s *spent) add(now, busy time.Duration, rows int) {
	s.roll(now)
	*s.at(s.newest) += busy
	s.sum += busy
	each := busy / time.Duration(max(rows, 1))
	if s.perRow == 0 {
		s.perRow = each
	}
	s.perRow += (each - s.perRow) / 8
}

// refused records that the server refused a batch with the expected time need because the
// budget is spent. The part of the budget that was not spent here is attributed to others.
// Before a full window has been counted, it may be an earlier load's, which soon stops to
// count.
func (s *spent) refused(now, need time.Duration) {
	if s.budget == 0 || now < s.since+s.window {
		return
	}
	s.roll(now)
	known := s.taken(now)
	s.half = min(2*s.half, lastHalf)
	if known < s.budget/othersMargin {
		s.half = firstHalf
	}
	s.others = min(max(s.budget-s.sum-s.flying-need, known)+s.budget/othersMargin, s.budget/2)
	s.othersAt = now
}

// taken returns the estimated use by others at an instant.
func (s *spent) taken(now time.Duration) time.Duration {
	if s.others == 0 {
		return 0
	}
	return time.Duration(float64(s.others) * math.Exp2(-float64(now-s.othersAt)/float64(s.half)))
}

// free returns when a batch that takes need fits the budget, or [Never] if that depends on
// a batch in flight. A batch larger than the whole budget fits when nothing else is spent.
func (s *spent) free(now, need time.Duration) time.Duration {
	if s.budget == 0 {
		return now
	}
	s.roll(now)
	over := s.sum + s.flying + need + s.taken(now) - s.budget
	if over <= 0 || s.sum+s.flying == 0 {
		return now
	}
	last := now
	for slot := s.tail; slot <= s.newest; slot++ {
		if spent := *s.at(slot); spent > 0 {
			over, last = over-spent, s.gone(slot)
		}
		if over <= 0 {
			return last
		}
	}
	if s.flying > 0 {
		return Never
	}
	return last
}

// Sizer finds the number of rows with which a batch takes the target time. It is not safe
// for concurrent use.
type Sizer struct {
	size, limit int
	target      time.Duration
	perRow      time.Duration // mean
}

// NewSizer starts with first rows and never exceeds limit. If the target is not positive,
// the size does not change.
func NewSizer(first, limit int, target time.Duration) Sizer {
	limit = max(limit, 1)
	return Sizer{size: min(max(first, 1), limit), limit: limit, target: target}
}

// Size returns the number of rows that the next batch should have.
func (s *Sizer) Size() int { return s.size }

// Observe records how long a served batch took. The size changes at most by a factor of
// two. It grows only on the evidence of batches of the current size.
func (s *Sizer) Observe(rows int, took time.Duration) {
	if s.target <= 0 || rows < 1 || rows*2 < s.size {
		return
	}
	each := max(took, 1) / time.Duration(rows)
	if s.perRow == 0 {
		s.perRow = each
	}
	s.perRow += (each - s.perRow) / 4
	ideal := s.limit
	if s.perRow > 0 {
		ideal = int(min(s.target/s.perRow, time.Duration(s.limit)))
	}
	if ideal > s.size && rows < s.size {
		return
	}
	s.size = max(min(ideal, s.size*2, s.limit), s.size/2, 1)
}

// TooLarge records that the server refused a batch for its size. Later batches have fewer
// rows.
func (s *Sizer) TooLarge(rows int) {
	s.limit = min(s.limit, max(rows/2, 1))
	s.size = min(s.size, s.limit)
}

// TooSlow records that a batch timed out. The size is halved, once for all batches of that
// size.
func (s *Sizer) TooSlow(rows int) {
	if s.target > 0 && rows >= s.size && rows < s.size*2 {
		s.size = max(s.size/2, 1)
	}
}
