package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
)

// Commit makes one slice durable, atomically. See [collect.Store].
//
// Recovered gaps are closed before Opened ones are written, so a gap in both is
// open afterwards. An opened gap is pending unless it carries another status. An
// existing gap gets the new reason, error, instants and status, and the new locator
// and parent if they are set. Attempts are added to its own; a negative number
// reduces them to 0 at least. For a recovered gap that opens again, attempts and
// first seen start again.
//
// Within gets the session of the transaction, a [database/sql.Conn] of pgx's driver.
// It may be called again if the server was away.
func (s *Store) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	if err := c.Check("store " + s.name); err != nil {
		return err
	}
	return s.holding(ctx, "commit", l, func(t *tx, h held) error {
		for _, r := range c.Reshaped {
			if err := t.reshaped(h, r); err != nil {
				return err
			}
		}
		t.lane(h, c.Lane)
		t.items(h, c.Stream, c.Items)
		for _, key := range c.Recovered {
			// The locator is content and is not needed any more.
			t.queue(`UPDATE headway_gaps SET status = 'recovered', locator = NULL, retry_at = NULL, last_seen = $4, leased = 0, cursor = ''
				WHERE connection = $1 AND stream = $2 AND key = $3`, h.connection, verbatim(key.Stream), verbatim(key.Key), moment(c.At))
		}
		for _, key := range c.Returned {
			t.queue(`UPDATE headway_gaps SET status = 'pending', leased = 0
				WHERE connection = $1 AND stream = $2 AND key = $3 AND status = 'leased'`, h.connection, verbatim(key.Stream), verbatim(key.Key))
		}
		for _, g := range c.Opened {
			t.opened(h, g, c.At)
		}
		if err := t.sink(h, &c); err != nil {
			return err
		}
		if err := t.progress(h, c.Progress); err != nil {
			return err
		}
		if err := t.events(h, c.Events); err != nil {
			return err
		}
		t.pacing(h, c.Pacing)
		if c.Within == nil {
			return nil
		}
		if err := t.flush(); err != nil {
			return err
		}
		return c.Within(t.ctx, t.Conn)
	})
}

func (t *tx) lane(h held, lane *collect.Lane) {
	if lane == nil {
		return
	}
	t.queue(`INSERT INTO headway_lanes (connection, stream, kind, cursor, walking, done, since, high, start, watermark,
			pages, trail_anchor, trail_steps, trail_limit) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
		ON CONFLICT (connection, stream, kind) DO UPDATE SET cursor = excluded.cursor, walking = excluded.walking,
			done = excluded.done, since = excluded.since, high = excluded.high, start = excluded.start,
			watermark = excluded.watermark, pages = excluded.pages, trail_anchor = excluded.trail_anchor,
			trail_steps = excluded.trail_steps, trail_limit = excluded.trail_limit`,
		h.connection, verbatim(lane.Stream), verbatim(lane.Kind), verbatim(lane.Cursor), lane.Walking, lane.Done, verbatim(lane.Since),
		verbatim(lane.High), moment(lane.Start), verbatim(lane.Watermark), lane.Pages,
		int64(lane.Trail.Anchor), int64(lane.Trail.Steps), int64(lane.Trail.Limit))
}

// items writes the items that have changed, and adds the number of new ones to the
// stream's. It takes one statement.
func (t *tx) items(h held, stream string, items []collect.KnownItem) {
	if len(items) == 0 {
		return
	}
	// A statement may write each key only once. Of duplicates the last counts.
	at := make(map[string]int, len(items))
	keys, fingerprints := make([]string, 0, len(items)), make([]string, 0, len(items))
	children, owed := make([][]byte, 0, len(items)), make([]bool, 0, len(items))
	for _, it := range items {
		if i, twice := at[it.Key]; twice {
			fingerprints[i], children[i], owed[i] = it.Fingerprint, it.Children, it.Owed
			continue
		}
		at[it.Key] = len(keys)
		keys, fingerprints = append(keys, it.Key), append(fingerprints, it.Fingerprint)
		children, owed = append(children, it.Children), append(owed, it.Owed)
	}
	t.queue(`INSERT INTO headway_streams (connection, name) VALUES ($1, $2) ON CONFLICT DO NOTHING`, h.connection, verbatim(stream))
	t.queue(`WITH written AS (
			INSERT INTO headway_items AS i (stream, key, fingerprint, children, owed)
			SELECT s.id, u.key, u.fingerprint, u.children, u.owed
			FROM headway_streams s, unnest($3::text[], $4::text[], $5::bytea[], $6::boolean[]) AS u (key, fingerprint, children, owed)
			WHERE s.connection = $1 AND s.name = $2
			ON CONFLICT (stream, key) DO UPDATE SET fingerprint = excluded.fingerprint, children = excluded.children, owed = excluded.owed
			WHERE i.fingerprint <> excluded.fingerprint OR i.children IS DISTINCT FROM excluded.children OR i.owed <> excluded.owed
			RETURNING (i.xmax = 0) AS fresh)
		UPDATE headway_streams SET items = items + (SELECT count(*) FROM written WHERE fresh)
		WHERE connection = $1 AND name = $2 AND EXISTS (SELECT 1 FROM written WHERE fresh)`,
		h.connection, verbatim(stream), escaped(keys), escaped(fingerprints), children, owed)
}

func (t *tx) opened(h held, g collect.Gap, at time.Time) {
	g, tried, rank := g.Opening(at)
	t.queue(`INSERT INTO headway_gaps AS g (connection, stream, key, parent, locator, reason, status, attempts,
			first_seen, last_seen, retry_at, last_error, tried, rank, backlog, since, cursor)
		VALUES ($1, $2, $3, $4, $5, $6, $7, greatest(0, $8::bigint), $9, $10, $11, $12, $13, coalesce($14::timestamptz, '-infinity'), $15, $16, $17)
		ON CONFLICT (connection, stream, key) DO UPDATE SET
			parent = CASE excluded.parent WHEN '' THEN g.parent ELSE excluded.parent END, locator = coalesce(excluded.locator, g.locator),
			reason = excluded.reason, attempts = greatest(0, $8::bigint + CASE g.status WHEN 'recovered' THEN 0 ELSE g.attempts END),
			first_seen = CASE g.status WHEN 'recovered' THEN excluded.first_seen ELSE g.first_seen END,
			last_seen = excluded.last_seen, retry_at = excluded.retry_at, last_error = excluded.last_error, status = excluded.status, leased = 0,
			tried = coalesce(excluded.tried, g.tried),
			rank = CASE WHEN g.status = 'recovered' OR $8::bigint > 0 THEN excluded.rank ELSE g.rank END,
			backlog = excluded.backlog, since = excluded.since, cursor = excluded.cursor`,
		h.connection, verbatim(g.Stream), verbatim(g.Key), verbatim(g.Parent), g.Locator, g.Reason.String(), string(g.Status), g.Attempts,
		moment(g.FirstSeen), moment(g.LastSeen), moment(g.RetryAt), verbatim(g.LastError), moment(tried), moment(rank), g.Backlog, verbatim(g.Since), verbatim(g.Cursor))
}

// sink writes the sink's position. If the sink has changed, the position of the former
// sink is stored separately.
func (t *tx) sink(h held, c *collect.Commit) error {
	if c.SinkAt.Kind != "" {
		kind, path := verbatim(c.SinkAt.Kind), verbatim(c.SinkAt.Path)
		t.queue(`INSERT INTO headway_sinks (connection, kind, path, position)
			SELECT id, sink_kind, sink_path, sink FROM headway_connections
			WHERE id = $1 AND sink IS NOT NULL AND sink_kind <> '' AND (sink_kind <> $2 OR sink_path <> $3)
			ON CONFLICT (connection, kind, path) DO UPDATE SET position = excluded.position`, h.connection, kind, path)
		t.queue(`DELETE FROM headway_sinks WHERE connection = $1 AND kind = $2 AND path = $3`, h.connection, kind, path)
		t.queue(`UPDATE headway_connections SET sink_kind = $2, sink_path = $3 WHERE id = $1`, h.connection, kind, path)
	}
	if c.Replays != nil {
		b, err := json.Marshal(c.Replays)
		if err != nil {
			return err
		}
		t.queue(`UPDATE headway_connections SET replays = $2 WHERE id = $1`, h.connection, string(b))
	}
	if c.Sink != nil {
		t.queue(`UPDATE headway_connections SET sink = $2 WHERE id = $1`, h.connection, []byte(c.Sink))
	}
	return nil
}

func (t *tx) progress(h held, p collect.Progress) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	t.queue(`UPDATE headway_runs SET progress = $2 WHERE n = $1`, h.run, string(b))
	return nil
}

// events appends to the run's trace and numbers the events from its last.
func (t *tx) events(h held, events []event.Event) error {
	if len(events) == 0 {
		return nil
	}
	var seq int64
	if err := t.row(`SELECT coalesce(max(seq), 0) FROM headway_events WHERE run = $1`, []any{h.run}, &seq); err != nil {
		return err
	}
	list, err := collect.EncodeEvents(seq, events)
	if err != nil {
		return err
	}
	for i, b := range list {
		t.queue(`INSERT INTO headway_events (run, seq, event) VALUES ($1, $2, $3)`, h.run, seq+int64(i)+1, string(b))
	}
	return nil
}

func (t *tx) pacing(h held, p *collect.Pacing) {
	if p != nil {
		t.queue(`UPDATE headway_connections SET pacing_version = $2, pacing_law = $3, pacing_interval_ms = $4,
			pacing_recorded_at = $5, pacing_state = $6 WHERE id = $1`,
			h.connection, int64(p.Version), verbatim(p.Law), p.IntervalMS, moment(p.RecordedAt), []byte(p.State))
		if parts := p.Parts(); parts != nil {
			t.queue(`UPDATE headway_connections SET pacing_parts = $2 WHERE id = $1`, h.connection, parts)
		}
	}
}

// reshaped writes the new shape of a stream and updates its known items accordingly.
func (t *tx) reshaped(h held, r collect.Reshaped) error {
	b, err := json.Marshal(r.Shape)
	if err != nil {
		return err
	}
	stream := verbatim(r.Shape.Stream)
	t.queue(`INSERT INTO headway_shapes (connection, stream, shape) VALUES ($1, $2, $3)
		ON CONFLICT (connection, stream) DO UPDATE SET shape = excluded.shape`, h.connection, stream, string(b))
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
			t.queue(move.query, h.connection, stream)
		}
	}
	return nil
}
