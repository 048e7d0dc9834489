package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// Acquire takes the connection for one run. See [collect.Store]. A lease that
// has expired is taken over: the run that held it becomes abandoned. A lease has
// expired when req.Now has reached its expiry.
func (s *Store) Acquire(ctx context.Context, req collect.LeaseRequest) (collect.Lease, error) {
	if req.Connection == "" || req.Run == "" || req.TTL <= 0 {
		return collect.Lease{}, fmt.Errorf("store: acquire: connection %q, run %q, time to live %s: "+
			"the names must not be empty and the time must be above 0", req.Connection, req.Run, req.TTL)
	}
	if err := ctx.Err(); err != nil {
		return collect.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.connections[req.Connection]
	if c != nil && c.held != nil && req.Now.Before(c.expires) {
		return collect.Lease{}, &collect.HeldError{
			Connection: c.name, Holder: c.held.Holder, Run: c.held.ID, Since: c.since, Expires: c.expires,
		}
	}
	if s.byID[req.Run] != nil {
		return collect.Lease{}, fmt.Errorf("store: acquire: run %q is on record already: give each run an id of its own", req.Run)
	}
	if c == nil {
		c = &connection{name: req.Connection, state: newState()}
		s.connections[c.name] = c
	}
	if c.held != nil {
		c.held.State, c.held.Reason, c.held.Ended = collect.RunAbandoned, reason.LeaseLost, c.expires
	}
	c.unlease()
	u := &run{of: c, Run: collect.Run{
		ID: req.Run, Connection: c.name, Holder: req.Holder, State: collect.RunRunning, Started: plain(req.Now), Kind: req.Kind,
	}}
	s.runs, s.byID[u.ID] = append(s.runs, u), u
	c.token++
	c.held, c.since, c.expires = u, plain(req.Now), plain(req.Now.Add(req.TTL))
	return collect.Lease{Connection: c.name, Run: u.ID, Token: c.token}, nil
}

// unlease puts back what a holder was served and did not finish.
func (c *connection) unlease() {
	for _, g := range c.order {
		if g.Status == collect.GapLeased {
			g.Status = collect.GapPending
		}
	}
}

// Renew extends the lease to now + ttl. See [collect.Store]. A lease that has
// expired but that nobody took over is renewed too.
func (s *Store) Renew(ctx context.Context, l collect.Lease, now time.Time, ttl time.Duration) error {
	return s.write(ctx, l, func(c *connection) error {
		c.expires = plain(now.Add(ttl))
		return nil
	})
}

// Finish writes the run's end and gives the lease back. See [collect.Store].
func (s *Store) Finish(ctx context.Context, l collect.Lease, end collect.RunEnd) error {
	switch end.State {
	case collect.RunDrained, collect.RunIncomplete, collect.RunDeferred, collect.RunFailed, collect.RunAbandoned:
	case collect.RunRunning:
		fallthrough
	default:
		return fmt.Errorf("store: finish: %q is not a state for a run to end in", end.State)
	}
	return s.write(ctx, l, func(c *connection) error {
		u := c.held
		if err := u.trace(end.Events); err != nil {
			return err
		}
		u.State, u.Reason, u.Error, u.Progress = end.State, end.Reason, end.Error, end.Progress
		u.Ended, u.RetryAt = plain(end.At), plain(end.RetryAt)
		c.pace(end.Pacing)
		c.unlease()
		c.cooldown = end.Cooldown
		c.cooldown.Until = plain(end.Cooldown.Until)
		c.held = nil
		return nil
	})
}

// Forget removes what is known of the connection. See [collect.Store]. The
// lease stays.
func (s *Store) Forget(ctx context.Context, l collect.Lease) error {
	return s.write(ctx, l, func(c *connection) error {
		c.state, c.cooldown = newState(), collect.Cooldown{}
		return nil
	})
}
