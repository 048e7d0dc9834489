package signal_test

import (
	"fmt"
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
		if diff := cmp.Diff([]signal.Limit{limit("", quota, unknown, remaining, reset)}, got.Limits); diff != "" {
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
