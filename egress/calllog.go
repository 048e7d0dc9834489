package egress

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"time"

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

// CallLog is one call of a client when it is over: what metrics, traces and logs
// are made of. It holds no header, body or query, and a path only in Traced. Model,
// Tenant and Agent are the client's words: bound how many of them become labels.
type CallLog struct {
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
	// for, over all attempts. Reported says that the figures are the provider's.
	// Estimated is zero where it made no difference: without a budget, and while the
	// provider has neither refused a call nor advertised a limit.
	Estimated, Used quota.Usage
	Reported        bool
}

// Attempt is one sending of a call: what its span is made of.
type Attempt struct {
	// Span is the traceparent of the attempt's span, which went upstream.
	Span string
	// Began is when it was sent, on the wall clock.
	Began time.Time
	// Whole is the time until its answer had ended or it had failed.
	Whole time.Duration
	// Status is what was answered; 0 without an answer.
	Status int
	// Class is how it ended.
	Class reason.Class
	// Host is the upstream's name or address, Port its port; empty for that of the
	// scheme. URL is what was asked for, without its query.
	Host, Port, URL string
}

// traced notes the attempt for its span.
func (a *attempt) traced() {
	if a.span == "" || !a.tried {
		return
	}
	to := url.URL{Scheme: a.to.Scheme, Host: a.to.Host, Path: a.to.Path, RawPath: a.to.RawPath}
	a.call.log.Traced = append(a.call.log.Traced, Attempt{
		Span: a.span, Began: a.sentAt.Round(0), Whole: time.Since(a.sentAt), Status: a.status, Class: a.class,
		Host: to.Hostname(), Port: to.Port(), URL: to.String(),
	})
}

// finish counts the call and gives its log away.
func (c *call) finish() {
	c.cancel(context.Canceled)
	c.log.Whole = time.Since(c.began)
	c.log.Sent += c.upload.n.Load()
	c.account()
	if c.up != nil {
		c.up.counters.inFlight.Add(-1)
		c.up.counters.calls.Add(1)
	}
	c.note()
	c.table.onCall(c.log)
}

// noWait is what asking takes where nobody has to wait.
const noWait = time.Millisecond

// lap measures one wait after another.
type lap struct{ last time.Time }

func (l *lap) next() time.Duration {
	now := time.Now()
	d := now.Sub(l.last)
	l.last = now
	return d
}

// waited counts a wait of the call for what it stands for.
func (c *call) waited(by reason.Bound, d time.Duration) {
	if d >= noWait {
		c.log.BoundBy[by] += d
	}
}

// account completes what bound the call once it has ended: what was not a wait and
// not the provider's time is this machine's, or the client's.
func (c *call) account() {
	b := &c.log.BoundBy
	b[reason.BoundProcessing] += max(c.log.Whole-b.Total(), 0)
	if c.up != nil {
		c.up.counters.bound(b)
	}
}

// note logs the call.
func (c *call) note() {
	level, l := slog.LevelDebug, &c.log
	switch l.Ending {
	case Unreachable, TimedOut, BrokenOff, Panicked:
		level = slog.LevelWarn
	case Complete, Refused, ClientGone, Cut:
	}
	if !c.table.log.Enabled(context.Background(), level) {
		return
	}
	c.table.log.LogAttrs(context.Background(), level, "egress call",
		slog.String("provider", l.Provider), slog.String("model", l.Model), slog.String("key", l.KeyID),
		slog.String("tenant", l.Tenant), slog.String("agent", l.Agent),
		slog.Int("status", l.Status), slog.String("ending", string(l.Ending)), slog.String("class", l.Class.String()),
		slog.String("reason", l.Reason.String()), slog.String("code", l.Code), slog.Int("attempts", l.Attempts),
		slog.Duration("wait", l.Wait), slog.Duration("header", l.Header), slog.Duration("whole", l.Whole),
		slog.Int64("input_tokens", l.Used.Input), slog.Int64("output_tokens", l.Used.Output),
		slog.Int64("cached_tokens", l.Used.Cached), slog.Int64("reasoning_tokens", l.Used.Reasoning), slog.Bool("reported", l.Reported))
}

// clip bounds what a client made up, and makes it text.
func clip(s string) string {
	const most = 128
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}
