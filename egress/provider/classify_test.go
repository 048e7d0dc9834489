package provider_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headway-go/headway/egress/provider"
	"github.com/headway-go/headway/reason"
)

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
