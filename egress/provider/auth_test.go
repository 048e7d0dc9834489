package provider_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/quota"
	"github.com/headway-go/headway/reason"
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

func refuse(t *testing.T, api provider.API, r provider.Refusal) (status int, h http.Header, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	builtin(t, api).Refuse(w, r)
	if !json.Valid(w.Body.Bytes()) {
		t.Fatalf("%s: %s is not JSON", api, w.Body)
	}
	return w.Code, w.Header(), w.Body.String()
}

func TestRefusalsInEachApisWords(t *testing.T) {
	throttle := provider.Refusal{
		Status: 429, Code: "RATE_THROTTLED", Reason: reason.Pacing, Message: "No room.", RetryIn: 1500*time.Millisecond + 1, Retry: true,
	}
	day := provider.Refusal{Status: 429, Code: "RATE_HARD_LIMIT", Reason: reason.QuotaExhausted, Message: "The day is used up.", RetryIn: 5 * time.Hour}
	for _, c := range []struct {
		api  provider.API
		r    provider.Refusal
		want string
	}{
		{provider.OpenAI, throttle, `{"type":"urn:headway:problem:rate-throttled","title":"Too Many Requests","status":429,"detail":"No room.","code":"RATE_THROTTLED","reason":"pacing","retry_after_ms":1501,
			"error":{"message":"No room.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
		{provider.OpenAI, day, `{"type":"urn:headway:problem:rate-hard-limit","title":"Too Many Requests","status":429,"detail":"The day is used up.","code":"RATE_HARD_LIMIT","reason":"quota_exhausted","retry_after_ms":18000000,
			"error":{"message":"The day is used up.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`},
		{provider.Anthropic, throttle, `{"type":"error","title":"Too Many Requests","status":429,"detail":"No room.","code":"RATE_THROTTLED","reason":"pacing","retry_after_ms":1501,
			"error":{"type":"rate_limit_error","message":"No room."},"request_id":null}`},
		{provider.Gemini, day, `{"type":"urn:headway:problem:rate-hard-limit","title":"Too Many Requests","status":429,"detail":"The day is used up.","code":"RATE_HARD_LIMIT","reason":"quota_exhausted","retry_after_ms":18000000,
			"error":{"code":429,"message":"The day is used up.","status":"RESOURCE_EXHAUSTED","details":[
				{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_HARD_LIMIT","domain":"headway"},
				{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"HeadwayBudgetPerDay","description":"The day is used up."}]},
				{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"18000s"}]}}`},
		{provider.HTTP, throttle, `{"type":"urn:headway:problem:rate-throttled","title":"Too Many Requests","status":429,"detail":"No room.","code":"RATE_THROTTLED","reason":"pacing","retry_after_ms":1501}`},
	} {
		_, _, body := refuse(t, c.api, c.r)
		var got, want any
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s: %s", c.api, c.r.Code, diff)
		}
	}
}

func TestRefusalsTellWhenToComeBack(t *testing.T) {
	for _, c := range []struct {
		in              time.Duration
		retry           bool
		after, ms, says string
	}{
		{1500*time.Millisecond + 1, true, "2", "1501", "true"},
		{time.Nanosecond, true, "1", "1", "true"},
		{time.Minute, true, "60", "60000", "true"},
		{time.Minute + 1, true, "61", "60001", "false"},
		{time.Second, false, "1", "1000", "false"},
		{0, true, "", "", "true"},
		{0, false, "", "", "false"},
		{-1, true, "", "", "false"},
		{quota.Never, true, "", "", "false"},
	} {
		for _, api := range provider.APIs() {
			_, h, _ := refuse(t, api, provider.Refusal{Status: 429, Reason: reason.Pacing, RetryIn: c.in, Retry: c.retry})
			if h.Get("Retry-After") != c.after || h.Get("Retry-After-Ms") != c.ms || h.Get("X-Should-Retry") != c.says {
				t.Errorf("%s: %v, %v: %q, %q, %q", api, c.in, c.retry, h.Get("Retry-After"), h.Get("Retry-After-Ms"), h.Get("X-Should-Retry"))
			}
		}
	}
}

// What Headway refuses, another Headway (or another reader of signals) takes for what
// it is.
func TestRefusalsAreReadAsWhatTheyAre(t *testing.T) {
	for _, api := range provider.APIs() {
		d := builtin(t, api)
		for name, c := range map[string]struct {
			r         provider.Refusal
			class     reason.Class
			exhausted bool
		}{
			"throttle":    {provider.Refusal{Status: 429, Reason: reason.Pacing, RetryIn: 3 * time.Second}, reason.Throttled, false},
			"day":         {provider.Refusal{Status: 429, Reason: reason.QuotaExhausted, RetryIn: 3 * time.Second}, reason.Throttled, true},
			"never":       {provider.Refusal{Status: 429, Reason: reason.Pacing, RetryIn: -1}, reason.Throttled, true},
			"draining":    {provider.Refusal{Status: 503, Reason: reason.Closed, RetryIn: time.Second}, reason.Overloaded, false},
			"unreachable": {provider.Refusal{Status: 502, Reason: reason.Unreachable}, reason.Failed, false},
			"timeout":     {provider.Refusal{Status: 504, Reason: reason.Timeout}, reason.Failed, false},
			"key":         {provider.Refusal{Status: 401, Reason: reason.Unauthorized, RetryIn: -1}, reason.Rejected, false},
			"scope":       {provider.Refusal{Status: 403, Reason: reason.Forbidden}, reason.Rejected, false},
			"body":        {provider.Refusal{Status: 413, Reason: reason.ClientError}, reason.Rejected, false},
			"malformed":   {provider.Refusal{Status: 400, Reason: reason.ClientError}, reason.Rejected, false},
		} {
			status, h, body := refuse(t, api, c.r)
			s := d.Classify(time.Now(), status, h, []byte(body))
			// A plain API has no word for a quota that is used up.
			if want := c.exhausted && api != provider.HTTP; s.Class != c.class || s.Exhausted != want {
				t.Errorf("%s %s: %v, exhausted %v", api, name, s.Class, s.Exhausted)
			}
			if given := c.r.RetryIn > 0; s.HasRetryAfter != given || given && s.RetryAfter != c.r.RetryIn {
				t.Errorf("%s %s: a wait of %v, %v", api, name, s.RetryAfter, s.HasRetryAfter)
			}
			kind := "application/json"
			if api == provider.HTTP {
				kind = "application/problem+json"
			}
			if h.Get("Content-Type") != kind || h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: %v", api, name, h)
			}
			if want := strings.ToUpper(c.r.Reason.String()); !strings.Contains(body, `"code":"`+want+`"`) {
				t.Errorf("%s %s: no code %s in %s", api, name, want, body)
			}
		}
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	for _, api := range provider.APIs() {
		status, _, body := refuse(t, api, provider.Refusal{Status: 200, Message: strings.Repeat("é<\"", 5000)})
		if status != 500 || len(body) > 16<<10 {
			t.Errorf("%s: status %d with %d bytes", api, status, len(body))
		}
	}
}
