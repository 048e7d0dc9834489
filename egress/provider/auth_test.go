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
