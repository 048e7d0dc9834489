package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/control"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/sim"
	"github.com/headway-go/headway/internal/story"
	"github.com/headway-go/headway/reason"
)

// progressBlock describes a run at an instant in two lines of at most width cells; 0
// means any length. host is the provider's.
func progressBlock(name, host string, now collect.Live, width int) []string {
	p := now.Progress
	where := string(now.Phase)
	if now.Stream != "" {
		where += " of " + now.Stream
	}
	first := fmt.Sprintf("%s %s: %s, %s records, %s details, %s unchanged, %s owed",
		clock(now.Elapsed), name, where, figure.Count(p.Records), figure.Count(p.Details), figure.Count(p.Unchanged), figure.Count(now.Outstanding))
	if now.More {
		first += ", more pages follow"
	}
	second := rateText(now.Pacing.Rate)
	switch {
	case now.Waiting != reason.None:
		second += waitText(host, now.Waiting, now.Until)
	case !now.Pacing.RetryAt.IsZero():
		why := reason.Cooldown
		if now.Pacing.Circuit == breaker.Open.String() {
			why = reason.CircuitOpen.Reason()
		}
		second += waitText(host, why, now.Pacing.RetryAt)
	case now.Pacing.Rate == nil:
		second += ", time left unknown"
	case now.More:
		second += fmt.Sprintf(", %s left on this page", clock(now.Left))
	default:
		second += fmt.Sprintf(", %s left", clock(now.Left))
	}
	lines := []string{first, second}
	if width > 0 {
		for i, l := range lines {
			lines[i] = clip(l, width-1)
		}
	}
	return lines
}

// waitText says how long a run still waits, for which host and why.
func waitText(host string, why reason.Reason, until time.Time) string {
	what := strings.ReplaceAll(why.String(), "_", " ")
	switch why {
	case reason.Cooldown:
		what = "Retry-After"
	case reason.CircuitOpen.Reason():
		what = "it kept failing, so the circuit is open"
	case reason.RateLimited.Reason():
		what = "it refuses for rate"
	case reason.UpstreamPressure.Reason():
		what = "it refuses for load"
	default: // the reason's name says it
	}
	return fmt.Sprintf(", waiting %s for %s: %s", clock(max(0, time.Until(until))), host, what)
}

// rateText is a rate against its ceiling and the last back-off; unknown is unknown.
func rateText(r *event.Rate) string {
	if r == nil {
		return "rate unknown"
	}
	s := story.OfCeiling(r)
	if b := r.LastBackoff; b != nil {
		s += fmt.Sprintf(", last back-off %s ago at %s (%s)", ago(b.At), story.BackoffRate(b), b.Reason)
	} else {
		s += ", no back-off"
	}
	return s + believes(r)
}

// believes says which limit the law has learned, and what is refused for load whatever the pace; "" if
// neither is known.
func believes(r *event.Rate) (s string) {
	if r.Belief != nil {
		s = ", learned limit " + beliefText((*sim.Belief)(r.Belief))
	}
	if load := story.RefusedForLoad(r); load != "" {
		s += ", " + load
	}
	return s
}

func ago(t time.Time) string {
	d := time.Since(t)
	if d < time.Second {
		return "under 1s"
	}
	return clock(d)
}

// clock is a duration, rounded for people.
func clock(d time.Duration) string { return story.Clock(d) }

// counted is a number of things: "1 page", "2,000 pages".
func counted(n int64, one string) string { return plural(n, one, one+"s") }

func clip(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:max(width-1, 0)]) + "…"
}

// summaryText is the end of a run for a person.
func summaryText(c *rest.Config, s collect.Summary, into string) string {
	var b strings.Builder
	row := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	took := clock(s.Ended.Sub(s.Started))
	switch s.State {
	case collect.RunDrained:
		if s.Streams != nil || s.Lane != "" {
			fmt.Fprintf(&b, "%s: drained in %s, nothing is left to do for what was asked for\n", c.Name, took)
			break
		}
		fmt.Fprintf(&b, "%s: drained in %s, nothing is left to do\n", c.Name, took)
	case collect.RunIncomplete:
		fmt.Fprintf(&b, "%s: incomplete after %s: what a run can do by itself is done, and something is missing\n", c.Name, took)
	case collect.RunDeferred:
		fmt.Fprintf(&b, "%s: deferred after %s (%s); run it again and it goes on\n", c.Name, took, s.Reason)
	case collect.RunFailed, collect.RunRunning, collect.RunAbandoned:
		fmt.Fprintf(&b, "%s: failed after %s (%s)\n", c.Name, took, s.Reason)
	}
	if s.Error != "" {
		row("error", "%s", s.Error)
	}
	if s.Lane != "" {
		row("lane", "%s only", story.Lane(s.Lane))
	}
	if s.Streams != nil {
		row("streams", "%s only; \"headway status\" shows the rest", strings.Join(s.Streams, ", "))
	}
	p := s.Progress
	row("collected", "%s in %s, %s, into %s", counted(p.Records, "record"), counted(p.Pages, "page"), counted(p.Details, "detail"), into)
	for _, change := range s.Sink {
		row("sink", "%s", change)
	}
	if p.ChildrenGone > 0 {
		row("gone", "%s of details that the provider no longer has", counted(p.ChildrenGone, "record"))
	}
	row("skipped", "%s that did not change", counted(p.Unchanged, "item"))
	row("attempts", "%s (%s refused for rate or load, %s retries)", figure.Count(p.Attempts), figure.Count(p.Throttled), figure.Count(p.Retries))
	row("rate", "%s", rateText(s.Rate))
	row("bound by", "%s", boundText(c, s))
	row("owed", "%s", owedText(s.Owed, s.More))
	for _, stream := range slices.Sorted(maps.Keys(s.Orphaned)) {
		row("orphaned", "%s", story.Change(c.Name, collect.Change{Kind: collect.GapsOrphaned, Stream: stream, Count: s.Orphaned[stream]}))
	}
	for _, w := range s.Warnings {
		row("warning", "%s", w)
	}
	if s.Cooldown.Cycles > 0 && s.Cooldown.NeedsAttention {
		row("attention", "%d runs in a row made no progress for the provider's pressure: look at its limits, the credential and the ceiling", s.Cooldown.Cycles)
	}
	if !s.RetryAt.IsZero() {
		row("retry at", "%s", s.RetryAt.Local().Format(time.RFC3339))
	}
	row("run", "%s", s.ID)
	if line := missingText(s); line != "" {
		row("missing", "%s", line)
	}
	return b.String()
}

// missingText says what the run leaves uncollected and what to do about it; "" if
// nothing.
func missingText(s collect.Summary) string {
	var parts []string
	owed := int64(0)
	for _, n := range s.Owed {
		owed += n
	}
	if owed > 0 {
		parts = append(parts, fmt.Sprintf("%s owed, which a later run fetches", figure.Count(owed)))
	}
	if s.Quarantined > 0 {
		parts = append(parts, fmt.Sprintf("%s quarantined, which no run fetches by itself (\"headway gaps list --status terminal\" says why, \"headway gaps release\" tries again)", figure.Count(s.Quarantined)))
	}
	return strings.Join(parts, "; ")
}

// boundText says what kept a run from being faster, and what to do if one thing did
// for at least half of the time.
func boundText(c *rest.Config, s collect.Summary) string {
	text := s.BoundBy.String()
	shares := s.BoundBy.Shares()
	if len(shares) == 0 || shares[0].Of < 0.5 {
		return text
	}
	ceiling := cmp.Or(c.Provider.Ceiling, control.DefaultCeiling)
	switch shares[0].Bound {
	case reason.BoundCeiling:
		text += fmt.Sprintf("; your ceiling of %s (%s), not the provider, was the limit", ceiling, figure.Rate(float64(time.Minute)/float64(ceiling)))
		if c.Provider.Ceiling == 0 {
			text += ": it is the default, set provider.ceiling"
		}
	case reason.BoundLimit:
		if s.Rate != nil && s.Rate.Belief != nil {
			text += "; the provider's limit is believed to be " + beliefText((*sim.Belief)(s.Rate.Belief))
		}
	case reason.BoundLatency:
		text += "; most of the time went on waiting for responses"
		if n := c.Run.Concurrency; n > 0 {
			text += fmt.Sprintf(", with run.concurrency set to %d", n)
		}
	default: // the owner can do nothing about it
	}
	return text
}

// owedText lists what is owed, by reason. more says that pages are left, whose details
// are not counted yet.
func owedText(owed map[string]int64, more bool) string {
	switch {
	case len(owed) == 0 && more:
		return "more pages follow"
	case len(owed) == 0:
		return "nothing"
	case more:
		return owedText(owed, false) + "; more pages follow"
	}
	total, parts := int64(0), []string{}
	for _, why := range slices.Sorted(maps.Keys(owed)) {
		total += owed[why]
		parts = append(parts, fmt.Sprintf("%s %s", figure.Count(owed[why]), why))
	}
	return fmt.Sprintf("%s (%s); see \"headway gaps list\"", counted(total, "detail"), strings.Join(parts, ", "))
}

// How often progress is shown.
const (
	repaint   = 200 * time.Millisecond // on a terminal
	plainLine = 5 * time.Second        // elsewhere
)

// screen shows one run: a block that is repainted on a terminal, a line every
// few seconds elsewhere, or JSON lines.
type screen struct {
	out, err io.Writer
	json     bool
	quiet    bool
	width    func() int // nil when standard error is not a terminal

	destination string // where the records go, for people

	mu      sync.Mutex
	painted int // lines of the block on the terminal
}

func newScreen(cmd *cobra.Command, quiet bool) *screen {
	s := &screen{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), json: asJSON(cmd), quiet: quiet}
	if f, ok := s.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.width = func() int {
			w, _, err := term.GetSize(int(f.Fd()))
			if err != nil || w < 20 {
				return 80
			}
			return w
		}
	}
	return s
}

// say prints a line for a person, above the progress.
func (s *screen) say(text string) {
	if s.json {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	_, _ = fmt.Fprintln(s.err, "headway: "+text)
}

// line prints one JSON line.
func (s *screen) line(kind string, v any) {
	b, err := json.Marshal(map[string]any{"type": kind, kind: v})
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.Write(append(b, '\n'))
}

// event prints an event that a person should see at once; as JSON, every event.
func (s *screen) event(e event.Event) {
	if s.json {
		s.line("event", e)
		return
	}
	switch {
	case e.Type == event.Circuit && e.Circuit.State == "open":
		s.say("the provider keeps failing: the circuit is open, attempts pause")
	case e.Type == event.Circuit && e.Circuit.State == "closed":
		s.say("the provider answers again: the circuit is closed")
	case e.Type == event.ConnectionChanged, e.Type == event.Warning, e.Type == event.Fleet:
		s.say(story.Event(e))
	case e.Note == "cursor_refused_walk_restarted":
		s.say("the provider no longer knows the stored cursor of " + e.Stream + ": walking from the start, known items are skipped")
	case e.Type == event.WarmStart && e.Note == "restored":
		s.say("warm start: going on at the speed that the last run found")
	}
}

// follow shows progress until the function that it returns is called.
func (s *screen) follow(c *rest.Config, collector *collect.Collector) (end func()) {
	if s.quiet {
		return func() {}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(s.every())
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if now, ok := collector.Live(); ok {
				s.progress(now, func(width int) []string { return progressBlock(c.Name, c.Provider.BaseURL.Host, now, width) })
			}
		}
	})
	return func() {
		close(stop)
		wg.Wait()
		s.clear()
	}
}

// every is how often progress is shown.
func (s *screen) every() time.Duration {
	if s.width != nil && !s.json {
		return repaint
	}
	return plainLine
}

// progress shows how something stands: the view as JSON, or the block, which is
// repainted on a terminal and one line elsewhere. A width of 0 is no bound.
func (s *screen) progress(view any, block func(width int) []string) {
	if s.json {
		s.line("progress", view)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width == nil {
		lines := block(0)
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		_, _ = fmt.Fprintln(s.err, strings.Join(lines, "; "))
		return
	}
	lines := block(s.width())
	s.erase()
	_, _ = io.WriteString(s.err, strings.Join(lines, "\n")+"\n")
	s.painted = len(lines)
}

// clear takes the block off the terminal.
func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
}

// erase takes the block off, with the lock held. The terminal may have echoed a
// Ctrl-C, so the line is begun again.
func (s *screen) erase() {
	if s.painted > 0 {
		_, _ = fmt.Fprintf(s.err, "\r\x1b[%dA\x1b[J", s.painted)
		s.painted = 0
	}
}

// conclude prints the summary and gives the exit.
func (s *screen) conclude(c *rest.Config, sum collect.Summary, err error) error {
	if held, ok := errors.AsType[*collect.HeldError](err); ok {
		if s.json {
			s.line("held", map[string]any{"connection": held.Connection, "holder": held.Holder, "run": held.Run, "since": held.Since})
		} else {
			_, _ = fmt.Fprintf(s.out, "%s\nnothing to do here; see \"headway status\"\n", held.Error())
		}
		return exitOf(sum, err)
	}
	switch {
	case sum.ID == "":
		return err
	case s.json:
		s.line("summary", sum)
	default:
		_, _ = io.WriteString(s.out, summaryText(c, sum, s.destination))
	}
	return exitOf(sum, err)
}
