package event

import (
	"cmp"
	"fmt"
	"sync"
)

// DefaultSize is how many events a [Recorder] keeps by default.
const DefaultSize = 250

// Recorder keeps the newest events within a bound, numbers all of them, and
// counts those that it let go. The zero value is ready and keeps [DefaultSize].
//
// What an event points to is kept, not copied: it must not change once the event
// was added. A Recorder reads no clock, calls nothing and never waits for a
// reader. It is safe for concurrent use and must not be copied.
//
// It is not a log: what has to outlive the process belongs into a store.
type Recorder struct {
	mu   sync.Mutex
	size int     // 0 is DefaultSize
	ring []Event // grows up to the size; then the oldest is at last % size
	last int64   // the number of the newest event, and so of all that were added
}

// NewRecorder makes a recorder that keeps size events; 0 is [DefaultSize]. A
// negative size is a programmer's error and panics. Memory is taken as events
// come, not in advance.
func NewRecorder(size int) *Recorder {
	if size < 0 {
		panic(fmt.Sprintf("event: recorder size is %d, must not be negative", size))
	}
	return &Recorder{size: size}
}

// Add keeps an event, and lets the oldest go when there are too many. It sets
// the event's Seq: 1 for the first, and one more for each that follows.
func (r *Recorder) Add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := cmp.Or(r.size, DefaultSize)
	at := int(r.last % int64(size))
	r.last++
	e.Seq = r.last
	if at == len(r.ring) {
		r.ring = append(r.ring, e)
		return
	}
	r.ring[at] = e
}

// Events gives the events that are kept, the oldest first. The slice is the
// caller's.
func (r *Recorder) Events() []Event { return r.Since(0) }

// Since gives the events with a greater Seq that are kept, the oldest first; the
// slice is the caller's, and nil when there are none. A reader that comes back
// with the last Seq that it saw has missed events when the first one's is not
// the next number.
func (r *Recorder) Since(seq int64) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := int64(len(r.ring))
	seq = max(seq, r.last-kept)
	if seq >= r.last {
		return nil
	}
	// The event after seq is at seq % kept: while the ring grows the numbers
	// begin at its beginning, and from then on kept is the size.
	events := make([]Event, 0, r.last-seq)
	from, to := seq%kept, (r.last-1)%kept+1
	if from < to {
		return append(events, r.ring[from:to]...)
	}
	return append(append(events, r.ring[from:]...), r.ring[:to]...)
}

// Dropped counts the events that were let go.
func (r *Recorder) Dropped() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last - int64(len(r.ring))
}
