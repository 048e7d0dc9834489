package sqlite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
)

var (
	_ collect.Restorer = (*Sink)(nil)
	_ collect.Restorer = (*File)(nil)
)

// older makes a record one that is written only where there is no row of its key.
type older struct {
	deleted time.Time // zero is one that is there
}

// Restore keeps records for the commit that are older than what the tables have. See
// [collect.Restorer] and [Sink.Write].
func (s *Sink) Restore(ctx context.Context, stream string, kept []collect.KeptRecord) error {
	records := make([]collect.Record, len(kept))
	for i, k := range kept {
		records[i] = k.Record
	}
	had := len(s.pending[stream])
	if err := s.Write(ctx, stream, records); err != nil {
		return err
	}
	for i, k := range kept {
		s.pending[stream][had+i].older = &older{deleted: k.Deleted}
	}
	return nil
}

// Restore keeps records for the commit that are older than what the tables have. See
// [Sink.Restore].
func (s *File) Restore(ctx context.Context, stream string, kept []collect.KeptRecord) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.gather.Restore(ctx, stream, kept)
}

// restore writes older records, where there is no row of their keys.
func (t *table) restore(ctx context.Context, tx collect.Execer, records []record) error {
	return t.insert(ctx, tx, records, t.onConflict("DO NOTHING"))
}

// restoreGone writes one older record that is gone, where there is no row of its key.
func (t *table) restoreGone(ctx context.Context, tx collect.Execer, r record) error {
	var one int
	where := make([]string, len(t.key()))
	args := []any{r.key}
	if t.detail {
		args = []any{r.parent, r.key}
	}
	for i, name := range t.key() {
		where[i] = name + " = ?"
	}
	query := fmt.Sprintf("SELECT 1 FROM %s WHERE %s", quote(t.name), strings.Join(where, " AND "))
	if row(ctx, tx, query, args, &one) == nil {
		return nil // what is there is newer
	}
	if err := t.restore(ctx, tx, []record{r}); err != nil {
		return err
	}
	if !t.marks {
		if err := t.addMark(ctx, tx); err != nil || !t.marks {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET %s = ? WHERE %s", quote(t.name), columnGone, strings.Join(where, " AND ")),
		append([]any{r.older.deleted.UTC().Format(time.RFC3339)}, args...)...)
	return err
}
