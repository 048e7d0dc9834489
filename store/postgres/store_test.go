//go:build linux

package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
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

// childEnv makes the test binary a collecting process: URL and run, a line each.
const childEnv = "HEADWAY_POSTGRES_TEST_CHILD"

func TestMain(m *testing.M) {
	pgserver.Main(m, os.Getenv(childEnv), func(args []string) error { return count(args[0], args[1]) })
}

// lifetime is the duration of leases. A lease has to expire only if the server has lost its
// lock and the holder was killed before it took the lock again.
const lifetime = 2 * time.Second

// count acquires the connection and commits one item after the other, from the stored
// cursor on, until it is killed. It prints each acknowledged commit.
func count(at, run string) error {
	ctx := context.Background()
	s, err := postgres.Open(ctx, at)
	if err != nil {
		return err
	}
	l, err := s.Acquire(ctx, collect.LeaseRequest{Connection: "c", Run: run, Holder: run, Now: time.Now(), TTL: lifetime})
	for deadline := time.Now().Add(5 * time.Minute); isHeld(err) && time.Now().Before(deadline); { // until the server has noticed that the last process is dead
		<-time.After(5 * time.Millisecond)
		l, err = s.Acquire(ctx, collect.LeaseRequest{Connection: "c", Run: run, Holder: run, Now: time.Now(), TTL: lifetime})
	}
	if err != nil {
		return err
	}
	state, err := s.Load(ctx, "c")
	if err != nil {
		return err
	}
	n := 0
	if len(state.Lanes) > 0 {
		if n, err = strconv.Atoi(state.Lanes[0].Cursor); err != nil {
			return err
		}
	}
	for ; ; n++ {
		// After a restart of the server this takes the lock again.
		if err := s.Renew(ctx, l, time.Now(), lifetime); err != nil {
			return err
		}
		c := noted(strconv.Itoa(n))
		c.Lane = &collect.Lane{Stream: "x", Kind: collect.Catchup, Cursor: strconv.Itoa(n + 1), Walking: true}
		if err := s.Commit(ctx, l, c); err != nil {
			return err
		}
		fmt.Println("committed", n+1)
	}
}

// Processes are killed at random instants, and sometimes the server too. The next process
// continues, no acknowledged commit is lost, and none is stored twice.
func TestCollectorsThatAreKilled(t *testing.T) {
	server := pgserver.New(t)
	at := server.Database(t)
	s := open(t, at)
	acknowledged := 0
	kills, every := longtest.Size(4, 200), longtest.Size(3, 10)
	for i := range kills {
		acknowledged = server.KillWriter(t, childEnv+"="+at+"\n"+fmt.Sprintf("r%d", i), acknowledged, i%every == every-1)
		state, err := s.Load(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		status, _, err := collect.StatusOf(t.Context(), s, "c")
		if err != nil {
			t.Fatal(err)
		}
		// The last commit may have been acknowledged after the last line was read.
		cursor, _ := strconv.Atoi(state.Lanes[0].Cursor)
		if cursor < acknowledged || cursor > acknowledged+1 || status.Items["x"] != int64(cursor) {
			t.Fatalf("kill %d: %d were acknowledged, the cursor is at %d with %d items", i, acknowledged, cursor, status.Items["x"])
		}
	}
	all := map[string]int{}
	for i := range kills {
		for note, n := range notes(t, s, fmt.Sprintf("r%d", i)) {
			all[note] += n
		}
	}
	for note, n := range all {
		if n != 1 {
			t.Errorf("commit %s is there %d times", note, n)
		}
	}
	t.Logf("%d kills, %d commits", kills, len(all))
}
