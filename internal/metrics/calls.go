package metrics

import (
	"cmp"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-go/headway/egress"
	"github.com/headway-go/headway/reason"
)

// calls count what the proxy did, as each call ends.
type calls struct {
	total, tokens, refusals, throttles, attempts, bound *prometheus.CounterVec
	wait, header, whole                                 *prometheus.HistogramVec

	mu sync.Mutex
	of map[group]*series
}

// group is what the calls that share their series have in common. There are as many as there
// are labels, which are bounded.
type group struct{ provider, model, tenant string }

// series are those of a group's calls. They are looked up once rather than with each call,
// which takes longer than counting. One that is nil has no sample yet.
type series struct {
	group
	mu                  sync.Mutex
	total               map[string]prometheus.Counter
	tokens              [4]prometheus.Counter
	bound               [len(reason.Bounds{})]prometheus.Counter
	attempts, throttles prometheus.Counter
	wait, header, whole prometheus.Observer
}

// kinds are those of tokens, in the order of [series].tokens.
var kinds = [4]string{"input", "cached", "output", "reasoning"}

// series returns those of a group.
func (c *calls) series(g group) *series {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.of[g]
	if s == nil {
		s = &series{group: g, total: map[string]prometheus.Counter{}, wait: c.wait.WithLabelValues(g.provider)}
		if c.of == nil {
			c.of = map[group]*series{}
		}
		c.of[g] = s
	}
	return s
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
	if c.Ending == egress.Refused {
		code := cmp.Or(c.Code, c.Reason.String())
		m.calls.refusals.WithLabelValues(name, code).Inc()
	}
	s := m.calls.series(group{name, model, tenant})
	s.mu.Lock()
	defer s.mu.Unlock()
	how := outcome(&c)
	if s.total[how] == nil {
		s.total[how] = m.calls.total.WithLabelValues(name, model, tenant, how)
	}
	s.total[how].Inc()
	s.wait.Observe(c.Wait.Seconds())
	for by, d := range c.BoundBy {
		if d > 0 {
			if s.bound[by] == nil {
				s.bound[by] = m.calls.bound.WithLabelValues(name, reason.Bound(by).String())
			}
			s.bound[by].Add(d.Seconds())
		}
	}
	if c.Attempts == 0 {
		return
	}
	if s.attempts == nil {
		s.attempts, s.throttles = m.calls.attempts.WithLabelValues(name), m.calls.throttles.WithLabelValues(name)
		s.whole = m.calls.whole.WithLabelValues(name)
	}
	s.attempts.Add(float64(c.Attempts))
	s.throttles.Add(float64(c.Throttled))
	s.whole.Observe(c.Whole.Seconds())
	if c.Header > 0 {
		if s.header == nil {
			s.header = m.calls.header.WithLabelValues(name)
		}
		s.header.Observe(c.Header.Seconds())
	}
	for i, n := range [len(kinds)]int64{c.Used.Input, c.Used.Cached, c.Used.Output, c.Used.Reasoning} {
		if n > 0 {
			if s.tokens[i] == nil {
				s.tokens[i] = m.calls.tokens.WithLabelValues(name, model, tenant, kinds[i])
			}
			s.tokens[i].Add(float64(n))
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
