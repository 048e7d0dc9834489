package signal

import (
	"net/http"
	"time"
)

// Canonical keys of the fields that tell a wait.
const (
	retryAfterKey     = "Retry-After"
	retryAfterMSKey   = "Retry-After-Ms"
	msRetryAfterMSKey = "X-Ms-Retry-After-Ms"
)

// retryAfter is the wait that the Retry-After fields tell. The forms in
// milliseconds are finer, so they win where they agree with Retry-After to a
// second; where they do not, the longer one is the safe reading.
func retryAfter(from origin) (wait time.Duration, ok bool) {
	coarse, hasCoarse := longest(from, retryAfterKey, secondsOrDate)
	fine, hasFine := longest(from, retryAfterMSKey, milliseconds)
	if other, has := longest(from, msRetryAfterMSKey, milliseconds); has {
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

// longest reads each line of a field that should have only one: with several, a
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

// secondsOrDate reads RFC 9110's delay-seconds or HTTP-date. Decimals are
// accepted because Shopify sends them. A date in the past asks for no wait; a
// negative number is malformed.
func secondsOrDate(value string, from origin) (time.Duration, bool) {
	if n, ok := parseNumber(value); ok {
		return n.clamped(time.Second), true
	}
	// Anything that is not a number and has no letters in front is no date either:
	// do not pay for parsing it three times.
	if value == "" || value[0] < 'A' {
		return 0, false
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(from.instant()), 0), MaxRetryAfter), true
}

// milliseconds reads retry-after-ms and its kin.
func milliseconds(value string, _ origin) (time.Duration, bool) {
	n, ok := parseNumber(value)
	return n.clamped(time.Millisecond), ok
}

// origin is where durations to a named instant are counted from.
type origin struct {
	now    time.Time
	header http.Header
}

// instant is the provider's own clock at the time of the response, so that the
// difference to another instant that it names is free of skew. The caller's now
// stands in when the Date field is missing, malformed, further than
// MaxRetryAfter from now, or that of a response from a cache.
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

// until is the time from the response to an instant that the provider names: 0
// when it has passed, Unknown when it is absurdly far off either way.
func (o origin) until(at time.Time) time.Duration {
	d := at.Sub(o.instant())
	if d.Abs() > MaxRetryAfter {
		return Unknown
	}
	return max(d, 0)
}

// cached reports whether the response came from a cache: what it says of the
// provider's clock and limits was true when it was stored.
func cached(header http.Header) bool { return count(field(header, "Age")) > 0 }
