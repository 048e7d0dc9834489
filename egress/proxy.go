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

// Options are what a proxy is made with.
type Options struct {
	// Providers are the upstreams, by unique names.
	Providers []Provider
	// Keys are the Headway keys that clients present. Default: none is asked
	// for, and every client that reaches the proxy may use it.
	Keys *Keys
	// FailedKeys bounds how often one address may present what is not a key. The
	// zero value takes the defaults.
	FailedKeys KeyLimits
	// OnCall is called for every call when it is over, on the call's
	// goroutine, possibly many at a time.
	OnCall func(CallLog)
	// NewSpan, when set, gives the traceparent of a new span, given its parent's: of the
	// call, below that of the client, which is empty without one; and of each attempt,
	// below that of the call. Upstream gets the attempt's as the parent.
	NewSpan func(parent string) string
	// OnCircuit, when set, gets each move of a provider's breakers, as an event of
	// type circuit with the provider as its connection. It must not block.
	OnCircuit func(event.Event)
	// OnKey, when set, gets an event of type warning for each of several keys of a provider
	// that is set aside, with provider and key as its connection, joined by a slash, and
	// the refusal's status as its count. It must not block.
	OnKey func(event.Event)
	// OnEstimate, when set, is called when what calls to a model use is found to be a
	// quarter more or less than was assumed; see [Proxy.Estimates]. It must not block.
	OnEstimate func()
	// Log gets failures of providers as warnings and calls as debug lines, with
	// no content, header, query or address in them. Default: none.
	Log *slog.Logger
}

// Proxy is the http.Handler. Make one with [New].
type Proxy struct {
	table     atomic.Pointer[table]
	transport *http.Transport // of all providers that have none of their own
	origin    time.Time

	draining context.Context // ends when no more calls are taken
	drain    context.CancelFunc
	cutting  context.Context // ends when those under way are cut
	cut      context.CancelFunc

	rounds rounds // over the calls under way

	mu       sync.Mutex // guards what follows, and replacing the table
	inFlight int
	closed   bool
	idle     chan struct{} // closed when closed and nothing is in flight
}

// table is one configuration. It never changes; calls keep the one they began under.
type table struct {
	upstreams  map[string]*upstream
	order      []*upstream
	keys       *keys.Ring
	failedKeys *keys.Limiter
	failed     keys.Limits // what failedKeys is made of
	onCall     func(CallLog)
	onCircuit  func(event.Event)
	onKey      func(event.Event)
	onEstimate func()
	newSpan    func(parent string) string
	log        *slog.Logger
}

// upstream is one provider with what is remembered of it across reloads.
type upstream struct {
	Provider
	send   http.RoundTripper
	traced bool // send is net/http's own, so that its traces can be relied on
	law    string
	charge quota.Charge // what of a call the provider counts
	// credentials are at least one, ring picks from several.
	credentials []*credential
	ring        *wire.Keys
	*memory
}

// memory is what outlives a reload.
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

// newTransport is tuned for one busy client of few hosts: it keeps connections,
// leaves bodies as they are, and reads no more header than any provider sends.
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

// maxResponseHeader is how large a response's header may be, in bytes: somewhat
// more than the 1 MiB that some gateways send.
const maxResponseHeader = 2 << 20

// transportOf is the transport of a provider that has none of its own: that of
// all, unless it differs, or the one that it had before.
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

// Replace swaps the whole configuration. Calls under way end under the one they
// began under; counters and what was learned stay with a provider's name. When
// there is an error nothing has changed; it names provider, field, value and
// bound.
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
		t.failedKeys = before.failedKeys // a reload gives nobody new tries
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

// SetKeys has calls from now on show keys of a ring; nil asks for none. Nothing
// else changes.
func (p *Proxy) SetKeys(ring *Keys) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := *p.table.Load()
	t.keys = ring
	p.table.Store(&t)
}

// closeIdle ends the idle connections of transports that no provider uses any more.
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

// grace is how long calls that were cut have to settle their permits.
const grace = 5 * time.Second

// Drain takes no more calls: new ones, and those that still wait for their turn,
// are refused with 503 and Retry-After. It waits for those under way until the
// context ends, then cuts them and waits until their permits are settled. The
// error says how many were cut; it is safe to call again. There is no way back.
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

// Estimates are what was learned of what calls use.
type Estimates = estimate.Learned

// Estimates are, by provider and model, what was learned of what calls use. It is
// what [Proxy.RestoreEstimates] takes.
func (p *Proxy) Estimates() map[string]map[string]Estimates {
	all := map[string]map[string]Estimates{}
	for _, u := range p.table.Load().order {
		if learned := u.estimator.Learned(); len(learned) > 0 {
			all[u.Name] = learned
		}
	}
	return all
}

// RestoreEstimates takes over what a former proxy had learned, so that the first
// calls, and those that a crash cuts, count by what such calls use. What is not
// valid, or of providers that this proxy does not have, is left out.
func (p *Proxy) RestoreEstimates(all map[string]map[string]Estimates) {
	for name, models := range all {
		if u := p.table.Load().upstreams[name]; u != nil {
			u.estimator.Restore(models)
		}
	}
}
