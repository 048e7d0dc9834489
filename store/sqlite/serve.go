package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/internal/sqlitefile"
)

// Serve leases the next gaps in fair order. See [collect.Store]. The order is by the last
// attempt or, before one, by FirstSeen: a gap that was tried goes to the end, and later gaps
// never overtake it.
func (s *Store) Serve(ctx context.Context, l collect.Lease, ask collect.ServeRequest) (page []collect.Gap, err error) {
	if err := ask.Check("store " + s.path); err != nil {
		return nil, err
	}
	err = s.holding(ctx, "serve gaps", l, func(t *tx, h held) (err error) {
		if page, err = t.due(h, ask); err != nil {
			return err
		}
		for _, g := range page {
			if _, err := t.exec(`UPDATE gaps SET status = ?, leased = ? WHERE id = ?`,
				string(collect.GapLeased), l.Token, g.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return page, err
}

// due reads a page of gaps and stops at the maximum number of bytes or rows.
func (t *tx) due(h held, ask collect.ServeRequest) (page []collect.Gap, err error) {
	where, args := "", []any{h.connection, string(collect.GapPending), instant(ask.Now), instant(ask.Before)}
	if ask.NoPressure {
		where = `AND g.reason NOT IN (` + pressures + `)`
	}
	if ask.Streams != nil {
		where += ` AND g.stream IN (NULL` + strings.Repeat(", ?", len(ask.Streams)) + `)`
		for _, s := range ask.Streams {
			args = append(args, s)
		}
	}
	rows, err := t.w.conn.QueryContext(t.ctx, `SELECT `+gapColumns+` FROM gaps g
		WHERE g.connection = ? AND g.status = ? AND g.retry_at <= ? AND g.tried < ? `+where+`
		ORDER BY g.rank, g.id LIMIT ?`,
		append(args, ask.MaxRows)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for size := int64(0); rows.Next(); {
		g, err := scanGap(rows)
		if err != nil {
			return nil, err
		}
		if size += int64(len(g.Locator)); len(page) > 0 && size > ask.MaxBytes {
			break
		}
		page = append(page, g)
	}
	return page, rows.Err()
}

// pressures is a list of the pressure reasons in SQL.
var pressures = "'" + strings.Join(collect.PressureReasons(), "', '") + "'"

// returned makes a served gap pending again.
func (t *tx) returned(h held, key collect.GapKey) error {
	_, err := t.exec(`UPDATE gaps SET status = ?, leased = 0 WHERE connection = ? AND stream = ? AND key = ? AND status = ?`,
		string(collect.GapPending), h.connection, key.Stream, key.Key, string(collect.GapLeased))
	return err
}

// Load returns the stored state of a connection. See [collect.Store]. Lanes are sorted by
// stream and kind. A stored state of a control law that is not JSON becomes nil. A sink's
// position is returned unchecked.
func (s *Store) Load(ctx context.Context, connection string) (collect.State, error) {
	var state collect.State
	err := s.read(ctx, "load", func(t *sql.Tx) error {
		var id int64
		var sink []byte
		var pressure []byte
		var copies string
		var p pacingRow
		err := t.QueryRowContext(ctx, `SELECT id, sink, sink_kind, sink_path, replays, pressure, `+pacingColumns+` FROM connections WHERE name = ?`, connection).
			Scan(append([]any{&id, &sink, &state.SinkAt.Kind, &state.SinkAt.Path, &copies, &pressure}, p.columns()...)...)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		state.Sink, state.Pacing, state.Cooldown = sink, p.pacing(), collect.DecodeCooldown(pressure)
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

// read runs f in a read transaction.
func (r *Reader) read(ctx context.Context, what string, f func(*sql.Tx) error) error {
	t, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return explain(r.path, what, err)
	}
	defer func() { _ = t.Rollback() }() // nothing was written
	return explain(r.path, what, f(t))
}

func lanes(ctx context.Context, t *sql.Tx, connection int64) ([]collect.Lane, error) {
	return sqlitefile.List(ctx, t, func(rows *sql.Rows) (collect.Lane, error) { return scanLane(rows) },
		`SELECT `+laneColumns+` FROM lanes l WHERE l.connection = ? ORDER BY l.stream, l.kind`, connection)
}

const laneColumns = `l.stream, l.kind, l.cursor, l.walking, l.done, l.since, l.high, l.start, l.watermark,
	l.pages, l.trail_anchor, l.trail_steps, l.trail_limit`

// scanLane scans a row that has laneColumns after the given columns.
func scanLane(rows *sql.Rows, before ...any) (l collect.Lane, err error) {
	var start string
	var anchor, steps, limit int64
	err = rows.Scan(append(before, &l.Stream, &l.Kind, &l.Cursor, &l.Walking, &l.Done, &l.Since, &l.High, &start,
		&l.Watermark, &l.Pages, &anchor, &steps, &limit)...)
	l.Start = parseInstant(start)
	l.Trail = connector.Trail{Anchor: uint64(anchor), Steps: uint64(steps), Limit: uint64(limit)}
	return l, err
}

const pacingColumns = `pacing_version, pacing_law, pacing_interval_ms, pacing_recorded_at, pacing_state, pacing_parts`

// pacingRow is a stored rate, which may be missing or partly unreadable.
type pacingRow struct {
	version       sql.NullInt64
	interval      sql.NullFloat64
	law, recorded sql.NullString
	state, parts  []byte
}

func (p *pacingRow) columns() []any {
	return []any{&p.version, &p.law, &p.interval, &p.recorded, &p.state, &p.parts}
}

func (p *pacingRow) pacing() *collect.Pacing {
	if !p.version.Valid {
		return nil
	}
	if !json.Valid(p.state) {
		p.state = nil
	}
	c := &collect.Pacing{
		Version: int(p.version.Int64), Law: p.law.String, IntervalMS: p.interval.Float64,
		RecordedAt: parseInstant(p.recorded.String), State: p.state,
	}
	c.SetParts(p.parts)
	return c
}

// chunk is the number of keys of one query.
const chunk = 100

var selectKnown = `SELECT key, fingerprint, children, owed FROM items WHERE stream = ? AND key IN (?` +
	strings.Repeat(", ?", chunk-1) + `)`

// Known reads the items of a stream by key. See [collect.Store].
func (s *Store) Known(ctx context.Context, connection, stream string, keys []string) (map[string]collect.KnownItem, error) {
	known := make(map[string]collect.KnownItem, len(keys))
	if len(keys) == 0 {
		return known, nil
	}
	err := s.read(ctx, "read known items", func(t *sql.Tx) error {
		var id int64
		err := t.QueryRowContext(ctx, `SELECT s.id FROM streams s JOIN connections c ON c.id = s.connection
			WHERE c.name = ? AND s.name = ?`, connection, stream).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		for part := range slices.Chunk(keys, chunk) {
			if err := s.knownItems(ctx, t, id, part, known); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return known, nil
}

// knownItems reads at most chunk keys. It repeats the last key to fill the query.
func (s *Store) knownItems(ctx context.Context, t *sql.Tx, stream int64, keys []string, into map[string]collect.KnownItem) (err error) {
	args := make([]any, 0, chunk+1)
	args = append(args, stream)
	for i := range chunk {
		args = append(args, keys[min(i, len(keys)-1)])
	}
	rows, err := t.StmtContext(ctx, s.known).QueryContext(ctx, args...) //nolint:sqlclosecheck // the transaction closes its statements
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var it collect.KnownItem
		if err := rows.Scan(&it.Key, &it.Fingerprint, &it.Children, &it.Owed); err != nil {
			return err
		}
		into[it.Key] = it
	}
	return rows.Err()
}

// Owed returns the keys of items that are marked as owed, sorted. See [collect.Store].
func (s *Store) Owed(ctx context.Context, connection, stream string, limit int) (keys []string, err error) {
	err = s.read(ctx, "read owed items", func(t *sql.Tx) error {
		keys, err = sqlitefile.List(ctx, t, sqlitefile.Column[string], `SELECT i.key FROM connections c JOIN streams s ON s.connection = c.id
			JOIN items i ON i.stream = s.id AND i.owed = 1 WHERE c.name = ? AND s.name = ? ORDER BY i.key LIMIT ?`,
			connection, stream, bound(limit))
		return err
	})
	return keys, err
}

// reshaped writes a stream's new shape and applies the changes to its known items.
func (t *tx) reshaped(h held, r collect.Reshaped) error {
	b, err := json.Marshal(r.Shape)
	if err != nil {
		return err
	}
	stream := r.Shape.Stream
	if _, err := t.exec(`INSERT INTO headway_shapes (connection, stream, shape) VALUES (?1, ?2, ?3)
		ON CONFLICT (connection, stream) DO UPDATE SET shape = ?3`, h.connection, stream, string(b)); err != nil {
		return err
	}
	const items = ` WHERE stream = (SELECT id FROM streams WHERE connection = ? AND name = ?)`
	for _, move := range []struct {
		when  bool
		query string
	}{
		{r.ForgetItems, `DELETE FROM items` + items},
		{r.ForgetItems, `DELETE FROM streams WHERE connection = ? AND name = ?`},
		{r.ForgetItems, `DELETE FROM gaps WHERE connection = ? AND parent = ?`},
		{r.ForgetFingerprints, `UPDATE items SET fingerprint = ''` + items},
		{r.ForgetChildren, `UPDATE items SET children = NULL` + items},
		{r.OweDetails, `UPDATE items SET owed = 1` + items},
	} {
		if !move.when {
			continue
		}
		if _, err := t.exec(move.query, h.connection, stream); err != nil {
			return err
		}
	}
	return nil
}
