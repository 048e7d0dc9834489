package headway

import (
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/signal"
)

// Outcome is how an attempt ended.
type Outcome struct {
	// Class says how the attempt ended. From the zero value, Unknown, nothing is learned.
	Class Class
	// RetryAfter is how long the provider asked to wait; 0 if it did not ask.
	RetryAfter time.Duration
	// Cost is what the attempt took of a limit that counts units, such as tokens; 0 means
	// that it took [Request].Cost.
	Cost float64
	// Facts are the limits that the response advertised. The slice is not retained.
	Facts []control.Fact
	// Steady prevents this outcome from raising the rate.
	Steady bool
	// Account says that a refusal concerns the whole account, not only the attempt's
	// pool.
	Account bool
	// Pool is the pool that the response names, if it is not the one that the attempt was
	// sent for. The named pool then learns from the outcome. Default "": the pool that
	// the attempt was sent for.
	Pool string
}

// OutcomeOf returns the outcome that a response reports: its class, the requested wait
// and the advertised limits. The caller adds what else it knows, such as the cost.
func OutcomeOf(s *signal.Signal) Outcome { return Outcome(pacing.OutcomeOf(nil, s)) }
