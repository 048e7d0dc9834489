package forward

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/ca"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/pipenet"
)

// world is a provider behind TLS, a proxy before it, and a client that goes through both.
// Names of hosts are the provider's, whatever they are.
type world struct {
	*testing.T
	provider *httptest.Server
	proxy    *Proxy
	issuer   *ca.Issuer
	address  *url.URL // of the proxy
	client   *http.Client
	dial     func(context.Context, string, string) (net.Conn, error) // to the proxy
}

// newWorld governs api.test. HTTP/2 is spoken on both sides, or on neither.
func newWorld(t *testing.T, two bool, o Options, h http.Handler) *world {
	t.Helper()
	w := &world{T: t, provider: httptest.NewUnstartedServer(h)}
	w.provider.EnableHTTP2 = two
	w.provider.Config.ErrorLog = log.New(io.Discard, "", 0)
	_ = w.provider.Listener.Close()
	provider, listener := pipenet.New(), pipenet.New()
	w.provider.Listener, w.dial = provider, listener.Dial
	w.provider.StartTLS()
	t.Cleanup(w.provider.Close)
	authority, err := ca.Open(t.Context(), filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	if o.Hosts == nil {
		o.Hosts = []string{"api.test"}
	}
	if w.issuer, err = authority.For(o.Hosts); err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(w.provider.Certificate())
	base := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "example.com"}, ForceAttemptHTTP2: two, DisableCompression: true,
		DialContext: provider.Dial,
	}
	t.Cleanup(base.CloseIdleConnections)
	o.Issuer, o.Password, o.Base = w.issuer, "secret", base
	if o.MaxWait == 0 {
		o.MaxWait = time.Hour
	}
	o.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return provider.Dial(ctx, "", "") }
	w.proxy = New(o)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := w.proxy.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	w.address = &url.URL{Scheme: "http", Host: "proxy.test:1", User: url.UserPassword(User, "secret")}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.issuer.PEM())
	through := &http.Transport{Proxy: http.ProxyURL(w.address), TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: two, DisableCompression: true, DialContext: listener.Dial}
	w.client = &http.Client{Transport: through, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() {
		through.CloseIdleConnections()
		w.proxy.Close()
		serving.Wait()
	})
	return w
}

// do sends a request and reads the answer; the error is that of its body too.
func (w *world) do(r *http.Request) (*http.Response, []byte, error) {
	w.Helper()
	res, err := w.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return res, b, err
}

func (w *world) request(method, path string, body io.Reader) *http.Request {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, "https://api.test"+path, body)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// both runs a test with HTTP/1.1 and with HTTP/2.
func both(t *testing.T, f func(t *testing.T, two bool)) {
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/%d", map[bool]int{false: 1, true: 2}[two]), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, two) }) })
	}
}

func TestARequestPassesAsItIs(t *testing.T) {
	both(t, func(t *testing.T, two bool) {
		w := newWorld(t, two, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if want := map[bool]int{false: 1, true: 2}[two]; r.ProtoMajor != want {
				t.Errorf("HTTP/%d, want %d", r.ProtoMajor, want)
			}
			if r.RequestURI != "/a%2Fb|c?x=%zz;y&&z" || r.Host != "api.test" || r.Header.Get("X-Forwarded-For") != "mine" || r.Header.Get("Via") != "" {
				t.Errorf("%s %s %v", r.Host, r.RequestURI, r.Header)
			}
			if r.Header.Get("Accept-Encoding") != "" || r.Header.Get("User-Agent") != "mine" || r.Header.Get("Proxy-Authorization") != "" || r.Header.Get("Authorization") != "Bearer a" {
				t.Errorf("%v", r.Header)
			}
			w.Header().Set("Link", "</early>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Trailer", "X-Sum")
			w.Header()["X-Many"] = []string{"a", "b"}
			if r.Method != http.MethodHead {
				b, _ := io.ReadAll(r.Body)
				_, _ = w.Write(b)
				w.Header().Set("X-Sum", "of "+r.Trailer.Get("X-Sent"))
			}
		}))
		early := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == http.StatusEarlyHints && h.Get("Link") == "</early>; rel=preload" {
				early++
			}
			return nil
		}})
		r := w.request(http.MethodPut, "", struct{ io.Reader }{strings.NewReader("hello")}).WithContext(ctx)
		r.URL.Opaque = "/a%2Fb|c"
		r.URL.RawQuery = "x=%zz;y&&z"
		r.Trailer = http.Header{"X-Sent": {"mine"}}
		r.Header = http.Header{"User-Agent": {"mine"}, "X-Forwarded-For": {"mine"}, "Authorization": {"Bearer a"}}
		res, b, err := w.do(r)
		if err != nil || string(b) != "hello" || res.Trailer.Get("X-Sum") != "of mine" || early != 1 || !slices.Equal(res.Header["X-Many"], []string{"a", "b"}) {
			t.Errorf("%v, %q, trailer %v, %d early, %v", err, b, res.Trailer, early, res.Header)
		}
		r = r.Clone(t.Context())
		r.Method, r.Body, r.Trailer, r.ContentLength = http.MethodHead, nil, nil, 0
		if res, b, err := w.do(r); err != nil || len(b) != 0 || res.StatusCode != http.StatusOK {
			t.Errorf("HEAD: %v, %q", err, b)
		}
	})
}

func TestARefusedRequestIsHeldAndSentAgain(t *testing.T) {
	both(t, func(t *testing.T, two bool) {
		var n atomic.Int32
		w := newWorld(t, two, Options{Resend: []string{"patch"}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1)%2 == 1 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			b, _ := io.ReadAll(r.Body)
			_, _ = w.Write(b)
		}))
		for _, tt := range []struct {
			method, body string
			length       int
			status       int
			attempts     int32
		}{
			{http.MethodGet, "", 0, 200, 2},
			{http.MethodPut, "x", 100_000, 200, 2},
			{http.MethodPatch, "x", 10, 200, 2},
			{http.MethodPost, "x", 10, 429, 1},
			{http.MethodPut, "x", maxKept + 1, 429, 1},
		} {
			n.Store(0)
			text := strings.Repeat(tt.body, tt.length)
			res, b, err := w.do(w.request(tt.method, "/", struct{ io.Reader }{strings.NewReader(text)}))
			switch {
			case err != nil || res.StatusCode != tt.status || n.Load() != tt.attempts:
				t.Errorf("%s of %d bytes: %v, %v after %d attempts, want %d after %d", tt.method, tt.length, err, res, n.Load(), tt.status, tt.attempts)
			case tt.status == 200 && string(b) != text:
				t.Errorf("%s of %d bytes came back as %d bytes", tt.method, tt.length, len(b))
			}
		}
		if left := w.proxy.keptMemory.left.Load(); left != maxKeptAll {
			t.Errorf("%d bytes are kept after the requests", maxKeptAll-left)
		}
		s := w.proxy.Summary().Connections
		if len(s) != 1 || s[0].Requests != 5 || s[0].Attempts != 8 || s[0].Throttled != 5 || s[0].Held != 3 || s[0].Passed != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// What could not be sent in time is said to the program as the provider would.
func TestAWaitThatIsTooLongIsARefusal(t *testing.T) { synctest.Test(t, aWaitThatIsTooLongIsARefusal) }

func aWaitThatIsTooLongIsARefusal(t *testing.T) {
	w := newWorld(t, true, Options{MaxWait: time.Minute}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, "from the provider")
	}))
	if res, b, err := w.do(w.request(http.MethodGet, "/", nil)); err != nil || res.StatusCode != 429 || string(b) != "from the provider" {
		t.Errorf("the first: %v, %v, %q", err, res, b)
	}
	res, b, err := w.do(w.request(http.MethodGet, "/", nil))
	if err != nil || res.StatusCode != 429 || !strings.Contains(string(b), "--max-wait") {
		t.Fatalf("the second: %v, %v, %q", err, res, b)
	}
	if after, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || after < 3500 || after > 3700 {
		t.Errorf("it is to come back after %q", res.Header.Get("Retry-After"))
	}
	if s := w.proxy.Summary().Connections[0]; s.Passed != 1 || s.Refused != 1 || s.Attempts != 1 {
		t.Errorf("%+v", s)
	}
}

func TestCredentialsAreGovernedApart(t *testing.T) { synctest.Test(t, credentialsAreGovernedApart) }

func credentialsAreGovernedApart(t *testing.T) {
	w := newWorld(t, true, Options{MaxWait: time.Minute}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer slow" {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	for _, key := range []string{"slow", "fast", "fast"} {
		r := w.request(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		res, _, err := w.do(r)
		if want := map[string]int{"slow": 429, "fast": 200}[key]; err != nil || res.StatusCode != want {
			t.Errorf("%s: %v, %v", key, err, res)
		}
	}
	if s := w.proxy.Summary().Connections; len(s) != 2 || s[0].Name != "api.test" || s[1].Requests+s[0].Requests != 3 {
		t.Errorf("%+v", s)
	}
}

func TestAWebSocketAndEventsPass(t *testing.T) { synctest.Test(t, aWebSocketAndEventsPass) }

func aWebSocketAndEventsPass(t *testing.T) {
	next := make(chan string)
	w := newWorld(t, false, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			for e := range next {
				_, _ = fmt.Fprintf(w, "data: %s\n\n", e)
				_ = http.NewResponseController(w).Flush()
			}
			return
		}
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Key") != "key" {
			t.Errorf("%v", r.Header)
		}
		c, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, in)
	}))
	r := w.request(http.MethodGet, "/socket", nil)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"key"}}
	res, err := w.client.Do(r)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	socket := res.Body.(io.ReadWriteCloser)
	for i := range 100 {
		if _, err := fmt.Fprintf(socket, "%4d", i); err != nil {
			t.Fatal(err)
		}
		if got := make([]byte, 4); true {
			if _, err := io.ReadFull(socket, got); err != nil || string(got) != fmt.Sprintf("%4d", i) {
				t.Fatalf("%q, %v", got, err)
			}
		}
	}
	_ = socket.Close()

	res, err = w.client.Do(w.request(http.MethodGet, "/events", nil))
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(res.Body)
	for i := range 600 { // each arrives before the next is made
		next <- strconv.Itoa(i)
		line, err := in.ReadString('\n')
		if _, _ = in.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d: %q, %v", i, line, err)
		}
	}
	close(next)
	if rest, err := io.ReadAll(in); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v at the end", rest, err)
	}
	_ = res.Body.Close()
}

// random gives n bytes that differ, and says their digest.
type random struct {
	n   int
	sum func(p []byte)
}

// noise is what bodies are made of; its length is a prime, so that blocks of a body differ.
var noise = func() []byte {
	b := make([]byte, 65_521)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}()

func (r *random) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	at := r.n % len(noise)
	n := copy(p[:min(len(p), r.n)], noise[at:])
	r.n -= n
	r.sum(p[:n])
	return n, nil
}

func TestLongBodiesAreTheSameBothWays(t *testing.T) {
	size := longtest.Size(maxKept+1<<20, 200<<20)
	both(t, func(t *testing.T, two bool) {
		w := newWorld(t, two, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := sha256.New()
			if r.Method == http.MethodPut {
				_, _ = io.Copy(h, r.Body)
				_, _ = io.WriteString(w, hex.EncodeToString(h.Sum(nil)))
				return
			}
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.Copy(w, &random{n: size, sum: func(p []byte) { _, _ = h.Write(p) }})
			w.Header().Set("X-Sum", hex.EncodeToString(h.Sum(nil)))
		}))
		h := sha256.New()
		res, b, err := w.do(w.request(http.MethodPut, "/", &random{n: size, sum: func(p []byte) { _, _ = h.Write(p) }}))
		if err != nil || res.StatusCode != 200 || string(b) != hex.EncodeToString(h.Sum(nil)) {
			t.Errorf("upload: %v, %s", err, b)
		}
		got, err := w.client.Do(w.request(http.MethodGet, "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		h = sha256.New()
		n, err := io.Copy(h, got.Body)
		_ = got.Body.Close()
		if err != nil || n != int64(size) || got.Trailer.Get("X-Sum") != hex.EncodeToString(h.Sum(nil)) {
			t.Errorf("download: %d bytes, %v, %v", n, err, got.Trailer)
		}
	})
}

func TestAHundredStreamsAreUnderWayAtOnce(t *testing.T) {
	synctest.Test(t, aHundredStreamsAreUnderWayAtOnce)
}

func aHundredStreamsAreUnderWayAtOnce(t *testing.T) {
	const streams = 100
	var there sync.WaitGroup
	there.Add(streams)
	w := newWorld(t, true, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there.Done()
		there.Wait() // none is answered before all are there
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	var all sync.WaitGroup
	for i := range streams {
		all.Go(func() {
			path := fmt.Sprintf("/%d", i)
			if _, b, err := w.do(w.request(http.MethodGet, path, nil)); err != nil || string(b) != path {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	all.Wait()
}

func TestAnEndInTheMiddleIsOneForTheProgramToo(t *testing.T) {
	both(t, func(t *testing.T, two bool) {
		w := newWorld(t, two, Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/body" {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, "half")
				_ = http.NewResponseController(w).Flush()
			}
			panic(http.ErrAbortHandler)
		}))
		res, b, err := w.do(w.request(http.MethodGet, "/body", nil))
		if err == nil || res == nil || res.StatusCode != 200 || string(b) != "half" {
			t.Errorf("in the body: %v, %q, %v", res, b, err)
		}
		if res, _, err := w.do(w.request(http.MethodPost, "/header", strings.NewReader("x"))); err == nil {
			t.Errorf("before the header: %v", res)
		}
	})
}

// A redirect is the program's to follow: the proxy connects to nothing by itself.
func TestARedirectIsNotFollowed(t *testing.T) { synctest.Test(t, aRedirectIsNotFollowed) }

func aRedirectIsNotFollowed(t *testing.T) {
	var n atomic.Int32
	w := newWorld(t, true, Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Location", "http://169.254.169.254/latest/meta-data/")
		w.WriteHeader(http.StatusFound)
	}))
	res, _, err := w.do(w.request(http.MethodGet, "/", nil))
	if err != nil || res.StatusCode != http.StatusFound || res.Header.Get("Location") != "http://169.254.169.254/latest/meta-data/" || n.Load() != 1 {
		t.Errorf("%v, %v, %d requests", res, err, n.Load())
	}
	if s := w.proxy.Summary(); len(s.Connections) != 1 || len(s.Tunneled) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestWhatWasLearnedIsKept(t *testing.T) { synctest.Test(t, whatWasLearnedIsKept) }

func whatWasLearnedIsKept(t *testing.T) {
	dir := t.TempDir()
	var refused atomic.Bool
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refused.CompareAndSwap(false, true) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	before := newWorld(t, true, Options{}, h)
	if _, _, err := before.do(before.request(http.MethodGet, "/", nil)); err != nil {
		t.Fatal(err)
	}
	learned := before.proxy.Learned()
	if learned["api.test"].Account == nil {
		t.Fatalf("%+v", learned)
	}
	if err := Save(t.Context(), dir, map[string]Belief{"other.test": {Account: &State{RecordedAt: time.Now()}}, "old.test": {Account: &State{}}}); err != nil {
		t.Fatal(err)
	}
	if err := Save(t.Context(), dir, learned); err != nil {
		t.Fatal(err)
	}
	stored, err := Load(dir)
	if err != nil || stored["api.test"].Account == nil || stored["other.test"].Account == nil || stored["old.test"].Account != nil {
		t.Fatalf("%+v, %v", stored, err)
	}
	after := newWorld(t, true, Options{Learned: stored}, h)
	if _, _, err := after.do(after.request(http.MethodGet, "/", nil)); err != nil {
		t.Fatal(err)
	}
	if c := after.proxy.governed.list()[0]; c.governor.Snapshot().Rate == nil || c.governor.Learned().Law != learned["api.test"].Account.Law {
		t.Error("it starts from nothing")
	}
	if b, err := os.ReadFile(dir + "/" + learnedFile); err != nil || bytes.Contains(b, []byte("secret")) {
		t.Errorf("%s, %v", b, err)
	}
	if err := os.WriteFile(dir+"/"+learnedFile, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := Load(dir); err == nil || len(all) != 0 {
		t.Errorf("a damaged file: %v, %v", all, err)
	}
}
