package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/egress"
)

// Options are what is read when Prometheus asks. The functions are called by
// several goroutines at once; a nil one has no series.
type Options struct {
	// Version is the program's.
	Version string
	// Providers are the proxied providers.
	Providers func() []egress.ProviderStatus
	// Quotas are the quotas by name.
	Quotas func() map[string]Quota
	// Connections are the rates of this process's connections.
	Connections func() []headway.Snapshot
	// Collections are what is stored of collections.
	Collections func() ([]collect.ConnectionStatus, error)
	// Log gets what goes wrong while metrics are gathered. Default: none.
	Log *slog.Logger
}

// Metrics are a daemon's. Make them with [New].
type Metrics struct {
	registry *prometheus.Registry
	log      *slog.Logger
	calls    calls
	reloads  *prometheus.CounterVec
	models   *perProvider
	tenants  *perProvider
}

// What is read when Prometheus asks describes nothing in advance (Describe is
// empty): which series there are depends on what is known by then.

// New makes the metrics of one daemon, in a registry of their own.
func New(o Options) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), log: o.Log, models: newPerProvider(MaxModels), tenants: newPerProvider(MaxTenants)}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "headway_build_info", Help: "1, with the program's version."}, []string{"version"})
	info.WithLabelValues(o.Version).Set(1)
	m.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headway_reloads_total", Help: "Reloads of the configuration, by how they ended: ok or failed."}, []string{"result"})
	m.reloads.WithLabelValues("ok")
	m.reloads.WithLabelValues("failed")
	folded := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "headway_labels_folded_total", Help: "Calls whose model or tenant is counted under \"other\", because too many names came.",
	}, func() float64 { return float64(m.models.lost() + m.tenants.lost()) })
	m.registry.MustRegister(info, m.reloads, folded, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.calls.register(m.registry)
	if o.Providers != nil {
		m.registry.MustRegister(providers{o.Providers})
	}
	if o.Quotas != nil {
		m.registry.MustRegister(quotas{o.Quotas})
	}
	if o.Connections != nil {
		m.registry.MustRegister(connections{o.Connections})
	}
	if o.Collections != nil {
		fail := prometheus.NewCounter(prometheus.CounterOpts{Name: "headway_collections_unread_total", Help: "How often the stored state of collections could not be read."})
		m.registry.MustRegister(fail, collections{o.Collections, fail})
	}
	return m
}

// Reloaded counts a reload of the configuration.
func (m *Metrics) Reloaded(err error) {
	if err != nil {
		m.reloads.WithLabelValues("failed").Inc()
		return
	}
	m.reloads.WithLabelValues("ok").Inc()
}

// Handler serves the metrics in Prometheus' formats. What cannot be gathered is
// left out and logged; the rest is served.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: complaints{m.log}, MaxRequestsInFlight: 4, EnableOpenMetrics: true,
	})
}

// Gatherer gives the metrics to another exporter.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

type complaints struct{ log *slog.Logger }

func (c complaints) Println(v ...any) { c.log.Warn("metrics cannot be gathered", slog.Any("error", v)) }
