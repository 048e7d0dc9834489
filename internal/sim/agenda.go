package sim

import "time"

// kind is what an event is about.
type kind uint8

const (
	ask    kind = iota // a line may have something that it may send
	arrive             // an attempt reaches the provider
	settle             // an answer is back
	finish             // the provider's work on a batch is over
)

// event is something that happens at an instant.
type event struct {
	at   time.Duration
	seq  uint64 // the order of planning, which settles ties
	kind kind
	line int32  // ask: whose; finish: the user
	ref  uint32 // ask: its generation; otherwise the attempt's place
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// agenda is what is yet to happen: a binary heap of plain values, so that
// planning allocates only while it grows.
type agenda struct {
	heap []event
	seq  uint64
}

func (a *agenda) plan(e event) {
	a.seq++
	e.seq = a.seq
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&a.heap[up]) {
			break
		}
		a.heap[i] = a.heap[up]
		i = up
	}
	a.heap[i] = e
}

// peek looks at the earliest event.
func (a *agenda) peek() (first event, ok bool) {
	if len(a.heap) == 0 {
		return event{}, false
	}
	return a.heap[0], true
}

// next takes the earliest event; ok is false when there is none.
func (a *agenda) next() (first event, ok bool) {
	if len(a.heap) == 0 {
		return event{}, false
	}
	first = a.heap[0]
	last := a.heap[len(a.heap)-1]
	a.heap = a.heap[:len(a.heap)-1]
	if n := len(a.heap); n > 0 {
		i := 0
		for {
			down := 2*i + 1
			if down >= n {
				break
			}
			if down+1 < n && a.heap[down+1].before(&a.heap[down]) {
				down++
			}
			if !a.heap[down].before(&last) {
				break
			}
			a.heap[i] = a.heap[down]
			i = down
		}
		a.heap[i] = last
	}
	return first, true
}
