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

// Ending says how a call ended.
type Ending string

// All endings.
const (
	// Complete: the whole answer of the upstream was passed on, even if it is an error.
	Complete Ending = "complete"
	// Refused: the proxy refused the call and sent nothing upstream.
	Refused Ending = "refused"
	// Unreachable: the upstream could not be reached, or its answer was not HTTP.
	Unreachable Ending = "unreachable"
	// TimedOut: the upstream sent nothing for too long, or the call took too long.
	TimedOut Ending = "timed_out"
	// BrokenOff: the upstream's answer broke off.
	BrokenOff Ending = "broken_off"
	// ClientGone: the client went away first.
	ClientGone Ending = "client_gone"
	// Cut: the proxy was stopped.
	Cut Ending = "cut"
	// Panicked: the proxy panicked.
	Panicked Ending = "panicked"
)

// statusClientGone is the status recorded when the client went away before an answer.
const statusClientGone = 499

// CallLog records one call of a client, at its end, for metrics, traces and logs. It holds no
// header, body or query, and a path only in Traced. Model, Tenant and Agent come from the
// client: bound their number before using them as labels.
type CallLog struct {
	// Began is when the request's header was read, on the wall clock.
	Began time.Time
	// Provider is empty when the path named no configured provider.
	Provider string
	Method   string
	// Model is the requested model, cut at 128 bytes; Budget is its name in the quota.
	Model, Budget string
	// KeyID, Tenant and Agent identify the caller.
	KeyID, Tenant, Agent string
	Priority             int
	// Law is the control law that paces the provider; empty without pacing.
	Law string
	// TraceParent is the client's traceparent field; empty without a valid one. Source:
	// W3C Trace Context, section 3.2.
	TraceParent string
	// Span is the traceparent of the call's own span; empty without [Options].NewSpan.
	Span string
	// Traced are the attempts in order; nil without a span.
	Traced []Attempt
	// Metered is set for a call that costs tokens, Streamed for one that asks for a stream.
	Metered, Streamed bool

	// Status is the status sent to the client; 499 if it went away before.
	Status int
	Ending Ending
	// Class is how the last attempt ended; Unknown when none was sent.
	Class reason.Class
	// Reason and Code say why the proxy refused the call, or what failed upstream. They
	// are None and empty if neither happened.
	Reason reason.Reason
	Code   string

	// Attempts counts attempts sent upstream, Throttled those that the provider refused
	// for rate or load.
	Attempts, Throttled int
	// Wait is the time spent waiting for quota and pacing, Header the time from sending
	// the last attempt to its response header, Whole the duration of the call.
	Wait, Header, Whole time.Duration
	// BoundBy divides Whole by cause: each kind of wait, latency from sending to the end
	// of the answer, and processing for the rest.
	BoundBy reason.Bounds
	// Sent and Received are bytes of bodies.
	Sent, Received int64

	// Estimated is the expected usage of the call, Used the usage charged over all
	// attempts. Reported is set if the provider reported it. Estimated is zero without a
	// budget while the provider has neither refused a call nor advertised a limit.
	Estimated, Used quota.Usage
	Reported        bool
}

// Attempt records one attempt of a call, for its span.
type Attempt struct {
	// Span is the traceparent of the attempt's span, as sent upstream.
	Span string
	// Began is when it was sent, on the wall clock.
	Began time.Time
	// Whole is the time until the end of its answer, or until it failed.
	Whole time.Duration
	// Wait is the time before it in which the call waited for quota, pacing and the pause
	// after the attempt before.
	Wait time.Duration
	// Status is the status of the answer; 0 without an answer.
	Status int
	// Class is how it ended.
	Class reason.Class
	// Host is the upstream's name or address. Port is its port; empty for the default of
	// the scheme. URL is the requested URL without its query.
	Host, Port, URL string
}

// traced records the attempt for its span.
func (a *attempt) traced() {
	if a.span == "" || !a.tried {
		return
	}
	to := url.URL{Scheme: a.to.Scheme, Host: a.to.Host, Path: a.to.Path, RawPath: a.to.RawPath}
	wait := a.call.log.Wait
	for _, before := range a.call.log.Traced {
		wait -= before.Wait
	}
	a.call.log.Traced = append(a.call.log.Traced, Attempt{
		Wait: wait,
		Span: a.span, Began: a.sentAt.Round(0), Whole: time.Since(a.sentAt), Status: a.status, Class: a.class,
		Host: to.Hostname(), Port: to.Port(), URL: to.String(),
	})
}

// finish counts the call and passes its log to OnCall.
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

// noWait is the time below which asking for a permit does not count as a wait.
const noWait = time.Millisecond

// lap measures consecutive waits.
type lap struct{ last time.Time }

func (l *lap) next() time.Duration {
	now := time.Now()
	d := now.Sub(l.last)
	l.last = now
	return d
}

// waited adds a wait of the call under its cause.
func (c *call) waited(by reason.Bound, d time.Duration) {
	if d >= noWait {
		c.log.BoundBy[by] += d
	}
}

// account completes BoundBy at the end of the call: time that was neither a wait nor the
// provider's counts as processing, here or by the client.
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

// clip cuts a name from a client to a maximum length, and makes it valid UTF-8.
func clip(s string) string {
	const most = 128
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}
