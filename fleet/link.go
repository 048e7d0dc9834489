package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/fleet"
)

// maxLine bounds a message in bytes.
const maxLine = 4 << 20

// lines reads messages, a line of JSON each.
type lines struct {
	from *bufio.Scanner
	salt string
}

func newLines(r io.Reader) *lines {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	return &lines{from: s}
}

// read returns the next message. It is valid until the next call.
func (l *lines) read() ([]byte, error) {
	if !l.from.Scan() {
		if err := l.from.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
	return l.from.Bytes(), nil
}

// decode reads the next message.
func (l *lines) decode(into any) error {
	line, err := l.read()
	if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}

// link is one membership: it connects to the server, again whenever the connection ends, and
// carries messages.
type link struct {
	way    *way
	member headway.FleetMember
	dial   func(context.Context) (net.Conn, error)
	group  *group // nil for a socket

	ctx     context.Context // bounds connecting and the pause before it
	cut     context.CancelFunc
	leaving chan struct{} // closed by Leave
	ended   chan struct{}
	once    sync.Once

	mu     sync.Mutex
	linked bool
	queue  []headway.FleetMessage
	more   chan struct{} // signals the queue; capacity 1

	received atomic.Int64 // when the last message came, since the connection began
}

// Send queues a message. Without a server it is dropped.
func (l *link) Send(m headway.FleetMessage) {
	l.mu.Lock()
	if l.linked {
		l.queue = append(l.queue, m)
	}
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// live queues a heartbeat, unless another message is waiting: the queue for a server that
// reads nothing does not grow.
func (l *link) live() {
	l.mu.Lock()
	idle := len(l.queue) == 0
	l.mu.Unlock()
	if idle {
		l.Send(headway.FleetMessage{})
	}
}

// leaveTime bounds the writing of the last messages.
const leaveTime = time.Second

// Leave writes what is queued and ends the membership.
func (l *link) Leave() {
	l.once.Do(func() {
		close(l.leaving)
		l.cut()
	})
	<-l.ended
}

// The pauses between two attempts to connect: shorter than a lease, so that all members are
// back while a restarted server listens.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = Lease / 4
)

func (l *link) run() {
	defer close(l.ended)
	defer l.group.leave()
	begun, joined := time.Now(), false
	for pause := firstPause; ; {
		conn, from, err := greet(l.ctx, l.dial)
		welcome := false
		if err == nil {
			if joined {
				l.member.Away(false) // requests to a previous server are void
			}
			welcome = l.talk(conn, from)
			joined = joined || welcome
		}
		if welcome { // it may still be running, or a successor
			pause = firstPause
		} else if l.ctx.Err() == nil && (joined || time.Since(begun) > fleet.Lease) { // until then it may be about to start
			l.away()
		}
		select {
		case <-l.ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, lastPause)
	}
}

// away makes the member continue without a server.
func (l *link) away() {
	l.member.Away(false)
	if l.group.silent() {
		l.member.Away(true)
	}
}

// talk carries messages until the connection ends, and reports whether the server has
// accepted the member.
func (l *link) talk(conn net.Conn, from *lines) (welcome bool) {
	hello := l.member.Hello(l.way.key(from.salt))
	l.mu.Lock()
	l.linked, l.queue = true, []headway.FleetMessage{hello}
	l.mu.Unlock()
	begun := time.Now()
	l.received.Store(0)
	over := make(chan struct{})
	var tasks sync.WaitGroup
	tasks.Go(func() { l.write(conn, over) })
	tasks.Go(func() { l.beat(begun, over) })
	for {
		line, err := from.read()
		if err != nil || l.member.Hear(line) != nil {
			break
		}
		welcome = true
		l.received.Store(int64(time.Since(begun)))
	}
	close(over)
	_ = conn.Close()
	tasks.Wait()
	l.mu.Lock()
	l.linked, l.queue = false, nil
	l.mu.Unlock()
	return welcome
}

// write writes what is queued, until the connection ends. After Leave it writes what is
// left, and closes the connection.
func (l *link) write(conn net.Conn, over <-chan struct{}) {
	to := bufio.NewWriter(conn)
	leaving := l.leaving
	for {
		l.mu.Lock()
		all := l.queue
		l.queue = nil
		l.mu.Unlock()
		var err error
		for i := range all {
			err = errors.Join(err, write(to, all[i]))
		}
		if err = errors.Join(err, to.Flush()); err != nil || leaving == nil {
			_ = conn.Close() // which ends the reading
			return
		}
		select {
		case <-l.more:
		case <-leaving:
			leaving = nil // no message follows those in the queue
			_ = conn.SetWriteDeadline(time.Now().Add(leaveTime))
		case <-over:
			return
		}
	}
}

// write writes a message as a line.
func write(to *bufio.Writer, m headway.FleetMessage) error {
	b, err := m.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = to.Write(append(b, '\n'))
	return err
}

// beat sends heartbeats to the server, and informs the member when the server is silent.
func (l *link) beat(begun time.Time, over <-chan struct{}) {
	tick := time.NewTicker(fleet.Beat)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		if time.Since(begun)-time.Duration(l.received.Load()) > fleet.Silence {
			l.member.Away(true)
		} else {
			l.member.Beat()
		}
		l.live()
	}
}
