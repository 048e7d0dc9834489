package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/lockfile"
	"github.com/headway-go/headway/store/internal/sqlstore"
)

// Acquire leases the connection to one run. See [collect.Store]. A lease has expired when
// req.Now has reached its expiry. An expired lease, or one whose process has died on this
// machine, is taken over, and its run becomes abandoned.
func (s *Store) Acquire(ctx context.Context, req collect.LeaseRequest) (collect.Lease, error) {
	if err := req.Check("store " + s.path); err != nil {
		return collect.Lease{}, err
	}
	lease := collect.Lease{Connection: req.Connection, Run: req.Run}
	var id, before int64
	var locked bool
	err := s.w.write(ctx, "acquire", func(t *tx) error {
		var run sql.NullString
		var holder string
		var since, expires time.Time
		err := t.Row(`SELECT id, token, run, holder, since, expires FROM connections WHERE name = ?`,
			[]any{req.Connection}, &id, &lease.Token, &run, &holder, &since, &expires)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			err = t.Row(`INSERT INTO connections (name, token, holder, since, expires) VALUES (?, 0, '', '', '') RETURNING id`,
				[]any{req.Connection}, &id)
		case err == nil && run.Valid && lives(s.path, id, lease.Token, expires, req.Now):
			return &collect.HeldError{
				Connection: req.Connection, Holder: holder, Run: run.String,
				Since: since, Expires: expires,
			}
		}
		if err != nil {
			return err
		}
		before = lease.Token
		lease.Token++
		sqlstore.Abandon(t, id)
		t.Queue(`UPDATE connections SET token = ?, run = ?, holder = ?, since = ?, expires = ? WHERE id = ?`,
			lease.Token, req.Run, req.Holder, req.Now, req.Now.Add(req.TTL), id)
		if err := sqlstore.Begin(t, id, req); err != nil {
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

// holding runs f in a transaction after checking the lease.
func (s *Store) holding(ctx context.Context, what string, l collect.Lease, f func(*tx, sqlstore.Held) error) error {
	return s.w.write(ctx, what, func(t *tx) error {
		h, err := sqlstore.Fence(t, l)
		if err != nil {
			return err
		}
		return f(t, h)
	})
}

// Renew extends the lease to now + ttl. See [collect.Store]. An expired lease that was not
// taken over is renewed too.
func (s *Store) Renew(ctx context.Context, l collect.Lease, now time.Time, ttl time.Duration) error {
	return s.holding(ctx, "renew", l, func(t *tx, h sqlstore.Held) error {
		_, err := t.Exec(`UPDATE connections SET expires = ? WHERE id = ?`, now.Add(ttl), h.Connection)
		return err
	})
}

// Finish writes the run's end and releases the lease. See [collect.Store].
func (s *Store) Finish(ctx context.Context, l collect.Lease, end collect.RunEnd) error {
	if err := end.Check("store " + s.path); err != nil {
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

// Forget removes the state of the connection. See [collect.Store]. The lease stays.
func (s *Store) Forget(ctx context.Context, l collect.Lease) error {
	return s.holding(ctx, "forget", l, func(t *tx, h sqlstore.Held) error {
		h.Forget(t)
		return nil
	})
}

// Act applies an operator's action. See [collect.Store].
func (s *Store) Act(ctx context.Context, a collect.GapAction, f collect.GapFilter, ids []int64) (n int64, err error) {
	if err := sqlstore.CheckAction("store "+s.path, a); err != nil {
		return 0, err
	}
	err = s.w.write(ctx, string(a)+" gaps", func(t *tx) error {
		n, err = sqlstore.Act(t, a, f, ids, hint)
		return err
	})
	return n, err
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
