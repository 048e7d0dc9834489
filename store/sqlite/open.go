package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
)

// readers bounds the connections of a read side.
const readers = 4

// Store is a [collect.Store] in one SQLite file. Make one with [Open]. It is
// safe for concurrent use.
type Store struct {
	*Reader
	w     *writer
	known *sql.Stmt // selectKnown
	alive alive
}

// Reader is the read side of a store, a [collect.Reader]. Make one with
// [OpenReader]. It is safe for concurrent use.
type Reader struct {
	path string
	db   *sql.DB
}

var (
	_ collect.Store  = (*Store)(nil)
	_ collect.Reader = (*Reader)(nil)
)

// Open opens the store in the file at path for reading and writing. What does
// not exist yet is created: the folder with mode 0700, the file with 0600. A
// store of an older version is brought up to date.
//
// A file that is damaged, not a Headway store, or written by a newer version
// is an error that says what to do; such a file is left as it is.
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

// OpenReader opens the store in the file at path for reading only; it creates
// nothing. When nothing was ever stored there, the error matches
// [fs.ErrNotExist].
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
	// SQLite makes shared memory beside the file even to read it. Where it cannot,
	// the file is read as one that nobody changes, as it has no log.
	r = &Reader{path: abs, db: openPool(abs, true)}
	if r.check(ctx) != nil {
		_ = r.db.Close()
		return nil, first
	}
	return r, nil
}

// check refuses what this version cannot read.
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

// Close releases the store. Runs under way must have ended.
func (s *Store) Close() error {
	return errors.Join(explain(s.path, "close", s.known.Close()), s.Reader.Close(), s.w.close(), s.alive.close())
}

// Close releases the read side.
func (r *Reader) Close() error {
	if err := r.db.Close(); err != nil {
		return explain(r.path, "close", err)
	}
	return nil
}

// settled reports whether all that was committed is in the file itself: there is
// no log beside it.
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

// openPool opens nothing yet: connections are made as they are needed.
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
