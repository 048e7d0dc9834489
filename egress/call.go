package egress

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// Ending says how a call's answer came to its end.
type Ending string

// The closed set of endings.
const (
	// Complete: what upstream answered was passed on whole, be it an error.
	Complete Ending = "complete"
	// Refused: the proxy answered, and nothing was sent upstream.
	Refused Ending = "refused"
	// Unreachable: upstream could not be reached, or answered nothing that is HTTP.
	Unreachable Ending = "unreachable"
	// TimedOut: upstream was silent for too long, or took too long as a whole.
	TimedOut Ending = "timed_out"
	// BrokenOff: the upstream's answer broke off.
	BrokenOff Ending = "broken_off"
	// ClientGone: the client went away first.
	ClientGone Ending = "client_gone"
	// Cut: the proxy was stopped.
	Cut Ending = "cut"
	// Panicked: a fault of our own.
	Panicked Ending = "panicked"
)

// statusClientGone stands for the status of a call that nobody could be answered.
const statusClientGone = 499

// Call is one call of a client when it is over: what metrics, traces and logs
// are made of. It holds no header, body or query, and a path only in Traced. Model,
// Tenant and Agent are the client's words: bound how many of them become labels.
type Call struct {
	// Began is when the request's header was read, on the wall clock.
	Began time.Time
	// Provider is empty when the path named none that exists.
	Provider string
	Method   string
	// Model is what was asked for, cut at 128 bytes; Budget is its name in the quota.
	Model, Budget string
	// KeyID, Tenant and Agent say who called.
	KeyID, Tenant, Agent string
	Priority             int
	// Law is the control law that paces the provider; empty without pacing.
	Law string
	// TraceParent is the client's trace, as its traceparent field has it; empty
	// without one. Source: W3C Trace Context, section 3.2.
	TraceParent string
	// Span is the traceparent of the call's own span; empty without [Options].NewSpan.
	Span string
	// Traced are the attempts in their order; nil without a span.
	Traced []Attempt
	// Metered says that it costs tokens, Streamed that a stream was asked for.
	Metered, Streamed bool

	// Status is what the client was answered; 499 when it had gone before.
	Status int
	Ending Ending
	// Class is how the last attempt ended; Unknown when none was sent.
	Class reason.Class
	// Reason and Code say why the proxy refused, or what failed upstream; None
	// and empty when it did not.
	Reason reason.Reason
	Code   string

	// Attempts is what was sent upstream; Throttled how many of them the
	// provider refused for rate or load.
	Attempts, Throttled int
	// Wait is the time spent waiting for quota and pacing, Header that from
	// sending to the response's header, of the last attempt. Whole is everything.
	Wait, Header, Whole time.Duration
	// BoundBy is Whole by what kept the call from being faster: waits by what they
	// were for, latency from sending to the answer's end, and the rest as processing.
	BoundBy reason.Bounds
	// Sent and Received are bytes of bodies.
	Sent, Received int64

	// Estimated is what the call was expected to use, Used what it was charged
	// for, over all attempts. Told says that the figures are the provider's.
	Estimated, Used quota.Usage
	Told            bool
}

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

// finish counts and tells the call.
func (x *exchange) finish() {
	x.cancel(context.Canceled)
	x.told.Whole = time.Since(x.began)
	x.told.Sent += x.upload.n.Load()
	x.account()
	if x.up != nil {
		c := &x.up.counters
		c.inFlight.Add(-1)
		c.calls.Add(1)
	}
	x.note()
	x.table.onCall(x.told)
}

// clip bounds what a client made up, and makes it text.
func clip(s string) string {
	const most = 128
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "")
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
