package llm_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// undated takes the times out of a body.
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
