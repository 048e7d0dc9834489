// Package sqlite is the default [collect.Store]: it keeps the state of connections in one
// SQLite file and needs no server.
//
// Use it for one machine. Several processes may open the same file at once,
// but the file must be on a local disk: SQLite's write-ahead log does not work
// over network file systems. It is state, not a destination for records.
//
// # Durability
//
// The store uses a write-ahead log with synchronous=FULL. When a method returns nil, its
// change survives SIGKILL and power loss. When it returns an error it has changed nothing,
// with one exception that no store can avoid: if the disk fails while it confirms a
// commit, the change is there in full or not at all, and [Store.Load] shows which.
//
// # Leases
//
// A connection's lease is a row with a token. [Store.Acquire] increments the token in the
// transaction that takes the connection, and each write checks in its own transaction that
// its token is the current one:
//
//	stateDiagram-v2
//	    [*] --> free
//	    free --> held: Acquire (token + 1)
//	    held --> held: Renew, Commit, Forget
//	    held --> expired: time passes
//	    expired --> held: Renew, late
//	    expired --> held: Acquire by another (token + 1, the old run is abandoned)
//	    held --> free: Finish
//	    expired --> free: Finish, late
//
// An expired lease is not lost by itself: a holder whose renewal was late, for example
// since the machine was suspended, may continue if no other holder has taken the
// connection. The token decides, not the clock, so two holders can never both commit.
//
// The lease of a process that died on this machine is taken over at once: each lease has
// a lock file beside the store, and the system releases its lock with the process. On a
// file system without such locks, the next holder waits until the lease expires.
//
// # Concurrency and time
//
// All methods are safe for concurrent use, also by several processes. The writes of one
// [Store] run one after another. Reads have their own connections and do not wait. A write
// waits up to 10 s for another process's write, or until its context ends. Once its
// transaction has begun, a write is not canceled.
//
// Times come from the caller, except that the read side uses the clock to find out whether
// a lease has expired.
//
// Stability: settling.
package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // for the schema
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
)

// readers is the maximum number of connections of a read side.
const readers = 4

// Store is a [collect.Store] in one SQLite file. Create one with [Open]. It is
// safe for concurrent use.
type Store struct {
	*Reader
	w     *writer
	known *sql.Stmt // selectKnown
	alive alive
}

// Reader is the read side of a store, a [collect.Reader]. Create one with
// [OpenReader]. It is safe for concurrent use.
type Reader struct {
	path string
	db   *sql.DB
}

var (
	_ collect.Store  = (*Store)(nil)
	_ collect.Reader = (*Reader)(nil)
)

// Open opens the store in the file at path for reading and writing. If needed it creates
// the folder with mode 0700 and the file with mode 0600. It migrates a store of an older
// version.
//
// If the file is damaged, is not a Headway store, or was written by a newer version, Open
// returns an error and leaves the file unchanged.
func Open(ctx context.Context, path string) (*Store, error) {
	abs, err := locate(path)
	if err != nil {
		return nil, err
	}
	if err := sqlitefile.Create(abs); err != nil {
		return nil, explain(abs, "create", err)
	}
	w, err := openWriter(ctx, abs)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: abs, db: openPool(abs, false)}
	if err := r.db.PingContext(ctx); err != nil {
		return nil, errors.Join(explain(abs, "open", err), r.db.Close(), w.close())
	}
	known, err := r.db.PrepareContext(ctx, selectKnown)
	if err != nil {
		return nil, errors.Join(explain(abs, "open", err), r.db.Close(), w.close())
	}
	return &Store{Reader: r, w: w, known: known, alive: alive{path: abs, held: map[string]*os.File{}}}, nil
}

// OpenReader opens the store in the file at path for reading. It creates nothing. If there
// is no store, the error matches [fs.ErrNotExist].
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	abs, err := locate(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil:
		return nil, explain(abs, "open", err)
	case info.Size() == 0:
		return nil, fmt.Errorf("store %s: open: the file is empty, nothing was collected yet: %w", abs, fs.ErrNotExist)
	}
	r := &Reader{path: abs, db: openPool(abs, false)}
	first := r.check(ctx)
	if first == nil {
		return r, nil
	}
	_ = r.db.Close() // nothing was read
	if e, ok := errors.AsType[*driver.Error](first); !ok || !slices.Contains([]int{lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN}, e.Code()&0xff) || !settled(abs) {
		return nil, first
	}
	// SQLite creates a shared-memory file even to read. If it cannot, the database is
	// opened as immutable, which is safe since it has no log.
	r = &Reader{path: abs, db: openPool(abs, true)}
	if r.check(ctx) != nil {
		_ = r.db.Close()
		return nil, first
	}
	return r, nil
}

// check returns an error if this version cannot read the store.
func (r *Reader) check(ctx context.Context) error {
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return explain(r.path, "open", err)
	}
	defer func() { _ = conn.Close() }()
	found, err := inspect(ctx, conn, r.path)
	switch {
	case err != nil:
		return err
	case found.version == 0:
		return fmt.Errorf("store %s: open: the file is empty, nothing was collected yet: %w", r.path, fs.ErrNotExist)
	case found.version < len(migrations):
		return fmt.Errorf("store %s: open: it has version %d and this binary reads version %d: "+
			"the next `headway collect` brings it up to date", r.path, found.version, len(migrations))
	}
	return nil
}

// Close closes the store. All runs must have ended.
func (s *Store) Close() error {
	return errors.Join(explain(s.path, "close", s.known.Close()), s.Reader.Close(), s.w.close(), s.alive.close())
}

// Close closes the reader.
func (r *Reader) Close() error {
	if err := r.db.Close(); err != nil {
		return explain(r.path, "close", err)
	}
	return nil
}

// settled reports whether all commits are in the file itself, that is, there is no
// write-ahead log.
func settled(path string) bool {
	info, err := os.Stat(path + "-wal")
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
}

// locate makes the path absolute, so that a change of the working directory
// does not change the store.
func locate(path string) (string, error) {
	if path == "" {
		return "", errors.New("store: the path is empty: name a file")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("store %s: %w", path, err)
	}
	if info, err := os.Stat(abs); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("store %s: this is not a file (%s): name a file", abs, info.Mode().Type())
	}
	return abs, nil
}

// openPool returns a pool of read-only connections, which are opened when needed.
func openPool(path string, immutable bool) *sql.DB {
	name := sqlitefile.DSN(path, "ro", "query_only(1)")
	if immutable {
		name += "&immutable=1"
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		panic("store: the sqlite driver is not registered") // the import registers it
	}
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	return db
}

//go:embed schema.sql
var schema string

// migrations[n] migrates a store from version n to n+1. A released migration never
// changes.
var migrations = strings.Split(schema, "\n-- Next version.\n\n")

// identity is what a file's header says about its origin.
type identity struct {
	application int64
	version     int
	tables      int
}

// inspect reads a file's identity. It returns an error if this binary must not change the
// file.
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
			"name the state file with --state, or leave --state out", path)
	case id.application != sqlitefile.StoreID && (id.application != 0 || id.version != 0 || id.tables != 0):
		return identity{}, fmt.Errorf("store %s: open: this is an SQLite database of another program (application id %d, %d tables); "+
			"nothing was changed: name another file", path, id.application, id.tables)
	case id.version > len(migrations):
		return identity{}, fmt.Errorf("store %s: open: it has version %d and this binary knows version %d; nothing was changed: "+
			"upgrade headway, or name another file", path, id.version, len(migrations))
	}
	return id, nil
}

// prepare creates or migrates the store in the file of conn.
func prepare(ctx context.Context, conn *sql.Conn, path string) error {
	// Inspect before any write: a file of another program stays unchanged.
	if _, err := inspect(ctx, conn, path); err != nil {
		return err
	}
	if err := useLog(ctx, conn); err != nil {
		return explain(path, "open", err)
	}
	return migrate(ctx, conn, path, migrations)
}

// useLog switches to the write-ahead log. SQLite does not wait for locks here, so useLog
// retries while another process creates the same store.
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

// migrate applies the missing migrations in one transaction.
func migrate(ctx context.Context, conn *sql.Conn, path string, steps []string) (err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return explain(path, "open", err)
	}
	defer func() {
		if err != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		}
	}()
	// Inspect again under the write lock: another process may have migrated it.
	found, err := inspect(ctx, conn, path)
	if err != nil {
		return err
	}
	// Write even if there is nothing to migrate: SQLite also opens a file that it may not
	// write, and the run would fail only at its first commit.
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
