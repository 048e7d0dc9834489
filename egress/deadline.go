package egress

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// sdkTimeouts are fields in which SDKs tell their own timeout, in seconds:
// OpenAI's and Anthropic's (made with Stainless), and Google's.
var sdkTimeouts = [...]string{"X-Stainless-Timeout", "X-Stainless-Read-Timeout", "X-Server-Timeout"}

// patience is the instant up to which a client's call may wait: most after it
// began, or what its header says, if that is earlier. A field of an SDK that
// cannot be read is passed over; the error names one of ours.
func patience(began time.Time, limit time.Duration, h http.Header) (time.Time, error) {
	until := began.Add(limit)
	sooner := func(t time.Time) {
		if t.Before(until) {
			until = t
		}
	}
	if v := h.Get(headerDeadline); v != "" {
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return until, fmt.Errorf("%s is not an RFC 3339 instant, such as 2006-01-02T15:04:05Z", headerDeadline)
		}
		sooner(t)
	}
	if v := h.Get(headerTimeout); v != "" {
		d, ok := span(v)
		if !ok {
			return until, fmt.Errorf("%s is not a length of time above 0, such as 2s or 2 (seconds)", headerTimeout)
		}
		sooner(began.Add(d))
	}
	for _, name := range sdkTimeouts {
		if d, ok := span(h.Get(name)); ok {
			sooner(began.Add(d))
		}
	}
	return until, nil
}

// maxSpan is longer than anybody waits; it keeps sums in range.
const maxSpan = 24 * time.Hour

// span reads seconds, or a duration with its unit.
func span(v string) (time.Duration, bool) {
	if v == "" || len(v) > 32 {
		return 0, false
	}
	if seconds, err := strconv.ParseFloat(v, 64); err == nil {
		if !(seconds > 0) || math.IsInf(seconds, 0) {
			return 0, false
		}
		return time.Duration(min(seconds, maxSpan.Seconds()) * float64(time.Second)), true
	}
	d, err := time.ParseDuration(strings.TrimSpace(v))
	return min(d, maxSpan), err == nil && d > 0
}
