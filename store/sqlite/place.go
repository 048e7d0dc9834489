package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/headway-go/headway/collect"
)

// sink writes the sink's position. When the sink is another one than before, the
// position that the former had is kept beside it.
func (t *tx) sink(h held, c *collect.Commit) error {
	if c.SinkAt.Kind != "" {
		if _, err := t.exec(`INSERT INTO headway_sinks (connection, kind, path, position)
			SELECT id, sink_kind, sink_path, sink FROM connections
			WHERE id = ?1 AND sink IS NOT NULL AND sink_kind <> '' AND (sink_kind <> ?2 OR sink_path <> ?3)
			ON CONFLICT (connection, kind, path) DO UPDATE SET position = excluded.position`,
			h.connection, c.SinkAt.Kind, c.SinkAt.Path); err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM headway_sinks WHERE connection = ? AND kind = ? AND path = ?`,
			h.connection, c.SinkAt.Kind, c.SinkAt.Path); err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE connections SET sink_kind = ?, sink_path = ? WHERE id = ?`,
			c.SinkAt.Kind, c.SinkAt.Path, h.connection); err != nil {
			return err
		}
	}
	if c.Replays != nil {
		b, err := json.Marshal(c.Replays)
		if err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE connections SET replays = ? WHERE id = ?`, string(b), h.connection); err != nil {
			return err
		}
	}
	if c.Sink == nil {
		return nil
	}
	_, err := t.exec(`UPDATE connections SET sink = ? WHERE id = ?`, []byte(c.Sink), h.connection)
	return err
}

// formerSinks reads the sinks that a connection had before, by kind and path.
func formerSinks(ctx context.Context, t *sql.Tx, connection int64) (list []collect.FormerSink, err error) {
	rows, err := t.QueryContext(ctx, `SELECT kind, path, position FROM headway_sinks WHERE connection = ? ORDER BY kind, path`, connection)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var s collect.FormerSink
		var position []byte
		if err := rows.Scan(&s.Kind, &s.Path, &position); err != nil {
			return nil, err
		}
		s.Position = position
		list = append(list, s)
	}
	return list, rows.Err()
}

// replays reads how far copies into the connection's sinks have come.
func replays(text string) (list []collect.Replay, err error) {
	err = json.Unmarshal([]byte(text), &list)
	if len(list) == 0 {
		return nil, err
	}
	return list, err
}
