package reason

import "fmt"

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
