package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/internal/sqlitefile"
)

// writer is the only connection that writes. Writes use it one after another.
type writer struct {
	path string
	// turn holds one token. Unlike with a mutex, a waiting caller can be canceled.
	turn chan struct{}
	conn *sqlitefile.Conn
	// statements holds prepared statements by their text.
	statements map[string]*sql.Stmt
}

var errClosed = errors.New("it is closed")

func openWriter(ctx context.Context, path string) (*writer, error) {
	// journal_size_limit shrinks a write-ahead log that has grown.
	conn, err := sqlitefile.Open(ctx, path, "rw", "synchronous(full)", "journal_size_limit(67108864)")
	if err != nil {
		return nil, explain(path, "open", err)
	}
	if err := prepare(ctx, conn.Conn, path); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	w := &writer{path: path, turn: make(chan struct{}, 1), conn: conn, statements: map[string]*sql.Stmt{}}
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
	errs = append(errs, w.conn.Close())
	w.conn = nil
	return explain(w.path, "close", errors.Join(errs...))
}

// write runs f in a transaction and commits it if f returns nil. ctx limits the wait for
// other writes of this process and of others. After that the transaction is not canceled:
// it is short, and a canceled commit might have taken effect.
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
		// An interrupted BEGIN may have taken effect.
		w.rollback()
		return explain(w.path, what, err)
	}
	fault.Point(fault.StoreBegun)
	t := &tx{ctx: context.WithoutCancel(ctx), w: w}
	if err := t.run(f); err != nil {
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

// rollback rolls the transaction back, if an error has not ended it already.
func (w *writer) rollback() {
	_, _ = w.conn.ExecContext(context.Background(), "ROLLBACK")
}

// tx is the current write transaction.
type tx struct {
	ctx    context.Context
	w      *writer
	failed error // of a queued statement
}

// run calls f and returns its error, or that of a statement that it queued.
func (t *tx) run(f func(*tx) error) error {
	if err := f(t); err != nil {
		return err
	}
	return t.failed
}

func (t *tx) statement(query string) (*sql.Stmt, error) {
	if s, ok := t.w.statements[query]; ok {
		return s, nil
	}
	s, err := t.w.conn.PrepareContext(t.ctx, dialect.Replace(query))
	if err != nil {
		return nil, err
	}
	t.w.statements[query] = s
	return s, nil
}

// Queue runs a statement at once. See [sqlstore.Tx].
func (t *tx) Queue(query string, args ...any) { _, t.failed = t.Exec(query, args...) }

// Exec runs a statement and returns the number of changed rows.
func (t *tx) Exec(query string, args ...any) (int64, error) {
	if t.failed != nil {
		return 0, t.failed
	}
	s, err := t.statement(query) //nolint:sqlclosecheck // kept for the next time; close ends it
	if err != nil {
		return 0, err
	}
	res, err := s.ExecContext(t.ctx, stored(args)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Row scans the first row of a query into dest. It returns sql.ErrNoRows if there is none.
func (t *tx) Row(query string, args []any, dest ...any) error {
	if t.failed != nil {
		return t.failed
	}
	s, err := t.statement(query) //nolint:sqlclosecheck // kept for the next time; close ends it
	if err != nil {
		return err
	}
	return s.QueryRowContext(t.ctx, stored(args)...).Scan(scanned(dest)...)
}

// Each scans each row of a query into dest and calls f.
func (t *tx) Each(dest []any, f func() error, query string, args ...any) error {
	if t.failed != nil {
		return t.failed
	}
	return each(t.ctx, t.w.conn, dest, f, query, args)
}

// snapshot is a transaction that reads. See [sqlstore.Snapshot].
type snapshot struct {
	ctx context.Context
	*sql.Tx
}

// Row scans the first row of a query into dest. It returns sql.ErrNoRows if there is none.
func (s *snapshot) Row(query string, args []any, dest ...any) error {
	return s.QueryRowContext(s.ctx, dialect.Replace(query), stored(args)...).Scan(scanned(dest)...)
}

// Each scans each row of a query into dest and calls f.
func (s *snapshot) Each(dest []any, f func() error, query string, args ...any) error {
	return each(s.ctx, s.Tx, dest, f, query, args)
}

func each(ctx context.Context, q sqlitefile.Querier, dest []any, f func() error, query string, args []any) error {
	dest = scanned(dest)
	return sqlitefile.Each(ctx, q, func(rows *sql.Rows) error {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		return f()
	}, dialect.Replace(query), stored(args)...)
}

// dialect converts the statements of package sqlstore: names, parameters, casts, and what
// stands for "never".
var dialect = strings.NewReplacer(
	"headway_connections", "connections", "headway_runs", "runs", "headway_events", "events", "headway_lanes", "lanes",
	"headway_streams", "streams", "headway_items ", "items ", "headway_gaps", "gaps",
	"$", "?", "::bigint", "", "::boolean", "", "::timestamptz", "", "greatest(", "max(", " FOR UPDATE OF c", "",
	"owed = true", "owed = 1", // as in the condition of the index
	"lock = NULL, booted = NULL, ", "", "'-infinity'", "''",
	"retry_at = NULL", "retry_at = ''", "tried = NULL", "tried = ''", "since = NULL", "since = ''", "expires = NULL", "expires = ''",
)

// stored converts arguments to what the file holds. It changes args.
func stored(args []any) []any {
	for i, a := range args {
		if t, ok := a.(time.Time); ok {
			args[i] = instant(t)
		}
	}
	return args
}

// scanned converts destinations to such that scan what the file holds.
func scanned(dest []any) []any {
	list := slices.Clone(dest)
	for i, d := range list {
		if t, ok := d.(*time.Time); ok {
			list[i] = (*moment)(t)
		}
	}
	return list
}

// moment scans an instant; NULL is the zero time.
type moment time.Time

// Scan reads a stored time.
func (m *moment) Scan(from any) error {
	text, _ := from.(string)
	*m = moment(parseInstant(text))
	return nil
}

// instantLayout has a fixed width, so that stored times sort as text.
const instantLayout = "2006-01-02T15:04:05.000000000Z"

// latest is the latest time that the layout can represent.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)

// instant formats a time for the store; the zero time is "".
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

// parseInstant parses a stored time. An invalid one becomes zero, so that it does not block
// a run.
func parseInstant(s string) time.Time {
	t, err := time.Parse(instantLayout, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
