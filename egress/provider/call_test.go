package provider_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/internal/usage"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
)

func builtin(t testing.TB, api provider.API) *provider.Description {
	t.Helper()
	d, ok := provider.Builtin(api)
	if !ok {
		t.Fatalf("there is no %s", api)
	}
	return &d
}

// asked is a Call without its function.
type asked struct {
	Model     string
	Stream    bool
	MaxTokens int64
	Choices   int64
	Metered   bool
	Shape     usage.Shape
	Texts     []string
	Extra     int64
}

func ask(c provider.Call) asked {
	return asked{c.Model, c.Stream, c.MaxTokens, c.Choices, c.Metered, c.Shape, slices.Collect(c.Texts), c.Extra}
}

func TestCallReadsWhatIsAskedFor(t *testing.T) {
	const image = `data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB`
	for name, c := range map[string]struct {
		api        provider.API
		path, body string
		want       asked
	}{
		"chat": {
			provider.OpenAI, "/v1/chat/completions",
			`{"model":"gpt-4o","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi \"you\"\n\u00e9\ud83d\ude00"}],"max_tokens":100,"stream":true}`,
			asked{"gpt-4o", true, 100, 1, true, usage.OpenAIChat, []string{"Be brief.", "Hi \"you\"\né😀"}, 0},
		},
		"chat with parts, tools and choices": {
			provider.OpenAI, "/v1/chat/completions",
			`{"messages":[{"role":"user","content":[{"type":"text","text":"Look"},
				{"type":"image_url","image_url":{"url":"` + image + `","detail":"low"}},
				{"type":"image_url","image_url":{"url":"https://example.org/a.png"}},
				{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}},
				{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="}}]},
				{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
				{"role":"tool","tool_call_id":"call_1","content":"ok"}],
				"tools":[{"type":"function","function":{"name":"f"}}],"n":3,"max_completion_tokens":50,"model":"m"}`,
			asked{
				"m", false, 150, 3, true, usage.OpenAIChat,
				[]string{"Look", "f", `{"a":1}`, "ok", `[{"type":"function","function":{"name":"f"}}]`}, 85 + 765 + 300 + 3000,
			},
		},
		"responses with a string": {
			provider.OpenAI, "/v1/responses", `{"model":"m","input":"Hello","instructions":"Rhyme","max_output_tokens":9}`,
			asked{"m", false, 9, 1, true, usage.OpenAIResponses, []string{"Hello", "Rhyme"}, 0},
		},
		"responses with items": {
			provider.OpenAI, "/v1/responses",
			`{"model":"m","stream":true,"input":[{"role":"user","content":[{"type":"input_text","text":"A"},
				{"type":"input_image","detail":"high","image_url":"` + image + `"},{"type":"input_image","file_id":"file_1"},
				{"type":"input_file","file_id":"file_2","filename":"b"}]},
				{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
				{"type":"function_call_output","call_id":"c","output":"42"},
				{"type":"image_generation_call","id":"ig","result":"iVBORw0KGgo"}],
				"text":{"format":{"type":"json_schema","schema":{"type":"object"}}}}`,
			asked{
				"m", true, 0, 1, true, usage.OpenAIResponses,
				[]string{"A", "b", "f", "{}", "42", `{"format":{"type":"json_schema","schema":{"type":"object"}}}`}, 1105 + 765 + 3000 + 765,
			},
		},
		"embeddings": {
			provider.OpenAI, "/v1/embeddings", `{"model":"e","input":["one","two"]}`,
			asked{"e", false, 0, 1, true, usage.OpenAIEmbeddings, []string{"one", "two"}, 0},
		},
		"embeddings of tokens": {
			provider.OpenAI, "/v1/embeddings", `{"model":"e","input":[[1,2,3],[40]]}`,
			asked{"e", false, 0, 1, true, usage.OpenAIEmbeddings, nil, 4},
		},
		"legacy completions": {
			provider.OpenAI, "/v1/completions", `{"model":"c","prompt":"Once","best_of":2,"n":1,"max_tokens":16}`,
			asked{"c", false, 32, 2, true, usage.OpenAIChat, []string{"Once"}, 0},
		},
		"a deployment at Azure": {
			provider.AzureOpenAI, "/openai/deployments/my-gpt/chat/completions", `{"model":"ignored","messages":[{"role":"user","content":"x"}]}`,
			asked{"my-gpt", false, 0, 1, true, usage.OpenAIChat, []string{"x"}, 0},
		},
		"Azure's v1": {
			provider.AzureOpenAI, "/openai/v1/responses", `{"model":"my-gpt","input":"x"}`,
			asked{"my-gpt", false, 0, 1, true, usage.OpenAIResponses, []string{"x"}, 0},
		},
		"messages": {
			provider.Anthropic, "/v1/messages",
			`{"model":"claude","max_tokens":1024,"system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}],
				"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo"}},
				{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0"},"title":"T"},
				{"type":"document","source":{"type":"text","media_type":"text/plain","data":"plain words"}},
				{"type":"document","source":{"type":"content","content":[{"type":"text","text":"block"}]}},
				{"type":"text","text":"Q"}]},
				{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"tool_use","id":"t","name":"f","input":{"q":"x"}}]},
				{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"R"}]}],
				"tools":[{"name":"f","input_schema":{}}],"stream":true}`,
			asked{
				"claude", true, 1024, 1, true, usage.Anthropic,
				[]string{"S", "T", "plain words", "block", "Q", "hm", "f", `{"q":"x"}`, "R", `[{"name":"f","input_schema":{}}]`}, 1600 + 4500,
			},
		},
		"count_tokens": {
			provider.Anthropic, "/v1/messages/count_tokens", `{"model":"claude","messages":[{"role":"user","content":"x"}]}`,
			asked{"claude", false, 0, 1, false, usage.None, nil, 0},
		},
		"generateContent": {
			provider.Gemini, "/v1beta/models/gemini-2.5-flash:generateContent",
			`{"contents":[{"role":"user","parts":[{"text":"A"},{"inlineData":{"mimeType":"image/png","data":"iVBO"}},{"fileData":{"mimeType":"video/mp4","fileUri":"u"}},
				{"inline_data":{"data":"x","mime_type":"audio/wav"}},{"functionCall":{"name":"f","args":{"a":1}}}]}],
				"systemInstruction":{"parts":[{"text":"S"}]},"tools":[{"functionDeclarations":[]}],
				"generationConfig":{"maxOutputTokens":200,"candidateCount":2,"responseSchema":{"type":"STRING"}},"stream":true}`,
			asked{
				"gemini-2.5-flash", false, 400, 2, true, usage.Gemini,
				[]string{"A", "f", `{"a":1}`, "S", `[{"functionDeclarations":[]}]`, `{"type":"STRING"}`}, 258 + 30*263 + 960,
			},
		},
		"streamGenerateContent": {
			provider.Gemini, "/v1/projects/p/locations/us/publishers/google/models/gemini-2.5-pro:streamGenerateContent",
			`{"contents":{"parts":{"text":"A"}}}`,
			asked{"gemini-2.5-pro", true, 0, 1, true, usage.Gemini, []string{"A"}, 0},
		},
		"batchEmbedContents": {
			provider.Gemini, "/v1beta/models/e:batchEmbedContents",
			`{"requests":[{"model":"models/e","content":{"parts":[{"text":"A"}]}},{"model":"models/e","content":{"parts":[{"text":"B"}]}}]}`,
			asked{"e", false, 0, 1, true, usage.Gemini, []string{"A", "B"}, 0},
		},
		"countTokens": {
			provider.Gemini, "/v1beta/models/g:countTokens", `{"contents":[]}`,
			asked{"g", false, 0, 1, false, usage.None, nil, 0},
		},
		"OpenAI's API at Google": {
			provider.Gemini, "/v1beta/openai/chat/completions", `{"model":"models/gemini-2.5-flash","messages":[{"role":"user","content":"x"}]}`,
			asked{"gemini-2.5-flash", false, 0, 1, true, usage.OpenAIChat, []string{"x"}, 0},
		},
		"an unknown call": {
			provider.OpenAI, "/v1/fine_tuning/jobs", `{"model":"gpt","training_file":"f"}`,
			asked{"gpt", false, 0, 1, false, usage.None, nil, 0},
		},
		"anything of a plain upstream": {
			provider.HTTP, "/v1/chat/completions", `{"model":"gpt"`,
			asked{"", false, 0, 1, true, usage.None, nil, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			call, err := builtin(t, c.api).Call("POST", c.path, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, ask(call)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.want, ask(call)); diff != "" {
				t.Errorf("the second time: %s", diff)
			}
		})
	}
}

func TestTextsStopWhenNobodyWantsMore(t *testing.T) {
	body := `{"model":"m","system":"0","messages":[{"role":"user","content":["1",{"text":"2"},{"input":{"a":3}}]},{"content":"4"}],"tools":[5]}`
	call, err := builtin(t, provider.Anthropic).Call("POST", "/v1/messages", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(call.Texts)
	if len(all) != 6 {
		t.Fatalf("there are %d texts: %q", len(all), all)
	}
	for most := range all {
		n := 0
		for text := range call.Texts {
			if text != all[n] {
				t.Fatalf("text %d is %q", n, text)
			}
			if n++; n > most {
				break
			}
		}
		if n != most+1 {
			t.Errorf("%d texts, want %d", n, most+1)
		}
	}
}

func TestOnlyWhatCannotBeServedIsAnError(t *testing.T) {
	const chat = "/v1/chat/completions"
	for body, want := range map[string]string{
		"":                               "the body is empty",
		" \n":                            "the body is empty",
		"[]":                             "must be a JSON object",
		`"x"`:                            "must be a JSON object",
		"\x1f\x8b\x08canary":             "compressed",
		"\x28\xb5\x2f\xfdcanary":         "compressed",
		"{":                              "not valid JSON",
		`{"model":"canary"`:              "not valid JSON",
		`{"model":"canary}`:              "not valid JSON",
		`{"messages":[{]}`:               "not valid JSON",
		`{"model":"a"} x`:                "not valid JSON",
		`{model:1}`:                      "not valid JSON",
		`{"a" 1}`:                        "not valid JSON",
		`{"a":}`:                         "not valid JSON",
		`{"a":1,}`:                       "not valid JSON",
		`{"messages":[1 2]}`:             "not valid JSON",
		`{"model":"a","model":"canary"}`: "names two models",
		`{"model":"a","MODEL":"canary"}`: "names two models",
		`{"model":"a","m\u006fdel":"b"}`: "names two models",
		"--x\r\n\r\n":                    "must be a JSON object",
	} {
		_, err := builtin(t, provider.OpenAI).Call("POST", chat, []byte(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", body, err, want)
			continue
		}
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("the error holds some of the body: %v", err)
		}
	}
	for _, body := range []string{
		"\xef\xbb\xbf{}", " {} \r\n", `{"model":null}`, `{"model":"a","model":"a"}`, `{"messages":"words"}`, `{"messages":{"a":[true,null,1.5e3]}}`,
		`{"n":"x","max_tokens":{},"stream":[],"generationConfig":7,"tools":"t"}`, `{"max_tokens":-5,"n":-1}`, `{"messages":[[[[]]]]}`,
	} {
		if call, err := builtin(t, provider.OpenAI).Call("POST", chat, []byte(body)); err != nil || !call.Metered || call.MaxTokens != 0 || call.Choices != 1 {
			t.Errorf("%q: %+v, %v", body, call, err)
		}
	}
	// Not metered: the upstream answers that.
	for _, path := range []string{"/v1/models", "/v1/files", "/v1/moderations"} {
		if _, err := builtin(t, provider.OpenAI).Call("POST", path, []byte("{")); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := builtin(t, provider.OpenAI).Call("POST", path, []byte(`{"model":"a","model":"b"}`)); err == nil {
			t.Errorf("%s may name two models", path)
		}
	}
}

func TestFiguresAreBounded(t *testing.T) {
	for figure, want := range map[string]int64{
		"1": 1, "1.0": 1, "1e3": 1000, "0": 0, "-1": 0, "9223372036854775808": quota.MaxTokens, "1e300": quota.MaxTokens,
		"99999999999999999999999999999999999999": 0, "null": 0, `"5"`: 0, "true": 0, "1000000001": quota.MaxTokens,
	} {
		call, err := builtin(t, provider.OpenAI).Call("POST", "/v1/responses", []byte(`{"max_output_tokens":`+figure+`}`))
		if err != nil || call.MaxTokens != want {
			t.Errorf("%s: %d, %v; want %d", figure, call.MaxTokens, err, want)
		}
	}
	call, err := builtin(t, provider.OpenAI).Call("POST", "/v1/chat/completions", []byte(`{"max_tokens":999999999,"n":1000000}`))
	if err != nil || call.MaxTokens != quota.MaxTokens || call.Choices != 1024 {
		t.Errorf("%+v, %v", call, err)
	}
	call, err = builtin(t, provider.OpenAI).Call("POST", "/v1/chat/completions", []byte(`{"model":"`+strings.Repeat("m", 10_000)+`"}`))
	if err != nil || len(call.Model) != 256 {
		t.Errorf("a model of %d bytes, %v", len(call.Model), err)
	}
}

func TestDeepNestingIsBounded(t *testing.T) {
	const deep = 100_000
	body := `{"messages":` + strings.Repeat(`[{"content":`, deep) + `"x"` + strings.Repeat(`}]`, deep) + `}`
	call, err := builtin(t, provider.OpenAI).Call("POST", "/v1/chat/completions", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for text := range call.Texts {
		n += len(text)
	}
	if n == 0 || n > len(body) {
		t.Errorf("%d bytes of text in a body of %d", n, len(body))
	}
	sources := `{"messages":` + strings.Repeat(`{"type":"document","source":{"type":"content","content":`, 1000) + `"x"` + strings.Repeat(`}}`, 1000) + `}`
	if _, err := builtin(t, provider.Anthropic).Call("POST", "/v1/messages", []byte(sources)); err != nil {
		t.Error(err)
	}
}

func form(t testing.TB, fields ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	f, err := w.CreateFormFile("file", "a.wav")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "RIFF\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nnot-this\r\n")
	for i := 0; i < len(fields); i += 2 {
		if err := w.WriteField(fields[i], fields[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFormsNameTheirModel(t *testing.T) {
	d := builtin(t, provider.OpenAI)
	call, err := d.Call("POST", "/v1/audio/transcriptions", form(t, "language", "en", "model", "whisper-1"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asked{"whisper-1", false, 0, 1, true, usage.OpenAIResponses, nil, 300}, ask(call)); diff != "" {
		t.Error(diff)
	}
	if _, err := d.Call("POST", "/v1/audio/transcriptions", form(t, "model", "a", "model", "b")); err == nil {
		t.Error("a form may name two models")
	}
	if call, err := d.Call("POST", "/v1/files", form(t)); err != nil || call.Metered || call.Model != "" {
		t.Errorf("an upload is %+v, %v", call, err)
	}
	if _, err := d.Call("POST", "/v1/chat/completions", form(t, "model", "a")); err == nil {
		t.Error("chat takes a form")
	}
	for _, body := range []string{"", "--", "--b\r\n", "--b\r\nrest", "RIFF....", "{"} {
		if call, err := d.Call("POST", "/v1/audio/transcriptions", []byte(body)); err != nil || !call.Metered || call.Model != "" {
			t.Errorf("%q: %+v, %v", body, call, err)
		}
	}
}

func TestClassify(t *testing.T) {
	for name, c := range map[string]struct {
		api       provider.API
		status    int
		header    http.Header
		body      string
		class     reason.Class
		wait      time.Duration
		exhausted bool
	}{
		"fine":     {provider.OpenAI, 200, nil, `{}`, reason.OK, 0, false},
		"throttle": {provider.OpenAI, 429, http.Header{"Retry-After-Ms": {"250"}}, `{"error":{"code":"rate_limit_exceeded"}}`, reason.Throttled, 250 * time.Millisecond, false},
		"quota":    {provider.OpenAI, 429, nil, `{"error":{"type":"insufficient_quota"}}`, reason.Throttled, 0, true},
		"payment":  {provider.OpenAI, 402, nil, `{"error":{"message":"Insufficient Balance"}}`, reason.Rejected, 0, true},
		"overload": {provider.Anthropic, 529, nil, `{"type":"error","error":{"type":"overloaded_error"}}`, reason.Overloaded, 0, false},
		"a minute": {provider.Gemini, 429, nil, `{"error":{"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"XPerMinute"}]},{"retryDelay":"34.5s"}]}}`, reason.Throttled, 34500 * time.Millisecond, false},
		"a day":    {provider.Gemini, 429, nil, `{"error":{"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"XPerDay"}]}]}}`, reason.Throttled, 0, true},
		"plain":    {provider.HTTP, 402, nil, ``, reason.Rejected, 0, false},
		"garbage":  {provider.OpenAI, 500, http.Header{"Retry-After": {"soon"}}, "<html>", reason.Failed, 0, false},
	} {
		s := builtin(t, c.api).Classify(time.Now(), c.status, c.header, []byte(c.body))
		if s.Class != c.class || s.RetryAfter != c.wait || s.Exhausted != c.exhausted {
			t.Errorf("%s: %v, %v, %v", name, s.Class, s.RetryAfter, s.Exhausted)
		}
	}
}

func TestLimitHeadersOfOnesOwn(t *testing.T) {
	d, err := provider.New(provider.Settings{
		API: provider.OpenAI, Upstream: "https://h", LimitHeaders: map[string]string{"x-acme-left": "x-ratelimit-remaining", "x-acme-all": "x-ratelimit-limit"},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"X-Acme-Left": {"3"}, "X-Acme-All": {"10"}}
	s := d.Classify(time.Now(), 200, h, nil)
	if len(s.Limits) != 1 || s.Limits[0].Remaining != 3 || s.Limits[0].Quota != 10 {
		t.Errorf("%+v", s.Limits)
	}
	if len(h) != 2 {
		t.Errorf("the response's own headers were changed: %v", h)
	}
	h["X-Ratelimit-Remaining"] = []string{"7"}
	if s := d.Classify(time.Now(), 200, h, nil); len(s.Limits) != 1 || s.Limits[0].Remaining != 7 {
		t.Errorf("the known name does not win: %+v", s.Limits)
	}
}

func FuzzCall(f *testing.F) {
	golden.Seeds(f)
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a\u00e9\ud83d\ude00"},{"type":"image_url","image_url":{"url":"x","detail":"low"}}]}],"n":2,"max_tokens":5,"stream":true}`,
		`{"model":"m","system":"s","messages":[{"content":[{"type":"document","source":{"type":"content","content":[{"text":"t"}]}}]}]}`,
		`{"contents":{"parts":[{"inlineData":{"mimeType":"image/png","data":"x"}}]},"generationConfig":{"maxOutputTokens":1e3}}`,
		`{"input":[[1,2],[3]],"tools":[{}]}`, "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n", "{", `{"a":"\u12"}`, "",
	} {
		f.Add(uint8(0), "/v1/chat/completions", []byte(body))
		f.Add(uint8(2), "/v1/messages", []byte(body))
		f.Add(uint8(3), "/v1beta/models/m:generateContent", []byte(body))
	}
	f.Fuzz(func(t *testing.T, api uint8, path string, body []byte) {
		all := provider.APIs()
		d := builtin(t, all[int(api)%len(all)])
		call, err := d.Call("POST", path, body)
		if err != nil {
			if whole := json.Valid(body) && strings.HasPrefix(strings.TrimSpace(string(body)), "{"); whole && !strings.Contains(err.Error(), "two models") {
				t.Fatalf("a JSON object is refused: %v", err)
			}
			return
		}
		if call.MaxTokens < 0 || call.MaxTokens > quota.MaxTokens || call.Choices < 1 || call.Extra < 0 || call.Texts == nil || len(call.Model) > max(256, len(path)) {
			t.Fatalf("%+v", call)
		}
		n := 0
		for text := range call.Texts {
			n += len(text)
			if json.Valid(body) && utf8.Valid(body) && !utf8.ValidString(text) {
				t.Fatalf("%q is not text", text)
			}
		}
		if n > 3*len(body) {
			t.Fatalf("%d bytes of text in a body of %d", n, len(body))
		}
	})
}

// Whatever is text in a chat message must come out, as encoding/json reads it.
func FuzzText(f *testing.F) {
	golden.Seeds(f)
	f.Add(`a"\`+"\n\t\u2028<é😀\x00", "m")
	f.Fuzz(func(t *testing.T, text, model string) {
		body, err := json.Marshal(map[string]any{"model": model, "messages": []any{map[string]any{"role": "user", "content": text}}})
		if err != nil {
			t.Skip()
		}
		var back struct {
			Model    string
			Messages []struct{ Content string }
		}
		if err := json.Unmarshal(body, &back); err != nil {
			t.Fatal(err)
		}
		call, err := builtin(t, provider.OpenAI).Call("POST", "/v1/chat/completions", body)
		if err != nil {
			t.Fatal(err)
		}
		if want := back.Model[:min(len(back.Model), 256)]; call.Model != want {
			t.Fatalf("the model is %q, want %q", call.Model, want)
		}
		want := back.Messages[0].Content
		if strings.HasPrefix(want, "data:") {
			return
		}
		got := ""
		for text := range call.Texts {
			got += text
		}
		if got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}
