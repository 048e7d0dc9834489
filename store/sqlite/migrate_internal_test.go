package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/store/internal/sqlstore"
)

func connect(t *testing.T, path string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlite", sqlitefile.DSN(path, "rwc"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func version(t *testing.T, conn *sql.Conn) (v int) {
	t.Helper()
	if err := conn.QueryRowContext(t.Context(), "PRAGMA user_version").Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// future adds a step to the migrations for one test.
func future(t *testing.T, step string) {
	t.Helper()
	old := migrations
	migrations = append(slices.Clone(old), step)
	t.Cleanup(func() { migrations = old })
}

func TestMigrationKeepsWhatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), collect.LeaseRequest{Connection: "c", Run: "r", Now: time.Now(), TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	future(t, "ALTER TABLE runs ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'")
	// A reader changes nothing, so it cannot bring the store up to date.
	if _, err := OpenReader(t.Context(), path); err == nil || !strings.Contains(err.Error(),
		fmt.Sprintf("version %d and this binary reads version %d", len(migrations)-1, len(migrations))) {
		t.Errorf("a reader of an older store got %v", err)
	}
	for range 2 { // the second time there is nothing to do
		s, err = Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := s.Runs(t.Context(), "c", 0)
		if err != nil || len(runs) != 1 {
			t.Errorf("runs %+v, %v; want the 1 there was", runs, err)
		}
		if v := version(t, s.w.conn.Conn); v != len(migrations) {
			t.Errorf("version %d, want %d", v, len(migrations))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMigrationThatFailsChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	func() {
		old := migrations
		defer func() { migrations = old }()
		migrations = append(slices.Clone(old), "CREATE TABLE half (x); CREATE TABLE runs (x)")
		if _, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("from version %d to %d", len(old), len(migrations))) {
			t.Errorf("got %v, want an error that names the step", err)
		}
	}()
	conn := connect(t, path)
	if v := version(t, conn); v != len(migrations) {
		t.Errorf("version %d, want %d", v, len(migrations))
	}
	var n int
	if err := conn.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema WHERE name = 'half'").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tables of the step are left, %v", n, err)
	}
}

func TestWriterIsDurableAndStrict(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "10000", "application_id": fmt.Sprint(sqlitefile.StoreID),
	} {
		var got string
		if err := s.w.conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", pragma, got, err, want)
		}
	}
	if _, err := s.db.ExecContext(t.Context(), "DELETE FROM runs"); err == nil {
		t.Error("the read side can write")
	}
}

// TestPagesOfGapsAreNotScanned asks SQLite how it finds a page: by an index
// that is in order of id, without sorting all gaps for each page.
func TestPagesOfGapsAreNotScanned(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, f := range []collect.GapFilter{
		{}, {Connection: "c"}, {Connection: "c", Status: collect.GapPending}, {Connection: "c", Stream: "d"},
		{Connection: "c", Stream: "d", Status: collect.GapPending}, {Status: collect.GapTerminal},
	} {
		query, args := sqlstore.GapQuery(sqlstore.GapColumns, f, hint)
		plan := explainPlan(t.Context(), t, s.db, dialect.Replace(query), args)
		if strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%+v is sorted:\n%s", f, plan)
		}
		if f.Connection != "" && f.Status != "" && !strings.Contains(plan, "gaps_by_status") {
			t.Errorf("%+v does not use the index:\n%s", f, plan)
		}
	}
}

func explainPlan(ctx context.Context, t *testing.T, db *sql.DB, query string, args []any) string {
	t.Helper()
	rows, err := db.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(detail + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

// TestTheKindOfAnOldPositionIsFound: stores from before kinds were kept.
func TestTheKindOfAnOldPositionIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	all := migrations
	migrations = all[:3]
	t.Cleanup(func() { migrations = all })
	conn := connect(t, path)
	if err := prepare(t.Context(), conn, path); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, c := range [][2]string{
		{`{"files":{"x.jsonl":{"length":1}}}`, "jsonl"}, {`{"sqlite":{}}`, "state"}, {`{"streams":{}}`, ""}, {`{`, ""},
	} {
		want[c[0]] = c[1]
		if _, err := conn.ExecContext(t.Context(), `INSERT INTO connections (name, token, holder, since, expires, sink)
			VALUES (?1, 0, '', '', '', CAST(?1 AS BLOB))`, c[0]); err != nil {
			t.Fatal(err)
		}
	}
	migrations = all
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for position, kind := range want {
		if state, err := s.Load(t.Context(), position); err != nil || state.SinkAt.Kind != kind || string(state.Sink) != position {
			t.Errorf("%s is of kind %q, %v; want %q", position, state.SinkAt.Kind, err, kind)
		}
	}
	// From then on it is what a run says.
	l, err := s.Acquire(t.Context(), collect.LeaseRequest{Connection: `{`, Run: "r", Now: time.Now(), TTL: time.Minute})
	if err == nil {
		err = s.Commit(t.Context(), l, collect.Commit{SinkAt: collect.Location{Kind: "parquet", Path: "p"}})
	}
	if err != nil {
		t.Error(err)
	}
}
