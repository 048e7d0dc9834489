package transport

import (
	"context"
	"errors"

	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// Trace tells what became of one request, beyond its response. Put one into a
// request's context with [WithTrace] and read it after the response. Not safe
// for use by two requests at once.
type Trace struct {
	// Attempts counts what was sent.
	Attempts int
	// Signal is what the last response said, after [Options.Classify]; the zero
	// value when there was none.
	Signal signal.Signal
	// Stopped is why no further attempt was made, when that was a refusal and
	// not the last outcome: a cap, an open circuit, a long wait. None otherwise.
	Stopped *reason.Refusal
}

type traceKey struct{}

// WithTrace gives a context whose request is traced.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// traceOf is the request's trace; nil without one.
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

// WithSteady gives a context whose successes do not speed the pacing up, as for
// recovery while a provider's pressure is fresh. Throttles still slow it down.
func WithSteady(ctx context.Context) context.Context {
	return context.WithValue(ctx, steadyKey{}, true)
}

type waitingKey struct{}

// WithWaiting gives a context whose requests wait only until waiting ends, in place of
// [Options.Waiting]: a request that waits then is refused as interrupted, an attempt
// under way is not cut.
func WithWaiting(ctx, waiting context.Context) context.Context {
	return context.WithValue(ctx, waitingKey{}, waiting)
}

// waiting is what ends the waits of a request; nil for nothing but its context.
func (t *Transport) waiting(ctx context.Context) context.Context {
	if w, ok := ctx.Value(waitingKey{}).(context.Context); ok {
		return w
	}
	return t.o.Waiting
}

// holding is what ends the waits of a request under [Options.Hold].
func (t *Transport) holding(ctx context.Context) (context.Context, context.CancelFunc) {
	before := t.waiting(ctx)
	if before == nil {
		before = context.Background()
	}
	return context.WithTimeout(before, t.o.Hold)
}

func isSteady(ctx context.Context) bool {
	steady, _ := ctx.Value(steadyKey{}).(bool)
	return steady
}
