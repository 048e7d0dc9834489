package headway

import (
	"iter"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// Wait is what an attempt waited for; the zero value is for nothing.
type Wait struct {
	// Reason is what stood in the way last; none when nothing did.
	Reason Reason
	// Bound is what the wait stands for: the owner's ceiling, a limit of the provider,
	// and so on; unknown when nothing stood in the way.
	Bound reason.Bound
}

// Permit is leave for one attempt. It is a value: copies stand for the same
// permit, and only the first settlement counts. The zero Permit is settled.
type Permit struct {
	g            *Governor
	slot, serial uint32
	sent         time.Duration
	wait         Wait
}

// Wait is what the attempt waited for before it had its permit. It is known also
// of the zero Permit that [Governor.Acquire] gives beside an error: what the
// attempt waited for until then.
func (p Permit) Wait() Wait { return p.wait }

// Settle tells how the attempt ended and reports whether this call settled the
// permit: false when it had been settled, or had timed out, before.
func (p Permit) Settle(o Outcome) bool {
	if p.g == nil {
		return false
	}
	return p.g.settle(p, o)
}

// Cancel gives the permit back when nothing was sent or nothing was learned.
// The time that it took in the schedule is not given back. Safe to defer
// beside a Settle.
func (p Permit) Cancel() bool { return p.Settle(Outcome{}) }

// permits holds the tickets that are out. A slot is used again under a new
// serial, so that a stale permit finds nothing.
type permits struct {
	slots   []slot
	free    uint32 // head of the list of free slots, plus one
	expired uint32
}

type slot struct {
	ticket pacing.Ticket
	serial uint32
	next   uint32 // the next free slot, plus one; out while the permit is out
}

// out marks a slot whose permit is out.
const out = ^uint32(0)

func (p *permits) put(t pacing.Ticket) (at, serial uint32) {
	if p.free == 0 {
		p.slots = append(p.slots, slot{})
		p.free = uint32(len(p.slots))
	}
	at = p.free - 1
	s := &p.slots[at]
	p.free = s.next
	s.ticket, s.next = t, out
	s.serial++
	return at, s.serial
}

func (p *permits) take(at, serial uint32) (pacing.Ticket, bool) {
	if int(at) >= len(p.slots) {
		return pacing.Ticket{}, false
	}
	s := &p.slots[at]
	if s.next != out || s.serial != serial {
		return pacing.Ticket{}, false
	}
	s.next = p.free
	p.free = at + 1
	return s.ticket, true
}

// olderThan takes out the permits sent at an instant or before.
func (p *permits) olderThan(at time.Duration) iter.Seq[pacing.Ticket] {
	return func(yield func(pacing.Ticket) bool) {
		for i := range p.slots {
			if s := &p.slots[i]; s.next == out && s.ticket.Sent() <= at {
				t, _ := p.take(uint32(i), s.serial)
				p.expired++
				if !yield(t) {
					return
				}
			}
		}
	}
}
