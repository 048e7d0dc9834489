package headway

import (
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// Snapshot is a connection at an instant.
type Snapshot struct {
	// At is when it was taken.
	At time.Time `json:"at"`
	// Connection is the connection's name.
	Connection string `json:"connection"`
	// Law is the control law's name.
	Law string `json:"law"`
	// Rate is the pacing; nil, that is unknown, until a response has come back.
	Rate *event.Rate `json:"rate"`
	// Limits are what is known of limits: those that the owner set first, then those
	// of the provider, which are unknown until responses tell of them or the law has
	// found them.
	Limits []event.Limit `json:"limits"`
	// Circuit is the breaker's state: closed, open or half_open; "off" without one.
	Circuit string `json:"circuit"`
	// RetryAt is when a cooldown or an open circuit ends; zero when there is none.
	RetryAt time.Time `json:"retry_at,omitzero"`
	// InFlight counts attempts under way, Waiting those who wait for a permit.
	InFlight int `json:"in_flight"`
	Waiting  int `json:"waiting"`
	// Held is what the first of them waits for; the zero value when nobody waits.
	Held Wait `json:"-"`
	// Expired counts permits that were never settled.
	Expired int64 `json:"expired"`
	// Fleet is the membership of a fleet; nil without one.
	Fleet *FleetStatus `json:"fleet,omitempty"`
	// Pools are the parts of the connection that have limits of their own and are in
	// use, by name.
	Pools []PoolSnapshot `json:"pools,omitempty"`
}

// FleetStatus is a membership of a fleet at an instant.
type FleetStatus struct {
	// Members counts the members that share the credential, as last heard; 0 while the
	// server has not said so, or the connection paces by itself until there is another.
	Members int `json:"members"`
	// Away says that the server was lost: attempts go at this member's share of the last
	// known rate, or wait, until it is back.
	Away bool `json:"away"`
}

// PoolSnapshot is a pool of a connection at an instant. Its fields mean what those of
// [Snapshot] do.
type PoolSnapshot struct {
	Name    string        `json:"name"`
	Rate    *event.Rate   `json:"rate"`
	Limits  []event.Limit `json:"limits,omitempty"`
	Circuit string        `json:"circuit"`
	RetryAt time.Time     `json:"retry_at,omitzero"`
}

// Snapshot is the state now. It changes nothing.
func (g *Governor) Snapshot() Snapshot {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.snapshot(now)
}

func (g *Governor) snapshot(now time.Duration) Snapshot {
	s := Snapshot{
		At: g.wall(now).Round(0), Connection: g.name, Law: g.core.Law(), Circuit: circuit(&g.core.Pool),
		InFlight: g.core.InFlight(), Waiting: g.line.len(), Held: g.line.first(), Expired: int64(g.permits.expired),
		RetryAt: g.resumes(now, &g.core.Pool), Rate: g.rate(&g.core.Pool),
	}
	s.Limits = g.limits(&g.core.Pool)
	s.Fleet = g.membership()
	for p := range g.core.Pools {
		s.Pools = append(s.Pools, PoolSnapshot{
			Name: p.Name(), Rate: g.rate(p), Limits: g.limits(p), Circuit: circuit(p), RetryAt: g.resumes(now, p),
		})
	}
	slices.SortFunc(s.Pools, func(a, b PoolSnapshot) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// Fleet is the governor's membership of a fleet now; nil without one.
func (g *Governor) Fleet() *FleetStatus {
	if g.fleet == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.membership()
}

func (g *Governor) membership() *FleetStatus {
	if g.fleet == nil {
		return nil
	}
	members, _ := g.core.Members()
	return &FleetStatus{Members: members, Away: g.core.Away()}
}

// circuit is the breaker's state.
func circuit(l *pacing.Pool) string {
	if state, ok := l.Circuit(); ok {
		return state.String()
	}
	return "off"
}

// resumes is when a cooldown or an open circuit ends; zero when there is none.
func (g *Governor) resumes(now time.Duration, l *pacing.Pool) (at time.Time) {
	if until := l.ResumesAt(); until > now {
		at = g.wall(until).Round(0)
	}
	return at
}

// rate is the pacing; nil while nothing is known of it. g.mu must be held.
func (g *Governor) rate(l *pacing.Pool) *event.Rate {
	if !l.Known() {
		return nil
	}
	ceiling := l.Ceiling()
	if g.set.unbounded {
		ceiling = 0
	}
	r := event.NewRate(l.Interval(), ceiling)
	if b := l.Belief(); b.Kind != control.Unknown {
		r.Belief = &event.Belief{Kind: b.Kind.String(), Limit: b.Limit, WindowS: b.Window.Seconds(), Confidence: b.Confidence}
	}
	if b := l.LastBackoff(); b.Reason != reason.None {
		r.LastBackoff = &event.Backoff{
			Reason: b.Reason, AtIntervalMS: event.Milliseconds(b.Interval), At: g.wall(b.At).Round(0),
		}
	}
	return r
}

// RoomAt is the earliest instant at which an attempt of a pool could go, as far as is
// known now; those who wait already go first. An attempt that only an outcome can bring
// nearer is put a minute off. It changes nothing. The name "" is the account.
func (g *Governor) RoomAt(pool string) time.Time {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.pool(now, pool)
	at := g.core.Ask(now, pacing.Attempt{Ready: now, Pool: p}).At
	if at == pacing.Forever {
		at = now + time.Minute
	}
	if n := g.line.len(); n > 0 {
		at += g.poolOf(p).After(int64(n))
	}
	return g.wall(max(at, now))
}

// Unlimited reports whether nothing but what the owner set holds back attempts of a pool, or
// of the account for "": the start is passive, and the provider has neither refused an
// attempt nor advertised a limit. What an attempt costs makes no difference until then.
func (g *Governor) Unlimited(pool string) bool {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.Free(g.pool(now, pool))
}

// Pace is the sustained interval between attempts in a pool, as far as one is known:
// that of the pool or of the account, whichever is longer. 0 is unknown. The name "" is
// the account.
func (g *Governor) Pace(pool string) (interval time.Duration) {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range [...]*pacing.Pool{&g.core.Pool, g.pool(now, pool)} {
		if p != nil && p.Known() {
			interval = max(interval, p.Interval())
		}
	}
	return interval
}

// limits are what is known of limits, the account's with those that the owner set. g.mu
// must be held.
func (g *Governor) limits(pool *pacing.Pool) []event.Limit {
	if pool == &g.core.Pool {
		return g.found(g.owned(), pool)
	}
	return g.found(nil, pool)
}

// owned are the limits that the owner set.
func (g *Governor) owned() (all []event.Limit) {
	if c := g.core.Ceiling(); !g.set.unbounded {
		all = append(all, event.Limit{
			Kind: control.TokenBucket.String(), Size: event.PerMinute(c), WindowS: 60,
			Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1,
		})
	}
	if n := g.core.MaxInFlight(); n > 0 {
		all = append(all, event.Limit{
			Kind: control.Concurrency.String(), Size: float64(n), Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1,
		})
	}
	return all
}

// found appends the limits that were learned or advertised. g.mu must be held.
func (g *Governor) found(all []event.Limit, pool *pacing.Pool) []event.Limit {
	var room [8]control.Limit
	for _, l := range pool.Limits(room[:0]) {
		one := event.Limit{
			Kind: l.Kind.String(), Size: l.Size, WindowS: l.Window.Seconds(), Unit: event.UnitRequests,
			Pool: pool.Name(), Provenance: event.Learned, Confidence: l.Confidence,
		}
		if l.PerCost {
			one.Unit = event.UnitCost
		}
		if l.Advertised {
			one.Provenance = event.Advertised
			if one.Pool == "" {
				one.Pool = plainName(l.Name)
			}
		}
		all = append(all, one)
	}
	return all
}

// plainName is a provider's name for a limit, if it is one that can be shown.
func plainName(name string) string {
	const maxName = 64
	odd := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	}
	if len(name) > maxName || strings.ContainsFunc(name, odd) {
		return ""
	}
	return name
}
