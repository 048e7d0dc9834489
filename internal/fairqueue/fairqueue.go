// Package fairqueue orders the items that wait for a shared limit: the greatest priority
// first; then the flow that was served least for its weight; then first come, first
// served. A flow is what shares are given to, such as a tenant.
//
// The queue does not know what an item waits for. [Queue.Next] asks its caller, who tries
// the item against pacing and budgets. No item overtakes another one that waits for a
// budget that both need.
//
// The order within a priority is start-time fair queueing (Goyal, Vin and Cheng, 1996).
// Each flow has two tags. The near tag forgets: a flow that was idle has saved nothing
// up. The far tag remembers, until the queue is empty and the budgets are full again, so
// that a flow that took more than its share of a burst gives it back. Picks alternate
// between the near and the far tag, so that giving back takes at most half of them.
//
// A [Queue] has no clock, lock or goroutine. Instants are durations since an origin that
// the caller chooses. Once warm, it does not allocate. It computes with integers only, so
// that the same calls give the same order on every machine.
package fairqueue

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// Unit is the cost of a request that has none.
const Unit = 1 << 20

const (
	maxWeight = 1000
	maxCost   = 1 << 50
	// maxFlows bounds the idle flows that are remembered.
	maxFlows = 10_000
	// maxTag is when tags are rebased, long before they overflow.
	maxTag = 1 << 60
)

// Request says what an item needs. The zero Request is one [Unit] for the flow "".
type Request struct {
	// Priority may be any number; the greatest goes first.
	Priority int
	// Flow is the flow whose share the item counts against.
	Flow string
	// Weight is the flow's weight, from 1 to 1000; values outside are clamped. The most
	// recent weight of a flow applies.
	Weight int
	// Cost is what the item takes of the scarcest shared budget, in a unit that is the
	// same for all items, up to 1<<50. Shares are rounded down to integers, so use large
	// costs. Zero or less means one [Unit].
	Cost int64
	// Budgets are the numbers of the shared budgets that the item needs, at most 32. The
	// slice is retained and must not change.
	Budgets []uint32
}

func (r *Request) cost() int64 {
	if r.Cost <= 0 {
		return Unit
	}
	return min(r.Cost, maxCost)
}

func (r *Request) weight() int64 { return int64(min(max(r.Weight, 1), maxWeight)) }

// Item is a waiting item. Once it has left the queue, by [Queue.Next] or [Queue.Remove],
// the queue reuses it: do not keep it.
type Item[T any] struct {
	Value T
	Request
	flow   *flow[T]
	serial uint64
}

// flow is the state of one flow.
type flow[T any] struct {
	name      string
	weight    int64
	near, far int64 // start tags of its next item
	waiting   []*Item[T]
	cursor    int           // the first of them that this pass has not dealt with
	kept      time.Duration // until then the near tag is kept though nobody waits
	arrivals  meter
}

// Queue holds the waiting items and what their flows were served. The zero value is ready
// to use. Not safe for concurrent use.
type Queue[T any] struct {
	// Burst is the capacity of the scarcest shared budget, in the unit of Request.Cost.
	// It bounds how much a flow that came late is compensated.
	Burst int64

	flows   map[string]*flow[T]
	active  []*flow[T] // those with items that wait
	weights int64      // of all flows
	serial  uint64
	len     int
	near    int64 // start tag of the item that was served last
	far     int64
	base    int64 // the far tag when the budgets were full last
	waited  bool  // somebody had to wait since
	byFar   bool  // which tag the next pick goes by

	blocked []block
	sketch  []lookahead[T]
	items   []*Item[T] // for use again
	spare   []*flow[T] // for use again
}

// Len returns the number of waiting items.
func (q *Queue[T]) Len() int { return q.len }

// Flows returns the number of flows that are remembered.
func (q *Queue[T]) Flows() int { return len(q.flows) }

// flow returns the flow of a request, making it if needed, with its near tag as of now.
func (q *Queue[T]) flow(now time.Duration, r *Request) *flow[T] {
	f := q.flows[r.Flow]
	if f == nil {
		if q.flows == nil {
			q.flows = map[string]*flow[T]{}
		}
		if len(q.flows)-len(q.active) >= maxFlows {
			q.forget(now)
		}
		if last := len(q.spare) - 1; last >= 0 {
			f, q.spare = q.spare[last], q.spare[:last]
		} else {
			f = &flow[T]{}
		}
		*f = flow[T]{name: r.Flow, near: q.near, far: q.join(), waiting: f.waiting[:0]}
		q.flows[r.Flow] = f
	}
	q.weights += r.weight() - f.weight
	f.weight = r.weight()
	f.near, f.far = q.tags(now, f)
	return f
}

// tags returns the tags of a flow's next item. A flow that was idle has saved nothing up,
// and is compensated no more than a new one.
func (q *Queue[T]) tags(now time.Duration, f *flow[T]) (near, far int64) {
	if len(f.waiting) == 0 && now >= f.kept {
		return max(f.near, q.near), max(f.far, q.join())
	}
	return f.near, f.far
}

// join returns the far tag of a new flow. A flow that comes before any item had to wait
// counts as present from the start; a later one is compensated by its share of a burst at
// most.
func (q *Queue[T]) join() int64 {
	if !q.waited {
		return q.base
	}
	return max(q.base, q.far-min(max(q.Burst, 0), maxTag)/(q.weights+1))
}

// forget drops flows without waiting items; flows with a refusal only if that does not
// free enough space.
func (q *Queue[T]) forget(now time.Duration) {
	for _, all := range [...]bool{false, true} {
		for _, f := range q.flows {
			if len(f.waiting) == 0 && (all || now >= f.kept) {
				q.drop(f)
			}
		}
		if len(q.flows)-len(q.active) <= maxFlows/2 {
			return
		}
	}
}

func (q *Queue[T]) drop(f *flow[T]) {
	delete(q.flows, f.name)
	q.weights -= f.weight
	f.name = ""
	q.spare = append(q.spare, f)
}

// Push adds an item to the queue. The result is for [Queue.Remove] and [Queue.Update].
func (q *Queue[T]) Push(now time.Duration, r Request, v T) *Item[T] {
	f := q.flow(now, &r)
	f.arrivals.add(now, r.cost())
	var w *Item[T]
	if last := len(q.items) - 1; last >= 0 {
		w, q.items = q.items[last], q.items[:last]
	} else {
		w = &Item[T]{}
	}
	q.serial++
	*w = Item[T]{Value: v, Request: r, flow: f, serial: q.serial}
	if len(f.waiting) == 0 {
		f.cursor = 0
		q.active = append(q.active, f)
	}
	at, _ := slices.BinarySearchFunc(f.waiting, w, order[T])
	f.waiting = slices.Insert(f.waiting, at, w)
	if at < f.cursor {
		f.cursor++
	}
	q.len++
	return w
}

// order compares two items of one flow.
func order[T any](a, b *Item[T]) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.serial, b.serial))
}

// Remove takes an item, which must be in the queue, out of it.
func (q *Queue[T]) Remove(w *Item[T]) {
	f := w.flow
	at, ok := slices.BinarySearchFunc(f.waiting, w, order[T])
	if !ok {
		panic("fairqueue: the item is not in the queue")
	}
	f.waiting = slices.Delete(f.waiting, at, at+1)
	if at < f.cursor {
		f.cursor--
	}
	if len(f.waiting) == 0 {
		last := len(q.active) - 1
		q.active[slices.Index(q.active, f)] = q.active[last]
		q.active[last] = nil
		q.active = q.active[:last]
	}
	q.len--
	*w = Item[T]{flow: f}
	q.items = append(q.items, w)
}

// Update changes weight, cost and budgets of a waiting item. Its priority and flow do not
// change.
func (q *Queue[T]) Update(w *Item[T], r Request) {
	w.Cost, w.Budgets = r.Cost, r.Budgets
	q.weights += r.weight() - w.flow.weight
	w.flow.weight = r.weight()
}

// Direct counts a request that goes at once, without having been in the queue.
func (q *Queue[T]) Direct(now time.Duration, r Request) {
	f := q.flow(now, &r)
	f.arrivals.add(now, r.cost())
	q.serve(f, r.cost())
}

// serve advances the tags. Only a pick by the near tag advances the queue's near tag:
// otherwise such picks would undo what picks by the far tag give back.
func (q *Queue[T]) serve(f *flow[T], cost int64) {
	if !q.byFar {
		q.near = max(q.near, f.near)
		f.near += max(1, cost/f.weight)
	}
	q.far = max(q.far, f.far)
	f.far += max(1, cost/f.weight)
	q.byFar = !q.byFar
	if max(f.near, f.far) > maxTag {
		q.rebase()
	}
}

// rebase lowers all tags by the same amount, so that they do not overflow.
func (q *Queue[T]) rebase() {
	near, far := q.near, q.far
	q.near, q.far, q.base = 0, 0, max(q.base-far, -maxTag)
	for _, f := range q.flows {
		f.near, f.far = max(f.near-near, -maxTag), max(f.far-far, -maxTag)
	}
}

// Refused records that a request was refused because it would wait too long, and that its
// caller was asked to come back after wait. The flow keeps its position for twice that
// time, even without waiting items. Otherwise a flow that is entitled to less than one
// item per longest allowed wait would never be served.
func (q *Queue[T]) Refused(now time.Duration, r Request, wait time.Duration) {
	f := q.flow(now, &r)
	const longest = time.Duration(1<<63 - 1)
	until := longest
	if wait <= (longest-now)/2 {
		until = now + 2*wait
	}
	f.kept = max(f.kept, until)
	f.arrivals.add(now, r.cost())
	q.waited = true
}

// Full reports that the shared budgets are full again: the service received so far is
// forgotten. It does nothing while items wait.
func (q *Queue[T]) Full(now time.Duration) {
	if q.len > 0 {
		return
	}
	q.waited = false
	q.base = q.far
	for _, f := range q.flows {
		if now < f.kept {
			f.far = q.far
			continue
		}
		q.drop(f)
	}
	q.rebase()
}

// All iterates over the waiting items in no particular order. Do not remove items during
// the loop.
func (q *Queue[T]) All() iter.Seq[*Item[T]] {
	return func(yield func(*Item[T]) bool) {
		for _, f := range q.active {
			for _, w := range f.waiting {
				if !yield(w) {
					return
				}
			}
		}
	}
}
