// Package events merges the events of all connections and all quotas of a process into
// one numbered sequence. Readers may disconnect and resume: the most recent events are
// kept up to a bound, each has an id from which a reader can resume, and a reader that
// missed some is informed how many.
//
// An id holds the epoch of the hub, which is random for each process, and a sequence
// number: "k3f9x2a1-123". So an id of an earlier process is recognized, and its reader
// gets all kept events, with a mark that more were lost.
//
// It is not a log: what must survive the process belongs in a store.
//
// A [Hub] is safe for concurrent use. Adding takes a short lock, calls nothing and never
// waits for a reader: readers have no queue of their own, they read from the one ring at
// their own pace. The zero Hub is not ready; see [New].
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

// DefaultSize is the number of entries that a [Hub] keeps by default, MaxSize the most
// that it can keep.
const (
	DefaultSize = 1000
	MaxSize     = 100_000
)

// Dropped is the type of the entry that stands for entries that a reader missed.
const Dropped = "dropped"

// Entry is one event in the sequence. Exactly one of Event and Quota is set, or neither
// for type [Dropped]. It is read-only, because readers share what it points to.
type Entry struct {
	// ID is what a reader resumes from.
	ID string `json:"id"`
	// At is when the event happened. For type [Dropped] it is the time of the first event
	// that was not missed, or now if there is none.
	At time.Time `json:"at"`
	// Type is the event's own type, such as "circuit" or "rate:throttle", or [Dropped].
	Type string `json:"type"`
	// Connection is the connection that Event concerns.
	Connection string `json:"connection,omitempty"`
	// Provider is the provider that the event belongs to, if any; always set for a Quota.
	Provider string `json:"provider,omitempty"`
	// Event is an event of a connection.
	Event *event.Event `json:"event,omitempty"`
	// Quota is an event of a quota.
	Quota *quota.Event `json:"quota,omitempty"`
	// Dropped is how many entries were missed; 0 for type [Dropped] if that is unknown,
	// as after a restart.
	Dropped uint64 `json:"dropped,omitempty"`
	// Unknown says, for type [Dropped], that this hub did not issue the id to resume
	// from, as after a restart: what follows is all that is kept.
	Unknown bool `json:"unknown,omitempty"`

	seq uint64
}

// Hub is the sequence of events. Make one with [New].
type Hub struct {
	epoch string
	size  int

	mu      sync.Mutex
	ring    []Entry // grows up to the size; then the oldest is at last % size
	last    uint64  // the number of the newest entry, and so of all that were added
	changed chan struct{}
	closed  bool
}

// New returns a hub that keeps size entries, 1 to [MaxSize]; 0 means [DefaultSize].
// Memory is allocated as entries come.
func New(size int) (*Hub, error) {
	if size < 0 || size > MaxSize {
		return nil, fmt.Errorf("events: size is %d, must be from 1 to %d, or 0 for %d", size, MaxSize, DefaultSize)
	}
	size = cmp.Or(size, DefaultSize)
	return &Hub{epoch: strings.ToLower(rand.Text()[:8]), size: size, changed: make(chan struct{})}, nil
}

// Connection adds an event of a collected connection. It can be used as OnEvent.
func (h *Hub) Connection(e event.Event) { h.connection("", e) }

// Proxied returns a function like Connection for a connection through which a provider is
// proxied.
func (h *Hub) Proxied(provider string) func(event.Event) {
	return func(e event.Event) { h.connection(provider, e) }
}

func (h *Hub) connection(provider string, e event.Event) {
	h.add(Entry{At: e.At, Type: string(e.Type), Connection: e.Connection, Provider: provider, Event: &e})
}

// Quota returns a function that adds the events of a provider's quota. It can be used as
// a governor's OnEvent.
func (h *Hub) Quota(provider string) func(quota.Event) {
	return func(e quota.Event) {
		h.add(Entry{At: e.At, Type: string(e.Type), Provider: provider, Quota: &e})
	}
}

// add numbers an entry, keeps it and wakes waiting readers. A closed hub still keeps
// entries.
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

// Close ends all readers: what [Reader.Next] returned stays valid, and every reader is
// informed that there will be no more. It may be called more than once.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.changed)
	}
}

// Len returns the number of entries kept.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ring)
}

// Total returns the number of entries ever added.
func (h *Hub) Total() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// Oldest as the id in [Hub.Read] starts with the oldest entry that is kept.
const Oldest = "oldest"

// maxBatch is the most entries that one [Reader.Next] returns, and so that a reader holds
// while it writes.
const maxBatch = 64

// Reader iterates over a hub's entries in order. Not safe for concurrent use.
type Reader struct {
	hub   *Hub
	seq   uint64 // the last one given
	mark  bool   // a mark is owed
	batch []Entry
}

// Read returns a reader that continues after the entry with this id. The empty id starts
// with the next entry, [Oldest] with all that is kept. For an id that this hub did not
// issue, the reader gets a mark and all that is kept.
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

// before returns the number before the oldest kept entry.
func (h *Hub) before() uint64 { return h.last - uint64(len(h.ring)) }

// parse parses an id that this hub issued.
func (h *Hub) parse(id string) (seq uint64, ok bool) {
	number, ok := strings.CutPrefix(id, h.epoch+"-")
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseUint(number, 10, 64)
	// The id must be exactly as this hub writes it: no sign, no leading zeros, not in the
	// future.
	if err != nil || seq > h.last || h.id(seq) != id {
		return 0, false
	}
	return seq, true
}

// Next returns the next entries, oldest first and a few at a time; they are valid until
// the next call. If some were missed, the first one is of type [Dropped]. If there are
// none, the channel more is closed when there are more or the hub is closed; open is
// false once a closed hub has no more.
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

// ID returns the id to resume from: that of the last entry returned, or where the reader
// started.
func (r *Reader) ID() string { return r.hub.id(r.seq) }
