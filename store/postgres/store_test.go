//go:build linux

package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/pgserver"
	"github.com/headway-go/headway/store/postgres"
	"github.com/headway-go/headway/store/storetest"
)

// open opens a store that closes with the test.
func open(t testing.TB, at string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), at)
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

func TestContract(t *testing.T) {
	longtest.Draws(t, 10, 100) // store/memory draws as often as rapid does
	at := pgserver.Shared(t).Database(t)
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T) collect.Store {
		return open(t, fmt.Sprintf("%s&search_path=s%d", at, n.Add(1)))
	})
}

// BenchmarkCommitPage is one slice of 100 new items, with the server's disk synced as
// by default.
func BenchmarkCommitPage(b *testing.B) { benchmarkCommit(b, 100) }

// BenchmarkCommitLargePage is one slice of 1,000 new items.
func BenchmarkCommitLargePage(b *testing.B) { benchmarkCommit(b, 1000) }

func benchmarkCommit(b *testing.B, size int) {
	s := open(b, pgserver.New(b, "fsync=on", "full_page_writes=on").Database(b))
	l, err := s.Acquire(b.Context(), request("r", time.Hour))
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		c := collect.Commit{
			At: time.Now(), Stream: "x", Sink: []byte(`{"files":{"x.jsonl":{"length":1234}}}`),
			Lane: &collect.Lane{Stream: "x", Kind: collect.Catchup, Cursor: fmt.Sprint(n), Walking: true},
		}
		for i := range size {
			c.Items = append(c.Items, collect.KnownItem{
				Key: fmt.Sprintf("item-%08d", n+i), Fingerprint: "0123456789abcdef", Children: []byte("0123456789abcdef0123456789abcdef"),
			})
		}
		if err := s.Commit(b.Context(), l, c); err != nil {
			b.Fatal(err)
		}
		n += size
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "items/s")
}
