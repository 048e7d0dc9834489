package fairqueue

import (
	"cmp"
	"math"
	"slices"
)

// Verdict says whether an item may go. The zero Verdict skips it.
type Verdict struct {
	// OK says that the item goes.
	OK bool
	// Stop says that no further item may go either, whatever it needs.
	Stop bool
	// Blocked is the set of the item's budgets that have no capacity for it: bit i is
	// Request.Budgets[i].
	Blocked uint32
}

// block is a budget that items wait for, with the greatest priority of those items.
type block struct {
	budget   uint32
	priority int
}

// Begin starts a pass over the waiting items: items that were blocked in the previous
// pass are tried again.
func (q *Queue[T]) Begin() {
	q.blocked = q.blocked[:0]
	for _, f := range q.active {
		f.cursor = 0
	}
}

// Next removes the first item in order that may go, among those that the pass has not
// tried yet, and returns its value; ok is false if none may. It calls try for each
// candidate: try must not change the queue, and takes from the budgets what an item needs
// when it lets it go.
func (q *Queue[T]) Next(try func(*Item[T]) Verdict) (v T, ok bool) {
	for w := q.first(); w != nil; w = q.first() {
		verdict := try(w)
		if verdict.OK {
			v = w.Value
			f, cost := w.flow, w.cost()
			q.Remove(w)
			q.serve(f, cost)
			return v, true
		}
		q.waited = true
		if verdict.Stop {
			break
		}
		w.flow.cursor++
		for i, n := range w.Budgets {
			if verdict.Blocked&(1<<i) != 0 && !q.holds(n, math.MinInt) {
				q.blocked = append(q.blocked, block{n, w.Priority})
			}
		}
	}
	return v, false
}

// first returns the next item in order that this pass has not tried and that no item
// before it blocks.
func (q *Queue[T]) first() *Item[T] {
	var best *Item[T]
	for _, f := range q.active {
		for f.cursor < len(f.waiting) && q.Blocks(f.waiting[f.cursor].Budgets, math.MinInt) {
			f.cursor++
		}
		if f.cursor == len(f.waiting) {
			continue
		}
		if w := f.waiting[f.cursor]; best == nil || q.before(w, best) {
			best = w
		}
	}
	return best
}

// Blocks reports whether in this pass an item of at least this priority waits for one of
// the budgets: a new item must not overtake it.
func (q *Queue[T]) Blocks(budgets []uint32, priority int) bool {
	for _, n := range budgets {
		if q.holds(n, priority) {
			return true
		}
	}
	return false
}

func (q *Queue[T]) holds(budget uint32, priority int) bool {
	return slices.ContainsFunc(q.blocked, func(b block) bool { return b.budget == budget && priority <= b.priority })
}

func (q *Queue[T]) before(a, b *Item[T]) bool {
	x, y := a.flow.near, b.flow.near
	if q.byFar {
		x, y = a.flow.far, b.flow.far
	}
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(x, y), cmp.Compare(a.serial, b.serial)) < 0
}
