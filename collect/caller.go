package collect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
	"github.com/headway-go/headway/transport"
)

// maxCircuitWaits is how many openings of the circuit in a row, without a success in
// between, are waited for.
const maxCircuitWaits = 8

// caller is the run's connector.Caller: it sends every request of the run.
type caller struct {
	run    *execution
	client *http.Client
	last   atomic.Pointer[string] // the route of the newest request

	mu    sync.Mutex
	paged map[string]*connector.DetailsWalked // by detail stream
	any   bool                                // a request has succeeded in this run
	waits int                                 // openings of the circuit waited for since the last success
	until time.Time                           // when the newest opening ends
}

// DetailWalked records how one detail was paged.
func (c *caller) DetailWalked(stream string, w *connector.Walked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paged[stream] == nil {
		if c.paged == nil {
			c.paged = map[string]*connector.DetailsWalked{}
		}
		c.paged[stream] = &connector.DetailsWalked{}
	}
	c.paged[stream].Add(w)
}

// detailsOf returns how the details of a stream were paged so far.
func (c *caller) detailsOf(stream string) connector.DetailsWalked {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.paged[stream]; d != nil {
		return *d
	}
	return connector.DetailsWalked{}
}

// mayWait counts an opening of the circuit, once however many requests wait for its
// end, and reports whether they may wait. If until is zero a probe is in flight.
func (c *caller) mayWait(until time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until.After(c.until) { // requests may arrive out of order
		c.until = until
		c.waits++
	}
	return c.waits <= maxCircuitWaits
}

func (c *caller) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits, c.any = 0, true
}

// begin resets the count of waits when other work begins.
func (c *caller) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = 0
}

// accepted reports whether any request of this run has succeeded.
func (c *caller) accepted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.any
}

// route returns the route of the newest request.
func (c *caller) route() string {
	if last := c.last.Load(); last != nil {
		return *last
	}
	return ""
}

// newCaller returns the caller of a run.
func newCaller(r *execution, g *headway.Governor) (*caller, error) {
	o := r.o
	options := transport.Options{
		Base: o.Base, Timeout: o.Timeout, Whole: o.MaxBody,
		Backoff: o.Retry, Budget: o.RetryBudget,
		Deadline: r.budget.deadline, Waiting: r.waiting,
		Gate:    r.budget.take,
		Sending: r.live.sending,
		GaveUp:  r.live.gaveUp,
		Profile: o.Profile,
		Observe: r.observe,
		Pool:    r.poolOf,
	}
	if o.Classify != nil {
		options.Classify = func(status int, _ http.Header, body []byte) (reason.Class, bool) {
			c, _, ok := o.Classify(status, body)
			return c, ok
		}
	}
	keyed, _ := o.Connector.(connector.Keyed)
	r.standBack.named = o.Profile != nil || keyed != nil && len(keyed.Keys()) > 0
	t, err := r.newTransport(g, options)
	if err != nil {
		return nil, fmt.Errorf("collect: %w", err)
	}
	return &caller{run: r, client: &http.Client{Transport: t, CheckRedirect: sameHost}}, nil
}

// newTransport returns the governed transport. If the connector has several keys, each
// has its own governor; the first key has the run's.
func (r *execution) newTransport(g *headway.Governor, o transport.Options) (http.RoundTripper, error) {
	keyed, ok := r.o.Connector.(connector.Keyed)
	if !ok || len(keyed.Keys()) == 0 {
		return transport.New(g, o)
	}
	var keys []transport.Key
	for i, k := range keyed.Keys() {
		own := g
		if i > 0 {
			var err error
			if own, err = r.govern(k.Name); err != nil {
				return nil, err
			}
			r.others = append(r.others, otherKey{k.Name, own})
		}
		keys = append(keys, transport.Key{Name: k.Name, Governor: own, Sign: k.Sign})
	}
	all, err := transport.NewKeys(keys, o)
	if err != nil {
		return nil, err
	}
	all.SetAside = r.keySetAside
	return all, nil
}

// firstKey returns the name of the first key, or "" for a connector with one credential.
func firstKey(c connector.Connector) string {
	if keyed, ok := c.(connector.Keyed); ok && len(keyed.Keys()) > 0 {
		return keyed.Keys()[0].Name
	}
	return ""
}

// govern returns a new governor for a key.
func (r *execution) govern(key string) (*headway.Governor, error) {
	pacing := r.o.Pacing
	pacing.Name, pacing.OnEvent = r.o.Connection, r.emit
	if r.o.Fleet != nil {
		pacing.Fleet = r.o.Fleet(key)
	}
	return headway.New(pacing)
}

// closeGovernors closes the governors, which leave their fleets.
func (r *execution) closeGovernors() {
	if r.governor != nil {
		r.governor.Close()
	}
	for _, k := range r.others {
		k.governor.Close()
	}
}

// keySetAside warns that the provider refuses a key, which this run no longer uses.
func (r *execution) keySetAside(name string, status int) {
	why := reason.Unauthorized
	if status == http.StatusForbidden {
		why = reason.Forbidden
	}
	r.emit(event.Event{Type: event.Warning, Reason: why, Note: string(connector.KeySetAside), Stream: name, Count: int64(status)})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusedKeys = append(r.refusedKeys, connector.Warning{Kind: connector.KeySetAside, Stream: name, Records: int64(status)})
}

// Redirects that are not followed: to another host, since the credential must not be
// sent there, and more than ten in a row.
var (
	errRedirect     = errors.New("redirected to another host, which is not followed")
	errRedirectLoop = errors.New("stopped after ten redirects")
)

func sameHost(next *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errRedirectLoop
	}
	first := via[0].URL
	if next.URL.Scheme != first.Scheme || next.URL.Host != first.Host {
		return errRedirect
	}
	return nil
}

// Do sends one request. If the circuit is open it waits and sends again, within the
// run's time limit and for at most eight openings in a row without a success in
// between, counted over all requests of the current phase.
func (c *caller) Do(ctx context.Context, req *http.Request) (*connector.Response, error) {
	for sent := 0; ; {
		res, err := c.send(ctx, req)
		if err == nil {
			c.succeeded()
		}
		if f, ok := errors.AsType[*connector.Failure](err); ok {
			sent += f.Attempts
			f.Attempts = sent
		}
		until, open := circuitOpen(err)
		if !open || !c.mayWait(until) {
			return res, err
		}
		if why := c.run.waitOut(ctx, reason.CircuitOpen.Reason(), until); why != reason.None {
			return nil, stopped(err, why)
		}
	}
}

// stopped replaces the open circuit in err by what ended the wait for it, such as a cap
// or an interruption, which are not pressure.
func stopped(err error, why reason.Reason) error {
	if f, ok := errors.AsType[*connector.Failure](err); ok {
		f.Stopped, f.RetryAt = why, time.Time{}
		return f
	}
	return &reason.Refusal{Reason: why}
}

// circuitOpen reports whether err is the refusal of an open circuit, and until when it
// is open.
func circuitOpen(err error) (until time.Time, open bool) {
	if r, ok := errors.AsType[*reason.Refusal](err); ok && r.Reason == reason.CircuitOpen.Reason() {
		return r.RetryAt, true
	}
	if f, ok := errors.AsType[*connector.Failure](err); ok && f.Stopped == reason.CircuitOpen.Reason() {
		return f.RetryAt, true
	}
	return time.Time{}, false
}

func (c *caller) send(ctx context.Context, req *http.Request) (*connector.Response, error) {
	var trace transport.Trace
	if name := connector.AffinityOf(ctx); name != "" {
		ctx = transport.WithAffinity(ctx, name)
	}
	res, err := c.client.Do(req.WithContext(transport.WithTrace(ctx, &trace)))
	// net/http wraps its errors with the URL, which may hold a credential.
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if ctx.Err() != nil && err != nil {
		return nil, &reason.Refusal{Reason: reason.Canceled, Err: context.Cause(ctx)}
	}
	// The pattern, if the connector sets it, holds no key of a record.
	route := cmp.Or(req.Pattern, req.URL.Path)
	c.last.Store(&route)
	f := &connector.Failure{Method: req.Method, Path: route, Attempts: trace.Attempts}
	if trace.Stopped != nil {
		f.Stopped, f.RetryAt = c.run.capped(trace.Stopped.Reason), trace.Stopped.RetryAt
	}
	if err != nil {
		if r, ok := errors.AsType[*reason.Refusal](err); ok && trace.Attempts == 0 {
			return nil, &reason.Refusal{Reason: c.run.capped(r.Reason), Scope: r.Scope, RetryAt: r.RetryAt, Err: r.Err}
		}
		f.Class, f.Reason, f.Err = reason.Lost, unreached(err), redact(err)
		return nil, f
	}
	defer res.Body.Close()
	var read bytes.Buffer // the body is in memory already, see transport.Options.Whole
	read.Grow(int(max(0, res.ContentLength)) + bytes.MinRead)
	_, err = read.ReadFrom(res.Body)
	body := read.Bytes()
	if err != nil {
		f.Class, f.Reason, f.Err = reason.Lost, reason.Unreachable, redact(err)
		return nil, f
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 && trace.Signal.Class.Success() {
		return &connector.Response{Status: res.StatusCode, Header: res.Header, Body: body}, nil
	}
	c.refused(f, res, body, trace.Signal)
	return nil, f
}

// refused sets the class and the reason of a response that is not a success, by its
// status or by the connection's rules.
func (c *caller) refused(f *connector.Failure, res *http.Response, body []byte, s signal.Signal) {
	f.Status, f.Class = res.StatusCode, s.Class
	if s.HasRetryAfter && f.RetryAt.IsZero() {
		f.RetryAt = time.Now().Add(s.RetryAfter).Round(0)
	}
	why := reason.None
	if c.run.o.Classify != nil {
		if _, given, ok := c.run.o.Classify(res.StatusCode, body[:min(len(body), signal.MaxBody)]); ok {
			why = given
		}
	}
	pressure, pressed := f.Class.Pressure()
	switch {
	case plainToTLS(res, body):
		f.Reason, f.Err = reason.WrongScheme, errSpeaksTLS
	case why != reason.None:
		f.Reason = why
	case s.Exhausted:
		f.Reason = reason.QuotaExhausted
	case pressed:
		f.Reason = pressure.Reason()
	case res.StatusCode == http.StatusUnauthorized:
		f.Reason = reason.Unauthorized
	case res.StatusCode == http.StatusForbidden:
		f.Reason = reason.Forbidden
	case res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusGone:
		f.Reason = reason.NotFound
	case res.StatusCode >= 500:
		f.Reason = reason.ServerError
	case res.StatusCode >= 400:
		f.Reason = reason.ClientError
	default:
		f.Reason, f.Err = reason.InvalidResponse, errors.New("a redirect without a Location, or an informational status")
	}
}

// unreached returns why there was no response.
func unreached(err error) reason.Reason {
	timeout, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, errRedirect), errors.Is(err, errRedirectLoop), errors.Is(err, transport.ErrTooLarge):
		return reason.InvalidResponse
	case transport.IsWrongScheme(err):
		return reason.WrongScheme
	case transport.IsTLS(err):
		return reason.TLS
	case errors.Is(err, context.DeadlineExceeded), isNet && timeout.Timeout():
		return reason.Timeout
	}
	return reason.Unreachable
}

// The errors for a base URL with the wrong scheme.
var (
	errSpeaksTLS   = errors.New("the provider speaks https here and not http: base_url has the wrong scheme or port")
	errSpeaksPlain = errors.New("the provider speaks http here and not https: base_url has the wrong scheme or port")
)

// plainToTLS reports whether a response says that the port accepts TLS only.
func plainToTLS(res *http.Response, body []byte) bool {
	return res.Request != nil && res.Request.URL.Scheme == "http" && connector.SpeaksTLS(res.StatusCode, body)
}

// NewCaller returns a caller outside a run, for a few requests such as the probe of a
// check. It uses the pacing, base, limits and classification of the options, and stores
// nothing.
func NewCaller(o Options) (connector.Caller, error) {
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.MaxBody = cmp.Or(o.MaxBody, 64<<20)
	o.RetryBudget.MaxRequests = o.MaxRequests
	r := &execution{o: o, started: time.Now()}
	r.live.started = r.started
	r.budget.maxRequests = o.MaxRequests
	pacing := o.Pacing
	pacing.Name = o.Connection
	var err error
	if r.governor, err = headway.New(pacing); err != nil {
		return nil, err
	}
	return newCaller(r, r.governor)
}

// budget enforces the owner's caps. It is checked before each attempt; an attempt in
// flight is never canceled.
type budget struct {
	maxRequests int64        // 0 means no limit
	deadline    time.Time    // zero means no limit
	attempts    atomic.Int64 // counted if maxRequests is set
}

// take counts one attempt that is about to be sent. It returns an error if a cap forbids it.
func (b *budget) take() error {
	if b.maxRequests > 0 && b.attempts.Add(1) > b.maxRequests {
		b.attempts.Add(-1)
		return &reason.Refusal{Reason: reason.MaxRequests.Reason()}
	}
	return nil
}

// spent returns the cap that is reached at now; ok is false if none is.
func (b *budget) spent(now time.Time) (c reason.Cap, ok bool) {
	switch {
	case b.maxRequests > 0 && b.attempts.Load() >= b.maxRequests:
		return reason.MaxRequests, true
	case !b.deadline.IsZero() && !now.Before(b.deadline):
		return reason.MaxWallClock, true
	}
	return 0, false
}
