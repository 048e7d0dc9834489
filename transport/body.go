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

// ErrTooLarge reports a response body larger than [Options.Whole].
var ErrTooLarge = errors.New("transport: the body is too large")

// maxTrusted bounds the memory allocated in advance for a Content-Length.
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

// swallow reads a whole body and replaces it with a copy in memory and its real length. It
// closes the original body, also on an error.
func swallow(res *http.Response, limit int64) error {
	if res.Request != nil && res.Request.Method == http.MethodHead {
		return nil // Content-Length is that of a body that is not sent
	}
	var read bytes.Buffer
	if n := min(res.ContentLength, limit, maxTrusted); n > 0 {
		read.Grow(int(n) + bytes.MinRead) // ReadFrom needs MinRead bytes free
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

// bound cancels the attempt's timeout at the end of the body. After a protocol switch there is
// no body, and the connection stays open.
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

// lost classifies an attempt without a response. final reports that a retry is pointless, as
// for a host that does not exist or a certificate that is not trusted.
func lost(ctx context.Context, err error) (c reason.Class, final bool) {
	if ctx.Err() != nil {
		return reason.Unknown, true // the caller canceled; not the provider's fault
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return reason.Lost, true
	}
	return reason.Lost, IsTLS(err) || IsWrongScheme(err) || errors.Is(err, ErrTooLarge)
}

// tlsAlert is how net/http quotes the alert that a TLS server sends for plain HTTP.
const tlsAlert = `malformed HTTP response "\x15\x03`

// IsWrongScheme reports whether a request failed because it used https with an http port, or
// http with an https port that answered with a TLS alert.
func IsWrongScheme(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || err != nil && strings.Contains(err.Error(), tlsAlert)
}

// IsTLS reports whether a request failed because no trusted TLS connection could be made.
func IsTLS(err error) bool { return wire.Untrusted(err) }

// ErrResent reports that net/http resent one attempt repeatedly, each time over a new
// connection.
var ErrResent = wire.ErrResent

// outbound returns the request to send: a copy with its own body and the attempt's timeout,
// or req itself where it needs neither. The function ends the attempt.
func (t *Transport) outbound(req *http.Request, n int) (*http.Request, context.CancelFunc, error) {
	if n == 1 && t.o.Timeout == 0 && t.plain && req.URL != nil && req.URL.Scheme == "http" {
		return req, func() {}, nil
	}
	ctx, cancel := onFewConnections(req.Context())
	if t.o.Timeout > 0 {
		bounded, end := context.WithTimeout(ctx, t.o.Timeout)
		within := cancel
		ctx, cancel = bounded, func() {
			end()
			within()
		}
	}
	out := req.WithContext(ctx) // a RoundTripper may not change the header, so that it can be shared
	if n > 1 && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			cancel()
			return nil, nil, fmt.Errorf("transport: rewinding the body for attempt %d: %w", n, err)
		}
		out.Body = body
	}
	return out, cancel, nil
}

// isPlain reports whether a request for an http URL can only go by HTTP/1, which sends it over
// one new connection at most.
func isPlain(base http.RoundTripper) bool {
	t, ok := base.(*http.Transport)
	return ok && t != nil && (t.Protocols == nil || !t.Protocols.UnencryptedHTTP2())
}

// onFewConnections returns a context that ends with the cause [ErrResent] when its request
// needs too many new connections.
func onFewConnections(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	return wire.FewConnections(ctx, cancel, nil), func() { cancel(context.Canceled) }
}
