package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

const (
	// name begins all errors.
	name = "sqlite sink"
	// maxPending is the maximum size of the records of one slice, in bytes.
	maxPending = 256 << 20
)

var errOtherSink = errors.New("it belongs to another sink")

// Sink writes records into the store's own file. Create one with [New]. It is
// not safe for concurrent use.
type Sink struct {
	connection string
	max        int

	// own reports that the store's tables are in another file.
	own bool

	// aside is when SetAside was called, for the next Open.
	aside string

	// The rest is set between Open and Close.
	open bool
	// begun is when this connection last started over, "" if it never did. Tables with
	// another begun are set aside.
	begun   string
	streams []collect.StreamInfo
	pending map[string][]record
	size    int
}

// record waits for the commit. If remaining is set, it is a mark for deleted records
// instead.
type record struct {
	key, parent string
	data        []byte
	remaining   *remaining
	older       *older // nil for a record that replaces its row
}

var (
	_ collect.Transactional = (*Sink)(nil)
	_ collect.Asider        = (*Sink)(nil)
	_ collect.Marker        = (*Sink)(nil)
	_ collect.Located       = (*Sink)(nil)
)

// New returns a sink for one connection's records, in the file of the store that commits
// them. The connection's name distinguishes its tables from those of other connections.
func New(connection string) *Sink { return &Sink{connection: connection, max: maxPending} }

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
	if err := sinkstate.MayOpen(ctx, name, "", s.open); err != nil {
		return err
	}
	if s.connection == "" {
		return errors.New(name + ": the connection has no name")
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
	begun := p.SQLite.Begun
	if s.aside != "" {
		begun = s.aside
	}
	*s = Sink{
		connection: s.connection, max: s.max, own: s.own,
		open: true, begun: begun, streams: slices.Clone(streams), pending: map[string][]record{},
	}
	return nil
}

// Write buffers records for the commit. See [collect.Sink]. If a record is not JSON in
// UTF-8 or has no key, or the slice exceeds 256 MiB, Write returns an error and buffers
// none of the records.
func (s *Sink) Write(ctx context.Context, stream string, records []collect.Record) error {
	info, err := s.writable(ctx, stream)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	added := make([]record, len(records))
	size := s.size
	for i, r := range records {
		b.Reset()
		if err := sinkstate.AppendRow(&b, name, info, r, i, len(records)); err != nil {
			return err
		}
		added[i] = record{key: r.Key, parent: r.Parent, data: bytes.Clone(b.Bytes())}
		if size += len(r.Key) + len(r.Parent) + b.Len(); size > s.max {
			return fmt.Errorf("sqlite sink: stream %q: the slice has more than %d bytes, which are kept in memory until its commit: "+
				"request smaller pages", stream, s.max)
		}
	}
	s.pending[stream], s.size = append(s.pending[stream], added...), size
	return nil
}

// Sync returns the position to commit. See [collect.Sink]. The records become durable in
// the transaction that calls the result of [Sink.Pending].
func (s *Sink) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := sinkstate.MayWrite(ctx, name, s.open); err != nil {
		return nil, err
	}
	return json.Marshal(position{&tables{Begun: s.begun}})
}

// Pending returns a function that writes the records since the last call, or nil if there
// are none. See [collect.Transactional]. The function may be called again if its
// transaction was rolled back.
func (s *Sink) Pending() func(ctx context.Context, tx collect.Execer) error {
	if !s.open || s.size == 0 {
		return nil
	}
	c := change{connection: s.connection, begun: s.begun, streams: s.streams, records: s.pending}
	s.pending, s.size = map[string][]record{}, 0
	return c.apply
}

// Close releases the sink. See [collect.Sink]. Records that were not committed are lost.
func (s *Sink) Close() error {
	*s = Sink{connection: s.connection, max: s.max, own: s.own}
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
	if s.open {
		return nil, errors.New("sqlite sink: it is open: set tables aside before Open")
	}
	s.aside = at.UTC().Format(time.RFC3339Nano)
	return nil, nil
}

func (s *Sink) writable(ctx context.Context, stream string) (collect.StreamInfo, error) {
	if err := sinkstate.MayWrite(ctx, name, s.open); err != nil {
		return collect.StreamInfo{}, err
	}
	return sinkstate.Stream(name, s.streams, stream)
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
	if err := sqlitefile.Write(ctx, s.conn, f); err != nil {
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
	db, err := sql.Open("sqlite", sqlitefile.DSN(path, "ro"))
	if err != nil {
		return false
	}
	defer func() { _ = db.Close() }()
	var id string
	err = db.QueryRowContext(ctx, `SELECT id FROM headway_slices WHERE connection = ?`, s.gather.connection).Scan(&id)
	return err == nil && id == p.File.ID
}

// waiting is the encoding of a record in a staged slice.
type waiting struct {
	Key    string          `json:"key,omitempty"`
	Parent string          `json:"parent,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	// Older marks a record that replaces no row. At is when it was deleted, if it was.
	Older bool `json:"older,omitempty"`
	// Remain are the keys that the parent still has at the time At; nil for a record.
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
