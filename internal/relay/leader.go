package relay

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

// leadership is this process's leadership of one group, until it stops or loses the lease.
type leadership struct {
	broker       Broker
	group, token string
	salt         string
	in           *queue
	server       Server
	ctx          context.Context
	cancel       context.CancelFunc
	tasks        sync.WaitGroup
	leading      sync.WaitGroup // tasks that end before the server is closed
	failed       atomic.Bool    // the lease was lost

	mu    sync.Mutex
	peers map[string]*peer
	more  chan struct{} // signals that frames can be sent; capacity 1
}

// peer is the leader's side of a session.
type peer struct {
	id       string
	conn     net.Conn // this end of a pipe; the server has the other
	in       *queue   // data that is not written to conn yet
	received time.Time
	next     uint64 // number of the next frame from the member

	// Under the leadership's lock.
	out     []byte        // data that is not sent to the member yet
	number  uint64        // of the last frame to the member
	closed  bool          // the server has closed its end
	leaving bool          // the member has sent its close frame
	gone    bool          // the session has ended for the member
	space   chan struct{} // signals space in out; capacity 1
}

// Bounds of a leader.
const (
	maxPeers = 10000
	maxOut   = 256 << 10 // bytes that wait for one member
	maxBatch = 256       // frames in one delivery
)

func newLeadership(b Broker, group, salt string) *leadership {
	l := &leadership{broker: b, group: group, token: rand.Text(), salt: salt, in: newQueue(), peers: make(map[string]*peer), more: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// start acquires the lease, unless another member holds it, and returns the leader's token.
func (l *leadership) start(ctx context.Context, serve func(state []byte) Server) (leader string, err error) {
	ready := make(chan struct{})
	lost := make(chan error, 1)
	l.tasks.Go(func() {
		lost <- l.broker.Subscribe(l.ctx, l.group, "", func() { close(ready) }, l.in.put)
		l.fail()
	})
	select {
	case <-ready:
	case err = <-lost:
	case <-ctx.Done():
		err = ctx.Err()
	}
	var state []byte
	if err == nil {
		leader, state, err = l.broker.Acquire(ctx, l.group, l.token)
	}
	if err != nil || leader != l.token {
		l.cancel()
		l.tasks.Wait()
		return leader, err
	}
	l.server = serve(state)
	l.leading.Go(l.receive)
	l.leading.Go(l.flush)
	l.leading.Go(l.renew)
	l.tasks.Go(func() {
		<-l.ctx.Done()
		l.leading.Wait()
		l.server.Close()
		l.mu.Lock()
		for _, p := range l.peers {
			l.drop(p)
		}
		l.mu.Unlock()
	})
	return leader, nil
}

// fail ends a leadership whose lease was lost.
func (l *leadership) fail() {
	if l.ctx.Err() == nil {
		l.failed.Store(true)
	}
	l.cancel()
}

// stop closes all sessions and releases the lease.
func (l *leadership) stop() {
	l.cancel()
	l.tasks.Wait()
	if l.failed.Load() {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), closeTime)
	defer done()
	var all []Message
	for _, p := range l.peers {
		all = append(all, l.message(p, kindClose, ""))
	}
	// Members that do not get their close frame notice the missing leader by themselves.
	if _, err := l.broker.Deliver(ctx, l.group, l.token, all); err == nil {
		_ = l.broker.Release(ctx, l.group, l.token)
	}
}

// receive handles the frames of members.
func (l *leadership) receive() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.in.more:
		}
		all, ok := l.in.take()
		if !ok { // the dropped frame may be of any session
			l.fail()
			return
		}
		for _, text := range all {
			if f, good := decode(text); good && f.leader == l.token {
				l.handle(&f)
			}
		}
	}
}

// handle handles one frame.
func (l *leadership) handle(f *frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[f.session]
	switch {
	case p == nil && f.kind == kindOpen && f.number == 1 && len(l.peers) < maxPeers:
		l.open(f.session)
		return
	case p == nil:
		if f.kind != kindClose {
			p = &peer{id: f.session, closed: true, gone: true}
			l.peers[f.session] = p // only to send it a close frame
			wake(l.more)
		}
		return
	case f.number < p.next || p.gone:
		return // a duplicate
	case f.number > p.next:
		l.drop(p)
		return
	case f.kind == kindClose:
		p.leaving = true
		wake(p.in.more)
		return
	}
	p.next++
	p.received = time.Now()
	p.in.put(f.data)
}

// open begins a session; l.mu must be held.
func (l *leadership) open(id string) {
	here, there := net.Pipe()
	p := &peer{id: id, conn: here, in: newQueue(), received: time.Now(), next: 2, space: make(chan struct{}, 1)}
	l.peers[id] = p
	l.tasks.Go(func() { l.write(p) })
	l.tasks.Go(func() { l.read(p) })
	l.server.Accept(there)
}

// drop ends the session of a member that is gone; l.mu must be held.
func (l *leadership) drop(p *peer) {
	p.gone = true
	wake(p.space)
	if p.conn != nil {
		_ = p.conn.Close()
	}
	wake(l.more)
}

// write writes to the server what a member sends.
func (l *leadership) write(p *peer) {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-p.in.more:
		}
		all, ok := p.in.take()
		for _, data := range all {
			if _, err := io.WriteString(p.conn, data); err != nil {
				return
			}
		}
		if !ok {
			_ = p.conn.Close()
			return
		}
		l.mu.Lock()
		if p.leaving && !p.gone {
			l.drop(p)
		}
		over := p.gone || p.closed
		l.mu.Unlock()
		if over {
			return
		}
	}
}

// read buffers what the server writes to a member.
func (l *leadership) read(p *peer) {
	b := make([]byte, chunk)
	for {
		n, err := p.conn.Read(b)
		l.mu.Lock()
		p.out = append(p.out, b[:n]...)
		if err != nil {
			p.closed = true
			wake(p.in.more)
		}
		full := len(p.out) > maxOut && !p.gone
		l.mu.Unlock()
		wake(l.more)
		if err != nil {
			return
		}
		if full {
			select {
			case <-p.space:
			case <-l.ctx.Done():
			}
		}
	}
}

// message makes the message with the next frame to a member.
func (l *leadership) message(p *peer, k kind, data string) Message {
	p.number++
	f := frame{leader: l.token, session: p.id, number: p.number, kind: k, data: data}
	return Message{Session: p.id, Text: f.encode()}
}

// flush sends members what the server has written.
func (l *leadership) flush() {
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
		receivers, err := l.broker.Deliver(ctx, l.group, l.token, all)
		done()
		if err != nil || len(receivers) != len(all) {
			l.fail()
			return
		}
		l.mu.Lock()
		for i, p := range to {
			if receivers[i] == 0 && !p.gone { // the member's subscription has ended
				l.drop(p)
			}
		}
		l.mu.Unlock()
	}
}

// collect returns the next frames to send, with their peers.
func (l *leadership) collect() (all []Message, to []*peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, p := range l.peers {
		if len(all) >= maxBatch {
			wake(l.more)
			break
		}
		if len(p.out) > 0 && !p.gone {
			all, to = append(all, l.message(p, kindData, string(p.out))), append(to, p)
			p.out = p.out[:0]
			wake(p.space)
		}
		if p.closed {
			if !p.gone || p.conn == nil {
				all, to = append(all, l.message(p, kindClose, "")), append(to, p)
			}
			delete(l.peers, id)
		}
	}
	return all, to
}

// renew renews the lease, stores the state, and ends silent sessions.
func (l *leadership) renew() {
	tick := time.NewTicker(Beat)
	defer tick.Stop()
	var state []byte
	for turn := 0; ; turn++ {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		if state == nil && turn%2 == 0 {
			state = l.server.State()
		}
		ctx, done := context.WithTimeout(l.ctx, TTL)
		err := l.broker.Renew(ctx, l.group, l.token, state)
		var salt string
		if err == nil {
			// Restore a salt that the broker has lost, unless new members have set another.
			if salt, err = l.broker.Salt(ctx, l.salt); err == nil && salt != l.salt {
				err = errors.New("the salt has changed")
			}
		}
		done()
		if err != nil {
			l.fail()
			return
		}
		state = nil
		l.mu.Lock()
		for _, p := range l.peers {
			if !p.gone && time.Since(p.received) > Forget {
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
