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

// maxWait bounds each statement, and how long a server that went away is waited for.
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
	// name is the database for people: no user, no password.
	name   string
	schema string
	clock  clock
	// wait is how long a server that went away is waited for.
	wait time.Duration
}

var (
	_ collect.Store  = (*Store)(nil)
	_ collect.Reader = (*Reader)(nil)
)

// Names reports whether a text names a database of this package by its scheme:
// postgres:// or postgresql://.
func Names(text string) bool {
	return pgsql.Names(text)
}

// Place is the database that a URL names, for people: without user, password and
// settings. What cannot be read is "PostgreSQL".
func Place(at string) string {
	config, err := pgx.ParseConfig(at)
	if err != nil {
		return "PostgreSQL"
	}
	return pgsql.Place(config)
}

// Open opens the store at a URL for reading and writing. A schema or a table that does
// not exist yet is created, and a store of an older version is brought up to date;
// the database itself must exist.
//
// A server that cannot be reached, a server older than 15, and a store written by a
// newer version are errors that say what to do. None of them has the password.
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

// OpenReader opens the store at a URL for reading only; it creates nothing. When
// nothing was ever stored there, the error matches [fs.ErrNotExist].
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

// open connects to nothing yet.
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

// String is the database, without user and password.
func (r *Reader) String() string { return r.name }

// Close releases the store. Runs under way must have ended.
func (s *Store) Close() error {
	return errors.Join(explain(s.name, "close", s.alive.close()), s.Reader.Close())
}

// Close releases the read side.
func (r *Reader) Close() error { return explain(r.name, "close", r.db.Close()) }

//go:embed schema/1.sql
var schema1 string

// schema2 lets each renewal of a lease find the marks that it removes.
const schema2 = `CREATE INDEX headway_writes_by_instant ON headway_writes (at)`

// migrations[n] takes a store from version n to n+1. Once released, one never
// changes.
var migrations = []string{schema1, schema2}

// oldest is the first server whose behaviour is tested.
const oldest = 150000

// versions reads what the server and the store in it are; a store that is not there has
// version 0.
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

// check refuses what this version cannot read.
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

// prepare makes the schema a store of this version, whole or not at all.
func (s *Store) prepare(ctx context.Context) error {
	return s.once(ctx, "open", readWrite, func(t *session) error {
		// One at a time: another process may open a store in this database now.
		if _, err := t.pg.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('headway store', 0))`); err != nil {
			return err
		}
		stored, err := s.versions(ctx, t)
		if err != nil || stored == len(migrations) {
			return err
		}
		if s.schema != "" {
			// Asked for first: to create needs a right even where nothing is to be done.
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
				return fmt.Errorf("bring from version %d to %d: %w", stored, len(migrations), err)
			}
		}
		return nil
	})
}
