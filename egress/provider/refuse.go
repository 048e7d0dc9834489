package provider

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/reason"
)

const (
	// maxRetry is the longest wait that an SDK is asked to sit out by itself.
	// As their sources read in 2026, all but Google's prefer retry-after-ms to
	// Retry-After, try twice more by default, and obey x-should-retry before the
	// status. What they make of the wait:
	//   - openai-go cuts it to 8 s (DefaultMaxServerDelay);
	//   - openai-python waits up to 120 s and gives up beyond; its older releases,
	//     and anthropic-sdk-python, wait up to 60 s and come back within 8 s beyond;
	//   - anthropic-sdk-go sleeps as long as it says, be it hours;
	//   - go-genai reads no header at all and retries only when its caller asked
	//     for that, after 1 to 60 s of its own.
	// So beyond the minute that most agree on they are asked not to, and their caller
	// decides. A client that comes back early is refused again, at no cost upstream.
	maxRetry = time.Minute
	// maxWait bounds the wait that is announced; a longer one counts as never.
	maxWait = 366 * 24 * time.Hour
	// maxMessage bounds the message of a refusal, in bytes.
	maxMessage = 2048
)

// Refusal is why a call is answered by Headway and not by the upstream.
type Refusal struct {
	// Status is 400 to 599; anything else becomes 500.
	Status int
	// Code is a stable one in upper case, such as RATE_THROTTLED. Default: the
	// reason's name in upper case.
	Code string
	// Reason is why.
	Reason reason.Reason
	// Message says it to people. No secret may stand in it.
	Message string
	// RetryIn is how long until it may pass: 0 when unknown, below 0 when a wait
	// does not help.
	RetryIn time.Duration
	// Retry: the SDK may try again by itself. It is asked not to when RetryIn is
	// below 0 or longer than a minute.
	Retry bool
}

// exhausted reports whether a long budget is used up, so that a wait in place does
// not help.
func (r *Refusal) exhausted() bool {
	return r.Status == http.StatusTooManyRequests && (r.Reason == reason.QuotaExhausted || r.RetryIn < 0)
}

// problem is what RFC 9457 wants, and beside it the provider's own error.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`
	// Reason is one of Headway's closed set.
	Reason reason.Reason `json:"reason"`
	// RetryAfterMs is the wait, in whole milliseconds, rounded up.
	RetryAfterMs int64 `json:"retry_after_ms,omitempty"`
	Error        any   `json:"error,omitempty"`
	// RequestID is Anthropic's: always there, and null when there is none.
	RequestID *json.RawMessage `json:"request_id,omitempty"`
}

// Refuse answers with a refusal: its status, Retry-After in whole seconds and
// retry-after-ms, both rounded up, x-should-retry, and one JSON object that is both
// the provider's error and a problem of RFC 9457. Nothing may have been written
// yet; headers that were set before stay.
func (d *Description) Refuse(w http.ResponseWriter, r Refusal) {
	if r.Status < 400 || r.Status > 599 {
		r.Status = http.StatusInternalServerError
	}
	if r.Code == "" {
		r.Code = strings.ToUpper(r.Reason.String())
	}
	if r.RetryIn > maxWait {
		r.RetryIn = -1
	}
	r.Message = strings.ToValidUTF8(r.Message[:min(len(r.Message), maxMessage)], "")
	h := w.Header()
	if r.RetryIn > 0 {
		h.Set("Retry-After", strconv.FormatInt(whole(r.RetryIn, time.Second), 10))
		h.Set("Retry-After-Ms", strconv.FormatInt(whole(r.RetryIn, time.Millisecond), 10))
	}
	h.Set("X-Should-Retry", strconv.FormatBool(r.Retry && r.RetryIn >= 0 && r.RetryIn <= maxRetry))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", "application/json")
	if d.API == HTTP {
		h.Set("Content-Type", "application/problem+json")
	}
	body, err := json.Marshal(d.problem(&r))
	if err != nil {
		body = []byte("{}") // all fields are text, numbers and known reasons
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(r.Status)
	_, _ = w.Write(body) // the client may have gone away
}

// problem is the body.
func (d *Description) problem(r *Refusal) problem {
	p := problem{
		Type: "urn:headway:problem:" + strings.ReplaceAll(strings.ToLower(r.Code), "_", "-"),
		// Google's SDKs keep no more than their own error, so it holds all.
		Title: title(r.Status), Status: r.Status, Detail: r.Message, Code: r.Code, Reason: r.Reason,
		RetryAfterMs: whole(max(r.RetryIn, 0), time.Millisecond),
	}
	message := r.Message
	if message == "" {
		message = p.Title
	}
	switch d.API {
	case Anthropic:
		// "error" is what Anthropic's readers look for, and a relative reference in
		// the eyes of RFC 9457.
		p.Type, p.Error, p.RequestID = "error", anthropicError(r, message), new(json.RawMessage("null"))
	case Gemini:
		p.Error = googleError(r, message)
	case OpenAI, AzureOpenAI:
		p.Error = openAIError(r, message)
	case HTTP:
	}
	return p
}

// title is the same for all refusals of a status.
func title(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "Refused"
}

// whole is a duration in units, rounded up.
func whole(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

type errorOfOpenAI struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// openAIError uses codes that OpenAI documents, by which its clients tell a
// throttle from the end of a quota.
func openAIError(r *Refusal, message string) any {
	e := errorOfOpenAI{Message: message, Type: "invalid_request_error", Code: strings.ToLower(r.Code)}
	switch {
	case r.exhausted():
		e.Type, e.Code = "insufficient_quota", "insufficient_quota"
	case r.Status == http.StatusTooManyRequests:
		e.Type, e.Code = "requests", "rate_limit_exceeded"
	case r.Status == http.StatusServiceUnavailable:
		e.Type, e.Code = "server_error", "server_is_overloaded"
	case r.Status >= 500:
		e.Type = "server_error"
	case r.Status == http.StatusUnauthorized:
		e.Code = "invalid_api_key"
	}
	return e
}

type errorOfAnthropic struct {
	Type    string            `json:"type"`
	Message string            `json:"message"`
	Details map[string]string `json:"details,omitempty"`
}

// anthropicError uses the types that Anthropic documents.
func anthropicError(r *Refusal, message string) any {
	e := errorOfAnthropic{Message: message}
	switch r.Status {
	case http.StatusUnauthorized:
		e.Type = "authentication_error"
	case http.StatusPaymentRequired:
		e.Type = "billing_error"
	case http.StatusForbidden:
		e.Type = "permission_error"
	case http.StatusNotFound:
		e.Type = "not_found_error"
	case http.StatusRequestEntityTooLarge:
		e.Type = "request_too_large"
	case http.StatusTooManyRequests:
		e.Type = "rate_limit_error"
		if r.exhausted() {
			e.Details = map[string]string{"error_code": "enforced_spend_limit_reached"}
		}
	case http.StatusServiceUnavailable:
		e.Type = "overloaded_error"
	case http.StatusGatewayTimeout:
		e.Type = "timeout_error"
	default:
		if e.Type = "invalid_request_error"; r.Status >= 500 {
			e.Type = "api_error"
		}
	}
	return e
}

type errorOfGoogle struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []any  `json:"details"`
}

type googleInfo struct {
	Type   string `json:"@type"`
	Reason string `json:"reason"`
	Domain string `json:"domain"`
}

type googleRetry struct {
	Type  string `json:"@type"`
	Delay string `json:"retryDelay"`
}

type googleQuota struct {
	Type       string            `json:"@type"`
	Violations []googleViolation `json:"violations"`
}

type googleViolation struct {
	ID          string `json:"quotaId"`
	Description string `json:"description"`
}

// googleError uses the codes and details of google.rpc.
func googleError(r *Refusal, message string) any {
	const types = "type.googleapis.com/google.rpc."
	e := errorOfGoogle{Code: r.Status, Message: message, Status: googleStatus(r.Status)}
	e.Details = append(e.Details, googleInfo{types + "ErrorInfo", r.Code, "headway"})
	if r.exhausted() {
		e.Details = append(e.Details, googleQuota{types + "QuotaFailure", []googleViolation{{"HeadwayBudgetPerDay", message}}})
	}
	if r.RetryIn > 0 {
		e.Details = append(e.Details, googleRetry{
			types + "RetryInfo", strconv.FormatFloat(float64(whole(r.RetryIn, time.Millisecond))/1000, 'f', -1, 64) + "s",
		})
	}
	return e
}

func googleStatus(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusConflict:
		return "ABORTED"
	case http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case http.StatusNotImplemented:
		return "UNIMPLEMENTED"
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return "DEADLINE_EXCEEDED"
	}
	if status >= 500 {
		return "INTERNAL"
	}
	return "INVALID_ARGUMENT"
}
