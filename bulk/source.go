package bulk

import (
	"encoding/json"
	"fmt"
)

// Position is where a row stands in its file.
type Position struct {
	// Line counts from 1; 0 where the format has no lines.
	Line int64
	// Offset is the first byte, of the uncompressed text; 0 where the format has
	// no text.
	Offset int64
}

// Row is one row of an input.
type Row struct {
	// Number counts all rows of the input from 0, malformed ones included. [Run]
	// sets it.
	Number int64
	Position
	// Data is the row as one JSON object without line breaks.
	Data json.RawMessage
}

// Source gives rows in an order that is always the same. It need not be safe for
// concurrent use.
type Source interface {
	// Next gives the next row, whose data is the caller's to keep. io.EOF after
	// the last one. A *[MalformedError] is about one row, and the rows after it can
	// be had; any other error ends the input.
	Next() (Row, error)
	// Identity tells this input from others. It is that of a stream where the rows
	// cannot be read again.
	Identity() Input
}

// MalformedError says that a row cannot be read. The row is rejected.
type MalformedError struct {
	Position
	// Text is the row as it stands, possibly shortened.
	Text []byte
	// Err says what is wrong, without the row's content.
	Err error
}

// Error says where and what.
func (e *MalformedError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("malformed row: %v", e.Err)
	}
	return fmt.Sprintf("line %d: malformed row: %v", e.Line, e.Err)
}

// Unwrap gives the cause.
func (e *MalformedError) Unwrap() error { return e.Err }
