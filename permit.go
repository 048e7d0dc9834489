package headway

import (
	"iter"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// Wait says what an attempt waited for. The zero value means that it did not wait.
type Wait struct {
	// Reason is what held the attempt up last; none if nothing did.
	Reason Reason
	// Bound is what the wait is due to: the owner's ceiling, a limit of the provider, and
	// so on; unknown if nothing held the attempt up.
	Bound reason.Bound
}

// Permit is the right to make one attempt. It is a value: copies stand for the same
// permit, and only the first settlement counts. The zero Permit is settled.
type Permit struct {
	g            *Governor
	slot, serial uint32
	sent         time.Duration
	wait         Wait
}

// Wait returns what the attempt waited for before it got its permit. The zero Permit that
// [Governor.Acquire] returns with an error has it too: what the attempt waited for until
// then.
func (p Permit) Wait() Wait { return p.wait }

// Settle reports how the attempt ended. It returns true if this call settled the permit,
// and false if the permit was settled before or has timed out.
func (p Permit) Settle(o Outcome) bool {
	if p.g == nil {
		return false
	}
	return p.g.settle(p, o)
}

// Cancel gives the permit back if nothing was sent or nothing was learned. The time that
// the permit took in the schedule is not given back. It is safe to defer Cancel and also
// call Settle.
func (p Permit) Cancel() bool { return p.Settle(Outcome{}) }

// permits holds the tickets of outstanding permits. A slot is reused with a new serial,
// so that a stale permit finds nothing.
type permits struct {
	slots   []slot
	free    uint32 // head of the list of free slots, plus one
	expired uint32
}

type slot struct {
	ticket pacing.Ticket
	serial uint32
	next   uint32 // the next free slot, plus one; inUse while the permit is outstanding
}

// inUse marks a slot whose permit is outstanding.
const inUse = ^uint32(0)

func (p *permits) put(t pacing.Ticket) (at, serial uint32) {
	if p.free == 0 {
		p.slots = append(p.slots, slot{})
		p.free = uint32(len(p.slots))
	}
	at = p.free - 1
	s := &p.slots[at]
	p.free = s.next
	s.ticket, s.next = t, inUse
	s.serial++
	return at, s.serial
}

func (p *permits) take(at, serial uint32) (pacing.Ticket, bool) {
	if int(at) >= len(p.slots) {
		return pacing.Ticket{}, false
	}
	s := &p.slots[at]
	if s.next != inUse || s.serial != serial {
		return pacing.Ticket{}, false
	}
	s.next = p.free
	p.free = at + 1
	return s.ticket, true
}

// olderThan removes the permits sent at or before an instant and yields their tickets.
func (p *permits) olderThan(at time.Duration) iter.Seq[pacing.Ticket] {
	return func(yield func(pacing.Ticket) bool) {
		for i := range p.slots {
			if s := &p.slots[i]; s.next == inUse && s.ticket.Sent() <= at {
				t, _ := p.take(uint32(i), s.serial)
				p.expired++
				if !yield(t) {
					return
				}
			}
		}
	}
}
