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

// Problem is an answer that says what is wrong, as RFC 9457 has it: its JSON is
// sent as application/problem+json. It is an error, for clients.
type Problem struct {
	// Type is a stable name of the kind of problem: "about:blank" when the status
	// says it all, else "urn:headway:problem:" with the code in lower case.
	Type string `json:"type"`
	// Title is the same for all problems of the type.
	Title string `json:"title"`
	// Status is that of the answer.
	Status int `json:"status"`
	// Detail is about this one: what is wrong, where, and what to do.
	Detail string `json:"detail,omitempty"`
	// Code is one of the codes of package quota; empty for what is not quota's.
	Code quota.Code `json:"code,omitempty"`
	// Reason is a name of package reason or a kind of package quota.
	Reason string `json:"reason,omitempty"`
	// Scope says which budget refused.
	Scope string `json:"scope,omitempty"`
	// RetryInMS is when to come back; absent when that is unknown or never.
	RetryInMS int64 `json:"retry_in_ms,omitempty"`
	// Field is the first field that is out of its bound.
	Field string `json:"field,omitempty"`
	// Errors are all fields that are out of their bounds.
	Errors []FieldProblem `json:"errors,omitempty"`
	// Choices are the values that would do.
	Choices []string `json:"choices,omitempty"`
}

// FieldProblem is one field that is out of its bound.
type FieldProblem struct {
	// Field is its path, as models.m.burst.
	Field string `json:"field"`
	// Value is what it was, Bound what it must be.
	Value string `json:"value,omitempty"`
	Bound string `json:"bound,omitempty"`
}

const (
	aboutBlank   = "about:blank"
	typePrefix   = "urn:headway:problem:"
	maxRetryInMS = math.MaxInt64 / int64(time.Millisecond)
)

var reasonForbidden = reason.Forbidden.String()

// Error is title and detail in one line.
func (p *Problem) Error() string {
	s := fmt.Sprintf("%d %s", p.Status, p.Title)
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	return s
}

// RetryIn is when to come back; ok is false when that is unknown or never.
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
	// Without a deadline of its own a client that does not read would hold us. The
	// server first waits for the rest of the body, if there is one.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyTime + writeTime))
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that does not read it cannot be answered
}

// unauthorized is the problem of a caller who was not let in. The text of Authorize's
// error is not shown.
func (a *API) unauthorized(w http.ResponseWriter, err error, by who) *Problem {
	p := &Problem{
		Status: http.StatusUnauthorized, Title: "Not authorised", Reason: reason.Unauthorized.String(),
		Detail: "send a Headway key of this daemon as Authorization: Bearer",
	}
	if by == admin {
		p.Detail = "send an admin key of this daemon as Authorization: Bearer"
	}
	refusal, ok := errors.AsType[*reason.Refusal](err)
	switch {
	case ok && refusal.Reason == reason.Forbidden:
		p.Status, p.Title, p.Reason = http.StatusForbidden, "Not allowed", reasonForbidden
		p.Detail = "the key may not do this"
		if by == admin {
			p.Detail = "this takes an admin key"
		}
		return p
	case ok && refusal.Reason == reason.RateLimited.Reason():
		p.Status, p.Title, p.Reason = http.StatusTooManyRequests, "Too many failed attempts", refusal.Reason.String()
		p.Detail = "too many keys from here were refused"
		p.RetryInMS = untilMS(refusal.RetryAt)
		return p
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="headway"`)
	return p
}

func untilMS(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return max(1, ceilMS(time.Until(at)))
}

// ceilMS is a length of time in milliseconds, rounded up.
func ceilMS(d time.Duration) int64 {
	ms := d / time.Millisecond
	if d > ms*time.Millisecond {
		ms++
	}
	return int64(ms)
}

// problem puts an error of an operation into the form of an answer.
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
	// What went wrong inside is for the log: it may name files.
	a.log.LogAttrs(r.Context(), slog.LevelError, "request failed", slog.String("method", r.Method), slog.String("route", r.Pattern), slog.Any("error", err))
	return &Problem{
		Status: http.StatusInternalServerError, Title: "Internal error", Reason: reason.Internal.String(),
		Detail: "the daemon's log says what failed", RetryInMS: 1000,
	}
}

// invalid is the problem of a request that says something impossible.
func invalid(detail string, args ...any) *Problem {
	return &Problem{
		Type: typeOf(quota.CodeInvalidConfig), Title: "Invalid value", Status: http.StatusBadRequest,
		Code: quota.CodeInvalidConfig, Detail: fmt.Sprintf(detail, args...),
	}
}

// badField is the problem of one field.
func badField(field, value, bound string) *Problem {
	p := invalid("%s is %s, must be %s", field, value, bound)
	p.Field, p.Errors = field, []FieldProblem{{field, value, bound}}
	return p
}

func typeOf(c quota.Code) string { return typePrefix + strings.ToLower(string(c)) }

// denied is the problem of what a quota refused.
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

// fieldErrors finds all fields that an error is about, joined or wrapped.
func fieldErrors(err error, found []FieldProblem) []FieldProblem {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
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
