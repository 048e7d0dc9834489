package pacing

import (
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// What members of a fleet and their server say to each other. Durations count from when a
// message is posted, so that nobody needs another's time of day.

// Hello is what a member says first.
type Hello struct {
	// Key is the keyed hash of provider and credential.
	Key string `json:"key"`
	// Member is the member's name for itself, random.
	Member string `json:"member"`
	Config Config `json:"config"`
	// States are what it has learned, by pool.
	States map[string]control.State `json:"states,omitempty"`
	// Away is, of who was a member before and went on by itself, how many there were; Debt
	// is then the time until the fleet has paid for what it sent, Hold what a refusal asked
	// to wait for.
	Away int           `json:"away,omitempty"`
	Debt time.Duration `json:"debt,omitempty"`
	Hold time.Duration `json:"hold,omitempty"`
}

// ToServer is one message of a member. An empty one says that it lives.
type ToServer struct {
	Hello *Hello   `json:"hello,omitempty"`
	Wants []Want   `json:"wants,omitempty"`
	Drops []uint64 `json:"drops,omitempty"`
	Done  []Done   `json:"done,omitempty"`
	// Served are attempts on permits ahead that the provider served, Unused such permits
	// that are given back.
	Served []Served `json:"served,omitempty"`
	Unused []Run    `json:"unused,omitempty"`
	// States are what the member has learned before, by pool, where the hello lacked it.
	States map[string]control.State `json:"states,omitempty"`
}

// Run is permits of consecutive numbers, from ID on.
type Run struct {
	ID uint64 `json:"id"`
	N  uint64 `json:"n,omitempty"`
}

// Served is an attempt that was served: its permit, and what the answer took in
// nanoseconds.
type Served [2]uint64

// Want asks for one permit, or for many ahead of need.
type Want struct {
	ID   uint64        `json:"id"`
	Pool string        `json:"pool,omitempty"`
	Cost float64       `json:"cost,omitempty"`
	In   time.Duration `json:"in,omitempty"` // not sooner
	// Ahead asks for so many, from ID on, as far as they may go at once: the answer is
	// one [Run], which may be empty.
	Ahead uint64 `json:"ahead,omitempty"`
}

// Done is what came of a permit. The zero Outcome gives it back. An ID that the server
// does not know is of an attempt that it did not permit.
type Done struct {
	ID      uint64        `json:"id,omitempty"`
	Pool    string        `json:"pool,omitempty"`
	Age     time.Duration `json:"age,omitempty"` // since it was sent
	Outcome Outcome       `json:"outcome,omitzero"`
}

// Loss is how a server was lost.
type Loss uint8

// The losses.
const (
	Nowhere Loss = iota // it was not
	Gone                // its connection ended: it permits nobody anything
	Silent              // it may be there, for others
)

// ToMember is one message of a server.
type ToMember struct {
	// At is when it was posted, by the server's clock: of two messages it says how much
	// later than the other one came.
	At time.Duration `json:"at"`
	// News come before the grants that they announce.
	News   *News    `json:"news,omitempty"`
	Grants []uint64 `json:"grants,omitempty"`
	// Ahead are permits that were asked for ahead of need.
	Ahead []Run `json:"ahead,omitempty"`
	// Fault says why the server will have nothing to do with the member.
	Fault string `json:"fault,omitempty"`

	// Lost is said by who carries the messages.
	Lost Loss `json:"-"`
}

// News is how the fleet stands.
type News struct {
	Lease time.Duration `json:"lease"`
	// Members counts them, Index says which this one is. One that is New has no share by
	// itself yet, for the others may not know of it.
	Members int  `json:"members"`
	Index   int  `json:"index"`
	New     bool `json:"new,omitempty"`
	// Interval is the sustained one of the account, Flight how many may be under way at
	// once where that is limited, and Debt the time until the fleet has paid for all
	// that it has sent, and will send until the next news.
	Interval time.Duration `json:"interval"`
	Flight   int           `json:"flight,omitempty"`
	Debt     time.Duration `json:"debt"`
	// Ahead is how many permits the member may hold ahead of need.
	Ahead int `json:"ahead,omitempty"`
	// Listens is for how long the server permits nothing yet.
	Listens time.Duration `json:"listens,omitempty"`
	// Reason and Bound are what permits wait for in general.
	Reason reason.Reason `json:"reason,omitempty"`
	Bound  reason.Bound  `json:"bound,omitempty"`
	// Holds are long waits.
	Holds []Hold `json:"holds,omitempty"`
	// States are what was learned, by pool, where that is new.
	States map[string]control.State `json:"states,omitempty"`
}

// Hold is a time in which nothing of a pool, or of the account, goes.
type Hold struct {
	Pool   string        `json:"pool,omitempty"`
	In     time.Duration `json:"in"`
	Reason reason.Reason `json:"reason"`
	Bound  reason.Bound  `json:"bound"`
	// Why is the provider's pressure behind it, if any.
	Why reason.Reason `json:"why,omitempty"`
}
