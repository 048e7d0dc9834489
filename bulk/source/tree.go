package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// maxDepth is more than any schema nests.
const maxDepth = 32

// branch is a node of a Parquet schema. The values of a row are stored by leaf, each with
// its definition level and its repetition level; the tree assembles the row from them.
type branch struct {
	key                  []byte // quoted, with the colon; of a field
	optional, repeated   bool
	definition           int // the level from which the node itself is there
	repetition           int // the level at which it repeats
	first, last          int // its leaves, last not included
	children             []*branch
	list, dictionary     bool // as annotated
	kind                 *leafKind
	values               []parquet.Value // of a leaf, that are not used yet
	stringKeyed, wrapped bool
}

// newTree reads a schema.
func newTree(root *parquet.Column) (*branch, error) {
	leaves := 0
	t, err := newBranch(root, 0, 0, 0, &leaves)
	if err != nil {
		return nil, err
	}
	if len(t.children) == 0 {
		return nil, errors.New("the Parquet file has no columns")
	}
	return t, nil
}

func newBranch(c *parquet.Column, definition, repetition, depth int, leaves *int) (*branch, error) {
	b := &branch{optional: c.Optional(), repeated: c.Repeated(), first: *leaves}
	if depth > 0 {
		if !utf8.ValidString(c.Name()) {
			return nil, errors.New("a column's name is not UTF-8")
		}
		b.key = append(appendString(nil, []byte(c.Name())), ':')
		if b.optional || b.repeated {
			definition++
		}
		if b.repeated {
			repetition++
		}
	}
	b.definition, b.repetition = definition, repetition
	switch {
	case depth > maxDepth:
		return nil, fmt.Errorf("the Parquet file nests deeper than %d", maxDepth)
	case c.Leaf():
		*leaves++
		b.last = *leaves
		var err error
		if b.kind, err = newLeafKind(c.Type()); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name(), err)
		}
		return b, nil
	}
	for _, child := range c.Columns() {
		below, err := newBranch(child, definition, repetition, depth+1, leaves)
		if err != nil {
			return nil, err
		}
		b.children = append(b.children, below)
	}
	b.last = *leaves
	b.annotate(c)
	return b, nil
}

// annotate recognizes lists and maps, whose intermediate levels are not part of the value.
func (b *branch) annotate(c *parquet.Column) {
	logical := c.Type().LogicalType()
	if logical == nil || len(b.children) != 1 || !b.children[0].repeated {
		return
	}
	middle := b.children[0]
	switch logical.Value.(type) {
	case *format.ListType:
		b.list = true
		middle.wrapped = len(middle.children) == 1
	case *format.MapType:
		b.dictionary = len(middle.children) == 2
		middle.stringKeyed = b.dictionary && middle.children[0].kind != nil && middle.children[0].kind.text && !middle.children[0].optional
	}
}

// json returns a row as a JSON object.
func (b *branch) json(row parquet.Row) (data []byte, err error) {
	leaves := b.leaves(nil)
	for _, l := range leaves {
		l.values = nil
	}
	row.Range(func(i int, values []parquet.Value) bool {
		if i >= len(leaves) {
			err = errors.New("it has more columns than the schema")
			return false
		}
		leaves[i].values = values
		return true
	})
	if err != nil {
		return nil, err
	}
	return b.group(make([]byte, 0, 32*len(leaves)))
}

func (b *branch) leaves(to []*branch) []*branch {
	if b.kind != nil {
		return append(to, b)
	}
	for _, c := range b.children {
		to = c.leaves(to)
	}
	return to
}

var errLevels = errors.New("its levels do not fit the schema")

// leaf returns the branch's first leaf, whose next value has the levels of the branch.
func (b *branch) leaf() *branch {
	for b.kind == nil {
		if len(b.children) == 0 {
			return nil
		}
		b = b.children[0]
	}
	return b
}

// there reports whether the branch is present. If not, it consumes the null values.
func (b *branch) there() (bool, error) {
	l := b.leaf()
	if l == nil || len(l.values) == 0 {
		return false, errLevels
	}
	if l.values[0].DefinitionLevel() >= b.definition {
		return true, nil
	}
	return false, b.skip()
}

func (b *branch) skip() error {
	if b.kind == nil {
		for _, c := range b.children {
			if err := c.skip(); err != nil {
				return err
			}
		}
		return nil
	}
	if len(b.values) == 0 {
		return errLevels
	}
	b.values = b.values[1:]
	return nil
}

// value appends the branch: a field's value, with null and repetition.
func (b *branch) value(to []byte) ([]byte, error) {
	switch {
	case b.repeated:
		return b.repeat(to, '[', ']', (*branch).single)
	case b.optional:
		if there, err := b.there(); err != nil || !there {
			return append(to, "null"...), err
		}
	}
	return b.single(to)
}

// single appends the branch without repetition.
func (b *branch) single(to []byte) ([]byte, error) {
	switch {
	case b.kind != nil:
		if len(b.values) == 0 {
			return to, errLevels
		}
		v := b.values[0]
		b.values = b.values[1:]
		return b.kind.append(to, v)
	case b.list:
		middle := b.children[0]
		if middle.wrapped {
			return middle.repeat(to, '[', ']', func(m *branch, to []byte) ([]byte, error) { return m.children[0].value(to) })
		}
		return middle.value(to)
	case b.dictionary && b.children[0].stringKeyed:
		return b.children[0].repeat(to, '{', '}', func(m *branch, to []byte) ([]byte, error) {
			to, err := m.children[0].value(to)
			if err != nil {
				return to, err
			}
			return m.children[1].value(append(to, ':'))
		})
	case b.dictionary:
		return b.children[0].value(to)
	}
	return b.group(to)
}

// repeat appends all repetitions.
func (b *branch) repeat(to []byte, open, end byte, one func(*branch, []byte) ([]byte, error)) ([]byte, error) {
	to = append(to, open)
	there, err := b.there()
	if err != nil {
		return to, err
	}
	for n := 0; there; n++ {
		if n > 0 {
			to = append(to, ',')
		}
		if to, err = one(b, to); err != nil {
			return to, err
		}
		l := b.leaf()
		there = len(l.values) > 0 && l.values[0].RepetitionLevel() >= b.repetition
	}
	return append(to, end), nil
}

// group appends an object of the children.
func (b *branch) group(to []byte) ([]byte, error) {
	to = append(to, '{')
	for i, c := range b.children {
		if i > 0 {
			to = append(to, ',')
		}
		var err error
		if to, err = c.value(append(to, c.key...)); err != nil {
			return to, err
		}
	}
	return append(to, '}'), nil
}

var (
	errNotUTF8    = errors.New("is not UTF-8")
	errNotNumber  = errors.New("is not a number")
	errNotBoolean = errors.New("is neither true nor false")
	errNotJSON    = errors.New("is not JSON")
)

// appendField appends a CSV field as a JSON value.
func appendField(to []byte, f field, kind Type) ([]byte, error) {
	if len(f.text) == 0 && !f.quoted {
		return append(to, "null"...), nil
	}
	switch kind {
	case Number:
		if !json.Valid(f.text) || f.text[0] != '-' && (f.text[0] < '0' || f.text[0] > '9') {
			return to, errNotNumber
		}
		return appendOneLine(to, f.text), nil // JSON allows white space after it
	case Boolean:
		switch string(f.text) {
		case "true", "True", "TRUE", "1":
			return append(to, "true"...), nil
		case "false", "False", "FALSE", "0":
			return append(to, "false"...), nil
		}
		return to, errNotBoolean
	case JSON:
		if !utf8.Valid(f.text) || !json.Valid(f.text) {
			return to, errNotJSON
		}
		return appendOneLine(to, f.text), nil
	default:
		if !utf8.Valid(f.text) {
			return to, errNotUTF8
		}
		return appendString(to, f.text), nil
	}
}

// appendOneLine appends valid JSON without its line breaks, which can stand only
// between values.
func appendOneLine(to, raw []byte) []byte {
	for _, b := range raw {
		if b != '\n' && b != '\r' {
			to = append(to, b)
		}
	}
	return to
}

const hexDigits = "0123456789abcdef"

// appendString appends UTF-8 text as a JSON string.
func appendString(to, text []byte) []byte {
	to = append(to, '"')
	from := 0
	for i, b := range text {
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		to = append(to, text[from:i]...)
		from = i + 1
		switch b {
		case '"', '\\':
			to = append(to, '\\', b)
		case '\n':
			to = append(to, '\\', 'n')
		case '\r':
			to = append(to, '\\', 'r')
		case '\t':
			to = append(to, '\\', 't')
		default:
			to = append(to, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
	}
	return append(append(to, text[from:]...), '"')
}
