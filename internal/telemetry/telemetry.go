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
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
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
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Sample == 0 {
		c.Sample = 1
	}
	if c.Service == "" {
		c.Service = DefaultService
	}
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

// Stop sends what is left, within the context's time.
func (t *Telemetry) Stop(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}
