package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"sync"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/relay"
	"github.com/headway-go/headway/internal/valkey"
	"github.com/headway-go/headway/quota"
)

// broker is a Valkey that members on several machines connect to. All groups of a process
// share one connection.
type broker struct {
	open    func() (client, error)
	address string // host and port

	mu      sync.Mutex
	users   int
	opening chan struct{} // closed when the connection is open or has failed; nil otherwise
	err     error         // why it failed
	client
}

// client is a connection to a broker.
type client interface {
	relay.Broker
	Close()
}

// Budgets are budgets of calls and tokens that the governors of several processes share, for
// one of them: it is the Fleet of quota/governor. Its methods are for that governor alone.
type Budgets struct {
	broker  *broker
	server  string
	group   string
	member  string
	budgets *valkey.Budgets // nil before the first exchange
}

// Budgets reports whether members can share budgets: through a Valkey, not through a socket.
func (f *Fleet) Budgets() bool { return f.broker != nil }

// Share returns the shared budgets of a name, which members choose alike. It panics if the fleet
// has no [Fleet.Budgets].
func (f *Fleet) Share(name string) *Budgets {
	f.broker.hold()
	return &Budgets{broker: f.broker, server: f.broker.address, group: name, member: rand.Text()}
}

// Exchange carries out one exchange in one step at the server, at most once.
func (b *Budgets) Exchange(ctx context.Context, x *quota.Exchange) (*quota.Exchanged, error) {
	if b.budgets == nil {
		c, err := b.broker.get(ctx)
		if err != nil {
			return nil, err
		}
		b.budgets = c.(*valkey.Client).Budgets(b.group, b.member)
	}
	return b.budgets.Exchange(ctx, x)
}

// Server returns the host and port of the server.
func (b *Budgets) Server() string { return b.server }

// Close ends the use of the server.
func (b *Budgets) Close() { b.broker.release() }

// useValkey sets the fleet's broker to the Valkey at a URL, and returns an error if it does
// not answer.
func (f *Fleet) useValkey(ctx context.Context, u *url.URL) error {
	o, err := valkey.Parse(u)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	f.broker = &broker{address: o.Address(), open: func() (client, error) { return valkey.Open(o) }}
	f.broker.hold()
	defer f.broker.release()
	c, err := f.broker.get(ctx)
	if err == nil {
		_, err = c.Leader(ctx, "nobody")
	}
	if err != nil {
		return fmt.Errorf("fleet: %w at %s: %w", ErrAway, o.Address(), err)
	}
	return nil
}

// hold and release count the users of the connection. The last release closes it.
func (b *broker) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
}

func (b *broker) release() {
	b.mu.Lock()
	var unused client
	if b.users--; b.users == 0 {
		unused, b.client = b.client, nil
	}
	b.mu.Unlock()
	if unused != nil {
		unused.Close()
	}
}

// get returns the connection, and connects on the first call. The client reconnects by
// itself. Only the wait ends with the context: what is being opened serves the next call.
func (b *broker) get(ctx context.Context) (client, error) {
	b.mu.Lock()
	if b.client != nil {
		defer b.mu.Unlock()
		return b.client, nil
	}
	if b.opening == nil {
		b.opening = make(chan struct{})
		go b.connect(b.opening)
	}
	opened := b.opening
	b.mu.Unlock()
	select {
	case <-opened:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client == nil {
		return nil, b.err
	}
	return b.client, nil
}

// connect opens the connection, without the lock, and closes it again if nobody uses it.
func (b *broker) connect(opened chan<- struct{}) {
	c, err := b.open()
	b.mu.Lock()
	unused := err == nil && b.users == 0
	if b.opening, b.err = nil, err; unused {
		b.err = relay.ErrDown
	} else if err == nil {
		b.client = c
	}
	b.mu.Unlock()
	close(opened)
	if unused {
		c.Close()
	}
}

// group connects one membership to its group on a broker. It is nil for a fleet on a socket.
type group struct {
	broker *broker
	way    *way
	relay  *relay.Group // nil before the first connection
}

// group makes the group of a membership. It uses the broker until leave is called.
func (b *broker) group(w *way) *group {
	b.hold()
	return &group{broker: b, way: w}
}

// dial connects to the member that runs the server.
func (g *group) dial(ctx context.Context) (net.Conn, error) {
	if g.relay == nil {
		c, err := g.broker.get(ctx)
		if err != nil {
			return nil, err
		}
		g.relay = relay.NewGroup(c, g.way.key, newElected)
	}
	return g.relay.Dial(ctx)
}

// silent reports whether other members may still reach the server.
func (g *group) silent() bool { return g != nil && g.relay != nil && g.relay.Silent() }

// leave gives up the leadership, if this process has it, and the use of the broker. It does
// nothing for a nil group.
func (g *group) leave() {
	if g == nil {
		return
	}
	if g.relay != nil {
		g.relay.Close()
	}
	g.broker.release()
}

// elected is the server that the leader of a group runs.
type elected struct{ *Server }

// savedState is what the broker stores for the next leader.
type savedState struct {
	Version int                      `json:"version"`
	States  map[string]control.State `json:"states"`
}

// savedVersion is the version of a [savedState]. Other versions are ignored.
const savedVersion = 1

func newElected(state []byte, died bool) relay.Server {
	e := &elected{Server: NewServer()}
	if died {
		e.core.Bereave(1)
	}
	var saved savedState
	if json.Unmarshal(state, &saved) == nil && saved.Version == savedVersion {
		e.core.Recall(saved.States)
	}
	return e
}

// Accept serves a connection.
func (e *elected) Accept(conn net.Conn) { e.accept(conn) }

// State returns what was learned, nil if that has not changed since the last call.
func (e *elected) State() []byte {
	e.mu.Lock()
	states := e.states
	e.states = nil
	e.mu.Unlock()
	if states == nil {
		return nil
	}
	b, err := json.Marshal(savedState{savedVersion, states})
	if err != nil {
		return nil
	}
	return b
}
