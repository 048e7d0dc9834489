// Package fleet is the core of a fleet's server: it decides which member may send next,
// without clock, lock or I/O. The public package fleet is its shell.
//
// Each credential has a desk with one pacing core, the same that a process without a fleet
// has.
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

// Lease is how long a permit may stay unused, and how long a member may be silent before
// it counts as lost.
const Lease = 2 * time.Second

// Silence is how long a member waits for a message before it takes the server for lost. It
// is longer than Lease: the server reserves the member's share before the member uses it.
const Silence = Lease + 2*Beat

// Beat is the interval of heartbeats, in both directions.
const Beat = Lease / 4

// Bounds of a server.
const (
	maxDesks = 1024  // credentials, with members or without
	maxSeats = 10000 // members of one credential
	maxWants = 64    // requests of one member in the queue
)

// Post is a message and the seat of the member that it is for.
type Post struct {
	Seat    uint64
	Message pacing.ToMember
}

// Server grants permits for any number of credentials. Instants are durations since an
// origin that the caller chooses. Make one with [New]. Not safe for concurrent use.
type Server struct {
	listens time.Duration // until then no permit is granted
	desks   map[string]*desk
	seats   map[uint64]*seat
	serial  uint64
	posts   []Post
	kept    map[string]control.State // what a previous server had learned
	dead    int                      // members that died with it
}

// New returns a server that starts at now. For one lease it only listens and grants nothing,
// since members of a previous server may still be sending at their shares.
func New(now time.Duration) *Server {
	return &Server{listens: now + Lease, desks: make(map[string]*desk), seats: make(map[uint64]*seat)}
}

// Recall makes the server start from what a previous one had learned of its credential, by
// pool. For one window of the limit it then keeps to the sustained rate, since what was
// sent recently is not known.
func (s *Server) Recall(states map[string]control.State) { s.kept = states }

// Bereave sets how many members of the previous server are known to be dead: no share is
// kept for them.
func (s *Server) Bereave(dead int) { s.dead = dead }

// Enter adds a member and returns its number for further calls. The error says what is
// wrong with the hello, and quotes nothing of it.
func (s *Server) Enter(now time.Duration, h *pacing.Hello) (uint64, error) {
	if h == nil || h.Key == "" || len(h.Key) > 128 || len(h.Member) > 128 || len(h.Name) > 256 {
		return 0, errors.New("a member must say for which credential it comes")
	}
	c := h.Config
	c.NoBreaker, c.MaxInFlight, c.JitterMin, c.JitterMax, c.Phase = true, 0, 0, -1, 0 // each member keeps these itself
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

// forget drops a credential that has no members, whichever it finds first.
func (s *Server) forget() bool {
	for key, d := range s.desks {
		if len(d.seats) == 0 {
			delete(s.desks, key)
			return true
		}
	}
	return false
}

// Take handles a member's message.
func (s *Server) Take(now time.Duration, number uint64, in *pacing.ToServer) {
	m := s.seats[number]
	if m == nil {
		return
	}
	m.heard, m.fastest = now, m.share
	m.desk.back(now, m)
	m.desk.take(now, m, in)
}

// Gone removes a member whose connection has ended. Its share goes to the others at once;
// the permits that it held are settled after one lease.
func (s *Server) Gone(now time.Duration, number uint64) {
	if m := s.seats[number]; m != nil {
		m.desk.leave(now, m)
	}
}

// Cut marks a member whose connection the server closed because it read nothing. It may be
// alive and sending without the server, so its share is reserved.
func (s *Server) Cut(now time.Duration, number uint64) {
	if m := s.seats[number]; m != nil {
		m.cut = true
		m.desk.silent(now, m)
	}
}

// Wake handles whatever is due by now.
func (s *Server) Wake(now time.Duration) {
	for _, key := range slices.Sorted(maps.Keys(s.desks)) {
		s.desks[key].wake(now)
	}
}

// Next returns when Wake is due.
func (s *Server) Next() time.Duration {
	next := pacing.Forever
	for _, d := range s.desks {
		next = min(next, d.next())
	}
	return next
}

// Posts returns the messages to send, in order, and removes them.
func (s *Server) Posts() []Post {
	all := s.posts
	s.posts = nil
	return all
}

// Shared reports whether a credential has members.
func (s *Server) Shared(key string) bool {
	d := s.desks[key]
	return d != nil && len(d.seats) > 0
}

// Members counts the members of all credentials.
func (s *Server) Members() int { return len(s.seats) }

// Credential is one that members share, as it is shown. Which one it is nobody can tell.
type Credential struct {
	// IntervalMS is the sustained interval of all members together, in milliseconds.
	IntervalMS float64 `json:"interval_ms"`
	// Members are in the order in which they came.
	Members []Member `json:"members"`
}

// Member is one process's membership.
type Member struct {
	// Name is its connection's.
	Name string `json:"name"`
	// Share is its part of the permits of the last ten to twenty seconds, from 0 to 1.
	Share float64 `json:"share"`
	// Waiting counts the permits that it waits for.
	Waiting int `json:"waiting"`
	// HeardMS is how long it has said nothing, in milliseconds: each says something at
	// least twice a second.
	HeardMS int64 `json:"heard_ms"`
	// Away says that it is silent, so that its share is kept: it may go on by itself.
	Away bool `json:"away"`
}

// Show lists the credentials that have members, in the order in which the first of those
// came.
func (s *Server) Show(now time.Duration) []Credential {
	var all []Credential
	var first []uint64
	for _, d := range s.desks {
		seats := d.inOrder()
		if len(seats) == 0 {
			continue
		}
		c := Credential{IntervalMS: float64(d.interval()) / float64(time.Millisecond)}
		sum := 0.0
		for _, m := range seats {
			m.use.settle(now)
			sum += m.use.recent()
		}
		for _, m := range seats {
			c.Members = append(c.Members, Member{
				Name: m.label, Share: m.use.recent() / max(1, sum), Waiting: len(m.wants) + len(m.parked),
				HeardMS: (now - m.heard).Milliseconds(), Away: m.silent,
			})
		}
		i, _ := slices.BinarySearch(first, seats[0].number)
		first, all = slices.Insert(first, i, seats[0].number), slices.Insert(all, i, c)
	}
	return all
}

// use counts permits, in two stretches of time.
type use struct {
	began   time.Duration
	n, last float64
}

// useFor is the length of a stretch.
const useFor = 10 * time.Second

func (u *use) count(now time.Duration) {
	u.settle(now)
	u.n++
}

func (u *use) settle(now time.Duration) {
	if past := now - u.began; past >= useFor {
		if u.last = u.n; past >= 2*useFor {
			u.last = 0
		}
		u.began, u.n = now, 0
	}
}

func (u *use) recent() float64 { return u.n + u.last }
