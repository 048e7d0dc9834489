package headway

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"time"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/pacing"
)

// Fleet lets governors in several processes share one pace on one credential. Package
// fleet implements it.
type Fleet interface {
	// Join makes a governor a member of the fleet until it is closed. It must not call
	// the member. If closed is true, nothing is sent while the fleet's server cannot be
	// reached. If the Fleet has a method Later() bool that returns true, the governor
	// joins with the server's first message and paces by itself until then.
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

// MarshalJSON returns the message in the form that the server reads.
func (m FleetMessage) MarshalJSON() ([]byte, error) { return json.Marshal(m.said) }

// FleetMember is a governor as seen by its fleet. Safe for concurrent use.
type FleetMember struct {
	g  *Governor
	of pacing.Config
}

// Hello returns the first message to a server. Key is the keyed hash of the credential.
func (m FleetMember) Hello(key string) FleetMessage {
	now := m.g.now()
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	h := m.g.core.Hello(now, m.of)
	h.Key, h.Name = key, m.g.name
	return FleetMessage{pacing.ToServer{Hello: &h}}
}

// Hear handles a message from the server. An error means that the connection is useless:
// the server refuses the member, for the reason in the error, or speaks another protocol.
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

// Away reports that the server was lost. Silent means that other members may still reach
// it.
func (m FleetMember) Away(silent bool) {
	how := pacing.Gone
	if silent {
		how = pacing.Silent
	}
	m.g.hear(&pacing.ToMember{Lost: how})
}

// Beat lets the member do what is due at this time without a message.
func (m FleetMember) Beat() { m.g.hear(&pacing.ToMember{}) }

// enter joins the configured fleet, before the governor is used.
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

// hear handles a message from the fleet's server, or the loss of the server.
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

// tellFleet asks for permits for the waiting attempts and reports the outcomes of others,
// with the lock held.
func (g *Governor) tellFleet(now time.Duration) {
	if g.fleet == nil || g.core.Alone() {
		return
	}
	var room [pacing.MaxWanted]pacing.Attempt
	waiting := room[:0]
	if !g.waiters.empty() {
		looked := 0
		for it := range g.waiters.queue.All() {
			w := it.Value
			if until, _ := g.waiters.unfit(now, w); until > now {
				continue // a permit would expire before its budget has capacity
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

// maxLooked bounds how many waiting attempts are looked at.
const maxLooked = 512

// asked counts the attempts of a pool, so that many attempts of one pool leave space for
// others.
func asked(all []pacing.Attempt, pool *pacing.Pool) (n int) {
	for i := range all {
		if all[i].Pool == pool {
			n++
		}
	}
	return n
}

// tellLearned reports what was learned earlier, with the lock held. The fleet starts from
// it where it knows nothing yet.
func (g *Governor) tellLearned() {
	if g.fleet != nil {
		g.fleet.Send(FleetMessage{pacing.ToServer{States: g.core.States()}})
	}
}
