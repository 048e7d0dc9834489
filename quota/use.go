package quota

import (
	"fmt"
	"math"
	"time"
)

// DayUse is what one scope has used of a day: what a store keeps, so that a
// restart does not hand the budget out twice. Open permits count with their
// estimate.
type DayUse struct {
	Scope Scope `json:"scope,omitzero"`
	// Day is the day as 2006-01-02, as Zone counts it.
	Day    string `json:"day"`
	Zone   string `json:"zone"`
	Tokens int64  `json:"tokens"`
	Calls  int64  `json:"calls"`
}

// TakeChangedUse appends the use of the scopes that changed since the last call.
func (g *Governor) TakeChangedUse(now time.Duration, dst []DayUse) []DayUse {
	now = g.tick(now)
	for i, n := range g.changed {
		n.dirty = false
		g.changed[i] = nil
		dst = append(dst, g.use(n, now))
	}
	g.changed = g.changed[:0]
	return dst
}

// Use appends today's use of every scope that has any, in a fixed order.
func (g *Governor) Use(now time.Duration, dst []DayUse) []DayUse {
	now = g.tick(now)
	for n := range g.eachNode {
		if u := g.use(n, now); u.Tokens > 0 || u.Calls > 0 {
			dst = append(dst, u)
		}
	}
	return dst
}

func (g *Governor) use(n *node, now time.Duration) DayUse {
	n.sync(now)
	return DayUse{n.scope, dayName(n.day), n.limits.calendar.name, n.dayTokens, n.dayCalls}
}

// Restore adds what a store kept of today's use; call it once, before the first
// request. Use of an earlier day, or of a scope or model that the configuration
// no longer has, is left out. Use of a later day counts as today's: the clock
// was set back. An error names the entry; then nothing was restored.
func (g *Governor) Restore(now time.Duration, kept []DayUse) error {
	now = g.tick(now)
	days := make([]int64, len(kept))
	for i, u := range kept {
		field := fmt.Sprintf("use[%d]", i)
		day, err := dayNumber(u.Day)
		switch {
		case err != nil:
			return &FieldError{field + ".day", fmt.Sprintf("%.20q", u.Day), "a day such as 2006-01-02"}
		case u.Tokens < 0 || u.Tokens > math.MaxInt64/4:
			return &FieldError{field + ".tokens", fmt.Sprint(u.Tokens), "from 0 to 2e18"}
		case u.Calls < 0 || u.Calls > math.MaxInt64/4:
			return &FieldError{field + ".calls", fmt.Sprint(u.Calls), "from 0 to 2e18"}
		case len(u.Scope.Tenant) > maxName || len(u.Scope.Agent) > maxName:
			return &FieldError{field, "a name that is too long", fmt.Sprintf("at most %d bytes", maxName)}
		}
		days[i] = day
	}
	for i, u := range kept {
		n := g.nodeOf(u.Scope, now)
		if n == nil {
			continue
		}
		n.sync(now)
		if days[i] < n.day {
			continue
		}
		n.dayTokens += u.Tokens
		n.dayCalls += u.Calls
		g.mark(n)
		g.reconsider(n, now)
	}
	return nil
}

// nodeOf finds the node of a scope, making tenants and agents as a request
// would; nil when there is none.
func (g *Governor) nodeOf(s Scope, now time.Duration) *node {
	a := g.root
	if s.Tenant != "" || s.Agent != "" {
		a = g.child(a, s.Tenant, g.config.MaxTenants, now)
		if s.Agent != "" {
			a = g.child(a, s.Agent, g.config.MaxAgents, now)
		}
	}
	if s.Model == "" {
		return a.node
	}
	return a.byModel[s.Model]
}
