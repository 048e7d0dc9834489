package bulk

import (
	"time"

	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/reason"
)

// account attributes a load's time to what kept it from being faster. It is
// pure: the instants are durations since the run began, and its owner has it for
// itself.
type account struct {
	spent reason.Bounds
	last  time.Duration
}

// to brings the account to an instant; all of the time since the last one counts
// for one bound. Time does not run backwards.
func (a *account) to(now time.Duration, by reason.Bound) {
	if now > a.last {
		a.spent[by] += now - a.last
		a.last = now
	}
}

// bounds is the account at an instant, with what is waited for since the last one.
func (a *account) bounds(now time.Duration, by reason.Bound) reason.Bounds {
	then := *a
	then.to(now, by)
	return then.spent
}

// standstill is what a load waits for while it can send nothing more.
type standstill struct {
	dispatch.Decision
	// Sent is how many batches the provider has, and Unwritten how many are to be
	// sent once the journal has them.
	sent, unwritten int64
	// Held is what keeps the number of batches at once where it is.
	held reason.Bound
	// Read says that no rows are to be read now: there are no more, or enough wait.
	read bool
}

// bound is what a standstill stands for.
func (s standstill) bound() reason.Bound {
	switch s.Reason {
	case reason.Cooldown:
		return reason.BoundCooldown
	case reason.CircuitOpen.Reason():
		return reason.BoundCircuit
	case reason.Pacing:
		return reason.BoundLimit // of execution time
	case reason.Concurrency:
		if s.sent == 0 && s.unwritten > 0 {
			return reason.BoundDisk
		}
		return s.held
	case reason.None:
	default: // it has stopped, and what is under way is to end
		return s.rest()
	}
	if !s.read {
		return reason.BoundInput
	}
	return s.rest()
}

// rest is what is waited for where there are no rows that could be sent now.
func (s standstill) rest() reason.Bound {
	switch {
	case s.sent > 0:
		return reason.BoundLatency
	case s.unwritten > 0:
		return reason.BoundDisk
	case s.At != dispatch.Never:
		return reason.BoundBackoff
	}
	return reason.BoundUnknown
}
