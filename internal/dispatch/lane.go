package dispatch

import (
	"math"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// A lane is the state of one identity.
type lane struct {
	law      control.Parallelism
	breaker  breaker.Breaker
	spent    spent
	gate     time.Duration // nothing is sent before
	inFlight int
	streak   int           // epochs throttled since the last success
	heard    bool          // whether an attempt has come back
	stopped  reason.Reason // None while it may be used
}

func newLane(p *Params, now time.Duration) lane {
	return lane{law: control.NewParallelism(&p.Law, now), spent: newSpent(p.Law.BusyBudget, p.Law.BusyWindow, now)}
}

// free is how many more attempts may be sent now, the next one with that many
// rows. Without one it says from when there may be, and why not now.
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

// held is what keeps the lane from having more under way than it has places.
func (l *lane) held(p *Params) reason.Bound {
	if p.Hinted && !l.heard {
		return reason.BoundLearning
	}
	return l.law.Bound()
}

// Bound is what keeps more batches from being under way at once: of several
// identities the one that is nearest to having more.
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

// rankOf orders bounds by how soon they may give way.
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

// Identity is the state of one identity, to show.
type Identity struct {
	// Law is its parallelism.
	Law control.ParallelismStatistics
	// InFlight is how many batches it has under way.
	InFlight int
	// Circuit is where its breaker stands; RetryAt is when it sends again, 0 for now.
	Circuit breaker.State
	RetryAt time.Duration
	// Stopped is why it is not used any more; None while it is.
	Stopped reason.Reason
}

// Identities are the states of all identities, in order. It changes nothing.
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
	// spentSlots is into how many slots a window of execution time is cut.
	spentSlots = 120
	// usualWindow is the window that is kept until the provider or the owner says
	// which: then what was spent before is known too, if that is it.
	usualWindow = 5 * time.Minute
)

// spent is the execution time that an identity has spent of what its server
// allows in a sliding window. The law's ceiling makes the mean fit; this keeps
// the sum within the budget, which whole batches at that level can exceed by
// some of themselves.
//
// A batch counts as expected while it is under way and as it was from then on,
// until its slot and a window have passed: so the sum is never below the
// server's, whether that counts a batch from its start or from its end.
//
// Others who work as the same identity are seen only by what they leave: a
// refusal although there should be room tells how much they have.
type spent struct {
	budget, window time.Duration // budget is 0 while unknown

	slot   time.Duration
	slots  [spentSlots + 2]time.Duration
	tail   int64 // the oldest slot that counts
	newest int64
	sum    time.Duration // of the slots
	flying time.Duration // expected of the batches under way
	perRow time.Duration // mean

	since time.Duration // when counting began

	// others is what somebody else spends of the same budget in a window, as of
	// othersAt: refusals tell it, and half of it is forgotten in each half.
	others, othersAt, half time.Duration
}

const (
	// othersMargin is the part of the budget by which refusals keep away from
	// where the last one was.
	othersMargin = 50
	// firstHalf is how long it takes to forget half of what others spend; each
	// refusal doubles it, up to lastHalf, for others who stay.
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

// learn tells what the server allows.
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

// cut begins again with slots of another length.
func (s *spent) cut(window time.Duration) {
	s.window, s.slot = window, (window+spentSlots-1)/spentSlots
	s.slots, s.sum, s.tail, s.newest = [spentSlots + 2]time.Duration{}, 0, 0, 0
}

// gone is when a slot stops to count.
func (s *spent) gone(slot int64) time.Duration { return time.Duration(slot+1)*s.slot + s.window }

func (s *spent) at(slot int64) *time.Duration { return &s.slots[slot%int64(len(s.slots))] }

// roll lets slots go that do not count any more.
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

// expect is how long a batch of that many rows is thought to take.
func (s *spent) expect(rows int) time.Duration { return s.perRow * time.Duration(rows) }

// add counts a batch that is back.
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

// refused tells that the server refused a batch that was expected to take need
// because the budget is spent. What is not spent here, others have; before a
// window has been counted it may as well be the load before this one, which soon
// counts no more.
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

// taken is what others are thought to spend by now.
func (s *spent) taken(now time.Duration) time.Duration {
	if s.others == 0 {
		return 0
	}
	return time.Duration(float64(s.others) * math.Exp2(-float64(now-s.othersAt)/float64(s.half)))
}

// free is when a batch that takes need fits the budget; [Never] when only the
// end of one under way can tell. A batch beyond the whole budget fits when
// nothing else is spent.
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

// A Sizer finds how many rows a batch should have for it to take a target time.
// It is a plain value, not safe for concurrent use.
type Sizer struct {
	size, limit int
	target      time.Duration
	perRow      time.Duration // mean
}

// NewSizer starts at first rows, and never has more than limit. A target that is not positive
// keeps the size.
func NewSizer(first, limit int, target time.Duration) Sizer {
	limit = max(limit, 1)
	return Sizer{size: min(max(first, 1), limit), limit: limit, target: target}
}

// Size is how many rows the next batch should have.
func (s *Sizer) Size() int { return s.size }

// Observe tells how long a batch took that was served. The size at most doubles
// or halves at once, and grows only on what a batch of that size took: batches
// of the size before are evidence of that size alone.
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

// TooLarge tells of a batch that the server refused for its size: no batch will
// have as many rows again.
func (s *Sizer) TooLarge(rows int) {
	s.limit = min(s.limit, max(rows/2, 1))
	s.size = min(s.size, s.limit)
}

// TooSlow tells of a batch that timed out: the size halves, once for all batches
// of that size.
func (s *Sizer) TooSlow(rows int) {
	if s.target > 0 && rows >= s.size && rows < s.size*2 {
		s.size = max(s.size/2, 1)
	}
}
