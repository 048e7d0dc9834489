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
	"slices"
	"strings"
	"testing"
	"time"

	reader "github.com/parquet-go/parquet-go"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/sink/jsonl"
	"github.com/headway-go/headway/sink/parquet"
	sqlsink "github.com/headway-go/headway/sink/sqlite"
	"github.com/headway-go/headway/store/sqlite"
)

// version gives the only doc these messages and changes its list entry.
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

// onDisk gives the bench a state file, for a sink that shares it.
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

// rowsThere returns the rows that are not marked as deleted.
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

// olderStore stores children as an earlier version did: by digests of their keys.
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

// After an upgrade from an earlier version it is unknown which records were deleted. A
// sink of tables can find out. A file cannot, and the run warns.
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
			// The warning appears once: from now on the keys are known.
			b.o.Store = b.store
			b.version(2)
			if sum = b.into(t, tt.sink(b.dir)); sum.ChildrenGone != 1 || len(sum.Warnings) != 0 {
				t.Errorf("%d gone, warnings %+v", sum.ChildrenGone, sum.Warnings)
			}
		})
	}
}

// archive holds the records of a sink, read two at a time.
type archive struct {
	names  []string
	kept   map[string][]collect.KeptRecord
	fails  map[string]error // by what is asked of it
	closed int
}

func (a *archive) Streams(context.Context) ([]string, error) { return a.names, a.fails["streams"] }

func (a *archive) Count(_ context.Context, s collect.StreamInfo) (int64, error) {
	return int64(len(a.kept[s.Name])), a.fails["count"]
}

func (a *archive) Read(_ context.Context, s collect.StreamInfo, after collect.RecordID, limit, _ int) ([]collect.KeptRecord, error) {
	all := a.kept[s.Name]
	from := 1 + slices.IndexFunc(all, func(k collect.KeptRecord) bool { return k.Parent == after.Parent && k.Key == after.Key })
	return slices.Clone(all[from:min(from+min(2, limit), len(all))]), a.fails["read"]
}

func (a *archive) Close() error { a.closed++; return a.fails["close"] }

// standIn is a sink with a location. If it has rows, it is in the store's database.
type standIn struct {
	*jsonl.Sink
	at     collect.Location
	fails  map[string]error
	within bool
}

func (s *standIn) Location() collect.Location { return s.at }

func (s *standIn) Open(ctx context.Context, p json.RawMessage, all []collect.StreamInfo) error {
	return errors.Join(s.Sink.Open(ctx, p, all), s.fails["sink open"])
}

func (s *standIn) Write(ctx context.Context, stream string, records []collect.Record) error {
	return errors.Join(s.Sink.Write(ctx, stream, records), s.fails["write"])
}

func (s *standIn) Close() error { return errors.Join(s.Sink.Close(), s.fails["sink close"]) }

func (s *standIn) Pending() func(context.Context, collect.Execer) error {
	return func(context.Context, collect.Execer) error { s.within = true; return s.fails["within"] }
}

// deskStore is a store that calls a commit's Within, without a database.
type deskStore struct {
	collect.Store
	fails map[string]error
}

func (l deskStore) Load(ctx context.Context, connection string) (collect.State, error) {
	state, err := l.Store.Load(ctx, connection)
	return state, errors.Join(err, l.fails["load"])
}

func (l deskStore) Commit(ctx context.Context, lease collect.Lease, c collect.Commit) error {
	if c.Within != nil {
		if err := c.Within(ctx, nil); err != nil {
			return err
		}
		c.Within = nil
	}
	return l.Store.Commit(ctx, lease, c)
}

func (l deskStore) Finish(ctx context.Context, lease collect.Lease, end collect.RunEnd) error {
	if err := l.fails["finish"]; err != nil {
		return err
	}
	return l.Store.Finish(ctx, lease, end)
}

// shelved returns a bench whose two docs are in a former sink, and the records of that
// sink. Among them are a deleted record, a record of an unknown doc, and a stream that the
// connection no longer has.
func shelved(t *testing.T) (*bench, *archive) {
	t.Helper()
	b := newBench(t, 2)
	b.o.Sink = &standIn{Sink: jsonl.New(filepath.Join(b.dir, "kept")), at: collect.Location{Kind: "sqlite", Path: "kept.db"}}
	b.o.Store = deskStore{Store: b.store}
	c, err := collect.New(b.o)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.Run(t.Context()); err != nil || s.State != collect.RunDrained {
		t.Fatalf("%+v, %v", s, err)
	}
	record := func(parent, key string) collect.KeptRecord {
		return collect.KeptRecord{Record: collect.Record{Parent: parent, Key: key, Data: fmt.Appendf(nil, `{"of":%q,"n":%q}`, parent, key)}}
	}
	return b, &archive{names: []string{"docs", "ghosts", "messages"}, kept: map[string][]collect.KeptRecord{
		"docs": {record("", "d00"), record("", "d01")}, "ghosts": {record("", "boo")},
		"messages": {record("d00", "0"), record("d00", "1"), record("d01", "0"), record("d01", "1"), record("d77", "0"), record("d01", "9")},
	}}
}

// restore replays the former sink into a jsonl sink.
func (b *bench) restore(t *testing.T, a *archive, fails map[string]error, then func(collect.ReplaySummary)) (collect.ReplaySummary, *standIn, error) {
	t.Helper()
	a.fails = fails
	into := &standIn{Sink: jsonl.New(filepath.Join(b.dir, "out")), at: collect.Location{Kind: "jsonl", Path: "./out"}, fails: fails}
	s, err := collect.RunReplay(t.Context(), collect.ReplayOptions{
		Connection: "bench", Connector: b.o.Connector, Store: deskStore{b.store, fails}, Sink: into, OnProgress: then,
		Open: func(_ context.Context, from collect.Location, former []collect.FormerSink, _ []collect.StreamInfo) (collect.Kept, error) {
			if len(former) == 0 || former[0].Location != from || from.Path != "kept.db" || former[0].Position == nil {
				t.Errorf("it opens %s, of %+v", from, former)
			}
			return a, fails["open"]
		},
	})
	return s, into, err
}

func TestAReplayMarksWhatIsGoneAndSaysWhatItLeftOut(t *testing.T) {
	b, a := shelved(t)
	var copied []int64
	s, into, err := b.restore(t, a, nil, func(s collect.ReplaySummary) {
		copied = append(copied, s.Replay.Records)
		if s.Replay.Stream != "" || s.Replay.After.Key != "" || s.Total != 8 {
			t.Errorf("on the way: %+v", s)
		}
	})
	if err != nil || s.State != collect.RunDrained || s.Replay.Records != 8 || s.Replay.Deleted != 1 || s.Total != 8 || s.Resumed || !slices.Equal(s.LeftOut, []string{"ghosts"}) {
		t.Fatalf("%+v, %v", s, err)
	}
	if !slices.Equal(copied, []int64{2, 4, 6, 8}) || !into.within || a.closed != 1 {
		t.Errorf("copied %v, in the store's transaction %v, closed %d times", copied, into.within, a.closed)
	}
	gone := slices.DeleteFunc(b.lines(t, "messages"), func(l string) bool { return !strings.Contains(l, "_headway_deleted_at") })
	if len(gone) != 1 || !strings.Contains(gone[0], `"_headway_parent":"d01","_headway_key":"9"`) || len(b.lines(t, "docs")) != 2 || len(b.lines(t, "messages")) != 7 {
		t.Errorf("gone: %q of %d lines", gone, len(b.lines(t, "messages")))
	}
	if again, _, err := b.restore(t, a, nil, nil); err != nil || !again.Repeated || again.State != collect.RunDrained || again.Ended.IsZero() || again.Replay.Records != 8 {
		t.Errorf("once more: %+v, %v", again, err)
	}
}

func TestAReplayThatCannotGoOnSaysWhyAndGoesOnLater(t *testing.T) {
	for _, what := range []string{"load", "open", "streams", "count", "read", "close", "sink open", "write", "within", "sink close", "finish"} {
		b, a := shelved(t)
		broken := errors.New("no " + what)
		s, _, err := b.restore(t, a, map[string]error{what: broken}, nil)
		if !errors.Is(err, broken) {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
		runs, err := b.store.Runs(t.Context(), "bench", 1)
		if what == "load" || what == "finish" { // before the run is on record, and after it
			runs[0].State, runs[0].Reason, runs[0].Error, s.State, s.Error = collect.RunFailed, reason.Internal, broken.Error(), collect.RunFailed, broken.Error()
		}
		if err != nil || s.State != collect.RunFailed || s.Error != broken.Error() || runs[0].State != collect.RunFailed || runs[0].Error != s.Error || runs[0].Reason != reason.Internal {
			t.Errorf("%s: %+v, on record %+v, %v", what, s, runs, err)
		}
		if s, _, err := b.restore(t, a, nil, nil); err != nil || s.State != collect.RunDrained || s.Replay.Records != 8 || len(b.lines(t, "messages")) != 7 {
			t.Errorf("after %s: %+v, %d messages, %v", what, s, len(b.lines(t, "messages")), err)
		}
	}
}

func TestAReplayOfOneStreamIsDone(t *testing.T) {
	b, a := shelved(t)
	a.names = []string{"messages"}
	if s, _, err := b.restore(t, a, nil, nil); err != nil || s.State != collect.RunDrained || s.Replay.Records != 6 || s.Total != 6 {
		t.Errorf("%+v, %v", s, err)
	}
}
