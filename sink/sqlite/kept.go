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
	"strings"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/sink/internal/field"
)

// Kept reads back the records of a connection that a [Sink] or [File] wrote. Open it with
// [OpenKept]. It writes nothing. It is not safe for concurrent use.
type Kept struct {
	path, connection string
	// begun selects the tables that are read; any selects all.
	begun string
	any   bool

	db     *sql.DB
	conn   *sql.Conn
	tables map[string]*table
	split  field.Splitter
}

var _ collect.Kept = (*Kept)(nil)

// OpenKept opens the file with a connection's records. sinks are the connection's current
// and former sinks: if from is one of them, the file must be the one of its position, and
// a staged slice in it is applied first. OpenKept returns an error if the file does not
// exist or holds no records of the connection.
func OpenKept(ctx context.Context, path, connection string, from collect.Location, sinks []collect.FormerSink, streams []collect.StreamInfo) (*Kept, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(abs)
	}
	if err != nil {
		return nil, collect.Unreplayable(fmt.Errorf("the file that kept the records: %w: name where it is now with --from", err))
	}
	k := &Kept{path: path, connection: connection, any: true, tables: map[string]*table{}}
	for _, s := range sinks {
		if s.Kind == "state" && from == s.Location {
			var p position
			if json.Unmarshal(s.Position, &p) == nil && p.SQLite != nil {
				k.begun, k.any = p.SQLite.Begun, false
			}
		}
		if s.Kind != "sqlite" {
			continue
		}
		file := NewFile(abs, connection)
		if file.Recognizes(ctx, s.Position) {
			err = errors.Join(file.Open(ctx, s.Position, ours(streams)), file.Close())
		} else if s.Location == from {
			err = collect.Unreplayable(fmt.Errorf("%s is not the file that was written: name where that is now with --from", path))
		}
		if err != nil {
			return nil, err
		}
	}
	if k.db, err = sql.Open("sqlite", sqlitefile.DSN(abs, "ro")); err == nil {
		k.conn, err = k.db.Conn(ctx)
	}
	if err == nil {
		err = k.find(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// ours returns the streams that can have tables.
func ours(streams []collect.StreamInfo) []collect.StreamInfo {
	return slices.DeleteFunc(slices.Clone(streams), func(s collect.StreamInfo) bool { return checkName(s.Name, true) != "" })
}

// find selects the tables to read, and returns an error if there are none.
func (k *Kept) find(ctx context.Context) error {
	err := row(ctx, k.conn, `SELECT 1 FROM sqlite_schema WHERE name = 'headway_slices'`, nil, new(int))
	if err == nil && k.any {
		err = row(ctx, k.conn, `SELECT begun FROM headway_slices WHERE connection = ?`, []any{k.connection}, &k.begun)
		k.any = err != nil
	}
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Code()&0xff == lib.SQLITE_NOTADB {
		return collect.Unreplayable(fmt.Errorf("%s is not an SQLite file: name the one that kept the records with --from", k.path))
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return k.explain(err)
	}
	names, err := k.Streams(ctx)
	if err == nil && len(names) == 0 {
		err = collect.Unreplayable(fmt.Errorf("%s holds no records of the connection %q: there is nothing to replay", k.path, k.connection))
	}
	return err
}

// Streams returns the names of the streams that have a table. See [collect.Kept]. Tables
// that were set aside do not count.
func (k *Kept) Streams(ctx context.Context) (names []string, err error) {
	if err := row(ctx, k.conn, `SELECT 1 FROM sqlite_schema WHERE name = 'headway_tables'`, nil, new(int)); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return nil, k.explain(err)
	}
	names, err = sqlitefile.List(ctx, k.conn, sqlitefile.Column[string], `SELECT t.name FROM headway_tables t JOIN sqlite_schema s ON s.name = t.name
		WHERE t.connection = ?1 AND (?2 OR t.begun = ?3) ORDER BY t.name`, k.connection, k.any, k.begun)
	if err != nil {
		return nil, k.explain(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(strings.ToLower(name), "_bak") }), nil
}

// Count returns the number of records of a stream. See [collect.Kept].
func (k *Kept) Count(ctx context.Context, stream collect.StreamInfo) (n int64, err error) {
	if err := row(ctx, k.conn, `SELECT count(*) FROM `+quote(stream.Name), nil, &n); err != nil {
		return 0, k.explain(err)
	}
	return n, nil
}

// Read returns records sorted by parent and key. See [collect.Kept].
func (k *Kept) Read(ctx context.Context, stream collect.StreamInfo, after collect.RecordID, limit, size int) (list []collect.KeptRecord, err error) {
	t, ok := k.tables[stream.Name]
	if !ok {
		t = &table{name: stream.Name, detail: stream.Parent != ""}
		if err := t.load(ctx, k.conn); err != nil {
			return nil, k.explain(fmt.Errorf("stream %q: %w", stream.Name, err))
		}
		k.tables[stream.Name] = t
	}
	columns := []string{columnKey, columnValue, columnRest, "''", "NULL"}
	where, order, args := "_key > ?", "_key", []any{after.Key}
	if t.detail {
		columns[3] = columnParent
		where, order, args = "(_parent, _key) > (?, ?)", "_parent, _key", []any{after.Parent, after.Key}
	}
	if _, field := t.byName[columnGone]; t.marks && !field {
		columns[4] = columnGone
	}
	first := len(columns)
	for _, c := range t.columns {
		columns = append(columns, quote(c.name))
	}
	rows, err := k.conn.QueryContext(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT %d",
		strings.Join(columns, ", "), quote(t.name), where, order, limit), args...)
	if err != nil {
		return nil, k.explain(err)
	}
	defer func() { _ = rows.Close() }()
	values := make([]any, len(columns)-first)
	var key, parent string
	var value, rest, gone sql.NullString
	dest := []any{&key, &value, &rest, &parent, &gone}
	for i := range values {
		dest = append(dest, &values[i])
	}
	for size > 0 && rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, k.explain(err)
		}
		r := collect.KeptRecord{Record: collect.Record{Key: key, Parent: parent, Data: json.RawMessage(value.String)}}
		if !value.Valid {
			r.Data = t.object(values, rest.String, &k.split)
		}
		if gone.Valid {
			if r.Deleted, err = time.Parse(time.RFC3339, gone.String); err != nil {
				return nil, k.explain(fmt.Errorf("stream %q: a time in %s cannot be read: %w", stream.Name, columnGone, err))
			}
		}
		size -= len(key) + len(parent) + len(r.Data)
		list = append(list, r)
	}
	if err := rows.Err(); err != nil {
		return nil, k.explain(err)
	}
	return list, nil
}

// object builds a record from its columns. A field in rest takes precedence.
func (t *table) object(values []any, rest string, split *field.Splitter) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	name := func(name string) {
		b.WriteByte("{,"[min(b.Len(), 1)])
		text(&b, e, name)
		b.WriteByte(':')
	}
	var others []field.Field
	if rest != "" {
		others, _ = split.Split([]byte(rest))
	}
	for i, c := range t.columns {
		if values[i] == nil || slices.ContainsFunc(others, func(f field.Field) bool { return f.Name == c.name }) {
			continue
		}
		name(c.name)
		switch v := values[i].(type) {
		case int64:
			switch c.kind {
			case field.Boolean:
				fmt.Fprint(&b, v != 0)
			default:
				fmt.Fprint(&b, v)
			}
		case float64:
			number, _ := json.Marshal(v)
			b.Write(number)
			if !bytes.ContainsAny(number, ".e") {
				b.WriteString(".0") // keep it a real when it is read again
			}
		case string:
			if c.kind == field.JSON && json.Valid([]byte(v)) {
				b.WriteString(v)
			} else {
				text(&b, e, v)
			}
		default:
			b.WriteString("null") // this sink never writes such a value
		}
	}
	for _, f := range others {
		name(f.Name)
		b.Write(f.Raw)
	}
	if b.Len() == 0 {
		return json.RawMessage("{}")
	}
	b.WriteByte('}')
	return b.Bytes()
}

// text writes a JSON string.
func text(b *bytes.Buffer, e *json.Encoder, s string) {
	_ = e.Encode(s) // never fails for a string
	b.Truncate(b.Len() - 1)
}

func (k *Kept) explain(err error) error {
	return fmt.Errorf("sqlite sink: reading back %s: %w", k.path, err)
}

// Close releases the file.
func (k *Kept) Close() (err error) {
	if k.conn != nil {
		err = k.conn.Close()
	}
	if k.db != nil {
		err = errors.Join(err, k.db.Close())
	}
	k.db, k.conn = nil, nil
	return err
}

var (
	_ collect.Restorer = (*Sink)(nil)
	_ collect.Restorer = (*File)(nil)
)

// older marks a record that is written only if there is no row with its key.
type older struct {
	deleted time.Time // zero if the record is not deleted
}

// Restore buffers records for the commit that are older than those in the tables. See
// [collect.Restorer] and [Sink.Write].
func (s *Sink) Restore(ctx context.Context, stream string, kept []collect.KeptRecord) error {
	records := make([]collect.Record, len(kept))
	for i, k := range kept {
		records[i] = k.Record
	}
	had := len(s.pending[stream])
	if err := s.Write(ctx, stream, records); err != nil {
		return err
	}
	for i, k := range kept {
		s.pending[stream][had+i].older = &older{deleted: k.Deleted}
	}
	return nil
}

// Restore buffers records for the commit that are older than those in the tables. See
// [Sink.Restore].
func (s *File) Restore(ctx context.Context, stream string, kept []collect.KeptRecord) error {
	if err := s.prove(ctx); err != nil {
		return err
	}
	return s.gather.Restore(ctx, stream, kept)
}

// restore inserts older records whose keys have no row.
func (t *table) restore(ctx context.Context, tx collect.Execer, records []record) error {
	return t.insert(ctx, tx, records, t.onConflict("DO NOTHING"))
}

// restoreGone inserts one older, deleted record if its key has no row.
func (t *table) restoreGone(ctx context.Context, tx collect.Execer, r record) error {
	var one int
	where := make([]string, len(t.key()))
	args := []any{r.key}
	if t.detail {
		args = []any{r.parent, r.key}
	}
	for i, name := range t.key() {
		where[i] = name + " = ?"
	}
	query := fmt.Sprintf("SELECT 1 FROM %s WHERE %s", quote(t.name), strings.Join(where, " AND "))
	if row(ctx, tx, query, args, &one) == nil {
		return nil // the existing row is newer
	}
	if err := t.restore(ctx, tx, []record{r}); err != nil {
		return err
	}
	if !t.marks {
		if err := t.addMark(ctx, tx); err != nil || !t.marks {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET %s = ? WHERE %s", quote(t.name), columnGone, strings.Join(where, " AND ")),
		append([]any{r.older.deleted.UTC().Format(time.RFC3339)}, args...)...)
	return err
}
