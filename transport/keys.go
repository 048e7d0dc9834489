package transport

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headway-go/headway/internal/wire"
)

// Key is one of several credentials of the same provider: a connection of its own, with
// its own limits.
type Key struct {
	// Name says which one it is, in events and to [Options]; never the secret.
	Name string
	// Governor is the key's own.
	Governor *Governor
	// Sign puts the credential on an attempt. It may change the request, which is the
	// attempt's own copy.
	Sign func(*http.Request) error
}

// Keys is an http.RoundTripper over several keys. A request goes by the key that has
// room soonest, or by the one that its affinity asks for ([WithAffinity]). A key that is
// refused (401, or 403) where another is not is set aside: the others go on. It is safe
// for concurrent use.
//
// Use it only with keys that the owner may use together: many providers count all keys
// of an account as one, and some forbid it.
type Keys struct {
	// SetAside is called once for each key that is set aside, with its status. It must
	// not block. It is set before the first request; nil is not called.
	SetAside func(name string, status int)

	keys []key
	ring *wire.Keys // of the same order
}

type key struct {
	Key
	transport *Transport
}

// NewKeys makes one of the keys, each with a transport of the options.
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

// signed puts the credential on what is sent.
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

// WithAffinity has all requests of one name go by one key, as long as that is not set
// aside: for cursors that are good for the key that they were given to. The same name and
// keys give the same key in every process.
func WithAffinity(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, affinityKey{}, name)
}

type onlyKey struct{}

// WithKey has a request go by the key of that name and no other, whatever is answered: for
// what is asked of each key, such as what is left of its limits. A name that no key has
// changes nothing.
func WithKey(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, onlyKey{}, name)
}

// RoundTrip sends req by one key, and by another if the first is refused.
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
		if one < 0 { // all were refused: it is not about the key
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

// throttled says whether the newest attempt of the request was refused for rate or load,
// as far as a [Trace] says.
func throttled(req *http.Request) bool {
	t := traceOf(req.Context())
	return t != nil && t.Signal.Class.Throttle()
}

// pick is the key that a request goes by, of those that it was not sent by yet; -1 for
// none. It is the one that has room soonest in the request's pool.
func (k *Keys) pick(affinity, pool string, tried []int) int {
	now := time.Now()
	return k.ring.Pick(now, affinity, func(i int) bool { return slices.Contains(tried, i) }, func(i, given int) time.Duration {
		g := k.keys[i].Governor
		wait := max(0, g.RoomAt(pool).Sub(now))
		// What was given to it a moment ago may not have asked yet.
		if n := given - g.Snapshot().InFlight; n > 0 {
			wait += time.Duration(n) * g.Pace(pool)
		}
		return wait
	})
}

// setAside sets keys aside that were refused where another was not, and never the last.
func (k *Keys) setAside(refused []int, res *http.Response) {
	for _, i := range refused {
		if k.ring.SetAside(i) && k.SetAside != nil {
			k.SetAside(k.keys[i].Name, res.StatusCode)
		}
	}
}

// Aside are the names of the keys that are set aside.
func (k *Keys) Aside() (names []string) {
	for i := range k.keys {
		if k.ring.Aside(i) {
			names = append(names, k.keys[i].Name)
		}
	}
	return names
}
