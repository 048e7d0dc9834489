package egress

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/wire"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// Credential is one of several keys of a provider: a connection of its own, with limits
// of its own.
type Credential struct {
	// Name says which one it is, in logs, events and status; never the secret. 1 to 64
	// lower-case letters, digits, dots, hyphens and underscores.
	Name string
	// Key is the provider's key.
	Key string
	// Pacing is the key's rate authority, as [Provider].Pacing. Either all keys have one
	// of their own or none has.
	Pacing *headway.Governor
}

// maxKeys bounds the keys of one provider.
const maxKeys = 100

// checkKeys says what is wrong with the keys of a provider; empty when nothing is.
func (p *Provider) checkKeys() (field string, value any, bound string) {
	if len(p.Keys) == 0 {
		return "", nil, ""
	}
	switch {
	case p.Key != "":
		return "key", "given beside keys", "one of both"
	case p.Pacing != nil:
		return "pacing", "given beside keys", "given for each key"
	case len(p.Keys) > maxKeys:
		return "keys", len(p.Keys), "at most 100"
	}
	for i, k := range p.Keys {
		before := p.Keys[:i]
		switch {
		case !validName(k.Name):
			return "a key's name", k.Name, "1 to 64 lower-case letters, digits, dots, hyphens and underscores, and begin with a letter or digit"
		case slices.ContainsFunc(before, func(o Credential) bool { return o.Name == k.Name }):
			return "a key's name", k.Name, "unique"
		case k.Key == "":
			return "key " + k.Name, "empty", "the provider's key"
		case slices.ContainsFunc(before, func(o Credential) bool { return o.Key == k.Key }):
			return "key " + k.Name, "the same as one before it", "another"
		case (k.Pacing == nil) != (p.Keys[0].Pacing == nil),
			k.Pacing != nil && slices.ContainsFunc(before, func(o Credential) bool { return o.Pacing == k.Pacing }):
			return "pacing", "not given for each key", "given for each key, or for none"
		}
	}
	return "", nil, ""
}

// credential is a key of a provider with what is known of it. The name is empty for the
// only one.
type credential struct {
	Credential
	begun   begun
	spent   *spent
	asked   *asked
	pushed  *atomic.Int64   // attempts that were refused for rate or load
	refused context.Context // ends when the key is set aside
	refuse  context.CancelFunc
	at      time.Time // of that; refused has ended
	status  int       // by which it was refused
}

// credentials are those of a provider; those that it had before keep what is known of
// them, but for having been refused.
func credentials(p *Provider, before *upstream) (all []*credential) {
	keys := p.Keys
	if len(keys) == 0 {
		keys = []Credential{{Key: p.Key, Pacing: p.Pacing}}
	}
	for _, k := range keys {
		one := &credential{Credential: k, spent: new(spent), asked: new(asked), pushed: new(atomic.Int64)}
		one.refused, one.refuse = context.WithCancel(context.Background())
		if before != nil {
			for _, was := range before.credentials {
				switch {
				case was.Name != k.Name || was.Key != k.Key:
				case was.Pacing == k.Pacing:
					one.spent, one.asked, one.pushed = was.spent, was.asked, was.pushed
				default:
					one.spent, one.pushed = was.spent, was.pushed
				}
			}
		}
		all = append(all, one)
	}
	return all
}

// ring is what picks from several keys; nil for one.
func ring(all []*credential) *wire.Keys {
	if len(all) < 2 {
		return nil
	}
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = k.Name
	}
	return wire.NewKeys(names...)
}

// owned reports whether the keys are ours, and not the clients'.
func (u *upstream) owned() bool { return u.credentials[0].Key != "" }

// paced reports whether the provider is paced.
func (u *upstream) paced() bool { return u.credentials[0].Pacing != nil }

// fleetAway reports whether the server of the fleet is away that sets the pace, of any key.
func (u *upstream) fleetAway() bool {
	for _, k := range u.credentials {
		if k.Pacing == nil {
			continue
		}
		if f := k.Pacing.Fleet(); f != nil && f.Away {
			return true
		}
	}
	return false
}

// said adds to an answer that the server of the fleet is away.
func (u *upstream) said(h http.Header) {
	if u.fleetAway() {
		h.Set(headerFleet, "away")
	}
}

// choose picks the key that the attempt goes by: the one that has room soonest, of those
// that did not refuse the call before. It is a refusal when the provider said of all of
// them that the account is spent.
func (a *attempt) choose() *provider.Refusal {
	c, u := a.call, a.call.up
	now := time.Now()
	left := func(i int) time.Duration {
		if !c.asked.Metered || !u.owned() {
			return 0
		}
		return u.credentials[i].spent.left(now, c.asked.Model)
	}
	at := 0
	if u.ring != nil {
		a.unpick()
		at = u.ring.Pick(now, c.affinity, func(i int) bool { return slices.Contains(c.refusedBy, i) || left(i) > 0 },
			func(i, given int) time.Duration {
				if p := u.credentials[i].Pacing; p != nil {
					return max(0, p.RoomAt(c.pool).Sub(now))
				}
				return 0
			})
		a.picked = at
	}
	if at >= 0 {
		if a.by = u.credentials[at]; left(at) <= 0 {
			return nil
		}
	}
	soonest := left(max(at, 0))
	for i := range u.credentials {
		if l := left(i); at < 0 && l > 0 && (soonest <= 0 || l < soonest) {
			soonest = l
		}
	}
	return &provider.Refusal{
		Status: http.StatusTooManyRequests, Code: string(quota.CodeHardLimit), Reason: reason.QuotaExhausted, RetryIn: soonest,
		Message: "The provider said a moment ago that this account's quota is used up.",
	}
}

// unpick gives the key back that was picked.
func (a *attempt) unpick() {
	if a.picked >= 0 {
		a.call.up.ring.Back(a.picked)
		a.picked = -1
	}
}

// doubtFor is how long others go before a key that was refused, where the call could not
// be sent by another to find out whether it is about the key.
const doubtFor = time.Minute

// denial holds an answer by which the provider refuses the key and not the call's rate, if
// the call can be sent by another key. Nil is for an answer that is passed on.
func (a *attempt) denial(res *http.Response) *held {
	c, u := a.call, a.call.up
	if u.ring == nil || res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusForbidden {
		return nil
	}
	body, whole := wire.Peek(res, signal.MaxBody)
	if said := a.reads(body); said.Class.Throttle() || said.Exhausted {
		return nil
	}
	if !c.whole || !whole {
		if res.StatusCode == http.StatusUnauthorized {
			u.ring.Doubt(a.picked, time.Now().Add(doubtFor))
		}
		return nil
	}
	c.refusedBy = append(c.refusedBy, a.picked)
	c.refusals = append(c.refusals, res.StatusCode)
	if !u.ring.Left(c.refusedBy) {
		return nil
	}
	a.head = body
	return &held{res: res, body: body, otherKey: true}
}

// reads is what an answer stands for.
func (a *attempt) reads(body []byte) signal.Signal {
	c := a.call
	s := c.up.Description.Classify(a.answerAt, a.status, a.header, body)
	if c.as != nil {
		_, _, _ = c.up.Profile.Read(a.answerAt, c.as, c.pool, a.status, a.header, unzipped(a.header, body), &s)
	}
	return s
}

// proven sets the keys aside that were refused where this one was not.
func (c *call) proven() {
	for n, i := range c.refusedBy {
		if !c.up.ring.SetAside(i) {
			continue
		}
		k := c.up.credentials[i]
		k.at, k.status = time.Now().Round(0), c.refusals[n]
		k.refuse()
		why := reason.Unauthorized
		if k.status == http.StatusForbidden {
			why = reason.Forbidden
		}
		c.table.log.Warn("a provider's key was refused where another was not, and is set aside until the configuration is loaded again",
			slog.String("provider", c.up.Name), slog.String("provider_key", k.Name), slog.Int("status", k.status))
		if c.table.onKey != nil {
			c.table.onKey(event.Event{
				At: k.at, Type: event.Warning, Connection: ConnectionOf(c.up.Name, k.Name), Reason: why,
				Note: "key_set_aside", Stream: k.Name, Count: int64(k.status),
			})
		}
	}
	c.refusedBy, c.refusals = nil, nil
}

// interval is that at which all keys together send in a pool; 0 is unknown.
func (u *upstream) interval(pool string) time.Duration {
	rate := 0.0
	for _, k := range u.credentials {
		if k.refused.Err() == nil {
			if d := k.Pacing.Pace(pool); d > 0 {
				rate += 1 / float64(d)
			}
		}
	}
	if rate == 0 {
		return 0
	}
	return time.Duration(1 / rate)
}

// ConnectionOf is the name of the connection that a provider and one of its keys are; that
// of the provider for its only key.
func ConnectionOf(provider, key string) string {
	if key == "" {
		return provider
	}
	return provider + "/" + key
}

// KeyStatus is one of several keys of a provider at an instant.
type KeyStatus struct {
	Name string `json:"name"`
	// InFlight are the attempts that it has, those that wait included.
	InFlight int `json:"in_flight"`
	// Throttles are its attempts that the provider refused for rate or load.
	Throttles int64 `json:"throttles"`
	// SetAside is when the key was set aside, Status how it was refused; zero as long as
	// it is used.
	SetAside time.Time `json:"set_aside,omitzero"`
	Status   int       `json:"status,omitempty"`
	// Pacing is the key's rate; nil when it is not paced.
	Pacing *headway.Snapshot `json:"pacing"`
}

// keyStatus are the keys of a provider that has several.
func (u *upstream) keyStatus() (all []KeyStatus) {
	if u.ring == nil {
		return nil
	}
	for i, k := range u.credentials {
		s := KeyStatus{Name: k.Name, InFlight: u.ring.Given(i), Throttles: k.pushed.Load()}
		if k.refused.Err() != nil {
			s.SetAside, s.Status = k.at, k.status
		}
		if k.Pacing != nil {
			s.Pacing = new(k.Pacing.Snapshot())
		}
		all = append(all, s)
	}
	return all
}
