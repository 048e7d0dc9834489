// Package reason is Headway's shared vocabulary: the closed set of reasons
// that a decision can carry, the classes of outcome that an attempt can have,
// and [Refusal], the one error that says "not now" or "not at all".
//
// It answers "why?" in the same words everywhere: errors, events, logs,
// metrics, the store, the command line and the simulator. Pressure (the
// provider wants less) and Cap (the owner's own bound on a run) are types of
// their own, so that one can never be passed for the other.
//
// Do not add a reason for one caller's detail: put detail in the wrapped
// error. Everything here is an immutable value; safe for concurrent use, no
// allocation, constant time.
//
// Stability: stable.
package reason

import (
	"context"
	"fmt"
	"time"
)

// Reason says why a decision came out as it did. The zero value, [None], means
// that nothing stood in the way.
type Reason uint8

// The closed set. The order is not stable and is never stored: [Reason.String]
// is the stable form.
const (
	// None: admitted, nothing to explain.
	None Reason = iota

	// Pacing: the interval since earlier attempts has not passed.
	Pacing
	// Jitter: anti-phase-lock noise, a fraction of an interval.
	Jitter
	// Cooldown: the provider said how long to wait (Retry-After and kin).
	Cooldown
	// Concurrency: as many attempts are in flight as allowed.
	Concurrency
	// ConservativeStart: no response has come back yet, so the initial interval holds.
	ConservativeStart

	rateLimited
	upstreamPressure
	circuitOpen

	maxRequests
	maxWallClock
	retryBudget
	maxCatchup

	// Deadline: the caller's deadline comes before the earliest admission.
	Deadline
	// Canceled: the caller gave up.
	Canceled
	// Interrupted: the operator asked the run to stop (Ctrl-C, SIGTERM).
	Interrupted
	// Closed: the governor was closed.
	Closed
	// ConnectionChanged: the connection was edited, and what it asks for now is owed.
	ConnectionChanged

	// Unauthorized: the credential was refused (401).
	Unauthorized
	// Forbidden: the credential may not do this (403 that is not a rate limit).
	Forbidden
	// NotFound: 404 or 410.
	NotFound
	// ClientError: any other 4xx.
	ClientError
	// ServerError: a 5xx that is not pressure.
	ServerError
	// Unreachable: no response at all: name resolution, connect, reset.
	Unreachable
	// TLS: the secure connection could not be established.
	TLS
	// WrongScheme: https was spoken to a port that speaks http, or the other way
	// round: the address that is configured is wrong.
	WrongScheme
	// Timeout: the attempt's own timeout passed.
	Timeout
	// InvalidResponse: a response that cannot be read as what was expected.
	InvalidResponse
	// QuotaExhausted: the provider says a long-window or paid quota is used up.
	QuotaExhausted
	// CursorRepeats: paging came back to a cursor it had already given.
	CursorRepeats
	// LeaseHeld: another process is running this connection.
	LeaseHeld
	// LeaseLost: this process no longer holds the connection.
	LeaseLost
	// Quarantined: what is missing has failed too often for another try by itself.
	Quarantined
	// Drained: the run ended because there was nothing left to do.
	Drained
	// Internal: a fault of our own, such as a disk that is full.
	Internal

	count
)

// Kind groups reasons. No reason belongs to two kinds.
type Kind uint8

// The kinds of reason.
const (
	KindNone     Kind = iota // nothing to explain
	KindWait                 // our own pacing: a short wait, never a failure
	KindPressure             // the provider wants less
	KindCap                  // the owner's bound on a run
	KindCaller               // the caller or operator ended it
	KindFailure              // something went wrong
)

var kinds = [...]string{"none", "wait", "pressure", "cap", "caller", "failure"}

// String is the kind's stable lower-case name.
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

var table = [count]struct {
	name string
	kind Kind
}{
	None:              {"none", KindNone},
	Pacing:            {"pacing", KindWait},
	Jitter:            {"jitter", KindWait},
	Cooldown:          {"cooldown", KindWait},
	Concurrency:       {"concurrency", KindWait},
	ConservativeStart: {"conservative_start", KindWait},
	rateLimited:       {"rate_limited", KindPressure},
	upstreamPressure:  {"upstream_pressure", KindPressure},
	circuitOpen:       {"circuit_open", KindPressure},
	maxRequests:       {"max_requests", KindCap},
	maxWallClock:      {"max_wall_clock", KindCap},
	retryBudget:       {"retry_budget", KindCap},
	maxCatchup:        {"max_catchup", KindCap},
	Deadline:          {"deadline", KindCaller},
	Canceled:          {"canceled", KindCaller},
	Interrupted:       {"interrupted", KindCaller},
	Closed:            {"closed", KindCaller},
	ConnectionChanged: {"connection_changed", KindCaller},
	Unauthorized:      {"unauthorized", KindFailure},
	Forbidden:         {"forbidden", KindFailure},
	NotFound:          {"not_found", KindFailure},
	ClientError:       {"client_error", KindFailure},
	ServerError:       {"server_error", KindFailure},
	Unreachable:       {"unreachable", KindFailure},
	TLS:               {"tls", KindFailure},
	WrongScheme:       {"wrong_scheme", KindFailure},
	Timeout:           {"timeout", KindFailure},
	InvalidResponse:   {"invalid_response", KindFailure},
	QuotaExhausted:    {"quota_exhausted", KindFailure},
	CursorRepeats:     {"cursor_repeats", KindFailure},
	LeaseHeld:         {"lease_held", KindCaller},
	LeaseLost:         {"lease_lost", KindCaller},
	Quarantined:       {"quarantined", KindFailure},
	Drained:           {"drained", KindNone},
	Internal:          {"internal", KindFailure},
}

// String is the reason's stable name, as it stands in stores, events and
// metrics: lower case with underscores.
func (r Reason) String() string {
	if r < count {
		return table[r].name
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Kind tells which group the reason belongs to.
func (r Reason) Kind() Kind {
	if r < count {
		return table[r].kind
	}
	return KindFailure
}

// MarshalText gives the stable name, so that JSON holds "rate_limited" and not a number.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a stable name; an unknown one is an error that names it.
func (r *Reason) UnmarshalText(b []byte) error {
	v, ok := Parse(string(b))
	if !ok {
		return fmt.Errorf("reason: unknown reason %q", b)
	}
	*r = v
	return nil
}

// Parse reads a stable name; ok is false when it is not in the closed set.
func Parse(name string) (r Reason, ok bool) {
	for i := range table {
		if table[i].name == name {
			return Reason(i), true
		}
	}
	return None, false
}

// All lists the closed set in a fixed order.
func All() []Reason {
	all := make([]Reason, count)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// Pressure is a reason that the provider gave, directly or through state drawn
// from its signals. It has its own type so that a [Cap] can never stand for it.
type Pressure Reason

// The provider's reasons.
const (
	// RateLimited: refused for rate or quota of the moment (429 and kin).
	RateLimited = Pressure(rateLimited)
	// UpstreamPressure: the provider is overloaded (503, 529, slow under load).
	UpstreamPressure = Pressure(upstreamPressure)
	// CircuitOpen: too many recent attempts failed; attempts fail at once.
	CircuitOpen = Pressure(circuitOpen)
)

// Reason is the same word in the whole set.
func (p Pressure) Reason() Reason { return Reason(p) }

// String is the stable name.
func (p Pressure) String() string { return Reason(p).String() }

// AsPressure narrows r; ok is false when r is not the provider's.
func AsPressure(r Reason) (p Pressure, ok bool) {
	if r.Kind() != KindPressure {
		return 0, false
	}
	return Pressure(r), true
}

// Cap is a bound that the owner set on a run. Reaching one is a planned defer,
// never a failure, and never arms a cooldown.
type Cap Reason

// The owner's bounds.
const (
	// MaxRequests: the run may not send more attempts.
	MaxRequests = Cap(maxRequests)
	// MaxWallClock: the run may not take longer.
	MaxWallClock = Cap(maxWallClock)
	// RetryBudget: the run may not retry more.
	RetryBudget = Cap(retryBudget)
	// MaxCatchup: the run may not walk more of the past.
	MaxCatchup = Cap(maxCatchup)
)

// Reason is the same word in the whole set.
func (c Cap) Reason() Reason { return Reason(c) }

// String is the stable name.
func (c Cap) String() string { return Reason(c).String() }

// AsCap narrows r; ok is false when r is not the owner's.
func AsCap(r Reason) (c Cap, ok bool) {
	if r.Kind() != KindCap {
		return 0, false
	}
	return Cap(r), true
}

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

// Refusal says that an attempt was not made, why, for whom, and when it may be
// tried again. It is the one error type of its kind: match it with
// errors.AsType[*reason.Refusal], or with errors.Is against the wrapped cause.
//
// A refusal for [Deadline] matches context.DeadlineExceeded, one for
// [Canceled] matches context.Canceled.
type Refusal struct {
	// Reason is why.
	Reason Reason
	// Scope names what was refused: a connection's name, a quota's scope. Never a credential.
	Scope string
	// RetryAt is the earliest instant at which it may succeed; zero when unknown or never.
	RetryAt time.Time
	// Err is the cause, if there is one beyond the reason.
	Err error
}

// Error says scope, reason and when to come back, in one line.
func (r *Refusal) Error() string {
	s := r.Reason.String()
	if r.Scope != "" {
		s = r.Scope + ": " + s
	}
	if !r.RetryAt.IsZero() {
		s += fmt.Sprintf(" (retry at %s)", r.RetryAt.UTC().Format(time.RFC3339))
	}
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Is matches the standard context errors for the caller's own reasons, and
// another *Refusal of the same reason.
func (r *Refusal) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return r.Reason == Deadline
	case context.Canceled:
		return r.Reason == Canceled
	}
	t, ok := target.(*Refusal)
	return ok && t.Err == nil && t.Scope == "" && t.Reason == r.Reason
}
