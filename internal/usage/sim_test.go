package usage_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
)

// provider serves a simulated provider.
func provider(tb testing.TB) (*httptest.Server, *serve.Server) {
	tb.Helper()
	limits, err := llm.Limits{RequestsPerMinute: 1e5, TokensPerMinute: 1e9}.Scenario()
	if err != nil {
		tb.Fatal(err)
	}
	limits.Provider.Latency = scenario.Latency{}
	models, err := llm.New(llm.Options{Seed: 7})
	if err != nil {
		tb.Fatal(err)
	}
	p, err := serve.New(limits, serve.Options{APIs: []serve.API{models}})
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(p)
	tb.Cleanup(server.Close)
	return server, p
}

// ask posts a call and gives the answer's type and body, also one cut short.
func ask(tb testing.TB, server *httptest.Server, key, path, body string) (kind string, answer []byte) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, server.URL+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	for _, field := range []string{"X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
		r.Header.Set(field, key)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := server.Client().Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		tb.Fatalf("%s answered %s", path, res.Status)
	}
	answer, _ = io.ReadAll(res.Body) // some are cut short on purpose
	return res.Header.Get("Content-Type"), answer
}

// calls are the simulated provider's endpoints; %[1]s is the model, %[2]s the prompt.
var calls = []struct {
	name       string
	shape      usage.Shape
	path, body string
}{
	{"chat", usage.OpenAIChat, "/v1/chat/completions", `{"model":"%[1]s","messages":[{"role":"user","content":"%[2]s"}]}`},
	{"chat stream", usage.OpenAIChat, "/v1/chat/completions", `{"model":"%[1]s","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"%[2]s"}]}`},
	{"azure stream", usage.OpenAIChat, "/openai/deployments/%[1]s/chat/completions", `{"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"%[2]s"}]}`},
	{"responses", usage.OpenAIResponses, "/v1/responses", `{"model":"%[1]s","input":"%[2]s"}`},
	{"responses stream", usage.OpenAIResponses, "/v1/responses", `{"model":"%[1]s","stream":true,"input":"%[2]s"}`},
	{"messages", usage.Anthropic, "/v1/messages", `{"model":"%[1]s","max_tokens":9999,"messages":[{"role":"user","content":"%[2]s"}]}`},
	{"messages stream", usage.Anthropic, "/v1/messages", `{"model":"%[1]s","stream":true,"max_tokens":9999,"messages":[{"role":"user","content":"%[2]s"}]}`},
	{"gemini", usage.Gemini, "/v1beta/models/%[1]s:generateContent", `{"contents":[{"role":"user","parts":[{"text":"%[2]s"}]}]}`},
	{"gemini stream", usage.Gemini, "/v1beta/models/%[1]s:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":"%[2]s"}]}]}`},
	{"gemini array", usage.Gemini, "/v1beta/models/%[1]s:streamGenerateContent", `{"contents":[{"role":"user","parts":[{"text":"%[2]s"}]}]}`},
}

func TestAgainstTheProvidersBooks(t *testing.T) {
	server, books := provider(t)
	for _, model := range []string{"sim-small", "sim-thinking"} {
		for i, c := range calls {
			for j, prompt := range []string{"hello", strings.Repeat("a longer prompt ", 400), strings.Repeat("another prompt ", 401)} {
				key := fmt.Sprint(model, i, j)
				t.Run(key, func(t *testing.T) {
					t.Parallel()
					kind, body := ask(t, server, key, format(c.path, model, prompt), format(c.body, model, prompt))
					s := usage.NewScanner(c.shape, kind)
					_, _ = s.Write(body) // never fails
					got, row := s.Report(), books.Stats().ByKey[serve.KeyID(key)]
					// The books do not say what was thought; of the APIs, Anthropic's does not.
					want := quota.Usage{Input: row.Input, Cached: row.Cached, Output: row.Output, Reasoning: got.Usage.Reasoning}
					if thought := got.Usage.Reasoning > 0; thought != (model == "sim-thinking" && c.shape != usage.Anthropic) {
						t.Errorf("%s: %d tokens of reasoning", c.name, got.Usage.Reasoning)
					}
					if diff := cmp.Diff(want, got.Usage); diff != "" || !got.Reported || !got.Ended || got.Problem != usage.NoProblem {
						t.Errorf("%s: %+v (-want +got):\n%s", c.name, got, diff)
					}
				})
			}
		}
	}
}

// format fills in a model and a prompt, either of which may not be there.
func format(text, model, prompt string) string {
	return strings.NewReplacer("%[1]s", model, "%[2]s", prompt).Replace(text)
}

func TestBrokenStreams(t *testing.T) {
	server, books := provider(t)
	for i, c := range calls {
		if !strings.Contains(c.name, "stream") && !strings.Contains(c.name, "array") {
			continue
		}
		for model, problem := range map[string]string{"sim-cut-after-5": usage.NoProblem, "sim-error-after-5": usage.Overloaded} {
			key := fmt.Sprint(model, i)
			t.Run(key, func(t *testing.T) {
				t.Parallel()
				kind, body := ask(t, server, key, format(c.path, model, "hello"), format(c.body, model, "hello"))
				s := usage.NewScanner(c.shape, kind)
				_, _ = s.Write(body) // never fails
				got, row := s.Report(), books.Stats().ByKey[serve.KeyID(key)]
				if got.Reported || got.Problem != problem {
					t.Errorf("%s: %+v, want the problem %q and nothing reported", c.name, got, problem)
				}
				if got.Usage.Output < row.Output*8/10 || got.Usage.Output > row.Output*13/10 {
					t.Errorf("%s: output %d of %d", c.name, got.Usage.Output, row.Output)
				}
			})
		}
	}
}

func TestStripperGivesTheStreamThatWasAskedFor(t *testing.T) {
	server, _ := provider(t)
	plain := `{"model":"sim-small","stream":true,"messages":[{"role":"user","content":"hello"}]}`
	_, want := ask(t, server, "key", "/v1/chat/completions", plain)
	injected, changed := usage.Inject([]byte(plain))
	if !changed {
		t.Fatal("nothing injected")
	}
	_, body := ask(t, server, "key", "/v1/chat/completions", string(injected))
	if string(body) == string(want) {
		t.Fatal("the provider added nothing")
	}
	if diff := cmp.Diff(undated(string(want)), undated(strip(t, string(body)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// undated takes out the seconds at which chunks were created.
func undated(stream string) string {
	parts := strings.Split(stream, `"created":`)
	for i := range parts[1:] {
		_, parts[i+1], _ = strings.Cut(parts[i+1], ",")
	}
	return strings.Join(parts, "")
}
