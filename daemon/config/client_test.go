package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/daemon/config"
)

// pair makes a certificate that signs itself, and gives the names of its files.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		name = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
}

func TestMaxBodyBindsUploadsToo(t *testing.T) {
	for more, want := range map[string][2]int64{
		"": {32 << 20, 512 << 20}, "max_body: 1MiB": {1 << 20, 1 << 20}, "max_body: 1MiB, max_upload: 2MiB": {1 << 20, 2 << 20}, "max_upload: 1GiB": {32 << 20, 1 << 30},
	} {
		c, err := config.Read("h.yaml", fmt.Appendf(nil, "providers: {x: {api: openai, pass_through: true, %s}}", more), env(nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int64{c.Providers[0].MaxBody, c.Providers[0].MaxUpload}; got != want {
			t.Errorf("%s: %v, want %v", more, got, want)
		}
	}
}

func TestHeadersOfACollectorMayHaveSpaces(t *testing.T) {
	for value, want := range map[string]string{
		"Bearer abc": "Bearer abc", "Bearer%20abc": "Bearer abc", "abc": "abc", "100%": "100%", "a%20b%zz": "a%20b%zz", "Basic dXNlcjpwYXNz==": "Basic dXNlcjpwYXNz==",
		" Bearer abc": "", "Bearer abc ": "", "Bearer\tabc": "", "Bearer abc\r\nX: y": "", "Bearer%20abc%0D%0AX:y": "",
	} {
		c, err := config.Read("h.yaml", []byte("quota: {}\nmetrics: {otlp: {endpoint: \"http://localhost:4318\", headers: {Authorization: {env: KEY}}}}"), env(map[string]string{"KEY": value}))
		if (want == "") != (err != nil) {
			t.Errorf("%q: %v", value, err)
		}
		if err != nil {
			if strings.Contains(err.Error(), "abc") {
				t.Errorf("the secret is in %v", err)
			}
			continue
		}
		if got := c.Telemetry.Headers["Authorization"].Reveal(); got != want {
			t.Errorf("%q is read as %q, want %q", value, got, want)
		}
	}
	if _, err := config.Read("h.yaml", []byte("providers: {x: {api: openai, key: {env: KEY}}}"), env(map[string]string{"KEY": "a b"})); err == nil {
		t.Error("a provider's key has a space")
	}
}

func TestCheckFindsWhatIsOfNoUse(t *testing.T) {
	text := fmt.Sprintf(`
providers: {x: {api: openai, pass_through: true}}
keys:
  - {id: old, hash: "%s", expires: 2020-01-31}
  - {id: lost, hash: "%s", providers: [x, nowhere, "y*"]}
  - {id: good, hash: "%s", providers: ["*"], expires: 2030-01-31}
`, hash("1"), hash("2"), hash("3"))
	c, err := config.Read("h.yaml", []byte(text), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Check("h.yaml", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	want := `h.yaml: keys[0].expires: is 2020-01-31T00:00:00Z, which is past: the key "old" lets nobody in; want later, or the key deleted
h.yaml: keys[1].providers[1]: is "nowhere", which is not a provider here; want the name of a provider of this file, or a pattern of one
h.yaml: keys[1].providers[2]: is "y*", which is not a provider here; want the name of a provider of this file, or a pattern of one`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	c.Keys = c.Keys[2:]
	if err := c.Check("h.yaml", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Error(err)
	}
}
