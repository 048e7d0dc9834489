package egress

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

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

// denied says why no permit was given: by the quota, or by pacing.
func (x *exchange) denied(err error) provider.Refusal {
	switch {
	case x.r.Context().Err() != nil:
		return provider.Refusal{Status: statusClientGone, Reason: reason.Canceled}
	case x.proxy.draining.Err() != nil:
		return drained()
	}
	if d, ok := errors.AsType[*quota.Denial](err); ok {
		x.limits(d)
		return budget(d)
	}
	f := provider.Refusal{
		Status: http.StatusTooManyRequests, Code: string(quota.CodeThrottled), Reason: reason.Deadline, Retry: true, RetryIn: time.Second,
		Message: "The call cannot be served in time.",
	}
	refusal, ok := errors.AsType[*reason.Refusal](err)
	if !ok {
		refusal = &reason.Refusal{Reason: reason.Internal}
	}
	f.Reason = refusal.Reason
	if !refusal.RetryAt.IsZero() {
		f.RetryIn = max(time.Until(refusal.RetryAt), 0)
	}
	switch refusal.Reason {
	case reason.Internal, reason.Closed:
		f.Status, f.Code = http.StatusServiceUnavailable, ""
		f.Message = "The proxy cannot keep its budgets at the moment."
	case reason.CircuitOpen.Reason():
		f.Status, f.Code = http.StatusServiceUnavailable, ""
		f.Message = "The provider failed too often of late; it is left alone for a moment."
	case reason.RateLimited.Reason(), reason.UpstreamPressure.Reason():
		f.Message = "The provider asked to be left alone for longer than the call can wait."
	default:
	}
	return f
}

// inQueue is what the wait behind other calls stands for: what those had to wait
// for, as far as the call met it too once it was its turn.
func inQueue(held headway.Wait) reason.Bound {
	if by := held.Bound(); by != reason.BoundUnknown && by != reason.BoundJitter {
		return by
	}
	return reason.BoundQueue
}

const (
	// spentFor is how long a model is not asked again when the provider said that
	// its long quota is used up, and not until when; spentMost is the longest
	// that it is believed. Money is paid in at any time, so it is asked again
	// every few minutes, not only when the month turns.
	spentFor  = time.Minute
	spentMost = 5 * time.Minute
	maxSpent  = 256
)

// spent remembers the models whose long quota the provider said is used up: a
// day's, or one of money. Some providers have one for each model and some one
// for all; by model is right for both, at the cost of one refused call a model.
type spent struct {
	mu     sync.Mutex
	models map[string]time.Time
}

// note takes a provider's answer that a long quota is used up.
func (s *spent) note(now time.Time, model string, told *signal.Signal) {
	wait := spentFor
	if told.HasRetryAfter {
		wait = min(told.RetryAfter, spentMost)
	}
	if wait <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.models == nil {
		s.models = map[string]time.Time{}
	}
	for name, until := range s.models {
		if !now.Before(until) {
			delete(s.models, name)
		}
	}
	if len(s.models) < maxSpent {
		s.models[model] = now.Add(wait)
	}
}

// left is how long a model is still not asked; 0 when it may be.
func (s *spent) left(now time.Time, model string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.models[model]
	if !ok {
		return 0
	}
	return max(0, until.Sub(now))
}

// part is what of the provider the call is for.
func (x *exchange) part() part { return part{x.told.Model, clip(x.path())} }

// sinceOrigin is now for the breakers.
func (x *exchange) sinceOrigin() time.Duration { return time.Since(x.proxy.origin) }

// broken refuses a call at once while its breaker is open.
func (x *exchange) broken() *provider.Refusal {
	wait := x.up.circuits.wait(&x.up.Circuit, x.sinceOrigin(), x.part())
	if wait == 0 {
		return nil
	}
	return circuitOpen(wait)
}

func circuitOpen(wait time.Duration) *provider.Refusal {
	return &provider.Refusal{
		Status: http.StatusServiceUnavailable, Reason: reason.CircuitOpen.Reason(), RetryIn: wait, Retry: true,
		Message: "The provider failed too often of late; it is left alone for a moment.",
	}
}

// enterCircuit asks the breakers for leave to send.
func (a *attempt) enterCircuit() *provider.Refusal {
	x := a.x
	leave, ok, m := x.up.circuits.admit(&x.up.Circuit, x.sinceOrigin(), x.part())
	x.moved(m)
	if !ok {
		return circuitOpen(probeWait)
	}
	a.passage, a.passed = leave, true
	return nil
}

// probeWait is when to come back while others find out whether the provider is
// there again.
const probeWait = time.Second
