package postgres

import (
	"context"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/store/internal/sqlstore"
)

// Commit makes one slice durable, atomically. See [collect.Store].
//
// Recovered gaps are closed before Opened ones are written, so a gap in both is
// open afterwards. An opened gap is pending unless it carries another status. An
// existing gap gets the new reason, error, instants and status, and the new locator
// and parent if they are set. Attempts are added to its own; a negative number
// reduces them to 0 at least. For a recovered gap that opens again, attempts and
// first seen start again.
//
// Within gets the session of the transaction, a [database/sql.Conn] of pgx's driver.
// It may be called again if the server was away.
func (s *Store) Commit(ctx context.Context, l collect.Lease, c collect.Commit) error {
	if err := c.Check("store " + s.name); err != nil {
		return err
	}
	return s.holding(ctx, "commit", l, func(t *tx, h sqlstore.Held) error {
		if err := h.Commit(t, &c, func(stream string, items []collect.KnownItem) error {
			t.items(h, stream, items)
			return nil
		}); err != nil || c.Within == nil {
			return err
		}
		if err := t.flush(); err != nil {
			return err
		}
		return c.Within(t.ctx, t.Conn)
	})
}

// items writes the items that have changed, and adds the number of new ones to the
// stream's. It takes one statement.
func (t *tx) items(h sqlstore.Held, stream string, items []collect.KnownItem) {
	// A statement may write each key only once. Of duplicates the last counts.
	at := make(map[string]int, len(items))
	keys, fingerprints := make([]string, 0, len(items)), make([]string, 0, len(items))
	children, owed := make([][]byte, 0, len(items)), make([]bool, 0, len(items))
	for _, it := range items {
		if i, twice := at[it.Key]; twice {
			fingerprints[i], children[i], owed[i] = it.Fingerprint, it.Children, it.Owed
			continue
		}
		at[it.Key] = len(keys)
		keys, fingerprints = append(keys, it.Key), append(fingerprints, it.Fingerprint)
		children, owed = append(children, it.Children), append(owed, it.Owed)
	}
	t.Queue(`INSERT INTO headway_streams (connection, name) VALUES ($1, $2) ON CONFLICT DO NOTHING`, h.Connection, stream)
	t.Queue(`WITH written AS (
			INSERT INTO headway_items AS i (stream, key, fingerprint, children, owed)
			SELECT s.id, u.key, u.fingerprint, u.children, u.owed
			FROM headway_streams s, unnest($3::text[], $4::text[], $5::bytea[], $6::boolean[]) AS u (key, fingerprint, children, owed)
			WHERE s.connection = $1 AND s.name = $2
			ON CONFLICT (stream, key) DO UPDATE SET fingerprint = excluded.fingerprint, children = excluded.children, owed = excluded.owed
			WHERE i.fingerprint <> excluded.fingerprint OR i.children IS DISTINCT FROM excluded.children OR i.owed <> excluded.owed
			RETURNING (i.xmax = 0) AS fresh)
		UPDATE headway_streams SET items = items + (SELECT count(*) FROM written WHERE fresh)
		WHERE connection = $1 AND name = $2 AND EXISTS (SELECT 1 FROM written WHERE fresh)`,
		h.Connection, stream, escaped(keys), escaped(fingerprints), children, owed)
}
