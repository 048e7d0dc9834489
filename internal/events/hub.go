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
// It is not a log: what has to outlive the process belongs into a store.
//
// A [Hub] is safe for concurrent use. Adding takes a short lock, calls nothing
// and never waits for a reader: readers have no queue of their own, they read
// from the one ring at their own pace. The zero Hub is not ready; see [New].
package events

import (
	"cmp"
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
	size = cmp.Or(size, DefaultSize)
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

// Oldest as the id in [Hub.Read] begins with the oldest entry that is kept.
const Oldest = "oldest"

// maxBatch is how many entries one [Reader.Next] gives: what a reader holds
// while it writes.
const maxBatch = 64

// Reader goes through a hub's entries in order. It is for one goroutine.
type Reader struct {
	hub   *Hub
	seq   uint64 // the last one given
	mark  bool   // a mark is owed
	batch []Entry
}

// Read makes a reader. id is the last entry that was seen: the reader goes on
// after it. The empty id begins with what comes from now on, [Oldest] with all
// that is kept. An id that this hub did not give, because it is of another
// process or no id at all, is answered by a mark and all that is kept.
func (h *Hub) Read(id string) *Reader {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &Reader{hub: h}
	switch id {
	case "":
		r.seq = h.last
		return r
	case Oldest:
		r.seq = h.before()
		return r
	}
	seq, ok := h.parse(id)
	if !ok {
		r.seq, r.mark = h.before(), true
		return r
	}
	r.seq = seq
	return r
}

// before is the number before the oldest entry that is kept.
func (h *Hub) before() uint64 { return h.last - uint64(len(h.ring)) }

// parse reads an id that this hub gave.
func (h *Hub) parse(id string) (seq uint64, ok bool) {
	number, ok := strings.CutPrefix(id, h.epoch+"-")
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseUint(number, 10, 64)
	// The id must be as we write it: no sign, no leading zeros, not from the future.
	if err != nil || seq > h.last || h.id(seq) != id {
		return 0, false
	}
	return seq, true
}

// Next gives the entries after those that were given, the oldest first and a
// few at a time; they are valid until the next call. When some were missed the
// first one is of type [Dropped]. Without any, more is closed when there are
// more, or the hub is closed; open is false once a closed hub has no more.
func (r *Reader) Next() (entries []Entry, more <-chan struct{}, open bool) {
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	r.batch = r.batch[:0]
	oldest := h.before()
	if r.mark || r.seq < oldest {
		mark := Entry{ID: h.id(oldest), At: time.Now(), Type: Dropped, Unknown: r.mark, seq: oldest}
		if !r.mark {
			mark.Dropped = oldest - r.seq
		}
		if len(h.ring) > 0 {
			// When the first one that was not missed happened.
			mark.At = h.ring[int(oldest%uint64(len(h.ring)))].At
		}
		r.mark, r.seq = false, oldest
		r.batch = append(r.batch, mark)
	}
	for r.seq < h.last && len(r.batch) < maxBatch {
		// The entry after seq is at seq % kept: while the ring grows the numbers
		// begin at its beginning, and from then on kept is the size.
		r.batch = append(r.batch, h.ring[int(r.seq%uint64(len(h.ring)))])
		r.seq++
	}
	return r.batch, h.changed, !h.closed || len(r.batch) > 0
}

// ID is what to come back with: the id of the last entry that was given, or
// where the reader began.
func (r *Reader) ID() string { return r.hub.id(r.seq) }
