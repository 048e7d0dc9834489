package sqlite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/sinktest"
	"github.com/headway-go/headway/sink/sqlite"
)

func TestRowsAreUpserted(t *testing.T) {
	b := newBench(t)
	b.Put(t, "talks", sinktest.Record("1", `{"id":1,"title":"one","open":true}`), sinktest.Record("2", `{"id":2,"title":"two"}`))
	b.Put(t, "messages", sinktest.Detail("1", "a", `{"text":"x"}`), sinktest.Detail("2", "a", `{"text":"y"}`))
	b.Put(t, "talks", sinktest.Record("1", `{"id":1,"open":false}`), sinktest.Record("3", `{"id":3}`), sinktest.Record("3", `{"id":33}`))
	sinktest.Is(t, "talks", b.query(t, `SELECT _key, id, title, open FROM talks ORDER BY 1`), "1|1|<nil>|0\n2|2|two|<nil>\n3|33|<nil>|<nil>")
	sinktest.Is(t, "messages", b.query(t, `SELECT _parent, _key, text, _rest FROM messages ORDER BY 1`), "1|a|x|<nil>\n2|a|y|<nil>")
	state, err := b.Store.Load(t.Context(), "c")
	sinktest.Is(t, "position", fmt.Sprint(string(state.Sink), " ", err), `{"sqlite":{}} <nil>`)
}

func TestColumnsAppearAndWiden(t *testing.T) {
	b := newBench(t)
	for i, v := range []string{`1`, `2.5`, `"x"`, `[1]`, `null`, `true`, `{"a":1}`, `12345678901234567890`, `0.1000000000000000055511`} {
		b.Put(t, "talks", sinktest.Record(fmt.Sprint(i), fmt.Sprintf(`{"v":%s,"v%d":%s}`, v, i, v)))
	}
	sinktest.Is(t, "v", b.query(t, `SELECT v, typeof(v), _rest FROM talks ORDER BY _key`), strings.Join([]string{
		"1|integer|<nil>", "2.5|real|<nil>", "x|text|<nil>", `[1]|text|{"v":[1]}`, `<nil>|null|{"v":null,"v4":null}`,
		`1|integer|{"v":true}`, `{"a":1}|text|{"v":{"a":1}}`,
		`12345678901234567890|text|{"v":12345678901234567890,"v7":12345678901234567890}`,
		`0.1000000000000000055511|text|{"v":0.1000000000000000055511,"v8":0.1000000000000000055511}`,
	}, "\n"))
	sinktest.Is(t, "kinds", b.query(t, `SELECT "column", kind FROM headway_columns WHERE "table" = 'talks' AND kind <> 'plain' ORDER BY 1`),
		"v3|json\nv5|boolean\nv6|json")
}

// TestUnusualNames: each field survives, whatever its name.
func TestUnusualNames(t *testing.T) {
	b := newBench(t)
	b.Put(t, "talks", sinktest.Record("1", `{"Id":1,"id":2,"_key":3,"_REST":4,"":5,"a\u0000b":6,"x\"y]":7,"rowid":8,"`+
		strings.Repeat("n", 101)+`":9,"é":10,"É":11,"a":12,"a":13}`))
	sinktest.Is(t, "row", b.query(t, `SELECT _key, Id, "x""y]", "é", "É", a FROM talks`), "1|1|7|10|11|13")
	sinktest.Is(t, "rest", b.query(t, `SELECT _rest FROM talks`),
		`{"id":2,"_key":3,"_REST":4,"":5,"a\u0000b":6,"rowid":8,"`+strings.Repeat("n", 101)+`":9}`)
}

func TestMoreFieldsThanColumns(t *testing.T) {
	b := newBench(t)
	var fields []string
	for i := range 2500 {
		fields = append(fields, fmt.Sprintf(`"f%d":%d`, i, i))
	}
	text := "{" + strings.Join(fields, ",") + "}"
	b.Put(t, "talks", sinktest.Record("1", "{"+strings.Join(fields[:990], ",")+"}"))
	b.Put(t, "talks", sinktest.Record("2", text))
	sinktest.Is(t, "columns", b.query(t, `SELECT count(*) FROM pragma_table_info('talks')`), 1003)
	sinktest.Is(t, "the last that fits, and the rest", b.query(t, `SELECT f999, json_extract(_rest, '$.f1000'),
		json_extract(_rest, '$.f2499'), json_extract(_rest, '$.f999') FROM talks WHERE _key = '2'`), "999|1000|2499|<nil>")
	if !sinktest.Same(b.records(t, "talks")[[2]string{"", "2"}], sinktest.Parsed(t, text)) {
		t.Error("the record does not read back")
	}
}

func TestRecordsThatAreNoObjects(t *testing.T) {
	b := newBench(t)
	for i, v := range []string{`5`, `"x"`, `[1, 2]`, `null`, `{}`, `{"_value":1}`} {
		b.Put(t, "talks", sinktest.Record(fmt.Sprint(i), v))
	}
	sinktest.Is(t, "talks", b.query(t, `SELECT _value, _rest FROM talks ORDER BY _key`),
		"5|<nil>\n\"x\"|<nil>\n[1,2]|<nil>\nnull|<nil>\n<nil>|<nil>\n<nil>|{\"_value\":1}")
}

func TestNamesThatAreRefused(t *testing.T) {
	for _, name := range append([]string{"", "Events", "runs_of_connection", "SQLite_x", "headway_tables", "talks_bak", "a\x00b",
		strings.Repeat("x", 101)}, "items") {
		err := sqlite.New("c").Open(t.Context(), nil, []collect.StreamInfo{{Name: name}})
		sinktest.Says(t, err, fmt.Sprintf("%q", name), "rename the stream")
	}
	sinktest.Says(t, sqlite.New("c").Open(t.Context(), nil, []collect.StreamInfo{{Name: "a"}, {Name: "A"}}), "the same table")
	sinktest.Says(t, sqlite.New("").Open(t.Context(), nil, nil), "has no name")
}

// TestTheStoresNamesAreReserved looks at what a store really has.
func TestTheStoresNamesAreReserved(t *testing.T) {
	b := newBench(t)
	names := b.query(t, `SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\'`)
	if !strings.Contains(names, "lanes") {
		t.Fatal(names)
	}
	for name := range strings.SplitSeq(names, "\n") {
		if err := sqlite.New("c").Open(t.Context(), nil, []collect.StreamInfo{{Name: name}}); err == nil {
			t.Errorf("a stream may be named %q, which is the store's", name)
		}
	}
}

func TestTablesOfOthersAreNotTouched(t *testing.T) {
	b := newBench(t)
	if _, err := b.db.ExecContext(t.Context(), `CREATE VIEW talks AS SELECT 1`); err != nil {
		t.Fatal(err)
	}
	write(t, b.Sink, "talks", sinktest.Record("1", `{"secret":"canary"}`))
	err := b.Commit(t.Context())
	sinktest.Says(t, err, "talks", "view", "did not write", "rename")
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("%v has a record's content", err)
	}
	if _, err := b.db.ExecContext(t.Context(), `DROP VIEW talks`); err != nil {
		t.Fatal(err)
	}
	// Another connection of the same store.
	other, lease := sqlite.New("d"), acquire(t, b.Store, "d")
	b.Open(t, streams...)
	b.Put(t, "messages", sinktest.Detail("1", "1", `{"a":1}`))
	if err := other.Open(t.Context(), nil, streams[1:]); err != nil {
		t.Fatal(err)
	}
	write(t, other, "messages", sinktest.Detail("1", "1", `{"a":2}`))
	sinktest.Says(t, sinktest.Commit(t.Context(), b.Store, lease, other, collect.Commit{}), `the connection "c"`, "rename the stream")
	sinktest.Is(t, "messages", b.query(t, `SELECT a FROM messages`), 1)
}

func write(t *testing.T, s *sqlite.Sink, stream string, records ...collect.Record) {
	t.Helper()
	if err := s.Write(t.Context(), stream, records); err != nil {
		t.Fatal(err)
	}
}

func TestATableThatIsGoneIsAnError(t *testing.T) {
	b := newBench(t)
	b.Put(t, "talks", sinktest.Record("1", `{}`))
	if _, err := b.db.ExecContext(t.Context(), `DROP TABLE talks`); err != nil {
		t.Fatal(err)
	}
	write(t, b.Sink, "talks", sinktest.Record("2", `{}`))
	sinktest.Says(t, b.Commit(t.Context()), "talks", "gone", "restore", "--fresh")
}

// TestOwnersMayAddToTheirTables: columns, indexes and views stay.
func TestOwnersMayAddToTheirTables(t *testing.T) {
	b := newBench(t)
	b.Put(t, "talks", sinktest.Record("1", `{"a":1}`))
	for _, q := range []string{`ALTER TABLE talks ADD COLUMN mine TEXT`, `UPDATE talks SET mine = 'x'`, `CREATE INDEX by_a ON talks (a)`,
		`CREATE VIEW v AS SELECT a FROM talks`} {
		if _, err := b.db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	b.Put(t, "talks", sinktest.Record("1", `{"a":2,"Mine":3}`))
	sinktest.Is(t, "talks", b.query(t, `SELECT a, mine, _rest FROM talks`), `2|x|{"Mine":3}`)
}

func TestStartingOver(t *testing.T) {
	b := newBench(t)
	b.Put(t, "talks", sinktest.Record("1", `{"a":1}`))
	b.Put(t, "messages", sinktest.Detail("1", "1", `{"a":1}`))
	at := time.Date(2026, 5, 6, 7, 8, 9, 123, time.UTC)
	for round, fresh := range []time.Time{at, at.Add(time.Microsecond)} {
		if err := b.Sink.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Sink.SetAside([]string{"talks", "messages"}, fresh); err != nil {
			t.Fatal(err)
		}
		if err := b.Store.Forget(t.Context(), b.Lease); err != nil {
			t.Fatal(err)
		}
		if err := b.Sink.Open(t.Context(), nil, streams); err != nil {
			t.Fatal(err)
		}
		if err := b.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The process ends here; the position remembers what is owed.
		b.Sink = sqlite.New("c")
		b.Open(t, streams...)
		b.Put(t, "talks", sinktest.Record(fmt.Sprint(round+2), `{"b":1}`))
		b.Put(t, "talks", sinktest.Record(fmt.Sprint(round+10), `{"b":1}`))
	}
	sinktest.Is(t, "tables", b.query(t, `SELECT name FROM headway_tables ORDER BY 1`),
		"messages_20260506T070809Z_bak\ntalks\ntalks_20260506T070809Z_2_bak\ntalks_20260506T070809Z_bak")
	sinktest.Is(t, "talks", b.query(t, `SELECT _key FROM talks ORDER BY rowid`), "3\n11")
	sinktest.Is(t, "aside", b.query(t, `SELECT _key, a FROM talks_20260506T070809Z_bak`), "1|1")
	sinktest.Is(t, "its columns", b.query(t, `SELECT "column" FROM headway_columns WHERE "table" = 'talks_20260506T070809Z_bak'`), "a")
	// A state that was forgotten without starting over.
	if err := errors.Join(b.Sink.Close(), b.Store.Forget(t.Context(), b.Lease)); err != nil {
		t.Fatal(err)
	}
	b.Open(t, streams...)
	write(t, b.Sink, "talks", sinktest.Record("9", `{}`))
	sinktest.Says(t, b.Commit(t.Context()), "talks", "an earlier state", "--fresh")
}

func TestAStreamThatBecomesDetails(t *testing.T) {
	b := newBench(t)
	b.Put(t, "talks", sinktest.Record("1", `{}`))
	b.Open(t, collect.StreamInfo{Name: "talks", Parent: "x"})
	write(t, b.Sink, "talks", sinktest.Detail("1", "1", `{}`))
	sinktest.Says(t, b.Commit(t.Context()), "talks", "was a list and now holds details", "rename the stream")
}

func TestWhatCannotBeWritten(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		stream string
		record collect.Record
		says   string
	}{
		{"talks", sinktest.Record("", `{}`), "record 2 of 2 has no key"},
		{"talks", sinktest.Record("1", `{`), "not JSON"},
		{"talks", sinktest.Record("1", ``), "not JSON"},
		{"talks", sinktest.Record("1", "\"\xff\""), "not JSON"},
		{"talks", sinktest.Detail("1", "1", `{}`), "has a parent"},
		{"messages", sinktest.Record("1", `{}`), "has no parent"},
		{"x", sinktest.Record("1", `{}`), `stream "x" was not passed`},
	} {
		good := sinktest.Record("good", `{}`)
		if c.stream == "messages" {
			good.Parent = "1"
		}
		sinktest.Says(t, b.Sink.Write(t.Context(), c.stream, []collect.Record{good, c.record}), c.says)
	}
	if b.Sink.Pending() != nil {
		t.Error("a call that failed left records")
	}
}

func TestOrder(t *testing.T) {
	s := sqlite.New("c")
	sinktest.Says(t, s.Write(t.Context(), "talks", nil), "not open")
	_, err := s.Sync(t.Context())
	sinktest.Says(t, err, "not open")
	if s.Pending() != nil || s.Close() != nil {
		t.Error("a closed sink has something pending")
	}
	if err := s.Open(t.Context(), nil, streams); err != nil {
		t.Fatal(err)
	}
	sinktest.Says(t, s.Open(t.Context(), nil, streams), "open already")
	_, err = s.SetAside(nil, time.Now())
	sinktest.Says(t, err, "before Open")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Write(ctx, "talks", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	for _, p := range []string{`{"files":{}}`, `{`, `[]`, `{"sqlite":null}`} {
		sinktest.Says(t, sqlite.New("c").Open(t.Context(), json.RawMessage(p), streams), "nothing was changed", "--fresh")
	}
}

func TestRecordsAreTheCallersAgainAfterWrite(t *testing.T) {
	b := newBench(t)
	data := []byte(`{"a":"x"}`)
	write(t, b.Sink, "talks", collect.Record{Key: "1", Data: data})
	copy(data, `{"a":"y"}`)
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	sinktest.Is(t, "a", b.query(t, `SELECT a FROM talks`), "x")
}

func TestASliceThatIsTooLarge(t *testing.T) {
	b := newBench(t)
	b.Sink.Bound(100)
	write(t, b.Sink, "talks", sinktest.Record("1", `{"a":"`+strings.Repeat("x", 50)+`"}`))
	err := b.Sink.Write(t.Context(), "talks", []collect.Record{sinktest.Record("2", `1`), sinktest.Record("3", `"`+strings.Repeat("canary", 10)+`"`)})
	sinktest.Says(t, err, "talks", "more than 100 bytes", "smaller pages")
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("%v has a record's content", err)
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	sinktest.Is(t, "talks", b.query(t, `SELECT _key FROM talks`), 1)
	write(t, b.Sink, "talks", sinktest.Record("2", `{"a":"`+strings.Repeat("x", 50)+`"}`)) // the commit made room
}

// BenchmarkCommit is one slice of 100 records of 1 KB and 10 fields through a
// commit of the store, durable.
func BenchmarkCommit(b *testing.B) { benchmarkCommit(b, 100) }

// BenchmarkCommitLarge is the same with 1,000 records.
func BenchmarkCommitLarge(b *testing.B) { benchmarkCommit(b, 1000) }

func benchmarkCommit(b *testing.B, size int) {
	f := newBench(b)
	text := strings.Repeat("lorem ipsum ", 67)
	n := 0
	records := make([]collect.Record, size)
	for b.Loop() {
		b.StopTimer()
		for i := range records {
			n++
			records[i] = sinktest.Record(fmt.Sprintf("item-%08d", n), fmt.Sprintf(`{"id":%d,"title":"Item %d","open":true,"score":%d.5,"tags":["a","b"],`+
				`"author":{"id":7,"name":"somebody"},"created":"2026-05-06T07:08:09Z","deleted":null,"n":12,"text":"%s"}`, n, n, n, text))
		}
		b.StartTimer()
		f.Put(b, "talks", records...)
	}
	b.SetBytes(int64(size * len(records[0].Data)))
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
