package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// attempt is one sending of a call, with its two permits.
type attempt struct {
	x       *exchange
	ctx     context.Context
	cancel  context.CancelCauseFunc
	watch   *watch
	body    io.Closer // of the request; upstream may answer before it is through
	unwatch func() bool
	request quota.Request
	cost    float64

	approved, paced bool
	heldBack        bool // the pacing refused it
	decision        quota.Decision
	permit          headway.Permit

	tried    bool        // it was given to the transport
	sent     atomic.Bool // a connection was there to send it over
	opened   atomic.Int32
	sentAt   time.Time
	answerAt time.Time
	status   int // 0 until there is an answer
	header   http.Header
	span     string   // its traceparent, where spans are made
	to       *url.URL // where it was sent

	scanner *usage.Scanner // of an answer that tells usage
	drained int64
	used    quota.Usage  // what it was charged, once settled
	head    []byte       // of an answer that is an error
	class   reason.Class // when it is not the answer that says it
	told    signal.Signal
	problem string // inside a body of status 200
	settled bool

	passed  bool // the breakers let it through
	passage passage
}

// begin makes an attempt. Its settle has to be called.
func (x *exchange) begin(r quota.Request) *attempt {
	expected := quota.Usage{Input: r.InputTokens, Output: r.OutputTokens}
	a := &attempt{x: x, request: r, cost: float64(max(1, x.up.charge.Rated(expected, r.MaxTokens)))}
	if a.ctx, a.cancel = x.ctx, x.cancel; x.up.Retries > 0 || x.usage == injectedOnTrial {
		a.ctx, a.cancel = context.WithCancelCause(x.ctx) // the call outlives it
	}
	return a
}

// acquire waits for both permits; what it has when there is a refusal is given
// back by settle.
func (a *attempt) acquire() *provider.Refusal {
	x, u := a.x, a.x.up
	if x.asked.Metered && u.Key != "" {
		if left := u.spent.left(time.Now(), x.asked.Model); left > 0 {
			return &provider.Refusal{
				Status: http.StatusTooManyRequests, Code: string(quota.CodeHardLimit), Reason: reason.QuotaExhausted, RetryIn: left,
				Message: "The provider said a moment ago that this account's quota is used up.",
			}
		}
	}
	if f := x.broken(); f != nil {
		return f
	}
	if u.Pacing == nil && (u.Approver == nil || !x.asked.Metered) {
		return a.enterCircuit()
	}
	clock := lap{time.Now()}
	u.counters.waiting.Add(1)
	defer func(asked time.Time) {
		u.counters.waiting.Add(-1)
		x.told.Wait += time.Since(asked)
	}(clock.last)
	ctx, cancel := context.WithDeadline(a.ctx, x.until)
	defer cancel()
	defer context.AfterFunc(x.proxy.draining, cancel)()
	if u.Approver != nil && x.asked.Metered {
		d, err := u.Approver.ApproveWait(ctx, a.request)
		x.waited(reason.BoundCeiling, clock.next())
		if err == nil && !d.Approved {
			err = d.Refusal(time.Now())
		}
		if err != nil {
			return new(x.denied(err))
		}
		a.approved, a.decision = true, d
	}
	if u.Pacing != nil {
		turn := a.turn()
		err := u.turns.take(ctx, turn, u.interval)
		queued := clock.next()
		if err != nil {
			x.waited(inQueue(u.Pacing.Snapshot().Held), queued)
			a.heldBack = true
			return new(x.denied(err))
		}
		permit, err := u.Pacing.AcquireCost(ctx, a.cost)
		u.turns.pass()
		x.waited(inQueue(permit.Wait()), queued)
		x.waited(permit.Wait().Bound(), clock.next())
		if err != nil {
			a.heldBack = true
			f := x.denied(err)
			if f.RetryIn > 0 && f.Status == http.StatusTooManyRequests {
				f.RetryIn += u.turns.expected(turn, u.interval) // who comes back is behind those who wait
			}
			return &f
		}
		a.paced, a.permit = true, permit
	}
	if x.ctx.Err() != nil { // it crossed the approval on its way
		return new(x.denied(x.ctx.Err()))
	}
	return a.enterCircuit()
}

// maxConnections is how many new connections one attempt may take. HTTP/2 lets a
// server say that it has not looked at a request (GOAWAY), and net/http then sends
// it again at once, for as long as the server says so.
const maxConnections = 3

// send gives the request to the transport and waits for the answer's header.
func (a *attempt) send() (*http.Response, error) {
	x, u := a.x, a.x.up
	ctx := httptrace.WithClientTrace(a.ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		a.sent.Store(true)
		if !c.Reused && a.opened.Add(1) > maxConnections {
			a.cancel(errResent)
		}
	}})
	a.trace()
	out, err := x.outbound(ctx, a.span)
	if err != nil {
		return nil, err
	}
	a.body, a.to = out.Body, out.URL
	a.watch = newWatch(a.cancel, x.rc, u.ResponseHeaderTimeout, u.CallTimeout)
	if !x.whole {
		x.upload.moved = a.watch.move
		a.watch.uploads(x.upload.reading.Load)
	}
	a.unwatch = context.AfterFunc(a.ctx, a.watch.cut)
	a.sent.Store(!u.traced)
	a.tried, a.sentAt = true, a.watch.began
	x.told.Attempts++
	u.counters.attempts.Add(1)
	res, err := u.send.RoundTrip(out)
	a.answerAt = time.Now()
	x.told.Header = a.answerAt.Sub(a.sentAt)
	if err != nil {
		if unsent(err) {
			a.sent.Store(false)
		}
		return nil, err
	}
	a.sent.Store(true)
	a.watch.allow(u.IdleTimeout)
	a.status, a.header = res.StatusCode, res.Header
	return res, nil
}

// unsent reports whether an error says that no connection was made.
func unsent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok || untrusted(err)
}

// untrusted reports whether no secure connection could be made.
func untrusted(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	_, ok := errors.AsType[tls.AlertError](err)
	return ok
}

// fail says what an attempt without an answer stands for, and how the client is
// told. The error itself may quote what upstream sent, and goes nowhere.
func (a *attempt) fail(err error) (Ending, provider.Refusal) {
	x := a.x
	if errors.Is(err, os.ErrDeadlineExceeded) { // only the client's side has a deadline
		return Refused, incomplete(http.StatusRequestTimeout)
	}
	if x.r.Context().Err() != nil {
		return ClientGone, provider.Refusal{Status: statusClientGone, Reason: reason.Canceled}
	}
	cause := context.Cause(a.ctx)
	switch {
	case errors.Is(cause, errCut):
		return Cut, drained()
	case errors.Is(cause, errStalled):
		return Refused, incomplete(http.StatusRequestTimeout)
	case errors.Is(cause, errSilent), errors.Is(cause, errLong):
		if x.whole || x.upload.ended.Load() {
			a.class = reason.Failed // else it had not been asked yet
		}
		return TimedOut, provider.Refusal{
			Status: http.StatusGatewayTimeout, Reason: reason.Timeout, Retry: true, RetryIn: time.Second, Message: "The provider did not answer in time.",
		}
	}
	if long, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return Refused, *oversized(long.Limit)
	}
	if x.upload.failed.Load() {
		return Refused, incomplete(http.StatusBadRequest)
	}
	a.class = reason.Lost
	f := provider.Refusal{Status: http.StatusBadGateway, Reason: reason.Unreachable, Retry: true, RetryIn: time.Second, Message: "The provider could not be reached."}
	switch {
	case untrusted(err):
		f.Reason, f.Retry, f.Message = reason.TLS, false, "No secure connection to the provider could be made."
	case a.sent.Load():
		f.Message = "The connection to the provider ended without an answer."
	}
	return Unreachable, f
}
