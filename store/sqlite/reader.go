package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/reason"
)

// Connections lists every connection, by name. See [collect.Reader].
func (r *Reader) Connections(ctx context.Context) ([]collect.ConnectionStatus, error) {
	var list []collect.ConnectionStatus
	now := time.Now()
	err := r.read(ctx, "list connections", func(t *sql.Tx) error {
		ids, err := connections(ctx, t, r.path, now, &list)
		if err != nil {
			return err
		}
		of := make(map[int64]*collect.ConnectionStatus, len(ids))
		for i, id := range ids {
			of[id] = &list[i]
		}
		return describe(ctx, t, r.path, now, of)
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// connections reads the rows of connections and returns their ids.
func connections(ctx context.Context, t *sql.Tx, path string, now time.Time, into *[]collect.ConnectionStatus) ([]int64, error) {
	return sqlitefile.List(ctx, t, func(rows *sql.Rows) (id int64, err error) {
		c := collect.ConnectionStatus{Items: map[string]int64{}, Owed: map[string]int64{}}
		var token int64
		var isHeld bool
		var holder, expires, copies string
		var pressure []byte
		var p pacingRow
		if err := rows.Scan(append([]any{&id, &token, &c.Name, &isHeld, &holder, &expires, &c.SinkKind, &c.SinkPath, &copies, &pressure}, p.columns()...)...); err != nil {
			return id, err
		}
		list, err := replays(copies)
		c.Pacing, c.Cooldown, c.Replays = p.pacing(), collect.DecodeCooldown(pressure), collect.ReplaysOnShow(list)
		if isHeld && lives(path, id, token, parseInstant(expires), now) {
			c.Holder = holder
		}
		*into = append(*into, c)
		return id, err
	}, `SELECT id, token, name, run IS NOT NULL, holder, expires, sink_kind, sink_path, replays, pressure, `+pacingColumns+`
		FROM connections ORDER BY name`)
}

// describe adds the data of other tables to the connections, with one statement for each
// table: with hundreds of connections, one statement for each connection would be slow.
func describe(ctx context.Context, t *sql.Tx, path string, now time.Time, of map[int64]*collect.ConnectionStatus) error {
	var id int64
	var text []byte
	var n int64
	var failed error
	each := func(scan func(*sql.Rows) error, add func(c *collect.ConnectionStatus), query string) {
		if failed != nil {
			return
		}
		failed = sqlitefile.Each(ctx, t, func(rows *sql.Rows) error {
			if err := scan(rows); err != nil {
				return err
			}
			if c := of[id]; c != nil {
				add(c)
			}
			return nil
		}, query)
	}
	named := func(rows *sql.Rows) error { return rows.Scan(&id, &text, &n) }
	var lane collect.Lane
	var at collect.Location
	const owed = `SELECT c.id, g.reason, sum(` + gapItems + `) AS n FROM connections c CROSS JOIN gaps g WHERE g.connection = c.id AND g.status IN `
	each(func(rows *sql.Rows) (err error) { lane, err = scanLane(rows, &id); return err },
		func(c *collect.ConnectionStatus) { c.Lanes = append(c.Lanes, lane) },
		`SELECT l.connection, `+laneColumns+` FROM lanes l ORDER BY l.stream, l.kind`)
	each(func(rows *sql.Rows) error { return rows.Scan(&id, &text) }, func(c *collect.ConnectionStatus) {
		var one collect.StreamShape
		if json.Unmarshal(text, &one) == nil { // an unreadable one is left out
			c.Shapes = append(c.Shapes, one)
		}
	}, `SELECT connection, shape FROM headway_shapes ORDER BY stream`)
	each(func(rows *sql.Rows) error { return rows.Scan(&id, &at.Kind, &at.Path) },
		func(c *collect.ConnectionStatus) { c.FormerSinks = append(c.FormerSinks, at) },
		`SELECT connection, kind, path FROM headway_sinks ORDER BY kind, path`)
	each(named, func(c *collect.ConnectionStatus) { c.Items[string(text)] = n }, `SELECT connection, name, items FROM streams`)
	each(named, func(c *collect.ConnectionStatus) { c.Owed[string(text)] = n },
		owed+`('`+string(collect.GapPending)+`', '`+string(collect.GapLeased)+`') GROUP BY c.id, g.reason HAVING n > 0`)
	each(named, func(c *collect.ConnectionStatus) { c.Quarantined += n },
		owed+`('`+string(collect.GapTerminal)+`') GROUP BY c.id`)
	if failed != nil {
		return failed
	}
	last, err := runs(ctx, t, path, now, ` WHERE r.n = (SELECT n FROM runs WHERE connection = c.id AND kind = '' ORDER BY n DESC LIMIT 1)`, -1)
	byName := make(map[string]*collect.Run, len(last))
	for i := range last {
		byName[last[i].Connection] = &last[i]
	}
	for _, c := range of {
		c.LastRun = byName[c.Name]
	}
	return err
}

// Runs lists runs, newest first. See [collect.Reader]. A run that is stored as running but
// has no live lease is shown as abandoned, with the end of its lease as its end.
func (r *Reader) Runs(ctx context.Context, connection string, limit int) (list []collect.Run, err error) {
	now := time.Now()
	err = r.read(ctx, "list runs", func(t *sql.Tx) error {
		where, args := "", []any(nil)
		if connection != "" {
			where, args = ` WHERE c.name = ?`, []any{connection}
		}
		list, err = runs(ctx, t, r.path, now, where, limit, args...)
		return err
	})
	return list, err
}

func runs(ctx context.Context, t *sql.Tx, path string, now time.Time, where string, limit int, args ...any) ([]collect.Run, error) {
	query := `SELECT r.id, c.name, r.holder, r.state, r.reason, r.started, r.ended, r.retry_at, r.error, r.progress, r.kind,
		c.run IS r.id, c.expires, c.id, c.token FROM runs r JOIN connections c ON c.id = r.connection` + where + ` ORDER BY r.n DESC LIMIT ?`
	args = append(args, bound(limit))
	return sqlitefile.List(ctx, t, func(rows *sql.Rows) (u collect.Run, err error) {
		var why, started, ended, retryAt, progress, expires string
		var holds bool
		var id, token int64
		if err := rows.Scan(&u.ID, &u.Connection, &u.Holder, &u.State, &why, &started, &ended, &retryAt, &u.Error, &progress, &u.Kind,
			&holds, &expires, &id, &token); err != nil {
			return u, err
		}
		u.Reason, u.Started, u.Ended, u.RetryAt = parseReason(why), parseInstant(started), parseInstant(ended), parseInstant(retryAt)
		if json.Unmarshal([]byte(progress), &u.Progress) != nil {
			u.Progress = collect.Progress{}
		}
		if until := parseInstant(expires); u.State == collect.RunRunning &&
			(!holds || !lives(path, id, token, until, now)) {
			u.State, u.Reason = collect.RunAbandoned, reason.LeaseLost
			if !now.Before(until) {
				u.Ended = until // the time of death is unknown
			}
		}
		return u, nil
	}, query, args...)
}

// Gaps lists gaps by id, that is, in the order in which they were first seen. See
// [collect.Reader].
func (r *Reader) Gaps(ctx context.Context, f collect.GapFilter) ([]collect.Gap, error) {
	query, args := gapQuery(f)
	list, err := sqlitefile.List(ctx, r.db, scanGap, query, args...)
	if err != nil {
		return nil, explain(r.path, "list gaps", err)
	}
	return list, nil
}

func gapQuery(f collect.GapFilter) (query string, args []any) {
	where, args := []string{`g.id > ?`}, []any{f.AfterID}
	if f.Connection != "" {
		// A page must not need a sort of all gaps. With a status there is an index in the
		// order of ids. Without one, the plus makes SQLite read the table in its own order
		// instead of using the index of keys.
		column := `+g.connection`
		if f.Status != "" {
			column = `g.connection`
		}
		where, args = append(where, column+` = (SELECT id FROM connections WHERE name = ?)`), append(args, f.Connection)
	}
	if f.Stream != "" {
		where, args = append(where, `+g.stream = ?`), append(args, f.Stream)
	}
	if f.Backlog {
		where = append(where, `g.backlog = 1`)
	}
	if f.Status != "" {
		where, args = append(where, `g.status = ?`), append(args, string(f.Status))
	}
	if f.Reason != reason.None {
		where, args = append(where, `g.reason = ?`), append(args, f.Reason.String())
	}
	return `SELECT ` + gapColumns + ` FROM gaps g WHERE ` + strings.Join(where, " AND ") + ` ORDER BY g.id LIMIT ?`, append(args, bound(f.Limit))
}

// Events lists the events of a run in order. See [collect.Reader]. An unreadable event is
// left out.
func (r *Reader) Events(ctx context.Context, run string) ([]event.Event, error) {
	list, err := readable[event.Event](ctx, r.db, `SELECT e.event FROM events e JOIN runs r ON r.n = e.run WHERE r.id = ? ORDER BY e.seq`, run)
	if err != nil {
		return nil, explain(r.path, "list events", err)
	}
	return list, nil
}

// readable decodes the JSON column of a query. Unreadable rows are left out.
func readable[T any](ctx context.Context, q sqlitefile.Querier, query string, args ...any) (list []T, err error) {
	texts, err := sqlitefile.List(ctx, q, sqlitefile.Column[[]byte], query, args...)
	for _, text := range texts {
		var v T
		if json.Unmarshal(text, &v) == nil {
			list = append(list, v)
		}
	}
	return list, err
}

// bound converts a limit for SQLite, where a negative one means no limit.
func bound(limit int) int {
	if limit <= 0 {
		return -1
	}
	return limit
}

// parseReason parses a stored reason. An unknown one becomes internal, so that it does not
// count as none.
func parseReason(name string) reason.Reason {
	if r, ok := reason.Parse(name); ok {
		return r
	}
	return reason.Internal
}

const gapColumns = `g.id, (SELECT name FROM connections WHERE id = g.connection), g.stream, g.key, g.parent, g.locator,
	g.reason, g.status, g.attempts, g.first_seen, g.last_seen, g.retry_at, g.last_error, g.backlog, g.since, g.cursor, CASE g.backlog WHEN 1 THEN ` + gapItems + ` ELSE 0 END`

// gapItems is the number of items for which a gap stands: for a backlog, all owed items.
const gapItems = `CASE g.backlog WHEN 1 THEN (SELECT count(*) FROM items i JOIN streams s ON s.id = i.stream
	WHERE s.connection = g.connection AND s.name = g.parent AND i.owed = 1) ELSE 1 END`

// scanGap scans a row of gapColumns.
func scanGap(rows *sql.Rows) (g collect.Gap, err error) {
	var why, first, last, retryAt string
	err = rows.Scan(&g.ID, &g.Connection, &g.Stream, &g.Key, &g.Parent, &g.Locator, &why, &g.Status, &g.Attempts,
		&first, &last, &retryAt, &g.LastError, &g.Backlog, &g.Since, &g.Cursor, &g.Items)
	g.Reason, g.FirstSeen, g.LastSeen, g.RetryAt = parseReason(why), parseInstant(first), parseInstant(last), parseInstant(retryAt)
	return g, err
}

// explain wraps an error with the file, the failed action and advice. An error about a held
// or lost lease is returned unchanged.
func explain(path, what string, err error) error {
	if err == nil {
		return nil
	}
	if _, held := errors.AsType[*collect.HeldError](err); held || errors.Is(err, collect.ErrLeaseLost) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("store %s: %s: %w", path, what, err)
	}
	if advice := advise(path, err); advice != "" {
		return fmt.Errorf("store %s: %s: %s: %w", path, what, advice, err)
	}
	return fmt.Errorf("store %s: %s: %w", path, what, err)
}

func advise(path string, err error) string {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return adviseCode(path, e.Code())
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return full(path)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return readOnly(path)
	default:
		return ""
	}
}

// adviseCode returns advice by the primary error code, which is the low byte of code.
func adviseCode(path string, code int) string {
	switch code & 0xff {
	case lib.SQLITE_FULL:
		return full(path)
	case lib.SQLITE_IOERR:
		return fmt.Sprintf("the disk refused to read or write: check free space and health of the disk that holds %s, "+
			"then run again; what was committed is kept", filepath.Dir(path))
	case lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		return readOnly(path)
	case lib.SQLITE_NOTADB:
		return "this is not an SQLite database, so not a Headway store; nothing was changed: " +
			"check the path, or move the file away to start with an empty store"
	case lib.SQLITE_CORRUPT:
		return fmt.Sprintf("the file is damaged; nothing was changed: restore %s together with its -wal file from a backup, "+
			"or save what can be read with `sqlite3 %s .recover`, or move it away and start over with `headway collect --fresh`",
			filepath.Base(path), filepath.Base(path))
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		return fmt.Sprintf("another process kept the file locked for more than %s: "+
			"see which one has it open, then run again", sqlitefile.BusyTimeout)
	default:
		return ""
	}
}

func full(path string) string {
	return fmt.Sprintf("no space is left: free some on the disk that holds %s, then run again; what was committed is kept",
		filepath.Dir(path))
}

func readOnly(path string) string {
	return fmt.Sprintf("the file or its folder cannot be written: give this user the right to write %s and to create files in %s "+
		"(the store keeps a -wal and a -shm file beside it), or name another place", filepath.Base(path), filepath.Dir(path))
}
