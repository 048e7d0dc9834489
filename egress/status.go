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

// ProviderStatus is the state of a provider at an instant, with totals since the proxy was
// made.
type ProviderStatus struct {
	Name string `json:"name"`
	API  string `json:"api"`
	// InFlight counts calls under way, including Waiting, the calls that wait for quota or
	// pacing.
	InFlight int64 `json:"in_flight"`
	Waiting  int64 `json:"waiting"`
	// Calls counts calls that ended, Attempts the attempts sent upstream for them.
	Calls    int64 `json:"calls"`
	Attempts int64 `json:"attempts"`
	// Refused counts the calls that the proxy itself refused, by code, or by reason where
	// there is no code.
	Refused map[string]int64 `json:"refused"`
	// Throttles counts attempts that the provider refused for rate or load.
	Throttles int64 `json:"throttles"`
	// Failures counts attempts that failed otherwise, or broke off.
	Failures int64 `json:"failures"`
	// Unsettled counts permits whose use could not be recorded, because they had expired.
	Unsettled int64 `json:"unsettled"`
	// BoundBy is the total time of calls that ended, divided by cause.
	BoundBy reason.Bounds `json:"bound_by"`
	// Tokens counts the tokens that the calls used.
	Tokens quota.Usage `json:"tokens"`
	// Circuits are the breakers that are not closed.
	Circuits []CircuitStatus `json:"circuits"`
	// Limits are the known limits: those of the quota for all calls and for models, then
	// those of the pacing.
	Limits []event.Limit `json:"limits"`
	// Keys has the state of each key of a provider with several keys; each has its own rate
	// and limits.
	Keys []KeyStatus `json:"keys,omitempty"`
	// Pacing is the provider's rate; nil without pacing or with several keys.
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

// maxCodes is larger than the number of codes and reasons.
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

// Status returns the state of every provider, in the order of the configuration.
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
			s.Limits = budgets(new(q.Config()), q)
		}
		if s.Keys = u.keyStatus(); s.Keys == nil && u.paced() {
			s.Pacing = new(u.credentials[0].Pacing.Snapshot())
			s.Limits = append(s.Limits, s.Pacing.Limits...)
		}
		all = append(all, s)
	}
	return all
}
