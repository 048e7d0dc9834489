package signal_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/signal"
)

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
