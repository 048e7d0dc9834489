package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// Connections lists every connection, by name. See [collect.Reader].
func (r *Reader) Connections(ctx context.Context) (list []collect.ConnectionStatus, err error) {
	err = r.read(ctx, "list connections", func(t *session) error {
		list = nil
		ahead, err := r.clock.compare(ctx, t)
		if err != nil {
			return err
		}
		now := time.Now().Add(ahead)
		ids, err := connections(ctx, t, now, &list)
		if err != nil {
			return err
		}
		of := make(map[int64]*collect.ConnectionStatus, len(ids))
		for i, id := range ids {
			of[id] = &list[i]
		}
		return describe(ctx, t, now, ahead, of)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// connections reads the rows of headway_connections and returns their ids.
func connections(ctx context.Context, t *session, now time.Time, into *[]collect.ConnectionStatus) ([]int64, error) {
	rows, err := t.pg.Query(ctx, `SELECT c.id, c.name, `+isAlive+`, c.holder, c.sink_kind, c.sink_path, c.replays, c.pressure, `+pacingColumns+`
		FROM headway_connections c ORDER BY c.name`, moment(now))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (id int64, err error) {
		c := collect.ConnectionStatus{Items: map[string]int64{}, Owed: map[string]int64{}}
		var alive bool
		var holder verbatim
		var copies, cooldown []byte
		var p pacingRow
		if err := row.Scan(append([]any{&id, (*verbatim)(&c.Name), &alive, &holder, (*verbatim)(&c.SinkKind), (*verbatim)(&c.SinkPath), &copies, &cooldown},
			p.columns()...)...); err != nil {
			return id, err
		}
		list, err := replays(copies)
		c.Pacing, c.Cooldown, c.Replays = p.pacing(), collect.DecodeCooldown(cooldown), collect.ReplaysOnShow(list)
		if alive {
			c.Holder = string(holder)
		}
		*into = append(*into, c)
		return id, err
	})
}

// describe adds the data of other tables, with one statement and round trip for each
// table.
func describe(ctx context.Context, t *session, now time.Time, ahead time.Duration, of map[int64]*collect.ConnectionStatus) error {
	var id, n int64
	var name string
	var failed error
	each := func(into []any, add func(c *collect.ConnectionStatus), query string) {
		if failed != nil {
			return
		}
		var rows pgx.Rows
		if rows, failed = t.pg.Query(ctx, query); failed != nil {
			return
		}
		_, failed = pgx.ForEachRow(rows, append([]any{&id}, into...), func() error {
			if c := of[id]; c != nil {
				add(c)
			}
			return nil
		})
	}
	var lane laneRow
	each(lane.columns(), func(c *collect.ConnectionStatus) { c.Lanes = append(c.Lanes, lane.lane()) },
		`SELECT connection, `+laneColumns+` FROM headway_lanes ORDER BY stream, kind`)
	var text []byte
	each([]any{&text}, func(c *collect.ConnectionStatus) {
		var one collect.StreamShape
		if json.Unmarshal(text, &one) == nil { // otherwise it is left out, as if it did not exist
			c.Shapes = append(c.Shapes, one)
		}
	}, `SELECT connection, shape FROM headway_shapes ORDER BY stream`)
	var at collect.Location
	each([]any{(*verbatim)(&at.Kind), (*verbatim)(&at.Path)}, func(c *collect.ConnectionStatus) { c.FormerSinks = append(c.FormerSinks, at) },
		`SELECT connection, kind, path FROM headway_sinks ORDER BY kind, path`)
	named := []any{(*verbatim)(&name), &n}
	each(named, func(c *collect.ConnectionStatus) { c.Items[name] = n }, `SELECT connection, name, items FROM headway_streams`)
	each(named, func(c *collect.ConnectionStatus) { c.Owed[name] = n }, `SELECT g.connection, g.reason, sum(`+gapItems+`)::bigint FROM headway_gaps g
		WHERE g.status IN ('pending', 'leased') GROUP BY g.connection, g.reason HAVING sum(`+gapItems+`) > 0`)
	each([]any{&n}, func(c *collect.ConnectionStatus) { c.Quarantined = n }, `SELECT g.connection, sum(`+gapItems+`)::bigint FROM headway_gaps g
		WHERE g.status = 'terminal' GROUP BY g.connection`)
	if failed != nil {
		return failed
	}
	last, err := runs(ctx, t, now, ahead, ` WHERE r.n = (SELECT max(n) FROM headway_runs WHERE connection = c.id AND kind = '')`, 0)
	byName := make(map[string]*collect.Run, len(last))
	for i := range last {
		byName[last[i].Connection] = &last[i]
	}
	for _, c := range of {
		c.LastRun = byName[c.Name]
	}
	return err
}

// Runs lists the newest runs first. See [collect.Reader]. A run that is
// stored as running but whose lease is not alive is returned as abandoned, ended
// when its lease expired.
func (r *Reader) Runs(ctx context.Context, connection string, limit int) (list []collect.Run, err error) {
	err = r.read(ctx, "list runs", func(t *session) error {
		ahead, err := r.clock.compare(ctx, t)
		if err == nil {
			where, args := "", []any(nil)
			if connection != "" {
				where, args = ` WHERE c.name = $3`, []any{verbatim(connection)}
			}
			list, err = runs(ctx, t, time.Now().Add(ahead), ahead, where, limit, args...)
		}
		return err
	})
	return list, err
}

// runs reads runs. It converts expiries to this machine's clock.
func runs(ctx context.Context, t *session, now time.Time, ahead time.Duration, where string, limit int, more ...any) ([]collect.Run, error) {
	query := `SELECT r.id, c.name, r.holder, r.state, r.reason, r.started, r.ended, r.retry_at, r.error, r.progress, r.kind,
		coalesce(c.run = r.id, false) AND ` + isAlive + `, c.expires FROM headway_runs r JOIN headway_connections c ON c.id = r.connection`
	rows, err := t.pg.Query(ctx, query+where+` ORDER BY r.n DESC LIMIT $2`, append([]any{moment(now), bound(limit)}, more...)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (u collect.Run, err error) {
		var why string
		var progress []byte
		var alive bool
		var expires moment
		if err := row.Scan((*verbatim)(&u.ID), (*verbatim)(&u.Connection), (*verbatim)(&u.Holder), (*verbatim)(&u.State), &why, (*moment)(&u.Started), (*moment)(&u.Ended),
			(*moment)(&u.RetryAt), (*verbatim)(&u.Error), &progress, (*verbatim)(&u.Kind), &alive, &expires); err != nil {
			return u, err
		}
		u.Reason = parseReason(why)
		if json.Unmarshal(progress, &u.Progress) != nil {
			u.Progress = collect.Progress{}
		}
		if u.State == collect.RunRunning && !alive {
			u.State, u.Reason = collect.RunAbandoned, reason.LeaseLost
			if until := time.Time(expires); !now.Before(until) && !until.IsZero() {
				u.Ended = until.Add(-ahead) // before that the time of its death is unknown
			}
		}
		return u, nil
	})
}

// Gaps returns gaps by id, which is the order in which they were first seen.
// See [collect.Reader].
func (r *Reader) Gaps(ctx context.Context, f collect.GapFilter) (list []collect.Gap, err error) {
	err = r.read(ctx, "list gaps", func(t *session) error {
		query, args := gapQuery(gapColumns, f)
		rows, err := t.pg.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanGap)
		return err
	})
	return list, err
}

// gapQuery returns a query for columns of the gaps that match a filter.
func gapQuery(columns string, f collect.GapFilter) (query string, args []any) {
	where, args := []string{`g.id > $1`}, []any{f.AfterID}
	and := func(condition string, arg any) {
		args = append(args, arg)
		where = append(where, fmt.Sprintf(condition, len(args)))
	}
	if f.Connection != "" {
		and(`g.connection = (SELECT id FROM headway_connections WHERE name = $%d)`, verbatim(f.Connection))
	}
	if f.Stream != "" {
		and(`g.stream = $%d`, verbatim(f.Stream))
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
	args = append(args, bound(f.Limit))
	return fmt.Sprintf(`SELECT %s FROM headway_gaps g WHERE %s ORDER BY g.id LIMIT $%d`, columns, strings.Join(where, " AND "), len(args)), args
}

// Events returns a run's trace in order, numbered from 1. See [collect.Reader].
// Unreadable events are left out.
func (r *Reader) Events(ctx context.Context, run string) (list []event.Event, err error) {
	err = r.read(ctx, "list events", func(t *session) error {
		list, err = readable[event.Event](ctx, t, `SELECT e.event FROM headway_events e JOIN headway_runs r ON r.n = e.run WHERE r.id = $1 ORDER BY e.seq`, verbatim(run))
		return err
	})
	return list, err
}

// readable decodes the JSON column of a query. Unreadable values are left out.
func readable[T any](ctx context.Context, t *session, query string, args ...any) (list []T, err error) {
	rows, err := t.pg.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	var text []byte
	_, err = pgx.ForEachRow(rows, []any{&text}, func() error {
		var v T
		if json.Unmarshal(text, &v) == nil {
			list = append(list, v)
		}
		return nil
	})
	return list, err
}

// bound converts a limit to PostgreSQL's, where NULL means no limit.
func bound(limit int) *int {
	if limit <= 0 {
		return nil
	}
	return &limit
}

// parseReason parses a stored reason. An unknown one becomes reason.Internal, so that
// it is not mistaken for none.
func parseReason(name string) reason.Reason {
	if r, ok := reason.Parse(name); ok {
		return r
	}
	return reason.Internal
}

const gapColumns = `g.id, (SELECT name FROM headway_connections WHERE id = g.connection), g.stream, g.key, g.parent, g.locator,
	g.reason, g.status, g.attempts, g.first_seen, g.last_seen, g.retry_at, g.last_error, g.backlog, g.since, g.cursor,
	CASE WHEN g.backlog THEN ` + gapItems + ` ELSE 0 END`

// gapItems is the number of items that a gap stands for; a backlog stands for all owed
// items of its stream.
const gapItems = `CASE WHEN g.backlog THEN (SELECT count(*) FROM headway_items i JOIN headway_streams s ON s.id = i.stream
	WHERE s.connection = g.connection AND s.name = g.parent AND i.owed) ELSE 1 END`

// scanGap reads a row of gapColumns.
func scanGap(row pgx.CollectableRow) (g collect.Gap, err error) {
	var why string
	err = row.Scan(&g.ID, (*verbatim)(&g.Connection), (*verbatim)(&g.Stream), (*verbatim)(&g.Key), (*verbatim)(&g.Parent), &g.Locator, &why, (*verbatim)(&g.Status), &g.Attempts,
		(*moment)(&g.FirstSeen), (*moment)(&g.LastSeen), (*moment)(&g.RetryAt), (*verbatim)(&g.LastError), &g.Backlog, (*verbatim)(&g.Since), (*verbatim)(&g.Cursor), &g.Items)
	g.Reason = parseReason(why)
	return g, err
}
