package provider_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/egress/provider"
)

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
