// Package sqlite writes records into SQLite, one table for each stream. Records are
// neither lost nor duplicated if the process is killed.
//
// [Sink] writes into the file of a store/sqlite store, in the transaction that moves the
// cursor. [File] writes into its own file in two steps: a slice is staged durably before
// its cursor is committed, and applied to the tables after.
//
// Use it to query records in SQL. Use sink/jsonl to keep every version of a record, and
// sink/parquet for analytics over many files. A [Sink] works only with a store/sqlite
// store; with another the first commit fails. A [File] works with any store.
//
// # Tables
//
// A table has its stream's name. [Sink.Open] refuses a name that is a table of the
// store, begins with sqlite_ or headway_, or ends in _bak. The primary key is _key for a
// list stream and (_parent, _key) for a detail stream. A new version of a record replaces
// its row; fields that it no longer has become NULL.
//
// When the provider deletes a detail record, its row stays, and the column
// _headway_deleted_at holds the time at which the deletion was noticed. For other rows it
// is NULL. The column is added with the first such row.
//
// Each top-level field of the records has a column of its name, which is added with the
// first record that has a value for it. The columns have the type ANY in a STRICT table,
// which never changes a value, so that a column of integers also takes reals and texts:
//
//	JSON                    column
//	integer of 64 bits      INTEGER
//	other number            REAL if that is exact, otherwise its digits as TEXT
//	string                  TEXT
//	true, false             INTEGER 1, 0
//	array, object           its JSON as TEXT
//	null, or missing        NULL
//
// # Values that do not fit
//
// The column _rest is NULL, or a JSON object with the fields of the record that cannot be
// restored from their columns:
//
//   - nulls
//   - numbers that are too large or too precise
//   - booleans, arrays and objects in a column of another kind, and other values in a
//     column of booleans, arrays or objects
//   - fields without a column, because the name differs from another one only in case, is
//     reserved by this package or by SQLite (rowid, oid, _rowid_), is longer than 100
//     bytes, is empty or has a control character, or because the table has 1,000 columns
//
// A field in _rest takes precedence over its column. If a record has a name twice, the
// last value counts. A record that is not an object has its JSON in the column _value.
//
// The table headway_columns holds the kind of each column (boolean, json or plain), and
// headway_tables the connection of each table. So each record can be read back exactly.
//
// # Starting over
//
// [Sink.SetAside] changes nothing itself. The first commit with records after it renames
// this connection's tables to NAME_TIME_bak, in the transaction that writes the first new
// rows.
//
// # Limits
//
// The records of one slice are kept in memory until its commit, as compact JSON, at most
// 256 MiB. A Sink or File is not safe for concurrent use. It reads no clock. A Sink opens
// no file.
//
// Stability: settling.
package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/sink/internal/pending"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// name begins all errors.
const name = "sqlite sink"

var errOtherSink = errors.New("it belongs to another sink")

// Sink writes records into the store's own file. Create one with [New]. It is
// not safe for concurrent use.
type Sink struct {
	slice pending.Slice
	// own reports that the store's tables are in another file.
	own bool
	// begun is when this connection last started over, "" if it never did. Tables with
	// another begun are set aside. It is set between Open and Close.
	begun string
}

var (
	_ collect.Transactional = (*Sink)(nil)
	_ collect.Asider        = (*Sink)(nil)
	_ collect.Marker        = (*Sink)(nil)
	_ collect.Located       = (*Sink)(nil)
)

// New returns a sink for one connection's records, in the file of the store that commits
// them. The connection's name distinguishes its tables from those of other connections.
func New(connection string) *Sink {
	return &Sink{slice: pending.Slice{Sink: name, Connection: connection, Escape: strings.Clone, Max: pending.MaxBytes}}
}

// Location returns the state file, as a kind without a path.
func (s *Sink) Location() collect.Location { return collect.Location{Kind: "state"} }

// position is the position that is committed. The rows are in the same transaction, so it
// counts nothing.
type position struct {
	SQLite *tables `json:"sqlite"`
}

type tables struct {
	Begun string `json:"begun,omitzero"`
}

// Open checks the names of the streams and the position. See [collect.Sink]. There is
// nothing to discard: the file holds only committed records.
func (s *Sink) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	if err := s.slice.MayOpen(ctx); err != nil {
		return err
	}
	p := position{SQLite: &tables{}}
	if err := sinkstate.Position(name, "; nothing was changed", committed, &p, func() error {
		if p.SQLite == nil {
			return errOtherSink
		}
		return nil
	}); err != nil {
		return err
	}
	if err := checkNames(streams, s.own); err != nil {
		return err
	}
	s.begun = cmp.Or(s.slice.Aside, p.SQLite.Begun)
	s.slice.Begin(streams)
	return nil
}

// Write buffers records for the commit. See [collect.Sink]. If a record is not JSON in
// UTF-8 or has no key, or the slice exceeds 256 MiB, Write returns an error and buffers
// none of the records.
func (s *Sink) Write(ctx context.Context, stream string, records []collect.Record) error {
	return s.slice.Write(ctx, stream, records)
}

// Restore buffers records for the commit that are older than those in the tables. See
// [collect.Restorer] and [Sink.Write].
func (s *Sink) Restore(ctx context.Context, stream string, kept []collect.KeptRecord) error {
	return s.slice.Restore(ctx, stream, kept)
}

// Remain marks the rows of a detail whose keys are not among keys: the slice's commit sets
// their column _headway_deleted_at. See [collect.Marker].
func (s *Sink) Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	return s.slice.Remain(ctx, stream, parent, keys, at)
}

// Sync returns the position to commit. See [collect.Sink]. The records become durable in
// the transaction that calls the result of [Sink.Pending].
func (s *Sink) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := sinkstate.MayWrite(ctx, name, s.slice.Open); err != nil {
		return nil, err
	}
	return json.Marshal(position{&tables{Begun: s.begun}})
}

// Pending returns a function that writes the records since the last call, or nil if there
// are none. See [collect.Transactional]. The function may be called again if its
// transaction was rolled back.
func (s *Sink) Pending() func(ctx context.Context, tx collect.Execer) error {
	if !s.slice.Open || s.slice.Size == 0 {
		return nil
	}
	return s.take().apply
}

// take removes the buffered records and returns them as a change.
func (s *Sink) take() *change {
	return &change{connection: s.slice.Connection, begun: s.begun, streams: s.slice.Streams, records: s.slice.Take()}
}

// Close releases the sink. See [collect.Sink]. Records that were not committed are lost.
func (s *Sink) Close() error {
	s.slice.End()
	s.begun = ""
	return nil
}

// SetAside makes the next commit that has records rename the connection's tables to
// NAME_TIME_bak, for a collection that starts over. See [collect.Asider]. The commit
// renames the tables of all streams that were passed to Open, in its transaction, so
// SetAside returns no names. The sink must not be open, and the connection's state must
// be forgotten before it is opened.
//
// An interrupted call may be repeated.
func (s *Sink) SetAside(_ []string, at time.Time) ([]string, error) {
	return nil, s.slice.SetAside(at)
}

// reserved are the names of the store's tables and indexes, which are in the same file.
// Later versions of the store name theirs headway_*.
var reserved = []string{
	"connections", "events", "gaps", "gaps_by_rank", "gaps_by_status", "items", "lanes", "runs", "runs_of_connection", "streams",
}

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

// connect opens the database. If it is new, it creates the tables of this package.
func (s *File) connect(ctx context.Context) error {
	path, err := filepath.Abs(s.path)
	if err != nil {
		return s.explain("find", err)
	}
	if err := sqlitefile.Create(path); err != nil {
		return s.explain("create", err)
	}
	if s.conn, err = sqlitefile.Open(ctx, path, "rw"); err != nil {
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

// durable sets whether a commit waits until the transaction is on disk.
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
	if err := sqlitefile.Write(ctx, s.conn.Conn, f); err != nil {
		return s.explain("write", err)
	}
	return nil
}

func (s *File) explain(what string, err error) error {
	return fmt.Errorf("sqlite sink: %s: %s: %w: what was committed is kept; check the file and its disk, then run again", s.path, what, err)
}

// Recognizes reports whether the file belongs to a position. See
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
	conn, err := sqlitefile.Open(ctx, path, "ro")
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	var id string
	err = conn.QueryRowContext(ctx, `SELECT id FROM headway_slices WHERE connection = ?`, s.gather.slice.Connection).Scan(&id)
	return err == nil && id == p.File.ID
}

var _ collect.Execer = (*sqlitefile.Conn)(nil)
