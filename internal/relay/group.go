// Package relay carries the connections of a fleet's members over a broker, such as Valkey,
// to an elected leader. The members of one credential form a group. One of them holds a
// lease at the broker and runs the fleet's server. The others reach it through sessions,
// whose bytes are published through the broker in numbered frames.
//
// The broker delivers a leader's frames and renews its lease only while the leader still
// holds the lease, so a leader that was replaced cannot grant anything more.
//
// A member that finds no leader tries to become the leader. No setup is needed, and only
// the broker decides who leads.
package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Times of a group. A leader that stops is replaced within TTL plus Beat.
const (
	// Beat is the interval at which a leader renews its lease.
	Beat = 500 * time.Millisecond
	// TTL is how long a lease lasts after its last renewal.
	TTL = 3 * Beat
	// Forget is how long a session may be silent before the leader ends it.
	Forget = time.Minute + 4*Beat
)

// ErrDown matches the error of a [Broker] that is down for all members: it refused or
// closed the connection.
var ErrDown = errors.New("the broker is down")

// ErrReplaced is the error of a [Broker] for a leader that no longer holds the lease.
var ErrReplaced = errors.New("another member leads")

// errEnded ends a session.
var errEnded = errors.New("the session has ended")

// Broker stores the leases of groups and passes messages on. Its methods are safe for
// concurrent use and return when their context ends. Leases expire by the broker's clock
// only.
type Broker interface {
	// Salt returns the broker's salt. If it has none yet, it stores the proposed one.
	Salt(ctx context.Context, proposed string) (string, error)
	// Leader returns the leader's token, "" if there is no leader.
	Leader(ctx context.Context, group string) (string, error)
	// Acquire gives the lease to the token for TTL if it is free. It returns the leader's
	// token and the state that was stored last.
	Acquire(ctx context.Context, group, token string) (leader string, state []byte, err error)
	// Renew extends the lease to TTL from now. A state that is not nil replaces the stored
	// one. The error is [ErrReplaced] if the token no longer holds the lease.
	Renew(ctx context.Context, group, token string, state []byte) error
	// Release ends the lease if the token holds it.
	Release(ctx context.Context, group, token string) error
	// Send publishes a message to the leader and returns the number of receivers.
	Send(ctx context.Context, group, message string) (int, error)
	// Deliver publishes a leader's messages in order and returns the number of receivers
	// of each. It also renews the lease. The error is [ErrReplaced] if the token no longer
	// holds the lease; then nothing is published.
	Deliver(ctx context.Context, group, token string, all []Message) ([]int, error)
	// Subscribe calls receive for each message to a session, or to the leader if session
	// is empty, one at a time. It calls ready once no later message can be missed, and
	// returns when the context ends or a message may have been missed. Receive must not
	// block.
	Subscribe(ctx context.Context, group, session string, ready func(), receive func(string)) error
}

// Message is a message to a session.
type Message struct{ Session, Text string }

// Server serves the members of a group while this process leads it.
type Server interface {
	// Accept serves a connection.
	Accept(net.Conn)
	// State returns the state for the next leader, nil if it has not changed since the
	// last call.
	State() []byte
	// Close closes all connections.
	Close()
}

// Group is one member's view of the group of a credential. Make it with [NewGroup].
type Group struct {
	broker Broker
	key    func(salt string) string
	serve  func(state []byte, died bool) Server
	salt   string

	mu         sync.Mutex
	leadership *leadership // of this process; nil if another leads
	silent     bool
	died       bool // the last leader had no subscription any more
}

// NewGroup returns the group of a credential. Key returns the keyed hash of the credential.
// Serve makes the server when this process becomes the leader: state is what a previous
// leader stored, and died reports whether that leader's process is known to have ended.
func NewGroup(b Broker, key func(salt string) string, serve func(state []byte, died bool) Server) *Group {
	return &Group{broker: b, key: key, serve: serve, salt: rand.Text()}
}

// Dial connects to the leader. If there is none, this process may become the leader.
// Concurrent calls are not allowed.
func (g *Group) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := g.dial(ctx)
	g.note(err)
	if err == nil {
		g.mu.Lock()
		g.died = false
		g.mu.Unlock()
	}
	return conn, err
}

func (g *Group) dial(ctx context.Context) (net.Conn, error) {
	salt, err := g.broker.Salt(ctx, g.salt)
	if err != nil {
		return nil, err
	}
	g.salt = salt
	name := g.key(salt)
	leader, err := g.broker.Leader(ctx, name)
	if err == nil && leader == "" {
		leader, err = g.acquire(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	return g.open(ctx, name, leader)
}

// acquire tries to become the leader and returns the leader's token.
func (g *Group) acquire(ctx context.Context, name string) (string, error) {
	g.Close() // an earlier leadership whose lease has expired
	l := newLeadership(g.broker, name, g.salt)
	g.mu.Lock()
	died := g.died
	g.mu.Unlock()
	leader, err := l.start(ctx, func(state []byte) Server { return g.serve(state, died) })
	if leader == l.token {
		g.mu.Lock()
		g.leadership = l
		g.mu.Unlock()
	}
	return leader, err
}

// Close ends the leadership if this process has it. Another member can take over at once.
func (g *Group) Close() {
	g.mu.Lock()
	l := g.leadership
	g.leadership = nil
	g.mu.Unlock()
	if l != nil {
		l.stop()
	}
}

// Silent reports whether the broker last failed to answer this member in a way that leaves
// open whether other members still reach it.
func (g *Group) Silent() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.silent
}

// note records the result of the last call to the broker.
func (g *Group) note(err error) {
	if errors.Is(err, errEnded) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.silent = err != nil && !errors.Is(err, ErrDown)
}

// frame is one message of a session. Frames are numbered from 1 in each direction.
type frame struct {
	leader, session string
	number          uint64
	kind            kind
	data            string
}

// kind is the kind of a frame.
type kind byte

const (
	kindOpen  kind = 'o' // opens the session
	kindData  kind = 's'
	kindClose kind = 'c' // closes the session
)

// encode returns the frame as text: a header line, then the data.
func (f *frame) encode() string {
	return fmt.Sprintf("%s %s %d %c\n%s", f.leader, f.session, f.number, f.kind, f.data)
}

// decode parses a frame. It returns false for anything else.
func decode(s string) (f frame, ok bool) {
	head, data, ok := strings.Cut(s, "\n")
	parts := strings.Split(head, " ")
	if !ok || len(parts) != 4 || len(parts[3]) != 1 {
		return f, false
	}
	number, err := strconv.ParseUint(parts[2], 10, 64)
	f = frame{leader: parts[0], session: parts[1], number: number, kind: kind(parts[3][0]), data: data}
	return f, err == nil
}

// queue holds received messages until they are processed.
type queue struct {
	mu   sync.Mutex
	all  []string
	size int
	full bool
	more chan struct{} // signals new messages; capacity 1
}

// maxQueue bounds a queue in bytes. A session that loses a message ends.
const maxQueue = 16 << 20

func newQueue() *queue { return &queue{more: make(chan struct{}, 1)} }

// put adds a message. It never blocks: a message that does not fit is dropped, and the next
// take returns false.
func (q *queue) put(s string) {
	q.mu.Lock()
	if q.size+len(s) > maxQueue {
		q.full = true
	} else {
		q.all = append(q.all, s)
		q.size += len(s)
	}
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// take removes and returns all messages. It returns false if one was dropped.
func (q *queue) take() (all []string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, ok = q.all, !q.full
	q.all, q.size, q.full = nil, 0, false
	return all, ok
}

// chunk is the maximum number of bytes in a data frame.
const chunk = 64 << 10
