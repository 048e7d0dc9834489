package egress

import (
	"maps"
	"sync"
	"sync/atomic"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// ProviderStatus is one provider at an instant, with totals since the proxy was made.
type ProviderStatus struct {
	Name string `json:"name"`
	API  string `json:"api"`
	// InFlight are calls under way, those that wait included; Waiting are those
	// that wait for quota or pacing.
	InFlight int64 `json:"in_flight"`
	Waiting  int64 `json:"waiting"`
	// Calls are those that ended, Attempts what was sent upstream for them.
	Calls    int64 `json:"calls"`
	Attempts int64 `json:"attempts"`
	// Refused are the calls that the proxy itself refused, by code, or by reason
	// where there is no code.
	Refused map[string]int64 `json:"refused"`
	// Throttles are attempts that the provider refused for rate or load.
	Throttles int64 `json:"throttles"`
	// Failures are attempts that failed otherwise, or broke off.
	Failures int64 `json:"failures"`
	// Unsettled are permits whose use could not be recorded, because they had
	// expired before.
	Unsettled int64 `json:"unsettled"`
	// BoundBy is the time of calls that ended, by what kept them from being faster.
	BoundBy reason.Bounds `json:"bound_by"`
	// Tokens are what the calls used.
	Tokens quota.Usage `json:"tokens"`
	// Circuits are the breakers that are not closed.
	Circuits []CircuitStatus `json:"circuits"`
	// Limits are what is known of limits: the quota's for all calls and for models,
	// then those of the pacing.
	Limits []event.Limit `json:"limits"`
	// Keys are the provider's keys where it has several; then each has a rate and limits of
	// its own.
	Keys []KeyStatus `json:"keys,omitempty"`
	// Pacing is the connection's rate; nil when it is not paced, or has several keys.
	Pacing *headway.Snapshot `json:"pacing"`
}

// counters are the totals of one provider.
type counters struct {
	inFlight, waiting, calls, attempts, throttles, failures, unsettled atomic.Int64
	input, cached, output, reasoning                                   atomic.Int64

	mu      sync.Mutex
	refused map[string]int64
	boundBy reason.Bounds
}

func (c *counters) bound(b *reason.Bounds) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range b {
		c.boundBy[i] += d
	}
}

// maxCodes is more than there are codes and reasons.
const maxCodes = 64

func (c *counters) refuse(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = map[string]int64{}
	}
	if _, known := c.refused[code]; known || len(c.refused) < maxCodes {
		c.refused[code]++
	}
}

func (c *counters) use(u quota.Usage) {
	c.input.Add(u.Input)
	c.cached.Add(u.Cached)
	c.output.Add(u.Output)
	c.reasoning.Add(u.Reasoning)
}

// Status is every provider at this instant, in the order of the configuration.
func (p *Proxy) Status() []ProviderStatus {
	t := p.table.Load()
	all := make([]ProviderStatus, 0, len(t.order))
	for _, u := range t.order {
		c := &u.counters
		s := ProviderStatus{
			Name: u.Name, API: string(u.Description.API),
			InFlight: c.inFlight.Load(), Waiting: c.waiting.Load(), Calls: c.calls.Load(), Attempts: c.attempts.Load(),
			Throttles: c.throttles.Load(), Failures: c.failures.Load(), Unsettled: c.unsettled.Load(),
			Tokens:  quota.Usage{Input: c.input.Load(), Cached: c.cached.Load(), Output: c.output.Load(), Reasoning: c.reasoning.Load()},
			Refused: map[string]int64{}, Circuits: u.circuits.status(&u.Circuit, p.origin),
		}
		c.mu.Lock()
		maps.Copy(s.Refused, c.refused)
		s.BoundBy = c.boundBy
		c.mu.Unlock()
		if q, ok := u.Approver.(configured); ok {
			s.Limits = budgets(new(q.Config()))
		}
		if s.Keys = u.keyStatus(); s.Keys == nil && u.paced() {
			s.Pacing = new(u.credentials[0].Pacing.Snapshot())
			s.Limits = append(s.Limits, s.Pacing.Limits...)
		}
		all = append(all, s)
	}
	return all
}
