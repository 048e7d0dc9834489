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

// Renewals remove the marks of writes that are older than an hour, by an index, so that a run
// of weeks does not collect marks.
func TestMarksOfWritesGoWithRenewals(t *testing.T) {
	at := pgserver.Shared(t).Database(t)
	s := open(t, at)
	l, err := s.Acquire(t.Context(), request("r", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pgserver.Shared(t).Exec(t, at, `INSERT INTO headway_writes SELECT n, now() - interval '2 hours' FROM generate_series(1, 100) n`,
		`INSERT INTO headway_writes VALUES (101, now() - interval '59 minutes')`)
	if err := s.Renew(t.Context(), l, time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	db := pgserver.Open(t, at)
	var old, recent, indexed int
	if err := db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM headway_writes WHERE token BETWEEN 1 AND 100),
		(SELECT count(*) FROM headway_writes WHERE token = 101),
		(SELECT count(*) FROM pg_indexes WHERE tablename = 'headway_writes' AND indexdef LIKE '%(at)')`).Scan(&old, &recent, &indexed); err != nil {
		t.Fatal(err)
	}
	if old != 0 || recent != 1 || indexed != 1 {
		t.Errorf("after a renewal there are %d old marks, %d of 1 recent, and %d indexes of their instants", old, recent, indexed)
	}
}
