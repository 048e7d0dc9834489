package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
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
	if req.Connection == "" || req.Run == "" || req.TTL <= 0 {
		return collect.Lease{}, fmt.Errorf("store %s: acquire: connection %q, run %q, time to live %s: "+
			"the names must not be empty and the time must be above 0", s.name, req.Connection, req.Run, req.TTL)
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
		if _, err := t.exec(`INSERT INTO headway_connections (name) VALUES ($1) ON CONFLICT DO NOTHING`, verbatim(req.Connection)); err != nil {
			return err
		}
		var run, holder verbatim
		var since, expires moment
		var living bool
		if err := t.row(`SELECT id, token FROM headway_connections WHERE name = $1 FOR UPDATE`, []any{verbatim(req.Connection)}, &id, &lease.Token); err != nil {
			return err
		}
		if err := t.row(`SELECT run, holder, since, expires, `+isAlive+` FROM headway_connections c WHERE id = $2`,
			[]any{moment(now), id}, &run, &holder, &since, &expires, &living); err != nil {
			return err
		}
		if living {
			return &collect.HeldError{
				Connection: req.Connection, Holder: string(holder), Run: string(run),
				Since: time.Time(since), Expires: time.Time(expires).Add(-ahead),
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
	t.queue(`UPDATE headway_runs SET state = $2, reason = $3,
			ended = (SELECT expires FROM headway_connections WHERE id = $1)
		WHERE connection = $1 AND state = $4`,
		connection, string(collect.RunAbandoned), reason.LeaseLost.String(), string(collect.RunRunning))
	t.queue(dropMarks)
	// Gaps that were leased to the previous holder become free.
	t.queue(freeGaps, connection)
	t.queue(`UPDATE headway_connections SET token = $2, run = $3, holder = $4, since = $5, expires = $6, lock = $7,
			booted = pg_postmaster_start_time() WHERE id = $1`,
		connection, token, verbatim(req.Run), verbatim(req.Holder), moment(req.Now), moment(expires), lock)
	n, err := t.exec(`INSERT INTO headway_runs (id, connection, holder, state, reason, started, kind) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (id) DO NOTHING`,
		verbatim(req.Run), connection, verbatim(req.Holder), string(collect.RunRunning), reason.None.String(), moment(req.Now), string(req.Kind))
	if err == nil && n == 0 {
		err = fmt.Errorf("run %q is on record already: give each run an id of its own", req.Run)
	}
	return err
}

// dropMarks removes old marks of writes, except those that another session is removing.
const dropMarks = `DELETE FROM headway_writes WHERE token IN
	(SELECT token FROM headway_writes WHERE at < now() - interval '1 hour' FOR UPDATE SKIP LOCKED)`

// freeGaps frees the gaps that were leased to a holder.
const freeGaps = `UPDATE headway_gaps SET status = 'pending', leased = 0 WHERE connection = $1 AND status = 'leased'`

// held identifies the connection and run of a lease that was checked.
type held struct {
	connection, run int64
}

// holding runs a write as the holder of a lease. It locks the connection's row, so that
// writes of one connection run one after the other and nobody takes the lease over in
// between.
func (s *Store) holding(ctx context.Context, what string, l collect.Lease, f func(*tx, held) error) error {
	return s.write(ctx, what, func(t *tx) error {
		var h held
		err := t.row(`SELECT c.id, r.n FROM headway_connections c JOIN headway_runs r ON r.id = c.run
			WHERE c.name = $1 AND c.token = $2 AND c.run = $3 FOR UPDATE OF c`,
			[]any{verbatim(l.Connection), l.Token, verbatim(l.Run)}, &h.connection, &h.run)
		if errors.Is(err, pgx.ErrNoRows) {
			err = &reason.Refusal{Reason: reason.LeaseLost, Scope: l.Connection}
		}
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
	err := s.holding(ctx, "renew", l, func(t *tx, h held) error {
		ahead, err := s.clock.compare(t.ctx, t.session)
		if err != nil {
			return err
		}
		if connection = h.connection; !lock.Valid {
			lock = s.alive.renewed(t.ctx, s.Reader, connection, l.Token)
		}
		if lock.Valid {
			t.queue(`UPDATE headway_connections SET lock = $2, booted = pg_postmaster_start_time() WHERE id = $1`, connection, lock)
		}
		t.queue(`UPDATE headway_connections SET expires = $2 WHERE id = $1`, connection, moment(now.Add(ahead).Add(ttl)))
		t.queue(dropMarks) // a run may last for weeks
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
	switch end.State {
	case collect.RunDrained, collect.RunIncomplete, collect.RunDeferred, collect.RunFailed, collect.RunAbandoned:
	case collect.RunRunning:
		fallthrough
	default:
		return fmt.Errorf("store %s: finish: %q is not a state for a run to end in", s.name, end.State)
	}
	cooldown, err := json.Marshal(end.Cooldown)
	if err != nil {
		return err
	}
	var connection int64
	err = s.holding(ctx, "finish", l, func(t *tx, h held) error {
		connection = h.connection
		if err := t.progress(h, end.Progress); err != nil {
			return err
		}
		t.queue(`UPDATE headway_runs SET state = $2, reason = $3, ended = $4, retry_at = $5, error = $6 WHERE n = $1`,
			h.run, string(end.State), end.Reason.String(), moment(end.At), moment(end.RetryAt), verbatim(end.Error))
		if err := t.events(h, end.Events); err != nil {
			return err
		}
		t.pacing(h, end.Pacing)
		t.queue(freeGaps, h.connection)
		t.queue(`UPDATE headway_connections SET run = NULL, holder = '', since = NULL, expires = NULL, lock = NULL, booted = NULL,
			pressure = $2 WHERE id = $1`, h.connection, string(cooldown))
		return nil
	})
	if err == nil {
		s.alive.release(connection, l.Token)
	}
	return err
}

// Forget removes the state of the connection, except its lease. See [collect.Store].
func (s *Store) Forget(ctx context.Context, l collect.Lease) error {
	return s.holding(ctx, "forget", l, func(t *tx, h held) error {
		for _, query := range []string{
			`DELETE FROM headway_lanes WHERE connection = $1`,
			`DELETE FROM headway_items WHERE stream IN (SELECT id FROM headway_streams WHERE connection = $1)`,
			`DELETE FROM headway_streams WHERE connection = $1`,
			`DELETE FROM headway_gaps WHERE connection = $1`,
			`DELETE FROM headway_shapes WHERE connection = $1`,
			`DELETE FROM headway_sinks WHERE connection = $1`,
			`UPDATE headway_connections SET sink = NULL, sink_kind = '', sink_path = '', replays = '[]', pressure = NULL, pacing_version = NULL,
				pacing_law = NULL, pacing_interval_ms = NULL, pacing_recorded_at = NULL, pacing_state = NULL, pacing_parts = NULL WHERE id = $1`,
		} {
			t.queue(query, h.connection)
		}
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
