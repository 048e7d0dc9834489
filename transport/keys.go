package transport

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	headway "github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/wire"
	"github.com/headway-go/headway/reason"
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
// send soonest, or the one selected by [WithAffinity] or [WithKey]. A request that waits for
// its key, also after a refusal, moves to another one that can send it a second earlier. An
// idempotent request
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
	for moved := 0; ; {
		one := k.pick(affinity, pool, tried)
		if one < 0 { // all were refused, so the key is not the reason
			return first, nil
		}
		attempt := req
		if affinity == "" && moved < 2*len(k.keys) && repeatable(req) {
			attempt = req.WithContext(context.WithValue(req.Context(), soonerKey{}, func() bool { return k.sooner(one, pool, tried) }))
		}
		res, err := k.keys[one].transport.RoundTrip(attempt)
		k.ring.Back(one)
		if errors.Is(err, errSooner) {
			moved++
			if req, err = repeated(req); err != nil {
				return first, err
			}
			continue
		}
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
		again := Idempotent(req) && repeatable(req)
		if tried = append(tried, one); first == nil {
			first = res
		} else {
			_ = res.Body.Close()
		}
		if !again {
			return first, nil
		}
		if req, err = repeated(req); err != nil {
			return first, nil
		}
	}
}

// repeatable reports whether a request can be sent more than once.
func repeatable(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// repeated returns a request to send again, with a new body.
func repeated(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.GetBody == nil {
		return req, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Body = body
	return req, nil
}

// soonerBy is how much earlier another key must be able to send a request that waits.
const soonerBy = time.Second

// errSooner gives a request back to [Keys], since another key can send it sooner. No response
// is returned with it.
var errSooner = errors.New("transport: another key can send the request sooner")

// soonerKey is the context key of a func() bool that reports whether another key can send the
// request sooner; without it the request stays with its key.
type soonerKey struct{}

func soonerOf(ctx context.Context) func() bool {
	f, _ := ctx.Value(soonerKey{}).(func() bool)
	return f
}

// sooner reports whether another key, of those not tried yet, can send a request of a pool
// sooner than the given one.
func (k *Keys) sooner(one int, pool string, tried []int) bool {
	now := time.Now()
	own := k.wait(now, one, pool, 0)
	for i := range k.keys {
		if i != one && !slices.Contains(tried, i) && !k.ring.Aside(i) && k.wait(now, i, pool, k.ring.Given(i))+soonerBy < own {
			return true
		}
	}
	return false
}

// wait returns how long a request of a pool would wait for a key that was given so many.
func (k *Keys) wait(now time.Time, i int, pool string, given int) time.Duration {
	g := k.keys[i].Governor
	wait := max(0, g.RoomAt(pool).Sub(now))
	// Requests given to the key may not have asked its governor yet.
	if n := given - g.Snapshot().InFlight; n > 0 {
		wait += time.Duration(n) * g.Pace(pool)
	}
	return wait
}

// throttled reports whether the last attempt of the request was refused for rate or load. It
// needs a [Trace] in the request's context.
func throttled(req *http.Request) bool {
	t := traceOf(req.Context())
	return t != nil && t.Signal.Class.Throttle()
}

// permit waits for a permit. It fails with errSooner when the wait takes longer than soonerBy
// and another key can send the request sooner.
func (t *Transport) permit(ctx context.Context, ask headway.Request) (headway.Permit, error) {
	sooner := soonerOf(ctx)
	if sooner == nil {
		return t.governor.AcquireFor(ctx, ask)
	}
	soon, done := context.WithTimeout(ctx, soonerBy)
	defer done()
	permit, err := t.governor.AcquireFor(soon, ask)
	switch late, ok := errors.AsType[*reason.Refusal](err); {
	case !ok, late.RetryAt.IsZero() && soon.Err() == nil, late.Reason == reason.CircuitOpen.Reason(), ctx.Err() != nil:
		return permit, err
	case sooner():
		return permit, errSooner
	}
	return t.governor.AcquireFor(ctx, ask)
}

// giveBack closes what is left of a request that another key is to send.
func (t *Transport) giveBack(req *http.Request, last *answer) {
	closeBody(req)
	if last.res != nil {
		_ = last.res.Body.Close()
	}
}

// pick returns the index of the key that can send soonest in the request's pool, among those
// not tried yet; -1 for none.
func (k *Keys) pick(affinity, pool string, tried []int) int {
	now := time.Now()
	return k.ring.Pick(now, affinity, func(i int) bool { return slices.Contains(tried, i) }, func(i, given int) time.Duration {
		return k.wait(now, i, pool, given)
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
