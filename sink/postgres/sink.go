// Package postgres writes records into a PostgreSQL database (15 or newer), one table for
// each stream. Records are neither lost nor duplicated if a process or the server dies.
//
// [Sink] writes into the database of a store/postgres store, in the same transaction that
// moves the cursor. [Database] writes into another database, in two steps: it stages a slice
// durably before the cursor is committed, and writes it into the tables afterwards. [For]
// chooses.
//
// Use it where others query the records. Use sink/sqlite for a single file, and
// sink/parquet for analytics over many files.
//
// # Tables
//
// A table has its stream's name. A name that begins with headway_ or pg_, ends in _bak, or
// has more than 63 bytes is refused. A list stream's primary key is _key; a detail stream's
// is (_parent, _key). A newer record with the same key replaces the row: fields that it does
// not have become NULL. The sink does not change columns and indexes that others have added.
//
// The row of a detail that the provider no longer lists is kept, and its column
// _headway_deleted_at has the instant at which that was noticed. It is NULL for all others.
//
// Each top-level field of the records has a column of the same name. It is added with the
// first value of the field, and its type follows from the values:
//
//	JSON                     type
//	true, false              boolean
//	integer of 64 bits       bigint
//	other number             numeric
//	string                   text
//	array, object            jsonb
//	null, or absent          no column yet; NULL
//
// A column widens for a value of another kind: bigint to numeric for a number, these and
// boolean to text for a string, and to jsonb for an array or object. Columns of text and
// jsonb take all values. If PostgreSQL refuses to widen a column, because a view uses it,
// the column keeps its type, and such values are only in _rest.
//
// # Nothing is dropped
//
// The column _rest is NULL, or the text of a JSON object with those fields of the record
// that their columns cannot return unchanged: nulls; values other than strings in a column of
// text; strings with NUL or half a surrogate pair; negative zero; numbers with more than
// 1,000 digits; and fields without a column, because their name is reserved by Headway or
// PostgreSQL, is longer than 63 bytes, is empty or has a control character, or because the
// table has 200 columns of fields. A field in _rest takes precedence over its column. If a
// record has a name twice, the last value counts.
//
// A record that is not an object has its JSON in the column _value, a text.
//
// The table headway_tables has the connection of each table, headway_columns the columns
// of fields, and headway_slices the number of the last slice of each connection.
//
// # Starting over
//
// SetAside changes nothing at once. The next commit with records renames the connection's
// tables to NAME_TIME_bak, in the same transaction that writes the first new rows.
//
// # Limits
//
// The records of one slice are kept in memory until its commit, as compact JSON of at most
// 256 MiB. Keys of more than about 2,700 bytes do not fit into an index and are an error. To
// widen a column, the server rewrites its table: with more than about ten million rows this
// can exceed the statement timeout, and the column has to be widened by hand. A sink is not
// safe for concurrent use. It reads no clock.
//
// Stability: experimental.
package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/pgsql"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/pending"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// name begins all errors.
const name = "postgres sink"

// Sink writes records into the database of the store that commits them. Make one with
// [New]. It is not safe for concurrent use.
type Sink struct {
	gather

	state string
}

// gather keeps the records of a slice until they are written.
type gather struct {
	slice  pending.Slice
	schema string
	mark   mark // set between Open and Close
}

func newGather(connection, schema string) gather {
	return gather{slice: pending.Slice{Sink: name, Connection: connection, Escape: pgsql.Escape, Max: pending.MaxBytes}, schema: schema}
}

// mark identifies the last slice in the tables.
type mark struct {
	// ID distinguishes this collection of the connection from others.
	ID string `json:"id"`
	// Slice is the number of the last slice with records.
	Slice int64 `json:"slice"`
	// Begun is when the connection last started over, "" if it never did. Tables with
	// another value are set aside.
	Begun string `json:"begun,omitzero"`
}

// position is the committed position of the sink.
type position struct {
	Postgres *mark `json:"postgres"`
}

var (
	_ collect.Transactional = (*Sink)(nil)
	_ collect.Asider        = (*Sink)(nil)
	_ collect.Marker        = (*Sink)(nil)
	_ collect.Namer         = (*Sink)(nil)
	_ collect.Restorer      = (*Sink)(nil)
	_ collect.Recognizer    = (*Sink)(nil)
)

// For returns the sink for a connection's records in the database at a URL: a [Sink] if the
// URL is empty or names the database of the state, otherwise a [Database]. State is the URL
// of the state's database, empty if the state is not in PostgreSQL. The tables are in the
// schema; if that is empty, in the one of the URL's search_path.
func For(connection, at, schema, state string) collect.Recognizer {
	if schema == "" && at != "" {
		schema = schemaOf(at)
	}
	if state != "" && (at == "" || same(at, state, schema)) {
		return New(connection, state, schema)
	}
	return NewDatabase(at, schema, connection)
}

// same reports whether two URLs name one database for one user.
func same(at, state, schema string) bool {
	a, errA := pgx.ParseConfig(at)
	b, errB := pgx.ParseConfig(state)
	return errA == nil && errB == nil && a.Host == b.Host && a.Port == b.Port && a.Database == b.Database && a.User == b.User &&
		(schema != "" || a.RuntimeParams["search_path"] == b.RuntimeParams["search_path"])
}

// schemaOf returns the schema that a URL names, empty if it names none or several.
func schemaOf(at string) string {
	c, err := pgx.ParseConfig(at)
	if err != nil {
		return ""
	}
	return pgsql.Schema(c.RuntimeParams["search_path"])
}

// place returns database and schema of the tables, for display.
func place(at, schema string) string {
	c, err := pgx.ParseConfig(at)
	if err != nil {
		return "PostgreSQL"
	}
	if schema != "" {
		if strings.Trim(schema, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			schema = quote(schema)
		}
		c.RuntimeParams["search_path"] = schema
	}
	return pgsql.Place(c)
}

// New returns a sink for one connection's records in the database of the store that commits
// them, whose URL is state. The tables are in the schema, which the first commit creates if
// it does not exist; empty means the schema in which the store's sessions create tables. The
// connection's name identifies its tables.
func New(connection, state, schema string) *Sink {
	return &Sink{gather: newGather(connection, schema), state: state}
}

// Location returns the database, without user and password.
func (s *Sink) Location() collect.Location {
	return collect.Location{Kind: "postgres", Path: place(s.state, s.schema)}
}

// Open checks the names of the streams, and that the position is of this kind of sink. See
// [collect.Sink]. The database never has records that were not committed.
func (s *Sink) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	return s.begin(ctx, committed, streams)
}

func (g *gather) begin(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	if err := g.slice.MayOpen(ctx); err != nil {
		return err
	}
	var p position
	if err := sinkstate.Position(name, "; nothing was changed", committed, &p, func() error {
		if p.Postgres == nil || p.Postgres.ID == "" || p.Postgres.Slice < 0 {
			return errors.New("it belongs to another sink")
		}
		return nil
	}); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, s := range streams {
		if wrong := checkName(s.Name); wrong != "" {
			return fmt.Errorf("%s: stream %q cannot name a table: %s: rename the stream", name, s.Name, wrong)
		}
		if seen[s.Name] {
			return fmt.Errorf("%s: there are two streams %q: rename one of them", name, s.Name)
		}
		seen[s.Name] = true
	}
	g.mark = mark{ID: rand.Text(), Begun: g.slice.Aside}
	if p.Postgres != nil {
		g.mark = *p.Postgres
	}
	g.slice.Begin(streams)
	return nil
}

// Write buffers records for the commit. See [collect.Sink]. It is an error if a record is not
// JSON in UTF-8 or has no key, or if the slice exceeds 256 MiB; then no record of the call is
// kept.
func (g *gather) Write(ctx context.Context, stream string, records []collect.Record) error {
	return g.slice.Write(ctx, stream, records)
}

// Restore buffers records for the commit that do not replace rows in the tables. See
// [collect.Restorer] and Write.
func (g *gather) Restore(ctx context.Context, stream string, kept []collect.KeptRecord) error {
	return g.slice.Restore(ctx, stream, kept)
}

// Remain marks the rows of a detail that are not among keys: their column
// _headway_deleted_at is set with the slice's commit. See [collect.Marker].
func (g *gather) Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	return g.slice.Remain(ctx, stream, parent, keys, at)
}

// take removes the buffered records and returns them as the change of the next slice, nil if
// there are no records.
func (g *gather) take() *change {
	if g.slice.Size == 0 {
		return nil
	}
	return &change{connection: g.slice.Connection, schema: g.schema, mark: g.next(), streams: g.slice.Streams, records: g.slice.Take()}
}

// next returns the mark after the commit of the buffered records.
func (g *gather) next() mark {
	m := g.mark
	if g.slice.Size > 0 {
		m.Slice++
	}
	return m
}

// Sync returns the position to commit. See [collect.Sink]. The records become durable with
// the transaction that runs the function of [Sink.Pending].
func (s *Sink) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := sinkstate.MayWrite(ctx, name, s.slice.Open); err != nil {
		return nil, err
	}
	m := s.next()
	return json.Marshal(position{&m})
}

// Pending returns a function that writes the records since the last call, nil if there are no
// records. See [collect.Transactional]. The function may be called again if its transaction
// was rolled back. With another store than store/postgres it returns an error.
func (s *Sink) Pending() func(ctx context.Context, tx collect.Execer) error {
	if !s.slice.Open {
		return nil
	}
	c := s.take()
	if c == nil {
		return nil
	}
	s.mark = c.mark
	return func(ctx context.Context, tx collect.Execer) error {
		session, ok := tx.(*sql.Conn)
		if !ok {
			return errOtherStore
		}
		return session.Raw(func(driver any) error {
			conn, ok := driver.(*stdlib.Conn)
			if !ok {
				return errOtherStore
			}
			_, err := c.apply(ctx, conn.Conn(), false)
			return err
		})
	}
}

var errOtherStore = errors.New(name + ": the store that commits is not in PostgreSQL: give the sink a URL of its own")

// SetAside makes the next commit with records rename the connection's tables to
// NAME_TIME_bak, for a collection that starts over. See [collect.Asider]. The commit renames
// the tables of all streams given to Open, in its transaction; SetAside itself renames nothing
// and returns no names. The sink must not be open, and the connection's state must be
// forgotten before Open.
//
// SetAside may be repeated.
func (g *gather) SetAside(_ []string, at time.Time) ([]string, error) {
	return nil, g.slice.SetAside(at)
}

// Close releases the sink. See [collect.Sink]. Records that were not committed are gone.
func (s *Sink) Close() error {
	s.end()
	return nil
}

func (g *gather) end() {
	g.slice.End()
	g.mark = mark{}
}

// Recognizes reports whether the database is the one of a position. See
// [collect.Recognizer].
func (s *Sink) Recognizes(ctx context.Context, committed json.RawMessage) bool {
	return recognizes(ctx, s.state, s.schema, s.slice.Connection, committed)
}

// CheckName says what keeps a stream's name from being a table's; empty is nothing. See
// [collect.Namer].
func (g *gather) CheckName(stream string) string { return checkName(stream) }

func checkName(stream string) string {
	switch {
	case stream == "":
		return "it is empty"
	case len(stream) > maxName:
		return fmt.Sprintf("it has %d bytes, more than %d", len(stream), maxName)
	case !field.Nameable(field.Field{Name: stream, Exact: true}):
		return "it holds a control character"
	case strings.HasPrefix(stream, "pg_"), strings.HasPrefix(stream, "headway_"):
		return "names that begin with pg_ or headway_ are reserved"
	case strings.HasSuffix(stream, "_bak"):
		return "names that end in _bak are those of tables set aside"
	}
	return ""
}
