package llm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
)

// openAI is the protocol of OpenAI.
type openAI struct{}

func (openAI) credential(r *http.Request) string { return bearer(r) }

func bearer(r *http.Request) string {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return key
}

func (openAI) mark(h http.Header, id string) { h.Set("X-Request-Id", "req_"+id) }

func (openAI) limits(h http.Header, left []serve.Quota) {
	for what, q := range map[string]*serve.Quota{"Requests": first(left, callsPerTime...), "Tokens": first(left, scenario.CostWindow)} {
		if q == nil {
			continue
		}
		h.Set("X-Ratelimit-Limit-"+what, whole(q.Limit))
		h.Set("X-Ratelimit-Remaining-"+what, whole(q.Remaining))
		h.Set("X-Ratelimit-Reset-"+what, ceil(time.Until(q.ResetAt), time.Millisecond).String())
	}
}

type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

type openAIFailure struct {
	Error openAIError `json:"error"`
}

func (openAI) refuse(h http.Header, t trouble) (int, any) {
	failure := func(status int, kind, code, message string) (int, any) {
		e := openAIError{Message: message, Type: kind}
		if code != "" {
			e.Code = &code
		}
		return status, openAIFailure{e}
	}
	const request = "invalid_request_error"
	switch t.kind {
	case malformed:
		return failure(http.StatusBadRequest, request, "", t.why)
	case oversized:
		return failure(http.StatusRequestEntityTooLarge, request, "", "The request is too large.")
	case keyless:
		return failure(http.StatusUnauthorized, request, "", "You didn't provide an API key. Send it as Authorization: Bearer KEY.")
	case unknownKey:
		return failure(http.StatusUnauthorized, request, "invalid_api_key", "Incorrect API key provided.")
	case unknownPath:
		return failure(http.StatusNotFound, request, "unknown_url", "Unknown request URL: "+t.why+".")
	case throttled:
		retryAfter(h, t, true)
		what, message := "requests", "Rate limit reached for "+t.call.model
		if q := t.limit; q != nil {
			wanted := 1
			if q.Kind == scenario.CostWindow {
				what, wanted = "tokens", t.cost
			}
			message += fmt.Sprintf(" on %s per %s: Limit %s, Used %s, Requested %d",
				what, window(q), whole(q.Limit), whole(q.Limit-q.Remaining), wanted)
		}
		if t.said {
			message += ". Please try again in " + ceil(t.wait, time.Millisecond).String()
		}
		return failure(http.StatusTooManyRequests, what, "rate_limit_exceeded", message+".")
	case exhausted:
		h.Set("X-Should-Retry", "false")
		return failure(http.StatusTooManyRequests, "insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan and billing details.")
	case overloaded:
		return failure(http.StatusServiceUnavailable, "server_error", "server_is_overloaded", "The server is currently overloaded. Please try again later.")
	case suspended:
		return failure(http.StatusForbidden, request, "account_deactivated", "The account associated with this API key has been deactivated.")
	}
	return failure(http.StatusInternalServerError, "server_error", "", "The server had an error.")
}

func (openAI) models() any {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	all := make([]model, len(known))
	for i, id := range known {
		all[i] = model{id, "model", knownSince.Unix(), "sim"}
	}
	return struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", all}
}

// azure is the protocol of OpenAI on Azure.
type azure struct{ openAI }

func (azure) credential(r *http.Request) string {
	if key := r.Header.Get("Api-Key"); key != "" {
		return key
	}
	return bearer(r)
}

func (azure) mark(h http.Header, id string) { h.Set("Apim-Request-Id", id) }

func (a azure) refuse(h http.Header, t trouble) (int, any) {
	type failure struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	var f failure
	status := http.StatusTooManyRequests
	switch t.kind {
	case keyless, unknownKey:
		status = http.StatusUnauthorized
		f.Error.Message = "Access denied due to invalid subscription key or wrong API endpoint."
	case unknownPath:
		status, f.Error.Message = http.StatusNotFound, "Resource not found"
	case throttled:
		retryAfter(h, t, true)
		f.Error.Message = "Requests to this deployment have exceeded a rate limit of your current pricing tier."
		if t.limit != nil && t.limit.Kind == scenario.CostWindow {
			f.Error.Message = "Requests to this deployment have exceeded the token rate limit of your current pricing tier."
		}
		if t.said {
			f.Error.Message += fmt.Sprintf(" Please retry after %d seconds.", ceil(t.wait, time.Second)/time.Second)
		}
	case malformed, oversized, exhausted, overloaded, suspended:
		return a.openAI.refuse(h, t)
	}
	f.Error.Code = fmt.Sprint(status)
	return status, f
}

// chat returns the endpoint of chat completions, for OpenAI and Azure.
func chat(d dialect) endpoint {
	return endpoint{dialect: d, read: readChat, charge: chargeOpenAI, plain: plainChat, script: func(a *answer) script { return chatScript{a} }}
}

// chargeOpenAI returns the larger of the caller's bound on the output and the estimated
// prompt. The charge does not depend on what is generated.
func chargeOpenAI(a *answer) int { return max(a.most, a.tokens) }

func readChat(r *http.Request, body []byte) (call, error) {
	var in struct {
		Model    string `json:"model"`
		Messages []struct {
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			ToolCalls json.RawMessage `json:"tool_calls"`
		} `json:"messages"`
		MaxTokens     *int64 `json:"max_tokens"`
		MaxCompletion *int64 `json:"max_completion_tokens"`
		N             *int64 `json:"n"`
		Stream        bool   `json:"stream"`
		StreamOptions *struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		Tools json.RawMessage `json:"tools"`
	}
	if err := decode(body, &in); err != nil {
		return call{}, err
	}
	most, name := in.MaxCompletion, "max_completion_tokens"
	if most == nil {
		most, name = in.MaxTokens, "max_tokens"
	}
	if deployment := r.PathValue("deployment"); deployment != "" {
		in.Model = deployment
	}
	c, err := newCall(in.Model, most, name)
	if err != nil {
		return c, err
	}
	switch err := one("n", in.N); {
	case err != nil:
		return c, err
	case len(in.Messages) == 0:
		return c, badRequest{"messages", "is missing or empty"}
	case in.StreamOptions != nil && !in.Stream:
		return c, badRequest{"stream_options", "is only allowed when stream is true"}
	}
	for i, m := range in.Messages {
		c.tokens += tokensPerMessage
		c.note(m.Role)
		if err := c.content(fmt.Sprintf("messages[%d].content", i), m.Content); err != nil {
			return c, err
		}
		c.raw(m.ToolCalls)
	}
	c.raw(in.Tools)
	c.stream, c.usage = in.Stream, in.StreamOptions != nil && in.StreamOptions.IncludeUsage
	return c, nil
}

type chatUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	PromptHas  struct {
		Cached int `json:"cached_tokens"`
		Audio  int `json:"audio_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionHas struct {
		Reasoning int `json:"reasoning_tokens"`
		Audio     int `json:"audio_tokens"`
	} `json:"completion_tokens_details"`
}

func newChatUsage(a *answer) *chatUsage {
	u := &chatUsage{Prompt: a.tokens, Completion: a.generated(), Total: a.tokens + a.generated()}
	u.PromptHas.Cached, u.CompletionHas.Reasoning = a.cached, a.thoughts
	return u
}

func (a *answer) finish() string {
	if a.cut {
		return "length"
	}
	return "stop"
}

type chatMessage struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Refusal *string `json:"refusal"`
}

type chatCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage"`
}

type chatChoice struct {
	Index    int         `json:"index"`
	Message  chatMessage `json:"message"`
	Logprobs *struct{}   `json:"logprobs"`
	Finish   string      `json:"finish_reason"`
}

func plainChat(a *answer) any {
	return chatCompletion{
		ID: "chatcmpl-" + a.id, Object: "chat.completion", Created: a.at.Unix(), Model: a.model,
		Choices: []chatChoice{{Message: chatMessage{Role: "assistant", Content: &a.text}, Finish: a.finish()}},
		Usage:   newChatUsage(a),
	}
}

// chatChunk is a chunk of a stream. Its usage is left out unless the caller asked for it;
// then it is null in all chunks but the last, which has no choice.
type chatChunk struct {
	ID      string            `json:"id"`
	Object  string            `json:"object"`
	Created int64             `json:"created"`
	Model   string            `json:"model"`
	Choices []chatChunkChoice `json:"choices"`
	Usage   **chatUsage       `json:"usage,omitempty"`
}

type chatChunkChoice struct {
	Index    int       `json:"index"`
	Delta    chatDelta `json:"delta"`
	Logprobs *struct{} `json:"logprobs"`
	Finish   *string   `json:"finish_reason"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatScript struct{ a *answer }

func (s chatScript) chunk(usage *chatUsage, choices ...chatChunkChoice) event {
	c := chatChunk{
		ID: "chatcmpl-" + s.a.id, Object: "chat.completion.chunk", Created: s.a.at.Unix(), Model: s.a.model,
		Choices: append([]chatChunkChoice{}, choices...),
	}
	if s.a.usage {
		c.Usage = &usage
	}
	return event{data: c}
}

func (s chatScript) begin() []event {
	return []event{s.chunk(nil, chatChunkChoice{Delta: chatDelta{Role: "assistant", Content: new("")}})}
}

func (s chatScript) piece(text string, _ int) []event {
	return []event{s.chunk(nil, chatChunkChoice{Delta: chatDelta{Content: &text}})}
}

func (s chatScript) end() []event {
	all := []event{s.chunk(nil, chatChunkChoice{Finish: new(s.a.finish())})}
	if s.a.usage {
		all = append(all, s.chunk(newChatUsage(s.a)))
	}
	return append(all, event{data: "[DONE]"})
}

func (chatScript) broken() []event {
	_, body := openAI{}.refuse(nil, trouble{kind: overloaded})
	return []event{{data: body}}
}
