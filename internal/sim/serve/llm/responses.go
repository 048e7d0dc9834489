package llm

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// responses returns the endpoint of the Responses API, for OpenAI and Azure.
func responses(d dialect) endpoint {
	return endpoint{
		dialect: d, read: readResponses, charge: chargeOpenAI,
		plain:  func(a *answer) any { return newResponse(a, true) },
		script: func(a *answer) script { return &responseScript{a: a} },
	}
}

func readResponses(_ *http.Request, body []byte) (call, error) {
	var in struct {
		Model        string          `json:"model"`
		Input        json.RawMessage `json:"input"`
		Instructions string          `json:"instructions"`
		MaxOutput    *int64          `json:"max_output_tokens"`
		Stream       bool            `json:"stream"`
		Tools        json.RawMessage `json:"tools"`
	}
	if err := decode(body, &in); err != nil {
		return call{}, err
	}
	c, err := newCall(in.Model, in.MaxOutput, "max_output_tokens")
	if err != nil {
		return c, err
	}
	c.stream = in.Stream
	if in.Instructions != "" {
		c.tokens += tokensPerMessage
		c.text(in.Instructions)
	}
	c.raw(in.Tools)
	var text string
	if json.Unmarshal(in.Input, &text) == nil && text != "" {
		c.tokens += tokensPerMessage
		c.text(text)
		return c, nil
	}
	var items []json.RawMessage
	if json.Unmarshal(in.Input, &items) != nil || len(items) == 0 {
		return c, badRequest{"input", "must be a string or an array of items, and not empty"}
	}
	for i, item := range items {
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		c.tokens += tokensPerMessage
		if json.Unmarshal(item, &m) != nil {
			return c, badRequest{fmt.Sprintf("input[%d]", i), "must be an object"}
		}
		if m.Content == nil { // for instance the output of a tool
			c.raw(item)
			continue
		}
		c.note(m.Role)
		if err := c.content(fmt.Sprintf("input[%d].content", i), m.Content); err != nil {
			return c, err
		}
	}
	return c, nil
}

type response struct {
	ID         string           `json:"id"`
	Object     string           `json:"object"`
	CreatedAt  int64            `json:"created_at"`
	Status     string           `json:"status"`
	Error      *responseError   `json:"error"`
	Incomplete *responseReason  `json:"incomplete_details"`
	MaxOutput  *int             `json:"max_output_tokens"`
	Model      string           `json:"model"`
	Output     []responseOutput `json:"output"`
	Parallel   bool             `json:"parallel_tool_calls"`
	ToolChoice string           `json:"tool_choice"`
	Tools      []struct{}       `json:"tools"`
	Usage      *responseUsage   `json:"usage"`
	Metadata   struct{}         `json:"metadata"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type responseReason struct {
	Reason string `json:"reason"`
}

type responseOutput struct {
	ID      string         `json:"id"`
	Type    string         `json:"type"`
	Status  string         `json:"status"`
	Role    string         `json:"role"`
	Content []responsePart `json:"content"`
}

type responsePart struct {
	Type        string     `json:"type"`
	Text        string     `json:"text"`
	Annotations []struct{} `json:"annotations"`
}

type responseUsage struct {
	Input    int `json:"input_tokens"`
	InputHas struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output    int `json:"output_tokens"`
	OutputHas struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

// newResponse returns the whole response, or its beginning.
func newResponse(a *answer, whole bool) *response {
	r := &response{
		ID: "resp_" + a.id, Object: "response", CreatedAt: a.at.Unix(), Status: "in_progress", Model: a.model,
		Output: []responseOutput{}, Parallel: true, ToolChoice: "auto", Tools: []struct{}{},
	}
	if a.most > 0 {
		r.MaxOutput = &a.most
	}
	if !whole {
		return r
	}
	r.Status = "completed"
	if a.cut {
		r.Status, r.Incomplete = "incomplete", &responseReason{"max_output_tokens"}
	}
	r.Output = append(r.Output, responseMessage(a, r.Status, newPart(a.text)))
	r.Usage = &responseUsage{Input: a.tokens, Output: a.generated(), Total: a.tokens + a.generated()}
	r.Usage.InputHas.Cached, r.Usage.OutputHas.Reasoning = a.cached, a.thoughts
	return r
}

func responseMessage(a *answer, status string, parts ...responsePart) responseOutput {
	return responseOutput{"msg_" + a.id, "message", status, "assistant", append([]responsePart{}, parts...)}
}

func newPart(text string) responsePart { return responsePart{"output_text", text, []struct{}{}} }

// responseEvent has the fields of all kinds of events; zero fields are left out.
type responseEvent struct {
	Type     string          `json:"type"`
	Sequence int             `json:"sequence_number"`
	Response *response       `json:"response,omitempty"`
	Item     *responseOutput `json:"item,omitempty"`
	ItemID   string          `json:"item_id,omitempty"`
	Output   *int            `json:"output_index,omitempty"`
	Content  *int            `json:"content_index,omitempty"`
	Part     *responsePart   `json:"part,omitempty"`
	Delta    string          `json:"delta,omitempty"`
	Text     string          `json:"text,omitempty"`
	Logprobs *[]struct{}     `json:"logprobs,omitempty"`
}

type responseScript struct {
	a     *answer
	count int
}

// event numbers an event.
func (s *responseScript) event(e responseEvent) event {
	e.Sequence = s.count
	s.count++
	return event{name: e.Type, data: e}
}

func (s *responseScript) begin() []event {
	item := responseMessage(s.a, "in_progress")
	return []event{
		s.event(responseEvent{Type: "response.created", Response: newResponse(s.a, false)}),
		s.event(responseEvent{Type: "response.in_progress", Response: newResponse(s.a, false)}),
		s.event(responseEvent{Type: "response.output_item.added", Output: new(0), Item: &item}),
		s.part("response.content_part.added", responseEvent{Part: new(newPart(""))}),
	}
}

// part returns an event about the only part of the only item.
func (s *responseScript) part(kind string, e responseEvent) event {
	e.Type, e.ItemID, e.Output, e.Content = kind, "msg_"+s.a.id, new(0), new(0)
	return s.event(e)
}

func (s *responseScript) piece(text string, _ int) []event {
	return []event{s.part("response.output_text.delta", responseEvent{Delta: text, Logprobs: &[]struct{}{}})}
}

func (s *responseScript) end() []event {
	r := newResponse(s.a, true)
	return []event{
		s.part("response.output_text.done", responseEvent{Text: s.a.text, Logprobs: &[]struct{}{}}),
		s.part("response.content_part.done", responseEvent{Part: new(newPart(s.a.text))}),
		s.event(responseEvent{Type: "response.output_item.done", Output: new(0), Item: &r.Output[0]}),
		s.event(responseEvent{Type: "response." + r.Status, Response: r}),
	}
}

func (s *responseScript) broken() []event {
	r := newResponse(s.a, false)
	r.Status, r.Error = "failed", &responseError{"server_is_overloaded", "The server is currently overloaded. Please try again later."}
	return []event{s.event(responseEvent{Type: "response.failed", Response: r})}
}
