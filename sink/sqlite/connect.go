package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
)

const sliceTable = `
CREATE TABLE IF NOT EXISTS headway_slices (
    connection TEXT PRIMARY KEY,
    id         TEXT NOT NULL,
    -- The number of the last slice that is in the tables.
    applied    INTEGER NOT NULL,
    begun      TEXT NOT NULL,
    -- A slice that waits for the state's commit, and its number; NULL is none.
    staged     INTEGER NOT NULL,
    slice      TEXT
) STRICT, WITHOUT ROWID;`

// connect opens the database, and makes it one of records when it is new.
func (s *File) connect(ctx context.Context) error {
	path, err := filepath.Abs(s.path)
	if err != nil {
		return s.explain("find", err)
	}
	if err := sqlitefile.Create(path); err != nil {
		return s.explain("create", err)
	}
	if s.db, err = sql.Open("sqlite", sqlitefile.DSN(path, "rw")); err != nil {
		return s.explain("open", err)
	}
	if s.conn, err = s.db.Conn(ctx); err != nil {
		return s.explain("open", err)
	}
	var id, version, tables int64
	if err := s.conn.QueryRowContext(ctx, `SELECT (SELECT application_id FROM pragma_application_id),
		(SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema)`).Scan(&id, &version, &tables); err != nil {
		return s.explain("open", err)
	}
	fresh := id == 0 && version == 0 && tables == 0
	if !fresh && id != sqlitefile.RecordsID && id != sqlitefile.StoreID {
		return fmt.Errorf("sqlite sink: %s is a database of another program (application id %d, %d tables); nothing was changed: "+
			"name another file", s.path, id, tables)
	}
	if _, err := s.conn.ExecContext(ctx, `PRAGMA journal_mode = wal`); err != nil {
		return s.explain("open", err)
	}
	if err := s.durable(ctx, true); err != nil {
		return err
	}
	return s.write(ctx, func() error {
		query := sliceTable
		if fresh {
			query += fmt.Sprintf("PRAGMA application_id = %d;", sqlitefile.RecordsID)
		}
		_, err := s.conn.ExecContext(ctx, query)
		return err
	})
}

// durable says whether transactions are on disk when they are committed.
func (s *File) durable(ctx context.Context, yes bool) error {
	mode := "normal"
	if yes {
		mode = "full"
	}
	if _, err := s.conn.ExecContext(ctx, "PRAGMA synchronous = "+mode); err != nil {
		return s.explain("open", err)
	}
	return nil
}

// write runs f in a transaction.
func (s *File) write(ctx context.Context, f func() error) error {
	if err := sqlitefile.Write(ctx, s.conn, f); err != nil {
		return s.explain("write", err)
	}
	return nil
}

func (s *File) explain(what string, err error) error {
	return fmt.Errorf("sqlite sink: %s: %s: %w: what was committed is kept; see to the file and its disk, then run again", s.path, what, err)
}

// Recognizes reports whether the file is the one of a position. See
// [collect.Recognizer].
func (s *File) Recognizes(ctx context.Context, committed json.RawMessage) bool {
	var p filePosition
	path, err := filepath.Abs(s.path)
	if err != nil || json.Unmarshal(committed, &p) != nil || p.File == nil {
		return false
	}
	if _, err := os.Stat(path); err != nil {
		return false
	}
	db, err := sql.Open("sqlite", sqlitefile.DSN(path, "ro"))
	if err != nil {
		return false
	}
	defer func() { _ = db.Close() }()
	var id string
	err = db.QueryRowContext(ctx, `SELECT id FROM headway_slices WHERE connection = ?`, s.gather.connection).Scan(&id)
	return err == nil && id == p.File.ID
}

// waiting is a record as a staged slice has it.
type waiting struct {
	Key    string          `json:"key,omitempty"`
	Parent string          `json:"parent,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	// Older is a record that replaces no row; At is when it went, zero is not.
	Older bool `json:"older,omitempty"`
	// Remain are the keys that are left of the parent at an instant; nil for a record.
	Remain *[]string `json:"remain,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

func encodeSlice(c *change) (string, error) {
	all := map[string][]waiting{}
	for stream, records := range c.records {
		for _, r := range records {
			w := waiting{Key: r.key, Parent: r.parent, Data: r.data}
			if r.remaining != nil {
				keys := make([]string, 0, len(r.remaining.keys))
				for k := range r.remaining.keys {
					keys = append(keys, k)
				}
				w.Remain, w.At = &keys, r.remaining.at
			}
			if r.older != nil {
				w.Older, w.At = true, r.older.deleted
			}
			all[stream] = append(all[stream], w)
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(all)
	return b.String(), err
}

func decodeSlice(text string) (*change, error) {
	var all map[string][]waiting
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, err
	}
	c := &change{records: map[string][]record{}}
	for stream, list := range all {
		for _, w := range list {
			r := record{key: w.Key, parent: w.Parent, data: w.Data}
			if w.Remain != nil {
				r.remaining = &remaining{keys: map[string]bool{}, at: w.At}
				for _, k := range *w.Remain {
					r.remaining.keys[k] = true
				}
			}
			if w.Older {
				r.older = &older{deleted: w.At}
			}
			c.records[stream] = append(c.records[stream], r)
		}
	}
	return c, nil
}

var _ collect.Execer = (*sql.Conn)(nil)
