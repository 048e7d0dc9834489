package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/collect"
	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/client"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/reason"
)

func newGaps() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gaps",
		Short: "Look at the work that is owed, and decide about it",
		Example: `  headway gaps list --connection chat-archive
  headway gaps show 17
  headway gaps retry --connection chat-archive     # at once, whatever the cooldown
  headway gaps quarantine 17 18
  headway gaps release --all
  headway gaps drop --connection chat-archive --stream messages   # give them up`,
	}
	stateFlag(cmd)
	return group(cmd, newGapsList(), newGapsShow(),
		newGapsAct(collect.GapRetry, "Make gaps due at once, and end their connection's cooldown",
			"The next run tries them first. Quarantined gaps are not touched; release those."),
		newGapsAct(collect.GapQuarantine, "Take gaps out of recovery",
			"They stay on record and are no longer tried or counted as owed, until they are released."),
		newGapsAct(collect.GapRelease, "Put quarantined gaps back",
			"Their attempts are forgotten; the next run tries them."),
		newGapsAct(collect.GapDrop, "Give gaps up: what they stand for is owed no more",
			"For details that nobody wants any more, such as those of a stream that was taken out of the connection."))
}

func newGapsList() *cobra.Command {
	var (
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
			var err error
			if f.Reason, err = gapReason(why); err != nil {
				return err
			}
			if f.Limit < 0 {
				return usage(fmt.Errorf("--limit is %d, must not be negative", f.Limit))
			}
			return withReader(cmd, func(r collect.Reader) error {
				if err := checkNamed(cmd, r, f.Connection, nil); err != nil {
					return err
				}
				gaps, err := r.Gaps(cmd.Context(), f)
				if err != nil {
					return err
				}
				if len(gaps) == 0 && !asJSON(cmd) {
					text, err := noGaps(cmd, r, f)
					if err != nil {
						return err
					}
					_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
					return err
				}
				var table sheet
				table.line("ID\tCONNECTION\tSTREAM\tKEY\tSTATUS\tREASON\tATTEMPTS\tLAST ERROR\tLAST SEEN\tRETRY AT")
				for _, g := range gaps {
					retry := "any time"
					if !g.RetryAt.IsZero() {
						retry = g.RetryAt.Local().Format(time.DateTime)
					}
					table.line("%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s", g.ID, g.Connection, g.Stream, clip(g.Key, 40), g.Status,
						g.Reason, g.Attempts, orDash(g.LastError), g.LastSeen.Local().Format(time.DateTime), retry)
				}
				err = present(cmd, orEmpty(gaps), table.String())
				if f.Limit > 0 && len(gaps) == f.Limit && !asJSON(cmd) {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "the first %d; --limit 0 lists all\n", f.Limit)
				}
				return err
			})
		},
	}
	jsonFlag(list)
	list.Flags().StringVar(&f.Connection, "connection", "", "only of this connection")
	list.Flags().StringVar(&f.Stream, "stream", "", "only of this stream")
	list.Flags().StringVar(&status, "status", string(collect.GapPending), "pending, leased, recovered, terminal or all")
	list.Flags().StringVar(&why, "reason", "", "only for this reason")
	list.Flags().IntVar(&f.Limit, "limit", 100, "how many; 0 is all")
	serverFlag(list)
	return list
}

// noGaps says that none matched, and that others are quarantined where somebody
// who asked for no status may want to know.
func noGaps(cmd *cobra.Command, r collect.Reader, f collect.GapFilter) (string, error) {
	none := "no such gaps"
	if f.Connection == "" && f.Stream == "" && f.Reason == reason.None {
		none = "no gaps"
	}
	if cmd.Flags().Changed("status") {
		return none, nil
	}
	f.Status, f.Limit = collect.GapTerminal, 0
	quarantined, err := r.Gaps(cmd.Context(), f)
	if err != nil || len(quarantined) == 0 {
		return none, err
	}
	return fmt.Sprintf("%s; %s quarantined (--status terminal lists them)", none, figure.Count(int64(len(quarantined)))), nil
}

// newGapsShow shows one gap.
func newGapsShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one gap",
		Example: `  headway gaps show 17 --json`,
		Args:    exactly(1, "the gap's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := gapIDs(args)
			if err != nil {
				return err
			}
			return withReader(cmd, func(r collect.Reader) error {
				found, err := knownGap(cmd, r, ids[0])
				if err != nil {
					return err
				}
				return present(cmd, found, gapText(found))
			})
		},
	}
	serverFlag(cmd)
	return jsonFlag(cmd)
}

// knownGap returns the gap with an id; one that does not exist is a usage error.
func knownGap(cmd *cobra.Command, r collect.Reader, id int64) (collect.Gap, error) {
	found, err := r.Gaps(cmd.Context(), collect.GapFilter{AfterID: id - 1, Limit: 1})
	if err == nil && (len(found) == 0 || found[0].ID != id) {
		err = usage(fmt.Errorf("there is no gap %d in %s (see \"headway gaps list --status all\")", id, asked(cmd)))
	}
	if err != nil {
		return collect.Gap{}, err
	}
	return found[0], nil
}

// checkNamed finds out that the connection and gaps that were named are there.
func checkNamed(cmd *cobra.Command, r collect.Reader, connection string, ids []int64) error {
	if connection != "" {
		if _, err := pick(cmd, r, []string{connection}); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if _, err := knownGap(cmd, r, id); err != nil {
			return err
		}
	}
	return nil
}

func gapText(g collect.Gap) string {
	var out sheet
	row := func(label, format string, args ...any) { out.line(label+"\t"+format, args...) }
	row("gap", "%d of %s", g.ID, g.Connection)
	if g.Backlog {
		row("owes", "%s of all %s that changed at %q or later", g.Stream, g.Parent, g.Since)
	} else if g.Stream == g.Parent {
		row("owes", "an entry of %s that cannot be read: %s", g.Stream, g.Key)
	} else {
		row("owes", "%s of %s %s", g.Stream, g.Parent, g.Key)
	}
	row("status", "%s", g.Status)
	row("reason", "%s", g.Reason)
	row("attempts", "%d", g.Attempts)
	row("last error", "%s", orDash(g.LastError))
	row("first seen", "%s", g.FirstSeen.Local().Format(time.DateTime))
	row("last seen", "%s", g.LastSeen.Local().Format(time.DateTime))
	if g.RetryAt.IsZero() {
		row("retry at", "any time")
	} else {
		row("retry at", "%s", g.RetryAt.Local().Format(time.DateTime))
	}
	return out.String()
}

// gapIDs reads ids from the command line.
func gapIDs(args []string) ([]int64, error) {
	ids := make([]int64, len(args))
	for i, a := range args {
		n, err := strconv.ParseInt(a, 10, 64)
		if err != nil || n < 1 {
			return nil, usage(fmt.Errorf("a gap's id is a number above 0, not %q (see \"headway gaps list\")", a))
		}
		ids[i] = n
	}
	return ids, nil
}

// newGapsAct is a command that changes gaps: by id, or by filter.
func newGapsAct(action collect.GapAction, short, long string) *cobra.Command {
	var (
		all bool
		f   collect.GapFilter
		why string
	)
	cmd := &cobra.Command{
		Use:   string(action) + " [ID...]",
		Short: short,
		Long:  short + ". " + long + "\n\n\"headway audit\" lists who did so and when.",
		Example: fmt.Sprintf(`  headway gaps %[1]s 17 18
  headway gaps %[1]s --connection chat-archive --reason server_error
  headway gaps %[1]s --all`, action),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := gapIDs(args)
			if err != nil {
				return err
			}
			filtered := f.Connection != "" || f.Stream != "" || why != ""
			given := 0
			for _, is := range []bool{len(ids) > 0, filtered, all} {
				if is {
					given++
				}
			}
			if given != 1 {
				return usage(fmt.Errorf("say which gaps: ids, a filter (--connection, --stream, --reason), or --all"))
			}
			if f.Reason, err = gapReason(why); err != nil {
				return err
			}
			daemon, err := remote(cmd)
			if err != nil {
				return err
			}
			if daemon != nil {
				done, err := daemon.ActOnGaps(cmd.Context(), client.GapChange{
					Action: action, IDs: ids, Connection: f.Connection, Stream: f.Stream, Reason: why, All: all,
				})
				if err != nil {
					return answered(cmd, err)
				}
				return present(cmd, done, fmt.Sprintf("%s: %s\n", action, counted(done.Gaps, "gap")))
			}
			// Nothing is created for a state that is not there.
			if err := withReader(cmd, func(r collect.Reader) error { return checkNamed(cmd, r, f.Connection, ids) }); err != nil {
				return err
			}
			store, err := openStore(cmd)
			if err != nil {
				return err
			}
			var n int64
			folder := stateFolder(cmd)
			database, err := storeURL(cmd)
			if err != nil {
				return err
			}
			if _, missing := os.Stat(folder); missing != nil && database != "" {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "not in the audit log: the state is in a database, and there is no folder %s\n", folder)
				n, err = store.Act(cmd.Context(), action, f, ids)
			} else {
				err = withReader(cmd, func(r collect.Reader) (err error) {
					n, err = audit.New(folder, nil).ActOnGaps(cmd.Context(), localUser(), r, store.Act, action, f, ids)
					return err
				})
			}
			if err = errors.Join(err, store.Close()); err != nil {
				return err
			}
			return present(cmd, map[string]any{"action": action, "gaps": n}, fmt.Sprintf("%s: %s\n", action, counted(n, "gap")))
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all gaps of the state that this applies to")
	cmd.Flags().StringVar(&f.Connection, "connection", "", "those of this connection")
	cmd.Flags().StringVar(&f.Stream, "stream", "", "those of this stream")
	cmd.Flags().StringVar(&why, "reason", "", "those for this reason")
	serverFlag(cmd)
	return jsonFlag(cmd)
}

// gapReason reads --reason; without it any reason counts.
func gapReason(why string) (reason.Reason, error) {
	if why == "" {
		return reason.None, nil
	}
	r, ok := reason.Parse(why)
	if !ok {
		names := make([]string, 0, len(reason.All()))
		for _, r := range reason.All() {
			names = append(names, r.String())
		}
		slices.Sort(names)
		return reason.None, usage(fmt.Errorf("--reason is %q, must be one of %s", why, strings.Join(names, ", ")))
	}
	return r, nil
}
