package rest

import (
	"testing"

	"github.com/headway-go/headway/reason"
)

func TestErrorRulesClassifyResponses(t *testing.T) {
	cfg := parse(t, least+`
errors:
  - {status: 403, body: '.message // "" | test("rate limit"; "i")', as: throttle}
  - {status: 403, body: .code == 9007199254740993, as: quota}
  - {status: 403, as: forbidden}
  - {status: 200, body: '.ok == false and .error == "ratelimited"', as: throttle}
  - {status: 200, body: '.ok == false', as: unauthorized}
  - {status: 500, as: overloaded}
  - {status: 409, as: retry}
  - {status: 451, as: not_found}
`)
	type verdict struct {
		class reason.Class
		why   reason.Reason
		ok    bool
	}
	for _, c := range []struct {
		status int
		body   string
		want   verdict
	}{
		{403, `{"message":"API Rate Limit exceeded"}`, verdict{reason.Throttled, reason.RateLimited.Reason(), true}},
		{403, `{"code":9007199254740993}`, verdict{reason.Throttled, reason.QuotaExhausted, true}},
		{403, `{"code":9007199254740992}`, verdict{reason.Rejected, reason.Forbidden, true}},
		{403, `no json`, verdict{reason.Rejected, reason.Forbidden, true}},
		{403, `["message"]`, verdict{reason.Rejected, reason.Forbidden, true}},
		{200, `{"ok":false,"error":"ratelimited"}`, verdict{reason.Throttled, reason.RateLimited.Reason(), true}},
		{200, `{"ok":false,"error":"invalid_auth"}`, verdict{reason.Rejected, reason.Unauthorized, true}},
		{200, `{"ok":true}`, verdict{}},
		{200, ``, verdict{}},
		{500, ``, verdict{reason.Overloaded, reason.UpstreamPressure.Reason(), true}},
		{409, ``, verdict{reason.Failed, reason.ServerError, true}},
		{451, ``, verdict{reason.Rejected, reason.NotFound, true}},
		{404, ``, verdict{}},
	} {
		class, why, ok := cfg.Classify(c.status, []byte(c.body))
		if got := (verdict{class, why, ok}); got != c.want {
			t.Errorf("%d %s: got %v, want %v", c.status, c.body, got, c.want)
		}
	}
}
