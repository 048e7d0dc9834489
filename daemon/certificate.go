package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headway-go/headway/daemon/config"
)

// certificate is what TLS connections are shown. It can be swapped.
type certificate struct {
	held atomic.Pointer[tls.Certificate]
}

// readCertificate reads the files. The error names them.
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

// config is that of the server.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.held.Load(), nil },
	}
}
