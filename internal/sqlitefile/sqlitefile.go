// Package sqlitefile is what the store and the sqlite sink share about SQLite files:
// how one is created, addressed and written, and what marks it.
package sqlitefile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headway-go/headway/internal/disk"
)

// Application ids say what a file is.
const (
	// StoreID marks a store ("Hdwy"), which may hold records too.
	StoreID = 0x48647779
	// RecordsID marks a file that a sqlite sink has to itself ("HdwR").
	RecordsID = 0x48647752
)

// BusyTimeout bounds the wait for another process's write.
const BusyTimeout = 10 * time.Second

// DSN is the data source name of the file at an absolute path. Mode is ro, rw or
// rwc; pragmas are set on every connection, before those that all files have.
func DSN(path, mode string, pragmas ...string) string {
	p := filepath.ToSlash(path)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // a drive letter
	}
	q := url.Values{"mode": {mode}, "_dqs": {"0"}}
	for _, pragma := range append(pragmas,
		fmt.Sprintf("busy_timeout(%d)", BusyTimeout.Milliseconds()),
		"foreign_keys(1)", "trusted_schema(0)") {
		q.Add("_pragma", pragma)
	}
	return (&url.URL{Scheme: "file", Path: p, RawQuery: q.Encode()}).String()
}

// creating keeps a second open of this process from using a file before the first
// has closed the descriptor that it was created with: closing any descriptor of a
// file drops all locks that the process has on it.
var creating sync.Mutex

// Create makes an empty file, readable by its owner only, and the folders above it,
// with mode 0700. A file that exists is left as it is. The names are durable when it
// returns. SQLite gives the files that it puts beside it the same mode.
func Create(path string) error {
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(path), 0o700); err != nil {
		return err
	}
	creating.Lock()
	defer creating.Unlock()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return errors.Join(f.Close(), disk.OS{}.SyncDir(filepath.Dir(path)))
}

// Conn is one connection, with a database handle of its own that Close closes too.
type Conn struct {
	*sql.Conn
	db *sql.DB
}

// Open opens a connection to the file at an absolute path; see [DSN]. The caller imports the
// driver.
func Open(ctx context.Context, path, mode string, pragmas ...string) (*Conn, error) {
	db, err := sql.Open("sqlite", DSN(path, mode, pragmas...))
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Conn{conn, db}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return errors.Join(c.Conn.Close(), c.db.Close()) }

// Querier is a database, one connection of it, or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Each runs a query and calls f with each row, until f returns an error.
func Each(ctx context.Context, q Querier, f func(*sql.Rows) error, query string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// List gives what scan reads of each row of a query.
func List[T any](ctx context.Context, q Querier, scan func(*sql.Rows) (T, error), query string, args ...any) (list []T, err error) {
	err = Each(ctx, q, func(rows *sql.Rows) error {
		v, err := scan(rows)
		list = append(list, v)
		return err
	}, query, args...)
	return list, err
}

// Column scans rows of one column, for [List].
func Column[T any](rows *sql.Rows) (v T, err error) {
	err = rows.Scan(&v)
	return v, err
}

// Write runs f in a transaction of conn, which is committed when f returns nil and
// rolled back otherwise. Once f has returned, the context no longer ends it.
func Write(ctx context.Context, conn *sql.Conn, f func() error) error {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := f()
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		_, _ = conn.ExecContext(ctx, "ROLLBACK")
	}
	return err
}
