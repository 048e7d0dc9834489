package sqlite_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/powercut"
	"github.com/headway-go/headway/sink/internal/sinktest"
	"github.com/headway-go/headway/sink/sqlite"
	store "github.com/headway-go/headway/store/sqlite"
)

// streams are those of most tests: a list and its details.
var streams = []collect.StreamInfo{{Name: "talks"}, {Name: "messages", Parent: "talks"}}

// bench has the store's file and another connection to it.
type bench struct {
	sinktest.Bench[*sqlite.Sink]

	path string
	db   *sql.DB
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{path: filepath.Join(powercut.Scratch(t), "state.db")}
	s, err := store.Open(t.Context(), b.path)
	if err != nil {
		t.Fatal(err)
	}
	b.Store = s
	b.Lease = acquire(t, s, "c")
	b.Sink = sqlite.New("c")
	b.Open(t, streams...)
	if b.db, err = sql.Open("sqlite", "file:"+b.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.db.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func acquire(t testing.TB, s collect.Store, connection string) collect.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), collect.LeaseRequest{
		Connection: connection, Run: "run of " + connection, Holder: "host", Now: time.Now(), TTL: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// query is the rows of a query, a line each.
func (b *bench) query(t testing.TB, query string, args ...any) string {
	t.Helper()
	rows, err := b.db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		values, dest := scanner(len(names))
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		var line []string
		for _, v := range values {
			line = append(line, fmt.Sprint(v))
		}
		lines = append(lines, strings.Join(line, "|"))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func scanner(n int) (values, dest []any) {
	values, dest = make([]any, n), make([]any, n)
	for i := range values {
		dest[i] = &values[i]
	}
	return values, dest
}

// records reads a table back as the package comment says, by parent and key.
func (b *bench) records(t sinktest.TB, stream string) map[[2]string]any {
	t.Helper()
	kinds := map[string]string{}
	rows, err := b.db.QueryContext(t.Context(), `SELECT "column", kind FROM headway_columns WHERE "table" = ?`, stream)
	if err != nil {
		if strings.Contains(err.Error(), "no such table") {
			return map[[2]string]any{}
		}
		t.Fatal(err)
	}
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			t.Fatal(err)
		}
		kinds[name] = kind
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	all := map[[2]string]any{}
	if rows, err = b.db.QueryContext(t.Context(), `SELECT * FROM "`+stream+`"`); err != nil {
		if strings.Contains(err.Error(), "no such table") {
			return all
		}
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values, dest := scanner(len(names))
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		key, v := restored(t, names, values, kinds)
		all[key] = v
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func restored(t sinktest.TB, names []string, values []any, kinds map[string]string) (key [2]string, v any) {
	t.Helper()
	record, rest := map[string]any{}, map[string]any{}
	var whole []any // at most one
	for i, name := range names {
		if values[i] == nil {
			continue
		}
		switch kind, ours := kinds[name]; {
		case name == "_key":
			key[1] = values[i].(string)
		case name == "_parent":
			key[0] = values[i].(string)
		case name == "_value":
			whole = append(whole, sinktest.Parsed(t, values[i].(string)))
		case name == "_rest":
			rest = sinktest.Parsed(t, values[i].(string)).(map[string]any)
		case !ours:
			t.Fatalf("an unknown column: %q", name)
		case kind == "boolean":
			record[name] = values[i] == int64(1)
		case kind == "json":
			if text, ok := values[i].(string); ok && json.Valid([]byte(text)) {
				record[name] = sinktest.Parsed(t, text)
			}
		default:
			switch v := values[i].(type) {
			case int64:
				record[name] = json.Number(fmt.Sprint(v))
			case float64:
				b, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				record[name] = json.Number(b)
			default:
				record[name] = v
			}
		}
	}
	if len(whole) > 0 {
		return key, whole[0]
	}
	maps.Copy(record, rest)
	return key, record
}

func TestMain(m *testing.M) {
	child()
	leaktest.Main(m)
}

func openRaw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
