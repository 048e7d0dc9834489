package pacing

import (
	"math"
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/reason"
)

// Forever is an instant that only an outcome can bring nearer.
const Forever = time.Duration(math.MaxInt64)

// Decision is the answer to a request to send.
type Decision struct {
	// OK says that the attempt may be sent now.
	OK bool
	// At is the earliest instant at which asking again can succeed, as far as is
	// known now; [Forever] when that takes an outcome first.
	At time.Duration
	// Reason is what stands in the way; none when OK.
	Reason reason.Reason
	// Bound is what the wait stands for; unknown when OK.
	Bound reason.Bound
}

// Ticket is an admitted attempt, to be settled exactly once.
type Ticket struct {
	sent    time.Duration
	cost    float64
	circuit breaker.Ticket
}

// Sent is the instant of admission.
func (t Ticket) Sent() time.Duration { return t.sent }

// Effects is what a call changed, beyond its answer.
type Effects struct {
	// Circuit is the move of the breaker, if any.
	Circuit breaker.Transition
	// Rate says that the change of the rate is worth telling (coalesced).
	Rate bool
	// Change is what the law did.
	Change control.Change
}

// Backoff is the last time that the rate was cut; the zero value is never.
type Backoff struct {
	// Reason is the pressure that cut it; none when it never was.
	Reason reason.Reason
	// Interval is the interval at which the provider pushed back.
	Interval time.Duration
	// At is when.
	At time.Duration
}
