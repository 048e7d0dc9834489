package transport

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
)

// ErrResent says that net/http sent one attempt again and again, each time over
// a new connection.
var ErrResent = errors.New("transport: the provider ended one connection after the other without an answer")

// maxConnections is how many new connections one attempt may take. HTTP/2 lets
// a server say that it has not looked at a request (GOAWAY), and net/http then
// sends it again over a new connection at once: hundreds of times a second, under
// one permit, to a server that always says so.
const maxConnections = 3

// onFewConnections gives a context that ends with [ErrResent] as its cause when
// the request that is sent under it needs too many new connections.
func onFewConnections(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	var opened atomic.Int32
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if !c.Reused && opened.Add(1) > maxConnections {
			cancel(ErrResent)
		}
	}}
	return httptrace.WithClientTrace(ctx, trace), func() { cancel(context.Canceled) }
}
