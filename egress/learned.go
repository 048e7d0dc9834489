package egress

import "github.com/headway-go/headway/internal/estimate"

// Estimates are what was learned of what calls use.
type Estimates = estimate.Learned

// Estimates are, by provider and model, what was learned of what calls use. It is
// what [Proxy.RestoreEstimates] takes.
func (p *Proxy) Estimates() map[string]map[string]Estimates {
	all := map[string]map[string]Estimates{}
	for _, u := range p.table.Load().order {
		if learned := u.estimator.Learned(); len(learned) > 0 {
			all[u.Name] = learned
		}
	}
	return all
}

// RestoreEstimates takes over what a former proxy had learned, so that the first
// calls, and those that a crash cuts, count by what such calls use. What is not
// valid, or of providers that this proxy does not have, is left out.
func (p *Proxy) RestoreEstimates(all map[string]map[string]Estimates) {
	for name, models := range all {
		if u := p.table.Load().upstreams[name]; u != nil {
			u.estimator.Restore(models)
		}
	}
}
