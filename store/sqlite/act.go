package sqlite

import (
	"context"
	"fmt"

	"github.com/headway-go/headway/collect"
)

// actions are the operator's moves: what is done, to gaps in which statuses.
var actions = map[collect.GapAction]struct{ do, from string }{
	collect.GapRetry:      {`UPDATE gaps SET status = 'pending', leased = 0, retry_at = '', tried = '', rank = ''`, `'pending', 'leased'`},
	collect.GapQuarantine: {`UPDATE gaps SET status = 'terminal', leased = 0`, `'pending', 'leased'`},
	collect.GapRelease:    {`UPDATE gaps SET status = 'pending', attempts = 0, retry_at = '', tried = '', rank = ''`, `'terminal'`},
	collect.GapDrop:       {`DELETE FROM gaps`, `'pending', 'leased', 'terminal'`},
}

// Act applies an operator's action. See [collect.Store].
func (s *Store) Act(ctx context.Context, a collect.GapAction, f collect.GapFilter, ids []int64) (n int64, err error) {
	move, ok := actions[a]
	if !ok {
		return 0, fmt.Errorf("store %s: gaps: there is no action %q", s.path, a)
	}
	err = s.w.write(ctx, string(a)+" gaps", func(t *tx) error {
		if a == collect.GapRetry {
			// Who asks for a retry now does not mean after the cooldown.
			if _, err := t.exec(`UPDATE connections SET pressure = NULL WHERE ? IN ('', name)`, f.Connection); err != nil {
				return err
			}
		}
		act := func(which string, args ...any) error {
			which = ` WHERE status IN (` + move.from + `) AND id IN (` + which + `)`
			if a == collect.GapDrop {
				if err := t.unmark(which, args); err != nil {
					return err
				}
			}
			res, err := t.w.conn.ExecContext(t.ctx, move.do+which, args...)
			if err != nil {
				return err
			}
			changed, err := res.RowsAffected()
			n += changed
			return err
		}
		if len(ids) == 0 {
			f.Limit, f.AfterID, f.Status = 0, 0, ""
			query, args := gapQuery(f)
			return act(`SELECT id FROM (`+query+`)`, args...)
		}
		for _, id := range ids {
			if err := act(`?`, id); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

// unmark takes the items that backlog gaps stand for out of what is owed.
func (t *tx) unmark(which string, args []any) error {
	_, err := t.w.conn.ExecContext(t.ctx, `UPDATE items SET owed = 0 WHERE owed = 1 AND stream IN (
		SELECT s.id FROM streams s JOIN (SELECT connection, parent, backlog FROM gaps`+which+`) g
		ON g.connection = s.connection AND g.parent = s.name AND g.backlog = 1)`, args...)
	return err
}
