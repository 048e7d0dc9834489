package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-go/headway/collect"
)

// A process that is killed while it creates the records' file leaves a transaction that the next
// one has to undo, which it may not if it opens the file only to read.
func TestAdoptTakesAFileWhoseCreationWasCutOff(t *testing.T) {
	dir := t.TempDir()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "live.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	for _, query := range []string{
		`PRAGMA journal_mode = delete`, `CREATE TABLE t (a BLOB)`, `PRAGMA cache_size = 5`, `BEGIN IMMEDIATE`,
		`INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT zeroblob(4000) FROM n`,
	} {
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "data.db")
	for _, suffix := range []string{"", "-journal"} { // as they are on disk now
		data, err := os.ReadFile(filepath.Join(dir, "live.db") + suffix)
		if err != nil || len(data) == 0 {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
		if err := os.WriteFile(path+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, filepath.Join(dir, "state.db"))
	if moved, err := s.Adopt(t.Context(), "c", collect.Location{Kind: "sqlite", Path: path}); moved || err != nil {
		t.Errorf("moved %v, %v", moved, err)
	}
	if _, err := os.Stat(path + "-journal"); !os.IsNotExist(err) {
		t.Errorf("the transaction was not undone: %v", err)
	}
}
