package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/reason"
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
		Args: cobra.MaximumNArgs(1),
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
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", run.ID, run.Connection, run.State, run.Reason,
						run.Started.Local().Format(time.DateTime), took, count(run.Records), count(run.Attempts), count(run.Throttled), count(run.GapsOpened))
				}
				return w.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many; 0 is all")
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
					for _, e := range events {
						_, _ = fmt.Fprintf(cmd.OutOrStdout(), "  %10s  %s\n", "+"+clock(e.At.Sub(run.Started)), eventText(e))
					}
					return nil
				}
				return usage(fmt.Errorf("no run %q in %s (see \"headway runs\")", args[0], statePath(cmd)))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newGaps() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "gaps",
		Short:   "Look at the work that is owed",
		Example: `  headway gaps list --connection chat-archive`,
	}
	var (
		asJSON      bool
		f           collect.GapFilter
		status, why string
	)
	list := &cobra.Command{
		Use:   "list",
		Short: "List gaps, the oldest first",
		Long: `Lists durable records of work that is still owed: which detail of which item,
why it could not be fetched, how often it was asked for and when it may be tried
again. A later run works them off by itself.`,
		Example: `  headway gaps list
  headway gaps list --connection chat-archive --reason rate_limited --json
  headway gaps list --status recovered`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Status = collect.GapStatus(status)
			switch f.Status {
			case collect.GapPending, collect.GapLeased, collect.GapRecovered, collect.GapTerminal:
			case "all":
				f.Status = ""
			default:
				return usage(fmt.Errorf("--status is %q, must be pending, leased, recovered, terminal or all", status))
			}
			if why != "" {
				r, ok := reason.Parse(why)
				if !ok {
					return usage(fmt.Errorf("--reason is %q, must be one of %v", why, reason.All()))
				}
				f.Reason = r
			}
			if f.Limit < 0 {
				return usage(fmt.Errorf("--limit is %d, must not be negative", f.Limit))
			}
			return withReader(cmd, func(r collect.Reader) error {
				gaps, err := r.Gaps(cmd.Context(), f)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(cmd, orEmpty(gaps))
				}
				if len(gaps) == 0 {
					_, _ = fmt.Fprintln(cmd.OutOrStdout(), "no such gaps")
					return nil
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				_, _ = fmt.Fprintln(w, "ID\tCONNECTION\tSTREAM\tKEY\tSTATUS\tREASON\tATTEMPTS\tLAST ERROR\tLAST SEEN\tRETRY AT")
				for _, g := range gaps {
					retry := "any time"
					if !g.RetryAt.IsZero() {
						retry = g.RetryAt.Local().Format(time.DateTime)
					}
					_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", g.ID, g.Connection, g.Stream, clip(g.Key, 40), g.Status,
						g.Reason, g.Attempts, orDash(g.LastError), g.LastSeen.Local().Format(time.DateTime), retry)
				}
				if err := w.Flush(); err != nil {
					return err
				}
				if f.Limit > 0 && len(gaps) == f.Limit {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "the first %d; --limit 0 lists all\n", f.Limit)
				}
				return nil
			})
		},
	}
	list.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	list.Flags().StringVar(&f.Connection, "connection", "", "only of this connection")
	list.Flags().StringVar(&f.Stream, "stream", "", "only of this stream")
	list.Flags().StringVar(&status, "status", string(collect.GapPending), "pending, leased, recovered, terminal or all")
	list.Flags().StringVar(&why, "reason", "", "only for this reason")
	list.Flags().IntVar(&f.Limit, "limit", 100, "how many; 0 is all")
	cmd.AddCommand(list)
	return cmd
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
