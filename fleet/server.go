package fleet

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/fleet"
	"github.com/headway-go/headway/internal/pacing"
)

// Server grants permits to members that connect to it, for any number of credentials. Make
// it with [NewServer]. Safe for concurrent use.
type Server struct {
	origin time.Time
	salt   string

	mu     sync.Mutex
	core   *fleet.Server
	peers  map[uint64]*peer
	conns  map[net.Conn]bool
	timer  *time.Timer
	closed bool
	busy   sync.WaitGroup
	inside sync.WaitGroup           // connections of members in this process
	states map[string]control.State // the newest that was sent to members
	locals map[string][]*local      // by key; they begin when another member joins
}

// peer is a member's connection.
type peer struct {
	conn  net.Conn
	queue []pacing.ToMember // under the server's lock
	more  chan struct{}     // capacity 1
}

// Bounds of the server.
const (
	helloTime = 5 * time.Second
	maxConns  = 4096
	maxQueue  = 1024 // messages that a member has not read
)

// NewServer makes a server. For one [Lease] it grants nothing, since members of a previous
// server may still be sending at their shares.
func NewServer() *Server {
	return &Server{
		origin: time.Now(), salt: rand.Text(), core: fleet.New(0),
		peers: make(map[uint64]*peer), conns: make(map[net.Conn]bool), locals: make(map[string][]*local),
	}
}

// Serve accepts members until the listener is closed. After any other error, such as too many
// open files, it pauses and goes on.
func (s *Server) Serve(l net.Listener) {
	for pause := firstPause; ; {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = firstPause
			s.accept(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(pause)
			pause = min(2*pause, lastPause)
		}
	}
}

// Fleet returns a fleet for members in the same process.
func (s *Server) Fleet() *Fleet {
	return &Fleet{dial: func(context.Context) (net.Conn, error) { return s.connect(), nil }}
}

// connect returns a connection to the server.
func (s *Server) connect() net.Conn {
	here, there := net.Pipe()
	s.inside.Add(1)
	s.accept(&insideConn{Conn: there, server: s})
	return here
}

// insideConn is a connection of a member in the server's process.
type insideConn struct {
	net.Conn
	server *Server
	once   sync.Once
}

func (c *insideConn) Close() error {
	c.once.Do(c.server.inside.Done)
	return c.Conn.Close()
}

// accept serves a connection.
func (s *Server) accept(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		_ = conn.Close()
		return
	}
	s.conns[conn] = true
	s.busy.Go(func() {
		s.serve(conn)
		_ = conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	})
}

// Members counts the members.
func (s *Server) Members() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Members()
}

// Show returns the credentials that have members, with their members.
func (s *Server) Show() []Credential {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Show(s.now())
}

// Close closes all connections, once what members have to know is written: who has left. The
// rest continue at their shares.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	last := make(map[net.Conn]bool, len(s.peers))
	for _, p := range s.peers {
		last[p.conn] = true
		_ = p.conn.SetWriteDeadline(time.Now().Add(leaveTime))
		select {
		case p.more <- struct{}{}:
		default:
		}
	}
	for conn := range s.conns {
		if !last[conn] {
			_ = conn.Close()
		}
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.busy.Wait()
}

func (s *Server) now() time.Duration { return time.Since(s.origin) }

// serve handles one connection until it ends.
func (s *Server) serve(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	encode := json.NewEncoder(conn)
	if encode.Encode(greeting{Protocol: protocol, Salt: s.salt}) != nil {
		return
	}
	from := newLines(conn)
	var first pacing.ToServer
	if from.decode(&first) != nil {
		return
	}
	if first.Show {
		_ = encode.Encode(s.Show())
		return
	}
	p := &peer{conn: conn, more: make(chan struct{}, 1)}
	number, err := s.enter(p, first.Hello)
	if err != nil {
		_ = encode.Encode(pacing.ToMember{Fault: err.Error()})
		return
	}
	_ = conn.SetDeadline(time.Time{})
	over := make(chan struct{})
	s.busy.Go(func() { s.write(p, over) })
	for {
		var m pacing.ToServer
		if from.decode(&m) != nil || m.Hello != nil {
			break
		}
		s.do(func(now time.Duration) { s.core.Take(now, number, &m) })
	}
	close(over)
	s.do(func(now time.Duration) {
		if s.peers[number] != nil { // otherwise post has disconnected it
			delete(s.peers, number)
			s.core.Gone(now, number)
		}
	})
}

func (s *Server) enter(p *peer, h *pacing.Hello) (number uint64, err error) {
	s.do(func(now time.Duration) {
		if number, err = s.core.Enter(now, h); err == nil {
			s.peers[number] = p
			for _, l := range s.locals[h.Key] {
				l.begin()
			}
		}
	})
	return number, err
}

// do makes a change, queues the messages that follow from it, and sets the timer.
func (s *Server) do(change func(now time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	now := s.now()
	change(now)
	for posts := s.core.Posts(); len(posts) > 0; posts = s.core.Posts() {
		for i := range posts {
			if n := posts[i].Message.News; n != nil && n.States != nil {
				s.states = n.States
			}
			s.post(now, &posts[i])
		}
	}
	next := s.core.Next()
	if next == pacing.Forever {
		return
	}
	if wait := next - s.now(); s.timer == nil {
		s.timer = time.AfterFunc(wait, s.wake)
	} else {
		s.timer.Reset(wait)
	}
}

// post queues a message for a member; s.mu must be held. A member that has not read for
// maxQueue messages is disconnected.
func (s *Server) post(now time.Duration, m *fleet.Post) {
	p := s.peers[m.Member]
	switch {
	case p == nil:
		return
	case len(p.queue) >= maxQueue:
		delete(s.peers, m.Member)
		s.core.Cut(now, m.Member)
		_ = p.conn.Close()
		return
	}
	p.queue = append(p.queue, m.Message)
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (s *Server) wake() { s.do(s.core.Wake) }

// write writes a member's queue.
func (s *Server) write(p *peer, over <-chan struct{}) {
	to := bufio.NewWriter(p.conn)
	encode := json.NewEncoder(to)
	for {
		select {
		case <-p.more:
		case <-over:
			return
		}
		s.mu.Lock()
		all, last := p.queue, s.closed
		p.queue = nil
		s.mu.Unlock()
		var err error
		for i := range all {
			err = errors.Join(err, encode.Encode(&all[i]))
		}
		if errors.Join(err, to.Flush()) != nil || last {
			_ = p.conn.Close() // which ends the reading
			return
		}
	}
}
