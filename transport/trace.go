package transport

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// Trace records what happened to one request. Put it into the request's context with
// [WithTrace] and read it after the response. It must not be used by two requests at once.
type Trace struct {
	// Attempts counts the attempts that were sent.
	Attempts int
	// Signal is the signal of the last response, after [Options.Classify]; zero without a
	// response.
	Signal signal.Signal
	// Stopped is the refusal that prevented a further attempt, such as an open circuit, an
	// empty retry budget or a long wait; nil without one.
	Stopped *reason.Refusal
}

type traceKey struct{}

// WithTrace returns a context whose request is recorded in t.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// traceOf returns the request's trace; nil without one.
func traceOf(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}

func (t *Trace) attempted(s *signal.Signal) {
	if t != nil {
		t.Attempts++
		t.Signal = *s
	}
}

func (t *Trace) stop(err error) {
	if r, ok := errors.AsType[*reason.Refusal](err); ok && t != nil {
		t.Stopped = r
	}
}

type steadyKey struct{}

// WithSteady returns a context whose successes do not speed up the pacing, as for retries soon
// after a provider was overloaded. Throttles still slow it down.
func WithSteady(ctx context.Context) context.Context {
	return context.WithValue(ctx, steadyKey{}, true)
}

type waitingKey struct{}

// WithWaiting returns a context whose requests wait only until waiting ends. It replaces
// [Options.Waiting]. A request that waits at that time is refused as interrupted; an attempt
// under way is not cut.
func WithWaiting(ctx, waiting context.Context) context.Context {
	return context.WithValue(ctx, waitingKey{}, waiting)
}

// waiting returns the context that ends the waits of a request; nil for the request's own.
func (t *Transport) waiting(ctx context.Context) context.Context {
	if w, ok := ctx.Value(waitingKey{}).(context.Context); ok {
		return w
	}
	return t.o.Waiting
}

// holding returns the context that ends the waits of a request under [Options.Hold].
func (t *Transport) holding(ctx context.Context) (context.Context, context.CancelFunc) {
	before := t.waiting(ctx)
	if before == nil {
		before = context.Background()
	}
	return context.WithTimeout(before, t.o.Hold)
}

// outage is the end of the waits of a request whose provider is overloaded and names no wait;
// zero means that it is not.
type outage struct{ until time.Time }

// refused takes the signal of a refusal at an instant, and how long an outage is waited for, 0
// for no bound.
func (o *outage) refused(now time.Time, s *signal.Signal, most time.Duration) {
	switch {
	case most == 0 || s.Class != reason.Overloaded || s.RetryAfter > 0:
		o.until = time.Time{}
	case o.until.IsZero():
		o.until = now.Add(most)
	}
}

// within sends attempt n, whose wait for a permit ends with the outage.
func (t *Transport) within(o *outage, req *http.Request, n int) (answer, error) {
	if o.until.IsZero() {
		return t.attempt(req, n)
	}
	waiting, done := context.WithDeadline(t.waiting(req.Context()), o.until)
	defer done()
	return t.attempt(req.WithContext(WithWaiting(req.Context(), waiting)), n)
}

func isSteady(ctx context.Context) bool {
	steady, _ := ctx.Value(steadyKey{}).(bool)
	return steady
}
