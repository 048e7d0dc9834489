package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-go/headway/internal/sim/serve"
)

// complete makes one call of a language model and gives its status and body.
func (s *served) complete(t *testing.T, path, field, key, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(field, key)
	res, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

func TestLanguageModelsAreServedWithTheLimitsOfTheFlags(t *testing.T) {
	const question = `{"model":"sim-small","max_tokens":400,"messages":[{"role":"user","content":"hello"}]}`
	s := provide(t, "--data", "llm", "--rpm", "4", "--tpm", "900", "--rpd", "50", "--pace", "0", "--output-tokens", "3")
	for _, want := range []string{"serving llm at " + s.url, "sliding_window 4/1m", "cost_window 900/1m", "fixed_window 50/1d", "language models", "/v1/chat/completions'"} {
		if !strings.Contains(s.banner, want) {
			t.Errorf("banner %q does not say %q", s.banner, want)
		}
	}
	for i, want := range []int{200, 200, 429} { // of 400 tokens each
		if status, body := s.complete(t, "/v1/chat/completions", "Authorization", "Bearer mine", question); status != want {
			t.Errorf("call %d: %d %s, want %d", i, status, body, want)
		}
	}
	if status, body := s.complete(t, "/v1/messages", "X-Api-Key", "yours", question); status != 200 || !strings.Contains(body, "end_turn") {
		t.Errorf("another API: %d %s, want it to weigh less", status, body)
	}
	_, body := s.get(t, "/-/stats", "")
	var st serve.Stats
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		t.Fatal(err)
	}
	mine, yours := st.ByKey[serve.KeyID("mine")], st.ByKey[serve.KeyID("yours")]
	if mine.Admitted != 2 || mine.Throttled != 1 || mine.Charged != 800 || yours.Admitted != 1 {
		t.Errorf("stats %s, want 2 admitted at 800 tokens and 1", body)
	}
	if code, last := s.end(); code != exitOK || !strings.Contains(last, "3 admitted, 1 refused (1 by cost_window 900/1m)") {
		t.Errorf("exit %d, %q", code, last)
	}
}

func TestLanguageModelsTakeAScenarioOfTheirOwn(t *testing.T) {
	file := scenarioFile(t, "one.yaml", "name: one\nprovider: {latency: {p50: 1ms}, limits: [{kind: sliding_window, limit: 1, window: 1h}]}\n")
	s := provide(t, tokenVariable+"=sesame", file, "--data", "llm")
	if !strings.Contains(s.banner, "serving one at") || strings.Contains(s.banner, "sesame") || !strings.Contains(s.banner, "$"+tokenVariable) {
		t.Errorf("banner %q, want the file's scenario and how to give the token", s.banner)
	}
	for _, tt := range []struct {
		key  string
		want int
	}{{"Bearer other", 401}, {"Bearer sesame", 200}, {"Bearer sesame", 429}} {
		if status, body := s.complete(t, "/v1/responses", "Authorization", tt.key, `{"model":"m","input":"hello"}`); status != tt.want {
			t.Errorf("%d %s, want %d", status, body, tt.want)
		}
	}
	s.end()
}

func TestFlagsOfLanguageModelsAreChecked(t *testing.T) {
	t.Setenv(tokenVariable, "")
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"unknown data":               {[]string{"--data", "images"}, `--data is "images"`},
		"a limit of other data":      {[]string{"--rpm", "5"}, "--rpm does not go with --data conversations"},
		"a pace of other data":       {[]string{"--pace", "5"}, "--pace does not go"},
		"a limit and a scenario":     {[]string{"strava", "--data", "llm", "--tpm", "5"}, `--tpm does not go with --data llm and scenario "strava"`},
		"a limit below zero":         {[]string{"--data", "llm", "--rpd", "-1"}, "RequestsPerDay is -1"},
		"a pace below zero":          {[]string{"--data", "llm", "--pace", "-1"}, "TokensPerSecond is -1"},
		"answers of nothing":         {[]string{"--data", "llm", "--output-tokens", "0"}, "--output-tokens is 0"},
		"a scenario that is nowhere": {[]string{"nowhere", "--data", "llm"}, `"nowhere"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, complaints := simulate(t, append([]string{"provider", "serve", "--listen", ":0"}, tt.args...)...)
			if code != exitUsage || out != "" || !strings.Contains(complaints, tt.want) {
				t.Errorf("exit %d, %q, %q, want %d and %q", code, out, complaints, exitUsage, tt.want)
			}
		})
	}
}
