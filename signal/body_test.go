package signal_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

const (
	retryInfo  = `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.07s"}`
	perMinute  = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]}`
	perDay     = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"},{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaDimensions":{"model":"m"}}]}`
	spendLimit = `{"type":"error","error":{"type":"rate_limit_error","message":"You have reached your API usage limits.","details":{"error_code":"enforced_spend_limit_reached"}},"request_id":"req_1"}`
)

func gemini(details ...string) string {
	return `{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[` +
		strings.Join(details, ",") + `]}}`
}

func TestErrorBodies(t *testing.T) {
	const message = `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`
	throttled := signal.Signal{Class: reason.Throttled}
	overloaded := signal.Signal{Class: reason.Overloaded}
	failed := signal.Signal{Class: reason.Failed}
	rejected := signal.Signal{Class: reason.Rejected}
	exhausted := signal.Signal{Class: reason.Throttled, Exhausted: true}
	wait := func(s signal.Signal, d time.Duration) signal.Signal {
		s.RetryAfter, s.HasRetryAfter = d, true
		return s
	}
	names := func(l signal.Limit) signal.Signal {
		return signal.Signal{Class: reason.Throttled, Limits: []signal.Limit{l}}
	}
	requests := limit("requests", 6000, 300*time.Second, 0, unknown)
	execution := signal.Limit{Name: "execution", Unit: signal.UnitExecution, Quota: 1200, Window: 300 * time.Second, Reset: unknown}
	concurrency := signal.Limit{Name: "concurrency", Unit: signal.UnitConcurrent, Quota: 52, Window: unknown, Reset: unknown}

	for _, tt := range []struct {
		name   string
		status int
		pairs  []string
		body   string
		want   signal.Signal
	}{
		{"Gemini, per minute", 429, nil, gemini(perMinute, retryInfo), wait(throttled, 34070*time.Millisecond)},
		{"Gemini, no details", 429, nil, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`, throttled},
		{"Gemini, per day", 429, nil, gemini(perDay), exhausted},
		{"Gemini, per day by its metric", 429, nil, `{"error":{"details":[{"violations":[{"quotaMetric":"x/generate_requests_per_model_per_day"}]}]}}`, exhausted},
		{"Gemini, per day with the minute's delay", 429, nil, gemini(perDay, retryInfo), exhausted},
		{"Gemini, per day with the day's delay", 429, nil, gemini(strings.Replace(retryInfo, "34.07s", "65205s", 1), perDay), wait(exhausted, 65205*time.Second)},
		{"Gemini, in an array", 429, nil, "\n[" + gemini(retryInfo) + "]", wait(throttled, 34070*time.Millisecond)},
		{"Gemini, header beats body", 429, []string{"Retry-After", "7"}, gemini(retryInfo), wait(throttled, 7*time.Second)},
		{"Gemini, body beats reset", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}, gemini(retryInfo), signal.Signal{
			Class: reason.Throttled, RetryAfter: 34070 * time.Millisecond, HasRetryAfter: true,
			Limits: []signal.Limit{limit("", unknown, unknown, 0, 9*time.Second)},
		}},
		{"Gemini, negative delay", 429, nil, gemini(strings.Replace(retryInfo, "34.07s", "-1s", 1)), throttled},
		{"Gemini, delay of another kind", 429, nil, gemini(strings.Replace(retryInfo, `"34.07s"`, "34", 1)), throttled},
		{"Gemini, absurd delay", 429, nil, gemini(strings.Replace(retryInfo, "34.07s", "315576000s", 1)), wait(throttled, signal.MaxRetryAfter)},
		{"Google, 403 for rate", 403, nil, `{"error":{"code":403,"errors":[{"domain":"usageLimits","reason":"userRateLimitExceeded"}]}}`, throttled},
		{"Google, 403 for the day", 403, nil, `{"error":{"code":403,"errors":[{"domain":"usageLimits","reason":"dailyLimitExceeded"}]}}`, exhausted},

		{"OpenAI, rate", 429, nil, `{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}`, throttled},
		{"OpenAI, slow down", 429, nil, `{"error":{"code":"slow_down"}}`, throttled},
		{"OpenAI, slow down with 503", 503, nil, `{"error":{"code":"slow_down"}}`, overloaded},
		{"OpenAI, quota by type", 429, nil, `{"error":{"type":"insufficient_quota","code":null}}`, exhausted},
		{"OpenAI, quota by code", 429, nil, `{"error":{"type":"x","code":"insufficient_quota"}}`, exhausted},
		{"OpenAI, project's spend", 429, nil, `{"error":{"code":"project_spend_limit_exceeded"}}`, exhausted},
		{"OpenAI, organization's spend", 429, nil, `{"error":{"code":"organization_spend_limit_exceeded"}}`, exhausted},
		{"OpenAI, hard limit with 400", 400, nil, `{"error":{"code":"billing_hard_limit_reached"}}`, exhausted},
		{"OpenAI, exhaustion is not the minute's reset", 429, []string{"x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "1s"}, `{"error":{"code":"insufficient_quota"}}`, signal.Signal{
			Class: reason.Throttled, Exhausted: true, Limits: []signal.Limit{precise(bucket(signal.UnitRequests, unknown, 0, time.Second))},
		}},
		{"OpenAI, overload", 503, nil, `{"error":{"code":"server_is_overloaded"}}`, overloaded},
		{"OpenAI, other", 400, nil, `{"error":{"type":"invalid_request_error","code":"context_length_exceeded"}}`, rejected},

		{"Anthropic, rate", 429, nil, `{"type":"error","error":{"type":"rate_limit_error","message":"m"}}`, throttled},
		{"Anthropic, overload", 529, nil, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, overloaded},
		{"Anthropic, overload behind 500", 500, nil, `{"type":"error","error":{"type":"overloaded_error"}}`, overloaded},
		{"Anthropic, spend", 429, nil, spendLimit, exhausted},
		{"Anthropic, other", 500, nil, `{"type":"error","error":{"type":"api_error"}}`, failed},

		{"GitHub, secondary", 403, nil, message, wait(throttled, time.Minute)},
		{"GitHub, secondary with 429", 429, nil, message, wait(throttled, time.Minute)},
		{"GitHub, secondary with a wait", 403, []string{"Retry-After", "30"}, message, wait(throttled, 30*time.Second)},
		{"GitHub, secondary with a reset", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1772712720"}, message, signal.Signal{
			Class: reason.Throttled, RetryAfter: 5 * time.Minute, HasRetryAfter: true,
			Limits: []signal.Limit{limit("", unknown, unknown, 0, 5*time.Minute)},
		}},
		{"GitHub, the same words in another status", 422, nil, message, rejected},
		{"GitHub, forbidden", 403, nil, `{"message":"Resource not accessible by integration"}`, rejected},

		{"Dataverse, requests", 429, nil, `{"error":{"code":"0x80072322","message":"m"}}`, names(requests)},
		{"Dataverse, execution", 429, nil, `{"error":{"code":"-2147015903"}}`, names(execution)},
		{"Dataverse, concurrency as a number", 429, nil, `{"error":{"code":-2147015898}}`, names(concurrency)},
		{"Slack", 429, []string{"Retry-After", "30"}, `{"ok":false,"error":"ratelimited"}`, wait(throttled, 30*time.Second)},
		{"Notion", 429, []string{"Retry-After", "1"}, `{"object":"error","status":429,"code":"rate_limited"}`, wait(throttled, time.Second)},

		{"no body", 500, nil, "", failed},
		{"not JSON", 500, nil, "<html>rate_limit_error</html>", failed},
		{"a string", 500, nil, `"overloaded_error"`, failed},
		{"elsewhere in the document", 400, nil, `{"input":{"error":{"code":"insufficient_quota"}},"code":"bad"}`, rejected},
		{"cut short", 429, nil, spendLimit[:len(spendLimit)-24], exhausted},
		{"cut short before it", 429, nil, spendLimit[:90], throttled},
		{"malformed after it", 500, nil, `{"error":{"type":"overloaded_error"]}`, overloaded},
		{"malformed key after it", 500, nil, `{"error":{"type":"overloaded_error",2:3}}`, overloaded},
		{"nested in arrays", 500, nil, strings.Repeat("[", 5) + `{"error":{"type":"overloaded_error"}}`, overloaded},
		{"nested too deep", 500, nil, strings.Repeat("[", 50) + `{"error":{"type":"overloaded_error"}}`, failed},
		{"a success is never searched", 200, nil, spendLimit, signal.Signal{Class: reason.OK}},
		{"a redirect is never searched", 302, nil, spendLimit, signal.Signal{Class: reason.OK}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := signal.Read(noon, tt.status, fields(t, tt.pairs...), []byte(tt.body))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("signal differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheBodyIsBounded(t *testing.T) {
	pad := func(n int) []byte {
		return []byte(`{"pad":"` + strings.Repeat("x", n) + `","error":{"type":"overloaded_error"}}`)
	}
	if got := signal.Read(noon, 500, nil, pad(signal.MaxBody-100)); got.Class != reason.Overloaded {
		t.Errorf("within the bound: %v, want overloaded", got.Class)
	}
	if got := signal.Read(noon, 500, nil, pad(signal.MaxBody)); got.Class != reason.Failed {
		t.Errorf("beyond the bound: %v, want failed", got.Class)
	}
	deep := strings.Repeat(`{"a":`, signal.MaxBody/8)
	if got := signal.Read(noon, 500, nil, []byte(deep)); got.Class != reason.Failed {
		t.Errorf("deep: %v, want failed", got.Class)
	}
	// Many keys below a long one cost a constant each, not a copy of their path.
	long := []byte(`{"` + strings.Repeat("k", signal.MaxBody/2) + `":{` + strings.Repeat(`"a":1,`, signal.MaxBody/12))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	signal.Read(noon, 500, nil, long)
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 64*signal.MaxBody {
		t.Errorf("%d bytes allocated for a body of %d", spent, len(long))
	}
}

func TestReadStreamError(t *testing.T) {
	for _, tt := range []struct {
		name, event string
		want        signal.Signal
	}{
		{"Anthropic, overload", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, signal.Signal{Class: reason.Overloaded}},
		{"OpenAI chat, quota", `{"error":{"message":"m","type":"insufficient_quota"}}`, signal.Signal{Class: reason.Throttled, Exhausted: true}},
		{"OpenAI Responses, error", `{"type":"error","code":"rate_limit_exceeded","message":"m","sequence_number":1}`, signal.Signal{Class: reason.Throttled}},
		{"OpenAI Responses, failed", `{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded"}}}`, signal.Signal{Class: reason.Throttled}},
		{"OpenAI Responses, server's fault", `{"type":"response.failed","response":{"error":{"code":"server_error"}}}`, signal.Signal{Class: reason.Failed}},
		{"OpenAI Responses, no error", `{"type":"response.created","response":{"status":"in_progress","error":null}}`, signal.Signal{}},
		{"Gemini, rate", gemini(retryInfo), signal.Signal{Class: reason.Throttled, RetryAfter: 34070 * time.Millisecond, HasRetryAfter: true}},
		{"Gemini, unavailable", `{"error":{"code":503,"status":"UNAVAILABLE"}}`, signal.Signal{Class: reason.Overloaded}},
		{"Gemini, our fault", `{"error":{"code":400,"status":"INVALID_ARGUMENT"}}`, signal.Signal{Class: reason.Rejected}},
		{"content", `{"choices":[{"delta":{"content":"error: rate_limit_exceeded"}}]}`, signal.Signal{}},
		{"a name that begins alike", `{"error_count":3,"code":"rate_limit_exceeded"}`, signal.Signal{}},
		{"an empty error", `{"error":""}`, signal.Signal{}},
		{"the end of a stream", `[DONE]`, signal.Signal{}},
		{"nothing", ``, signal.Signal{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, signal.ReadStreamError([]byte(tt.event))); diff != "" {
				t.Errorf("signal differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	const past, future = "Thu, 05 Mar 2026 12:06:00 GMT", "Thu, 05 Mar 2026 12:09:30 GMT"
	for _, tt := range []struct {
		name  string
		value string
		want  time.Duration
		given bool
	}{
		{"seconds", "120", 2 * time.Minute, true},
		{"none", "0", 0, true},
		{"leading zeros", "007", 7 * time.Second, true},
		{"decimals", "2.0", 2 * time.Second, true},
		{"fraction", "0.25", 250 * time.Millisecond, true},
		{"fraction to the nanosecond", "1.000000001", time.Second + time.Nanosecond, true},
		{"fraction beyond", "1.0000000019", time.Second + time.Nanosecond, true},
		{"white space", " \t5 ", 5 * time.Second, true},
		{"the bound", "31622400", signal.MaxRetryAfter, true},
		{"below the bound", "31622399.5", signal.MaxRetryAfter - 500*time.Millisecond, true},
		{"beyond the bound", "31622401", signal.MaxRetryAfter, true},
		{"beyond durations", "9223372037", signal.MaxRetryAfter, true},
		{"beyond 64 bits", "99999999999999999999", signal.MaxRetryAfter, true},
		{"far beyond", strings.Repeat("9", 4000) + ".9", signal.MaxRetryAfter, true},
		{"date", future, 150 * time.Second, true},
		{"date of RFC 850", "Thursday, 05-Mar-26 12:09:30 GMT", 150 * time.Second, true},
		{"date of asctime", "Thu Mar  5 12:09:30 2026", 150 * time.Second, true},
		{"date in the past", past, 0, true},
		{"date long past", "Thu, 01 Jan 1970 00:00:00 GMT", 0, true},
		{"date in the far future", "Fri, 31 Dec 9999 23:59:59 GMT", signal.MaxRetryAfter, true},
		{"empty", "", 0, false},
		{"negative", "-5", 0, false},
		{"negative zero", "-0", 0, false},
		{"signed", "+5", 0, false},
		{"exponent", "1e3", 0, false},
		{"hexadecimal", "0x10", 0, false},
		{"point alone", ".", 0, false},
		{"no whole", ".5", 0, false},
		{"no fraction", "5.", 0, false},
		{"two points", "1.2.3", 0, false},
		{"unit", "5s", 0, false},
		{"list", "5, 10", 0, false},
		{"words", "soon", 0, false},
		{"not a number", "NaN", 0, false},
		{"infinity", "Infinity", 0, false},
		{"Arabic digits", "٣", 0, false},
		{"impossible date", "Thu, 32 Mar 2026 12:09:30 GMT", 0, false},
		{"too long", strings.Repeat("0", signal.MaxHeader) + "5", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := signal.Read(noon, 429, http.Header{"Retry-After": {tt.value}}, nil)
			if got.RetryAfter != tt.want || got.HasRetryAfter != tt.given {
				t.Errorf("wait %v given %v, want %v given %v", got.RetryAfter, got.HasRetryAfter, tt.want, tt.given)
			}
		})
	}
}

func TestRetryAfterMilliseconds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pairs []string
		want  time.Duration
		given bool
	}{
		{"alone", []string{"retry-after-ms", "1500"}, 1500 * time.Millisecond, true},
		{"Azure's alone", []string{"x-ms-retry-after-ms", "20"}, 20 * time.Millisecond, true},
		{"decimals", []string{"retry-after-ms", "1.5"}, 1500 * time.Microsecond, true},
		{"both, the longer", []string{"retry-after-ms", "20", "x-ms-retry-after-ms", "30"}, 30 * time.Millisecond, true},
		{"finer, rounded up", []string{"Retry-After", "2", "retry-after-ms", "1234"}, 1234 * time.Millisecond, true},
		{"finer, rounded down", []string{"Retry-After", "1", "retry-after-ms", "1999"}, 1999 * time.Millisecond, true},
		{"agrees to the second", []string{"Retry-After", "1", "retry-after-ms", "2000"}, 2 * time.Second, true},
		{"agrees to the second, shorter", []string{"Retry-After", "3", "retry-after-ms", "2000"}, 2 * time.Second, true},
		{"disagrees, longer", []string{"Retry-After", "1", "retry-after-ms", "2001"}, 2001 * time.Millisecond, true},
		{"disagrees, shorter", []string{"Retry-After", "60", "retry-after-ms", "1000"}, time.Minute, true},
		{"malformed beside valid", []string{"Retry-After", "60", "retry-after-ms", "-1"}, time.Minute, true},
		{"valid beside malformed", []string{"Retry-After", "soon", "x-ms-retry-after-ms", "7"}, 7 * time.Millisecond, true},
		{"Traefik's, beside whole seconds", []string{"Retry-After", "1", "X-Retry-In", "80.375956ms"}, 80375956, true},
		{"Traefik's alone", []string{"X-Retry-In", "1m2.5s"}, 62500 * time.Millisecond, true},
		{"Traefik's, longer", []string{"Retry-After", "1", "X-Retry-In", "2.1s"}, 2100 * time.Millisecond, true},
		{"Traefik's, negative", []string{"Retry-After", "1", "X-Retry-In", "-80ms"}, time.Second, true},
		{"Traefik's without a unit", []string{"X-Retry-In", "80"}, 0, false},
		{"Traefik's for ages", []string{"X-Retry-In", "2000000h"}, signal.MaxRetryAfter, true},
		{"beyond 64 bits", []string{"retry-after-ms", "99999999999999999999"}, signal.MaxRetryAfter, true},
		{"a date is not a number of milliseconds", []string{"retry-after-ms", "Thu, 05 Mar 2026 12:09:30 GMT"}, 0, false},
		{"two lines, the longer", []string{"Retry-After", "5", "Retry-After", "3"}, 5 * time.Second, true},
		{"two lines, one valid", []string{"Retry-After", "x", "Retry-After", "3"}, 3 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := signal.Read(noon, 429, fields(t, tt.pairs...), nil)
			if got.RetryAfter != tt.want || got.HasRetryAfter != tt.given {
				t.Errorf("wait %v given %v, want %v given %v", got.RetryAfter, got.HasRetryAfter, tt.want, tt.given)
			}
		})
	}
}

func TestInstantsAreReadAgainstTheProvidersClock(t *testing.T) {
	const until = "Thu, 05 Mar 2026 12:09:30 GMT" // 150 s after noon
	at := func(d time.Duration) string { return noon.Add(d).Format(http.TimeFormat) }
	for _, tt := range []struct {
		name  string
		skew  time.Duration // of the caller's clock
		pairs []string
		want  time.Duration
	}{
		{"no Date", 0, nil, 150 * time.Second},
		{"no Date, our clock is fast", time.Minute, nil, 90 * time.Second},
		{"our clock is fast", time.Hour, []string{"Date", at(0)}, 150 * time.Second},
		{"our clock is slow", -time.Hour, []string{"Date", at(0)}, 150 * time.Second},
		{"our clock is months off", -100 * 24 * time.Hour, []string{"Date", at(0)}, 150 * time.Second},
		{"their clock is fast", 0, []string{"Date", at(time.Minute)}, 90 * time.Second},
		{"their clock is absurd", 0, []string{"Date", "Thu, 01 Jan 1970 00:00:00 GMT"}, 150 * time.Second},
		{"their clock is absurdly ahead", 0, []string{"Date", "Fri, 31 Dec 9999 23:59:59 GMT"}, 150 * time.Second},
		{"their clock is malformed", 0, []string{"Date", "today"}, 150 * time.Second},
		{"from a cache", 0, []string{"Date", at(-time.Hour), "Age", "3600"}, 150 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := noon.Add(tt.skew)
			header := fields(t, append(tt.pairs, "Retry-After", until)...)
			if got := signal.Read(now, 429, header, nil); got.RetryAfter != tt.want {
				t.Errorf("Retry-After: wait %v, want %v", got.RetryAfter, tt.want)
			}
			if header.Get("Age") != "" {
				return // its limits are not read
			}
			for _, reset := range []string{"1772712570", "1772712570000", "2026-03-05T12:09:30Z", "2026-03-05T14:09:30+02:00", until} {
				header := fields(t, append(tt.pairs, "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", reset)...)
				wantLimits(t, signal.Read(now, 200, header, nil).Limits,
					limit("", signal.Unknown, signal.Unknown, 1, tt.want))
			}
		})
	}
}
