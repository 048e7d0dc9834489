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
	"strconv"
	"strings"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/pending"
)

// Kept reads back the records of a connection that a [Sink] or [File] wrote. Open it with
// [OpenKept]. It writes nothing. It is not safe for concurrent use.
type Kept struct {
	path, connection string
	// begun selects the tables that are read; any selects all.
	begun string
	any   bool

	conn   *sqlitefile.Conn
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
	k.conn, err = sqlitefile.Open(ctx, abs, "ro")
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
		t = &table{name: stream.Name, Columns: pending.Columns[field.Kind]{Detail: stream.Parent != ""}}
		if err := t.load(ctx, k.conn); err != nil {
			return nil, k.explain(fmt.Errorf("stream %q: %w", stream.Name, err))
		}
		k.tables[stream.Name] = t
	}
	columns := []string{pending.ColumnKey, pending.ColumnValue, pending.ColumnRest, "''", "NULL"}
	where, order, args := "_key > ?", "_key", []any{after.Key}
	if t.Detail {
		columns[3] = pending.ColumnParent
		where, order, args = "(_parent, _key) > (?, ?)", "_parent, _key", []any{after.Parent, after.Key}
	}
	if _, field := t.ByName[pending.ColumnGone]; t.marks && !field {
		columns[4] = pending.ColumnGone
	}
	first, names := len(columns), t.Names()
	for _, name := range names {
		columns = append(columns, quote(name))
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
			r.Data = pending.Object(&k.split, names, func(i int) (string, bool) { return valueOf(t.Fields[i].Kind, values[i]) }, rest.String)
		}
		if gone.Valid {
			if r.Deleted, err = time.Parse(time.RFC3339, gone.String); err != nil {
				return nil, k.explain(fmt.Errorf("stream %q: a time in %s cannot be read: %w", stream.Name, pending.ColumnGone, err))
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

// valueOf returns the JSON of a value in a column, and false for NULL.
func valueOf(kind field.Kind, v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "", false
	case int64:
		if kind == field.Boolean {
			return strconv.FormatBool(v != 0), true
		}
		return strconv.FormatInt(v, 10), true
	case float64:
		number, _ := json.Marshal(v)
		if !bytes.ContainsAny(number, ".e") {
			number = append(number, ".0"...) // keep it a real when it is read again
		}
		return string(number), true
	case string:
		if kind == field.JSON && json.Valid([]byte(v)) {
			return v, true
		}
		return pending.Quote(v), true
	}
	return "null", true // this sink never writes such a value
}

func (k *Kept) explain(err error) error {
	return fmt.Errorf("sqlite sink: reading back %s: %w", k.path, err)
}

// Close releases the file.
func (k *Kept) Close() (err error) {
	if k.conn != nil {
		err = k.conn.Close()
	}
	k.conn = nil
	return err
}

var (
	_ collect.Restorer = (*Sink)(nil)
	_ collect.Restorer = (*File)(nil)
)

// restore inserts older records whose keys have no row.
func (t *table) restore(ctx context.Context, tx collect.Execer, records []pending.Record) error {
	for len(records) > 0 {
		n := slices.IndexFunc(records, func(r pending.Record) bool { return !r.At.IsZero() })
		if n == 0 {
			if err := t.restoreGone(ctx, tx, records[0]); err != nil {
				return err
			}
			records = records[1:]
			continue
		}
		if n < 0 {
			n = len(records)
		}
		if err := t.insert(ctx, tx, records[:n], t.onConflict("DO NOTHING")); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

// restoreGone inserts one older, deleted record if its key has no row.
func (t *table) restoreGone(ctx context.Context, tx collect.Execer, r pending.Record) error {
	var one int
	where := make([]string, len(t.Key()))
	args := []any{r.Key}
	if t.Detail {
		args = []any{r.Parent, r.Key}
	}
	for i, name := range t.Key() {
		where[i] = name + " = ?"
	}
	query := fmt.Sprintf("SELECT 1 FROM %s WHERE %s", quote(t.name), strings.Join(where, " AND "))
	if row(ctx, tx, query, args, &one) == nil {
		return nil // the existing row is newer
	}
	if err := t.insert(ctx, tx, []pending.Record{r}, t.onConflict("DO NOTHING")); err != nil {
		return err
	}
	if !t.marks {
		if err := t.addMark(ctx, tx); err != nil || !t.marks {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET %s = ? WHERE %s", quote(t.name), pending.ColumnGone, strings.Join(where, " AND ")),
		append([]any{r.At.UTC().Format(time.RFC3339)}, args...)...)
	return err
}
