// Package postgres writes records into a PostgreSQL database (15 or newer), one table a
// stream. There are no duplicates and no gaps, whenever a process or the server dies.
//
// [Sink] writes into the database of a store/postgres store, in the very transaction that
// moves the cursor. [Database] writes into one of its own, in two steps: a slice is durable
// beside the tables before its cursor is committed, and in them after. [For] chooses.
//
// Use it to have what was collected where others query it. Use sink/sqlite to have it in a
// file, and sink/parquet for analytics over many files.
//
// # Tables
//
// A table has its stream's name. A name that begins with headway_ or pg_, ends in _bak, or
// has more than 63 bytes is refused. A list stream's primary key is _key; a detail stream's
// is (_parent, _key). A record that comes again replaces its row: what it no longer has
// becomes NULL. Columns and indexes that people add are left alone.
//
// A row of a detail whose record the provider no longer lists stays, and its column
// _headway_deleted_at has the instant at which that was noticed; NULL is a record that is
// there.
//
// Each top-level field of the records has a column of its name, which appears with the
// first record that has a value for it, and whose type is that of the values:
//
//	JSON                     type
//	true, false              boolean
//	integer of 64 bits       bigint
//	other number             numeric
//	string                   text
//	array, object            jsonb
//	null, or not there       no column yet; NULL
//
// A column widens when another kind of value comes: bigint to numeric for a number, these
// and boolean to text for a string, to jsonb for an array or object. A column of text, or of
// jsonb, takes all that comes. Where widening is refused, because a view needs the column,
// it stays, and such values are in _rest alone.
//
// # Nothing is dropped
//
// The column _rest is NULL, or the text of a JSON object with those fields of the record
// that their columns cannot give back as they were: nulls; values that are no strings in a
// column of text; strings with NUL or half a surrogate pair; negative zero; numbers with more
// than 1,000 digits; and fields that have no column because their name is one of ours or
// PostgreSQL's, is longer than 63 bytes, is empty or has a control character, or because the
// table has 200 columns of fields. A field in _rest counts over its column. Of a name that
// a record has twice, the last value counts.
//
// A record that is not an object has its JSON in the column _value, a text.
//
// The tables headway_tables and headway_columns say which connection a table belongs to,
// and which columns are fields'. headway_slices says how far each connection has come.
//
// # Starting over
//
// SetAside touches nothing by itself. The first commit with records after it renames this
// connection's tables to NAME_TIME_bak, in the same transaction that writes the first new
// rows.
//
// # Limits
//
// The records of one slice wait in memory for its commit, as compact JSON, at most 256 MiB.
// Keys of more than some 2,700 bytes do not fit into an index and are an error. To widen a
// column, the server writes its table again: one of more than some ten million rows can take
// longer than a statement may, and is then widened by hand. A sink is not safe for
// concurrent use; it reads no clock.
//
// Stability: experimental.
package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/pgsql"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

const (
	// name begins all errors.
	name = "postgres sink"
	// maxPending bounds the records of one slice, in bytes.
	maxPending = 256 << 20
)

// Sink writes records into the database of the store that commits them. Make one with
// [New]. It is not safe for concurrent use.
type Sink struct {
	gather

	state string
}

// gather keeps the records of a slice until they are written.
type gather struct {
	connection, schema string
	max                int
	// aside is when SetAside was called; Open takes it over.
	aside string

	// The rest is set between Open and Close.
	open    bool
	mark    mark
	streams []collect.StreamInfo
	pending map[string][]record
	size    int
}

// mark is how far the tables have come.
type mark struct {
	// ID tells this collection of the connection from others.
	ID string `json:"id"`
	// Slice is the number of the last slice with records.
	Slice int64 `json:"slice"`
	// Begun is when the connection last started over, "" when it never did. Tables of
	// another beginning are set aside.
	Begun string `json:"begun,omitzero"`
}

// position is what is committed.
type position struct {
	Postgres *mark `json:"postgres"`
}

// record waits for the commit. Its key and parent are escaped. One with remain is not a
// record: it says which keys of the parent are left at the instant at.
type record struct {
	Key    string          `json:"key,omitempty"`
	Parent string          `json:"parent,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	Remain *[]string       `json:"remain,omitempty"`
	// Older is a record that replaces no row. At is when it went, zero if it did not.
	Older bool      `json:"older,omitempty"`
	At    time.Time `json:"at,omitzero"`
}

var (
	_ collect.Transactional = (*Sink)(nil)
	_ collect.Asider        = (*Sink)(nil)
	_ collect.Marker        = (*Sink)(nil)
	_ collect.Namer         = (*Sink)(nil)
	_ collect.Restorer      = (*Sink)(nil)
	_ collect.Recognizer    = (*Sink)(nil)
)

// For gives the sink of a connection whose records go into the database at a URL: a [Sink]
// when it is empty or names the database of the state, whose records are committed with
// it, otherwise a [Database]. State is the URL of the state's database; empty if that is
// elsewhere. The tables are in the schema, or where the URL's search_path says when it is
// empty.
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

// schemaOf is the one schema that a URL names; empty if it names none or several.
func schemaOf(at string) string {
	c, err := pgx.ParseConfig(at)
	if err != nil {
		return ""
	}
	return pgsql.Schema(c.RuntimeParams["search_path"])
}

// place is where the tables are, for people.
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

// New gives a sink for one connection's records, in the database of the store that commits
// them, whose URL is state. The tables are in the schema, which the first commit creates
// when it does not exist; empty is the one that the store's sessions create tables in. The
// connection's name keeps its tables apart from those of others.
func New(connection, state, schema string) *Sink {
	return &Sink{gather: gather{connection: connection, schema: schema, max: maxPending}, state: state}
}

// Location is the database, without user and password.
func (s *Sink) Location() collect.Location {
	return collect.Location{Kind: "postgres", Path: place(s.state, s.schema)}
}

// Open checks the names of the streams, and that the position is one of this sink's. See
// [collect.Sink]. What was not committed is not in the database.
func (s *Sink) Open(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	return s.begin(ctx, committed, streams)
}

func (g *gather) begin(ctx context.Context, committed json.RawMessage, streams []collect.StreamInfo) error {
	if err := sinkstate.MayOpen(ctx, name, "", g.open); err != nil {
		return err
	}
	if g.connection == "" {
		return errors.New(name + ": the connection has no name")
	}
	var p position
	if err := sinkstate.Position(name, "; nothing was changed", committed, &p, func() error {
		if p.Postgres == nil || p.Postgres.ID == "" || p.Postgres.Slice < 0 {
			return errors.New("it is not of this sink")
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
	m := mark{ID: rand.Text(), Begun: g.aside}
	if p.Postgres != nil {
		m = *p.Postgres
	}
	g.open, g.aside, g.mark, g.size = true, "", m, 0
	g.streams, g.pending = slices.Clone(streams), map[string][]record{}
	return nil
}

// Write keeps records for the commit. See [collect.Sink]. A record that is not JSON in
// UTF-8 or has no key is an error, and nothing of the call is kept. So is a slice of more
// than 256 MiB.
func (g *gather) Write(ctx context.Context, stream string, records []collect.Record) error {
	return g.add(ctx, stream, len(records), func(i int) (collect.Record, record) { return records[i], record{} })
}

// Restore keeps records for the commit that are older than what the tables have. See
// [collect.Restorer] and Write.
func (g *gather) Restore(ctx context.Context, stream string, kept []collect.KeptRecord) error {
	return g.add(ctx, stream, len(kept), func(i int) (collect.Record, record) {
		return kept[i].Record, record{Older: true, At: kept[i].Deleted}
	})
}

func (g *gather) add(ctx context.Context, stream string, n int, at func(i int) (collect.Record, record)) error {
	info, err := g.writable(ctx, stream)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	added := make([]record, n)
	size := g.size
	for i := range n {
		r, w := at(i)
		b.Reset()
		wrong := ""
		switch {
		case !field.Record(&b, r.Data):
			wrong = "is not JSON in UTF-8"
		case r.Key == "":
			wrong = "has no key, so no row of its own"
		case r.Parent == "" && info.Parent != "":
			wrong = "has no parent, and the stream's rows have one"
		case r.Parent != "" && info.Parent == "":
			wrong = "has a parent, and the stream's rows have none"
		}
		if wrong != "" {
			return fmt.Errorf("%s: stream %q: record %d of %d %s; none of them was written: "+
				"the connector must give one JSON value and a key for each record", name, stream, i+1, n, wrong)
		}
		w.Key, w.Parent, w.Data = pgsql.Escape(r.Key), pgsql.Escape(r.Parent), bytes.Clone(b.Bytes())
		added[i] = w
		if size += len(w.Key) + len(w.Parent) + len(w.Data); size > g.max {
			return fmt.Errorf("%s: stream %q: the slice has more than %d bytes, which wait in memory for its commit: "+
				"ask for smaller pages", name, stream, g.max)
		}
	}
	g.pending[stream], g.size = append(g.pending[stream], added...), size
	return nil
}

// Remain marks the rows of a detail that are not among keys: their column
// _headway_deleted_at is set with the slice's commit. See [collect.Marker].
func (g *gather) Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	info, err := g.writable(ctx, stream)
	if err != nil {
		return err
	}
	if info.Parent == "" || parent == "" {
		return fmt.Errorf("%s: stream %q: only rows of a parent can remain", name, stream)
	}
	left := make([]string, len(keys))
	for i, k := range keys {
		left[i] = pgsql.Escape(k)
		g.size += len(k)
	}
	g.pending[stream] = append(g.pending[stream], record{Parent: pgsql.Escape(parent), Remain: &left, At: at})
	g.size += len(parent)
	return nil
}

func (g *gather) writable(ctx context.Context, stream string) (collect.StreamInfo, error) {
	if err := sinkstate.MayWrite(ctx, name, g.open); err != nil {
		return collect.StreamInfo{}, err
	}
	i := slices.IndexFunc(g.streams, func(s collect.StreamInfo) bool { return s.Name == stream })
	if i < 0 {
		return collect.StreamInfo{}, fmt.Errorf("%s: the stream %q was not among those of Open", name, stream)
	}
	return g.streams[i], nil
}

// take gives what was gathered as the change of the next slice; nil if there is nothing.
func (g *gather) take() *change {
	if g.size == 0 {
		return nil
	}
	c := &change{connection: g.connection, schema: g.schema, mark: g.next(), streams: g.streams, records: g.pending}
	g.pending, g.size = map[string][]record{}, 0
	return c
}

// next is the mark once what was gathered is committed.
func (g *gather) next() mark {
	m := g.mark
	if g.size > 0 {
		m.Slice++
	}
	return m
}

// Sync gives the position to commit. See [collect.Sink]. The records become durable with
// the transaction that [Sink.Pending] is part of.
func (s *Sink) Sync(ctx context.Context) (json.RawMessage, error) {
	if err := sinkstate.MayWrite(ctx, name, s.open); err != nil {
		return nil, err
	}
	m := s.next()
	return json.Marshal(position{&m})
}

// Pending gives what writes the records since the last call. See [collect.Transactional].
// It may be called again when its transaction was rolled back. With a store that is not
// store/postgres it is an error.
func (s *Sink) Pending() func(ctx context.Context, tx collect.Execer) error {
	if !s.open {
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

// SetAside has the connection's tables renamed to NAME_TIME_bak, for a collection that
// starts over. See [collect.Asider]. This happens with the first commit that has records,
// in its transaction, and to all streams that Open was given; so nothing is renamed yet,
// and no names are returned. The sink must not be open, and the connection's state must be
// forgotten before it is.
//
// A call that was cut short may be repeated.
func (g *gather) SetAside(_ []string, at time.Time) ([]string, error) {
	if g.open {
		return nil, errors.New(name + ": it is open: set tables aside before Open")
	}
	g.aside = at.UTC().Format(time.RFC3339Nano)
	return nil, nil
}

// Close releases the sink. See [collect.Sink]. Records that were not committed are gone.
func (s *Sink) Close() error {
	s.end()
	return nil
}

func (g *gather) end() {
	*g = gather{connection: g.connection, schema: g.schema, max: g.max, aside: g.aside}
}

// Recognizes reports whether the database is the one of a position. See
// [collect.Recognizer].
func (s *Sink) Recognizes(ctx context.Context, committed json.RawMessage) bool {
	return recognizes(ctx, s.state, s.schema, s.connection, committed)
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
