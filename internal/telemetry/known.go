package telemetry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// NewSpan gives the traceparent of a call's span before the call is made, given
// the client's, so that what the provider traces hangs below it.
func (t *Telemetry) NewSpan(parent string) string {
	above := read(parent)
	id, flags := above.TraceID(), above.TraceFlags()
	if !above.IsValid() {
		_, _ = rand.Read(id[:]) // never fails
		flags = flags.WithSampled(t.sampler.ShouldSample(sdktrace.SamplingParameters{TraceID: id}).Decision == sdktrace.RecordAndSample)
	}
	var span trace.SpanID
	_, _ = rand.Read(span[:])
	return fmt.Sprintf("00-%s-%s-%s", hex.EncodeToString(id[:]), hex.EncodeToString(span[:]), flags)
}

// read reads a traceparent; the zero value means none.
func read(parent string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent})
	return trace.SpanContextFromContext(ctx)
}

// known gives a span the IDs that were made for it before; see [Telemetry.NewSpan].
type known struct{}

type idsKey struct{}

func (known) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	if s, ok := ctx.Value(idsKey{}).(trace.SpanContext); ok {
		return s.TraceID(), s.SpanID()
	}
	_, _ = rand.Read(id[:])
	_, _ = rand.Read(span[:])
	return id, span
}

func (k known) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, span := k.NewIDs(ctx)
	return span
}
