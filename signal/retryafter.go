package signal

import (
	"net/http"
	"time"
)

// Canonical keys of the fields that state a wait.
const (
	retryAfterKey     = "Retry-After"
	retryAfterMSKey   = "Retry-After-Ms"
	msRetryAfterMSKey = "X-Ms-Retry-After-Ms"
	retryInKey        = "X-Retry-In" // Traefik's
)

// retryAfter returns the wait in the Retry-After fields. The millisecond forms and Traefik's duration
// are more precise, so they win if they agree with Retry-After to a second; otherwise the longer
// wait is safe.
func retryAfter(from origin) (wait time.Duration, ok bool) {
	coarse, hasCoarse := longest(from, retryAfterKey, secondsOrDate)
	fine, hasFine := longest(from, retryAfterMSKey, milliseconds)
	if other, has := longest(from, msRetryAfterMSKey, milliseconds); has {
		fine, hasFine = max(fine, other), true
	}
	if other, has := longest(from, retryInKey, duration); has {
		fine, hasFine = max(fine, other), true
	}
	switch {
	case !hasFine:
		return coarse, hasCoarse
	case !hasCoarse || (coarse-fine).Abs() <= time.Second:
		return fine, true
	default:
		return max(coarse, fine), true
	}
}

// longest reads every line of a field that should have only one: if there are several, a
// proxy added its own, and both ask to wait.
func longest(from origin, key string, read func(string, origin) (time.Duration, bool)) (wait time.Duration, ok bool) {
	for _, line := range from.header[key] {
		if len(line) > MaxHeader {
			continue
		}
		if d, valid := read(trim(line), from); valid {
			wait, ok = max(wait, d), true
		}
	}
	return wait, ok
}

// secondsOrDate reads RFC 9110's delay-seconds or HTTP-date. Decimals are accepted
// because Shopify sends them. A date in the past means no wait; a negative number is
// malformed.
func secondsOrDate(value string, from origin) (time.Duration, bool) {
	if n, ok := parseNumber(value); ok {
		return n.clamped(time.Second), true
	}
	// A value that is not a number and does not begin with a letter is not a date either:
	// do not parse it three times.
	if value == "" || value[0] < 'A' {
		return 0, false
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(from.instant()), 0), MaxRetryAfter), true
}

// milliseconds reads retry-after-ms and similar fields.
func milliseconds(value string, _ origin) (time.Duration, bool) {
	n, ok := parseNumber(value)
	return n.clamped(time.Millisecond), ok
}

// duration reads one as Go writes it, such as 80.375956ms or 1m2.5s.
func duration(value string, _ origin) (time.Duration, bool) {
	d, err := time.ParseDuration(value)
	return min(d, MaxRetryAfter), err == nil && d >= 0
}

// origin is the time from which durations to a stated time are counted.
type origin struct {
	now    time.Time
	header http.Header
}

// instant returns the provider's clock at the time of the response, so that differences
// to other times that it states are free of skew. The caller's now is used if the Date
// field is missing, malformed, further than MaxRetryAfter from now, or from a cached
// response.
func (o origin) instant() time.Time {
	value := field(o.header, "Date")
	if value == "" || cached(o.header) {
		return o.now
	}
	at, err := http.ParseTime(value)
	if err != nil || at.Sub(o.now).Abs() > MaxRetryAfter {
		return o.now
	}
	return at
}

// until returns the time from the response to a time stated by the provider: 0 if it has
// passed, Unknown if it is absurdly far off.
func (o origin) until(at time.Time) time.Duration {
	d := at.Sub(o.instant())
	if d.Abs() > MaxRetryAfter {
		return Unknown
	}
	return max(d, 0)
}

// cached reports whether the response came from a cache: its clock and limits were
// current when it was stored.
func cached(header http.Header) bool { return count(field(header, "Age")) > 0 }
