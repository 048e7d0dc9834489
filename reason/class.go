package reason

import "fmt"

// Class is how an attempt ended, as far as control is concerned. The zero
// value is [Unknown]: an attempt about which nothing was learned.
type Class uint8

// The classes of outcome.
const (
	// Unknown: nothing was learned (the caller canceled, the permit expired).
	Unknown Class = iota
	// OK: the provider served the request.
	OK
	// Throttled: refused for rate (429 and provider-specific kin).
	Throttled
	// Overloaded: refused for load (503, 529).
	Overloaded
	// Failed: another 5xx or 408: a failure of the provider that says nothing of the rate.
	Failed
	// Rejected: another 4xx: our request was at fault; says nothing of the rate.
	Rejected
	// Lost: no response at all.
	Lost

	classes
)

var classNames = [classes]string{"unknown", "ok", "throttled", "overloaded", "failed", "rejected", "lost"}

// String is the class's stable lower-case name.
func (c Class) String() string {
	if c < classes {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Success reports whether the provider served the request: the only class that
// may ever speed anything up.
func (c Class) Success() bool { return c == OK }

// Throttle reports whether the provider asked for less: 429, 503 and
// what a provider's own description adds.
func (c Class) Throttle() bool { return c == Throttled || c == Overloaded }

// Pressure is the pressure that the class stands for; ok is false when it stands for
// none.
func (c Class) Pressure() (p Pressure, ok bool) {
	switch c {
	case Throttled:
		return RateLimited, true
	case Overloaded:
		return UpstreamPressure, true
	default:
		return 0, false
	}
}

// Retryable reports whether an attempt that ended so may be tried again:
// 429, 408, 5xx and connection errors before a response.
func (c Class) Retryable() bool {
	switch c {
	case Throttled, Overloaded, Failed, Lost:
		return true
	default:
		return false
	}
}
