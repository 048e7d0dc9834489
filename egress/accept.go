package egress

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/reason"
)

// call is one request of a client under way: what each stage found out about it.
type call struct {
	accepted
	caller
	parsed
	shares
	estimated
	answered bool // a header has gone to the client
	log      CallLog
}

// accepted is what is known of a call once it has come in.
type accepted struct {
	proxy  *Proxy
	table  *table
	up     *upstream // nil until it is known
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	ctx    context.Context // ends with the client, and with cutting
	cancel context.CancelCauseFunc
	began  time.Time
	rest   string // of the path, escaped
	clock  bodyClock
}

// bodyClock bounds the time that a call's body may take to come. The connection itself is
// given a deadline only where that is over, or where net/http is left to read the body:
// most bodies are there at once.
type bodyClock struct {
	alarm alarm // of the call; set for as long as it is under way
	late  bool  // the body took too long, or the proxy is stopped; guarded by the rounds
	ended bool  // nothing bounds the body any more
}

// ServeHTTP serves one call.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{accepted: accepted{proxy: p, table: p.table.Load(), w: w, r: r, rc: http.NewResponseController(w), began: time.Now()}}
	c.log = CallLog{Began: c.began.Round(0), Method: method(r.Method), TraceParent: traceParent(r.Header), Ending: Panicked}
	if newSpan := c.table.newSpan; newSpan != nil {
		c.log.Span = newSpan(c.log.TraceParent)
	}
	c.ctx, c.cancel = context.WithCancelCause(r.Context())
	name, rest := cut(r.URL.EscapedPath())
	if c.up = c.table.upstreams[name]; c.up != nil {
		c.rest, c.log.Provider, c.log.Law = rest, name, c.up.law
		c.up.counters.inFlight.Add(1)
	}
	// Ends the call also when something panics, after its permits were settled.
	defer c.finish()
	c.serve()
	if c.answered && c.log.Ending != Complete {
		if c.log.Ending != ClientGone {
			_ = c.rc.SetWriteDeadline(time.Now().Add(time.Second)) // the connection ends anyway
			_ = c.rc.Flush()                                       // what there was
		}
		panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
	}
	if !c.answered && c.log.Status == statusClientGone {
		// Who is thought to have gone may still be there: a handler that just returned
		// would answer 200.
		panic(http.ErrAbortHandler)
	}
}

// serve takes the call through its stages.
func (c *call) serve() {
	if !c.proxy.enter(c) {
		c.leaveBody()
		c.refuse(drained())
		return
	}
	defer c.proxy.leave(c)
	for _, stage := range [...]func() *provider.Refusal{c.route, c.authenticate, c.parse} {
		if fault := stage(); fault != nil {
			c.leaveBody()
			c.refuse(*fault)
			return
		}
	}
	c.match()
	c.estimate()
	c.forward()
}

// enter counts a call in; false when the proxy is draining. The call is nil for what is
// under way by itself.
func (p *Proxy) enter(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.inFlight++
	if c != nil {
		c.clock.alarm.look, c.clock.alarm.cut = c.lateBody, c.cutOff
		p.rounds.set(&c.clock.alarm, c.bodyDue())
	}
	return true
}

func (p *Proxy) leave(c *call) {
	if c != nil {
		p.rounds.drop(&c.clock.alarm)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	if p.closed && p.inFlight == 0 {
		close(p.idle)
	}
}

// bodyDue is until when the call's body has to be there; zero without one.
func (c *call) bodyDue() time.Time {
	switch {
	case c.r.ContentLength == 0:
		return time.Time{}
	case c.up != nil:
		return c.began.Add(c.up.BodyTimeout)
	}
	return c.began.Add(DefaultBodyTimeout)
}

// lateBody ends the reading of a body that took too long. Not every writer has deadlines;
// the server's own bound then has to do.
func (c *call) lateBody(now time.Time) (again time.Time) {
	c.clock.late = true
	_ = c.rc.SetReadDeadline(now)
	return again
}

// cutOff ends the call, because the proxy is stopped.
func (c *call) cutOff() {
	c.cancel(errCut)
	if !c.clock.alarm.due.IsZero() {
		c.lateBody(time.Now())
	}
}

// hasBody ends the bound on the time of the body: it is there, or under the watch of the
// attempt.
func (c *call) hasBody() {
	c.clock.ended = true
	if c.r.ContentLength == 0 {
		return
	}
	c.proxy.rounds.set(&c.clock.alarm, time.Time{})
	if c.clock.late {
		_ = c.rc.SetReadDeadline(time.Time{})
	}
}

// leaveBody leaves what is left of the body of a refused call to net/http, which reads it
// to its end, for as long as a body may take.
func (c *call) leaveBody() {
	if due := c.bodyDue(); !due.IsZero() && !c.clock.ended {
		_ = c.rc.SetReadDeadline(due)
	}
}

// route checks that the request is one for a provider that exists.
func (c *call) route() *provider.Refusal {
	r := c.r
	switch {
	case proxied(r):
		return &provider.Refusal{
			Status: http.StatusBadRequest, Reason: reason.ClientError,
			Message: "This is not an open proxy: send the path /{provider}/..., with this address as the base URL.",
		}
	case c.up == nil:
		return &provider.Refusal{
			Status: http.StatusNotFound, Reason: reason.NotFound,
			Message: "No provider of that name: the path must begin with the name of a configured provider.",
		}
	case r.Method == http.MethodTrace, c.up.Description.API != provider.HTTP && method(r.Method) == "other":
		// An answer to TRACE repeats the provider's key; and a method that is not
		// known here may be one there, past its route.
		return &provider.Refusal{Status: http.StatusMethodNotAllowed, Reason: reason.ClientError, RetryIn: noRetry, Message: "Method not allowed."}
	case escapes(r.URL.Path):
		return &provider.Refusal{Status: http.StatusBadRequest, Reason: reason.ClientError, Message: "The path has a dot segment, which must not be there."}
	case upgrades(r.Header):
		return &provider.Refusal{
			Status: http.StatusNotImplemented, Reason: reason.ClientError, RetryIn: noRetry,
			Message: "The proxy passes no WebSocket on: call the provider directly for that.",
		}
	case keys.Found(r.URL.Path):
		return invalid("The path holds a Headway key, which belongs in a header.")
	}
	return nil
}

// cut takes the provider's name off an escaped path. The rest begins with a
// slash, or is empty when there is nothing but the name.
func cut(escaped string) (name, rest string) {
	path := strings.TrimPrefix(escaped, "/")
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}

// proxied reports whether a request is one to a proxy, which this is not.
func proxied(r *http.Request) bool {
	return r.Method == http.MethodConnect || r.URL.Scheme != "" || r.URL.Host != "" || r.URL.Opaque != "" ||
		!strings.HasPrefix(r.URL.Path, "/")
}

// escapes reports whether a decoded path has a segment that a server may take
// for "here" or "above": below a path prefix that would lead out of it. Some
// servers read a backslash as a slash.
func escapes(path string) bool {
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";") // parameters, which some servers take off
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// upgrades reports whether a request wants what only another protocol can give, a
// WebSocket. Other offers, such as that of HTTP/2 (h2c), are passed over, as a
// server may: the client then goes on as it began. Source: RFC 9110, section 7.8.
func upgrades(h http.Header) bool {
	for _, line := range h["Upgrade"] {
		for offer := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(offer), "/")
			if strings.EqualFold(name, "websocket") {
				return true
			}
		}
	}
	return false
}

// method is the request's method if it is one that exists.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return m
	}
	return "other"
}

// traceParent is the client's trace, if it has the form of version 00: nothing
// that a client makes up gets any further.
func traceParent(h http.Header) string {
	v := h.Get("Traceparent")
	if len(v) != 55 || v[:3] != "00-" || v[35] != '-' || v[52] != '-' {
		return ""
	}
	for i := 3; i < len(v); i++ {
		if c := v[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') && i != 35 && i != 52 {
			return ""
		}
	}
	return v
}
