//go:build linux

package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/pgserver"
	"github.com/headway-go/headway/store/postgres"
)

// childEnv makes the test binary a collecting process: "<url> <run>".
const childEnv = "HEADWAY_POSTGRES_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		at, run, _ := strings.Cut(role, "\n")
		fmt.Println("ended", count(at, run))
		os.Exit(1)
	}
	pgserver.Main(m)
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
	for isHeld(err) { // until the server has noticed that the last process is dead
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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := 0
	kills, every := longtest.Size(4, 200), longtest.Size(3, 10)
	for i := range kills {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), childEnv+"="+at+"\n"+fmt.Sprintf("r%d", i))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for left := 1 + rand.IntN(20); lines.Scan(); left-- {
			if !strings.HasPrefix(lines.Text(), "committed ") {
				t.Fatal(lines.Text())
			}
			if acknowledged, err = strconv.Atoi(lines.Text()[len("committed "):]); err != nil {
				t.Fatal(err)
			}
			if left == 10 && i%every == every-1 {
				server.Stop(t, syscall.SIGQUIT)
				server.Start(t)
			}
			if left <= 0 {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
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
