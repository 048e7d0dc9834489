package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/internal/audit"
	"github.com/headway-go/headway/internal/story"
)

func newAudit() *cobra.Command {
	var (
		since string
		limit int
	)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who changed what: gaps, limits and keys",
		Long: `Lists the changes that people made with the commands, the API and the console, the
newest first: who, when, what, and how it was before and after. It reads audit.jsonl
beside the state file, or with --server asks a running daemon.

A change is written down before it is made, and again when it is over. An outcome that is
unknown is that of a process which was killed in between.`,
		Example: `  headway audit
  headway audit --since 24h
  headway audit --since 2026-11-01 --json
  headway audit --server http://127.0.0.1:8700`,
		Args: exactly(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := sinceWhen(since, time.Now())
			if err != nil {
				return err
			}
			if limit < 0 {
				return usage(fmt.Errorf("--limit is %d, must not be negative", limit))
			}
			list, err := changes(cmd, from, limit)
			if err != nil {
				return err
			}
			if len(list) == 0 && !asJSON(cmd) {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "no changes")
				return err
			}
			var table sheet
			table.line("AT\tWHO\tACTION\tTARGET\tBEFORE\tAFTER\tOUTCOME")
			for _, e := range list {
				outcome := string(e.Outcome)
				if e.Error != "" {
					outcome += ": " + e.Error
				}
				table.line("%s\t%s\t%s\t%s\t%s\t%s\t%s", e.At.Local().Format(time.DateTime), story.Visible(e.Who), story.Visible(e.Action), clip(e.Target, 60),
					clip(valuesText(e.Before), 60), clip(valuesText(e.After), 60), clip(outcome, 120))
			}
			return present(cmd, orEmpty(list), table.String())
		},
	}
	serverFlag(cmd)
	f := cmd.Flags()
	f.String("state", "", "`file` of the state, beside which the audit log is (default $HEADWAY_STATE, else "+defaultState+")")
	f.StringVar(&since, "since", "", "only changes since then: a `time` ago such as 24h, a day, or an instant such as 2026-11-23T08:00:00Z")
	f.IntVar(&limit, "limit", 100, "how many; 0 is all")
	return jsonFlag(cmd)
}

// changes asks the daemon, or the log beside the state file.
func changes(cmd *cobra.Command, since time.Time, limit int) ([]audit.Entry, error) {
	c, err := remote(cmd)
	if err != nil {
		return nil, err
	}
	if c != nil {
		list, err := c.Audit(cmd.Context(), since, limit)
		return list, answered(cmd, err)
	}
	list, unread, err := audit.New(stateFolder(cmd), nil).Read(since, 0, limit)
	if unread > 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s of the audit log cannot be read\n", counted(int64(unread), "line"))
	}
	return list, err
}

// sinceWhen reads --since; empty is the zero instant.
func sinceWhen(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	t, err := time.ParseInLocation(time.DateOnly, text, time.Local)
	if err != nil {
		return t, usage(fmt.Errorf("--since is %q, must be a time ago such as 24h, a day such as 2026-11-23, or an instant such as 2026-11-23T08:00:00Z", text))
	}
	return t, nil
}

// valuesText writes values in one line, by name.
func valuesText(values map[string]any) string {
	if len(values) == 0 {
		return "-"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b, err := json.Marshal(values[name])
		if err != nil {
			continue
		}
		parts = append(parts, name+"="+string(b))
	}
	return strings.Join(parts, " ")
}

// stateFolder is the folder of the state file, which --state may name too.
func stateFolder(cmd *cobra.Command) string {
	path := statePath(cmd)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return path
	}
	return filepath.Dir(path)
}

// localUser is who acts on this machine, for the audit log.
func localUser() string {
	u, err := user.Current()
	if err != nil {
		return "local user"
	}
	return "local user " + u.Username
}
