package bulk

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

// Target writes batches. It must be safe for concurrent use.
type Target interface {
	// Traits never change.
	Traits() Traits
	// Send sends one batch as one of the identities: one attempt, no retry. It ends
	// soon after ctx does.
	Send(ctx context.Context, identity int, b Batch) Outcome
}

// Traits describe a target to a load.
type Traits struct {
	// Name is the destination and the operation, such as "POST
	// https://api.example.com/contacts", without credentials. A load can be resumed only
	// with the same name.
	Name string
	// Identities are the names of the credentials; at least one.
	Identities []string
	// MaxRows and MaxBytes are the maximum size of a batch; 0 means no limit.
	MaxRows, MaxBytes int
	// Resend is what may be sent twice.
	Resend Resend
	// Hinted reports that responses recommend a parallelism.
	Hinted bool
}

// Batch is a group of rows to write together.
type Batch struct {
	// Key is an idempotency key: it is the same for the same rows, also after a crash.
	Key string
	// Rows are in ascending order; at least one.
	Rows []Row
	// Attempt counts from 1.
	Attempt int
}

// Outcome is the outcome of a batch.
type Outcome struct {
	dispatch.Outcome
	// Problems are the server's errors: one for each row in the batch's order (the zero
	// value for a written row), or one for all rows.
	Problems []Problem
	// Err is the error of the batch as a whole, without body and credential; nil if there
	// was none.
	Err error
}

// Problem is a server's error about a row that it refused. It is written only to the
// owner's reject file.
type Problem struct {
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// divides reports whether the batch was refused as a whole and is to be split.
func (o *Outcome) divides() bool {
	return o.Class == reason.Rejected && (o.TooLarge || o.Divisible)
}

// problem returns the problem of the row at i.
func (o *Outcome) problem(i int) Problem {
	switch {
	case i < len(o.Problems) && len(o.Problems) > 1, i == 0 && len(o.Problems) == 1:
		return o.Problems[i]
	case len(o.Problems) == 1:
		return o.Problems[0]
	case o.Err != nil:
		return Problem{Message: o.Err.Error()}
	}
	return Problem{Message: o.Reason.String()}
}

// Position is the position of a row in its file.
type Position struct {
	// Line counts from 1; 0 if the format has no lines.
	Line int64
	// Offset is the first byte in the uncompressed text; 0 if the format is not text.
	Offset int64
}

// Row is one row of an input.
type Row struct {
	// Number is the row's number in the input from 0, counting malformed rows too. [Run]
	// sets it.
	Number int64
	Position
	// Data is the row as one JSON object without line breaks.
	Data json.RawMessage
}

// Source reads rows, always in the same order. It need not be safe for concurrent use.
type Source interface {
	// Next returns the next row, whose data the caller may keep, or io.EOF after the last
	// one. A *[MalformedError] concerns one row only, and Next may be called again; any
	// other error ends the input.
	Next() (Row, error)
	// Identity identifies the input. It is a stream's if the rows cannot be read again.
	Identity() Input
}

// MalformedError reports that a row cannot be read. The row is rejected.
type MalformedError struct {
	Position
	// Text is the text of the row, possibly truncated.
	Text []byte
	// Err describes what is wrong, without the row's content.
	Err error
}

// Error returns the line and the cause.
func (e *MalformedError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("malformed row: %v", e.Err)
	}
	return fmt.Sprintf("line %d: malformed row: %v", e.Line, e.Err)
}

// Unwrap returns the cause.
func (e *MalformedError) Unwrap() error { return e.Err }
