package llm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

// anthropic is the protocol of Anthropic.
type anthropic struct{}

func (anthropic) credential(r *http.Request) string {
	if key := r.Header.Get("X-Api-Key"); key != "" {
		return key
	}
	return bearer(r)
}

func (anthropic) mark(h http.Header, id string) { h.Set("Request-Id", "req_"+id) }

func (anthropic) limits(h http.Header, left []serve.Quota) {
	tell := func(what string, q *serve.Quota, unit float64) {
		if q == nil {
			return
		}
		prefix := "Anthropic-Ratelimit-" + what
		h.Set(prefix+"-Limit", whole(q.Limit))
		h.Set(prefix+"-Remaining", whole(float64(int64(q.Remaining/unit))*unit))
		h.Set(prefix+"-Reset", q.ResetAt.Add(time.Second-1).Truncate(time.Second).UTC().Format(time.RFC3339))
	}
	tell("Requests", first(left, callsPerTime...), 1)
	tell("Tokens", first(left, scenario.CostWindow), 1000)
}

type anthropicError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Details any    `json:"details,omitempty"`
}

type anthropicFailure struct {
	Type      string         `json:"type"`
	Error     anthropicError `json:"error"`
	RequestID *string        `json:"request_id"`
}

func (anthropic) refuse(h http.Header, t trouble) (int, any) {
	f := anthropicFailure{Type: "error"}
	if t.id != "" {
		f.RequestID = new("req_" + t.id)
	}
	failure := func(status int, kind, message string) (int, any) {
		f.Error.Type, f.Error.Message = kind, message
		return status, f
	}
	switch t.kind {
	case malformed:
		return failure(http.StatusBadRequest, "invalid_request_error", t.why)
	case oversized:
		return failure(http.StatusRequestEntityTooLarge, "request_too_large", "Request exceeds the maximum size")
	case keyless:
		return failure(http.StatusUnauthorized, "authentication_error", "x-api-key header is required")
	case unknownKey:
		return failure(http.StatusUnauthorized, "authentication_error", "invalid x-api-key")
	case unknownPath:
		return failure(http.StatusNotFound, "not_found_error", "Not found: "+t.why)
	case throttled:
		retryAfter(h, t, false)
		message := "This request would exceed a limit of your account."
		if q := t.limit; q != nil {
			what := "requests"
			if q.Kind == scenario.CostWindow {
				what = "tokens"
			}
			message = fmt.Sprintf("This request would exceed the rate limit of %s %s per %s.", whole(q.Limit), what, window(q))
		}
		return failure(http.StatusTooManyRequests, "rate_limit_error", message)
	case exhausted:
		h.Set("X-Should-Retry", "false")
		f.Error.Details = map[string]string{"error_code": "enforced_spend_limit_reached"}
		return failure(http.StatusTooManyRequests, "rate_limit_error", "This account has reached its monthly spend limit.")
	case overloaded:
		if h != nil {
			h.Set("X-Should-Retry", "true")
		}
		return failure(statusOverloaded, "overloaded_error", "Overloaded")
	case suspended:
		return failure(http.StatusForbidden, "permission_error", "This account has been disabled.")
	}
	return failure(http.StatusInternalServerError, "api_error", "Internal server error")
}

// statusOverloaded is a status that only Anthropic uses.
const statusOverloaded = 529

func (anthropic) models() any {
	type model struct {
		Type      string    `json:"type"`
		ID        string    `json:"id"`
		Name      string    `json:"display_name"`
		CreatedAt time.Time `json:"created_at"`
	}
	all := make([]model, len(known))
	for i, id := range known {
		all[i] = model{"model", id, id, knownSince}
	}
	return struct {
		Data    []model `json:"data"`
		HasMore bool    `json:"has_more"`
		First   string  `json:"first_id"`
		Last    string  `json:"last_id"`
	}{all, false, known[0], known[len(known)-1]}
}

// messages is the endpoint of the Messages API.
var messages = endpoint{
	dialect: anthropic{}, charge: chargeAnthropic,
	read: func(_ *http.Request, body []byte) (call, error) { return readMessages(body, true) },
	plain: func(a *answer) any {
		return newMessage(a, []messageBlock{{"text", a.text}}, new(a.stop()), a.generated())
	},
	script: func(a *answer) script { return messageScript{a} },
}

// countTokens counts the tokens of a prompt and generates nothing.
var countTokens = endpoint{
	dialect: anthropic{},
	read: func(_ *http.Request, body []byte) (call, error) {
		c, err := readMessages(body, false)
		c.counting = true
		return c, err
	},
	count: func(c call) any {
		return struct {
			Input int `json:"input_tokens"`
		}{c.tokens}
	},
}

// chargeAnthropic returns the prompt's tokens outside the cache, and the generated ones,
// which are known on admission here.
func chargeAnthropic(a *answer) int { return a.tokens - a.cached + a.generated() }

func readMessages(body []byte, bounded bool) (call, error) {
	var in struct {
		Model    string `json:"model"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		System    json.RawMessage `json:"system"`
		MaxTokens *int64          `json:"max_tokens"`
		Stream    bool            `json:"stream"`
		Tools     json.RawMessage `json:"tools"`
	}
	if err := decode(body, &in); err != nil {
		return call{}, err
	}
	c, err := newCall(in.Model, in.MaxTokens, "max_tokens")
	switch {
	case err != nil:
		return c, err
	case bounded && in.MaxTokens == nil:
		return c, badRequest{"max_tokens", "Field required"}
	case len(in.Messages) == 0:
		return c, badRequest{"messages", "at least one message is required"}
	}
	if err := c.content("system", in.System); err != nil {
		return c, err
	}
	for i, m := range in.Messages {
		c.tokens += tokensPerMessage
		c.note(m.Role)
		if err := c.content(fmt.Sprintf("messages.%d.content", i), m.Content); err != nil {
			return c, err
		}
	}
	c.raw(in.Tools)
	c.stream = in.Stream
	return c, nil
}

type message struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"`
	Role         string         `json:"role"`
	Model        string         `json:"model"`
	Content      []messageBlock `json:"content"`
	StopReason   *string        `json:"stop_reason"`
	StopSequence *string        `json:"stop_sequence"`
	Usage        messageUsage   `json:"usage"`
}

type messageBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// messageUsage counts as input only tokens that are neither read from nor written to a
// cache.
type messageUsage struct {
	Input         int `json:"input_tokens"`
	CacheCreation int `json:"cache_creation_input_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
	Output        int `json:"output_tokens"`
}

func newMessageUsage(a *answer, output int) messageUsage {
	return messageUsage{a.tokens - a.cached - a.written, a.written, a.cached, output}
}

func (a *answer) stop() string {
	if a.cut {
		return "max_tokens"
	}
	return "end_turn"
}

func newMessage(a *answer, content []messageBlock, stop *string, output int) *message {
	return &message{
		ID: "msg_" + a.id, Type: "message", Role: "assistant", Model: a.model,
		Content: content, StopReason: stop, Usage: newMessageUsage(a, output),
	}
}

// messageEvent has the fields of all kinds of events; zero fields are left out.
type messageEvent struct {
	Type    string        `json:"type"`
	Message *message      `json:"message,omitempty"`
	Index   *int          `json:"index,omitempty"`
	Block   *messageBlock `json:"content_block,omitempty"`
	Delta   any           `json:"delta,omitempty"`
	Usage   *messageUsage `json:"usage,omitempty"`
}

type messageScript struct{ a *answer }

func (messageScript) event(e messageEvent) event { return event{name: e.Type, data: e} }

// begin counts one token of output, as Anthropic does; the count at the end replaces it.
func (s messageScript) begin() []event {
	return []event{
		s.event(messageEvent{Type: "message_start", Message: newMessage(s.a, []messageBlock{}, nil, 1)}),
		s.event(messageEvent{Type: "content_block_start", Index: new(0), Block: &messageBlock{"text", ""}}),
		s.event(messageEvent{Type: "ping"}),
	}
}

func (s messageScript) piece(text string, _ int) []event {
	return []event{s.event(messageEvent{Type: "content_block_delta", Index: new(0), Delta: messageBlock{"text_delta", text}})}
}

func (s messageScript) end() []event {
	type delta struct {
		StopReason   string  `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
	return []event{
		s.event(messageEvent{Type: "content_block_stop", Index: new(0)}),
		s.event(messageEvent{Type: "message_delta", Delta: delta{StopReason: s.a.stop()}, Usage: new(newMessageUsage(s.a, s.a.generated()))}),
		s.event(messageEvent{Type: "message_stop"}),
	}
}

func (s messageScript) broken() []event {
	_, body := anthropic{}.refuse(nil, trouble{kind: overloaded, id: s.a.id})
	return []event{{name: "error", data: body}}
}
