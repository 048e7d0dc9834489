package bulk

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

// Target writes batches. It is used by many goroutines at once.
type Target interface {
	// Traits never change.
	Traits() Traits
	// Send sends one batch as one of the identities: one attempt, no retry. It ends
	// soon after ctx does.
	Send(ctx context.Context, identity int, b Batch) Outcome
}

// Traits are what a load has to know of its target.
type Traits struct {
	// Name says where rows go and what is done there, such as "POST
	// https://api.example.com/contacts". A load is resumed only with the same one.
	// It holds no credential.
	Name string
	// Identities are the names of the credentials; at least one.
	Identities []string
	// MaxRows and MaxBytes bound a batch; 0 means no bound of the target's own.
	MaxRows, MaxBytes int
	// Resend is what may be sent twice.
	Resend Resend
	// Hinted says that answers tell a parallelism.
	Hinted bool
}

// Batch is rows to be written together.
type Batch struct {
	// Key is the same for the same rows, also after a crash: an idempotency key.
	Key string
	// Rows are in ascending order; at least one.
	Rows []Row
	// Attempt counts from 1.
	Attempt int
}

// Outcome is what came of a batch.
type Outcome struct {
	dispatch.Outcome
	// Problems are the server's words: one for each row in the batch's order (the
	// zero value for a row that was written), or one for all.
	Problems []Problem
	// Err says what went wrong with the batch as a whole, for the operator: no
	// body, no credential. nil when nothing did.
	Err error
}

// Problem is what a server said of a row that it did not take. It goes into the
// owner's reject file and nowhere else.
type Problem struct {
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// divides reports whether the batch was looked at and refused as a whole.
func (o *Outcome) divides() bool {
	return o.Class == reason.Rejected && (o.TooLarge || o.Divisible)
}

// problem is what was said of the row at i.
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
