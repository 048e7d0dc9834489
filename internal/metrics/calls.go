package metrics

import (
	"cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/reason"
)

// calls count what the proxy did, as each call ends.
type calls struct {
	total, tokens, refusals, throttles, attempts, bound *prometheus.CounterVec
	wait, header, whole                                 *prometheus.HistogramVec
}

// Calls of language models take from milliseconds to many minutes.
var seconds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600}

func (c *calls) register(r prometheus.Registerer) {
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	time := func(name, help string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, []string{"provider"})
		r.MustRegister(v)
		return v
	}
	c.total = count("headway_calls_total", "Calls that ended, by how: ok, rejected, throttled, overloaded, failed, refused or gone (the client went away).", "provider", "model", "tenant", "outcome")
	c.tokens = count("headway_tokens_total", "Tokens that calls were charged for; cached ones are a part of the input.", "provider", "model", "tenant", "kind")
	c.refusals = count("headway_refusals_total", "Calls that the proxy refused itself, by code, or by reason where there is no code.", "provider", "code")
	c.attempts = count("headway_upstream_attempts_total", "Requests that were sent upstream.", "provider")
	c.throttles = count("headway_upstream_throttles_total", "Requests that the provider refused for rate or load.", "provider")
	c.bound = count("headway_call_bound_seconds_total", "The time of calls, by what kept them from being faster: a wait for the owner's ceiling, a limit of the provider and so on, latency, or processing, which is the rest.", "provider", "bound")
	c.wait = time("headway_call_wait_seconds", "How long calls waited for their turn, refused ones included.")
	c.header = time("headway_call_header_seconds", "From sending a request to the head of its response.")
	c.whole = time("headway_call_seconds", "How long calls took as a whole.")
}

// Unrouted stands for the provider of calls that named none that exists.
const Unrouted = "unknown"

// Call counts a call that ended.
func (m *Metrics) Call(c egress.CallLog) {
	name := cmp.Or(c.Provider, Unrouted)
	// A model that was refused is not a model of the provider's: it may be anything.
	model, tenant := "", ""
	if c.Attempts > 0 {
		model = m.models.label(name, c.Model)
	}
	if c.Tenant != "" {
		tenant = m.tenants.label(name, c.Tenant)
	}
	m.calls.total.WithLabelValues(name, model, tenant, outcome(&c)).Inc()
	if c.Ending == egress.Refused {
		code := cmp.Or(c.Code, c.Reason.String())
		m.calls.refusals.WithLabelValues(name, code).Inc()
	}
	m.calls.wait.WithLabelValues(name).Observe(c.Wait.Seconds())
	for by, d := range c.BoundBy {
		if d > 0 {
			m.calls.bound.WithLabelValues(name, reason.Bound(by).String()).Add(d.Seconds())
		}
	}
	if c.Attempts == 0 {
		return
	}
	m.calls.attempts.WithLabelValues(name).Add(float64(c.Attempts))
	m.calls.throttles.WithLabelValues(name).Add(float64(c.Throttled))
	m.calls.whole.WithLabelValues(name).Observe(c.Whole.Seconds())
	if c.Header > 0 {
		m.calls.header.WithLabelValues(name).Observe(c.Header.Seconds())
	}
	for kind, n := range map[string]int64{"input": c.Used.Input, "cached": c.Used.Cached, "output": c.Used.Output, "reasoning": c.Used.Reasoning} {
		if n > 0 {
			m.calls.tokens.WithLabelValues(name, model, tenant, kind).Add(float64(n))
		}
	}
}

// outcome is how a call ended, in one word of a closed set.
func outcome(c *egress.CallLog) string {
	switch c.Ending {
	case egress.Refused:
		return "refused"
	case egress.ClientGone:
		return "gone"
	case egress.Unreachable, egress.TimedOut, egress.BrokenOff, egress.Cut, egress.Panicked:
		return "failed"
	case egress.Complete:
	}
	switch {
	case c.Class == reason.Throttled:
		return "throttled"
	case c.Class == reason.Overloaded:
		return "overloaded"
	case c.Class.Success():
		return "ok"
	case c.Status >= 500:
		return "failed"
	}
	return "rejected"
}

// providers are read when Prometheus asks.
type providers struct {
	all func() []egress.ProviderStatus
}

var (
	callsInFlight  = describe("headway_calls_in_flight", "Calls that are under way, those that wait included.", "provider")
	callsWaiting   = describe("headway_calls_waiting", "Calls that wait for their turn.", "provider")
	circuitsOpen   = describe("headway_circuits_open", "Circuit breakers of the provider, by model and path, that are not closed.", "provider")
	callsUnsettled = describe("headway_calls_unsettled_total", "Calls whose use could not be recorded, because their permit had expired.", "provider")
)

func (p providers) Describe(chan<- *prometheus.Desc) {}

func (p providers) Collect(ch chan<- prometheus.Metric) {
	for _, s := range p.all() {
		ch <- gauge(callsInFlight, float64(s.InFlight), s.Name)
		ch <- gauge(callsWaiting, float64(s.Waiting), s.Name)
		ch <- gauge(circuitsOpen, float64(len(s.Circuits)), s.Name)
		ch <- counter(callsUnsettled, float64(s.Unsettled), s.Name)
	}
}
