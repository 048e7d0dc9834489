package signal

import (
	"math"
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// maxCount is the largest figure that is believed; it is the largest integer of
// structured fields.
const maxCount = 999_999_999_999_999

// field is the first line of a field, trimmed; empty when there is none or it
// is too long to be one.
func field(header http.Header, key string) string {
	lines := header[key]
	if len(lines) == 0 || len(lines[0]) > MaxHeader {
		return ""
	}
	return trim(lines[0])
}

// trim takes off the optional white space that HTTP allows around a value.
func trim(value string) string { return textproto.TrimString(value) }

// count reads a figure: digits only, up to maxCount; Unknown otherwise.
func count(value string) int64 {
	n, ok := parseNumber(value)
	if !ok || n.nanos != 0 || n.whole > maxCount {
		return Unknown
	}
	return n.whole
}

// leading reads the figure in front of a list or of parameters, as early drafts
// write a limit: "10, 10;w=1, 50;w=60".
func leading(value string) int64 {
	if i := strings.IndexAny(value, ",;"); i >= 0 {
		value = value[:i]
	}
	return count(trim(value))
}

// left is what remains of a quota; Unknown when either figure is.
func left(quota, used int64) int64 {
	if quota == Unknown || used == Unknown {
		return Unknown
	}
	return max(quota-used, 0)
}

// number is a non-negative decimal: whole units and billionths of one.
type number struct {
	whole int64
	nanos int64
}

// parseNumber reads digits with an optional fraction. It saturates instead of
// overflowing and takes neither sign, exponent nor white space. Digits beyond
// the billionth are dropped.
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

// clamped is the number as a duration in a unit of at most a second, no longer
// than MaxRetryAfter.
func (n number) clamped(unit time.Duration) time.Duration {
	if n.whole >= int64(MaxRetryAfter/unit) {
		return MaxRetryAfter
	}
	return time.Duration(n.whole)*unit + time.Duration(n.nanos)*unit/time.Second
}
