package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/pgsql"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/pending"
)

// change is the records of one commit.
type change struct {
	connection, schema string
	// mark is the mark after it is applied.
	mark    mark
	streams []collect.StreamInfo
	records map[string][]pending.Record
}

// catalog creates the tables that describe the others.
const catalog = `
CREATE TABLE IF NOT EXISTS %[1]s.headway_tables (
	name       text COLLATE "C" PRIMARY KEY,
	connection text COLLATE "C" NOT NULL,
	-- When the connection last started over before the table was created.
	begun      text NOT NULL
);
CREATE TABLE IF NOT EXISTS %[1]s.headway_columns (
	"table"  text COLLATE "C" NOT NULL REFERENCES %[1]s.headway_tables (name) ON UPDATE CASCADE ON DELETE CASCADE,
	"column" text COLLATE "C" NOT NULL,
	PRIMARY KEY ("table", "column")
);
CREATE TABLE IF NOT EXISTS %[1]s.headway_slices (
	connection text COLLATE "C" PRIMARY KEY,
	id         text NOT NULL,
	begun      text NOT NULL,
	-- The number of the last slice that is in the tables.
	applied    bigint NOT NULL,
	-- A slice that waits for the state's commit, and its number; NULL is none.
	staged     bigint NOT NULL DEFAULT 0,
	slice      text
);
ALTER TABLE %[1]s.headway_slices ALTER COLUMN slice SET STORAGE EXTERNAL;`

// home returns the schema of a name, the session's if the name is empty, and creates it and
// its catalog if they do not exist. Only one session at a time creates a catalog.
func home(ctx context.Context, conn *pgx.Conn, schema string) (string, error) {
	var found *string
	var there, ready bool
	query := func() error {
		return conn.QueryRow(ctx, `SELECT s.name, n.oid IS NOT NULL, EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'headway_slices')
			FROM (SELECT coalesce(nullif($1::text, ''), current_schema())::text AS name) s LEFT JOIN pg_namespace n ON n.nspname = s.name`, schema).Scan(&found, &there, &ready)
	}
	if err := query(); err != nil {
		return "", err
	}
	if found == nil {
		return "", errors.New("there is no schema for the tables: name one as sink.postgres.schema")
	}
	if ready {
		return *found, nil
	}
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('headway records', 0))`); err != nil {
		return "", err
	}
	if err := query(); err != nil || ready {
		return *found, err
	}
	quoted := pgx.Identifier{*found}.Sanitize()
	steps := fmt.Sprintf(catalog, quoted)
	if !there {
		steps = "CREATE SCHEMA " + quoted + ";" + steps
	}
	_, err := conn.Exec(ctx, steps)
	return *found, err
}

// apply writes the records in the current transaction of conn. It reads the columns of the
// tables each time, since an earlier transaction may have been rolled back. With once, it does
// nothing and returns false if the slice is already in the tables.
func (c *change) apply(ctx context.Context, conn *pgx.Conn, once bool) (applied bool, err error) {
	c.schema, err = home(ctx, conn, c.schema)
	if err != nil {
		return false, explain("", err)
	}
	slices := pgx.Identifier{c.schema, "headway_slices"}.Sanitize()
	var was mark
	err = conn.QueryRow(ctx, `SELECT id, begun, applied FROM `+slices+` WHERE connection = $1 FOR UPDATE`, c.connection).Scan(&was.ID, &was.Begun, &was.Slice)
	first := false
	switch {
	case errors.Is(err, pgx.ErrNoRows) && c.mark.Slice > 1:
		return false, explain("", fmt.Errorf("the schema %s has none of the %d slices that were committed for this connection; nothing was changed: "+
			"restore it, or start over with `headway collect --fresh`", c.schema, c.mark.Slice-1))
	case errors.Is(err, pgx.ErrNoRows):
		first = true
	case err != nil:
		return false, explain("", err)
	case once && was.ID == c.mark.ID && was.Slice >= c.mark.Slice:
		return false, nil
	case was.ID != c.mark.ID && c.mark.Begun == was.Begun && was.Slice > 0:
		return false, explain("", c.otherState())
	default:
		first = was.ID != c.mark.ID || was.Slice == 0
	}
	for _, s := range c.streams {
		if !first && len(c.records[s.Name]) == 0 {
			continue
		}
		if err := c.stream(ctx, conn, s); err != nil {
			return false, explain(s.Name, err)
		}
	}
	_, err = conn.Exec(ctx, `INSERT INTO `+slices+` (connection, id, begun, applied) VALUES ($1, $2, $3, $4)
		ON CONFLICT (connection) DO UPDATE SET id = excluded.id, begun = excluded.begun, applied = excluded.applied, staged = 0, slice = NULL`,
		c.connection, c.mark.ID, c.mark.Begun, c.mark.Slice)
	return err == nil, explain("", err)
}

func (c *change) otherState() error {
	return fmt.Errorf("the schema %s holds records of the connection %q that were collected with another state; nothing was changed: "+
		"use that state, name another schema, or start over with `headway collect --fresh`, which sets its tables aside", c.schema, c.connection)
}

func (c *change) stream(ctx context.Context, conn *pgx.Conn, s collect.StreamInfo) error {
	t := &table{conn: conn, schema: c.schema, name: s.Name, Columns: pending.Columns[kind]{Detail: s.Parent != ""}}
	there, err := c.claim(ctx, t)
	records := c.records[s.Name]
	if err != nil || len(records) == 0 {
		return err
	}
	if !there && !pending.HasRows(records) {
		return nil // no slice was ever written
	}
	if there {
		err = t.load(ctx)
	} else {
		_, err = conn.Exec(ctx, `INSERT INTO `+t.beside("headway_tables")+` VALUES ($1, $2, $3)`, t.name, c.connection, c.mark.Begun)
	}
	if err != nil {
		return err
	}
	if err := t.grow(ctx, records, !there); err != nil {
		return err
	}
	for group := range pending.Groups(records) {
		if group[0].Remain != nil {
			err = t.remain(ctx, group[0])
		} else {
			err = t.write(ctx, group)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// claim reports whether the stream's table exists. It sets aside a table from before the
// connection started over. A table of another owner is an error.
func (c *change) claim(ctx context.Context, t *table) (there bool, err error) {
	var connection, begun, kind *string
	if err := t.conn.QueryRow(ctx, `SELECT h.connection, h.begun, c.relkind::text FROM (SELECT $1::text AS name) q
		LEFT JOIN `+t.beside("headway_tables")+` h ON h.name = q.name
		LEFT JOIN pg_class c ON c.relname = q.name AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $2)`,
		t.name, t.schema).Scan(&connection, &begun, &kind); err != nil {
		return false, err
	}
	switch {
	case kind == nil && connection != nil:
		return false, errors.New("its table is gone, and this sink did not remove it: restore it from a backup, " +
			"or delete the table's row from headway_tables and start over with `headway collect --fresh`")
	case kind == nil:
		return false, nil
	case connection == nil:
		return false, fmt.Errorf("there is a %s of that name in the schema %s that this sink did not write; it was not changed: "+
			"rename it or the stream, or name another schema as sink.postgres.schema", kinds[*kind], t.schema)
	case *connection != c.connection:
		return false, fmt.Errorf("the table of that name in the schema %s is the connection %q's; it was not changed: "+
			"rename the stream in one of them, or give one of them another sink.postgres.schema", t.schema, *connection)
	case *begun == c.mark.Begun:
		return true, nil
	}
	return false, c.setAside(ctx, t)
}

// kinds are the names of PostgreSQL's kinds of relations, for display.
var kinds = map[string]string{
	"r": "table", "p": "table", "v": "view", "m": "materialized view", "f": "foreign table", "i": "index", "I": "index", "S": "sequence", "c": "type",
}

// setAside renames a table to the first free backup name.
func (c *change) setAside(ctx context.Context, t *table) error {
	at, err := time.Parse(time.RFC3339Nano, c.mark.Begun)
	if err != nil {
		// The connection's state was forgotten without SetAside.
		return errors.New("its table is of a state of the connection that was forgotten; it was not changed: " +
			"start over with `headway collect --fresh`, which sets it aside")
	}
	for n := 1; ; n++ {
		ending := "_" + at.Format("20060102T150405Z")
		if n > 1 {
			ending = fmt.Sprintf("%s_%d", ending, n)
		}
		ending += "_bak"
		to := t.name
		for len(to)+len(ending) > maxName {
			_, size := utf8.DecodeLastRuneInString(to)
			to = to[:len(to)-size]
		}
		to += ending
		var taken bool
		if err := t.conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_class WHERE relname = $1 AND relnamespace =
			(SELECT oid FROM pg_namespace WHERE nspname = $2))`, to, t.schema).Scan(&taken); err != nil {
			return err
		}
		if taken {
			continue
		}
		if _, err := t.conn.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s RENAME TO %s`, t.beside(t.name), pgx.Identifier{to}.Sanitize())); err != nil {
			return err
		}
		// Its columns follow.
		_, err = t.conn.Exec(ctx, `UPDATE `+t.beside("headway_tables")+` SET name = $1 WHERE name = $2`, to, t.name)
		return err
	}
}

// explain wraps an error with what failed and advice. It leaves out the server's messages
// about values, since they may contain the values.
func explain(stream string, err error) error {
	if err == nil {
		return nil
	}
	where := name
	if stream != "" {
		where = fmt.Sprintf("%s: stream %q", name, stream)
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
	case strings.HasPrefix(e.Code, "22"), strings.HasPrefix(e.Code, "23"):
		return fmt.Errorf("%s: the server refuses a value (SQLSTATE %s): see to constraints and triggers that were added to the table", where, e.Code)
	case e.Code == "42501":
		return fmt.Errorf("%s: this user lacks a right: let it own a schema (CREATE SCHEMA ... AUTHORIZATION), name that as sink.postgres.schema, "+
			"and let it create temporary tables: %w", where, err)
	case e.Code == "57014", e.Code == "55P03":
		return fmt.Errorf("%s: the server ended a statement that waited or worked too long: see who locks the table; "+
			"a column that has to be widened in a large one is widened by hand: %w", where, err)
	}
	if advice := pgsql.Advise(err); advice != "" {
		return fmt.Errorf("%s: %s: %w", where, advice, err)
	}
	return fmt.Errorf("%s: %w", where, err)
}

// kind is the type of a column, or of the column that a value needs.
type kind uint8

const (
	nothing kind = iota // a null, or a value that no column holds
	boolean
	bigint
	numeric
	text
	jsonb
)

// types are PostgreSQL's names of the kinds.
var types = [...]string{nothing: "", boolean: "boolean", bigint: "bigint", numeric: "numeric", text: "text", jsonb: "jsonb"}

// maxDigits bounds a number in a column: digits, and the power of ten.
const maxDigits = 1000

// kindOfValue returns the kind of column that a value of valid JSON needs.
func kindOfValue(raw []byte) kind {
	switch raw[0] {
	case 'n':
		return nothing
	case 't', 'f':
		return boolean
	case '"':
		return text
	case '[', '{':
		if !storable(raw) {
			return nothing
		}
		return jsonb
	}
	if !bytes.ContainsAny(raw, ".eE") {
		if len(raw) < 19 {
			return bigint
		}
		if _, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return bigint
		}
	}
	if !moderate(raw) {
		return nothing
	}
	return numeric
}

// join returns the kind that takes the values of both.
func join(have, come kind) kind {
	switch {
	case come == nothing || have == come || have == text || have == jsonb:
		return have
	case come == jsonb:
		return jsonb
	case have >= bigint && have <= numeric && come >= bigint && come <= numeric:
		return numeric
	}
	return text
}

// read returns the text of a value in a column of the kind; set is false for NULL. Whole
// reports whether the column returns the value unchanged.
func (k kind) read(raw []byte) (value string, set, whole bool) {
	come := kindOfValue(raw)
	switch {
	case raw[0] == 'n':
		return "", false, false
	case k == jsonb:
		ok := come == jsonb || come != nothing && storable(raw)
		return string(raw), ok, ok
	case k == text && come == text:
		v := field.Read(raw)
		if strings.IndexByte(v.Text, 0) >= 0 {
			return strings.ReplaceAll(v.Text, "\x00", "\uFFFD"), true, false
		}
		return v.Text, true, v.Exact
	case k == text:
		return string(raw), true, false
	case k == come, k == numeric && come == bigint:
		return string(raw), true, raw[0] != '-' || bytes.ContainsAny(mantissa(raw), "123456789")
	}
	return "", false, false
}

// mantissa returns a number without its power of ten.
func mantissa(raw []byte) []byte {
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		return raw[:i]
	}
	return raw
}

// moderate reports whether numeric and jsonb return a number unchanged.
func moderate(raw []byte) bool {
	m := mantissa(raw)
	if len(m) > maxDigits {
		return false
	}
	if len(m) == len(raw) {
		return true
	}
	n, err := strconv.Atoi(strings.TrimPrefix(string(raw[len(m)+1:]), "+"))
	return err == nil && n <= maxDigits && n >= -maxDigits
}

// storable reports whether jsonb returns valid, compact JSON unchanged: it has no NUL, half
// surrogate pair, number out of bounds or negative zero, and is not nested too deep.
func storable(raw []byte) bool {
	const maxDepth = 500
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			start := i
			escaped := false
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					escaped = escaped || raw[i+1] == 'u'
					i++
				}
			}
			if escaped {
				v := field.Read(raw[start : i+1])
				if !v.Exact || strings.IndexByte(v.Text, 0) >= 0 {
					return false
				}
			}
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return false
			}
		case c == ']' || c == '}':
			depth--
		case c == '-' || c >= '0' && c <= '9':
			end := i
			for end < len(raw) && strings.IndexByte("+-.eE0123456789", raw[end]) >= 0 {
				end++
			}
			number := raw[i:end]
			if !moderate(number) || c == '-' && !bytes.ContainsAny(mantissa(number), "123456789") {
				return false
			}
			i = end - 1
		}
	}
	return true
}
