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
	// maxRetry is the longest wait for which SDKs are asked to retry by themselves. In
	// 2026, all SDKs but Google's prefer retry-after-ms to Retry-After, retry twice by
	// default, and follow x-should-retry before the status. They treat the wait as follows:
	//   - openai-go cuts it to 8 s (DefaultMaxServerDelay);
	//   - openai-python waits up to 120 s and gives up beyond; its older releases,
	//     and anthropic-sdk-python, wait up to 60 s and retry within 8 s beyond;
	//   - anthropic-sdk-go waits as long as requested, even hours;
	//   - go-genai reads no header and retries only if its caller asked
	//     for it, after 1 to 60 s.
	// So beyond one minute they are asked not to retry, and their caller decides. A client
	// that retries early is refused again, at no cost upstream.
	maxRetry = time.Minute
	// maxWait bounds the wait that is reported; a longer one counts as never.
	maxWait = 366 * 24 * time.Hour
	// maxMessage bounds the message of a refusal, in bytes.
	maxMessage = 2048
)

// Refusal is a response of Headway itself, in place of the upstream's.
type Refusal struct {
	// Status is 400 to 599; any other value becomes 500.
	Status int
	// Code is a stable name in upper case, such as RATE_THROTTLED. Default: the reason's
	// name in upper case.
	Code string
	// Reason is the reason.
	Reason reason.Reason
	// Message explains the refusal to people. It must not contain secrets.
	Message string
	// RetryIn is how long to wait before a retry: 0 if unknown, negative if a wait does not
	// help.
	RetryIn time.Duration
	// Retry allows the SDK to retry by itself. If RetryIn is negative or longer than a
	// minute, the SDK is asked not to.
	Retry bool
}

// exhausted reports whether a long-window budget is used up, so that a wait does not help.
func (r *Refusal) exhausted() bool {
	return r.Status == http.StatusTooManyRequests && (r.Reason == reason.QuotaExhausted || r.RetryIn < 0)
}

// problem is a problem of RFC 9457 that is also the provider's own error.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`
	// Reason is one of package reason.
	Reason reason.Reason `json:"reason"`
	// RetryAfterMs is the wait, in whole milliseconds, rounded up.
	RetryAfterMs int64 `json:"retry_after_ms,omitempty"`
	Error        any   `json:"error,omitempty"`
	// RequestID is Anthropic's: always present, null if there is none.
	RequestID *json.RawMessage `json:"request_id,omitempty"`
}

// Refuse writes a refusal: its status, Retry-After in whole seconds and retry-after-ms
// (both rounded up), x-should-retry, and a JSON object that is both the provider's error
// and a problem of RFC 9457. Nothing may have been written before; headers that were set
// are kept.
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

// problem returns the body.
func (d *Description) problem(r *Refusal) problem {
	p := problem{
		Type: "urn:headway:problem:" + strings.ReplaceAll(strings.ToLower(r.Code), "_", "-"),
		// Google's SDKs keep only their own error, so it has everything.
		Title: title(r.Status), Status: r.Status, Detail: r.Message, Code: r.Code, Reason: r.Reason,
		RetryAfterMs: whole(max(r.RetryIn, 0), time.Millisecond),
	}
	message := r.Message
	if message == "" {
		message = p.Title
	}
	switch d.API {
	case Anthropic:
		// Anthropic's clients expect the type "error"; for RFC 9457 it is a relative
		// reference.
		p.Type, p.Error, p.RequestID = "error", anthropicError(r, message), new(json.RawMessage("null"))
	case Gemini:
		p.Error = googleError(r, message)
	case OpenAI, AzureOpenAI:
		p.Error = openAIError(r, message)
	case HTTP:
	}
	return p
}

// title returns the same title for all refusals with a status.
func title(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "Refused"
}

// whole returns a duration in units, rounded up.
func whole(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

type errorOfOpenAI struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// openAIError uses OpenAI's documented codes, by which clients distinguish a throttle from
// a used-up quota.
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

// anthropicError uses Anthropic's documented types.
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
