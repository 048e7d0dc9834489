// Package pending is what the sinks that write tables share: the records of a slice while
// they wait for the commit, and the JSON of a record that is read back from its columns.
package pending

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/sink/internal/field"
	"github.com/headway-go/headway/sink/internal/sinkstate"
)

// MaxBytes is the maximum size of the records of one slice.
const MaxBytes = 256 << 20

// Record is a record that waits for the commit. If Remain is set it is a call of
// [Slice.Remain] instead: the keys that the parent has left at At. Sinks stage records as
// the JSON of this struct.
type Record struct {
	Key    string          `json:"key,omitempty"`
	Parent string          `json:"parent,omitempty"`
	Data   json.RawMessage `json:"data,omitempty"`
	Remain *[]string       `json:"remain,omitempty"`
	// Older records do not replace rows. At is when the record was deleted, if it was.
	Older bool      `json:"older,omitempty"`
	At    time.Time `json:"at,omitzero"`
}

// Slice holds the records of one connection from one commit to the next. It is not safe for
// concurrent use.
type Slice struct {
	// Sink is the name of the sink, which begins all errors.
	Sink       string
	Connection string
	// Escape converts keys to what the database stores.
	Escape func(string) string
	// Max is the maximum size in bytes; see [MaxBytes].
	Max int
	// Aside is the instant of SetAside, which the next Open of the sink uses; "" without a
	// call.
	Aside string

	// The fields below are set between Begin and End.
	Open    bool
	Streams []collect.StreamInfo
	Records map[string][]Record
	Size    int
}

// Begin opens the slice for the records of some streams.
func (s *Slice) Begin(streams []collect.StreamInfo) {
	s.Open, s.Aside, s.Size = true, "", 0
	s.Streams, s.Records = slices.Clone(streams), map[string][]Record{}
}

// End closes the slice and forgets its records.
func (s *Slice) End() {
	*s = Slice{Sink: s.Sink, Connection: s.Connection, Escape: s.Escape, Max: s.Max, Aside: s.Aside}
}

// MayOpen returns an error if the sink cannot be opened; see [sinkstate.MayOpen].
func (s *Slice) MayOpen(ctx context.Context) error {
	if err := sinkstate.MayOpen(ctx, s.Sink, "", s.Open); err != nil {
		return err
	}
	if s.Connection == "" {
		return errors.New(s.Sink + ": the connection has no name")
	}
	return nil
}

// Write adds records. If one of them cannot be a row, or the slice would be larger than Max,
// it returns an error and adds none.
func (s *Slice) Write(ctx context.Context, stream string, records []collect.Record) error {
	return s.add(ctx, stream, len(records), func(i int) (collect.Record, Record) { return records[i], Record{} })
}

// Restore adds older records, which do not replace rows. Errors are as of [Slice.Write].
func (s *Slice) Restore(ctx context.Context, stream string, kept []collect.KeptRecord) error {
	return s.add(ctx, stream, len(kept), func(i int) (collect.Record, Record) {
		return kept[i].Record, Record{Older: true, At: kept[i].Deleted}
	})
}

// add adds n records; at returns record i, and what to keep of it besides key and data.
func (s *Slice) add(ctx context.Context, stream string, n int, at func(i int) (collect.Record, Record)) error {
	info, err := s.writable(ctx, stream)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	added := make([]Record, n)
	size := s.Size
	for i := range n {
		r, w := at(i)
		b.Reset()
		if err := sinkstate.AppendRow(&b, s.Sink, info, r, i, n); err != nil {
			return err
		}
		w.Key, w.Parent, w.Data = s.Escape(r.Key), s.Escape(r.Parent), bytes.Clone(b.Bytes())
		added[i] = w
		if size += len(w.Key) + len(w.Parent) + len(w.Data); size > s.Max {
			return fmt.Errorf("%s: stream %q: the slice has more than %d bytes, which are kept in memory until its commit: "+
				"request smaller pages", s.Sink, stream, s.Max)
		}
	}
	s.Records[stream], s.Size = append(s.Records[stream], added...), size
	return nil
}

// Remain adds a mark: the rows of the parent whose keys are not among keys are deleted.
func (s *Slice) Remain(ctx context.Context, stream, parent string, keys []string, at time.Time) error {
	info, err := s.writable(ctx, stream)
	if err != nil {
		return err
	}
	if info.Parent == "" || parent == "" {
		return fmt.Errorf("%s: stream %q: only rows with a parent can be marked as deleted", s.Sink, stream)
	}
	left := make([]string, len(keys))
	for i, k := range keys {
		left[i] = s.Escape(k)
		s.Size += len(k)
	}
	s.Records[stream] = append(s.Records[stream], Record{Parent: s.Escape(parent), Remain: &left, At: at})
	s.Size += len(parent)
	return nil
}

func (s *Slice) writable(ctx context.Context, stream string) (collect.StreamInfo, error) {
	if err := sinkstate.MayWrite(ctx, s.Sink, s.Open); err != nil {
		return collect.StreamInfo{}, err
	}
	return sinkstate.Stream(s.Sink, s.Streams, stream)
}

// Take removes and returns the records.
func (s *Slice) Take() map[string][]Record {
	records := s.Records
	s.Records, s.Size = map[string][]Record{}, 0
	return records
}

// SetAside keeps the instant at which the collection starts over, for the next Open.
func (s *Slice) SetAside(at time.Time) error {
	if s.Open {
		return errors.New(s.Sink + ": it is open: set tables aside before Open")
	}
	s.Aside = at.UTC().Format(time.RFC3339Nano)
	return nil
}

// Encode returns records as the text of a staged slice.
func Encode(records map[string][]Record) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(records)
	return b.String(), err
}

// HasRows reports whether records has more than marks.
func HasRows(records []Record) bool {
	return slices.ContainsFunc(records, func(r Record) bool { return r.Remain == nil })
}

// Groups yields records in groups that can be written together: a mark is alone, and all
// others are consecutive records that are all older, or all not.
func Groups(records []Record) iter.Seq[[]Record] {
	return func(yield func([]Record) bool) {
		for len(records) > 0 {
			n := 1
			for records[0].Remain == nil && n < len(records) && records[n].Remain == nil && records[n].Older == records[0].Older {
				n++
			}
			if !yield(records[:n]) {
				return
			}
			records = records[n:]
		}
	}
}

// The columns of every table. Only tables of details have ColumnParent. ColumnGone is the
// time at which a record was found deleted.
const (
	ColumnKey    = "_key"
	ColumnParent = "_parent"
	ColumnValue  = "_value"
	ColumnRest   = "_rest"
	ColumnGone   = "_headway_deleted_at"
)

// Column is the column of a field. K is the kind of its values.
type Column[K any] struct {
	Name string
	Kind K
}

// Columns are the columns of a stream's table.
type Columns[K any] struct {
	// Detail reports that the parent is part of the key.
	Detail bool
	// Fields are the columns of fields, in the order of their creation, and ByName their
	// indexes.
	Fields []Column[K]
	ByName map[string]int
	// Taken has the names of all columns, as the database compares them.
	Taken map[string]bool
}

// Reset removes the columns of fields and reserves further names.
func (c *Columns[K]) Reset(reserved ...string) {
	c.Fields, c.ByName, c.Taken = nil, map[string]int{}, map[string]bool{}
	for _, name := range slices.Concat(reserved, []string{ColumnKey, ColumnParent, ColumnValue, ColumnRest, ColumnGone}) {
		c.Taken[name] = true
	}
}

// Add adds the column of a field.
func (c *Columns[K]) Add(name, folded string, kind K) {
	c.ByName[name], c.Taken[folded] = len(c.Fields), true
	c.Fields = append(c.Fields, Column[K]{name, kind})
}

// Key returns the names of the columns of the primary key.
func (c *Columns[K]) Key() []string {
	if c.Detail {
		return []string{ColumnParent, ColumnKey}
	}
	return []string{ColumnKey}
}

// Names returns the names of the columns of fields.
func (c *Columns[K]) Names() []string {
	names := make([]string, len(c.Fields))
	for i, f := range c.Fields {
		names[i] = f.Name
	}
	return names
}

// Written returns the columns that a statement writes: the key, the fields and more.
func (c *Columns[K]) Written(quote func(string) string, more ...string) []string {
	names := c.Key()
	for _, f := range c.Fields {
		names = append(names, quote(f.Name))
	}
	return append(names, more...)
}

// Object builds a record from its columns and the object rest, "" without one, whose fields
// take precedence. value returns the JSON of a column's value; ok is false for NULL.
func Object(split *field.Splitter, columns []string, value func(i int) (json string, ok bool), rest string) json.RawMessage {
	var b bytes.Buffer
	add := func(name, value string) {
		b.WriteByte("{,"[min(b.Len(), 1)])
		b.WriteString(name)
		b.WriteByte(':')
		b.WriteString(value)
	}
	var others []field.Field
	if rest != "" {
		others, _ = split.Split([]byte(rest))
	}
	for i, column := range columns {
		if slices.ContainsFunc(others, func(f field.Field) bool { return f.Name == column }) {
			continue
		}
		if text, ok := value(i); ok {
			add(Quote(column), text)
		}
	}
	for _, f := range others {
		add(string(f.Quoted), string(f.Raw))
	}
	if b.Len() == 0 {
		return json.RawMessage("{}")
	}
	b.WriteByte('}')
	return b.Bytes()
}

// Quote returns a text as a JSON string.
func Quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // never fails for a string
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
