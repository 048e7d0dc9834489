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

// place is a Valkey that members on several machines connect to.
type place struct {
	open func() (client, error)

	mu    sync.Mutex
	users int
	client
}

// client is a connection to a place.
type client interface {
	meeting.Place
	Close()
}

// meet makes the fleet use a Valkey. It is an error if that does not answer.
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

// hold and release count the users of the connection: the last one closes it.
func (p *place) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
}

func (p *place) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 && p.client != nil {
		p.Close()
		p.client = nil
	}
}

// get connects if that has not happened yet. The client reconnects by itself.
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

// room is one credential's part of a place; nil on a socket.
type room struct {
	place *place
	make  func(meeting.Place) *meeting.Room
	room  *meeting.Room // nil before the first connection
}

func (p *place) enter(w *way) *room {
	p.hold()
	return &room{place: p, make: func(c meeting.Place) *meeting.Room { return meeting.NewRoom(c, w.key, newHost) }}
}

// dial connects to the member that runs the server.
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

// silent reports whether other members may still reach the server.
func (r *room) silent() bool { return r != nil && r.room != nil && r.room.Silent() }

// leave ends the membership of the room. A nil room has none.
func (r *room) leave() {
	if r == nil {
		return
	}
	if r.room != nil {
		r.room.Close()
	}
	r.place.release()
}

// host is a server for the members of one credential, run by one of them.
type host struct{ *Server }

// memory is what a Valkey stores for a credential between two servers.
type memory struct {
	Version int                      `json:"version"`
	States  map[string]control.State `json:"states"`
}

// memoryVersion is the version of a memory; others are ignored.
const memoryVersion = 1

func newHost(kept []byte, died bool) meeting.Host {
	h := &host{Server: NewServer()}
	if died {
		h.core.Bereave(1)
	}
	var m memory
	if json.Unmarshal(kept, &m) == nil && m.Version == memoryVersion {
		h.core.Recall(m.States)
	}
	return h
}

// Accept serves a connection.
func (h *host) Accept(conn net.Conn) { h.accept(conn) }

// Memory returns what was learned since the last call, nil for nothing new.
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
