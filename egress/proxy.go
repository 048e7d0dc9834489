package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/estimate"
	"github.com/headway-go/headway/internal/keys"
	"github.com/headway-go/headway/internal/wire"
	"github.com/headway-go/headway/quota"
)

// Options configure a proxy.
type Options struct {
	// Providers are the upstreams. Their names must be unique.
	Providers []Provider
	// Keys are the Headway keys that clients must present. Default: no key is required,
	// and every client that reaches the proxy may use it.
	Keys *Keys
	// FailedKeys bounds how often one address may present an invalid key. The zero value
	// takes the defaults.
	FailedKeys KeyLimits
	// OnCall, when set, is called at the end of every call, on the call's goroutine. It
	// must be safe for concurrent use.
	OnCall func(CallLog)
	// NewSpan, when set, returns the traceparent of a new span below the given parent. It
	// is called for each call, with the client's traceparent or "", and for each attempt,
	// with the call's. The attempt's traceparent is sent upstream.
	NewSpan func(parent string) string
	// OnCircuit, when set, is called for each state change of a provider's breakers, with
	// an event of type circuit and the provider as its connection. It must not block.
	OnCircuit func(event.Event)
	// OnKey, when set, is called for each key of a provider that is set aside, with an
	// event of type warning, "provider/key" as its connection and the refusal's status as
	// its count. It must not block.
	OnKey func(event.Event)
	// OnEstimate, when set, is called when the estimate for a model changes by a quarter or
	// more; see [Proxy.Estimates]. It must not block.
	OnEstimate func()
	// Log receives failures of providers as warnings and calls as debug lines, without
	// content, headers, queries or addresses. Default: nothing is logged.
	Log *slog.Logger
}

// Proxy is an http.Handler that forwards calls to providers. Make one with [New]. It is safe
// for concurrent use.
type Proxy struct {
	table     atomic.Pointer[table]
	transport *http.Transport // of all providers without their own
	origin    time.Time

	draining context.Context // ends when new calls are no longer accepted
	drain    context.CancelFunc
	cutting  context.Context // ends when calls under way are cut
	cut      context.CancelFunc

	rounds rounds // watch the calls under way

	mu       sync.Mutex // guards the fields below, and replacing the table
	inFlight int
	closed   bool
	idle     chan struct{} // closed when closed and nothing is in flight
}

// table is one configuration. It is immutable; a call keeps the one it began under.
type table struct {
	upstreams  map[string]*upstream
	order      []*upstream
	keys       *keys.Ring
	failedKeys *keys.Limiter
	failed     keys.Limits // settings of failedKeys
	onCall     func(CallLog)
	onCircuit  func(event.Event)
	onKey      func(event.Event)
	onEstimate func()
	newSpan    func(parent string) string
	log        *slog.Logger
}

// upstream is a provider with the state that survives reloads.
type upstream struct {
	Provider
	send   http.RoundTripper
	traced bool // send is an http.Transport, whose httptrace events are reliable
	law    string
	charge quota.Charge // how the provider counts a call
	// credentials has at least one element; ring picks among several.
	credentials []*credential
	ring        *wire.Keys
	*memory
}

// memory is the state of a provider that survives a reload.
type memory struct {
	estimator *estimate.Estimator
	circuits  circuits
	injection injection
	counters  counters
}

// New makes a proxy. The error names the provider, field, value and bound.
func New(o Options) (*Proxy, error) {
	p := &Proxy{transport: newTransport(), origin: time.Now(), idle: make(chan struct{})}
	p.draining, p.drain = context.WithCancel(context.Background())
	p.cutting, p.cut = context.WithCancel(context.Background())
	if err := p.Replace(o); err != nil {
		p.drain()
		p.cut()
		return nil, err
	}
	return p, nil
}

// newTransport returns a transport for many calls to few hosts. It keeps connections open,
// does not decompress, and bounds response headers.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        90 * time.Second,
		DialContext:            (&net.Dialer{Timeout: DefaultDialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    DefaultTLSTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
}

// maxResponseHeader bounds a response header in bytes: a little more than the 1 MiB that some
// gateways send.
const maxResponseHeader = 2 << 20

// transportOf returns the transport of a provider without Roundtripper: the shared one, or one
// of its own if its settings differ, kept across reloads.
func (p *Proxy) transportOf(one *Provider, before *table) http.RoundTripper {
	if one.DialTimeout == DefaultDialTimeout && one.TLSTimeout == DefaultTLSTimeout && one.TLS == nil {
		return p.transport
	}
	if before != nil {
		if was := before.upstreams[one.Name]; was != nil && was.Roundtripper == nil &&
			was.DialTimeout == one.DialTimeout && was.TLSTimeout == one.TLSTimeout && was.TLS == one.TLS {
			return was.send
		}
	}
	t := newTransport()
	t.DialContext = (&net.Dialer{Timeout: one.DialTimeout, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout, t.TLSClientConfig = one.TLSTimeout, one.TLS.Clone()
	return t
}

// Replace replaces the whole configuration. Calls under way end under the one they began
// under. Counters and learned state stay with the provider's name. On an error nothing has
// changed; it names the provider, field, value and bound.
func (p *Proxy) Replace(o Options) error {
	failedKeys, err := keys.NewLimiter(o.FailedKeys)
	if err != nil {
		return fmt.Errorf("egress: failed keys: %w", err)
	}
	t := &table{upstreams: make(map[string]*upstream, len(o.Providers)), keys: o.Keys, failedKeys: failedKeys, failed: o.FailedKeys, onCall: o.OnCall, onCircuit: o.OnCircuit, onKey: o.OnKey, onEstimate: o.OnEstimate, newSpan: o.NewSpan, log: o.Log}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if t.onCall == nil {
		t.onCall = func(CallLog) {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.table.Load()
	if before != nil && before.failed == o.FailedKeys {
		t.failedKeys = before.failedKeys // a reload does not reset failed tries
	}
	var faults []error
	for _, one := range o.Providers {
		one, err := one.resolve()
		switch {
		case err != nil:
			faults = append(faults, err)
			continue
		case t.upstreams[one.Name] != nil:
			faults = append(faults, fmt.Errorf("egress: provider %q: name is given twice, must be unique", one.Name))
			continue
		}
		u := &upstream{Provider: one, send: one.Roundtripper, charge: one.rule()}
		if u.send == nil {
			u.send = p.transportOf(&one, before)
		}
		_, u.traced = u.send.(*http.Transport)
		var was *upstream
		if before != nil {
			was = before.upstreams[one.Name]
		}
		u.credentials = credentials(&one, was)
		u.ring = ring(u.credentials)
		if u.paced() {
			u.law = u.credentials[0].Pacing.Snapshot().Law
		}
		if was != nil {
			u.memory = was.memory
		} else {
			u.memory = &memory{estimator: estimate.New()}
		}
		t.upstreams[one.Name] = u
		t.order = append(t.order, u)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	p.table.Store(t)
	if before != nil {
		p.closeIdle(before, t)
	}
	return nil
}

// SetKeys replaces the keys that new calls must present; nil requires none. It changes
// nothing else.
func (p *Proxy) SetKeys(ring *Keys) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := *p.table.Load()
	t.keys = ring
	p.table.Store(&t)
}

// closeIdle closes idle connections of transports that no provider uses any more.
func (p *Proxy) closeIdle(before, now *table) {
	used := map[http.RoundTripper]bool{}
	for _, u := range now.order {
		if own, ok := u.send.(*http.Transport); ok {
			used[own] = true
		}
	}
	for _, u := range before.order {
		if own, ok := u.send.(*http.Transport); ok && u.Roundtripper == nil && !used[own] {
			own.CloseIdleConnections()
		}
	}
}

// grace is the time for calls that were cut to settle their permits.
const grace = 5 * time.Second

// Drain stops the proxy for good. New and waiting calls are refused with 503 and Retry-After.
// It waits for calls under way until the context ends, then cuts them and waits until their
// permits are settled. The error says how many were cut. It may be called several times.
func (p *Proxy) Drain(ctx context.Context) error {
	defer func() {
		p.rounds.rest()
		p.transport.CloseIdleConnections()
		p.closeIdle(p.table.Load(), &table{})
	}()
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		if p.inFlight == 0 {
			close(p.idle)
		}
	}
	p.mu.Unlock()
	p.drain()
	select {
	case <-p.idle:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	left := p.inFlight
	p.mu.Unlock()
	p.cut()
	p.rounds.cutAll()
	if left == 0 {
		return nil
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-p.idle:
		return fmt.Errorf("egress: %d calls were cut, because they did not end in time; their permits are settled: %w", left, context.Cause(ctx))
	case <-late.C:
		return fmt.Errorf("egress: %d calls were cut, and not all ended within %v: %w", left, grace, context.Cause(ctx))
	}
}

// Estimates is the learned usage of calls to a model.
type Estimates = estimate.Learned

// Estimates returns the learned usage of calls, by provider and model.
// [Proxy.RestoreEstimates] takes it.
func (p *Proxy) Estimates() map[string]map[string]Estimates {
	all := map[string]map[string]Estimates{}
	for _, u := range p.table.Load().order {
		if learned := u.estimator.Learned(); len(learned) > 0 {
			all[u.Name] = learned
		}
	}
	return all
}

// RestoreEstimates restores what [Proxy.Estimates] of an earlier proxy returned, so that the
// first calls, and calls that a crash cuts, are charged realistically. Invalid entries and
// those of unknown providers are ignored.
func (p *Proxy) RestoreEstimates(all map[string]map[string]Estimates) {
	for name, models := range all {
		if u := p.table.Load().upstreams[name]; u != nil {
			u.estimator.Restore(models)
		}
	}
}
