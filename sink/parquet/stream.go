package parquet

import (
	"bufio"
	"fmt"
	"maps"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/folder"
)

// stream is one stream's folder: its complete parts, the last part, and the spool of the
// last part.
type stream struct {
	folder.Folder
	// mark is the position that was synced last.
	mark
	// published is how many bytes of the spool are in the last part.
	published int64
	// sealed holds the columns of the last complete part.
	sealed columns
	// outdated is the number of the spool of a complete part, which is removed once a
	// position with the next part is committed; 0 means none.
	outdated int64

	// spool is open once something was written. length includes the bytes in w.
	spool  disk.File
	w      *bufio.Writer
	length int64
	dirty  bool
	// unnamed reports that the spool's name may not be on disk yet.
	unnamed bool
}

// empty returns an error if a folder has parts or spools.
func empty(d folder.Folder, stream string) error {
	names, err := d.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		_, part := numberOf(name, partName)
		_, spool := numberOf(name, spoolName)
		if part || spool {
			return &ForeignError{Path: d.Path(name), Stream: stream}
		}
	}
	return nil
}

// verify checks that the committed files exist and have at least the committed length. It
// does not read all of them.
func (s *stream) verify() error {
	for n := int64(1); n < s.Part; n++ {
		size, there, err := s.Size(partName(n))
		switch {
		case err != nil:
			return err
		case !there:
			return &LostError{Path: s.Path(partName(n)), What: "is missing"}
		case size == 0:
			return &LostError{Path: s.Path(partName(n)), What: "is empty"}
		}
	}
	var err error
	s.sealed = columns{}
	if s.Part > 1 {
		if s.sealed, err = sealedColumns(s.Folder, s.Part-1); err != nil {
			return err
		}
	}
	if s.Spool == 0 {
		return nil
	}
	path := s.Path(spoolName(s.Part))
	size, there, err := s.Size(spoolName(s.Part))
	switch {
	case err != nil:
		return err
	case !there:
		return &LostError{Path: path, What: "is missing"}
	case size < s.Spool:
		return &LostError{Path: path, What: fmt.Sprintf("has %d bytes of the %d that were committed", size, s.Spool)}
	}
	last, err := s.Tail(spoolName(s.Part), s.Spool, 1)
	if err == nil && last[0] != '\n' {
		return &LostError{Path: path, What: fmt.Sprintf("has no end of a line after the %d bytes that were committed", s.Spool)}
	}
	return err
}

// restore removes parts, spools and bytes after the mark, and brings the last part up to
// date with the spool.
func (s *stream) restore() error {
	names, err := s.Names()
	if err != nil {
		return err
	}
	removed := false
	for _, name := range names {
		part, isPart := numberOf(name, partName)
		spool, isSpool := numberOf(name, spoolName)
		switch {
		case name == temporary:
		case isPart && (part > s.Part || part == s.Part && s.Spool == 0):
		case isSpool && (spool != s.Part || s.Spool == 0):
		default:
			continue
		}
		if err := s.Remove(name); err != nil {
			return err
		}
		removed = true
	}
	if removed {
		if err := s.Sync(); err != nil {
			return err
		}
	}
	s.length = s.Spool
	if s.Spool == 0 {
		return nil
	}
	size, _, err := s.Size(spoolName(s.Part))
	if err != nil {
		return err
	}
	if size > s.Spool {
		if err := s.Cut(spoolName(s.Part), s.Spool); err != nil {
			return err
		}
	}
	s.published = source(s.Folder, s.Part)
	return s.publish()
}

// publish brings the last part up to date with the synced spool.
func (s *stream) publish() error {
	if s.published == s.Spool {
		return nil
	}
	if _, err := convert(s.Folder, s.Part, s.Spool, s.sealed); err != nil {
		return err
	}
	s.published = s.Spool
	return nil
}

// append adds lines to the spool.
func (s *stream) append(lines []byte) error {
	if s.spool == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	s.Step()
	s.dirty = true
	if _, err := s.w.Write(lines); err != nil {
		return folder.Explain("parquet", "write", s.spool.Name(), err)
	}
	s.length += int64(len(lines))
	return nil
}

func (s *stream) open() error {
	s.Step()
	if err := s.Make(); err != nil {
		return err
	}
	f, err := s.Append(spoolName(s.Part))
	if err != nil {
		return err
	}
	s.spool, s.w, s.unnamed = f, bufio.NewWriterSize(f, bufferSize), s.length == 0
	return nil
}

// syncSpool makes the spool durable.
func (s *stream) syncSpool() error {
	if !s.dirty {
		return nil
	}
	s.Step()
	if err := s.w.Flush(); err != nil {
		return folder.Explain("parquet", "write", s.spool.Name(), err)
	}
	s.Step()
	if err := s.spool.Sync(); err != nil {
		return folder.Explain("parquet", "sync", s.spool.Name(), err)
	}
	if s.unnamed {
		if err := s.Sync(); err != nil {
			return err
		}
	}
	s.dirty, s.unnamed, s.Spool = false, false, s.length
	return nil
}

// committed is called after the mark was committed. If the spool has reached target bytes,
// it completes the part and begins the next one.
func (s *stream) committed(target int64) error {
	if s.outdated > 0 {
		if err := s.Remove(spoolName(s.outdated)); err != nil {
			return err
		}
		s.outdated = 0
	}
	if s.Spool < target {
		return nil
	}
	c, err := convert(s.Folder, s.Part, s.Spool, s.sealed)
	if err != nil {
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	s.outdated, s.mark = s.Part, mark{Part: s.Part + 1}
	s.sealed, s.published, s.length = c, 0, 0
	return nil
}

// close closes the spool, if it is open.
func (s *stream) close() error {
	if s.spool == nil {
		return nil
	}
	f := s.spool
	s.spool, s.w, s.dirty = nil, nil, false
	if err := f.Close(); err != nil {
		return folder.Explain("parquet", "close", f.Name(), err)
	}
	return nil
}

// maxColumns is the maximum number of columns for fields.
const maxColumns = 1000

// The columns of this package.
const (
	columnKey    = "_key"
	columnParent = "_parent"
	columnValue  = "_value"
	columnRest   = "_rest"
)

var ours = []string{columnKey, columnParent, columnValue, columnRest}

// columns holds the columns of fields by name, with the kind that fits all values so far.
// Columns are only added and widened.
type columns struct {
	kinds map[string]field.Kind
	// parented reports that rows have a parent.
	parented bool
}

func (c *columns) clone() columns {
	if c.kinds == nil {
		return columns{kinds: map[string]field.Kind{}}
	}
	return columns{maps.Clone(c.kinds), c.parented}
}

// see widens the columns to hold a field.
func (c *columns) see(f field.Field) {
	old, there := c.kinds[f.Name]
	if !there && (len(c.kinds) >= maxColumns || !field.Nameable(f) || slices.Contains(ours, f.Name)) {
		return
	}
	k := field.Read(f.Raw).Kind
	switch {
	case k == field.Null:
	case !there || old == k:
		c.kinds[f.Name] = k
	case old == field.Integer && k == field.Real, old == field.Real && k == field.Integer:
		c.kinds[f.Name] = field.Real
	default:
		c.kinds[f.Name] = field.Text
	}
}

// schema returns the schema of a part with these columns.
func (c *columns) schema() *parquet.Schema {
	g := parquet.Group{
		columnKey:   parquet.String(),
		columnValue: parquet.Optional(parquet.JSON()),
		columnRest:  parquet.Optional(parquet.JSON()),
	}
	if c.parented {
		g[columnParent] = parquet.Optional(parquet.String())
	}
	for name, k := range c.kinds {
		g[name] = parquet.Optional(node(k))
	}
	return parquet.NewSchema("record", g)
}

func node(k field.Kind) parquet.Node {
	switch k {
	case field.Boolean:
		return parquet.Leaf(parquet.BooleanType)
	case field.Integer:
		return parquet.Leaf(parquet.Int64Type)
	case field.Real:
		return parquet.Leaf(parquet.DoubleType)
	case field.JSON:
		return parquet.JSON()
	default:
		return parquet.String()
	}
}

// columnsOf reads the columns of a part.
func columnsOf(s *parquet.Schema) columns {
	c := columns{kinds: map[string]field.Kind{}}
	for _, f := range s.Fields() {
		switch {
		case f.Name() == columnParent:
			c.parented = true
		case slices.Contains(ours, f.Name()) || !f.Leaf():
		default:
			c.kinds[f.Name()] = kindOf(f.Type())
		}
	}
	return c
}

func kindOf(t parquet.Type) field.Kind {
	json := false
	if logical := t.LogicalType(); logical != nil {
		_, json = logical.Value.(*format.JsonType)
	}
	switch {
	case t.Kind() == parquet.Boolean:
		return field.Boolean
	case t.Kind() == parquet.Int64:
		return field.Integer
	case t.Kind() == parquet.Double:
		return field.Real
	case json:
		return field.JSON
	default:
		return field.Text
	}
}

// rowMaker turns records into rows of a schema.
type rowMaker struct {
	columns columns
	index   map[string]int
	row     parquet.Row
	split   field.Splitter
	rest    field.Rest
}

func newRowMaker(c columns, s *parquet.Schema) *rowMaker {
	m := &rowMaker{columns: c, index: map[string]int{}}
	for i, f := range s.Fields() {
		m.index[f.Name()] = i
	}
	m.row = make(parquet.Row, len(m.index))
	return m
}

// set sets a column of the current row.
func (m *rowMaker) set(name string, v parquet.Value, level int) {
	i := m.index[name]
	m.row[i] = v.Level(0, level, i)
}

func (m *rowMaker) setText(name, text string) {
	m.set(name, parquet.ByteArrayValue([]byte(text)), 1)
}

// make returns the row of a record. It is valid until the next call.
func (m *rowMaker) make(r record) parquet.Row {
	for i := range m.row {
		m.row[i] = parquet.NullValue().Level(0, 0, i)
	}
	m.set(columnKey, parquet.ByteArrayValue([]byte(r.key)), 0) // required
	if r.parent != "" {
		m.setText(columnParent, r.parent)
	}
	fields, object := m.split.Split(r.data)
	if !object {
		m.setText(columnValue, string(r.data))
		return m.row
	}
	for _, f := range fields {
		k, ok := m.columns.kinds[f.Name]
		if !ok || !f.Exact || !m.fill(f, k) {
			m.rest.Add(f)
		}
	}
	if object, ok := m.rest.Take(); ok {
		m.setText(columnRest, object)
	}
	return m.row
}

// fill sets the column of a field, and reports whether the field can be restored from it.
func (m *rowMaker) fill(f field.Field, k field.Kind) (exact bool) {
	v := field.Read(f.Raw)
	if v.Kind == field.Null {
		return false
	}
	switch k {
	case field.Boolean:
		m.set(f.Name, parquet.BooleanValue(v.Int == 1), 1)
	case field.Integer:
		m.set(f.Name, parquet.Int64Value(v.Int), 1)
	case field.Real:
		if v.Kind == field.Integer {
			v.Real = float64(v.Int)
			const maxExact = 1 << 53 // up to here a float64 holds each integer
			v.Exact = v.Exact && -maxExact <= v.Int && v.Int <= maxExact
		}
		m.set(f.Name, parquet.DoubleValue(v.Real), 1)
	case field.Text:
		if v.Kind != field.Text {
			m.setText(f.Name, string(f.Raw))
			return false
		}
		m.setText(f.Name, v.Text)
	default:
		m.setText(f.Name, v.Text)
	}
	return v.Exact
}
