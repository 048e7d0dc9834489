package relay

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// session is a member's connection to the leader.
type session struct {
	group  *Group
	name   string // of the group
	leader string
	id     string
	conn   net.Conn // this end of a pipe; the member has the other
	in     *queue
	ctx    context.Context
	end    context.CancelCauseFunc
	tasks  sync.WaitGroup
}

// closeTime bounds the sending of close frames.
const closeTime = time.Second

// open opens a session with the leader.
func (g *Group) open(ctx context.Context, name, leader string) (net.Conn, error) {
	here, there := net.Pipe()
	s := &session{group: g, name: name, leader: leader, id: rand.Text(), conn: here, in: newQueue()}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	ready := make(chan struct{})
	s.tasks.Go(func() {
		err := g.broker.Subscribe(s.ctx, name, s.id, func() { close(ready) }, s.in.put)
		s.fail(fmt.Errorf("subscribing: %w", err))
	})
	select {
	case <-ready:
	case <-s.ctx.Done():
	case <-ctx.Done():
		s.fail(ctx.Err())
	}
	err := context.Cause(s.ctx)
	if err == nil {
		err = s.send(ctx, kindOpen, 1, "")
	}
	if err != nil {
		s.fail(err)
		s.tasks.Wait()
		return nil, fmt.Errorf("connecting to the leader: %w", err)
	}
	s.tasks.Go(s.read)
	s.tasks.Go(s.write)
	return &sessionConn{Conn: there, session: s}, nil
}

// sessionConn is the member's end of a session.
type sessionConn struct {
	net.Conn
	session *session
}

// Close ends the session and waits until its last frames are sent.
func (c *sessionConn) Close() error {
	err := c.Conn.Close()
	c.session.tasks.Wait()
	return err
}

// fail ends the session.
func (s *session) fail(err error) {
	if s.ctx.Err() == nil {
		s.end(err)
		if err != nil {
			s.group.note(err)
		}
	}
	_ = s.conn.Close()
}

// send sends one frame to the leader.
func (s *session) send(ctx context.Context, k kind, number uint64, data string) error {
	f := frame{leader: s.leader, session: s.id, number: number, kind: k, data: data}
	n, err := s.group.broker.Send(ctx, s.name, f.encode())
	if err == nil && n == 0 {
		err = errEnded
		s.group.mu.Lock()
		s.group.died = true
		s.group.mu.Unlock()
	}
	return err
}

// read sends to the leader what the member writes.
func (s *session) read() {
	b := make([]byte, chunk)
	for number := uint64(2); ; number++ {
		n, err := s.conn.Read(b)
		if err != nil {
			if s.ctx.Err() == nil { // the member has closed its end
				ctx, done := context.WithTimeout(context.WithoutCancel(s.ctx), closeTime)
				_ = s.send(ctx, kindClose, number, "")
				done()
			}
			s.fail(errEnded)
			return
		}
		ctx, done := context.WithTimeout(s.ctx, TTL)
		err = s.send(ctx, kindData, number, string(b[:n]))
		done()
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// write writes to the member what the leader sends.
func (s *session) write() {
	tick := time.NewTicker(Beat)
	defer tick.Stop()
	received, next := time.Now(), uint64(1)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			if time.Since(received) > 2*Beat && !s.led() {
				return
			}
			continue
		case <-s.in.more:
		}
		all, ok := s.in.take()
		for _, text := range all {
			f, good := decode(text)
			switch {
			case !good || f.leader != s.leader || f.session != s.id:
				continue // for another session
			case f.number < next && f.kind != kindClose:
				continue // a duplicate
			case f.number > next || f.kind == kindClose:
				ok = false
			default:
				_, err := io.WriteString(s.conn, f.data)
				ok = ok && err == nil
			}
			if !ok {
				s.fail(errEnded)
				return
			}
			received = time.Now()
			next++
		}
		if !ok {
			s.fail(errEnded)
			return
		}
	}
}

// led reports whether the session's leader may still hold the lease. If not, it ends the
// session.
func (s *session) led() bool {
	ctx, done := context.WithTimeout(s.ctx, TTL)
	defer done()
	leader, err := s.group.broker.Leader(ctx, s.name)
	switch {
	case err != nil:
		s.group.note(err)
		return true // the broker does not answer, and may come back
	case leader == s.leader:
		s.group.note(nil)
		return true
	}
	s.fail(errEnded)
	return false
}
