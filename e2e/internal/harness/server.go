package harness

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// NewServer is a server of this process that its caller starts. When the test
// ends, the context of every request under way ends first, so that a handler
// that waits for it returns, even where the server cannot see that the client
// has gone: it does not look for that until the request's body is read.
func NewServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	// Not the test's own context: Close waits for handlers.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s := httptest.NewUnstartedServer(h)
	s.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // what it has to say of its clients
	t.Cleanup(func() {
		cancel()
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Serve starts a server of this process, which ends with the test as that of
// [NewServer] does.
func Serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := NewServer(t, h)
	s.Start()
	return s
}
