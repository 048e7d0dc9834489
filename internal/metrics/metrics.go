// Package metrics shows a daemon's state to Prometheus: calls through the
// proxy, quotas, the pacing of connections, and collections. It only reads; what
// nobody knows yet has no sample rather than a zero.
//
// Labels are bounded: models, pools and tenants come from outside, so that only the
// first [MaxModels] and [MaxTenants] of a provider get series of their own, and
// the rest is counted under [Others]. No credential, address or content is ever
// a label.
//
// Calls are counted as they end ([Metrics.Call], which takes no lock across user
// code); everything else is read when Prometheus asks. Safe for concurrent use.
// Time is real. For single calls in order, take the events or traces instead.
package metrics

import (
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/fleet"
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
	// Fleet returns the credentials that processes share through this one.
	Fleet func() []fleet.Credential
	// Log gets what goes wrong while metrics are gathered. Default: none.
	Log *slog.Logger
}

// Metrics are a daemon's. Make them with [New].
type Metrics struct {
	registry *prometheus.Registry
	log      *slog.Logger
	calls    calls
	reloads  *prometheus.CounterVec
	dropped  *prometheus.CounterVec
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
	m.dropped = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headway_webhook_events_dropped_total", Help: "Events that a webhook did not get: it was too slow, or a delivery failed for good. Webhooks are counted from 0, as the file has them."}, []string{"webhook"})
	m.registry.MustRegister(info, m.reloads, m.dropped, folded, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.calls.register(m.registry)
	if o.Providers != nil {
		m.registry.MustRegister(providers{o.Providers})
	}
	if o.Quotas != nil {
		m.registry.MustRegister(quotas{o.Quotas})
	}
	if o.Connections != nil {
		m.registry.MustRegister(connections{o.Connections, newPerProvider(MaxModels)})
	}
	if o.Fleet != nil {
		m.registry.MustRegister(shared{o.Fleet})
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

// HookDropped counts events that the webhook at a position of the file did not get; 0 shows
// the webhook.
func (m *Metrics) HookDropped(position int, n uint64) {
	m.dropped.WithLabelValues(strconv.Itoa(position)).Add(float64(n))
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

// The bounds of labels from outside, for each provider.
const (
	MaxModels  = 100
	MaxTenants = 100
	// Others stands for what came after the bound was reached.
	Others = "other"
)

// bound lets the first few values of a label through.
type bound struct {
	limit int

	mu     sync.RWMutex
	known  map[string]struct{}
	folded uint64
}

func newBound(limit int) *bound { return &bound{limit: limit, known: map[string]struct{}{}} }

// label is the value itself while there is room, or Others.
func (b *bound) label(v string) string {
	v = strings.ToValidUTF8(v, "\uFFFD") // any other is a panic of the client library
	b.mu.RLock()
	_, ok := b.known[v]
	full := len(b.known) >= b.limit
	b.mu.RUnlock()
	if ok {
		return v
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.known[v]; ok {
		return v
	}
	if full || len(b.known) >= b.limit {
		b.folded++
		return Others
	}
	b.known[v] = struct{}{}
	return v
}

// lost is how often a value got no label of its own.
func (b *bound) lost() uint64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.folded
}

// perProvider bounds a label for each provider apart. There are as many as the
// configuration names.
type perProvider struct {
	limit int

	mu sync.Mutex
	of map[string]*bound
}

func newPerProvider(limit int) *perProvider {
	return &perProvider{limit: limit, of: map[string]*bound{}}
}

func (p *perProvider) label(provider, v string) string {
	p.mu.Lock()
	b := p.of[provider]
	if b == nil {
		b = newBound(p.limit)
		p.of[provider] = b
	}
	p.mu.Unlock()
	return b.label(v)
}

func (p *perProvider) lost() (n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.of {
		n += b.lost()
	}
	return n
}

var (
	limitSize  = describe("headway_connection_limit", "A limit, in units a window or in requests under way; no sample while its size is unknown.", "connection", "kind", "unit", "window_seconds", "pool", "provenance")
	limitTrust = describe("headway_connection_limit_confidence", "How sure a limit is, from 0 to 1; 1 for one that the owner set.", "connection", "kind", "unit", "window_seconds", "pool", "provenance")
)

// labels tell the limits of one connection apart.
type labels struct {
	kind, unit, window, pool string
	provenance               event.Provenance
}

// limits are those of one connection: of several with the same labels the tightest.
func limits(ch chan<- prometheus.Metric, connection string, all []event.Limit) {
	tightest := make(map[labels]event.Limit, len(all))
	for _, l := range all {
		of := labels{l.Kind, l.Unit, strconv.FormatFloat(math.Round(l.WindowS), 'f', -1, 64), l.Pool, l.Provenance}
		if was, ok := tightest[of]; !ok || was.Size == 0 || l.Size > 0 && l.Size < was.Size {
			tightest[of] = l
		}
	}
	for of, l := range tightest {
		values := []string{connection, of.kind, of.unit, of.window, of.pool, string(of.provenance)}
		if l.Size > 0 {
			ch <- gauge(limitSize, l.Size, values...)
		}
		ch <- gauge(limitTrust, l.Confidence, values...)
	}
}
