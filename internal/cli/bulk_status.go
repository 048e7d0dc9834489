package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/journal"
)

// loadStatus is what is known of a load.
type loadStatus struct {
	bulk.Status
	Dir string `json:"dir"`
	// Changed is when its journal last was; zero when that is not known.
	Changed time.Time `json:"changed,omitzero"`
	// LastRun is how the last run ended; nil while one is under way, and after one
	// that was killed.
	LastRun *summaryJSON `json:"last_run"`
	// Progress is how the run under way stood about a second ago, or one that was
	// killed when it was; nil otherwise.
	Progress *loadNow `json:"progress,omitempty"`
}

func newBulkStatus() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [DIR]",
		Short: "Show what became of the rows of a load, or of all loads, and what is owed",
		Long: `Shows each load under .headway/bulk (or $HEADWAY_BULK_DIR), or the one of a
folder: its rows by outcome, whether it is under way and what keeps it from being
faster, how its last run ended, and what to do. It reads the load's files and disturbs no run. How many rows an input
has is not known before it was read to its end.`,
		Example: `  headway bulk status
  headway bulk status .headway/bulk/contacts.csv-to-crm --json`,
		Args: atMostOne("the folder of a load"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs := args
			if len(args) == 0 {
				var err error
				if dirs, err = loadDirs(); err != nil {
					return err
				}
				if len(dirs) == 0 && !asJSON {
					return usage(noLoads())
				}
			}
			all := make([]loadStatus, 0, len(dirs))
			for _, dir := range dirs {
				s, err := statusOfLoad(dir)
				if err != nil {
					return noLoad(err)
				}
				all = append(all, s)
			}
			if asJSON {
				return writeJSON(cmd, all)
			}
			for i, s := range all {
				if i > 0 {
					_, _ = fmt.Fprintln(cmd.OutOrStdout())
				}
				_, _ = fmt.Fprint(cmd.OutOrStdout(), s.text())
			}
			return nil
		},
		ValidArgsFunction: bulkFolders,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func statusOfLoad(dir string) (loadStatus, error) {
	s := loadStatus{Dir: dir}
	// How it ended is read first: when a run begins in between, it shows.
	if b, err := os.ReadFile(filepath.Join(dir, outcomeFile)); err == nil {
		var last summaryJSON
		if json.Unmarshal(b, &last) == nil {
			s.LastRun = &last
		}
	}
	var err error
	if s.Status, err = bulk.ReadStatus(dir); err != nil {
		return s, err
	}
	if info, err := os.Stat(filepath.Join(dir, journal.File)); err == nil {
		s.Changed = info.ModTime()
	}
	if s.LastRun != nil && s.LastRun.Load != s.Load || s.Running != nil && *s.Running {
		s.LastRun = nil
	}
	if s.LastRun == nil {
		s.Progress = readView(dir)
	}
	return s, nil
}

func (s *loadStatus) text() string {
	var b strings.Builder
	b.WriteString(s.Dir + "\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(label, format string, args ...any) {
		_, _ = fmt.Fprintf(w, "  %s\t%s\n", label, fmt.Sprintf(format, args...))
	}
	format, _, _ := strings.Cut(s.Input.Format, ",")
	row("input", "%s (%s)", s.Input.Name, format)
	row("target", "%s", s.Target)
	if s.InputRead {
		row("rows", "%s", figure.Count(s.Rows))
	} else {
		row("rows", "unknown, the input was not read to its end; %s at least", figure.Count(s.Rows))
	}
	row("acknowledged", "%s", figure.Count(s.Acknowledged))
	row("rejected", "%s", filed(s.Rejected, s.RejectsFile))
	row("uncertain", "%s", filed(s.Uncertain, s.UncertainFile))
	owed := figure.Count(s.Owed)
	if !s.InputRead {
		owed += " known of"
	}
	if s.InDoubt > 0 {
		owed += fmt.Sprintf(", of which %s were under way when the journal was written last", figure.Count(s.InDoubt))
	}
	row("owed", "%s", owed)
	complete := s.InputRead && s.Owed == 0
	switch {
	case s.Running == nil:
		row("running", "unknown (the folder's lock cannot be read)")
	case *s.Running:
		row("running", "yes, journal written %s ago", ago(s.Changed))
	default:
		row("running", "no, journal written last at %s", s.Changed.Local().Format(time.DateTime))
	}
	switch last := s.LastRun; {
	case last != nil:
		text := string(last.State)
		if !complete || last.State == bulk.Failed {
			text += fmt.Sprintf(" (%s)", last.Reason)
		}
		if last.Cause != "" {
			text += ": " + last.Cause
		}
		row("last run", "%s, ended %s", text, last.Ended.Local().Format(time.DateTime))
		if last.Counts.Sent > 0 {
			row("bound by", "%s", last.BoundBy)
		}
		if !last.RetryAt.IsZero() {
			row("retry at", "%s", last.RetryAt.Local().Format(time.RFC3339))
		}
	case s.Running != nil && !*s.Running && !complete:
		row("last run", "unknown: it was killed")
	}
	if now := s.Progress; now != nil {
		text := now.BoundBy.String()
		if s.Running == nil || !*s.Running {
			text += ", as of " + now.At.Local().Format(time.DateTime)
		} else {
			row("under way", "%s, %s rows/s", plural(int64(now.InFlight), "batch", "batches"), figure.Count(int64(now.RowsPerSecond)))
		}
		row("bound by", "%s", text)
	}
	if s.Running != nil && !*s.Running && !complete {
		if s.Input.Stream() {
			row("next", "it read from a pipe: load what is owed, and all after it, from a file into another folder")
		} else {
			row("next", "headway bulk resume %s", shellWord(s.Dir))
		}
	}
	_ = w.Flush()
	return b.String()
}
