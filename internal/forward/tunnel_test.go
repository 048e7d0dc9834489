package forward

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/profile"
)

// raw opens a tunnel by hand.
func (w *world) raw(authority string) (net.Conn, *http.Response) {
	w.Helper()
	c, err := w.dial(w.Context(), "", "")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: Basic aGVhZHdheTpzZWNyZXQ=\r\n\r\n", authority)
	res, err := http.ReadResponse(bufio.NewReader(iotest.OneByteReader(c)), nil) // so that nothing after it is read
	if err != nil {
		w.Fatal(err)
	}
	return c, res
}

// The certificate that the program sees of a host that is not named is the provider's own.
func TestAHostThatIsNotNamedIsNotDecrypted(t *testing.T) {
	synctest.Test(t, aHostThatIsNotNamedIsNotDecrypted)
}

func aHostThatIsNotNamedIsNotDecrypted(t *testing.T) {
	w := newWorld(t, true, Options{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, ours := range map[string]bool{"other.test": false, "api.test": true, "sub.api.test": false, "API.test": true} {
		c, _ := w.raw(host + ":443")
		secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: strings.ToLower(host)}) //nolint:gosec // it is looked at below
		if err := secure.Handshake(); err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		cert := secure.ConnectionState().PeerCertificates[0]
		if got := !cert.Equal(w.provider.Certificate()); got != ours {
			t.Errorf("%s: decrypted %v, want %v", host, got, ours)
		}
	}
	if made := w.issuer.Made(); !slices.Equal(made, []string{"api.test"}) {
		t.Errorf("certificates were made for %v", made)
	}
	if s := w.proxy.Summary(); !slices.Equal(s.Tunneled, []Host{{"other.test", 1}, {"sub.api.test", 1}}) {
		t.Errorf("%+v", s.Tunneled)
	}
}

// A client that trusts other roots ends the connection, and passes through next time if
// that is allowed.
func TestAPinnedClientPassesThroughOnlyWhenAsked(t *testing.T) {
	synctest.Test(t, aPinnedClientPassesThroughOnlyWhenAsked)
}

func aPinnedClientPassesThroughOnlyWhenAsked(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		w := newWorld(t, false, Options{PassThrough: allowed}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		pinned := x509.NewCertPool()
		pinned.AddCert(w.provider.Certificate())
		through := w.client.Transport.(*http.Transport)
		through.TLSClientConfig = &tls.Config{RootCAs: pinned, ServerName: "example.com"}
		if _, _, err := w.do(w.request(http.MethodGet, "/", nil)); err == nil {
			t.Error("it took another certificate")
		}
		synctest.Wait() // the proxy hears of it after the client
		if _, _, err := w.do(w.request(http.MethodGet, "/", nil)); (err == nil) != allowed {
			t.Errorf("allowed %v: %v", allowed, err)
		}
		s := w.proxy.Summary()
		if s.Distrusted[0].Host != "api.test" || (len(s.Tunneled) == 1) != allowed {
			t.Errorf("allowed %v: %+v", allowed, s)
		}
	}
}

// The beginning of a body of known length does not wait for its end.
func TestABodyOfKnownLengthPassesAsItComes(t *testing.T) {
	both(t, func(t *testing.T, two bool) {
		received := make(chan bool)
		w := newWorld(t, two, Options{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			for _, part := range []string{"a", "b"} {
				_, _ = io.WriteString(w, part)
				_ = http.NewResponseController(w).Flush()
				<-received
			}
		}))
		res, err := w.client.Do(w.request(http.MethodGet, "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		for _, want := range []string{"a", "b"} {
			got := make([]byte, 1)
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
				t.Fatalf("%q, %v, want %q", got, err, want)
			}
			received <- true
		}
	})
}

// A client that compares keys after the handshake, as curl does, ends the connection without a
// request. One that connects ahead of its requests does so too, but other requests follow.
func TestAClientThatLooksAtTheKeyAfterTheHandshakeIsPinned(t *testing.T) {
	synctest.Test(t, aClientThatLooksAtTheKeyAfterTheHandshakeIsPinned)
}

func aClientThatLooksAtTheKeyAfterTheHandshakeIsPinned(t *testing.T) {
	for _, two := range []bool{false, true} {
		var distrusted []string
		w := newWorld(t, two, Options{PassThrough: true, Hosts: []string{"api.test", "other.test", "late.test", "idle.test"}, OnDistrust: func(host string) { distrusted = append(distrusted, host) }},
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if _, _, err := w.do(w.request(http.MethodGet, "/", nil)); err != nil {
			t.Fatal(err)
		}
		ours := func(host string) bool {
			c, _ := w.raw(host + ":443")
			secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: host, NextProtos: map[bool][]string{true: {"h2"}}[two]}) //nolint:gosec // it is looked at here
			if err := secure.Handshake(); err != nil {
				t.Fatal(err)
			}
			defer synctest.Wait()
			defer func() { _ = secure.Close() }()
			return !secure.ConnectionState().PeerCertificates[0].Equal(w.provider.Certificate())
		}
		for range 2 {
			if !ours("api.test") {
				t.Error("a connection ahead of requests made the host pass through")
			}
		}
		if first, second, third := ours("other.test"), ours("other.test"), ours("other.test"); !first || second || third {
			t.Errorf("the host whose certificate was rejected: decrypted %v, then %v, then %v", first, second, third)
		}
		if s := w.proxy.Summary(); !slices.Equal(s.Distrusted, []Host{{"other.test", 1}}) || !slices.Equal(s.Tunneled, []Host{{"other.test", 2}}) || !slices.Equal(distrusted, []string{"other.test"}) {
			t.Errorf("%+v, %v", s, distrusted)
		}
		var spare []*tls.Conn // of two, the program needs one
		for range 2 {
			c, _ := w.raw("late.test:443")
			secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: "late.test"}) //nolint:gosec // as above
			if err := secure.Handshake(); err != nil {
				t.Fatal(err)
			}
			spare = append(spare, secure)
		}
		synctest.Wait()
		_ = spare[0].Close()
		synctest.Wait()
		_, _ = io.WriteString(spare[1], "GET / HTTP/1.1\r\nHost: late.test\r\n\r\n")
		synctest.Wait()
		_ = spare[1].Close()
		synctest.Wait()
		if s := w.proxy.Summary(); len(s.Distrusted) != 1 {
			t.Errorf("a spare connection: %+v", s)
		}
		idle, _ := w.raw("idle.test:443")                                                                                    // the proxy ends it
		if err := tls.Client(idle, &tls.Config{InsecureSkipVerify: true, ServerName: "idle.test"}).Handshake(); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
		time.Sleep(2 * headerTime)
		if s := w.proxy.Summary(); len(s.Distrusted) != 1 {
			t.Errorf("%+v", s)
		}
	}
}

func TestWhatIsNotHTTPEndsUnlessItMayPass(t *testing.T) {
	synctest.Test(t, whatIsNotHTTPEndsUnlessItMayPass)
}

func whatIsNotHTTPEndsUnlessItMayPass(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		w := newWorld(t, false, Options{PassThrough: allowed}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		c, _ := w.raw("api.test:22")
		_, _ = c.Write([]byte{0, 1, 2})
		if allowed {
			synctest.Wait()
			if s := w.proxy.Summary(); len(s.Tunneled) != 1 || s.NotHTTP != 0 {
				t.Errorf("%+v", s)
			}
			continue
		}
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes came", n)
		}
		if s := w.proxy.Summary(); s.NotHTTP != 1 || len(s.Tunneled) != 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestWithoutThePasswordNothingIsServed(t *testing.T) {
	synctest.Test(t, withoutThePasswordNothingIsServed)
}

func withoutThePasswordNothingIsServed(t *testing.T) {
	w := newWorld(t, false, Options{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was served") }))
	through := w.client.Transport.(*http.Transport)
	for _, user := range []*url.Userinfo{nil, url.UserPassword(User, "guess"), url.User(User), url.UserPassword("root", "secret")} {
		at := *w.address
		at.User = user
		through.Proxy = http.ProxyURL(&at)
		if res, _, err := w.do(w.request(http.MethodGet, "/", nil)); err == nil {
			t.Errorf("%v: %v", user, res)
		}
		plain := w.request(http.MethodGet, "/", nil)
		plain.URL.Scheme = "http"
		if res, _, err := w.do(plain); err != nil || res.StatusCode != http.StatusProxyAuthRequired || res.Header.Get("Proxy-Authenticate") == "" {
			t.Errorf("%v: %v, %v", user, res, err)
		}
	}
	if s := w.proxy.Summary(); s.Unauthenticated != 8 || s.Requests() != 0 {
		t.Errorf("%+v", s)
	}
}

// A connection of this user is looked up once; one of another user is refused each time.
func TestAnOwnConnectionIsLookedUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for ours, want := range map[bool]int64{true: 1, false: 3} {
			w := newWorld(t, false, Options{}, http.NotFoundHandler())
			var looked atomic.Int64
			w.proxy.ownedBy = func(string, string, int) bool {
				looked.Add(1)
				return ours
			}
			w.address.User = nil
			for range 3 {
				plain := w.request(http.MethodGet, "/", nil)
				plain.URL.Scheme = "http"
				if res, _, err := w.do(plain); err != nil || (res.StatusCode == http.StatusProxyAuthRequired) == ours {
					t.Errorf("ours %v: %v, %v", ours, res, err)
				}
			}
			if looked.Load() != want {
				t.Errorf("ours %v: looked up %d times, want %d", ours, looked.Load(), want)
			}
		}
	})
}

// A connection of this user needs no password, one of another user does: as the kernel's
// table says.
func TestTheOwnerOfAConnectionIsKnown(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Logf("%s: %v", at, err) // a machine may be without IPv6
			continue
		}
		defer func() { _ = l.Close() }()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		remote, local := c.LocalAddr().String(), l.Addr().String()
		if ours, anothers := socketOf(remote, local, os.Getuid()), socketOf(remote, local, os.Getuid()+1); !ours || anothers {
			t.Errorf("%s: ours %v, another's %v", remote, ours, anothers)
		}
		other, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close() }()
		if socketOf(remote, other.Addr().String(), os.Getuid()) {
			t.Error("a connection to another address, from the same port, is taken for this one")
		}
		_ = c.Close() // the table has it for a minute, as one of user 0
		for _, uid := range []int{0, os.Getuid()} {
			if socketOf(remote, local, uid) {
				t.Errorf("one that was closed is taken for user %d's", uid)
			}
		}
	}
	for _, remote := range []string{"127.0.0.1:1", "192.0.2.1:80", "nowhere", ""} {
		if socketOf(remote, "127.0.0.1:2", os.Getuid()) {
			t.Errorf("%q is taken for ours", remote)
		}
	}
}

func TestAnUnreachableHostIsABadGateway(t *testing.T) {
	synctest.Test(t, anUnreachableHostIsABadGateway)
}

func anUnreachableHostIsABadGateway(t *testing.T) {
	w := newWorld(t, true, Options{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	away := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}}
	w.proxy.base.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, away }
	w.proxy.o.Dial = func(context.Context, string) (net.Conn, error) { return nil, away }
	res, b, err := w.do(w.request(http.MethodGet, "/", nil))
	if err != nil || res.StatusCode != http.StatusBadGateway || string(b) != "headway: api.test could not be reached: no such host\n" {
		t.Errorf("%v, %q, %v", res, b, err)
	}
	if _, res := w.raw("other.test:443"); res.StatusCode != http.StatusBadGateway {
		t.Errorf("%v", res)
	}
}

func TestTheCredentialIsThePartThatStays(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "Bearer abc": "abc", "token abc": "abc", "Basic eDp5": "Basic eDp5", "odd": "odd",
		"AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu/s3/aws4_request, SignedHeaders=host, Signature=123": "AKIA",
		"AWS AKIA:sig": "AKIA",
		`Digest username="me", nonce="1", response="2"`:                                "me",
		`OAuth oauth_consumer_key="c", oauth_token="t", oauth_signature="s"`:           "c t",
		"AWS4-ECDSA-P256-SHA256 Credential=AKIB/20260101/s3/aws4_request, Signature=9": "AKIB",
	} {
		if got := credential(http.Header{"Authorization": {text}}); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := credential(http.Header{"X-Api-Key": {"k"}}); got != "k" {
		t.Errorf("got %q", got)
	}
}

func TestHostsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"api.test": "api.test", "API.Test.": "api.test", "*.a.test": "*.a.test", "192.0.2.1": "192.0.2.1", "[::1]": "::1", "::1": "::1", "localhost": "localhost",
		"": "", "*": "", "a..b": "", "https://a": "", "a:443": "", "a/b": "", "*.*.a": "", "a b": "", "*a.test": "", strings.Repeat("a", 64): "",
	} {
		if got, ok := Pattern(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
	}
	for _, tt := range []struct {
		pattern, host string
		want          bool
	}{{"a.test", "a.test", true}, {"a.test", "b.a.test", false}, {"*.a.test", "b.a.test", true}, {"*.a.test", "a.test", false}, {"*.a.test", "xa.test", false}} {
		if Matches(tt.pattern, tt.host) != tt.want {
			t.Errorf("%+v", tt)
		}
	}
}

func TestPoolsAreThoseOfTheProfile(t *testing.T) { synctest.Test(t, poolsAreThoseOfTheProfile) }

func poolsAreThoseOfTheProfile(t *testing.T) {
	asked := 0
	w := newWorld(t, true, Options{
		Profile: func(string) (string, func() (*profile.Profile, error)) {
			asked++
			return "github", func() (*profile.Profile, error) { return profile.Find("github") }
		},
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ratelimit-Resource", map[bool]string{false: "core", true: "search"}[strings.HasPrefix(r.URL.Path, "/search")])
	}))
	for _, path := range []string{"/user", "/search/issues", "/search/code"} {
		if _, _, err := w.do(w.request(http.MethodGet, path, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("the profile is looked for %d times, which reads files", asked)
	}
	s := w.proxy.Summary().Connections
	var names []string
	for _, p := range s[0].Pools {
		names = append(names, p.Name)
	}
	if len(s) != 1 || s[0].Name != "github" || !slices.Contains(names, "core") || !slices.Contains(names, "search") {
		t.Errorf("%+v, pools %v", s, names)
	}
}

// A provider that is down, and names no wait, is waited for no longer than the owner allows.
func TestAnOutageReachesTheProgram(t *testing.T) { synctest.Test(t, anOutageReachesTheProgram) }

func anOutageReachesTheProgram(t *testing.T) {
	w := newWorld(t, true, Options{MaxWait: time.Hour, MaxOutage: time.Minute}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/named" {
			w.Header().Set("Retry-After", "1800")
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "down")
	}))
	began := time.Now()
	res, b, err := w.do(w.request(http.MethodGet, "/", nil))
	if err != nil || res.StatusCode != http.StatusServiceUnavailable || string(b) != "down" {
		t.Fatalf("%v, %v, %q", err, res, b)
	}
	if took := time.Since(began); took < 10*time.Second || took > time.Minute {
		t.Errorf("it was held for %v", took)
	}
	began = time.Now()
	if res, _, err := w.do(w.request(http.MethodGet, "/named", nil)); err != nil || res.StatusCode != http.StatusServiceUnavailable {
		t.Fatal(err, res)
	}
	if took := time.Since(began); took < 25*time.Minute || took > time.Hour {
		t.Errorf("with a wait of its own it was held for %v", took)
	}
}
