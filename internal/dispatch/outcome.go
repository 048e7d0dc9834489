package dispatch

import (
	"fmt"
	"time"

	"github.com/headway-go/headway/reason"
)

// Row is one row, without its content.
type Row struct {
	// Number is the row's position in the input, from 0.
	Number int64
	// Bytes is its size.
	Bytes int
}

// Batch is a group of rows that are sent together.
type Batch struct {
	// ID is unique in a core.
	ID int64
	// Identity is the identity that sends it.
	Identity int
	// Rows are in ascending order of their numbers.
	Rows []Row
	// Attempt is the number of times that these rows were sent, from 1, without throttled
	// attempts.
	Attempt int
}

// Verdict is the server's result for one row.
type Verdict uint8

// The verdicts.
const (
	// Unknown: the response does not say; the row may have been written.
	Unknown Verdict = iota
	// Done: the row is written.
	Done
	// Refused: the row is at fault and was not written.
	Refused
	// Later: the row was not written and may be sent again.
	Later
)

// Outcome is the result of sending a batch.
type Outcome struct {
	// Class is the class of the whole attempt, and Reason why it failed.
	Class  reason.Class
	Reason reason.Reason
	// Rows are the results of the rows, in the batch's order; nil if there is only one
	// result for all, which is then the class.
	Rows []Verdict
	// Doubt reports that a batch that failed may have been written: the connection broke
	// after it was sent, or the response is unreadable.
	Doubt bool
	// TooLarge reports that the batch was refused for its size, and Divisible that it was
	// refused as a whole because of some row. Both are sent again in halves.
	TooLarge, Divisible bool
	// Fatal reports that no batch can succeed with the target's configuration.
	Fatal bool
	// RetryAfter is the advertised wait if HasRetryAfter is true. Exhausted reports that a
	// long-window quota is used up.
	RetryAfter    time.Duration
	HasRetryAfter bool
	Exhausted     bool
	// Parallelism is the parallelism that the server recommends; 0 if none.
	Parallelism int
	// Busy is the server's execution time for the batch; 0 if unknown.
	Busy time.Duration
	// Budget is the execution time that the server allows in Window; 0 if unknown.
	Budget, Window time.Duration
}

// Fate is what became of a row.
type Fate uint8

// The fates. Again is the only one that a row can have more than once.
const (
	// Again: the row will be sent again; keep it.
	Again Fate = iota
	// Acknowledged: the server has written it.
	Acknowledged
	// Rejected: the server refused it.
	Rejected
	// Uncertain: the server may have written it, and sending it again could duplicate it.
	Uncertain
	// Owed: this run gives it up; the next one sends it.
	Owed
)

var fateNames = [...]string{"again", "acknowledged", "rejected", "uncertain", "owed"}

// String returns the fate's stable name.
func (f Fate) String() string {
	if int(f) < len(fateNames) {
		return fateNames[f]
	}
	return fmt.Sprintf("fate(%d)", uint8(f))
}

// Action is what to do next.
type Action uint8

// The actions.
const (
	// Wait: do nothing until an event, or until Decision.At.
	Wait Action = iota
	// Send: send Decision.Batch.
	Send
	// Finish: nothing is left to do, or the load has stopped and nothing is in flight.
	Finish
)

// Never is an instant that is never reached.
const Never = time.Duration(1<<63 - 1)

// Decision is what to do next.
type Decision struct {
	Action Action
	// Batch is the batch to send.
	Batch Batch
	// At is when to call Next again if nothing happens before; [Never] if only an event (a
	// row, an outcome) can change the decision.
	At time.Duration
	// Reason is why nothing is sent although there is work.
	Reason reason.Reason
}

// Stop is why a load ended before everything was sent.
type Stop struct {
	Reason reason.Reason
	// RetryAt is when the provider may be called again; 0 if unknown.
	RetryAt time.Duration
}
