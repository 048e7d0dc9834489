package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/pending"
)

const (
	// maxColumns bounds the columns of fields: a row has to fit into a page.
	maxColumns = 200
	// maxName bounds a name, in bytes.
	maxName = 63
)

// reserved are column names that fields cannot have.
var reserved = []string{"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}

// table is a stream's table within one transaction.
type table struct {
	conn         *pgx.Conn
	schema, name string
	pending.Columns[kind]
	// staged is true if the staging table has rows of this transaction.
	staged bool
}

// beside returns the quoted name of a table in the same schema.
func (t *table) beside(name string) string { return pgx.Identifier{t.schema, name}.Sanitize() }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// load reads the table's columns. It does not use columns that others have added, or whose
// types they have changed.
func (t *table) load(ctx context.Context) error {
	t.Reset(reserved...)
	rows, err := t.conn.Query(ctx, `SELECT a.attname, format_type(a.atttypid, a.atttypmod), h."column" IS NOT NULL,
			EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey))
		FROM pg_attribute a LEFT JOIN `+t.beside("headway_columns")+` h ON h."table" = $1 AND h."column" = a.attname
		WHERE a.attrelid = $2::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, t.name, t.beside(t.name))
	if err != nil {
		return err
	}
	parented := false
	var name, typed string
	var ours, key bool
	if _, err := pgx.ForEachRow(rows, []any{&name, &typed, &ours, &key}, func() error {
		parented = parented || name == pending.ColumnParent && key
		t.Taken[name] = true
		if k := slices.Index(types[:], typed); ours && k > 0 {
			t.Add(name, name, kind(k))
		}
		return nil
	}); err != nil {
		return err
	}
	if parented != t.Detail {
		return errors.New("the stream changed between a list and details, and its table has the other's key; it was not changed: " +
			"rename the stream, or start over with `headway collect --fresh`")
	}
	return nil
}

// grow creates the table, or adds and widens the columns that the records need.
func (t *table) grow(ctx context.Context, records []pending.Record, create bool) error {
	if create {
		t.Reset(reserved...)
	}
	had := len(t.Fields)
	was := slices.Clone(t.Fields)
	var split field.Splitter
	for _, r := range records {
		if r.Remain != nil {
			continue
		}
		fields, _ := split.Split(r.Data)
		for _, f := range fields {
			k := kindOfValue(f.Raw)
			if k == nothing || !f.Exact {
				continue
			}
			if at, ok := t.ByName[f.Name]; ok {
				t.Fields[at].Kind = join(t.Fields[at].Kind, k)
			} else if len(t.Fields) < maxColumns && field.Nameable(f) && len(f.Name) <= maxName && !t.Taken[f.Name] {
				t.Add(f.Name, f.Name, k)
			}
		}
	}
	if create {
		if _, err := t.conn.Exec(ctx, t.create()); err != nil {
			return err
		}
	} else if err := t.alter(ctx, was); err != nil {
		return err
	}
	if had == len(t.Fields) {
		return nil
	}
	_, err := t.conn.Exec(ctx, `INSERT INTO `+t.beside("headway_columns")+` SELECT $1::text, unnest($2::text[]) ON CONFLICT DO NOTHING`, t.name, t.Names()[had:])
	return err
}

func (t *table) create() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE %s (\n", t.beside(t.name))
	for _, name := range t.Key() {
		fmt.Fprintf(&b, "%s text COLLATE \"C\" NOT NULL,\n", name)
	}
	for _, c := range t.Fields {
		fmt.Fprintf(&b, "%s %s,\n", quote(c.Name), types[c.Kind])
	}
	fmt.Fprintf(&b, "%s text,\n%s text,\n%s timestamptz,\nPRIMARY KEY (%s)\n)", pending.ColumnValue, pending.ColumnRest, pending.ColumnGone, strings.Join(t.Key(), ", "))
	return b.String()
}

// alter adds new columns, and widens the columns whose kinds differ from was.
func (t *table) alter(ctx context.Context, was []pending.Column[kind]) error {
	var added []string
	for _, c := range t.Fields[len(was):] {
		added = append(added, fmt.Sprintf("ADD COLUMN %s %s", quote(c.Name), types[c.Kind]))
	}
	if len(added) > 0 {
		if _, err := t.conn.Exec(ctx, fmt.Sprintf("ALTER TABLE %s %s", t.beside(t.name), strings.Join(added, ", "))); err != nil {
			return err
		}
	}
	for i, before := range was {
		if t.Fields[i].Kind == before.Kind {
			continue
		}
		widened, err := t.widen(ctx, t.Fields[i])
		if err != nil {
			return err
		}
		if !widened {
			t.Fields[i].Kind = before.Kind
		}
	}
	return nil
}

// widen changes the type of a column. It returns false if the server refuses that, for
// example because a view uses the column; the transaction continues.
func (t *table) widen(ctx context.Context, c pending.Column[kind]) (ok bool, err error) {
	name := quote(c.Name)
	using := ""
	var steps []string
	switch c.Kind {
	case jsonb:
		using = fmt.Sprintf(" USING to_jsonb(%s)", name)
	case text:
		// Keep the present values, which are not strings, in _rest.
		steps = append(steps, fmt.Sprintf(`UPDATE %[1]s SET %[2]s = '{' || %[3]s || ':' || to_json(%[4]s)::text || coalesce(',' || substr(%[2]s, 2), '}') WHERE %[4]s IS NOT NULL`,
			t.beside(t.name), pending.ColumnRest, literal(pending.Quote(c.Name)), name))
	default:
	}
	steps = append(steps, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE %s%s", t.beside(t.name), name, types[c.Kind], using))
	if _, err := t.conn.Exec(ctx, "SAVEPOINT headway_widen"); err != nil {
		return false, err
	}
	for _, step := range steps {
		if _, err = t.conn.Exec(ctx, step); err != nil {
			break
		}
	}
	if e, refused := errors.AsType[*pgconn.PgError](err); refused && (e.Code == "0A000" || e.Code == "2BP01" || e.Code == "42804") {
		_, err = t.conn.Exec(ctx, "ROLLBACK TO SAVEPOINT headway_widen")
		return false, err // a view, a generated column or the like depends on the type
	}
	if err == nil {
		_, err = t.conn.Exec(ctx, "RELEASE SAVEPOINT headway_widen")
	}
	return err == nil, err
}

// write copies records into a temporary table and from there into the stream's. Of two
// records with one key the later counts. Older records do not replace rows.
func (t *table) write(ctx context.Context, records []pending.Record) error {
	columns := t.Written(quote, pending.ColumnValue, pending.ColumnRest, pending.ColumnGone)
	h := fnv.New64a()
	fmt.Fprint(h, t.schema, "\x00", t.name)
	var shape strings.Builder
	for i, name := range columns {
		of := "text"
		if at := i - len(t.Key()); at >= 0 && at < len(t.Fields) {
			of = types[t.Fields[at].Kind]
		} else if name == pending.ColumnGone {
			of = "timestamptz"
		}
		fmt.Fprintf(&shape, ", %s %s", name, of)
	}
	fmt.Fprint(h, shape.String())
	stage := fmt.Sprintf("pg_temp.headway_stage_%x", h.Sum64())
	prepare := fmt.Sprintf("CREATE TEMPORARY TABLE IF NOT EXISTS %s (%s) ON COMMIT DELETE ROWS", strings.TrimPrefix(stage, "pg_temp."), shape.String()[2:])
	if t.staged {
		prepare += "; TRUNCATE " + stage
	}
	t.staged = true
	if _, err := t.conn.Exec(ctx, prepare); err != nil {
		return err
	}
	list := strings.Join(columns, ", ")
	if _, err := t.conn.PgConn().CopyFrom(ctx, t.lines(records), fmt.Sprintf("COPY %s (%s) FROM STDIN", stage, list)); err != nil {
		return err
	}
	then := "NOTHING"
	if !records[0].Older {
		var set []string
		for _, name := range columns[len(t.Key()):] {
			set = append(set, name+" = excluded."+name)
		}
		then = "UPDATE SET " + strings.Join(set, ", ")
	}
	_, err := t.conn.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s ON CONFLICT (%s) DO %s",
		t.beside(t.name), list, list, stage, strings.Join(t.Key(), ", "), then))
	return err
}

// remain sets _headway_deleted_at in the rows of the parent that are not in r.Remain.
func (t *table) remain(ctx context.Context, r pending.Record) error {
	_, err := t.conn.Exec(ctx, fmt.Sprintf(`UPDATE %s SET %s = $1 WHERE %s = $2 AND %s IS NULL
		AND NOT EXISTS (SELECT 1 FROM unnest($3::text[]) AS kept (key) WHERE kept.key = %s)`,
		t.beside(t.name), pending.ColumnGone, pending.ColumnParent, pending.ColumnGone, pending.ColumnKey), r.At.UTC(), r.Parent, *r.Remain)
	return err
}

// lines returns the records in COPY's text format, encoded as they are read.
func (t *table) lines(records []pending.Record) io.Reader {
	type id struct{ parent, key string }
	last := make(map[id]int, len(records))
	for i, r := range records {
		if _, twice := last[id{r.Parent, r.Key}]; !twice || !r.Older {
			last[id{r.Parent, r.Key}] = i
		}
	}
	l := &lines{table: t}
	for i := range records {
		if last[id{records[i].Parent, records[i].Key}] == i {
			l.records = append(l.records, &records[i])
		}
	}
	return l
}

type lines struct {
	table   *table
	records []*pending.Record
	ready   bytes.Buffer
	cells   []cell
	split   field.Splitter
	rest    field.Rest
}

// cell is the text of a column, NULL if it is not set.
type cell struct {
	text string
	set  bool
}

func (l *lines) Read(p []byte) (int, error) {
	for l.ready.Len() < len(p) && len(l.records) > 0 {
		l.line(l.records[0])
		l.records = l.records[1:]
	}
	return l.ready.Read(p)
}

// line appends one record.
func (l *lines) line(r *pending.Record) {
	t := l.table
	if t.Detail {
		l.field(r.Parent)
	}
	l.field(r.Key)
	l.cells = slices.Grow(l.cells[:0], len(t.Fields)+3)[:len(t.Fields)+3]
	clear(l.cells)
	value, rest, gone := &l.cells[len(t.Fields)], &l.cells[len(t.Fields)+1], &l.cells[len(t.Fields)+2]
	fields, object := l.split.Split(r.Data)
	if !object {
		*value = cell{string(r.Data), true}
	}
	for _, f := range fields {
		at, ok := t.ByName[f.Name]
		if !ok || !f.Exact {
			l.rest.Add(f)
			continue
		}
		text, set, whole := t.Fields[at].Kind.read(f.Raw)
		l.cells[at] = cell{text, set}
		if !whole {
			l.rest.Add(f)
		}
	}
	if others, ok := l.rest.Take(); ok {
		*rest = cell{others, true}
	}
	if !r.At.IsZero() {
		*gone = cell{r.At.UTC().Format(time.RFC3339Nano), true}
	}
	for _, c := range l.cells {
		if c.set {
			l.field(c.text)
		} else {
			l.ready.WriteString(`\N` + "\t")
		}
	}
	l.ready.Truncate(l.ready.Len() - 1)
	l.ready.WriteByte('\n')
}

var escapes = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)

// field appends one text and a tab.
func (l *lines) field(s string) {
	if strings.ContainsAny(s, "\\\t\n\r") {
		_, _ = escapes.WriteString(&l.ready, s)
	} else {
		l.ready.WriteString(s)
	}
	l.ready.WriteByte('\t')
}

// literal returns a text as an SQL literal.
func literal(s string) string {
	if strings.Contains(s, `\`) {
		return ` E'` + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `'`, `''`) + `'`
	}
	return `'` + strings.ReplaceAll(s, `'`, `''`) + `'`
}
