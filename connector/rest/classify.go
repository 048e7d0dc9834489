package rest

import (
	"context"

	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/reason"
)

// Meaning is the meaning that an error rule gives to a response.
type Meaning string

// The meanings.
const (
	Throttle     Meaning = "throttle"     // refused for rate
	Overloaded   Meaning = "overloaded"   // refused for load
	Quota        Meaning = "quota"        // a long-window quota is used up
	Retryable    Meaning = "retry"        // a failure that may pass
	NotFound     Meaning = "not_found"    // gone for good
	Forbidden    Meaning = "forbidden"    // not with this credential
	Unauthorized Meaning = "unauthorized" // the credential is refused
)

var meanings = map[Meaning]struct {
	class  reason.Class
	reason reason.Reason
}{
	Throttle:     {reason.Throttled, reason.RateLimited.Reason()},
	Overloaded:   {reason.Overloaded, reason.UpstreamPressure.Reason()},
	Quota:        {reason.Throttled, reason.QuotaExhausted},
	Retryable:    {reason.Failed, reason.ServerError},
	NotFound:     {reason.Rejected, reason.NotFound},
	Forbidden:    {reason.Rejected, reason.Forbidden},
	Unauthorized: {reason.Rejected, reason.Unauthorized},
}

// ErrorRule gives a meaning to responses whose status is ambiguous.
type ErrorRule struct {
	// Status is the status that the rule applies to.
	Status int
	// Body matches if it yields anything but false and null for the body; nil matches any
	// body.
	Body *Expr
	As   Meaning
}

// Classify returns the class and reason of the first error rule that matches a response. ok
// is false if none matches; then the status decides. A body that is not JSON matches no
// rule with an expression. Classify is cheap if no rule is for the status.
func (c *Config) Classify(status int, body []byte) (class reason.Class, why reason.Reason, ok bool) {
	var in *datum
	for _, rule := range c.Errors {
		if rule.Status != status {
			continue
		}
		if rule.Body != nil {
			if in == nil {
				var err error
				if in, err = readBody(&connector.Response{Status: status, Body: body}); err != nil || in == nil {
					in = &datum{raw: jsonNull}
				}
			}
			if !rule.Body.holds(in) {
				continue
			}
		}
		m := meanings[rule.As]
		return m.class, m.reason, true
	}
	return reason.Unknown, reason.None, false
}

// holds reports whether the expression yields anything but false and null.
func (e *Expr) holds(in *datum) bool {
	out, err := e.all(context.Background(), in)
	if err != nil || len(out) == 0 {
		return false
	}
	s := string(out[0].bytes())
	return s != "null" && s != "false"
}
