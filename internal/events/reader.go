package events

import (
	"strconv"
	"strings"
	"time"
)

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
