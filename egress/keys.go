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

// Credential is one of several keys of a provider. Each is a connection with its own limits.
type Credential struct {
	// Name identifies the key in logs, events and status. 1 to 64 lower-case letters,
	// digits, dots, hyphens and underscores.
	Name string
	// Key is the provider's key.
	Key string
	// Pacing paces the key, as [Provider].Pacing. Either each key has its own governor or
	// all are nil.
	Pacing *headway.Governor
}

// maxKeys bounds the keys of one provider.
const maxKeys = 100

// checkKeys describes the first fault in the keys of a provider; "" without one.
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

// credential is a key of a provider with its state. The name is empty for a single key.
type credential struct {
	Credential
	begun   begun
	spent   *spent
	asked   *asked
	pushed  *atomic.Int64   // attempts refused for rate or load
	refused context.Context // ends when the key is set aside
	refuse  context.CancelFunc
	at      time.Time // of that; refused has ended
	status  int       // with which it was refused
}

// credentials returns the keys of a provider. Keys that it had before keep their state, but
// are no longer set aside.
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

// ring returns the picker for several keys; nil for a single key.
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

// owned reports whether the keys are configured, and not the clients' own.
func (u *upstream) owned() bool { return u.credentials[0].Key != "" }

// paced reports whether the provider is paced.
func (u *upstream) paced() bool { return u.credentials[0].Pacing != nil }

// fleetAway reports whether the fleet server of any key, or of the budget, is unreachable.
func (u *upstream) fleetAway() bool {
	if q, ok := u.Approver.(interface{ Away() bool }); ok && q.Away() {
		return true
	}
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

// markFleet adds a header field to an answer while the fleet server is unreachable.
func (u *upstream) markFleet(h http.Header) {
	if u.fleetAway() {
		h.Set(headerFleet, "away")
	}
}

// choose picks the key for the attempt: the one that can send soonest, of those that were not
// refused for this call before. It returns a refusal when the provider reported the quota of
// every key as used up.
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

// unpick gives back the picked key.
func (a *attempt) unpick() {
	if a.picked >= 0 {
		a.call.up.ring.Back(a.picked)
		a.picked = -1
	}
}

// doubtFor is how long other keys are preferred to a refused key, when the call could not be
// sent with another key to find out whether the key was the reason.
const doubtFor = time.Minute

// denial holds an answer that refuses the key, rather than the rate, if the call can be sent
// with another key. It returns nil for any other answer, which is passed on.
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

// reads classifies an answer.
func (a *attempt) reads(body []byte) signal.Signal {
	c := a.call
	s := c.up.Description.Classify(a.answerAt, a.status, a.header, body)
	if c.as != nil {
		_, _, _ = c.up.Profile.Read(a.answerAt, c.as, c.pool, a.status, a.header, unzipped(a.header, body), &s)
	}
	return s
}

// proven sets aside the keys that were refused for a call that this key could send.
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
		c.table.log.Warn("a provider refused a key and accepted another; the key is set aside until the next reload",
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

// interval returns the interval at which all keys together send in a pool; 0 if unknown.
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

// ConnectionOf returns the connection name of one key of a provider, "provider/key". It is
// the provider's name where the key has no name, because it is the only one.
func ConnectionOf(provider, key string) string {
	if key == "" {
		return provider
	}
	return provider + "/" + key
}

// KeyStatus is the state of one of several keys of a provider at an instant.
type KeyStatus struct {
	Name string `json:"name"`
	// InFlight is the number of attempts with this key, including those that wait.
	InFlight int `json:"in_flight"`
	// Throttles counts attempts that the provider refused for rate or load.
	Throttles int64 `json:"throttles"`
	// SetAside is when the key was set aside, Status the status with which it was
	// refused. Both are zero while the key is in use.
	SetAside time.Time `json:"set_aside,omitzero"`
	Status   int       `json:"status,omitempty"`
	// Pacing is the key's rate; nil without pacing.
	Pacing *headway.Snapshot `json:"pacing"`
}

// keyStatus returns the state of each key of a provider with several.
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
