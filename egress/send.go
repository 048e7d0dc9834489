package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/internal/wire"
	"github.com/headway-go/headway/reason"
)

// outgoing is the upstream request of an attempt.
type outgoing struct {
	watch   *watch
	body    io.Closer   // of the request; the upstream may answer before its end
	unwatch func() bool // nil where no read or write of the client can block
	to      *url.URL    // where it was sent
	span    string      // its traceparent, where spans are made
	tried   bool        // it was passed to the transport
	sentAt  time.Time
	sent    atomic.Bool // a connection was found
}

// send sends the request and waits for the response header.
func (a *attempt) send() (*http.Response, error) {
	c, u := a.call, a.call.up
	ctx := wire.FewConnections(a.ctx, a.cancel, func() { a.sent.Store(true) })
	a.trace()
	out, err := c.outbound(ctx, a.by.Key, a.span)
	if err != nil {
		return nil, err
	}
	a.body, a.to = out.Body, out.URL
	a.watch = newWatch(&c.proxy.rounds, a.cancel, c.rc, u.ResponseHeaderTimeout, u.CallTimeout)
	if !c.whole {
		c.upload.moved = a.watch.move
		a.watch.uploads(c.upload.reading.Load)
		a.freeClient()
	}
	a.sent.Store(!u.traced)
	a.tried, a.sentAt = true, a.watch.began
	c.log.Attempts++
	u.counters.attempts.Add(1)
	res, err := u.send.RoundTrip(out)
	a.answerAt = time.Now()
	c.log.Header = a.answerAt.Sub(a.sentAt)
	if err != nil {
		if wire.Unsent(err) {
			a.sent.Store(false)
		}
		return nil, err
	}
	a.sent.Store(true)
	a.watch.allow(u.IdleTimeout)
	a.status, a.header = res.StatusCode, res.Header
	return res, nil
}

// freeClient makes reads from the client and writes to it end with the attempt's context.
func (a *attempt) freeClient() {
	if a.unwatch == nil {
		a.unwatch = context.AfterFunc(a.ctx, a.watch.cut)
	}
}

// trace makes a span for the attempt below that of the call, if that has one.
func (a *attempt) trace() {
	if c := a.call; c.log.Span != "" {
		a.span = c.table.newSpan(c.log.Span)
	}
}

// outbound returns the request to send upstream, with the configured provider key, if any,
// and the attempt's span as parent, if any.
func (c *call) outbound(ctx context.Context, key, span string) (*http.Request, error) {
	u, in := c.up, c.r
	to, err := target(u.Description.Upstream, c.rest, in.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	out := in.WithContext(ctx)
	out.URL, out.Host, out.RequestURI = to, to.Host, ""
	out.Header = make(http.Header, len(in.Header)+2)
	out.TransferEncoding, out.Trailer, out.Close = nil, nil, false
	u.Description.Forward(out.Header, in.Header)
	if !u.owned() {
		u.Description.PassKey(out.Header, in.Header)
	}
	c.withhold(out)
	if c.injected() {
		delete(out.Header, "Content-Encoding") // the new body is not compressed
	}
	if span != "" {
		out.Header["Traceparent"] = []string{span}
	}
	if u.owned() {
		u.Description.SetKey(out, key)
	}
	if _, ok := in.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // otherwise net/http adds its own
	}
	if c.asked.Metered && c.asked.Shape != usage.None || len(u.Description.Addresses) > 0 {
		out.Header["Accept-Encoding"] = identity
	} else if v, ok := in.Header["Accept-Encoding"]; ok {
		out.Header["Accept-Encoding"] = v
	}
	switch {
	case !c.whole:
		out.Body = uploaded{http.MaxBytesReader(nil, in.Body, u.MaxUpload), ctx, &c.upload}
		out.GetBody = nil
	case len(c.body) == 0:
		out.Body, out.ContentLength, out.GetBody = http.NoBody, 0, nil
	default:
		// With GetBody, net/http can resend the request over a new connection when an
		// old one was closed before the server read any of it.
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
		c.log.Sent += int64(len(c.body))
	}
	return out, nil
}

var identity = []string{"identity"}

// target returns the upstream URL for the rest of an escaped path. An invalid escape is an
// error.
func target(base *url.URL, rest, query string) (*url.URL, error) {
	path, err := url.PathUnescape(rest)
	if err != nil {
		return nil, err
	}
	raw := strings.TrimSuffix(base.EscapedPath(), "/") + rest
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, Path: strings.TrimSuffix(base.Path, "/") + path, RawQuery: query}
	if u.Path != raw {
		u.RawPath = raw
	}
	return u, nil
}

// fail classifies an attempt without an answer, and returns the refusal for the client. The
// error is not passed on or logged, since it may quote what the upstream sent.
func (a *attempt) fail(err error) (Ending, provider.Refusal) {
	c := a.call
	cause := context.Cause(a.ctx)
	switch {
	case errors.Is(cause, errCut):
		return Cut, drained()
	case errors.Is(cause, errStalled):
		return Refused, incomplete(http.StatusRequestTimeout)
	case errors.Is(cause, errSilent), errors.Is(cause, errLong):
		if c.whole || c.upload.ended.Load() {
			a.class = reason.Failed // otherwise nothing was sent yet
		}
		return TimedOut, provider.Refusal{
			Status: http.StatusGatewayTimeout, Reason: reason.Timeout, Retry: true, RetryIn: time.Second, Message: "The provider did not answer in time.",
		}
	case errors.Is(err, os.ErrDeadlineExceeded): // only reads from the client have a deadline
		return Refused, incomplete(http.StatusRequestTimeout)
	case c.r.Context().Err() != nil: // net/http cancels it after a deadline too
		return ClientGone, provider.Refusal{Status: statusClientGone, Reason: reason.Canceled}
	}
	if long, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return Refused, *oversized(long.Limit)
	}
	if c.upload.failed.Load() {
		return Refused, incomplete(http.StatusBadRequest)
	}
	a.class = reason.Lost
	f := provider.Refusal{Status: http.StatusBadGateway, Reason: reason.Unreachable, Retry: true, RetryIn: time.Second, Message: "The provider could not be reached."}
	switch {
	case wire.Untrusted(err):
		f.Reason, f.Retry, f.Message = reason.TLS, false, "No secure connection to the provider could be made."
	case a.sent.Load():
		f.Message = "The connection to the provider ended without an answer."
	}
	return Unreachable, f
}

// holdsKey reports whether a text contains the Headway key of the call, or anything in the
// form of a Headway key.
func (c *call) holdsKey(text string) bool {
	if c.presented != "" && strings.Contains(text, c.presented) {
		return true
	}
	return keys.Found(text)
}

// withhold removes Headway keys from all parts of a request that goes upstream. The provider
// key is added after that.
func (c *call) withhold(out *http.Request) {
	for name, values := range out.Header {
		if slices.ContainsFunc(values, c.holdsKey) {
			delete(out.Header, name)
		}
	}
	if out.URL.RawQuery == "" || !c.inQuery(out.URL.RawQuery) {
		return
	}
	var kept []string
	for pair := range strings.SplitSeq(out.URL.RawQuery, "&") {
		if !c.inQuery(pair) {
			kept = append(kept, pair)
		}
	}
	out.URL.RawQuery = strings.Join(kept, "&")
}

// inQuery reports whether a query, or one of its pairs, contains a Headway key.
func (c *call) inQuery(query string) bool {
	if c.holdsKey(query) {
		return true
	}
	decoded, _ := url.QueryUnescape(query) // empty when it is invalid
	return c.holdsKey(decoded)
}

// upload is the state of a request body that is streamed. net/http may still read the body
// after the response header has arrived.
type upload struct {
	moved   func() // called for each read that returned data; set before the body is sent
	n       atomic.Int64
	reading atomic.Bool // a read waits for the client
	ended   atomic.Bool // all of it was read
	failed  atomic.Bool // the client sent it incompletely or malformed
}

// uploaded is the body itself.
type uploaded struct {
	io.ReadCloser
	ctx context.Context // of the attempt
	*upload
}

func (u uploaded) Read(p []byte) (int, error) {
	u.reading.Store(true)
	n, err := u.ReadCloser.Read(p)
	u.reading.Store(false)
	u.n.Add(int64(n))
	if n > 0 {
		u.moved()
	}
	switch {
	case errors.Is(err, io.EOF):
		u.ended.Store(true)
	case err != nil && u.ctx.Err() == nil:
		u.failed.Store(true)
	}
	return n, err
}
