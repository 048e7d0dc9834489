package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/fault"
	"github.com/headway-go/headway/sink/internal/field"
)

// File writes records into a database of its own, apart from the state. Make one
// with [NewFile]. It is not safe for concurrent use.
//
// Its tables are those of [Sink]. A slice becomes durable in two steps, since it
// and the state's cursor are in two files:
//
//	stateDiagram-v2
//	    [*] --> staged: Sync writes the slice's records aside, durably, with its number
//	    staged --> applied: Committed, the next Write or Sync, or an Open whose position has the number
//	    staged --> [*]: an Open whose position does not: the slice comes again
//
// So the tables never hold a record that the state does not know of, and those of
// the last slice appear once its cursor is committed. A process that is killed in
// between leaves them staged, and the next Open applies them.
type File struct {
	path string
	// gather keeps the records of a slice; it writes nothing.
	gather *Sink

	// The rest is set between Open and Close.
	db   *sql.DB
	conn *sql.Conn
	mark mark
	// staged waits for its position to be committed; may be nil.
	staged  *change
	noticed []collect.Change
}

// mark is how far the file has come.
type mark struct {
	// ID tells this collection of the connection from others.
	ID string `json:"id"`
	// Slice is the number of the last slice that is applied.
	Slice int64 `json:"slice"`
	// begun is when the connection last started over.
	begun string
}

// filePosition is what is committed.
type filePosition struct {
	File *mark `json:"sqlite_file"`
}

var (
	_ collect.Informed   = (*File)(nil)
	_ collect.Asider     = (*File)(nil)
	_ collect.Marker     = (*File)(nil)
	_ collect.Noticer    = (*File)(nil)
	_ collect.Recognizer = (*File)(nil)
)

// For gives the sink of a connection whose file is at path: a [File], or a [Sink]
// when path is empty or names the file of the state, whose records are committed
// with it.
func For(connection, path, state string) collect.Located {
	if path == "" || sameFile(path, state) {
		return New(connection)
	}
	return NewFile(path, connection)
}

// sameFile reports whether two paths name one file, which may not exist yet.
func sameFile(a, b string) bool {
	one, errOne := os.Stat(a)
	two, errTwo := os.Stat(b)
	if errOne == nil && errTwo == nil {
		return os.SameFile(one, two)
	}
	a, errOne = filepath.Abs(a)
	b, errTwo = filepath.Abs(b)
	return errOne == nil && errTwo == nil && a == b
}

// NewFile gives a sink for one connection's records in the database at path, which
// Open creates when it does not exist. Several connections may share it.
func NewFile(path, connection string) *File {
	gather := New(connection)
	gather.own = true
	return &File{path: path, gather: gather}
}

// Location is the file as it was given to NewFile.
func (s *File) Location() collect.Location { return collect.Location{Kind: "sqlite", Path: s.path} }

// Open brings the tables to a committed position. See [collect.Sink]. A file that
// is new where slices were committed was moved away: a new one begins, and
// [File.Noticed] says so. It is an error when the file has less than was
// committed, and when it holds the connection's records of another state; then
// nothing was changed.
func (s *File) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	if s.conn != nil {
		return errors.New("sqlite sink: it is open already: Close it first")
	}
	var p filePosition
	if len(committed) > 0 && string(committed) != "null" {
		if err := json.Unmarshal(committed, &p); err != nil || p.File == nil {
			return unreadable(errors.New("it is not of this sink"))
		}
	}
	aside := s.gather.aside
	if err := s.gather.Open(ctx, nil, streams); err != nil {
		return err
	}
	s.noticed, s.staged = nil, nil
	err := s.connect(ctx)
	if err == nil {
		err = s.reconcile(ctx, p.File, aside, streams)
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	s.gather.begun = s.mark.begun
	return nil
}

// reconcile brings the file to the committed mark.
func (s *File) reconcile(ctx context.Context, committed *mark, aside string, streams []collect.StreamInfo) error {
	var slice sql.NullString
	var number int64
	err := s.conn.QueryRowContext(ctx, `SELECT id, applied, begun, staged, slice FROM headway_slices WHERE connection = ?`, s.gather.connection).
		Scan(&s.mark.ID, &s.mark.Slice, &s.mark.begun, &number, &slice)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if committed != nil && committed.Slice > 0 {
			s.noticed = append(s.noticed, collect.Change{Kind: collect.SinkFileGone})
		}
		if aside == "" {
			if aside, err = s.formerly(ctx); err != nil {
				return s.explain("read", err)
			}
		}
		return s.begin(ctx, aside)
	case err != nil:
		return s.explain("read", err)
	case committed == nil && (aside != "" || s.mark.Slice == 0 && !slice.Valid):
		return s.begin(ctx, aside)
	case committed == nil || committed.ID != s.mark.ID:
		return fmt.Errorf("sqlite sink: %s holds records of the connection %q that were collected with another state; nothing was changed: "+
			"use that state, move the file away, or start over with `headway collect --fresh`, which sets its tables aside", s.path, s.gather.connection)
	case s.mark.Slice+1 == committed.Slice && slice.Valid && number == committed.Slice:
		c, err := decodeSlice(slice.String)
		if err != nil {
			return fmt.Errorf("sqlite sink: %s: the slice that was committed last cannot be read: %w", s.path, err)
		}
		c.connection, c.begun, c.streams = s.gather.connection, s.mark.begun, streams
		s.staged = c
		return s.apply(ctx)
	case s.mark.Slice < committed.Slice:
		return fmt.Errorf("sqlite sink: %s has %d slices of the %d that were committed, so it is an older copy; nothing was changed: "+
			"restore the newest one, or move it away and run again, which begins a new one", s.path, s.mark.Slice, committed.Slice)
	case s.mark.Slice > committed.Slice:
		s.noticed = append(s.noticed, collect.Change{Kind: collect.SinkAhead})
	}
	// What was staged and not committed comes again.
	return s.write(ctx, func() error {
		_, err := s.conn.ExecContext(ctx, `UPDATE headway_slices SET staged = 0, slice = NULL WHERE connection = ? AND slice IS NOT NULL`, s.gather.connection)
		return err
	})
}

// begin makes the file the connection's from its first slice on.
func (s *File) begin(ctx context.Context, begun string) error {
	s.mark = mark{ID: rand.Text(), begun: begun}
	return s.write(ctx, func() error {
		_, err := s.conn.ExecContext(ctx, `INSERT INTO headway_slices (connection, id, applied, begun, staged) VALUES (?1, ?2, 0, ?3, 0)
			ON CONFLICT (connection) DO UPDATE SET id = ?2, applied = 0, begun = ?3, staged = 0, slice = NULL`,
			s.gather.connection, s.mark.ID, begun)
		return err
	})
}

// formerly is the beginning of the connection's tables in a file that held the
// state as well; "" when there are none.
func (s *File) formerly(ctx context.Context) (begun string, err error) {
	err = row(ctx, s.conn, `SELECT 1 FROM sqlite_schema WHERE name = 'headway_tables'`, nil, new(int))
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err == nil {
		err = row(ctx, s.conn, `SELECT coalesce(max(begun), '') FROM headway_tables WHERE connection = ?`, []any{s.gather.connection}, &begun)
	}
	return begun, err
}

// Write keeps records for the commit. See [Sink.Write].
func (s *File) Write(ctx context.Context, stream string, records []collect.Record) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.gather.Write(ctx, stream, records)
}

// Remain marks the rows of a detail that are not among keys. See [Sink.Remain].
func (s *File) Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.gather.Remain(ctx, stream, parent, keys, at)
}

// Sync makes the slice durable beside the tables, and gives the position to
// commit. See [collect.Sink].
func (s *File) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := s.prove(ctx); err != nil {
		return nil, err
	}
	p := s.mark
	if s.gather.size > 0 {
		p.Slice++
		c := &change{connection: s.gather.connection, begun: s.mark.begun, streams: s.gather.streams, records: s.gather.pending}
		b, err := encodeSlice(c)
		if err != nil {
			return nil, err
		}
		fault.Point(fault.FileStaging)
		if err := s.durable(ctx, true); err != nil {
			return nil, err
		}
		err = s.write(ctx, func() error {
			_, err := s.conn.ExecContext(ctx, `UPDATE headway_slices SET staged = ?, slice = ? WHERE connection = ?`, p.Slice, b, s.gather.connection)
			return err
		})
		if err != nil {
			return nil, err
		}
		fault.Point(fault.FileStaged)
		s.staged, s.gather.pending, s.gather.size = c, map[string][]record{}, 0
	}
	return json.Marshal(filePosition{&p})
}

// Committed applies the slice whose position was committed. See [collect.Informed].
func (s *File) Committed(ctx context.Context, _ json.RawMessage) error { return s.prove(ctx) }

// prove applies what is staged: its position was committed.
func (s *File) prove(ctx context.Context) error {
	if err := s.gather.usable(ctx); err != nil || s.staged == nil {
		return err
	}
	// A power cut takes this back at worst, and what is staged stays.
	if err := s.durable(ctx, false); err != nil {
		return err
	}
	return s.apply(ctx)
}

// apply writes the staged slice into the tables, and counts it as applied.
func (s *File) apply(ctx context.Context) error {
	fault.Point(fault.FileApplying)
	err := s.write(ctx, func() error {
		if err := s.staged.apply(ctx, s.conn); err != nil {
			return err
		}
		_, err := s.conn.ExecContext(ctx, `UPDATE headway_slices SET applied = applied + 1, staged = 0, slice = NULL WHERE connection = ?`, s.gather.connection)
		return err
	})
	if err != nil {
		return err
	}
	fault.Point(fault.FileApplied)
	s.staged = nil
	s.mark.Slice++
	return nil
}

// Noticed says that the file was moved away, or has more than was committed. See
// [collect.Noticer].
func (s *File) Noticed() []collect.Change { return s.noticed }

// SetAside has the connection's tables renamed, for a collection that starts over.
// See [Sink.SetAside].
func (s *File) SetAside(streams []string, at time.Time) ([]string, error) {
	return s.gather.SetAside(streams, at)
}

// Close releases the file. See [collect.Sink]. What was not committed is gone, or
// is when the file is opened again.
func (s *File) Close() error {
	err := s.gather.Close()
	if s.conn != nil {
		err = errors.Join(err, s.conn.Close())
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	s.db, s.conn, s.staged = nil, nil, nil
	if err != nil {
		return s.explain("close", err)
	}
	return nil
}

// checkNames refuses streams whose tables would be others' or each other's.
func checkNames(streams []collect.StreamInfo, own bool) error {
	seen := map[string]string{}
	for _, s := range streams {
		if wrong := checkName(s.Name, own); wrong != "" {
			return fmt.Errorf("sqlite sink: stream %q cannot name a table: %s: rename the stream", s.Name, wrong)
		}
		lower := strings.ToLower(s.Name)
		if other, ok := seen[lower]; ok {
			return fmt.Errorf("sqlite sink: streams %q and %q would have the same table: rename one of them", other, s.Name)
		}
		seen[lower] = s.Name
	}
	return nil
}

// checkName says what keeps a stream's name from being a table's; empty is
// nothing. Own says that the store's tables are in another file.
func checkName(name string, own bool) string {
	lower := strings.ToLower(name)
	switch {
	case name == "":
		return "it is empty"
	case len(name) > field.MaxName:
		return fmt.Sprintf("it has %d bytes, more than %d", len(name), field.MaxName)
	case !field.Nameable(field.Field{Name: name, Exact: true}):
		return "it holds a control character"
	case !own && slices.Contains(reserved, lower):
		return "the store has a table of that name"
	case strings.HasPrefix(lower, "sqlite_"), strings.HasPrefix(lower, "headway_"):
		return "names that begin with sqlite_ or headway_ are reserved"
	case strings.HasSuffix(lower, "_bak"):
		return "names that end in _bak are those of tables set aside"
	}
	return ""
}

// CheckName says what keeps a stream's name from being a table's; empty is nothing.
// See [collect.Namer].
func (s *Sink) CheckName(stream string) string { return checkName(stream, s.own) }

// CheckName says what keeps a stream's name from being a table's; empty is nothing.
// See [collect.Namer].
func (s *File) CheckName(stream string) string { return checkName(stream, true) }
