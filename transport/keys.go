package transport

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/wire"
)

// Key is one of several credentials of the same provider. Each is a connection with its own
// limits.
type Key struct {
	// Name identifies the key. It must be unique, and not the secret.
	Name string
	// Governor is the governor of this key alone.
	Governor *Governor
	// Sign adds the credential to an attempt. It may change the request, which is a copy.
	// An error fails the attempt.
	Sign func(*http.Request) error
}

// Keys is an http.RoundTripper that sends requests with several keys. It uses the key that can
// send soonest, or the one selected by [WithAffinity] or [WithKey]. An idempotent request
// that is refused with 401 or 403 is sent again with another key; with a [Trace] in its
// context, not after a 403 for rate or load. If the other key succeeds, the refused one is set
// aside. Keys is safe for concurrent use.
//
// Use it only with keys that the owner may use together: many providers count all keys
// of an account as one, and some forbid it.
type Keys struct {
	// SetAside, if not nil, is called once for each key that is set aside, with the status
	// of the refusal. It must not block. Set it before the first request.
	SetAside func(name string, status int)

	keys []key
	ring *wire.Keys // in the same order
}

type key struct {
	Key
	transport *Transport
}

// NewKeys returns a round tripper over the keys, each with a transport made from o. The error
// names a missing or repeated key, or an invalid option.
func NewKeys(all []Key, o Options) (*Keys, error) {
	if len(all) == 0 {
		return nil, errors.New("transport: no keys")
	}
	k := new(Keys)
	for _, one := range all {
		if slices.ContainsFunc(k.keys, func(o key) bool { return o.Name == one.Name }) {
			return nil, errors.New("transport: two keys are named " + one.Name)
		}
		options := o
		options.Base = signed{sign: one.Sign, next: o.Base}
		t, err := New(one.Governor, options)
		if err != nil {
			return nil, err
		}
		k.keys = append(k.keys, key{Key: one, transport: t})
	}
	names := make([]string, len(k.keys))
	for i := range k.keys {
		names[i] = k.keys[i].Name
	}
	k.ring = wire.NewKeys(names...)
	return k, nil
}

// signed adds the credential to each attempt.
type signed struct {
	sign func(*http.Request) error
	next http.RoundTripper
}

func (s signed) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	if err := s.sign(out); err != nil {
		closeBody(req)
		return nil, err
	}
	next := s.next
	if next == nil {
		next = http.DefaultTransport
	}
	return next.RoundTrip(out)
}

type affinityKey struct{}

// WithAffinity returns a context whose requests all use the same key while that key is not set
// aside, for example for cursors that are valid only with one key. The same name and keys
// select the same key in every process.
func WithAffinity(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, affinityKey{}, name)
}

type onlyKey struct{}

// WithKey returns a context whose requests use only the named key, whatever the answer is, also
// when the key is set aside. It serves requests about one key, such as for its remaining
// limits. An unknown name has no effect.
func WithKey(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, onlyKey{}, name)
}

// RoundTrip sends req with one key, and with another if the first is refused; see [Keys].
func (k *Keys) RoundTrip(req *http.Request) (*http.Response, error) {
	if name, ok := req.Context().Value(onlyKey{}).(string); ok {
		for i := range k.keys {
			if k.keys[i].Name == name {
				return k.keys[i].transport.RoundTrip(req)
			}
		}
	}
	affinity, _ := req.Context().Value(affinityKey{}).(string)
	pool := k.keys[0].transport.poolOf(req)
	var tried []int
	var first *http.Response
	for {
		one := k.pick(affinity, pool, tried)
		if one < 0 { // all were refused, so the key is not the reason
			return first, nil
		}
		res, err := k.keys[one].transport.RoundTrip(req)
		k.ring.Back(one)
		denied := err == nil && (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden && !throttled(req))
		if !denied {
			if first != nil {
				_ = first.Body.Close()
			}
			if err == nil && res.StatusCode < http.StatusBadRequest {
				k.setAside(tried, first)
			}
			return res, err
		}
		again := Idempotent(req) && (req.Body == nil || req.Body == http.NoBody || req.GetBody != nil)
		if tried = append(tried, one); first == nil {
			first = res
		} else {
			_ = res.Body.Close()
		}
		if !again {
			return first, nil
		}
		if req.Body != nil && req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return first, nil
			}
			req = req.Clone(req.Context())
			req.Body = body
		}
	}
}

// throttled reports whether the last attempt of the request was refused for rate or load. It
// needs a [Trace] in the request's context.
func throttled(req *http.Request) bool {
	t := traceOf(req.Context())
	return t != nil && t.Signal.Class.Throttle()
}

// pick returns the index of the key that can send soonest in the request's pool, among those
// not tried yet; -1 for none.
func (k *Keys) pick(affinity, pool string, tried []int) int {
	now := time.Now()
	return k.ring.Pick(now, affinity, func(i int) bool { return slices.Contains(tried, i) }, func(i, given int) time.Duration {
		g := k.keys[i].Governor
		wait := max(0, g.RoomAt(pool).Sub(now))
		// Requests given to the key may not have asked its governor yet.
		if n := given - g.Snapshot().InFlight; n > 0 {
			wait += time.Duration(n) * g.Pace(pool)
		}
		return wait
	})
}

// setAside sets aside keys that were refused for a request that another key could send. The
// last key in use is never set aside.
func (k *Keys) setAside(refused []int, res *http.Response) {
	for _, i := range refused {
		if k.ring.SetAside(i) && k.SetAside != nil {
			k.SetAside(k.keys[i].Name, res.StatusCode)
		}
	}
}

// Aside returns the names of the keys that are set aside.
func (k *Keys) Aside() (names []string) {
	for i := range k.keys {
		if k.ring.Aside(i) {
			names = append(names, k.keys[i].Name)
		}
	}
	return names
}
