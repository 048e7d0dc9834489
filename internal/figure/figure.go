// Package figure formats numbers, rates and durations for people: 1,000/s, with commas
// between thousands, and 1h. Only durations are meant to be parsed again. It is pure and
// safe for concurrent use.
package figure

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Count formats a whole number: 1,234,567.
func Count(n int64) string { return group(strconv.FormatInt(n, 10)) }

// Number formats x with three significant digits below 100, and as a whole number above.
// It never uses an exponent.
func Number(x float64) string {
	if math.Abs(x) >= 100 && math.Abs(x) < math.MaxInt64 {
		return Count(int64(math.Round(x)))
	}
	return Digits(x, 3)
}

// Digits formats x with at most so many significant digits, and never fewer than its
// whole part has.
func Digits(x float64, digits int) string {
	short, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
	if err != nil || math.Abs(x) >= math.Pow10(digits) {
		short = math.Round(x)
	}
	return group(strconv.FormatFloat(short, 'f', -1, 64))
}

// Rate formats a rate per minute in the unit that reads best: 20/s, 5/min, 0.5/h.
func Rate(perMinute float64) string {
	switch {
	case perMinute >= 60:
		return Number(perMinute/60) + "/s"
	case perMinute >= 1:
		return Number(perMinute) + "/min"
	default:
		return Number(perMinute*60) + "/h"
	}
}

// group inserts commas between the thousands of a decimal's whole part.
func group(s string) string {
	end := len(s)
	for i := range s {
		if s[i] == '.' {
			end = i
			break
		}
	}
	for i := end - 3; i > 0 && s[i-1] >= '0' && s[i-1] <= '9'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Duration formats d as people write it in a file, without the trailing zero units of
// [time.Duration.String]: 1h, not 1h0m0s. [time.ParseDuration] parses it exactly. Round a
// measured duration first.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
