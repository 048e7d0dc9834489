package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/sink/internal/sinktest"
	"github.com/headway-go/headway/sink/sqlite"
	store "github.com/headway-go/headway/store/sqlite"
)

// values are drawn often, beside random ones: each is on an edge.
var values = []string{
	`null`, `true`, `false`, `0`, `-0`, `-0.0`, `1`, `1.0`, `1e2`, `1.50`, `9223372036854775807`, `9223372036854775808`,
	`-9223372036854775808`, `123456789012345678901234567890`, `0.1`, `0.30000000000000004`, `0.12345678901234567890`,
	`1e308`, `1e309`, `-1e-320`, `1e-350`, `1E+2`, `""`, `"x"`, `"1"`, `"true"`, `"null"`, `"[1]"`, `"{}"`, `"a\u0000b"`, `"\ud800"`,
	`"\ufffd"`, `"\\ufffd\ud800"`, `"😀\n\"\\\u2028"`, `[]`, `{}`, `[1,"a",null,{"b":[true]}]`, `{"a":{"b":1.0}}`,
}

var names = []string{"a", "b", "A", "é", "_key", "_rest", "_value", "", "x y", `q"`, "rowid", "z\u0001"}

// aRecord draws a record of few names and many kinds.
func aRecord(rt *rapid.T) string {
	value := rapid.OneOf(rapid.SampledFrom(values), rapid.Map(rapid.Float64(), func(f float64) string {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}), rapid.Map(rapid.Int64(), func(n int64) string { return strconv.FormatInt(n, 10) }))
	if rapid.IntRange(0, 9).Draw(rt, "scalar") == 0 {
		return value.Draw(rt, "record")
	}
	var fields []string
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 6, rapid.ID).Draw(rt, "names") {
		fields = append(fields, fmt.Sprintf("%s : %s", strconv.QuoteToGraphic(name), value.Draw(rt, "value")))
	}
	return strings.ReplaceAll("{"+strings.Join(fields, ", ")+"}", `\x01`, `\u0001`)
}

// TestAnySequenceReadsBack commits random records, lets some commits fail, and
// compares what the tables give back with what was committed.
func TestAnySequenceReadsBack(t *testing.T) {
	longtest.Draws(t, 25, 100) // each makes tables
	b := newBench(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		list, parts := fmt.Sprintf("list%d", round), fmt.Sprintf("parts%d", round)
		b.Open(rt, collect.StreamInfo{Name: list}, collect.StreamInfo{Name: parts, Parent: list})
		committed := map[string]map[[2]string]any{list: {}, parts: {}}
		for range rapid.IntRange(1, 6).Draw(rt, "slices") {
			next := map[string]map[[2]string]any{list: maps.Clone(committed[list]), parts: maps.Clone(committed[parts])}
			for range rapid.IntRange(1, 6).Draw(rt, "records") {
				r := sinktest.Record(rapid.SampledFrom([]string{"1", "2", "\x00", "é"}).Draw(rt, "key"), aRecord(rt))
				stream := list
				if rapid.Bool().Draw(rt, "detail") {
					stream, r.Parent = parts, rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "parent")
				}
				if err := b.Sink.Write(rt.Context(), stream, []collect.Record{r}); err != nil {
					rt.Fatal(err)
				}
				next[stream][[2]string{r.Parent, r.Key}] = sinktest.Parsed(rt, string(r.Data))
			}
			if rapid.IntRange(0, 3).Draw(rt, "fails") == 0 {
				b.failCommit(rt)
				b.Open(rt, collect.StreamInfo{Name: list}, collect.StreamInfo{Name: parts, Parent: list})
			} else if err := b.Commit(rt.Context()); err != nil {
				rt.Fatal(err)
			} else {
				committed = next
			}
			for stream, want := range committed {
				if got := b.records(rt, stream); !maps.EqualFunc(got, want, sinktest.Same) {
					rt.Fatalf("%s reads back as\n%v, want\n%v", stream, got, want)
				}
			}
		}
	})
}

// failCommit has the store roll back after the sink wrote.
func (b *bench) failCommit(t sinktest.TB) {
	t.Helper()
	within, gone := b.Sink.Pending(), errors.New("the disk is gone")
	err := b.Store.Commit(t.Context(), b.Lease, collect.Commit{At: time.Now(), Within: func(ctx context.Context, tx collect.Execer) error {
		return errors.Join(within(ctx, tx), gone)
	}})
	if !errors.Is(err, gone) || strings.Contains(err.Error(), "sqlite sink") {
		t.Fatal(err)
	}
}

// TestThePendingMayBeAppliedAgain: after a rollback nothing is remembered of
// the tables that were created.
func TestThePendingMayBeAppliedAgain(t *testing.T) {
	b := newBench(t)
	write(t, b.Sink, "talks", sinktest.Record("1", `{"a":1}`))
	within, again := b.Sink.Pending(), errors.New("again")
	for _, end := range []error{again, nil} {
		err := b.Store.Commit(t.Context(), b.Lease, collect.Commit{At: time.Now(), Within: func(ctx context.Context, tx collect.Execer) error {
			return errors.Join(within(ctx, tx), end)
		}})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
	}
	sinktest.Is(t, "talks", b.query(t, `SELECT a FROM talks`), 1)
}

// bare is an Execer that cannot prepare.
type bare struct{ collect.Execer }

func TestATransactionThatCannotPrepare(t *testing.T) {
	b := newBench(t)
	write(t, b.Sink, "talks", sinktest.Record("1", `{"a":1}`), sinktest.Record("2", `{"b":[1]}`))
	within := b.Sink.Pending()
	err := b.Store.Commit(t.Context(), b.Lease, collect.Commit{At: time.Now(), Within: func(ctx context.Context, tx collect.Execer) error {
		return within(ctx, bare{tx})
	}})
	if err != nil {
		t.Fatal(err)
	}
	sinktest.Is(t, "talks", b.query(t, `SELECT _key, a, b FROM talks`), "1|1|<nil>\n2|<nil>|[1]")
}

// TestFullDisk: SQLite is out of pages, as it is on a full disk. The error says
// what to do, what was committed stays, and with space again it goes on.
func TestFullDisk(t *testing.T) {
	b := newBench(t)
	b.Put(t, "talks", sinktest.Record("0", `{"a":1}`))
	pages := func(n int) error {
		return b.Store.Commit(t.Context(), b.Lease, collect.Commit{At: time.Now(), Within: func(ctx context.Context, tx collect.Execer) error {
			_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", n))
			return err
		}})
	}
	if err := pages(200); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("canary ", 1000)
	n, err := 0, error(nil)
	for ; err == nil && n < 1000; n++ {
		write(t, b.Sink, "talks", sinktest.Record(fmt.Sprint(n), `{"a":"`+long+`"}`))
		err = b.Commit(t.Context())
	}
	sinktest.Says(t, err, "no space is left", "what was committed is kept")
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("%v has a record's content", err)
	}
	n-- // the last one failed
	sinktest.Is(t, "rows", b.query(t, `SELECT count(*) FROM talks`), n)
	if err := pages(1 << 30); err != nil {
		t.Fatal(err)
	}
	b.Open(t, streams...)
	b.Put(t, "talks", sinktest.Record(fmt.Sprint(n), `{"a":1}`))
	sinktest.Is(t, "rows", b.query(t, `SELECT count(*), max(a = 1) FROM talks`), fmt.Sprintf("%d|1", n+1))
}

// childEnv makes the test binary a process that collects until it is killed.
const childEnv = "HEADWAY_SQLITE_SINK_TEST_CHILD"

// perSlice is how many records the child commits at a time.
const perSlice = 50

// child commits slices; the lane's cursor is how many.
func child() {
	path := os.Getenv(childEnv)
	if path == "" {
		return
	}
	if err := collectForever(path); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func collectForever(path string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	run := fmt.Sprint(os.Getpid(), time.Now().UnixNano())
	lease, err := s.Acquire(ctx, collect.LeaseRequest{Connection: "c", Run: run, Holder: "child", Now: time.Now().Add(time.Hour), TTL: time.Second})
	if err != nil {
		return err
	}
	state, err := s.Load(ctx, "c")
	if err != nil {
		return err
	}
	sink := sqlite.New("c")
	if err := sink.Open(ctx, state.Sink, streams); err != nil {
		return err
	}
	n := 0
	for _, l := range state.Lanes {
		if n, err = strconv.Atoi(l.Cursor); err != nil {
			return err
		}
	}
	for ; ; n++ {
		fmt.Println("collecting")
		var records []collect.Record
		for i := range perSlice {
			// A column more with each slice, and an older row again.
			records = append(records, sinktest.Record(fmt.Sprint(n*perSlice+i), fmt.Sprintf(`{"n":%d,"f%d":1}`, n, n%40)))
		}
		records = append(records, sinktest.Record("0", fmt.Sprintf(`{"n":%d}`, n)))
		if err := sink.Write(ctx, "talks", records); err != nil {
			return err
		}
		position, err := sink.Sync(ctx)
		if err != nil {
			return err
		}
		err = s.Commit(ctx, lease, collect.Commit{
			At: time.Now(), Sink: position, Within: sink.Pending(),
			Lane: &collect.Lane{Stream: "talks", Kind: collect.Catchup, Cursor: fmt.Sprint(n + 1)},
		})
		if err != nil {
			return err
		}
	}
}

// TestKilled kills a process that collects at instants all over its work, and
// compares the rows with the cursor each time.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for i := range 12 {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// A few slices, and then some instant of the next.
		from := bufio.NewReader(out)
		for range i%3 + 2 {
			if line, err := from.ReadString('\n'); err != nil || line != "collecting\n" {
				t.Fatalf("the child says %s, %v", line, err)
			}
		}
		kill := time.NewTimer(time.Duration(i) * 700 * time.Microsecond)
		<-kill.C
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		last = checkKilled(t, path, last)
	}
	if last < 24 {
		t.Errorf("%d slices are committed, and the children said more", last)
	}
}

func checkKilled(t *testing.T, path string, last int) int {
	t.Helper()
	s, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	state, err := s.Load(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range state.Lanes {
		if n, err = strconv.Atoi(l.Cursor); err != nil {
			t.Fatal(err)
		}
	}
	if n < last {
		t.Fatalf("%d slices, and %d were committed before", n, last)
	}
	got := (&bench{db: openRaw(t, path)}).records(t, "talks")
	if len(got) != n*perSlice {
		t.Fatalf("after %d slices there are %d rows, want %d", n, len(got), n*perSlice)
	}
	for i := range n * perSlice {
		row, _ := got[[2]string{"", fmt.Sprint(i)}].(map[string]any)
		want := i / perSlice
		if i == 0 {
			want = n - 1
		}
		if fmt.Sprint(row["n"]) != fmt.Sprint(want) {
			t.Fatalf("row %d is %v, want n to be %d", i, row, want)
		}
	}
	return n
}
