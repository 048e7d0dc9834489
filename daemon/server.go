package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/internal/console"
	"github.com/headway-go/headway/internal/ratelimit"
)

// Bounds of the listener; see also [slowClientGuard].
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10 // to which net/http adds 4 KiB
	maxStreams    = 250      // of one HTTP/2 connection
)

// listen opens the listener. A loopback name that resolves to an address other machines can
// reach is an error.
func (d *Daemon) listen(ctx context.Context) (net.Listener, error) {
	host, port, err := net.SplitHostPort(d.config.Listen)
	if err != nil {
		return nil, fmt.Errorf("daemon: %w: listen is %q, must be HOST:PORT", ErrListen, d.config.Listen)
	}
	host = cmp.Or(host, "127.0.0.1")
	network := "tcp"
	if ip := net.ParseIP(host); ip != nil && ip.To4() != nil {
		network = "tcp4" // otherwise 0.0.0.0 would listen on every IPv6 address too
	}
	l, err := new(net.ListenConfig).Listen(ctx, network, net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("daemon: %w on %s: %w; is another headway serve running? listen: another address, or port 0 takes a free one", ErrListen, d.config.Listen, cause(err))
	}
	at, ok := l.Addr().(*net.TCPAddr)
	if config.Loopback(host) && (!ok || !at.IP.IsLoopback()) {
		return nil, errors.Join(fmt.Errorf("daemon: %w on %s: it resolves to an address that other machines can reach", ErrListen, d.config.Listen), l.Close())
	}
	return l, nil
}

// cause returns the error without the operation and address, which the message has already.
func cause(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Err
	}
	return err
}

// server is the running HTTP server.
type server struct {
	http  *http.Server
	cut   context.CancelFunc // ends all requests
	busy  sync.WaitGroup     // running handlers
	ended chan struct{}      // closed when it no longer accepts connections
}

// serve serves on the listener.
func (d *Daemon) serve(l net.Listener) *server {
	requests, cut := context.WithCancel(context.Background())
	s := &server{cut: cut, ended: make(chan struct{})}
	slow := guardOf(d.config.Clients)
	s.http = &http.Server{
		Handler:           s.counted(slow.around(http.HandlerFunc(d.route))),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: time.Minute, WriteByteTimeout: slow.drain},
		ErrorLog:          log.New(&faults{log: d.log}, "", 0),
		Protocols:         new(http.Protocols),
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(true) // gRPC clients in the same place use no TLS
	l = bound(l, d.config.MaxConnections)
	go func() {
		defer close(s.ended)
		err := error(nil)
		if d.config.TLS != nil {
			s.http.TLSConfig = d.cert.config()
			err = s.http.ServeTLS(l, "", "")
		} else {
			err = s.http.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("the listener failed", slog.Any("error", err))
			go func() { _ = d.Stop(context.Background()) }() // so that Wait returns
		}
	}()
	return s
}

// counted counts running handlers. The server itself does not wait for handlers whose
// connections it cut.
func (s *server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.busy.Add(1)
		defer s.busy.Done()
		next.ServeHTTP(w, r)
	})
}

// faults turns the error log of net/http into log lines that hold nothing of what clients
// sent and no addresses.
type faults struct {
	log *slog.Logger
}

func (f *faults) Write(line []byte) (int, error) {
	text := string(line)
	switch {
	case strings.HasPrefix(text, "http: panic"):
		f.log.Error("a request handler panicked", slog.String("at", firstFrame(text)))
	case strings.HasPrefix(text, "http: Accept error"):
		f.log.Warn("connections cannot be accepted for now; see the limit of open files")
	case strings.HasPrefix(text, "http: TLS handshake error"):
		f.log.Debug("a TLS handshake failed")
	default:
		f.log.Debug("a client's connection failed")
	}
	return len(line), nil
}

// firstFrame returns the first line of a stack that is in this module.
func firstFrame(stack string) string {
	for line := range strings.Lines(stack) {
		if i := strings.Index(line, "headway/"); i >= 0 && strings.Contains(line, ".go:") {
			return strings.TrimSpace(line[i:])
		}
	}
	return "unknown"
}

// route hands a request to the proxy, the API or the start page.
func (d *Daemon) route(w http.ResponseWriter, r *http.Request) {
	v := d.live.Load()
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if allow(v.config.CORS, w, r) {
		return
	}
	health := first == "healthz" || first == "readyz"
	if !health {
		if why := v.gate.crossSite(r); why != "" {
			refuse(w, http.StatusForbidden, "Not allowed", why, 0)
			return
		}
	}
	switch {
	case r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		d.start(w, v)
	case (r.URL.Path == "/v1/quota/approve" || strings.HasPrefix(r.URL.Path, ratelimit.Path)) && d.ready() != nil:
		refuse(w, http.StatusServiceUnavailable, "Stopping", "the daemon stops and approves nothing more; ask again", time.Second)
	case strings.HasPrefix(r.URL.Path, ratelimit.Path):
		d.limits.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, console.Path) && !v.config.NoConsole:
		d.console.ServeHTTP(w, r)
	case r.URL.Path == "/console" && !v.config.NoConsole:
		http.Redirect(w, r, console.Path, http.StatusMovedPermanently)
	case health || first == "v1" || first == "metrics" || first == "":
		d.api.ServeHTTP(w, r)
	default:
		d.proxy.ServeHTTP(w, r)
	}
}

// start serves the start page.
func (d *Daemon) start(w http.ResponseWriter, v *view) {
	text := v.page
	if v.gate.data.Len() > 0 {
		// Do not list providers to clients without a key.
		text = "headway serve\n\nThis daemon asks for a key. Its API is described at /v1/openapi.json.\n"
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	_, _ = io.WriteString(w, text) // nothing can be done for a client that does not read it
}

// refuse answers with a problem document (RFC 9457).
func refuse(w http.ResponseWriter, status int, title, detail string, retryIn time.Duration) {
	if retryIn > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(retryIn.Seconds())))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": title, "status": status, "detail": detail})
}

// trusted reports whether the configuration lets pages of an origin call.
func trusted(c *config.CORS, origin string) bool {
	return c != nil && (slices.Contains(c.Origins, origin) || slices.Contains(c.Origins, "*"))
}

// allow sets the CORS headers for a request from a configured origin. It answers a preflight
// itself and then returns true: a browser sends a preflight without the page's key. Source:
// the Fetch standard, section 3.2.
func allow(c *config.CORS, w http.ResponseWriter, r *http.Request) (answered bool) {
	origin := r.Header.Get("Origin")
	if c == nil || origin == "" {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	if !trusted(c, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked) // the provider's description limits what goes upstream
	}
	h.Set("Access-Control-Max-Age", strconv.Itoa(int(c.MaxAge.Seconds())))
	w.WriteHeader(http.StatusNoContent)
	return true
}

// certificate is the server certificate. A reload swaps it.
type certificate struct {
	held atomic.Pointer[tls.Certificate]
}

// readCertificate reads a certificate and its key. The error names the files.
func readCertificate(t *config.TLS) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("daemon: tls: certificate %s with key %s: %w", t.Cert, t.Key, err)
	}
	if c.Leaf == nil { // with the setting x509keypairleaf=0
		if c.Leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return nil, fmt.Errorf("daemon: tls: certificate %s: %w", t.Cert, err)
		}
	}
	if now := time.Now(); now.After(c.Leaf.NotAfter) {
		return nil, fmt.Errorf("daemon: tls: certificate %s ended on %s; clients refuse it", t.Cert, c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return &c, nil
}

// config returns the TLS configuration of the server.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.held.Load(), nil },
	}
}
