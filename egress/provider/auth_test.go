package provider_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/egress/provider"
)

func TestKeyIsFoundInAnyUsualPlace(t *testing.T) {
	for _, api := range provider.APIs() {
		d := builtin(t, api)
		for _, h := range []http.Header{
			{"Authorization": {"Bearer k"}}, {"Authorization": {"bearer  k"}}, {"X-Api-Key": {"k"}}, {"Api-Key": {"k"}}, {"X-Goog-Api-Key": {"k"}},
			{"Ocp-Apim-Subscription-Key": {"k"}},
		} {
			r := httptest.NewRequest("POST", "/v1/x", nil)
			r.Header = h
			if got := d.Key(r); got != "k" {
				t.Errorf("%s: %v: %q", api, h, got)
			}
		}
		for _, h := range []http.Header{{}, {"Authorization": {"Basic k"}}, {"Authorization": {"k"}}, {"Cookie": {"key=k"}}} {
			r := httptest.NewRequest("POST", "/v1/x", nil)
			r.Header = h
			if got := d.Key(r); got != "" {
				t.Errorf("%s: %v: %q", api, h, got)
			}
		}
		r := httptest.NewRequest("POST", "/v1/x?alt=sse&k%65y=a%2Bb", nil)
		if got := d.Key(r); (got == "a+b") != (api == provider.Gemini) {
			t.Errorf("%s: in the URL: %q", api, got)
		}
	}
	r := httptest.NewRequest("POST", "/v1/x", nil)
	r.Header = http.Header{"Authorization": {"Bearer other"}, "X-Api-Key": {"own"}}
	if got := builtin(t, provider.Anthropic).Key(r); got != "own" {
		t.Errorf("the API's own place comes second to %q", got)
	}
}

func TestSetKeyLeavesNothingOfTheClients(t *testing.T) {
	query, _ := provider.New(provider.Settings{API: provider.HTTP, Upstream: "https://h", AuthQuery: "token"})
	bearer, _ := provider.New(provider.Settings{API: provider.AzureOpenAI, Upstream: "https://h", AuthScheme: "Bearer"})
	for _, c := range []struct {
		d           *provider.Description
		path, query string
		want        http.Header
		wantQuery   string
	}{
		{builtin(t, provider.OpenAI), "/v1/x", "a=1&key=2", http.Header{"Authorization": {"Bearer our"}}, "a=1&key=2"},
		{builtin(t, provider.AzureOpenAI), "/openai/v1/x", "api-version=2024-10-21", http.Header{"Api-Key": {"our"}}, "api-version=2024-10-21"},
		{&bearer, "/openai/v1/x", "", http.Header{"Authorization": {"Bearer our"}}, ""},
		{builtin(t, provider.Anthropic), "/v1/messages", "beta=true", http.Header{"X-Api-Key": {"our"}}, "beta=true"},
		{builtin(t, provider.Gemini), "/v1beta/models/m:x", "alt=sse&key=canary&%6bey=canary&b=%20&access_token=canary", http.Header{"X-Goog-Api-Key": {"our"}}, "alt=sse&b=%20"},
		{builtin(t, provider.Gemini), "/v1beta/openai/chat/completions", "key=canary", http.Header{"Authorization": {"Bearer our"}}, ""},
		{&query, "/x", "token=canary&z=1", http.Header{}, "z=1&token=our"},
	} {
		r := httptest.NewRequest("POST", c.path+"?"+c.query, nil)
		for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Ocp-Apim-Subscription-Key"} {
			r.Header[name] = []string{"canary", "canary"}
		}
		c.d.SetKey(r, "our")
		if diff := cmp.Diff(c.want, r.Header); diff != "" {
			t.Errorf("%s %s: %s", c.d.API, c.path, diff)
		}
		if r.URL.RawQuery != c.wantQuery {
			t.Errorf("%s %s: the query is %q, want %q", c.d.API, c.path, r.URL.RawQuery, c.wantQuery)
		}
		c.d.SetKey(r, "")
		if left := r.URL.RawQuery; len(r.Header) != 0 || strings.Contains(left, "our") {
			t.Errorf("%s: without a key, %v and %q are left", c.d.API, r.Header, left)
		}
	}
}

func TestPassKeyKeepsThePlace(t *testing.T) {
	src := http.Header{"Authorization": {"Bearer oauth"}, "X-Other": {"x"}, "Cookie": {"c"}}
	dst := http.Header{}
	builtin(t, provider.Anthropic).PassKey(dst, src)
	if diff := cmp.Diff(http.Header{"Authorization": {"Bearer oauth"}}, dst); diff != "" {
		t.Error(diff)
	}
}

func TestForwardPassesTheListedOnly(t *testing.T) {
	pass := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"*/*"}, "User-Agent": {"u"}, "Idempotency-Key": {"i"}, "Traceparent": {"t"},
		"Openai-Organization": {"o"}, "Anthropic-Version": {"v"}, "Anthropic-Beta": {"a", "b"}, "X-Stainless-Retry-Count": {"1"},
		"X-Goog-Api-Client": {"g"},
	}
	src := pass.Clone()
	for _, name := range []string{
		"Host", "Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Te", "Proxy-Authorization", "Cookie", "Authorization", "X-Api-Key",
		"Api-Key", "X-Goog-Api-Key", "X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Via", "X-Real-Ip", "X-Headway-Tenant", "X-Headway-Key",
		"Accept-Encoding", "Content-Length", "X-Http-Method-Override", "Origin", "Referer", "X-Original-Url",
		"Ocp-Apim-Subscription-Key", "Expect", "Cf-Connecting-Ip",
	} {
		src[name] = []string{"canary"}
	}
	src["Anthropic-Beta"] = []string{"a", "b", "hidden"}[:2]
	src["X-Unknown"] = []string{"theirs"}
	src["Connection"] = []string{"close, X-Stainless-Lang"}
	src["X-Stainless-Lang"] = []string{"go"}
	for _, api := range provider.APIs() {
		dst, want := http.Header{}, pass.Clone()
		if api == provider.HTTP {
			want["X-Unknown"] = []string{"theirs"}
		}
		builtin(t, api).Forward(dst, src)
		if diff := cmp.Diff(want, dst); diff != "" {
			t.Errorf("%s: %s", api, diff)
		}
		dst.Add("Anthropic-Beta", "c")
		if beyond := src["Anthropic-Beta"][:3]; beyond[2] != "hidden" {
			t.Fatal("what is added to what was forwarded is written into the source")
		}
	}
}

func TestReturnKeepsWhatBindsToTheHost(t *testing.T) {
	pass := http.Header{
		"Content-Type": {"text/event-stream"}, "X-Request-Id": {"r"}, "Retry-After": {"1"}, "X-Ratelimit-Remaining-Requests": {"9"},
		"Anthropic-Ratelimit-Requests-Reset": {"t"}, "Content-Encoding": {"gzip"},
	}
	src := pass.Clone()
	for _, name := range []string{
		"Set-Cookie", "Strict-Transport-Security", "Alt-Svc", "Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "Nel",
		"Access-Control-Allow-Origin", "X-Headway-Scale", "Proxy-Authenticate", "Clear-Site-Data",
	} {
		src[name] = []string{"x"}
	}
	dst := http.Header{}
	builtin(t, provider.OpenAI).Return(dst, src)
	if diff := cmp.Diff(pass, dst); diff != "" {
		t.Error(diff)
	}
}
