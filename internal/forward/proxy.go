// Package forward is a forward proxy for one user's programs. It decrypts connections to the
// named hosts and governs their requests: a request that the provider refuses for rate is held
// and sent again. Every other connection passes through unchanged.
//
// The caller provides the listener. The proxy follows no redirects, and sends a request only to
// the host that the program asked for. It stores and logs no credential, header value, path or
// body.
package forward

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/ca"
	"github.com/headway-go/headway/internal/profile"
)

// Options configure a proxy. Issuer, Password and MaxWait are required.
type Options struct {
	// Hosts are patterns of the hosts to decrypt and govern; see [Pattern].
	Hosts []string
	// All decrypts and governs all hosts.
	All bool
	// PassThrough passes connections to a named host through unchanged if they are not HTTP
	// or the program rejects the proxy's certificate. Default: they are closed.
	PassThrough bool
	// Issuer issues the certificates for the hosts.
	Issuer *ca.Issuer
	// Password is the password that programs present. Processes of the same user do not need
	// it where the system reports the owner of a connection.
	Password string
	// Profile returns the name of a host's profile, "" for none, and a function that makes the
	// profile for one connection. Hosts with the same profile share a connection for each
	// credential.
	Profile func(host string) (name string, make func() (*profile.Profile, error))
	// MaxWait bounds how long a request is held, waits for permits included.
	MaxWait time.Duration
	// MaxOutage bounds MaxWait while the provider is overloaded (503 or 529) and names no wait.
	// Default 0: no such bound.
	MaxOutage time.Duration
	// Resend are methods that may be sent again, in addition to the idempotent ones.
	Resend []string
	// Ceiling is the minimum interval between two attempts of a connection. Default 0: none.
	Ceiling time.Duration
	// Fleet shares the pace with other processes, by the host of a provider and the
	// credential. Default: none.
	Fleet interface {
		Member(provider, credential string) headway.Fleet
	}
	// Base sends the attempts. Default: an http.Transport that uses the proxy of the
	// environment.
	Base http.RoundTripper
	// Dial connects to a host that is not decrypted. Default: TCP, through the proxy of the
	// environment.
	Dial func(ctx context.Context, authority string) (net.Conn, error)
	// Learned is the state learned in earlier runs, by connection name.
	Learned map[string]Belief
	// OnEvent, when set, is called for events of pacing.
	OnEvent func(event.Event)
	// OnDistrust, when set, is called the first time that a program rejects the certificate
	// for a host.
	OnDistrust func(host string)
}

// Proxy is a forward proxy. Make one with [New]. It is safe for concurrent use.
type Proxy struct {
	o          Options
	outer      http.Server // for the program's connections
	inner      http.Server // for the requests inside tunnels
	tunnels    tunnels
	relay      httputil.ReverseProxy
	base       http.RoundTripper
	own        *http.Transport // base, if the proxy must close it
	resend     map[string]bool
	keptMemory memoryBudget
	ctx        context.Context // ends with the proxy
	end        context.CancelFunc
	counts     counts
	ownedBy    func(remote, local string, uid int) bool // socketOf; replaced in tests
	governed   *governed
	serving    sync.WaitGroup
}

const (
	maxKept     = 4 << 20   // of one request's body
	maxKeptAll  = 128 << 20 // of all of them
	dialTime    = 30 * time.Second
	headerTime  = time.Minute
	idleTime    = 10 * time.Minute
	silentTime  = 5 * time.Second // until a silent tunnel is passed through
	maxHeader   = 2 << 20
	maxIdle     = 256
	flushTime   = 10 * time.Millisecond // of a body of known length; others are flushed at each write
	bufferBytes = 32 << 10              // of a connection to a provider
	copyBytes   = 64 << 10              // of a body under way
)

// New returns a proxy.
func New(o Options) *Proxy {
	p := &Proxy{o: o, base: o.Base, resend: map[string]bool{}, ownedBy: socketOf}
	p.ctx, p.end = context.WithCancel(context.Background())
	for _, m := range o.Resend {
		p.resend[strings.ToUpper(m)] = true
	}
	p.keptMemory.left.Store(maxKeptAll)
	if p.base == nil {
		p.own = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableCompression: true, ForceAttemptHTTP2: true,
			MaxIdleConns: 4 * maxIdle, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: 90 * time.Second,
			DialContext:         (&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: dialTime, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: maxHeader,
			WriteBufferSize: bufferBytes, ReadBufferSize: bufferBytes, OnProxyConnectResponse: connected,
		}
		p.base = p.own
	}
	if p.o.Dial == nil {
		p.o.Dial = dial
	}
	silent := log.New(io.Discard, "", 0) // net/http would quote what programs and providers sent
	p.outer = http.Server{
		Handler: http.HandlerFunc(p.accept), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, ErrorLog: silent,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, ownKey{}, new(atomic.Bool))
		},
	}
	p.inner = http.Server{
		Handler: http.HandlerFunc(p.inside), DisableGeneralOptionsHandler: true, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader, ErrorLog: silent,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, tunnelKey{}, tunnelOf(c))
		},
		ConnState: p.state,
	}
	p.tunnels = tunnels{next: make(chan net.Conn), closed: p.ctx.Done()}
	p.relay = httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: roundTripper(p.send), ModifyResponse: p.pass, ErrorHandler: p.failed,
		FlushInterval: flushTime, BufferPool: buffers{}, ErrorLog: silent,
	}
	p.governed = newGoverned()
	p.serving.Go(func() { _ = p.inner.Serve(&p.tunnels) })
	return p
}

// Serve accepts connections until the proxy or the listener is closed. It returns the error of
// the listener, or nil after Close.
func (p *Proxy) Serve(l net.Listener) error {
	err := p.outer.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Drain accepts no more requests and waits until those under way have ended, but for upgraded
// connections and tunnels that pass through. The context bounds the wait; Close cuts the rest.
func (p *Proxy) Drain(ctx context.Context) error {
	return errors.Join(p.outer.Shutdown(ctx), p.inner.Shutdown(ctx))
}

// Close ends all connections and requests, and returns how many requests it cut.
func (p *Proxy) Close() (cut int) {
	cut = int(p.counts.underWay.Load())
	p.end()
	_ = p.outer.Close()
	_ = p.inner.Close()
	p.serving.Wait()
	if p.own != nil {
		p.own.CloseIdleConnections()
	}
	p.governed.close()
	return cut
}

// named reports whether a host is decrypted and governed.
func (p *Proxy) named(host string) bool {
	return p.o.All || slices.ContainsFunc(p.o.Hosts, func(pattern string) bool { return Matches(pattern, host) })
}

// User is the user name for the proxy's password.
const User = "headway"

// admitted reports whether a request may use the proxy: it has the password, or its connection
// belongs to a process of this user. Some programs, such as those in Java, can take a proxy
// from the environment but no password.
func (p *Proxy) admitted(r *http.Request) bool {
	if kind, text, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " "); strings.EqualFold(kind, "Basic") {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		want := sha256.Sum256([]byte(User + ":" + p.o.Password))
		got := sha256.Sum256(b)
		return err == nil && subtle.ConstantTimeCompare(want[:], got[:]) == 1
	}
	own, _ := r.Context().Value(ownKey{}).(*atomic.Bool)
	if own != nil && own.Load() {
		return true
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil || !p.ownedBy(r.RemoteAddr, local.String(), os.Getuid()) {
		return false
	}
	if own != nil {
		own.Store(true) // the system lists thousands of connections in some milliseconds
	}
	return true
}

// ownKey is the key of a connection's flag that is set once it was found to belong to this user.
type ownKey struct{}

// tables are the files in which Linux lists TCP connections with their owners.
var tables = [...]string{"/proc/net/tcp", "/proc/net/tcp6"}

// socketOf reports whether the remote end of an open loopback connection belongs to a user. It
// returns false where the system does not say.
func socketOf(remote, local string, uid int) bool {
	from, err := netip.ParseAddrPort(remote)
	to, bad := netip.ParseAddrPort(local)
	if err != nil || bad != nil || uid < 0 || !from.Addr().IsLoopback() {
		return false
	}
	for _, table := range tables {
		if owner, ok := ownerIn(table, from, to); ok {
			return owner == uid
		}
	}
	return false
}

// established is the state of an open connection. In the table, one that has ended belongs to
// user 0 for a while.
const established = "01"

// ownerIn finds the owner of a socket in a table of the kernel, by both of its ends: others may
// have the same port.
func ownerIn(table string, from, to netip.AddrPort) (uid int, ok bool) {
	f, err := os.Open(table)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	near, far := kernelAddresses(from), kernelAddresses(to)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		cells := strings.Fields(lines.Text())
		if len(cells) > 7 && slices.Contains(near, cells[1]) && slices.Contains(far, cells[2]) && cells[3] == established {
			uid, err := strconv.Atoi(cells[7])
			return uid, err == nil
		}
	}
	return 0, false
}

// kernelAddresses returns the forms in which the kernel's tables may have an address.
func kernelAddresses(at netip.AddrPort) []string {
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	all := []string{kernelAddress(at)}
	if at.Addr().Is4() {
		all = append(all, kernelAddress(netip.AddrPortFrom(netip.AddrFrom16(at.Addr().As16()), at.Port())))
	}
	return all
}

// kernelAddress formats an address as in the kernel's tables: in words of four bytes in the
// machine's byte order, which is little endian on all supported platforms.
func kernelAddress(at netip.AddrPort) string {
	b := at.Addr().AsSlice()
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	return strings.ToUpper(hex.EncodeToString(b)) + ":" + strings.ToUpper(hex.EncodeToString([]byte{byte(at.Port() >> 8), byte(at.Port())}))
}

// accept serves a request of the program to the proxy.
func (p *Proxy) accept(w http.ResponseWriter, r *http.Request) {
	switch {
	case !p.admitted(r):
		p.counts.refusedCaller.Add(1)
		w.Header().Set("Proxy-Authenticate", `Basic realm="headway"`)
		http.Error(w, "headway: this proxy serves the program that it was started for", http.StatusProxyAuthRequired)
	case r.Method == http.MethodConnect:
		p.connect(w, r)
	case !r.URL.IsAbs() || r.URL.Host == "":
		http.Error(w, "headway: this is a proxy; it serves no pages of its own", http.StatusBadRequest)
	case r.URL.Scheme != "http":
		http.Error(w, "headway: not an address that an HTTP proxy is asked for", http.StatusBadRequest)
	default:
		p.forward(w, r, &tunnel{scheme: "http", authority: r.URL.Host})
	}
}

// inside serves a request that came through a tunnel.
func (p *Proxy) inside(w http.ResponseWriter, r *http.Request) {
	t, _ := r.Context().Value(tunnelKey{}).(*tunnel)
	if t == nil || r.Method == http.MethodConnect {
		http.Error(w, "headway: not a request that can be forwarded", http.StatusBadRequest)
		return
	}
	p.forward(w, r, t)
}

// connect opens a tunnel, which is decrypted for a named host and passed through for others.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	host, port, ok := split(r.Host, "443")
	if !ok {
		http.Error(w, "headway: not an address that can be connected to", http.StatusBadRequest)
		return
	}
	authority := net.JoinHostPort(host, port)
	inside := p.named(host) && (!p.o.PassThrough || !p.counts.distrusted(host))
	var far net.Conn
	if !inside {
		p.counts.tunnel(host)
		ctx, cancel := context.WithTimeout(r.Context(), dialTime)
		conn, err := p.o.Dial(ctx, authority)
		cancel()
		if err != nil {
			http.Error(w, "headway: "+host+" could not be reached: "+cause(err), http.StatusBadGateway)
			return
		}
		far = conn
	}
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		if far != nil {
			_ = far.Close()
		}
		return
	}
	_ = near.SetDeadline(time.Time{})
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = near.Close()
		if far != nil {
			_ = far.Close()
		}
		return
	}
	near = unread(near, buffered.Reader)
	if far != nil {
		p.splice(near, far)
		return
	}
	p.open(near, host, authority)
}

// open detects the protocol in a tunnel to a named host, and serves it.
func (p *Proxy) open(near net.Conn, host, authority string) {
	defer context.AfterFunc(p.ctx, func() { _ = near.Close() })()
	in := bufio.NewReader(near)
	wait := headerTime
	if p.o.PassThrough {
		wait = silentTime // the server may speak first
	}
	_ = near.SetReadDeadline(time.Now().Add(wait))
	first, err := in.Peek(1)
	_ = near.SetReadDeadline(time.Time{})
	near = unread(near, in)
	switch {
	case err == nil && first[0] == 0x16: // a TLS handshake
		p.decrypt(near, host, authority)
	case err == nil && 'A' <= first[0] && first[0] <= 'Z': // a method
		p.tunnels.give(&tunnel{Conn: near, scheme: "http", authority: authority})
	case p.o.PassThrough && (err == nil || errors.Is(err, context.DeadlineExceeded) || isTimeout(err)):
		p.counts.tunnel(host)
		p.through(near, authority)
	default:
		if err == nil {
			p.counts.notHTTP.Add(1)
		}
		_ = near.Close()
	}
}

// decrypt terminates the TLS of a tunnel with a certificate for the host.
func (p *Proxy) decrypt(near net.Conn, host, authority string) {
	t := &tunnel{Conn: near, scheme: "https", authority: authority}
	secure := tls.Server(t, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, DynamicRecordSizingDisabled: true, // it is on loopback
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
			if _, ok := Pattern(name); !ok || !p.named(name) {
				name = host
			}
			return p.o.Issuer.Leaf(name)
		},
	})
	ctx, cancel := context.WithTimeout(p.ctx, headerTime)
	err := secure.HandshakeContext(ctx)
	cancel()
	if err != nil {
		p.distrusted(host)
		_ = near.Close()
		return
	}
	p.tunnels.give(secure)
}

// state is called when a connection inside a tunnel begins, has a request, or ends. Programs
// that know the provider's key by heart often look at it after the handshake, and end the
// connection without a request. Browsers do so with one that they do not need beside another.
func (p *Proxy) state(c net.Conn, s http.ConnState) {
	t := tunnelOf(c)
	if t == nil || t.scheme != "https" {
		return
	}
	host, _, _ := split(t.authority, "443")
	switch s {
	case http.StateNew:
		p.counts.opened(host)
	case http.StateActive:
		if t.asked.CompareAndSwap(false, true) {
			p.counts.trust(host)
		}
	case http.StateHijacked, http.StateClosed:
		if p.counts.closed(host) && !t.late.Load() && p.ctx.Err() == nil {
			p.distrusted(host)
		}
	case http.StateIdle:
	}
}

// distrusted counts a program that rejected the certificate for a host. If that is allowed, its
// next connection passes through.
func (p *Proxy) distrusted(host string) {
	if first := p.counts.refusedUs(host); first && p.o.OnDistrust != nil {
		p.o.OnDistrust(host)
	}
}

// through passes a tunnel through that is not HTTP.
func (p *Proxy) through(near net.Conn, authority string) {
	ctx, cancel := context.WithTimeout(p.ctx, dialTime)
	far, err := p.o.Dial(ctx, authority)
	cancel()
	if err != nil {
		_ = near.Close()
		return
	}
	p.splice(near, far)
}

// cause describes a network error, without text from a server.
func cause(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err.Error()
	}
	if isTimeout(err) {
		return "it did not answer in time"
	}
	return "the connection failed"
}

func isTimeout(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout()
}

// environment returns the proxy in the environment for an address; nil without one.
func environment(authority string) (*url.URL, error) {
	return http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: authority}})
}
