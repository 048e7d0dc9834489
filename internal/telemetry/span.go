package telemetry

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// Call sends the spans of a call that ended and of its attempts. It never blocks.
func (t *Telemetry) Call(c egress.CallLog) {
	ctx := context.Background()
	if c.TraceParent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": c.TraceParent})
	}
	if own := read(c.Span); own.IsValid() {
		ctx = context.WithValue(ctx, idsKey{}, own)
	}
	name := c.Method
	if c.Provider != "" {
		name += " " + c.Provider
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithTimestamp(c.Began), trace.WithSpanKind(trace.SpanKindServer))
	defer span.End(trace.WithTimestamp(c.Began.Add(c.Whole)))
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String("http.request.method", c.Method),
		attribute.Int("http.response.status_code", c.Status),
		attribute.String("headway.provider", c.Provider),
		attribute.String("headway.ending", string(c.Ending)),
		attribute.Float64("headway.wait_ms", milliseconds(c.Wait)),
		attribute.Int("headway.attempts", c.Attempts),
		attribute.Int("headway.throttled", c.Throttled),
	)
	for key, value := range map[attribute.Key]string{
		"gen_ai.request.model": c.Model, "headway.tenant": c.Tenant, "headway.agent": c.Agent,
		"headway.code": c.Code, "headway.law": c.Law,
	} {
		if value != "" {
			span.SetAttributes(key.String(value))
		}
	}
	if why := c.Reason.String(); c.Ending != egress.Complete {
		span.SetAttributes(attribute.String("headway.reason", why), attribute.String("error.type", string(c.Ending)))
	}
	if c.Header > 0 {
		span.SetAttributes(attribute.Float64("headway.header_ms", milliseconds(c.Header)))
	}
	if c.Used != (quota.Usage{}) {
		span.SetAttributes(
			attribute.Int64("gen_ai.usage.input_tokens", c.Used.Input),
			attribute.Int64("gen_ai.usage.output_tokens", c.Used.Output),
			attribute.Bool("headway.usage_reported", c.Reported),
		)
	}
	if c.Ending != egress.Complete || c.Status >= 400 {
		span.SetStatus(codes.Error, "")
	}
	for i, a := range c.Traced {
		t.attempt(ctx, c.Method, i, a)
	}
}

// attempt sends the span of one attempt, the call's in ctx. Source: the semantic
// conventions for HTTP client spans.
func (t *Telemetry) attempt(ctx context.Context, method string, resent int, a egress.Attempt) {
	if own := read(a.Span); own.IsValid() {
		ctx = context.WithValue(ctx, idsKey{}, own)
	}
	_, span := t.tracer.Start(ctx, method, trace.WithTimestamp(a.Began), trace.WithSpanKind(trace.SpanKindClient))
	defer span.End(trace.WithTimestamp(a.Began.Add(a.Whole)))
	span.SetAttributes(
		attribute.String("http.request.method", method), attribute.String("server.address", a.Host), attribute.String("url.full", a.URL))
	if port, err := strconv.Atoi(a.Port); err == nil {
		span.SetAttributes(attribute.Int("server.port", port))
	}
	if a.Status > 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", a.Status))
	}
	if resent > 0 {
		span.SetAttributes(attribute.Int("http.request.resend_count", resent))
	}
	if a.Class != reason.OK {
		span.SetAttributes(attribute.String("error.type", a.Class.String()))
		span.SetStatus(codes.Error, "")
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
