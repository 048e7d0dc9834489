package headway

import (
	"time"

	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/internal/pacing"
	"github.com/headway-go/headway/signal"
)

// Outcome is how an attempt ended.
type Outcome struct {
	// Class is the kind of ending. The zero value, Unknown, teaches nothing.
	Class Class
	// RetryAfter is how long the provider asked to wait; 0 when it did not ask.
	RetryAfter time.Duration
	// Cost is what the attempt took of a limit that counts units, such as tokens;
	// 0 when it took what it was admitted with.
	Cost float64
	// Facts are the limits that the response advertised; they are not kept.
	Facts []control.Fact
	// Steady forbids speeding up on this outcome.
	Steady bool
	// Account says that a refusal is about the whole account, not about the attempt's
	// pool alone.
	Account bool
	// Pool is the pool that the response says the attempt was of, where that is another
	// than the attempt was sent for: that one learns from it. Default "", the one it was
	// sent for.
	Pool string
}

// OutcomeOf is what a response says: its class, the wait that it asks for and the
// limits that it advertises. What the caller knows beyond that, such as the cost, it
// adds itself.
func OutcomeOf(s *signal.Signal) Outcome { return Outcome(pacing.OutcomeOf(nil, s)) }
