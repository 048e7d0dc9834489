package daemon

import (
	"context"
	"strings"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/internal/metrics"
	"github.com/headway-go/headway/internal/telemetry"
)

// gatherTime bounds how long the store is read for one look of Prometheus.
const gatherTime = 5 * time.Second

// measure makes the metrics of what this daemon has.
func (d *Daemon) measure() *metrics.Metrics {
	return metrics.New(metrics.Options{
		Version:   d.o.Version,
		Providers: func() []egress.ProviderStatus { return d.proxy.Status() },
		Quotas: func() map[string]metrics.Quota {
			all := map[string]metrics.Quota{}
			for name, q := range d.live.Load().quotas {
				all[name] = q
			}
			return all
		},
		Connections: func() (all []headway.Snapshot) {
			for _, one := range d.rates() {
				all = append(all, one.Snapshot)
			}
			return all
		},
		Collections: func() ([]collect.ConnectionStatus, error) {
			ctx, done := context.WithTimeout(context.Background(), gatherTime)
			defer done()
			return d.archive.Connections(ctx)
		},
		Log: d.log,
	})
}

// report begins to send to a collector, if one is configured.
func (d *Daemon) report(ctx context.Context) (err error) {
	c := d.config.Telemetry
	if c == nil {
		return nil
	}
	headers := make(map[string]string, len(c.Headers))
	for name, secret := range c.Headers {
		headers[name] = secret.Reveal()
	}
	sample := c.Sample
	if sample == 0 {
		sample = -1 // none; there, 0 is the default
	}
	d.telemetry, err = telemetry.Start(ctx, telemetry.Config{
		Endpoint: c.Endpoint, Headers: headers, Interval: c.Interval, Sample: sample, Version: d.o.Version,
	}, d.metrics.Gatherer())
	return err
}

// flushTime bounds how long the end waits for a collector.
const flushTime = 5 * time.Second

// unreport sends what is left.
func (d *Daemon) unreport() {
	if d.telemetry == nil {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), flushTime)
	defer done()
	if err := d.telemetry.Stop(ctx); err != nil {
		d.log.Warn("telemetry was not sent to its end")
	}
}

// recordCall counts, logs and traces each call when it is over.
func (d *Daemon) recordCall(c egress.CallLog) {
	// A client's words may be any bytes, or cut within a character: neither labels
	// nor spans take that.
	for _, word := range [...]*string{&c.Model, &c.Budget, &c.Tenant, &c.Agent} {
		*word = strings.ToValidUTF8(*word, "\uFFFD")
	}
	d.metrics.Call(c)
	if d.telemetry != nil {
		d.telemetry.Call(c)
	}
	if d.o.OnCall != nil {
		d.o.OnCall(c)
	}
}
