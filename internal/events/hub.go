// Package events merges the events of all connections and all quotas of a process
// into one numbered sequence. It answers "what happened since I last looked?"
// for readers that come and go: the newest events are kept within a bound, each
// has an id that a reader can come back with, and a reader that missed some learns
// how many, instead of being left to think that nothing happened.
//
// An id holds the epoch of the hub, random for each process, and a number that
// rises by one: "k3f9x2a1-123". So an id of an earlier process is known for what
// it is, and its reader gets all that is kept, with a mark that more was lost.
//
// It is not a log: what has to outlive the process belongs into a store. To keep
// the events of one connection in a library, use package event's Recorder.
//
// A [Hub] is safe for concurrent use. Adding takes a short lock, calls nothing
// and never waits for a reader: readers have no queue of their own, they read
// from the one ring at their own pace. The zero Hub is not ready; see [New].
package events

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/quota"
)

// DefaultSize is how many entries a [Hub] keeps by default, and
// MaxSize the most that it can keep.
const (
	DefaultSize = 1000
	MaxSize     = 100_000
)

// Dropped is the type of the entry that stands for those that a reader missed.
const Dropped = "dropped"

// Entry is one event in the sequence. Exactly one of Event and Quota is set;
// neither for type [Dropped]. It is read-only: readers share what it points to.
type Entry struct {
	// ID is what a reader comes back with.
	ID string `json:"id"`
	// At is when it happened; with type [Dropped] when the first one did that was not
	// missed, or now where there is none.
	At time.Time `json:"at"`
	// Type is the event's own type, as "circuit" or "rate:throttle", or [Dropped].
	Type string `json:"type"`
	// Connection is the connection that an Event is about.
	Connection string `json:"connection,omitempty"`
	// Provider is the provider that it belongs to, where there is one: always
	// for a Quota.
	Provider string `json:"provider,omitempty"`
	// Event is one of a connection.
	Event *event.Event `json:"event,omitempty"`
	// Quota is one of a quota.
	Quota *quota.Event `json:"quota,omitempty"`
	// Dropped is how many entries were missed; 0 with type [Dropped] when that is
	// not known, as after a restart.
	Dropped uint64 `json:"dropped,omitempty"`
	// Unknown says, with type [Dropped], that the id to go on after was not given by
	// this hub, as after a restart: what follows is all that is kept.
	Unknown bool `json:"unknown,omitempty"`

	seq uint64
}

// Hub is the sequence. Make one with [New].
type Hub struct {
	epoch string
	size  int

	mu      sync.Mutex
	ring    []Entry // grows up to the size; then the oldest is at last % size
	last    uint64  // the number of the newest entry, and so of all that were added
	changed chan struct{}
	closed  bool
}

// New makes a hub that keeps size entries, 1 to [MaxSize]; 0 is [DefaultSize].
// Memory is taken as entries come.
func New(size int) (*Hub, error) {
	if size < 0 || size > MaxSize {
		return nil, fmt.Errorf("events: size is %d, must be from 1 to %d, or 0 for %d", size, MaxSize, DefaultSize)
	}
	if size == 0 {
		size = DefaultSize
	}
	return &Hub{epoch: strings.ToLower(rand.Text()[:8]), size: size, changed: make(chan struct{})}, nil
}

// Connection adds an event of a collected connection. It fits where an OnEvent
// is asked for.
func (h *Hub) Connection(e event.Event) { h.connection("", e) }

// Proxied is Connection for events of a connection through which a provider is
// proxied.
func (h *Hub) Proxied(provider string) func(event.Event) {
	return func(e event.Event) { h.connection(provider, e) }
}

func (h *Hub) connection(provider string, e event.Event) {
	h.add(Entry{At: e.At, Type: string(e.Type), Connection: e.Connection, Provider: provider, Event: &e})
}

// Quota gives what adds the events of a provider's quota. It fits where a
// governor's OnEvent is asked for.
func (h *Hub) Quota(provider string) func(quota.Event) {
	return func(e quota.Event) {
		h.add(Entry{At: e.At, Type: string(e.Type), Provider: provider, Quota: &e})
	}
}

// add numbers an entry, keeps it and wakes who waits. A closed hub still keeps.
func (h *Hub) add(e Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := int(h.last % uint64(h.size))
	h.last++
	e.seq, e.ID = h.last, h.id(h.last)
	if at == len(h.ring) {
		h.ring = append(h.ring, e)
	} else {
		h.ring[at] = e
	}
	if !h.closed {
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

func (h *Hub) id(seq uint64) string { return h.epoch + "-" + strconv.FormatUint(seq, 10) }

// Close ends all readers: what [Reader.Next] returned before stays valid, and
// from now on every reader learns that there will be no more. It is safe to
// call again.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.changed)
	}
}

// Len is how many entries are kept, Total how many were ever added.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ring)
}

// Total is how many entries were ever added.
func (h *Hub) Total() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}
