package reason

import (
	"context"
	"fmt"
	"time"
)

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
