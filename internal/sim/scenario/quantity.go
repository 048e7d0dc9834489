package scenario

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/span"
)

// Rate is a number of requests per unit of time, as it was written. The zero
// Rate is not a rate.
type Rate struct {
	// Count requests Per that time.
	Count float64
	Per   time.Duration
	text  string
}

// PerSecond is the rate in requests a second.
func (r Rate) PerSecond() float64 {
	if r.Per <= 0 {
		return 0
	}
	return r.Count / r.Per.Seconds()
}

// Interval is the time between two requests at that rate, rounded up to a
// nanosecond so that a limiter built on it never lets more through.
func (r Rate) Interval() time.Duration {
	if r.Count <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(float64(r.Per) / r.Count))
}

// String is the rate as it was written, such as "37/min".
func (r Rate) String() string {
	if r.text != "" {
		return r.text
	}
	return strconv.FormatFloat(r.PerSecond(), 'g', -1, 64) + "/s"
}

// ParseRate reads a number, a slash and a unit: 10/s, 600/min, 5000/h,
// 1500/day. Units are s, m or min, h, d or day.
func ParseRate(text string) (Rate, error) {
	number, unit, found := strings.Cut(text, "/")
	if !found {
		return Rate{}, errors.New("a rate is a number and a unit, such as 10/s, 600/min, 5000/h or 1500/day")
	}
	var per time.Duration
	switch unit {
	case "s":
		per = time.Second
	case "m", "min":
		per = time.Minute
	case "h":
		per = time.Hour
	case "d", "day":
		per = 24 * time.Hour
	default:
		return Rate{}, fmt.Errorf("unknown unit %q of a rate, want s, m, min, h, d or day", clip(unit))
	}
	count, err := parseDecimal(number)
	if err != nil {
		return Rate{}, err
	}
	r := Rate{Count: count, Per: per, text: text}
	switch {
	case count <= 0:
		return Rate{}, errors.New("a rate must be above 0")
	case r.PerSecond() > MaxRate:
		return Rate{}, fmt.Errorf("a rate must be at most %g/s", MaxRate)
	case float64(per)/count > float64(MaxHorizon):
		return Rate{}, errors.New("a rate must be at least one in 31 days")
	}
	return r, nil
}

// parseDecimal reads a plain decimal number: no exponent, sign, hex or infinity.
func parseDecimal(text string) (float64, error) {
	for _, c := range []byte(strings.TrimPrefix(text, "-")) {
		if (c < '0' || c > '9') && c != '.' {
			return 0, fmt.Errorf("%q is not a number", clip(text))
		}
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", clip(text))
	}
	return v, nil
}

const day = 24 * time.Hour

// ParseDuration reads Go's syntax (1h30m, 250ms, 1200s) and a leading whole
// number of days: 1d, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	rest, days := text, time.Duration(0)
	if number, after, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("days must be a whole number, such as 1d or 1d12h, up to %d", math.MaxUint16)
		}
		days, rest = time.Duration(n)*day, after
		if rest == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, errors.New("a duration is a number and a unit, such as 250ms, 15m, 1h30m or 1d")
	}
	if days > 0 && (d < 0 || d > math.MaxInt64-days) {
		return 0, errors.New("the part after the days must be positive and bounded")
	}
	return days + d, nil
}

// clip bounds what an error repeats of a file.
func clip(text string) string {
	const most = 40
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

func describe(l Limit) string {
	window := func() string { return short(l.Window) }
	switch l.Kind {
	case TokenBucket:
		return fmt.Sprintf("%s %s burst %d", l.Kind, l.Rate, l.Burst)
	case FixedWindow, SlidingWindow:
		return fmt.Sprintf("%s %d/%s", l.Kind, l.Count, window())
	case Concurrency:
		return fmt.Sprintf("%s %d", l.Kind, l.Count)
	case CostWindow:
		return fmt.Sprintf("%s %g/%s", l.Kind, l.Units, window())
	case BusyTime:
		return fmt.Sprintf("%s %s/%s", l.Kind, short(l.Busy), window())
	case Slowdown:
		return fmt.Sprintf("%s %s x%g", l.Kind, l.Knee, l.Factor)
	}
	return string(l.Kind)
}

// short is a duration in whole days, or without the zero units that
// Duration.String trails.
func short(d time.Duration) string {
	if d > 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return span.Text(d)
}
