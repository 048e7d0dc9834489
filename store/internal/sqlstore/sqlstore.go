// Package sqlstore is what the stores in SQL databases share: how the state of a connection
// is written into their tables and read from them. Both have the same tables.
//
// Statements are written for PostgreSQL. Each store runs them by its own [Tx], which
// converts what differs in its database. Leases, known items and the order in which gaps
// are served are the stores' own.
package sqlstore

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// Snapshot reads. Arguments and destinations are of basic types, [time.Time], or
// database/sql's types for NULL; each database has its own form of the zero time.
type Snapshot interface {
	// Row scans the first row of a query into dest. The error matches [sql.ErrNoRows] if
	// there is none.
	Row(query string, args []any, dest ...any) error
	// Each scans each row of a query into dest and calls f.
	Each(dest []any, f func() error, query string, args ...any) error
}

// Tx is a transaction that writes.
type Tx interface {
	Snapshot
	// Queue runs a statement whose result is not needed, at the latest before the next
	// call of another method or the commit, which returns the first error.
	Queue(query string, args ...any)
	// Exec runs a statement and returns the number of changed rows.
	Exec(query string, args ...any) (int64, error)
}

// Held identifies the connection and the run of a lease that was checked.
type Held struct {
	Connection, Run int64
}

// Fence returns an error that matches [collect.ErrLeaseLost] if l is not the current lease.
// It locks the connection's row.
func Fence(t Tx, l collect.Lease) (h Held, err error) {
	err = t.Row(`SELECT c.id, r.n FROM headway_connections c JOIN headway_runs r ON r.id = c.run
		WHERE c.name = $1 AND c.token = $2 AND c.run = $3 FOR UPDATE OF c`,
		[]any{l.Connection, l.Token, l.Run}, &h.Connection, &h.Run)
	if errors.Is(err, sql.ErrNoRows) {
		err = &reason.Refusal{Reason: reason.LeaseLost, Scope: l.Connection}
	}
	return h, err
}

// freeGaps makes the gaps that were served to a holder pending.
const freeGaps = `UPDATE headway_gaps SET status = 'pending', leased = 0 WHERE connection = $1 AND status = 'leased'`

// Abandon ends the run of the former holder of a connection's lease.
func Abandon(t Tx, connection int64) {
	t.Queue(`UPDATE headway_runs SET state = $2, reason = $3,
			ended = (SELECT expires FROM headway_connections WHERE id = $1)
		WHERE connection = $1 AND state = $4`,
		connection, string(collect.RunAbandoned), reason.LeaseLost.String(), string(collect.RunRunning))
	t.Queue(freeGaps, connection)
}

// Begin writes a new run.
func Begin(t Tx, connection int64, req collect.LeaseRequest) error {
	n, err := t.Exec(`INSERT INTO headway_runs (id, connection, holder, state, reason, started, kind) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (id) DO NOTHING`,
		req.Run, connection, req.Holder, string(collect.RunRunning), reason.None.String(), req.Now, string(req.Kind))
	if err == nil && n == 0 {
		err = fmt.Errorf("run %q is on record already: give each run an id of its own", req.Run)
	}
	return err
}

// Finish writes the run's end and releases the lease.
func (h Held) Finish(t Tx, end collect.RunEnd) error {
	cooldown, err := json.Marshal(end.Cooldown)
	if err != nil {
		return err
	}
	if err := h.progress(t, end.Progress); err != nil {
		return err
	}
	t.Queue(`UPDATE headway_runs SET state = $2, reason = $3, ended = $4, retry_at = $5, error = $6 WHERE n = $1`,
		h.Run, string(end.State), end.Reason.String(), end.At, end.RetryAt, end.Error)
	if err := h.events(t, end.Events); err != nil {
		return err
	}
	h.pacing(t, end.Pacing)
	t.Queue(freeGaps, h.Connection)
	t.Queue(`UPDATE headway_connections SET run = NULL, holder = '', since = NULL, expires = NULL, lock = NULL, booted = NULL, pressure = $2 WHERE id = $1`,
		h.Connection, string(cooldown))
	return nil
}

// Forget removes the state of the connection, except its lease.
func (h Held) Forget(t Tx) {
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
		t.Queue(query, h.Connection)
	}
}

// Commit writes one slice, whose items are written by a function.
//
// Recovered gaps are closed before Opened ones are written, so a gap in both is owed.
func (h Held) Commit(t Tx, c *collect.Commit, items func(stream string, items []collect.KnownItem) error) error {
	for _, r := range c.Reshaped {
		if err := h.reshaped(t, r); err != nil {
			return err
		}
	}
	h.lane(t, c.Lane)
	if len(c.Items) > 0 {
		if err := items(c.Stream, c.Items); err != nil {
			return err
		}
	}
	for _, key := range c.Recovered {
		// The locator is content and is not needed any more.
		t.Queue(`UPDATE headway_gaps SET status = 'recovered', locator = NULL, retry_at = NULL, last_seen = $4, leased = 0, cursor = ''
			WHERE connection = $1 AND stream = $2 AND key = $3`, h.Connection, key.Stream, key.Key, c.At)
	}
	for _, key := range c.Returned {
		t.Queue(`UPDATE headway_gaps SET status = 'pending', leased = 0
			WHERE connection = $1 AND stream = $2 AND key = $3 AND status = 'leased'`, h.Connection, key.Stream, key.Key)
	}
	for _, g := range c.Opened {
		h.opened(t, g, c.At)
	}
	if err := h.sink(t, c); err != nil {
		return err
	}
	if err := h.progress(t, c.Progress); err != nil {
		return err
	}
	if err := h.events(t, c.Events); err != nil {
		return err
	}
	h.pacing(t, c.Pacing)
	return nil
}

func (h Held) lane(t Tx, lane *collect.Lane) {
	if lane == nil {
		return
	}
	t.Queue(`INSERT INTO headway_lanes (connection, stream, kind, cursor, walking, done, since, high, start, watermark,
			pages, trail_anchor, trail_steps, trail_limit) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
		ON CONFLICT (connection, stream, kind) DO UPDATE SET cursor = excluded.cursor, walking = excluded.walking,
			done = excluded.done, since = excluded.since, high = excluded.high, start = excluded.start,
			watermark = excluded.watermark, pages = excluded.pages, trail_anchor = excluded.trail_anchor,
			trail_steps = excluded.trail_steps, trail_limit = excluded.trail_limit`,
		h.Connection, lane.Stream, string(lane.Kind), lane.Cursor, lane.Walking, lane.Done, lane.Since,
		lane.High, lane.Start, lane.Watermark, lane.Pages,
		int64(lane.Trail.Anchor), int64(lane.Trail.Steps), int64(lane.Trail.Limit))
}

// opened writes a gap. An opened gap is pending unless it has another status. A gap that
// exists gets the new reason, error, times and status, and the new locator and parent if
// they are not empty. Its attempts are added; they may be negative, but the sum is at least
// 0. A gap that was recovered starts again with new attempts and a new first_seen.
func (h Held) opened(t Tx, g collect.Gap, at time.Time) {
	g, tried, rank := g.Opening(at)
	t.Queue(`INSERT INTO headway_gaps AS g (connection, stream, key, parent, locator, reason, status, attempts,
			first_seen, last_seen, retry_at, last_error, tried, rank, backlog, since, cursor)
		VALUES ($1, $2, $3, $4, $5, $6, $7, greatest(0, $8::bigint), $9, $10, $11, $12, $13, coalesce($14::timestamptz, '-infinity'), $15, $16, $17)
		ON CONFLICT (connection, stream, key) DO UPDATE SET
			parent = CASE excluded.parent WHEN '' THEN g.parent ELSE excluded.parent END, locator = coalesce(excluded.locator, g.locator),
			reason = excluded.reason, attempts = greatest(0, $8::bigint + CASE g.status WHEN 'recovered' THEN 0 ELSE g.attempts END),
			first_seen = CASE g.status WHEN 'recovered' THEN excluded.first_seen ELSE g.first_seen END,
			last_seen = excluded.last_seen, retry_at = excluded.retry_at, last_error = excluded.last_error, status = excluded.status, leased = 0,
			tried = CASE WHEN $18::boolean THEN excluded.tried ELSE g.tried END,
			rank = CASE WHEN g.status = 'recovered' OR $8::bigint > 0 THEN excluded.rank ELSE g.rank END,
			backlog = excluded.backlog, since = excluded.since, cursor = excluded.cursor`,
		h.Connection, g.Stream, g.Key, g.Parent, g.Locator, g.Reason.String(), string(g.Status), g.Attempts,
		g.FirstSeen, g.LastSeen, g.RetryAt, g.LastError, tried, rank, g.Backlog, g.Since, g.Cursor, !tried.IsZero())
}

// sink writes the sink's position. If the sink has changed, the position of the former one
// is kept in headway_sinks.
func (h Held) sink(t Tx, c *collect.Commit) error {
	if kind, path := c.SinkAt.Kind, c.SinkAt.Path; kind != "" {
		t.Queue(`INSERT INTO headway_sinks (connection, kind, path, position)
			SELECT id, sink_kind, sink_path, sink FROM headway_connections
			WHERE id = $1 AND sink IS NOT NULL AND sink_kind <> '' AND (sink_kind <> $2 OR sink_path <> $3)
			ON CONFLICT (connection, kind, path) DO UPDATE SET position = excluded.position`, h.Connection, kind, path)
		t.Queue(`DELETE FROM headway_sinks WHERE connection = $1 AND kind = $2 AND path = $3`, h.Connection, kind, path)
		t.Queue(`UPDATE headway_connections SET sink_kind = $2, sink_path = $3 WHERE id = $1`, h.Connection, kind, path)
	}
	if c.Replays != nil {
		b, err := json.Marshal(c.Replays)
		if err != nil {
			return err
		}
		t.Queue(`UPDATE headway_connections SET replays = $2 WHERE id = $1`, h.Connection, string(b))
	}
	if c.Sink != nil {
		t.Queue(`UPDATE headway_connections SET sink = $2 WHERE id = $1`, h.Connection, []byte(c.Sink))
	}
	return nil
}

func (h Held) progress(t Tx, p collect.Progress) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	t.Queue(`UPDATE headway_runs SET progress = $2 WHERE n = $1`, h.Run, string(b))
	return nil
}

// events appends events to the run's trace and numbers them.
func (h Held) events(t Tx, events []event.Event) error {
	if len(events) == 0 {
		return nil
	}
	var seq int64
	if err := t.Row(`SELECT coalesce(max(seq), 0) FROM headway_events WHERE run = $1`, []any{h.Run}, &seq); err != nil {
		return err
	}
	list, err := collect.EncodeEvents(seq, events)
	if err != nil {
		return err
	}
	for i, b := range list {
		t.Queue(`INSERT INTO headway_events (run, seq, event) VALUES ($1, $2, $3)`, h.Run, seq+int64(i)+1, string(b))
	}
	return nil
}

func (h Held) pacing(t Tx, p *collect.Pacing) {
	if p == nil {
		return
	}
	t.Queue(`UPDATE headway_connections SET pacing_version = $2, pacing_law = $3, pacing_interval_ms = $4,
		pacing_recorded_at = $5, pacing_state = $6 WHERE id = $1`,
		h.Connection, int64(p.Version), p.Law, p.IntervalMS, p.RecordedAt, []byte(p.State))
	if parts := p.Parts(); parts != nil {
		t.Queue(`UPDATE headway_connections SET pacing_parts = $2 WHERE id = $1`, h.Connection, parts)
	}
}

// reshaped writes a stream's new shape and applies the changes to its known items.
func (h Held) reshaped(t Tx, r collect.Reshaped) error {
	b, err := json.Marshal(r.Shape)
	if err != nil {
		return err
	}
	stream := r.Shape.Stream
	t.Queue(`INSERT INTO headway_shapes (connection, stream, shape) VALUES ($1, $2, $3)
		ON CONFLICT (connection, stream) DO UPDATE SET shape = excluded.shape`, h.Connection, stream, string(b))
	const items = ` WHERE stream = (SELECT id FROM headway_streams WHERE connection = $1 AND name = $2)`
	for _, move := range []struct {
		when  bool
		query string
	}{
		{r.ForgetItems, `DELETE FROM headway_items` + items},
		{r.ForgetItems, `DELETE FROM headway_streams WHERE connection = $1 AND name = $2`},
		{r.ForgetItems, `DELETE FROM headway_gaps WHERE connection = $1 AND parent = $2`},
		{r.ForgetFingerprints, `UPDATE headway_items SET fingerprint = ''` + items},
		{r.ForgetChildren, `UPDATE headway_items SET children = NULL` + items},
		{r.OweDetails, `UPDATE headway_items SET owed = true` + items},
	} {
		if move.when {
			t.Queue(move.query, h.Connection, stream)
		}
	}
	return nil
}

// actions has the statement of each operator's action, and the statuses that it applies to.
var actions = map[collect.GapAction]struct{ do, from string }{
	collect.GapRetry: {`UPDATE headway_gaps SET status = 'pending', leased = 0, retry_at = NULL, tried = NULL, rank = '-infinity'`,
		`'pending', 'leased'`},
	collect.GapQuarantine: {`UPDATE headway_gaps SET status = 'terminal', leased = 0`, `'pending', 'leased'`},
	collect.GapRelease:    {`UPDATE headway_gaps SET status = 'pending', attempts = 0, retry_at = NULL, tried = NULL, rank = '-infinity'`, `'terminal'`},
	collect.GapDrop:       {`DELETE FROM headway_gaps`, `'pending', 'leased', 'terminal'`},
}

// CheckAction returns an error, which begins with store, for an unknown action.
func CheckAction(store string, a collect.GapAction) error {
	if _, ok := actions[a]; !ok {
		return fmt.Errorf("%s: gaps: there is no action %q", store, a)
	}
	return nil
}

// maxIDs bounds the gaps of one statement.
const maxIDs = 100

// Act applies an operator's action to the gaps with the ids or, without ids, to those that
// the filter selects, and returns their number. hint is as in [Gaps].
func Act(t Tx, a collect.GapAction, f collect.GapFilter, ids []int64, hint string) (n int64, err error) {
	move := actions[a]
	if a == collect.GapRetry {
		// A retry by an operator does not wait for the cooldown.
		t.Queue(`UPDATE headway_connections SET pressure = NULL WHERE $1 IN ('', name)`, f.Connection)
	}
	act := func(which string, args []any) error {
		where := ` WHERE status IN (` + move.from + `) AND id IN (` + which + `)`
		if a == collect.GapDrop {
			// The items of backlog gaps are not owed any more.
			t.Queue(`UPDATE headway_items SET owed = false WHERE owed = true AND stream IN (
				SELECT s.id FROM headway_streams s JOIN (SELECT connection, parent, backlog FROM headway_gaps`+where+`) g
				ON g.connection = s.connection AND g.parent = s.name AND g.backlog)`, args...)
		}
		changed, err := t.Exec(move.do+where, args...)
		n += changed
		return err
	}
	if len(ids) == 0 {
		f.Limit, f.AfterID, f.Status = 0, 0, ""
		query, args := GapQuery(`g.id`, f, hint)
		err := act(query, args)
		return n, err
	}
	// Each statement has maxIDs parameters, so that there is one; the last id is repeated.
	which, args := make([]string, maxIDs), make([]any, maxIDs)
	for some := range slices.Chunk(ids, maxIDs) {
		for i := range maxIDs {
			which[i], args[i] = fmt.Sprintf("$%d", i+1), some[min(i, len(some)-1)]
		}
		if err := act(strings.Join(which, ", "), args); err != nil {
			return n, err
		}
	}
	return n, nil
}
