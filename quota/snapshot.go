package quota

import "time"

// Snapshot is the complete state. Its JSON always has the same keys; null means that
// there is no such limit.
type Snapshot struct {
	Timestamp              time.Time                `json:"timestamp"`
	Models                 map[string]ModelSnapshot `json:"models"`
	Global                 GlobalSnapshot           `json:"global"`
	RecentEvents           []Event                  `json:"recentEvents"`
	ConfigDigest           string                   `json:"configDigest"`
	AdaptiveScalingEnabled bool                     `json:"adaptiveScalingEnabled"`
	Version                int                      `json:"version"`
	Statistics             Statistics               `json:"statistics"`
	// Fleet says where budgets that several processes share are held. What is left of them then
	// counts the use of all members, as of the last exchange.
	Fleet *FleetStatus `json:"fleet"`
}

// ModelSnapshot is the state of one model, tenant or agent.
type ModelSnapshot struct {
	// CallsRemaining is the number of whole calls in the bucket; CallsCapacity is its
	// size.
	CallsRemaining *int64 `json:"callsRemaining"`
	CallsCapacity  *int64 `json:"callsCapacity"`
	// BurstRemaining is how many calls in a row the call buckets of this scope and those
	// above it allow now.
	BurstRemaining *int64 `json:"burstRemaining"`
	CallsPerMinute *int64 `json:"callsPerMinute"`
	// TokensRemaining may be negative: overshoot is remembered.
	TokensRemaining      *int64      `json:"tokensRemaining"`
	SoftTokensRemaining  *int64      `json:"softTokensRemaining"`
	DailyTokensRemaining *int64      `json:"dailyTokensRemaining"`
	DailyCallsRemaining  *int64      `json:"dailyCallsRemaining"`
	State                State       `json:"state"`
	Factor               float64     `json:"adaptiveScale"`
	Window               WindowStats `json:"window"`
	Ledger               Ledger      `json:"ledger"`
}

// GlobalSnapshot is the global scope.
type GlobalSnapshot struct {
	CallsRemaining       *int64      `json:"callsRemaining"`
	BurstRemaining       *int64      `json:"burstRemaining"`
	TokensRemaining      *int64      `json:"tokensRemaining"`
	SoftTokensRemaining  *int64      `json:"softTokensRemaining"`
	DailyTokensRemaining *int64      `json:"dailyTokensRemaining"`
	DailyCallsRemaining  *int64      `json:"dailyCallsRemaining"`
	State                State       `json:"state"`
	Factor               float64     `json:"adaptiveScale"`
	Window               WindowStats `json:"window"`
	Ledger               Ledger      `json:"ledger"`
}

// WindowStats is the recent use: what was charged during the last forecast window.
type WindowStats struct {
	WindowMS int64 `json:"windowMs"`
	Calls    int64 `json:"calls"`
	Tokens   int64 `json:"tokens"`
}

// Ledger counts tokens and calls since the start. In tokens, Granted always equals Used +
// Refunded + Held.
type Ledger struct {
	Granted  int64 `json:"granted"`
	Used     int64 `json:"used"`
	Refunded int64 `json:"refunded"`
	Held     int64 `json:"held"`
	Approved int64 `json:"approved"`
	Denied   int64 `json:"denied"`
	// Cached and Reasoning are parts of Used: input that the provider read from its
	// cache, and output that is reasoning and not part of the answer.
	Cached    int64 `json:"cached"`
	Reasoning int64 `json:"reasoning"`
}

// Statistics are totals since the start.
type Statistics struct {
	Approved  int64 `json:"approved"`
	Denied    int64 `json:"denied"`
	Throttles int64 `json:"throttles"`
	Resumes   int64 `json:"resumes"`
	Scaled    int64 `json:"scaleChanges"`
	Expired   int64 `json:"expired"`
	Conflicts int64 `json:"conflicts"`
	// Open permits, Waiting requests and known Tenants now.
	Open    int64 `json:"open"`
	Waiting int64 `json:"waiting"`
	Tenants int64 `json:"tenants"`
	// Moves is the length of the transition log, LogHash its hash.
	Moves   uint64 `json:"transitions"`
	LogHash string `json:"transitionHash"`
}

// Snapshot returns the state at now.
func (g *Governor) Snapshot(now time.Duration) Snapshot {
	now = g.tick(now)
	s := Snapshot{
		Timestamp: g.origin.Add(now).UTC(), Models: map[string]ModelSnapshot{},
		RecentEvents: g.events.all([]Event{}), ConfigDigest: g.digest,
		AdaptiveScalingEnabled: !g.config.AdaptiveScalingOff, Version: Version, Statistics: g.Statistics(),
		Fleet: g.Fleet(),
	}
	for name, n := range sorted(g.root.byModel) {
		s.Models[name] = g.read(now, n, g.root.node)
	}
	m := g.read(now, g.root.node)
	s.Global = GlobalSnapshot{
		m.CallsRemaining, m.BurstRemaining, m.TokensRemaining, m.SoftTokensRemaining,
		m.DailyTokensRemaining, m.DailyCallsRemaining, m.State, m.Factor, m.Window, m.Ledger,
	}
	return s
}

// Inspect returns the state of one scope; ok is false if the scope is unknown or has no
// limits of its own for a model.
func (g *Governor) Inspect(now time.Duration, s Scope) (_ ModelSnapshot, ok bool) {
	now = g.tick(now)
	n := g.find(s)
	if n == nil {
		return ModelSnapshot{}, false
	}
	return g.read(now, n, g.root.node), true
}

// find returns the node of an existing scope.
func (g *Governor) find(s Scope) *node {
	a := g.root
	if s.Tenant != "" || s.Agent != "" {
		a = a.children[s.Tenant]
	}
	if a != nil && s.Agent != "" {
		a = a.children[s.Agent]
	}
	if a == nil {
		return nil
	}
	if s.Model == "" {
		return a.node
	}
	return a.byModel[s.Model]
}

// Statistics returns the totals.
func (g *Governor) Statistics() Statistics {
	c := &g.counts
	return Statistics{
		Approved: c.approved, Denied: c.denied, Throttles: c.throttles, Resumes: c.resumes, Scaled: c.scaled,
		Expired: g.permits.expired, Conflicts: c.conflicts, Open: g.permits.open, Waiting: int64(len(g.waiting)),
		Tenants: int64(len(g.root.children)), Moves: g.moves.total, LogHash: hexadecimal(g.log.sum[:]),
	}
}

// TakeEvents appends the events since the last call, oldest first; lost is how many were
// dropped from the buffer in between.
func (g *Governor) TakeEvents(dst []Event) (events []Event, lost uint64) { return g.events.take(dst) }

// HasEvents reports whether TakeEvents would return events.
func (g *Governor) HasEvents() bool { return g.events.newest() != nil }

// TakeMoves appends the entries of the transition log since the last call; lost is how
// many were dropped from the buffer in between. The hash covers all of them.
func (g *Governor) TakeMoves(dst []Move) (moves []Move, lost uint64) { return g.moves.take(dst) }

// Backoff records that a client backs off instead of calling.
func (g *Governor) Backoff(now time.Duration, s Scope, d Decision) {
	now = g.tick(now)
	e := Event{Type: EventBackoff, Scope: s, Reason: d.Reason, Code: d.Code}
	if d.RetryIn != Never {
		e.RetryInMS = milliseconds(d.RetryIn)
	}
	g.emit(now, e)
}

// read returns the state of one node, with the call buckets of the nodes above it.
func (g *Governor) read(now time.Duration, n *node, above ...*node) ModelSnapshot {
	n.sync(now)
	n.recent.roll(now, g.span)
	l := n.limits
	used, made := n.recent.rates(now, g.span)
	s := ModelSnapshot{
		State: n.state, Factor: float64(n.factor) / one,
		Window: WindowStats{int64(g.span / time.Millisecond), made, used},
		Ledger: Ledger{
			Granted: n.ledger.granted, Used: n.ledger.used, Refunded: n.ledger.refunded, Held: n.ledger.held,
			Approved: n.approved, Denied: n.denied, Cached: n.ledger.cached, Reasoning: n.ledger.reasoning,
		},
	}
	if l.mask&(1<<calls) != 0 {
		s.CallsRemaining, s.CallsCapacity = new(whole(n.bucket[calls].level)), new(l.refill[calls].capacity/nano)
		s.CallsPerMinute = new(l.perMinute)
		if l.perMinute == 0 {
			s.CallsPerMinute = new(share(60, int64(l.refill[calls].num), int64(l.refill[calls].den)))
		}
		s.BurstRemaining = new(max(0, *s.CallsRemaining))
	}
	for _, up := range above {
		up.sync(now)
		if up != n && up.limits.mask&(1<<calls) != 0 {
			burst := max(0, whole(up.bucket[calls].level))
			if s.BurstRemaining != nil {
				burst = min(burst, *s.BurstRemaining)
			}
			s.BurstRemaining = &burst
		}
	}
	if l.mask&(1<<tokens) != 0 {
		s.TokensRemaining = new(whole(n.bucket[tokens].level))
	}
	if n.window != nil {
		s.SoftTokensRemaining = new(l.softBudget - n.window.sum)
	}
	if l.dailyTokens != noCap {
		s.DailyTokensRemaining = new(l.dailyTokens - n.dayTokens)
	}
	if l.dailyCalls != noCap {
		s.DailyCallsRemaining = new(l.dailyCalls - n.dayCalls)
	}
	return s
}

// whole rounds a level down to whole calls or tokens.
func whole(level int64) int64 {
	if level < 0 {
		return -((-level + nano - 1) / nano)
	}
	return level / nano
}

// Fleet returns the state of the membership; nil without one. The server's address is left
// to the caller.
func (g *Governor) Fleet() *FleetStatus {
	f := g.fleet
	if f == nil {
		return nil
	}
	s := &FleetStatus{Members: f.members, Silent: f.silent, Away: f.away, New: f.at.IsZero(), Lost: f.lost, Evicts: f.evicts, Without: "share"}
	if f.Wait {
		s.Without = "wait"
	}
	return s
}

// Away reports whether the server of shared budgets is away.
func (g *Governor) Away() bool { return g.fleet != nil && g.fleet.away }
