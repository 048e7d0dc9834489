package provider_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-go/headway/egress/provider"
)

func TestBuiltins(t *testing.T) {
	for api, want := range map[provider.API]struct{ upstream, charge string }{
		provider.OpenAI:      {"https://api.openai.com", "openai"},
		provider.AzureOpenAI: {"", "azure"},
		provider.Anthropic:   {"https://api.anthropic.com", "anthropic"},
		provider.Gemini:      {"https://generativelanguage.googleapis.com", "gemini"},
		provider.HTTP:        {"", "total"},
	} {
		d := builtin(t, api)
		got := ""
		if d.Upstream != nil {
			got = d.Upstream.String()
		}
		if got != want.upstream || d.Charge != want.charge || d.API != api {
			t.Errorf("%s: upstream %q, charge %q", api, got, d.Charge)
		}
		if _, ok := d.Rule(); !ok {
			t.Errorf("%s: quota has no rule %q", api, d.Charge)
		}
	}
	if _, ok := provider.Builtin("cohere"); ok {
		t.Error("an unknown API is known")
	}
}

func TestNewTakesOverTheSettings(t *testing.T) {
	d, err := provider.New(provider.Settings{
		API: provider.OpenAI, Upstream: "https://api.groq.com/openai/", AuthHeader: "x-groq-key", Charge: "total",
		RequestHeaders: []string{"http-referer", "x-groq-*"}, LimitHeaders: map[string]string{"x-groq-left": "x-ratelimit-remaining"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.Upstream.String() != "https://api.groq.com/openai" || d.Charge != "total" || d.Auth != (provider.Auth{Header: "X-Groq-Key"}) {
		t.Errorf("%+v", d)
	}
	dst := http.Header{}
	d.Forward(dst, http.Header{"Http-Referer": {"a"}, "X-Groq-Region": {"b"}, "X-Other": {"c"}})
	if len(dst) != 2 {
		t.Errorf("%v passes", dst)
	}
	if d.LimitHeaders["X-Groq-Left"] != "X-Ratelimit-Remaining" {
		t.Errorf("%v", d.LimitHeaders)
	}
	for _, c := range []struct {
		s    provider.Settings
		want provider.Auth
	}{
		{provider.Settings{API: provider.Anthropic, AuthScheme: "Bearer"}, provider.Auth{Header: "Authorization", Scheme: "Bearer"}},
		{provider.Settings{API: provider.Gemini, AuthQuery: "key"}, provider.Auth{Query: "key"}},
		{provider.Settings{API: provider.Gemini}, provider.Auth{Header: "X-Goog-Api-Key"}},
	} {
		if d, err := provider.New(c.s); err != nil || d.Auth != c.want {
			t.Errorf("%+v: %+v, %v", c.s, d.Auth, err)
		}
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	for want, s := range map[string]provider.Settings{
		`api is "cohere", must be one of [openai azure-openai anthropic gemini http]`: {API: "cohere"},
		`upstream is missing: api "azure-openai" has none`:                            {API: provider.AzureOpenAI},
		`upstream is missing: api "http" has none`:                                    {API: provider.HTTP},
		`scheme "ftp"`:                          {API: provider.OpenAI, Upstream: "ftp://h"},
		`host ""`:                               {API: provider.OpenAI, Upstream: "api.openai.com"},
		"upstream is not a URL":                 {API: provider.OpenAI, Upstream: "https://canary:canary@[::1"},
		"holds a user or password":              {API: provider.OpenAI, Upstream: "https://canary:canary@h"},
		"has a query or fragment":               {API: provider.OpenAI, Upstream: "https://h/?key=canary"},
		"both a query parameter":                {API: provider.OpenAI, AuthQuery: "key", AuthHeader: "X-Key"},
		`auth header is "a b"`:                  {API: provider.OpenAI, AuthHeader: "a b"},
		`auth header is "Connection"`:           {API: provider.OpenAI, AuthHeader: "Connection"},
		`auth scheme is "Bearer x"`:             {API: provider.OpenAI, AuthScheme: "Bearer x"},
		`request_headers[1] is "*"`:             {API: provider.OpenAI, RequestHeaders: []string{"ok", "*"}},
		`request_headers[0] is "authorization"`: {API: provider.OpenAI, RequestHeaders: []string{"authorization"}},
		`request_headers[0] is "x-forwarded-*"`: {API: provider.OpenAI, RequestHeaders: []string{"x-forwarded-*"}},
		`limit_headers has "a b"`:               {API: provider.OpenAI, LimitHeaders: map[string]string{"a b": "c"}},
	} {
		_, err := provider.New(s)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("the error contains a secret: %v", err)
		}
	}
}

func TestNoOtherWayToWriteAPathLeadsPastItsRoute(t *testing.T) {
	const body = `{"model":"m"}`
	for _, path := range []string{
		"/v1/chat/completions", "v1/chat/completions", "/v1/chat/completions/", "//v1//chat/completions", "/v1/./chat/completions",
		"/v1/x/../chat/completions", "/V1/Chat/COMPLETIONS", "/v1/chat/completions;a=b", "/v1/chat;x/completions", "/chat/completions",
		"/openai/v1/chat/completions", "/api/v1/chat/completions", "/v1beta/openai/chat/completions",
	} {
		if call, err := builtin(t, provider.OpenAI).Call("POST", path, []byte(body)); err != nil || !call.Metered || call.Model != "m" {
			t.Errorf("%s: %+v, %v", path, call, err)
		}
	}
	for _, path := range []string{
		"/v1beta/models/m:generateContent", "/v1/tunedModels/m:generateContent", "/V1/models/m:GENERATECONTENT", "/v1/models/m:generateContent/",
		"/v1/projects/p/locations/l/endpoints/m:generateContent", "/v1beta1/projects/p/locations/l/publishers/google/models/m:generateContent",
	} {
		if call, err := builtin(t, provider.Gemini).Call("POST", path, []byte("{}")); err != nil || !call.Metered || call.Model != "m" {
			t.Errorf("%s: %+v, %v", path, call, err)
		}
	}
}

func TestWhatIsNoModelsCallIsNotMetered(t *testing.T) {
	for _, api := range provider.APIs() {
		for _, c := range [][2]string{
			{"GET", "/v1/models"}, {"GET", "/v1/chat/completions"}, {"GET", "/v1/responses/resp_1"}, {"DELETE", "/v1/responses/resp_1"},
			{"POST", "/v1/responses/resp_1/cancel"}, {"POST", "/v1/chat/completions/c"}, {"POST", "/v1/batches"}, {"POST", "/v1/messages/batches"},
			{"POST", "/v1/threads/t/messages"}, {"POST", "/v1beta/models/:generateContent"}, {"POST", "/v1beta/models/m"}, {"POST", "/"}, {"POST", ""},
			{"GET", "/v1/organization/usage/completions"}, {"POST", "/v1/responses/input_tokens"}, {"POST", "/v1/mycompletions"},
		} {
			call, err := builtin(t, api).Call(c[0], c[1], nil)
			if err != nil || call.Metered != (api == provider.HTTP) {
				t.Errorf("%s: %v: %+v, %v", api, c, call, err)
			}
			for range call.Texts {
				t.Errorf("%s: %v has text", api, c)
			}
		}
	}
}

func TestRoutesOfOnesOwn(t *testing.T) {
	d := provider.Description{API: provider.OpenAI, Routes: []provider.Route{
		{Path: "/v2/*/chat", Metered: true},
		{Method: "POST", Path: "/exact", Metered: true},
		{Method: "POST", Path: "/by/{model}/run", Metered: true},
	}}
	for path, want := range map[string]string{
		"/v2/a/chat": "body", "/exact": "body", "/by/name/run": "name",
		"/v2/chat": "-", "/v2/a/b/chat": "-", "/x/v2/a/chat": "-", "/x/exact": "-", "/by/name": "-", "/by/run": "-",
	} {
		call, err := d.Call("POST", path, []byte(`{"model":"body"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := call.Model; call.Metered != (want != "-") || call.Metered && got != want {
			t.Errorf("%s: %v %q, want %q", path, call.Metered, got, want)
		}
	}
	if call, _ := d.Call("GET", "/exact", nil); call.Metered {
		t.Error("another method is the same call")
	}
}

func chatBody(words int) []byte {
	return fmt.Appendf(nil, `{"model":"gpt-4o","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"%s"}],"max_tokens":256,"stream":true,"temperature":0.7}`,
		strings.Repeat("word ", words))
}

func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name string
		api  provider.API
		path string
		body []byte
	}{
		{"small", provider.OpenAI, "/v1/chat/completions", chatBody(20)},
		{"32KiB", provider.OpenAI, "/v1/chat/completions", chatBody(6500)},
		{"messages", provider.Anthropic, "/v1/messages", chatBody(20)},
		{"gemini", provider.Gemini, "/v1beta/models/gemini-2.5-flash:generateContent", []byte(`{"contents":[{"role":"user","parts":[{"text":"Hello there"}]}],"generationConfig":{"maxOutputTokens":64}}`)},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := builtin(b, c.api)
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Call("POST", c.path, c.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTexts(b *testing.B) {
	body := chatBody(20)
	call, err := builtin(b, provider.OpenAI).Call("POST", "/v1/chat/completions", body)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for text := range call.Texts {
			n += len(text)
		}
		if n == 0 {
			b.Fatal("no text")
		}
	}
}

func BenchmarkForward(b *testing.B) {
	d := builtin(b, provider.OpenAI)
	src := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {"OpenAI/Go"}, "Authorization": {"Bearer k"},
		"X-Stainless-Lang": {"go"}, "X-Stainless-Os": {"Linux"}, "X-Stainless-Arch": {"x64"}, "X-Stainless-Runtime": {"go"},
		"X-Stainless-Retry-Count": {"0"}, "X-Stainless-Package-Version": {"3"}, "X-Stainless-Runtime-Version": {"1"}, "Content-Length": {"9"},
	}
	dst := make(http.Header, len(src))
	b.ReportAllocs()
	for b.Loop() {
		clear(dst)
		d.Forward(dst, src)
	}
}

func BenchmarkRefuse(b *testing.B) {
	d := builtin(b, provider.OpenAI)
	w := discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		d.Refuse(w, provider.Refusal{Status: 429, Code: "RATE_THROTTLED", Message: "No room.", RetryIn: 1, Retry: true})
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
