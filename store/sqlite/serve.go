package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/internal/sqlstore"
)

// Serve leases the next gaps in fair order. See [collect.Store]. The order is by the last
// attempt or, before one, by FirstSeen: a gap that was tried goes to the end, and later gaps
// never overtake it.
func (s *Store) Serve(ctx context.Context, l collect.Lease, ask collect.ServeRequest) (page []collect.Gap, err error) {
	if err := ask.Check("store " + s.path); err != nil {
		return nil, err
	}
	err = s.holding(ctx, "serve gaps", l, func(t *tx, h sqlstore.Held) (err error) {
		if page, err = t.due(h, ask); err != nil {
			return err
		}
		for _, g := range page {
			t.Queue(`UPDATE gaps SET status = ?, leased = ? WHERE id = ?`, string(collect.GapLeased), l.Token, g.ID)
		}
		return nil
	})
	return page, err
}

// due reads a page of gaps and stops at the maximum number of bytes or rows.
func (t *tx) due(h sqlstore.Held, ask collect.ServeRequest) (page []collect.Gap, err error) {
	where, args := "", []any{h.Connection, string(collect.GapPending), ask.Now, ask.Before}
	if ask.NoPressure {
		where = `AND g.reason NOT IN (` + pressures + `)`
	}
	if ask.Streams != nil {
		where += ` AND g.stream IN (NULL` + strings.Repeat(", ?", len(ask.Streams)) + `)`
		for _, s := range ask.Streams {
			args = append(args, s)
		}
	}
	var row sqlstore.GapRow
	size := int64(0)
	err = t.Each(row.Columns(), func() error {
		g := row.Gap()
		if size += int64(len(g.Locator)); len(page) > 0 && size > ask.MaxBytes {
			return errFull
		}
		page = append(page, g)
		return nil
	}, `SELECT `+sqlstore.GapColumns+` FROM gaps g
		WHERE g.connection = ? AND g.status = ? AND g.retry_at <= ? AND g.tried < ? `+where+`
		ORDER BY g.rank, g.id LIMIT ?`, append(args, ask.MaxRows)...)
	if errors.Is(err, errFull) {
		err = nil
	}
	return page, err
}

// errFull ends a page at its maximum number of bytes.
var errFull = errors.New("the page is full")

// pressures is a list of the pressure reasons in SQL.
var pressures = "'" + strings.Join(collect.PressureReasons(), "', '") + "'"

// Load returns the stored state of a connection. See [collect.Store]. Lanes are sorted by
// stream and kind. A stored state of a control law that is not JSON becomes nil. A sink's
// position is returned unchecked.
func (s *Store) Load(ctx context.Context, connection string) (collect.State, error) {
	return value(ctx, s.Reader, "load", func(t *snapshot) (collect.State, error) { return sqlstore.Load(t, connection) })
}

// value returns the result of f in a read transaction.
func value[T any](ctx context.Context, r *Reader, what string, f func(*snapshot) (T, error)) (v T, err error) {
	err = r.read(ctx, what, func(t *snapshot) error {
		v, err = f(t)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return v, nil
}

// read runs f in a read transaction.
func (r *Reader) read(ctx context.Context, what string, f func(*snapshot) error) error {
	t, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return explain(r.path, what, err)
	}
	defer func() { _ = t.Rollback() }() // nothing was written
	return explain(r.path, what, f(&snapshot{ctx, t}))
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
	err := s.read(ctx, "read known items", func(t *snapshot) error {
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
			if err := s.knownItems(ctx, t.Tx, id, part, known); err != nil {
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
func (s *Store) Owed(ctx context.Context, connection, stream string, limit int) ([]string, error) {
	return value(ctx, s.Reader, "read owed items", func(t *snapshot) ([]string, error) { return sqlstore.Owed(t, connection, stream, limit) })
}
