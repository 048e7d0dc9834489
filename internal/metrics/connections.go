package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-go/headway"
)

// connections reads the pacing of connections when Prometheus asks.
type connections struct{ all func() []headway.Snapshot }

var (
	interval  = describe("headway_connection_interval_seconds", "The time between two attempts; no sample until a response has come back.", "connection", "law")
	ceiling   = describe("headway_connection_ceiling_seconds", "The shortest interval that the owner allows.", "connection", "law")
	backoffAt = describe("headway_connection_last_backoff_timestamp_seconds", "When the rate was last cut, and why.", "connection", "reason")
	circuit   = describe("headway_connection_circuit", "1 for the state that the circuit breaker is in.", "connection", "state")
	retryAt   = describe("headway_connection_retry_timestamp_seconds", "When a cooldown or an open circuit ends; no sample when there is none.", "connection")
	inFlight  = describe("headway_connection_in_flight", "Attempts that are under way.", "connection")
	queued    = describe("headway_connection_waiting", "Attempts that wait for their turn.", "connection")
	expired   = describe("headway_connection_permits_expired_total", "Permits that nobody settled in time.", "connection")
)

func (c connections) Describe(chan<- *prometheus.Desc) {}

func (c connections) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.all() {
		if s.Rate != nil {
			ch <- gauge(interval, s.Rate.CurrentIntervalMS/1000, s.Connection, s.Law)
			ch <- gauge(ceiling, s.Rate.CeilingIntervalMS/1000, s.Connection, s.Law)
			if b := s.Rate.LastBackoff; b != nil {
				ch <- gauge(backoffAt, float64(b.At.UnixMilli())/1000, s.Connection, b.Reason.String())
			}
		}
		ch <- gauge(circuit, 1, s.Connection, s.Circuit)
		if !s.RetryAt.IsZero() {
			ch <- gauge(retryAt, float64(s.RetryAt.UnixMilli())/1000, s.Connection)
		}
		ch <- gauge(inFlight, float64(s.InFlight), s.Connection)
		ch <- gauge(queued, float64(s.Waiting), s.Connection)
		ch <- counter(expired, float64(s.Expired), s.Connection)
	}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}
