// Package pipenet is a network of in-memory pipes for tests: servers and clients
// of net/http that meet in a testing/synctest bubble, where a socket's wait would
// not be one that time can pass in. It is for tests only, and safe for concurrent
// use.
package pipenet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Listener is a net.Listener that is dialled by its own [Listener.Dial]. Make one
// with [New].
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// New makes a listener.
func New() *Listener { return &Listener{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept waits for a dial; after Close the error is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and refuses dials. Connections that there are stay.
func (l *Listener) Close() error { l.once.Do(func() { close(l.done) }); return nil }

// Addr is a name and nothing else.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipenet"} }

// Dial connects, whatever the address; it fits http.Transport.DialContext.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, &net.OpError{Op: "dial", Err: errors.New("nobody listens")}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Serve serves a handler until the test ends, and gives a transport that reaches it
// and the listener.
func Serve(t testing.TB, h http.Handler) (*http.Transport, *Listener) {
	t.Helper()
	l := New()
	server := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	transport := &http.Transport{DialContext: l.Dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return transport, l
}
