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

// lease has the request of an attempt and the permits that it holds until it is settled.
type lease struct {
	request quota.Request
	cost    float64     // of request, in the provider's unit
	late    float64     // the cost, where it was estimated only later; otherwise 0
	by      *credential // the key used; nil before it is chosen
	picked  int         // the index of the key, where there are several; -1 for none

	approved bool // by the quota
	decision quota.Decision
	paced    bool // it has a permit of the pacing
	permit   headway.Permit
	heldBack bool // the pacing refused it
	passed   bool // the breakers let it through
	passage  passage
}

// approve waits for the permits of quota and pacing. On a refusal, settle gives back the
// permit that it may already have.
func (a *attempt) approve() *provider.Refusal {
	for {
		f := a.choose()
		if f == nil {
			f = a.approveBy()
		}
		if f == nil || a.by == nil || a.by.refused.Err() == nil || a.call.ctx.Err() != nil || a.call.proxy.draining.Err() != nil {
			return f
		}
		// The key was set aside while the attempt waited for it.
	}
}

// waiting is a context that ends with its parent, with one of ends, or at an instant. Most
// calls do not wait, so it sets up timers and callbacks only when Done is called.
type waiting struct {
	context.Context
	until time.Time
	ends  [2]context.Context // either may be nil

	mu     sync.Mutex
	within context.Context // nil until Done is called
	stop   []func() bool
	cancel context.CancelFunc
}

// Deadline returns the end of the wait.
func (p *waiting) Deadline() (time.Time, bool) {
	if at, ok := p.Context.Deadline(); ok && at.Before(p.until) {
		return at, true
	}
	return p.until, true
}

// Done returns a channel that is closed when the wait ends.
func (p *waiting) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.within == nil {
		p.within, p.cancel = context.WithDeadline(p.Context, p.until)
		for _, end := range p.ends {
			if end != nil {
				p.stop = append(p.stop, context.AfterFunc(end, p.cancel))
			}
		}
	}
	return p.within.Done()
}

// Err returns why the wait ended; nil before.
func (p *waiting) Err() error {
	p.mu.Lock()
	within := p.within
	p.mu.Unlock()
	if within != nil {
		return within.Err()
	}
	for _, end := range p.ends {
		if end != nil && end.Err() != nil {
			return context.Canceled
		}
	}
	if err := p.Context.Err(); err != nil || time.Now().Before(p.until) {
		return err
	}
	return context.DeadlineExceeded
}

// Value asks the context that Done made, so that derived contexts need no goroutine.
func (p *waiting) Value(key any) any {
	p.mu.Lock()
	within := p.within
	p.mu.Unlock()
	if within != nil {
		return within.Value(key)
	}
	return p.Context.Value(key)
}

// release frees timers and callbacks. Call it after the wait.
func (p *waiting) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, stop := range p.stop {
		stop()
	}
	if p.cancel != nil {
		p.cancel()
	}
}

// approveBy waits for the permits with a chosen key.
func (a *attempt) approveBy() *provider.Refusal {
	c, u := a.call, a.call.up
	if f := c.broken(); f != nil {
		return f
	}
	if !u.paced() && (u.Approver == nil || !c.asked.Metered) {
		return a.enterCircuit()
	}
	clock := lap{time.Now()}
	u.counters.waiting.Add(1)
	defer func(asked time.Time) {
		u.counters.waiting.Add(-1)
		c.log.Wait += time.Since(asked)
	}(clock.last)
	ctx := &waiting{Context: a.ctx, until: c.until, ends: [2]context.Context{c.proxy.draining, nil}}
	if u.ring != nil {
		ctx.ends[1] = a.by.refused
	}
	defer ctx.release()
	a.by.ask(ctx, c)
	if u.Approver != nil && c.asked.Metered && !a.approved {
		if q, ok := u.Approver.(reserver); ok && u.paced() {
			r, err := q.Reserve(a.request, a.by.Pacing)
			if err != nil {
				return new(c.denied(err))
			}
			defer r.Leave()
			if f := a.acquire(ctx, &clock, r); f != nil {
				return f
			}
			a.approved, a.decision = true, r.Decision()
			return a.ready()
		}
		d, err := u.Approver.ApproveWait(ctx, a.request)
		c.waited(reason.BoundCeiling, clock.next())
		if err == nil && !d.Approved {
			err = d.Refusal(time.Now())
		}
		if err != nil {
			return new(c.denied(err))
		}
		a.approved, a.decision = true, d
	}
	if u.paced() {
		if f := a.acquire(ctx, &clock, nil); f != nil {
			return f
		}
	}
	return a.ready()
}

// reserver is a quota whose budgets can be reserved while a call waits in the pacing queue,
// so that the call waits in one queue only.
type reserver interface {
	Reserve(r quota.Request, by quota.Waker) (quota.Reservation, error)
}

// acquire waits in the pacing queue for the pace and the reserved budgets.
func (a *attempt) acquire(ctx context.Context, clock *lap, reserved quota.Reservation) *provider.Refusal {
	c, by := a.call, a.by
	r := a.share()
	if reserved != nil {
		r.Flow, r.Weight, r.Budget = reserved.Tenant(), reserved.Weight(), reserved
	}
	if err := by.begin(c.up, r.Pool); err != nil {
		return new(c.denied(err))
	}
	permit, err := by.Pacing.AcquireFor(ctx, r)
	held := permit.Wait()
	if err != nil && held.Reason == reason.None {
		held = by.Pacing.Snapshot().Held // it was never first in the queue
	}
	c.waited(inQueue(held), clock.next())
	if err != nil {
		_, denied := errors.AsType[*quota.Denial](err)
		a.heldBack = !denied
		return new(c.denied(err))
	}
	a.paced, a.permit = true, permit
	return nil
}

// share returns the attempt's request to the pacing, with the weight of its tenant.
func (a *attempt) share() headway.Request {
	r := headway.Request{Priority: a.request.Priority, Flow: a.request.Tenant, Cost: a.cost, Pool: a.call.pool}
	if q, ok := a.call.up.Approver.(configured); ok {
		c := q.Config()
		tenant, ok := c.Tenants[r.Flow]
		if !ok {
			tenant = c.TenantDefault
		}
		r.Weight = int(tenant.Weight)
	}
	return r
}

// ready asks the breakers once the attempt has its permits.
func (a *attempt) ready() *provider.Refusal {
	c := a.call
	if c.ctx.Err() != nil { // the call ended while it was approved
		return new(c.denied(c.ctx.Err()))
	}
	return a.enterCircuit()
}

// denied returns the refusal for an attempt that got no permit, of the quota or of pacing.
func (c *call) denied(err error) provider.Refusal {
	switch {
	case c.r.Context().Err() != nil:
		return provider.Refusal{Status: statusClientGone, Reason: reason.Canceled}
	case c.proxy.draining.Err() != nil:
		return drained()
	}
	if d, ok := errors.AsType[*quota.Denial](err); ok {
		c.limits(d)
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
		f.Message = "The provider failed too often recently; it is left alone for a moment."
	case reason.RateLimited.Reason(), reason.UpstreamPressure.Reason():
		f.Message = "The provider asked to be left alone for longer than the call can wait."
	default:
	}
	return f
}

// inQueue returns what a wait for pacing counts as: what the call waited for at the head of
// the queue, or else the calls before it.
func inQueue(held headway.Wait) reason.Bound {
	if by := held.Bound; by != reason.BoundUnknown && by != reason.BoundJitter {
		return by
	}
	return reason.BoundQueue
}

// part returns the part of the provider that the call is for.
func (c *call) part() part { return part{c.log.Model, clip(c.path())} }

// sinceOrigin returns the current time as the breakers take it.
func (c *call) sinceOrigin() time.Duration { return time.Since(c.proxy.origin) }

// broken refuses a call at once while its breaker is open.
func (c *call) broken() *provider.Refusal {
	wait := c.up.circuits.wait(&c.up.Circuit, c.sinceOrigin(), c.part())
	if wait == 0 {
		return nil
	}
	return circuitOpen(wait)
}

func circuitOpen(wait time.Duration) *provider.Refusal {
	return &provider.Refusal{
		Status: http.StatusServiceUnavailable, Reason: reason.CircuitOpen.Reason(), RetryIn: wait, Retry: true,
		Message: "The provider failed too often recently; it is left alone for a moment.",
	}
}

// enterCircuit asks the breakers for permission to send.
func (a *attempt) enterCircuit() *provider.Refusal {
	c := a.call
	leave, ok, m := c.up.circuits.admit(&c.up.Circuit, c.sinceOrigin(), c.part())
	c.moved(m)
	if !ok {
		return circuitOpen(probeWait)
	}
	a.passage, a.passed = leave, true
	return nil
}

// probeWait is the Retry-After while other calls probe whether the provider has recovered.
const probeWait = time.Second

const (
	// spentFor is how long calls for a model are refused after the provider answered
	// that a long quota is used up without saying until when; spentMost is the maximum
	// where it does say. Credit can be bought at any time, so the provider is tried
	// again every few minutes, not only in the next month.
	spentFor  = time.Minute
	spentMost = 5 * time.Minute
	maxSpent  = 256
)

// spent records the models whose long quota, of a day or of money, the provider reported as
// used up. Some providers have one quota for each model, others one for all. Records by model
// suit both; with one quota for all, each model costs one refused call.
type spent struct {
	mu     sync.Mutex
	models map[string]time.Time
}

// note records a provider's answer that a long quota is used up.
func (s *spent) note(now time.Time, model string, response *signal.Signal) {
	wait := spentFor
	if response.HasRetryAfter {
		wait = min(response.RetryAfter, spentMost)
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

// left returns how long calls for a model are still refused; 0 when they are not.
func (s *spent) left(now time.Time, model string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.models[model]
	if !ok {
		return 0
	}
	return max(0, until.Sub(now))
}
