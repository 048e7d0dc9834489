package ca_test

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the format has it
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/ca"
)

func open(t *testing.T, dir string) *ca.Authority {
	t.Helper()
	a, err := ca.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTheKeyIsMadeOnceAndForItsOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if _, err := ca.Load(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("an authority that nobody made: %v", err)
	}
	prints := make([]string, 8)
	var all sync.WaitGroup
	for i := range prints {
		all.Go(func() {
			if a, err := ca.Open(context.Background(), dir); err != nil {
				t.Error(err)
			} else {
				prints[i] = a.Fingerprint()
			}
		})
	}
	all.Wait()
	for _, p := range prints {
		if p != prints[0] {
			t.Errorf("two authorities were made: %v", prints)
		}
	}
	path := filepath.Join(dir, ca.File)
	for name, want := range map[string]fs.FileMode{path: 0o600, dir: 0o700 | fs.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want mode %v", name, info.Mode(), err, want)
		}
	}
	before := open(t, dir)
	after, err := ca.Rotate(t.Context(), dir)
	if err != nil || after.Fingerprint() == before.Fingerprint() || open(t, dir).Fingerprint() != after.Fingerprint() {
		t.Errorf("it was not replaced: %v", err)
	}
	if bytes.Contains(after.PEM(), []byte("PRIVATE")) {
		t.Error("the key is shown")
	}
}

func TestABadFileIsAnErrorWithoutTheKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	open(t, dir)
	path := filepath.Join(dir, ca.File)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	key := strings.Split(string(good), "\n")[1]
	other := filepath.Join(t.TempDir(), "state")
	cert := open(t, other).PEM()
	for name, content := range map[string][]byte{
		"empty":            nil,
		"half":             good[:len(good)/2],
		"without a key":    cert,
		"another's":        append(bytes.Clone(good[:bytes.Index(good, []byte("-----BEGIN CERT"))]), cert...),
		"a damaged key":    bytes.Replace(good, []byte(key[:8]), []byte("AAAAAAAA"), 1),
		"not base64":       bytes.Replace(good, []byte(key[:8]), []byte("########"), 1),
		"larger than ours": append(bytes.Clone(good), make([]byte, 1<<20)...),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ca.Open(t.Context(), dir)
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), key[8:]) {
			t.Errorf("%s: %v", name, err)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, content) {
			t.Errorf("%s: it was replaced", name)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "others may read its key") {
		t.Errorf("a key that others may read: %v", err)
	}
}

func TestAnExpiredAuthoritySaysWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		a := open(t, dir)
		issuer, err := a.For(nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ca.Lifetime - time.Hour)
		leaf, err := issuer.Leaf("a.test")
		if err != nil || leaf.Leaf.NotAfter.After(a.Until()) {
			t.Errorf("a certificate outlives its authority: %v", err)
		}
		if again, _ := issuer.Leaf("a.test"); again != leaf {
			t.Error("it is made for each connection")
		}
		time.Sleep(2 * time.Hour)
		if _, err := ca.Open(t.Context(), dir); !errors.Is(err, ca.ErrExpired) || !strings.Contains(err.Error(), "headway ca rotate") {
			t.Errorf("got %v", err)
		}
		if _, err := ca.Rotate(t.Context(), dir); err != nil {
			t.Error(err)
		}
		open(t, dir)
	})
}

// The root of a run verifies the run's hosts, and no others.
func TestARootIsForTheHostsOfItsRunOnly(t *testing.T) {
	a := open(t, filepath.Join(t.TempDir(), "state"))
	for _, tt := range []struct {
		hosts     []string
		good, bad []string
	}{
		{nil, []string{"anything.test", "192.0.2.1"}, nil},
		{[]string{"api.test"}, []string{"api.test"}, []string{"other.test", "test", "192.0.2.1", "::1"}},
		{[]string{"*.api.test"}, []string{"a.api.test", "b.a.api.test"}, []string{"apix.test", "192.0.2.1"}},
		{[]string{"192.0.2.1", "2001:db8::1"}, []string{"192.0.2.1", "2001:db8::1"}, []string{"192.0.2.2", "a.test", "2001:db8::2"}},
	} {
		issuer, err := a.For(tt.hosts)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(issuer.PEM())
		exported := x509.NewCertPool()
		exported.AppendCertsFromPEM(a.PEM())
		for host, want := range kinds(tt.good, tt.bad) {
			leaf, err := issuer.Leaf(host)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); (err == nil) != want {
				t.Errorf("root for %v: %s: %v, want good %v", tt.hosts, host, err, want)
			}
			if _, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: exported}); err != nil {
				t.Errorf("the authority itself: %s: %v", host, err)
			}
		}
	}
}

func kinds(good, bad []string) map[string]bool {
	all := map[string]bool{}
	for _, h := range good {
		all[h] = true
	}
	for _, h := range bad {
		all[h] = false
	}
	return all
}

func TestCertificatesAreCachedBoundedAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer, err := open(t, filepath.Join(t.TempDir(), "state")).For(nil)
		if err != nil {
			t.Fatal(err)
		}
		first, _ := issuer.Leaf("a.test")
		if again, _ := issuer.Leaf("a.test"); again != first {
			t.Error("made twice")
		}
		time.Sleep(4 * 24 * time.Hour)
		if renewed, _ := issuer.Leaf("a.test"); renewed == first || !renewed.Leaf.NotAfter.After(first.Leaf.NotAfter) {
			t.Error("not renewed")
		}
		for i := range 256 {
			if _, err := issuer.Leaf(fmt.Sprintf("h%d.test", i)); err != nil {
				t.Fatal(err)
			}
		}
		if made := issuer.Made(); len(made) != 256 || made[0] != "h0.test" {
			t.Errorf("%d are kept, the oldest is %s", len(made), made[0])
		}
	})
}

// A trust store has the layout that Java reads: it is what the clients' tests show, and
// this without Java.
func TestATrustStoreHoldsEveryCertificate(t *testing.T) {
	bundle := append(open(t, filepath.Join(t.TempDir(), "state")).PEM(), open(t, filepath.Join(t.TempDir(), "state")).PEM()...)
	store := ca.TrustStore(bundle)
	body, sum := store[:len(store)-sha1.Size], store[len(store)-sha1.Size:]
	if binary.BigEndian.Uint32(body) != 0xfeedfeed || binary.BigEndian.Uint32(body[8:]) != 2 {
		t.Errorf("head %x", body[:12])
	}
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if !bytes.Contains(body, block.Bytes) {
			t.Error("a certificate is missing")
		}
	}
	var salted []byte
	for _, c := range ca.TrustStorePassword {
		salted = append(salted, 0, byte(c))
	}
	want := sha1.Sum(append(append(salted, "Mighty Aphrodite"...), body...)) //nolint:gosec // as above
	if !bytes.Equal(sum, want[:]) {
		t.Error("another digest")
	}
}
