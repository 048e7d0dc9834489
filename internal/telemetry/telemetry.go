// Package telemetry sends what a daemon does to an OpenTelemetry collector, by
// OTLP over HTTP: a span for each call through the proxy and one below it for each
// attempt, and the metrics that Prometheus would read. Nothing is sent unless an endpoint is configured.
//
// A span carries the provider, model, status, waits and tokens, by the semantic
// conventions for HTTP and generative AI where these have a name, and never a
// key, header, query or content; an attempt's has the provider's address and path.
// The trace is that of the client's traceparent field, if there is one.
//
// Spans wait in a bounded queue and are dropped when the collector is slow: a
// call never waits for telemetry. Safe for concurrent use; time is real.
package telemetry

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// Defaults of [Config].
const (
	DefaultInterval = 30 * time.Second
	DefaultService  = "headway"
	// exportTimeout bounds one try to send.
	exportTimeout = 10 * time.Second
)

// Config says where telemetry goes. Zero fields take the defaults.
type Config struct {
	// Endpoint is the collector's base URL, such as http://localhost:4318;
	// /v1/traces and /v1/metrics are put behind its path. Required.
	Endpoint string
	// Headers go with each export, such as an API key. They are never logged.
	Headers map[string]string
	// Interval is the time between two exports of metrics. Default 30 s.
	Interval time.Duration
	// Sample is the share of new traces that is sent, from 0 to 1; a trace that a
	// client began keeps the client's decision. Default 1; negative means none.
	Sample float64
	// Service is the service's name. Default "headway". Version is the program's.
	Service, Version string
}

// Telemetry is the connection to a collector. Make it with [Start]; stop it once.
type Telemetry struct {
	spans   sdktrace.SpanExporter
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	tracer  trace.Tracer
	sampler sdktrace.Sampler
}

// Start begins to send. It does not wait for the collector: one that cannot be
// reached loses what was to be sent, and nothing else. The metrics are those of
// the gatherer. The error names the field that is wrong.
func Start(ctx context.Context, c Config, from prometheus.Gatherer) (*Telemetry, error) {
	base, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https":
		return nil, errors.New("telemetry: endpoint is not an absolute http or https URL, such as http://localhost:4318")
	case base.User != nil || base.RawQuery != "":
		return nil, errors.New("telemetry: endpoint has a user or a query; give credentials as headers")
	case c.Interval < 0 || c.Interval > 0 && c.Interval < time.Second:
		return nil, fmt.Errorf("telemetry: interval is %v, must be at least 1s", c.Interval)
	case c.Sample > 1:
		return nil, fmt.Errorf("telemetry: sample is %v, must be at most 1", c.Sample)
	}
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.Sample = cmp.Or(c.Sample, 1)
	c.Service = cmp.Or(c.Service, DefaultService)
	about := resource.NewSchemaless(
		attribute.String("service.name", c.Service), attribute.String("service.version", c.Version))
	spans, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(base.JoinPath("v1/traces").String()), otlptracehttp.WithHeaders(c.Headers), otlptracehttp.WithTimeout(exportTimeout))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	figures, err := otlpmetrichttp.New(ctx,
		otlpmetrichttp.WithEndpointURL(base.JoinPath("v1/metrics").String()), otlpmetrichttp.WithHeaders(c.Headers), otlpmetrichttp.WithTimeout(exportTimeout))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry: %w", err), spans.Shutdown(ctx))
	}
	sampler := sdktrace.TraceIDRatioBased(max(0, c.Sample))
	t := &Telemetry{
		spans:   spans,
		sampler: sampler,
		traces: sdktrace.NewTracerProvider(
			sdktrace.WithBatcher(spans), sdktrace.WithResource(about), sdktrace.WithIDGenerator(known{}),
			sdktrace.WithSampler(sdktrace.ParentBased(sampler))),
		metrics: sdkmetric.NewMeterProvider(sdkmetric.WithResource(about), sdkmetric.WithReader(
			sdkmetric.NewPeriodicReader(figures, sdkmetric.WithInterval(c.Interval), sdkmetric.WithTimeout(exportTimeout),
				sdkmetric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(from)))))),
	}
	t.tracer = t.traces.Tracer("github.com/headway-go/headway")
	return t, nil
}

// Stop sends what is left, within the context's time. What is not sent by then is lost.
func (t *Telemetry) Stop(ctx context.Context) error {
	err := errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
	if ctx.Err() != nil {
		// Otherwise the rest of the queue would go on being sent, and sent again, for a while.
		_ = t.spans.Shutdown(ctx)
	}
	return err
}

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
		t.attempt(ctx, &c, i, a)
	}
}

// attempt sends the span of one attempt, the call's in ctx. Source: the semantic
// conventions for HTTP client spans.
func (t *Telemetry) attempt(ctx context.Context, c *egress.CallLog, resent int, a egress.Attempt) {
	method := c.Method
	if own := read(a.Span); own.IsValid() {
		ctx = context.WithValue(ctx, idsKey{}, own)
	}
	_, span := t.tracer.Start(ctx, method, trace.WithTimestamp(a.Began), trace.WithSpanKind(trace.SpanKindClient))
	defer span.End(trace.WithTimestamp(a.Began.Add(a.Whole)))
	span.SetAttributes(
		attribute.String("http.request.method", method), attribute.String("server.address", a.Host), attribute.String("url.full", a.URL),
		attribute.Float64("headway.wait_ms", milliseconds(a.Wait)))
	if c.Law != "" {
		span.SetAttributes(attribute.String("headway.law", c.Law))
	}
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
		if p, ok := a.Class.Pressure(); ok {
			span.SetAttributes(attribute.String("headway.reason", p.Reason().String()))
		}
		span.SetStatus(codes.Error, "")
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

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
