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
	// HardLimit: waiting does not help soon: the day's cap is used up, or the request can
	// never be approved as it is.
	HardLimit Reason = "HARD_LIMIT"
	// SoftLimit: the rolling window of tokens is full.
	SoftLimit Reason = "SOFT_LIMIT"
)

// Code says more precisely what refused the request, or what was invalid.
type Code string

// All codes.
const (
	CodeHardLimit          Code = "RATE_HARD_LIMIT"
	CodeThrottled          Code = "RATE_THROTTLED"
	CodeSoftLimit          Code = "RATE_SOFT_LIMIT"
	CodeModelNotConfigured Code = "RATE_MODEL_NOT_CONFIGURED"
	CodeGlobalLimit        Code = "RATE_GLOBAL_LIMIT_EXCEEDED"
	CodeInvalidConfig      Code = "RATE_INVALID_CONFIG"
	CodeApprovalConflict   Code = "RATE_APPROVAL_CONFLICT"
)

// Never is the RetryIn of a request that cannot be approved after any wait.
const Never = time.Duration(math.MaxInt64)

// Advisory is a set of remarks on an approval.
type Advisory uint8

// The remarks.
const (
	// AdviseSoft: a scope on the path is under soft pressure.
	AdviseSoft Advisory = 1 << iota
	// AdviseOverSoft: a soft budget is used up, and its policy is to advise only.
	AdviseOverSoft
	// AdviseThrottled: a scope on the path is in an episode of throttle.
	AdviseThrottled
	// AdviseClamped: the estimate is larger than a bucket and was cut to its capacity.
	AdviseClamped
	// AdviseShared: too many tenants or agents are known; this one shares the scope "*".
	AdviseShared
)

var advisoryNames = [...]string{"soft_pressure", "soft_limit", "throttled", "clamped", "shared_scope"}

// Names returns the stable names of the remarks in the set. It allocates.
func (a Advisory) Names() []string {
	var names []string
	for i, name := range advisoryNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Scope names what a budget applies to. The zero Scope is the global one.
type Scope struct {
	Tenant string `json:"tenant,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Model  string `json:"model,omitempty"`
}

// Global reports whether it is the global scope.
func (s Scope) Global() bool { return s == Scope{} }

// String returns "global", or the scope's parts, as in "tenant a, model m".
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
	// Approved: the call may be made, and Permit must be settled.
	Approved bool
	// Permit is set when approved.
	Permit Permit
	// Advisory holds remarks on an approval.
	Advisory Advisory
	// Utilization is the highest utilization of a soft budget on the path, in
	// thousandths, including this approval; 0 without soft budgets.
	Utilization int64

	// Reason, Code and Scope say what refused the request; empty if approved.
	Reason Reason
	Code   Code
	Scope  Scope
	// RetryIn is how long until the request can pass if no other calls are made: exact
	// for buckets and windows, the end of the day for a cap, [Never] if it cannot pass.
	RetryIn time.Duration
	// Held: open permits reserve what is missing. It is unknown when they end, so RetryIn
	// says when to ask again.
	Held bool
	// Final: waiting is pointless, because of the policy or the kind of fault. The caller
	// should not queue.
	Final bool
}

// Refusal returns the decision as an error of package reason; nil if approved. at is the
// wall-clock instant of the decision.
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

// Denial is a refusal by a quota as an error. Match it with errors.AsType[*Denial].
type Denial struct {
	Reason  Reason
	Code    Code
	Scope   Scope
	RetryIn time.Duration
	Held    bool // as in Decision
}

// Error names the scope, code and kind, and when to come back.
func (d *Denial) Error() string {
	s := fmt.Sprintf("quota: %v: %s (%s)", d.Scope, d.Code, d.Reason)
	if d.RetryIn == Never {
		return s + ", waiting does not help"
	}
	return fmt.Sprintf("%s, retry in %v", s, d.RetryIn)
}

// FieldError reports a value out of its bound. Its code is RATE_INVALID_CONFIG.
type FieldError struct {
	Field string // a path such as models.m.burst
	Value string
	Bound string // what it must be
}

// Error names the field, its value and its bound.
func (e *FieldError) Error() string {
	return fmt.Sprintf("quota: %s is %s, must be %s (%s)", e.Field, e.Value, e.Bound, CodeInvalidConfig)
}

// Code returns RATE_INVALID_CONFIG.
func (e *FieldError) Code() Code { return CodeInvalidConfig }
