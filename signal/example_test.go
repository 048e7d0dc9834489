package signal_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/headway-go/headway/signal"
)

// A provider refuses, says what its policies are, and how long to wait.
func ExampleRead() {
	header := http.Header{}
	header.Set("Retry-After", "12")
	header.Set("RateLimit-Policy", `"permin";q=50;w=60, "perhr";q=1000;w=3600`)
	header.Set("RateLimit", `"permin";r=0;t=12, "perhr";r=640;t=1800`)

	s := signal.Read(time.Now(), http.StatusTooManyRequests, header, nil)
	fmt.Println(s.Class, s.RetryAfter)
	for _, l := range s.Limits {
		fmt.Printf("%s: %d of %d %s left for %v, window %v\n", l.Name, l.Remaining, l.Quota, l.Unit, l.Reset, l.Window)
	}
	// Output:
	// throttled 12s
	// permin: 0 of 50 requests left for 12s, window 1m0s
	// perhr: 640 of 1000 requests left for 30m0s, window 1h0m0s
}

// GitHub answers 403 for its primary limit and names an instant. Its own clock
// is in the Date field, so the caller's, an hour fast here, does not matter.
func ExampleRead_gitHub() {
	header := http.Header{}
	header.Set("Date", "Thu, 05 Mar 2026 12:07:00 GMT")
	header.Set("X-RateLimit-Limit", "5000")
	header.Set("X-RateLimit-Remaining", "0")
	header.Set("X-RateLimit-Reset", "1772712540")
	header.Set("X-RateLimit-Resource", "core")

	now := time.Date(2026, time.March, 5, 13, 7, 0, 0, time.UTC)
	s := signal.Read(now, http.StatusForbidden, header, nil)
	fmt.Println(s.Class, s.RetryAfter, s.Limits[0].Name, s.Limits[0].Window == signal.Unknown)
	// Output: throttled 2m0s core true
}

// A day's quota is used up: the delay that comes with it is the minute's and
// would only lead to the next refusal.
func ExampleRead_exhausted() {
	body := []byte(`{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [
		{"@type": "type.googleapis.com/google.rpc.QuotaFailure",
		 "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]},
		{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}]}}`)

	s := signal.Read(time.Now(), http.StatusTooManyRequests, nil, body)
	fmt.Println(s.Class, s.Exhausted, s.HasRetryAfter)
	// Output: throttled true false
}

func ExampleClassify() {
	for _, status := range []int{200, 404, 408, 429, 500, 503, 529} {
		fmt.Println(status, signal.Classify(status))
	}
	// Output:
	// 200 ok
	// 404 rejected
	// 408 failed
	// 429 throttled
	// 500 failed
	// 503 overloaded
	// 529 overloaded
}

// A stream began with 200 and then broke off with an error.
func ExampleReadStreamError() {
	s := signal.ReadStreamError([]byte(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`))
	fmt.Println(s.Class, s.Class.Throttle())
	// Output: overloaded true
}
