package headway

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"time"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/pacing"
)

// Fleet lets governors in several processes share one pace on one credential. Package fleet
// implements it.
type Fleet interface {
	// Join makes a governor a member until it is closed. It must not call the member.
	// With closed nothing is sent while the fleet's server is away.
	// A Fleet with a method Later() bool that returns true is joined when its server first
	// says something: until then the governor paces by itself.
	Join(m FleetMember) (way FleetWay, closed bool)
}

// FleetWay carries messages from a member to its fleet's server.
type FleetWay interface {
	// Send queues a message if the server is connected, and drops it otherwise. It must
	// neither block nor call the member.
	Send(FleetMessage)
	// Leave ends the membership.
	Leave()
}

// FleetMessage is a message from a member to the server.
type FleetMessage struct{ said pacing.ToServer }

// MarshalJSON returns the message as the server reads it.
func (m FleetMessage) MarshalJSON() ([]byte, error) { return json.Marshal(m.said) }

// FleetMember is a governor as its fleet sees it. Safe for concurrent use.
type FleetMember struct {
	g  *Governor
	of pacing.Config
}

// Hello returns the first message for a server, with the keyed hash of the credential.
func (m FleetMember) Hello(key string) FleetMessage {
	now := m.g.now()
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	h := m.g.core.Hello(now, m.of)
	h.Key, h.Name = key, m.g.name
	return FleetMessage{pacing.ToServer{Hello: &h}}
}

// Hear handles a message from the server. An error means that the connection is of no use:
// the server refuses the member, with its reason, or speaks another protocol.
func (m FleetMember) Hear(message []byte) error {
	var in pacing.ToMember
	if err := json.Unmarshal(message, &in); err != nil {
		return err
	}
	if in.Fault != "" {
		return errors.New(in.Fault)
	}
	m.g.hear(&in)
	return nil
}

// Away reports the loss of the server. Silent means that other members may still reach it.
func (m FleetMember) Away(silent bool) {
	how := pacing.Gone
	if silent {
		how = pacing.Silent
	}
	m.g.hear(&pacing.ToMember{Lost: how})
}

// Beat has the member look at the time, for what is due without a message.
func (m FleetMember) Beat() { m.g.hear(&pacing.ToMember{}) }

// enter joins the fleet that the configuration names, before the governor is used.
func (g *Governor) enter(c Config) {
	if c.Fleet == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	way, closed := c.Fleet.Join(FleetMember{g, pacingOf(c)})
	if f, ok := c.Fleet.(interface{ Later() bool }); ok && f.Later() {
		g.core.JoinLater(rand.Text(), closed)
	} else {
		g.core.Join(rand.Text(), closed)
	}
	g.fleet = way
}

// hear handles a message from the fleet's server, or its loss.
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
	if g.fleet == nil || g.core.Alone() {
		return
	}
	var room [pacing.MaxWanted]pacing.Attempt
	waiting := room[:0]
	if !g.line.empty() {
		looked := 0
		for it := range g.line.queue.All() {
			w := it.Value
			if until, _ := g.line.unfit(now, w); until > now {
				continue // a permit would expire before its budget has room
			}
			if a := &w.attempt; asked(waiting, a.Pool) < pacing.MaxAsked {
				waiting = append(waiting, *a)
			}
			if looked++; looked == maxLooked || len(waiting) == cap(room) {
				break
			}
		}
	}
	g.core.Demand(now, waiting)
	if out, ok := g.core.Outbox(now); ok {
		g.fleet.Send(FleetMessage{out})
	}
}

// maxLooked bounds how many of those who wait are looked at.
const maxLooked = 512

// asked counts the attempts of a pool. Many that wait for one pool leave room for others.
func asked(all []pacing.Attempt, pool *pacing.Pool) (n int) {
	for i := range all {
		if all[i].Pool == pool {
			n++
		}
	}
	return n
}

// tellLearned says what was learned before, with the lock held: the fleet starts from it
// where it knows nothing yet.
func (g *Governor) tellLearned() {
	if g.fleet != nil {
		g.fleet.Send(FleetMessage{pacing.ToServer{States: g.core.States()}})
	}
}
