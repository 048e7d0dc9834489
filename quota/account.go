package quota

import "time"

// account is a node in the tree of scopes: the root, a tenant, or an agent.
type account struct {
	parent *account
	name   string
	node   *node
	// byModel holds the nodes for its use of one model, if that is limited. At the root
	// they are the models themselves.
	byModel map[string]*node
	// gone holds nodes of models that are no longer configured: their use today counts
	// again when the model comes back.
	gone   map[string]*node
	routes map[string]*route
	weight int64

	children map[string]*account
	order    []*account // the children; hand is the next one to check for eviction
	hand     int

	open int64 // permits and waiters that refer to it
}

// route is the path of a request through its scopes, the global one first.
type route struct {
	account *account
	model   *node
	rule    Charge
	nodes   []*node
	limited []*node  // those of them that have limits
	budgets []uint32 // their numbers in the queue
	clamp   amount   // the smallest capacity on the path, by kind
	window  int64    // the smallest soft budget on the path
	spread  bool     // a scope on it is spread: what is larger than a clamp is owed at once
	shared  bool     // the account stands for those without a scope of their own
}

// child returns the named account below a, making it if needed. At most bound accounts
// are kept besides the shared one and those that the configuration names. If none can be
// evicted, child returns the shared account.
func (g *Governor) child(a *account, name string, bound int64, now time.Duration) *account {
	if c := a.children[name]; c != nil {
		return c
	}
	if int64(len(a.order)) >= bound && name != shared && !g.named(a, name) && !g.evict(a, now) {
		return g.child(a, shared, bound, now)
	}
	c := &account{parent: a, name: name}
	g.configureAccount(c, now)
	if a.children == nil {
		a.children = map[string]*account{}
	}
	a.children[name] = c
	if name != shared {
		a.order = append(a.order, c)
	}
	return c
}

// named reports whether the configuration names the child, so that it always has a scope
// of its own.
func (g *Governor) named(a *account, name string) bool {
	if a.parent == nil {
		_, ok := g.config.Tenants[name]
		return ok
	}
	_, ok := g.config.Tenants[a.name].Agents[name]
	return ok
}

// glance is how many accounts are checked to find an idle one.
const glance = 16

// evict removes an idle child of a if a short search finds one. The next search continues
// from there, so that repeated searches check all children.
func (g *Governor) evict(a *account, now time.Duration) bool {
	for range min(glance, len(a.order)) {
		a.hand %= len(a.order)
		c := a.order[a.hand]
		if !c.idle(now) {
			a.hand++
			continue
		}
		last := len(a.order) - 1
		a.order[a.hand] = a.order[last]
		a.order[last] = nil
		a.order = a.order[:last]
		delete(a.children, c.name)
		c.visit(func(n *node) bool { n.retired = true; g.remember(n); return true })
		return true
	}
	return false
}

// idle reports whether the account and all below it can be removed without loss.
func (a *account) idle(now time.Duration) bool {
	if a.open > 0 || !a.node.idle(now) {
		return false
	}
	for _, n := range a.byModel {
		if !n.idle(now) {
			return false
		}
	}
	for _, c := range a.children {
		if !c.idle(now) {
			return false
		}
	}
	return true
}

// nameless reports whether the account only holds the agents that have no tenant, and is
// not a scope itself.
func (a *account) nameless() bool { return a.parent != nil && a.name == "" }

// scope returns the scope of the account's own node.
func (a *account) scope() Scope {
	switch {
	case a.parent == nil:
		return Scope{}
	case a.parent.parent == nil:
		return Scope{Tenant: a.name}
	default:
		return Scope{Tenant: a.parent.name, Agent: a.name}
	}
}

// configureAccount applies the configured limits to the account and clears its routes.
func (g *Governor) configureAccount(a *account, now time.Duration) {
	limits, models := g.limitsOf(a)
	scope := a.scope()
	a.node = g.configureNode(a.node, scope, limits, now)
	a.routes = nil
	for name, n := range a.byModel {
		if _, ok := models[name]; !ok {
			delete(a.byModel, name)
			g.retire(a, name, n)
		}
	}
	for name, n := range a.gone {
		if n.idle(now) && n.dayTokens == 0 && n.dayCalls == 0 {
			delete(a.gone, name)
		}
	}
	for name, l := range sorted(models) {
		if a.byModel == nil {
			a.byModel = map[string]*node{}
		}
		scope.Model = name
		if n := a.gone[name]; n != nil {
			n.retired = false
			delete(a.gone, name)
			a.byModel[name] = n
		}
		a.byModel[name] = g.configureNode(a.byModel[name], scope, &l, now)
	}
	for _, c := range a.order {
		g.configureAccount(c, now)
	}
	if c := a.children[shared]; c != nil {
		g.configureAccount(c, now)
	}
}

// retire keeps the node of a model that is no longer configured.
func (g *Governor) retire(a *account, model string, n *node) {
	g.unschedule(n)
	n.retired = true
	if a.gone == nil {
		a.gone = map[string]*node{}
	}
	a.gone[model] = n
}

// limitsOf returns the configured limits of an account.
func (g *Governor) limitsOf(a *account) (own *Limits, byModel map[string]Limits) {
	c := &g.config
	a.weight = 1
	if a.parent == nil {
		models := make(map[string]Limits, len(c.Models))
		for name, m := range c.Models {
			models[name] = m.Limits
		}
		return &c.Global, models
	}
	tenant := a
	if a.parent.parent != nil {
		tenant = a.parent
	}
	t, named := c.Tenants[tenant.name]
	if !named {
		t = c.TenantDefault
	}
	if tenant.name == "" { // agents without a tenant have only limits of their own
		t = Tenant{AgentDefault: t.AgentDefault}
	}
	if a == tenant {
		a.weight = max(1, t.Weight)
		return &t.Limits, t.Models
	}
	agent, named := t.Agents[a.name]
	if !named {
		agent = t.AgentDefault
	}
	return &agent.Limits, agent.Models
}

// routeTo returns the path for a model from the account, or nil if the model is not
// configured.
func (g *Governor) routeTo(a *account, model string) *route {
	if r := a.routes[model]; r != nil {
		return r
	}
	m := g.root.byModel[model]
	if m == nil {
		return nil
	}
	rule, _ := g.config.charge(g.config.Models[model].Charge)
	r := &route{account: a, model: m, rule: rule}
	var path []*account
	for at := a; at != nil; at = at.parent {
		path = append([]*account{at}, path...)
	}
	r.clamp, r.window = amount{1, 1 << 62, 1 << 62, 1 << 62}, 1<<62
	for _, at := range path {
		if !at.nameless() {
			r.pass(at.node)
		}
		r.shared = r.shared || at.name == shared
		if n := at.byModel[model]; n != nil {
			r.pass(n)
		}
	}
	if a.routes == nil {
		a.routes = map[string]*route{}
	}
	a.routes[model] = r
	return r
}

func (r *route) pass(n *node) {
	r.nodes = append(r.nodes, n)
	if n.limits.mask != 0 || n.limits.soft || n.limits.capped {
		r.limited, r.budgets = append(r.limited, n), append(r.budgets, uint32(n.id))
	}
	r.spread = r.spread || n.limits.spread
	r.clamp[tokens] = min(r.clamp[tokens], n.limits.tokensClamp)
	r.clamp[inputTokens] = min(r.clamp[inputTokens], n.limits.inputClamp)
	r.clamp[outputTokens] = min(r.clamp[outputTokens], n.limits.outputClamp)
	if n.limits.soft {
		r.window = min(r.window, n.limits.softBudget)
	}
}

// route returns the path of a request.
func (g *Governor) route(r *Request, now time.Duration) *route {
	a := g.root
	if r.Tenant != "" || r.Agent != "" {
		if g.root.byModel[r.Model] == nil {
			return nil // an unknown model creates no scope
		}
		a = g.child(a, r.Tenant, g.config.MaxTenants, now)
		if r.Agent != "" {
			a = g.child(a, r.Agent, g.config.MaxAgents, now)
		}
	}
	return g.routeTo(a, r.Model)
}
