package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// Acquire takes the connection for one run. See [collect.Store]. A lease that
// has expired is taken over: the run that held it becomes abandoned. A lease
// has expired when req.Now has reached its expiry. One whose process has died
// on this machine is taken over at once.
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
		// Before anybody can see the token: a lease whose lock is free is dead.
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

// take writes the new holder, buries the old one's run, and begins the new run.
func (t *tx) take(connection int64, req collect.LeaseRequest, token int64) error {
	if _, err := t.exec(`UPDATE runs SET state = ?, reason = ?,
			ended = (SELECT expires FROM connections WHERE id = runs.connection)
		WHERE connection = ? AND state = ?`,
		collect.RunAbandoned, reason.LeaseLost.String(), connection, collect.RunRunning); err != nil {
		return err
	}
	// What the one before was served and did not finish is nobody's now.
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

// held is what a write may rely on once its lease was checked.
type held struct {
	connection, run int64
}

// fence checks that l is the current lease, in the transaction of the write.
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

// Renew extends the lease to now + ttl. See [collect.Store]. A lease that has
// expired but that nobody took over is renewed too.
func (s *Store) Renew(ctx context.Context, l collect.Lease, now time.Time, ttl time.Duration) error {
	return s.w.write(ctx, "renew", func(t *tx) error {
		h, err := t.fence(l)
		if err != nil {
			return err
		}
		_, err = t.exec(`UPDATE connections SET expires = ? WHERE id = ?`, instant(now.Add(ttl)), h.connection)
		return err
	})
}

// Finish writes the run's end and gives the lease back. See [collect.Store].
func (s *Store) Finish(ctx context.Context, l collect.Lease, end collect.RunEnd) error {
	switch end.State {
	case collect.RunDrained, collect.RunIncomplete, collect.RunDeferred, collect.RunFailed, collect.RunAbandoned:
	case collect.RunRunning:
		fallthrough
	default:
		return fmt.Errorf("store %s: finish: %q is not a state for a run to end in", s.path, end.State)
	}
	var connection int64
	err := s.w.write(ctx, "finish", func(t *tx) error {
		h, err := t.fence(l)
		if err != nil {
			return err
		}
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

// Forget removes what is known of the connection. See [collect.Store]. The
// lease stays.
func (s *Store) Forget(ctx context.Context, l collect.Lease) error {
	return s.w.write(ctx, "forget", func(t *tx) error {
		h, err := t.fence(l)
		if err != nil {
			return err
		}
		for _, query := range []string{
			`DELETE FROM lanes WHERE connection = ?`,
			`DELETE FROM items WHERE stream IN (SELECT id FROM streams WHERE connection = ?)`,
			`DELETE FROM streams WHERE connection = ?`,
			`DELETE FROM gaps WHERE connection = ?`,
			`DELETE FROM headway_shapes WHERE connection = ?`,
			`DELETE FROM headway_sinks WHERE connection = ?`,
			`UPDATE connections SET sink = NULL, sink_kind = '', sink_path = '', replays = '[]', pressure = NULL, pacing_version = NULL, pacing_law = NULL,
				pacing_interval_ms = NULL, pacing_recorded_at = NULL, pacing_state = NULL WHERE id = ?`,
		} {
			if _, err := t.exec(query, h.connection); err != nil {
				return err
			}
		}
		return nil
	})
}
