package postgres

import (
	"context"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/store/internal/sqlstore"
)

// viewed returns the result of f for how the server sees the state now.
func viewed[T any](ctx context.Context, r *Reader, what string, f func(*session, sqlstore.View) (T, error)) (T, error) {
	return value(ctx, r, what, func(t *session) (none T, err error) {
		v := sqlstore.View{Alive: isAlive, Lives: func(int64, int64, time.Time) bool { return true }}
		if v.Ahead, err = r.clock.compare(ctx, t); err != nil {
			return none, err
		}
		v.Now = time.Now().Add(v.Ahead)
		return f(t, v)
	})
}

// Connections lists every connection, by name. See [collect.Reader].
func (r *Reader) Connections(ctx context.Context) ([]collect.ConnectionStatus, error) {
	return viewed(ctx, r, "list connections", func(t *session, v sqlstore.View) ([]collect.ConnectionStatus, error) {
		return sqlstore.Connections(t, v)
	})
}

// Runs lists the newest runs first. See [collect.Reader]. A run that is
// stored as running but whose lease is not alive is returned as abandoned, ended
// when its lease expired.
func (r *Reader) Runs(ctx context.Context, connection string, limit int) ([]collect.Run, error) {
	return viewed(ctx, r, "list runs", func(t *session, v sqlstore.View) ([]collect.Run, error) {
		return sqlstore.Runs(t, v, connection, limit)
	})
}

// Gaps returns gaps by id, which is the order in which they were first seen.
// See [collect.Reader].
func (r *Reader) Gaps(ctx context.Context, f collect.GapFilter) ([]collect.Gap, error) {
	return value(ctx, r, "list gaps", func(t *session) ([]collect.Gap, error) { return sqlstore.Gaps(t, f, "") })
}

// Events returns a run's trace in order, numbered from 1. See [collect.Reader].
// Unreadable events are left out.
func (r *Reader) Events(ctx context.Context, run string) ([]event.Event, error) {
	return value(ctx, r, "list events", func(t *session) ([]event.Event, error) { return sqlstore.Events(t, run) })
}

// Serve leases the next gaps in fair order. See [collect.Store]. Gaps are
// ordered by their last attempt, or by when they were first seen: a gap that was
// tried goes to the back, and later gaps do not overtake waiting ones.
func (s *Store) Serve(ctx context.Context, l collect.Lease, ask collect.ServeRequest) (page []collect.Gap, err error) {
	if err := ask.Check("store " + s.name); err != nil {
		return nil, err
	}
	err = s.holding(ctx, "serve gaps", l, func(t *tx, h sqlstore.Held) (err error) {
		if page, err = t.due(h, ask); err != nil {
			return err
		}
		ids := make([]int64, len(page))
		for i, g := range page {
			ids[i] = g.ID
		}
		t.Queue(`UPDATE headway_gaps SET status = 'leased', leased = $1 WHERE id = ANY ($2)`, l.Token, ids)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

// due reads a page of due gaps, bounded by rows and by the bytes of their locators. The
// server does not send gaps past the bound, except that a page has at least one.
func (t *tx) due(h sqlstore.Held, ask collect.ServeRequest) (page []collect.Gap, err error) {
	streams := []string(nil) // NULL means all
	if ask.Streams != nil {
		streams = escaped(ask.Streams)
	}
	var without []string
	if ask.NoPressure {
		without = pressures
	}
	var row sqlstore.GapRow
	err = t.Each(row.Columns(), func() error {
		page = append(page, row.Gap())
		return nil
	}, `WITH due AS (SELECT g.id, g.rank, coalesce(octet_length(g.locator), 0) AS size FROM headway_gaps g
			WHERE g.connection = $1 AND g.status = 'pending' AND (g.retry_at IS NULL OR g.retry_at <= coalesce($2::timestamptz, '-infinity'))
				AND coalesce(g.tried, '-infinity') < coalesce($3::timestamptz, '-infinity') AND ($4::text[] IS NULL OR g.stream = ANY ($4))
				AND NOT coalesce(g.reason = ANY ($5::text[]), false)
			ORDER BY g.rank, g.id LIMIT $6),
		page AS (SELECT id, rank, row_number() OVER w AS n, sum(size) OVER w AS total FROM due WINDOW w AS (ORDER BY rank, id))
		SELECT `+sqlstore.GapColumns+` FROM page p JOIN headway_gaps g ON g.id = p.id WHERE p.n = 1 OR p.total <= $7 ORDER BY p.n`,
		h.Connection, ask.Now, ask.Before, streams, without, ask.MaxRows, ask.MaxBytes)
	return page, err
}

// pressures are the names of the pressure reasons.
var pressures = collect.PressureReasons()

// Load reads the state that a run starts from. See [collect.Store]. Lanes are sorted
// by stream and kind. A stored law state that is not valid JSON is returned as nil. A
// sink position is returned unchecked.
func (s *Store) Load(ctx context.Context, connection string) (collect.State, error) {
	return value(ctx, s.Reader, "load", func(t *session) (collect.State, error) { return sqlstore.Load(t, connection) })
}

// Known returns the known items of a stream with the given keys. See [collect.Store].
func (s *Store) Known(ctx context.Context, connection, stream string, keys []string) (known map[string]collect.KnownItem, err error) {
	if len(keys) == 0 {
		return map[string]collect.KnownItem{}, nil
	}
	err = s.read(ctx, "read known items", func(t *session) error {
		known = make(map[string]collect.KnownItem, len(keys))
		var it collect.KnownItem
		return t.Each([]any{&it.Key, &it.Fingerprint, &it.Children, &it.Owed}, func() error {
			known[it.Key] = it
			it.Children = nil
			return nil
		}, `SELECT i.key, i.fingerprint, i.children, i.owed
			FROM headway_connections c JOIN headway_streams s ON s.connection = c.id JOIN headway_items i ON i.stream = s.id
			WHERE c.name = $1 AND s.name = $2 AND i.key = ANY ($3)`, connection, stream, escaped(keys))
	})
	if err != nil {
		return nil, err
	}
	return known, nil
}

// Owed returns the keys of items whose details a backlog owes, in order. See [collect.Store].
func (s *Store) Owed(ctx context.Context, connection, stream string, limit int) ([]string, error) {
	return value(ctx, s.Reader, "read owed items", func(t *session) ([]string, error) { return sqlstore.Owed(t, connection, stream, limit) })
}

// Act applies an operator's action. See [collect.Store].
func (s *Store) Act(ctx context.Context, a collect.GapAction, f collect.GapFilter, ids []int64) (n int64, err error) {
	if err := sqlstore.CheckAction("store "+s.name, a); err != nil {
		return 0, err
	}
	err = s.write(ctx, string(a)+" gaps", func(t *tx) error {
		// Lock the rows of connections first, as every write does, to avoid deadlocks.
		if _, err := t.Exec(`SELECT 1 FROM headway_connections WHERE $1 IN ('', name) ORDER BY id FOR UPDATE`, f.Connection); err != nil {
			return err
		}
		n, err = sqlstore.Act(t, a, f, ids, "")
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
