package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/pgsql"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/pending"
)

// Kept reads back the records of a connection that a [Sink] or [Database] wrote. Make one
// with [OpenKept]. It writes nothing. It is not safe for concurrent use.
type Kept struct {
	place, connection, schema, begun string

	conn   *pgx.Conn
	tables map[string]*table
	split  field.Splitter
}

var _ collect.Kept = (*Kept)(nil)

// OpenKept opens the database at the location from, into which a sink of the connection has
// written. It uses the first of the URLs that names this database; without such a URL, user
// and password come from the environment. Sinks are the connection's present and former ones.
// If from is one of them, its position must belong to the database, and a staged slice is
// applied first. It is an error if there are no records of the connection.
func OpenKept(ctx context.Context, from collect.Location, urls []string, connection string, sinks []collect.FormerSink, streams []collect.StreamInfo) (*Kept, error) {
	at, schema := from.Path, schemaOf(from.Path)
	for _, u := range urls {
		if u != "" && leads(u, from.Path) {
			at = u
			break
		}
	}
	k := &Kept{place: place(at, schema), connection: connection, schema: schema, tables: map[string]*table{}}
	var err error
	if k.conn, err = dial(ctx, at); err != nil {
		if at == from.Path { // it has neither user nor password
			err = fmt.Errorf("name it with its user by --from, as postgres://user@host:5432/database?search_path=schema: %w", err)
		}
		return nil, k.explain(err)
	}
	if err := k.find(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	ours := slices.DeleteFunc(slices.Clone(streams), func(s collect.StreamInfo) bool { return checkName(s.Name) != "" })
	for _, s := range sinks {
		if s.Kind != "postgres" {
			continue
		}
		if recognizes(ctx, at, k.schema, connection, s.Position) {
			d := NewDatabase(at, k.schema, connection)
			err = errors.Join(d.Open(ctx, s.Position, ours), d.Close())
		} else if s.Location == from {
			err = collect.Unreplayable(fmt.Errorf("%s does not hold the records of this connection's sink: name where they are now by --from", k.place))
		}
		if err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	names, err := k.Streams(ctx)
	if err == nil && len(names) == 0 {
		err = k.nothing()
	}
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// leads reports whether two URLs name one database.
func leads(at, to string) bool {
	a, errA := pgx.ParseConfig(at)
	b, errB := pgx.ParseConfig(to)
	return errA == nil && errB == nil && a.Host == b.Host && a.Port == b.Port && a.Database == b.Database
}

// find finds the schema and the value of begun of the connection's current tables.
func (k *Kept) find(ctx context.Context) error {
	var there bool
	if err := k.conn.QueryRow(ctx, `SELECT coalesce(nullif($1::text, ''), current_schema(), '')`, k.schema).Scan(&k.schema); err != nil {
		return k.explain(err)
	}
	if err := k.conn.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, k.catalog("headway_slices")).Scan(&there); err != nil {
		return k.explain(err)
	}
	if !there {
		return k.nothing()
	}
	err := k.conn.QueryRow(ctx, `SELECT begun FROM `+k.catalog("headway_slices")+` WHERE connection = $1`, k.connection).Scan(&k.begun)
	if errors.Is(err, pgx.ErrNoRows) {
		return k.nothing()
	}
	return k.explain(err)
}

func (k *Kept) nothing() error {
	return collect.Unreplayable(fmt.Errorf("%s holds no records of the connection %q: there is nothing to replay", k.place, k.connection))
}

func (k *Kept) catalog(name string) string { return pgx.Identifier{k.schema, name}.Sanitize() }

// Streams returns the names of streams that have a table, except tables that were set aside.
// See [collect.Kept].
func (k *Kept) Streams(ctx context.Context) ([]string, error) {
	rows, err := k.conn.Query(ctx, `SELECT t.name FROM `+k.catalog("headway_tables")+` t WHERE t.connection = $1 AND t.begun = $2
		AND right(t.name, 4) <> '_bak' AND EXISTS (SELECT 1 FROM pg_class c WHERE c.relname = t.name AND c.relnamespace =
			(SELECT oid FROM pg_namespace WHERE nspname = $3)) ORDER BY t.name`, k.connection, k.begun, k.schema)
	if err != nil {
		return nil, k.explain(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, k.explain(err)
}

// Count returns the number of records of a stream. Only ctx bounds it: in a large table it may
// take longer than other statements. See [collect.Kept].
func (k *Kept) Count(ctx context.Context, stream collect.StreamInfo) (n int64, err error) {
	err = pgx.BeginFunc(ctx, k.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT count(*) FROM `+k.catalog(stream.Name)).Scan(&n)
	})
	return n, k.explain(err)
}

// Read returns records by parent and key. See [collect.Kept].
func (k *Kept) Read(ctx context.Context, stream collect.StreamInfo, after collect.RecordID, limit, size int) ([]collect.KeptRecord, error) {
	t, ok := k.tables[stream.Name]
	if !ok {
		t = &table{conn: k.conn, schema: k.schema, name: stream.Name, Columns: pending.Columns[kind]{Detail: stream.Parent != ""}}
		if err := t.load(ctx); err != nil {
			return nil, k.explain(fmt.Errorf("stream %q: %w", stream.Name, err))
		}
		k.tables[stream.Name] = t
	}
	columns := []string{pending.ColumnKey, "''", pending.ColumnValue, pending.ColumnRest, pending.ColumnGone}
	where, args := "_key > $1", []any{pgsql.Escape(after.Key)}
	if t.Detail {
		columns[1] = pending.ColumnParent
		where, args = "(_parent, _key) > ($1, $2)", []any{pgsql.Escape(after.Parent), pgsql.Escape(after.Key)}
	}
	first, names := len(columns), t.Names()
	for _, name := range names {
		columns = append(columns, quote(name)+"::text")
	}
	rows, err := k.conn.Query(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s ORDER BY %s LIMIT %d",
		strings.Join(columns, ", "), k.catalog(stream.Name), where, strings.Join(t.Key(), ", "), limit), args...)
	if err != nil {
		return nil, k.explain(err)
	}
	defer rows.Close()
	var key, parent string
	var value *string
	var rest sql.NullString
	var gone *time.Time
	values := make([]*string, len(columns)-first)
	dest := []any{&key, &parent, &value, &rest, &gone}
	for i := range values {
		dest = append(dest, &values[i])
	}
	var list []collect.KeptRecord
	for size > 0 && rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, k.explain(err)
		}
		r := collect.KeptRecord{Record: collect.Record{Key: pgsql.Unescape(key), Parent: pgsql.Unescape(parent)}}
		if value != nil {
			r.Data = json.RawMessage(*value)
		} else {
			r.Data = pending.Object(&k.split, names, func(i int) (string, bool) { return valueOf(t.Fields[i].Kind, values[i]) }, rest.String)
		}
		if gone != nil {
			r.Deleted = gone.UTC()
		}
		size -= len(key) + len(parent) + len(r.Data)
		list = append(list, r)
	}
	rows.Close()
	return list, k.explain(rows.Err())
}

// valueOf returns the JSON of the text of a value in a column, and false for NULL.
func valueOf(k kind, v *string) (string, bool) {
	switch {
	case v == nil:
		return "", false
	case k == text:
		return pending.Quote(*v), true
	case k == jsonb:
		var b bytes.Buffer
		if !field.Record(&b, []byte(*v)) {
			return "null", true // PostgreSQL never returns such a value
		}
		return b.String(), true
	}
	return *v, true // already JSON
}

func (k *Kept) explain(err error) error {
	if err == nil {
		return nil
	}
	advice := pgsql.Advise(err)
	if advice != "" {
		advice += ": "
	}
	return fmt.Errorf("%s: reading back %s: %s%w", name, k.place, advice, err)
}

// Close closes the session.
func (k *Kept) Close() error {
	if k.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := k.conn.Close(ctx)
	k.conn = nil
	return err
}
