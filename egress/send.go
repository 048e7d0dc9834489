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

// outgoing is the request of an attempt on its way.
type outgoing struct {
	watch   *watch
	body    io.Closer   // of the request; upstream may answer before it is through
	unwatch func() bool // nil where nothing can get stuck on the client's side
	to      *url.URL    // where it was sent
	span    string      // its traceparent, where spans are made
	tried   bool        // it was given to the transport
	sentAt  time.Time
	sent    atomic.Bool // a connection was there to send it over
}

// send gives the request to the transport and waits for the answer's header.
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

// freeClient has a read from the client, or a write to it, end with the attempt's context.
func (a *attempt) freeClient() {
	if a.unwatch == nil {
		a.unwatch = context.AfterFunc(a.ctx, a.watch.cut)
	}
}

// trace gives the attempt a span of its own below the call's, if that has one.
func (a *attempt) trace() {
	if c := a.call; c.log.Span != "" {
		a.span = c.table.newSpan(c.log.Span)
	}
}

// outbound is the request as it goes upstream, with the provider's key, if that is ours, and
// with the attempt's span as parent if it has one.
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
		delete(out.Header, "Content-Encoding") // it was made of what the body holds
	}
	if span != "" {
		out.Header["Traceparent"] = []string{span}
	}
	if u.owned() {
		u.Description.SetKey(out, key)
	}
	if _, ok := in.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // else net/http says its own
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
		// With GetBody net/http may send it again by itself over a new connection,
		// when the old one ended before anything of it was looked at.
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
		c.log.Sent += int64(len(c.body))
	}
	return out, nil
}

var identity = []string{"identity"}

// target is the upstream's URL for the rest of an escaped path. The error is
// that of a percent sign which stands for nothing.
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

// fail says what an attempt without an answer stands for, and what the client is
// answered. The error itself may quote what upstream sent, and goes nowhere.
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
			a.class = reason.Failed // else it had not been asked yet
		}
		return TimedOut, provider.Refusal{
			Status: http.StatusGatewayTimeout, Reason: reason.Timeout, Retry: true, RetryIn: time.Second, Message: "The provider did not answer in time.",
		}
	case errors.Is(err, os.ErrDeadlineExceeded): // only the client's side has a deadline
		return Refused, incomplete(http.StatusRequestTimeout)
	case c.r.Context().Err() != nil: // net/http ends it after a deadline too
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

// holdsKey reports whether a text holds what the call presented as its Headway
// key, or anything that has the form of one.
func (c *call) holdsKey(text string) bool {
	if c.presented != "" && strings.Contains(text, c.presented) {
		return true
	}
	return keys.Found(text)
}

// withhold takes out of a request that goes upstream whatever holds a Headway
// key, wherever the client put it. The provider's own key is put in after.
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

// inQuery reports whether a query, or a pair of one, holds a Headway key.
func (c *call) inQuery(query string) bool {
	if c.holdsKey(query) {
		return true
	}
	decoded, _ := url.QueryUnescape(query) // empty when it cannot be read
	return c.holdsKey(decoded)
}

// upload is what is known of a request body that is passed on as it comes.
// net/http may still read it when the answer is there.
type upload struct {
	moved   func() // each read that brought something; set before the body is sent
	n       atomic.Int64
	reading atomic.Bool // the client is waited for
	ended   atomic.Bool // all of it has come
	failed  atomic.Bool // it did not come whole, or not well-formed, from the client
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
