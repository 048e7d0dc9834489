package dispatch

import (
	"fmt"
	"time"

	"github.com/headway-go/headway/reason"
)

// Row is one row as the core knows it.
type Row struct {
	// Number is the row's position in the input, from 0.
	Number int64
	// Bytes is its size.
	Bytes int
}

// Batch is rows that are sent together.
type Batch struct {
	// ID is unique in a core.
	ID int64
	// Identity is who sends it.
	Identity int
	// Rows are in ascending order.
	Rows []Row
	// Attempt counts from 1 how often these rows were sent, throttled ones aside.
	Attempt int
}

// Verdict is what a server said of one row.
type Verdict uint8

// The verdicts.
const (
	// Unknown: the answer does not tell; the row may have been written.
	Unknown Verdict = iota
	// Done: the row is written.
	Done
	// Refused: the row is at fault and was not written.
	Refused
	// Later: the row was not written and may be sent again.
	Later
)

// Outcome is what came of sending a batch.
type Outcome struct {
	// Class is how the attempt ended as a whole, Reason why where it failed.
	Class  reason.Class
	Reason reason.Reason
	// Rows is what the server said of each row, in the batch's order; nil when it
	// spoke of all at once: then the class holds for every row.
	Rows []Verdict
	// Doubt says that a batch that did not end well may have been written all the
	// same: the connection broke after it was sent, or the answer is unreadable.
	Doubt bool
	// TooLarge says that the batch was refused for its size, and Divisible that
	// it was refused as a whole for a fault of some row. Either is sent again in
	// halves.
	TooLarge, Divisible bool
	// Fatal says that no batch can succeed as the target is configured.
	Fatal bool
	// RetryAfter is the advertised wait, when HasRetryAfter is true. Exhausted says that
	// a long quota is used up.
	RetryAfter    time.Duration
	HasRetryAfter bool
	Exhausted     bool
	// Parallelism is what the server asks for; 0 when it does not say.
	Parallelism int
	// Busy is how long the server worked on the batch; 0 when it does not say.
	Busy time.Duration
	// Budget in Window is how much of that the server allows; 0 when it does not say.
	Budget, Window time.Duration
}

// Fate is what became of a row.
type Fate uint8

// The fates. Again is the only one that a row can have more than once.
const (
	// Again: the row will be sent again; keep it.
	Again Fate = iota
	// Acknowledged: the server has it.
	Acknowledged
	// Rejected: the server refused it.
	Rejected
	// Uncertain: the server may have it, and to send it again could make two.
	Uncertain
	// Owed: this run gives up on it; the next one sends it.
	Owed
)

var fateNames = [...]string{"again", "acknowledged", "rejected", "uncertain", "owed"}

// String is the fate's stable name.
func (f Fate) String() string {
	if int(f) < len(fateNames) {
		return fateNames[f]
	}
	return fmt.Sprintf("fate(%d)", uint8(f))
}

// Action is what to do now.
type Action uint8

// The actions.
const (
	// Wait: do nothing before an event, or before Decision.At.
	Wait Action = iota
	// Send: send Decision.Batch.
	Send
	// Finish: there is nothing left to do, or the load has stopped and nothing is
	// in flight.
	Finish
)

// Never is the instant that does not come.
const Never = time.Duration(1<<63 - 1)

// Decision is what to do now.
type Decision struct {
	Action Action
	// Batch is what to send.
	Batch Batch
	// At is when to ask again if nothing happens before; [Never] when only an
	// event (a row, an outcome) can change anything.
	At time.Duration
	// Reason is why nothing is sent although there is work.
	Reason reason.Reason
}

// Stop is why a load ended before everything was sent.
type Stop struct {
	Reason reason.Reason
	// RetryAt is when the provider may be asked again; 0 when unknown.
	RetryAt time.Duration
}
