package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/bulk"
	"github.com/headway-go/headway/internal/figure"
)

func newBulkRejects() *cobra.Command {
	var rows, uncertain, asJSON bool
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
			if rows && asJSON {
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
			case asJSON:
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
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines: row, place and error")
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
