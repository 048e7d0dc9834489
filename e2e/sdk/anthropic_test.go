package sdk_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"google.golang.org/genai"

	"github.com/headway-go/headway/e2e/internal/harness"
)

func claude(url string, more ...option.RequestOption) anthropic.Client {
	return anthropic.NewClient(append([]option.RequestOption{
		option.WithBaseURL(url + "/anthropic"), option.WithAPIKey(clientKey), option.WithMaxRetries(0),
	}, more...)...)
}

func message(model string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: anthropic.Model(model), MaxTokens: 40,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
	}
}

func TestAnthropicUsageIsAccountedToTheToken(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, wide)
	c := claude(p.URL)
	r, err := c.Messages.New(t.Context(), message("sim-small"))
	if err != nil {
		t.Fatal(err)
	}
	want := r.Usage.InputTokens + r.Usage.CacheCreationInputTokens + r.Usage.CacheReadInputTokens + r.Usage.OutputTokens
	st := c.Messages.NewStreaming(t.Context(), message("sim-thinking"))
	var acc anthropic.Message
	for st.Next() {
		if err := acc.Accumulate(st.Current()); err != nil {
			t.Error(err)
		}
	}
	if st.Err() != nil || acc.StopReason == "" {
		t.Errorf("the stream ended with %q, %v", acc.StopReason, st.Err())
	}
	want += acc.Usage.InputTokens + acc.Usage.CacheCreationInputTokens + acc.Usage.CacheReadInputTokens + acc.Usage.OutputTokens
	checkUse(t, p, up, "anthropic", 2, want)
	// Counting tokens is an attempt, but costs none.
	n, err := c.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: "sim-small", Messages: message("sim-small").Messages})
	if err != nil || n.InputTokens == 0 {
		t.Errorf("count_tokens: %v, %v", n, err)
	}
	if _, err := c.Models.List(t.Context(), anthropic.ModelListParams{}); err != nil {
		t.Error(err)
	}
	checkUse(t, p, up, "anthropic", 2, want)
}

func TestAnthropicErrorsAreTyped(t *testing.T) {
	t.Parallel() // the SDKs wait
	up := upstream(t)
	p := govern(t, up, wide)
	for _, c := range []struct {
		model  string
		status int
		typ    string
	}{
		{"throttled", 429, "rate_limit_error"}, {"overloaded", 529, "overloaded_error"}, {"quota-exhausted", 429, "rate_limit_error"},
	} {
		_, err := new(claude(p.URL)).Messages.New(t.Context(), message(c.model))
		e, ok := errors.AsType[*anthropic.Error](err)
		if !ok || e.StatusCode != c.status || string(e.Type()) != c.typ {
			t.Errorf("%s: got %v, want a typed %d %s", c.model, err, c.status, c.typ)
		}
	}
}

func TestAnthropicErrorInsideAStream(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, wide)
	for _, model := range []string{"sim-error-in-stream", "sim-cut-after-2"} {
		st := new(claude(p.URL)).Messages.NewStreaming(t.Context(), message(model))
		n := 0
		for st.Next() {
			n++
		}
		if st.Err() == nil || n == 0 {
			t.Errorf("%s: %d events, then %v; want some, then an error", model, n, st.Err())
		}
	}
	if used := p.accounted(t, "anthropic").Global.Ledger.Used; used == 0 {
		t.Error("nothing accounted for streams that broke off")
	}
}

// TestAnthropicHonoursRetryAfter: the refusal of the proxy's own is retried by
// the SDK when Retry-After said so, and not before.
func TestAnthropicHonoursRetryAfter(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, "    max_wait: 500ms\n    pacing: {ceiling: 1ms}\n    quota: {global: {calls_per_minute: 40, burst: 1}}\n")
	c := claude(p.URL, option.WithMaxRetries(3))
	began := time.Now()
	for range 2 {
		if _, err := c.Messages.New(t.Context(), message("sim-small")); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("the second call was made after %v, its budget allows one in 1.5 s", took)
	}
	// One a minute, so that the second is refused however slow the machine is.
	p = govern(t, up, "    max_wait: 500ms\n    pacing: {ceiling: 1ms}\n    quota: {global: {calls_per_minute: 1, burst: 1}}\n")
	c = claude(p.URL)
	if _, err := c.Messages.New(t.Context(), message("sim-small")); err != nil {
		t.Fatal(err)
	}
	_, err := c.Messages.New(t.Context(), message("sim-small"))
	e, ok := errors.AsType[*anthropic.Error](err)
	if !ok || e.StatusCode != 429 || e.Type() != "rate_limit_error" || e.Response.Header.Get("Retry-After") == "" {
		t.Errorf("got %v, want a typed rate_limit_error with Retry-After", err)
	}
}

func TestCancelReachesTheProvider(t *testing.T) {
	up := upstream(t, "--pace", "5", "--output-tokens", "400")
	p := govern(t, up, wide)
	ctx, cancel := context.WithCancel(t.Context())
	params := message("sim-small")
	params.MaxTokens = 400
	st := new(claude(p.URL)).Messages.NewStreaming(ctx, params)
	if !st.Next() {
		t.Fatal(st.Err())
	}
	if n := stats(t, up).InFlight; n != 1 {
		t.Errorf("%d calls under way at the provider, want 1", n)
	}
	cancel()
	harness.Eventually(t, "the provider has no call under way", func() bool { return stats(t, up).InFlight == 0 })
	s := p.accounted(t, "anthropic")
	in, out := p.used(t, "anthropic")
	if in == 0 || out > 20 || s.Global.Ledger.Used != in+out {
		t.Errorf("%d tokens of input and %d of output counted and %d charged for a stream that was left at its beginning", in, out, s.Global.Ledger.Used)
	}
}

func gemini(t *testing.T, url string) *genai.Client {
	t.Helper()
	c, err := genai.NewClient(t.Context(), &genai.ClientConfig{
		APIKey: clientKey, Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: url + "/gemini"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGeminiUsageIsAccountedToTheToken(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, wide)
	c := gemini(t, p.URL)
	r, err := c.Models.GenerateContent(t.Context(), "sim-thinking", genai.Text(prompt), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := int64(r.UsageMetadata.TotalTokenCount)
	var last *genai.GenerateContentResponse
	for r, err := range c.Models.GenerateContentStream(t.Context(), "sim-small", genai.Text(prompt), nil) {
		if err != nil {
			t.Fatal(err)
		}
		last = r
	}
	want += int64(last.UsageMetadata.TotalTokenCount)
	if _, err := c.Models.CountTokens(t.Context(), "sim-small", genai.Text(prompt), nil); err != nil {
		t.Error(err)
	}
	checkUse(t, p, up, "gemini", 2, want)
	// Its tokens a minute are those of the input; the ledger has both sides.
	if used := p.accounted(t, "gemini").Global.Ledger.Used; used != want {
		t.Errorf("%d tokens in the ledger, want the %d that were used", used, want)
	}
}

func TestGeminiErrorsAreTyped(t *testing.T) {
	t.Parallel() // the SDKs wait
	up := upstream(t)
	p := govern(t, up, wide)
	c := gemini(t, p.URL)
	for _, m := range []struct {
		model, status string
		code          int
	}{
		{"throttled", "RESOURCE_EXHAUSTED", 429}, {"overloaded", "UNAVAILABLE", 503}, {"quota-exhausted", "RESOURCE_EXHAUSTED", 429},
	} {
		_, err := c.Models.GenerateContent(t.Context(), m.model, genai.Text(prompt), nil)
		if e, ok := errors.AsType[genai.APIError](err); !ok || e.Code != m.code || e.Status != m.status {
			t.Errorf("%s: got %v, want a typed %d %s", m.model, err, m.code, m.status)
		}
	}
}

func TestGeminiRefusalIsTyped(t *testing.T) {
	up := upstream(t)
	p := govern(t, up, "    max_wait: 500ms\n    pacing: {ceiling: 1ms}\n    quota: {global: {max_daily_calls: 1}}\n")
	c := gemini(t, p.URL)
	if _, err := c.Models.GenerateContent(t.Context(), "sim-small", genai.Text(prompt), nil); err != nil {
		t.Fatal(err)
	}
	_, err := c.Models.GenerateContent(t.Context(), "sim-small", genai.Text(prompt), nil)
	if e, ok := errors.AsType[genai.APIError](err); !ok || e.Code != 429 || e.Status != "RESOURCE_EXHAUSTED" {
		t.Errorf("got %v, want a typed 429 RESOURCE_EXHAUSTED", err)
	}
	if k := served(t, up); k.Admitted != 1 {
		t.Errorf("the provider served %d calls, the day's cap is 1", k.Admitted)
	}
}
