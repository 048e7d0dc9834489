package llm

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/internal/golden"
)

func TestFaultsByName(t *testing.T) {
	for name, want := range map[string]fault{
		"sim-small":                {},
		"overloaded":               {ailment: ailing},
		"claude-4-overloaded":      {ailment: ailing},
		"not.overloaded":           {},
		"quota-exhausted":          {ailment: spent},
		"x-throttled":              {ailment: throttling},
		"cut-after-0":              {cutting, 0},
		"gpt-5-cut-after-12":       {cutting, 12},
		"cut-after-":               {},
		"cut-after--1":             {},
		"cut-after-70000":          {},
		"shortcut-after-3":         {},
		"m-error-after-2":          {erring, 2},
		"error-in-stream":          {erring, 1},
		"gpt-4o-2024-08-06":        {},
		"m-cut-after-3-overloaded": {ailment: ailing},
	} {
		if got := faultOf(name); got != want {
			t.Errorf("%q is %+v, want %+v", name, got, want)
		}
	}
}

func TestLongPromptsAreCachedInOneWayOrTheOther(t *testing.T) {
	api, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	read, written := 0, 0
	for i := range 200 {
		c, err := newCall("m", nil, "")
		if err != nil {
			t.Fatal(err)
		}
		c.text(strings.Repeat("x", 4*(1000+i)))
		a := api.answer(c, time.Time{})
		switch {
		case c.tokens < cacheFrom:
			if a.cached+a.written != 0 {
				t.Errorf("a prompt of %d tokens is cached", c.tokens)
			}
		case a.cached+a.written != c.tokens/2/128*128 || a.cached > 0 && a.written > 0:
			t.Errorf("of %d tokens, %d are read from a cache and %d written", c.tokens, a.cached, a.written)
		case a.cached > 0:
			read++
		default:
			written++
		}
	}
	if read < 50 || written < 50 {
		t.Errorf("%d read from a cache, %d written, want about half each", read, written)
	}
}

func TestThinkingStaysWithinWhatIsAllowed(t *testing.T) {
	api, err := New(Options{OutputTokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	for most := range int64(60) {
		bound := most + 1
		c, err := newCall("thinking", &bound, "")
		if err != nil {
			t.Fatal(err)
		}
		a := api.answer(c, time.Time{})
		if a.generated() > int(bound) || a.output < 1 || a.cut && a.generated() != int(bound) {
			t.Errorf("allowed %d, thought %d and wrote %d (cut %v)", bound, a.thoughts, a.output, a.cut)
		}
	}
}

func TestBadRequestsNameTheField(t *testing.T) {
	for _, tt := range []struct {
		endpoint   endpoint
		body, want string
	}{
		{chat(openAI{}), ``, "body: must be a JSON object"},
		{chat(openAI{}), `[]`, "body: must be a JSON object"},
		{chat(openAI{}), `{"model":1}`, "body: is not the JSON"},
		{chat(openAI{}), `{}`, "model: is missing"},
		{chat(openAI{}), `{"model":"a\nb"}`, "model: must be a name"},
		{chat(openAI{}), `{"model":"m"}`, "messages: is missing"},
		{chat(openAI{}), `{"model":"m","messages":[{"content":7}]}`, "messages[0].content: must be"},
		{chat(openAI{}), `{"model":"m","messages":[{}],"n":2}`, "n: is 2, must be 1"},
		{chat(openAI{}), `{"model":"m","messages":[{}],"max_tokens":0}`, "max_tokens: is 0"},
		{chat(openAI{}), `{"model":"m","messages":[{}],"max_completion_tokens":1000001}`, "max_completion_tokens: is 1000001"},
		{chat(openAI{}), `{"model":"m","messages":[{}],"stream_options":{}}`, "stream_options: is only allowed"},
		{responses(openAI{}), `{"model":"m"}`, "input: must be"},
		{responses(openAI{}), `{"model":"m","input":""}`, "input: must be"},
		{responses(openAI{}), `{"model":"m","input":[1]}`, "input[0]: must be"},
		{responses(openAI{}), `{"model":"m","input":[{"content":1}]}`, "input[0].content: must be"},
		{messages, `{"model":"m","max_tokens":1}`, "messages: at least one"},
		{messages, `{"model":"m","max_tokens":1,"messages":[{}],"system":1}`, "system: must be"},
		{messages, `{"model":"m","max_tokens":1,"messages":[{"content":[1]}]}`, "messages.0.content: must be"},
		{generate, `{}`, "contents: is not specified"},
		{generate, `{"contents":[{}],"generationConfig":{"candidateCount":3}}`, "generationConfig.candidateCount: is 3"},
		{generate, `{"contents":[{}],"generationConfig":{"maxOutputTokens":-1}}`, "generationConfig.maxOutputTokens: is -1"},
	} {
		_, err := tt.endpoint.read(reading("m:generateContent"), []byte(tt.body))
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s gives %v, want %q", tt.body, err, tt.want)
		}
	}
}

// reading is a request whose path has been matched.
func reading(model string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.SetPathValue("call", model)
	return r
}

func FuzzRead(f *testing.F) {
	golden.Seeds(f)
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"x"}],"tools":[{}]}`,
		`{"model":"m","system":[{"text":"be"}],"messages":[{"role":"user","content":[{"type":"image","source":{}}]}],"max_tokens":3}`,
		`{"contents":[{"parts":[{"text":"hi"},{"inlineData":{}}]}],"systemInstruction":{},"generationConfig":{"maxOutputTokens":4}}`,
		`{"model":"\u0000","messages":[null]}`, `{"contents":[{"parts":[null]}]}`, `{"model":"m","input":[null]}`, `{`,
	} {
		f.Add("m:generateContent", []byte(body))
	}
	f.Add("a:b:streamGenerateContent", []byte(`{"contents":[{}]}`))
	api, err := New(Options{OutputTokens: 8})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, model string, body []byte) {
		for _, e := range []endpoint{chat(openAI{}), responses(azure{}), messages, countTokens, generate} {
			c, err := e.read(reading(model), body)
			if err != nil {
				continue
			}
			if len(c.model) == 0 || len(c.model) > maxModel || c.most < 0 || c.most > maxOutput || c.tokens < tokensPerRequest || c.tokens > 8*len(body)+100 {
				t.Fatalf("a body of %d bytes gives %+v", len(body), c)
			}
			if e.charge == nil || c.counting {
				_ = encode(e.count(c))
				continue
			}
			a := api.answer(c, time.Time{})
			if c.most > 0 && a.generated() > c.most || len(a.text) != 4*a.output || e.charge(a) < 0 {
				t.Fatalf("%+v is answered %+v", c, a)
			}
			_ = encode(e.plain(a))
			_ = faultOf(c.model)
		}
	})
}
