package sqlstore

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// View says how one database shows the state at an instant.
type View struct {
	// Now is the instant, by the clock by which leases expire, and Ahead how far that is
	// ahead of the caller's.
	Now   time.Time
	Ahead time.Duration
	// Alive is a condition on a row c of headway_connections that a living process may
	// hold its lease; $1 is Now. Lives is another one.
	Alive string
	Lives func(connection, token int64, expires time.Time) bool
}

// Connections lists every connection, by name.
func Connections(t Snapshot, v View) ([]collect.ConnectionStatus, error) {
	var list []collect.ConnectionStatus
	var ids []int64
	var id, token int64
	var c collect.ConnectionStatus
	var alive bool
	var holder string
	var expires time.Time
	var copies, cooldown []byte
	var p pacingRow
	dest := append([]any{&id, &token, &c.Name, &alive, &holder, &expires, &c.SinkKind, &c.SinkPath, &copies, &cooldown}, p.columns()...)
	if err := t.Each(dest, func() error {
		kept, err := replays(copies)
		if err != nil {
			return err
		}
		one := collect.ConnectionStatus{
			Name: c.Name, SinkKind: c.SinkKind, SinkPath: c.SinkPath, Items: map[string]int64{}, Owed: map[string]int64{},
			Pacing: p.pacing(), Cooldown: collect.DecodeCooldown(cooldown), Replays: collect.ReplaysOnShow(kept),
		}
		if alive && v.Lives(id, token, expires) {
			one.Holder = holder
		}
		list, ids = append(list, one), append(ids, id)
		return nil
	}, `SELECT c.id, c.token, c.name, c.run IS NOT NULL AND `+v.Alive+`, c.holder, c.expires, c.sink_kind, c.sink_path, c.replays, c.pressure, `+pacingColumns+`
		FROM headway_connections c ORDER BY c.name`, v.Now); err != nil {
		return nil, err
	}
	of := make(map[int64]*collect.ConnectionStatus, len(ids))
	for i, id := range ids {
		of[id] = &list[i]
	}
	if err := describe(t, v, of); err != nil {
		return nil, err
	}
	return list, nil
}

// describe adds the data of other tables to the connections, with one statement for each
// table: with hundreds of connections, one statement for each connection would be slow.
func describe(t Snapshot, v View, of map[int64]*collect.ConnectionStatus) error {
	var id, n int64
	var name string
	var failed error
	each := func(into []any, add func(c *collect.ConnectionStatus), query string) {
		if failed == nil {
			failed = t.Each(append([]any{&id}, into...), func() error {
				if c := of[id]; c != nil {
					add(c)
				}
				return nil
			}, query)
		}
	}
	var lane laneRow
	each(lane.columns(), func(c *collect.ConnectionStatus) { c.Lanes = append(c.Lanes, lane.lane()) },
		`SELECT connection, `+laneColumns+` FROM headway_lanes ORDER BY stream, kind`)
	var text []byte
	each([]any{&text}, func(c *collect.ConnectionStatus) {
		var one collect.StreamShape
		if json.Unmarshal(text, &one) == nil { // an unreadable one is left out
			c.Shapes = append(c.Shapes, one)
		}
	}, `SELECT connection, shape FROM headway_shapes ORDER BY stream`)
	var at collect.Location
	each([]any{&at.Kind, &at.Path}, func(c *collect.ConnectionStatus) { c.FormerSinks = append(c.FormerSinks, at) },
		`SELECT connection, kind, path FROM headway_sinks ORDER BY kind, path`)
	named := []any{&name, &n}
	each(named, func(c *collect.ConnectionStatus) { c.Items[name] = n }, `SELECT connection, name, items FROM headway_streams`)
	// SQLite reads the tables of a CROSS JOIN in this order.
	const owed = `SELECT c.id, g.reason, sum(` + gapItems + `)::bigint FROM headway_connections c CROSS JOIN headway_gaps g WHERE g.connection = c.id AND g.status IN `
	each(named, func(c *collect.ConnectionStatus) { c.Owed[name] = n },
		owed+`('pending', 'leased') GROUP BY c.id, g.reason HAVING sum(`+gapItems+`) > 0`)
	each(named, func(c *collect.ConnectionStatus) { c.Quarantined += n }, owed+`('terminal') GROUP BY c.id, g.reason`)
	if failed != nil {
		return failed
	}
	last, err := runs(t, v, ` WHERE r.n = (SELECT n FROM headway_runs WHERE connection = c.id AND kind = '' ORDER BY n DESC LIMIT 1)`, 0)
	byName := make(map[string]*collect.Run, len(last))
	for i := range last {
		byName[last[i].Connection] = &last[i]
	}
	for _, c := range of {
		c.LastRun = byName[c.Name]
	}
	return err
}

// Runs lists at most limit runs of a connection, or of all for "", newest first; 0 means all.
// A run that is stored as running but has no live lease is shown as abandoned, with the end
// of its lease as its end.
func Runs(t Snapshot, v View, connection string, limit int) ([]collect.Run, error) {
	if connection == "" {
		return runs(t, v, "", limit)
	}
	return runs(t, v, ` WHERE c.name = $2`, limit, connection)
}

func runs(t Snapshot, v View, where string, limit int, args ...any) (list []collect.Run, err error) {
	var u collect.Run
	var why string
	var progress []byte
	var alive bool
	var id, token int64
	var expires time.Time
	dest := []any{
		&u.ID, &u.Connection, &u.Holder, (*string)(&u.State), &why, &u.Started, &u.Ended, &u.RetryAt, &u.Error, &progress, (*string)(&u.Kind),
		&alive, &id, &token, &expires,
	}
	err = t.Each(dest, func() error {
		run := u
		run.Reason = parseReason(why)
		if json.Unmarshal(progress, &run.Progress) != nil {
			run.Progress = collect.Progress{}
		}
		if run.State == collect.RunRunning && (!alive || !v.Lives(id, token, expires)) {
			run.State, run.Reason = collect.RunAbandoned, reason.LeaseLost
			if !v.Now.Before(expires) && !expires.IsZero() {
				run.Ended = expires.Add(-v.Ahead) // before that the time of its death is unknown
			}
		}
		list = append(list, run)
		return nil
	}, `SELECT r.id, c.name, r.holder, r.state, r.reason, r.started, r.ended, r.retry_at, r.error, r.progress, r.kind,
		coalesce(c.run = r.id, false) AND `+v.Alive+`, c.id, c.token, c.expires
		FROM headway_runs r JOIN headway_connections c ON c.id = r.connection`+where+` ORDER BY r.n DESC`+atMost(limit), append([]any{v.Now}, args...)...)
	return list, err
}

// atMost returns the end of a query for at most limit rows, or all for 0.
func atMost(limit int) string {
	if limit <= 0 {
		return ""
	}
	return fmt.Sprintf(" LIMIT %d", limit)
}

// Gaps lists gaps by id, that is, in the order in which they were first seen. hint precedes
// columns in conditions for which no index is to be used.
func Gaps(t Snapshot, f collect.GapFilter, hint string) (list []collect.Gap, err error) {
	query, args := GapQuery(GapColumns, f, hint)
	var row GapRow
	err = t.Each(row.Columns(), func() error {
		list = append(list, row.Gap())
		return nil
	}, query, args...)
	return list, err
}

// GapQuery returns a query for columns of the gaps that match a filter.
func GapQuery(columns string, f collect.GapFilter, hint string) (query string, args []any) {
	where, args := []string{`g.id > $1`}, []any{f.AfterID}
	and := func(condition string, arg any) {
		args = append(args, arg)
		where = append(where, fmt.Sprintf(condition, len(args)))
	}
	if f.Connection != "" {
		// A page must not need a sort of all gaps. With a status there is an index in the
		// order of ids; without one the table's own order is used.
		column := hint + `g.connection`
		if f.Status != "" {
			column = `g.connection`
		}
		and(column+` = (SELECT id FROM headway_connections WHERE name = $%d)`, f.Connection)
	}
	if f.Stream != "" {
		and(hint+`g.stream = $%d`, f.Stream)
	}
	if f.Backlog {
		where = append(where, `g.backlog`)
	}
	if f.Status != "" {
		and(`g.status = $%d`, string(f.Status))
	}
	if f.Reason != reason.None {
		and(`g.reason = $%d`, f.Reason.String())
	}
	return `SELECT ` + columns + ` FROM headway_gaps g WHERE ` + strings.Join(where, " AND ") + ` ORDER BY g.id` + atMost(f.Limit), args
}

// GapColumns are the columns of a [GapRow], of a row g of headway_gaps.
const GapColumns = `g.id, (SELECT name FROM headway_connections WHERE id = g.connection), g.stream, g.key, g.parent, g.locator,
	g.reason, g.status, g.attempts, g.first_seen, g.last_seen, g.retry_at, g.last_error, g.backlog, g.since, g.cursor,
	CASE WHEN g.backlog THEN ` + gapItems + ` ELSE 0 END`

// gapItems is the number of items for which a gap stands: for a backlog, all owed items.
const gapItems = `CASE WHEN g.backlog THEN (SELECT count(*) FROM headway_items i JOIN headway_streams s ON s.id = i.stream
	WHERE s.connection = g.connection AND s.name = g.parent AND i.owed = true) ELSE 1 END`

// GapRow is a row of [GapColumns].
type GapRow struct {
	g   collect.Gap
	why string
}

// Columns returns where to scan a row.
func (r *GapRow) Columns() []any {
	g := &r.g
	return []any{
		&g.ID, &g.Connection, &g.Stream, &g.Key, &g.Parent, &g.Locator, &r.why, (*string)(&g.Status), &g.Attempts,
		&g.FirstSeen, &g.LastSeen, &g.RetryAt, &g.LastError, &g.Backlog, &g.Since, &g.Cursor, &g.Items,
	}
}

// Gap returns the gap of the row that was scanned last.
func (r *GapRow) Gap() collect.Gap {
	g := r.g
	g.Reason = parseReason(r.why)
	r.g.Locator = nil // the next row has another one
	return g
}

// parseReason parses a stored reason. An unknown one becomes internal, so that it does not
// count as none.
func parseReason(name string) reason.Reason {
	if r, ok := reason.Parse(name); ok {
		return r
	}
	return reason.Internal
}

// Events lists the events of a run in order. An unreadable event is left out.
func Events(t Snapshot, run string) (list []event.Event, err error) {
	var text []byte
	err = t.Each([]any{&text}, func() error {
		var e event.Event
		if json.Unmarshal(text, &e) == nil {
			list = append(list, e)
		}
		return nil
	}, `SELECT e.event FROM headway_events e JOIN headway_runs r ON r.n = e.run WHERE r.id = $1 ORDER BY e.seq`, run)
	return list, err
}

// Load returns the stored state of a connection. Lanes are sorted by stream and kind. A
// stored state of a control law that is not JSON becomes nil. A sink's position is returned
// unchecked.
func Load(t Snapshot, connection string) (state collect.State, err error) {
	var id int64
	var sink, copies, cooldown []byte
	var p pacingRow
	err = t.Row(`SELECT id, sink, sink_kind, sink_path, replays, pressure, `+pacingColumns+` FROM headway_connections WHERE name = $1`, []any{connection},
		append([]any{&id, &sink, &state.SinkAt.Kind, &state.SinkAt.Path, &copies, &cooldown}, p.columns()...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return collect.State{}, nil
	}
	if err != nil {
		return collect.State{}, err
	}
	state.Sink, state.Pacing, state.Cooldown = sink, p.pacing(), collect.DecodeCooldown(cooldown)
	if state.Replays, err = replays(copies); err != nil {
		return state, err
	}
	var lane laneRow
	if err := t.Each(lane.columns(), func() error {
		state.Lanes = append(state.Lanes, lane.lane())
		return nil
	}, `SELECT `+laneColumns+` FROM headway_lanes WHERE connection = $1 ORDER BY stream, kind`, id); err != nil {
		return state, err
	}
	var former collect.FormerSink
	var position []byte
	err = t.Each([]any{&former.Kind, &former.Path, &position}, func() error {
		former.Position = bytes.Clone(position)
		state.FormerSinks = append(state.FormerSinks, former)
		return nil
	}, `SELECT kind, path, position FROM headway_sinks WHERE connection = $1 ORDER BY kind, path`, id)
	return state, err
}

// Owed returns the keys of items that are marked as owed, sorted, at most limit; 0 means all.
func Owed(t Snapshot, connection, stream string, limit int) (keys []string, err error) {
	var key string
	err = t.Each([]any{&key}, func() error {
		keys = append(keys, key)
		return nil
	}, `SELECT i.key FROM headway_connections c JOIN headway_streams s ON s.connection = c.id
		JOIN headway_items i ON i.stream = s.id AND i.owed = true WHERE c.name = $1 AND s.name = $2 ORDER BY i.key`+atMost(limit), connection, stream)
	return keys, err
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
		&l.Stream, (*string)(&l.Kind), &l.Cursor, &l.Walking, &l.Done, &l.Since,
		&l.High, &l.Start, &l.Watermark, &l.Pages, &r.anchor, &r.steps, &r.limit,
	}
}

func (r *laneRow) lane() collect.Lane {
	l := r.l
	l.Trail = connector.Trail{Anchor: uint64(r.anchor), Steps: uint64(r.steps), Limit: uint64(r.limit)}
	return l
}

// replays decodes the progress of copies into the connection's sinks.
func replays(text []byte) (list []collect.Replay, err error) {
	err = json.Unmarshal(text, &list)
	if len(list) == 0 {
		return nil, err
	}
	return list, err
}

const pacingColumns = `pacing_version, coalesce(pacing_law, ''), pacing_interval_ms, pacing_recorded_at, pacing_state, pacing_parts`

// pacingRow is a row of pacingColumns, which may be NULL or partly unreadable.
type pacingRow struct {
	version      sql.NullInt64
	interval     sql.NullFloat64
	law          string
	recorded     time.Time
	state, parts []byte
}

func (p *pacingRow) columns() []any {
	return []any{&p.version, &p.law, &p.interval, &p.recorded, &p.state, &p.parts}
}

func (p *pacingRow) pacing() *collect.Pacing {
	if !p.version.Valid {
		return nil
	}
	found := &collect.Pacing{Version: int(p.version.Int64), Law: p.law, IntervalMS: p.interval.Float64, RecordedAt: p.recorded}
	if json.Valid(p.state) {
		found.State = p.state
	}
	found.SetParts(p.parts)
	p.state, p.parts = nil, nil // the next row has others
	return found
}
