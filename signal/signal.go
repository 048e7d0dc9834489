package signal

import (
	"math"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/headway-go/headway/reason"
)

// Unknown is the value of a figure or duration that the response did not state. It is the
// only negative value in a [Limit].
const Unknown = -1

// Bounds of what is read and reported.
const (
	// MaxRetryAfter bounds every duration in a [Signal]. A longer Retry-After is
	// clamped to it; a longer window or reset is absurd and stays [Unknown].
	MaxRetryAfter = 366 * 24 * time.Hour
	// MaxHeader is the length in bytes up to which a header field is read. A longer one
	// is ignored; the lines of a structured field count together.
	MaxHeader = 8 << 10
	// MaxBody is the length in bytes of the prefix of a body that is read.
	MaxBody = 64 << 10
	// MaxLimits is the most limits that one signal reports.
	MaxLimits = 32
)

// Units of a [Limit]. Providers may use others.
const (
	// UnitRequests counts requests. It is the default.
	UnitRequests = "requests"
	// UnitConcurrent counts requests in flight at the same time.
	UnitConcurrent = "concurrent-requests"
	// UnitTokens counts tokens of a language model, input and output together.
	UnitTokens = "tokens"
	// UnitInputTokens counts input tokens.
	UnitInputTokens = "input-tokens"
	// UnitOutputTokens counts generated tokens.
	UnitOutputTokens = "output-tokens"
	// UnitPoints counts points that a provider assigns to the work of a request, such as
	// a GraphQL query.
	UnitPoints = "points"
	// UnitExecution counts seconds of the provider's execution time.
	UnitExecution = "execution-seconds"
)

// longWindow is the shortest window whose end is not worth waiting for.
const longWindow = 24 * time.Hour

// Signal is what one response says. The zero value says nothing.
type Signal struct {
	// Class is how the attempt ended. It follows the status, except that a 403
	// may be a throttle (GitHub), and that an error body may name a throttle or
	// an overload that the status hides.
	Class reason.Class
	// RetryAfter is a wait to be observed once, between 0 and [MaxRetryAfter]. It is 0 if
	// HasRetryAfter is false. For a throttle without an advertised wait it is the longest
	// reset of the limits that have nothing remaining. For class OK it concerns the
	// resource (such as a job to be polled), not the rate.
	RetryAfter time.Duration
	// HasRetryAfter says that a wait was advertised, which may be 0.
	HasRetryAfter bool
	// Exhausted says that a long-window quota is used up: a daily one, or one of money.
	// Such an attempt should not be retried soon. RetryAfter is then when the quota is
	// renewed, if that was advertised.
	Exhausted bool
	// Parallelism is the provider's recommended number of requests in flight
	// (x-ms-dop-hint); 0 if there is none.
	Parallelism int
	// Limits are the limits that the response states, in a fixed order; nil if there are
	// none. They are omitted for a response from a cache (Age above 0), because they are
	// not current.
	Limits []Limit
}

// Limit is one limit as the provider states it. Every figure can be [Unknown].
type Limit struct {
	// Name is the provider's name for the limit, if it has one: a policy, a resource, or
	// the unit again.
	Name string
	// Unit is what is counted: one of the Unit constants, or the provider's own word.
	Unit string
	// Partition is the partition key (pk) in raw bytes; empty if there is none. It may
	// identify a user: never log it.
	Partition string
	// Quota is how many units a window holds.
	Quota int64
	// Window is the length of the window; positive when known.
	Window time.Duration
	// Remaining is how many units are left. Providers round it: Anthropic rounds tokens
	// to thousands.
	Remaining int64
	// Reset is the time until the window ends or, if Refills is true, until the quota is
	// full again.
	Reset time.Duration
	// Precise says that Reset is stated as a duration with a unit, such as "1s" or "6ms".
	// Most providers that do so do not round it to seconds.
	Precise bool
	// Refills says that units are restored continuously (a bucket) instead of all at the
	// end of a window.
	Refills bool
	// Took is how many units the request took, if known from elsewhere; [Read] leaves it
	// 0.
	Took int64
}

// unknownLimit returns a limit without figures.
func unknownLimit(name, unit string) Limit {
	return Limit{Name: name, Unit: unit, Quota: Unknown, Window: Unknown, Remaining: Unknown, Reset: Unknown}
}

// tells reports whether any figure is known.
func (l Limit) tells() bool {
	return l.Quota != Unknown || l.Window != Unknown || l.Remaining != Unknown || l.Reset != Unknown
}

// Read returns the signal of one whole response. now is the wall-clock time when the
// response came. Header keys must be canonical, as in net/http. The body may be nil,
// truncated, or of any media type; it is read only for a status of 400 and above, up to
// [MaxBody] bytes.
//
// If several waits are advertised, the order of precedence is: the Retry-After fields,
// the body, the resets of limits with nothing remaining. Read never fails.
func Read(now time.Time, status int, header http.Header, body []byte) Signal {
	from := origin{now: now, header: header}
	s := Signal{Class: Classify(status)}
	s.RetryAfter, s.HasRetryAfter = retryAfter(from)
	if !cached(header) {
		s.Limits = limits(from)
		s.Parallelism = parallelism(header)
	}
	if status == http.StatusForbidden && (s.HasRetryAfter || count(field(header, remainingKey)) == 0) {
		s.Class = reason.Throttled
	}
	if status >= http.StatusBadRequest {
		f := readBody(body)
		f.secondary = f.secondary && (status == http.StatusForbidden || status == http.StatusTooManyRequests)
		s.apply(f)
	}
	s.conclude()
	return s
}

// conclude derives what follows from limits with nothing remaining, once the class is
// known.
func (s *Signal) conclude() {
	if !s.Class.Throttle() {
		return
	}
	fromReset := !s.HasRetryAfter && !s.Exhausted
	for _, l := range s.Limits {
		if l.Remaining != 0 {
			continue
		}
		if l.Window >= longWindow {
			s.Exhausted = true
		}
		if fromReset && l.Reset != Unknown {
			s.RetryAfter, s.HasRetryAfter = max(s.RetryAfter, l.Reset), true
		}
	}
}

// Classify returns the class of a status alone: 2xx and 3xx are OK, 429 is Throttled, 503
// and 529 are Overloaded, 408 and other 5xx are Failed, other 4xx are Rejected. Anything
// else is not the status of a final response, and the class is Unknown.
func Classify(status int) reason.Class {
	switch {
	case status == http.StatusTooManyRequests:
		return reason.Throttled
	case status == http.StatusServiceUnavailable, status == statusOverloaded:
		return reason.Overloaded
	case status == http.StatusRequestTimeout:
		return reason.Failed
	case status < 200 || status > 599:
		return reason.Unknown
	case status < 400:
		return reason.OK
	case status < 500:
		return reason.Rejected
	default:
		return reason.Failed
	}
}

// statusOverloaded is sent by Anthropic and some proxies under load; it is not
// registered.
const statusOverloaded = 529

// maxCount is the largest figure that is accepted: the largest integer in structured
// fields.
const maxCount = 999_999_999_999_999

// field returns the first line of a field, trimmed; empty if there is none or it is too
// long.
func field(header http.Header, key string) string {
	lines := header[key]
	if len(lines) == 0 || len(lines[0]) > MaxHeader {
		return ""
	}
	return trim(lines[0])
}

// trim removes the optional white space that HTTP allows around a value.
func trim(value string) string { return textproto.TrimString(value) }

// count reads a figure: digits only, up to maxCount; Unknown otherwise.
func count(value string) int64 {
	n, ok := parseNumber(value)
	if !ok || n.nanos != 0 || n.whole > maxCount {
		return Unknown
	}
	return n.whole
}

// leading reads the figure at the start of a list or before parameters, as early drafts
// write a limit: "10, 10;w=1, 50;w=60".
func leading(value string) int64 {
	if i := strings.IndexAny(value, ",;"); i >= 0 {
		value = value[:i]
	}
	return count(trim(value))
}

// left returns the remainder of a quota; Unknown if either figure is.
func left(quota, used int64) int64 {
	if quota == Unknown || used == Unknown {
		return Unknown
	}
	return max(quota-used, 0)
}

// number is a non-negative decimal: whole units and billionths.
type number struct {
	whole int64
	nanos int64
}

// parseNumber reads digits with an optional fraction. It saturates instead of
// overflowing, and accepts no sign, exponent or white space. Digits beyond the ninth
// decimal place are dropped.
func parseNumber(s string) (n number, ok bool) {
	whole, fraction, pointed := strings.Cut(s, ".")
	if whole == "" || (pointed && fraction == "") {
		return number{}, false
	}
	for i := range len(whole) {
		c := whole[i]
		if c < '0' || c > '9' {
			return number{}, false
		}
		if n.whole > (math.MaxInt64-9)/10 {
			n.whole = math.MaxInt64
			continue
		}
		n.whole = n.whole*10 + int64(c-'0')
	}
	scale := int64(1e8)
	for i := range len(fraction) {
		c := fraction[i]
		if c < '0' || c > '9' {
			return number{}, false
		}
		n.nanos += int64(c-'0') * scale
		scale /= 10
	}
	return n, true
}

// clamped returns the number as a duration in a unit of at most a second, no longer than
// MaxRetryAfter.
func (n number) clamped(unit time.Duration) time.Duration {
	if n.whole >= int64(MaxRetryAfter/unit) {
		return MaxRetryAfter
	}
	return time.Duration(n.whole)*unit + time.Duration(n.nanos)*unit/time.Second
}
