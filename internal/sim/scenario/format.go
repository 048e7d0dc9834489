package scenario

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headway-go/headway/internal/figure"
)

// Format writes a scenario as a file that [Parse] reads back as the same scenario. It
// writes everything, including defaults, except what the kind of workload does not have and
// descriptions that are too long for a line. Rates are written as they were read.
func Format(s *Scenario) []byte {
	f := &formatter{}
	f.line("name: %q", s.Name)
	if s.Description != "" && len(s.Description) <= maxDescription {
		f.line("description: %s", strconv.Quote(s.Description))
	}
	f.line("horizon: %s", figure.Duration(s.Horizon))
	if s.Workload.Kind != Bulk {
		f.line("clients: %d", s.Clients)
		if s.Link != nil {
			f.link(s.Link)
		} else if s.Fleet {
			f.line("fleet: true")
		}
		start := ""
		if s.Owner.Passive {
			start = ", start: " + startPassive
		}
		f.line("owner: {ceiling: %s, initial: %s%s%s}", figure.Duration(s.Owner.Ceiling), figure.Duration(s.Owner.Initial), start, windows(s.Owner.Windows))
	}
	f.workload(&s.Workload)
	f.line("provider:")
	f.provider(&s.Provider)
	return []byte(f.String())
}

// windows is the field of the lengths that the owner knows of, if there are any.
func windows(all []time.Duration) string {
	if len(all) == 0 {
		return ""
	}
	words := make([]string, len(all))
	for i, w := range all {
		words[i] = figure.Duration(w)
	}
	return ", windows: [" + strings.Join(words, ", ") + "]"
}

// link writes the link between a fleet and its server.
func (f *formatter) link(l *Link) {
	var faults []string
	for _, one := range l.Faults {
		faults = append(faults, group(
			"at: "+figure.Duration(one.At), "for: "+figure.Duration(one.For), "kind: "+string(one.Kind),
			when(one.Kind == Cut, "clients: %d", one.Clients),
		))
	}
	f.line("fleet: %s", group("trip: "+figure.Duration(l.Trip), when(len(faults) > 0, "faults: [%s]", strings.Join(faults, ", "))))
}

// maxDescription is the maximum length of a description that is written, in bytes.
const maxDescription = 400

type formatter struct{ strings.Builder }

func (f *formatter) line(format string, args ...any) { fmt.Fprintf(f, format+"\n", args...) }

// group writes a mapping on one line, without empty pairs.
func group(pairs ...string) string {
	var said []string
	for _, p := range pairs {
		if p != "" {
			said = append(said, p)
		}
	}
	return "{" + strings.Join(said, ", ") + "}"
}

// when returns a pair if the condition holds, otherwise "".
func when(said bool, format string, args ...any) string {
	if !said {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// plain formats a number without an exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func (f *formatter) workload(w *Workload) {
	f.line("workload: %s", group(
		fmt.Sprintf("kind: %s", w.Kind),
		when(w.Rate != Rate{}, "rate: %s", w.Rate),
		when(w.Burst > 0, "burst: %d", w.Burst),
		when(w.Pause > 0, "active: %s, pause: %s", figure.Duration(w.Active), figure.Duration(w.Pause)),
		when(w.Rows > 0, "rows: %d", w.Rows),
		when(w.Users > 0, "users: %d", w.Users),
		fmt.Sprintf("max_in_flight: %d", w.MaxInFlight),
		when(w.Kind != Bulk, "cost: {mean: %s, spread: %s%s}", plain(w.Cost.Mean), plain(w.Cost.Spread),
			when(w.Cost.Estimate != 1 || w.Cost.Error > 0, ", estimate: %s, error: %s", plain(w.Cost.Estimate), plain(w.Cost.Error))),
	))
}

func (f *formatter) provider(p *Provider) {
	l := p.Latency
	f.line("  latency: {p50: %s, p99: %s, uplink_p50: %s, uplink_p99: %s}",
		figure.Duration(l.P50), figure.Duration(l.P99), figure.Duration(l.UplinkP50), figure.Duration(l.UplinkP99))
	if b := p.Batch; b != nil {
		f.line("  batch: %s", group(
			fmt.Sprintf("overhead: %s, per_row: %s, max_rows: %d, spread: %s", figure.Duration(b.Overhead), figure.Duration(b.PerRow), b.MaxRows, plain(b.Spread)),
			when(b.Knee > 0, "knee: %d", b.Knee), when(b.SharedKnee > 0, "shared_knee: %d", b.SharedKnee),
		))
	}
	if p.Hint > 0 {
		f.line("  hint: %d", p.Hint)
	}
	list(f, "limits", p.Limits, formatLimit)
	list(f, "pools", p.Pools, func(q Pool) string {
		var limits []string
		for _, l := range q.Limits {
			limits = append(limits, formatLimit(l))
		}
		return group(fmt.Sprintf("name: %q, share: %s", q.Name, plain(q.Share)), when(len(limits) > 0, "limits: [%s]", strings.Join(limits, ", ")))
	})
	t := p.Throttle
	f.line("  throttle: %s", group(
		fmt.Sprintf("status: %d, retry_after: %s", t.Status, t.RetryAfter),
		when(t.RetryAfterFactor > 0, "retry_after_factor: %s", plain(t.RetryAfterFactor)),
		when(t.RetryAfterConstant > 0, "retry_after_constant: %s", figure.Duration(t.RetryAfterConstant)),
		fmt.Sprintf("headers: %s, counts_rejected: %t", t.Headers, t.CountsRejected),
	))
	if q := p.Penalty; q != nil {
		f.line("  penalty: %s", group(
			fmt.Sprintf("base: %s, factor: %s, max: %s, forgive: %s", figure.Duration(q.Base), plain(q.Factor), figure.Duration(q.Max), figure.Duration(q.Forgive)),
			when(q.Fixed, "fixed: true"),
		))
	}
	if q := p.Suspend; q != nil {
		f.line("  suspend: {throttles: %d, within: %s}", q.Throttles, figure.Duration(q.Within))
	}
	if q := p.Strangers; q != nil {
		f.line("  strangers: %s", group("rate: "+q.Rate.String(), when(q.On > 0, "on: %s, off: %s", figure.Duration(q.On), figure.Duration(q.Off))))
	}
	list(f, "changes", p.Changes, func(c Change) string {
		return group(
			"at: "+figure.Duration(c.At), when(c.Over > 0, "over: %s", figure.Duration(c.Over)), "scale: "+plain(c.Scale),
			when(c.Hint > 0, "hint: %d", c.Hint), when(c.Knee > 0, "knee: %d", c.Knee),
		)
	})
	list(f, "faults", p.Faults, func(q Fault) string {
		return group("at: "+figure.Duration(q.At), "for: "+figure.Duration(q.For), "kind: "+string(q.Kind), when(q.Share > 0, "share: %s", plain(q.Share)))
	})
}

// list writes one element per line, and nothing for an empty list.
func list[T any](f *formatter, name string, all []T, format func(T) string) {
	if len(all) == 0 {
		return
	}
	f.line("  %s:", name)
	for _, e := range all {
		f.line("    - %s", format(e))
	}
}

func formatLimit(l Limit) string {
	return group(
		fmt.Sprintf("kind: %s", l.Kind),
		when(l.Kind == TokenBucket, "rate: %s, burst: %d", l.Rate, l.Burst),
		when(l.Count > 0, "limit: %d", l.Count),
		when(l.Units > 0, "limit: %s", plain(l.Units)),
		when(l.Busy > 0, "limit: %s", figure.Duration(l.Busy)),
		when(l.Window > 0, "window: %s", figure.Duration(l.Window)),
		when(l.Kind == FixedWindow, "align: %s", l.Align),
		when(l.Approximate, "approximate: true"),
		when(l.Kind == Slowdown, "knee: %s, factor: %s", l.Knee, plain(l.Factor)),
	)
}

// Rate is a number of requests per unit of time, as written. The zero Rate is invalid.
type Rate struct {
	// Count requests per Per.
	Count float64
	Per   time.Duration
	text  string
}

// PerSecond returns the rate in requests a second.
func (r Rate) PerSecond() float64 {
	if r.Per <= 0 {
		return 0
	}
	return r.Count / r.Per.Seconds()
}

// Interval returns the time between two requests, rounded up to a nanosecond so that a
// limiter that uses it never admits more.
func (r Rate) Interval() time.Duration {
	if r.Count <= 0 {
		return 0
	}
	return time.Duration(math.Ceil(float64(r.Per) / r.Count))
}

// String returns the rate as written, such as "37/min".
func (r Rate) String() string {
	if r.text != "" {
		return r.text
	}
	return strconv.FormatFloat(r.PerSecond(), 'g', -1, 64) + "/s"
}

// ParseRate parses a number, a slash and a unit: 10/s, 600/min, 5000/h, 1500/day. Units are
// s, m or min, h, d or day.
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

// parseDecimal parses a decimal number without exponent, sign, hex or infinity.
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

// ParseDuration parses Go's syntax (1h30m, 250ms, 1200s) with an optional whole number of
// days: 1d, 1d12h.
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

// clip shortens text of a file for an error.
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

// short formats a duration in whole days, or without the zero units at the end of
// Duration.String.
func short(d time.Duration) string {
	if d > 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return figure.Duration(d)
}
