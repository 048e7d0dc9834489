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

// exchange is one request of a client under way.
type exchange struct {
	proxy  *Proxy
	table  *table
	up     *upstream // nil until it is known
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	ctx    context.Context // ends with the client, and with cutting
	cancel context.CancelCauseFunc

	began  time.Time
	until  time.Time // waits end here: by the client's word, and by max_wait once one begins
	rest   string    // of the path, escaped
	upload upload    // of a body that is streamed
	key    keys.Key
	// presented is the Headway key that the client showed; it never goes upstream.
	presented string
	asked     provider.Call
	body      []byte // of a call that was read first
	plain     []byte // the body, or what it holds when it is compressed
	original  []byte // the body before usage was asked for in it
	usage     injected
	whole     bool  // the body was read first, and can be sent again
	raw       int64 // input as the tokenizer has it, before what was learned

	answered bool // a header has gone to the client
	told     Call
}

// ServeHTTP serves one call.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{proxy: p, table: p.table.Load(), w: w, r: r, rc: http.NewResponseController(w), began: time.Now()}
	x.told = Call{Began: x.began.Round(0), Method: method(r.Method), TraceParent: traceParent(r.Header), Ending: Panicked}
	if newSpan := x.table.newSpan; newSpan != nil {
		x.told.Span = newSpan(x.told.TraceParent)
	}
	x.ctx, x.cancel = context.WithCancelCause(r.Context())
	name, rest := cut(r.URL.EscapedPath())
	if x.up = x.table.upstreams[name]; x.up != nil {
		x.rest, x.told.Provider, x.told.Law = rest, name, x.up.law
		x.up.counters.inFlight.Add(1)
	}
	if r.ContentLength != 0 {
		// Also for a call that is refused, whose body net/http reads to its end. Not
		// every writer has deadlines; the server's own bound then has to do.
		bound := DefaultBodyTimeout
		if x.up != nil {
			bound = x.up.BodyTimeout
		}
		_ = x.rc.SetReadDeadline(x.began.Add(bound))
	}
	// Ends the call also when something panics, after its permits were settled.
	defer x.finish()
	x.serve()
	if x.answered && x.told.Ending != Complete {
		if x.told.Ending != ClientGone {
			_ = x.rc.SetWriteDeadline(time.Now().Add(time.Second)) // the connection ends anyway
			_ = x.rc.Flush()                                       // what there was
		}
		panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
	}
	if !x.answered && x.told.Status == statusClientGone {
		// Who is thought to have gone may still be there: a handler that just returned
		// would answer 200.
		panic(http.ErrAbortHandler)
	}
}

// serve takes the call through all its steps.
func (x *exchange) serve() {
	if !x.proxy.enter() {
		x.refuse(drained())
		return
	}
	defer x.proxy.leave()
	defer context.AfterFunc(x.proxy.cutting, func() { x.cancel(errCut) })()
	if fault := x.route(); fault != nil {
		x.refuse(*fault)
		return
	}
	if fault := x.admit(); fault != nil {
		x.refuse(*fault)
		return
	}
	if fault := x.read(); fault != nil {
		x.refuse(*fault)
		return
	}
	x.forward()
}

// enter counts a call in; false when the proxy is draining.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.inFlight++
	return true
}

func (p *Proxy) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight--
	if p.closed && p.inFlight == 0 {
		close(p.idle)
	}
}

// route checks that the request is one for a provider that exists.
func (x *exchange) route() *provider.Refusal {
	r := x.r
	switch {
	case proxied(r):
		return &provider.Refusal{
			Status: http.StatusBadRequest, Reason: reason.ClientError,
			Message: "This is not an open proxy: send the path /{provider}/..., with this address as the base URL.",
		}
	case x.up == nil:
		return &provider.Refusal{
			Status: http.StatusNotFound, Reason: reason.NotFound,
			Message: "No provider of that name: the path must begin with the name of a configured provider.",
		}
	case r.Method == http.MethodTrace, x.up.Description.API != provider.HTTP && method(r.Method) == "other":
		// An answer to TRACE repeats the provider's key; and a method that is not
		// known here may be one there, past its route.
		return &provider.Refusal{Status: http.StatusMethodNotAllowed, Reason: reason.ClientError, RetryIn: -1, Message: "Method not allowed."}
	case escapes(r.URL.Path):
		return &provider.Refusal{Status: http.StatusBadRequest, Reason: reason.ClientError, Message: "The path has a dot segment, which must not be there."}
	case upgrades(r.Header):
		return &provider.Refusal{
			Status: http.StatusNotImplemented, Reason: reason.ClientError, RetryIn: -1,
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
