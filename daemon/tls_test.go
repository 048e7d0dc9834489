package daemon_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-go/headway/daemon"
)

// certify writes a certificate of its own for this machine, and gives the pool
// that trusts it.
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
			t.Errorf("%s is told", canary)
		}
	}
}
