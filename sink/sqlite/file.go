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
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/pending"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// File writes records into its own database file, apart from the state. Create one with
// [NewFile]. It is not safe for concurrent use.
//
// It has the same tables as [Sink]. A slice becomes durable in two steps, since its
// records and the state's cursor are in different files:
//
//	stateDiagram-v2
//	    [*] --> staged: Sync stores the slice durably, with its number, in a table of its own
//	    staged --> applied: Committed, the next Write or Sync, or an Open whose position has the number
//	    staged --> [*]: an Open whose position does not have it: the slice comes again
//
// So the tables never hold a record that is not in the state. If the process is killed
// between the commit and the application of a slice, the next Open applies it.
type File struct {
	path string
	// gather holds the records of a slice in memory.
	gather *Sink

	// The rest is set between Open and Close.
	conn *sqlitefile.Conn
	mark mark
	// staged is the slice whose position is not known to be committed; nil if none.
	staged  *change
	noticed []collect.Change
}

// mark is the position of a file.
type mark struct {
	// ID identifies this collection of the connection.
	ID string `json:"id"`
	// Slice is the number of the last applied slice.
	Slice int64 `json:"slice"`
	// begun is when the connection last started over.
	begun string
}

// filePosition is the position that is committed.
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

// For returns the sink of a connection: a [File] at path or, if path is empty or the file
// of the state, a [Sink].
func For(connection, path, state string) collect.Located {
	if path == "" || sameFile(path, state) {
		return New(connection)
	}
	return NewFile(path, connection)
}

// sameFile reports whether two paths name the same file, which may not exist yet.
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

// NewFile returns a sink for one connection's records in the database at path, which Open
// creates if needed. Several connections may share it.
func NewFile(path, connection string) *File {
	gather := New(connection)
	gather.own = true
	return &File{path: path, gather: gather}
}

// Location returns the file as it was passed to NewFile.
func (s *File) Location() collect.Location { return collect.Location{Kind: "sqlite", Path: s.path} }

// Open resets the tables to a committed position. See [collect.Sink]. If slices were
// committed and the file has none of the connection, it was moved away: a new one begins,
// and [File.Noticed] reports it. Open returns an error, and changes nothing, if the file
// holds less than was committed or belongs to another state.
func (s *File) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	if err := sinkstate.MayOpen(ctx, name, s.path, s.conn != nil); err != nil {
		return err
	}
	var p filePosition
	if err := sinkstate.Position(name, "; nothing was changed", committed, &p, func() error {
		if p.File == nil {
			return errOtherSink
		}
		return nil
	}); err != nil {
		return err
	}
	aside := s.gather.slice.Aside
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

// reconcile resets the file to the committed mark.
func (s *File) reconcile(ctx context.Context, committed *mark, aside string, streams []collect.StreamInfo) error {
	var slice sql.NullString
	var number int64
	err := s.conn.QueryRowContext(ctx, `SELECT id, applied, begun, staged, slice FROM headway_slices WHERE connection = ?`, s.gather.slice.Connection).
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
			"use that state, move the file away, or start over with `headway collect --fresh`, which sets its tables aside", s.path, s.gather.slice.Connection)
	case s.mark.Slice+1 == committed.Slice && slice.Valid && number == committed.Slice:
		s.staged = &change{connection: s.gather.slice.Connection, begun: s.mark.begun, streams: streams}
		if err := json.Unmarshal([]byte(slice.String), &s.staged.records); err != nil {
			return fmt.Errorf("sqlite sink: %s: the last committed slice cannot be read: %w", s.path, err)
		}
		return s.apply(ctx)
	case s.mark.Slice < committed.Slice:
		return fmt.Errorf("sqlite sink: %s has %d slices of the %d that were committed, so it is an older copy; nothing was changed: "+
			"restore the newest one, or move it away and run again, which begins a new one", s.path, s.mark.Slice, committed.Slice)
	case s.mark.Slice > committed.Slice:
		s.noticed = append(s.noticed, collect.Change{Kind: collect.SinkAhead})
	}
	// A staged slice that was not committed comes again.
	return s.write(ctx, func() error {
		_, err := s.conn.ExecContext(ctx, `UPDATE headway_slices SET staged = 0, slice = NULL WHERE connection = ? AND slice IS NOT NULL`, s.gather.slice.Connection)
		return err
	})
}

// begin registers the connection in the file, with no slices.
func (s *File) begin(ctx context.Context, begun string) error {
	s.mark = mark{ID: rand.Text(), begun: begun}
	return s.write(ctx, func() error {
		_, err := s.conn.ExecContext(ctx, `INSERT INTO headway_slices (connection, id, applied, begun, staged) VALUES (?1, ?2, 0, ?3, 0)
			ON CONFLICT (connection) DO UPDATE SET id = ?2, applied = 0, begun = ?3, staged = 0, slice = NULL`,
			s.gather.slice.Connection, s.mark.ID, begun)
		return err
	})
}

// formerly returns when the connection's existing tables were begun, in a file that held
// the state as well; "" if there are none.
func (s *File) formerly(ctx context.Context) (begun string, err error) {
	err = row(ctx, s.conn, `SELECT 1 FROM sqlite_schema WHERE name = 'headway_tables'`, nil, new(int))
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err == nil {
		err = row(ctx, s.conn, `SELECT coalesce(max(begun), '') FROM headway_tables WHERE connection = ?`, []any{s.gather.slice.Connection}, &begun)
	}
	return begun, err
}

// Write buffers records for the commit. See [Sink.Write].
func (s *File) Write(ctx context.Context, stream string, records []collect.Record) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.gather.Write(ctx, stream, records)
}

// Remain marks the rows of a detail whose keys are not among keys. See [Sink.Remain].
func (s *File) Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.gather.Remain(ctx, stream, parent, keys, at)
}

// Sync stages the slice durably and returns the position to commit. See [collect.Sink].
func (s *File) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := s.prove(ctx); err != nil {
		return nil, err
	}
	p := s.mark
	if s.gather.slice.Size > 0 {
		p.Slice++
		b, err := pending.Encode(s.gather.slice.Records)
		if err != nil {
			return nil, err
		}
		fault.Point(fault.FileStaging)
		if err := s.durable(ctx, true); err != nil {
			return nil, err
		}
		err = s.write(ctx, func() error {
			_, err := s.conn.ExecContext(ctx, `UPDATE headway_slices SET staged = ?, slice = ? WHERE connection = ?`, p.Slice, b, s.gather.slice.Connection)
			return err
		})
		if err != nil {
			return nil, err
		}
		fault.Point(fault.FileStaged)
		s.staged = s.gather.take()
	}
	return json.Marshal(filePosition{&p})
}

// Committed applies the slice that was committed. See [collect.Informed].
func (s *File) Committed(ctx context.Context, _ json.RawMessage) error { return s.prove(ctx) }

// prove applies the staged slice, whose position has been committed.
func (s *File) prove(ctx context.Context) error {
	if err := sinkstate.MayWrite(ctx, name, s.gather.slice.Open); err != nil || s.staged == nil {
		return err
	}
	// After a power cut this may be undone, but the staged slice is still there.
	if err := s.durable(ctx, false); err != nil {
		return err
	}
	return s.apply(ctx)
}

// apply writes the staged slice into the tables and counts it as applied.
func (s *File) apply(ctx context.Context) error {
	fault.Point(fault.FileApplying)
	err := s.write(ctx, func() error {
		if err := s.staged.apply(ctx, s.conn); err != nil {
			return err
		}
		_, err := s.conn.ExecContext(ctx, `UPDATE headway_slices SET applied = applied + 1, staged = 0, slice = NULL WHERE connection = ?`, s.gather.slice.Connection)
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

// Noticed reports whether the file was moved away or holds more than was committed. See
// [collect.Noticer].
func (s *File) Noticed() []collect.Change { return s.noticed }

// Restore buffers records for the commit that are older than those in the tables. See
// [Sink.Restore].
func (s *File) Restore(ctx context.Context, stream string, kept []collect.KeptRecord) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.gather.Restore(ctx, stream, kept)
}

// SetAside renames the connection's tables with the next commit, for a collection that
// starts over. See [Sink.SetAside].
func (s *File) SetAside(streams []string, at time.Time) ([]string, error) {
	return s.gather.SetAside(streams, at)
}

// Close releases the file. See [collect.Sink]. Records that were not committed are lost.
func (s *File) Close() error {
	err := s.gather.Close()
	if s.conn != nil {
		err = errors.Join(err, s.conn.Close())
	}
	s.conn, s.staged = nil, nil
	if err != nil {
		return s.explain("close", err)
	}
	return nil
}

// checkNames returns an error if a stream cannot have a table, or two would share one.
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

// checkName returns why a stream's name cannot name a table, or "" if it can. own reports
// that the store's tables are in another file.
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

// CheckName returns why a stream's name cannot name a table, or "" if it can. See
// [collect.Namer].
func (s *Sink) CheckName(stream string) string { return checkName(stream, s.own) }

// CheckName returns why a stream's name cannot name a table, or "" if it can. See
// [collect.Namer].
func (s *File) CheckName(stream string) string { return checkName(stream, true) }
