package collect_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	reader "github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/sink/parquet"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
	"github.com/headway-go/headway/store/sqlite"
)

// version makes the one doc have these messages, and its list entry new.
func (b *bench) version(n int, messages ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.docs[0].Updated = fmt.Sprintf("2024-01-01T00:%02d:00Z", n)
	b.docs[0].Messages = messages
}

// into collects once into a sink, to the end.
func (b *bench) into(t *testing.T, s collect.Sink) collect.Summary {
	t.Helper()
	b.o.Sink = s
	c, err := collect.New(b.o)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := c.Run(t.Context())
	if err != nil || sum.State != collect.RunDrained {
		t.Fatalf("got %s (%s), %v; want drained", sum.State, sum.Reason, err)
	}
	return sum
}

// onDisk gives the bench a state in a file, for a sink that shares it.
func (b *bench) onDisk(t *testing.T) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(b.dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b.store, b.o.Store = s, s
}

func TestADetailThatChangesAndChangesBackEndsAsItIs(t *testing.T) {
	for name, c := range map[string]struct {
		sink func(dir string) collect.Sink
		last func(t *testing.T, b *bench) map[string]string // the newest text by key
	}{
		"jsonl": {
			func(dir string) collect.Sink { return jsonl.New(filepath.Join(dir, "out")) }, lastLines,
		},
		"sqlite": {func(string) collect.Sink { return sqlsink.New("bench") }, rowsThere},
		"parquet": {
			func(dir string) collect.Sink { return parquet.New(filepath.Join(dir, "out")) }, lastRows,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			b.onDisk(t)
			for n, text := range []string{"A", "B", "A", "A", "B", "A"} {
				b.version(n, text, "same")
				sum := b.into(t, c.sink(b.dir))
				got := c.last(t, b)
				if got["d00/0"] != text || got["d00/1"] != "same" {
					t.Fatalf("version %d is %s and the sink ends with %v", n+1, text, got)
				}
				if want := map[bool]int64{true: 2, false: 1}[n == 3]; n > 0 && sum.Records != 3-want {
					t.Errorf("version %d: %d records were written, want %d", n+1, sum.Records, 3-want)
				}
			}
		})
	}
}

func TestADetailRecordThatVanishesIsNoticedAndMayComeBack(t *testing.T) {
	b := newBench(t, 1)
	b.onDisk(t)
	sink := func() collect.Sink { return sqlsink.New("bench") }
	b.version(0, "A", "B", "C")
	b.into(t, sink())
	b.version(1, "A")
	sum := b.into(t, sink())
	if got := rowsThere(t, b); sum.ChildrenGone != 2 || len(got) != 1 || got["d00/0"] != "A" {
		t.Fatalf("%d gone, rows %v", sum.ChildrenGone, got)
	}
	runs, err := b.store.Runs(t.Context(), "bench", 1)
	if err != nil || runs[0].ChildrenGone != 2 {
		t.Fatalf("on record: %+v, %v", runs, err)
	}
	b.version(2, "A", "B")
	sum = b.into(t, sink())
	if got := rowsThere(t, b); sum.ChildrenGone != 0 || len(got) != 2 || got["d00/1"] != "B" {
		t.Fatalf("%d gone, rows %v", sum.ChildrenGone, got)
	}
	b.version(3)
	if sum = b.into(t, sink()); sum.ChildrenGone != 2 || len(rowsThere(t, b)) != 0 {
		t.Fatalf("%d gone, rows %v", sum.ChildrenGone, rowsThere(t, b))
	}
}

func texts(t *testing.T, into map[string]string, line []byte) {
	t.Helper()
	var m struct{ ID, Text string }
	if err := json.Unmarshal(line, &m); err != nil {
		t.Fatal(err)
	}
	into[m.ID] = m.Text
}

func lastLines(t *testing.T, b *bench) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, "out", "messages.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]string{}
	for line := range strings.Lines(string(data)) {
		texts(t, last, []byte(line))
	}
	return last
}

func lastRows(t *testing.T, b *bench) map[string]string {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(b.dir, "out", "messages", "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]string{}
	for _, path := range parts {
		rows, err := reader.ReadFile[struct {
			ID   string `parquet:"id,optional"`
			Text string `parquet:"text,optional"`
		}](path)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for _, r := range rows {
			last[r.ID] = r.Text
		}
	}
	return last
}

// rowsThere are the rows that are not marked as gone.
func rowsThere(t *testing.T, b *bench) map[string]string {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(b.dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var marks int
	if err := db.QueryRowContext(t.Context(),
		`SELECT count(*) FROM pragma_table_info('messages') WHERE name = '_headway_deleted_at'`).Scan(&marks); err != nil {
		t.Fatal(err)
	}
	query := `SELECT id, text FROM messages`
	if marks > 0 {
		query += ` WHERE _headway_deleted_at IS NULL`
	}
	return pairs(t, t.Context(), db, query)
}

func pairs(t *testing.T, ctx context.Context, db *sql.DB, query string) map[string]string {
	t.Helper()
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	all := map[string]string{}
	for rows.Next() {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			t.Fatal(err)
		}
		all[key] = value
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAFileHasATombstoneForARecordThatVanished(t *testing.T) {
	b := newBench(t, 1)
	b.version(0, "A", "B")
	b.into(t, jsonl.New(filepath.Join(b.dir, "out")))
	b.version(1, "A")
	b.into(t, jsonl.New(filepath.Join(b.dir, "out")))
	data, err := os.ReadFile(filepath.Join(b.dir, "out", "messages.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	var got collect.Tombstone
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.RFC3339, got.DeletedAt); err != nil || len(lines) != 3 || got.Parent != "d00" || got.Key != "1" {
		t.Errorf("%d lines, the last is %s, %v", len(lines), lines[len(lines)-1], err)
	}
	b = newBench(t, 1)
	b.version(0, "A", "B")
	b.into(t, parquet.New(filepath.Join(b.dir, "out")))
	b.version(1, "A")
	b.into(t, parquet.New(filepath.Join(b.dir, "out")))
	rows, err := reader.ReadFile[struct {
		Key    string `parquet:"_key,optional"`
		Parent string `parquet:"_parent,optional"`
		At     string `parquet:"_headway_deleted_at,optional"`
	}](filepath.Join(b.dir, "out", "messages", "part-000001.parquet"))
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if len(rows) != 3 || rows[2].Key != "1" || rows[2].Parent != "d00" || rows[2].At == "" || rows[1].At != "" {
		t.Errorf("rows %+v", rows)
	}
}

// olderStore has detail records remembered as an earlier version did: by digests
// of their keys.
type olderStore struct{ collect.Store }

func (s olderStore) Known(ctx context.Context, connection, stream string, keys []string) (map[string]collect.KnownItem, error) {
	known, err := s.Store.Known(ctx, connection, stream, keys)
	for key, it := range known {
		if len(it.Children) == 0 {
			continue
		}
		old := []byte{1}
		for b := it.Children[1:]; len(b) > 0; {
			n, width := binary.Uvarint(b)
			sum := sha256.Sum256(b[width : width+int(n)])
			b = b[width+int(n):]
			old = append(append(old, sum[:16]...), b[:16]...)
			b = b[16:]
		}
		it.Children = old
		known[key] = it
	}
	return known, err
}

// Which records vanished since an earlier version collected them is not known. A
// sink of tables can see it, a file cannot, and the run says so.
func TestARecordThatAnEarlierVersionKnewVanishes(t *testing.T) {
	for name, tt := range map[string]struct {
		sink   func(dir string) collect.Sink
		marked bool
	}{
		"sqlite":  {func(string) collect.Sink { return sqlsink.New("bench") }, true},
		"jsonl":   {func(dir string) collect.Sink { return jsonl.New(filepath.Join(dir, "out")) }, false},
		"parquet": {func(dir string) collect.Sink { return parquet.New(filepath.Join(dir, "out")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			b.onDisk(t)
			b.version(0, "A", "B", "C")
			b.into(t, tt.sink(b.dir))
			b.o.Store = olderStore{b.store}
			b.version(1, "A")
			sum := b.into(t, tt.sink(b.dir))
			var warned []connector.Warning
			for _, w := range sum.Warnings {
				if w.Kind == connector.TombstonesMissing {
					warned = append(warned, w)
				}
			}
			if sum.ChildrenGone != 2 || (len(warned) == 0) != tt.marked {
				t.Fatalf("%d gone, warnings %+v", sum.ChildrenGone, sum.Warnings)
			}
			if tt.marked {
				if got := rowsThere(t, b); len(got) != 1 {
					t.Errorf("rows %v", got)
				}
				return
			}
			if warned[0].Stream != "messages" || warned[0].Records != 2 {
				t.Errorf("warned of %+v", warned[0])
			}
			// It is said once: from now on the keys are known.
			b.o.Store = b.store
			b.version(2)
			if sum = b.into(t, tt.sink(b.dir)); sum.ChildrenGone != 1 || len(sum.Warnings) != 0 {
				t.Errorf("%d gone, warnings %+v", sum.ChildrenGone, sum.Warnings)
			}
		})
	}
}
