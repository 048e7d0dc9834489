package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
)

// Serve leases the next gaps in fair order. See [collect.Store]. Gaps are
// ordered by their last attempt, or by when they were first seen: a gap that was
// tried goes to the back, and later gaps do not overtake waiting ones.
func (s *Store) Serve(ctx context.Context, l collect.Lease, ask collect.ServeRequest) (page []collect.Gap, err error) {
	if err := ask.Check("store " + s.name); err != nil {
		return nil, err
	}
	err = s.holding(ctx, "serve gaps", l, func(t *tx, h held) (err error) {
		if page, err = t.due(h, ask); err != nil {
			return err
		}
		ids := make([]int64, len(page))
		for i, g := range page {
			ids[i] = g.ID
		}
		t.queue(`UPDATE headway_gaps SET status = 'leased', leased = $1 WHERE id = ANY ($2)`, l.Token, ids)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// due reads a page of due gaps, bounded by rows and by the bytes of their locators. The
// server does not send gaps past the bound, except that a page has at least one.
func (t *tx) due(h held, ask collect.ServeRequest) ([]collect.Gap, error) {
	streams := []string(nil) // NULL means all
	if ask.Streams != nil {
		streams = escaped(ask.Streams)
	}
	var without []string
	if ask.NoPressure {
		without = pressures
	}
	rows, err := t.pg.Query(t.ctx, `WITH due AS (SELECT g.id, g.rank, coalesce(octet_length(g.locator), 0) AS size FROM headway_gaps g
			WHERE g.connection = $1 AND g.status = 'pending' AND (g.retry_at IS NULL OR g.retry_at <= coalesce($2::timestamptz, '-infinity'))
				AND coalesce(g.tried, '-infinity') < coalesce($3::timestamptz, '-infinity') AND ($4::text[] IS NULL OR g.stream = ANY ($4))
				AND NOT coalesce(g.reason = ANY ($5::text[]), false)
			ORDER BY g.rank, g.id LIMIT $6),
		page AS (SELECT id, rank, row_number() OVER w AS n, sum(size) OVER w AS total FROM due WINDOW w AS (ORDER BY rank, id))
		SELECT `+gapColumns+` FROM page p JOIN headway_gaps g ON g.id = p.id WHERE p.n = 1 OR p.total <= $7 ORDER BY p.n`,
		h.connection, moment(ask.Now), moment(ask.Before), streams, without, ask.MaxRows, ask.MaxBytes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanGap)
}

// pressures are the names of the pressure reasons.
var pressures = collect.PressureReasons()

// Load reads the state that a run starts from. See [collect.Store]. Lanes are sorted
// by stream and kind. A stored law state that is not valid JSON is returned as nil. A
// sink position is returned unchecked.
func (s *Store) Load(ctx context.Context, connection string) (state collect.State, err error) {
	err = s.read(ctx, "load", func(t *session) error {
		state = collect.State{}
		var id int64
		var copies, cooldown []byte
		var p pacingRow
		err := t.pg.QueryRow(ctx, `SELECT id, sink, sink_kind, sink_path, replays, pressure, `+pacingColumns+` FROM headway_connections WHERE name = $1`,
			verbatim(connection)).Scan(append([]any{&id, (*[]byte)(&state.Sink), (*verbatim)(&state.SinkAt.Kind), (*verbatim)(&state.SinkAt.Path), &copies, &cooldown}, p.columns()...)...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		state.Pacing, state.Cooldown = p.pacing(), collect.DecodeCooldown(cooldown)
		if state.Replays, err = replays(copies); err != nil {
			return err
		}
		if state.Lanes, err = lanes(ctx, t, id); err != nil {
			return err
		}
		state.FormerSinks, err = formerSinks(ctx, t, id)
		return err
	})
	if err != nil {
		return collect.State{}, err
	}
	return state, nil
}

func lanes(ctx context.Context, t *session, connection int64) ([]collect.Lane, error) {
	rows, err := t.pg.Query(ctx, `SELECT `+laneColumns+` FROM headway_lanes WHERE connection = $1 ORDER BY stream, kind`, connection)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (collect.Lane, error) {
		var l laneRow
		err := row.Scan(l.columns()...)
		return l.lane(), err
	})
}

const laneColumns = `stream, kind, cursor, walking, done, since, high, start, watermark, pages, trail_anchor, trail_steps, trail_limit`

// laneRow is a row of laneColumns.
type laneRow struct {
	l                    collect.Lane
	anchor, steps, limit int64
}

func (r *laneRow) columns() []any {
	l := &r.l
	return []any{
		(*verbatim)(&l.Stream), (*verbatim)(&l.Kind), (*verbatim)(&l.Cursor), &l.Walking, &l.Done, (*verbatim)(&l.Since),
		(*verbatim)(&l.High), (*moment)(&l.Start), (*verbatim)(&l.Watermark), &l.Pages, &r.anchor, &r.steps, &r.limit,
	}
}

func (r *laneRow) lane() collect.Lane {
	l := r.l
	l.Trail = connector.Trail{Anchor: uint64(r.anchor), Steps: uint64(r.steps), Limit: uint64(r.limit)}
	return l
}

// formerSinks reads the former sinks of a connection, by kind and path.
func formerSinks(ctx context.Context, t *session, connection int64) ([]collect.FormerSink, error) {
	rows, err := t.pg.Query(ctx, `SELECT kind, path, position FROM headway_sinks WHERE connection = $1 ORDER BY kind, path`, connection)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s collect.FormerSink, err error) {
		err = row.Scan((*verbatim)(&s.Kind), (*verbatim)(&s.Path), (*[]byte)(&s.Position))
		return s, err
	})
}

// replays decodes the progress of copies into the connection's sinks.
func replays(text []byte) (list []collect.Replay, err error) {
	err = json.Unmarshal(text, &list)
	if len(list) == 0 {
		return nil, err
	}
	return list, err
}

const pacingColumns = `pacing_version, pacing_law, pacing_interval_ms, pacing_recorded_at, pacing_state, pacing_parts`

// pacingRow is a row of pacingColumns, which may be NULL or partly unreadable.
type pacingRow struct {
	version      sql.NullInt64
	interval     sql.NullFloat64
	law          verbatim
	recorded     moment
	state, parts []byte
}

func (p *pacingRow) columns() []any {
	return []any{&p.version, &p.law, &p.interval, &p.recorded, &p.state, &p.parts}
}

func (p *pacingRow) pacing() *collect.Pacing {
	if !p.version.Valid {
		return nil
	}
	found := &collect.Pacing{
		Version: int(p.version.Int64), Law: string(p.law), IntervalMS: p.interval.Float64, RecordedAt: time.Time(p.recorded),
	}
	if json.Valid(p.state) {
		found.State = p.state
	}
	found.SetParts(p.parts)
	return found
}

// Known returns the known items of a stream with the given keys. See [collect.Store].
func (s *Store) Known(ctx context.Context, connection, stream string, keys []string) (known map[string]collect.KnownItem, err error) {
	if len(keys) == 0 {
		return map[string]collect.KnownItem{}, nil
	}
	err = s.read(ctx, "read known items", func(t *session) error {
		known = make(map[string]collect.KnownItem, len(keys))
		rows, err := t.pg.Query(ctx, `SELECT i.key, i.fingerprint, i.children, i.owed
			FROM headway_connections c JOIN headway_streams s ON s.connection = c.id JOIN headway_items i ON i.stream = s.id
			WHERE c.name = $1 AND s.name = $2 AND i.key = ANY ($3)`, verbatim(connection), verbatim(stream), escaped(keys))
		if err != nil {
			return err
		}
		var it collect.KnownItem
		_, err = pgx.ForEachRow(rows, []any{(*verbatim)(&it.Key), (*verbatim)(&it.Fingerprint), &it.Children, &it.Owed}, func() error {
			known[it.Key] = it
			it.Children = nil
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return known, nil
}

// Owed returns the keys of items whose details a backlog owes, in order. See [collect.Store].
func (s *Store) Owed(ctx context.Context, connection, stream string, limit int) (keys []string, err error) {
	err = s.read(ctx, "read owed items", func(t *session) error {
		rows, err := t.pg.Query(ctx, `SELECT i.key FROM headway_connections c JOIN headway_streams s ON s.connection = c.id
			JOIN headway_items i ON i.stream = s.id AND i.owed WHERE c.name = $1 AND s.name = $2 ORDER BY i.key LIMIT $3`,
			verbatim(connection), verbatim(stream), bound(limit))
		if err != nil {
			return err
		}
		keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (key string, err error) {
			err = row.Scan((*verbatim)(&key))
			return key, err
		})
		return err
	})
	return keys, err
}

// actions has the statement of each operator's action, and the statuses that it applies to.
var actions = map[collect.GapAction]struct{ do, from string }{
	collect.GapRetry: {`UPDATE headway_gaps SET status = 'pending', leased = 0, retry_at = NULL, tried = NULL, rank = '-infinity'`,
		`'pending', 'leased'`},
	collect.GapQuarantine: {`UPDATE headway_gaps SET status = 'terminal', leased = 0`, `'pending', 'leased'`},
	collect.GapRelease:    {`UPDATE headway_gaps SET status = 'pending', attempts = 0, retry_at = NULL, tried = NULL, rank = '-infinity'`, `'terminal'`},
	collect.GapDrop:       {`DELETE FROM headway_gaps`, `'pending', 'leased', 'terminal'`},
}

// Act applies an operator's action. See [collect.Store].
func (s *Store) Act(ctx context.Context, a collect.GapAction, f collect.GapFilter, ids []int64) (n int64, err error) {
	move, ok := actions[a]
	if !ok {
		return 0, fmt.Errorf("store %s: gaps: there is no action %q", s.name, a)
	}
	err = s.write(ctx, string(a)+" gaps", func(t *tx) error {
		// Lock the rows of connections first, as every write does, to avoid deadlocks.
		if _, err := t.exec(`SELECT 1 FROM headway_connections WHERE $1 IN ('', name) ORDER BY id FOR UPDATE`, verbatim(f.Connection)); err != nil {
			return err
		}
		if a == collect.GapRetry {
			// A retry by an operator does not wait for the cooldown.
			t.queue(`UPDATE headway_connections SET pressure = NULL WHERE $1 IN ('', name)`, verbatim(f.Connection))
		}
		which, args := `$1`, []any{ids}
		if len(ids) == 0 {
			f.Limit, f.AfterID, f.Status = 0, 0, ""
			query, of := gapQuery(`g.id`, f)
			which, args = `ARRAY(`+query+`)`, of
		}
		where := ` WHERE status IN (` + move.from + `) AND id = ANY (` + which + `)`
		if a == collect.GapDrop {
			// The items of backlog gaps are not owed any more.
			t.queue(`UPDATE headway_items SET owed = false WHERE owed AND stream IN (
				SELECT s.id FROM headway_streams s JOIN (SELECT connection, parent, backlog FROM headway_gaps`+where+`) g
				ON g.connection = s.connection AND g.parent = s.name AND g.backlog)`, args...)
		}
		n, err = t.exec(move.do+where, args...)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
