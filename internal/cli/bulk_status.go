package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/breaker"
	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/journal"
	"github.com/headway-go/headway/reason"
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
	return jsonFlag(&cobra.Command{
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
				if len(dirs) == 0 && !asJSON(cmd) {
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
			if asJSON(cmd) {
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
	})
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
	var out sheet
	row := out.row
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
	return s.Dir + "\n" + out.String()
}

// maxIdentities is how many identities have a line of their own in the progress.
const maxIdentities = 8

// loadBlock is a load at an instant: three lines and one for each identity, of at
// most width cells; 0 means no bound.
func loadBlock(name string, p bulk.Progress, speed float64, left string, width int) []string {
	lines := []string{
		fmt.Sprintf("%s %s: %s of %s settled, %s rows/s, %s",
			clock(p.Elapsed), name, figure.Count(p.Acknowledged+p.Rejected+p.Uncertain), inputText(p.Totals), figure.Number(speed), left),
		fmt.Sprintf("  %s acknowledged, %s rejected, %s uncertain, %s owed",
			figure.Count(p.Acknowledged), figure.Count(p.Rejected), figure.Count(p.Uncertain), figure.Count(p.Owed)),
		fmt.Sprintf("  %s of %s rows under way, %s sent, %s",
			plural(int64(p.InFlight), "batch", "batches"), figure.Count(int64(p.BatchRows)), figure.Count(p.Counts.Sent), throttles(p)),
	}
	if p.Waiting != reason.None && p.InFlight == 0 {
		lines[2] += ", waiting: " + p.Waiting.String()
	}
	for i, id := range p.Identities {
		if i == maxIdentities {
			lines = append(lines, fmt.Sprintf("  and %d more identities", len(p.Identities)-i))
			break
		}
		lines = append(lines, "  "+identityText(id, p.Elapsed))
	}
	if width > 0 {
		for i, l := range lines {
			lines[i] = clip(l, width-1)
		}
	}
	return lines
}

// inputText is how many rows there are, as far as it is known.
func inputText(t bulk.Totals) string {
	if t.InputRead {
		return figure.Count(t.Rows) + " rows"
	}
	return figure.Count(t.Rows) + " read so far"
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return figure.Count(n) + " " + many
}

// throttles says how much of what was sent was refused for rate or load.
func throttles(p bulk.Progress) string {
	c := p.Counts
	if c.Throttled == 0 {
		return "none throttled"
	}
	return fmt.Sprintf("%s throttled (%s per 1,000)", figure.Count(c.Throttled), figure.Number(float64(c.Throttled)*1000/float64(c.Sent)))
}

// identityText is an identity's level, its ceiling and why it is not higher; now
// is the time since the run began.
func identityText(id bulk.IdentityProgress, now time.Duration) string {
	law := id.Law
	s := fmt.Sprintf("%s: %d of at most %d at once", id.Name, law.Current, min(law.Max, law.Ceiling))
	if law.Ceiling < law.Max {
		s += " (for the execution time that is allowed)"
	}
	if id.InFlight > 0 {
		s += fmt.Sprintf(", %d under way", id.InFlight)
	}
	if law.TotalThrottles > 0 {
		s += fmt.Sprintf(", last throttle %s ago", clock(now-law.LastThrottle))
	} else {
		s += ", no throttle"
	}
	switch {
	case id.Stopped != reason.None:
		s += fmt.Sprintf(", stopped: %s", id.Stopped)
	case id.Circuit == breaker.Open:
		s += fmt.Sprintf(", circuit open for %s more", clock(id.RetryAt-now))
	case id.RetryAt > now:
		s += fmt.Sprintf(", waits %s more", clock(id.RetryAt-now))
	}
	return s
}

// loadSummary is the end of a load for a person.
func loadSummary(name string, s bulk.Summary, err error, dir string, pipe bool) string {
	var b strings.Builder
	row := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "  %-13s %s\n", label, fmt.Sprintf(format, args...))
	}
	took := clock(s.Elapsed)
	switch {
	case s.State == bulk.Drained && s.Counts.Offered == 0 && s.Counts.Rejected == 0:
		fmt.Fprintf(&b, "%s: drained before, nothing was left to do\n", name)
	case s.State == bulk.Drained:
		fmt.Fprintf(&b, "%s: drained in %s, every row has its outcome\n", name, took)
	case s.State == bulk.Deferred:
		fmt.Fprintf(&b, "%s: stopped after %s (%s), the rest is owed\n", name, took, s.Reason)
	default:
		fmt.Fprintf(&b, "%s: failed after %s (%s)\n", name, took, s.Reason)
	}
	if s.Cause != "" {
		row("why", "%s", s.Cause)
	} else if err != nil {
		row("why", "%v", err)
	}
	row("rows", "%s", strings.TrimSuffix(inputText(s.Totals), " rows"))
	acknowledged := figure.Count(s.Acknowledged)
	if s.Counts.Acknowledged != s.Acknowledged {
		acknowledged += fmt.Sprintf(" (%s in this run)", figure.Count(s.Counts.Acknowledged))
	}
	row("acknowledged", "%s", acknowledged)
	row("rejected", "%s", filed(s.Rejected, s.RejectsFile))
	row("uncertain", "%s", filed(s.Uncertain, s.UncertainFile))
	owed := figure.Count(s.Owed)
	if !s.InputRead {
		owed += ", and all after them: the input was not read to its end"
	}
	row("owed", "%s", owed)
	row("batches", "%s sent, %s, %s failed, %s retried, %s split", figure.Count(s.Counts.Sent), throttles(s.Progress),
		figure.Count(s.Counts.Failed), figure.Count(s.Counts.Retried), figure.Count(s.Counts.Split))
	if s.Counts.Sent > 0 {
		row("rate", "%s rows/s", figure.Number(s.RowsPerSecond))
		for i, id := range s.Identities {
			row(map[bool]string{true: "identities"}[i == 0], "%s", identityText(id, s.Elapsed))
		}
		row("bound by", "%s", loadBoundText(s.Progress))
	}
	if !s.RetryAt.IsZero() {
		row("retry at", "%s", s.RetryAt.Local().Format(time.RFC3339))
	}
	row("load", "%s", dir)
	for i, next := range nextSteps(s, dir, pipe) {
		row(map[bool]string{true: "next"}[i == 0], "%s", next)
	}
	return b.String()
}

// loadBoundText says what kept a load from being faster, and what that means where
// one thing did for half of the time or more.
func loadBoundText(p bulk.Progress) string {
	text := p.BoundBy.String()
	shares := p.BoundBy.Shares()
	if len(shares) == 0 || shares[0].Of < 0.5 {
		return text
	}
	atOnce := 0
	for _, id := range p.Identities {
		atOnce += id.Law.Current
	}
	switch shares[0].Bound {
	case reason.BoundCeiling:
		text += fmt.Sprintf("; your ceiling of %s at once, not the provider, was the limit (parallelism.max)", plural(int64(atOnce), "batch", "batches"))
	case reason.BoundLimit:
		text += "; the provider asks for no more at once, or allows no more execution time"
	case reason.BoundParallelism:
		text += fmt.Sprintf("; %s at once is what the provider has borne so far", plural(int64(atOnce), "batch", "batches"))
	case reason.BoundInput:
		text += "; rows came slower than they could be sent"
	default:
	}
	return text
}

// filed is a number of rows and where they are.
func filed(n int64, path string) string {
	if path == "" {
		return figure.Count(n)
	}
	return fmt.Sprintf("%s, in %s", figure.Count(n), path)
}

// nextSteps are what is to be done about a load, as commands.
func nextSteps(s bulk.Summary, dir string, pipe bool) []string {
	var all []string
	at := shellWord(dir)
	resume := "headway bulk resume " + at
	switch {
	case s.State == bulk.Drained:
	case pipe:
		all = append(all, "save the rows to a file, and load what is owed and all after it into another folder")
	case s.Reason == reason.Unauthorized:
		all = append(all, "correct the credential, then "+resume)
	case s.Reason == reason.Forbidden, s.Reason == reason.NotFound:
		all = append(all, "correct the target or its rights, then "+resume)
	case s.Reason == reason.ClientError:
		all = append(all, "headway bulk rejects "+at+"   # see what is refused; correct the target or the rows, then")
		all = append(all, resume)
	case s.State == bulk.Failed:
		all = append(all, "see to the cause, then "+resume)
	case !s.RetryAt.IsZero():
		all = append(all, resume+"   # after "+s.RetryAt.Local().Format(time.TimeOnly))
	default:
		all = append(all, resume)
	}
	if s.Rejected > 0 && s.Reason != reason.ClientError {
		all = append(all, "headway bulk rejects "+at)
	}
	if s.Uncertain > 0 {
		all = append(all, "headway bulk rejects "+at+" --uncertain   # see which the provider has, load the others")
	}
	return all
}

// shellWord is a word as a shell takes it.
func shellWord(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("/._-:+@%,=", c)
	}
	if s != "" && strings.IndexFunc(s, func(c rune) bool { return !plain(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
