package governor

import (
	"time"

	"github.com/headway-go/headway/quota"
)

// Statistics are totals since [New], for metrics.
type Statistics struct {
	quota.Statistics
	// Models are the approvals and refusals of each model.
	Models map[string]Calls `json:"models"`
	// MeanApprovalLatency is how long an approval took on average, from the call
	// to its return: lock, queue and store included. Zero before the first.
	MeanApprovalLatency time.Duration `json:"meanApprovalLatencyNs"`
	// EventsLost were overwritten before a slow subscriber got them.
	EventsLost uint64 `json:"eventsLost"`
	// Saves of the daily use that succeeded, and that failed.
	Saves       int64 `json:"saves"`
	SavesFailed int64 `json:"savesFailed"`
}

// Calls are how many were approved and denied.
type Calls struct {
	Approved int64 `json:"approved"`
	Denied   int64 `json:"denied"`
}

// Snapshot is the state at this instant; see [quota.Snapshot].
func (g *Governor) Snapshot() (s quota.Snapshot) {
	g.change(func(now time.Duration) { s = g.core.Snapshot(now) })
	return s
}

// Statistics are the totals at this instant.
func (g *Governor) Statistics() Statistics {
	s := g.Snapshot()
	t := Statistics{
		Statistics: s.Statistics, Models: make(map[string]Calls, len(s.Models)),
		Saves: g.saves.Load(), SavesFailed: g.saveFailed.Load(),
	}
	for name, m := range s.Models {
		t.Models[name] = Calls{m.Ledger.Approved, m.Ledger.Denied}
	}
	if n := g.approvals.Load(); n > 0 {
		t.MeanApprovalLatency = time.Duration(g.latencyTold.Load() / n)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t.EventsLost = g.lost
	return t
}

// Factor is the scale factor for the decision interval of an agent on this path;
// see [quota.Governor.Factor].
func (g *Governor) Factor(r quota.Request) (factor float64) {
	g.change(func(now time.Duration) { factor = g.core.Factor(now, r) })
	return factor
}

// Forecast looks ahead for each budget of a scope; see [quota.Governor.Forecast].
func (g *Governor) Forecast(s quota.Scope) (f []quota.Forecast) {
	g.change(func(now time.Duration) { f = g.core.Forecast(now, s) })
	return f
}

// Config is the configuration in force, with its defaults. Its maps must not be
// changed.
func (g *Governor) Config() quota.Config {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.Config()
}
