package parquet

import (
	"maps"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/headway-go/headway/sink/internal/field"
)

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
