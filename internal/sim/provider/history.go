package provider

import (
	"math"
	"slices"
	"time"
)

// history is a ring of the newest instants, of bounded length. It grows as it fills, so
// that a large limit that is never reached costs nothing.
type history struct {
	most int
	ring []time.Duration
	next int // position of the next instant, once the ring is full
}

func (h *history) add(now time.Duration) {
	if len(h.ring) < h.most {
		h.ring = append(h.ring, now)
		return
	}
	h.ring[h.next] = now
	if h.next++; h.next == len(h.ring) {
		h.next = 0
	}
}

// newest returns the n-th newest instant, from 1; ok is false if there are fewer.
func (h *history) newest(n int) (at time.Duration, ok bool) {
	if n > len(h.ring) {
		return 0, false
	}
	i := h.next - n
	if i < 0 {
		i += len(h.ring)
	}
	return h.ring[i], true
}

// since counts the instants after at, by binary search.
func (h *history) since(at time.Duration) int {
	low, high := 0, len(h.ring)
	for low < high {
		mid := (low + high + 1) / 2
		if t, _ := h.newest(mid); t > at {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

func (h *history) clone() history {
	c := *h
	c.ring = slices.Clone(h.ring)
	return c
}

// weighted is a sliding window over amounts of cost or busy time.
type weighted struct {
	configured int64
	window     time.Duration
	busy       bool
	largest    float64 // the largest future factor

	limit   int64
	sum     int64
	entries []charge // a queue: the first head entries are removed
	head    int
}

type charge struct {
	at     time.Duration
	amount int64
}

// amount returns the amount of d that counts here, at most the whole limit.
func (w *weighted) amount(d demand) int64 {
	if w.busy {
		return min(d.busy, w.limit)
	}
	return min(d.cost, w.limit)
}

func (w *weighted) expire(now time.Duration) {
	for w.head < len(w.entries) && w.entries[w.head].at+w.window <= now {
		w.drop()
	}
}

func (w *weighted) drop() {
	w.sum -= w.entries[w.head].amount
	w.head++
	// Move entries down when half are removed: constant time per entry, and bounded memory.
	if w.head*2 >= len(w.entries) {
		w.entries = append(w.entries[:0], w.entries[w.head:]...)
		w.head = 0
	}
}

func (w *weighted) free(now time.Duration, d demand) time.Duration {
	w.expire(now)
	over := w.sum + w.amount(d) - w.limit
	for i := w.head; over > 0; i++ {
		now = w.entries[i].at + w.window
		over -= w.entries[i].amount
	}
	return now
}

func (w *weighted) take(now time.Duration, d demand) {
	w.expire(now)
	amount := w.amount(d)
	if amount == 0 {
		return
	}
	w.sum += amount
	w.entries = append(w.entries, charge{at: now, amount: amount})
}

// reject charges cost, and removes charges older than a whole limit of newer ones, for the
// largest future limit. They have no effect any more, and a client that hammers would make
// the queue grow.
func (w *weighted) reject(now time.Duration, d demand) {
	if w.busy {
		return
	}
	w.take(now, d)
	for w.sum-w.entries[w.head].amount >= w.at(w.largest) {
		w.drop()
	}
}

func (w *weighted) scale(_ time.Duration, factor float64) {
	w.limit = w.at(factor)
}

func (w *weighted) at(factor float64) int64 {
	return max(1, int64(math.Round(float64(w.configured)*factor)))
}

func (w *weighted) quota(now time.Duration) Quota {
	w.expire(now)
	unit := 1000.0
	if w.busy {
		unit = float64(time.Second)
	}
	q := Quota{Limit: float64(w.limit) / unit, Remaining: float64(max(0, w.limit-w.sum)) / unit, Window: w.window, Reset: now}
	if n := len(w.entries); n > w.head {
		q.Reset = w.entries[n-1].at + w.window
	}
	return q
}

func (w *weighted) clone() limiter {
	c := *w
	c.entries = slices.Clone(w.entries[w.head:])
	c.head = 0
	return &c
}
