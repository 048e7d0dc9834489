package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/internal/sqlitefile"
)

// writer is the one connection that writes, and whose turn it is.
type writer struct {
	path string
	// turn holds one token. A mutex would not let a waiting caller give up.
	turn chan struct{}
	db   *sql.DB
	conn *sql.Conn
	// statements are prepared once each, by their text.
	statements map[string]*sql.Stmt
}

var errClosed = errors.New("it is closed")

func openWriter(ctx context.Context, path string) (*writer, error) {
	// journal_size_limit gives the space of a log that grew once back.
	db, err := sql.Open("sqlite", sqlitefile.DSN(path, "rw", "synchronous(full)", "journal_size_limit(67108864)"))
	if err != nil {
		return nil, explain(path, "open", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(explain(path, "open", err), db.Close())
	}
	if err := prepare(ctx, conn, path); err != nil {
		return nil, errors.Join(err, conn.Close(), db.Close())
	}
	w := &writer{path: path, turn: make(chan struct{}, 1), db: db, conn: conn, statements: map[string]*sql.Stmt{}}
	w.turn <- struct{}{}
	return w, nil
}

func (w *writer) close() error {
	<-w.turn
	defer func() { w.turn <- struct{}{} }()
	if w.conn == nil {
		return nil
	}
	var errs []error
	for _, s := range w.statements {
		errs = append(errs, s.Close())
	}
	errs = append(errs, w.conn.Close(), w.db.Close())
	w.conn = nil
	return explain(w.path, "close", errors.Join(errs...))
}

// write runs f in one transaction, which is committed when f returns nil. ctx
// bounds the wait for the turn and for other processes. After that the
// transaction runs to its end: it is short, and a half-canceled commit would
// leave the caller not knowing whether it happened.
func (w *writer) write(ctx context.Context, what string, f func(*tx) error) error {
	select {
	case <-ctx.Done():
		return explain(w.path, what, ctx.Err())
	case <-w.turn:
	}
	defer func() { w.turn <- struct{}{} }()
	if w.conn == nil {
		return explain(w.path, what, errClosed)
	}
	if err := ctx.Err(); err != nil {
		return explain(w.path, what, err)
	}
	if _, err := w.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		// An interrupted BEGIN may have begun all the same.
		w.rollback()
		return explain(w.path, what, err)
	}
	fault.Point(fault.StoreBegun)
	t := &tx{ctx: context.WithoutCancel(ctx), w: w}
	if err := f(t); err != nil {
		w.rollback()
		return explain(w.path, what, err)
	}
	fault.Point(fault.StoreCommitting)
	if _, err := w.conn.ExecContext(t.ctx, "COMMIT"); err != nil {
		w.rollback()
		return explain(w.path, what, err)
	}
	fault.Point(fault.StoreCommitted)
	return nil
}

// rollback ends a transaction, if there is one: some errors end it by themselves.
func (w *writer) rollback() {
	_, _ = w.conn.ExecContext(context.Background(), "ROLLBACK")
}

// tx is the write transaction under way.
type tx struct {
	ctx context.Context
	w   *writer
}

func (t *tx) statement(query string) (*sql.Stmt, error) {
	if s, ok := t.w.statements[query]; ok {
		return s, nil
	}
	s, err := t.w.conn.PrepareContext(t.ctx, query)
	if err != nil {
		return nil, err
	}
	t.w.statements[query] = s
	return s, nil
}

// exec runs a statement and counts the rows that it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	s, err := t.statement(query) //nolint:sqlclosecheck // kept for the next time; close ends it
	if err != nil {
		return 0, err
	}
	res, err := s.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// row reads the one row of a query into dest; sql.ErrNoRows when there is none.
func (t *tx) row(query string, args []any, dest ...any) error {
	s, err := t.statement(query) //nolint:sqlclosecheck // kept for the next time; close ends it
	if err != nil {
		return err
	}
	return s.QueryRowContext(t.ctx, args...).Scan(dest...)
}

// instantLayout has a fixed width, so that texts sort like the instants.
const instantLayout = "2006-01-02T15:04:05.000000000Z"

// latest is the greatest instant that the layout can hold.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)

// instant is t as stored; zero is the empty text.
func instant(t time.Time) string {
	t = t.UTC()
	switch {
	case t.IsZero() || t.Year() < 0:
		return ""
	case t.After(latest):
		t = latest
	}
	return t.Format(instantLayout)
}

// parseInstant reads a stored instant. Text that cannot be read is zero: a
// spoiled instant must not block a run.
func parseInstant(s string) time.Time {
	t, err := time.Parse(instantLayout, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
