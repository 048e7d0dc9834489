package egress

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
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

// forward sends the call, and again where that is asked for and allowed.
func (x *exchange) forward() {
	request := x.estimate()
	x.inject()
	// Here the waiting begins, not while the body came.
	if until := time.Now().Add(x.up.MaxWait); until.Before(x.until) {
		x.until = until
	}
	var last *held
	for n := 0; ; n++ {
		last = x.try(request, n < x.up.Retries && x.whole, last)
		if last == nil {
			return
		}
		if last.disputed {
			x.restore()
			n--
			continue
		}
		if !x.sleep(n, last.wait) {
			x.give(last)
			return
		}
	}
}

// held is how an attempt ended that may be made again: an answer that was not
// passed on yet, or a refusal for none.
type held struct {
	wait time.Duration // before the next
	// disputed: it may be refused only because usage was asked for.
	disputed bool
	// An answer.
	res  *http.Response
	body []byte
	// None.
	ending  Ending
	refusal provider.Refusal
}

// give passes on what was held.
func (x *exchange) give(h *held) {
	if h.res == nil {
		x.told.Ending = h.ending
		x.refuse(h.refusal)
		return
	}
	h.res.ContentLength = int64(len(h.body))
	x.begun(h.res, nil, false)
	_, err := x.w.Write(h.body)
	x.told.Received += int64(len(h.body))
	if x.told.Ending = Complete; err != nil {
		x.told.Ending = ClientGone
	}
}

// try makes one attempt and passes its answer on. What it returns instead is to
// be tried again. Before is what was held of the attempt before: the client gets
// it when this one cannot be made.
func (x *exchange) try(request quota.Request, again bool, before *held) *held {
	a := x.begin(request)
	defer a.settle()
	if fault := a.acquire(); fault != nil {
		a.pressed(fault)
		if before != nil && fault.Status != statusClientGone {
			x.give(before)
		} else {
			x.refuse(*fault)
		}
		return nil
	}
	res, err := a.send()
	if err == nil && (res.StatusCode < http.StatusOK || res.StatusCode > 599) {
		_ = res.Body.Close()
		err = errNoAnswer
	}
	if err != nil {
		a.status = 0
		ending, fault := a.fail(err)
		if again && a.class == reason.Lost && fault.Retry {
			return &held{ending: ending, refusal: fault}
		}
		x.told.Ending = ending
		x.refuse(fault)
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	if again && signal.Classify(res.StatusCode).Throttle() || x.disputed(res.StatusCode) {
		if h := a.hold(res); h != nil {
			return h
		}
	}
	x.judge(res.StatusCode)
	a.pass(res, x.injected())
	return nil
}

// hold reads an answer that may be followed by another attempt. It is nil when
// it is not, and then the answer can still be passed on.
func (a *attempt) hold(res *http.Response) *held {
	body, err := io.ReadAll(io.LimitReader(res.Body, signal.MaxBody))
	rest := io.Reader(res.Body)
	if err != nil {
		rest = broken{err}
	}
	res.Body = joined{io.MultiReader(bytes.NewReader(body), rest), res.Body}
	if err == nil && len(body) < signal.MaxBody && a.x.disputed(res.StatusCode) {
		a.head = body
		return &held{res: res, body: body, disputed: true}
	}
	told := a.x.up.Description.Classify(a.answerAt, res.StatusCode, res.Header, body)
	if err != nil || len(body) == signal.MaxBody || told.Exhausted || !told.Class.Throttle() ||
		time.Now().Add(told.RetryAfter).After(a.x.until) {
		return nil
	}
	a.head = body
	return &held{res: res, body: body, wait: told.RetryAfter}
}

// broken gives an error that was met once more.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// joined reads from one and closes the other.
type joined struct {
	io.Reader
	io.Closer
}

// sleep waits before retry n: what the provider asked for, or the backoff, the
// longer of the two. False when there is no time for it.
func (x *exchange) sleep(n int, wait time.Duration) bool {
	asked := wait
	backoff, err := retry.Backoff{}.Resolve()
	if err == nil {
		wait = max(wait, backoff.Wait(n+1, rand.Uint64()))
	}
	if time.Now().Add(wait).After(x.until) {
		return false
	}
	by := reason.BoundBackoff
	if asked > 0 && wait == asked {
		by = reason.BoundCooldown
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	began := time.Now()
	defer func() {
		x.told.Wait += time.Since(began)
		x.waited(by, time.Since(began))
	}()
	select {
	case <-timer.C:
		return true
	case <-x.ctx.Done():
	case <-x.proxy.draining.Done():
	}
	return false
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
