package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/headway-go/headway/collect"
)

// reshaped writes how a stream is read from now on, and what that makes of its
// known items.
func (t *tx) reshaped(h held, r collect.Reshaped) error {
	b, err := json.Marshal(r.Shape)
	if err != nil {
		return err
	}
	stream := r.Shape.Stream
	if _, err := t.exec(`INSERT INTO headway_shapes (connection, stream, shape) VALUES (?1, ?2, ?3)
		ON CONFLICT (connection, stream) DO UPDATE SET shape = ?3`, h.connection, stream, string(b)); err != nil {
		return err
	}
	const items = ` WHERE stream = (SELECT id FROM streams WHERE connection = ? AND name = ?)`
	for _, move := range []struct {
		when  bool
		query string
	}{
		{r.ForgetItems, `DELETE FROM items` + items},
		{r.ForgetItems, `DELETE FROM streams WHERE connection = ? AND name = ?`},
		{r.ForgetItems, `DELETE FROM gaps WHERE connection = ? AND parent = ?`},
		{r.ForgetFingerprints, `UPDATE items SET fingerprint = ''` + items},
		{r.ForgetChildren, `UPDATE items SET children = NULL` + items},
		{r.OweDetails, `UPDATE items SET owed = 1` + items},
	} {
		if !move.when {
			continue
		}
		if _, err := t.exec(move.query, h.connection, stream); err != nil {
			return err
		}
	}
	return nil
}

// shapes reads how a connection's streams were read. One that cannot be read any
// more is left out, as if it had never been kept.
func shapes(ctx context.Context, t *sql.Tx, connection int64) (list []collect.StreamShape, err error) {
	rows, err := t.QueryContext(ctx, `SELECT shape FROM headway_shapes WHERE connection = ? ORDER BY stream`, connection)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var b []byte
		if err := rows.Scan(&b); err != nil {
			return nil, err
		}
		var s collect.StreamShape
		if json.Unmarshal(b, &s) == nil {
			list = append(list, s)
		}
	}
	return list, rows.Err()
}
