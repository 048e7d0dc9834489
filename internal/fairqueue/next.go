package fairqueue

import (
	"cmp"
	"math"
	"slices"
)

// Verdict is what stands in the way of an item. The zero Verdict passes it over.
type Verdict struct {
	// OK says that it goes.
	OK bool
	// Stop says that no further one may go either, whatever it needs.
	Stop bool
	// Blocked are those of the item's budgets that have no room for it: bit i is
	// Request.Budgets[i].
	Blocked uint32
}

// block is a budget that somebody waits for, and the greatest priority of those.
type block struct {
	budget   uint32
	priority int
}

// Begin starts a pass over those who wait: items that had no room in the one before may
// have some now.
func (q *Queue[T]) Begin() {
	q.blocked = q.blocked[:0]
	for _, f := range q.active {
		f.cursor = 0
	}
}

// Next takes the first in order out of the queue that may go, of those that the pass has
// not dealt with, and returns its value; ok is false when none may. It calls try for each
// that might go: try must not change the queue, and takes from the budgets what an item
// needs that it lets go.
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

// first is the next in order that this pass has not dealt with and that nobody before it
// blocks.
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

// Blocks reports whether, as of this pass, somebody of at least this
// priority waits for one of the budgets: a newcomer must not overtake.
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
