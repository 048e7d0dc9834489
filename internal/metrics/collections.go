package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-go/headway/collect"
)

// collections reads the stored state of collections when Prometheus asks.
type collections struct {
	all  func() ([]collect.ConnectionStatus, error)
	fail prometheus.Counter
}

var (
	owed        = describe("headway_collection_owed", "Work that is owed, as gaps.", "connection", "reason")
	quarantined = describe("headway_collection_quarantined", "Gaps that nobody works off until somebody releases them.", "connection")
	items       = describe("headway_collection_items", "Items that are known.", "connection", "stream")
	running     = describe("headway_collection_running", "1 while somebody collects.", "connection")
	lastState   = describe("headway_collection_last_run_state", "1 for how the newest run ended, or stands.", "connection", "state", "reason")
	lastStart   = describe("headway_collection_last_run_start_timestamp_seconds", "When the newest run began.", "connection")
	lastEnd     = describe("headway_collection_last_run_end_timestamp_seconds", "When the newest run ended; no sample while it goes on.", "connection")
	attempts    = describe("headway_collection_last_run_attempts", "Requests that the newest run sent.", "connection")
	throttled   = describe("headway_collection_last_run_throttled", "Those that the provider refused for rate or load.", "connection")
	boundBy     = describe("headway_collection_last_run_bound_seconds", "The newest run's time, by what kept it from being faster.", "connection", "bound")
	attention   = describe("headway_collection_attention", "1 when somebody should look: the source stays under pressure.", "connection")
)

func (c collections) Describe(chan<- *prometheus.Desc) {}

func (c collections) Collect(ch chan<- prometheus.Metric) {
	all, err := c.all()
	if err != nil {
		c.fail.Inc() // what is not known has no samples
		return
	}
	for _, s := range all {
		for why, n := range s.Owed {
			ch <- gauge(owed, float64(n), s.Name, why)
		}
		for stream, n := range s.Items {
			ch <- gauge(items, float64(n), s.Name, stream)
		}
		ch <- gauge(quarantined, float64(s.Quarantined), s.Name)
		ch <- gauge(running, truth(s.Holder != ""), s.Name)
		ch <- gauge(attention, truth(s.Cooldown.NeedsAttention), s.Name)
		if r := s.LastRun; r != nil {
			ch <- gauge(lastState, 1, s.Name, string(r.State), r.Reason.String())
			ch <- gauge(lastStart, float64(r.Started.UnixMilli())/1000, s.Name)
			if !r.Ended.IsZero() {
				ch <- gauge(lastEnd, float64(r.Ended.UnixMilli())/1000, s.Name)
			}
			ch <- gauge(attempts, float64(r.Attempts), s.Name)
			ch <- gauge(throttled, float64(r.Throttled), s.Name)
			for _, share := range r.BoundBy.Shares() {
				ch <- gauge(boundBy, r.BoundBy[share.Bound].Seconds(), s.Name, share.Bound.String())
			}
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
