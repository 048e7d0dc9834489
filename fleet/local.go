package fleet

import (
	"slices"
	"sync"

	"github.com/headway-go/headway"
)

// Local returns the membership for one governor in the server's own process. It paces by
// itself, and at no cost, until another member comes with the same provider and credential;
// from then on both share a pace. It must leave before the server is closed.
func (s *Server) Local(provider, credential string) headway.Fleet {
	return &local{way: way{fleet: s.Fleet(), provider: provider, credential: credential}, server: s}
}

// local is a membership that begins when another member has the same credential.
type local struct {
	way
	server *Server
	key    string
	link   *link
	once   sync.Once
}

// Later reports that the governor paces by itself at first.
func (l *local) Later() bool { return true }

// Join waits for another member, unless there is one.
func (l *local) Join(m headway.FleetMember) (headway.FleetWay, bool) {
	one := &local{way: l.way, server: l.server, key: l.way.key(l.server.salt), link: l.way.link(m)}
	s := l.server
	s.mu.Lock()
	s.locals[one.key] = append(s.locals[one.key], one)
	shared := s.core.Shared(one.key)
	s.mu.Unlock()
	if shared {
		one.begin()
	}
	return one, false
}

// begin connects to the server, once.
func (l *local) begin() { l.once.Do(func() { go l.link.run() }) }

// Send queues a message. It is dropped before the membership has begun.
func (l *local) Send(m headway.FleetMessage) { l.link.Send(m) }

// Leave ends the membership, whether it has begun or not.
func (l *local) Leave() {
	s := l.server
	s.mu.Lock()
	if s.locals[l.key] = slices.DeleteFunc(s.locals[l.key], func(o *local) bool { return o == l }); len(s.locals[l.key]) == 0 {
		delete(s.locals, l.key)
	}
	s.mu.Unlock()
	l.once.Do(func() { close(l.link.ended) }) // it never ran
	l.link.Leave()
}
