package llm_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-go/headway/internal/leaktest"
	"github.com/headway-go/headway/internal/pipenet"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// instant is a provider that answers at once, with the limits and other entries
// of a scenario's section.
func instant(section string) string {
	return "name: test\nprovider:\n  latency: {p50: 0s}\n  throttle: {retry_after: exact}\n" + section
}

// provider serves language models.
func provider(t testing.TB, src string, opt llm.Options, server serve.Options) *serve.Server {
	t.Helper()
	api, err := llm.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := scenario.Parse("test.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	server.APIs = append(server.APIs, api)
	s, err := serve.New(cfg, server)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask makes one request without a network. Header fields are "Name: value".
func ask(t testing.TB, h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(t, method, path, body, header...))
	return w
}

func request(t testing.TB, method, path, body string, header ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for _, field := range header {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Set(name, value)
	}
	return r
}

// entries reads a log back whole.
func entries(t testing.TB, log *bytes.Buffer) []serve.Entry {
	t.Helper()
	var all []serve.Entry
	for e, err := range serve.ReadLog(log) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// client talks to a server over pipes; both end with the test.
func client(t *testing.T, s *serve.Server) *http.Client {
	t.Helper()
	transport, _ := pipenet.Serve(t, s)
	return &http.Client{Transport: transport}
}

// post sends a body to http://provider and leaves the answer open.
func post(ctx context.Context, t testing.TB, c *http.Client, url, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer key")
	r.Header.Set("X-Goog-Api-Key", "key")
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// finish reads an answer to its end.
func finish(t testing.TB, res *http.Response) (body string, err error) {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if e := res.Body.Close(); e != nil {
		t.Error(e)
	}
	return string(b), err
}

// fetch asks and reads the answer to its end.
func fetch(t testing.TB, c *http.Client, url, body string) (answer string, err error) {
	t.Helper()
	res := post(t.Context(), t, c, url, body)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

// Headway must read from an answer what the simulated provider charged.
func TestTheClientSideReadsWhatIsMeant(t *testing.T) {
	const minute = "  limits: [{kind: sliding_window, limit: 1, window: 1m}, {kind: cost_window, limit: 9000, window: 1m}]\n"
	const day = "  limits: [{kind: fixed_window, limit: 1, window: 24h}]\n"
	for _, api := range []struct{ name, path, body, key string }{
		{"openai", chatPath, chatBody, openAIKey},
		{"responses", responsesPath, responseBody, openAIKey},
		{"azure", "/openai/v1/chat/completions", chatBody, azureKey},
		{"anthropic", messagesPath, messageBody, anthropicKey},
		{"gemini", geminiPath, geminiBody, geminiKey},
	} {
		for _, tt := range []struct {
			name, section, model string
			calls                int
			class                reason.Class
			exhausted            bool
			wait                 time.Duration // at least; -1 means none
		}{
			{"an answer", minute, "sim-small", 1, reason.OK, false, -1},
			{"a minute's limit", minute, "sim-small", 2, reason.Throttled, false, 59 * time.Second},
			{"on demand", "", "sim-throttled", 1, reason.Throttled, false, time.Second},
			{"overload", "", "sim-overloaded", 1, reason.Overloaded, false, -1},
			{"no money", "", "sim-quota-exhausted", 1, reason.Throttled, true, -1},
			{"a day's limit", day, "sim-small", 2, reason.Throttled, api.name == "gemini", -1},
		} {
			t.Run(api.name+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := provider(t, instant(tt.section), llm.Options{Seed: 1}, serve.Options{})
					var got signal.Signal
					for range tt.calls {
						w := ask(t, s, http.MethodPost, named(api.path, tt.model), named(api.body, tt.model), api.key)
						got = signal.Read(time.Now(), w.Code, w.Header(), w.Body.Bytes())
						time.Sleep(time.Second / 2)
					}
					if got.Class != tt.class || got.Exhausted != tt.exhausted || tt.wait >= 0 && (!got.HasRetryAfter || got.RetryAfter < tt.wait) {
						t.Errorf("read as %+v, want %v, exhausted %v and a wait of %s", got, tt.class, tt.exhausted, tt.wait)
					}
					if api.name != "gemini" && tt.section == minute && len(got.Limits) != 2 {
						t.Errorf("limits %+v, want requests and tokens", got.Limits)
					}
				})
			})
		}
	}
}

func TestTheClientSideReadsErrorsInStreams(t *testing.T) {
	s := provider(t, instant(""), llm.Options{Seed: 1}, serve.Options{})
	for _, tt := range streams {
		key := map[string]string{"messages": anthropicKey, "gemini": geminiKey}[tt.name]
		if key == "" {
			key = openAIKey
		}
		w := ask(t, s, http.MethodPost, strings.Replace(tt.path, "MODEL", "error-after-2", 1), strings.Replace(tt.body, "MODEL", "error-after-2", 1), key)
		events := strings.Split(strings.TrimSpace(strings.ReplaceAll(w.Body.String(), "\r", "")), "\n\n")
		last := events[len(events)-1]
		if _, data, ok := strings.Cut(last, "data: "); ok {
			last = data
		}
		if got := signal.ReadStreamError([]byte(last)); w.Code != 200 || got.Class != reason.Overloaded {
			t.Errorf("%s: %q is read as %+v, want overload", tt.name, last, got)
		}
		if n := chunks(w.Body.String(), tt.chunk); n != 2 {
			t.Errorf("%s: %d chunks before the error, want 2", tt.name, n)
		}
	}
}

func ExampleNew() {
	limits, err := llm.Limits{RequestsPerMinute: 1, TokensPerMinute: 1000}.Scenario()
	if err != nil {
		fmt.Println(err)
		return
	}
	models, err := llm.New(llm.Options{Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	provider, err := serve.New(limits, serve.Options{APIs: []serve.API{models}})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(provider)
	defer server.Close()
	for range 2 {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/v1/messages",
			strings.NewReader(`{"model":"sim-small","max_tokens":8,"messages":[{"role":"user","content":"hello"}]}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		r.Header.Set("X-Api-Key", "mine")
		res, err := server.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = res.Body.Close()
		fmt.Println(res.StatusCode, res.Header.Get("Anthropic-Ratelimit-Requests-Remaining"))
	}
	mine := provider.Stats().ByKey[serve.KeyID("mine")]
	fmt.Println(mine.Admitted, mine.Throttled, mine.Charged, mine.Input, mine.Output)
	// Output:
	// 200 0
	// 429 0
	// 1 1 17 9 8
}
