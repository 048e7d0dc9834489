package provider_test

import (
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
			t.Errorf("the error tells a secret: %v", err)
		}
	}
}
