package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-go/headway/collect"
)

// remaining are the keys that a parent has at an instant.
type remaining struct {
	keys map[string]bool
	at   time.Time
}

// Remain marks the rows of a detail that are not among keys: their column
// _headway_deleted_at is set with the slice's commit. See [collect.Marker].
func (s *Sink) Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	info, err := s.info(stream)
	if err != nil {
		return err
	}
	if info.Parent == "" || parent == "" {
		return fmt.Errorf("sqlite sink: stream %q: only rows of a parent can remain", stream)
	}
	left := remaining{keys: make(map[string]bool, len(keys)), at: at}
	for _, k := range keys {
		left.keys[k] = true
		s.size += len(k)
	}
	s.pending[stream] = append(s.pending[stream], record{parent: parent, remaining: &left})
	s.size += len(parent)
	return nil
}

// way is how a record is written.
type way int

const (
	upserts way = iota
	marks
	restores
	restoresGone
)

func (r record) way() way {
	switch {
	case r.remaining != nil:
		return marks
	case r.older == nil:
		return upserts
	case r.older.deleted.IsZero():
		return restores
	}
	return restoresGone
}

// write applies records and what remains in the order in which they came.
func (t *table) write(ctx context.Context, tx collect.Execer, records []record) error {
	for len(records) > 0 {
		first, n := records[0], 1
		var err error
		switch way := first.way(); way {
		case marks:
			err = t.mark(ctx, tx, first)
		case restoresGone:
			err = t.restoreGone(ctx, tx, first)
		case upserts, restores:
			for n < len(records) && records[n].way() == way {
				n++
			}
			if way == upserts {
				err = t.upsert(ctx, tx, records[:n])
			} else {
				err = t.restore(ctx, tx, records[:n])
			}
		}
		if err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

// mark sets the instant in the rows that are gone. Keys are compared here and
// not in SQL, which would need them as text.
func (t *table) mark(ctx context.Context, tx collect.Execer, r record) error {
	if !t.marks {
		if err := t.addMark(ctx, tx); err != nil || !t.marks {
			return err
		}
	}
	gone, err := t.gone(ctx, tx, r)
	if err != nil {
		return err
	}
	at := r.remaining.at.UTC().Format(time.RFC3339)
	for _, key := range gone {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(`UPDATE %s SET %s = ? WHERE %s = ? AND %s = ?`,
			quote(t.name), columnGone, columnParent, columnKey), at, r.parent, key); err != nil {
			return err
		}
	}
	return nil
}

// addMark gives the table its column, unless the records have a field of that
// name, which an earlier version gave a column.
func (t *table) addMark(ctx context.Context, tx collect.Execer) error {
	for _, c := range t.columns {
		if fold(c.name) == columnGone {
			return nil
		}
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`ALTER TABLE %s ADD COLUMN %s TEXT`, quote(t.name), columnGone))
	t.marks = err == nil
	return err
}

func (t *table) gone(ctx context.Context, tx collect.Execer, r record) (keys []string, err error) {
	rows, err := tx.QueryContext(ctx, fmt.Sprintf(`SELECT %s FROM %s WHERE %s = ? AND %s IS NULL`,
		columnKey, quote(t.name), columnParent, columnGone), r.parent)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		if !r.remaining.keys[key] {
			keys = append(keys, key)
		}
	}
	return keys, rows.Err()
}
