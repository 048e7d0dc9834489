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

	"github.com/headway-go/headway/internal/fleet"
	"github.com/headway-go/headway/internal/pacing"
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

func (l *lines) read(into any) error {
	if !l.from.Scan() {
		if err := l.from.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	return json.Unmarshal(l.from.Bytes(), into)
}

// link is one membership: it finds the server, again and again, and carries messages.
type link struct {
	way   *way
	hello func() pacing.Hello
	hear  func(*pacing.ToMember)

	ctx     context.Context // ends a search and a pause
	cut     context.CancelFunc
	leaving chan struct{} // closed by Leave
	ended   chan struct{}
	once    sync.Once

	mu     sync.Mutex
	linked bool
	queue  []pacing.ToServer
	more   chan struct{} // of the queue; capacity 1

	heard atomic.Int64 // when a message came last, since the origin
}

// Send has a message written. Without a server it is dropped.
func (l *link) Send(m pacing.ToServer) {
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

// leaveTime bounds the last words.
const leaveTime = time.Second

// Leave says goodbye.
func (l *link) Leave() {
	l.once.Do(func() {
		l.Send(pacing.ToServer{Bye: true})
		close(l.leaving)
		l.cut()
	})
	<-l.ended
}

// The pauses between two searches for a server; below a lease, so that a server that
// begins anew hears of all members while it listens.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = Lease / 4
)

func (l *link) run() {
	defer close(l.ended)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if conn, from, err := l.way.fleet.greet(l.ctx); err == nil {
			if l.talk(conn, from) {
				pause = firstPause
			}
		}
		if l.ctx.Err() != nil {
			return
		}
		l.hear(&pacing.ToMember{Lost: pacing.Gone})
		select {
		case <-l.ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

// talk carries messages until the connection ends, and reports whether the server had
// anything to do with the member.
func (l *link) talk(conn net.Conn, from *lines) (welcome bool) {
	hello := l.hello()
	hello.Key = l.way.key(from.salt)
	l.mu.Lock()
	l.linked, l.queue = true, []pacing.ToServer{{Hello: &hello}}
	l.mu.Unlock()
	begun := time.Now()
	l.heard.Store(0)
	over := make(chan struct{})
	var tasks sync.WaitGroup
	tasks.Go(func() { l.write(conn, over) })
	tasks.Go(func() { l.beat(begun, over) })
	for {
		var m pacing.ToMember
		if err := from.read(&m); err != nil || m.Fault != "" {
			break
		}
		welcome = true
		l.heard.Store(int64(time.Since(begun)))
		l.hear(&m)
	}
	close(over)
	_ = conn.Close()
	tasks.Wait()
	l.mu.Lock()
	l.linked, l.queue = false, nil
	l.mu.Unlock()
	return welcome
}

// write writes what is in the queue, and at least an empty message with each beat.
func (l *link) write(conn net.Conn, over <-chan struct{}) {
	to := bufio.NewWriter(conn)
	encode := json.NewEncoder(to)
	leaving := l.leaving
	for {
		l.mu.Lock()
		all := l.queue
		l.queue = nil
		l.mu.Unlock()
		var err error
		for i := range all {
			err = errors.Join(err, encode.Encode(&all[i]))
		}
		if err = errors.Join(err, to.Flush()); err != nil || leaving == nil {
			_ = conn.Close() // which ends the reading
			return
		}
		select {
		case <-l.more:
		case <-leaving:
			leaving = nil // what is in the queue is the last
			_ = conn.SetWriteDeadline(time.Now().Add(leaveTime))
		case <-over:
			return
		}
	}
}

// beat tells the server that the member lives, and the member that time passes, or that
// the server says nothing.
func (l *link) beat(begun time.Time, over <-chan struct{}) {
	tick := time.NewTicker(fleet.Beat)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		m := &pacing.ToMember{}
		if time.Since(begun)-time.Duration(l.heard.Load()) > Lease {
			m.Lost = pacing.Silent
		}
		l.hear(m)
		l.Send(pacing.ToServer{})
	}
}
