package quota

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// DayUse is what one scope has used of a day. A store keeps it, so that a restart does
// not grant the budget twice. Open permits count with their estimates.
type DayUse struct {
	Scope Scope `json:"scope,omitzero"`
	// Day is the day as 2006-01-02, in Zone.
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
	before := len(dst)
	for n := range g.eachNode {
		if u := g.use(n, now); u.Tokens > 0 || u.Calls > 0 {
			dst = append(dst, u)
		}
	}
	for s, p := range g.past {
		if p.day == p.calendar.day {
			dst = append(dst, DayUse{s, dayName(p.day), p.calendar.name, p.tokens, p.calls})
		}
	}
	slices.SortFunc(dst[before:], func(a, b DayUse) int { return a.Scope.compare(b.Scope) })
	return dst
}

// pastUse is the daily use of an evicted scope.
type pastUse struct {
	calendar           *calendar
	day, tokens, calls int64
}

// remember keeps the daily use of an evicted scope. The scope has no cap, or it would not
// be idle, but it may get one today. If there are too many, the use is forgotten.
func (g *Governor) remember(n *node) {
	if n.dayTokens == 0 && n.dayCalls == 0 {
		return
	}
	if !g.roomForPast() {
		maps.DeleteFunc(g.past, func(_ Scope, p pastUse) bool { return p.day != p.calendar.day })
	}
	if g.roomForPast() {
		g.keepPast(n.scope, pastUse{n.limits.calendar, n.day, n.dayTokens, n.dayCalls})
	}
}

// roomForPast bounds the evicted scopes that are remembered: MaxTenants, and at least a
// thousand.
func (g *Governor) roomForPast() bool {
	return len(g.past) < max(1024, int(g.config.MaxTenants))
}

func (g *Governor) keepPast(s Scope, p pastUse) {
	if g.past == nil {
		g.past = map[Scope]pastUse{}
	}
	g.past[s] = p
}

// recall gives a new scope what it used of the day before it was evicted.
func (g *Governor) recall(n *node) {
	p, ok := g.past[n.scope]
	if !ok {
		return
	}
	delete(g.past, n.scope)
	if p.day == p.calendar.day {
		n.dayTokens, n.dayCalls = p.tokens, p.calls
	}
}

// compare orders scopes.
func (s Scope) compare(o Scope) int {
	return cmp.Or(cmp.Compare(s.Tenant, o.Tenant), cmp.Compare(s.Agent, o.Agent), cmp.Compare(s.Model, o.Model))
}

func (g *Governor) use(n *node, now time.Duration) DayUse {
	n.sync(now)
	return DayUse{n.scope, dayName(n.day), n.limits.calendar.name, n.dayTokens, n.dayCalls}
}

// Restore adds the stored use of today. Call it once, before the first request. Use of a
// day that is over, both in the zone it was counted in and in the scope's, is ignored.
// Use of a later day counts as today's, since the clock was set back. Use of a model that
// is not configured is kept until the model returns. The error names the entry; then
// nothing was restored.
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
		counted := g.calendar(u.Zone, now)
		n := g.nodeOf(u.Scope, counted, now)
		n.sync(now)
		if days[i] < n.day && days[i] < counted.day {
			continue
		}
		if n.scope != u.Scope && g.roomForPast() {
			// There is no capacity for the scope now: the use waits for the name to
			// return.
			p := g.past[u.Scope]
			g.keepPast(u.Scope, pastUse{counted, counted.day, p.tokens + u.Tokens, p.calls + u.Calls})
			continue
		}
		n.dayTokens += u.Tokens
		n.dayCalls += u.Calls
		g.mark(n)
		g.reconsider(n, now)
	}
	return nil
}

// calendar returns the calendar of a zone; the configuration's if the zone is unknown.
func (g *Governor) calendar(name string, now time.Duration) *calendar {
	if c := g.calendars[name]; c != nil {
		return c
	}
	zone, err := g.config.zone(name)
	if name == "" || err != nil {
		return g.calendars[g.config.DayZone]
	}
	c := &calendar{name: name, zone: zone}
	c.anchor(g.origin, now)
	g.calendars[name] = c
	g.due = g.earliest()
	return c
}

// nodeOf returns the node of a scope, making tenants and agents as a request would. For a
// model that is not configured it returns a retired node, whose days are those of the
// calendar.
func (g *Governor) nodeOf(s Scope, counted *calendar, now time.Duration) *node {
	a := g.root
	if s.Tenant != "" || s.Agent != "" {
		a = g.child(a, s.Tenant, g.config.MaxTenants, now)
		if s.Agent != "" {
			a = g.child(a, s.Agent, g.config.MaxAgents, now)
		}
	}
	switch {
	case s.Model == "":
		return a.node
	case a.byModel[s.Model] != nil:
		return a.byModel[s.Model]
	case a.gone[s.Model] == nil:
		scope := a.scope()
		scope.Model = s.Model
		g.retire(a, s.Model, g.configureNode(nil, scope, &Limits{DayZone: counted.name}, now))
	}
	return a.gone[s.Model]
}

// Exchange is what a member of a fleet reports to the server that holds the fleet's budgets, and
// asks of it. The server carries it out in one step.
type Exchange struct {
	// Budgets are the budgets that the exchange is about.
	Budgets []SharedBudget
	// Claims are taken in order, each from all its budgets or from none.
	Claims []SharedClaim
	// Lease is after how long the server counts as used what this member reserves, and Silence after how long
	// without a message it counts the member as silent.
	Lease, Silence time.Duration
	// Expect is what the server's clock should show, by its last answer and the time since;
	// zero before the first answer. If its clock was set, no budget refills by that.
	Expect time.Time
	// Leave ends the membership: what it reserved is free again.
	Leave bool
	// Away says that the server counted as away, so that this member may use its share: it stays
	// silent for the server until it sends an exchange without Away.
	Away bool
	// Members is how many members this one knows of, itself included; 0 before the first answer.
	// If the server knows none, it keeps their shares until they are heard.
	Members int
}

// SharedBudget is one budget of one scope, in calls or tokens.
type SharedBudget struct {
	Scope Scope
	// Name is calls, tokens, inputTokens, outputTokens, [DailyTokens] or [DailyCalls].
	Name string
	// Day is the day of a daily cap as 2006-01-02; "" for a bucket.
	Day string
	// Cap is the most that may be used. Rate is how much of the use ebbs away per second; 0
	// for a daily cap.
	Cap  int64
	Rate float64
	// Known is the use as this member knows it, and Born identifies the record that it knows:
	// a server that lost its records begins with what its members know.
	// Kept is what that record had in reserve for all members, and Had the part of this one.
	Known     float64
	Born      string
	Kept, Had int64
	// Delta changes the use: what was used beyond what the server had counted, less what is
	// given back, since the last answer. Total is the sum of all Deltas that were answered,
	// and this one: a server that knows the Total before counts the difference, so that an
	// exchange whose answer was lost counts once.
	Delta, Total int64
	// Grown is what this member took as its share while the server was away, since the last
	// answer, and GrownTotal the sum, as Total. The server has counted the share that it kept for
	// a silent member already.
	Grown, GrownTotal int64
	// Pending is the part of the use that may still be given back: estimates of open permits,
	// and what was taken ahead.
	Pending int64
	// Reserve is how much to keep for this member while it cannot reach the server. It
	// replaces the previous reserve. After the lease it counts as used, until the member
	// sends another exchange, since it may have been used.
	Reserve int64
	// Ahead is how much to take ahead of calls, as far as there is room.
	Ahead int64
}

// SharedClaim is what one call takes: amounts of the budgets with these indices.
type SharedClaim struct {
	Budgets []int
	Amounts []int64
}

// Exchanged is the server's answer.
type Exchanged struct {
	// At is the time at the server.
	At time.Time
	// Members counts the members of the fleet, Silent those of them that sent nothing lately.
	Members, Silent int
	// Evicts says that the server may evict records, or does not say that it keeps them. Then a
	// new record may be one that was lost, and grants nothing for the time of Silence.
	Evicts bool
	// Granted says which claims were granted.
	Granted []bool
	// Budgets are in the order of the exchange.
	Budgets []SharedUse
}

// SharedUse is the state of a budget after an exchange.
type SharedUse struct {
	// Use is the use of all members, with what was taken ahead; Pending is the part of it that
	// other members may give back.
	Use     float64
	Pending int64
	// Reserve and Ahead are what this member got of what it asked for.
	Reserve, Ahead int64
	// Born identifies the record, and Kept is what is in reserve for all members.
	Born string
	Kept int64
}

// FleetStatus is the state of a governor's membership in a fleet.
type FleetStatus struct {
	// Server is the host and port of the server that holds the budgets.
	Server string `json:"server"`
	// Members counts the processes that share the budgets, as last known.
	Members int `json:"members"`
	// Silent counts those of them that sent nothing lately. Their shares are reserved for
	// [FleetLease].
	Silent int `json:"silent"`
	// Away says that the server does not answer, or loses its records.
	Away bool `json:"away"`
	// New says that it has not answered so far: this process has no share yet, and approves
	// nothing.
	New bool `json:"new"`
	// Lost counts the records of budgets that the server lost, or had an older copy of. Evicts
	// says that it may evict them where its memory is full, or does not say that it keeps them.
	Lost   int64 `json:"lost"`
	Evicts bool  `json:"evicts"`
	// Without says what happens while it is away: share or wait.
	Without string `json:"without"`
}
