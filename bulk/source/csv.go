package source

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headway-go/headway/bulk"
)

// CSVOptions are the options for CSV. Zero fields take the defaults.
type CSVOptions struct {
	// Comma separates fields. Default ",".
	Comma byte
	// Columns are the names of the fields; empty when the first record has them.
	Columns []string
	// Types are those of columns by name. Others are text.
	Types map[string]Type
}

// Type is what the text of a column stands for.
type Type string

// The types.
const (
	Text    Type = "text"
	Number  Type = "number"
	Boolean Type = "boolean"
	JSON    Type = "json"
)

func (o CSVOptions) resolve() (CSVOptions, error) {
	o.Comma = cmp.Or(o.Comma, ',')
	if o.Comma == '"' || o.Comma == '\n' || o.Comma == '\r' || o.Comma >= utf8.RuneSelf {
		return o, fmt.Errorf("source: comma is %q, must be one ASCII character, and neither a quote nor a line break", o.Comma)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Types)) {
		switch t := o.Types[name]; t {
		case Text, Number, Boolean, JSON:
		default:
			return o, fmt.Errorf("source: type of column %s is %q, must be text, number, boolean or json", name, t)
		}
	}
	return o, nil
}

func (o CSVOptions) describe() string {
	var s strings.Builder
	fmt.Fprintf(&s, "comma %q, columns ", o.Comma)
	if len(o.Columns) == 0 {
		s.WriteString("named by the first line")
	} else {
		fmt.Fprintf(&s, "%q", o.Columns)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Types)) {
		fmt.Fprintf(&s, ", %q as %s", name, o.Types[name])
	}
	return s.String()
}

// csv reads RFC 4180: quoted fields may contain line breaks and doubled quotes. An empty
// field without quotes is null. It does not use the standard library's reader, which reads
// to the end of the input after an open quote.
type csv struct {
	lines   *lines
	comma   byte
	columns []column
	fields  []field // scratch
}

type column struct {
	key  []byte // quoted, with the colon
	kind Type
}

type field struct {
	text   []byte
	quoted bool
}

func newCSV(r io.Reader, limit int, o CSVOptions) (*csv, error) {
	c := &csv{lines: newLines(r, limit), comma: o.Comma}
	names := o.Columns
	if len(names) == 0 {
		header, err := c.record()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the header: %w", err)
		}
		for i, f := range header.fields {
			if !f.quoted && bytes.IndexByte(f.text, '\r') >= 0 {
				return nil, fmt.Errorf("the name of column %d contains a carriage return: lines must end with a line feed, or with both", i+1)
			}
			names = append(names, string(f.text))
		}
	}
	seen := map[string]bool{}
	for i, name := range names {
		switch {
		case name == "":
			return nil, fmt.Errorf("the header has no name for column %d", i+1)
		case !utf8.ValidString(name):
			return nil, fmt.Errorf("the name of column %d is not UTF-8", i+1)
		case seen[name]:
			return nil, fmt.Errorf("the header has column %d's name twice", i+1)
		}
		seen[name] = true
		kind := o.Types[name]
		c.columns = append(c.columns, column{append(appendString(nil, []byte(name)), ':'), kind})
	}
	for _, name := range slices.Sorted(maps.Keys(o.Types)) {
		if !seen[name] {
			return nil, fmt.Errorf("a type is given for column %s, which does not exist", name)
		}
	}
	return c, nil
}

// record is one record of the input.
type record struct {
	first  line
	text   []byte
	fields []field
}

var (
	errBareQuote = errors.New("an unquoted field contains a quote; quote the field and double the quote")
	errAfter     = errors.New("there is text after a closing quote")
	errOpen      = errors.New("a quote is not closed")
)

// Next returns the next row.
func (c *csv) Next() (bulk.Row, error) {
	r, err := c.record()
	if err != nil {
		return bulk.Row{Position: r.first.Position}, err
	}
	bad := line{Position: r.first.Position, text: r.text}
	if len(r.fields) != len(c.columns) {
		return bad.malformed(fmt.Errorf("it has %d fields, the header %d", len(r.fields), len(c.columns)))
	}
	data := append(make([]byte, 0, len(r.text)+len(c.columns)*12), '{')
	for i, f := range r.fields {
		if i > 0 {
			data = append(data, ',')
		}
		data = append(data, c.columns[i].key...)
		if data, err = appendField(data, f, c.columns[i].kind); err != nil {
			return bad.malformed(fmt.Errorf("field %d %w", i+1, err))
		}
	}
	return bulk.Row{Position: r.first.Position, Data: append(data, '}')}, nil
}

// record reads one record. If it is malformed, only its first line is consumed.
func (c *csv) record() (record, error) {
	for {
		first, err := c.lines.read()
		if err != nil {
			return record{}, err
		}
		if len(first.text) == 0 && !first.long {
			continue // a blank line is not a record
		}
		r := record{first: first, text: first.text}
		var more []line
		if err = errTooLong(first, c.lines.limit); err == nil {
			r.fields, err = split(c.fields[:0], r.text, c.comma)
		}
		if errors.Is(err, errOpen) {
			if more, err = c.close(&r); err != nil && !malformed(err) {
				return r, err
			}
		}
		if err != nil {
			slices.Reverse(more)
			c.lines.back = append(c.lines.back, more...)
			_, err = first.malformed(err)
			return record{first: first}, err
		}
		c.fields = r.fields
		return r, nil
	}
}

// close reads more lines until the quotes of a record are closed, that is, until their
// number is even.
func (c *csv) close(r *record) (more []line, err error) {
	text := slices.Clone(r.text)
	odd := true
	for odd {
		next, err := c.lines.read()
		if errors.Is(err, io.EOF) {
			return more, errOpen
		}
		if err != nil {
			return more, readError{err}
		}
		more = append(more, next)
		if next.long || len(text)+len(next.text) >= c.lines.limit {
			return more, errOpen
		}
		text = append(append(text, '\n'), next.text...)
		odd = odd == (bytes.Count(next.text, []byte{'"'})%2 == 0)
	}
	r.text = text
	r.fields, err = split(c.fields[:0], text, c.comma)
	return more, err
}

// readError is an error that ended the input, not an error of one record.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

func malformed(err error) bool {
	_, read := errors.AsType[readError](err)
	return !read
}

func errTooLong(l line, limit int) error {
	if l.long {
		return fmt.Errorf("it is longer than %d bytes", limit)
	}
	return nil
}

// split splits a record into fields. It returns errOpen if the record ends within quotes.
func split(to []field, text []byte, comma byte) ([]field, error) {
	for {
		if len(text) > 0 && text[0] == '"' {
			f, rest, err := unquote(text[1:])
			if err != nil {
				return to, err
			}
			to = append(to, field{f, true})
			if len(rest) == 0 {
				return to, nil
			}
			if rest[0] != comma {
				return to, errAfter
			}
			text = rest[1:]
			continue
		}
		i := bytes.IndexByte(text, comma)
		f := text
		if i >= 0 {
			f = text[:i]
		}
		if bytes.IndexByte(f, '"') >= 0 {
			return to, errBareQuote
		}
		to = append(to, field{text: f})
		if i < 0 {
			return to, nil
		}
		text = text[i+1:]
	}
}

// unquote reads a field to its closing quote.
func unquote(text []byte) (f, rest []byte, err error) {
	i := bytes.IndexByte(text, '"')
	if i >= 0 && (i+1 == len(text) || text[i+1] != '"') {
		return text[:i], text[i+1:], nil // nothing doubled: no copy
	}
	for {
		i := bytes.IndexByte(text, '"')
		switch {
		case i < 0:
			return nil, nil, errOpen
		case i+1 < len(text) && text[i+1] == '"':
			f = append(f, text[:i+1]...)
			text = text[i+2:]
		default:
			return append(f, text[:i]...), text[i+1:], nil
		}
	}
}
