package headway

import (
	"strings"
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
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
		At: g.wall(now).Round(0), Connection: g.name, Law: g.core.Law(), Circuit: "off",
		InFlight: g.core.InFlight(), Waiting: g.line.len(), Held: g.line.first(), Expired: int64(g.permits.expired),
	}
	if circuit, ok := g.core.Circuit(); ok {
		s.Circuit = circuit.String()
	}
	if until := g.core.ResumesAt(); until > now {
		s.RetryAt = g.wall(until).Round(0)
	}
	s.Limits = g.limits()
	if g.core.Answered() {
		s.Rate = event.NewRate(g.core.Interval(), g.core.Ceiling())
		if b := g.core.Belief(); b.Kind != control.Unknown {
			s.Rate.Belief = &event.Belief{Kind: b.Kind.String(), Limit: b.Limit, WindowS: b.Window.Seconds(), Confidence: b.Confidence}
		}
		if b := g.core.LastBackoff(); b.Reason != reason.None {
			s.Rate.LastBackoff = &event.Backoff{
				Reason: b.Reason, AtIntervalMS: event.Milliseconds(b.Interval), At: g.wall(b.At).Round(0),
			}
		}
	}
	return s
}

// limits are what is known of limits. g.mu must be held.
func (g *Governor) limits() []event.Limit {
	ceiling := event.Limit{
		Kind: control.TokenBucket.String(), Size: event.PerMinute(g.core.Ceiling()), WindowS: 60,
		Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1,
	}
	all := []event.Limit{ceiling}
	if n := g.core.MaxInFlight(); n > 0 {
		all = append(all, event.Limit{
			Kind: control.Concurrency.String(), Size: float64(n), Unit: event.UnitRequests, Provenance: event.Owner, Confidence: 1,
		})
	}
	var room [8]control.Limit
	for _, l := range g.core.Limits(room[:0]) {
		one := event.Limit{
			Kind: l.Kind.String(), Size: l.Size, WindowS: l.Window.Seconds(), Unit: event.UnitRequests,
			Provenance: event.Learned, Confidence: l.Confidence,
		}
		if l.PerCost {
			one.Unit = event.UnitCost
		}
		if l.Advertised {
			one.Provenance, one.Pool = event.Advertised, plainName(l.Name)
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
