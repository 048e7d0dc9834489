package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/internal/pgsql"
)

// session is a connection to the server that a transaction uses.
type session struct {
	*sql.Conn
	ctx context.Context // of the transaction
	pg  *pgx.Conn
}

// The kinds of transaction.
const (
	readWrite = "begin isolation level read committed read write"
	// A reader sees one snapshot.
	readOnly = "begin isolation level repeatable read read only"
)

// acquire takes a session from the pool.
func (r *Reader) acquire(ctx context.Context) (*session, error) {
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{Conn: conn}
	if err := conn.Raw(func(driver any) error {
		s.pg = driver.(*stdlib.Conn).Conn()
		return nil
	}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

// release returns the session to the pool, or closes it if it may still be in a
// transaction.
func (s *session) release() {
	if s.pg.PgConn().TxStatus() != 'I' {
		_ = s.pg.Close(context.Background()) // the pool discards closed sessions
	}
	_ = s.Close()
}

// read runs f on one snapshot, and again if the server was away. F must reset its results
// first.
func (r *Reader) read(ctx context.Context, what string, f func(*session) error) error {
	return explain(r.name, what, r.retry(ctx, func() (bool, error) {
		return true, r.transact(ctx, ctx, readOnly, f)
	}))
}

// value returns the result of f on one snapshot. F is called again if the server was away.
func value[T any](ctx context.Context, r *Reader, what string, f func(*session) (T, error)) (v T, err error) {
	err = r.read(ctx, what, func(t *session) error {
		v, err = f(t)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return v, nil
}

// write runs f in one transaction, and commits it if f returns nil. Ctx bounds the wait for
// a session and for a server that is away. A transaction that has begun runs to its end,
// within its statement timeouts.
func (s *Store) write(ctx context.Context, what string, f func(*tx) error) error {
	return explain(s.name, what, s.retry(ctx, func() (safe bool, err error) {
		var xid string
		token := rand.Int64()
		// Otherwise a canceled caller would not know whether the commit succeeded.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*maxWait)
		defer cancel()
		committing := false
		err = s.transact(ctx, whole, readWrite, func(c *session) error {
			t := &tx{session: c}
			fault.Point(fault.StoreBegun)
			if err := f(t); err != nil {
				return err
			}
			t.Queue(`INSERT INTO headway_writes (token) VALUES ($1)`, token)
			t.batch.Queue(`SELECT pg_current_xact_id()::text`).QueryRow(func(row pgx.Row) error { return row.Scan(&xid) })
			if err := t.flush(); err != nil {
				return err
			}
			fault.Point(fault.StoreCommitting)
			committing = true
			return nil
		})
		if err == nil {
			fault.Point(fault.StoreCommitted)
			return true, nil
		}
		if !committing || !pgsql.Lost(err) {
			return true, err
		}
		committed, unknown := s.became(ctx, xid, token)
		switch {
		case unknown != nil:
			return false, fmt.Errorf("the connection broke while the server confirmed the commit, and it cannot be asked "+
				"whether the change is there, whole or not at all: run again, which begins with what there is: %w", errors.Join(err, unknown))
		case committed:
			return true, nil
		}
		return true, err
	}))
}

// became asks the server for the outcome of a transaction.
func (r *Reader) became(ctx context.Context, xid string, token int64) (committed bool, err error) {
	const pending = "in progress"
	status := sql.NullString{String: pending, Valid: true}
	// A canceled caller needs the outcome too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.wait)
	defer cancel()
	for wait := time.Millisecond; status.String == pending; wait = min(2*wait, time.Second) {
		if err := r.retry(ctx, func() (bool, error) {
			return true, r.transact(ctx, ctx, readOnly, func(c *session) error {
				return c.pg.QueryRow(ctx, `SELECT pg_xact_status($1::xid8)`, xid).Scan(&status)
			})
		}); err != nil {
			if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "22023" {
				break // in the future: the server forgot it in a crash
			}
			return false, err
		}
		if status.String != pending {
			break
		}
		// The server has not yet noticed that the connection is lost.
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(wait):
		}
	}
	// After a crash another transaction may have got the same number. Only the mark
	// proves that this one was committed.
	err = r.retry(ctx, func() (bool, error) {
		return true, r.transact(ctx, ctx, readOnly, func(c *session) error {
			return c.pg.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM headway_writes WHERE token = $1)`, token).Scan(&committed)
		})
	})
	return committed, err
}

// once runs f in one transaction. It does not wait for a server that is away.
func (r *Reader) once(ctx context.Context, what, begin string, f func(*session) error) error {
	return explain(r.name, what, r.transact(ctx, ctx, begin, f))
}

// transact runs f in one transaction. Wait bounds the wait for a session, ctx the rest.
func (r *Reader) transact(wait, ctx context.Context, begin string, f func(*session) error) error {
	if err := wait.Err(); err != nil {
		return err
	}
	s, err := r.acquire(wait)
	if err != nil {
		return err
	}
	defer s.release()
	s.ctx = ctx
	if _, err := s.pg.Exec(ctx, begin); err != nil {
		return err
	}
	if err := f(s); err != nil {
		_, _ = s.pg.Exec(ctx, "rollback")
		return err
	}
	tag, err := s.pg.Exec(ctx, "commit")
	if err == nil && tag.String() != "COMMIT" {
		err = errors.New("the server rolled the transaction back") // f has ignored an error
	}
	return err
}

// retry repeats try while the server is away, for r.wait at most. Try reports whether it
// may be repeated.
func (r *Reader) retry(ctx context.Context, try func() (safe bool, err error)) error {
	var until time.Time
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		safe, err := try()
		if err == nil || !safe || !pgsql.Lost(err) && !pgsql.Contended(err) || ctx.Err() != nil {
			return err
		}
		if until.IsZero() {
			until = time.Now().Add(r.wait)
		}
		if time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

// Row reads the one row of a query into dest; the error matches sql.ErrNoRows when there
// is none.
func (s *session) Row(query string, args []any, dest ...any) error {
	return s.pg.QueryRow(s.ctx, query, stored(args)...).Scan(scanned(dest)...)
}

// Each scans each row of a query into dest and calls f.
func (s *session) Each(dest []any, f func() error, query string, args ...any) error {
	rows, err := s.pg.Query(s.ctx, query, stored(args)...)
	if err == nil {
		_, err = pgx.ForEachRow(rows, scanned(dest), f)
	}
	return err
}

// tx is a write transaction. See [sqlstore.Tx].
type tx struct {
	*session
	batch pgx.Batch
}

// Queue queues a statement whose result is not needed. Queued statements share a round trip.
func (t *tx) Queue(query string, args ...any) { t.batch.Queue(query, stored(args)...) }

// flush runs the queued statements.
func (t *tx) flush() error {
	if t.batch.Len() == 0 {
		return nil
	}
	err := t.pg.SendBatch(t.ctx, &t.batch).Close()
	t.batch = pgx.Batch{}
	return err
}

// Exec runs a statement and returns the number of rows that it changed.
func (t *tx) Exec(query string, args ...any) (int64, error) {
	if err := t.flush(); err != nil {
		return 0, err
	}
	tag, err := t.pg.Exec(t.ctx, query, stored(args)...)
	return tag.RowsAffected(), err
}

// Row is as of a session, after the queued statements.
func (t *tx) Row(query string, args []any, dest ...any) error {
	if err := t.flush(); err != nil {
		return err
	}
	return t.session.Row(query, args, dest...)
}

// Each is as of a session, after the queued statements.
func (t *tx) Each(dest []any, f func() error, query string, args ...any) error {
	if err := t.flush(); err != nil {
		return err
	}
	return t.session.Each(dest, f, query, args...)
}

// stored converts arguments to what the database holds.
func stored(args []any) []any {
	list := slices.Clone(args)
	for i, a := range list {
		switch a := a.(type) {
		case string:
			list[i] = verbatim(a)
		case time.Time:
			list[i] = moment(a)
		}
	}
	return list
}

// scanned converts destinations to such that scan what the database holds.
func scanned(dest []any) []any {
	list := slices.Clone(dest)
	for i, d := range list {
		switch d := d.(type) {
		case *string:
			list[i] = (*verbatim)(d)
		case *time.Time:
			list[i] = (*moment)(d)
		}
	}
	return list
}

// explain wraps an error with what failed, the database and advice. Errors about held or
// lost leases are returned unchanged, since they are not faults of the database.
func explain(name, what string, err error) error {
	if err == nil {
		return nil
	}
	if _, held := errors.AsType[*collect.HeldError](err); held || errors.Is(err, collect.ErrLeaseLost) {
		return err
	}
	if advice := pgsql.Advise(err); advice != "" {
		return fmt.Errorf("store %s: %s: %s: %w", name, what, advice, err)
	}
	return fmt.Errorf("store %s: %s: %w", name, what, err)
}

// verbatim is text that is stored byte for byte, see [pgsql.Escape].
type verbatim string

// Value returns the escaped text.
func (v verbatim) Value() (driver.Value, error) { return pgsql.Escape(string(v)), nil }

// Scan reads a text that Value has escaped. NULL becomes "".
func (v *verbatim) Scan(from any) error {
	switch from := from.(type) {
	case nil:
		*v = ""
	case string:
		*v = verbatim(pgsql.Unescape(from))
	case []byte:
		*v = verbatim(pgsql.Unescape(string(from)))
	default:
		return fmt.Errorf("%T is not a text", from)
	}
	return nil
}

// escaped escapes the texts of an array.
func escaped(texts []string) []string {
	list := make([]string, len(texts))
	for i, s := range texts {
		list[i] = pgsql.Escape(s)
	}
	return list
}

// moment is an instant, in microseconds as PostgreSQL stores it. The zero time is NULL.
type moment time.Time

// latest is the latest instant that can be stored. Later ones become it.
var latest = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)

// Value returns the instant, or NULL.
func (m moment) Value() (driver.Value, error) {
	t := time.Time(m).UTC()
	switch {
	case t.IsZero() || t.Year() < 0:
		return nil, nil
	case t.After(latest):
		return latest, nil
	}
	return t, nil
}

// Scan reads an instant. NULL becomes the zero time.
func (m *moment) Scan(from any) error {
	switch from := from.(type) {
	case nil:
		*m = moment{}
	case time.Time:
		*m = moment(from.UTC())
	default:
		return fmt.Errorf("%T is not an instant", from)
	}
	return nil
}
