// Package meeting lets the members of a fleet meet in a place that all of them reach, such
// as Valkey. For each credential there is a room, in which one member leads: it runs the
// fleet's server, and what the others say to it goes through the place as letters. Who
// leads holds a lease. The place passes on what a leader says, and renews its lease, only
// while it still leads: one that was replaced can permit nothing more.
//
// A member that finds no leader becomes one, so there is nothing to set up, and nobody decides
// in a place but the place itself.
package meeting

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

// What keeps the meeting together. Who leads is replaced within TTL and Beat.
const (
	// Beat is how often a leader renews its lease.
	Beat = 500 * time.Millisecond
	// TTL is how long the lease of a leader lasts that says nothing more.
	TTL = 3 * Beat
	// Forget is after how long without a word a session is taken for ended.
	Forget = time.Minute + 4*Beat
)

// ErrGone is what the error of a [Place] matches that is gone for everybody: nobody listens
// there any more.
var ErrGone = errors.New("nobody listens there")

// ErrReplaced is what a [Place] says to who leads no longer.
var ErrReplaced = errors.New("another member leads")

// errEnded ends a session.
var errEnded = errors.New("the session has ended")

// Place stores and forwards, for any number of rooms. Its calls are safe for concurrent
// use, and end with their context. What concerns a leader is decided by the place's own
// clock alone.
type Place interface {
	// Salt gives the place's salt, which is the proposed one where there is none yet.
	Salt(ctx context.Context, proposed string) (string, error)
	// Leader gives the token of who leads, "" for nobody.
	Leader(ctx context.Context, room string) (string, error)
	// Lead makes the token the leader's for TTL if nobody leads. It gives the leader's
	// token, and what was kept last.
	Lead(ctx context.Context, room, token string) (leader string, kept []byte, err error)
	// Renew lets the lease last for TTL from now. What is to be kept replaces what was
	// kept; nil leaves it.
	Renew(ctx context.Context, room, token string, keep []byte) error
	// Release ends the lease.
	Release(ctx context.Context, room, token string) error
	// Say passes a message on to who leads, and counts who took it in.
	Say(ctx context.Context, room, message string) (int, error)
	// Tell passes on what the leader says, in order, and counts for each who took it in.
	// It renews the lease as well.
	Tell(ctx context.Context, room, token string, all []Message) ([]int, error)
	// Listen has hear called, with one message at a time, for what is said to a session,
	// or to the leader where session is empty. It calls ready when nothing is missed from
	// then on, and returns when the context ends or something may have been missed. Hear
	// must not block.
	Listen(ctx context.Context, room, session string, ready func(), hear func(string)) error
}

// Message is one to a session.
type Message struct{ Session, Text string }

// Host serves the members of a room that this process leads.
type Host interface {
	// Accept serves a connection.
	Accept(net.Conn)
	// Memory is what the next leader is to know, and nil if that has not changed.
	Memory() []byte
	// Close ends all connections.
	Close()
}

// Room is where the members of one credential meet, as one member sees it. Make it with
// [NewRoom].
type Room struct {
	place Place
	key   func(salt string) string
	host  func(kept []byte, died bool) Host
	salt  string

	mu     sync.Mutex
	lead   *lead // of this process; nil if it does not lead
	silent bool
	died   bool // the leader that there was last
}

// NewRoom is the room of the credential that key hashes with a salt. Host makes a server
// when this process comes to lead, from what one before kept; died says that the process of
// that one is gone, as far as the place can know.
func NewRoom(p Place, key func(salt string) string, host func(kept []byte, died bool) Host) *Room {
	return &Room{place: p, key: key, host: host, salt: rand.Text()}
}

// Dial connects with who leads, which may be this process from now on. One call at a time.
func (r *Room) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := r.dial(ctx)
	r.note(err)
	if err == nil {
		r.mu.Lock()
		r.died = false
		r.mu.Unlock()
	}
	return conn, err
}

func (r *Room) dial(ctx context.Context) (net.Conn, error) {
	salt, err := r.place.Salt(ctx, r.salt)
	if err != nil {
		return nil, err
	}
	r.salt = salt
	room := r.key(salt)
	leader, err := r.place.Leader(ctx, room)
	if err == nil && leader == "" {
		leader, err = r.run(ctx, room)
	}
	if err != nil {
		return nil, err
	}
	return r.join(ctx, room, leader)
}

// run tries to lead, and gives the token of who does.
func (r *Room) run(ctx context.Context, room string) (string, error) {
	r.Close() // of before, whose lease is over
	l := newLead(r.place, room, r.salt)
	r.mu.Lock()
	died := r.died
	r.mu.Unlock()
	leader, err := l.start(ctx, func(kept []byte) Host { return r.host(kept, died) })
	if leader == l.token {
		r.mu.Lock()
		r.lead = l
		r.mu.Unlock()
	}
	return leader, err
}

// Close ends the lead, if this process has it; another member takes it over at once.
func (r *Room) Close() {
	r.mu.Lock()
	l := r.lead
	r.lead = nil
	r.mu.Unlock()
	if l != nil {
		l.stop()
	}
}

// Silent reports whether others may still meet, although this member has lost its way.
func (r *Room) Silent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.silent
}

// note notes how the place was found last.
func (r *Room) note(err error) {
	if errors.Is(err, errEnded) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = err != nil && !errors.Is(err, ErrGone)
}

// letter is one message of a session, numbered from 1 in each direction.
type letter struct {
	leader, session string
	number          uint64
	kind            kind
	text            string
}

// kind is what a letter is for.
type kind byte

const (
	opens  kind = 'o' // it begins the session
	speaks kind = 's'
	closes kind = 'c' // it ends it
)

// write gives the letter's text, whose first line is the head.
func (l *letter) write() string {
	return fmt.Sprintf("%s %s %d %c\n%s", l.leader, l.session, l.number, l.kind, l.text)
}

// read reads a letter; ok is false for anything else.
func read(s string) (l letter, ok bool) {
	head, text, ok := strings.Cut(s, "\n")
	parts := strings.Split(head, " ")
	if !ok || len(parts) != 4 || len(parts[3]) != 1 {
		return l, false
	}
	number, err := strconv.ParseUint(parts[2], 10, 64)
	l = letter{leader: parts[0], session: parts[1], number: number, kind: kind(parts[3][0]), text: text}
	return l, err == nil
}

// inbox is a queue of messages between who hears them and who reads them.
type inbox struct {
	mu   sync.Mutex
	all  []string
	size int
	full bool
	more chan struct{} // capacity 1
}

// maxInbox bounds an inbox in bytes; a session that loses a message ends.
const maxInbox = 16 << 20

func newInbox() *inbox { return &inbox{more: make(chan struct{}, 1)} }

// put adds a message, and never blocks.
func (b *inbox) put(s string) {
	b.mu.Lock()
	if b.size+len(s) > maxInbox {
		b.full = true
	} else {
		b.all = append(b.all, s)
		b.size += len(s)
	}
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

// take takes all messages; ok is false if one was lost.
func (b *inbox) take() (all []string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, ok = b.all, !b.full
	b.all, b.size, b.full = nil, 0, false
	return all, ok
}

// chunk is how much of a connection goes into one letter at most.
const chunk = 64 << 10
