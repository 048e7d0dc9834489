package quota

import "time"

// Overrun tells that the provider refused an open permit's call for its rate,
// although it was within the limits: then a minute's worth does not pass in one
// burst there. From now on the global limits and the model's are spread (see
// Limits.Spread), whatever bursts they were given, until the configuration is
// replaced. What is used stays used. It reports whether that changed anything.
func (g *Governor) Overrun(now time.Duration, id Permit) (changed bool) {
	now = g.tick(now)
	h := g.permits.find(id)
	if h == nil || h.end != open {
		return false
	}
	for _, n := range h.route.nodes {
		if n.common() && !n.retired && g.spreadOut(n, now) {
			changed = true
		}
	}
	if changed {
		g.root.forgetRoutes()
		for _, w := range g.waiting {
			g.reroute(w)
		}
		g.setBurst()
		g.retry = now
	}
	return changed
}

// spreadOut spreads the limits of one scope.
func (g *Governor) spreadOut(n *node, now time.Duration) bool {
	l := g.config.Global
	if n.scope.Model != "" {
		l = g.config.Models[n.scope.Model].Limits
	}
	l.Burst, l.TokenBurst, l.InputTokenBurst, l.OutputTokenBurst, l.Spread = 0, 0, 0, 0, true
	p := compile(&l, n.limits.calendar)
	if p.mask == 0 || p.refill == n.limits.refill {
		return false
	}
	n.configure(p, now)
	g.reconsider(n, now)
	return true
}

// forgetRoutes has the paths through a found again.
func (a *account) forgetRoutes() {
	a.routes = nil
	for _, c := range a.children {
		c.forgetRoutes()
	}
}
