package postgres

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/internal/sqlstore"
)

// clock estimates how far the server's clock is ahead of this machine's.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

// adjust returns the new estimate of how far the server is ahead, from the old one and
// the server's time at an instant between sent and received. Such a measurement gives
// only a range. The old estimate is changed only if it is outside the range.
func adjust(ahead time.Duration, sent, server, received time.Time) time.Duration {
	return max(server.Sub(received), min(ahead, server.Sub(sent)))
}

// compare asks the server for its time and returns how far it is ahead.
func (c *clock) compare(ctx context.Context, s *session) (time.Duration, error) {
	// Without the monotonic part, since callers use the wall clock.
	sent := time.Now().Round(0)
	var server time.Time
	if err := s.pg.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&server); err != nil {
		return 0, err
	}
	received := time.Now().Round(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	// The server's resolution is one microsecond.
	c.ahead = adjust(c.ahead, sent, server, received.Add(time.Microsecond))
	return c.ahead, nil
}

// isAlive is the condition that the lease of a row c of headway_connections may have a
// living holder at $1, by the server's clock: it has not expired, and the lock of its
// holder is held or was lost in a restart of the server.
const isAlive = `(c.run IS NOT NULL AND c.expires > $1 AND (c.lock IS NULL OR c.booted IS DISTINCT FROM pg_postmaster_start_time()
	OR EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND l.classid::bigint = (c.lock >> 32) & 4294967295 AND l.objid::bigint = c.lock & 4294967295)))`

// Acquire takes the connection for one run. See [collect.Store]. A lease is
// expired when req.Now has reached its expiry. An expired lease is taken over, and
// the run that held it becomes abandoned. A lease whose holder's session has ended
// is taken over at once.
func (s *Store) Acquire(ctx context.Context, req collect.LeaseRequest) (collect.Lease, error) {
	if err := req.Check("store " + s.name); err != nil {
		return collect.Lease{}, err
	}
	lease := collect.Lease{Connection: req.Connection, Run: req.Run}
	// The lock comes before the token is visible: a lease whose lock is free counts as dead.
	lock := s.alive.lock(ctx, s.Reader)
	var id int64
	err := s.write(ctx, "acquire", func(t *tx) error {
		ahead, err := s.clock.compare(t.ctx, t.session)
		if err != nil {
			return err
		}
		now := req.Now.Add(ahead)
		if _, err := t.Exec(`INSERT INTO headway_connections (name) VALUES ($1) ON CONFLICT DO NOTHING`, req.Connection); err != nil {
			return err
		}
		var run, holder string
		var since, expires time.Time
		var living bool
		if err := t.Row(`SELECT id, token FROM headway_connections WHERE name = $1 FOR UPDATE`, []any{req.Connection}, &id, &lease.Token); err != nil {
			return err
		}
		if err := t.Row(`SELECT run, holder, since, expires, `+isAlive+` FROM headway_connections c WHERE id = $2`,
			[]any{now, id}, &run, &holder, &since, &expires, &living); err != nil {
			return err
		}
		if living {
			return &collect.HeldError{
				Connection: req.Connection, Holder: holder, Run: run,
				Since: since, Expires: expires.Add(-ahead),
			}
		}
		lease.Token++
		return t.take(id, req, lease.Token, now.Add(req.TTL), lock)
	})
	if err != nil {
		s.alive.unlock(lock)
		return collect.Lease{}, err
	}
	s.alive.keep(id, lease.Token, lock)
	return lease, nil
}

// take writes the new holder, marks the old holder's run abandoned, and begins the new run.
func (t *tx) take(connection int64, req collect.LeaseRequest, token int64, expires time.Time, lock sql.NullInt64) error {
	t.Queue(dropMarks)
	sqlstore.Abandon(t, connection)
	t.Queue(`UPDATE headway_connections SET token = $2, run = $3, holder = $4, since = $5, expires = $6, lock = $7,
			booted = pg_postmaster_start_time() WHERE id = $1`,
		connection, token, req.Run, req.Holder, req.Now, expires, lock)
	return sqlstore.Begin(t, connection, req)
}

// dropMarks removes old marks of writes, except those that another session is removing.
const dropMarks = `DELETE FROM headway_writes WHERE token IN
	(SELECT token FROM headway_writes WHERE at < now() - interval '1 hour' FOR UPDATE SKIP LOCKED)`

// holding runs a write as the holder of a lease. It locks the connection's row, so that
// writes of one connection run one after the other and nobody takes the lease over in
// between.
func (s *Store) holding(ctx context.Context, what string, l collect.Lease, f func(*tx, sqlstore.Held) error) error {
	return s.write(ctx, what, func(t *tx) error {
		h, err := sqlstore.Fence(t, l)
		if err != nil {
			return err
		}
		return f(t, h)
	})
}

// Renew extends the lease to now + ttl. See [collect.Store]. An expired lease
// that nobody has taken over is renewed too, and a lock that was lost with its session
// is taken again.
func (s *Store) Renew(ctx context.Context, l collect.Lease, now time.Time, ttl time.Duration) error {
	var lock sql.NullInt64
	var connection int64
	err := s.holding(ctx, "renew", l, func(t *tx, h sqlstore.Held) error {
		ahead, err := s.clock.compare(t.ctx, t.session)
		if err != nil {
			return err
		}
		if connection = h.Connection; !lock.Valid {
			lock = s.alive.renewed(t.ctx, s.Reader, connection, l.Token)
		}
		if lock.Valid {
			t.Queue(`UPDATE headway_connections SET lock = $2, booted = pg_postmaster_start_time() WHERE id = $1`, connection, lock)
		}
		t.Queue(`UPDATE headway_connections SET expires = $2 WHERE id = $1`, connection, now.Add(ahead).Add(ttl))
		t.Queue(dropMarks) // a run may last for weeks
		return nil
	})
	switch {
	case err != nil:
		s.alive.unlock(lock)
	case lock.Valid:
		s.alive.keep(connection, l.Token, lock)
	}
	return err
}

// Finish writes the run's end and releases the lease. See [collect.Store].
func (s *Store) Finish(ctx context.Context, l collect.Lease, end collect.RunEnd) error {
	if err := end.Check("store " + s.name); err != nil {
		return err
	}
	var connection int64
	err := s.holding(ctx, "finish", l, func(t *tx, h sqlstore.Held) error {
		connection = h.Connection
		return h.Finish(t, end)
	})
	if err == nil {
		s.alive.release(connection, l.Token)
	}
	return err
}

// Forget removes the state of the connection, except its lease. See [collect.Store].
func (s *Store) Forget(ctx context.Context, l collect.Lease) error {
	return s.holding(ctx, "forget", l, func(t *tx, h sqlstore.Held) error {
		h.Forget(t)
		return nil
	})
}

// alive holds the locks of this store's leases, in a session of its own that it opens
// for the first lease.
type alive struct {
	mu      sync.Mutex
	session *session
	held    map[int64]hold // by connection
}

// hold is the lock of a lease.
type hold struct {
	token int64
	lock  sql.NullInt64
}

// lock takes a new lock. A lease whose lock fails is still granted; if its holder dies,
// the lease must expire first.
func (a *alive) lock(ctx context.Context, r *Reader) sql.NullInt64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != nil && a.session.pg.IsClosed() {
		_ = a.session.Close()
		a.session = nil
	}
	if a.session == nil {
		c, err := r.acquire(ctx)
		if err != nil {
			return sql.NullInt64{}
		}
		a.session = c
	}
	lock := sql.NullInt64{Int64: rand.Int64(), Valid: true}
	if _, err := a.session.pg.Exec(ctx, `SELECT pg_advisory_lock($1)`, lock.Int64); err != nil {
		return sql.NullInt64{}
	}
	return lock
}

// renewed returns a new lock for a lease whose lock was lost with its session. It is not
// valid if the lock was not lost.
func (a *alive) renewed(ctx context.Context, r *Reader, connection, token int64) sql.NullInt64 {
	a.mu.Lock()
	h, ok := a.held[connection]
	lost := a.session == nil
	if !lost {
		var one int
		lost = a.session.pg.QueryRow(ctx, `SELECT 1`).Scan(&one) != nil
	}
	has := ok && h.token == token && h.lock.Valid
	a.mu.Unlock()
	if has && !lost {
		return sql.NullInt64{}
	}
	return a.lock(ctx, r)
}

// keep makes a lock that of a lease, and releases its previous lock.
func (a *alive) keep(connection, token int64, lock sql.NullInt64) {
	a.mu.Lock()
	before := a.held[connection]
	a.held[connection] = hold{token, lock}
	a.mu.Unlock()
	a.unlock(before.lock)
}

// release releases the lock of a lease.
func (a *alive) release(connection, token int64) {
	a.mu.Lock()
	h, ok := a.held[connection]
	if ok = ok && h.token == token; ok {
		delete(a.held, connection)
	}
	a.mu.Unlock()
	if ok {
		a.unlock(h.lock)
	}
}

func (a *alive) unlock(lock sql.NullInt64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !lock.Valid || a.session == nil || a.session.pg.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	_, _ = a.session.pg.Exec(ctx, `SELECT pg_advisory_unlock($1) WHERE EXISTS (SELECT 1 FROM pg_locks
		WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objsubid = 1
		AND classid::bigint = ($1 >> 32) & 4294967295 AND objid::bigint = $1 & 4294967295)`, lock.Int64)
}

// close ends the session, and with it the locks of unfinished leases, so that others can
// take these over at once.
func (a *alive) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// The server ends a closed session later, and until then its locks are held.
	_, _ = a.session.pg.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
	_ = a.session.pg.Close(ctx) // not returned to the pool, since the session has the locks
	err := a.session.Close()
	a.session = nil
	if errors.Is(err, sql.ErrConnDone) {
		err = nil
	}
	return err
}
