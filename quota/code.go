package quota

import (
	"fmt"
	"math"
	"time"

	"github.com/headway-go/headway/reason"
)

// Reason is the kind of a refusal.
type Reason string

// The kinds of refusal.
const (
	// Throttled: a bucket of calls or tokens has not refilled yet.
	Throttled Reason = "THROTTLED"
	// HardLimit: waiting a while does not help: the day's cap is used up, or the
	// request can never be approved as it stands.
	HardLimit Reason = "HARD_LIMIT"
	// SoftLimit: the rolling window of tokens is full.
	SoftLimit Reason = "SOFT_LIMIT"
)

// Code says more exactly what refused, or what was wrong.
type Code string

// The closed set of codes.
const (
	CodeHardLimit          Code = "RATE_HARD_LIMIT"
	CodeThrottled          Code = "RATE_THROTTLED"
	CodeSoftLimit          Code = "RATE_SOFT_LIMIT"
	CodeModelNotConfigured Code = "RATE_MODEL_NOT_CONFIGURED"
	CodeGlobalLimit        Code = "RATE_GLOBAL_LIMIT_EXCEEDED"
	CodeInvalidConfig      Code = "RATE_INVALID_CONFIG"
	CodeApprovalConflict   Code = "RATE_APPROVAL_CONFLICT"
)

// Never is the RetryIn of a request that no wait makes possible.
const Never = time.Duration(math.MaxInt64)

// Advisory is a set of remarks that an approval carries.
type Advisory uint8

// The remarks.
const (
	// AdviseSoft: a scope on the path is under soft pressure.
	AdviseSoft Advisory = 1 << iota
	// AdviseOverSoft: a soft budget is used up, and its policy is to advise only.
	AdviseOverSoft
	// AdviseThrottled: a scope on the path has an episode of throttle.
	AdviseThrottled
	// AdviseClamped: the estimate is larger than a bucket and was cut to its capacity.
	AdviseClamped
	// AdviseShared: there was no room for this tenant or agent; it shares the scope "*".
	AdviseShared
)

var advisoryNames = [...]string{"soft_pressure", "soft_limit", "throttled", "clamped", "shared_scope"}

// Names are the stable names of the remarks in the set. It allocates.
func (a Advisory) Names() []string {
	var names []string
	for i, name := range advisoryNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Scope names what a budget is for. The zero Scope is the global one.
type Scope struct {
	Tenant string `json:"tenant,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Model  string `json:"model,omitempty"`
}

// Global reports whether it is the global scope.
func (s Scope) Global() bool { return s == Scope{} }

// String is "global", or the scope's parts, as in "tenant a, model m".
func (s Scope) String() string {
	text := ""
	for _, part := range [...]struct{ word, name string }{
		{"tenant ", s.Tenant}, {"agent ", s.Agent}, {"model ", s.Model},
	} {
		switch {
		case part.name == "":
		case text == "":
			text = part.word + part.name
		default:
			text += ", " + part.word + part.name
		}
	}
	if text == "" {
		return "global"
	}
	return text
}

// Decision is the answer to a request.
type Decision struct {
	// Approved: the call may be made and Permit has to be settled.
	Approved bool
	// Permit is set when approved.
	Permit Permit
	// Advisory holds remarks on an approval.
	Advisory Advisory
	// Utilization is the highest use of a soft budget on the path, in thousandths
	// of it, this approval included; zero without soft budgets.
	Utilization int64

	// Reason, Code and Scope say what refused; empty when approved.
	Reason Reason
	Code   Code
	Scope  Scope
	// RetryIn is how long until it can pass, other calls apart: exact for buckets
	// and windows, the day's end for a cap, [Never] when it cannot.
	RetryIn time.Duration
	// Held: calls under way reserve what is missing. When they end nobody knows, so
	// that RetryIn is when to look again.
	Held bool
	// Final: the policy or the fault is such that waiting for it is pointless:
	// the caller should not queue.
	Final bool
}

// Refusal is the decision as the project's one error; nil when approved. at is
// the wall-clock instant of the decision.
func (d Decision) Refusal(at time.Time) *reason.Refusal {
	if d.Approved {
		return nil
	}
	r := &reason.Refusal{Reason: reason.Pacing, Scope: d.Scope.String(), Err: &Denial{d.Reason, d.Code, d.Scope, d.RetryIn, d.Held}}
	switch d.Code {
	case CodeHardLimit:
		r.Reason = reason.QuotaExhausted
	case CodeModelNotConfigured, CodeInvalidConfig, CodeApprovalConflict:
		r.Reason = reason.ClientError
	case CodeThrottled, CodeSoftLimit, CodeGlobalLimit:
	}
	if d.RetryIn != Never {
		r.RetryAt = at.Add(d.RetryIn)
	}
	return r
}

// Denial is a refusal by a quota as an error: match it with errors.AsType[*Denial].
type Denial struct {
	Reason  Reason
	Code    Code
	Scope   Scope
	RetryIn time.Duration
	Held    bool // as in Decision
}

// Error says which scope, code and kind, and when to come back.
func (d *Denial) Error() string {
	s := fmt.Sprintf("quota: %v: %s (%s)", d.Scope, d.Code, d.Reason)
	if d.RetryIn == Never {
		return s + ", waiting does not help"
	}
	return fmt.Sprintf("%s, retry in %v", s, d.RetryIn)
}

// FieldError says that a value is out of its bound. Its code is RATE_INVALID_CONFIG.
type FieldError struct {
	Field string // a path such as models.m.burst
	Value string
	Bound string // what it must be
}

// Error names field, value and bound.
func (e *FieldError) Error() string {
	return fmt.Sprintf("quota: %s is %s, must be %s (%s)", e.Field, e.Value, e.Bound, CodeInvalidConfig)
}

// Code is RATE_INVALID_CONFIG.
func (e *FieldError) Code() Code { return CodeInvalidConfig }
