package provider_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/reason"
)

func ExampleDescription_Call() {
	d, _ := provider.Builtin(provider.OpenAI)
	call, err := d.Call("POST", "/v1/chat/completions", []byte(`{
		"model": "gpt-4o", "stream": true, "max_tokens": 100, "n": 2,
		"messages": [{"role": "user", "content": [
			{"type": "text", "text": "What is this?"},
			{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
		]}]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(call.Model, call.Metered, call.Stream, call.MaxTokens, call.Shape)
	for text := range call.Texts {
		fmt.Println(text)
	}
	fmt.Println(call.Extra, "tokens that are not text")
	// Output:
	// gpt-4o true true 200 openai-chat
	// What is this?
	// 85 tokens that are not text
}

// A provider that copies OpenAI's API is a few lines.
func ExampleNew() {
	d, err := provider.New(provider.Settings{API: provider.OpenAI, Upstream: "https://api.groq.com/openai", Charge: "total"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Upstream, d.Auth.Header, d.Charge)
	_, err = provider.New(provider.Settings{API: "grok"})
	fmt.Println(err)
	// Output:
	// https://api.groq.com/openai Authorization total
	// provider: api is "grok", must be one of [openai azure-openai anthropic gemini http]
}

func ExampleDescription_SetKey() {
	d, _ := provider.Builtin(provider.Gemini)
	r := httptest.NewRequest("POST", "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse&key=hw_ours", nil)
	fmt.Println(d.Key(r))
	d.SetKey(r, "the-providers")
	fmt.Println(r.URL.RawQuery, r.Header)
	// Output:
	// hw_ours
	// alt=sse map[X-Goog-Api-Key:[the-providers]]
}

func ExampleDescription_Forward() {
	d, _ := provider.Builtin(provider.Anthropic)
	up := http.Header{}
	d.Forward(up, http.Header{
		"Anthropic-Version": {"2023-06-01"}, "X-Api-Key": {"hw_ours"}, "Cookie": {"session=1"}, "X-Headway-Tenant": {"a"},
	})
	fmt.Println(up)
	// Output: map[Anthropic-Version:[2023-06-01]]
}

func ExampleDescription_Refuse() {
	d, _ := provider.Builtin(provider.Anthropic)
	w := httptest.NewRecorder()
	d.Refuse(w, provider.Refusal{
		Status: http.StatusTooManyRequests, Code: "RATE_THROTTLED", Reason: reason.Pacing,
		Message: "No room in time.", RetryIn: 2300 * time.Millisecond, Retry: true,
	})
	h := w.Header()
	fmt.Println(w.Code, h.Get("Retry-After"), h.Get("Retry-After-Ms"), h.Get("X-Should-Retry"))
	fmt.Println(w.Body)
	// Output:
	// 429 3 2300 true
	// {"type":"error","title":"Too Many Requests","status":429,"detail":"No room in time.","code":"RATE_THROTTLED","reason":"pacing","retry_after_ms":2300,"error":{"type":"rate_limit_error","message":"No room in time."},"request_id":null}
}

func ExampleDescription_Classify() {
	d, _ := provider.Builtin(provider.OpenAI)
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	s := d.Classify(now, 429, http.Header{"Retry-After-Ms": {"250"}}, []byte(`{"error":{"code":"rate_limit_exceeded"}}`))
	fmt.Println(s.Class, s.RetryAfter, s.Exhausted)
	s = d.Classify(now, 429, nil, []byte(`{"error":{"type":"insufficient_quota"}}`))
	fmt.Println(s.Class, s.RetryAfter, s.Exhausted)
	// Output:
	// throttled 250ms false
	// throttled 0s true
}

func ExampleFindProfile() {
	p, err := provider.FindProfile("github")
	fmt.Println(p.Name(), p.Pools(), err)
	// Output: github [graphql code_search search core] <nil>
}
