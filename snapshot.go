package headway

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/reason"
)

// Snapshot is the state of a connection at one instant.
type Snapshot struct {
	// At is when the snapshot was taken.
	At time.Time `json:"at"`
	// Connection is the connection's name.
	Connection string `json:"connection"`
	// Law is the control law's name.
	Law string `json:"law"`
	// Rate is the pacing; nil means unknown, until the first response.
	Rate *event.Rate `json:"rate"`
	// Limits are the known limits: first those set by the owner, then those of the
	// provider. The latter are unknown until responses advertise them or the law has
	// learned them.
	Limits []event.Limit `json:"limits"`
	// Circuit is the breaker's state: closed, open or half_open; "off" without a breaker.
	Circuit string `json:"circuit"`
	// RetryAt is when a cooldown or an open circuit ends; zero if there is neither.
	RetryAt time.Time `json:"retry_at,omitzero"`
	// InFlight counts the attempts in flight, Waiting those that wait for a permit.
	InFlight int `json:"in_flight"`
	Waiting  int `json:"waiting"`
	// Held is what the first waiting attempt waits for; the zero value if none waits.
	Held Wait `json:"-"`
	// Expired counts permits that were never settled.
	Expired int64 `json:"expired"`
	// Fleet is the membership of a fleet; nil without one.
	Fleet *FleetStatus `json:"fleet,omitempty"`
	// Pools are the pools of the connection that are in use, sorted by name.
	Pools []PoolSnapshot `json:"pools,omitempty"`
}

// FleetStatus is the state of a fleet membership at one instant.
type FleetStatus struct {
	// Members is the last reported number of members that share the credential; 0 until
	// the server has reported one, or while the connection paces by itself because there
	// is no other member.
	Members int `json:"members"`
	// Away says that the server was lost, or was not reached so far: until it is back,
	// attempts go at this member's share of the last known rate, or wait.
	Away bool `json:"away"`
	// New says that the member has no share yet: it has joined a moment ago, or has not
	// reached the server. Without the server its attempts wait.
	New bool `json:"new,omitempty"`
}

// PoolSnapshot is the state of a pool at one instant. Its fields mean the same as those
// of [Snapshot].
type PoolSnapshot struct {
	Name    string        `json:"name"`
	Rate    *event.Rate   `json:"rate"`
	Limits  []event.Limit `json:"limits,omitempty"`
	Circuit string        `json:"circuit"`
	RetryAt time.Time     `json:"retry_at,omitzero"`
}

// Snapshot returns the current state. It changes nothing.
func (g *Governor) Snapshot() Snapshot {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.snapshot(now)
}

func (g *Governor) snapshot(now time.Duration) Snapshot {
	s := Snapshot{
		At: g.wall(now).Round(0), Connection: g.name, Law: g.core.Law(), Circuit: circuit(&g.core.Pool),
		InFlight: g.core.InFlight(), Waiting: g.waiters.len(), Held: g.waiters.first(), Expired: int64(g.permits.expired),
		RetryAt: g.resumes(now, &g.core.Pool), Rate: g.rate(&g.core.Pool),
	}
	s.Limits = g.limits(now, &g.core.Pool)
	s.Fleet = g.membership()
	for p := range g.core.Pools {
		s.Pools = append(s.Pools, PoolSnapshot{
			Name: p.Name(), Rate: g.rate(p), Limits: g.limits(now, p), Circuit: circuit(p), RetryAt: g.resumes(now, p),
		})
	}
	slices.SortFunc(s.Pools, func(a, b PoolSnapshot) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// Fleet returns the governor's membership of a fleet; nil without one.
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
	return &FleetStatus{Members: members, Away: g.core.Away(), New: g.core.New()}
}

// circuit returns the breaker's state.
func circuit(l *pacing.Pool) string {
	if state, ok := l.Circuit(); ok {
		return state.String()
	}
	return "off"
}

// resumes returns when a cooldown or an open circuit ends; zero if there is neither.
func (g *Governor) resumes(now time.Duration, l *pacing.Pool) (at time.Time) {
	if until := l.ResumesAt(); until > now {
		at = g.wall(until).Round(0)
	}
	return at
}

// rate returns the pacing; nil if nothing is known of it. g.mu must be held.
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
	r.RefusedForLoad = l.RefusedForLoad()
	if b := l.LastBackoff(); b.Reason != reason.None {
		r.LastBackoff = &event.Backoff{
			Reason: b.Reason, AtIntervalMS: event.Milliseconds(b.Interval), At: g.wall(b.At).Round(0),
		}
	}
	return r
}

// RoomAt returns the earliest instant at which an attempt of a pool could go, as far as
// known now, after all attempts that already wait. If that depends on the outcome of
// another attempt, it is a minute from now. It changes nothing. The pool "" is the
// account.
func (g *Governor) RoomAt(pool string) time.Time {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.pool(now, pool)
	at := g.core.Ask(now, pacing.Attempt{Ready: now, Pool: p}).At
	if at == pacing.Forever {
		at = now + time.Minute
	}
	if n := g.waiters.len(); n > 0 {
		at += g.poolOf(p).After(int64(n))
	}
	return g.wall(max(at, now))
}

// Unlimited reports whether only the owner's settings hold back attempts of a pool, or of
// the account for "": the start is passive, and the provider has neither refused an
// attempt nor advertised a limit. Until then the cost of an attempt has no effect.
func (g *Governor) Unlimited(pool string) bool {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.Free(g.pool(now, pool))
}

// Pace returns the sustained interval between attempts in a pool: that of the pool or of
// the account, whichever is longer; 0 if unknown. The pool "" is the account.
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

// limits returns the known limits of a pool; for the account, the owner's limits too.
// g.mu must be held.
func (g *Governor) limits(now time.Duration, pool *pacing.Pool) []event.Limit {
	if pool == &g.core.Pool {
		return g.found(now, g.owned(now), pool)
	}
	return g.found(now, nil, pool)
}

// owned returns the limits that the owner set.
func (g *Governor) owned(now time.Duration) (all []event.Limit) {
	if c := g.core.Ceiling(); !g.set.unbounded {
		l := event.Limit{
			Kind: control.TokenBucket.String(), Size: event.PerMinute(c), WindowS: 60,
			Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1, Used: new(0.0),
		}
		if at := g.core.Spaced(); at > now {
			*l.Used, l.RoomAt = 1, g.wall(at).Round(0)
		}
		all = append(all, l)
	}
	if n := g.core.MaxInFlight(); n > 0 {
		all = append(all, event.Limit{
			Kind: control.Concurrency.String(), Size: float64(n), Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1,
			Used: new(float64(g.core.InFlight())),
		})
	}
	return all
}

// found appends the learned and advertised limits. g.mu must be held.
func (g *Governor) found(now time.Duration, all []event.Limit, pool *pacing.Pool) []event.Limit {
	var room [8]control.Limit
	var inUse [8]control.Use
	uses := pool.Uses(now, inUse[:0])
	for i, l := range pool.Limits(room[:0]) {
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
		if i < len(uses) {
			u := uses[i]
			if u.Used >= 0 {
				one.Used = new(math.Round(u.Used))
			}
			if u.Free > now {
				one.RoomAt = g.wall(u.Free).Round(0)
			}
		}
		all = append(all, one)
	}
	return all
}

// plainName returns a provider's name for a limit, or "" if the name is too long or holds
// unusual characters.
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
