package meeting

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// session is a member's connection with who leads.
type session struct {
	room   *Room
	name   string // of the room
	leader string
	id     string
	here   net.Conn // this end of the pipe, whose other end the member has
	in     *inbox
	ctx    context.Context
	end    context.CancelCauseFunc
	tasks  sync.WaitGroup
}

// closeTime bounds the last words.
const closeTime = time.Second

// join opens a session with the leader.
func (r *Room) join(ctx context.Context, room, leader string) (net.Conn, error) {
	here, there := net.Pipe()
	s := &session{room: r, name: room, leader: leader, id: rand.Text(), here: here, in: newInbox()}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	ready := make(chan struct{})
	s.tasks.Go(func() {
		err := r.place.Listen(s.ctx, room, s.id, func() { close(ready) }, s.in.put)
		s.fail(fmt.Errorf("listening: %w", err))
	})
	select {
	case <-ready:
	case <-s.ctx.Done():
	case <-ctx.Done():
		s.fail(ctx.Err())
	}
	err := context.Cause(s.ctx)
	if err == nil {
		err = s.say(ctx, opens, 1, "")
	}
	if err != nil {
		s.fail(err)
		s.tasks.Wait()
		return nil, fmt.Errorf("the meeting: %w", err)
	}
	s.tasks.Go(s.read)
	s.tasks.Go(s.write)
	return &end{Conn: there, session: s}, nil
}

// end is the member's end of a session.
type end struct {
	net.Conn
	session *session
}

// Close ends the session, once its last words are said.
func (e *end) Close() error {
	err := e.Conn.Close()
	e.session.tasks.Wait()
	return err
}

// fail ends the session.
func (s *session) fail(err error) {
	if s.ctx.Err() == nil {
		s.end(err)
		if err != nil {
			s.room.note(err)
		}
	}
	_ = s.here.Close()
}

// say sends one letter to the leader.
func (s *session) say(ctx context.Context, k kind, number uint64, text string) error {
	l := letter{leader: s.leader, session: s.id, number: number, kind: k, text: text}
	n, err := s.room.place.Say(ctx, s.name, l.write())
	if err == nil && n == 0 {
		err = errEnded
		s.room.mu.Lock()
		s.room.died = true
		s.room.mu.Unlock()
	}
	return err
}

// read says what the member says.
func (s *session) read() {
	b := make([]byte, chunk)
	for number := uint64(2); ; number++ {
		n, err := s.here.Read(b)
		if err != nil {
			if s.ctx.Err() == nil { // the member's doing
				ctx, done := context.WithTimeout(context.WithoutCancel(s.ctx), closeTime)
				_ = s.say(ctx, closes, number, "")
				done()
			}
			s.fail(errEnded)
			return
		}
		ctx, done := context.WithTimeout(s.ctx, TTL)
		err = s.say(ctx, speaks, number, string(b[:n]))
		done()
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// write gives the member what the leader says.
func (s *session) write() {
	tick := time.NewTicker(Beat)
	defer tick.Stop()
	heard, next := time.Now(), uint64(1)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			if time.Since(heard) > 2*Beat && !s.led() {
				return
			}
			continue
		case <-s.in.more:
		}
		all, ok := s.in.take()
		for _, text := range all {
			l, good := read(text)
			switch {
			case !good || l.leader != s.leader || l.session != s.id:
				continue // another's
			case l.number < next && l.kind != closes:
				continue // heard before
			case l.number > next || l.kind == closes:
				ok = false
			default:
				_, err := io.WriteString(s.here, l.text)
				ok = ok && err == nil
			}
			if !ok {
				s.fail(errEnded)
				return
			}
			heard = time.Now()
			next++
		}
		if !ok {
			s.fail(errEnded)
			return
		}
	}
}

// led reports whether the leader that says nothing may still lead. It ends the session if
// not.
func (s *session) led() bool {
	ctx, done := context.WithTimeout(s.ctx, TTL)
	defer done()
	leader, err := s.room.place.Leader(ctx, s.name)
	switch {
	case err != nil:
		s.room.note(err)
		return true // the place is silent, and may be back
	case leader == s.leader:
		s.room.note(nil)
		return true
	}
	s.fail(errEnded)
	return false
}
