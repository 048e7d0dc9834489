package sdk_test

import (
	"errors"
	"testing"

	"google.golang.org/genai"
)

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
