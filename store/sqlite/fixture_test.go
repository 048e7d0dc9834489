package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/powercut"
	"github.com/headway-go/headway/store/sqlite"
	"github.com/headway-go/headway/store/storetest"
)

// open opens a store that closes with the test.
func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func request(connection, run string, at time.Time) collect.LeaseRequest {
	return collect.LeaseRequest{Connection: connection, Run: run, Holder: "host", Now: at, TTL: time.Hour}
}

func isHeld(err error) bool {
	_, ok := errors.AsType[*collect.HeldError](err)
	return ok
}

func key(i int) string { return fmt.Sprintf("item-%08d", i) }

// page is a slice of n items.
func page(from, n int) collect.Commit {
	c := collect.Commit{
		At: time.Now(), Stream: "x", Sink: []byte(`{"files":{"x.jsonl":{"length":1234}}}`),
		Lane: &collect.Lane{Stream: "x", Kind: collect.Catchup, Cursor: key(from), Walking: true, Pages: int64(from)},
	}
	for i := range n {
		c.Items = append(c.Items, collect.KnownItem{
			Key: key(from + i), Fingerprint: "0123456789abcdef", Children: []byte("0123456789abcdef0123456789abcdef"),
		})
	}
	return c
}

// fill takes a connection and commits n items, a gap and an event.
func fill(t testing.TB, s collect.Store, connection, run string, n int) collect.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), request(connection, run, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	c := page(0, n)
	c.Opened = []collect.Gap{{GapKey: collect.GapKey{Stream: "d", Key: "k"}, Attempts: 1}}
	c.Events = []event.Event{{At: time.Now(), Type: event.Phase}}
	if err := s.Commit(t.Context(), l, c); err != nil {
		t.Fatal(err)
	}
	return l
}

// store makes a closed store of some size: all of it is in the one file.
func store(t *testing.T, path string) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, "c", "r1", 20000)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); err == nil {
		t.Fatal("the log is still there after Close")
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// truncate leaves one part in n of a file.
func truncate(t *testing.T, path string, n int) {
	t.Helper()
	b := read(t, path)
	write(t, path, b[:len(b)/n])
}

// overwrite puts noise over a part of a file, no further than its end.
func overwrite(t *testing.T, path string, from, n int) {
	t.Helper()
	b := read(t, path)
	part := b[from:min(from+n, len(b))]
	copy(part, bytes.Repeat([]byte{0xA5}, len(part)))
	write(t, path, b)
}

// says checks an error's text, which must name the file and what to do.
func says(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want one that says %q", what, parts)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %q does not say %q", what, err, p)
		}
	}
}

func TestMain(m *testing.M) {
	child()
	leaktest.Main(m)
}

func TestContract(t *testing.T) {
	longtest.Draws(t, 20, 100) // as many draws as rapid makes by default
	storetest.Run(t, func(t *testing.T) collect.Store { return open(t, filepath.Join(powercut.Scratch(t), "state.db")) })
}
