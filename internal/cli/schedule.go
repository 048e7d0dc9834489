package cli

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/schedule"
	"github.com/headway-go/headway/internal/story"
	"github.com/headway-go/headway/internal/worker"
)

func newSchedule() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Show when a running daemon, or the workers on a database, collect which connection",
		Long: `Shows the connections that a running "headway serve" collects by itself: which
are being collected, when the others run next, and which failed and why. Where
run.catchup_schedule gives the past times of its own, these have a column. The
folder with their files is collections.dir of the daemon's configuration. With --store
they are those that the workers on a database collect ("headway worker").`,
		Example: `  headway schedule --server http://127.0.0.1:8700
  headway schedule --json
  headway schedule --store postgres://headway@db/headway`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []schedule.Status
			at, err := storeURL(cmd)
			if err != nil {
				return err
			}
			c, err := remote(cmd)
			if err != nil {
				return err
			}
			if at != "" && (c == nil || cmd.Flags().Changed("store")) {
				if all, err = worker.Jobs(cmd.Context(), at); err != nil {
					return unavailable(err)
				}
				return present(cmd, all, scheduleText(all, time.Now()))
			}
			if c == nil {
				return usage(errors.New("only a running daemon and the workers on a database have a schedule: name one by --server or $" + serverVariable + ", the other by --store or $" + storeVariable))
			}
			if all, err = c.Schedule(cmd.Context()); err != nil {
				return answered(cmd, err)
			}
			return present(cmd, all, scheduleText(all, time.Now()))
		},
	}
	serverFlag(cmd)
	cmd.Flags().String("store", "", "`URL` of the PostgreSQL database of workers (default $"+storeVariable+")")
	return jsonFlag(cmd)
}

// scheduleText is a line for each connection.
func scheduleText(all []schedule.Status, now time.Time) string {
	if len(all) == 0 {
		return "nothing is collected by itself here (collections.dir in a daemon's configuration, or a worker's folder)\n"
	}
	var table sheet
	apart := slices.ContainsFunc(all, func(s schedule.Status) bool { return !s.CatchupNext.IsZero() || s.Lane != "" })
	header := "CONNECTION\tNEXT RUN\tLAST RUN\tFILE"
	if apart {
		header = "CONNECTION\tNEXT RUN\tNEXT CATCH-UP\tLAST RUN\tFILE"
	}
	table.line("%s", header)
	when := func(running bool, at time.Time, otherwise string) string {
		switch {
		case running:
			return "now"
		case at.IsZero():
			return otherwise
		}
		return at.Local().Format(time.DateTime) + ", in " + clock(max(0, at.Sub(now)))
	}
	for _, s := range all {
		next := when(s.Running && s.Lane != collect.Catchup, s.Next, "unknown")
		if apart {
			next += "\t" + when(s.Running && s.Lane == collect.Catchup, s.CatchupNext, "with each run")
		}
		last := "ok"
		switch {
		case s.Failures > 0:
			last = fmt.Sprintf("failed %d in a row: %s", s.Failures, s.Error)
		case s.Error != "":
			last = s.Error
		case s.Running || s.Next.IsZero() || s.File == "": // a worker's job has no file before its first run
			last = "-"
		}
		table.line("%s\t%s\t%s\t%s", s.Connection, next, last, s.File)
	}
	return table.String()
}

func newRuns() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "runs [CONNECTION]",
		Short: "List runs, the newest first",
		Example: `  headway runs
  headway runs chat-archive --limit 5 --json`,
		Args: atMostOne("the connection"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usage(fmt.Errorf("--limit is %d, must not be negative", limit))
			}
			return withConnections(cmd, args, func(r collect.Reader, all []collect.ConnectionStatus) error {
				name := ""
				if len(args) == 1 {
					name = all[0].Name
				}
				runs, err := r.Runs(cmd.Context(), name, limit)
				if err != nil {
					return err
				}
				var table sheet
				table.line("RUN\tCONNECTION\tSTATE\tREASON\tSTARTED\tTOOK\tRECORDS\tATTEMPTS\tREFUSED\tGAPS")
				for _, run := range runs {
					took := "-"
					if !run.Ended.IsZero() {
						took = clock(run.Ended.Sub(run.Started))
					}
					table.line("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", run.ID, run.Connection, story.Run(run), run.Reason,
						run.Started.Local().Format(time.DateTime), took, figure.Count(run.Records), figure.Count(run.Attempts), figure.Count(run.Throttled), figure.Count(run.GapsOpened))
				}
				return present(cmd, orEmpty(runs), table.String())
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "how many; 0 is all")
	stateFlag(cmd)
	serverFlag(cmd)
	cmd.AddCommand(newRunsShow())
	return jsonFlag(cmd)
}

func newRunsShow() *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use:   "show RUN",
		Short: "Show a run's trace: what happened, when and why",
		Example: `  headway runs show 20261121T020304Z-1a2b3c4d
  headway runs show 20261121T020304Z-1a2b3c4d --json`,
		Args: exactly(1, "the run's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withReader(cmd, func(r collect.Reader) error {
				runs, err := r.Runs(cmd.Context(), "", 0)
				if err != nil {
					return err
				}
				for _, run := range runs {
					if run.ID != args[0] {
						continue
					}
					events, err := r.Events(cmd.Context(), run.ID)
					if err != nil {
						return err
					}
					if asJSON(cmd) {
						return writeJSON(cmd, map[string]any{"run": run, "events": orEmpty(events)})
					}
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s of %s: %s\n", run.ID, run.Connection, runLine(run))
					if run.Error != "" {
						_, _ = fmt.Fprintf(cmd.OutOrStdout(), "  error: %s\n", run.Error)
					}
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "  bound by: %s\n", run.BoundBy)
					for _, e := range events {
						_, _ = fmt.Fprintf(cmd.OutOrStdout(), "  %10s  %s\n", "+"+clock(e.At.Sub(run.Started)), story.Event(e))
					}
					return nil
				}
				return usage(fmt.Errorf("no run %q in %s (see \"headway runs\")", args[0], asked(cmd)))
			})
		},
	})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
