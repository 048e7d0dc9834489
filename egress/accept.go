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

// call is one client request under way, with the results of each stage.
type call struct {
	accepted
	caller
	parsed
	shares
	estimated
	answered bool // a header has gone to the client
	log      CallLog
}

// accepted is the result of the stage accept.
type accepted struct {
	proxy  *Proxy
	table  *table
	up     *upstream // nil until route has found it
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	ctx    context.Context // ends when the client goes away or the call is cut
	cancel context.CancelCauseFunc
	began  time.Time
	rest   string // of the path, escaped
	clock  bodyClock
}

// bodyClock bounds the time in which the client must send the body. It sets a deadline on
// the connection only when that time is over, or when net/http reads the rest of the body:
// most bodies arrive at once, and need no deadline.
type bodyClock struct {
	alarm alarm // set while the call is under way
	late  bool  // the body took too long, or the proxy is stopped; guarded by the rounds
	ended bool  // the body has arrived, or its time is no longer bounded
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
	// Ends the call after its permits were settled, also on a panic.
	defer c.finish()
	c.serve()
	if c.answered && c.log.Ending != Complete {
		if c.log.Ending != ClientGone {
			_ = c.rc.SetWriteDeadline(time.Now().Add(time.Second)) // the connection ends anyway
			_ = c.rc.Flush()                                       // what was written so far
		}
		panic(http.ErrAbortHandler) // so that the client does not take a part for the whole answer
	}
	if !c.answered && c.log.Status == statusClientGone {
		// The client may still be connected, and would get status 200 if the handler
		// just returned.
		panic(http.ErrAbortHandler)
	}
}

// serve runs the call through its stages.
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

// enter counts a call as in flight. It returns false when the proxy is draining. The call is
// nil for work that no client waits for.
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

// bodyDue returns the deadline for the body of the call; zero without a body.
func (c *call) bodyDue() time.Time {
	switch {
	case c.r.ContentLength == 0:
		return time.Time{}
	case c.up != nil:
		return c.began.Add(c.up.BodyTimeout)
	}
	return c.began.Add(DefaultBodyTimeout)
}

// lateBody ends the reading of a body that took too long. Where the writer does not support
// deadlines, only the server's own bound applies.
func (c *call) lateBody(now time.Time) (again time.Time) {
	c.clock.late = true
	_ = c.rc.SetReadDeadline(now)
	return again
}

// cutOff ends the call when the proxy stops.
func (c *call) cutOff() {
	c.cancel(errCut)
	if !c.clock.alarm.due.IsZero() {
		c.lateBody(time.Now())
	}
}

// hasBody ends the time bound on the body, because it has arrived or the attempt's watch
// takes over.
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

// leaveBody lets net/http read the rest of the body of a refused call, within the time that
// a body may take.
func (c *call) leaveBody() {
	if due := c.bodyDue(); !due.IsZero() && !c.clock.ended {
		_ = c.rc.SetReadDeadline(due)
	}
}

// route checks the request and finds its provider.
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
		// The answer to TRACE would repeat the provider's key. A method unknown here
		// may be known upstream, and reach another route.
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

// cut splits an escaped path into the provider's name and the rest, which is empty or begins
// with a slash.
func cut(escaped string) (name, rest string) {
	path := strings.TrimPrefix(escaped, "/")
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}

// proxied reports whether a request is meant for a forward proxy, which this is not.
func proxied(r *http.Request) bool {
	return r.Method == http.MethodConnect || r.URL.Scheme != "" || r.URL.Host != "" || r.URL.Opaque != "" ||
		!strings.HasPrefix(r.URL.Path, "/")
}

// escapes reports whether a decoded path has a segment that a server may read as "." or
// "..", which could lead out of a path prefix. Some servers read a backslash as a slash.
func escapes(path string) bool {
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";") // some servers strip parameters
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// upgrades reports whether a request asks for a WebSocket. Other upgrades, such as HTTP/2
// (h2c), are ignored, as a server may do: the client then continues with HTTP/1.1. Source:
// RFC 9110, section 7.8.
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

// method returns the request's method if it is a standard one.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return m
	}
	return "other"
}

// traceParent returns the client's traceparent if it is valid in version 00, and "" otherwise,
// so that no arbitrary text of a client is passed on.
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
