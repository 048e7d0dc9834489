//go:build linux

package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/pgserver"
	"github.com/headway-go/headway/store/postgres"
)

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
