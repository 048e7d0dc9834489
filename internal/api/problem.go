package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

// Problem is a problem document (RFC 9457), which is sent as application/problem+json. For
// clients it is an error.
type Problem struct {
	// Type is a stable name of the kind of problem: "about:blank" if the status is enough,
	// otherwise "urn:headway:problem:" and the code in lower case.
	Type string `json:"type"`
	// Title is the same for all problems of the type.
	Title string `json:"title"`
	// Status is the HTTP status of the answer.
	Status int `json:"status"`
	// Detail says what is wrong, where, and what to do.
	Detail string `json:"detail,omitempty"`
	// Code is a code of package quota; empty for other problems.
	Code quota.Code `json:"code,omitempty"`
	// Reason is a name of package reason or a kind of package quota.
	Reason string `json:"reason,omitempty"`
	// Scope says which budget refused.
	Scope string `json:"scope,omitempty"`
	// Role is the least role that a key needs for the request, where that was missing.
	Role string `json:"role,omitempty"`
	// RetryInMS is when to try again, in milliseconds from now; absent if unknown or never.
	RetryInMS int64 `json:"retry_in_ms,omitempty"`
	// Field is the first invalid field.
	Field string `json:"field,omitempty"`
	// Errors has all invalid fields.
	Errors []FieldProblem `json:"errors,omitempty"`
	// Choices are the valid values.
	Choices []string `json:"choices,omitempty"`
}

// FieldProblem is one invalid field.
type FieldProblem struct {
	// Field is its path, such as models.m.burst.
	Field string `json:"field"`
	// Value is the given value, Bound what it must be.
	Value string `json:"value,omitempty"`
	Bound string `json:"bound,omitempty"`
}

const (
	aboutBlank   = "about:blank"
	typePrefix   = "urn:headway:problem:"
	maxRetryInMS = math.MaxInt64 / int64(time.Millisecond)
)

var reasonForbidden = reason.Forbidden.String()

// Error returns title and detail in one line.
func (p *Problem) Error() string {
	s := fmt.Sprintf("%d %s", p.Status, p.Title)
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	return s
}

// RetryIn returns when to try again; ok is false if that is unknown or never.
func (p *Problem) RetryIn() (d time.Duration, ok bool) {
	return time.Duration(min(p.RetryInMS, maxRetryInMS)) * time.Millisecond, p.RetryInMS > 0
}

// refuse writes a problem.
func (a *API) refuse(w http.ResponseWriter, p *Problem) {
	p.Type = cmp.Or(p.Type, aboutBlank)
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.RetryInMS > 0 {
		h.Set("Retry-After", strconv.FormatInt((p.RetryInMS+999)/1000, 10))
	}
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: a Problem has strings and numbers only
		body = []byte(`{"type":"about:blank","title":"Internal error","status":500}`)
	}
	// The deadline ends a write to a client that does not read. The server first waits for
	// the rest of the body, if there is one.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyTime + writeTime))
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // ignore a client that does not read
}

// unauthorized returns the problem for an error of Authorize, whose text is not shown. W may
// be nil.
func (a *API) unauthorized(w http.ResponseWriter, err error, by who) *Problem {
	p := &Problem{
		Status: http.StatusUnauthorized, Title: "Not authorised", Reason: reason.Unauthorized.String(),
		Detail: "send a Headway key of this daemon as Authorization: Bearer",
	}
	if need := by.role(); need != "" {
		p.Detail = "send a key of this daemon with the role " + string(need) + " as Authorization: Bearer"
	}
	refusal, ok := errors.AsType[*reason.Refusal](err)
	switch {
	case ok && refusal.Reason == reason.Forbidden:
		return notAllowed(by)
	case ok && refusal.Reason == reason.RateLimited.Reason():
		p.Status, p.Title, p.Reason = http.StatusTooManyRequests, "Too many failed attempts", refusal.Reason.String()
		p.Detail = "too many keys from here were refused"
		p.RetryInMS = untilMS(refusal.RetryAt)
		return p
	}
	if w != nil {
		w.Header().Set("WWW-Authenticate", `Bearer realm="headway"`)
	}
	return p
}

// notAllowed returns the problem for a key without the role that an operation takes.
func notAllowed(by who) *Problem {
	p := &Problem{Status: http.StatusForbidden, Title: "Not allowed", Detail: "the key may not do this", Reason: reasonForbidden, Role: string(by.role())}
	switch by {
	case call:
		p.Detail, p.Role = "this takes a key for calls, or one with the role admin", string(Admin)
	case viewer, operator:
		p.Detail = "this takes a key with the role " + p.Role + " or a higher one"
	case admin:
		p.Detail = "this takes a key with the role admin"
	case public, data: // any key may
	}
	return p
}

func untilMS(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return max(1, ceilMS(time.Until(at)))
}

// ceilMS converts a duration to milliseconds, rounded up.
func ceilMS(d time.Duration) int64 {
	ms := d / time.Millisecond
	if d > ms*time.Millisecond {
		ms++
	}
	return int64(ms)
}

// problem converts an error of an operation to a problem.
func (a *API) problem(r *http.Request, err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if fields := fieldErrors(err, nil); len(fields) > 0 {
		p := invalid("")
		p.Detail = err.Error()
		p.Field, p.Errors = fields[0].Field, fields
		return p
	}
	refusal, _ := errors.AsType[*reason.Refusal](err)
	if denial, ok := errors.AsType[*quota.Denial](err); ok {
		return denied(denial)
	}
	switch {
	case refusal == nil:
	case refusal.Reason == reason.Closed:
		return &Problem{
			Status: http.StatusServiceUnavailable, Title: "Closing", Reason: refusal.Reason.String(),
			Detail: "the daemon is stopping, or the provider was taken out of its configuration", RetryInMS: 1000,
		}
	case refusal.Reason == reason.Deadline, refusal.Reason == reason.Canceled:
		return &Problem{
			Status: http.StatusServiceUnavailable, Title: "Gave up", Reason: refusal.Reason.String(),
			Detail: "the request ended while it waited",
		}
	}
	// Log internal errors and do not show them: they may name files.
	a.log.LogAttrs(r.Context(), slog.LevelError, "request failed", slog.String("method", r.Method), slog.String("route", r.Pattern), slog.Any("error", err))
	return &Problem{
		Status: http.StatusInternalServerError, Title: "Internal error", Reason: reason.Internal.String(),
		Detail: "the daemon's log says what failed", RetryInMS: 1000,
	}
}

// invalid returns the problem for an invalid request.
func invalid(detail string, args ...any) *Problem {
	return &Problem{
		Type: typeOf(quota.CodeInvalidConfig), Title: "Invalid value", Status: http.StatusBadRequest,
		Code: quota.CodeInvalidConfig, Detail: fmt.Sprintf(detail, args...),
	}
}

// badField returns the problem for one invalid field.
func badField(field, value, bound string) *Problem {
	p := invalid("%s is %s, must be %s", field, value, bound)
	p.Field, p.Errors = field, []FieldProblem{{field, value, bound}}
	return p
}

func typeOf(c quota.Code) string { return typePrefix + strings.ToLower(string(c)) }

// denied returns the problem for a refusal of a quota.
func denied(d *quota.Denial) *Problem {
	p := &Problem{
		Type: typeOf(d.Code), Status: http.StatusTooManyRequests, Code: d.Code,
		Reason: string(d.Reason), Scope: d.Scope.String(), Detail: d.Error(),
	}
	switch d.Code {
	case quota.CodeHardLimit:
		p.Title = "The daily cap is used up, or the call can never be approved"
	case quota.CodeThrottled:
		p.Title = "A budget has not refilled yet"
	case quota.CodeSoftLimit:
		p.Title = "The window of tokens is full"
	case quota.CodeGlobalLimit:
		p.Title = "The global budget has not refilled yet"
	case quota.CodeModelNotConfigured:
		p.Title, p.Status = "Unknown model", http.StatusNotFound
	case quota.CodeInvalidConfig:
		p.Title, p.Status = "Invalid value", http.StatusBadRequest
	case quota.CodeApprovalConflict:
		p.Title, p.Status = "The permit has ended otherwise", http.StatusConflict
		p.Detail = "the permit was canceled, has expired, or was settled with another usage: " + d.Error()
	}
	if p.Status == http.StatusTooManyRequests && d.RetryIn != quota.Never {
		p.RetryInMS = max(1, ceilMS(d.RetryIn))
	}
	return p
}

// fieldErrors returns all field errors in an error, joined or wrapped.
func fieldErrors(err error, found []FieldProblem) []FieldProblem {
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case nil:
	case *quota.FieldError:
		return append(found, FieldProblem{e.Field, e.Value, e.Bound})
	case interface{ Unwrap() []error }:
		for _, e := range e.Unwrap() {
			found = fieldErrors(e, found)
		}
	case interface{ Unwrap() error }:
		return fieldErrors(e.Unwrap(), found)
	}
	return found
}
