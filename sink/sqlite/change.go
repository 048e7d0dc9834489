package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/pending"
)

// change holds the records that one commit writes.
type change struct {
	connection, begun string
	streams           []collect.StreamInfo
	records           map[string][]pending.Record
}

// catalog creates the tables that describe the others.
const catalog = `
CREATE TABLE IF NOT EXISTS headway_tables (
    name       TEXT PRIMARY KEY,
    connection TEXT NOT NULL,
    -- When the connection last started over before the table was created.
    begun      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS headway_columns (
    "table" TEXT NOT NULL REFERENCES headway_tables (name) ON UPDATE CASCADE ON DELETE CASCADE,
    "column" TEXT NOT NULL,
    -- boolean: 1 is true and 0 false. json: a text is JSON. plain: as it stands.
    kind    TEXT NOT NULL CHECK (kind IN ('boolean', 'json', 'plain')),
    PRIMARY KEY ("table", "column")
) STRICT, WITHOUT ROWID;`

// apply writes the records. It reads the layout of the tables each time, since the last
// transaction may have been rolled back.
func (c *change) apply(ctx context.Context, tx collect.Execer) error {
	if _, err := tx.ExecContext(ctx, catalog); err != nil {
		return fmt.Errorf("sqlite sink: %w", err)
	}
	for _, s := range c.streams {
		if err := c.stream(ctx, tx, s); err != nil {
			return fmt.Errorf("sqlite sink: stream %q: %w", s.Name, err)
		}
	}
	return nil
}

func (c *change) stream(ctx context.Context, tx collect.Execer, s collect.StreamInfo) error {
	there, err := c.claim(ctx, tx, s.Name)
	records := c.records[s.Name]
	if err != nil || len(records) == 0 {
		return err
	}
	t := table{name: s.Name, Columns: pending.Columns[field.Kind]{Detail: s.Parent != ""}}
	if !there && !pending.HasRows(records) {
		return nil // there are only marks for deleted records, and no rows to mark
	}
	if there {
		if err := t.load(ctx, tx); err != nil {
			return err
		}
	} else if _, err := tx.ExecContext(ctx, `INSERT INTO headway_tables VALUES (?, ?, ?)`, s.Name, c.connection, c.begun); err != nil {
		return err
	}
	if err := t.grow(ctx, tx, records, !there); err != nil {
		return err
	}
	return t.write(ctx, tx, records)
}

// claim reports whether the stream's table exists. It sets a table aside that was begun
// before the connection started over. A table that is not this connection's is an error.
func (c *change) claim(ctx context.Context, tx collect.Execer, name string) (there bool, err error) {
	var connection, begun string
	err = row(ctx, tx, `SELECT connection, begun FROM headway_tables WHERE name = ? COLLATE NOCASE`,
		[]any{name}, &connection, &begun)
	known := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	var has, kind string
	err = row(ctx, tx, `SELECT name, type FROM sqlite_schema WHERE name = ? COLLATE NOCASE`, []any{name}, &has, &kind)
	switch {
	case errors.Is(err, sql.ErrNoRows) && known:
		return false, errors.New("its table is gone, and this sink did not remove it: restore the file from a backup, " +
			"or delete the table's row from headway_tables and start over with `headway collect --fresh`")
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	case !known:
		return false, fmt.Errorf("there is a %s with that name that this sink did not write; it was not changed: "+
			"rename it, or rename the stream", kind)
	case connection != c.connection:
		return false, fmt.Errorf("the table with that name belongs to the connection %q; it was not changed: "+
			"rename the stream in one of them, or give this connection a store of its own", connection)
	case has != name:
		return false, fmt.Errorf("its table exists as %q: names that differ only in case are the same in SQLite: "+
			"rename the stream", has)
	case begun == c.begun:
		return true, nil
	}
	return false, c.setAside(ctx, tx, name)
}

// setAside renames a table to the first free NAME_TIME_bak or NAME_TIME_N_bak.
func (c *change) setAside(ctx context.Context, tx collect.Execer, name string) error {
	at, err := time.Parse(time.RFC3339Nano, c.begun)
	if err != nil {
		// The connection's state was lost, and SetAside was not called.
		return errors.New("its table belongs to an earlier state of the connection, which was lost; it was not changed: " +
			"start over with `headway collect --fresh`, which sets it aside")
	}
	for n := 1; ; n++ {
		to := name + "_" + at.Format("20060102T150405Z")
		if n > 1 {
			to = fmt.Sprintf("%s_%d", to, n)
		}
		to += "_bak"
		var one int
		err := row(ctx, tx, `SELECT 1 FROM sqlite_schema WHERE name = ? COLLATE NOCASE`, []any{to}, &one)
		if err == nil {
			continue
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(`ALTER TABLE %s RENAME TO %s`, quote(name), quote(to))); err != nil {
			return err
		}
		// The foreign key renames it in headway_columns too.
		_, err = tx.ExecContext(ctx, `UPDATE headway_tables SET name = ? WHERE name = ?`, to, name)
		return err
	}
}

// quote returns a name as an SQL identifier.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// row reads the first row of a query. It returns sql.ErrNoRows if there is none.
func row(ctx context.Context, tx collect.Execer, query string, args []any, dest ...any) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return rows.Err()
}

// write applies records and marks in the order of the calls.
func (t *table) write(ctx context.Context, tx collect.Execer, records []pending.Record) error {
	for group := range pending.Groups(records) {
		var err error
		switch first := group[0]; {
		case first.Remain != nil:
			err = t.mark(ctx, tx, first)
		case first.Older:
			err = t.restore(ctx, tx, group)
		default:
			err = t.insert(ctx, tx, group, t.statement())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mark sets the deletion time in the rows whose keys do not remain. Keys are compared in
// Go, so that they need not be passed to SQL.
func (t *table) mark(ctx context.Context, tx collect.Execer, r pending.Record) error {
	if !t.marks {
		if err := t.addMark(ctx, tx); err != nil || !t.marks {
			return err
		}
	}
	gone, err := t.gone(ctx, tx, r)
	if err != nil {
		return err
	}
	at := r.At.UTC().Format(time.RFC3339)
	for _, key := range gone {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(`UPDATE %s SET %s = ? WHERE %s = ? AND %s = ?`,
			quote(t.name), pending.ColumnGone, pending.ColumnParent, pending.ColumnKey), at, r.Parent, key); err != nil {
			return err
		}
	}
	return nil
}

// addMark adds pending.ColumnGone to the table, unless an earlier version has created a column for
// a field of that name.
func (t *table) addMark(ctx context.Context, tx collect.Execer) error {
	for _, c := range t.Fields {
		if fold(c.Name) == pending.ColumnGone {
			return nil
		}
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`ALTER TABLE %s ADD COLUMN %s TEXT`, quote(t.name), pending.ColumnGone))
	t.marks = err == nil
	return err
}

func (t *table) gone(ctx context.Context, tx collect.Execer, r pending.Record) (keys []string, err error) {
	left := make(map[string]bool, len(*r.Remain))
	for _, key := range *r.Remain {
		left[key] = true
	}
	keys, err = sqlitefile.List(ctx, tx, sqlitefile.Column[string], fmt.Sprintf(`SELECT %s FROM %s WHERE %s = ? AND %s IS NULL`,
		pending.ColumnKey, quote(t.name), pending.ColumnParent, pending.ColumnGone), r.Parent)
	return slices.DeleteFunc(keys, func(key string) bool { return left[key] }), err
}
