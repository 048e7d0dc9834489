package fairqueue

import (
	"math"
	"math/bits"
	"time"
)

// maxPicks bounds how far [Queue.Wait] looks ahead.
const maxPicks = 4096

// horizon is the time over which a flow's arrivals are counted.
const horizon = 30 * time.Second

// meter sums the cost of the arrivals of about the last [horizon].
type meter struct {
	turn     time.Duration // when the current span ends
	new, old int64         // costs in the current span and in the one before
}

func (m *meter) add(now time.Duration, cost int64) {
	if now >= m.turn {
		m.old = 0
		if now < m.turn+horizon {
			m.old = m.new
		}
		m.new, m.turn = 0, (now/horizon+1)*horizon
	}
	m.new = min(m.new+cost, maxTag)
}

// sum returns the cost over the last horizon.
func (m *meter) sum(now time.Duration) int64 {
	switch {
	case now < m.turn:
		return m.new + scale(m.old, int64(m.turn-now), int64(horizon))
	case now < m.turn+horizon:
		return scale(m.new, int64(m.turn+horizon-now), int64(horizon))
	}
	return 0
}

// scale returns n x part / whole, rounded down, for numbers that are not negative. It is
// math.MaxInt64 if the result does not fit.
func scale(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	if hi >= uint64(whole) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(min(q, math.MaxInt64))
}

// lookahead is the state of a flow while Wait simulates the coming picks.
type lookahead[T any] struct {
	waiting     []*Item[T]
	near, far   int64
	weight      int64
	first, same int64 // waiting items of greater and of equal priority
	cost, load  int64 // of one item
	sum         int64 // cost that arrives in one horizon
	again       bool  // it was refused recently and comes back at once
	above       bool  // arriving items have greater priority
	taken       int64
}

// arrived returns how many items of the flow are expected to arrive within a time.
func (l *lookahead[T]) arrived(after time.Duration) int64 {
	switch {
	case after <= 0:
		return 0
	case l.again:
		return math.MaxInt64 / 4
	}
	// One arrival is no rate.
	return min(scale(max(0, l.sum-l.cost), int64(after), int64(horizon))/l.cost, math.MaxInt64/4)
}

func (l *lookahead[T]) serve(far bool) {
	l.taken++
	if !far {
		l.near += max(1, l.cost/l.weight)
	}
	l.far += max(1, l.cost/l.weight)
}

func (l *lookahead[T]) tag(far bool) int64 {
	if far {
		return l.far
	}
	return l.near
}

// serial is that of the flow's next item; further ones come after all that wait.
func (l *lookahead[T]) serial() uint64 {
	if l.taken < int64(len(l.waiting)) {
		return l.waiting[l.taken].serial
	}
	return math.MaxUint64
}

// Wait estimates how long an item would wait for one budget if it came now. It simulates
// the coming picks up to the item's own, among the items in the queue and those that
// their flows are expected to add at the recent rate. load returns what an item takes of
// the budget, 0 if it does not need the budget; a nil load means the item's cost. serves
// returns how long from now the budget takes to serve a load; it must not decrease with
// the load.
func (q *Queue[T]) Wait(now time.Duration, r Request, v T, load func(T) int64, serves func(load int64) time.Duration) time.Duration {
	mine, left := q.look(now, &r, load)
	own := r.cost()
	if load != nil {
		own = load(v)
	}
	var (
		work, again int64
		at          time.Duration
		far         = q.byFar
	)
	for range maxPicks {
		if l := q.pick(&mine, at, far); l != nil {
			l.serve(far)
			work += l.load
		} else {
			if left--; left == 0 {
				work += own
				break
			}
			mine.serve(far)
			work += mine.load
		}
		far = !far
		if work >= again { // as often as it makes a difference
			at = serves(work)
			again = work + work/32
		}
	}
	return serves(work)
}

// look collects the flows for Wait and counts the items of the request's own flow up to
// and including the request.
func (q *Queue[T]) look(now time.Duration, r *Request, load func(T) int64) (mine lookahead[T], left int64) {
	mine = lookahead[T]{near: q.near, far: q.join(), weight: r.weight(), cost: r.cost()}
	if f := q.flows[r.Flow]; f != nil {
		mine.near, mine.far = q.tags(now, f)
	}
	q.sketch, left = q.sketch[:0], 1
	for _, f := range q.active {
		l := lookahead[T]{near: f.near, far: f.far, weight: f.weight, again: now < f.kept, sum: f.arrivals.sum(now)}
		for _, w := range f.waiting {
			if w.Priority < r.Priority {
				break
			}
			takes := w.cost()
			if load != nil {
				takes = load(w.Value)
			}
			switch {
			case takes == 0:
				continue
			case w.Priority > r.Priority:
				l.first++
			default:
				l.same++
			}
			l.load += takes
			l.cost += w.cost()
		}
		n := l.first + l.same
		l.waiting = f.waiting[:n]
		switch {
		case n == 0:
		case f.name == r.Flow:
			mine.waiting, mine.first, mine.cost, mine.load = l.waiting, l.first, l.cost/n, l.load/n
			left += n
		default:
			l.cost, l.load, l.above = l.cost/n, l.load/n, l.first > l.same
			q.sketch = append(q.sketch, l)
		}
	}
	return mine, left
}

// pick returns the flow that is picked next after a given time; nil means the request's
// own flow.
func (q *Queue[T]) pick(mine *lookahead[T], after time.Duration, far bool) *lookahead[T] {
	var best *lookahead[T]
	key, serial, above := mine.tag(far), mine.serial(), mine.taken < mine.first
	for i := range q.sketch {
		l := &q.sketch[i]
		first, all := l.first, l.first+l.same
		if l.taken >= first { // further items matter
			n := l.arrived(after)
			if all += n; l.above {
				first += n
			}
		}
		urgent := l.taken < first
		if !urgent && (above || l.taken >= all) {
			continue
		}
		if tag, came := l.tag(far), l.serial(); urgent && !above || tag < key || tag == key && came < serial {
			best, key, serial, above = l, tag, came, urgent
		}
	}
	return best
}
