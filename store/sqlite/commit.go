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

// Commit makes one slice durable in one transaction. See [collect.Store].
//
// Recovered gaps are closed before Opened ones are written, so a gap in both is owed. An
// opened gap is pending unless it has another status. A gap that exists gets the new
// reason, error, times and status, and the new locator and parent if they are not empty.
// Its attempts are added; they may be negative, but the sum is at least 0. A gap that was
// recovered and is opened again starts with new attempts and a new FirstSeen.
func (s *Store) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	if err := c.Check("store " + s.path); err != nil {
		return err
	}
	return s.holding(ctx, "commit", l, func(t *tx, h sqlstore.Held) error {
		err := h.Commit(t, &c, func(stream string, items []collect.KnownItem) error { return t.items(h, stream, items) })
		if err != nil || t.failed != nil || c.Within == nil {
			return err
		}
		return c.Within(t.ctx, t.w.conn.Conn)
	})
}

// rows is the number of items that one statement writes.
const rows = 50

// inserting returns a statement for n rows of items. Its first parameter is the stream.
func inserting(row string, n int) string {
	return `INSERT INTO items (stream, key, fingerprint, children, owed) VALUES ` + strings.Repeat(row+", ", n-1) + row +
		` ON CONFLICT (stream, key) DO NOTHING`
}

// Items that are not owed and have no children, such as all items of a stream without
// details, have statements without these columns: binding parameters is much of the cost
// of an insert.
const (
	wholeRow = `(?1, ?, ?, ?, ?)`
	plainRow = `(?1, ?, ?, NULL, 0)`
)

var (
	insertWhole, insertWholes = inserting(wholeRow, 1), inserting(wholeRow, rows)
	insertPlain, insertPlains = inserting(plainRow, 1), inserting(plainRow, rows)
)

// insert writes items with one statement and returns how many are new.
func (t *tx) insert(stream int64, items []collect.KnownItem, plain bool, query string) (int64, error) {
	args := make([]any, 0, 1+4*len(items))
	args = append(args, stream)
	for i := range items {
		it := &items[i]
		args = append(args, it.Key, it.Fingerprint)
		if !plain {
			args = append(args, it.Children, it.Owed)
		}
	}
	added, err := t.Exec(query, args...)
	if err != nil || added == int64(len(items)) {
		return added, err
	}
	for i := range items {
		it := &items[i]
		// Most known items are unchanged; nothing is written for them.
		if _, err := t.Exec(`UPDATE items SET fingerprint = ?3, children = ?4, owed = ?5 WHERE stream = ?1 AND key = ?2
			AND (fingerprint IS NOT ?3 OR children IS NOT ?4 OR owed IS NOT ?5)`, stream, it.Key, it.Fingerprint, it.Children, it.Owed); err != nil {
			return added, err
		}
	}
	return added, nil
}

// items writes items and updates the number of items of the stream.
func (t *tx) items(h sqlstore.Held, stream string, items []collect.KnownItem) error {
	var id int64
	err := t.Row(`SELECT id FROM streams WHERE connection = ? AND name = ?`, []any{h.Connection, stream}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		err = t.Row(`INSERT INTO streams (connection, name) VALUES (?, ?) RETURNING id`, []any{h.Connection, stream}, &id)
	}
	if err != nil {
		return err
	}
	one, many := insertWhole, insertWholes
	plain := !slices.ContainsFunc(items, func(it collect.KnownItem) bool { return it.Children != nil || it.Owed })
	if plain {
		one, many = insertPlain, insertPlains
	}
	var added int64
	for len(items) > 0 {
		// The rest is written one by one, so that there is no statement for each
		// number of rows.
		query, n := one, 1
		if len(items) >= rows {
			query, n = many, rows
		}
		fresh, err := t.insert(id, items[:n], plain, query)
		if err != nil {
			return err
		}
		added, items = added+fresh, items[n:]
	}
	if added > 0 {
		_, err = t.Exec(`UPDATE streams SET items = items + ? WHERE id = ?`, added, id)
	}
	return err
}
