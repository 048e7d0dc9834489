package egress

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/wire"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/retry"
	"github.com/headway-go/headway/signal"
)

// attempt is one try to send a call: its permits, its request and its answer.
type attempt struct {
	call   *call
	ctx    context.Context
	cancel context.CancelCauseFunc
	lease
	outgoing
	answer
	reported
	settled bool
}

// begin makes an attempt. The caller must call settle.
func (c *call) begin() *attempt {
	a := &attempt{call: c, lease: lease{request: c.request, picked: -1, cost: c.rated()}}
	if c.as != nil {
		a.cost = c.cost
	}
	if c.up.ring == nil {
		a.by = c.up.credentials[0]
	}
	if a.ctx, a.cancel = c.ctx, c.cancel; c.up.Retries > 0 || c.usage == injectedOnTrial || c.up.ring != nil {
		a.ctx, a.cancel = context.WithCancelCause(c.ctx) // the call outlives it
	}
	return a
}

// rated returns the expected cost of the call, in the provider's unit.
func (c *call) rated() float64 {
	r := &c.request
	return float64(max(1, c.up.charge.Rated(quota.Usage{Input: r.InputTokens, Output: r.OutputTokens}, r.MaxTokens)))
}

// forward makes attempts until one is answered or no retry is allowed. Each attempt is
// approved, sent, relayed and settled.
func (c *call) forward() {
	// The wait begins here, after the body has arrived.
	if until := time.Now().Add(c.up.MaxWait); until.Before(c.until) {
		c.until = until
	}
	var last *held
	for n := 0; ; n++ {
		last = c.try(n < c.up.Retries && c.whole, last)
		if last == nil {
			return
		}
		if last.disputed {
			c.restore()
		}
		if last.disputed || last.otherKey {
			n--
			continue
		}
		if !c.sleep(n, last.retryAfter) {
			c.give(last)
			return
		}
	}
}

// try makes one attempt and passes its answer on. It returns an outcome instead if the call
// should be tried again. before is the outcome of the previous attempt, which the client gets
// if this one cannot be made.
func (c *call) try(again bool, before *held) *held {
	a := c.begin()
	defer a.settle()
	if fault := a.approve(); fault != nil {
		a.pressed(fault)
		if before != nil && fault.Status != statusClientGone {
			c.give(before)
		} else {
			c.refuse(*fault)
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
		c.log.Ending = ending
		c.refuse(fault)
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	if again && signal.Classify(res.StatusCode).Throttle() || c.disputed(res.StatusCode) {
		if h := a.hold(res); h != nil {
			return h
		}
	}
	if h := a.denial(res); h != nil {
		return h
	}
	if res.StatusCode < http.StatusBadRequest && len(c.refusedBy) > 0 {
		c.proven()
	}
	a.preview(res)
	c.judge(res.StatusCode)
	a.relay(res, c.injected())
	return nil
}

// held is the outcome of an attempt that may be retried: an answer that was not passed on
// yet, or a refusal where there was no answer.
type held struct {
	retryAfter time.Duration // from the answer
	// disputed: the refusal may be due to the request for usage.
	disputed bool
	// otherKey: the call may succeed with another key.
	otherKey bool
	// With an answer:
	res  *http.Response
	body []byte
	// Without one:
	ending  Ending
	refusal provider.Refusal
}

// hold reads an answer that may be retried. It returns nil for any other answer, which can
// then be passed on.
func (a *attempt) hold(res *http.Response) *held {
	body, whole := wire.Peek(res, signal.MaxBody)
	if whole && a.call.disputed(res.StatusCode) {
		a.head = body
		return &held{res: res, body: body, disputed: true}
	}
	said := a.call.up.Description.Classify(a.answerAt, res.StatusCode, res.Header, body)
	if !whole || said.Exhausted || !said.Class.Throttle() ||
		time.Now().Add(said.RetryAfter).After(a.call.until) {
		return nil
	}
	a.head = body
	return &held{res: res, body: body, retryAfter: said.RetryAfter}
}

// give passes a held outcome on to the client.
func (c *call) give(h *held) {
	if h.res == nil {
		c.log.Ending = h.ending
		c.refuse(h.refusal)
		return
	}
	h.res.ContentLength = int64(len(h.body))
	c.begun(h.res, nil, false)
	_, err := c.w.Write(h.body)
	c.log.Received += int64(len(h.body))
	if c.log.Ending = Complete; err != nil {
		c.log.Ending = ClientGone
	}
}

// backoff has the default settings.
var backoff, _ = retry.Backoff{}.Resolve()

// sleep waits before retry n, which starts at 0. With pacing it waits the backoff; the
// pacing waits for the Retry-After, for all calls at once. Without pacing it waits the longer
// of the two. It returns false when the wait would end after the call's deadline, or when the
// call ends or the proxy drains meanwhile.
func (c *call) sleep(n int, retryAfter time.Duration) bool {
	wait, by := backoff.Wait(n, rand.Uint64()), reason.BoundBackoff
	if !c.up.paced() && retryAfter >= wait {
		wait, by = retryAfter, reason.BoundCooldown
	}
	if time.Now().Add(wait).After(c.until) {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	began := time.Now()
	defer func() {
		c.log.Wait += time.Since(began)
		c.waited(by, time.Since(began))
	}()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
	case <-c.proxy.draining.Done():
	}
	return false
}
