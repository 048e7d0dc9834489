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

// call is one request of the program on its way.
type call struct {
	to       *tunnel
	host     string
	governed bool
	body     *kept
}

type callKey struct{}

// forward sends a request on and relays the answer.
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
		_ = http.NewResponseController(w).EnableFullDuplex() // an answer may come before the body's end
	}
	if c.governed {
		c.body = keep(r, &p.room, maxKept)
		if c.body != nil {
			defer c.body.end()
		}
	}
	p.relay.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
}

// rewrite addresses a request, and leaves the rest of it as the program made it.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	c := callOf(r.In.Context())
	out := r.Out
	out.URL.Scheme, out.URL.Host = c.to.scheme, usually(c.to)
	out.Host = r.In.Host
	out.URL.RawQuery = r.In.URL.RawQuery
	if path, _, _ := strings.Cut(r.In.RequestURI, "?"); strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && path != out.URL.EscapedPath() {
		out.URL.Opaque = path // as it was written: a signature may be of that
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[name]; ok {
			out.Header[name] = v
		}
	}
	if strings.EqualFold(out.Header.Get("Upgrade"), "h2c") { // an offer that a proxy need not pass on
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
		out.Header.Del("Http2-Settings")
	}
	out.GetBody, out.Trailer = r.In.GetBody, r.In.Trailer
}

// usually is a tunnel's authority without a port that goes without saying.
func usually(t *tunnel) string {
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

// send sends a request, governed if its host is.
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

// failed answers a request that got no answer.
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
		panic(http.ErrAbortHandler) // the connection ends, as that to the server did
	}
	what := cause(err)
	if wire.Untrusted(err) {
		what = "its certificate is not trusted, or it speaks no TLS"
	}
	http.Error(w, "headway: "+c.host+" could not be reached: "+what, http.StatusBadGateway)
}

// connection is what is governed together: one credential at one provider.
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

// maxConnections bounds the credentials that are distinguished. The rest of a provider's
// share a connection.
const maxConnections = 256

// described is the name of a host's connection, and how its profile is made; nil for none.
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
	// hosts are those whose profile was looked for.
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

// list are the connections there are.
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
	if known.name, known.make = p.o.Profile(host); known.name == "" { // which may read files
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

// connection finds the connection of a request, by its provider and a hash of its
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
	if known.make != nil {
		made, err := known.make()
		if err != nil {
			return nil, err
		}
		published = made
	}
	config := headway.Config{
		Name: name, Passive: true, Ceiling: p.o.Ceiling, MaxWait: p.o.MaxWait, PermitTimeout: max(p.o.MaxWait, headway.DefaultPermitTimeout),
		NoBreaker: true, OnEvent: p.o.OnEvent,
	}
	if p.o.Fleet != nil {
		config.Fleet = p.o.Fleet.Member(usually(c.to), secret)
	}
	var err error
	if of.governor, err = headway.New(config); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	p.o.Learned[name].restore(of.governor, time.Now())
	of.transport, err = transport.New(of.governor, transport.Options{
		Base: p.base, Hold: p.o.MaxWait, Profile: published, Observe: of.observe, GaveUp: of.gaveUp,
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

// credential is what tells the credential of a request from others: of an Authorization
// whose text changes with each request, as that of a signature does, the part that stays.
func credential(h http.Header) string {
	text := h.Get("Authorization")
	if text == "" {
		for _, name := range []string{"X-Api-Key", "Api-Key", "Private-Token", "X-Goog-Api-Key"} {
			if v := h.Get(name); v != "" {
				return v
			}
		}
		return ""
	}
	kind, rest, _ := strings.Cut(text, " ")
	parameter := func(name string) string {
		for part := range strings.SplitSeq(rest, ",") {
			if key, value, ok := strings.Cut(strings.TrimSpace(part), "="); ok && strings.EqualFold(key, name) {
				return strings.Trim(value, `"`)
			}
		}
		return ""
	}
	switch lower := strings.ToLower(kind); {
	case strings.HasPrefix(lower, "aws4-"):
		id, _, _ := strings.Cut(parameter("Credential"), "/")
		return id
	case lower == "aws":
		id, _, _ := strings.Cut(rest, ":")
		return id
	case lower == "digest":
		return parameter("username")
	case lower == "oauth":
		return parameter("oauth_consumer_key") + " " + parameter("oauth_token")
	case lower == "bearer", lower == "token":
		return strings.TrimSpace(rest)
	}
	return text
}

// mayResend reports whether a refused request may be sent again: by its method, and with its
// body, of which all must be here.
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

// gaveUp counts the wait of an attempt.
func (c *connection) gaveUp(a transport.Attempt) {
	if a.Held.Reason != reason.None {
		c.waits.Add(1)
		c.waited.Add(int64(a.Wait))
	}
}

// buffers are those through which bodies pass.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

func (buffers) Get() []byte { return bufferPool.Get().(*[bufferBytes]byte)[:] }

func (buffers) Put(b []byte) {
	if cap(b) == bufferBytes {
		bufferPool.Put((*[bufferBytes]byte)(b[:bufferBytes]))
	}
}

// errNotKept says that the beginning of a body is no longer there.
var errNotKept = errors.New("forward: the body was too long to be kept for another attempt")

// room bounds what all kept bodies take together.
type room struct{ left atomic.Int64 }

func (r *room) take(n int) bool {
	if r.left.Add(-int64(n)) < 0 {
		r.left.Add(int64(n))
		return false
	}
	return true
}

// kept is the body of a request: it is passed on as it comes and, up to a bound, kept, so
// that it can be sent again.
type kept struct {
	room  *room
	limit int
	turn  chan struct{} // holds one token: who has it uses what follows

	from  io.ReadCloser
	got   []byte
	read  int64 // bytes read from the client
	err   error // how the client's body ended
	short bool  // it is no longer kept from its beginning
}

// keep has a request's body be kept, if there is one.
func keep(req *http.Request, r *room, limit int) *kept {
	if req.Body == nil || req.Body == http.NoBody {
		return nil
	}
	k := &kept{room: r, limit: limit, turn: make(chan struct{}, 1), from: req.Body}
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

// whole reads what the client has not sent yet, and reports whether all of the body is
// kept. An attempt can be refused before it was sent to its end.
func (k *kept) whole() bool {
	<-k.turn
	defer func() { k.turn <- struct{}{} }()
	for !k.short && k.err == nil {
		k.more(make([]byte, 32<<10))
	}
	return !k.short && errors.Is(k.err, io.EOF)
}

// more reads from the client. The token is held.
func (k *kept) more(p []byte) (n int) {
	n, k.err = k.from.Read(p)
	k.read += int64(n)
	switch {
	case k.short:
	case len(k.got)+n > k.limit || !k.room.take(n):
		k.drop()
	default:
		k.got = append(k.got, p[:n]...)
	}
	return n
}

// drop gives up what is kept. The token is held.
func (k *kept) drop() {
	k.room.left.Add(int64(len(k.got)))
	k.got, k.short = nil, true
}

// end gives back what the body takes, once the request is done with. A read that is under
// way then ends with the client's connection.
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

// reading is one attempt's way through the body.
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

// Close ends the attempt's reading; the client's body stays for the next.
func (r *reading) Close() error {
	r.closed.Store(true)
	return nil
}
