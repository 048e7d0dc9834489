package llm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
)

// streams are the four kinds of stream, and what a chunk of text has in it.
var streams = []struct{ name, path, body, chunk string }{
	{"chat", chatPath, `{"model":"MODEL","messages":[{"role":"user","content":"hello"}],"stream":true}`, `"content":"`},
	{"responses", responsesPath, `{"model":"MODEL","input":"hello","stream":true}`, `"delta":"`},
	{"messages", messagesPath, `{"model":"MODEL","messages":[{"role":"user","content":"hello"}],"max_tokens":1000,"stream":true}`, `"text_delta"`},
	{"gemini", "/v1beta/models/MODEL:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"hello"}]}]}`, `"parts"`},
}

// chunks counts the chunks of text in a stream, without the empty one that
// opens a chat.
func chunks(stream, of string) int {
	n := strings.Count(stream, of)
	return n - strings.Count(stream, `"role":"assistant","content":""`)
}

func TestAStreamIsCutAfterSoManyChunks(t *testing.T) {
	s := provider(t, instant(""), llm.Options{Seed: 1, OutputTokens: 200}, serve.Options{})
	hs := httptest.NewServer(s)
	defer hs.Close()
	for _, tt := range streams {
		t.Run(tt.name, func(t *testing.T) {
			before := s.Stats().ByKey[serve.KeyID("key")]
			path, body := strings.Replace(tt.path, "MODEL", "sim-cut-after-3", 1), strings.Replace(tt.body, "MODEL", "sim-cut-after-3", 1)
			res := post(t.Context(), t, hs.Client(), hs.URL+path, body)
			got, err := finish(t, res)
			if res.StatusCode != 200 || !errors.Is(err, io.ErrUnexpectedEOF) || chunks(got, tt.chunk) != 3 {
				t.Errorf("%d with %d chunks and %v, want 3 and a cut:\n%s", res.StatusCode, chunks(got, tt.chunk), err, got)
			}
			if after := s.Stats().ByKey[serve.KeyID("key")]; after.Output-before.Output != 3*4 {
				t.Errorf("%d tokens counted, want the 12 that went out", after.Output-before.Output)
			}
		})
	}
}

func TestAPlainAnswerIsCutHalfway(t *testing.T) {
	s := provider(t, instant(""), llm.Options{}, serve.Options{})
	hs := httptest.NewServer(s)
	defer hs.Close()
	res := post(t.Context(), t, hs.Client(), hs.URL+chatPath, named(chatBody, "cut-after-1"))
	got, err := finish(t, res)
	if !errors.Is(err, io.ErrUnexpectedEOF) || int64(len(got)) != res.ContentLength/2 {
		t.Errorf("%d bytes of %d, %v, want half", len(got), res.ContentLength, err)
	}
}

func TestAStreamFlowsAtItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := strings.Replace(instant("  faults: [{at: 1h, for: 1h, kind: slow}]\n"), "p50: 0s", "p50: 1s", 1)
		src = strings.Replace(src, "name: test", "name: test\nhorizon: 2h", 1)
		s := provider(t, src, llm.Options{Seed: 1, TokensPerSecond: 8}, serve.Options{})
		c := client(t, s)
		body := `{"model":"sim-small","messages":[{"role":"user","content":"a long one"}],"max_tokens":10,"stream":true}`
		for _, slow := range []time.Duration{1, 10} {
			began := time.Now()
			res := post(t.Context(), t, c, "http://provider"+chatPath, body)
			if took := time.Since(began); took != slow*time.Second {
				t.Errorf("the answer begins after %s, want the latency of %s", took, slow*time.Second)
			}
			began = time.Now()
			var at []time.Duration
			buffer := make([]byte, 1<<16)
			for {
				n, err := res.Body.Read(buffer)
				if strings.Contains(string(buffer[:n]), `"content":"`) && !strings.Contains(string(buffer[:n]), `"content":""`) {
					at = append(at, time.Since(began))
				}
				if err != nil {
					if !errors.Is(err, io.EOF) {
						t.Error(err)
					}
					break
				}
			}
			_ = res.Body.Close()
			want := []time.Duration{500 * time.Millisecond, time.Second, 1250 * time.Millisecond}
			if len(at) != len(want) {
				t.Fatalf("chunks after %v, want %v, times %d", at, want, slow)
			}
			for i := range at {
				if at[i] != slow*want[i] {
					t.Errorf("chunks after %v, want %v, times %d", at, want, slow)
				}
			}
			time.Sleep(time.Hour)
		}
		began := time.Now()
		if _, err := fetch(t, c, "http://provider"+chatPath, strings.Replace(body, `"stream":true`, `"stream":false`, 1)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 2250*time.Millisecond {
			t.Errorf("a plain answer took %s, want latency and generation", took)
		}
	})
}

func TestFiftyStreamsAtOnce(t *testing.T) {
	s := provider(t, instant(""), llm.Options{Seed: 1, OutputTokens: 40}, serve.Options{})
	hs := httptest.NewServer(s)
	defer hs.Close()
	want := make(map[string]string)
	for _, tt := range streams {
		body, err := fetch(t, hs.Client(), hs.URL+strings.Replace(tt.path, "MODEL", "m", 1), strings.Replace(tt.body, "MODEL", "m", 1))
		if err != nil {
			t.Fatal(err)
		}
		want[tt.name] = undated(body)
	}
	one := s.Stats().ByKey[serve.KeyID("key")].Usage
	var wg sync.WaitGroup
	for i := range 52 {
		wg.Go(func() {
			tt := streams[i%len(streams)]
			body, err := fetch(t, hs.Client(), hs.URL+strings.Replace(tt.path, "MODEL", "m", 1), strings.Replace(tt.body, "MODEL", "m", 1))
			if err != nil || undated(body) != want[tt.name] {
				t.Errorf("%s, one of many, differs from the first: %v", tt.name, err)
			}
		})
	}
	wg.Wait()
	if k := s.Stats().ByKey[serve.KeyID("key")]; k.Output != 14*one.Output || k.Input != 14*one.Input {
		t.Errorf("%+v used in all, want 14 times %+v", k.Usage, one)
	}
}

// undated removes the times from a body.
func undated(body string) string {
	var b strings.Builder
	for _, field := range strings.SplitAfter(body, ",") {
		if !strings.HasPrefix(field, `"created`) {
			b.WriteString(field)
		}
	}
	return b.String()
}

// chatAnswer is the text of a plain chat answer.
func chatAnswer(t *testing.T, s *serve.Server, body string) string {
	t.Helper()
	var out struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			Completion int `json:"completion_tokens"`
		}
	}
	w := ask(t, s, http.MethodPost, chatPath, body, openAIKey)
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || len(out.Choices) != 1 {
		t.Fatalf("%v: %s", err, w.Body)
	}
	text := out.Choices[0].Message.Content
	if len(text) != 4*out.Usage.Completion {
		t.Errorf("%q has %d tokens by the rule, not %d", text, len(text)/4, out.Usage.Completion)
	}
	return text
}

func TestAnswersComeFromSeedModelAndPromptAlone(t *testing.T) {
	s := provider(t, instant(""), llm.Options{Seed: 1}, serve.Options{})
	body := `{"model":"m","messages":[{"role":"user","content":"hello"}]}`
	first := chatAnswer(t, s, body)
	for _, same := range []string{
		body,
		`{"messages":[{"content":"hello","role":"user"}],"model":"m","user":"someone","temperature":1}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}`,
	} {
		if got := chatAnswer(t, s, same); got != first {
			t.Errorf("%s is answered %q, not %q", same, got, first)
		}
	}
	other := provider(t, instant(""), llm.Options{Seed: 2}, serve.Options{})
	for name, got := range map[string]string{
		"seed":  chatAnswer(t, other, body),
		"model": chatAnswer(t, s, strings.Replace(body, `"m"`, `"n"`, 1)),
		"role":  chatAnswer(t, s, strings.Replace(body, `"user"`, `"system"`, 1)),
		"text":  chatAnswer(t, s, strings.Replace(body, "hello", "hallo", 1)),
	} {
		if got == first {
			t.Errorf("another %s is answered the same", name)
		}
	}
	if short := chatAnswer(t, s, with(body, `"max_tokens":3`)); !strings.HasPrefix(first, short[:11]) || len(short) != 12 {
		t.Errorf("three tokens are %q of %q", short, first)
	}
}

func TestOutagesResetsAndSuspensionsInEachLanguage(t *testing.T) {
	for _, tt := range []struct {
		path, body, key, outage, suspended string
		status                             int
	}{
		{chatPath, chatBody, openAIKey, "server_is_overloaded", "account_deactivated", 503},
		{azurePath, chatBody, azureKey, "server_is_overloaded", "account_deactivated", 503},
		{messagesPath, messageBody, anthropicKey, "overloaded_error", "permission_error", 529},
		{geminiPath, geminiBody, geminiKey, "UNAVAILABLE", "PERMISSION_DENIED", 503},
	} {
		out := provider(t, instant("  faults: [{at: 0s, for: 1h, kind: outage}]\n"), llm.Options{}, serve.Options{})
		if w := ask(t, out, http.MethodPost, tt.path, tt.body, tt.key); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.outage) {
			t.Errorf("%s in an outage: %d %s", tt.path, w.Code, w.Body)
		}
		if st := out.Stats(); st.Failed != 1 || st.ByLimit["outage"] != 1 {
			t.Errorf("stats %+v, want one failure", st)
		}
		gone := provider(t, instant("  limits: [{kind: fixed_window, limit: 1, window: 1h, align: first}]\n  suspend: {throttles: 1, within: 1h}\n"), llm.Options{}, serve.Options{})
		var last *httptest.ResponseRecorder
		for range 3 {
			last = ask(t, gone, http.MethodPost, tt.path, tt.body, tt.key)
		}
		if last.Code != 403 || !strings.Contains(last.Body.String(), tt.suspended) {
			t.Errorf("%s when suspended: %d %s", tt.path, last.Code, last.Body)
		}
	}
	s := provider(t, instant("  faults: [{at: 0s, for: 1h, kind: reset}]\n"), llm.Options{}, serve.Options{})
	hs := httptest.NewServer(s)
	defer hs.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, hs.URL+chatPath, strings.NewReader(chatBody))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer key")
	if res, err := hs.Client().Do(r); err == nil {
		_ = res.Body.Close()
		t.Errorf("%d, want a reset connection", res.StatusCode)
	}
}

func TestAPromptThatIsTooLargeIsRefused(t *testing.T) {
	s := provider(t, instant(""), llm.Options{}, serve.Options{})
	body := `{"model":"` + strings.Repeat("x", 9<<20) + `"}`
	for path, key := range map[string]string{chatPath: openAIKey, messagesPath: anthropicKey, geminiPath: geminiKey} {
		if w := ask(t, s, http.MethodPost, path, body, key); w.Code != 413 || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %d %s, want 413", path, w.Code, w.Body)
		}
	}
	if st := s.Stats(); st.Admitted != 0 {
		t.Errorf("%d were admitted", st.Admitted)
	}
}

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
