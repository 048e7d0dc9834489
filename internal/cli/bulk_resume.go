package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-go/headway/bulk"
	rowsource "github.com/headway-go/headway/bulk/source"
	"github.com/headway-go/headway/internal/atomicfile"
	"github.com/headway-go/headway/internal/disk"
	"github.com/headway-go/headway/internal/dispatch"
	"github.com/headway-go/headway/internal/figure"
)

func newBulkResume() *cobra.Command {
	var (
		f     bulkFlags
		input string
	)
	cmd := &cobra.Command{
		Use:   "resume [DIR]",
		Short: "Resume a load that was stopped or killed",
		Long: `Resumes the load of a folder as it was started; without a folder, with the
only one that is not complete. The input has to be the same file (its length and
beginning are compared), the target the same address and operation. Numbers that
are given here count from now on.`,
		Example: `  headway bulk resume
  headway bulk resume .headway/bulk/contacts.csv-to-crm
  headway bulk resume .headway/bulk/contacts.csv-to-crm --target crm-new-login.yaml
  headway bulk resume .headway/bulk/contacts.csv-to-crm --input /mnt/moved/contacts.csv
  headway bulk resume .headway/bulk/stdin-to-crm < contacts.jsonl`,
		Args: atMostOne("the folder of a load"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			dir, err := oneLoad(args)
			if err != nil {
				return err
			}
			status, err := bulk.ReadStatus(dir)
			if err != nil {
				return noLoad(err)
			}
			if status.Input.Stream() && (!status.InputRead || status.Owed > 0) {
				return usage(fmt.Errorf("%s read from a pipe, which cannot be read again: of %s rows that it had read %s are owed; load those, and all after them, from a file into another folder", dir, figure.Count(status.Rows), figure.Count(status.Owed)))
			}
			r, err := readRecipe(dir)
			if err != nil {
				return usage(err)
			}
			if err := f.change(cmd, &r, input); err != nil {
				return err
			}
			return runLoad(cmd, &r, r.Input, dir, bulk.ResumeOnly, newScreen(cmd, f.quiet))
		},
		ValidArgsFunction: bulkFolders,
	}
	f.targetFlag(cmd, "the target file, where it is not where it was")
	cmd.Flags().StringVar(&input, "input", "", "the rows' file, where it is not where it was")
	f.load(cmd)
	return cmd
}

// change puts what was given now over what the load was started with.
func (f *bulkFlags) change(cmd *cobra.Command, r *recipe, input string) (err error) {
	if f.target != "" {
		if r.Target, err = filepath.Abs(f.target); err != nil {
			return err
		}
		r.targetAs = f.target
	}
	if input != "" {
		if r.Input, err = filepath.Abs(input); err != nil {
			return err
		}
	}
	n := &f.numbers
	if n.MaxParallel > 0 { // by flag or environment
		r.Numbers.MaxParallel = n.MaxParallel
	}
	for name, set := range map[string]func(){
		"batch-rows":        func() { r.Numbers.BatchRows = n.BatchRows },
		"target-time":       func() { r.Numbers.TargetTime = n.TargetTime },
		"max-rejects":       func() { r.Numbers.MaxRejects = n.MaxRejects },
		"stall-timeout":     func() { r.Numbers.StallTimeout = n.StallTimeout },
		"drain":             func() { r.Numbers.Drain = n.Drain },
		"seed":              func() { r.Numbers.Seed = n.Seed },
		"stop-on-malformed": func() { r.Numbers.StopOnMalformed = n.StopOnMalformed },
	} {
		if cmd.Flags().Changed(name) {
			set()
		}
	}
	return nil
}

// The files that the commands keep beside a load's journal. The journal alone
// says what became of the rows; these say how to go on, and how it ended.
const (
	recipeFile  = "load.json"
	outcomeFile = "summary.json"
	bulkVersion = 1
)

// recipe is what "bulk resume" has to know of "bulk run". It holds no secret: the
// target file has references only, and is named here, not copied.
type recipe struct {
	Version int `json:"version"`
	// Input and Target are absolute paths; Input is "-" for standard input.
	Input  string `json:"input"`
	Target string `json:"target"`
	// How the input is read. Another way makes other rows of it.
	Format  rowsource.Format     `json:"format,omitempty"`
	MaxRow  int                  `json:"max_row,omitempty"`
	CSV     rowsource.CSVOptions `json:"csv,omitzero"`
	Numbers numbers              `json:"numbers,omitzero"`

	targetAs string // what the target's file was called now; empty as in Target
}

// numbers are those of a load that a flag or the environment may set.
type numbers struct {
	MaxParallel     int           `json:"max_parallel,omitempty"`
	BatchRows       int           `json:"batch_rows,omitempty"`
	TargetTime      time.Duration `json:"target_time_ns,omitempty"`
	MaxRejects      int64         `json:"max_rejects,omitempty"`
	StallTimeout    time.Duration `json:"stall_timeout_ns,omitempty"`
	Patience        time.Duration `json:"patience_ns,omitempty"` // former name of StallTimeout; only read
	Drain           time.Duration `json:"drain_ns,omitempty"`
	Seed            uint64        `json:"seed,omitempty"`
	StopOnMalformed bool          `json:"stop_on_malformed,omitempty"`
}

// over sets them over those of the target file.
func (n *numbers) over(p *dispatch.Params) {
	if n.MaxParallel > 0 {
		p.Law.Ceiling = n.MaxParallel
		if p.Law.Max == 0 || p.Law.Max > n.MaxParallel {
			p.Law.Max = n.MaxParallel
		}
		p.Law.Min = min(p.Law.Min, n.MaxParallel)
	}
	if n.BatchRows > 0 {
		p.BatchRows = n.BatchRows
		p.FirstRows = min(p.FirstRows, n.BatchRows)
	}
	if n.TargetTime > 0 {
		p.TargetTime = n.TargetTime
	}
	if n.MaxRejects > 0 {
		p.MaxRejects = n.MaxRejects
	}
	if n.StallTimeout > 0 {
		p.StallTimeout = n.StallTimeout
	}
	if n.Seed > 0 {
		p.Seed = n.Seed
	}
}

// readRecipe reads how a load is resumed.
func readRecipe(dir string) (recipe, error) {
	var r recipe
	path := filepath.Join(dir, recipeFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("%s is not there, so the input and the target are not known: go on with \"headway bulk run FILE --target TARGET.yaml --dir %s\"", path, dir)
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s cannot be read (%w): go on with \"headway bulk run FILE --target TARGET.yaml --dir %s\"", path, err, dir)
	}
	r.Numbers.StallTimeout, r.Numbers.Patience = cmp.Or(r.Numbers.StallTimeout, r.Numbers.Patience), 0
	if r.Version != bulkVersion {
		return r, fmt.Errorf("%s has version %d, this program knows version %d: use the program that wrote it, or \"headway bulk run FILE --target TARGET.yaml --dir %s\"", path, r.Version, bulkVersion, dir)
	}
	return r, nil
}

// keepJSON replaces a file: after a crash it is the old one or the new one.
func keepJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(disk.OS{}, path, append(b, '\n'))
}
