// Package wire has helpers for all senders of HTTP requests here: a bound on new
// connections per request, a look at the start of a body that can still be read, and the
// meaning of net/http's errors for the connection.
package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// MaxConnections is how many new connections one request may take. HTTP/2 lets a
// server say that it has not looked at a request (GOAWAY), and net/http then sends
// it again over a new connection at once: hundreds of times a second, under one
// permit, to a server that always says so.
const MaxConnections = 3

// ErrResent says that net/http sent one request repeatedly, each time over a new
// connection.
var ErrResent = errors.New("transport: the provider ended one connection after the other without an answer")

// FewConnections returns a context for one request. If the request needs more than
// [MaxConnections], cancel is called with [ErrResent]. connected, unless nil, is called
// for each connection that the request uses, new or not.
func FewConnections(ctx context.Context, cancel context.CancelCauseFunc, connected func()) context.Context {
	f := &few{cancel: cancel, connected: connected}
	f.GotConn = f.gotConn
	return httptrace.WithClientTrace(ctx, &f.ClientTrace)
}

// few counts the connections of one request.
type few struct {
	httptrace.ClientTrace
	opened    atomic.Int32
	cancel    context.CancelCauseFunc
	connected func()
}

func (f *few) gotConn(c httptrace.GotConnInfo) {
	if f.connected != nil {
		f.connected()
	}
	if !c.Reused && f.opened.Add(1) > MaxConnections {
		f.cancel(ErrResent)
	}
}

// Peek reads the start of a body, at most limit bytes, and puts it back in front of the
// rest; an error is returned again after it. whole says that the body ended within the
// limit: it is then closed, so that its connection is free while a retry waits, and what
// was read can still be read.
func Peek(res *http.Response, limit int64) (head []byte, whole bool) {
	if res.Body == nil || res.Body == http.NoBody {
		return nil, true
	}
	head, err := io.ReadAll(io.LimitReader(res.Body, limit))
	if err == nil && int64(len(head)) < limit {
		_ = res.Body.Close()
		res.Body = io.NopCloser(bytes.NewReader(head))
		return head, true
	}
	rest := io.Reader(res.Body)
	if err != nil {
		rest = failing{err}
	}
	res.Body = joined{io.MultiReader(bytes.NewReader(head), rest), res.Body}
	return head, false
}

// joined reads from one and closes the other.
type joined struct {
	io.Reader
	io.Closer
}

// failing returns an error again.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Unsent reports whether an error means that no connection was made, so that the server
// has seen nothing of the request.
func Unsent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok || Untrusted(err)
}

// Untrusted reports whether a connection failed because no secure one could be made.
func Untrusted(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.AlertError](err)
	return ok
}
