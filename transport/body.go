package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/headway-go/headway/internal/wire"
	"github.com/headway-go/headway/reason"
)

// ErrTooLarge says that a body went on past [Options.Whole].
var ErrTooLarge = errors.New("transport: the body is too large")

// maxTrusted is how much room a body gets because its header says that it is
// that long.
const maxTrusted = 1 << 20

// Idempotent reports whether a request may be sent twice by the rules of HTTP:
// its method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE, or it carries an
// Idempotency-Key. Source: RFC 9110, section 9.2.2.
func Idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}

// swallow reads a whole body and puts it back, with its length, which for a
// compressed one the header does not say. On an error the body is closed.
func swallow(res *http.Response, limit int64) error {
	if res.Request != nil && res.Request.Method == http.MethodHead {
		return nil // its length is that of what was not sent
	}
	var read bytes.Buffer
	if n := min(res.ContentLength, limit, maxTrusted); n > 0 {
		read.Grow(int(n) + bytes.MinRead) // with what ReadFrom wants to be free at the end
	}
	_, err := read.ReadFrom(io.LimitReader(res.Body, limit+1))
	body := read.Bytes()
	if closed := res.Body.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("transport: reading the body of a %d after %d bytes: %w", res.StatusCode, len(body), err)
	}
	if int64(len(body)) > limit {
		return fmt.Errorf("%w: a %d with more than %d bytes", ErrTooLarge, res.StatusCode, limit)
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// bound ends the attempt's timeout when the body is done with. A switched
// protocol has no body to wait for and keeps its connection.
func bound(res *http.Response, cancel context.CancelFunc) {
	if res.StatusCode == http.StatusSwitchingProtocols || res.Body == nil {
		return
	}
	res.Body = &bounded{ReadCloser: res.Body, cancel: cancel}
}

type bounded struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.cancel()
	}
	return n, err
}

func (b *bounded) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}

// lost is what an attempt without a response stands for, and whether a retry
// is pointless: a name that does not exist, a certificate that is not trusted.
func lost(ctx context.Context, err error) (c reason.Class, final bool) {
	if ctx.Err() != nil {
		return reason.Unknown, true // the caller went away; the provider is not to blame
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return reason.Lost, true
	}
	return reason.Lost, IsTLS(err) || IsWrongScheme(err) || errors.Is(err, ErrTooLarge)
}

// tlsAlert is how net/http quotes the alert of a TLS server that met plain HTTP.
const tlsAlert = `malformed HTTP response "\x15\x03`

// IsWrongScheme reports whether https was spoken to a port that speaks http, or
// http to one that speaks https and ended the connection with an alert.
func IsWrongScheme(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || err != nil && strings.Contains(err.Error(), tlsAlert)
}

// IsTLS reports whether a connection failed because no secure one could be made.
func IsTLS(err error) bool { return wire.Untrusted(err) }

// ErrResent says that net/http sent one attempt again and again, each time over
// a new connection.
var ErrResent = wire.ErrResent

// onFewConnections gives a context that ends with [ErrResent] as its cause when
// the request that is sent under it needs too many new connections.
func onFewConnections(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return wire.FewConnections(ctx, cancel, nil), func() { cancel(context.Canceled) }
}
