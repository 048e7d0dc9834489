package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/lockfile"
	"github.com/headway-go/headway/reason"
)

// Acquire leases the connection to one run. See [collect.Store]. A lease has expired when
// req.Now has reached its expiry. An expired lease, or one whose process has died on this
// machine, is taken over, and its run becomes abandoned.
func (s *Store) Acquire(ctx context.Context, req collect.LeaseRequest) (collect.Lease, error) {
	if req.Connection == "" || req.Run == "" || req.TTL <= 0 {
		return collect.Lease{}, fmt.Errorf("store %s: acquire: connection %q, run %q, time to live %s: "+
			"the names must not be empty and the time must be above 0", s.path, req.Connection, req.Run, req.TTL)
	}
	lease := collect.Lease{Connection: req.Connection, Run: req.Run}
	var id, before int64
	var locked bool
	err := s.w.write(ctx, "acquire", func(t *tx) error {
		var run sql.NullString
		var holder, since, expires string
		err := t.row(`SELECT id, token, run, holder, since, expires FROM connections WHERE name = ?`,
			[]any{req.Connection}, &id, &lease.Token, &run, &holder, &since, &expires)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			err = t.row(`INSERT INTO connections (name, token, holder, since, expires) VALUES (?, 0, '', '', '') RETURNING id`,
				[]any{req.Connection}, &id)
		case err == nil && run.Valid && lives(s.path, id, lease.Token, parseInstant(expires), req.Now):
			return &collect.HeldError{
				Connection: req.Connection, Holder: holder, Run: run.String,
				Since: parseInstant(since), Expires: parseInstant(expires),
			}
		}
		if err != nil {
			return err
		}
		before = lease.Token
		lease.Token++
		if err := t.take(id, req, lease.Token); err != nil {
			return err
		}
		// Lock before others can see the token: a lease with a free lock counts as dead.
		s.alive.take(id, lease.Token)
		locked = true
		return nil
	})
	if err != nil {
		if locked {
			s.alive.release(id, lease.Token) // the commit failed
		}
		return collect.Lease{}, err
	}
	s.alive.release(id, before)
	return lease, nil
}

// take writes the new holder, marks the old run as abandoned, and begins the new run.
func (t *tx) take(connection int64, req collect.LeaseRequest, token int64) error {
	if _, err := t.exec(`UPDATE runs SET state = ?, reason = ?,
			ended = (SELECT expires FROM connections WHERE id = runs.connection)
		WHERE connection = ? AND state = ?`,
		collect.RunAbandoned, reason.LeaseLost.String(), connection, collect.RunRunning); err != nil {
		return err
	}
	// Gaps that were served to the former holder are pending again.
	if _, err := t.exec(`UPDATE gaps SET status = ?, leased = 0 WHERE connection = ? AND status = ?`,
		string(collect.GapPending), connection, string(collect.GapLeased)); err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE connections SET token = ?, run = ?, holder = ?, since = ?, expires = ? WHERE id = ?`,
		token, req.Run, req.Holder, instant(req.Now), instant(req.Now.Add(req.TTL)), connection); err != nil {
		return err
	}
	n, err := t.exec(`INSERT INTO runs (id, connection, holder, state, reason, started, kind) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO NOTHING`,
		req.Run, connection, req.Holder, collect.RunRunning, reason.None.String(), instant(req.Now), string(req.Kind))
	if err == nil && n == 0 {
		err = fmt.Errorf("run %q is on record already: give each run an id of its own", req.Run)
	}
	return err
}

// held holds the ids of a lease that was checked.
type held struct {
	connection, run int64
}

// fence checks in the write's transaction that l is the current lease.
func (t *tx) fence(l collect.Lease) (held, error) {
	var h held
	err := t.row(`SELECT c.id, r.n FROM connections c JOIN runs r ON r.id = c.run
		WHERE c.name = ? AND c.token = ? AND c.run = ?`,
		[]any{l.Connection, l.Token, l.Run}, &h.connection, &h.run)
	if errors.Is(err, sql.ErrNoRows) {
		err = &reason.Refusal{Reason: reason.LeaseLost, Scope: l.Connection}
	}
	return h, err
}

// holding runs f in a transaction after checking the lease.
func (s *Store) holding(ctx context.Context, what string, l collect.Lease, f func(*tx, held) error) error {
	return s.w.write(ctx, what, func(t *tx) error {
		h, err := t.fence(l)
		if err != nil {
			return err
		}
		return f(t, h)
	})
}

// Renew extends the lease to now + ttl. See [collect.Store]. An expired lease that was not
// taken over is renewed too.
func (s *Store) Renew(ctx context.Context, l collect.Lease, now time.Time, ttl time.Duration) error {
	return s.holding(ctx, "renew", l, func(t *tx, h held) error {
		_, err := t.exec(`UPDATE connections SET expires = ? WHERE id = ?`, instant(now.Add(ttl)), h.connection)
		return err
	})
}

// Finish writes the run's end and releases the lease. See [collect.Store].
func (s *Store) Finish(ctx context.Context, l collect.Lease, end collect.RunEnd) error {
	switch end.State {
	case collect.RunDrained, collect.RunIncomplete, collect.RunDeferred, collect.RunFailed, collect.RunAbandoned:
	case collect.RunRunning:
		fallthrough
	default:
		return fmt.Errorf("store %s: finish: %q is not a state for a run to end in", s.path, end.State)
	}
	var connection int64
	err := s.holding(ctx, "finish", l, func(t *tx, h held) error {
		connection = h.connection
		if err := t.progress(h, end.Progress); err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE runs SET state = ?, reason = ?, ended = ?, retry_at = ?, error = ? WHERE n = ?`,
			end.State, end.Reason.String(), instant(end.At), instant(end.RetryAt), end.Error, h.run); err != nil {
			return err
		}
		if err := t.events(h, end.Events); err != nil {
			return err
		}
		if err := t.pacing(h, end.Pacing); err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE gaps SET status = ?, leased = 0 WHERE connection = ? AND status = ?`,
			string(collect.GapPending), h.connection, string(collect.GapLeased)); err != nil {
			return err
		}
		pressure, err := json.Marshal(end.Cooldown)
		if err != nil {
			return err
		}
		_, err = t.exec(`UPDATE connections SET run = NULL, holder = '', since = '', expires = '', pressure = ? WHERE id = ?`,
			string(pressure), h.connection)
		return err
	})
	if err == nil {
		s.alive.release(connection, l.Token)
	}
	return err
}

// Forget removes the state of the connection. See [collect.Store]. The lease stays.
func (s *Store) Forget(ctx context.Context, l collect.Lease) error {
	return s.holding(ctx, "forget", l, func(t *tx, h held) error {
		for _, query := range []string{
			`DELETE FROM lanes WHERE connection = ?`,
			`DELETE FROM items WHERE stream IN (SELECT id FROM streams WHERE connection = ?)`,
			`DELETE FROM streams WHERE connection = ?`,
			`DELETE FROM gaps WHERE connection = ?`,
			`DELETE FROM headway_shapes WHERE connection = ?`,
			`DELETE FROM headway_sinks WHERE connection = ?`,
			`UPDATE connections SET sink = NULL, sink_kind = '', sink_path = '', replays = '[]', pressure = NULL, pacing_version = NULL, pacing_law = NULL,
				pacing_interval_ms = NULL, pacing_recorded_at = NULL, pacing_state = NULL, pacing_parts = NULL WHERE id = ?`,
		} {
			if _, err := t.exec(query, h.connection); err != nil {
				return err
			}
		}
		return nil
	})
}

// actions holds the SQL of each operator's action, and the statuses that it applies to.
var actions = map[collect.GapAction]struct{ do, from string }{
	collect.GapRetry:      {`UPDATE gaps SET status = 'pending', leased = 0, retry_at = '', tried = '', rank = ''`, `'pending', 'leased'`},
	collect.GapQuarantine: {`UPDATE gaps SET status = 'terminal', leased = 0`, `'pending', 'leased'`},
	collect.GapRelease:    {`UPDATE gaps SET status = 'pending', attempts = 0, retry_at = '', tried = '', rank = ''`, `'terminal'`},
	collect.GapDrop:       {`DELETE FROM gaps`, `'pending', 'leased', 'terminal'`},
}

// Act applies an operator's action. See [collect.Store].
func (s *Store) Act(ctx context.Context, a collect.GapAction, f collect.GapFilter, ids []int64) (n int64, err error) {
	move, ok := actions[a]
	if !ok {
		return 0, fmt.Errorf("store %s: gaps: there is no action %q", s.path, a)
	}
	err = s.w.write(ctx, string(a)+" gaps", func(t *tx) error {
		if a == collect.GapRetry {
			// A retry is meant to happen now, so the cooldown ends.
			if _, err := t.exec(`UPDATE connections SET pressure = NULL WHERE ? IN ('', name)`, f.Connection); err != nil {
				return err
			}
		}
		act := func(which string, args ...any) error {
			which = ` WHERE status IN (` + move.from + `) AND id IN (` + which + `)`
			if a == collect.GapDrop {
				if err := t.unmark(which, args); err != nil {
					return err
				}
			}
			res, err := t.w.conn.ExecContext(t.ctx, move.do+which, args...)
			if err != nil {
				return err
			}
			changed, err := res.RowsAffected()
			n += changed
			return err
		}
		if len(ids) == 0 {
			f.Limit, f.AfterID, f.Status = 0, 0, ""
			query, args := gapQuery(f)
			return act(`SELECT id FROM (`+query+`)`, args...)
		}
		for _, id := range ids {
			if err := act(`?`, id); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

// unmark removes the marks of owed items for which backlog gaps stand.
func (t *tx) unmark(which string, args []any) error {
	_, err := t.w.conn.ExecContext(t.ctx, `UPDATE items SET owed = 0 WHERE owed = 1 AND stream IN (
		SELECT s.id FROM streams s JOIN (SELECT connection, parent, backlog FROM gaps`+which+`) g
		ON g.connection = s.connection AND g.parent = s.name AND g.backlog = 1)`, args...)
	return err
}

// alive holds a lock file for each lease of this process. The system releases the lock
// when the process dies, so a lease with a free lock can be taken over at once. The file's
// name contains the token, so that each holder has its own file.
type alive struct {
	path string
	mu   sync.Mutex
	held map[string]*os.File
}

func (a *alive) name(connection, token int64) string { return leaseFile(a.path, connection, token) }

func leaseFile(path string, connection, token int64) string {
	return fmt.Sprintf("%s-lease-%d-%d", path, connection, token)
}

// take locks the file of a new lease. If that fails the lease is still valid, but a later
// holder has to wait until it expires.
func (a *alive) take(connection, token int64) {
	name := a.name(connection, token)
	// The file is renamed after it is locked, so that others never find it unlocked.
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return
	}
	// A user that may read the store may check the lock.
	if info, err := os.Stat(a.path); err == nil {
		_ = f.Chmod(0o600 | info.Mode().Perm()&0o444)
	}
	taken, err := lockfile.Try(f)
	if err == nil && taken {
		err = os.Rename(name+".new", name)
	}
	if err != nil || !taken {
		_ = f.Close()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[name] = f
}

// leaseOfTheDead reports whether a lease's lock file exists and is not locked. It takes the
// lock for a moment, so that of two concurrent calls one may wrongly return false. It needs
// read permission only.
func leaseOfTheDead(path string, connection, token int64) bool {
	f, err := os.Open(leaseFile(path, connection, token))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	taken, err := lockfile.Try(f)
	return err == nil && taken
}

// lives reports whether the holder of a lease may be alive at an instant.
func lives(path string, connection, token int64, expires, now time.Time) bool {
	return now.Before(expires) && !leaseOfTheDead(path, connection, token)
}

// release unlocks and removes a lease's lock file.
func (a *alive) release(connection, token int64) {
	name := a.name(connection, token)
	a.mu.Lock()
	f := a.held[name]
	delete(a.held, name)
	a.mu.Unlock()
	_ = os.Remove(name)
	if f != nil {
		_ = f.Close()
	}
}

// close unlocks the files of leases that were not finished. The files stay, so that the
// next holder sees that these leases are dead.
func (a *alive) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for name, f := range a.held {
		errs = append(errs, f.Close())
		delete(a.held, name)
	}
	return errors.Join(errs...)
}
