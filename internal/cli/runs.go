package cli

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/figure"
)

func newRuns() *cobra.Command {
	var (
		asJSON bool
		limit  int
	)
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
				if asJSON {
					return writeJSON(cmd, orEmpty(runs))
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				_, _ = fmt.Fprintln(w, "RUN\tCONNECTION\tSTATE\tREASON\tSTARTED\tTOOK\tRECORDS\tATTEMPTS\tREFUSED\tGAPS")
				for _, run := range runs {
					took := "-"
					if !run.Ended.IsZero() {
						took = clock(run.Ended.Sub(run.Started))
					}
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", run.ID, run.Connection, stateText(run), run.Reason,
						run.Started.Local().Format(time.DateTime), took, figure.Count(run.Records), figure.Count(run.Attempts), figure.Count(run.Throttled), figure.Count(run.GapsOpened))
				}
				return w.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many; 0 is all")
	stateFlag(cmd)
	serverFlag(cmd)
	cmd.AddCommand(newRunsShow())
	return cmd
}

func newRunsShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
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
					if asJSON {
						return writeJSON(cmd, map[string]any{"run": run, "events": orEmpty(events)})
					}
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s of %s: %s\n", run.ID, run.Connection, runLine(run))
					if run.Error != "" {
						_, _ = fmt.Fprintf(cmd.OutOrStdout(), "  error: %s\n", run.Error)
					}
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "  bound by: %s\n", run.BoundBy)
					for _, e := range events {
						_, _ = fmt.Fprintf(cmd.OutOrStdout(), "  %10s  %s\n", "+"+clock(e.At.Sub(run.Started)), eventText(e))
					}
					return nil
				}
				return usage(fmt.Errorf("no run %q in %s (see \"headway runs\")", args[0], asked(cmd)))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// stateText is how a run stands; one that is not a collection says what it is.
func stateText(r collect.Run) string {
	if r.Kind != collect.RunCollects {
		return fmt.Sprintf("%s %s", r.Kind, r.State)
	}
	return string(r.State)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
