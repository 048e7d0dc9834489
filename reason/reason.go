// Package reason is Headway's shared vocabulary: the closed set of reasons for a
// decision, the classes of outcome of an attempt, and [Refusal], the error for an attempt
// that may not be made now, or not at all.
//
// Errors, events, logs, metrics, the store, the command line and the simulator all use
// these words. Pressure (the provider wants less) and Cap (the owner's bound on a run)
// are separate types, so that one cannot be passed for the other.
//
// Do not add a reason for one caller's detail: put detail in the wrapped error. All
// values are immutable and safe for concurrent use.
//
// Stability: stable.
package reason

import (
	"context"
	"fmt"
	"time"
)

// Reason says why a decision was made. The zero value, [None], means that nothing held
// the attempt up.
type Reason uint8

// All reasons. Their order is not stable and is never stored: [Reason.String] is the
// stable form.
const (
	// None: admitted; there is nothing to explain.
	None Reason = iota

	// Pacing: the interval since earlier attempts has not passed.
	Pacing
	// Jitter: a random fraction of an interval that keeps clients from running in step.
	Jitter
	// Cooldown: the provider said how long to wait (Retry-After and similar).
	Cooldown
	// Concurrency: as many attempts are in flight as allowed.
	Concurrency
	// ConservativeStart: no response was received yet, so the initial interval applies.
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
	// ConnectionChanged: the connection was edited, and what it asks for now is still to
	// be fetched.
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
	// WrongScheme: an https request to an http port, or the reverse: the configured
	// address is wrong.
	WrongScheme
	// Timeout: the attempt's own timeout passed.
	Timeout
	// InvalidResponse: the response cannot be parsed as expected.
	InvalidResponse
	// QuotaExhausted: the provider says that a long-window or paid quota is used up.
	QuotaExhausted
	// CursorRepeats: paging returned to an earlier cursor.
	CursorRepeats
	// LeaseHeld: another process is running this connection.
	LeaseHeld
	// LeaseLost: this process no longer holds the connection.
	LeaseLost
	// Quarantined: the missing items have failed too often to be retried automatically.
	Quarantined
	// Drained: the run ended because there was nothing left to do.
	Drained
	// Internal: a local fault, such as a full disk.
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

// String returns the kind's stable lower-case name.
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

// String returns the reason's stable name, as used in stores, events and metrics: lower
// case with underscores.
func (r Reason) String() string {
	if r < count {
		return table[r].name
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Kind returns the group that the reason belongs to.
func (r Reason) Kind() Kind {
	if r < count {
		return table[r].kind
	}
	return KindFailure
}

// MarshalText returns the stable name, so that JSON holds "rate_limited" and not a
// number.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses a stable name; the error names an unknown one.
func (r *Reason) UnmarshalText(b []byte) error {
	v, ok := Parse(string(b))
	if !ok {
		return fmt.Errorf("reason: unknown reason %q", b)
	}
	*r = v
	return nil
}

// Parse parses a stable name; ok is false if it is unknown.
func Parse(name string) (r Reason, ok bool) {
	for i := range table {
		if table[i].name == name {
			return Reason(i), true
		}
	}
	return None, false
}

// All returns all reasons in a fixed order.
func All() []Reason {
	all := make([]Reason, count)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// Pressure is a reason given by the provider, directly or through state derived from its
// signals. It is a separate type so that a [Cap] cannot be used in its place.
type Pressure Reason

// The provider's reasons.
const (
	// RateLimited: refused for rate or short-term quota (429 and similar).
	RateLimited = Pressure(rateLimited)
	// UpstreamPressure: the provider is overloaded (503, 529, slow under load).
	UpstreamPressure = Pressure(upstreamPressure)
	// CircuitOpen: too many recent attempts failed; attempts fail at once.
	CircuitOpen = Pressure(circuitOpen)
)

// Reason returns the pressure as a Reason.
func (p Pressure) Reason() Reason { return Reason(p) }

// String returns the stable name.
func (p Pressure) String() string { return Reason(p).String() }

// AsPressure converts r; ok is false if r is not a pressure.
func AsPressure(r Reason) (p Pressure, ok bool) {
	if r.Kind() != KindPressure {
		return 0, false
	}
	return Pressure(r), true
}

// Cap is a bound that the owner set on a run. Reaching one defers work as planned; it is
// never a failure and never starts a cooldown.
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

// Reason returns the cap as a Reason.
func (c Cap) Reason() Reason { return Reason(c) }

// String returns the stable name.
func (c Cap) String() string { return Reason(c).String() }

// AsCap converts r; ok is false if r is not a cap.
func AsCap(r Reason) (c Cap, ok bool) {
	if r.Kind() != KindCap {
		return 0, false
	}
	return Cap(r), true
}

// Class says how an attempt ended, as far as control is concerned. The zero value is
// [Unknown]: nothing was learned.
type Class uint8

// The classes of outcome.
const (
	// Unknown: nothing was learned (the caller canceled, the permit expired).
	Unknown Class = iota
	// OK: the provider served the request.
	OK
	// Throttled: refused for rate (429 and provider-specific equivalents).
	Throttled
	// Overloaded: refused for load (503, 529).
	Overloaded
	// Failed: any other 5xx, or 408: a failure of the provider that says nothing about
	// the rate.
	Failed
	// Rejected: any other 4xx: the request was at fault; says nothing about the rate.
	Rejected
	// Lost: no response at all.
	Lost

	classes
)

var classNames = [classes]string{"unknown", "ok", "throttled", "overloaded", "failed", "rejected", "lost"}

// String returns the class's stable lower-case name.
func (c Class) String() string {
	if c < classes {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Success reports whether the provider served the request. Only this class may raise the
// rate.
func (c Class) Success() bool { return c == OK }

// Throttle reports whether the provider asked for less: 429, 503 and what a provider's
// profile adds.
func (c Class) Throttle() bool { return c == Throttled || c == Overloaded }

// Pressure returns the pressure that the class indicates; ok is false if there is none.
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

// Retryable reports whether an attempt with this outcome may be retried: 429, 408, 5xx
// and connection errors before a response.
func (c Class) Retryable() bool {
	switch c {
	case Throttled, Overloaded, Failed, Lost:
		return true
	default:
		return false
	}
}

// Refusal says that an attempt was not made, why, for which connection or quota, and when
// it may be retried. Match it with errors.AsType[*reason.Refusal], or match the wrapped
// cause with errors.Is.
//
// A refusal for [Deadline] matches context.DeadlineExceeded, one for [Canceled] matches
// context.Canceled.
type Refusal struct {
	// Reason says why the attempt was refused.
	Reason Reason
	// Scope names what was refused: a connection's name or a quota's scope, never a
	// credential.
	Scope string
	// RetryAt is the earliest time at which it may succeed; zero if unknown or never.
	RetryAt time.Time
	// Err is the cause, if there is one besides the reason.
	Err error
}

// Error returns the scope, the reason and when to come back, in one line.
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

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Is matches the standard context errors if the caller ended the wait, and any *Refusal
// with the same reason.
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
