package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/pending"
)

// maxColumns is the maximum number of columns for fields. SQLite allows 2,000 in all.
const maxColumns = 1000

// The columns of this package.
const (
	columnKey    = "_key"
	columnParent = "_parent"
	columnValue  = "_value"
	columnRest   = "_rest"
	// columnGone is added with the first deleted row.
	columnGone = "_headway_deleted_at"
)

// table describes a stream's table, as read in the transaction.
type table struct {
	name   string
	detail bool
	// columns are the columns of fields, in the order of their creation.
	columns []column
	// byName holds the index of a column by its field's name.
	byName map[string]int
	// taken holds all column names, folded as SQLite compares them.
	taken map[string]bool
	// marks reports that the table has columnGone.
	marks bool
}

type column struct {
	name string
	kind field.Kind // Boolean, JSON, or Text for plain
}

var kinds = map[field.Kind]string{field.Boolean: "boolean", field.JSON: "json", field.Text: "plain"}

func (t *table) reset() {
	t.columns, t.byName, t.taken = nil, map[string]int{}, map[string]bool{}
	// The last three are SQLite's names for the row id.
	for _, name := range []string{columnKey, columnParent, columnValue, columnRest, columnGone, "rowid", "oid", "_rowid_"} {
		t.taken[name] = true
	}
}

// fold returns a name as SQLite compares it: without the case of ASCII letters.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

func (t *table) add(c column) {
	t.byName[c.name] = len(t.columns)
	t.taken[fold(c.name)] = true
	t.columns = append(t.columns, c)
}

// load reads the table's columns. Columns that were added by hand count as taken and are
// left alone.
func (t *table) load(ctx context.Context, tx collect.Execer) error {
	t.reset()
	parented := false
	if err := sqlitefile.Each(ctx, tx, func(rows *sql.Rows) error {
		var name string
		var pk int
		var kind sql.NullString
		if err := rows.Scan(&name, &pk, &kind); err != nil {
			return err
		}
		parented = parented || name == columnParent && pk > 0
		t.taken[fold(name)] = true
		t.marks = t.marks || fold(name) == columnGone
		for k, of := range kinds {
			if kind.String == of {
				t.add(column{name, k})
			}
		}
		return nil
	}, `SELECT i.name, i.pk, c.kind FROM pragma_table_info(?1) i
		LEFT JOIN headway_columns c ON c."table" = ?1 AND c."column" = i.name ORDER BY i.cid`, t.name); err != nil {
		return err
	}
	if parented != t.detail {
		return errors.New("the stream was a list and now holds details, or the reverse, and its table has the old key; nothing was changed: " +
			"rename the stream, or start over with `headway collect --fresh`")
	}
	return nil
}

// grow creates the table or adds the columns that the records need.
func (t *table) grow(ctx context.Context, tx collect.Execer, records []pending.Record, create bool) error {
	if create {
		t.reset()
	}
	had := len(t.columns)
	var split field.Splitter
	for _, r := range records {
		if r.Remain != nil {
			continue
		}
		fields, _ := split.Split(r.Data)
		for _, f := range fields {
			if _, ok := t.byName[f.Name]; ok || len(t.columns) >= maxColumns || !field.Nameable(f) || t.taken[fold(f.Name)] {
				continue
			}
			switch field.Read(f.Raw).Kind {
			case field.Null:
			case field.Boolean:
				t.add(column{f.Name, field.Boolean})
			case field.JSON:
				t.add(column{f.Name, field.JSON})
			default:
				t.add(column{f.Name, field.Text})
			}
		}
	}
	fresh := t.columns[had:]
	if create {
		if _, err := tx.ExecContext(ctx, t.create()); err != nil {
			return err
		}
	}
	for _, c := range fresh {
		if !create {
			alter := fmt.Sprintf(`ALTER TABLE %s ADD COLUMN %s ANY`, quote(t.name), quote(c.name))
			if _, err := tx.ExecContext(ctx, alter); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO headway_columns VALUES (?, ?, ?)`, t.name, c.name, kinds[c.kind]); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) create() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE %s (\n", quote(t.name))
	for _, name := range t.key() {
		fmt.Fprintf(&b, "    %s TEXT NOT NULL,\n", name)
	}
	for _, c := range t.columns {
		fmt.Fprintf(&b, "    %s ANY,\n", quote(c.name))
	}
	fmt.Fprintf(&b, "    %s TEXT,\n    %s TEXT,\n    PRIMARY KEY (%s)\n) STRICT",
		columnValue, columnRest, strings.Join(t.key(), ", "))
	return b.String()
}

// names returns the names of the columns of fields.
func (t *table) names() []string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

func (t *table) key() []string {
	if t.detail {
		return []string{columnParent, columnKey}
	}
	return []string{columnKey}
}

// preparer is a transaction that can prepare statements, such as one of database/sql.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// insert runs a statement for each record in order, so that a later one counts.
func (t *table) insert(ctx context.Context, tx collect.Execer, records []pending.Record, query string) error {
	exec := func(args []any) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}
	if p, ok := tx.(preparer); ok {
		s, err := p.PrepareContext(ctx, query)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		exec = func(args []any) error {
			_, err := s.ExecContext(ctx, args...)
			return err
		}
	}
	var split field.Splitter
	var rest field.Rest
	args := make([]any, len(t.key())+len(t.columns)+2)
	for _, r := range records {
		t.bind(args, r, &split, &rest)
		if err := exec(args); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) statement() string {
	names := t.written()
	var set strings.Builder
	for i, name := range names[len(t.key()):] {
		if i > 0 {
			set.WriteString(", ")
		}
		fmt.Fprintf(&set, "%s = excluded.%s", name, name)
	}
	if t.marks {
		set.WriteString(", " + columnGone + " = NULL") // the record exists again
	}
	return t.onConflict("DO UPDATE SET " + set.String())
}

// written returns the columns that a statement writes.
func (t *table) written() []string {
	names := slices.Clone(t.key())
	for _, c := range t.columns {
		names = append(names, quote(c.name))
	}
	return append(names, columnValue, columnRest)
}

// onConflict returns a statement that inserts a record, and does then if the key exists.
func (t *table) onConflict(then string) string {
	names := t.written()
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (?%s) ON CONFLICT (%s) %s",
		quote(t.name), strings.Join(names, ", "), strings.Repeat(", ?", len(names)-1), strings.Join(t.key(), ", "), then)
}

// bind fills the arguments of statement for one record.
func (t *table) bind(args []any, r pending.Record, split *field.Splitter, rest *field.Rest) {
	clear(args)
	n := len(t.key())
	if args[n-1] = r.Key; t.detail {
		args[0] = r.Parent
	}
	fields, object := split.Split(r.Data)
	if !object {
		args[len(args)-2] = string(r.Data)
		return
	}
	for _, f := range fields {
		at, ok := t.byName[f.Name]
		if !ok || !f.Exact {
			rest.Add(f)
			continue
		}
		v := field.Read(f.Raw)
		if !v.Exact || !t.columns[at].holds(v.Kind) {
			rest.Add(f)
		}
		switch v.Kind {
		case field.Null:
		case field.Boolean, field.Integer:
			args[n+at] = v.Int
		case field.Real:
			args[n+at] = v.Real
		case field.Text, field.JSON:
			args[n+at] = v.Text
		}
	}
	if object, ok := rest.Take(); ok {
		args[len(args)-1] = object
	}
}

// holds reports whether a value of this kind can be restored from the column.
func (c column) holds(k field.Kind) bool {
	switch k {
	case field.Null:
		return false
	case field.Boolean, field.JSON:
		return c.kind == k
	default:
		return c.kind == field.Text
	}
}
