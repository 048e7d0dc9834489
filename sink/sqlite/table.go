package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/sqlitefile"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/pending"
)

// maxColumns is the maximum number of columns for fields. SQLite allows 2,000 in all.
const maxColumns = 1000

// table describes a stream's table, as read in the transaction.
type table struct {
	name string
	// The kind of a column is Boolean, JSON, or Text for plain. Names that are taken are
	// folded.
	pending.Columns[field.Kind]
	// marks reports that the table has ColumnGone.
	marks bool
}

var kinds = map[field.Kind]string{field.Boolean: "boolean", field.JSON: "json", field.Text: "plain"}

// reset removes the columns of fields. The reserved names are SQLite's for the row id.
func (t *table) reset() { t.Reset("rowid", "oid", "_rowid_") }

// fold returns a name as SQLite compares it: without the case of ASCII letters.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

func (t *table) add(name string, kind field.Kind) { t.Add(name, fold(name), kind) }

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
		parented = parented || name == pending.ColumnParent && pk > 0
		t.Taken[fold(name)] = true
		t.marks = t.marks || fold(name) == pending.ColumnGone
		for k, of := range kinds {
			if kind.String == of {
				t.add(name, k)
			}
		}
		return nil
	}, `SELECT i.name, i.pk, c.Kind FROM pragma_table_info(?1) i
		LEFT JOIN headway_columns c ON c."table" = ?1 AND c."column" = i.name ORDER BY i.cid`, t.name); err != nil {
		return err
	}
	if parented != t.Detail {
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
	had := len(t.Fields)
	var split field.Splitter
	for _, r := range records {
		if r.Remain != nil {
			continue
		}
		fields, _ := split.Split(r.Data)
		for _, f := range fields {
			if _, ok := t.ByName[f.Name]; ok || len(t.Fields) >= maxColumns || !field.Nameable(f) || t.Taken[fold(f.Name)] {
				continue
			}
			switch field.Read(f.Raw).Kind {
			case field.Null:
			case field.Boolean:
				t.add(f.Name, field.Boolean)
			case field.JSON:
				t.add(f.Name, field.JSON)
			default:
				t.add(f.Name, field.Text)
			}
		}
	}
	fresh := t.Fields[had:]
	if create {
		if _, err := tx.ExecContext(ctx, t.create()); err != nil {
			return err
		}
	}
	for _, c := range fresh {
		if !create {
			alter := fmt.Sprintf(`ALTER TABLE %s ADD COLUMN %s ANY`, quote(t.name), quote(c.Name))
			if _, err := tx.ExecContext(ctx, alter); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO headway_columns VALUES (?, ?, ?)`, t.name, c.Name, kinds[c.Kind]); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) create() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE %s (\n", quote(t.name))
	for _, name := range t.Key() {
		fmt.Fprintf(&b, "    %s TEXT NOT NULL,\n", name)
	}
	for _, c := range t.Fields {
		fmt.Fprintf(&b, "    %s ANY,\n", quote(c.Name))
	}
	fmt.Fprintf(&b, "    %s TEXT,\n    %s TEXT,\n    PRIMARY KEY (%s)\n) STRICT",
		pending.ColumnValue, pending.ColumnRest, strings.Join(t.Key(), ", "))
	return b.String()
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
	args := make([]any, len(t.Key())+len(t.Fields)+2)
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
	for i, name := range names[len(t.Key()):] {
		if i > 0 {
			set.WriteString(", ")
		}
		fmt.Fprintf(&set, "%s = excluded.%s", name, name)
	}
	if t.marks {
		set.WriteString(", " + pending.ColumnGone + " = NULL") // the record exists again
	}
	return t.onConflict("DO UPDATE SET " + set.String())
}

// written returns the columns that a statement writes.
func (t *table) written() []string { return t.Written(quote, pending.ColumnValue, pending.ColumnRest) }

// onConflict returns a statement that inserts a record, and does then if the key exists.
func (t *table) onConflict(then string) string {
	names := t.written()
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (?%s) ON CONFLICT (%s) %s",
		quote(t.name), strings.Join(names, ", "), strings.Repeat(", ?", len(names)-1), strings.Join(t.Key(), ", "), then)
}

// bind fills the arguments of statement for one record.
func (t *table) bind(args []any, r pending.Record, split *field.Splitter, rest *field.Rest) {
	clear(args)
	n := len(t.Key())
	if args[n-1] = r.Key; t.Detail {
		args[0] = r.Parent
	}
	fields, object := split.Split(r.Data)
	if !object {
		args[len(args)-2] = string(r.Data)
		return
	}
	for _, f := range fields {
		at, ok := t.ByName[f.Name]
		if !ok || !f.Exact {
			rest.Add(f)
			continue
		}
		v := field.Read(f.Raw)
		if !v.Exact || !holds(t.Fields[at].Kind, v.Kind) {
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
func holds(column, k field.Kind) bool {
	switch k {
	case field.Null:
		return false
	case field.Boolean, field.JSON:
		return column == k
	default:
		return column == field.Text
	}
}
