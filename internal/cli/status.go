package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/connector"
	"github.com/headway-go/headway/connector/rest"
	"github.com/headway-go/headway/event"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/internal/story"
	"github.com/headway-go/headway/reason"
)

// withReader opens the state for reading. A state that does not exist yet is
// said to be so, and is not created.
func withReader(cmd *cobra.Command, use func(collect.Reader) error) error {
	c, err := remote(cmd)
	if err != nil {
		return err
	}
	if c != nil {
		return answered(cmd, use(far{c}))
	}
	r, err := openReader(cmd.Context(), cmd)
	if errors.Is(err, fs.ErrNotExist) {
		return noState(cmd)
	}
	if err != nil {
		return err
	}
	return errors.Join(use(r), r.Close())
}

// withConnections is withReader with the connection that args name, or with all
// when they name none.
func withConnections(cmd *cobra.Command, args []string, use func(collect.Reader, []collect.ConnectionStatus) error) error {
	return withReader(cmd, func(r collect.Reader) error {
		all, err := pick(cmd, r, args)
		if err != nil {
			return err
		}
		return use(r, all)
	})
}

// pick is the named connection, or all without a name; a name that is not there
// is an error that lists those that are.
func pick(cmd *cobra.Command, r collect.Reader, args []string) ([]collect.ConnectionStatus, error) {
	all, err := r.Connections(cmd.Context())
	if err != nil || len(args) == 0 {
		return all, err
	}
	var names []string
	for _, c := range all {
		if c.Name == args[0] {
			return []collect.ConnectionStatus{c}, nil
		}
		names = append(names, c.Name)
	}
	return nil, usage(fmt.Errorf("no connection %q in %s; there are: %s", args[0], asked(cmd), strings.Join(names, ", ")))
}

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [CONNECTION]",
		Short: "Show what is collected, what is owed and who is collecting",
		Long: `Shows each connection: how far its streams are (fully synced, or only part of
the past), how many items it has, what it still owes and why, its last run and
who is collecting it now. It reads the state file and disturbs no run. With
--server it also shows the budgets that the daemon shares with other processes.`,
		Example: `  headway status
  headway status chat-archive --json`,
		Args: atMostOne("the connection"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withConnections(cmd, args, func(r collect.Reader, all []collect.ConnectionStatus) error {
				list := make([]keyedStatus, len(all))
				for i, c := range all {
					aside, err := keysAside(cmd, r, c)
					if err != nil {
						return err
					}
					list[i] = keyedStatus{c, aside}
				}
				if asJSON(cmd) {
					return writeJSON(cmd, list)
				}
				if len(all) == 0 {
					cmd.PrintErrln("headway: nothing is collected in", asked(cmd))
				}
				for i, c := range list {
					if i > 0 {
						cmd.Println()
					}
					_, _ = fmt.Fprint(cmd.OutOrStdout(), statusText(c.ConnectionStatus, c.KeysSetAside...))
				}
				if f, ok := r.(far); ok && len(args) == 0 {
					return sharedBudgets(cmd, f.Client)
				}
				return nil
			})
		},
	}
	stateFlag(cmd)
	serverFlag(cmd)
	return jsonFlag(cmd)
}

// keyedStatus is a connection with those of its keys that its last run set aside.
type keyedStatus struct {
	collect.ConnectionStatus
	KeysSetAside []connector.Warning `json:"keys_set_aside,omitempty"`
}

// keysAside are the keys that the connection's last run set aside.
func keysAside(cmd *cobra.Command, r collect.Reader, c collect.ConnectionStatus) (aside []connector.Warning, err error) {
	if c.LastRun == nil {
		return nil, nil
	}
	events, err := r.Events(cmd.Context(), c.LastRun.ID)
	for _, e := range events {
		if w := collect.WarningOf(e); e.Type == event.Warning && w.Kind == connector.KeySetAside {
			aside = append(aside, w)
		}
	}
	return aside, err
}

// orEmpty keeps an empty list from being null in JSON.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func statusText(c collect.ConnectionStatus, aside ...connector.Warning) string {
	var out sheet
	row := func(label, text string) { out.row(label, "%s", text) }
	for _, stream := range streamsOf(c) {
		row(stream, streamText(c, stream))
	}
	row("owed", owedText(c.Owed, c.Unfinished()))
	if c.Quarantined > 0 {
		row("quarantined", figure.Count(c.Quarantined)+", which no run fetches by itself: \"headway gaps list --status terminal\" says why")
	}
	row("rate", storedRate(c.Pacing))
	if c.Cooldown.Until.After(time.Now()) {
		row("cooldown", "gaps that pressure caused wait until "+c.Cooldown.Until.Local().Format(time.DateTime))
	}
	if c.Cooldown.Cycles > 0 && c.Cooldown.NeedsAttention {
		row("attention", fmt.Sprintf("needs attention: %d runs in a row made no progress for the provider's pressure", c.Cooldown.Cycles))
	}
	if r := c.LastRun; r != nil {
		row("last run", runLine(*r))
		row("bound by", r.BoundBy.String())
	} else {
		row("last run", "none")
	}
	for _, w := range aside {
		row("key", w.String())
	}
	for _, r := range c.Replays {
		row("replay", replayLine(r))
	}
	if c.Holder != "" {
		row("running", "by "+c.Holder)
	} else {
		row("running", "nobody")
	}
	return c.Name + "\n" + out.String()
}

func streamsOf(c collect.ConnectionStatus) []string {
	var names []string
	for _, l := range c.Lanes {
		if !slices.Contains(names, l.Stream) {
			names = append(names, l.Stream)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(c.Items)) {
		if !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	return names
}

// streamText says whether a stream is in catch-up or steady state.
func streamText(c collect.ConnectionStatus, stream string) string {
	var catchup, steady collect.Lane
	for _, l := range c.Lanes {
		if l.Stream == stream && l.Kind == collect.Catchup {
			catchup = l
		}
		if l.Stream == stream && l.Kind == collect.Steady {
			steady = l
		}
	}
	items := counted(c.Items[stream], "item")
	for _, shape := range c.Shapes {
		if shape.Stream == stream && shape.Gone {
			return items + ", no longer in the connection"
		}
	}
	switch {
	case !catchup.Done && !catchup.Walking:
		return items + ", not begun"
	case !catchup.Done:
		return fmt.Sprintf("%s, partially backfilled: %s so far", items, counted(catchup.Pages, "page"))
	case steady.Walking:
		return fmt.Sprintf("%s, backfilled, changes being listed: %s so far", items, counted(steady.Pages, "page"))
	}
	text := items + ", fully synced"
	if steady.Watermark != "" {
		text += " up to " + steady.Watermark
	} else if catchup.Watermark != "" {
		text += " up to " + catchup.Watermark
	}
	return text
}

// storedRate is what a next run would start from.
func storedRate(p *collect.Pacing) string {
	if p == nil || p.IntervalMS <= 0 {
		return "unknown"
	}
	return fmt.Sprintf("%s (%s, learned %s ago)", figure.Rate(60000/p.IntervalMS), p.Law, ago(p.RecordedAt))
}

func runLine(r collect.Run) string {
	took := "still running"
	if !r.Ended.IsZero() {
		took = clock(r.Ended.Sub(r.Started))
	}
	text := fmt.Sprintf("%s, %s", story.Run(r), took)
	if r.Reason != reason.None && r.Reason != reason.Drained {
		text += fmt.Sprintf(" (%s)", r.Reason)
	}
	return text + fmt.Sprintf(", %s, %s, started %s", counted(r.Records, "record"), counted(r.Attempts, "attempt"), r.Started.Local().Format(time.DateTime))
}

// watch says when the next run is, and of which lanes: a deferred one at its
// RetryAt, any other by the schedule.
type watch struct {
	lanes *schedule.Lanes
	turn  schedule.Turn // the run under way
}

// newWatch reads the schedule, and that of the past where it has one of its own.
func newWatch(expression string, run rest.Run, lane collect.LaneKind) (*watch, error) {
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, usage(fmt.Errorf("--schedule is %q: %w (five fields such as \"*/15 * * * *\", or \"@every 15m\")", expression, err))
	}
	var catchup cron.Schedule
	if run.CatchupSchedule != "" && lane == "" {
		if catchup, err = cron.ParseStandard(run.CatchupSchedule); err != nil {
			return nil, usage(fmt.Errorf("run.catchup_schedule is %q: %w", run.CatchupSchedule, err))
		}
	}
	return &watch{lanes: schedule.NewLanes(s, catchup, run.MaxWallClock, time.Now())}, nil
}

// begin says what the run that begins now is bounded to.
func (w *watch) begin() schedule.Turn {
	w.turn = w.lanes.Begin(time.Now())
	return w.turn
}

// pause waits for the next run; false when there is none to come.
func (w *watch) pause(ctx context.Context, stop <-chan struct{}, s *screen, sum collect.Summary, err error) bool {
	if e, ok := errors.AsType[*exitError](err); ok && e.err != nil {
		err = e.err
	}
	if !w.lanes.Ended(w.turn, sum, err, time.Now()) || sum.Reason == reason.Interrupted {
		return false
	}
	at, _, catchup := w.lanes.Due()
	text := "next run at " + at.Local().Format(time.DateTime)
	if !catchup.IsZero() && catchup.After(at) {
		text += ", of the past at " + catchup.Local().Format(time.DateTime)
	}
	s.say(text)
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
	case <-ctx.Done():
	}
	return false
}
