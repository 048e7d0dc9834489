// Package ca is the certificate authority of one user. Its key is made at the first use, stays
// in the state folder, and is not added to any trust store of the system. For each run it
// issues a root that is valid only for the hosts of that run, and certificates for those hosts.
//
// Errors do not contain the key, and it is in no other file.
package ca

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // required by the format of Java's trust stores
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/lockfile"
)

const (
	// File is the name of the authority's file in its folder: key and certificate.
	File = "ca.pem"
	// Lifetime is how long an authority is valid.
	Lifetime = 365 * 24 * time.Hour

	maxFile = 64 << 10
	skew    = time.Hour // a client's clock may be behind by this much
	subject = "Headway local CA"
)

// ErrExpired is returned, wrapped, for an authority that has expired.
var ErrExpired = errors.New("the certificate authority has expired")

// Authority is the certificate authority of one user. It is safe for concurrent use.
type Authority struct {
	path string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Open reads the authority in a folder, and makes one if there is none. Only the owner may
// access the file; one that others may read is an error, and so is a folder in which others may
// replace it. Several processes may call Open at the same time.
func Open(ctx context.Context, dir string) (*Authority, error) {
	a, err := Load(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	if err := prepare(dir); err != nil {
		return nil, err
	}
	err = lockfile.With(ctx, filepath.Join(dir, File+".lock"), func(context.Context) error {
		if a, err = Load(dir); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		a, err = create(dir)
		return err
	})
	return a, err
}

// Rotate replaces the authority in a folder with a new one. Programs that trust the old one do
// not trust the new one. Runs under way keep the old one.
func Rotate(ctx context.Context, dir string) (a *Authority, err error) {
	if err := prepare(dir); err != nil {
		return nil, err
	}
	err = lockfile.With(ctx, filepath.Join(dir, File+".lock"), func(context.Context) error {
		a, err = create(dir)
		return err
	})
	return a, err
}

// prepare makes a folder for an authority.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	return private(dir)
}

// private returns an error if others may write into a folder: they could put an authority of
// theirs in place of the owner's.
func private(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("ca: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 && os.PathSeparator == '/' {
		return fmt.Errorf("ca: the folder %s has mode %#o, so others may replace the certificate authority in it: run \"chmod go-w %s\", or name another folder", dir, mode, dir)
	}
	return nil
}

// Load reads the authority in a folder. The error matches fs.ErrNotExist if there is none,
// and [ErrExpired] if it has expired.
func Load(dir string) (*Authority, error) {
	path := filepath.Join(dir, File)
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && os.PathSeparator == '/' {
		return nil, fmt.Errorf("ca: %s has mode %#o, so others may read its key: run \"headway ca rotate\", or \"chmod 600 %s\" if nobody has", path, mode, path)
	}
	if err := private(dir); err != nil {
		return nil, err
	}
	b, err := atomicfile.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	a := &Authority{path: path}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE":
			a.cert, err = x509.ParseCertificate(block.Bytes)
		case "EC PRIVATE KEY":
			a.key, err = x509.ParseECPrivateKey(block.Bytes)
		}
		if err != nil {
			break
		}
	}
	// Leave out the reason, which might quote the key.
	if err != nil || a.cert == nil || a.key == nil || !a.key.PublicKey.Equal(a.cert.PublicKey) {
		return nil, fmt.Errorf("ca: %s does not hold an authority of headway: run \"headway ca rotate\" to replace it", path)
	}
	if now := time.Now(); now.After(a.cert.NotAfter) {
		return a, fmt.Errorf("ca: %w: that in %s was valid until %s; run \"headway ca rotate\"", ErrExpired, path, a.cert.NotAfter.Format(time.DateOnly))
	}
	return a, nil
}

// create makes an authority and replaces an existing one. The caller holds the lock.
func create(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	now := time.Now()
	a := &Authority{path: filepath.Join(dir, File), key: key}
	if a.cert, err = a.root(now.Add(-skew), now.Add(Lifetime), nil); err != nil {
		return nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	file := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	file = append(file, encode(a.cert)...)
	if err := atomicfile.Write(disk.OS{}, a.path, file); err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	return a, nil
}

// root returns a root certificate that is valid for the given hosts, or for all if hosts is
// nil. All roots have the same name and key, so each verifies any certificate of the key.
func (a *Authority) root(from, until time.Time, hosts []string) (*x509.Certificate, error) {
	public, err := x509.MarshalPKIXPublicKey(&a.key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	id := sha256.Sum256(public)
	t := &x509.Certificate{
		SerialNumber: serial(), NotBefore: from, NotAfter: until,
		Subject:  pkix.Name{CommonName: subject + " " + hex.EncodeToString(id[:4]), Organization: []string{"Headway"}},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: id[:20],
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	if hosts != nil {
		constrain(t, hosts)
	}
	return a.sign(t, t, &a.key.PublicKey)
}

// constrain limits a root to some hosts, by name constraints.
func constrain(t *x509.Certificate, hosts []string) {
	t.PermittedDNSDomainsCritical = true
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			if four := ip.To4(); four != nil {
				ip = four
			}
			t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))})
			continue
		}
		t.PermittedDNSDomains = append(t.PermittedDNSDomains, strings.TrimPrefix(h, "*."))
	}
	// A kind of name without a constraint would be unrestricted.
	if t.PermittedDNSDomains == nil {
		t.PermittedDNSDomains = []string{"invalid"}
	}
	if t.PermittedIPRanges == nil {
		for _, all := range []net.IP{net.IPv4zero.To4(), net.IPv6zero} {
			t.ExcludedIPRanges = append(t.ExcludedIPRanges, &net.IPNet{IP: all, Mask: net.CIDRMask(0, 8*len(all))})
		}
	}
}

// sign signs a certificate with the authority's key.
func (a *Authority) sign(t, parent *x509.Certificate, public *ecdsa.PublicKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	return cert, nil
}

// serial returns a random serial number of 127 bits.
func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}

// PEM returns the authority's certificate, without its key. It is valid for every host.
func (a *Authority) PEM() []byte { return encode(a.cert) }

// Path returns the path of the authority's file.
func (a *Authority) Path() string { return a.path }

// From and Until return the validity period of the authority.
func (a *Authority) From() time.Time  { return a.cert.NotBefore }
func (a *Authority) Until() time.Time { return a.cert.NotAfter }

// Fingerprint returns the SHA-256 of the certificate, in the form that browsers and openssl
// show.
func (a *Authority) Fingerprint() string {
	sum := sha256.Sum256(a.cert.Raw)
	text := make([]string, len(sum))
	for i, b := range sum {
		text[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(text, ":")
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

const (
	leafLifetime = 7 * 24 * time.Hour
	maxLeaves    = 256
)

// Issuer issues the certificates of hosts for one run. It is safe for concurrent use.
type Issuer struct {
	of   *Authority
	root *x509.Certificate
	key  *ecdsa.PrivateKey // of all hosts

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
	order  []string // in the order in which they were made
}

// For returns an issuer for some hosts: names, *.NAME for a name and all below it, or IP
// addresses. Its root is valid only for these hosts; nil means all hosts.
func (a *Authority) For(hosts []string) (*Issuer, error) {
	root := a.cert
	if hosts != nil {
		var err error
		if root, err = a.root(a.cert.NotBefore, a.cert.NotAfter, hosts); err != nil {
			return nil, err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	return &Issuer{of: a, root: root, key: key, leaves: make(map[string]*tls.Certificate)}, nil
}

// PEM returns the root certificate that the programs of the run should trust.
func (i *Issuer) PEM() []byte { return encode(i.root) }

// Leaf returns the certificate of a host. It makes one at the first call and before the old one
// expires, and keeps at most 1,024. It does not check whether the host is one of the run's.
func (i *Issuer) Leaf(host string) (*tls.Certificate, error) {
	now := time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	if c := i.leaves[host]; c != nil && (now.Add(leafLifetime/2).Before(c.Leaf.NotAfter) || c.Leaf.NotAfter.Equal(i.root.NotAfter)) {
		return c, nil
	}
	until := now.Add(leafLifetime)
	if until.After(i.root.NotAfter) {
		until = i.root.NotAfter
	}
	t := &x509.Certificate{
		SerialNumber: serial(), NotBefore: now.Add(-skew), NotAfter: until, AuthorityKeyId: i.root.SubjectKeyId,
		Subject:  pkix.Name{Organization: []string{"Headway"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		t.IPAddresses = []net.IP{ip}
	} else {
		t.DNSNames = []string{host}
	}
	cert, err := i.of.sign(t, i.root, &i.key.PublicKey)
	if err != nil {
		return nil, err
	}
	if i.leaves[host] == nil {
		if len(i.order) == maxLeaves {
			delete(i.leaves, i.order[0])
			i.order = i.order[1:]
		}
		i.order = append(i.order, host)
	}
	c := &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: i.key, Leaf: cert}
	i.leaves[host] = c
	return c, nil
}

// Until returns the end of the issuer's validity, which is that of the authority.
func (i *Issuer) Until() time.Time { return i.root.NotAfter }

// Made returns the hosts that have certificates, in the order in which they were first made.
func (i *Issuer) Made() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.order)
}

// TrustStorePassword is the password of a [TrustStore], the default one of Java's tools. It
// protects nothing, since certificates are not secret.
const TrustStorePassword = "changeit"

// TrustStore returns a Java trust store with the certificates of a PEM file, in the format JKS,
// which every version of Java reads.
func TrustStore(bundle []byte) []byte {
	var certs [][]byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			certs = append(certs, block.Bytes)
		}
	}
	made := uint64(time.Now().UnixMilli())
	b := binary.BigEndian.AppendUint32(nil, 0xfeedfeed)
	b = binary.BigEndian.AppendUint32(b, 2) // the version
	b = binary.BigEndian.AppendUint32(b, uint32(len(certs)))
	text := func(s string) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	for n, der := range certs {
		b = binary.BigEndian.AppendUint32(b, 2) // a trusted certificate
		text(fmt.Sprintf("ca-%d", n))
		b = binary.BigEndian.AppendUint64(b, made)
		text("X.509")
		b = binary.BigEndian.AppendUint32(b, uint32(len(der)))
		b = append(b, der...)
	}
	h := sha1.New() //nolint:gosec // as above
	for _, c := range utf16.Encode([]rune(TrustStorePassword)) {
		h.Write([]byte{byte(c >> 8), byte(c)})
	}
	h.Write([]byte("Mighty Aphrodite"))
	h.Write(b)
	return h.Sum(b)
}
