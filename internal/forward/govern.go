package forward

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/internal/profile"
	"github.com/headway-go/headway/internal/wire"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/transport"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// call is one request of the program under way.
type call struct {
	to       *tunnel
	host     string
	governed bool
	body     *kept
	out      *plain
}

type callKey struct{}

// forward sends a request to its host and relays the answer.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, to *tunnel) {
	host, _, ok := split(to.authority, "80")
	if !ok {
		http.Error(w, "headway: not an address that can be connected to", http.StatusBadRequest)
		return
	}
	c := &call{to: to, host: host, governed: p.named(host)}
	if !c.governed {
		p.counts.tunnel(host)
	}
	p.counts.underWay.Add(1)
	defer p.counts.underWay.Add(-1)
	if r.ProtoMajor == 1 && r.Body != http.NoBody {
		_ = http.NewResponseController(w).EnableFullDuplex() // an answer may come before the end of the body
	}
	if c.governed {
		c.body = keep(r, &p.keptMemory, maxKept)
		if c.body != nil {
			defer c.body.end()
		}
	}
	c.out = &plain{ResponseWriter: w, chunks: r.ProtoMajor == 1 && r.Method != http.MethodHead}
	p.relay.ServeHTTP(c.out, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
}

// rewrite sets the address of the outgoing request, and leaves the rest unchanged.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	c := callOf(r.In.Context())
	out := r.Out
	out.URL.Scheme, out.URL.Host = c.to.scheme, hostOf(c.to)
	out.Host = r.In.Host
	out.URL.RawQuery = r.In.URL.RawQuery
	if path, _, _ := strings.Cut(r.In.RequestURI, "?"); strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && path != out.URL.EscapedPath() {
		out.URL.Opaque = path // unchanged, since a signature may cover it
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[name]; ok {
			out.Header[name] = v
		}
	}
	if strings.EqualFold(out.Header.Get("Upgrade"), "h2c") { // a proxy need not pass on this offer
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
		out.Header.Del("Http2-Settings")
	}
	out.GetBody, out.Trailer = r.In.GetBody, r.In.Trailer
}

// hostOf returns the authority of a tunnel, without a default port.
func hostOf(t *tunnel) string {
	host, port, err := net.SplitHostPort(t.authority)
	if err != nil || port != map[string]string{"http": "80", "https": "443"}[t.scheme] {
		return t.authority
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// send sends a request, through its governor if the host is governed.
func (p *Proxy) send(r *http.Request) (*http.Response, error) {
	c := callOf(r.Context())
	if !c.governed {
		return p.base.RoundTrip(r)
	}
	of, err := p.connection(r, c)
	if err != nil {
		return nil, err
	}
	of.requests.Add(1)
	trace := new(transport.Trace)
	res, err := of.transport.RoundTrip(r.WithContext(transport.WithTrace(r.Context(), trace)))
	if trace.Attempts > 1 {
		of.held.Add(1)
	}
	if err == nil && trace.Signal.Class.Throttle() {
		of.passed.Add(1)
	}
	if err != nil && trace.Attempts == 0 && r.Context().Err() == nil {
		of.refused.Add(1)
	}
	return res, err
}

// failed answers a request that got no answer from its host.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r.Context())
	if no, ok := errors.AsType[*reason.Refusal](err); ok && r.Context().Err() == nil {
		if wait := time.Until(no.RetryAt); !no.RetryAt.IsZero() && wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		}
		http.Error(w, "headway: "+c.host+" would not have taken this request within --max-wait", http.StatusTooManyRequests)
		return
	}
	if r.Context().Err() != nil || !wire.Unsent(err) {
		panic(http.ErrAbortHandler) // close the connection, as the server did
	}
	what := cause(err)
	if wire.Untrusted(err) {
		what = "its certificate is not trusted, or it speaks no TLS"
	}
	http.Error(w, "headway: "+c.host+" could not be reached: "+what, http.StatusBadGateway)
}

// connection is one credential at one provider. Its requests share a governor.
type connection struct {
	name      string // of the provider, not of the credential
	governor  *headway.Governor
	transport *transport.Transport

	requests, attempts, throttles, held, passed, refused, waits atomic.Int64
	waited                                                      atomic.Int64 // nanoseconds
}

type connectionKey struct {
	name       string
	credential [sha256.Size]byte
}

// maxConnections bounds the number of connections. Beyond it, further credentials of a
// provider share one.
const maxConnections = 256

// described has the name of a host's connection and a function that makes its profile; nil
// without one.
type described struct {
	name string
	make func() (*profile.Profile, error)
}

// governed are the connections of a proxy.
type governed struct {
	mu   sync.Mutex
	all  map[connectionKey]*connection
	made []*connection // in that order
	salt []byte
	// hosts are the hosts whose profile was looked up.
	hosts map[string]described
}

func newGoverned() *governed {
	g := new(governed)
	g.all, g.salt = map[connectionKey]*connection{}, make([]byte, sha256.Size)
	g.hosts = map[string]described{}
	_, _ = rand.Read(g.salt) // never fails
	return g
}

func (g *governed) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.made {
		c.governor.Close()
	}
}

// list returns all connections.
func (g *governed) list() []*connection {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*connection(nil), g.made...)
}

// describe finds the profile of a host. Hosts of one provider share its limits.
func (p *Proxy) describe(host string) described {
	if p.o.Profile == nil {
		return described{name: host}
	}
	g := p.governed
	g.mu.Lock()
	known, ok := g.hosts[host]
	g.mu.Unlock()
	if ok {
		return known
	}
	if known.name, known.make = p.o.Profile(host); known.name == "" { // may read files
		known = described{name: host}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.hosts) >= maxHosts {
		clear(g.hosts)
	}
	g.hosts[host] = known
	return known
}

// connection returns the connection of a request, found by its provider and a hash of its
// credential.
func (p *Proxy) connection(r *http.Request, c *call) (*connection, error) {
	known, secret := p.describe(c.host), credential(r.Header)
	name := known.name
	h := hmac.New(sha256.New, p.governed.salt)
	_, _ = h.Write([]byte(secret))
	key := connectionKey{name: name}
	h.Sum(key.credential[:0])
	g := p.governed
	g.mu.Lock()
	defer g.mu.Unlock()
	if of := g.all[key]; of != nil {
		return of, nil
	}
	if len(g.made) >= maxConnections {
		secret, key.credential = "", [sha256.Size]byte{}
		if of := g.all[key]; of != nil {
			return of, nil
		}
	}
	of := &connection{name: name}
	var published transport.Profile
	member := hostOf(c.to)
	if known.make != nil {
		made, err := known.make()
		if err != nil {
			return nil, err
		}
		published, member = made, memberHost(made.Hosts(), c.host, member)
	}
	config := headway.Config{
		Name: name, Passive: true, Ceiling: p.o.Ceiling, MaxWait: p.o.MaxWait, PermitTimeout: max(p.o.MaxWait, headway.DefaultPermitTimeout),
		NoBreaker: true, OnEvent: p.o.OnEvent,
	}
	if p.o.Fleet != nil {
		config.Fleet = p.o.Fleet.Member(member, secret)
	}
	var err error
	if of.governor, err = headway.New(config); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	p.o.Learned[name].restore(of.governor, time.Now())
	of.transport, err = transport.New(of.governor, transport.Options{
		Base: p.base, Hold: p.o.MaxWait, Outage: p.o.MaxOutage, Profile: published, Observe: of.observe, GaveUp: of.gaveUp,
		Retryable: func(r *http.Request) bool { return p.mayResend(r) },
	})
	if err != nil {
		of.governor.Close()
		return nil, fmt.Errorf("forward: %w", err)
	}
	g.all[key] = of
	g.made = append(g.made, of)
	return of, nil
}

// mayResend reports whether a refused request may be sent again: its method allows it, and its
// whole body was kept.
func (p *Proxy) mayResend(r *http.Request) bool {
	if !transport.Idempotent(r) && !p.resend[cmp.Or(r.Method, http.MethodGet)] {
		return false
	}
	c := callOf(r.Context())
	return c.body == nil || c.body.whole()
}

func (c *connection) observe(a transport.Attempt) {
	c.attempts.Add(1)
	if a.Class.Throttle() {
		c.throttles.Add(1)
	}
	c.gaveUp(a)
}

// gaveUp counts the wait of an attempt that was not sent.
func (c *connection) gaveUp(a transport.Attempt) {
	if a.Held.Reason != reason.None {
		c.waits.Add(1)
		c.waited.Add(int64(a.Wait))
	}
}

// errNotKept reports that the beginning of a body was not kept.
var errNotKept = errors.New("forward: the body was too long to be kept for another attempt")

// memoryBudget bounds the bytes of all kept bodies together.
type memoryBudget struct{ left atomic.Int64 }

func (r *memoryBudget) take(n int) bool {
	if r.left.Add(-int64(n)) < 0 {
		r.left.Add(int64(n))
		return false
	}
	return true
}

// kept is a request body that is streamed and, up to a bound, kept in memory, so that it can
// be sent again.
type kept struct {
	memory *memoryBudget
	limit  int
	turn   chan struct{} // holds one token, which guards the fields below

	from  io.ReadCloser
	got   []byte
	read  int64 // bytes read from the client
	err   error // how the client's body ended
	short bool  // the beginning is no longer kept
}

// keep replaces the body of a request, if it has one, with a kept body.
func keep(req *http.Request, r *memoryBudget, limit int) *kept {
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	k := &kept{memory: r, limit: limit, turn: make(chan struct{}, 1), from: req.Body}
	k.turn <- struct{}{}
	req.Body = &reading{of: k}
	req.GetBody = func() (io.ReadCloser, error) {
		<-k.turn
		defer func() { k.turn <- struct{}{} }()
		if k.short {
			return nil, errNotKept
		}
		return &reading{of: k}, nil
	}
	return k
}

// whole reads the rest of the body from the client, and reports whether the whole body is
// kept. An attempt can be refused before its body was read to the end.
func (k *kept) whole() bool {
	<-k.turn
	defer func() { k.turn <- struct{}{} }()
	for !k.short && k.err == nil {
		k.more(make([]byte, 32<<10))
	}
	return !k.short && errors.Is(k.err, io.EOF)
}

// more reads from the client. The caller holds the token.
func (k *kept) more(p []byte) (n int) {
	n, k.err = k.from.Read(p)
	k.read += int64(n)
	switch {
	case k.short:
	case len(k.got)+n > k.limit || !k.memory.take(n):
		k.drop()
	default:
		k.got = append(k.got, p[:n]...)
	}
	return n
}

// drop frees the kept bytes. The caller holds the token.
func (k *kept) drop() {
	k.memory.left.Add(int64(len(k.got)))
	k.got, k.short = nil, true
}

// end frees the body after the request. A read under way at that time ends with the client's
// connection.
func (k *kept) end() {
	select {
	case <-k.turn:
		k.drop()
		k.turn <- struct{}{}
	default:
		go func() {
			<-k.turn
			k.drop()
			k.turn <- struct{}{}
		}()
	}
}

// reading is the body reader of one attempt.
type reading struct {
	of     *kept
	at     int64
	closed atomic.Bool
}

func (r *reading) Read(p []byte) (n int, err error) {
	k := r.of
	<-k.turn
	defer func() { k.turn <- struct{}{} }()
	switch {
	case r.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case r.at == k.read:
		if k.err != nil {
			return 0, k.err
		}
		n = k.more(p)
		r.at += int64(n)
		return n, k.err
	case k.short:
		return 0, errNotKept
	}
	n = copy(p, k.got[r.at:])
	r.at += int64(n)
	return n, nil
}

// Close ends the reading of this attempt. The client's body stays open for the next one.
func (r *reading) Close() error {
	r.closed.Store(true)
	return nil
}
