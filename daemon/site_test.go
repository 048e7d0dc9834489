package daemon_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/daemon"
	"github.com/headway-go/headway/daemon/config"
	"github.com/headway-go/headway/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Canaries: none may appear outside of the request that it belongs to.
const (
	providerKey = "canary-provider-8c1d"
	content     = "canary-content-77ab"
)

// transcript is a log that can be read while it is written.
type transcript struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// site is a running daemon in front of a provider.
type site struct {
	t      *testing.T
	dir    string
	base   string
	log    transcript
	daemon *daemon.Daemon
	client *http.Client
	env    map[string]string // beside KEY
}

const answer = `{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` + content + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":5,"total_tokens":10}}`

// answers is a provider that answers every call at once.
func answers(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}

// upstream serves a provider for the test's time.
func upstream(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// read parses a configuration, with %s for a free address and the state.
func (s *site) read(text string) (config.Config, error) {
	text = "listen: 127.0.0.1:0\nstate: " + filepath.Join(s.dir, "state") + "\n" + text
	return config.Read("headway.yaml", []byte(text), func(key string) string {
		if key == "KEY" {
			return providerKey
		}
		return s.env[key]
	})
}

func place(t *testing.T) *site {
	s := &site{t: t, dir: t.TempDir(), client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// start starts a daemon, which is stopped when the test ends.
func (s *site) start(text string) {
	s.t.Helper()
	c, err := s.read(text)
	if err != nil {
		s.t.Fatal(err)
	}
	s.daemon, err = daemon.New(c, daemon.Options{Log: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Version: "test"})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.daemon.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.base = "http://" + s.daemon.Address().String()
	s.t.Cleanup(s.stop)
}

func (s *site) stop() {
	s.t.Helper()
	if err := s.daemon.Stop(context.Background()); err != nil {
		s.t.Error(err)
	}
}

func openai(url, more string) string {
	return "providers:\n  openai:\n    api: openai\n    upstream: " + url + "\n    key: {env: KEY}\n" + more
}

const question = `{"model":"m","messages":[{"role":"user","content":"` + content + `"}]}`

// call makes a call of the provider.
func (s *site) call(secret string) (status int, header http.Header, body string) {
	s.t.Helper()
	return s.do(http.MethodPost, "/openai/v1/chat/completions", secret, question)
}

func (s *site) do(method, path, secret, body string) (status int, header http.Header, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		s.t.Error(err)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatal("never: " + what)
		}
	}
}

// files is everything in the site's folder, as one text.
func (s *site) files() string {
	s.t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s: %s\n", path, b)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all.String()
}

// certify writes a self-signed certificate for this machine, and returns the pool that
// trusts it.
func certify(t *testing.T, dir string, serial int64, until time.Time) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

func TestTLSWithHTTP2AndACertificateThatIsReplaced(t *testing.T) {
	s := place(t)
	text := openai(upstream(t, answers), "") + "tls: {cert: " + filepath.Join(s.dir, "cert.pem") + ", key: " + filepath.Join(s.dir, "key.pem") + "}\n"
	trusted := certify(t, s.dir, 1, time.Now().Add(time.Hour))
	s.start(text)
	s.base = "https://" + s.daemon.Address().String()
	ask := func(c *tls.Config) (proto string, serial int64, err error) {
		transport := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/openai/v1/chat/completions", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := transport.RoundTrip(r)
		if err != nil {
			return "", 0, err
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || string(b) != answer {
			t.Errorf("%s, %v", b, err)
		}
		return resp.Proto, resp.TLS.PeerCertificates[0].SerialNumber.Int64(), resp.Body.Close()
	}
	if proto, serial, err := ask(&tls.Config{RootCAs: trusted}); err != nil || proto != "HTTP/2.0" || serial != 1 {
		t.Fatalf("%s, certificate %d, %v", proto, serial, err)
	}
	if _, _, err := ask(&tls.Config{RootCAs: trusted, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 was let in")
	}
	c := s.daemon.Config()
	certify(t, s.dir, 2, time.Now().Add(-time.Hour))
	if err := s.daemon.Reload(c); err == nil || !strings.Contains(err.Error(), "clients refuse it") {
		t.Errorf("a certificate that has ended: %v", err)
	}
	if _, serial, err := ask(&tls.Config{RootCAs: trusted}); err != nil || serial != 1 {
		t.Errorf("the old one stays: certificate %d, %v", serial, err)
	}
	trusted = certify(t, s.dir, 3, time.Now().Add(time.Hour))
	if err := s.daemon.Reload(c); err != nil {
		t.Fatal(err)
	}
	if _, serial, err := ask(&tls.Config{RootCAs: trusted}); err != nil || serial != 3 {
		t.Errorf("the new one: certificate %d, %v", serial, err)
	}
	if got := daemon.Base(c, s.daemon.Address()); got != s.base {
		t.Errorf("the base URL is %s, want %s", got, s.base)
	}
}

func TestTelemetryReachesACollectorAndSaysNoSecret(t *testing.T) {
	var mu sync.Mutex
	got := map[string]string{}
	collector := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path] += string(b)
		if r.Header.Get("X-Key") != providerKey {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	s := place(t)
	s.start(openai(upstream(t, answers), "") + "metrics: {otlp: {endpoint: \"" + collector + "\", headers: {X-Key: {env: KEY}}}}\n")
	if status, _, _ := s.call(""); status != 200 {
		t.Fatal(status)
	}
	s.stop()
	mu.Lock()
	defer mu.Unlock()
	if got["/v1/traces"] == "" || !strings.Contains(got["/v1/metrics"], "headway_") {
		t.Errorf("received %d bytes of traces, %d of metrics", len(got["/v1/traces"]), len(got["/v1/metrics"]))
	}
	for _, canary := range []string{providerKey, content} {
		if strings.Contains(got["/v1/traces"]+got["/v1/metrics"]+s.log.String(), canary) {
			t.Errorf("%s is printed", canary)
		}
	}
}
