//go:build linux

package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/longtest"
	"github.com/headway-go/headway/internal/pgserver"
	"github.com/headway-go/headway/sink/internal/sinktest"
	"github.com/headway-go/headway/sink/postgres"
)

// values are edge cases, drawn beside random values.
var values = []string{
	`null`, `true`, `false`, `0`, `-0`, `-0.0`, `1`, `1.0`, `1e2`, `1.50`, `9223372036854775807`, `9223372036854775808`,
	`-9223372036854775808`, `123456789012345678901234567890`, `0.1`, `0.30000000000000004`, `0.12345678901234567890`,
	`1e308`, `1e309`, `-1e-320`, `1e-350`, `1E+2`, `1e1001`, `1e-99999`, `""`, `"x"`, `"1"`, `"true"`, `"null"`, `"[1]"`, `"{}"`, `"a\u0000b"`, `"\ud800"`,
	`"\ufffd"`, `"\\ufffd\ud800"`, `"\\\\N"`, `"\t\r\n\\."`, `"😀\n\"\\\u2028"`, `"\ud83d\ude00"`, `[]`, `{}`, `[1,"a",null,{"b":[true]}]`, `{"a":{"b":1.0}}`,
	`["\u0000"]`, `{"\ud800":1}`, `[-0]`, `[1e9999]`, `"` + strings.Repeat("long ", 1000) + `"`,
}

var names = []string{"a", "b", "A", "é", "_key", "_rest", "_value", "", "x y", `q"'`, "ctid", "z\u0001", `back\slash`, strings.Repeat("n", 64)}

// aRecord draws a record with few names and many kinds of values.
func aRecord(rt *rapid.T) string {
	value := rapid.OneOf(rapid.SampledFrom(values), rapid.SampledFrom(values), rapid.Map(rapid.Float64(), func(f float64) string {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}), rapid.Map(rapid.Int64(), func(n int64) string { return strconv.FormatInt(n, 10) }))
	if rapid.IntRange(0, 9).Draw(rt, "scalar") == 0 {
		return value.Draw(rt, "record")
	}
	var fields []string
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 6, rapid.ID).Draw(rt, "names") {
		quoted, err := json.Marshal(name)
		if err != nil {
			rt.Fatal(err)
		}
		fields = append(fields, fmt.Sprintf("%s : %s", quoted, value.Draw(rt, "value")))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// Random records are committed, some commits fail, and the tables return what was committed.
func TestAnySequenceReadsBack(t *testing.T) {
	for name, together := range ways {
		t.Run(name, func(t *testing.T) {
			longtest.Draws(t, 6, 50) // each makes tables
			b := newBench(t, pgserver.Shared(t), together)
			round := 0
			rapid.Check(t, func(rt *rapid.T) {
				round++
				list := collect.StreamInfo{Name: fmt.Sprintf("list%d", round)}
				parts := collect.StreamInfo{Name: fmt.Sprintf("parts%d", round), Parent: list.Name}
				b.Open(rt, list, parts)
				committed := map[collect.StreamInfo]map[[2]string]any{list: {}, parts: {}}
				for range rapid.IntRange(1, 6).Draw(rt, "slices") {
					next := map[collect.StreamInfo]map[[2]string]any{list: maps.Clone(committed[list]), parts: maps.Clone(committed[parts])}
					for range rapid.IntRange(1, 6).Draw(rt, "records") {
						r := sinktest.Record(rapid.SampledFrom([]string{"1", "2", "\x00", "é", "\t\\N\n"}).Draw(rt, "key"), aRecord(rt))
						stream := list
						if rapid.Bool().Draw(rt, "detail") {
							stream, r.Parent = parts, rapid.SampledFrom([]string{"p", "\xff"}).Draw(rt, "parent")
						}
						b.write(rt, stream.Name, r)
						next[stream][[2]string{r.Parent, r.Key}] = sinktest.Parsed(rt, string(r.Data))
					}
					switch rapid.IntRange(0, 5).Draw(rt, "end") {
					case 0: // the commit never happened
						if err := sinktest.Commit(rt.Context(), &sinktest.Dying{Store: b.Store, Nth: 1}, b.Lease, b.Sink, collect.Commit{}); !errors.Is(err, sinktest.ErrDied) {
							rt.Fatal(err)
						}
						b.Open(rt, list, parts)
					case 1: // the commit happened, and its answer was lost
						if err := sinktest.Commit(rt.Context(), &sinktest.Dying{Store: b.Store, Nth: 1, Unheard: true}, b.Lease, b.Sink, collect.Commit{}); !errors.Is(err, sinktest.ErrDied) {
							rt.Fatal(err)
						}
						b.Open(rt, list, parts)
						committed = next
					default:
						if err := b.Commit(rt.Context()); err != nil {
							rt.Fatal(err)
						}
						committed = next
					}
					for stream, want := range committed {
						if got := b.records(rt, stream); !maps.EqualFunc(got, want, sinktest.Same) {
							rt.Fatalf("%s reads back as\n%v, want\n%v", stream.Name, got, want)
						}
					}
				}
			})
		})
	}
}

// A column is added with its first value and widens for other kinds, without loss of its
// values.
func TestColumnsGrowAndWiden(t *testing.T) {
	b := newBench(t, pgserver.Shared(t), true)
	shape := func() string {
		return b.query(t, `SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position)
			FROM information_schema.columns WHERE table_name = 'talks' AND column_name NOT LIKE '\_%'`)
	}
	b.Put(t, "talks", sinktest.Record("1", `{"n":1,"m":2,"flag":true,"s":"x","o":{"a":[1]},"none":null}`))
	sinktest.Is(t, "the first shape", shape(), "n bigint, m bigint, flag boolean, s text, o jsonb")
	b.exec(t, `CREATE VIEW seen AS SELECT m FROM talks`)
	b.Put(t, "talks", sinktest.Record("2", `{"n":2.5,"m":"held","flag":"no","s":7,"o":"text","none":1}`), sinktest.Record("3", `{"n":3,"m":4}`))
	sinktest.Is(t, "the second shape", shape(), "n numeric, m bigint, flag text, s text, o jsonb, none bigint")
	b.Put(t, "talks", sinktest.Record("4", `{"n":{"x":1},"s":[1]}`))
	sinktest.Is(t, "the third shape", shape(), "n jsonb, m bigint, flag text, s text, o jsonb, none bigint")
	sinktest.Is(t, "what people see", b.query(t, `SELECT _key, n, m, flag, s, o, _rest FROM talks ORDER BY 1`), strings.Join([]string{
		`1|1|2|true|x|map[a:[1]]|{"flag":true,"none":null}`,
		`2|2.5|<nil>|no|7|text|{"m":"held","s":7}`,
		`3|3|4|<nil>|<nil>|<nil>|<nil>`,
		`4|map[x:1]|<nil>|<nil>|[1]|<nil>|{"s":[1]}`,
	}, "\n"))
	want := map[[2]string]any{}
	for key, data := range map[string]string{
		"1": `{"n":1,"m":2,"flag":true,"s":"x","o":{"a":[1]},"none":null}`, "2": `{"n":2.5,"m":"held","flag":"no","s":7,"o":"text","none":1}`,
		"3": `{"n":3,"m":4}`, "4": `{"n":{"x":1},"s":[1]}`,
	} {
		want[[2]string{"", key}] = sinktest.Parsed(t, data)
	}
	if got := b.records(t, streams[0]); !maps.EqualFunc(got, want, sinktest.Same) {
		t.Errorf("the records read back as\n%v, want\n%v", got, want)
	}
	var wide strings.Builder
	for i := range 300 {
		fmt.Fprintf(&wide, `,"w%d":"%s"`, i, strings.Repeat("w", 23))
	}
	b.Put(t, "talks", sinktest.Record("5", "{"+wide.String()[1:]+"}"))
	if got := b.records(t, streams[0])[[2]string{"", "5"}].(map[string]any); len(got) != 300 {
		t.Errorf("a wide record has %d fields of 300", len(got))
	}
}

// Details that a parent no longer has are marked, and a record that comes back is not. Older
// records do not replace rows.
func TestRecordsThatAreGone(t *testing.T) {
	for name, together := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pgserver.Shared(t), together)
			at := time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC)
			marker := b.Sink.(collect.Marker)
			if err := marker.Remain(t.Context(), "messages", "p", []string{"1"}, at); err != nil {
				t.Fatal(err)
			}
			b.Put(t, "messages", sinktest.Detail("p", "1", `{"a":1}`), sinktest.Detail("p", "2", `{"a":2}`), sinktest.Detail("q", "3", `{"a":3}`))
			if err := marker.Remain(t.Context(), "messages", "p", []string{"1"}, at); err != nil {
				t.Fatal(err)
			}
			b.Put(t, "messages", sinktest.Detail("p", "4", `{"a":4}`))
			gone := `SELECT string_agg(_key, ' ' ORDER BY _key) FROM messages WHERE _headway_deleted_at = '2026-11-23T01:02:03Z'`
			sinktest.Is(t, "what is gone", b.query(t, gone), "2")
			restorer := b.Sink.(collect.Restorer)
			if err := restorer.Restore(t.Context(), "messages", []collect.KeptRecord{
				{Record: sinktest.Detail("p", "1", `{"a":"old"}`)}, {Record: sinktest.Detail("p", "5", `{"a":5}`), Deleted: at}, {Record: sinktest.Detail("p", "6", `{"a":6}`)},
			}); err != nil {
				t.Fatal(err)
			}
			b.Put(t, "messages", sinktest.Detail("p", "2", `{"a":22}`))
			sinktest.Is(t, "what is gone then", b.query(t, gone), "5")
			sinktest.Is(t, "the rows", b.query(t, `SELECT _key, a FROM messages ORDER BY _parent, _key`), "1|1\n2|22\n4|4\n5|5\n6|6\n3|3")
			for _, err := range []error{
				marker.Remain(t.Context(), "talks", "p", nil, at),
				b.Sink.Write(t.Context(), "talks", []collect.Record{sinktest.Detail("p", "1", `{}`)}),
				b.Sink.Write(t.Context(), "messages", []collect.Record{sinktest.Record("1", `{}`)}),
				b.Sink.Write(t.Context(), "talks", []collect.Record{sinktest.Record("", `{}`)}),
				b.Sink.Write(t.Context(), "talks", []collect.Record{sinktest.Record("1", `{`)}),
				b.Sink.Write(t.Context(), "other", nil),
			} {
				if err == nil {
					t.Error("what cannot be written was taken")
				}
			}
		})
	}
}

// Tables are set aside with the first commit that has records after SetAside, and never
// otherwise.
func TestStartingOver(t *testing.T) {
	for name, together := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pgserver.Shared(t), together)
			b.Put(t, "talks", sinktest.Record("1", `{"a":1}`))
			b.Put(t, "messages", sinktest.Detail("1", "1", `{"a":1}`))
			if err := b.Sink.Close(); err != nil {
				t.Fatal(err)
			}
			forget := func() {
				if err := b.Store.Forget(t.Context(), b.Lease); err != nil {
					t.Fatal(err)
				}
			}
			forget()
			err := b.Reopen(t, streams...)
			if err == nil {
				b.write(t, "talks", sinktest.Record("2", `{"a":2}`))
				err = b.Commit(t.Context())
			}
			sinktest.Says(t, err, "were collected with another state; nothing was changed", "--fresh")
			if err := b.Sink.Close(); err != nil {
				t.Fatal(err)
			}
			forget()
			if _, err := b.Sink.(collect.Asider).SetAside([]string{"talks"}, time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC)); err != nil {
				t.Fatal(err)
			}
			b.Open(t, streams...)
			sinktest.Is(t, "the table before the first records", b.query(t, `SELECT _key FROM talks`), "1")
			b.Put(t, "talks", sinktest.Record("2", `{"a":"two"}`))
			sinktest.Is(t, "the table", b.query(t, `SELECT _key, a FROM talks`), "2|two")
			sinktest.Is(t, "the former ones", b.query(t, `SELECT t._key, m._key FROM "talks_20261123T010203Z_bak" t, "messages_20261123T010203Z_bak" m`), "1|1")
			b.Put(t, "messages", sinktest.Detail("2", "2", `{"a":2}`))
			b.Open(t, streams...)
			b.Put(t, "talks", sinktest.Record("3", `{"a":"three"}`))
			sinktest.Is(t, "the records", len(b.records(t, streams[0])), 2)
		})
	}
}

// Tables of other owners, and databases that lack committed slices, are refused.
func TestWhatIsRefused(t *testing.T) {
	b := newBench(t, pgserver.Shared(t), false)
	b.exec(t, `CREATE TABLE talks (secret text)`)
	b.write(t, "talks", sinktest.Record("1", `{"a":1}`))
	sinktest.Says(t, b.Commit(t.Context()), `stream "talks"`, "there is a table of that name in the schema public that this sink did not write")
	b.exec(t, `DROP TABLE talks`)
	b.Open(t, streams...)
	b.Put(t, "talks", sinktest.Record("2", `{"a":1}`))
	sinktest.Is(t, "the slice whose commit was not heard, and the next", b.query(t, `SELECT _key FROM talks ORDER BY 1`), "1\n2")

	// A value that a constraint refuses is not in the error.
	b.exec(t, `ALTER TABLE talks ADD CHECK (a < 100)`)
	b.write(t, "talks", sinktest.Record("canary", `{"a":4711}`))
	err := b.Commit(t.Context())
	sinktest.Says(t, err, "the server refuses a value (SQLSTATE 23514)")
	if strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "4711") {
		t.Errorf("%v has a record's content", err)
	}
	b.exec(t, `ALTER TABLE talks DROP CONSTRAINT talks_a_check`)
	b.Open(t, streams...)
	sinktest.Is(t, "the rows then", b.query(t, `SELECT _key FROM talks ORDER BY 1`), "1\n2\ncanary")

	err = postgres.NewDatabase(b.at, "", "another").Open(t.Context(), nil, streams)
	if err != nil {
		t.Error(err)
	}
	sinktest.Says(t, postgres.NewDatabase(b.at, "", "c2").Open(t.Context(), []byte(`{"files":{}}`), streams), "is the connection's sink still the same?")
	b.exec(t, `TRUNCATE headway_slices`)
	sinktest.Says(t, b.Reopen(t, streams...), "has none of the 3 slices that were committed", "--fresh")

	for name, want := range map[string]string{
		"talks": "", "pg_talks": "reserved", "headway_x": "reserved", "x_bak": "set aside", "": "empty", strings.Repeat("x", 64): "64 bytes", "a\n": "control",
	} {
		if got := postgres.New("c", "", "").CheckName(name); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// A schema is created, and sinks of one connection in two schemas are independent.
func TestASchemaOfItsOwn(t *testing.T) {
	for name, together := range ways {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, pgserver.Shared(t), together)
			b.Put(t, "talks", sinktest.Record("1", `{"a":1}`))
			was := b.Sink
			b.Sink = postgres.For("c", b.at, "My Records", b.state)
			if err := b.Sink.Open(t.Context(), nil, streams); err != nil {
				t.Fatal(err)
			}
			if b.Sink.Recognizes(t.Context(), []byte(`{"postgres":{"id":"x","slice":1}}`)) {
				t.Error("an empty schema is recognized")
			}
			b.Put(t, "talks", sinktest.Record("2", `{"a":2}`))
			sinktest.Is(t, "the rows", b.query(t, `SELECT _key FROM talks UNION ALL SELECT _key FROM "My Records".talks`), "1\n2")
			state, err := b.Store.Load(t.Context(), "c")
			if err != nil {
				t.Fatal(err)
			}
			if !b.Sink.Recognizes(t.Context(), state.Sink) || was.Recognizes(t.Context(), state.Sink) {
				t.Error("a sink is not recognized by its position")
			}
			if err := was.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A second sink of the connection waits for the session of the first. If the first was cut
// off, it cannot write any more.
func TestOnlyOneProcessWrites(t *testing.T) {
	b := newBench(t, pgserver.Shared(t), false)
	b.Put(t, "talks", sinktest.Record("1", `{"a":1}`))
	state, err := b.Store.Load(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	second := postgres.NewDatabase(b.at, "", "c")
	opened := make(chan error, 1)
	go func() { opened <- second.Open(t.Context(), state.Sink, streams) }()
	waiting := `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	for b.query(t, waiting) != "1" {
		select {
		case err := <-opened:
			t.Fatalf("the second was opened beside the first: %v", err)
		case <-t.Context().Done():
			t.Fatal("it does not wait")
		default:
		}
	}
	b.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	if err := second.Write(t.Context(), "talks", []collect.Record{sinktest.Record("2", `{"a":2}`)}); err != nil {
		t.Fatal(err)
	}
	position, err := second.Sync(t.Context())
	if err == nil {
		err = second.Committed(t.Context(), position)
	}
	if err = errors.Join(err, second.Close()); err != nil {
		t.Fatal(err)
	}
	b.write(t, "talks", sinktest.Record("3", `{"a":3}`))
	_, err = b.Sink.Sync(t.Context())
	sinktest.Says(t, err, "another process has written into the sink of this connection")
	sinktest.Is(t, "the rows", b.query(t, `SELECT _key FROM talks ORDER BY 1`), "1\n2")
}

// Example shows where the records of a connection go.
func ExampleFor() {
	const state = "postgres://headway@db.example:5432/headway"
	for _, at := range []string{"", "postgres://headway@db.example:5432/headway", "postgres://crm@warehouse.example/crm"} {
		sink := postgres.For("chat", at, "chat", state)
		fmt.Printf("%T %s\n", sink, sink.Location())
	}
	fmt.Println(postgres.New("chat", state, "").CheckName("pg_talks"))
	// Output:
	// *postgres.Sink postgres in postgres://db.example:5432/headway?search_path=chat
	// *postgres.Sink postgres in postgres://db.example:5432/headway?search_path=chat
	// *postgres.Database postgres in postgres://warehouse.example:5432/crm?search_path=chat
	// names that begin with pg_ or headway_ are reserved
}

// BenchmarkSink writes slices of 1,000 records into the sink and, for comparison, copies the
// same values into a table with the same columns by COPY alone. The server syncs its disk as
// by default.
func BenchmarkSink(b *testing.B) {
	server := pgserver.New(b, "fsync=on", "full_page_writes=on")
	const page = 1000
	var n atomic.Int64
	one := func() collect.Record {
		i := n.Add(1)
		return sinktest.Record(fmt.Sprintf("item-%08d", i), fmt.Sprintf(`{"id":"item-%08d","updated_at":"2026-11-23T06:00:00Z","title":"A title of usual length, number %d","count":%d,"ratio":%d.25,"open":true,"tags":["a","b"],"owner":{"id":%d,"name":"somebody"}}`, i, i, i, i%100, i%1000))
	}
	for name, together := range ways {
		b.Run(name, func(b *testing.B) {
			s := newBench(b, server, together)
			s.Put(b, "talks", one())
			total := 0
			for b.Loop() {
				records := make([]collect.Record, page)
				for i := range records {
					records[i] = one()
				}
				s.Put(b, "talks", records...)
				total += page
			}
			b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "records/s")
		})
	}
	b.Run("COPY alone", func(b *testing.B) {
		conn, err := pgx.Connect(b.Context(), server.Database(b))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
		if _, err := conn.Exec(b.Context(), `CREATE TABLE talks (key text COLLATE "C" PRIMARY KEY, id text, updated_at text, title text, count bigint, ratio double precision, open boolean, tags jsonb, owner jsonb)`); err != nil {
			b.Fatal(err)
		}
		total := 0
		for b.Loop() {
			rows := make([][]any, page)
			for i := range rows {
				k := n.Add(1)
				id := fmt.Sprintf("item-%08d", k)
				rows[i] = []any{id, id, "2026-11-23T06:00:00Z", fmt.Sprintf("A title of usual length, number %d", k), k, float64(k%100) + .25, true, `["a","b"]`, fmt.Sprintf(`{"id":%d,"name":"somebody"}`, k%1000)}
			}
			if _, err := conn.CopyFrom(b.Context(), pgx.Identifier{"talks"}, []string{"key", "id", "updated_at", "title", "count", "ratio", "open", "tags", "owner"}, pgx.CopyFromRows(rows)); err != nil {
				b.Fatal(err)
			}
			total += page
		}
		b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "records/s")
	})
}
