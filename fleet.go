package headway

import (
	"crypto/rand"
	"time"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/pacing"
)

// Fleet is one pace that several processes keep on one credential. Package fleet has
// them; others cannot be made.
type Fleet interface {
	// Join makes a governor a member. Hello gives what it says of itself each time that
	// a server is found, hear takes what the server says; neither may be called from
	// within Join or Send. Closed says that nothing goes while the server is away.
	Join(hello func() pacing.Hello, hear func(*pacing.ToMember)) (member Membership, closed bool)
}

// Membership is a governor's way to its fleet.
type Membership interface {
	// Send takes a message. It must not block, nor call the governor.
	Send(pacing.ToServer)
	// Leave ends the membership.
	Leave()
}

// enter joins the fleet that the configuration names, before the governor is used.
func (g *Governor) enter(c Config) {
	if c.Fleet == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of := pacingOf(c)
	hello := func() pacing.Hello {
		now := g.now()
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.core.Hello(now, of)
	}
	member, closed := c.Fleet.Join(hello, g.hear)
	g.core.Join(rand.Text(), closed)
	g.fleet = member
}

// hear takes in what the fleet's server said.
func (g *Governor) hear(in *pacing.ToMember) {
	now := g.now()
	g.mu.Lock()
	fx, turned := g.core.Hear(now, in)
	moves := []*notes{g.note(now, fx)}
	moves = append(moves, g.serve(now, nil)...)
	g.tellFleet(now)
	members, there := g.core.Members()
	g.mu.Unlock()
	if turned && g.set.onEvent != nil {
		e := event.Event{At: g.wall(now).Round(0), Type: event.Fleet, Connection: g.name, Note: "away", Count: int64(members)}
		if there {
			e.Note = "back"
		}
		g.set.onEvent(e)
	}
	g.publish(moves...)
}

// tellFleet asks for permits for those who wait, and says what came of others, with the
// lock held.
func (g *Governor) tellFleet(now time.Duration) {
	if g.fleet == nil {
		return
	}
	var room [16]pacing.Attempt
	waiting := room[:0]
	if !g.line.empty() {
		for it := range g.line.queue.All() {
			if waiting = append(waiting, it.Value.attempt); len(waiting) == cap(room) {
				break
			}
		}
	}
	g.core.Demand(now, waiting)
	if out, ok := g.core.Outbox(); ok {
		g.fleet.Send(out)
	}
}

// tellLearned says what was learned before, with the lock held: the fleet starts from it
// where it knows nothing yet.
func (g *Governor) tellLearned() {
	if g.fleet != nil {
		g.fleet.Send(pacing.ToServer{States: g.core.States()})
	}
}
