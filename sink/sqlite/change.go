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
)

// change is what one commit writes.
type change struct {
	connection, begun string
	streams           []collect.StreamInfo
	records           map[string][]record
}

// catalog are the tables that describe the others.
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

// apply writes the records. It keeps nothing between calls: what the tables
// look like is read again, since a transaction before may have been rolled back.
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
	t := table{name: s.Name, detail: s.Parent != ""}
	if !there && !slices.ContainsFunc(records, func(r record) bool { return r.remaining == nil }) {
		return nil // nothing was ever written that could be gone
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

// claim says whether the stream's table is there. One of an earlier beginning
// is set aside; one that is not this connection's is an error.
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
		return false, fmt.Errorf("there is a %s of that name that this sink did not write; it was not changed: "+
			"rename it, or rename the stream", kind)
	case connection != c.connection:
		return false, fmt.Errorf("the table of that name is the connection %q's; it was not changed: "+
			"rename the stream in one of them, or give this connection a store of its own", connection)
	case has != name:
		return false, fmt.Errorf("its table is there as %q: names that differ only in case are the same in SQLite: "+
			"rename the stream", has)
	case begun == c.begun:
		return true, nil
	}
	return false, c.setAside(ctx, tx, name)
}

// setAside renames a table to the first such name that is free.
func (c *change) setAside(ctx context.Context, tx collect.Execer, name string) error {
	at, err := time.Parse(time.RFC3339Nano, c.begun)
	if err != nil {
		// The connection's state was forgotten, and nobody asked for this.
		return errors.New("its table is of a state of the connection that was forgotten; it was not changed: " +
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
		// Its columns follow.
		_, err = tx.ExecContext(ctx, `UPDATE headway_tables SET name = ? WHERE name = ?`, to, name)
		return err
	}
}

// quote makes any name an identifier.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// row reads the one row of a query; sql.ErrNoRows when there is none.
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
