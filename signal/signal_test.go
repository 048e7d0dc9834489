package signal_test

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headway-go/headway/internal/golden"
	"github.com/headway-go/headway/reason"
	"github.com/headway-go/headway/signal"
)

// noon is a wall instant on a whole second, a Thursday, in the middle of a
// quarter of an hour.
var noon = time.Date(2026, time.March, 5, 12, 7, 0, 0, time.UTC)

// fields builds a header from key, value, key, value. A repeated key is another
// line.
func fields(t testing.TB, pairs ...string) http.Header {
	t.Helper()
	if len(pairs)%2 != 0 {
		t.Fatalf("fields: %d strings are not pairs", len(pairs))
	}
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// limit is a limit of requests with four figures.
func limit(name string, quota int64, window time.Duration, remaining int64, reset time.Duration) signal.Limit {
	return signal.Limit{
		Name: name, Unit: signal.UnitRequests,
		Quota: quota, Window: window, Remaining: remaining, Reset: reset,
	}
}

// bucket is a limit of a unit that refills.
func bucket(unit string, quota, remaining int64, reset time.Duration) signal.Limit {
	return signal.Limit{
		Name: unit, Unit: unit, Refills: true,
		Quota: quota, Window: signal.Unknown, Remaining: remaining, Reset: reset,
	}
}

// precise is a limit whose reset is stated as a duration with a unit.
func precise(l signal.Limit) signal.Limit {
	l.Precise = true
	return l
}

func wantLimits(t *testing.T, got []signal.Limit, want ...signal.Limit) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits differ (-want +got):\n%s", diff)
	}
}

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		status int
		want   reason.Class
	}{
		{200, reason.OK},
		{204, reason.OK},
		{301, reason.OK},
		{304, reason.OK},
		{399, reason.OK},
		{400, reason.Rejected},
		{401, reason.Rejected},
		{403, reason.Rejected},
		{404, reason.Rejected},
		{408, reason.Failed},
		{422, reason.Rejected},
		{429, reason.Throttled},
		{499, reason.Rejected},
		{500, reason.Failed},
		{502, reason.Failed},
		{503, reason.Overloaded},
		{504, reason.Failed},
		{529, reason.Overloaded},
		{599, reason.Failed},
		{600, reason.Unknown},
		{199, reason.Unknown},
		{100, reason.Unknown},
		{0, reason.Unknown},
		{-1, reason.Unknown},
		{math.MaxInt, reason.Unknown},
		{math.MinInt, reason.Unknown},
	} {
		if got := signal.Classify(tt.status); got != tt.want {
			t.Errorf("Classify(%d) = %v, want %v", tt.status, got, tt.want)
		}
		if got := signal.Read(noon, tt.status, nil, nil).Class; got != tt.want {
			t.Errorf("Read with status %d has class %v, want %v", tt.status, got, tt.want)
		}
	}
}

func TestReadTellsNothing(t *testing.T) {
	for _, header := range []http.Header{nil, {}, {"Content-Type": {"text/html"}, "Date": {"Thu, 05 Mar 2026 12:07:00 GMT"}}} {
		got := signal.Read(noon, 200, header, []byte("hello"))
		if diff := cmp.Diff(signal.Signal{Class: reason.OK}, got); diff != "" {
			t.Errorf("Read(%v) differs (-want +got):\n%s", header, diff)
		}
	}
}

func TestForbiddenIsNotAlwaysAClientError(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header http.Header
		want   reason.Class
	}{
		{"plain", nil, reason.Rejected},
		{"quota left", fields(t, "X-RateLimit-Remaining", "12"), reason.Rejected},
		{"primary limit", fields(t, "X-RateLimit-Remaining", "0"), reason.Throttled},
		{"secondary limit", fields(t, "Retry-After", "60"), reason.Throttled},
		{"milliseconds", fields(t, "Retry-After-Ms", "60"), reason.Throttled},
		{"malformed wait", fields(t, "Retry-After", "soon"), reason.Rejected},
		{"malformed remainder", fields(t, "X-RateLimit-Remaining", "-0"), reason.Rejected},
	} {
		if got := signal.Read(noon, 403, tt.header, nil).Class; got != tt.want {
			t.Errorf("%s: class %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := signal.Read(noon, 404, fields(t, "X-RateLimit-Remaining", "0"), nil).Class; got != reason.Rejected {
		t.Errorf("404 with nothing remaining: class %v, want rejected", got)
	}
}

func TestWaitIsTheResetOnlyWhenNothingElseWasGiven(t *testing.T) {
	gone := []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"}
	for _, tt := range []struct {
		name   string
		status int
		header http.Header
		wait   time.Duration
		given  bool
	}{
		{"throttle", 429, fields(t, gone...), 30 * time.Second, true},
		{"forbidden", 403, fields(t, gone...), 30 * time.Second, true},
		{"overload", 503, fields(t, gone...), 30 * time.Second, true},
		{"success", 200, fields(t, gone...), 0, false},
		{"other failure", 500, fields(t, gone...), 0, false},
		{"client error", 404, fields(t, gone...), 0, false},
		{"shorter Retry-After beats it", 429, fields(t, append(gone, "Retry-After", "2")...), 2 * time.Second, true},
		{"longer Retry-After beats it", 429, fields(t, append(gone, "Retry-After", "200")...), 200 * time.Second, true},
		{"Retry-After of nothing beats it", 429, fields(t, append(gone, "Retry-After", "0")...), 0, true},
		{"a malformed one does not", 429, fields(t, append(gone, "Retry-After", "-2")...), 30 * time.Second, true},
		{"something remains", 429, fields(t, "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "30"), 0, false},
		{"remainder unknown", 429, fields(t, "X-RateLimit-Reset", "30"), 0, false},
		{"reset unknown", 429, fields(t, "X-RateLimit-Remaining", "0"), 0, false},
		{
			"the longest of those used up", 429,
			fields(t, "RateLimit", `"a";r=0;t=7, "b";r=0;t=90, "c";r=5;t=400`), 90 * time.Second, true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := signal.Read(noon, tt.status, tt.header, nil)
			if got.RetryAfter != tt.wait || got.HasRetryAfter != tt.given {
				t.Errorf("wait %v given %v, want %v given %v", got.RetryAfter, got.HasRetryAfter, tt.wait, tt.given)
			}
			if got.Exhausted {
				t.Error("a short window's end is not an exhaustion")
			}
		})
	}
}

func TestLongWindowUsedUpIsExhaustion(t *testing.T) {
	const day = `"permin";q=50;w=60, "perday";q=1000;w=86400`
	for _, tt := range []struct {
		name   string
		status int
		state  string
		want   bool
	}{
		{"day used up", 429, `"permin";r=10;t=30, "perday";r=0;t=40000`, true},
		{"minute used up", 429, `"permin";r=0;t=30, "perday";r=10;t=40000`, false},
		{"day used up by a success", 200, `"perday";r=0;t=40000`, false},
	} {
		got := signal.Read(noon, tt.status, fields(t, "RateLimit-Policy", day, "RateLimit", tt.state), nil)
		if got.Exhausted != tt.want {
			t.Errorf("%s: exhausted %v, want %v", tt.name, got.Exhausted, tt.want)
		}
		if tt.want && got.RetryAfter != 40000*time.Second {
			t.Errorf("%s: wait %v, want the day's reset", tt.name, got.RetryAfter)
		}
	}
}

func TestLimitsOfACachedResponseAreNotCurrent(t *testing.T) {
	pairs := []string{"RateLimit", `"default";r=5;t=30`, "X-Ms-Dop-Hint", "4"}
	fresh := signal.Read(noon, 200, fields(t, append(pairs, "Age", "0")...), nil)
	if len(fresh.Limits) != 1 || fresh.Parallelism != 4 {
		t.Errorf("Age 0: %+v, want one limit and a hint", fresh)
	}
	stale := signal.Read(noon, 200, fields(t, append(pairs, "Age", "7")...), nil)
	if stale.Limits != nil || stale.Parallelism != 0 {
		t.Errorf("Age 7: %+v, want neither limits nor hint", stale)
	}
}

func TestTheNumberOfLimitsIsBounded(t *testing.T) {
	policies, states := "", ""
	for i := range 100 {
		if i > 0 {
			policies, states = policies+", ", states+", "
		}
		name := string(rune('a'+i%26)) + string(rune('a'+i/26))
		policies += name + ";q=1;w=1"
		states += name + "x;r=1;t=1"
	}
	got := signal.Read(noon, 200, fields(t, "RateLimit-Policy", policies, "RateLimit", states), nil)
	if len(got.Limits) != signal.MaxLimits {
		t.Errorf("%d limits, want %d", len(got.Limits), signal.MaxLimits)
	}
	got = signal.Read(noon, 200, fields(t, "RateLimit", states), nil)
	if len(got.Limits) != signal.MaxLimits {
		t.Errorf("%d limits of the state alone, want %d", len(got.Limits), signal.MaxLimits)
	}
}

func BenchmarkReadPlain(b *testing.B) {
	header := fields(b,
		"Content-Type", "application/json", "Content-Length", "512", "Date", "Thu, 05 Mar 2026 12:07:00 GMT",
		"Server", "nginx", "Vary", "Accept-Encoding", "Cache-Control", "no-store", "Etag", `W/"33a64df5"`,
		"X-Request-Id", "0d1f", "Strict-Transport-Security", "max-age=31536000", "Connection", "keep-alive")
	body := []byte(`{"items":[]}`)
	b.ReportAllocs()
	for b.Loop() {
		if s := signal.Read(noon, 200, header, body); s.Class != reason.OK {
			b.Fatal(s.Class)
		}
	}
}

func BenchmarkReadGitHub(b *testing.B) {
	header := fields(b,
		"Content-Type", "application/json", "Date", "Thu, 05 Mar 2026 12:07:00 GMT", "X-RateLimit-Limit", "5000",
		"X-RateLimit-Remaining", "4990", "X-RateLimit-Used", "10", "X-RateLimit-Reset", "1772714400",
		"X-RateLimit-Resource", "core")
	b.ReportAllocs()
	for b.Loop() {
		if s := signal.Read(noon, 200, header, nil); len(s.Limits) != 1 {
			b.Fatal(s.Limits)
		}
	}
}

func TestReadingAPlainResponseDoesNotAllocate(t *testing.T) {
	header := fields(t, "Content-Type", "application/json", "Date", "Thu, 05 Mar 2026 12:07:00 GMT", "Age", "0")
	body := []byte(`{"items":[]}`)
	if n := testing.AllocsPerRun(100, func() { signal.Read(noon, 200, header, body) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

const maxSeconds = int64(signal.MaxRetryAfter / time.Second)

func TestPropertyRetryAfterRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "now"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		theirs := now.Truncate(time.Second).Add(time.Duration(rapid.Int64Range(-maxSeconds+2, maxSeconds-2).Draw(t, "skew")) * time.Second)
		seconds := rapid.Int64Range(0, maxSeconds).Draw(t, "seconds")
		wait := time.Duration(seconds) * time.Second

		got := signal.Read(now, 429, http.Header{"Retry-After": {strconv.FormatInt(seconds, 10)}}, nil)
		if !got.HasRetryAfter || got.RetryAfter != wait {
			t.Fatalf("seconds: %v, want %v", got.RetryAfter, wait)
		}
		got = signal.Read(now, 429, http.Header{
			"Date":        {theirs.UTC().Format(http.TimeFormat)},
			"Retry-After": {theirs.Add(wait).UTC().Format(http.TimeFormat)},
		}, nil)
		if !got.HasRetryAfter || got.RetryAfter != wait {
			t.Fatalf("date: %v, want %v", got.RetryAfter, wait)
		}
		ms := rapid.Int64Range(0, maxSeconds*1000).Draw(t, "ms")
		got = signal.Read(now, 429, http.Header{"Retry-After-Ms": {strconv.FormatInt(ms, 10)}}, nil)
		if !got.HasRetryAfter || got.RetryAfter != time.Duration(ms)*time.Millisecond {
			t.Fatalf("milliseconds: %v, want %d ms", got.RetryAfter, ms)
		}
	})
}

func TestPropertyIETFRoundTrip(t *testing.T) {
	word := rapid.StringMatching(`[a-z0-9 \\"_-]{0,12}`)
	figure := rapid.Int64Range(0, 999_999_999_999_999)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, signal.MaxLimits).Draw(t, "n")
		var policies, states []string
		var want []signal.Limit
		for i := range n {
			l := limit(fmt.Sprintf("%d:%s", i, word.Draw(t, "name")), figure.Draw(t, "q"), unknown, unknown, unknown)
			quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(l.Name) + `"`
			policy := quoted + fmt.Sprintf(";q=%d", l.Quota)
			if rapid.Bool().Draw(t, "has w") {
				w := rapid.Int64Range(1, maxSeconds).Draw(t, "w")
				l.Window = time.Duration(w) * time.Second
				policy += fmt.Sprintf("; w=%d", w)
			}
			if rapid.Bool().Draw(t, "has qu") {
				l.Unit = "content-bytes"
				policy += `;qu="content-bytes"`
			}
			if rapid.Bool().Draw(t, "has r") {
				l.Remaining = figure.Draw(t, "r")
				state := quoted + fmt.Sprintf(";r=%d", l.Remaining)
				if rapid.Bool().Draw(t, "has t") {
					s := rapid.Int64Range(0, maxSeconds).Draw(t, "t")
					l.Reset = time.Duration(s) * time.Second
					state += fmt.Sprintf(";t=%d", s)
				}
				states = append(states, state)
			}
			policies, want = append(policies, policy), append(want, l)
		}
		header := http.Header{}
		header.Set("RateLimit-Policy", strings.Join(policies, ", "))
		for _, state := range rapid.Permutation(states).Draw(t, "order") {
			header.Add("RateLimit", state)
		}
		if diff := cmp.Diff(want, signal.Read(noon, 200, header, nil).Limits); diff != "" {
			t.Fatalf("limits differ (-want +got):\n%s", diff)
		}
	})
}

func TestPropertyConventionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(1e9, 4e9).Draw(t, "now"), 0)
		quota := rapid.Int64Range(1, 999_999_999_999_999).Draw(t, "limit")
		remaining := rapid.Int64Range(0, quota).Draw(t, "remaining")
		seconds := rapid.Int64Range(0, maxSeconds-1).Draw(t, "reset")
		reset := time.Duration(seconds) * time.Second
		at := now.Add(reset)
		prefix := rapid.SampledFrom([]string{"RateLimit", "X-RateLimit", "X-Rate-Limit"}).Draw(t, "prefix")
		written := rapid.SampledFrom([]string{
			strconv.FormatInt(seconds, 10),
			strconv.FormatInt(at.Unix(), 10),
			strconv.FormatInt(at.UnixMilli(), 10),
			reset.String(),
			at.UTC().Format(time.RFC3339),
			at.UTC().Format(http.TimeFormat),
		}).Draw(t, "form")

		header := http.Header{}
		header.Set(prefix+"-Limit", strconv.FormatInt(quota, 10))
		header.Set(prefix+"-Remaining", strconv.FormatInt(remaining, 10))
		header.Set(prefix+"-Reset", written)
		got := signal.Read(now, 429, header, nil)
		want := limit("", quota, unknown, remaining, reset)
		want.Precise = reset > 0 && written == reset.String()
		if diff := cmp.Diff([]signal.Limit{want}, got.Limits); diff != "" {
			t.Fatalf("limits differ (-want +got):\n%s", diff)
		}
		if got.HasRetryAfter != (remaining == 0) || (remaining == 0 && got.RetryAfter != reset) {
			t.Fatalf("wait %v given %v with %d remaining and reset %v", got.RetryAfter, got.HasRetryAfter, remaining, reset)
		}
	})
}

// checkBounds holds for every signal, whatever it was read from.
func checkBounds(t testing.TB, s signal.Signal) {
	t.Helper()
	if s.RetryAfter < 0 || s.RetryAfter > signal.MaxRetryAfter {
		t.Errorf("wait %v outside [0, %v]", s.RetryAfter, signal.MaxRetryAfter)
	}
	if !s.HasRetryAfter && s.RetryAfter != 0 {
		t.Errorf("wait %v that was not given", s.RetryAfter)
	}
	if s.Exhausted && !s.Class.Throttle() {
		t.Errorf("exhausted with class %v", s.Class)
	}
	if s.Class == reason.Lost {
		t.Error("a response is never lost")
	}
	if s.Parallelism < 0 {
		t.Errorf("parallelism %d", s.Parallelism)
	}
	if len(s.Limits) > signal.MaxLimits {
		t.Errorf("%d limits, more than %d", len(s.Limits), signal.MaxLimits)
	}
	if s.Limits != nil && len(s.Limits) == 0 {
		t.Error("limits are empty instead of nil")
	}
	for _, l := range s.Limits {
		for name, n := range map[string]int64{
			"quota": l.Quota, "remaining": l.Remaining, "window": int64(l.Window), "reset": int64(l.Reset),
		} {
			if n < 0 && n != signal.Unknown {
				t.Errorf("%s is %d", name, n)
			}
		}
		if l.Window == 0 || l.Window > signal.MaxRetryAfter || l.Reset > signal.MaxRetryAfter {
			t.Errorf("window %v or reset %v out of range", l.Window, l.Reset)
		}
		if l.Quota == unknown && l.Window == unknown && l.Remaining == unknown && l.Reset == unknown {
			t.Error("a limit that tells nothing")
		}
		if l.Unit == "" {
			t.Error("a limit without a unit")
		}
	}
}

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
			"X-Retry-In":                             {reset},
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
		delete(header, "X-Retry-In")
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
