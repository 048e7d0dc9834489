package headway

import "time"

// queue holds those who wait, first in first out. Only its head watches the
// clock: one timer a connection, no herd.
type queue struct {
	head, tail *waiter
	len        int32
	closed     bool // nobody may join or be served any more
}

type waiter struct {
	prev, next *waiter
	ready      time.Duration
	cost       float64
	wake       chan struct{} // capacity 1: a wake-up is never lost and never blocks
	timer      *time.Timer
	queued     bool
}

func (q *queue) empty() bool { return q.head == nil }

func (q *queue) push(ready time.Duration, cost float64) *waiter {
	w := &waiter{prev: q.tail, ready: ready, cost: cost, wake: make(chan struct{}, 1), queued: true}
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.len++
	return w
}

// remove takes w out; when it was the head the next one is woken.
func (q *queue) remove(w *waiter) {
	if !w.queued {
		return
	}
	w.queued = false
	q.len--
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	if w.prev == nil {
		q.wakeHead()
	}
}

func (q *queue) wakeHead() {
	if q.head == nil {
		return
	}
	select {
	case q.head.wake <- struct{}{}:
	default:
	}
}

// alarm sets the waiter's one timer.
func (w *waiter) alarm(d time.Duration) <-chan time.Time {
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
	return w.timer.C
}

func (w *waiter) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}
