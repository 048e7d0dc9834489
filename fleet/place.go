package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"sync"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/meeting"
	"github.com/headway-go/headway/internal/valkey"
)

// place is where members meet that are on several machines.
type place struct {
	open func() (client, error)

	mu    sync.Mutex
	users int
	client
}

// client is a connection with a place.
type client interface {
	meeting.Place
	Close()
}

// meet makes the fleet one that meets in a Valkey, if that is there.
func (f *Fleet) meet(ctx context.Context, u *url.URL) error {
	o, err := valkey.Parse(u)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	f.place = &place{open: func() (client, error) { return valkey.Open(o) }}
	found := make(chan error, 1)
	go func() {
		p := f.place
		p.hold()
		defer p.release()
		c, err := p.get()
		if err == nil {
			_, err = c.Leader(ctx, "nobody")
		}
		found <- err
	}()
	select {
	case err = <-found:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("fleet: %w at %s: %w", ErrAway, o.Address(), err)
	}
	return nil
}

// hold and release count who needs the connection: the last one closes it.
func (p *place) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
}

func (p *place) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 && p.client != nil {
		p.client.Close()
		p.client = nil
	}
}

// get connects where nobody has before. Afterwards the client connects by itself.
func (p *place) get() (client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client == nil {
		c, err := p.open()
		if err != nil {
			return nil, err
		}
		p.client = c
	}
	return p.client, nil
}

// room is where the members of one credential meet; nil on a socket.
type room struct {
	place *place
	make  func(meeting.Place) *meeting.Room
	room  *meeting.Room // once there was a connection
}

func (p *place) enter(w *way) *room {
	p.hold()
	return &room{place: p, make: func(c meeting.Place) *meeting.Room { return meeting.NewRoom(c, w.key, newHost) }}
}

// dial connects with the member that has the pace.
func (r *room) dial(ctx context.Context) (net.Conn, error) {
	if r.room == nil {
		c, err := r.place.get()
		if err != nil {
			return nil, err
		}
		r.room = r.make(c)
	}
	return r.room.Dial(ctx)
}

// silent reports whether others may still meet.
func (r *room) silent() bool { return r != nil && r.room != nil && r.room.Silent() }

// leave ends it.
func (r *room) leave() {
	if r == nil {
		return
	}
	if r.room != nil {
		r.room.Close()
	}
	r.place.release()
}

// host is a server for the members of one credential, in the process of one of them.
type host struct{ *Server }

// memory is what a fleet remembers of a credential.
type memory struct {
	Version int                      `json:"version"`
	States  map[string]control.State `json:"states"`
}

// memoryVersion is the version of a memory. Another is not read.
const memoryVersion = 1

func newHost(kept []byte) meeting.Host {
	h := &host{Server: NewServer()}
	var m memory
	if json.Unmarshal(kept, &m) == nil && m.Version == memoryVersion {
		h.core.Recall(m.States)
	}
	return h
}

// Accept serves a connection.
func (h *host) Accept(conn net.Conn) { h.accept(conn) }

// Memory is what was learned, and nil if that is not new.
func (h *host) Memory() []byte {
	h.mu.Lock()
	states := h.states
	h.states = nil
	h.mu.Unlock()
	if states == nil {
		return nil
	}
	b, err := json.Marshal(memory{memoryVersion, states})
	if err != nil {
		return nil
	}
	return b
}
