package headway

import (
	"time"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/reason"
)

// Names for what a program hands in and gets back, so that it needs only this
// package to settle permits, to look at refusals and events, and for a warm start.
type (
	// Class is how an attempt ended, as in [Outcome].
	Class = reason.Class
	// Reason is why something waits or was refused.
	Reason = reason.Reason
	// Refusal is the error of an attempt that may not be sent: why, and when to come
	// back. Match it with errors.As as *Refusal.
	Refusal = reason.Refusal
	// State is what [Governor.Learned] gives and [Governor.Restore] takes.
	State = control.State
	// Event is what [Config].OnEvent gets.
	Event = event.Event
	// Breaker is the circuit breaker's shape. The zero value takes the defaults.
	Breaker = breaker.Config
)

// The classes.
const (
	Unknown    = reason.Unknown    // Nothing was learned: the caller canceled, the permit expired.
	OK         = reason.OK         // The provider served the request.
	Throttled  = reason.Throttled  // Refused for rate: 429 and the like.
	Overloaded = reason.Overloaded // Refused for load: 503, 529.
	Failed     = reason.Failed     // Another 5xx or 408, which says nothing of the rate.
	Rejected   = reason.Rejected   // Another 4xx: the request was at fault.
	Lost       = reason.Lost       // No response at all.
)

// Fresh reports whether a state that was recorded at one instant may be used at
// another, and if not, why: it may be six hours old. Both are of the wall clock.
func Fresh(recorded, now time.Time) error { return control.Fresh(recorded, now, control.StaleAfter) }
