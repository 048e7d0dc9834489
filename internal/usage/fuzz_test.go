package usage_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/sim/scenario"
	"github.com/headway-go/headway/internal/sim/serve"
	"github.com/headway-go/headway/internal/sim/serve/llm"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
)

// scan returns the report of a body that arrives in parts of the given length.
func scan(t *testing.T, shape usage.Shape, kind string, body []byte, length int) usage.Report {
	t.Helper()
	s, last := usage.NewScanner(shape, kind), usage.Report{}
	for len(body) > 0 {
		n := min(length, len(body))
		if m, err := s.Write(body[:n]); m != n || err != nil {
			t.Fatalf("Write gave %d, %v for %d bytes", m, err, n)
		}
		body = body[n:]
		now := s.Report()
		if err := now.Usage.Validate(); err != nil {
			t.Fatal(err)
		}
		if now.Flowed < last.Flowed || (last.Reported && !now.Reported) || (last.Ended && !now.Ended) {
			t.Fatalf("%+v follows %+v", now, last)
		}
		last = now
	}
	return s.Report()
}

func fuzz(f *testing.F, kind string, seeds ...string) {
	for _, b := range bodies {
		if b.kind == kind {
			f.Add(uint8(b.shape), uint8(7), []byte(b.body))
		}
	}
	for _, s := range seeds {
		f.Add(uint8(usage.OpenAIChat), uint8(1), []byte(s))
	}
	f.Fuzz(func(t *testing.T, shape, length uint8, body []byte) {
		whole := scan(t, usage.Shape(shape), kind, body, len(body)+1)
		if parts := scan(t, usage.Shape(shape), kind, body, int(length)+1); parts != whole {
			t.Fatalf("in parts of %d it says %+v, as a whole %+v", int(length)+1, parts, whole)
		}
	})
}

func FuzzScannerSSE(f *testing.F) {
	golden.Seeds(f)
	fuzz(f, events, "data\ndata:\n:\n\r\r\n", "data: {\"usage\":{\"prompt_tokens\":1\ndata:2}}\n\n", "{\n[")
}

func FuzzScannerJSON(f *testing.F) {
	golden.Seeds(f)
	fuzz(f, object, `{"choices":[[{"text":"\u00e"}]]}`, `{"choices":[[{"lost":"\u00e"}]]}`, `{"a":}{"b"]:1}`, `[[[[[[[[[[[[[[{"usage":{}}]]`)
}

func FuzzStripper(f *testing.F) {
	golden.Seeds(f)
	for _, c := range chunks {
		f.Add(uint8(3), []byte(lay(c.in, " ", "\r\n")))
	}
	f.Fuzz(func(t *testing.T, length uint8, body []byte) {
		var parts []string
		for rest := body; len(rest) > 0; {
			n := min(int(length)+1, len(rest))
			parts, rest = append(parts, string(rest[:n])), rest[n:]
		}
		left := strip(t, parts...)
		if whole := strip(t, string(body)); left != whole {
			t.Fatalf("in parts %q is left of %q, as a whole %q", left, body, whole)
		}
		if !bytes.Contains(body, []byte(`"usage"`)) && !bytes.Contains(body, []byte(`\u00`)) && left != string(body) {
			t.Fatalf("of %q is left %q", body, left)
		}
	})
}

// clutter is JSON with the names of usage in places where they mean nothing.
func clutter(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 5
		if depth > 0 {
			kinds = 7
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return rapid.Float64Range(-1e9, 1e9).Draw(t, "number")
		case 3:
			return rapid.String().Draw(t, "string")
		case 4:
			return rapid.SampledFrom([]string{`"`, `\`, `{"usage":{`, "]}", "prompt_tokens", "data: [DONE]\n\n"}).Draw(t, "text")
		case 5:
			return rapid.SliceOfN(clutter(depth-1), 0, 4).Draw(t, "array")
		default:
			name := rapid.SampledFrom([]string{"usage", "prompt_tokens", "error", "choices", "", "a\"b", "\u2028"})
			return rapid.MapOfN(name, clutter(depth-1), 0, 4).Draw(t, "object")
		}
	})
}

func TestScannerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int64Range(0, quota.MaxTokens)
		input, output := count.Draw(t, "input"), count.Draw(t, "output")
		cached := rapid.Int64Range(0, input).Draw(t, "cached")
		body := map[string]any{
			"usage": map[string]any{
				"prompt_tokens": input, "completion_tokens": output, "zz": clutter(2).Draw(t, "in usage"),
				"prompt_tokens_details": map[string]any{"cached_tokens": cached, "a": clutter(1).Draw(t, "in details")},
			},
		}
		for _, name := range []string{"a", "usages", "u", "zz", "model"} {
			body[name] = clutter(2).Draw(t, name)
		}
		text, err := json.Marshal(body)
		if rapid.Bool().Draw(t, "indented") {
			text, err = json.MarshalIndent(body, "", "  ")
		}
		if err != nil {
			t.Fatal(err)
		}
		s := usage.NewScanner(usage.OpenAIChat, object)
		for _, part := range split(t, 200, string(text)) {
			_, _ = s.Write([]byte(part)) // never fails
		}
		want := usage.Report{
			Usage:    quota.Usage{Input: input, Cached: cached, Output: output},
			Reported: true, Ended: true, Flowed: output,
		}
		if diff := cmp.Diff(want, s.Report()); diff != "" {
			t.Fatalf("of %s (-want +got):\n%s", text, diff)
		}
	})
}

func TestFramingProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom(bodies).Filter(func(b said) bool {
			return b.kind == events && !strings.Contains(b.body, "\r")
		}).Draw(t, "body")
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "end")
		var stream strings.Builder
		for i, line := range strings.Split(b.body, "\n") {
			if i > 0 {
				stream.WriteString(end)
			}
			if strings.HasPrefix(line, "data:") {
				stream.WriteString(rapid.SampledFrom([]string{"", ": data: {" + end, "id:7" + end, "retry" + end}).Draw(t, "before"))
			}
			if line == "" {
				stream.WriteString(rapid.SampledFrom([]string{"", end, end + ": still here" + end}).Draw(t, "between"))
			}
			stream.WriteString(line)
		}
		s := usage.NewScanner(b.shape, b.kind)
		for _, part := range split(t, 60, stream.String()) {
			_, _ = s.Write([]byte(part)) // never fails
		}
		if diff := cmp.Diff(b.want, s.Report()); diff != "" {
			t.Fatalf("%s as %q (-want +got):\n%s", b.name, stream.String(), diff)
		}
	})
}

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

// ask posts a call and returns the answer's content type and its body, which may be cut
// short.
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
					// The simulated provider does not count reasoning tokens, and
					// Anthropic's API does not report them.
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

// format replaces %[1]s by the model and %[2]s by the prompt. A text may have neither.
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

// undated removes the seconds at which chunks were created.
func undated(stream string) string {
	parts := strings.Split(stream, `"created":`)
	for i := range parts[1:] {
		_, parts[i+1], _ = strings.Cut(parts[i+1], ",")
	}
	return strings.Join(parts, "")
}

// stream is a chat of some length, as it comes from OpenAI.
func stream(member string) []byte {
	var b bytes.Buffer
	for i := range 500 {
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG","object":"chat.completion.chunk","created":1741570283,"model":"gpt-5-mini-2025-08-07","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,"finish_reason":null}]%s,"obfuscation":"aBcDeFgH"}

`, i, member)
	}
	b.WriteString("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10}}\n\ndata: [DONE]\n\n")
	return b.Bytes()
}

// document is a whole answer with much text.
func document() []byte {
	return []byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat(`The cat sat on the mat.\n`, 4000) +
		`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":10}}`)
}

func BenchmarkScanner(b *testing.B) {
	vectors := []byte(`{"data":[` + strings.Repeat(`{"object":"embedding","embedding":[`+strings.Repeat("-0.0069292834,", 1535)+`0],"index":0},`, 4) + `{}],"usage":{"prompt_tokens":8}}`)
	for _, c := range []struct {
		name  string
		shape usage.Shape
		kind  string
		body  []byte
	}{
		{"chat_stream", usage.OpenAIChat, events, stream("")},
		{"chat_body", usage.OpenAIChat, object, document()},
		{"embeddings", usage.OpenAIEmbeddings, object, vectors},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				s := usage.NewScanner(c.shape, c.kind)
				for part := c.body; len(part) > 0; {
					n := min(len(part), 4096)
					_, _ = s.Write(part[:n]) // never fails
					part = part[n:]
				}
				if !s.Report().Reported {
					b.Fatal("no usage")
				}
			}
		})
	}
}

// BenchmarkFloor is the lower bound for BenchmarkScanner: it reads each byte of the same
// stream and does nothing with it.
func BenchmarkFloor(b *testing.B) {
	body := stream("")
	b.Run("bytewise", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			depth := 0
			for _, c := range body {
				switch c {
				case '{':
					depth++
				case '}':
					depth--
				}
			}
			if depth != 0 {
				b.Fatal(depth)
			}
		}
	})
	b.Run("bytes_Count", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if bytes.Count(body, []byte{'\n'}) == 0 {
				b.Fatal("no lines")
			}
		}
	})
}

func BenchmarkStripper(b *testing.B) {
	for name, member := range map[string]string{"nothing_to_strip": "", "null_in_each": `,"usage":null`} {
		b.Run(name, func(b *testing.B) {
			body := stream(member)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				s := usage.NewStripper(io.Discard)
				for part := body; len(part) > 0; {
					n := min(len(part), 4096)
					_, _ = s.Write(part[:n]) // io.Discard never fails
					part = part[n:]
				}
			}
		})
	}
}

func BenchmarkInject(b *testing.B) {
	for _, size := range []int{1e3, 1e6} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			body := []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat(`words and \"more\" `, size/17) + `"}]}`)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, changed := usage.Inject(body); !changed {
					b.Fatal("unchanged")
				}
			}
		})
	}
}
