package pacing

import (
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// The messages between the members of a fleet and their server. They hold durations,
// counted from when a message is sent, so that clocks need not agree.

// Hello is a member's first message.
type Hello struct {
	// Key is a keyed hash of provider and credential.
	Key string `json:"key"`
	// Member is a random id chosen by the member.
	Member string `json:"member"`
	// Name is the connection's name, for people to read.
	Name   string `json:"name,omitempty"`
	Config Config `json:"config"`
	// States are what the member has learned, by pool.
	States map[string]control.State `json:"states,omitempty"`
	// Away is set by a member that has lost its server: the number of members that it
	// knew of. Debt is then the time until the sustained rate has caught up with what was
	// sent. Hold is the rest of the wait of the account.
	Away int           `json:"away,omitempty"`
	Debt time.Duration `json:"debt,omitempty"`
	Hold time.Duration `json:"hold,omitempty"`
	// Alone is set by a member that has paced itself until now.
	Alone bool `json:"alone,omitempty"`
	// Published are published limits with which pools start, by name.
	Published map[string][]control.Limit `json:"published,omitempty"`
}

// ToServer is one message of a member. An empty one is a heartbeat.
type ToServer struct {
	Hello *Hello   `json:"hello,omitempty"`
	Wants []Want   `json:"wants,omitempty"`
	Drops []uint64 `json:"drops,omitempty"`
	Done  []Done   `json:"done,omitempty"`
	// Costs are the costs of attempts that used a permit requested with a different cost.
	Costs []Cost `json:"costs,omitempty"`
	// Served are attempts with permits granted ahead that the provider served; Unused are
	// such permits given back.
	Served []Served `json:"served,omitempty"`
	Unused []Run    `json:"unused,omitempty"`
	// States are what the member had learned earlier, by pool, if they were not in the
	// hello.
	States map[string]control.State `json:"states,omitempty"`
	// Published are limits that pools start from, and Advertised are limits that the
	// provider reported outside of any attempt, by pool.
	Published  map[string][]control.Limit `json:"published,omitempty"`
	Advertised map[string][]control.Fact  `json:"advertised,omitempty"`
	// Parts are pools whose attempts turned out to be the ones refused, with what the account
	// had learned before; see [Core.Part].
	Parts map[string]control.State `json:"parts,omitempty"`
	// Show asks for a list of all members. It is sent instead of a hello.
	Show bool `json:"show,omitempty"`
}

// Run is N permits with consecutive numbers from ID on.
type Run struct {
	ID uint64 `json:"id"`
	N  uint64 `json:"n,omitempty"`
}

// Cost is the cost of the attempt that used a permit.
type Cost struct {
	ID   uint64  `json:"id"`
	Cost float64 `json:"cost"`
}

// Served is an attempt that was served: the number of its permit, and the response time
// in nanoseconds.
type Served [2]uint64

// Want requests one permit, or many ahead of need.
type Want struct {
	ID   uint64        `json:"id"`
	Pool string        `json:"pool,omitempty"`
	Cost float64       `json:"cost,omitempty"`
	In   time.Duration `json:"in,omitempty"` // earliest time to grant it, from now
	// Ahead requests this many permits from ID on, as far as they may go at once. The
	// answer is one [Run], which may be empty.
	Ahead uint64 `json:"ahead,omitempty"`
}

// Done reports the outcome of an attempt. The zero Outcome returns the permit unused. An
// ID that the server does not know belongs to an attempt made without its permit.
type Done struct {
	ID      uint64        `json:"id,omitempty"`
	Pool    string        `json:"pool,omitempty"`
	Age     time.Duration `json:"age,omitempty"` // since the attempt was sent
	Outcome Outcome       `json:"outcome,omitzero"`
}

// Loss says how a member has lost its server.
type Loss uint8

// The losses.
const (
	Nowhere Loss = iota // not lost
	Gone                // the connection ended: no member gets permits
	Silent              // no messages arrive: other members may still get permits
)

// ToMember is one message of a server.
type ToMember struct {
	// At is when it was sent, by the server's clock. Members only use differences of it,
	// to find out how much longer a message took than the fastest.
	At time.Duration `json:"at"`
	// News describes the state before the grants in the same message.
	News   *News    `json:"news,omitempty"`
	Grants []uint64 `json:"grants,omitempty"`
	// Ahead are the permits that were requested ahead of need.
	Ahead []Run `json:"ahead,omitempty"`
	// Fault says why the server refuses the member.
	Fault string `json:"fault,omitempty"`

	// Lost is set by the code that carries the messages.
	Lost Loss `json:"-"`
}

// News is the state of the fleet, as one member needs it.
type News struct {
	Lease time.Duration `json:"lease"`
	// Members is the number of members, Index the position of this one among them. A New
	// member may not send without the server yet, since the others may not have counted
	// it.
	Members int  `json:"members"`
	Index   int  `json:"index"`
	New     bool `json:"new,omitempty"`
	// Interval is the sustained interval of the account. Flight is how many attempts may
	// be in flight, if that is limited. Debt is the time until the sustained rate has
	// caught up with all that the fleet has sent and will send until the next news.
	Interval time.Duration `json:"interval"`
	Flight   int           `json:"flight,omitempty"`
	Debt     time.Duration `json:"debt"`
	// Ahead is how many permits the member may hold ahead of need.
	Ahead int `json:"ahead,omitempty"`
	// Listens is how long the server will still not grant permits.
	Listens time.Duration `json:"listens,omitempty"`
	// Reason and Bound say what the queue waits for.
	Reason reason.Reason `json:"reason,omitempty"`
	Bound  reason.Bound  `json:"bound,omitempty"`
	// Parts are pools whose attempts turned out to be the ones refused: the account's cooldown
	// is theirs.
	Parts []string `json:"parts,omitempty"`
	// Holds are the waits that are long enough to be sent to members.
	Holds []Hold `json:"holds,omitempty"`
	// States are what was learned, by pool; nil if the member is up to date.
	States map[string]control.State `json:"states,omitempty"`
}

// Hold is a wait of a pool, or of the account if the pool is "".
type Hold struct {
	Pool   string        `json:"pool,omitempty"`
	In     time.Duration `json:"in"`
	Reason reason.Reason `json:"reason"`
	Bound  reason.Bound  `json:"bound"`
	// Why is the provider's pressure that caused it, if any.
	Why reason.Reason `json:"why,omitempty"`
}
