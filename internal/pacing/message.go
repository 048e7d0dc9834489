package pacing

import (
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// The messages between members of a fleet and their server. They hold durations, counted
// from when a message is posted, so that clocks need not agree.

// Hello is a member's first message.
type Hello struct {
	// Key is the keyed hash of provider and credential.
	Key string `json:"key"`
	// Member is a random id that the member has chosen.
	Member string `json:"member"`
	// Name is the connection's, for people.
	Name   string `json:"name,omitempty"`
	Config Config `json:"config"`
	// States are what the member has learned, by pool.
	States map[string]control.State `json:"states,omitempty"`
	// Away is set by a member that has lost its server: how many members it knew of. Debt is
	// then the time until the sustained rate has caught up with what was sent, Hold what is
	// left of the wait that a refusal asked for.
	Away int           `json:"away,omitempty"`
	Debt time.Duration `json:"debt,omitempty"`
	Hold time.Duration `json:"hold,omitempty"`
	// Alone is set by a member that has paced itself until now.
	Alone bool `json:"alone,omitempty"`
	// Published are limits that pools begin with, by name: those that the provider publishes.
	Published map[string][]control.Limit `json:"published,omitempty"`
}

// ToServer is one message of a member. An empty one is a heartbeat.
type ToServer struct {
	Hello *Hello   `json:"hello,omitempty"`
	Wants []Want   `json:"wants,omitempty"`
	Drops []uint64 `json:"drops,omitempty"`
	Done  []Done   `json:"done,omitempty"`
	// Costs are those of attempts that went on permits that were asked for others.
	Costs []Cost `json:"costs,omitempty"`
	// Served are attempts on permits ahead that the provider served, Unused such permits
	// that are given back.
	Served []Served `json:"served,omitempty"`
	Unused []Run    `json:"unused,omitempty"`
	// States are what the member had learned before, by pool, if the hello lacked it.
	States map[string]control.State `json:"states,omitempty"`
	// Published are limits that pools begin with, and Advertised are limits that the provider
	// named apart from any attempt, by pool.
	Published  map[string][]control.Limit `json:"published,omitempty"`
	Advertised map[string][]control.Fact  `json:"advertised,omitempty"`
	// Show asks for all members, in place of a hello.
	Show bool `json:"show,omitempty"`
}

// Run is permits of consecutive numbers, from ID on.
type Run struct {
	ID uint64 `json:"id"`
	N  uint64 `json:"n,omitempty"`
}

// Cost is what the attempt on a permit costs.
type Cost struct {
	ID   uint64  `json:"id"`
	Cost float64 `json:"cost"`
}

// Served is an attempt that was served: its permit, and what the answer took in
// nanoseconds.
type Served [2]uint64

// Want asks for one permit, or for many ahead of need.
type Want struct {
	ID   uint64        `json:"id"`
	Pool string        `json:"pool,omitempty"`
	Cost float64       `json:"cost,omitempty"`
	In   time.Duration `json:"in,omitempty"` // the earliest time from now
	// Ahead asks for so many, from ID on, as far as they may go at once: the answer is
	// one [Run], which may be empty.
	Ahead uint64 `json:"ahead,omitempty"`
}

// Done reports the outcome of an attempt. The zero Outcome returns the permit unused. An ID
// that the server does not know is of an attempt made without its permit.
type Done struct {
	ID      uint64        `json:"id,omitempty"`
	Pool    string        `json:"pool,omitempty"`
	Age     time.Duration `json:"age,omitempty"` // since the attempt was sent
	Outcome Outcome       `json:"outcome,omitzero"`
}

// Loss is how a member has lost its server.
type Loss uint8

// The losses.
const (
	Nowhere Loss = iota // not lost
	Gone                // its connection ended: no member gets permits
	Silent              // nothing comes from it: other members may still get permits
)

// ToMember is one message of a server.
type ToMember struct {
	// At is when it was posted, by the server's clock. Members use differences of it only:
	// they show which message took longer than the fastest.
	At time.Duration `json:"at"`
	// News is posted before the grants that it counts.
	News   *News    `json:"news,omitempty"`
	Grants []uint64 `json:"grants,omitempty"`
	// Ahead are permits that were asked for ahead of need.
	Ahead []Run `json:"ahead,omitempty"`
	// Fault says why the server refuses the member.
	Fault string `json:"fault,omitempty"`

	// Lost is set by the shell that carries the messages.
	Lost Loss `json:"-"`
}

// News is the state of the fleet, as one member needs it.
type News struct {
	Lease time.Duration `json:"lease"`
	// Members counts the members, Index is this one's position among them. A New one may not
	// send without the server yet, since the others may not have counted it.
	Members int  `json:"members"`
	Index   int  `json:"index"`
	New     bool `json:"new,omitempty"`
	// Interval is that of the account's sustained rate, Flight how many attempts may be in
	// flight where that is limited. Debt is the time until the sustained rate has caught
	// up with all that the fleet has sent, and will send until the next news.
	Interval time.Duration `json:"interval"`
	Flight   int           `json:"flight,omitempty"`
	Debt     time.Duration `json:"debt"`
	// Ahead is how many permits the member may hold ahead of need.
	Ahead int `json:"ahead,omitempty"`
	// Listens is how long the server will not grant permits yet.
	Listens time.Duration `json:"listens,omitempty"`
	// Reason and Bound say what the queue waits for.
	Reason reason.Reason `json:"reason,omitempty"`
	Bound  reason.Bound  `json:"bound,omitempty"`
	// Holds are waits that are long enough for members to know of.
	Holds []Hold `json:"holds,omitempty"`
	// States are what was learned, by pool; nil if the member has the newest.
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
