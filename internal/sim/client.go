package sim

import (
	"slices"
	"time"

	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/internal/sim/fit"
	"github.com/headway-go/headway/internal/sim/provider"
	"github.com/headway-go/headway/internal/sim/scenario"
)

// work is one request to send.
type work struct {
	since    time.Duration // when it arrived, or became the next in line
	cost     float64
	estimate float64       // of its cost, by the client
	total    time.Duration // the whole latency if it is admitted; drawn at the first attempt
}

// client is one process of a scenario: its work, and how much of it is in flight. Open work
// is drawn when it becomes the next in line, so that the queue of an overloaded client
// takes no memory.
type client struct {
	workload *scenario.Workload
	pool     int // the pool of its work, from 1; 0 without pools
	sampler  *provider.Sampler
	open     bool
	arrived  time.Duration // open: when the newest drawn work arrived
	back     []work        // refused; goes first
	head     work          // the next new work
	drawn    bool          // head is set
	inFlight int
	pending  int // taken, neither admitted nor dropped
}

func newClient(s *scenario.Scenario, seed uint64, i int) client {
	return client{workload: &s.Workload, sampler: provider.NewSampler(s, seed, i), open: s.Workload.Kind == scenario.Open}
}

// newClients returns n clients, starting with number first, each with a part for each pool:
// a client's work for one pool does not wait for its work for another.
func newClients(s *scenario.Scenario, seed uint64, first, n int) []client {
	var all []client
	pools := poolsOf(s)
	for i := range n {
		for k, p := range pools {
			of := s
			if p.Share > 0 {
				part := *s
				part.Workload.Rate.Count *= p.Share
				of = &part
			}
			c := newClient(of, seed, (first+i)*len(pools)+k)
			if p.Share > 0 {
				c.pool = k + 1
			}
			all = append(all, c)
		}
	}
	return all
}

// poolsOf returns the pools with their shares of the work, or a single one if the scenario
// has none.
func poolsOf(s *scenario.Scenario) []scenario.Pool {
	pools := slices.Clone(s.Provider.Pools)
	if len(pools) == 0 {
		return []scenario.Pool{{}}
	}
	sum := 0.0
	for _, p := range pools {
		sum += p.Share
	}
	for i := range pools {
		pools[i].Share /= sum
	}
	return pools
}

// next returns when there is something to send: now, or later for open work.
func (c *client) next(now time.Duration) time.Duration {
	if len(c.back) > 0 {
		return now
	}
	if !c.drawn {
		c.head = work{since: c.workload.Awake(now), cost: c.sampler.Cost()}
		c.head.estimate = c.sampler.Estimate(c.head.cost)
		if c.open {
			c.arrived = c.workload.Awake(later(c.arrived, c.sampler.Gap()))
			c.head.since = c.arrived
		}
		c.drawn = true
	}
	return max(now, c.head.since)
}

// take removes the next work. next must have returned an instant that has been reached.
func (c *client) take() work {
	c.pending++
	if len(c.back) > 0 {
		w := c.back[0]
		c.back = c.back[1:]
		return w
	}
	c.drawn = false
	return c.head
}

// first returns the next work, which stays.
func (c *client) first() *work {
	if len(c.back) > 0 {
		return &c.back[0]
	}
	return &c.head
}

// latency draws the latencies of one attempt. The duration of the work itself is drawn only
// once; otherwise a refusal would be a chance for cheaper work.
func (c *client) latency(w *work) (uplink, total time.Duration) {
	uplink, total = c.sampler.Latency()
	if w.total == 0 {
		w.total = total
	}
	return uplink, max(w.total, 2*uplink)
}

// idleUntil returns when there is work that was not admitted; now if there is some.
func (c *client) idleUntil(now time.Duration) time.Duration {
	if c.pending > 0 || !c.open && c.workload.Pause == 0 {
		return now
	}
	return c.next(now)
}

// giveBack returns work that is to be sent again.
func (c *client) giveBack(w work) {
	c.pending--
	c.back = append(c.back, w)
}

// later returns a sum that saturates.
func later(at, by time.Duration) time.Duration {
	if by > provider.Never-at {
		return provider.Never
	}
	return at + by
}

// pick returns the next client, in turn, with something to send and a free slot; if there
// is none, at is when that may change.
func (l *line) pick(now time.Duration, places int) (c int, at time.Duration) {
	at = pacing.Forever
	for n := range l.clients {
		c := l.turn + n
		if c >= len(l.clients) {
			c -= len(l.clients)
		}
		m := &l.clients[c]
		// A line with one client leaves the bound on attempts in flight to the Core.
		if l.several && m.inFlight >= places {
			continue
		}
		next := m.next(now)
		if next <= now {
			return c, now
		}
		at = min(at, next)
	}
	return -1, at
}

// recorded returns an attempt as a client can record it, without the time at which it
// reached the provider.
func (e *engine) recorded(a *attempt, v provider.Verdict, answered time.Duration) fit.Attempt {
	r := fit.Attempt{Sent: a.sent, Answered: answered, Status: v.Status}
	if a.pool > 0 {
		r.Pool = e.s.Provider.Pools[a.pool-1].Name
	}
	if l := &e.lines[a.line]; e.s.Clients > 1 {
		r.Client = 1 + l.first + int(a.client)/max(1, len(e.s.Provider.Pools))
	}
	switch {
	case v.Admitted:
		r.Fate = fit.Admitted
	case v.Throttled:
		r.Fate = fit.Refused
		if v.HasRetryAfter {
			r.RetryAfter = v.RetryAfter
		}
	}
	return r
}
