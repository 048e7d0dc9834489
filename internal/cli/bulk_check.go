package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/bulk"
	rowsource "github.com/headway-go/headway/bulk/source"
	"github.com/headway-go/headway/bulk/target"
	"github.com/headway-go/headway/internal/figure"
	"github.com/headway-go/headway/internal/journal"
)

// loadPlan is what a load would do.
type loadPlan struct {
	Target     string        `json:"target"`
	Identities []string      `json:"identities"`
	Input      journal.Input `json:"input"`
	Dir        string        `json:"dir"`
	// BatchRows and MaxParallel bound what is sent.
	BatchRows   int `json:"batch_rows"`
	MaxParallel int `json:"max_parallel"`
	// Assumed is how many batches may be under way until the server says.
	Assumed int `json:"assumed_parallel"`
	// Rows is how many were looked at, Malformed what was wrong with some.
	Rows      int      `json:"rows_looked_at"`
	Malformed []string `json:"malformed"`
	// Request is one of these rows as it would be sent; nil when there is no row.
	Request *target.Preview `json:"request"`
}

func newBulkCheck() *cobra.Command {
	var (
		f    bulkFlags
		rows int
	)
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what loading a file would do, and show the first request; sends nothing",
		Long: `Reads the target file, reports everything that is wrong with it by line and
field, reads the first rows, and shows the first request as it would be sent, with
references in the place of credentials. It sends nothing.`,
		Example: `  headway bulk check contacts.csv --target crm.yaml
  headway bulk check contacts.csv --target crm.yaml --rows 1000 --json`,
		Args: exactly(1, "the rows' file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if rows < 1 || rows > 100_000 {
				return usage(fmt.Errorf("--rows is %d, must be from 1 to 100000", rows))
			}
			if err := f.check(cmd); err != nil {
				return err
			}
			if args[0] == "-" {
				return usage(errors.New("standard input cannot be checked and loaded: it would be gone"))
			}
			r, err := f.recipe(args[0])
			if err != nil {
				return err
			}
			p, err := planLoad(cmd, &r, args[0], rows)
			if err != nil {
				return err
			}
			return present(cmd, p, p.text())
		},
		ValidArgsFunction: rowFiles,
	}
	f.targetFlag(cmd, "file that says where rows go (required)")
	f.input(cmd)
	cmd.Flags().IntVar(&rows, "rows", 100, "how many rows are read")
	return jsonFlag(cmd)
}

func planLoad(cmd *cobra.Command, r *recipe, name string, limit int) (p loadPlan, err error) {
	config, err := target.Load(r.targetAs, os.LookupEnv)
	if err != nil {
		return p, badFile("target that rows can be sent to", err)
	}
	in, err := r.open(cmd, name)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	to := config.Target(nil)
	traits := to.Traits()
	params, err := config.Params.Resolve()
	if err != nil {
		return p, usage(err)
	}
	p = loadPlan{
		Target: traits.Name, Identities: traits.Identities, Input: in.Identity(), Dir: bulkDir(in.Identity(), config.Name, time.Now()),
		BatchRows: params.BatchRows, MaxParallel: params.Law.Ceiling, Assumed: params.Law.Max, Malformed: []string{},
	}
	if traits.MaxRows > 0 {
		p.BatchRows = min(p.BatchRows, traits.MaxRows)
	}
	batch, err := p.look(in, limit)
	if err != nil || len(batch.Rows) == 0 {
		return p, err
	}
	request, err := to.Preview(cmd.Context(), 0, batch)
	if err != nil {
		return p, usage(err)
	}
	p.Request = &request
	return p, nil
}

// look reads the first rows; the batch has two of them at most.
func (p *loadPlan) look(in *rowsource.Input, limit int) (batch bulk.Batch, err error) {
	batch = bulk.Batch{Key: "(drawn for each batch)", Attempt: 1}
	for p.Rows < limit {
		row, err := in.Next()
		bad, malformed := errors.AsType[*bulk.MalformedError](err)
		switch {
		case errors.Is(err, io.EOF):
			return batch, nil
		case malformed:
			p.Malformed = append(p.Malformed, bad.Error())
		case err != nil:
			return batch, usage(err)
		case len(batch.Rows) < min(2, p.BatchRows):
			row.Number = int64(p.Rows)
			batch.Rows = append(batch.Rows, row)
		}
		p.Rows++
	}
	return batch, nil
}

// maxShown bounds how much of a body is shown.
const maxShown = 2 << 10

func (p *loadPlan) text() string {
	var b strings.Builder
	row := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "  %-12s %s\n", label, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "%s: %s\n", p.Input.Name, p.Target)
	row("input", "%s, %s bytes", p.Input.Format, figure.Count(p.Input.Size))
	row("looked at", "%s, %s malformed", plural(int64(p.Rows), "row", "rows"), figure.Count(int64(len(p.Malformed))))
	for i, m := range p.Malformed {
		if i == 5 {
			row("", "and %d more", len(p.Malformed)-i)
			break
		}
		row("", "%s", m)
	}
	row("batches", "of at most %s rows, at most %d at once for each identity; where the server recommends a number, that, but never above %d",
		figure.Count(int64(p.BatchRows)), p.Assumed, p.MaxParallel)
	row("identities", "%s", strings.Join(p.Identities, ", "))
	row("folder", "%s", p.Dir)
	switch {
	case p.Request == nil:
		row("request", "none: no row could be read")
		return b.String()
	case p.Request.URL == "":
		row("request", "none: the rows cannot be sent")
	default:
		fmt.Fprintf(&b, "\nwith two rows at most, by %s:\n\n%s %s\n", p.Request.Identity, p.Request.Method, p.Request.URL)
		for _, name := range slices.Sorted(maps.Keys(p.Request.Header)) {
			fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(p.Request.Header[name], ", "))
		}
		body := p.Request.Body
		if len(body) > maxShown {
			body = strings.ToValidUTF8(body[:maxShown], "") + "…"
		}
		b.WriteString("\n" + body + "\n")
	}
	for _, i := range slices.Sorted(maps.Keys(p.Request.Refused)) {
		fmt.Fprintf(&b, "\nrow %d would be rejected unsent: %s\n", i+1, p.Request.Refused[i].Message)
	}
	return b.String()
}
