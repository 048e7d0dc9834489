// Package ledger keeps which rows of an input are settled: sets of row numbers
// as few spans, so that memory follows what is under way and not how long the
// input is.
//
// It answers "has this row an outcome already?" and refuses to settle a row
// twice. It is not for sets whose members are spread out: each hole costs a span.
// Everything is pure, a plain value and not safe for concurrent use; it knows no
// time. Looking up takes the logarithm of the number of spans.
package ledger

import (
	"fmt"
	"slices"
)

// A Span is the rows from First to Last, both included; rows count from 0.
type Span struct{ First, Last int64 }

// Rows is how many rows the span has.
func (s Span) Rows() int64 { return s.Last - s.First + 1 }

// Valid reports whether the span has a row and no negative one.
func (s Span) Valid() bool { return s.First >= 0 && s.Last >= s.First && s.Last < 1<<62 }

// String is "7" or "7-12".
func (s Span) String() string {
	if s.First == s.Last {
		return fmt.Sprint(s.First)
	}
	return fmt.Sprintf("%d-%d", s.First, s.Last)
}

// Append adds a row to spans, as one more row of the last span where it follows.
func Append(spans []Span, row int64) []Span {
	if n := len(spans); n > 0 && spans[n-1].Last+1 == row {
		spans[n-1].Last = row
		return spans
	}
	return append(spans, Span{row, row})
}

// Count is how many rows the spans have.
func Count(spans []Span) (rows int64) {
	for _, s := range spans {
		rows += s.Rows()
	}
	return rows
}

// Counts are how many rows have which outcome.
type Counts struct {
	Acknowledged int64 `json:"acknowledged"` // the server has them
	Rejected     int64 `json:"rejected"`     // the server refused them, or they could not be read
	Uncertain    int64 `json:"uncertain"`    // the server may have them
}

// Rows is how many rows have an outcome.
func (c Counts) Rows() int64 { return c.Acknowledged + c.Rejected + c.Uncertain }

// A Batch is rows that were sent together. Numbers count from 1; 0 is that of a
// batch that is not recorded.
type Batch struct {
	Number int64
	Rows   []Span
}

// A Set is a set of rows. The zero value is empty.
type Set struct {
	spans []Span // ascending, and with a gap before each
	rows  int64
}

// Len is how many rows are in the set.
func (s *Set) Len() int64 { return s.rows }

// Spans are the set's spans in ascending order, with gaps between them. They
// are good until the next Add and not to be changed.
func (s *Set) Spans() []Span { return s.spans }

// Clone is a set of its own.
func (s *Set) Clone() Set { return Set{slices.Clone(s.spans), s.rows} }

// Has reports whether the row is in the set.
func (s *Set) Has(row int64) bool {
	_, found := s.find(row)
	return found
}

// Add adds a span. Where a row of it is in the set already, or the span has no
// rows, that is an error and nothing is added.
func (s *Set) Add(a Span) error {
	if !a.Valid() {
		return fmt.Errorf("ledger: rows %d to %d: invalid span", a.First, a.Last)
	}
	i, found := s.find(a.First)
	if found || i < len(s.spans) && s.spans[i].First <= a.Last {
		return fmt.Errorf("ledger: of rows %v some are settled already", a)
	}
	before := i > 0 && s.spans[i-1].Last+1 == a.First
	after := i < len(s.spans) && s.spans[i].First == a.Last+1
	switch {
	case before && after:
		s.spans[i-1].Last = s.spans[i].Last
		s.spans = slices.Delete(s.spans, i, i+1)
	case before:
		s.spans[i-1].Last = a.Last
	case after:
		s.spans[i].First = a.First
	default:
		s.spans = slices.Insert(s.spans, i, a)
	}
	s.rows += a.Rows()
	return nil
}

// find is the span that holds the row, or the first one after it.
func (s *Set) find(row int64) (i int, found bool) {
	return slices.BinarySearchFunc(s.spans, row, func(a Span, row int64) int {
		switch {
		case a.Last < row:
			return -1
		case a.First > row:
			return 1
		default:
			return 0
		}
	})
}
