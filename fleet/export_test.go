package fleet

import (
	"context"
	"net"

	"github.com/headway-go/headway/internal/relay"
)

// NewFleet returns a fleet whose server is reached by a function.
func NewFleet(dial func(context.Context) (net.Conn, error), wait bool) *Fleet {
	return &Fleet{dial: dial, wait: wait}
}

// Key returns the key by which the server identifies a member's credential.
func Key(f *Fleet, provider, credential, salt string) string {
	return f.Member(provider, credential).(*way).key(salt)
}

// Dial connects and reads the greeting.
func Dial(ctx context.Context, f *Fleet) (net.Conn, error) {
	conn, _, err := greet(ctx, f.dial)
	return conn, err
}

// Conn connects and does not read the greeting.
func Conn(ctx context.Context, f *Fleet) (net.Conn, error) { return f.dial(ctx) }

// OnSlowBroker returns a fleet whose broker cannot be opened until the channel is closed.
func OnSlowBroker(opened <-chan struct{}) *Fleet {
	return &Fleet{broker: &broker{open: func() (client, error) { <-opened; return nil, relay.ErrDown }}}
}

// OnBroker returns a fleet whose members connect over a broker.
func OnBroker(c interface {
	relay.Broker
	Close()
}, wait bool,
) *Fleet {
	return &Fleet{broker: &broker{open: func() (client, error) { return c, nil }}, wait: wait}
}

// Leads reports whether this process runs the server of a folder.
func Leads(f *Folder) bool { return f.own() != nil }
