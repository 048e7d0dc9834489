package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/schedule"
)

func newSchedule() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Show when a running daemon collects which connection",
		Long: `Shows the connections that a running "headway serve" collects by itself: which
are being collected, when the others run next, and which failed and why. Where
run.catchup_schedule gives the past times of its own, these have a column. The
folder with their files is collections.dir of the daemon's configuration.`,
		Example: `  headway schedule --server http://127.0.0.1:8700
  headway schedule --json`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := remote(cmd)
			if err != nil {
				return err
			}
			if c == nil {
				return usage(errors.New("only a running daemon has a schedule: name it by --server or $" + serverVariable))
			}
			all, err := c.Schedule(cmd.Context())
			if err != nil {
				return answered(cmd, err)
			}
			if asJSON {
				return writeJSON(cmd, all)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), scheduleText(all, time.Now()))
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	serverFlag(cmd)
	return cmd
}

// scheduleText is a line for each connection.
func scheduleText(all []schedule.Status, now time.Time) string {
	if len(all) == 0 {
		return "the daemon collects nothing by itself (collections.dir in its configuration)\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	apart := slices.ContainsFunc(all, func(s schedule.Status) bool { return !s.CatchupNext.IsZero() || s.Lane != "" })
	header := "CONNECTION\tNEXT RUN\tLAST RUN\tFILE"
	if apart {
		header = "CONNECTION\tNEXT RUN\tNEXT CATCH-UP\tLAST RUN\tFILE"
	}
	_, _ = fmt.Fprintln(w, header)
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
		case s.Running || s.Next.IsZero():
			last = "-"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Connection, next, last, s.File)
	}
	_ = w.Flush() // into memory
	return b.String()
}
