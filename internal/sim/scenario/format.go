package scenario

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headway-go/headway/internal/span"
)

// Format writes a scenario as a file that [Parse] reads back as the same
// scenario. It says everything, defaults too, apart from what the kind of
// workload does not have, and from a description too long for a line. Rates are
// written as they were read.
func Format(s *Scenario) []byte {
	f := &formatter{}
	f.line("name: %q", s.Name)
	if s.Description != "" && len(s.Description) <= maxDescription {
		f.line("description: %s", strconv.Quote(s.Description))
	}
	f.line("horizon: %s", span.Text(s.Horizon))
	if s.Workload.Kind != Bulk {
		f.line("clients: %d", s.Clients)
		if s.Fleet {
			f.line("fleet: true")
		}
		f.line("owner: {ceiling: %s, initial: %s}", span.Text(s.Owner.Ceiling), span.Text(s.Owner.Initial))
	}
	f.workload(&s.Workload)
	f.line("provider:")
	f.provider(&s.Provider)
	return []byte(f.String())
}

// maxDescription is the longest description that is written, in bytes.
const maxDescription = 400

type formatter struct{ strings.Builder }

func (f *formatter) line(format string, args ...any) { fmt.Fprintf(f, format+"\n", args...) }

// group is a mapping on one line, of what is said of it.
func group(pairs ...string) string {
	var said []string
	for _, p := range pairs {
		if p != "" {
			said = append(said, p)
		}
	}
	return "{" + strings.Join(said, ", ") + "}"
}

// when is a pair where it is worth saying.
func when(said bool, format string, args ...any) string {
	if !said {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// plain is a number without an exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func (f *formatter) workload(w *Workload) {
	f.line("workload: %s", group(
		fmt.Sprintf("kind: %s", w.Kind),
		when(w.Rate != Rate{}, "rate: %s", w.Rate),
		when(w.Burst > 0, "burst: %d", w.Burst),
		when(w.Pause > 0, "active: %s, pause: %s", span.Text(w.Active), span.Text(w.Pause)),
		when(w.Rows > 0, "rows: %d", w.Rows),
		when(w.Users > 0, "users: %d", w.Users),
		fmt.Sprintf("max_in_flight: %d", w.MaxInFlight),
		when(w.Kind != Bulk, "cost: {mean: %s, spread: %s}", plain(w.Cost.Mean), plain(w.Cost.Spread)),
	))
}

func (f *formatter) provider(p *Provider) {
	l := p.Latency
	f.line("  latency: {p50: %s, p99: %s, uplink_p50: %s, uplink_p99: %s}",
		span.Text(l.P50), span.Text(l.P99), span.Text(l.UplinkP50), span.Text(l.UplinkP99))
	if b := p.Batch; b != nil {
		f.line("  batch: %s", group(
			fmt.Sprintf("overhead: %s, per_row: %s, max_rows: %d, spread: %s", span.Text(b.Overhead), span.Text(b.PerRow), b.MaxRows, plain(b.Spread)),
			when(b.Knee > 0, "knee: %d", b.Knee), when(b.SharedKnee > 0, "shared_knee: %d", b.SharedKnee),
		))
	}
	if p.Hint > 0 {
		f.line("  hint: %d", p.Hint)
	}
	list(f, "limits", p.Limits, formatLimit)
	t := p.Throttle
	f.line("  throttle: %s", group(
		fmt.Sprintf("status: %d, retry_after: %s", t.Status, t.RetryAfter),
		when(t.RetryAfterFactor > 0, "retry_after_factor: %s", plain(t.RetryAfterFactor)),
		when(t.RetryAfterConstant > 0, "retry_after_constant: %s", span.Text(t.RetryAfterConstant)),
		fmt.Sprintf("headers: %s, counts_rejected: %t", t.Headers, t.CountsRejected),
	))
	if q := p.Penalty; q != nil {
		f.line("  penalty: %s", group(
			fmt.Sprintf("base: %s, factor: %s, max: %s, forgive: %s", span.Text(q.Base), plain(q.Factor), span.Text(q.Max), span.Text(q.Forgive)),
			when(q.Fixed, "fixed: true"),
		))
	}
	if q := p.Suspend; q != nil {
		f.line("  suspend: {throttles: %d, within: %s}", q.Throttles, span.Text(q.Within))
	}
	if q := p.Strangers; q != nil {
		f.line("  strangers: %s", group("rate: "+q.Rate.String(), when(q.On > 0, "on: %s, off: %s", span.Text(q.On), span.Text(q.Off))))
	}
	list(f, "changes", p.Changes, func(c Change) string {
		return group(
			"at: "+span.Text(c.At), when(c.Over > 0, "over: %s", span.Text(c.Over)), "scale: "+plain(c.Scale),
			when(c.Hint > 0, "hint: %d", c.Hint), when(c.Knee > 0, "knee: %d", c.Knee),
		)
	})
	list(f, "faults", p.Faults, func(q Fault) string {
		return fmt.Sprintf("{at: %s, for: %s, kind: %s}", span.Text(q.At), span.Text(q.For), q.Kind)
	})
}

// list writes an element a line, and nothing for none.
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
		when(l.Busy > 0, "limit: %s", span.Text(l.Busy)),
		when(l.Window > 0, "window: %s", span.Text(l.Window)),
		when(l.Kind == FixedWindow, "align: %s", l.Align),
		when(l.Kind == Slowdown, "knee: %s, factor: %s", l.Knee, plain(l.Factor)),
	)
}
