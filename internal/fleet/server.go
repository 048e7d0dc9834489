// Package fleet decides, for all members of a fleet, who may send: what a server of
// fleets is, without clock, lock or I/O. Package fleet outside of internal is the shell.
//
// Each credential has a desk with one pacing core, the same as a process alone has.
package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pacing"
)

// Lease is how long a member may keep a permit without using it, and how long it may be
// silent.
const Lease = 2 * time.Second

// Silence is after how long without a word a member takes the server for away: later than
// the server keeps its share for it.
const Silence = Lease + 2*Beat

// Beat is how often members and server say at least that they live.
const Beat = Lease / 4

// Bounds of a server.
const (
	maxDesks = 1024  // credentials with members, or remembered
	maxSeats = 10000 // members of one credential
	maxWants = 64    // permits that one member may wait for
)

// Post is a message and whom it is for.
type Post struct {
	Seat    uint64
	Message pacing.ToMember
}

// Server decides for any number of credentials. Instants are durations since an origin
// that the caller fixes. Make one with [New]. Not safe for concurrent use.
type Server struct {
	listens time.Duration // until then nothing is permitted
	desks   map[string]*desk
	seats   map[uint64]*seat
	serial  uint64
	posts   []Post
	kept    map[string]control.State // of a server before
}

// New is a server that begins at now. It listens for one lease before it permits
// anything: members of one that was there before go on by themselves until then.
func New(now time.Duration) *Server {
	return &Server{listens: now + Lease, desks: make(map[string]*desk), seats: make(map[uint64]*seat)}
}

// Recall has the server begin with what one before it had learned of its credential, by
// pool. For as long as a window of the limit lasts it is careful then, since nobody knows
// what was sent recently.
func (s *Server) Recall(states map[string]control.State) { s.kept = states }

// Enter lets a member in, and gives its number for further calls. The error says what is
// wrong with what it says of itself, without anything of it.
func (s *Server) Enter(now time.Duration, h *pacing.Hello) (uint64, error) {
	if h == nil || h.Key == "" || len(h.Key) > 128 || len(h.Member) > 128 {
		return 0, errors.New("a member must say for which credential it comes")
	}
	c := h.Config
	c.NoBreaker, c.MaxInFlight, c.JitterMin, c.JitterMax, c.Phase = true, 0, 0, -1, 0 // those are each member's own
	rules, err := c.Resolve()
	if err != nil {
		return 0, fmt.Errorf("the member's pacing: %w", err)
	}
	d := s.desks[h.Key]
	if d == nil {
		if len(s.desks) >= maxDesks && !s.forget() {
			return 0, fmt.Errorf("%d credentials have members, which is the most", maxDesks)
		}
		d = &desk{server: s, seats: make(map[uint64]*seat)}
		s.desks[h.Key] = d
	}
	if len(d.seats) >= maxSeats {
		return 0, fmt.Errorf("%d members have the credential, which is the most", maxSeats)
	}
	s.serial++
	d.enter(now, s.serial, h, rules)
	return s.serial, nil
}

// forget drops a credential that has no members; which one does not matter much.
func (s *Server) forget() bool {
	for key, d := range s.desks {
		if len(d.seats) == 0 {
			delete(s.desks, key)
			return true
		}
	}
	return false
}

// Take takes in what a member said.
func (s *Server) Take(now time.Duration, number uint64, in *pacing.ToServer) {
	m := s.seats[number]
	if m == nil {
		return
	}
	m.heard, m.fastest = now, m.share
	m.desk.back(now, m)
	m.desk.take(now, m, in)
}

// Gone says that a member's connection has ended: nobody is there any more. Its share is
// the others', and what it held is settled within one lease.
func (s *Server) Gone(now time.Duration, number uint64) {
	if m := s.seats[number]; m != nil {
		m.desk.leave(now, m)
	}
}

// Cut says that a member's connection was ended from this side, for it took nothing: it
// may be alive, and go on by itself.
func (s *Server) Cut(now time.Duration, number uint64) {
	if m := s.seats[number]; m != nil {
		m.cut = true
		m.desk.silent(now, m)
	}
}

// Wake does what is due.
func (s *Server) Wake(now time.Duration) {
	for _, key := range slices.Sorted(maps.Keys(s.desks)) {
		s.desks[key].wake(now)
	}
}

// Next is when Wake is due.
func (s *Server) Next() time.Duration {
	next := pacing.Forever
	for _, d := range s.desks {
		next = min(next, d.next())
	}
	return next
}

// Posts are what is to be sent, in order; they are handed over once.
func (s *Server) Posts() []Post {
	all := s.posts
	s.posts = nil
	return all
}

// Members counts those of all credentials.
func (s *Server) Members() int { return len(s.seats) }
