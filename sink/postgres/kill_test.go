//go:build linux

package postgres_test

import (
	"bufio"
	"context"
	"errors"
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
	"github.com/headway-go/headway/sink/postgres"
	store "github.com/headway-go/headway/store/postgres"
)

// childEnv makes the test binary a collecting process: state, sink and run, a line each.
const childEnv = "HEADWAY_POSTGRES_SINK_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role != "" {
		words := strings.Split(role, "\n")
		fmt.Println("ended", gather(words[0], words[1], words[2]))
		os.Exit(1)
	}
	pgserver.Main(m)
}

const (
	// lifetime is that of a lease.
	lifetime = 2 * time.Second
	// perSlice is how many records a slice of the child has.
	perSlice = 20
)

// gather collects slices from where the state stands, until it is killed. The lane's cursor
// counts them. Each record says its slice, so that one of another try would show.
func gather(state, at, run string) (err error) {
	ctx := context.Background()
	s, err := store.Open(ctx, state)
	if err != nil {
		return err
	}
	b := &bench{store: s, sink: postgres.For("c", at, "", state)}
	for {
		b.lease, err = s.Acquire(ctx, collect.LeaseRequest{Connection: "c", Run: run, Holder: run, Now: time.Now(), TTL: lifetime})
		if _, held := errors.AsType[*collect.HeldError](err); !held {
			break
		}
		<-time.After(5 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	now, err := s.Load(ctx, "c")
	if err != nil {
		return err
	}
	n := 0
	if len(now.Lanes) > 0 {
		if n, err = strconv.Atoi(now.Lanes[0].Cursor); err != nil {
			return err
		}
	}
	if err := b.sink.Open(ctx, now.Sink, streams); err != nil {
		return err
	}
	for ; ; n++ {
		if err := s.Renew(ctx, b.lease, time.Now(), lifetime); err != nil {
			return err
		}
		var records []collect.Record
		for i := range perSlice {
			// One in four comes again in each slice, and columns come and widen.
			key, value := fmt.Sprintf("%d-%d", n, i), strconv.Itoa(n)
			if i%4 == 0 {
				key = fmt.Sprintf("again-%d", i)
			}
			if n%10 == 9 {
				value = `"` + value + `"`
			}
			records = append(records, rec(key, fmt.Sprintf(`{"slice":%d,"f%d":%s}`, n, n/10%50, value)))
		}
		if err := b.sink.Write(ctx, "talks", records); err != nil {
			return err
		}
		position, err := b.sink.Sync(ctx)
		if err != nil {
			return err
		}
		c := collect.Commit{
			At: time.Now(), Sink: position, SinkAt: b.sink.Location(),
			Lane: &collect.Lane{Stream: "talks", Kind: collect.Catchup, Cursor: strconv.Itoa(n + 1), Walking: true},
		}
		if t, ok := b.sink.(collect.Transactional); ok {
			c.Within = t.Pending()
		}
		if err := s.Commit(ctx, b.lease, c); err != nil {
			return err
		}
		fmt.Println("committed", n+1)
		if i, ok := b.sink.(collect.Informed); ok {
			if err := i.Committed(ctx, position); err != nil {
				return err
			}
		}
	}
}

// TestCollectorsThatAreKilled: processes are killed at any instant, and now and then the
// server too. Nothing that was committed is missing, and nothing is there that was not.
func TestCollectorsThatAreKilled(t *testing.T) {
	for name, together := range ways {
		t.Run(name, func(t *testing.T) {
			server := pgserver.New(t)
			state := server.Database(t)
			at := state
			if !together {
				at = server.Database(t)
			}
			s, err := store.Open(t.Context(), state)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			acknowledged := 0
			kills, every := longtest.Size(4, 200), longtest.Size(3, 10)
			for i := range kills {
				acknowledged = killed(t, server, state+"\n"+at+"\n"+fmt.Sprintf("r%d", i), acknowledged, i%every == every-1)
				now, err := s.Load(t.Context(), "c")
				if err != nil {
					t.Fatal(err)
				}
				cursor, _ := strconv.Atoi(now.Lanes[0].Cursor)
				if cursor < acknowledged || cursor > acknowledged+1 {
					t.Fatalf("kill %d: %d were acknowledged, the cursor is at %d", i, acknowledged, cursor)
				}
				b := &bench{at: at, store: s, sink: postgres.For("c", at, "", state)}
				if err := b.sink.Open(t.Context(), now.Sink, streams); err != nil { // what is staged is applied
					t.Fatal(err)
				}
				if err := b.sink.Close(); err != nil {
					t.Fatal(err)
				}
				got := b.query(t, `SELECT count(*), count(DISTINCT slice), min(slice), max(slice) FROM talks WHERE _key NOT LIKE 'again%'`) +
					"|" + b.query(t, `SELECT count(*), min(slice) FROM talks WHERE _key LIKE 'again%'`)
				if want := fmt.Sprintf("%d|%d|0|%d|%d|%d", cursor*perSlice*3/4, cursor, cursor-1, perSlice/4, cursor-1); got != want {
					t.Fatalf("kill %d: the table has %s, want %s", i, got, want)
				}
			}
			t.Logf("%d kills, %d slices", kills, acknowledged)
		})
	}
}

// killed runs a collecting process, and kills it after some slices; with restart, the server
// is killed before. It gives what was acknowledged.
func killed(t *testing.T, server *pgserver.Server, role string, acknowledged int, restart bool) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for left := 1 + rand.IntN(20); lines.Scan(); left-- {
		n, ok := strings.CutPrefix(lines.Text(), "committed ")
		if !ok {
			t.Fatal(lines.Text())
		}
		if acknowledged, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
		if restart {
			server.Stop(t, syscall.SIGQUIT)
			server.Start(t)
			restart = false
		}
		if left <= 0 {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	return acknowledged
}
