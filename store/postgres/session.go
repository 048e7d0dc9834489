package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/internal/pgsql"
)

// session is a connection to the server while a transaction has it.
type session struct {
	*sql.Conn
	pg *pgx.Conn
}

// The kinds of transaction.
const (
	readWrite = "begin isolation level read committed read write"
	// A reader sees one snapshot.
	readOnly = "begin isolation level repeatable read read only"
)

// acquire takes a session of the pool.
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

// release gives the session back, or away when it may be in a transaction still.
func (s *session) release() {
	if s.pg.PgConn().TxStatus() != 'I' {
		_ = s.pg.Close(context.Background()) // the pool does not keep what is closed
	}
	_ = s.Close()
}

// read runs f on one snapshot, again when the server went away meanwhile: f must begin
// by forgetting what it had.
func (r *Reader) read(ctx context.Context, what string, f func(*session) error) error {
	return explain(r.name, what, r.retry(ctx, func() (bool, error) {
		return true, r.transact(ctx, ctx, readOnly, f)
	}))
}

// write runs f in one transaction, which is committed when f returns nil. Ctx bounds the
// wait for a session and for a server that went away. A transaction that has begun runs
// to its end, within the bounds of its statements.
func (s *Store) write(ctx context.Context, what string, f func(*tx) error) error {
	return explain(s.name, what, s.retry(ctx, func() (safe bool, err error) {
		var xid string
		token := rand.Int64()
		// A canceled caller would not know what became of a commit.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*maxWait)
		defer cancel()
		committing := false
		err = s.transact(ctx, whole, readWrite, func(c *session) error {
			t := &tx{ctx: whole, session: c}
			fault.Point(fault.StoreBegun)
			if err := f(t); err != nil {
				return err
			}
			t.queue(`INSERT INTO headway_writes (token) VALUES ($1)`, token)
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

// became asks what became of a transaction.
func (r *Reader) became(ctx context.Context, xid string, token int64) (committed bool, err error) {
	const pending = "in progress"
	status := sql.NullString{String: pending, Valid: true}
	// A caller that gave up waiting wants to know it all the same.
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
		// The server has not noticed yet that nobody is there.
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(wait):
		}
	}
	// That it ended may be said of another transaction that got its number after a
	// crash: only its mark says that it was committed.
	err = r.retry(ctx, func() (bool, error) {
		return true, r.transact(ctx, ctx, readOnly, func(c *session) error {
			return c.pg.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM headway_writes WHERE token = $1)`, token).Scan(&committed)
		})
	})
	return committed, err
}

// once runs f in one transaction, and waits for no server that is away.
func (r *Reader) once(ctx context.Context, what, begin string, f func(*session) error) error {
	return explain(r.name, what, r.transact(ctx, ctx, begin, f))
}

// transact runs f in one transaction: with wait it waits for a session, with ctx it
// does the rest.
func (r *Reader) transact(wait, ctx context.Context, begin string, f func(*session) error) error {
	if err := wait.Err(); err != nil {
		return err
	}
	s, err := r.acquire(wait)
	if err != nil {
		return err
	}
	defer s.release()
	if _, err := s.pg.Exec(ctx, begin); err != nil {
		return err
	}
	if err := f(s); err != nil {
		_, _ = s.pg.Exec(ctx, "rollback")
		return err
	}
	tag, err := s.pg.Exec(ctx, "commit")
	if err == nil && tag.String() != "COMMIT" {
		err = errors.New("the server rolled the transaction back") // an error in it was overlooked
	}
	return err
}

// retry tries again while the server is away, for as long as r.wait; try says whether
// it may be repeated.
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

// tx is the write transaction under way.
type tx struct {
	ctx context.Context
	*session
	batch pgx.Batch
}

// queue has a statement run in its turn; what nobody waits for goes together.
func (t *tx) queue(query string, args ...any) { t.batch.Queue(query, args...) }

// flush runs what was queued.
func (t *tx) flush() error {
	if t.batch.Len() == 0 {
		return nil
	}
	err := t.pg.SendBatch(t.ctx, &t.batch).Close()
	t.batch = pgx.Batch{}
	return err
}

// exec runs a statement and counts the rows that it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	if err := t.flush(); err != nil {
		return 0, err
	}
	tag, err := t.pg.Exec(t.ctx, query, args...)
	return tag.RowsAffected(), err
}

// row reads the one row of a query into dest; pgx.ErrNoRows when there is none.
func (t *tx) row(query string, args []any, dest ...any) error {
	if err := t.flush(); err != nil {
		return err
	}
	return t.pg.QueryRow(t.ctx, query, args...).Scan(dest...)
}

// explain says what failed, in which database, and what to do about it. The cause
// stays matchable. A lease that is held or lost is no fault of the database, and
// passes as it is.
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
