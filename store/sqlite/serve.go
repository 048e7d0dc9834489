package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
)

// Serve leases the next gaps in fair order. See [collect.Store]. The order is
// that of the last attempt, or of being seen first: whoever was tried goes to
// the back, and nobody who waits is overtaken by those who come later.
func (s *Store) Serve(ctx context.Context, l collect.Lease, ask collect.ServeRequest) (page []collect.Gap, err error) {
	if ask.MaxBytes <= 0 || ask.MaxRows <= 0 {
		return nil, fmt.Errorf("store %s: serve: at most %d bytes and %d rows were asked for, both must be above 0", s.path, ask.MaxBytes, ask.MaxRows)
	}
	err = s.w.write(ctx, "serve gaps", func(t *tx) error {
		h, err := t.fence(l)
		if err != nil {
			return err
		}
		if page, err = t.due(h, ask); err != nil {
			return err
		}
		for _, g := range page {
			if _, err := t.exec(`UPDATE gaps SET status = ?, leased = ? WHERE id = ?`,
				string(collect.GapLeased), l.Token, g.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return page, err
}

// due reads a page of gaps, bounded by bytes while it reads: rows of any size
// make a page of about the same weight.
func (t *tx) due(h held, ask collect.ServeRequest) (page []collect.Gap, err error) {
	where, args := "", []any{h.connection, string(collect.GapPending), instant(ask.Now), instant(ask.Before)}
	if ask.NoPressure {
		where = `AND g.reason NOT IN (` + pressures + `)`
	}
	if ask.Streams != nil {
		where += ` AND g.stream IN (NULL` + strings.Repeat(", ?", len(ask.Streams)) + `)`
		for _, s := range ask.Streams {
			args = append(args, s)
		}
	}
	rows, err := t.w.conn.QueryContext(t.ctx, `SELECT `+gapColumns+` FROM gaps g
		WHERE g.connection = ? AND g.status = ? AND g.retry_at <= ? AND g.tried < ? `+where+`
		ORDER BY g.rank, g.id LIMIT ?`,
		append(args, ask.MaxRows)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for size := int64(0); rows.Next(); {
		g, err := scanGap(rows)
		if err != nil {
			return nil, err
		}
		if size += int64(len(g.Locator)); len(page) > 0 && size > ask.MaxBytes {
			break
		}
		page = append(page, g)
	}
	return page, rows.Err()
}

// pressures lists the pressure reasons as SQL text.
var pressures = func() string {
	var names []string
	for _, r := range reason.All() {
		if _, ok := reason.AsPressure(r); ok {
			names = append(names, "'"+r.String()+"'")
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}()

// returned gives a served gap back as it was.
func (t *tx) returned(h held, key collect.GapKey) error {
	_, err := t.exec(`UPDATE gaps SET status = ?, leased = 0 WHERE connection = ? AND stream = ? AND key = ? AND status = ?`,
		string(collect.GapPending), h.connection, key.Stream, key.Key, string(collect.GapLeased))
	return err
}
