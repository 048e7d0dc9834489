package signal_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/signal"
)

const unknown = signal.Unknown

func TestIETF(t *testing.T) {
	bytesPerUser := signal.Limit{
		Name: "peruser", Unit: "content-bytes", Partition: "trial1213323",
		Quota: 65535, Window: 10 * time.Second, Remaining: unknown, Reset: unknown,
	}
	with := func(l signal.Limit, partition string) signal.Limit {
		l.Partition = partition
		return l
	}
	concurrent := limit("c", 10, unknown, 3, unknown)
	concurrent.Unit = signal.UnitConcurrent

	for _, tt := range []struct {
		name  string
		pairs []string
		want  []signal.Limit
	}{
		{
			"policies", []string{"RateLimit-Policy", `"permin";q=50;w=60,"perhr";q=1000;w=3600`},
			[]signal.Limit{
				limit("permin", 50, time.Minute, unknown, unknown),
				limit("perhr", 1000, time.Hour, unknown, unknown),
			},
		},
		{
			"policies on two lines", []string{"RateLimit-Policy", `"permin";q=50;w=60`, "RateLimit-Policy", `"perhr";q=1000;w=3600`},
			[]signal.Limit{
				limit("permin", 50, time.Minute, unknown, unknown),
				limit("perhr", 1000, time.Hour, unknown, unknown),
			},
		},
		{"state", []string{"RateLimit", `"default";r=50;t=30`}, []signal.Limit{limit("default", unknown, unknown, 50, 30*time.Second)}},
		{"state without a window", []string{"RateLimit", `"default";r=999`}, []signal.Limit{limit("default", unknown, unknown, 999, unknown)}},
		{"nothing left", []string{"RateLimit", `"default";r=0;t=0`}, []signal.Limit{limit("default", unknown, unknown, 0, 0)}},
		{
			"state joins its policy", []string{
				"RateLimit-Policy", `"permin";q=50;w=60,"perhr";q=1000;w=3600`,
				"RateLimit", `"perhr";r=7;t=300,"other";r=1;t=2`,
			},
			[]signal.Limit{
				limit("permin", 50, time.Minute, unknown, unknown),
				limit("perhr", 1000, time.Hour, 7, 5*time.Minute),
				limit("other", unknown, unknown, 1, 2*time.Second),
			},
		},
		{
			"unit and partition", []string{"RateLimit-Policy", `"peruser";q=65535;qu="content-bytes";w=10;pk=:dHJpYWwxMjEzMzIz:`},
			[]signal.Limit{bytesPerUser},
		},
		{
			"concurrency", []string{"RateLimit-Policy", `"c";q=10;qu="concurrent-requests"`, "RateLimit", `"c";r=3`},
			[]signal.Limit{concurrent},
		},
		{
			"partitions of one policy", []string{
				"RateLimit-Policy", `"u";q=5;w=1;pk=:YQ==:,"u";q=9;w=1;pk=:Yg==:`,
				"RateLimit", `"u";r=2;t=1;pk=:Yg==:`,
			},
			[]signal.Limit{
				with(limit("u", 5, time.Second, unknown, unknown), "a"),
				with(limit("u", 9, time.Second, 2, time.Second), "b"),
			},
		},
		{
			"a policy for all partitions", []string{"RateLimit-Policy", `"u";q=5;w=1`, "RateLimit", `"u";r=2;t=1;pk=:YQ==:`},
			[]signal.Limit{with(limit("u", 5, time.Second, 2, time.Second), "a")},
		},
		{
			"tokens for names, and comments", []string{"RateLimit-Policy", `fixed;q=5;w=1;acme-burst=3;comment="x"`, "RateLimit", "fixed;r=4;t=1;u"},
			[]signal.Limit{limit("fixed", 5, time.Second, 4, time.Second)},
		},
		{
			"draft 7", []string{"RateLimit-Policy", "10;w=1, 100;w=60", "RateLimit", "limit=100, remaining=5, reset=30"},
			[]signal.Limit{limit("", 10, time.Second, unknown, unknown), limit("", 100, time.Minute, 5, 30*time.Second)},
		},
		{
			"draft 7 without policy", []string{"RateLimit", "limit=100, remaining=5, reset=30"},
			[]signal.Limit{limit("", 100, unknown, 5, 30*time.Second)},
		},
		{
			"draft 7 with parameters, which are ignored", []string{"RateLimit", "limit=100;w=1,remaining=5;x=y,reset=30,extra=?1"},
			[]signal.Limit{limit("", 100, unknown, 5, 30*time.Second)},
		},
		{"draft 7 in part", []string{"RateLimit", "remaining=5"}, []signal.Limit{limit("", unknown, unknown, 5, unknown)}},
		{
			"draft 6", []string{
				"RateLimit-Policy", "100;w=60", "RateLimit-Limit", "100",
				"RateLimit-Remaining", "40", "RateLimit-Reset", "12",
			},
			[]signal.Limit{limit("", 100, time.Minute, 40, 12*time.Second)},
		},
		{
			"draft 6 without a limit", []string{"RateLimit-Policy", "100;w=60", "RateLimit-Remaining", "40", "RateLimit-Reset", "12"},
			[]signal.Limit{limit("", 100, time.Minute, 40, 12*time.Second)},
		},
		{
			"draft 3", []string{"RateLimit-Limit", `10, 10;w=1, 50;w=60;comment="m"`, "RateLimit-Remaining", "9", "RateLimit-Reset", "1"},
			[]signal.Limit{limit("", 10, time.Second, 9, time.Second), limit("", 50, time.Minute, unknown, unknown)},
		},
		{
			"a limit with its window", []string{"RateLimit-Limit", "10;w=1", "RateLimit-Remaining", "9"},
			[]signal.Limit{limit("", 10, time.Second, 9, unknown)},
		},
		{
			"the precise form beats the convention", []string{"RateLimit", `"a";r=5;t=30`, "X-RateLimit-Remaining", "6", "X-RateLimit-Reset", "31"},
			[]signal.Limit{limit("a", unknown, unknown, 5, 30*time.Second)},
		},
		{
			"the convention beats a malformed one", []string{"RateLimit", `"a";r=`, "RateLimit-Policy", `"a";q=9;w=60`, "X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "6"},
			[]signal.Limit{limit("a", 9, time.Minute, 6, unknown)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantLimits(t, signal.Read(noon, 200, fields(t, tt.pairs...), nil).Limits, tt.want...)
		})
	}
}

func TestIETFMalformedIsIgnored(t *testing.T) {
	for _, tt := range []struct {
		name, key, value string
		want             []signal.Limit
	}{
		{"empty", "RateLimit", "", nil},
		{"not a structured field", "RateLimit", "50 of 100", nil},
		{"trailing comma", "RateLimit", `"a";r=5;t=30,`, nil},
		{"unterminated string", "RateLimit", `"a`, nil},
		{"r is missing", "RateLimit", `"a";t=30`, nil},
		{"r is negative", "RateLimit", `"a";r=-1;t=30`, nil},
		{"r is a decimal", "RateLimit", `"a";r=1.5;t=30`, nil},
		{"r is a string", "RateLimit", `"a";r="5";t=30`, nil},
		{"r is too large", "RateLimit", `"a";r=9999999999999999;t=30`, nil},
		{"the name is a number", "RateLimit", `5;r=5;t=30`, nil},
		{"an inner list", "RateLimit", `("a" "b");r=5;t=30`, nil},
		{"t is negative", "RateLimit", `"a";r=5;t=-30`, []signal.Limit{limit("a", unknown, unknown, 5, unknown)}},
		{"t is absurd", "RateLimit", `"a";r=5;t=999999999999999`, []signal.Limit{limit("a", unknown, unknown, 5, unknown)}},
		{"one of two is whole", "RateLimit", `"a";t=30,"b";r=5`, []signal.Limit{limit("b", unknown, unknown, 5, unknown)}},
		{"dictionary of the negative", "RateLimit", "limit=-1, remaining=-5, reset=-30", nil},
		{"dictionary of strings", "RateLimit", `limit="100"`, nil},
		{"dictionary of lists", "RateLimit", `limit=(1 2), remaining=3`, []signal.Limit{limit("", unknown, unknown, 3, unknown)}},
		{"too long", "RateLimit", `"` + strings.Repeat("a", signal.MaxHeader) + `";r=5`, nil},
		{"q is missing", "RateLimit-Policy", `"a";w=60`, nil},
		{"q is negative", "RateLimit-Policy", `"a";q=-1;w=60`, nil},
		{"bare quota is negative", "RateLimit-Policy", `-5;w=60`, nil},
		{"bare quota is a decimal", "RateLimit-Policy", `5.0;w=60`, nil},
		{"an inner list of policies", "RateLimit-Policy", `(1 2);w=60`, nil},
		{"w is zero", "RateLimit-Policy", `"a";q=5;w=0`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
		{"w is negative", "RateLimit-Policy", `"a";q=5;w=-60`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
		{"w is absurd", "RateLimit-Policy", `"a";q=5;w=31622401`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
		{"qu is a number", "RateLimit-Policy", `"a";q=5;qu=7`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
		{"qu is empty", "RateLimit-Policy", `"a";q=5;qu=""`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
		{"pk is a number", "RateLimit-Policy", `"a";q=5;pk=7`, []signal.Limit{limit("a", 5, unknown, unknown, unknown)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := signal.Read(noon, 200, fields(t, tt.key, tt.value), nil)
			if tt.want == nil && got.Limits != nil {
				t.Fatalf("limits %+v, want none", got.Limits)
			}
			wantLimits(t, got.Limits, tt.want...)
		})
	}
	half := strings.Repeat(" ", 3) + `"` + strings.Repeat("a", signal.MaxHeader/2) + `";r=5`
	if got := signal.Read(noon, 200, fields(t, "RateLimit", half, "RateLimit", half), nil); got.Limits != nil {
		t.Errorf("two lines that are too long together give %d limits, want none", len(got.Limits))
	}
}

func TestConvention(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pairs []string
		want  []signal.Limit
	}{
		{
			"GitHub", []string{
				"X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4999", "X-RateLimit-Used", "1",
				"X-RateLimit-Reset", "1772714220", "X-RateLimit-Resource", "core",
			},
			[]signal.Limit{limit("core", 5000, unknown, 4999, 30*time.Minute)},
		},
		{"remainder from use", []string{"X-RateLimit-Limit", "60", "X-RateLimit-Used", "70"}, []signal.Limit{limit("", 60, unknown, 0, unknown)}},
		{"use without a limit", []string{"X-RateLimit-Used", "70"}, nil},
		{"delta seconds", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "59"}, []signal.Limit{limit("", unknown, unknown, 3, 59*time.Second)}},
		{"an instant without seconds, as of Jira", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "2026-03-05T12:09Z"}, []signal.Limit{limit("", unknown, unknown, 3, 2*time.Minute)}},
		{"fractions", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "0.5"}, []signal.Limit{limit("", unknown, unknown, 3, 500*time.Millisecond)}},
		{"fractions of an epoch", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1772712421.25"}, []signal.Limit{limit("", unknown, unknown, 3, 1250*time.Millisecond)}},
		{"an epoch that has passed", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1772712000"}, []signal.Limit{limit("", unknown, unknown, 3, 0)}},
		{"an absurd epoch", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1272712000"}, []signal.Limit{limit("", unknown, unknown, 3, unknown)}},
		{"an absurd number", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "99999999999999999999"}, []signal.Limit{limit("", unknown, unknown, 3, unknown)}},
		{"a duration", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1m30s"}, []signal.Limit{precise(limit("", unknown, unknown, 3, 90*time.Second))}},
		{"a negative duration", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "-1s"}, []signal.Limit{limit("", unknown, unknown, 3, unknown)}},
		{"an absurd duration", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "9000h"}, []signal.Limit{limit("", unknown, unknown, 3, unknown)}},
		{"words", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "tomorrow"}, []signal.Limit{limit("", unknown, unknown, 3, unknown)}},
		{"a date of a year without end", []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "9999-12-31T23:59:59Z"}, []signal.Limit{limit("", unknown, unknown, 3, unknown)}},
		{
			"other spelling", []string{"x-rate-limit-limit", "900", "x-rate-limit-remaining", "899", "x-rate-limit-reset", "1772712480"},
			[]signal.Limit{limit("", 900, unknown, 899, time.Minute)},
		},
		{
			"one limit in two spellings", []string{"X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "8", "RateLimit-Limit", "9", "RateLimit-Remaining", "8"},
			[]signal.Limit{limit("", 9, unknown, 8, unknown)},
		},
		{"a list", []string{"X-RateLimit-Limit", "100, 1000", "X-RateLimit-Remaining", "99"}, []signal.Limit{limit("", 100, unknown, 99, unknown)}},
		{"a window beside it", []string{"X-RateLimit-Limit", "100, 100;w=60", "X-RateLimit-Remaining", "99"}, []signal.Limit{limit("", 100, time.Minute, 99, unknown)}},
		{"negative", []string{"X-RateLimit-Limit", "-1", "X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "-1"}, nil},
		{"a quota of nothing", []string{"X-RateLimit-Limit", "0"}, nil},
		{"words for figures", []string{"X-RateLimit-Limit", "unlimited", "X-RateLimit-Remaining", "∞"}, nil},
		{"too large", []string{"X-RateLimit-Limit", "1000000000000000", "X-RateLimit-Remaining", "99999999999999999999"}, nil},
		{"too long", []string{"X-RateLimit-Limit", strings.Repeat("0", signal.MaxHeader) + "5"}, nil},
		{"a name alone", []string{"X-RateLimit-Resource", "core"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantLimits(t, signal.Read(noon, 200, fields(t, tt.pairs...), nil).Limits, tt.want...)
		})
	}
}

func TestLanguageModels(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pairs []string
		want  []signal.Limit
	}{
		{
			"OpenAI", []string{
				"x-ratelimit-limit-requests", "60", "x-ratelimit-remaining-requests", "59", "x-ratelimit-reset-requests", "12ms",
				"x-ratelimit-limit-tokens", "150000", "x-ratelimit-remaining-tokens", "149984", "x-ratelimit-reset-tokens", "6m0s",
			},
			[]signal.Limit{
				precise(bucket(signal.UnitRequests, 60, 59, 12*time.Millisecond)),
				precise(bucket(signal.UnitTokens, 150000, 149984, 6*time.Minute)),
			},
		},
		{
			"Azure, where -1 is unknown", []string{"x-ratelimit-limit-requests", "-1", "x-ratelimit-remaining-requests", "-1", "x-ratelimit-remaining-tokens", "500"},
			[]signal.Limit{bucket(signal.UnitTokens, unknown, 500, unknown)},
		},
		{
			"Azure, where 0 may be unknown", []string{
				"x-ratelimit-limit-requests", "0", "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "0",
				"x-ratelimit-limit-tokens", "1000", "x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "1s",
			},
			[]signal.Limit{precise(bucket(signal.UnitTokens, 1000, 0, time.Second))},
		},
		{
			"Anthropic", []string{
				"anthropic-ratelimit-requests-limit", "50", "anthropic-ratelimit-requests-remaining", "49",
				"anthropic-ratelimit-requests-reset", "2026-03-05T12:07:01Z",
				"anthropic-ratelimit-tokens-limit", "48000", "anthropic-ratelimit-tokens-remaining", "47000",
				"anthropic-ratelimit-tokens-reset", "2026-03-05T12:07:02Z",
				"anthropic-ratelimit-input-tokens-limit", "40000", "anthropic-ratelimit-input-tokens-remaining", "39000",
				"anthropic-ratelimit-input-tokens-reset", "2026-03-05T12:07:03.5Z",
				"anthropic-ratelimit-output-tokens-limit", "8000", "anthropic-ratelimit-output-tokens-remaining", "0",
				"anthropic-ratelimit-output-tokens-reset", "2026-03-05T12:08:00Z",
			},
			[]signal.Limit{
				bucket(signal.UnitRequests, 50, 49, time.Second),
				bucket(signal.UnitTokens, 48000, 47000, 2*time.Second),
				bucket(signal.UnitInputTokens, 40000, 39000, 3500*time.Millisecond),
				bucket(signal.UnitOutputTokens, 8000, 0, time.Minute),
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantLimits(t, signal.Read(noon, 200, fields(t, tt.pairs...), nil).Limits, tt.want...)
		})
	}
}

func TestStrava(t *testing.T) {
	pairs := []string{
		"X-RateLimit-Limit", "200,2000", "X-RateLimit-Usage", "34,504",
		"X-ReadRateLimit-Limit", "100,1000", "X-ReadRateLimit-Usage", "101, 999",
	}
	// At 12:07 the quarter ends in 8 minutes, the day in 11:53.
	quarter, day := 8*time.Minute, 11*time.Hour+53*time.Minute
	got := signal.Read(noon, 429, fields(t, pairs...), nil)
	wantLimits(t, got.Limits,
		limit("15min", 200, 15*time.Minute, 166, quarter), limit("day", 2000, 24*time.Hour, 1496, day),
		limit("read-15min", 100, 15*time.Minute, 0, quarter), limit("read-day", 1000, 24*time.Hour, 1, day))
	if got.RetryAfter != quarter || !got.HasRetryAfter || got.Exhausted {
		t.Errorf("quarter used up: %+v, want a wait of %v", got, quarter)
	}
	got = signal.Read(noon, 429, fields(t, "X-RateLimit-Limit", "100,1000", "X-RateLimit-Usage", "5,1000"), nil)
	if got.RetryAfter != day || !got.Exhausted {
		t.Errorf("day used up: %+v, want exhausted for %v", got, day)
	}
	for _, usage := range []string{"5", "a,b", "5,", "1,2,3", "-1,5"} {
		got := signal.Read(noon, 200, fields(t, "X-RateLimit-Limit", "100,1000", "X-RateLimit-Usage", usage), nil)
		if got.Limits != nil {
			t.Errorf("usage %q: limits %+v, want none", usage, got.Limits)
		}
	}
}

func TestShopify(t *testing.T) {
	const key = "X-Shopify-Shop-Api-Call-Limit"
	want := bucket(signal.UnitRequests, 40, 8, unknown)
	want.Name = "bucket"
	wantLimits(t, signal.Read(noon, 200, fields(t, key, "32/40"), nil).Limits, want)
	want.Remaining = 0
	got := signal.Read(noon, 429, fields(t, key, "41/40", "Retry-After", "2.0"), nil)
	wantLimits(t, got.Limits, want)
	if got.RetryAfter != 2*time.Second {
		t.Errorf("wait %v, want 2s", got.RetryAfter)
	}
	for _, value := range []string{"", "32", "/", "a/40", "32/", "0/0", "-1/40"} {
		if got := signal.Read(noon, 200, fields(t, key, value), nil); got.Limits != nil {
			t.Errorf("%q: limits %+v, want none", value, got.Limits)
		}
	}
}

func TestDataverseHeaders(t *testing.T) {
	got := signal.Read(noon, 200, fields(t, "x-ms-dop-hint", "10", "x-ms-ratelimit-burst-remaining-xrm-requests", "0",
		"x-ms-ratelimit-time-remaining-xrm-requests", "0"), nil)
	if got.Parallelism != 10 || got.Limits != nil {
		t.Errorf("%+v, want parallelism 10 and no limits: the others are for debugging", got)
	}
	for _, hint := range []string{"", "0", "-4", "many", "10001", "1.5"} {
		if got := signal.Read(noon, 200, fields(t, "x-ms-dop-hint", hint), nil); got.Parallelism != 0 {
			t.Errorf("hint %q: parallelism %d, want none", hint, got.Parallelism)
		}
	}
}
