// Package figure writes numbers and rates for people, with the thousands set
// apart by commas: 1,000/s. What a program or a file reads back is not for it.
// It is pure and safe for concurrent use.
package figure

import (
	"math"
	"strconv"
)

// Count is a whole number: 1,234,567.
func Count(n int64) string { return group(strconv.FormatInt(n, 10)) }

// Number is x with as many digits as it deserves: three where it is below 100,
// whole above. It never has an exponent.
func Number(x float64) string {
	if math.Abs(x) >= 100 && math.Abs(x) < math.MaxInt64 {
		return Count(int64(math.Round(x)))
	}
	return Digits(x, 3)
}

// Digits is x with at most so many significant digits, and never fewer than its
// whole part has.
func Digits(x float64, digits int) string {
	short, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
	if err != nil || math.Abs(x) >= math.Pow10(digits) {
		short = math.Round(x)
	}
	return group(strconv.FormatFloat(short, 'f', -1, 64))
}

// Rate is so many a minute, in the unit that reads best: 20/s, 5/min, 0.5/h.
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

// group sets the thousands of a decimal's whole part apart.
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
