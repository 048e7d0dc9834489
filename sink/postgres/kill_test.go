//go:build linux

package postgres_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/pgserver"
	"github.com/headway-go/headway/sink/internal/sinktest"
	"github.com/headway-go/headway/sink/postgres"
	store "github.com/headway-go/headway/store/postgres"
)

// childEnv makes the test binary a collecting process: state, sink and run, a line each.
const childEnv = "HEADWAY_POSTGRES_SINK_TEST_CHILD"

func TestMain(m *testing.M) {
	pgserver.Main(m, os.Getenv(childEnv), func(args []string) error { return gather(args[0], args[1], args[2]) })
}

const (
	// lifetime is the duration of a lease.
	lifetime = 2 * time.Second
	// perSlice is the number of records in a slice of the child.
	perSlice = 20
)

// gather collects slices from the stored cursor on, until it is killed. The cursor counts
// them. Each record has the number of its slice, so that a record of another try shows.
func gather(state, at, run string) (err error) {
	ctx := context.Background()
	s, err := store.Open(ctx, state)
	if err != nil {
		return err
	}
	b := &sinktest.Bench[collect.Recognizer]{Store: s, Sink: postgres.For("c", at, "", state)}
	for deadline := time.Now().Add(5 * time.Minute); ; {
		b.Lease, err = s.Acquire(ctx, collect.LeaseRequest{Connection: "c", Run: run, Holder: run, Now: time.Now(), TTL: lifetime})
		if _, held := errors.AsType[*collect.HeldError](err); !held || time.Now().After(deadline) {
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
	if err := b.Sink.Open(ctx, now.Sink, streams); err != nil {
		return err
	}
	for ; ; n++ {
		if err := s.Renew(ctx, b.Lease, time.Now(), lifetime); err != nil {
			return err
		}
		var records []collect.Record
		for i := range perSlice {
			// One record in four is repeated in each slice, and columns are added and widened.
			key, value := fmt.Sprintf("%d-%d", n, i), strconv.Itoa(n)
			if i%4 == 0 {
				key = fmt.Sprintf("again-%d", i)
			}
			if n%10 == 9 {
				value = `"` + value + `"`
			}
			records = append(records, sinktest.Record(key, fmt.Sprintf(`{"slice":%d,"f%d":%s}`, n, n/10%50, value)))
		}
		if err := b.Sink.Write(ctx, "talks", records); err != nil {
			return err
		}
		if err := sinktest.Commit(ctx, printing{s, n + 1}, b.Lease, b.Sink, collect.Commit{
			Lane: &collect.Lane{Stream: "talks", Kind: collect.Catchup, Cursor: strconv.Itoa(n + 1), Walking: true},
		}); err != nil {
			return err
		}
	}
}

// printing prints each acknowledged commit, before the sink is called again.
type printing struct {
	collect.Store
	n int
}

func (p printing) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	err := p.Store.Commit(ctx, l, c)
	if err == nil {
		fmt.Println("committed", p.n)
	}
	return err
}

// Processes are killed at random instants, and sometimes the server too. The tables have
// exactly the committed records.
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
				acknowledged = server.KillWriter(t, childEnv+"="+state+"\n"+at+"\n"+fmt.Sprintf("r%d", i), acknowledged, i%every == every-1)
				now, err := s.Load(t.Context(), "c")
				if err != nil {
					t.Fatal(err)
				}
				cursor, _ := strconv.Atoi(now.Lanes[0].Cursor)
				if cursor < acknowledged || cursor > acknowledged+1 {
					t.Fatalf("kill %d: %d were acknowledged, the cursor is at %d", i, acknowledged, cursor)
				}
				b := &bench{at: at}
				b.Store, b.Sink = s, postgres.For("c", at, "", state)
				if err := b.Sink.Open(t.Context(), now.Sink, streams); err != nil { // applies the staged slice
					t.Fatal(err)
				}
				if err := b.Sink.Close(); err != nil {
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

// streams are a list and its details, for most tests.
var streams = []collect.StreamInfo{{Name: "talks"}, {Name: "messages", Parent: "talks"}}

// bench is a store, a lease, and the sink of one connection: in the store's database, or in
// another one.
type bench struct {
	sinktest.Bench[collect.Recognizer]

	state, at string
}

// ways are the two databases that records can be in.
var ways = map[string]bool{"with the state": true, "apart": false}

func newBench(t testing.TB, server *pgserver.Server, together bool) *bench {
	t.Helper()
	b := &bench{state: server.Database(t)}
	if b.at = b.state; !together {
		b.at = server.Database(t)
	}
	s, err := store.Open(t.Context(), b.state)
	if err != nil {
		t.Fatal(err)
	}
	b.Store = s
	if b.Lease, err = s.Acquire(t.Context(), collect.LeaseRequest{Connection: "c", Run: "r", Holder: "host", Now: time.Now(), TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	b.Sink = postgres.For("c", b.at, "", b.state)
	if _, in := b.Sink.(*postgres.Sink); in != together {
		t.Fatalf("the sink is a %T", b.Sink)
	}
	b.Open(t, streams...)
	t.Cleanup(func() {
		if err := errors.Join(b.Sink.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) write(t sinktest.TB, stream string, records ...collect.Record) {
	t.Helper()
	if err := b.Sink.Write(t.Context(), stream, records); err != nil {
		t.Fatal(err)
	}
}

// query returns the rows of a query, one line for each.
func (b *bench) query(t sinktest.TB, query string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	rows, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		var cells []string
		for _, v := range values {
			cells = append(cells, fmt.Sprint(v))
		}
		return strings.Join(cells, "|"), err
	})
	if err != nil {
		t.Fatal(query, err)
	}
	return strings.Join(lines, "\n")
}

// exec runs a statement in the database of the records.
func (b *bench) exec(t sinktest.TB, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(statement, err)
	}
}

// records reads a stream back, by parent and key. Deleted records have an instant as well.
func (b *bench) records(t sinktest.TB, stream collect.StreamInfo) map[[2]string]any {
	t.Helper()
	all := map[[2]string]any{}
	kept, err := postgres.OpenKept(t.Context(), postgres.For("c", b.at, "", "").Location(), []string{b.at}, "c", nil, b.Streams)
	if _, none := errors.AsType[*collect.ReplayError](err); none {
		return all
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kept.Close() }()
	names, err := kept.Streams(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name != stream.Name {
			continue
		}
		var after collect.RecordID
		for {
			list, err := kept.Read(t.Context(), stream, after, 2, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list {
				after = collect.RecordID{Parent: r.Parent, Key: r.Key}
				if _, twice := all[[2]string{r.Parent, r.Key}]; twice {
					t.Fatalf("%q comes twice", r.Key)
				}
				all[[2]string{r.Parent, r.Key}] = sinktest.Parsed(t, string(r.Data))
			}
			if len(list) == 0 {
				break
			}
		}
		if n, err := kept.Count(t.Context(), stream); err != nil || n != int64(len(all)) {
			t.Fatalf("%d records are counted and %d are read: %v", n, len(all), err)
		}
	}
	return all
}

// A session that waits for the lock of the sink longer than statements may take says who has
// it. A table is counted however long that takes.
func TestWhatTakesLongerThanAStatement(t *testing.T) {
	b := newBench(t, pgserver.Shared(t), false)
	b.Put(t, "talks", sinktest.Record("1", `{"a":1}`), sinktest.Record("2", `{"a":2}`))
	state, err := b.Store.Load(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	err = postgres.NewDatabase(b.at+"&statement_timeout=2000", "", "c").Open(t.Context(), state.Sink, streams)
	sinktest.Says(t, err, "another process writes the records of this connection")
	if strings.Contains(err.Error(), "locks the table") {
		t.Errorf("the error is about a table: %v", err)
	}

	b.exec(t, `ALTER TABLE talks RENAME TO all_talks`)
	b.exec(t, `CREATE VIEW talks AS SELECT * FROM all_talks WHERE current_setting('statement_timeout') = '0'`)
	kept, err := postgres.OpenKept(t.Context(), postgres.For("c", b.at, "", "").Location(), []string{b.at}, "c", nil, b.Streams)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kept.Close() }()
	if n, err := kept.Count(t.Context(), streams[0]); err != nil || n != 2 {
		t.Errorf("%d records without a timeout, %v; want 2", n, err)
	}
}

// The network is gone when a transaction that failed is to be rolled back.
func TestARollbackThatIsNotAnswered(t *testing.T) {
	b := newBench(t, pgserver.Shared(t), false)
	b.Put(t, "talks", sinktest.Record("1", `{"a":1}`))
	if err := b.Sink.Close(); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(b.at)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer func() { _ = l.Close() }()
	opened := make(chan struct{})
	server, swallowed := u.Host, make(chan struct{}, 10)
	through := func(here net.Conn) {
		defer func() { _ = here.Close() }()
		there, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer func() { _ = there.Close() }()
		work.Go(func() { _, _ = io.Copy(here, there) })
		for data := make([]byte, 64<<10); ; {
			n, err := here.Read(data)
			if bytes.Contains(data[:n], []byte("ROLLBACK")) {
				swallowed <- struct{}{}
				<-opened
				return
			}
			if _, wrong := there.Write(data[:n]); err != nil || wrong != nil {
				return
			}
		}
	}
	work.Go(func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { through(here) })
		}
	})
	u.Host = l.Addr().String()
	d := postgres.NewDatabase(u.String(), "", "c")
	defer func() { _ = d.Close() }()
	err = d.Open(t.Context(), json.RawMessage(`{"postgres":{"id":"another","begun":"1","slice":1}}`), streams)
	close(opened)
	if err == nil {
		t.Error("opened with the position of another state")
	}
	select {
	case <-swallowed:
	default:
		t.Errorf("nothing was rolled back: %v", err)
	}
}
