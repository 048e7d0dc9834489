package signal_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/signal"
)

func FuzzRead(f *testing.F) {
	golden.Seeds(f)
	f.Add(200, int64(1772712420), "", "", "", "", "", "", "", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, status int, now int64,
		retryAfter, milliseconds, date, policy, rateLimit, quota, remaining, reset, other string, body []byte,
	) {
		header := http.Header{
			"Retry-After":                            {retryAfter, other},
			"Retry-After-Ms":                         {milliseconds},
			"X-Ms-Retry-After-Ms":                    {other},
			"Date":                                   {date},
			"Ratelimit-Policy":                       {policy, other},
			"Ratelimit":                              {rateLimit, other},
			"X-Ratelimit-Limit":                      {quota},
			"X-Ratelimit-Remaining":                  {remaining},
			"X-Ratelimit-Reset":                      {reset},
			"X-Ratelimit-Used":                       {other},
			"X-Ms-Dop-Hint":                          {other},
			"X-Readratelimit-Limit":                  {quota},
			"X-Readratelimit-Usage":                  {other},
			"X-Ratelimit-Reset-Tokens":               {reset},
			"X-Ratelimit-Limit-Tokens":               {quota},
			"Anthropic-Ratelimit-Requests-Reset":     {reset},
			"Anthropic-Ratelimit-Requests-Remaining": {remaining},
			"X-Shopify-Shop-Api-Call-Limit":          {other},
		}
		at := time.Unix(now, 0)
		s := signal.Read(at, status, header, body)
		checkBounds(t, s)
		if diff := cmp.Diff(s, signal.Read(at, status, header, body)); diff != "" {
			t.Errorf("the same response reads differently:\n%s", diff)
		}
		// Nothing beats Retry-After: no limit and no body changes the wait.
		delete(header, "Retry-After-Ms")
		delete(header, "X-Ms-Retry-After-Ms")
		alone := signal.Read(at, status, http.Header{"Date": {date}, "Retry-After": {retryAfter, other}}, nil)
		if s = signal.Read(at, status, header, body); alone.HasRetryAfter && s.RetryAfter != alone.RetryAfter {
			t.Errorf("Retry-After gives %v among other fields and %v alone", s.RetryAfter, alone.RetryAfter)
		}
	})
}

func FuzzReadStreamError(f *testing.F) {
	golden.Seeds(f)
	f.Add([]byte(`{"type":"error","error":{"type":"overloaded_error"}}`))
	f.Fuzz(func(t *testing.T, event []byte) {
		s := signal.ReadStreamError(event)
		checkBounds(t, s)
		if len(event) <= signal.MaxBody && cmp.Diff(s, signal.ReadStreamError(append([]byte(" \n"), event...))) != "" &&
			len(event)+2 <= signal.MaxBody {
			t.Error("white space in front changes what an event says")
		}
	})
}
