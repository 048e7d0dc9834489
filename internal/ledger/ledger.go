// Package ledger records which rows of an input have an outcome. It stores sets of row
// numbers as spans, so that memory depends on the rows in flight and not on the length of
// the input.
//
// A set reports whether a row has an outcome, and refuses to add a row twice. It is not
// for sparse sets: each gap needs another span. All types are plain values and not safe
// for concurrent use. A lookup takes logarithmic time in the number of spans.
package ledger

import (
	"fmt"
	"slices"
)

// A Span is the rows from First to Last, both included; rows count from 0.
type Span struct{ First, Last int64 }

// Rows returns the number of rows in the span.
func (s Span) Rows() int64 { return s.Last - s.First + 1 }

// Valid reports whether the span is not empty and has no negative row.
func (s Span) Valid() bool { return s.First >= 0 && s.Last >= s.First && s.Last < 1<<62 }

// String returns "7" or "7-12".
func (s Span) String() string {
	if s.First == s.Last {
		return fmt.Sprint(s.First)
	}
	return fmt.Sprintf("%d-%d", s.First, s.Last)
}

// Append adds a row to spans. If the row follows the last span, it extends that span.
func Append(spans []Span, row int64) []Span {
	if n := len(spans); n > 0 && spans[n-1].Last+1 == row {
		spans[n-1].Last = row
		return spans
	}
	return append(spans, Span{row, row})
}

// Count returns the number of rows in the spans.
func Count(spans []Span) (rows int64) {
	for _, s := range spans {
		rows += s.Rows()
	}
	return rows
}

// Counts counts rows by outcome.
type Counts struct {
	Acknowledged int64 `json:"acknowledged"` // the server has them
	Rejected     int64 `json:"rejected"`     // the server refused them, or they could not be read
	Uncertain    int64 `json:"uncertain"`    // the server may have them
}

// Rows returns the number of rows with an outcome.
func (c Counts) Rows() int64 { return c.Acknowledged + c.Rejected + c.Uncertain }

// A Batch is a group of rows that were sent together. Number counts from 1; 0 is a batch
// that is not recorded.
type Batch struct {
	Number int64
	Rows   []Span
}

// A Set is a set of rows. The zero value is empty.
type Set struct {
	spans []Span // ascending, and with a gap before each
	rows  int64
}

// Len returns the number of rows in the set.
func (s *Set) Len() int64 { return s.rows }

// Spans returns the set's spans in ascending order, with gaps between them. The result is
// valid until the next Add and must not be changed.
func (s *Set) Spans() []Span { return s.spans }

// Clone returns a copy of the set.
func (s *Set) Clone() Set { return Set{slices.Clone(s.spans), s.rows} }

// Has reports whether the row is in the set.
func (s *Set) Has(row int64) bool {
	_, found := s.find(row)
	return found
}

// Add adds a span. If the span is invalid or one of its rows is in the set already, Add
// returns an error and adds nothing.
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

// find returns the index of the span that holds the row, or of the first one after it.
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
