package llm_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
)

const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
	messagesPath  = "/v1/messages"
	azurePath     = "/openai/deployments/blue/chat/completions?api-version=2024-10-21"
	geminiPath    = "/v1beta/models/sim-small:generateContent"
	geminiStream  = "/v1beta/models/sim-small:streamGenerateContent?alt=sse"

	chatBody     = `{"model":"sim-small","messages":[{"role":"user","content":"Where is the train?"}],"max_tokens":6}`
	responseBody = `{"model":"sim-small","input":"Where is the train?","max_output_tokens":6}`
	messageBody  = `{"model":"sim-small","messages":[{"role":"user","content":"Where is the train?"}],"max_tokens":6}`
	geminiBody   = `{"contents":[{"role":"user","parts":[{"text":"Where is the train?"}]}],"generationConfig":{"maxOutputTokens":6}}`

	openAIKey    = "Authorization: Bearer sk-test"
	azureKey     = "Api-Key: azure-test"
	anthropicKey = "X-Api-Key: sk-ant-test"
	geminiKey    = "X-Goog-Api-Key: gemini-test"
	version      = "Anthropic-Version: 2023-06-01"
)

// with adds fields to a body, and named names another model.
func with(body, fields string) string { return strings.TrimSuffix(body, "}") + "," + fields + "}" }

func named(body, model string) string { return strings.Replace(body, "sim-small", model, 1) }

// long is a prompt that a cache holds.
var long = strings.Repeat("wait for the signal ", 300)

// shapes are calls whose whole answers are in golden.txtar: each after the
// warm-up, if it has one, on a provider of its own.
var shapes = []struct {
	name, section string
	warm          int // the same call before, so many times
	path, body    string
	header        []string
}{
	{"chat", "", 0, chatPath, chatBody, []string{openAIKey}},
	{"chat-natural-end", "", 0, chatPath, `{"model":"sim-small","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"image_url","image_url":{"url":"data:,x"}}]}]}`, []string{openAIKey}},
	{"chat-stream", "", 0, chatPath, with(chatBody, `"stream":true`), []string{openAIKey}},
	{"chat-stream-usage", "", 0, chatPath, with(chatBody, `"stream":true,"stream_options":{"include_usage":true}`), []string{openAIKey}},
	{"chat-stream-error", "", 0, chatPath, with(named(chatBody, "sim-error-in-stream"), `"stream":true`), []string{openAIKey}},
	{"chat-thinking-cached", "", 0, chatPath, `{"model":"sim-thinking","messages":[{"role":"user","content":"` + long + `"}],"max_completion_tokens":9}`, []string{openAIKey}},
	{"chat-limited", "  limits: [{kind: sliding_window, limit: 9, window: 1m}, {kind: cost_window, limit: 1000, window: 1m}]\n", 0, chatPath, chatBody, []string{openAIKey}},
	{"chat-throttled-requests", "  limits: [{kind: sliding_window, limit: 2, window: 1m}]\n", 2, chatPath, chatBody, []string{openAIKey}},
	{"chat-throttled-tokens", "  limits: [{kind: sliding_window, limit: 9, window: 1m}, {kind: cost_window, limit: 30, window: 1m}]\n", 2, chatPath, chatBody, []string{openAIKey}},
	{"chat-throttled-day", "  limits: [{kind: fixed_window, limit: 1, window: 24h}]\n", 1, chatPath, chatBody, []string{openAIKey}},
	{"chat-no-quota", "", 0, chatPath, named(chatBody, "sim-quota-exhausted"), []string{openAIKey}},
	{"chat-overloaded", "  faults: [{at: 0s, for: 1h, kind: outage}]\n", 0, chatPath, chatBody, []string{openAIKey}},
	{"chat-suspended", "  limits: [{kind: sliding_window, limit: 1, window: 1h}]\n  suspend: {throttles: 1, within: 1h}\n", 2, chatPath, chatBody, []string{openAIKey}},
	{"chat-without-key", "", 0, chatPath, chatBody, nil},
	{"chat-malformed", "", 0, chatPath, `{"model":`, []string{openAIKey}},
	{"openai-nowhere", "", 0, "/v1/nowhere", `{}`, []string{openAIKey}},
	{"responses", "", 0, responsesPath, responseBody, []string{openAIKey}},
	{"responses-stream", "", 0, responsesPath, `{"model":"sim-small","instructions":"Be brief.","input":[{"role":"user","content":[{"type":"input_text","text":"Where?"}]},{"type":"function_call_output","call_id":"c","output":"here"}],"stream":true}`, []string{openAIKey}},
	{"responses-stream-incomplete", "", 0, responsesPath, with(strings.Replace(responseBody, ":6", ":2", 1), `"stream":true`), []string{openAIKey}},
	{"responses-stream-error", "", 0, responsesPath, with(named(responseBody, "error-after-0"), `"stream":true`), []string{openAIKey}},
	{"azure", "", 0, azurePath, chatBody, []string{azureKey}},
	{"azure-throttled", "  limits: [{kind: cost_window, limit: 30, window: 10s}]\n", 2, azurePath, chatBody, []string{azureKey}},
	{"azure-without-key", "", 0, azurePath, chatBody, nil},
	{"messages", "", 0, messagesPath, messageBody, []string{anthropicKey, version}},
	{"messages-stream", "", 0, messagesPath, with(messageBody, `"stream":true,"system":"Be brief."`), []string{anthropicKey, version}},
	{"messages-stream-error", "", 0, messagesPath, with(named(messageBody, "error-in-stream"), `"stream":true`), []string{anthropicKey, version}},
	{"messages-cached", "", 0, messagesPath, `{"model":"sim-small","messages":[{"role":"user","content":"` + long + `"}],"max_tokens":3}`, []string{anthropicKey, version}},
	{"messages-limited", "  limits: [{kind: sliding_window, limit: 9, window: 1m}, {kind: cost_window, limit: 5000, window: 1m}]\n", 0, messagesPath, messageBody, []string{anthropicKey, version}},
	{"messages-throttled", "  limits: [{kind: cost_window, limit: 30, window: 1m}]\n", 1, messagesPath, messageBody, []string{anthropicKey, version}},
	{"messages-overloaded", "", 0, messagesPath, named(messageBody, "sim-overloaded"), []string{anthropicKey, version}},
	{"messages-no-quota", "", 0, messagesPath, named(messageBody, "sim-quota-exhausted"), []string{anthropicKey, version}},
	{"messages-without-key", "", 0, messagesPath, messageBody, []string{version}},
	{"messages-unbounded", "", 0, messagesPath, `{"model":"sim-small","messages":[{"role":"user","content":"Hi"}]}`, []string{anthropicKey, version}},
	{"messages-count", "", 0, messagesPath + "/count_tokens", `{"model":"sim-small","messages":[{"role":"user","content":"Hi"}]}`, []string{anthropicKey, version}},
	{"anthropic-nowhere", "", 0, "/v1/nowhere", `{}`, []string{anthropicKey, version}},
	{"gemini", "", 0, geminiPath, geminiBody, []string{geminiKey}},
	{"gemini-stream", "", 0, geminiStream, geminiBody, []string{geminiKey}},
	{"gemini-stream-array", "", 0, strings.TrimSuffix(geminiStream, "?alt=sse"), geminiBody, []string{geminiKey}},
	{"gemini-stream-error", "", 0, named(geminiStream, "sim-error-in-stream"), geminiBody, []string{geminiKey}},
	{"gemini-thinking-cached", "", 0, named(geminiPath, "sim-thinking"), `{"systemInstruction":{"parts":[{"text":"` + long + `"}]},"contents":[{"parts":[{"text":"Hi"}]}]}`, []string{geminiKey}},
	{"gemini-throttled-minute", "  limits: [{kind: cost_window, limit: 13, window: 1m}]\n", 1, geminiPath, geminiBody, []string{geminiKey}},
	{"gemini-throttled-day", "  limits: [{kind: fixed_window, limit: 1, window: 24h}]\n", 1, geminiPath, geminiBody, []string{geminiKey}},
	{"gemini-throttled-bare", "  limits: [{kind: concurrency, limit: 1}]\n", 0, named(geminiPath, "sim-throttled"), geminiBody, []string{geminiKey}},
	{"gemini-without-key", "", 0, geminiPath, geminiBody, nil},
	{"gemini-count", "", 0, "/v1beta/models/sim-small:countTokens", geminiBody, []string{geminiKey}},
	{"gemini-nowhere", "", 0, "/v1beta/models/sim-small:embedContent", geminiBody, []string{geminiKey}},
}

func TestShapes(t *testing.T) {
	archive := answers(t)
	for _, tt := range shapes {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := provider(t, instant(tt.section), llm.Options{Seed: 1, OutputTokens: 6}, serve.Options{})
				for range tt.warm {
					ask(t, s, http.MethodPost, tt.path, tt.body, tt.header...)
					time.Sleep(1234567 * time.Microsecond)
				}
				w := ask(t, s, http.MethodPost, tt.path, tt.body, tt.header...)
				archive.Check(t, tt.name+".http", written(w))
			})
		})
	}
}

func TestListsOfModels(t *testing.T) {
	archive := answers(t)
	s := provider(t, instant("  limits: [{kind: sliding_window, limit: 1, window: 1h}]\n"), llm.Options{}, serve.Options{})
	for _, tt := range []struct {
		name, path string
		header     []string
	}{
		{"models-openai", "/v1/models", []string{openAIKey}},
		{"models-anthropic", "/v1/models", []string{anthropicKey, version}},
		{"models-gemini", "/v1beta/models", []string{geminiKey}},
	} {
		w := ask(t, s, http.MethodGet, tt.path, "", tt.header...)
		archive.Check(t, tt.name+".http", written(w))
	}
	if st := s.Stats(); st.Admitted+st.Throttled != 0 {
		t.Errorf("stats %+v, want lists to meet no limit", st)
	}
}

// answers is the archive of whole answers.
func answers(t *testing.T) *golden.Archive {
	t.Helper()
	return golden.Open(t, filepath.Join("testdata", "golden.txtar"))
}

// written is an answer as the archive has it: status, header in order, body.
func written(w *httptest.ResponseRecorder) string {
	var b strings.Builder
	fmt.Fprintln(&b, w.Code)
	for _, field := range slices.Sorted(maps.Keys(w.Header())) {
		fmt.Fprintf(&b, "%s: %s\n", field, strings.Join(w.Header()[field], " | "))
	}
	// Files have no carriage returns, so that no tool takes them away.
	fmt.Fprintf(&b, "\n%s\n", strings.ReplaceAll(w.Body.String(), "\r", `\r`))
	return b.String()
}
