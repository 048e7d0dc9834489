package postgres

import (
	"context"
	"database/sql"
	_ "embed" // for the schema
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/pgsql"
)

// maxSessions bounds the sessions of a store unless its URL says otherwise.
const maxSessions = 8

// maxWait bounds each statement, and the wait for a server that is away.
const maxWait = pgsql.MaxWait

// Store is a [collect.Store] in a PostgreSQL database. Make one with [Open]. It is
// safe for concurrent use.
type Store struct {
	*Reader
	alive alive
}

// Reader is the read side of a store, a [collect.Reader]. Make one with
// [OpenReader]. It is safe for concurrent use.
type Reader struct {
	db *sql.DB
	// name is the database for display, without user and password.
	name   string
	schema string
	clock  clock
	// wait bounds the wait for a server that is away.
	wait time.Duration
}

var (
	_ collect.Store  = (*Store)(nil)
	_ collect.Reader = (*Reader)(nil)
)

// Names reports whether a text begins with a scheme of this package: postgres:// or
// postgresql://.
func Names(text string) bool {
	return pgsql.Names(text)
}

// Place returns the database of a URL for display, without user, password and settings.
// For an invalid URL it returns "PostgreSQL".
func Place(at string) string {
	config, err := pgx.ParseConfig(at)
	if err != nil {
		return "PostgreSQL"
	}
	return pgsql.Place(config)
}

// Open opens the store at a URL for reading and writing. It creates the schema and the
// tables if they do not exist, and migrates a store of an older version. The database
// itself must exist.
//
// It is an error if the server cannot be reached or is older than 15, or if a newer
// version has written the store. Errors say what to do and never contain the password.
func Open(ctx context.Context, at string) (*Store, error) {
	r, err := open(at)
	if err != nil {
		return nil, err
	}
	s := &Store{Reader: r, alive: alive{held: map[int64]hold{}}}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.db.Close())
	}
	return s, nil
}

// OpenReader opens the store at a URL for reading only. It creates nothing. If nothing
// was ever stored there, the error matches [fs.ErrNotExist].
func OpenReader(ctx context.Context, at string) (*Reader, error) {
	r, err := open(at)
	if err != nil {
		return nil, err
	}
	if err := r.check(ctx); err != nil {
		return nil, errors.Join(err, r.db.Close())
	}
	return r, nil
}

// open makes the pool. It does not connect yet.
func open(at string) (*Reader, error) {
	config, sessions, err := pgsql.Parse(at, maxSessions)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	r := &Reader{db: stdlib.OpenDB(*config), schema: pgsql.Schema(config.RuntimeParams["search_path"]), wait: maxWait}
	r.name = pgsql.Place(config)
	r.db.SetMaxOpenConns(sessions)
	r.db.SetMaxIdleConns(sessions)
	r.db.SetConnMaxIdleTime(5 * time.Minute)
	return r, nil
}

// String returns the database, without user and password.
func (r *Reader) String() string { return r.name }

// Close closes the sessions. Runs must have ended.
func (s *Store) Close() error {
	return errors.Join(explain(s.name, "close", s.alive.close()), s.Reader.Close())
}

// Close closes the sessions.
func (r *Reader) Close() error { return explain(r.name, "close", r.db.Close()) }

//go:embed schema/1.sql
var schema1 string

// schema2 lets each renewal of a lease find the marks that it removes.
const schema2 = `CREATE INDEX headway_writes_by_instant ON headway_writes (at)`

// migrations[n] migrates a store from version n to n+1. A released migration never
// changes.
var migrations = []string{schema1, schema2}

// oldest is the oldest supported server version.
const oldest = 150000

// versions checks the server's version and returns the store's, 0 if there is no store.
func (r *Reader) versions(ctx context.Context, t *session) (stored int, err error) {
	var server int
	var there bool
	err = t.pg.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, to_regclass('headway_schema') IS NOT NULL`).Scan(&server, &there)
	if err != nil {
		return 0, err
	}
	if server < oldest {
		return 0, fmt.Errorf("the server is PostgreSQL %d: Headway needs 15 or newer", server/10000)
	}
	if there {
		err = t.pg.QueryRow(ctx, `SELECT version FROM headway_schema`).Scan(&stored)
	}
	if stored > len(migrations) {
		err = fmt.Errorf("it has version %d and this binary knows version %d; nothing was changed: "+
			"upgrade headway, or name another schema (search_path)", stored, len(migrations))
	}
	return stored, err
}

// check returns an error for a store that this version cannot read.
func (r *Reader) check(ctx context.Context) error {
	return r.once(ctx, "open", readOnly, func(t *session) error {
		stored, err := r.versions(ctx, t)
		switch {
		case err != nil:
			return err
		case stored == 0:
			return fmt.Errorf("nothing was collected into this schema yet: %w", fs.ErrNotExist)
		case stored < len(migrations):
			return fmt.Errorf("it has version %d and this binary reads version %d: "+
				"the next `headway collect` brings it up to date", stored, len(migrations))
		}
		return nil
	})
}

// prepare creates or migrates the store to this version, in one transaction.
func (s *Store) prepare(ctx context.Context) error {
	return s.once(ctx, "open", readWrite, func(t *session) error {
		// One process at a time.
		if _, err := t.pg.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('headway store', 0))`); err != nil {
			return err
		}
		stored, err := s.versions(ctx, t)
		if err != nil || stored == len(migrations) {
			return err
		}
		if s.schema != "" {
			// Checked first: CREATE needs a right even if the schema exists.
			var there bool
			err := t.pg.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)`, s.schema).Scan(&there)
			if err == nil && !there {
				_, err = t.pg.Exec(ctx, `CREATE SCHEMA `+pgx.Identifier{s.schema}.Sanitize())
			}
			if err != nil {
				return err
			}
		}
		steps := []string{}
		if stored == 0 {
			steps = append(steps, `CREATE TABLE headway_schema (version int NOT NULL)`, `INSERT INTO headway_schema VALUES (0)`)
		}
		steps = append(steps, migrations[stored:]...)
		steps = append(steps, fmt.Sprintf(`UPDATE headway_schema SET version = %d`, len(migrations)))
		for _, step := range steps {
			if _, err := t.pg.Exec(ctx, step); err != nil {
				return fmt.Errorf("migrate from version %d to %d: %w", stored, len(migrations), err)
			}
		}
		return nil
	})
}
