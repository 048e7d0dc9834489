package signal

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headway-go/headway/reason"
)

// The parts, where they stand: each bound from both sides.

func TestFiguresAtTheirBounds(t *testing.T) {
	const most = int64(maxCount)
	for value, want := range map[string]int64{
		"": Unknown, "0": 0, "9": 9, ":": Unknown, "/": Unknown, "5a": Unknown, "1.0": 1, "1.5": Unknown, "1.": Unknown, ".5": Unknown,
		fmt.Sprint(most): most, fmt.Sprint(most + 1): Unknown,
	} {
		if got := count(value); got != want {
			t.Errorf("count(%q) = %d, want %d", value, got, want)
		}
	}
	for value, want := range map[string]int64{
		"10": 10, "10, 20;w=1": 10, " 7 ;w=1": 7, ",5": Unknown, ";w=1": Unknown, "12;": 12,
	} {
		if got := leading(value); got != want {
			t.Errorf("leading(%q) = %d, want %d", value, got, want)
		}
	}
	for value, want := range map[string]number{
		"9223372036854775807": {whole: math.MaxInt64}, "9223372036854775808": {whole: math.MaxInt64}, "92233720368547758070": {whole: math.MaxInt64},
		"922337203685477579": {whole: 922337203685477579}, "9223372036854775799": {whole: 9223372036854775799}, "1.000000001": {1, 1}, "1.9999999999": {1, 999_999_999},
	} {
		if got, ok := parseNumber(value); !ok || got != want {
			t.Errorf("parseNumber(%q) = %+v, %v, want %+v", value, got, ok, want)
		}
	}
	bound := int64(MaxRetryAfter / time.Second)
	if got := (number{whole: bound - 1}).clamped(time.Second); got != MaxRetryAfter-time.Second {
		t.Errorf("a second below the bound is %v", got)
	}
	if got := (number{whole: bound, nanos: 5}).clamped(time.Second); got != MaxRetryAfter {
		t.Errorf("at the bound it is %v", got)
	}
}

func TestFieldsAtTheirBounds(t *testing.T) {
	long := strings.Repeat("1", MaxHeader)
	if got := field(http.Header{"X": {long}}, "X"); got != long {
		t.Errorf("a field of %d bytes is left out", MaxHeader)
	}
	if got := field(http.Header{"X": {long + "1"}}, "X"); got != "" {
		t.Errorf("a field of %d bytes is read", MaxHeader+1)
	}
	read := func(string, origin) (time.Duration, bool) { return 1, true }
	for n, want := range map[int]bool{MaxHeader: true, MaxHeader + 1: false} {
		if _, ok := longest(origin{header: http.Header{"X": {strings.Repeat("1", n)}}}, "X", read); ok != want {
			t.Errorf("a line of %d bytes is read: %v", n, ok)
		}
	}
}

func TestInstantsAtTheirBounds(t *testing.T) {
	now := time.Date(2026, 3, 5, 12, 7, 0, 0, time.UTC)
	dated := func(d time.Duration, age ...string) origin {
		h := http.Header{"Date": {now.Add(d).Format(http.TimeFormat)}}
		if len(age) > 0 {
			h["Age"] = age
		}
		return origin{now: now, header: h}
	}
	for _, tt := range []struct {
		from origin
		want time.Duration
	}{
		{dated(MaxRetryAfter), MaxRetryAfter}, {dated(-MaxRetryAfter), -MaxRetryAfter},
		{dated(MaxRetryAfter + time.Second), 0}, {dated(-MaxRetryAfter - time.Second), 0},
		{dated(time.Minute, "0"), time.Minute}, {dated(time.Minute, "1"), 0}, {dated(time.Minute, "x"), time.Minute},
		{origin{now: now}, 0}, {origin{now: now, header: http.Header{"Date": {"soon"}}}, 0},
	} {
		if got := tt.from.instant().Sub(now); got != tt.want {
			t.Errorf("%v: %v from now, want %v", tt.from.header, got, tt.want)
		}
	}
	here := origin{now: now}
	for d, want := range map[time.Duration]time.Duration{
		MaxRetryAfter: MaxRetryAfter, MaxRetryAfter + 1: Unknown, -1: 0, -MaxRetryAfter: 0, -MaxRetryAfter - 1: Unknown, 1: 1,
	} {
		if got := here.until(now.Add(d)); got != want {
			t.Errorf("until %v: %v, want %v", d, got, want)
		}
	}
	seconds := int64(MaxRetryAfter / time.Second)
	for value, want := range map[string]time.Duration{
		fmt.Sprint(seconds - 1): MaxRetryAfter - time.Second, fmt.Sprint(now.Unix() + 5): 5 * time.Second, fmt.Sprint(now.UnixMilli() + 5): 5 * time.Millisecond,
		fmt.Sprint(seconds): Unknown, "99999999999": Unknown, "0s": 0, "-1s": Unknown, "-1ns": Unknown, "1ns": 1,
		MaxRetryAfter.String(): MaxRetryAfter, (MaxRetryAfter + 1).String(): Unknown, "": Unknown,
	} {
		if got := readReset(value, here); got != want {
			t.Errorf("readReset(%q) = %v, want %v", value, got, want)
		}
	}
	for value, want := range map[string]bool{"": false, "-1": false, "x": false, "@": false, now.Format(http.TimeFormat): true, "5": true} {
		if d, ok := secondsOrDate(value, here); ok != want || !ok && d != 0 {
			t.Errorf("secondsOrDate(%q) = %v, %v", value, d, ok)
		}
	}
	if d, ok := secondsOrDate(now.Format(http.TimeFormat), here); !ok || d != 0 {
		t.Errorf("a date that is now asks for %v", d)
	}
}

func TestTheFinerRetryAfterWinsWhereTheyAgree(t *testing.T) {
	for _, tt := range []struct {
		coarse, fine string
		want         time.Duration
	}{
		{"2", "1000", time.Second}, {"1", "2000", 2 * time.Second}, // agree to a second
		{"2", "999", 2 * time.Second}, {"3", "1500", 3 * time.Second}, {"", "5000", 5 * time.Second}, {"", "10", 10 * time.Millisecond},
	} {
		h := http.Header{retryAfterMSKey: {tt.fine}}
		if tt.coarse != "" {
			h[retryAfterKey] = []string{tt.coarse}
		}
		if got, ok := retryAfter(origin{header: h}); !ok || got != tt.want {
			t.Errorf("%q and %q ms: %v, %v, want %v", tt.coarse, tt.fine, got, ok, tt.want)
		}
	}
}

func TestWhatTells(t *testing.T) {
	none := unknownLimit("", "")
	if none.tells() {
		t.Error("an unknown limit tells something")
	}
	for name, set := range map[string]func(*Limit){
		"quota": func(l *Limit) { l.Quota = 0 }, "window": func(l *Limit) { l.Window = 0 },
		"remaining": func(l *Limit) { l.Remaining = 0 }, "reset": func(l *Limit) { l.Reset = 0 },
	} {
		l := none
		if set(&l); !l.tells() {
			t.Errorf("a %s tells nothing", name)
		}
	}
	for _, tt := range []struct {
		l          Limit
		meant, out bool
	}{
		{Limit{}, false, false}, {Limit{Quota: 1}, true, true}, {Limit{Remaining: 1, Reset: Unknown}, true, false},
		{Limit{Reset: 1}, true, true}, {Limit{Reset: Unknown}, false, false}, {Limit{Remaining: 1}, true, false},
	} {
		if got := meant(tt.l); got != tt.meant {
			t.Errorf("%+v is meant: %v", tt.l, got)
		}
	}
	for _, tt := range []struct {
		l    Limit
		want bool
	}{
		{Limit{Remaining: 0, Reset: 5}, true}, {Limit{Remaining: 0, Reset: Unknown}, false}, {Limit{Remaining: 1, Reset: 5}, false},
		{Limit{Remaining: 0, Reset: -2}, true},
	} {
		if got := depleted([]Limit{tt.l}); got != tt.want {
			t.Errorf("%+v is depleted: %v", tt.l, got)
		}
	}
	for value, want := range map[string]int{"0": 0, "1": 1, "10000": 10000, "10001": 0, "x": 0} {
		if got := parallelism(http.Header{"X-Ms-Dop-Hint": {value}}); got != want {
			t.Errorf("a hint of %s is %d, want %d", value, got, want)
		}
	}
}

func TestWhatABodyNotes(t *testing.T) {
	type seen struct{ failed, secondary, exhausted, perDay bool }
	for body, want := range map[string]seen{
		`{"error":"x"}`: {failed: true}, `{"error":""}`: {}, `{"error":"x","type":""}`: {failed: true}, `{"error":{"a":"x"},"error":""}`: {failed: true},
		`{"type":"error"}`: {failed: true}, `{"type":"error","type":"other"}`: {failed: true}, `{"errors":"x"}`: {},
		`{"message":"You have exceeded a Secondary rate limit"}`: {secondary: true}, `{"message":"Abuse detection"}`: {secondary: true},
		`{"message":"secondary rate limit","message":"no"}`:                                         {secondary: true},
		`{"documentation_url":"https://x/#secondary-rate-limits","message":"no"}`:                   {secondary: true},
		`{"documentation_url":"https://x/#secondary-rate-limits","documentation_url":"https://x/"}`: {secondary: true},
		`{"documentation_url":"https://x/"}`:                                                        {},
		`{"error":{"details":{"violations":[{"quotaId":"PerDay"},{"quotaId":"PerMinute"}]}}}`:       {failed: true, perDay: true},
		`{"error":{"details":{"violations":[{"quotaMetric":"x_per_day"}]}}}`:                        {failed: true, perDay: true},
		`{"code":"insufficient_quota","error":{"code":"none"}}`:                                     {failed: true, exhausted: true},
		`{`: {}, ` `: {}, `"x"`: {}, `1`: {},
	} {
		f := readBody([]byte(body))
		if got := (seen{f.failed, f.secondary, f.exhausted, f.perDay}); got != want {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
	for delay, want := range map[string]time.Duration{
		"0s": 0, "1.5s": 1500 * time.Millisecond, "-1s": Unknown, "1h": Unknown, "5": Unknown, "xs": Unknown, "9999h1s": MaxRetryAfter, "9999999h1s": Unknown,
	} {
		if f := readBody(fmt.Appendf(nil, `{"error":{"details":[{"retryDelay":%q}]}}`, delay)); f.wait != want {
			t.Errorf("a delay of %s is %v, want %v", delay, f.wait, want)
		}
	}
	for code, want := range map[string]int{"399": 0, "400": 400, "599": 599, "600": 0, "429": 429} {
		if f := readBody(fmt.Appendf(nil, `{"error":{"code":%s}}`, code)); f.status != want {
			t.Errorf("a code of %s is status %d, want %d", code, f.status, want)
		}
	}
	for status, want := range map[int]reason.Class{400: Classify(400), 399: reason.Failed} {
		if got := ReadStreamError(fmt.Appendf(nil, `{"error":{"code":%d}}`, status)).Class; got != want {
			t.Errorf("an event of %d is %v, want %v", status, got, want)
		}
	}
	// At most so many bytes are read, and those whole.
	tail := `,"type":"error"}`
	pad := func(n int) []byte {
		return []byte(`{"a":"` + strings.Repeat("x", n-len(`{"a":"`)-1-len(tail)) + `"` + tail)
	}
	if !readBody(pad(MaxBody)).failed {
		t.Error("a body at the bound is not read to its end")
	}
	if whole := append(pad(MaxBody-len(tail)-8), pad(MaxBody)...); !readBody(whole).failed {
		t.Error("what comes behind the bound hides what came before it")
	}
}

func TestASecondaryLimitWaitsWhereNothingElseIsSaid(t *testing.T) {
	for _, tt := range []struct {
		s    Signal
		f    finding
		want Signal
	}{
		{Signal{Class: reason.Rejected}, finding{secondary: true, wait: Unknown}, Signal{Class: reason.Throttled, RetryAfter: secondaryWait, HasRetryAfter: true}},
		{Signal{Class: reason.Failed}, finding{secondary: true, wait: Unknown}, Signal{Class: reason.Failed}},
		{Signal{Class: reason.Failed}, finding{exhausted: true, wait: 5}, Signal{Class: reason.Failed}},
		{Signal{Class: reason.Throttled}, finding{wait: minuteQuota, perDay: true}, Signal{Class: reason.Throttled, Exhausted: true}},
		{Signal{Class: reason.Throttled}, finding{wait: minuteQuota + 1, perDay: true}, Signal{Class: reason.Throttled, Exhausted: true, RetryAfter: minuteQuota + 1, HasRetryAfter: true}},
		{Signal{Class: reason.Throttled, Exhausted: true}, finding{wait: Unknown}, Signal{Class: reason.Throttled, Exhausted: true}},
		{Signal{Class: reason.Throttled, HasRetryAfter: true, RetryAfter: 7}, finding{wait: 9}, Signal{Class: reason.Throttled, HasRetryAfter: true, RetryAfter: 7}},
	} {
		tt.f.limit = unknownLimit("", "")
		got := tt.s
		got.apply(tt.f)
		if got.Class != tt.want.Class || got.Exhausted != tt.want.Exhausted || got.RetryAfter != tt.want.RetryAfter || got.HasRetryAfter != tt.want.HasRetryAfter {
			t.Errorf("%+v with %+v: %+v, want %+v", tt.s, tt.f, got, tt.want)
		}
	}
}

func TestPathsAtTheirBounds(t *testing.T) {
	name := strings.Repeat("n", maxPath-3)
	for _, tt := range []struct{ path, key, want string }{
		{"/a", name[:maxPath-3], "/a/" + name}, {"/a", name + "n", elsewhere}, {elsewhere, "a", elsewhere}, {"", "a", "/a"},
	} {
		if got := join(tt.path, tt.key); got != tt.want {
			t.Errorf("join(%q, %d bytes) = %q", tt.path, len(tt.key), got)
		}
	}
	if got := join("/a", nil); got != elsewhere {
		t.Errorf("a key that is not text: %q", got)
	}
	for depth, want := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
		body := strings.Repeat(`[`, depth) + `{"type":"error"}` + strings.Repeat(`]`, depth)
		found := readBody([]byte(body)).failed
		// The object and its value are two more steps down.
		if shallow := readBody([]byte(body[2 : len(body)-2])).failed; shallow != (depth-2+1 <= maxDepth) {
			t.Errorf("an object %d deep is read: %v", depth-2, shallow)
		}
		if found && !want {
			t.Errorf("an object %d deep is read", depth)
		}
	}
}
