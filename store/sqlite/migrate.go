package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // for the schema
	"errors"
	"fmt"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/headway-go/headway/internal/sqlitefile"
)

//go:embed schema/1.sql
var schema1 string

//go:embed schema/2.sql
var schema2 string

//go:embed schema/3.sql
var schema3 string

//go:embed schema/4.sql
var schema4 string

//go:embed schema/5.sql
var schema5 string

// migrations[n] takes a store from version n to n+1. Once released, one never
// changes.
var migrations = []string{schema1, schema2, schema3, schema4, schema5}

// identity is what a file says of itself.
type identity struct {
	application int64
	version     int
	tables      int
}

// inspect reads who wrote the file, and refuses one that this binary must not
// touch.
func inspect(ctx context.Context, conn *sql.Conn, path string) (identity, error) {
	var id identity
	// One statement, so that it cannot see half of another process's creation.
	err := conn.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)`).
		Scan(&id.application, &id.version, &id.tables)
	if err != nil {
		return identity{}, explain(path, "open", err)
	}
	switch {
	case id.application == sqlitefile.RecordsID:
		return identity{}, fmt.Errorf("store %s: open: this file holds the records of a sqlite sink, and no state; nothing was changed: "+
			"name the file of the state (--state), or none", path)
	case id.application != sqlitefile.StoreID && (id.application != 0 || id.version != 0 || id.tables != 0):
		return identity{}, fmt.Errorf("store %s: open: this is an SQLite database of another program (application id %d, %d tables); "+
			"nothing was changed: name another file", path, id.application, id.tables)
	case id.version > len(migrations):
		return identity{}, fmt.Errorf("store %s: open: it has version %d and this binary knows version %d; nothing was changed: "+
			"upgrade headway, or name another file", path, id.version, len(migrations))
	}
	return id, nil
}

// prepare makes the file behind conn a store of this version.
func prepare(ctx context.Context, conn *sql.Conn, path string) error {
	// Look before anything is written: another program's file stays as it is.
	if _, err := inspect(ctx, conn, path); err != nil {
		return err
	}
	if err := useLog(ctx, conn); err != nil {
		return explain(path, "open", err)
	}
	return migrate(ctx, conn, path, migrations)
}

// useLog switches to the write-ahead log. SQLite does not wait for others at
// this point, so two processes that create the same store have to try again.
func useLog(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, sqlitefile.BusyTimeout)
	defer cancel()
	for {
		var mode string
		err := conn.QueryRowContext(ctx, "PRAGMA journal_mode = wal").Scan(&mode)
		if err == nil && mode != "wal" {
			return fmt.Errorf("the file system cannot hold a write-ahead log (journal mode %s): put the store on a local disk", mode)
		}
		if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code()&0xff != lib.SQLITE_BUSY {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// migrate applies the steps that the file lacks, all or none.
func migrate(ctx context.Context, conn *sql.Conn, path string, steps []string) (err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return explain(path, "open", err)
	}
	defer func() {
		if err != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		}
	}()
	// Again, now that nobody else can write: another process may have been here.
	found, err := inspect(ctx, conn, path)
	if err != nil {
		return err
	}
	// A write even when nothing is to be done: SQLite opens a file that cannot
	// be written all the same, and the run would fail at its first commit.
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", found.version)); err != nil {
		return explain(path, "open", err)
	}
	for v := found.version; v < len(steps); v++ {
		step := fmt.Sprintf("%s\n;PRAGMA user_version = %d; PRAGMA application_id = %d;", steps[v], v+1, sqlitefile.StoreID)
		if _, err := conn.ExecContext(ctx, step); err != nil {
			return explain(path, fmt.Sprintf("bring from version %d to %d", v, v+1), err)
		}
	}
	_, err = conn.ExecContext(context.WithoutCancel(ctx), "COMMIT")
	return explain(path, "open", err)
}
