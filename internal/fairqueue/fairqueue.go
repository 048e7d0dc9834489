// Package fairqueue decides who goes next of those who wait for a shared limit:
// the greater priority first; then the flow that was served least for its weight;
// then who came first. A flow is what shares are given to, such as a tenant.
//
// The queue does not know what an item waits for. [Queue.Next] asks its caller, who
// tries the item against pacing and budgets. Nobody overtakes on a budget that
// somebody before them waits for.
//
// The order within a priority is start-time fair queueing (Goyal, Vin and Cheng,
// 1996). Each flow has two tags. The near tag forgets: a flow that was away has saved
// nothing up. The far tag remembers, until nobody waits and the budgets are full
// again, so that a flow that took more than its share of a burst gives it back. Picks
// go by the near and the far tag in turn, so that giving back takes no more than half.
//
// A [Queue] has no clock, lock or goroutine. Instants are durations since an origin
// that the caller chooses. It allocates nothing once it has held as many items and
// flows as it holds now, and it computes with integers only, so that the same calls
// give the same order on every machine.
package fairqueue

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// Unit is the cost of a request that names none.
const Unit = 1 << 20

const (
	maxWeight = 1000
	maxCost   = 1 << 50
	// maxFlows bounds the flows that are remembered beside those that wait.
	maxFlows = 10_000
	// maxTag is where tags are moved back, long before they overflow.
	maxTag = 1 << 60
)

// Request is what an item asks for. The zero Request is one [Unit] for the flow "".
type Request struct {
	// Priority may be any number; the greater goes first.
	Priority int
	// Flow is whose share the item counts against.
	Flow string
	// Weight is the flow's, from 1 to 1000; what is outside counts as the nearer end.
	// The newest weight of a flow counts.
	Weight int
	// Cost is what the item takes of the scarcest shared budget, in any unit that is
	// the same for all items, up to 1<<50. The share of a flow is rounded down to 1, so
	// let costs be large. Zero or less is one [Unit].
	Cost int64
	// Budgets are the shared budgets that the item needs, at most 32, in the caller's
	// numbers. The slice is kept and must not change.
	Budgets []uint32
}

func (r *Request) cost() int64 {
	if r.Cost <= 0 {
		return Unit
	}
	return min(r.Cost, maxCost)
}

func (r *Request) weight() int64 { return int64(min(max(r.Weight, 1), maxWeight)) }

// Item is one that waits. It belongs to the queue again once it has left it: by
// [Queue.Next] or [Queue.Remove].
type Item[T any] struct {
	Value T
	Request
	flow   *flow[T]
	serial uint64
}

// flow is what the queue remembers of one flow.
type flow[T any] struct {
	name      string
	weight    int64
	near, far int64 // start tags of its next item
	waiting   []*Item[T]
	cursor    int           // the first of them that this pass has not dealt with
	kept      time.Duration // until then the near tag is kept though nobody waits
	arrivals  meter
}

// Queue holds those who wait, and what their flows were served. The zero value is
// ready for use. It is not safe for concurrent use.
type Queue[T any] struct {
	// Burst is what the scarcest shared budget holds when it is full, in the unit of
	// Request.Cost. It bounds what a flow that came late is given back.
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
	sketch  []lookahead
	items   []*Item[T] // for use again
	spare   []*flow[T] // for use again
}

// Len is how many wait.
func (q *Queue[T]) Len() int { return q.len }

// Flows is how many flows are remembered.
func (q *Queue[T]) Flows() int { return len(q.flows) }

// flow finds or makes the flow of a request, with its near tag as of now.
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

// tags are those of a flow's next item. A flow that was away has saved nothing up, and
// is given back no more than one that is new.
func (q *Queue[T]) tags(now time.Duration, f *flow[T]) (near, far int64) {
	if len(f.waiting) == 0 && now >= f.kept {
		return max(f.near, q.near), max(f.far, q.join())
	}
	return f.near, f.far
}

// join is the far tag of a flow that is new. One that comes before anybody had to wait
// was there from the start; later it is given back its share of a burst at most.
func (q *Queue[T]) join() int64 {
	if !q.waited {
		return q.base
	}
	return max(q.base, q.far-min(max(q.Burst, 0), maxTag)/(q.weights+1))
}

// forget drops the flows nobody waits for; those that were refused only where that
// does not make enough room.
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

// Push lets an item wait. The Item is for [Queue.Remove].
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

// order is that of the items of one flow.
func order[T any](a, b *Item[T]) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.serial, b.serial))
}

// Remove takes an item out of the queue that does not wait any longer. It must be in
// the queue.
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

// Update changes weight, cost and budgets of an item that waits. Its priority and flow
// stay as they are.
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

// serve moves the tags on. Only a pick by the near tag moves that one: else such picks
// would undo what those by the far tag give back.
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

// rebase moves all tags back by as much, so that they do not overflow.
func (q *Queue[T]) rebase() {
	near, far := q.near, q.far
	q.near, q.far, q.base = 0, 0, max(q.base-far, -maxTag)
	for _, f := range q.flows {
		f.near, f.far = max(f.near-near, -maxTag), max(f.far-far, -maxTag)
	}
}

// Refused notes that a request was refused because it would wait too long, and that its
// caller was asked to come back after wait: until twice that its flow keeps its place,
// though nobody of it waits. Without it, a flow that is entitled to less than one item
// in the longest wait that is allowed would never be served.
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

// Full says that the shared budgets are full again: what was served until now is
// forgotten. It does nothing while somebody waits.
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

// All gives the items that wait, in no particular order. Those that are to leave must
// be removed after the loop.
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
