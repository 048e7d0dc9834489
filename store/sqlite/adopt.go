package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
)

// Adopt moves the state of a connection into this store from the file of its sink, where an
// earlier version stored it. The records stay there. Adopt returns false if the sink is not
// a separate SQLite file or that file has no state of the connection.
//
// It returns an error if a run is collecting the connection there, or if this store has a
// state of the connection already. An interrupted call may be repeated.
func (s *Store) Adopt(ctx context.Context, connection string, at collect.Location) (bool, error) {
	if at.Kind != "sqlite" {
		return false, nil
	}
	from, err := locate(at.Path)
	if err != nil {
		return false, err
	}
	if there, err := holds(ctx, from, connection); err != nil || !there {
		return false, err
	}
	own, err := s.Load(ctx, connection)
	if err != nil {
		return false, err
	}
	_, known, err := collect.StatusOf(ctx, s, connection)
	done := own.SinkAt == at
	switch {
	case err != nil:
		return false, err
	case known && !done:
		return false, fmt.Errorf("store %s: it has a state of %q, and so has %s, which has the records too; nothing was changed: "+
			"continue with that one by --state %[3]s, or start over with `headway collect --fresh`", s.path, connection, from)
	}
	conn, err := sqlitefile.Open(ctx, s.path, "rw", "synchronous(full)")
	if err != nil {
		return false, explain(s.path, "open", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, `ATTACH ? AS old`, from); err != nil {
		return false, explain(from, "attach", err)
	}
	if !known {
		if err := transact(ctx, conn, func(run runner) error { return move(run, connection, at) }); err != nil {
			return false, explain(s.path, "move the state of "+connection, err)
		}
	}
	// The state is in both files now: delete it from the old one.
	err = transact(ctx, conn, func(run runner) error {
		const id = ` (SELECT id FROM old.connections WHERE name = ?1)`
		for _, query := range []string{
			`DELETE FROM old.events WHERE run IN (SELECT n FROM old.runs WHERE connection =` + id + `)`,
			`DELETE FROM old.items WHERE stream IN (SELECT id FROM old.streams WHERE connection =` + id + `)`,
			`DELETE FROM old.runs WHERE connection =` + id, `DELETE FROM old.streams WHERE connection =` + id,
			`DELETE FROM old.lanes WHERE connection =` + id, `DELETE FROM old.gaps WHERE connection =` + id,
			`DELETE FROM old.headway_shapes WHERE connection =` + id, `DELETE FROM old.headway_sinks WHERE connection =` + id,
			`DELETE FROM old.connections WHERE name = ?1`,
		} {
			if err := run(query, connection); err != nil {
				return err
			}
		}
		return nil
	})
	return err == nil, explain(from, "let the state of "+connection+" go", err)
}

// holds reports whether a file is a store with a state of the connection, and migrates the
// store if it is an older one.
func holds(ctx context.Context, path, connection string) (there bool, err error) {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return false, nil
	}
	// Writable, so that SQLite can undo the transaction of a process that was killed when it
	// created the file.
	conn, err := sqlitefile.Open(ctx, path, "rw", "query_only(1)")
	if err != nil {
		return false, explain(path, "open", err)
	}
	var application int64
	err = conn.QueryRowContext(ctx, `SELECT application_id FROM pragma_application_id`).Scan(&application)
	if closed := conn.Close(); err != nil || closed != nil || application != sqlitefile.StoreID {
		return false, explain(path, "open", errors.Join(err, closed))
	}
	s, err := Open(ctx, path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c, there, err := collect.StatusOf(ctx, s, connection)
	if c.Holder != "" {
		return false, fmt.Errorf("store %s: %q is being collected by %s: wait for it to end", path, connection, c.Holder)
	}
	return there, err
}

// runner runs a statement of a transaction.
type runner func(query string, args ...any) error

// transact runs f in a transaction, which is not canceled once it has begun.
func transact(ctx context.Context, conn *sqlitefile.Conn, f func(runner) error) error {
	return sqlitefile.Write(ctx, conn.Conn, func() error {
		return f(func(query string, args ...any) error {
			_, err := conn.ExecContext(context.WithoutCancel(ctx), query, args...)
			return err
		})
	})
}

// move copies the state of a connection from the old store. Rows get new ids in the same
// order.
func move(run runner, connection string, at collect.Location) error {
	const (
		was = `(SELECT id FROM old.connections WHERE name = ?1)`
		is  = `(SELECT id FROM main.connections WHERE name = ?1)`
	)
	const pacing = `pacing_version, pacing_law, pacing_interval_ms, pacing_recorded_at, pacing_state, pacing_parts`
	if err := run(`INSERT INTO main.connections (name, token, holder, since, expires, pressure, replays, sink_kind, sink_path, `+pacing+`)
		SELECT name, token, '', '', '', pressure, replays, ?2, ?3, `+pacing+` FROM old.connections WHERE name = ?1`, connection, at.Kind, at.Path); err != nil {
		return err
	}
	for _, t := range []struct{ table, columns string }{
		{"runs", "id, holder, state, reason, started, ended, retry_at, error, progress, kind"},
		{"lanes", "stream, kind, cursor, walking, done, since, high, start, watermark, pages, trail_anchor, trail_steps, trail_limit"},
		{"streams", "name, items"},
		{"gaps", `stream, key, parent, locator, reason, status, attempts, first_seen, last_seen, retry_at, last_error, tried, rank, backlog, since, cursor`},
		{"headway_shapes", "stream, shape"},
	} {
		order := ""
		switch t.table {
		case "runs":
			order = " ORDER BY n"
		case "gaps":
			order = " ORDER BY id"
		}
		if err := run(fmt.Sprintf(`INSERT INTO main.%[1]s (connection, %[2]s) SELECT %[3]s, %[2]s FROM old.%[1]s WHERE connection = %[4]s%[5]s`,
			t.table, t.columns, is, was, order), connection); err != nil {
			return err
		}
	}
	if err := run(`INSERT INTO main.events (run, seq, event) SELECT n.n, e.seq, e.event FROM old.events e
		JOIN old.runs o ON o.n = e.run JOIN main.runs n ON n.id = o.id WHERE o.connection = `+was, connection); err != nil {
		return err
	}
	return run(`INSERT INTO main.items (stream, key, fingerprint, children, owed) SELECT n.id, i.key, i.fingerprint, i.children, i.owed
		FROM old.items i JOIN old.streams o ON o.id = i.stream
		JOIN main.streams n ON n.name = o.name AND n.connection = `+is+` WHERE o.connection = `+was, connection)
}
