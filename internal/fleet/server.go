// Package fleet is the core of a fleet's server: it decides which member may send next,
// without clock, lock or I/O. The public package fleet is its shell.
//
// The members of a credential form a group, with one pacing core as a process without a
// fleet has it.
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

// Lease is how long a permit may stay unused, and how long a member may send no message
// before it counts as silent.
const Lease = 2 * time.Second

// Silence is how long a member waits for a message before it counts the server as lost. It
// is longer than Lease, so that the server reserves the member's share before the member
// uses it.
const Silence = Lease + 2*Beat

// Beat is the interval of heartbeats, in both directions.
const Beat = Lease / 4

// Bounds of a server.
const (
	maxGroups  = 1024  // credentials, with members or without
	maxMembers = 10000 // members of one credential
	maxWants   = 64    // requests of one member in the queue
)

// Post is a message, and the number of the member that it is for.
type Post struct {
	Member  uint64
	Message pacing.ToMember
}

// Server grants permits for any number of credentials. Instants are durations since an
// origin that the caller chooses. Make one with [New]. Not safe for concurrent use.
type Server struct {
	listens time.Duration // until then it grants nothing
	groups  map[string]*group
	members map[uint64]*member
	serial  uint64
	posts   []Post
	saved   map[string]control.State // what a previous server has learned
	dead    int                      // members known to have died with it
}

// New returns a server that starts at now. For one lease it only listens and grants nothing,
// since members of a previous server may still be sending at their shares.
func New(now time.Duration) *Server {
	return &Server{listens: now + Lease, groups: make(map[string]*group), members: make(map[uint64]*member)}
}

// Recall makes the server start from what a previous server has learned of its credential,
// by pool. For one window of the limit it then grants at the sustained rate only, since
// recent attempts are unknown.
func (s *Server) Recall(states map[string]control.State) { s.saved = states }

// Bereave sets the number of members of the previous server that are known to be dead. No
// shares are reserved for them.
func (s *Server) Bereave(dead int) { s.dead = dead }

// settled returns when no member of the previous server sends without a server any more.
func (s *Server) settled() time.Duration { return s.listens + pacing.MaxSilence }

// Unpreceded makes the server grant at once, since no member of a previous server is left.
func (s *Server) Unpreceded(now time.Duration) { s.listens = now }

// Enter adds a member and returns its number for further calls. The error says what is
// wrong with the hello, without quoting it.
func (s *Server) Enter(now time.Duration, h *pacing.Hello) (uint64, error) {
	if h == nil || h.Key == "" || len(h.Key) > 128 || len(h.Member) > 128 || len(h.Name) > 256 {
		return 0, errors.New("the hello has no key, or a key or name that is too long")
	}
	c := h.Config
	c.NoBreaker, c.MaxInFlight, c.JitterMin, c.JitterMax, c.Phase = true, 0, 0, -1, 0 // each member keeps these itself
	rules, err := c.Resolve()
	if err != nil {
		return 0, fmt.Errorf("the member's pacing: %w", err)
	}
	g := s.groups[h.Key]
	if g == nil {
		if len(s.groups) >= maxGroups && !s.forget() {
			return 0, fmt.Errorf("%d credentials have members, the maximum", maxGroups)
		}
		g = &group{server: s, members: make(map[uint64]*member), met: make(map[string]bool)}
		s.groups[h.Key] = g
	}
	if len(g.members) >= maxMembers {
		return 0, fmt.Errorf("%d members have the credential, the maximum", maxMembers)
	}
	s.serial++
	g.enter(now, s.serial, h, rules)
	return s.serial, nil
}

// forget drops any one credential that has no members.
func (s *Server) forget() bool {
	for key, g := range s.groups {
		if len(g.members) == 0 {
			delete(s.groups, key)
			return true
		}
	}
	return false
}

// Take handles a member's message.
func (s *Server) Take(now time.Duration, number uint64, in *pacing.ToServer) {
	m := s.members[number]
	if m == nil {
		return
	}
	m.received, m.fastest = now, m.share
	m.group.back(now, m)
	m.group.take(now, m, in)
}

// Gone removes a member whose connection has ended. Its share goes to the others at once;
// the permits that it held are settled after one lease.
func (s *Server) Gone(now time.Duration, number uint64) {
	if m := s.members[number]; m != nil {
		m.group.leave(now, m)
	}
}

// Cut marks a member whose connection the server closed because it read nothing. It may be
// making attempts without the server, so its share is reserved.
func (s *Server) Cut(now time.Duration, number uint64) {
	if m := s.members[number]; m != nil {
		m.cut = true
		m.group.silent(now, m)
	}
}

// Wake handles whatever is due by now.
func (s *Server) Wake(now time.Duration) {
	for _, key := range slices.Sorted(maps.Keys(s.groups)) {
		s.groups[key].wake(now)
	}
}

// Next returns when Wake is due.
func (s *Server) Next() time.Duration {
	next := pacing.Forever
	for _, g := range s.groups {
		next = min(next, g.next())
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
	g := s.groups[key]
	return g != nil && len(g.members) > 0
}

// Members counts the members of all credentials.
func (s *Server) Members() int { return len(s.members) }

// Credential is the state of a shared credential, for display. It does not identify the
// credential.
type Credential struct {
	// IntervalMS is the sustained interval of all members together, in milliseconds.
	IntervalMS float64 `json:"interval_ms"`
	// Members are in the order in which they joined.
	Members []Member `json:"members"`
}

// Member is one process's membership.
type Member struct {
	// Name is the name of its connection.
	Name string `json:"name"`
	// Share is its part of the permits granted in the last 10 to 20 s, from 0 to 1.
	Share float64 `json:"share"`
	// Waiting is the number of permits that it waits for.
	Waiting int `json:"waiting"`
	// HeardMS is the time since its last message, in milliseconds. Members send at least
	// two messages a second.
	HeardMS int64 `json:"heard_ms"`
	// Away reports whether it is silent. Its share is then reserved, since it may continue
	// without the server.
	Away bool `json:"away"`
}

// Show returns the credentials that have members, in the order in which their first members
// joined.
func (s *Server) Show(now time.Duration) []Credential {
	var all []Credential
	var first []uint64
	for _, g := range s.groups {
		members := g.inOrder()
		if len(members) == 0 {
			continue
		}
		c := Credential{IntervalMS: float64(g.interval()) / float64(time.Millisecond)}
		sum := 0.0
		for _, m := range members {
			m.use.settle(now)
			sum += m.use.recent()
		}
		for _, m := range members {
			c.Members = append(c.Members, Member{
				Name: m.label, Share: m.use.recent() / max(1, sum), Waiting: len(m.wants) + len(m.parked),
				HeardMS: (now - m.received).Milliseconds(), Away: m.silent,
			})
		}
		i, _ := slices.BinarySearch(first, members[0].number)
		first, all = slices.Insert(first, i, members[0].number), slices.Insert(all, i, c)
	}
	return all
}

// use counts permits in the current and the previous period.
type use struct {
	began   time.Duration
	n, last float64
}

// useFor is the length of a period.
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
