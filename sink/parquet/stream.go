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

// stream is one stream's folder: its complete parts, the part that grows, and
// the spool that is made of.
type stream struct {
	folder.Folder
	// mark is what was synced last.
	mark
	// published is how much of the spool is in the part that grows.
	published int64
	// sealed are the columns of the last complete part.
	sealed columns
	// outdated is the number of a spool whose part is complete, to be removed
	// when a position that says so is committed; 0 means none.
	outdated int64

	// spool is open once something was written; length is with what w holds.
	spool  disk.File
	w      *bufio.Writer
	length int64
	dirty  bool
	// unnamed says that the spool's name may not be on disk yet.
	unnamed bool
}

// empty makes sure that a folder has nothing of a stream in it.
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

// verify checks that what was committed is there, as far as that can be seen
// without reading all of it.
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
		return &LostError{Path: path, What: fmt.Sprintf("has no line that ends after the %d bytes that were committed", s.Spool)}
	}
	return err
}

// restore removes what came after the mark, and makes the part that grows hold
// what the spool holds.
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

// publish makes the part that grows hold what was synced.
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

// syncSpool has the spool on disk.
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

// committed takes note that the mark was committed. A spool that is large enough
// becomes a part that never changes, and the next one begins.
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

// maxColumns bounds the columns of fields.
const maxColumns = 1000

// The columns of ours.
const (
	columnKey    = "_key"
	columnParent = "_parent"
	columnValue  = "_value"
	columnRest   = "_rest"
)

var ours = []string{columnKey, columnParent, columnValue, columnRest}

// columns are those of fields, by name, with the kind that holds all values
// so far. They only grow and widen.
type columns struct {
	kinds map[string]field.Kind
	// parented says that rows have a parent.
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

// schema is the columns as a part has them.
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

// set fills a column of the row under way.
func (m *rowMaker) set(name string, v parquet.Value, level int) {
	i := m.index[name]
	m.row[i] = v.Level(0, level, i)
}

func (m *rowMaker) setText(name, text string) {
	m.set(name, parquet.ByteArrayValue([]byte(text)), 1)
}

// make gives the row of a record, until the next call.
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

// fill puts a field into its column, and says whether it can be had back from
// there.
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
			const most = 1 << 53 // up to here each integer is a float64
			v.Exact = v.Exact && -most <= v.Int && v.Int <= most
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
