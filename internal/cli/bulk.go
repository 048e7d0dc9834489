package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/journal"
)

func newBulk() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bulk",
		Short: "Load rows into an API, as fast as it takes them, and account for every row",
		Long: `Loads rows (JSON lines, CSV, Parquet) into an API that a target file describes:
JSON over HTTP, or a table of Dataverse. How many batches are under way at once
follows what the server recommends and what it refuses.

Every row ends in one of: acknowledged; rejected, in a file with the server's
reason that can be corrected and loaded again; uncertain, when it may have been
written and to write it again could make two; or owed, and then "bulk resume"
sends it. A load has a folder of its own that keeps this.`,
		Example: `  headway bulk check contacts.csv --target crm.yaml   # what would be sent?
  headway bulk run contacts.csv --target crm.yaml
  headway bulk status
  headway bulk resume .headway/bulk/contacts.csv-to-crm
  headway bulk rejects .headway/bulk/contacts.csv-to-crm`,
	}
	return group(cmd, newBulkRun(), newBulkResume(), newBulkCheck(), newBulkStatus(), newBulkRejects())
}

// notShared refuses a folder that is never one load's own: a root, or somebody's
// home.
func notShared(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return usage(err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	home, _ := os.UserHomeDir()
	parent := filepath.Dir(abs)
	if abs != parent && abs != home && filepath.Dir(parent) != parent {
		return nil
	}
	if abs != parent && abs != home {
		// Right below a root: /data may be a load's own, what is full is not.
		if entries, err := os.ReadDir(abs); err != nil || len(entries) == 0 || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == journal.File }) {
			return nil
		}
	}
	return usage(fmt.Errorf("--dir %s: a load needs a folder of its own, and this one is shared: name one below it, such as %s", dir, filepath.Join(abs, "loads", "one")))
}

// bulkRoot is the folder of the loads' folders, by environment or default.
func bulkRoot() string {
	if p := os.Getenv("HEADWAY_BULK_DIR"); p != "" {
		return p
	}
	return filepath.Join(".headway", "bulk")
}

// bulkDir is the folder of a load that was given none. A pipe is another input
// each time.
func bulkDir(in journal.Input, target string, now time.Time) string {
	name := filepath.Base(in.Name)
	if in.Name == "-" {
		name = "stdin"
	}
	name = strings.Map(func(c rune) rune {
		if c < ' ' || strings.ContainsRune(`/\:*?"<>|`, c) {
			return '_'
		}
		return c
	}, name)
	if in.Stream() {
		name += "-" + now.UTC().Format("20060102T150405.000")
	}
	return filepath.Join(bulkRoot(), name+"-to-"+target)
}

// loadDirs are the folders with a load, by name.
func loadDirs() ([]string, error) {
	root := bulkRoot()
	all, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var dirs []string
	for _, e := range all {
		dir := filepath.Join(root, e.Name())
		if _, err := os.Stat(filepath.Join(dir, journal.File)); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// oneLoad is the folder that args name. Without one it is the only load that is
// not complete, if there is just one.
func oneLoad(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	dirs, err := loadDirs()
	if err != nil {
		return "", err
	}
	if len(dirs) == 0 {
		return "", usage(noLoads())
	}
	open := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		s, err := bulk.ReadStatus(dir)
		return err == nil && s.InputRead && s.Owed == 0
	})
	switch {
	case len(open) == 1:
		return open[0], nil
	case len(open) == 0:
		return "", usage(fmt.Errorf("no load under %s has anything left to do (see \"headway bulk status\")", bulkRoot()))
	}
	return "", usage(fmt.Errorf("%d loads are not complete, name one of: %s", len(open), strings.Join(open, ", ")))
}

func noLoads() error {
	return fmt.Errorf("there are no loads under %s: nothing was loaded from here yet (HEADWAY_BULK_DIR names another folder, or give the load's own)", bulkRoot())
}

// noLoad makes a usage error of a folder that has none.
func noLoad(err error) error {
	if errors.Is(err, journal.ErrNone) {
		return usage(fmt.Errorf("%w (\"headway bulk status\" lists the loads under %s)", err, bulkRoot()))
	}
	return err
}

// bulkFolders completes the folders of loads.
func bulkFolders(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	dirs, err := loadDirs()
	if err != nil || len(dirs) == 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return dirs, cobra.ShellCompDirectiveDefault
}

// atMostOne is cobra.MaximumNArgs(1) with the program's exit code.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= 1 {
			return nil
		}
		return exactly(1, "at most "+what)(cmd, args)
	}
}

func newBulkRejects() *cobra.Command {
	var rows, uncertain bool
	cmd := &cobra.Command{
		Use:   "rejects [DIR]",
		Short: "Show the rows that a load's target refused, and why",
		Long: `Shows each rejected row of a load: where it stands in the input and what the
server said. With --rows it prints the rows alone, one a line, to be corrected and
loaded again: as JSON, whatever the input was, so "bulk run" takes them as JSON
lines. A row that could not be read stands there as it was.

With --uncertain it is about the rows that may have been written or not.`,
		Example: `  headway bulk rejects .headway/bulk/contacts.csv-to-crm
  headway bulk rejects .headway/bulk/contacts.csv-to-crm --rows > fixed.jsonl
  headway bulk run fixed.jsonl --target crm.yaml      # once they are corrected
  headway bulk rejects .headway/bulk/contacts.csv-to-crm --uncertain --json`,
		Args: atMostOne("the folder of a load"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if rows && asJSON(cmd) {
				return usage(fmt.Errorf("--rows and --json are two ways to print: leave one out"))
			}
			dir, err := rejectsDir(args)
			if err != nil {
				return err
			}
			all := bulk.Rejects(dir)
			if uncertain {
				all = bulk.Uncertain(dir)
			}
			switch {
			case rows:
				err = printRows(cmd, all)
			case asJSON(cmd):
				err = printRejects(cmd, all)
			default:
				err = listRejects(cmd, all)
			}
			return noLoad(err)
		},
		ValidArgsFunction: bulkFolders,
	}
	cmd.Flags().BoolVar(&rows, "rows", false, "print the rows alone, to be corrected and loaded again")
	cmd.Flags().BoolVar(&uncertain, "uncertain", false, "those that may or may not be written, instead of those that were refused")
	cmd.Flags().Bool("json", false, "print JSON lines: row, place and error")
	return cmd
}

// rejectsDir is the folder that args name, or the only one there is.
func rejectsDir(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	dirs, err := loadDirs()
	switch {
	case err != nil:
		return "", err
	case len(dirs) == 0:
		return "", usage(noLoads())
	case len(dirs) > 1:
		return "", usage(fmt.Errorf("there are %d loads, name one of: %s", len(dirs), strings.Join(dirs, ", ")))
	}
	return dirs[0], nil
}

// printRows prints the rows alone.
func printRows(cmd *cobra.Command, all iter.Seq2[bulk.Reject, error]) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	missing := 0
	for r, err := range all {
		if err != nil {
			_ = out.Flush()
			return err
		}
		text := r.Text
		if len(r.Row) > 0 {
			text = string(r.Row)
		}
		if text = strings.ReplaceAll(text, "\n", " "); strings.TrimSpace(text) == "" {
			missing++
			continue
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return err
		}
	}
	if missing > 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "headway: %s could not be read and left nothing to print; without --rows it is shown where they stand\n", plural(int64(missing), "row", "rows"))
	}
	return out.Flush()
}

// printRejects prints JSON lines.
func printRejects(cmd *cobra.Command, all iter.Seq2[bulk.Reject, error]) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	for r, err := range all {
		if err == nil {
			err = e.Encode(r)
		}
		if err != nil {
			_ = out.Flush()
			return err
		}
	}
	return out.Flush()
}

// listRejects prints a line for each row.
func listRejects(cmd *cobra.Command, all iter.Seq2[bulk.Reject, error]) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	n := 0
	for r, err := range all {
		if err != nil {
			_ = out.Flush()
			return err
		}
		n++
		where := fmt.Sprintf("row %s", figure.Count(r.Number+1))
		if r.Line > 0 {
			where = fmt.Sprintf("line %s", figure.Count(r.Line))
		}
		var said []string
		if r.Error.Status > 0 {
			said = append(said, fmt.Sprint(r.Error.Status))
		}
		if r.Error.Code != "" {
			said = append(said, r.Error.Code)
		}
		head := strings.Join(said, " ")
		if r.Error.Message != "" && head != "" {
			head += ": "
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", where, printable(head+r.Error.Message)); err != nil {
			return err
		}
	}
	if n == 0 {
		_, _ = fmt.Fprintln(out, "none")
	}
	return out.Flush()
}

// printable keeps what a server said from moving the cursor of a terminal.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, s)
}
