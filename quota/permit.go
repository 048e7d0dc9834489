package quota

import "time"

// Permit is the right to make one call. It is a value: copies stand for the same permit,
// and only the first settlement or cancellation counts. The zero Permit is not a permit.
type Permit struct{ slot, serial uint32 }

// ending is how a permit ended.
type ending uint8

const (
	open ending = iota
	settled
	canceled
	expired
)

// hold is what an open permit has taken: at first its claim, then also the output drained
// beyond it.
type hold struct {
	claim
	at     time.Duration // when it was approved
	flowed int64         // output drained so far
	held   int64         // tokens reserved at first

	actual Usage // after settlement
	end    ending

	serial       uint32
	newer, older uint32 // neighbours in order of approval, plus one
	nextFree     uint32
}

// permits holds the open permits in slots. A slot is reused under a new serial, so that a
// stale permit finds nothing. The slot that has been free longest is reused first, so
// that the ending of a permit is known for as long as possible. Open permits are linked
// in order of approval: the oldest expires first.
type permits struct {
	slots          []hold
	free, lastFree uint32 // the queue of free slots, plus one
	oldest, newest uint32 // plus one
	open, expired  int64
}

// put allocates a slot for a permit and links it as the newest.
func (p *permits) put() (Permit, *hold) {
	if p.free == 0 {
		p.slots = append(p.slots, hold{})
		p.free = uint32(len(p.slots))
		p.lastFree = p.free
	}
	slot := p.free
	h := &p.slots[slot-1]
	p.free, h.nextFree = h.nextFree, 0
	h.serial++
	h.end, h.newer, h.older = open, 0, p.newest
	if p.newest == 0 {
		p.oldest = slot
	} else {
		p.slots[p.newest-1].newer = slot
	}
	p.newest = slot
	p.open++
	return Permit{slot, h.serial}, h
}

// find returns the permit's hold; nil if its slot was reused or the permit was never
// issued.
func (p *permits) find(id Permit) *hold {
	if id.slot == 0 || int(id.slot) > len(p.slots) {
		return nil
	}
	if h := &p.slots[id.slot-1]; h.serial == id.serial {
		return h
	}
	return nil
}

// issued reports whether the permit was ever issued.
func (p *permits) issued(id Permit) bool {
	return id.slot > 0 && int(id.slot) <= len(p.slots) && id.serial <= p.slots[id.slot-1].serial
}

// close ends an open permit.
func (p *permits) close(id Permit, h *hold, how ending) {
	if h.older == 0 {
		p.oldest = h.newer
	} else {
		p.slots[h.older-1].newer = h.newer
	}
	if h.newer == 0 {
		p.newest = h.older
	} else {
		p.slots[h.newer-1].older = h.older
	}
	h.route, h.end = nil, how
	if p.free == 0 {
		p.free = id.slot
	} else {
		p.slots[p.lastFree-1].nextFree = id.slot
	}
	p.lastFree = id.slot
	p.open--
}

// HoldBack records that something besides the budgets refused a request, such as the pace
// of its provider, and for how long requests are held back. It is counted and reported
// like a refusal by [Governor.Approve]: the global scope is in an episode of throttle
// until then. The budgets approve as before.
func (g *Governor) HoldBack(now time.Duration, r Request, wait time.Duration) {
	now = g.tick(now)
	var c claim
	d := Decision{Reason: Throttled, Code: CodeThrottled, RetryIn: max(wait, 0)}
	if !g.claim(now, &r, &c, &d) {
		return // an invalid request cannot be held back
	}
	n := g.root.node
	n.sync(now)
	if n.state != Exhausted {
		n.heldBack = max(n.heldBack, later(now, d.RetryIn))
		if n.state != Throttle {
			g.transition(n, HeldBack, now)
		}
		g.reschedule(n, now)
	}
	g.deny(now, &c, &d)
}
