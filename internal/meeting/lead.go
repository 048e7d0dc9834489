package meeting

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// lead is the lead of one room by this process.
type lead struct {
	place       Place
	room, token string
	salt        string
	in          *inbox
	host        Host
	ctx         context.Context
	cancel      context.CancelFunc
	tasks       sync.WaitGroup
	leading     sync.WaitGroup // what is over once another leads
	failed      atomic.Bool    // the lead was lost

	mu    sync.Mutex
	peers map[string]*peer
	more  chan struct{} // there is something to tell; capacity 1
}

// peer is a session as the leader sees it.
type peer struct {
	id    string
	conn  net.Conn // this end of the pipe, whose other end the host has
	in    *inbox   // what is to be written to it
	heard time.Time
	next  uint64 // letter from the member

	// Under the lead's lock.
	out    []byte
	number uint64        // of the letters to the member
	closed bool          // the host is done with it
	leaves bool          // the member has said its last
	over   bool          // the member is gone
	room   chan struct{} // in out; capacity 1
}

// Bounds of a lead.
const (
	maxPeers = 10000
	maxOut   = 256 << 10 // bytes to a member that are not sent yet
	maxTell  = 256       // messages sent at once
)

func newLead(p Place, room, salt string) *lead {
	l := &lead{place: p, room: room, token: rand.Text(), salt: salt, in: newInbox(), peers: make(map[string]*peer), more: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// start takes the lead, unless another has it; it gives the token of who does.
func (l *lead) start(ctx context.Context, host func(kept []byte) Host) (leader string, err error) {
	ready := make(chan struct{})
	lost := make(chan error, 1)
	l.tasks.Go(func() {
		lost <- l.place.Listen(l.ctx, l.room, "", func() { close(ready) }, l.in.put)
		l.fail()
	})
	select {
	case <-ready:
	case err = <-lost:
	case <-ctx.Done():
		err = ctx.Err()
	}
	var kept []byte
	if err == nil {
		leader, kept, err = l.place.Lead(ctx, l.room, l.token)
	}
	if err != nil || leader != l.token {
		l.cancel()
		l.tasks.Wait()
		return leader, err
	}
	l.host = host(kept)
	l.leading.Go(l.hear)
	l.leading.Go(l.tell)
	l.leading.Go(l.renew)
	l.tasks.Go(func() {
		<-l.ctx.Done()
		l.leading.Wait()
		l.host.Close()
		l.mu.Lock()
		for _, p := range l.peers {
			l.drop(p)
		}
		l.mu.Unlock()
	})
	return leader, nil
}

// fail ends a lead that is lost.
func (l *lead) fail() {
	if l.ctx.Err() == nil {
		l.failed.Store(true)
	}
	l.cancel()
}

// stop hands the lead over.
func (l *lead) stop() {
	l.cancel()
	l.tasks.Wait()
	if l.failed.Load() {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), closeTime)
	defer done()
	var all []Message
	for _, p := range l.peers {
		all = append(all, l.seal(p, closes, ""))
	}
	// Members that hear nothing of it find out by themselves.
	if _, err := l.place.Tell(ctx, l.room, l.token, all); err == nil {
		_ = l.place.Release(ctx, l.room, l.token)
	}
}

// hear takes in what members say.
func (l *lead) hear() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.in.more:
		}
		all, ok := l.in.take()
		if !ok { // whose letter it was, nobody knows
			l.fail()
			return
		}
		for _, text := range all {
			if m, good := read(text); good && m.leader == l.token {
				l.take(&m)
			}
		}
	}
}

// take takes in one letter.
func (l *lead) take(m *letter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[m.session]
	switch {
	case p == nil && m.kind == opens && m.number == 1 && len(l.peers) < maxPeers:
		l.open(m.session)
		return
	case p == nil:
		if m.kind != closes {
			p = &peer{id: m.session, closed: true, over: true}
			l.peers[m.session] = p // which learns that it has none
			wake(l.more)
		}
		return
	case m.number < p.next || p.over:
		return // heard before
	case m.number > p.next:
		l.drop(p)
		return
	case m.kind == closes:
		p.leaves = true
		wake(p.in.more)
		return
	}
	p.next++
	p.heard = time.Now()
	p.in.put(m.text)
}

// open begins a session, with the lock held.
func (l *lead) open(id string) {
	here, there := net.Pipe()
	p := &peer{id: id, conn: here, in: newInbox(), heard: time.Now(), next: 2, room: make(chan struct{}, 1)}
	l.peers[id] = p
	l.tasks.Go(func() { l.write(p) })
	l.tasks.Go(func() { l.read(p) })
	l.host.Accept(there)
}

// drop ends a session whose member is gone, with the lock held.
func (l *lead) drop(p *peer) {
	p.over = true
	wake(p.room)
	if p.conn != nil {
		_ = p.conn.Close()
	}
	wake(l.more)
}

// write gives the host what a member says.
func (l *lead) write(p *peer) {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-p.in.more:
		}
		all, ok := p.in.take()
		for _, text := range all {
			if _, err := io.WriteString(p.conn, text); err != nil {
				return
			}
		}
		if !ok {
			_ = p.conn.Close()
			return
		}
		l.mu.Lock()
		if p.leaves && !p.over {
			l.drop(p)
		}
		over := p.over || p.closed
		l.mu.Unlock()
		if over {
			return
		}
	}
}

// read takes what the host says to a member.
func (l *lead) read(p *peer) {
	b := make([]byte, chunk)
	for {
		n, err := p.conn.Read(b)
		l.mu.Lock()
		p.out = append(p.out, b[:n]...)
		if err != nil {
			p.closed = true
			wake(p.in.more)
		}
		full := len(p.out) > maxOut && !p.over
		l.mu.Unlock()
		wake(l.more)
		if err != nil {
			return
		}
		if full {
			select {
			case <-p.room:
			case <-l.ctx.Done():
			}
		}
	}
}

// seal makes the next letter to a member.
func (l *lead) seal(p *peer, k kind, text string) Message {
	p.number++
	m := letter{leader: l.token, session: p.id, number: p.number, kind: k, text: text}
	return Message{Session: p.id, Text: m.write()}
}

// tell tells members what the host says.
func (l *lead) tell() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.more:
		}
		all, to := l.collect()
		if len(all) == 0 {
			continue
		}
		ctx, done := context.WithTimeout(l.ctx, TTL)
		taken, err := l.place.Tell(ctx, l.room, l.token, all)
		done()
		if err != nil || len(taken) != len(all) {
			l.fail()
			return
		}
		l.mu.Lock()
		for i, p := range to {
			if taken[i] == 0 && !p.over { // nobody is there any more
				l.drop(p)
			}
		}
		l.mu.Unlock()
	}
}

// collect takes what there is to tell.
func (l *lead) collect() (all []Message, to []*peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, p := range l.peers {
		if len(all) >= maxTell {
			wake(l.more)
			break
		}
		if len(p.out) > 0 && !p.over {
			all, to = append(all, l.seal(p, speaks, string(p.out))), append(to, p)
			p.out = p.out[:0]
			wake(p.room)
		}
		if p.closed {
			if !p.over || p.conn == nil {
				all, to = append(all, l.seal(p, closes, "")), append(to, p)
			}
			delete(l.peers, id)
		}
	}
	return all, to
}

// renew renews the lease, and sees to sessions that say nothing.
func (l *lead) renew() {
	tick := time.NewTicker(Beat)
	defer tick.Stop()
	var kept []byte
	for turn := 0; ; turn++ {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		if kept == nil && turn%2 == 0 {
			kept = l.host.Memory()
		}
		ctx, done := context.WithTimeout(l.ctx, TTL)
		err := l.place.Renew(ctx, l.room, l.token, kept)
		var salt string
		if err == nil {
			// A place that has lost its salt gets it back, unless newcomers have one.
			if salt, err = l.place.Salt(ctx, l.salt); err == nil && salt != l.salt {
				err = errors.New("the salt has changed")
			}
		}
		done()
		if err != nil {
			l.fail()
			return
		}
		kept = nil
		l.mu.Lock()
		for _, p := range l.peers {
			if !p.over && time.Since(p.heard) > Forget {
				l.drop(p)
			}
		}
		l.mu.Unlock()
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
